package pebblestore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"sluice/cell"
	"sluice/internal/crashfs"
	"sluice/internal/thinned"
	"sluice/store"
)

// bulk returns the options of a small store that writes every bulk batch as
// tables.
func bulk(fs vfs.FS) *Options {
	return &Options{FS: fs, MemTableBytes: 64 << 10, CacheBytes: 1 << 20, RewriteKeys: 50, RewriteInterval: -1, MinBulkKeys: 1, MinFreeBytes: -1}
}

// Batches of both kinds, in one order: what they leave is the same as if all were
// of one kind.
func TestBulkBatchesChangeNothing(t *testing.T) {
	t.Parallel()
	var left [3][]string
	for how := range left {
		db := open(t, "db", bulk(vfs.NewMem()))
		f := store.NewFamily("f")
		f.Versions = 3
		create(t, db, "t", f, counterFamily("n"))
		rng := rand.New(rand.NewPCG(1, 2))
		from, applied := store.Absent, int64(0)
		for i := range 60 {
			b := store.Batch{Bulk: how == 1 || how == 2 && i%3 > 0}
			for range 1 + rng.IntN(8) {
				applied++
				row, at := fmt.Sprintf("r%d", rng.IntN(6)), cell.Timestamp(1+rng.IntN(5))
				switch rng.IntN(6) {
				case 0:
					m := cell.Mutation{Table: "t", Row: []byte(row)}
					m.DeleteColumn("f", []byte("a"), at)
					m.DeleteColumn("n", []byte("q"), cell.Latest)
					b.Add(applied, m)
				case 1:
					cond := &store.Cond{Family: "f", Qualifier: []byte("a"), Op: store.Equal, Value: fmt.Append(nil, applied-3)}
					b.Record(applied, fmt.Append(nil, rng.IntN(30)), cond, *put(row, at, "f", "c", fmt.Sprint(applied)))
				case 2:
					b.Record(applied, fmt.Append(nil, rng.IntN(30)), nil, *put(row, at, "f", "o", fmt.Sprint(applied)))
				default:
					b.Add(applied, *put(row, at, "f", "a", fmt.Sprint(applied), "b", fmt.Sprint(i)))
				}
				b.Counters = append(b.Counters, store.CounterDelta{Table: "t", Family: "n", Row: []byte(row), Qualifier: []byte("q"), Delta: 1 + rng.Int64N(3), Time: at, Offset: applied})
			}
			b.Advance(store.Source{Pipeline: "p", Topic: "x"}, 0, from, store.Progress{Next: applied, Applied: applied})
			if err := db.Apply(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
			from = applied
			b.Advances[0].From = applied + 1
			if err := db.Apply(t.Context(), &b); !errors.Is(err, store.ErrStale) {
				t.Fatalf("Got %v for a batch that was applied, want ErrStale", err)
			}
		}
		left[how] = append(rows(t, db, &store.Scan{Table: "t", Versions: store.AllVersions}), fmt.Sprint(db.sequence.Load()))
		if m := db.Metrics(); how == 0 && m.BulkCommits > 0 || how == 1 && m.BulkCommits != 60 || how == 2 && m.BulkCommits != 40 {
			t.Errorf("Got %d bulk commits of %d", m.BulkCommits, m.Commits)
		}
	}
	for how := 1; how < len(left); how++ {
		if got, want := strings.Join(left[how], "\n"), strings.Join(left[0], "\n"); got != want {
			t.Errorf("Got of bulk batches\n%s\nwant\n%s", got, want)
		}
	}
}

// Power fails at every step of a bulk commit that follows writes which are not
// synced: it is there whole or not at all, and what came before it is there where
// it is (invariants I2, I3).
func TestCrashAtEveryStepOfABulkCommit(t *testing.T) {
	t.Parallel()
	for _, percent := range []int{30, 0, 100}[:thinned.Of(3, 1)] {
		t.Run(fmt.Sprint(percent), func(t *testing.T) {
			t.Parallel()
			mem := crashfs.New()
			var mu sync.Mutex
			var crashes []crashfs.FS
			var watched atomic.Bool
			rng := rand.New(rand.NewPCG(uint64(percent), 1))
			fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if watched.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
					mu.Lock()
					defer mu.Unlock()
					crashes = append(crashes, mem.Crash(percent, rng))
				}
				return nil
			}))
			o := bulk(fs)
			o.Sync = SyncNever // live commits only: a bulk one is on disk when it returns
			db := open(t, "db", o)
			create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
			l := ledger{db: db}
			var before, after [3]int64
			for i := range 8 {
				l.bulk = false
				if err := l.apply(t, i%3, 1+i); err != nil { // in the memtable, and not on disk
					t.Fatal(err)
				}
				before, l.bulk = l.next, true
				watched.Store(true)
				err := l.apply(t, (i+1)%3, 5)
				watched.Store(false)
				if err != nil {
					t.Fatal(err)
				}
				after = l.next
				mu.Lock()
				taken := append(crashes, mem.Crash(percent, rng))
				crashes = nil
				mu.Unlock()
				if len(taken) < 10 {
					t.Fatalf("Got %d steps of a bulk commit", len(taken))
				}
				for n, crash := range taken {
					acknowledged := [3]int64{}
					if n == len(taken)-1 {
						acknowledged = after // what is not synced goes to disk with it
					}
					again, err := Open("db", bulk(crash))
					if err != nil {
						t.Fatalf("step %d: %v", n, err)
					}
					check(t, again, acknowledged)
					if got := offsets(t, again); got[(i+1)%3] == after[(i+1)%3] && got != after {
						t.Fatalf("step %d: got offsets %v, want %v: the bulk commit without those before", n, got, after)
					} else if got[(i+1)%3] > before[(i+1)%3] && got != after {
						t.Fatalf("step %d: got offsets %v between %v and %v", n, got, before, after)
					}
					more := ledger{db: again, next: offsets(t, again), bulk: n%2 == 0}
					if err := more.apply(t, i%3, 3); err != nil {
						t.Fatalf("step %d: %v", n, err)
					}
					check(t, again, more.next)
					if err := again.Close(); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// A bulk commit that cannot be written leaves nothing behind, in no cache and in no
// file, and the next one goes on from there.
func TestFailedBulkCommitLeavesNothing(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashableMem()
	var countdown atomic.Int64
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if strings.Contains(op.Path, "bulk-") && op.Kind != errorfs.OpRemove && countdown.Add(-1) == 0 {
			return syscall.ENOSPC
		}
		return nil
	}))
	db := open(t, "db", bulk(fs))
	create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
	l := ledger{db: db, bulk: true}
	if err := l.apply(t, 0, 3); err != nil {
		t.Fatal(err)
	}
	failures := 0
	for step := int64(1); ; step++ {
		countdown.Store(step)
		err := l.apply(t, 0, 4)
		if countdown.Load() > 0 {
			break // the last step is behind us
		}
		countdown.Store(0)
		if err != nil {
			failures++
			if !errors.Is(err, store.ErrDiskFull) {
				t.Fatalf("step %d: got %v, want ErrDiskFull", step, err)
			}
		}
		check(t, db, l.next)
		if n, err := mem.List("db"); err != nil || strings.Contains(strings.Join(n, " "), "bulk-") {
			t.Fatalf("step %d: got files %v, %v", step, n, err)
		}
		l.bulk = step%2 == 0
		if err := l.apply(t, 0, 2); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		check(t, db, l.next)
		l.bulk = true
	}
	if failures < 6 {
		t.Errorf("Got %d failures: the test shows nothing", failures)
	}
	check(t, db, l.next)
}

