package pipeline

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/pipeline/mapping"
	"sluice/store"
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

// Batches that the engine prepares as if no event id had come before apply each event
// once: whatever id comes again in the same batch, in one of another partition beside it,
// and after a restart.
func TestEventIDsInLargeBatches(t *testing.T) {
	t.Parallel()
	const partitions, events, ids = 3, 4000, 7000
	plan, err := mapping.Compile(&mapping.Spec{
		Decode: mapping.DecodeSpec{Format: "json"},
		Dedup:  mapping.DedupSpec{ID: "id", TTL: time.Hour},
		Rules: []mapping.RuleSpec{
			{Table: "events", Row: `user + "/" + id`, Put: map[string]map[string]string{"e": {"id": "id", "user": "user"}}},
			{Table: "counts", Row: "user", Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `"n"`}, {Family: "c", Qualifier: `"of " + id`, By: "2"}}},
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, backfill := range []Backfill{{}, {Lag: 1}} {
		t.Run(fmt.Sprintf("lag %d", backfill.Lag), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(3, uint64(backfill.Lag)))
			fs, b := vfs.NewMem(), newFakeBroker(partitions)
			once := map[int]bool{}
			for life := range 3 {
				db, err := pebblestore.Open("db", &pebblestore.Options{FS: fs, CacheBytes: 1 << 20})
				if err != nil {
					t.Fatal(err)
				}
				if life == 0 {
					createTables(t, db)
				}
				for n := range int32(partitions) {
					var values []string
					for range events / 3 {
						id := rng.IntN(ids)
						once[id] = true
						values = append(values, (&ledgerEvent{id: fmt.Sprint(id), user: fmt.Sprintf("u%d", id%50)}).String())
					}
					b.produce(n, values...)
				}
				p := newTest(t, db, b, func(o *Options) { o.Flush.MaxRecords, o.Backfill = 500, backfill })
				p.newMapper = func() mapper { return plan.NewMapper() }
				r := start(t, p, 0, 1, 2)
				r.caughtUp(b)
				if err := r.close(); err != nil {
					t.Fatal(err)
				}
				users, rows := map[string]int64{}, 0
				for id := range once {
					users[fmt.Sprintf("u%d", id%50)]++
				}
				sc := db.Scan(t.Context(), &store.Scan{Table: "events"})
				for sc.Next() {
					rows++
				}
				if err := errors.Join(sc.Err(), sc.Close()); err != nil || rows != len(once) {
					t.Errorf("life %d: %d rows and %v, want %d", life, rows, err, len(once))
				}
				sc = db.Scan(t.Context(), &store.Scan{Table: "counts"})
				got := map[string]int64{}
				for sc.Next() {
					row := sc.Row()
					for _, c := range row.Cells {
						n := int64(binary.BigEndian.Uint64(c.Value))
						if string(c.Qualifier) == "n" {
							got[string(row.Key)] = n
						} else if n != 2 {
							t.Errorf("life %d: %s of %s is %d, want 2", life, c.Qualifier, row.Key, n)
						}
					}
				}
				if err := errors.Join(sc.Err(), sc.Close()); err != nil {
					t.Error(err)
				}
				if d := cmp.Diff(users, got); d != "" {
					t.Errorf("life %d: counts (-want +got):\n%s", life, d)
				}
				if l := readLedger(t, db); l.Applied != int64(len(once)) || l.Duplicate != int64(partitions*(life+1)*(events/3)-len(once)) {
					t.Errorf("life %d: %d applied, %d duplicates, of %d ids", life, l.Applied, l.Duplicate, len(once))
				}
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
