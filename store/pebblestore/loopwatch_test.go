package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"sluice/cell"
	"sluice/store"
)

// hanging returns a disk whose calls wait for answer, which bad says of, once it hangs.
func hanging(bad func(op errorfs.Op) bool) (_ vfs.FS, hangs *atomic.Bool, answer chan struct{}) {
	hangs, answer = new(atomic.Bool), make(chan struct{})
	return errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if hangs.Load() && bad(op) {
			<-answer
		}
		return nil
	})), hangs, answer
}

func logSync(op errorfs.Op) bool {
	return op.Kind == errorfs.OpFileSync && strings.HasSuffix(op.Path, ".log") || op.Kind == errorfs.OpFileSyncTo && strings.HasSuffix(op.Path, ".log") ||
		op.Kind == errorfs.OpFileSyncData && strings.HasSuffix(op.Path, ".log")
}

// A disk that does not answer holds the commit that is under way. What waits behind it is
// refused and never applied; what the loop has begun is told the truth in the end.
func TestDiskThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk, hangs, answer := hanging(logSync)
		var log bytes.Buffer
		o := bulk(disk)
		o.MemTableBytes, o.Logger = 1<<20, slog.New(slog.NewTextHandler(&log, nil))
		db, err := Open("db", o)
		if err != nil {
			t.Fatal(err)
		}
		create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
		hangs.Store(true)
		increment := func(ctx context.Context) error {
			m := &cell.Mutation{Table: "t", Row: []byte("r"), Durability: cell.SyncWAL}
			m.Increment("n", []byte("q"), 1)
			_, err := db.MutateRow(ctx, nil, m)
			return err
		}
		first := make(chan error, 1)
		go func() { first <- increment(t.Context()) }()
		synctest.Wait()
		begun := time.Now()
		const behind = 300 // more than wait in the channel
		refused := make(chan error, behind+3)
		for range behind {
			go func() { refused <- increment(t.Context()) }()
		}
		go func() {
			var b store.Batch
			b.Add(1, *put("r2", 1, "f", "a", "1", "b", "2"))
			refused <- db.Apply(t.Context(), &b)
		}()
		go func() { _, err := db.Snapshot(t.Context()); refused <- err }()
		go func() { refused <- db.SplitRegion(t.Context(), "t", []byte("m")) }()
		synctest.Wait()
		time.Sleep(stallAfter / 2)
		if err := db.Stalled(); err != nil {
			t.Errorf("Got %v after %s", err, stallAfter/2)
		}
		if m := db.Metrics(); m.Hold != HoldCommit || m.HoldSeconds != (stallAfter/2).Seconds() {
			t.Errorf("Got held by a %s for %v s", m.Hold, m.HoldSeconds)
		}
		for range behind + 3 {
			if err := <-refused; !errors.Is(err, store.ErrTransient) || !strings.Contains(err.Error(), "at a commit for 10s") {
				t.Fatalf("Got %v, want an ErrTransient that names the commit", err)
			}
		}
		if took := time.Since(begun); took < stallAfter || took > stallAfter+time.Second {
			t.Errorf("refused after %s, want %s", took, stallAfter)
		}
		if err := increment(t.Context()); !errors.Is(err, store.ErrTransient) {
			t.Errorf("Got %v of a later call, want ErrTransient", err)
		}
		if err := db.Stalled(); !errors.Is(err, store.ErrTransient) {
			t.Errorf("Got %v, want ErrTransient", err)
		}
		if got := incremented(t, db); got > 1 { // what is under way may show
			t.Errorf("Got %d increments while the disk hangs", got)
		}
		if m := db.Metrics(); m.CommitsRefused != behind+4 {
			t.Errorf("Got %d refused, want %d", m.CommitsRefused, behind+4)
		}
		time.Sleep(stallRepeat + time.Second)
		hangs.Store(false)
		close(answer)
		if err := <-first; err != nil {
			t.Errorf("Got %v of the commit that was under way", err)
		}
		synctest.Wait()
		if err := increment(t.Context()); err != nil {
			t.Error(err)
		}
		if err := db.Stalled(); err != nil {
			t.Error(err)
		}
		if got := incremented(t, db); got != 2 {
			t.Errorf("Got %d increments, want 2", got)
		}
		if got := rows(t, db, &store.Scan{Table: "t", Start: []byte("r2")}); len(got) != 0 {
			t.Errorf("Got %q of a batch that was refused", got)
		}
		for text, want := range map[string]int{"takes no writes": 2, "takes writes again": 1} {
			if got := strings.Count(log.String(), text); got != want {
				t.Errorf("the log says %d times %q, want %d:\n%s", got, text, want, log.String())
			}
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}

func incremented(t *testing.T, db *DB) int {
	t.Helper()
	sc := db.Scan(t.Context(), &store.Scan{Table: "t", Start: []byte("r"), Stop: []byte("r"), StopInclusive: true})
	defer sc.Close()
	if !sc.Next() {
		return 0
	}
	return int(sc.Row().Cells[0].Value[7])
}

// While a manifest is written, Pebble tells no metrics. Who looks gets those of before.
func TestMetricsOfDiskThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk, hangs, answer := hanging(func(op errorfs.Op) bool {
			return strings.Contains(op.Path, "MANIFEST") && op.Kind.ReadOrWrite() == errorfs.OpIsWrite
		})
		db, err := Open("db", bulk(disk))
		if err != nil {
			t.Fatal(err)
		}
		create(t, db, "t", store.NewFamily("f"))
		want := db.Metrics().DiskBytes
		hangs.Store(true)
		flushed := make(chan error, 1)
		go func() { flushed <- db.Flush(t.Context()) }()
		synctest.Wait()
		begun := time.Now()
		if got := db.Metrics().DiskBytes; got != want || want == 0 {
			t.Errorf("Got %d bytes, want %d", got, want)
		}
		if took := time.Since(begun); took > meterPatience {
			t.Errorf("it took %s", took)
		}
		close(answer)
		if err := <-flushed; err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Everything but commits that holds the loop is measured by kind, and told where it was long.
func TestHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		o := bulk(vfs.NewMem())
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		db, err := Open("db", o)
		if err != nil {
			t.Fatal(err)
		}
		create(t, db, "t", store.NewFamily("f"))
		for kind := range holdKinds {
			if err := db.exclusive(t.Context(), kind, func() error { time.Sleep(longHold + time.Second); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		m := db.Metrics()
		for kind, h := range m.Holds {
			if h.Sum < 3 || h.Seconds[len(CommitBuckets)-1] != 1 {
				t.Errorf("%s: Got %v s, %v", HoldKind(kind), h.Sum, h.Seconds)
			}
		}
		if m.HoldSeconds != 0 {
			t.Errorf("Got held for %v s, want idle", m.HoldSeconds)
		}
		if got := strings.Count(log.String(), "commits waited"); got != int(holdKinds)-1 || !strings.Contains(log.String(), "reason=checkpoint took=3s") {
			t.Errorf("Got\n%s", log.String())
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A Close beside another returns when the store is closed.
func TestCloseWaitsForClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, err := Open("db", bulk(vfs.NewMem()))
		if err != nil {
			t.Fatal(err)
		}
		begun, free := make(chan struct{}), make(chan struct{})
		go func() {
			_ = db.exclusive(t.Context(), HoldSchema, func() error { close(begun); <-free; return nil })
		}()
		<-begun
		var closed atomic.Int32
		for range 2 {
			go func() {
				if err := db.Close(); err != nil {
					t.Error(err)
				}
				closed.Add(1)
			}()
		}
		synctest.Wait()
		if n := closed.Load(); n != 0 {
			t.Errorf("%d calls of Close have returned while the store was open", n)
		}
		close(free)
		synctest.Wait()
		if n := closed.Load(); n != 2 {
			t.Errorf("%d calls of Close have returned, want 2", n)
		}
		if err := db.Apply(t.Context(), &store.Batch{}); !errors.Is(err, store.ErrClosed) {
			t.Errorf("Got %v of an empty batch, want ErrClosed", err)
		}
	})
}

// A filter that is filled at the start is filled although the disk does not answer for a while:
// without it every new counter is looked up until the next start.
func TestFilterOutlastsDiskThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, err := Open("db", bulk(vfs.NewMem()))
		if err != nil {
			t.Fatal(err)
		}
		create(t, db, "t", counterFamily("n"))
		for i := range 3 {
			m := &cell.Mutation{Table: "t", Row: []byte{byte('a' + i)}}
			m.Increment("n", []byte("q"), 1)
			mutate(t, db, m)
		}
		begun := make(chan struct{})
		go func() {
			_ = db.exclusive(t.Context(), HoldCommit, func() error { close(begun); time.Sleep(3 * stallAfter); return nil })
		}()
		<-begun
		s := db.filterSources()[0]
		added, completed := 0, false
		s.add, s.complete = func(filterKey) { added++ }, func() { completed = true }
		if s.it, err = db.pebble.NewIter(&pebble.IterOptions{LowerBound: s.low, UpperBound: s.high}); err != nil {
			t.Fatal(err)
		}
		s.it.First()
		if err := db.fillFilter(t.Context(), s); err != nil || added != 3 || !completed {
			t.Errorf("Got %d keys, complete %t (%v)", added, completed, err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}

// On a disk that takes longer for each commit than what waits is refused after, partitions
// that try again as pipelines do come to their turn, beside one that always has a batch.
func TestSlowDiskStarvesNobody(t *testing.T) {
	t.Parallel()
	for _, took := range []time.Duration{12 * time.Second, 17 * time.Second, 45 * time.Second} {
		t.Run(took.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var slow atomic.Bool
				o := bulk(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
					if slow.Load() && logSync(op) {
						time.Sleep(took)
					}
					return nil
				})))
				o.MemTableBytes = 1 << 20
				db, err := Open("db", o)
				if err != nil {
					t.Fatal(err)
				}
				create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
				slow.Store(true)
				const commits = 60
				end := time.Now().Add(commits * took)
				var applied [3]int
				var all sync.WaitGroup
				for p := range applied {
					all.Go(func() {
						from, wait := store.Absent, 100*time.Millisecond
						for time.Now().Before(end) {
							time.Sleep(time.Duration(p) * 300 * time.Millisecond) // the first has its next batch at once
							b := store.Batch{Counters: []store.CounterDelta{{Table: "t", Family: "n", Row: []byte{byte('a' + p)}, Qualifier: []byte("q"), Delta: 1, Time: 5}}}
							b.Advance(store.Source{Pipeline: "p", Topic: "t"}, int32(p), from, store.Progress{Next: int64(applied[p]) + 1})
							err := db.Apply(t.Context(), &b)
							switch {
							case err == nil:
								applied[p]++
								from, wait = int64(applied[p]), 100*time.Millisecond
							case errors.Is(err, store.ErrTransient):
								time.Sleep(wait)
								wait = min(2*wait, 5*time.Second)
							default:
								t.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				slow.Store(false)
				t.Logf("Got %v batches of %d commits", applied, commits)
				if least := min(applied[0], applied[1], applied[2]); least < commits/12 {
					t.Errorf("Got %v batches of partitions, want a fair share of %d commits", applied, commits)
				}
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
