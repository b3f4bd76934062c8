package pebblestore

import (
	"log/slog"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/store"
)

// hungryDB always wants to compact.
type hungryDB struct {
	mu      sync.Mutex
	allowed int
	begun   int
	refuse  bool
}

func (d *hungryDB) GetAllowedWithoutPermission() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.allowed
}

func (d *hungryDB) GetWaitingCompaction() (bool, pebble.WaitingCompaction) {
	return true, pebble.WaitingCompaction{}
}

func (d *hungryDB) Schedule(pebble.CompactionGrantHandle) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuse {
		return false
	}
	d.begun++
	return true
}

func (d *hungryDB) want(t *testing.T, begun int) {
	t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.begun != begun {
		t.Fatalf("Got %d compactions begun, want %d", d.begun, begun)
	}
}

// Without bulk commits as many compactions run as Pebble allows.
func TestCompactionGateGrants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, g := &hungryDB{allowed: 1}, newCompactionGate()
		g.Register(2, db)
		ok, first := g.TrySchedule()
		if !ok {
			t.Fatal("the first compaction was refused")
		}
		if ok, _ := g.TrySchedule(); ok {
			t.Fatal("a second compaction was allowed beside the first")
		}
		db.want(t, 0)
		db.mu.Lock()
		db.allowed = 3
		db.mu.Unlock()
		time.Sleep(grantInterval) // on the bubble's clock
		db.want(t, 2)
		first.Done()
		db.want(t, 3)
		for range 3 {
			first.Done()
		}
		db.want(t, 6)
		g.Unregister()
		first.Done()
		if ok, _ := g.TrySchedule(); ok {
			t.Error("a compaction was allowed after the end")
		}
		db.want(t, 6)
	})
}

// A compaction that fails is not repeated at once: a full disk would cost a core.
func TestCompactionGatePauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, g, log := &hungryDB{allowed: 1}, newCompactionGate(), newPebbleLog(slog.New(slog.DiscardHandler))
		g.pause = log.pause
		g.Register(2, db)
		ok, first := g.TrySchedule()
		if !ok {
			t.Fatal("the first compaction was refused")
		}
		log.events().BackgroundError(syscall.ENOSPC)
		first.Done()
		if ok, _ := g.TrySchedule(); ok {
			t.Error("a compaction was allowed right after one that failed")
		}
		time.Sleep(flushPause - grantInterval) // on the bubble's clock
		db.want(t, 0)
		time.Sleep(2 * grantInterval)
		db.want(t, 1)
		first.Done()
		db.want(t, 2)
		g.Unregister()
	})
}

// Bulk commits gather, up to a number and not for ever, and what they have gathered
// is compacted before the next are held.
func TestCompactionGateHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, g := &hungryDB{allowed: 1}, newCompactionGate()
		g.Register(2, db)
		defer g.Unregister()
		for i := range heldParts {
			if i > 0 {
				if ok, _ := g.TrySchedule(); ok {
					t.Fatalf("a compaction was allowed after %d bulk commits", i)
				}
				time.Sleep(GatherRest - 1)
				db.want(t, 0)
			}
			g.gather(partBytes)
		}
		db.want(t, 1)
		g.gather(partBytes) // while that runs
		g.Done()
		db.want(t, 2)
		db.mu.Lock()
		db.refuse = true // it has no more
		db.mu.Unlock()
		g.Done()
		g.gather(partBytes)
		if ok, _ := g.TrySchedule(); ok {
			t.Fatal("a compaction was allowed after the first of new bulk commits")
		}
		db.mu.Lock()
		db.refuse = false
		db.mu.Unlock()
		time.Sleep(GatherRest - 1)
		db.want(t, 2)
		time.Sleep(time.Nanosecond)
		db.want(t, 3)
	})
}

// What is large counts for as much, and at rest is compacted at once.
func TestCompactionGateHoldsFlushes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, g := &hungryDB{allowed: 1}, newCompactionGate()
		g.Register(2, db)
		defer g.Unregister()
		for i := range heldParts/2 - 1 {
			g.gather(2 * partBytes)
			if ok, _ := g.TrySchedule(); ok {
				t.Fatalf("a compaction was allowed after %d flushes", i+1)
			}
		}
		g.gather(0)
		db.want(t, 0)
		g.gather(1)
		db.want(t, 1)
		db.mu.Lock()
		db.refuse = true // it has no more
		db.mu.Unlock()
		g.Done()
		db.mu.Lock()
		db.refuse = false
		db.mu.Unlock()
		g.gather(2 * partBytes)
		time.Sleep(GatherRest - 1)
		db.want(t, 1)
		time.Sleep(time.Nanosecond)
		db.want(t, 2)
	})
}

// Reads of rows have fewer tables gather, and reads from before do not.
func TestCompactionGateOfReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, g := &hungryDB{allowed: 1}, newCompactionGate()
		g.Register(2, db)
		defer g.Unregister()
		g.reads.Add(manyReads + 1)
		for range readParts {
			g.gather(partBytes)
		}
		db.want(t, 0)
		g.reads.Add(manyReads)
		g.gather(partBytes)
		db.want(t, 0)
		g.reads.Add(1)
		g.gather(partBytes)
		db.want(t, 1)
	})
}

// A store tells its gate of each read of a row, of the commit loop's, too.
func TestReadsAreCounted(t *testing.T) {
	t.Parallel()
	db := open(t, "", memory())
	create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
	mutate(t, db, put("row", 1, "f", "q", "v"))
	count := func(what string, f func()) {
		t.Helper()
		before := db.gate.reads.Load()
		f()
		if db.gate.reads.Load() == before {
			t.Errorf("%s was not counted", what)
		}
	}
	count("a get", func() { rows(t, db, &store.Scan{Table: "t", Start: []byte("row"), Stop: []byte("row\x00")}) })
	count("a condition", func() {
		if _, err := db.MutateRow(t.Context(), &store.Cond{Family: "f", Qualifier: []byte("q"), Op: store.Equal, Value: []byte("v")}, put("row", 2, "f", "q", "w")); err != nil {
			t.Fatal(err)
		}
	})
	count("the deletion of counters", func() {
		m := &cell.Mutation{Table: "t", Row: []byte("row")}
		m.DeleteFamily("n", cell.Latest)
		mutate(t, db, m)
	})
}

// The flushes of a store close its gate.
func TestFlushesGather(t *testing.T) {
	t.Parallel()
	db := open(t, "", memory())
	create(t, db, "t", store.NewFamily("f"))
	held := func() bool {
		db.gate.mu.Lock()
		defer db.gate.mu.Unlock()
		return db.gate.held
	}
	before := held()
	if _, err := db.MutateRow(t.Context(), nil, put("row", 1, "f", "q", "v")); err != nil {
		t.Fatal(err)
	}
	if err := db.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := held(); before || !after {
		t.Errorf("Got compactions held %v before a flush and %v after it, want false and true", before, after)
	}
}

// A store closes while its compactions are held.
func TestCompactionGateOfClosedStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, g := &hungryDB{allowed: 1}, newCompactionGate()
		g.Register(2, db)
		g.gather(partBytes)
		g.Unregister()
		g.gather(partBytes)
		time.Sleep(2 * GatherRest)
		db.want(t, 0)
	})
}
