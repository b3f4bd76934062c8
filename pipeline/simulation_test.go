package pipeline

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"

	"sluice/store"
	"sluice/store/pebblestore"
)

// seeds is how many random schedules are run on each engine; `make simulation` runs
// a thousand.
var seeds = flag.Int("seeds", 30, "random schedules that TestRandomSchedules runs on each engine")

// seedsDir holds a file for each seed that once failed, ENGINE-SEED, and one for each
// engine that never did, so that what reads them is tested.
var seedsDir = filepath.Join("testdata", "seeds")

// The random schedule: owners come and go, two at a time or none, replies are
// lost, the store fails before and after it applies, processes die without a
// flush, power fails at any write to the disk. Whatever happens, what the store
// holds is what the log gives, and what was acknowledged is there. A seed that
// fails is kept in testdata/seeds and runs from then on.
func TestRandomSchedules(t *testing.T) {
	t.Parallel()
	all := map[string]bool{}
	for seed := range *seeds {
		for _, engine := range []string{"mem", "pebble"} {
			all[fmt.Sprintf("%s-%d", engine, seed)] = true
		}
	}
	kept, err := os.ReadDir(seedsDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, f := range kept {
		all[f.Name()] = true
	}
	for name := range all {
		engine, number, _ := strings.Cut(name, "-")
		seed, err := strconv.ParseUint(number, 10, 64)
		if err != nil || engine != "mem" && engine != "pebble" {
			t.Errorf("%s/%s is no seed: want mem-NUMBER or pebble-NUMBER", seedsDir, name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() {
				if t.Failed() {
					keepSeed(t, name)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				if d := simulate(t, &simulation{seed: seed, disked: engine == "pebble"}); d != "" {
					t.Errorf("Got something else than the log (-want +got):\n%s", d)
				}
			})
		})
	}
}

// keepSeed makes a schedule that failed part of the test.
func keepSeed(t *testing.T, name string) {
	file := filepath.Join(seedsDir, name)
	err := errors.Join(os.MkdirAll(seedsDir, 0o755), os.WriteFile(file, nil, 0o644))
	t.Logf("seed %s is kept as pipeline/%s (%v): commit it with the fix", name, file, err)
}

// What makes it exact, taken away: the simulation must notice each within two
// hundred schedules, or it shows nothing.
func TestSimulationFindsMutants(t *testing.T) {
	t.Parallel()
	for name, mutant := range map[string]func(s *simulation){
		"no compare-and-set":             func(s *simulation) { s.mutant = func(e store.Engine) store.Engine { return &blind{e} } },
		"offset in a second batch":       func(s *simulation) { s.mutant = func(e store.Engine) store.Engine { return &apart{e} } },
		"offset before the data":         func(s *simulation) { s.mutant = func(e store.Engine) store.Engine { return &early{e} } },
		"letters in a second batch":      func(s *simulation) { s.mutant = func(e store.Engine) store.Engine { return &letterless{e} } },
		"acknowledged before the commit": func(s *simulation) { s.mutant = func(e store.Engine) store.Engine { return &hasty{e} } },
		"acknowledged before the disk":   func(s *simulation) { s.disked, s.sync = true, pebblestore.SyncNever },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(200) {
				found := false
				synctest.Test(t, func(t *testing.T) {
					s := &simulation{seed: seed, broken: true}
					mutant(s)
					found = simulate(t, s) != ""
				})
				if found {
					t.Logf("found by seed %d", seed)
					return
				}
			}
			t.Error("Got the log from every schedule")
		})
	}
}

// blind stores an offset whatever was stored before.
type blind struct{ store.Engine }

func (e *blind) Apply(ctx context.Context, b *store.Batch) error {
	for {
		for i := range b.Advances {
			a := &b.Advances[i]
			p, ok, err := store.ReadProgress(ctx, e.Engine, &a.Source, a.Partition)
			if err != nil {
				return err
			}
			if a.From = store.Absent; ok {
				a.From = p.Next
			}
		}
		if err := e.Engine.Apply(ctx, b); !errors.Is(err, store.ErrStale) {
			return err
		}
	}
}

// apart stores the data first and then the offset.
type apart struct{ store.Engine }

