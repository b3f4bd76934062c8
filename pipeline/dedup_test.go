package pipeline

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store/pebblestore"
)

// An event id is remembered for its time to live by the store and not by the process:
// what is sent again within it is not applied after a restart, and what is sent again
// later is, both counted. A duplicate does not make it longer.
func TestEventIDsOutliveRestarts(t *testing.T) {
	t.Parallel()
	const ttl = time.Hour
	for _, compact := range []bool{false, true} {
		t.Run(fmt.Sprintf("compacted %v", compact), func(t *testing.T) {
			t.Parallel()
			var now atomic.Int64 // since the first life
			fs, plan, b := vfs.NewMem(), ledgerPlan(t, ttl), newFakeBroker(1)
			for i, life := range []struct {
				at     time.Duration
				ids    []string
				counts int64 // of all lives
				dup    int64
			}{
				{0, []string{"a", "b"}, 2, 0},
				{time.Minute, []string{"a", "c", "c"}, 3, 2},
				{ttl - time.Millisecond, []string{"a", "b"}, 3, 4},
				{ttl + time.Millisecond, []string{"a", "c", "a"}, 4, 6},
				{ttl + 2*time.Minute, []string{"a", "b", "c"}, 6, 7},
			} {
				now.Store(int64(life.at))
				db, err := pebblestore.Open("db", &pebblestore.Options{FS: fs, CacheBytes: 1 << 20, Now: func() cell.Timestamp {
					return cell.Timestamp(time.UnixMilli(1e12).Add(time.Duration(now.Load())).UnixMilli())
				}})
				if err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					createTables(t, db)
				}
				p := newTest(t, db, b)
				p.newMapper = func() mapper { return plan.NewMapper() }
				r := start(t, p, 0)
				for _, id := range life.ids {
					b.produce(0, (&ledgerEvent{id: id, user: "u", kind: "count"}).String())
				}
				r.caughtUp(b)
				if err := r.close(); err != nil {
					t.Fatal(err)
				}
				want := newLedger()
				want.Counts["0/u"], want.Applied, want.Duplicate = life.counts, life.counts, life.dup
				if d := cmp.Diff(want, readLedger(t, db)); d != "" {
					t.Errorf("life %d, %v after the first: Got other contents (-want +got):\n%s", i, life.at, d)
				}
				if compact {
					err = errors.Join(db.Flush(t.Context()), db.MajorCompact(t.Context(), "counts"))
				}
				if err = errors.Join(err, db.Close()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