// Scans, snapshots and checkpoints see each bulk commit whole, while regions split,
// spans are rewritten and live batches go on (invariant I5).
func TestBulkCommitsAreOneInstant(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashableMem()
	db := open(t, "db", bulk(mem))
	create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
	rounds := thinned.Of(12, 4)
	var writers sync.WaitGroup
	var written atomic.Int64
	stop := make(chan struct{})
	for p := range 3 {
		writers.Go(func() {
			l := ledger{db: db}
			for i := p; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				l.bulk = i%4 > 0
				if err := l.apply(t, p, 1+i%20); err != nil {
					t.Error(err)
					return
				}
				written.Add(1)
			}
		})
	}
	for i := 0; i < rounds || written.Load() < 100; i++ {
		switch i % 4 {
		case 0:
			if err := db.MajorCompact(t.Context(), "t"); err != nil {
				t.Fatal(err)
			}
		case 1:
			if err := db.SplitRegion(t.Context(), "t", fmt.Appendf(nil, "p1-%06d", i)); err != nil {
				t.Fatal(err)
			}
		case 2:
			dir := fmt.Sprint("checkpoint", i)
			if _, err := db.Checkpoint(t.Context(), dir); err != nil {
				t.Fatal(err)
			}
			o := bulk(mem)
			o.ReadOnly = true
			copied, err := Open(dir, o)
			if err != nil {
				t.Fatal(err)
			}
			check(t, copied, [3]int64{})
			if err := copied.Close(); err != nil {
				t.Fatal(err)
			}
		}
		snap, err := db.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		check(t, snap, [3]int64{})
		if err := snap.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	writers.Wait()
	if m := db.Metrics(); m.BulkCommits == 0 || m.BulkCommits == m.Commits {
		t.Errorf("Got %d bulk commits of %d, want both kinds", m.BulkCommits, m.Commits)
	}
	check(t, db, [3]int64{})
}

// Bulk batches that wait are one commit, beyond what live ones may be; a few
// key-values are not worth three files.
func TestBulkCommitsGather(t *testing.T) {
	t.Parallel()
	o := bulk(vfs.NewMem())
	o.MaxCommitEvents, o.MaxBulkEvents, o.MinBulkKeys = 10, 40, 20
	db := open(t, "db", o)
	create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
	for _, tt := range []struct {
		bulk            bool
		events          int
		batches         int
		commits, tables int64
	}{
		{false, 12, 3, 3, 0},
		{true, 12, 3, 1, 1},
		{true, 50, 2, 2, 2},
		{true, 2, 3, 1, 0},
	} {
		before := db.Metrics()
		var calls sync.WaitGroup
		holds, held := make(chan struct{}), make(chan struct{})
		calls.Go(func() {
			if err := db.exclusive(t.Context(), HoldSchema, func() error { close(holds); <-held; return nil }); err != nil {
				t.Error(err)
			}
		})
		<-holds
		for i := range tt.batches {
			calls.Go(func() {
				var b store.Batch
				b.Bulk = tt.bulk
				for j := range tt.events - 1 {
					b.Add(int64(j), *put(fmt.Sprintf("r%d-%d", i, j), 1, "f", "a", "1"))
				}
				if err := db.Apply(t.Context(), &b); err != nil {
					t.Error(err)
				}
			})
		}
		for len(db.requests) < tt.batches {
			runtime.Gosched()
		}
		close(held)
		calls.Wait()
		after := db.Metrics()
		if c, n := after.Commits-before.Commits, after.BulkCommits-before.BulkCommits; c != tt.commits || n != tt.tables {
			t.Errorf("%+v: got %d commits, %d of them bulk", tt, c, n)
		}
	}
}