func (e *apart) Apply(ctx context.Context, b *store.Batch) error {
	data, offset := *b, store.Batch{Advances: b.Advances}
	data.Advances = nil
	if err := e.Engine.Apply(ctx, &data); err != nil {
		return err
	}
	return e.Engine.Apply(ctx, &offset)
}

// early stores the offset first and then the data.
type early struct{ store.Engine }

func (e *early) Apply(ctx context.Context, b *store.Batch) error {
	data, offset := *b, store.Batch{Advances: b.Advances}
	data.Advances = nil
	if err := e.Engine.Apply(ctx, &offset); err != nil {
		return err
	}
	return e.Engine.Apply(ctx, &data)
}

// letterless stores dead letters after the batch that they are of.
type letterless struct{ store.Engine }

func (e *letterless) Apply(ctx context.Context, b *store.Batch) error {
	rest, letters := *b, store.Batch{}
	rest.Mutations = nil
	for _, m := range b.Mutations {
		if m.Table == store.OutboxTable {
			letters.Mutations = append(letters.Mutations, m)
		} else {
			rest.Mutations = append(rest.Mutations, m)
		}
	}
	if err := e.Engine.Apply(ctx, &rest); err != nil {
		return err
	}
	return e.Engine.Apply(ctx, &letters)
}

// hasty acknowledges a batch whatever becomes of it.
type hasty struct{ store.Engine }

func (e *hasty) Apply(ctx context.Context, b *store.Batch) error {
	if len(b.Advances) == 0 || b.Advances[0].From < 0 {
		return e.Engine.Apply(ctx, b)
	}
	_ = e.Engine.Apply(ctx, b)
	return nil
}

// simPartitions is how many partitions the log of a simulation has.
const simPartitions = 3

// simulation is one random schedule: a log, a store and the processes between them.
// It runs in a bubble of testing/synctest.
type simulation struct {
	seed   uint64
	disked bool                            // on the embedded engine, whose power fails; else on the model
	sync   pebblestore.SyncPolicy          // of the embedded engine
	mutant func(store.Engine) store.Engine // between the store and the processes; nil = nothing
	broken bool                            // something was taken away: no error is one of the test

	t      *testing.T
	rng    *rand.Rand
	log    *fakeBroker
	disk   simDisk
	store  store.Engine
	owners []*running

	mu           sync.Mutex
	chance       *rand.Rand // of faults, which processes meet in any order
	calm         bool
	acknowledged [simPartitions]int64 // next offsets of the batches that the processes took for stored
	fuse         int                  // writes to the disk until power fails; 0 = it does not
	crash        *powerFailure
}

// powerFailure is what is left of a disk.
type powerFailure struct {
	disk         *vfs.MemFS
	acknowledged [simPartitions]int64 // before
}

// simDisk is a disk whose power can fail beside anything: MemFS waits for itself
// where it is cloned in the midst of a Link.
type simDisk struct {
	*vfs.MemFS
	links *sync.Mutex
}

func (d simDisk) Link(oldName, newName string) error {
	d.links.Lock()
	defer d.links.Unlock()
	return d.MemFS.Link(oldName, newName)
}

// simulate runs the schedule and returns how what the store holds differs from the
// log, or what was acknowledged and is not there.
func simulate(t *testing.T, s *simulation) string {
	s.t = t
	s.rng = rand.New(rand.NewPCG(s.seed, 7))
	s.log = newFakeBroker(simPartitions)
	s.log.rng = rand.New(rand.NewPCG(s.rng.Uint64(), 1))
	s.chance = rand.New(rand.NewPCG(s.rng.Uint64(), 2))
	if s.disked {
		s.disk = simDisk{vfs.NewCrashableMem(), new(sync.Mutex)}
		s.open()
		createTables(t, s.store.(store.Admin))
		defer func() {
			if err := s.store.Close(); err != nil {
				t.Error(err)
			}
		}()
	} else {
		s.store = newEngine(t)
	}
	for range 40 {
		if d := s.step(); d != "" {
			return d
		}
	}
	if d := s.endAll(); d != "" {
		return d
	}
	if s.disked {
		if d := s.powerFails(); d != "" {
			return d
		}
	}
	return s.finish()
}

