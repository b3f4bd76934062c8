package pebblestore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// compactionGate says when Pebble may compact. It grants what Pebble asks for, as
// Pebble's own scheduler does, but while flushes and bulk commits come in it lets their
// tables gather: level 0 merged into the level below at every second of them would
// write everything that is there again and again. Nor does it grant any right after one, or a
// flush, has failed.
type compactionGate struct {
	db    pebble.DBForCompaction // set before anything else is called
	reads atomic.Int64           // of single rows and cells, that have looked into level 0
	pause func() time.Duration   // what is left of the wait after a failure; nil = nothing ever

	mu       sync.Mutex
	cond     sync.Cond // granting has become false
	running  int
	granting bool
	closed   bool
	held     bool
	draining bool        // it was opened, and something may still wait
	gathered int         // since the gate was closed, in parts
	before   int64       // reads when it was closed
	idle     *time.Timer // opens the gate where no more of them come

	poke, stop, stopped chan struct{}
}

// GatherRest is how long after the last flush or bulk commit its tables and those
// before it are compacted.
const GatherRest = 5 * time.Second

const (
	// heldParts is what lies in level 0 before it is compacted, in flushes and bulk
	// commits of up to partBytes as they were in memory; larger ones are several parts.
	// A third of it makes an event of a long ingest cost 1.4 times the CPU; more would
	// be more than 1.5 GiB that a compaction needs twice.
	heldParts = 48
	partBytes = 32 << 20

	// readParts is heldParts where there are more than manyReads meanwhile. Each table of
	// level 0 costs a read of one row up to a microsecond: more than manyReads of
	// them cost more than is saved by compacting half as often, a second or so.
	readParts = heldParts / 2
	manyReads = 100_000

	// grantInterval is how often Pebble's appetite is looked at, which grows
	// where nobody says so, as in the scheduler of its own.
	grantInterval = 100 * time.Millisecond
)

var (
	_ pebble.CompactionScheduler   = (*compactionGate)(nil)
	_ pebble.CompactionGrantHandle = (*compactionGate)(nil)
)

func newCompactionGate() *compactionGate {
	g := &compactionGate{poke: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{})}
	g.cond.L = &g.mu
	return g
}

// gather is called after each bulk commit and each flush, which Pebble's locks are held
// in, with its bytes in memory.
func (g *compactionGate) gather(bytes uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	if !g.held && !g.draining {
		g.held, g.gathered, g.before = true, 0, g.reads.Load()
	}
	limit := heldParts
	if g.reads.Load()-g.before > manyReads {
		limit = readParts
	}
	if g.gathered += max(1, int((bytes+partBytes-1)/partBytes)); g.held && g.gathered >= limit {
		g.open()
	}
	if g.idle == nil {
		g.idle = time.AfterFunc(GatherRest, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.open()
		})
		return
	}
	g.idle.Reset(GatherRest)
}

// open lets compactions run until none waits. The caller holds mu.
func (g *compactionGate) open() {
	g.held, g.draining = false, true
	select {
	case g.poke <- struct{}{}:
	default:
	}
}

// Register is called by Pebble once, when it is open.
func (g *compactionGate) Register(_ int, db pebble.DBForCompaction) {
	g.db = db
	go g.run()
}

// Unregister is called by Pebble when it closes. No grant is made afterwards.
func (g *compactionGate) Unregister() {
	close(g.stop)
	<-g.stopped
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.idle != nil {
		g.idle.Stop()
	}
	for g.granting {
		g.cond.Wait()
	}
}

func (g *compactionGate) run() {
	defer close(g.stopped)
	tick := time.NewTicker(grantInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-g.poke:
		case <-g.stop:
			return
		}
		g.grant()
	}
}

// pausing reports whether it is too early after a failure. run asks again.
func (g *compactionGate) pausing() bool { return g.pause != nil && g.pause() > 0 }

// TrySchedule grants a compaction that Pebble is about to make, or has it wait.
func (g *compactionGate) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.held || g.pausing() || g.db.GetAllowedWithoutPermission() <= g.running {
		return false, nil
	}
	g.running++
	return true, g
}

// UpdateGetAllowedWithoutPermission is called where a flush may have changed how
// much Pebble wants to compact.
func (g *compactionGate) UpdateGetAllowedWithoutPermission() {
	select {
	case g.poke <- struct{}{}:
	default:
	}
}

// grant has Pebble begin the compactions that wait, as many as may run.
func (g *compactionGate) grant() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.granting {
		g.cond.Wait()
	}
	if g.closed || g.held || g.pausing() {
		return
	}
	free := g.db.GetAllowedWithoutPermission() - g.running
	if free <= 0 {
		return
	}
	g.granting = true
	for ; free > 0; free-- {
		g.mu.Unlock() // Pebble's locks come before this one
		waiting, _ := g.db.GetWaitingCompaction()
		begun := waiting && g.db.Schedule(g)
		g.mu.Lock()
		if !begun {
			break
		}
		g.running++
	}
	g.draining = g.draining && g.running > 0
	g.granting = false
	g.cond.Broadcast()
}

// Started is called when a granted compaction begins.
func (g *compactionGate) Started() {}

// MeasureCPU is not made use of.
func (g *compactionGate) MeasureCPU(pebble.CompactionGoroutineKind) {}

// CumulativeStats is not made use of.
func (g *compactionGate) CumulativeStats(pebble.CompactionGrantHandleStats) {}

// Done is called when a granted compaction has ended.
func (g *compactionGate) Done() {
	g.mu.Lock()
	g.running--
	g.mu.Unlock()
	g.grant()
}
