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
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/internal/crashfs"
	"sluice/internal/thinned"
	"sluice/pipeline/buffer"
	"sluice/pipeline/kafka"
	"sluice/store"
	"sluice/store/pebblestore"
)

// seeds is how many random schedules are run on each engine; `make simulation` runs
// a thousand.
var seeds = flag.Int("seeds", 20, "random schedules that TestRandomSchedules runs on each engine")

// seedsDir holds a file for each seed that once failed, ENGINE-SEED or cluster-SEED, and
// one for each engine that never did, so that what reads them is tested.
var seedsDir = filepath.Join("testdata", "seeds")

// The random schedule: owners come and go, two at a time or none, and so do
// redrives by mended rules and purges; replies are lost, the store fails before and after it
// applies, and so does the dead-letter topic, processes die without a flush, power
// fails at any write to the disk. Whatever happens, what the store holds is what the
// log gives, what was acknowledged is there, and every dead letter is in its topic. A
// seed that fails is kept in testdata/seeds and runs from then on.
func TestRandomSchedules(t *testing.T) {
	t.Parallel()
	runSeeds(t, []string{"mem", "pebble"}, func(t *testing.T, engine string, seed uint64) string {
		return simulate(t, &simulation{seed: seed, disked: engine == "pebble"})
	})
}

// kinds are what the names of seeds begin with.
var kinds = []string{"mem", "pebble", "cluster"}