// open opens the embedded engine on what the disk holds.
func (s *simulation) open() {
	s.t.Helper()
	db, err := pebblestore.Open("db", &pebblestore.Options{
		FS: errorfs.Wrap(s.disk, errorfs.InjectorFunc(s.write)), Sync: s.sync,
		CacheBytes: 1 << 20, MemTableBytes: 64 << 10, MinFreeBytes: -1, RewriteInterval: -1, RewriteKeys: 20,
		// Some schedules write every bulk batch as tables, some only large ones.
		MinBulkKeys: 1 + 30*int(s.seed%2),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.store = db
}

// write burns the fuse at a write to the disk.
func (s *simulation) write(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fuse == 0 {
		return nil
	}
	if s.fuse--; s.fuse == 0 {
		s.cut()
	}
	return nil
}

// cut notes what the disk holds if power fails now. The lock is held.
func (s *simulation) cut() {
	s.disk.links.Lock()
	defer s.disk.links.Unlock()
	s.crash = &powerFailure{
		acknowledged: s.acknowledged, // before the disk is looked at
		disk:         s.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: s.chance.IntN(101), RNG: s.chance}),
	}
}

// simEngine is the store as processes have it: the mutant, over faults, over the
// engine. It notes what was acknowledged.
type simEngine struct {
	store.Engine
	s *simulation
}

func (e *simEngine) Apply(ctx context.Context, b *store.Batch) error {
	// The memory of b is the caller's as soon as it has its reply.
	advances := append([]store.Advance(nil), b.Advances...)
	err := e.Engine.Apply(ctx, b)
	if err == nil {
		e.s.mu.Lock()
		defer e.s.mu.Unlock()
		for i := range advances {
			at := &e.s.acknowledged[advances[i].Partition]
			*at = max(*at, advances[i].Progress.Next)
		}
	}
	return err
}

// engine is the store as a new process has it.
func (s *simulation) engine() store.Engine {
	var e store.Engine = &faultyEngine{Engine: s.store, fault: func(*store.Batch) (bool, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.calm {
			return true, nil
		}
		switch s.chance.IntN(20) {
		case 0: // lost before
			return false, store.ErrTransient
		case 1: // lost reply
			return true, store.ErrTransient
		case 2:
			return false, store.ErrDiskFull
		case 3:
			return true, errors.New("connection reset")
		}
		return true, nil
	}}
	if s.mutant != nil {
		e = s.mutant(e)
	}
	return &simEngine{e, s}
}

var simValues = []string{"a", "b", "c", "d", "a", "a", "skip", "bad", "-", "huge", "long"}

func (s *simulation) step() string {
	rng := s.rng
	switch rng.IntN(9) {
	case 0:
		s.begin()
	case 1:
		if len(s.owners) > 0 {
			i := rng.IntN(len(s.owners))
			o := s.owners[i]
			s.owners = append(s.owners[:i], s.owners[i+1:]...)
			return s.end(o)
		}
	case 2:
		if !s.disked {
			break
		}
		s.mu.Lock()
		armed := s.fuse > 0 || s.crash != nil
		if !armed {
			s.fuse = 1 + rng.IntN(40)
		}
		s.mu.Unlock()
		if armed {
			return s.powerFails()
		}
	case 3:
		if db, ok := s.store.(*pebblestore.DB); ok && rng.IntN(2) == 0 {
			table := []string{"events", "counts"}[rng.IntN(2)]
			if err := db.MajorCompact(s.t.Context(), table); err != nil {
				s.t.Error(err)
			}
		}
		return s.snapshot()
	default:
		n := int32(rng.IntN(simPartitions))
		for range rng.IntN(60) {
			s.log.produce(n, simValues[rng.IntN(len(simValues))])
		}
		<-time.After(time.Duration(rng.IntN(3)) * time.Millisecond)
	}
	return ""
}