// runSeeds runs the seeds of the flag, a quarter of them in short runs, and those that
// were kept, of some kinds.
func runSeeds(t *testing.T, mine []string, run func(t *testing.T, kind string, seed uint64) string) {
	all := map[string]bool{}
	for seed := range thinned.Of(*seeds, *seeds/4) {
		for _, kind := range mine {
			all[fmt.Sprintf("%s-%d", kind, seed)] = true
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
		kind, number, _ := strings.Cut(name, "-")
		seed, err := strconv.ParseUint(number, 10, 64)
		if err != nil || !slices.Contains(kinds, kind) {
			t.Errorf("%s/%s is no seed: want one of %q, - and a number", seedsDir, name, kinds)
			continue
		}
		if !slices.Contains(mine, kind) {
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
				if d := run(t, kind, seed); d != "" {
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
	if testing.Short() {
		t.Skip("-short: whether schedules find what is missing does not depend on the race detector")
	}
	t.Parallel()
	for name, mutant := range map[string]func(s *simulation){
		"no compare-and-set":             func(s *simulation) { s.mutant = func(e store.Engine) store.Engine { return &blind{e} } },
		"offset in a second batch":       func(s *simulation) { s.mutant = func(e store.Engine) store.Engine { return &apart{e} } },
		"offset before the data":         func(s *simulation) { s.mutant = func(e store.Engine) store.Engine { return &early{e} } },
		"letters in a second batch":      func(s *simulation) { s.mutant = func(e store.Engine) store.Engine { return &letterless{e} } },
		"acknowledged before the commit": func(s *simulation) { s.mutant = func(e store.Engine) store.Engine { return &hasty{e} } },
		"redrive of what is not dead":    func(s *simulation) { s.mutant = func(e store.Engine) store.Engine { return &careless{e} } },
		"redriven in a second batch":     func(s *simulation) { s.mutant = func(e store.Engine) store.Engine { return &forgetful{e} } },
		"purged in a second batch":       func(s *simulation) { s.mutant = func(e store.Engine) store.Engine { return &wasteful{e} } },
		"relayed before the topic has it": func(s *simulation) {
			s.relayMutant = func(p producer) producer { return &hopeful{p} }
		},
		"acknowledged before the disk": func(s *simulation) { s.disked, s.sync = true, pebblestore.SyncNever },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			findMutant(t, func(t *testing.T, seed uint64) string {
				s := &simulation{seed: seed, broken: true}
				mutant(s)
				return simulate(t, s)
			})
		})
	}
}

// findMutant wants one of two hundred seeds to differ from the log.
func findMutant(t *testing.T, run func(t *testing.T, seed uint64) string) {
	t.Helper()
	for seed := range uint64(200) {
		found := false
		synctest.Test(t, func(t *testing.T) { found = run(t, seed) != "" })
		if found {
			t.Logf("found by seed %d", seed)
			return
		}
	}
	t.Error("Got the log from every schedule")
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

// careless redrives a letter whatever became of it meanwhile.
type careless struct{ store.Engine }

func (e *careless) Apply(ctx context.Context, b *store.Batch) error {
	blind := *b
	blind.Records = slices.Clone(b.Records)
	for i := range blind.Records {
		blind.Records[i].Cond = nil
	}
	return e.Engine.Apply(ctx, &blind)
}

// forgetful gives records that are redriven their effect first, and then says so.
type forgetful struct{ store.Engine }

func (e *forgetful) Apply(ctx context.Context, b *store.Batch) error {
	if len(b.Records) == 0 {
		return e.Engine.Apply(ctx, b)
	}
	effects, marks := *b, store.Batch{}
	effects.Records = nil
	for _, r := range b.Records {
		mark := r
		if n := len(r.Mutations); n > 2 { // the mark, effects, the count
			mark.Mutations = []cell.Mutation{r.Mutations[0], r.Mutations[n-1]}
			// The condition is tested on the row of the first mutation: one that
			// does nothing is in front.
			none := cell.Mutation{Table: store.OutboxTable, Row: r.Mutations[0].Row}
			none.Put(store.OutboxFamily, []byte("looked_at"), 1, nil)
			r.Mutations = append([]cell.Mutation{none}, r.Mutations[1:n-1]...)
			effects.Records = append(effects.Records, r)
		}
		marks.Records = append(marks.Records, mark)
	}
	if err := e.Engine.Apply(ctx, &effects); err != nil {
		return err
	}
	return e.Engine.Apply(ctx, &marks)
}

// wasteful removes letters first and counts them then.
type wasteful struct{ store.Engine }

func (e *wasteful) Apply(ctx context.Context, b *store.Batch) error {
	removals, counts := *b, store.Batch{}
	removals.Records = slices.Clone(b.Records)
	for i := range removals.Records {
		r := &removals.Records[i]
		if ms := r.Mutations; len(ms) == 2 && ms[0].Ops[0].Type == cell.OpDeleteRow {
			r.Mutations = ms[:1]
			counts.Add(r.Offset, ms[1])
		}
	}
	if err := e.Engine.Apply(ctx, &removals); err != nil || len(counts.Mutations) == 0 {
		return err
	}
	return e.Engine.Apply(ctx, &counts)
}

// hopeful takes letters for produced whatever the topic says.
type hopeful struct{ producer }

func (p *hopeful) produce(ctx context.Context, topic string, letters []kafka.Message) error {
	_ = p.producer.produce(ctx, topic, letters)
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

	relayMutant func(producer) producer // between the relays and the topic; nil = nothing
	killAll     func() string           // ends all processes where power fails; nil = endAll

	t      *testing.T
	rng    *rand.Rand
	log    *fakeBroker
	disk   crashfs.FS
	store  store.Engine
	topic  fakeTopic // of dead letters
	owners []*simOwner
	tools  []*simTool // redrives and purges that may be under way

	mu           sync.Mutex
	chance       *rand.Rand // of faults, which processes meet in any order
	calm         bool
	acknowledged acknowledged
	fuse         int // writes to the disk until power fails; 0 = it does not
	crash        *powerFailure
}

// acknowledged is what processes took for stored.
type acknowledged struct {
	next     [simPartitions]int64 // offsets of the batches
	redriven int64                // letters
	purged   int64                // letters
}

// powerFailure is what is left of a disk.
type powerFailure struct {
	disk         crashfs.FS
	acknowledged acknowledged // before
}

// simOwner is a process that has partitions, and perhaps a relay.
type simOwner struct {
	*running
	stopRelay func()
}

// simTool is a redrive by mended rules, or a purge.
type simTool struct {
	stop context.CancelFunc
	done chan error
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
		defer s.openNew()()
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

// openNew opens the embedded engine, with tables, on a new disk. The caller calls end.
func (s *simulation) openNew() (end func()) {
	s.t.Helper()
	s.disk = crashfs.New()
	s.open()
	createTables(s.t, s.store.(store.Admin))
	return func() {
		if err := s.store.Close(); err != nil { // by then another one, where power has failed
			s.t.Error(err)
		}
	}
}

// light lights the fuse, or, where that was done, has power fail.
func (s *simulation) light() string {
	s.mu.Lock()
	armed := s.fuse > 0 || s.crash != nil
	if !armed {
		s.fuse = 1 + s.rng.IntN(40)
	}
	s.mu.Unlock()
	if armed {
		return s.powerFails()
	}
	return ""
}

// open opens the embedded engine on what the disk holds.
func (s *simulation) open() {
	s.t.Helper()
	db, err := pebblestore.Open("db", &pebblestore.Options{
		FS: s.disk.OnWrite(s.write), Sync: s.sync,
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
func (s *simulation) write() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fuse == 0 {
		return
	}
	if s.fuse--; s.fuse == 0 {
		s.cut()
	}
}

// cut notes what the disk holds if power fails now. The lock is held.
func (s *simulation) cut() {
	s.crash = &powerFailure{
		acknowledged: s.acknowledged, // before the disk is looked at
		disk:         s.disk.Crash(s.chance.IntN(101), s.chance),
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
			at := &e.s.acknowledged.next[advances[i].Partition]
			*at = max(*at, advances[i].Progress.Next)
		}
	}
	return err
}

// engine is the store as a new process has it.
func (s *simulation) engine() store.Engine {
	var e store.Engine = &faultyEngine{Engine: s.store, all: true, fault: func(*store.Batch) (bool, error) {
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
			return true, errReset
		}
		return true, nil
	}}
	if s.mutant != nil {
		e = s.mutant(e)
	}
	return &simEngine{e, s}
}

var errReset = errors.New("connection reset")

// relayTo is the dead-letter topic as a new relay has it.
func (s *simulation) relayTo() producer {
	var p producer = &lossyTopic{s}
	if s.relayMutant != nil {
		p = s.relayMutant(p)
	}
	return p
}

// lossyTopic is a topic of which requests and replies are lost.
type lossyTopic struct{ s *simulation }

func (p *lossyTopic) produce(ctx context.Context, topic string, letters []kafka.Message) error {
	p.s.mu.Lock()
	fault := p.s.chance.IntN(5)
	if p.s.calm {
		fault = -1
	}
	p.s.mu.Unlock()
	switch fault {
	case 0:
		return errReset
	case 1:
		letters = letters[:len(letters)/2]
	}
	err := p.s.topic.produce(ctx, topic, letters)
	if fault == 1 || fault == 2 {
		return errReset
	}
	return err
}

var simValues = []string{
	"a", "b", "c", "d", "a", "a", "skip", "-", "a", "b", "c", "d", "a", "a", "a", "b", "c",
	"bad", "huge", "long", // and for ever
	"bad:a", "bad:b", "bad:skip", "bad:huge", // until the rules are mended
}

func (s *simulation) step() string {
	rng := s.rng
	switch rng.IntN(11) {
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
		if s.disked {
			return s.light()
		}
	case 3:
		if db, ok := s.store.(*pebblestore.DB); ok && rng.IntN(2) == 0 {
			table := []string{"events", "counts"}[rng.IntN(2)]
			if err := db.MajorCompact(s.t.Context(), table); err != nil {
				s.t.Error(err)
			}
		}
		return s.snapshot()
	case 4:
		if len(s.tools) < 2 || rng.IntN(2) == 0 {
			for range 1 + rng.IntN(2) {
				s.tool(s.redrive())
			}
			if rng.IntN(2) == 0 {
				s.tool(s.purge())
			}
			break
		}
		r := s.tools[0]
		s.tools = s.tools[1:]
		return s.endTool(r)
	default:
		n := int32(rng.IntN(simPartitions))
		for range rng.IntN(45) {
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
	o := &simOwner{stopRelay: func() {}}
	if rng.IntN(2) == 0 {
		o.stopRelay = startRelaying(p, s.relayTo())
		s.t.Cleanup(o.stopRelay)
	}
	o.running = start(s.t, p, []int32{0, 1, 2}[:1+rng.IntN(simPartitions)]...)
	s.owners = append(s.owners, o)
}

// end ends a process. One that fails for good is as good as dead: what it leaves is
// compared.
func (s *simulation) end(o *simOwner) string {
	err := o.close()
	o.stopRelay()
	if err != nil && !s.broken {
		return err.Error()
	}
	return ""
}

// tool runs f beside whatever else goes on.
func (s *simulation) tool(f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	s.t.Cleanup(cancel)
	r := &simTool{stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- f(ctx) }()
	s.tools = append(s.tools, r)
}

// hesitant is the store of a tool that takes its time between what it has read and what
// it writes. Two tools would come one after the other else, where there is one core and a
// store that never blocks.
type hesitant struct {
	store.Engine
	s *simulation
}

func (e *hesitant) Apply(ctx context.Context, b *store.Batch) error {
	e.s.mu.Lock()
	wait := time.Duration(e.s.chance.IntN(3)) * time.Millisecond
	e.s.mu.Unlock()
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return ctx.Err()
	}
	return e.Engine.Apply(ctx, b)
}

// redrive is a redrive of some letters, or all.
func (s *simulation) redrive() func(context.Context) error {
	o := &RedriveOptions{Engine: &hesitant{s.engine(), s}, Filter: LetterFilter{Pipeline: "p"}, Limit: s.rng.IntN(2) * s.rng.IntN(30)}
	return func(ctx context.Context) error {
		n, err := newRedrive(o, newMended, "v2").run(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.acknowledged.redriven += n.Applied + n.Filtered
		return err
	}
}

// purge is a purge of letters that were redriven, or that no rules will ever take.
func (s *simulation) purge() func(context.Context) error {
	o := &PurgeOptions{Engine: &hesitant{s.engine(), s}, Filter: LetterFilter{Pipeline: "p", State: RedrivenOnly}, KeepUnrelayed: true}
	if s.rng.IntN(2) == 0 {
		o.Filter.State, o.Filter.Class = DeadLetters, "cell_too_large"
	}
	return func(ctx context.Context) error {
		n, err := Purge(ctx, o)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.acknowledged.purged += n.Purged
		return err
	}
}

func newMended() mapper { return &mendedMapper{} }

// endTool ends a redrive or a purge, amid a commit where it is in one.
func (s *simulation) endTool(r *simTool) string {
	r.stop()
	err := <-r.done
	for _, known := range []error{nil, context.Canceled, store.ErrTransient, store.ErrDiskFull, errReset} {
		if errors.Is(err, known) || s.broken {
			return ""
		}
	}
	return err.Error()
}

func (s *simulation) endAll() string {
	for _, o := range s.owners {
		if d := s.end(o); d != "" {
			return d
		}
	}
	for _, r := range s.tools {
		if d := s.endTool(r); d != "" {
			return d
		}
	}
	s.owners, s.tools = nil, nil
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
	end := s.endAll
	if s.killAll != nil {
		end = s.killAll
	}
	if d := end(); d != "" {
		return d
	}
	if err := s.store.Close(); err != nil {
		s.t.Error(err)
	}
	s.mu.Lock()
	s.disk, s.acknowledged, s.crash = left.disk, left.acknowledged, nil
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
		if next := s.acknowledged.next[n]; stored[n] < next {
			return fmt.Sprintf("offset %d of partition %d was acknowledged, %d is stored", next, n, stored[n])
		}
	}
	if n := redrivenOf(s.t, s.store); n.Applied+n.Filtered < s.acknowledged.redriven || n.Purged() < s.acknowledged.purged {
		return fmt.Sprintf("%d letters were acknowledged as redriven and %d as purged, %+v is stored", s.acknowledged.redriven, s.acknowledged.purged, n)
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
	redriven := redrivenOf(s.t, snap)
	got := map[string]int64{"events": 0, "counts": 0, "letters": 0, buffer.Applied: 0, buffer.Filtered: 0}
	for _, table := range []string{"events", "counts"} {
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
	for d, err := range ScanLetters(s.t.Context(), snap, &LetterFilter{Brief: true}) {
		if err != nil {
			return err.Error()
		}
		got["letters"]++
		if d.Redriven != 0 {
			got[d.RedrivenAs]++
		}
	}
	applied += redriven.Applied
	return cmp.Diff(map[string]int64{
		"events": applied, "counts": applied, "letters": dead - redriven.Purged(),
		buffer.Applied: redriven.Applied - redriven.PurgedApplied, buffer.Filtered: redriven.Filtered - redriven.PurgedFiltered,
	}, got)
}

// finish lets a last process apply the rest, a last redrive mend what can be, and a
// last relay send what is left, without faults, and compares.
func (s *simulation) finish() string {
	if d := s.lost(); d != "" {
		return d
	}
	s.mu.Lock()
	s.calm = true
	s.mu.Unlock()
	last := &simOwner{running: start(s.t, newTest(s.t, s.store, s.log), 0, 1, 2), stopRelay: func() {}}
	if s.broken {
		waitFor(s.t, func() bool { return len(last.done) > 0 || stored(s.t, s.store, s.log) })
	} else {
		last.caughtUp(s.log)
	}
	if d := s.end(last); d != "" {
		return d
	}
	if d := s.snapshot(); d != "" {
		return d
	}
	if _, err := redriveWith(s.t.Context(), s.store, &RedriveOptions{}); err != nil {
		return err.Error()
	}
	want, got := wantMended(s.log), readUnchecked(s.t, s.store)
	purged := int64(0)
	for key, why := range want.Letters {
		if _, ok := got.Letters[key]; !ok && (why == buffer.Applied || why == buffer.Filtered || why == "store/cell_too_large") {
			delete(want.Letters, key)
			purged++
		}
	}
	if n := redrivenOf(s.t, s.store); n.Purged() != purged {
		return fmt.Sprintf("%d letters are gone, %+v is stored", purged, n)
	}
	if d := cmp.Diff(want, got); d != "" {
		return d
	}
	return s.unrelayed()
}

// unrelayed lets a relay send what is left, and compares the topic with the outbox:
// it has every letter at least once, and nothing else.
func (s *simulation) unrelayed() string {
	left := int64(0)
	for d, err := range ScanLetters(s.t.Context(), s.store, &LetterFilter{Brief: true}) {
		if err != nil {
			s.t.Fatal(err)
		}
		if !d.Relayed {
			left++
		}
	}
	p := newTest(s.t, s.store, s.log)
	stop := startRelaying(p, s.relayTo())
	for tries := 0; p.Metrics().Relayed < left && tries < 1000; tries++ {
		<-time.After(time.Millisecond)
	}
	stop()
	if n := p.Metrics().Relayed; n != left {
		return fmt.Sprintf("%d letters were relayed of %d that were left", n, left)
	}
	want, got := map[string]bool{}, map[string]bool{}
	for key := range wantMended(s.log).Letters {
		want[key] = true
	}
	for key := range s.topic.letters() {
		got[key] = true
	}
	return cmp.Diff(want, got)
}