func (s *simulation) begin() {
	rng := s.rng
	drain := time.Duration(-1)
	if rng.IntN(2) == 0 {
		drain = time.Second
	}
	p := newTest(s.t, s.engine(), s.log, func(o *Options) {
		o.DrainTimeout = drain
		o.InFlight = 1 + rng.IntN(3)
		o.Flush.MaxRecords = 1 + rng.IntN(100)
		o.Backfill = Backfill{Lag: []int64{0, 1, 20, 50}[rng.IntN(4)], MaxRecords: 1 + rng.IntN(400)}
	})
	s.owners = append(s.owners, start(s.t, p, []int32{0, 1, 2}[:1+rng.IntN(simPartitions)]...))
}

// end ends a process. One that fails for good is as good as dead: what it leaves is
// compared.
func (s *simulation) end(r *running) string {
	if err := r.close(); err != nil && !s.broken {
		return err.Error()
	}
	return ""
}

func (s *simulation) endAll() string {
	for _, o := range s.owners {
		if d := s.end(o); d != "" {
			return d
		}
	}
	s.owners = nil
	return ""
}

// powerFails takes away what was not on disk where the fuse ended, or now, and
// starts the store from the rest.
func (s *simulation) powerFails() string {
	s.mu.Lock()
	if s.crash == nil {
		s.cut()
	}
	left := s.crash
	s.fuse = 0
	s.mu.Unlock()
	// What the processes still do goes to a disk that is no more.
	if d := s.endAll(); d != "" {
		return d
	}
	if err := s.store.Close(); err != nil {
		s.t.Error(err)
	}
	s.mu.Lock()
	s.disk, s.acknowledged, s.crash = simDisk{left.disk, new(sync.Mutex)}, left.acknowledged, nil
	s.mu.Unlock()
	s.open()
	return s.lost()
}

// lost compares what was acknowledged with what is stored, while nobody writes.
func (s *simulation) lost() string {
	all, err := store.AllProgress(s.t.Context(), s.store)
	if err != nil {
		s.t.Fatal(err)
	}
	var stored [simPartitions]int64
	for _, p := range all {
		stored[p.Partition] = p.Progress.Next
	}
	for n := range stored {
		if stored[n] < s.acknowledged[n] {
			return fmt.Sprintf("offset %d of partition %d was acknowledged, %d is stored", s.acknowledged[n], n, stored[n])
		}
	}
	return ""
}

// snapshot compares the offsets with the rows and counters at one moment, while the
// processes write.
func (s *simulation) snapshot() string {
	snap, err := s.store.(store.Snapshotter).Snapshot(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	defer snap.Close()
	all, err := store.AllProgress(s.t.Context(), snap)
	if err != nil {
		s.t.Fatal(err)
	}
	var applied, dead int64
	for i := range all {
		p := &all[i].Progress
		applied, dead = applied+p.Applied, dead+p.Dead
		if !p.Balanced() {
			return fmt.Sprintf("progress of partition %d is out of balance in a snapshot: %+v", all[i].Partition, *p)
		}
	}
	got := map[string]int64{"events": 0, "counts": 0, store.OutboxTable: 0}
	for _, table := range []string{"events", "counts", store.OutboxTable} {
		sc := snap.Scan(s.t.Context(), &store.Scan{Table: table})
		for sc.Next() {
			if table == "counts" {
				got[table] += int64(binary.BigEndian.Uint64(sc.Row().Cells[0].Value))
			} else {
				got[table]++
			}
		}
		if err := errors.Join(sc.Err(), sc.Close()); err != nil {
			s.t.Fatal(err)
		}
	}
	return cmp.Diff(map[string]int64{"events": applied, "counts": applied, store.OutboxTable: dead}, got)
}

// finish lets a last process apply the rest, without faults, and compares.
func (s *simulation) finish() string {
	if d := s.lost(); d != "" {
		return d
	}
	s.mu.Lock()
	s.calm = true
	s.mu.Unlock()
	last := start(s.t, newTest(s.t, s.store, s.log), 0, 1, 2)
	if s.broken {
		waitFor(s.t, func() bool { return len(last.done) > 0 || stored(s.t, s.store, s.log) })
	} else {
		last.caughtUp(s.log)
	}
	if d := s.end(last); d != "" {
		return d
	}
	return cmp.Diff(want(s.log), readUnchecked(s.t, s.store))
}
