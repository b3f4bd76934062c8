package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/internal/crashfs"
	"sluice/internal/thinned"
	"sluice/pipeline/buffer"
	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
	"sluice/pipeline/memory"
	"sluice/store"
	"sluice/store/pebblestore"
)

// The fault schedules of docs/guarantees.md, by number: here those that need no
// network. Each has three partitions, tables of four regions and random keys, and
// ends with the contents that the log gives.

// schedule is a log and the store that it goes to.
type schedule struct {
	t   testing.TB
	b   *fakeBroker
	e   store.Engine
	rng *rand.Rand

	parted, merged atomic.Int64 // regions
}

func newSchedule(t testing.TB, e store.Engine) *schedule {
	t.Helper()
	s := &schedule{t: t, b: newFakeBroker(3), e: e, rng: rand.New(rand.NewPCG(1, 2))}
	s.b.rng = rand.New(rand.NewPCG(3, 4))
	for _, table := range []string{"events", "counts"} {
		for _, at := range []string{"1/", "2/", "e"} {
			s.split(table, at)
		}
	}
	return s
}

func (s *schedule) split(table, at string) {
	s.t.Helper()
	if err := s.e.(store.Admin).SplitRegion(context.Background(), table, []byte(at)); err != nil {
		s.t.Error(err)
	}
	s.parted.Add(1)
}

// load produces n records, one in ten of them poison, filtered or a gap.
func (s *schedule) load(n int) {
	for range n {
		v := string(rune('a' + s.rng.IntN(8)))
		switch s.rng.IntN(40) {
		case 0:
			v = "bad"
		case 1:
			v = "skip"
		case 2:
			v = "-"
		case 3:
			v = "huge"
		}
		s.b.produce(int32(s.rng.IntN(3)), v)
	}
}

// start begins a process that owns all partitions and applies them through e.
func (s *schedule) start(e store.Engine, opts ...testOption) *running {
	s.t.Helper()
	small := func(o *Options) { o.Flush.MaxRecords = 16 }
	return start(s.t, newTest(s.t, e, s.b, append([]testOption{small}, opts...)...), 0, 1, 2)
}

// holdsItsOffsets compares what r holds with the log up to the offsets in it, at where,
// and returns those.
func (s *schedule) holdsItsOffsets(r store.Reader, where string) map[int32]int64 {
	s.t.Helper()
	all, err := store.AllProgress(s.t.Context(), r)
	if err != nil {
		s.t.Fatal(err)
	}
	next := map[int32]int64{}
	for _, p := range all {
		next[p.Partition] = p.Progress.Next
	}
	if d := cmp.Diff(wantTo(s.b, next), readContents(s.t, r)); d != "" {
		s.t.Errorf("%s: Got other contents than the log has up to the offsets %v beside them (-want +got):\n%s", where, next, d)
	}
	return next
}

func killed(o *Options) { o.DrainTimeout = -1 }

// finish lets a last process apply the rest, and compares.
func (s *schedule) finish() {
	s.t.Helper()
	r := s.start(s.e)
	r.caughtUp(s.b)
	if err := r.close(); err != nil {
		s.t.Fatal(err)
	}
	checkContents(s.t.(*testing.T), s.e, s.b)
}

// mortal is the engine of a process that dies with SIGKILL at one of its batches:
// nothing of it reaches the store afterwards.
type mortal struct {
	store.Engine
	apply bool // the batch at which it dies

	mu   sync.Mutex
	left int
	died chan struct{}
}

func (e *mortal) Apply(ctx context.Context, b *store.Batch) error {
	if len(b.Advances) == 0 || b.Advances[0].From < 0 {
		return e.Engine.Apply(ctx, b)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left--; e.left > 0 {
		return e.Engine.Apply(ctx, b)
	}
	if e.left == 0 {
		defer close(e.died)
		if e.apply {
			if err := e.Engine.Apply(ctx, b); err != nil {
				return err
			}
		}
	}
	return errors.New("killed")
}

func testKilled(t *testing.T, apply bool) {
	t.Parallel()
	s := newSchedule(t, newEngine(t))
	for range 10 {
		s.load(200)
		e := &mortal{Engine: s.e, apply: apply, left: 1 + s.rng.IntN(5), died: make(chan struct{})}
		r := s.start(e, killed)
		<-e.died
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
	}
	s.finish()
}

func TestSchedule01KilledBeforeTheWrite(t *testing.T) { testKilled(t, false) }

func TestSchedule03KilledAfterTheWrite(t *testing.T) { testKilled(t, true) }

// powerDisk is a disk whose power fails at each of the writes that come after it was
// armed.
type powerDisk struct {
	crashfs.FS

	mu   sync.Mutex // guards below
	rng  *rand.Rand
	more int          // writes at which it is to fail
	left []crashfs.FS // what each failure leaves
}

func (d *powerDisk) open(t *testing.T) *pebblestore.DB {
	t.Helper()
	db, err := pebblestore.Open("db", &pebblestore.Options{
		FS: d.OnWrite(d.write), MemTableBytes: 64 << 10, CacheBytes: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func (d *powerDisk) write() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.more > 0 {
		d.more--
		d.left = append(d.left, d.Crash(d.rng.IntN(101), d.rng))
	}
}

// arm makes power fail at the next n writes.
func (d *powerDisk) arm(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.more, d.left = n, nil
}

// failed returns what each failure has left.
func (d *powerDisk) failed() []crashfs.FS {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.more = 0
	return d.left
}

// All rows, counters and offsets of a batch are one commit: there is no moment
// between two of them, which a power failure at each write of a commit shows, and of
// a compaction beside it. One of the disks that the failures leave is gone on with.
func TestSchedule02PowerFailsInTheWrite(t *testing.T) {
	t.Parallel()
	disk := &powerDisk{FS: crashfs.New(), rng: rand.New(rand.NewPCG(7, 8))}
	db := disk.open(t)
	createTables(t, db)
	s := newSchedule(t, db)
	amid := 0
	for life := range thinned.Of(6, 3) {
		s.load(300)
		compacted := make(chan error, 1)
		var n atomic.Int64
		at := 1 + s.rng.Int64N(10)
		r := s.start(&faultyEngine{Engine: db, fault: func(*store.Batch) (bool, error) {
			if n.Add(1) == at {
				disk.arm(20)
				go func() { compacted <- db.MajorCompact(context.Background(), "events") }()
			}
			return true, nil
		}}, killed)
		r.caughtUp(s.b)
		left := disk.failed()
		if err := errors.Join(r.close(), <-compacted, db.Close()); err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			t.Fatal("Got no power failure")
		}
		next := left[s.rng.IntN(len(left))]
		for i, fs := range left {
			d := &powerDisk{FS: fs, rng: rand.New(rand.NewPCG(uint64(life), uint64(i)))}
			after := d.open(t)
			s.holdsItsOffsets(after, fmt.Sprintf("life %d, write %d", life, i))
			if !stored(t, after, s.b) {
				amid++
			}
			if fs == next {
				disk, db, s.e = d, after, after
			} else if err := after.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if amid == 0 {
		t.Error("Got no power failure before the end of the log: the schedule shows nothing")
	}
	s.finish()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func testLostReplies(t *testing.T, apply bool) {
	t.Parallel()
	s := newSchedule(t, newEngine(t))
	var n atomic.Int64
	r := s.start(&faultyEngine{Engine: s.e, fault: func(*store.Batch) (bool, error) {
		if n.Add(1)%4 == 3 {
			return apply, store.ErrTransient
		}
		return true, nil
	}})
	for range 10 {
		s.load(100)
		r.caughtUp(s.b)
		if !stored(t, s.e, s.b) {
			t.Error("Got a log that is said to be stored and is not")
		}
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	if n.Load() < 1000/16 { // records, and records of a batch at most
		t.Errorf("Got %d batches, of which every fourth has no good reply: the schedule shows nothing", n.Load())
	}
	s.finish()
}

func TestSchedule06ReplyLostAfterTheWrite(t *testing.T) { testLostReplies(t, true) }

func TestSchedule07WriteLost(t *testing.T) { testLostReplies(t, false) }

// echo delivers each batch twice, the second time at once or when later ones have
// arrived. Of those that come at once, the first reply or the second is the caller's.
type echo struct {
	store.Engine
	mu      sync.Mutex
	n       int
	delayed []*store.Batch
	wrong   []error // of second deliveries, which must all be stale
}

func (e *echo) Apply(ctx context.Context, b *store.Batch) error {
	if len(b.Advances) == 0 {
		return e.Engine.Apply(ctx, b)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.n++
	if e.n%2 == 0 {
		delayed := copyBatch(b)
		first := e.Engine.Apply(ctx, b)
		if first == nil {
			e.delayed = append(e.delayed, delayed)
		}
		if len(e.delayed) > 7 {
			e.deliver(ctx, 1)
		}
		return first
	}
	first := e.Engine.Apply(ctx, b)
	second := e.Engine.Apply(ctx, b)
	if first == nil {
		e.look(second)
	}
	if e.n%5 == 0 {
		return second
	}
	return first
}

func (e *echo) look(second error) {
	if !errors.Is(second, store.ErrStale) {
		e.wrong = append(e.wrong, fmt.Errorf("second delivery: %w", second))
	}
}

// deliver lets the oldest n delayed batches arrive.
func (e *echo) deliver(ctx context.Context, n int) {
	for _, b := range e.delayed[:n] {
		e.look(e.Engine.Apply(ctx, b))
	}
	e.delayed = e.delayed[n:]
}

// copyBatch returns b in memory of its own.
func copyBatch(b *store.Batch) *store.Batch {
	b = b.Unpacked()
	c := &store.Batch{
		Counters: slices.Clone(b.Counters), Records: buffer.CloneRecords("p", b.Records), Advances: slices.Clone(b.Advances), Bulk: b.Bulk,
	}
	for i := range b.Mutations {
		m := &b.Mutations[i]
		c.Add(m.Offset, buffer.Clone([]cell.Mutation{m.Mutation})[0])
	}
	for i := range c.Counters {
		n := &c.Counters[i]
		n.Row, n.Qualifier = bytes.Clone(n.Row), bytes.Clone(n.Qualifier)
	}
	return c
}

func TestSchedule08DeliveredTwice(t *testing.T) {
	t.Parallel()
	s := newSchedule(t, newEngine(t))
	e := &echo{Engine: s.e}
	s.load(1000)
	r := s.start(e)
	r.caughtUp(s.b)
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	late := len(e.delayed)
	e.deliver(t.Context(), late) // whose sender is gone
	if err := errors.Join(e.wrong...); err != nil || e.n < 1000/16 || late == 0 {
		t.Errorf("Got %v, of %d batches twice, %d of them after the end; want all refused as stale", err, e.n, late)
	}
	s.finish()
}

func TestSchedule09TwoOwners(t *testing.T) {
	t.Parallel()
	s := newSchedule(t, newEngine(t))
	one, two := s.start(s.e), s.start(s.e)
	for i := 0; i < 20 || one.Metrics().Stale+two.Metrics().Stale == 0; i++ { // until they have met
		s.load(100)
		waitStored(t, s.e, s.b)
	}
	if err := errors.Join(one.close(), two.close()); err != nil {
		t.Fatal(err)
	}
	s.finish()
}

// A process is stopped with its batches in hand, another takes over, and then the
// first wakes up and flushes.
func TestSchedule10ZombieFlushes(t *testing.T) {
	t.Parallel()
	s := newSchedule(t, newEngine(t))
	asleep, wake := make(chan struct{}), make(chan struct{})
	var once sync.Once
	zombie := s.start(&faultyEngine{Engine: s.e, fault: func(b *store.Batch) (bool, error) {
		if b.Advances[0].From > 0 {
			once.Do(func() { close(asleep) })
			<-wake
		}
		return true, nil
	}})
	for range 5 {
		s.load(100)
	}
	<-asleep
	owner := s.start(s.e)
	owner.caughtUp(s.b)
	if err := owner.close(); err != nil {
		t.Fatal(err)
	}
	close(wake)
	waitFor(t, func() bool { return zombie.Metrics().Stale > 0 })
	if err := zombie.close(); err != nil {
		t.Fatal(err)
	}
	s.finish()
}

// Regions are split and merged before a batch reaches the store, beside it, and
// while a zombie holds one from before.
func testRegionsMove(t *testing.T, move func(s *schedule, n int64)) {
	t.Parallel()
	s := newSchedule(t, newPebble(t))
	split := s.parted.Load()
	var n atomic.Int64
	hold, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	zombie := s.start(&faultyEngine{Engine: s.e, fault: func(b *store.Batch) (bool, error) {
		if b.Advances[0].From >= 0 {
			once.Do(func() { close(hold) })
			<-release
		}
		return true, nil
	}})
	s.load(100)
	<-hold
	r := s.start(&faultyEngine{Engine: s.e, fault: func(*store.Batch) (bool, error) {
		move(s, n.Add(1))
		return true, nil
	}})
	for range 5 {
		s.load(200)
		waitStored(t, s.e, s.b)
	}
	close(release)
	waitFor(t, func() bool { return zombie.Metrics().Stale > 0 }) // of the first layout
	if err := errors.Join(zombie.close(), r.close()); err != nil {
		t.Fatal(err)
	}
	if s.parted.Load()+s.merged.Load() < split+30 { // the batches of 1000 records are more than that
		t.Errorf("Got %d splits and %d merges: the schedule shows little", s.parted.Load()-split, s.merged.Load())
	}
	s.finish()
}

// at is a split point that no other call gives, among the rows of table.
func at(table string, n int64) string {
	if table == "counts" {
		return fmt.Sprintf("%c/%d", rune('a'+n%8), n) // after page 'a'+n%8
	}
	return fmt.Sprintf("%d/%d", n%3, 1000+n)
}

func TestSchedule13SplitBeforeTheWrite(t *testing.T) {
	testRegionsMove(t, func(s *schedule, n int64) {
		s.split("events", at("events", n))
		s.split("counts", at("counts", n))
	})
}

func TestSchedule14SplitDuringTheWrite(t *testing.T) {
	var splits sync.WaitGroup
	defer splits.Wait()
	testRegionsMove(t, func(s *schedule, n int64) {
		splits.Go(func() {
			s.split("events", at("events", n))
			s.split("counts", at("counts", n))
		})
	})
}

// merge makes one region of those from one row to another.
func (s *schedule) merge(table, from, to string) {
	m, err := s.e.Regions(context.Background(), table)
	if err != nil {
		s.t.Error(err)
		return
	}
	rows := [][]byte{[]byte(from)}
	for i := m.Locate(rows[0]) + 1; i <= m.Locate([]byte(to)); i++ {
		rows = append(rows, m.At(i).Start)
	}
	switch err := s.e.(store.Admin).MergeRegions(context.Background(), table, rows...); {
	case err == nil:
		s.merged.Add(1)
	case !errors.Is(err, store.ErrMergeRegion): // of one region
		s.t.Error(err)
	}
}

// Where the four regions of before are one, they are parted again.
func TestSchedule15Merge(t *testing.T) {
	var mu sync.Mutex // of partitions that move regions beside each other
	testRegionsMove(t, func(s *schedule, n int64) {
		mu.Lock()
		defer mu.Unlock()
		s.merge("events", fmt.Sprintf("%d/", n%2), fmt.Sprintf("%d/z", 1+n%2))
		s.merge("counts", "a", "h")
		if n%3 == 0 {
			s.split("events", at("events", n))
			s.split("counts", at("counts", n))
		}
	})
}

func TestSchedule16SplitMergeSplitWithAZombie(t *testing.T) {
	var mu sync.Mutex
	testRegionsMove(t, func(s *schedule, n int64) {
		mu.Lock()
		defer mu.Unlock()
		for _, table := range []string{"events", "counts"} {
			s.split(table, at(table, n))
			s.merge(table, "0", "z")
			s.split(table, at(table, 1000+n))
		}
	})
}

// Schedule 17, a region that moves to another store while writes are in flight,
// cannot be: a data directory is one store with all regions of its tables, and one
// commit covers them (design D1). What moves is the directory, whole, with the offsets
// in it: schedule 34.

// Gaps as compaction leaves them: at the first offset, at the last, one after the
// other, and nothing else. Batches without records are in package kafka's tests.
func TestSchedule24CompactedLog(t *testing.T) {
	t.Parallel()
	s := newSchedule(t, newEngine(t))
	for range 20 {
		s.b.produce(0, "-", "-", "a", "-", "b", "-")
		s.b.produce(1, "-")
		s.b.produce(2, "a", "-", "-", "-")
		s.finish()
	}
}

func TestSchedule28PoisonFirstLastAloneAndOnly(t *testing.T) {
	t.Parallel()
	s := newSchedule(t, newEngine(t))
	out := &fakeTopic{down: true} // the dead-letter topic
	s.b.produce(0, "bad", "a", "huge", "b", "panic")
	s.b.produce(1, "long")
	for range 100 {
		s.b.produce(2, "bad", "huge", "long", "panic")
	}
	p := newTest(t, s.e, s.b)
	stop := startRelaying(p, out)
	r := start(t, p, 0, 1, 2)
	r.caughtUp(s.b)
	checkContents(t, s.e, s.b)
	waitFor(t, func() bool { return p.Metrics().RelayErrors > 0 })
	out.set(func() { out.down = false })
	waitFor(t, func() bool { return p.Metrics().Relayed == 404 })
	stop()
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	for key := range want(s.b).Letters {
		if out.letters()[key] != 1 {
			t.Errorf("Got %d letters of %s, want one", out.letters()[key], key)
		}
	}
	if n := len(out.letters()); n != 404 {
		t.Errorf("Got %d letters, want 404", n)
	}
	checkContents(t, s.e, s.b)
}

// The store refuses, or does not answer, for ten minutes while more
// records come than memory has room for.
func TestSchedule29BusyForMinutes(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string]bool{"refuses": true, "does not answer": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { testBusyForMinutes(t, answers) })
		})
	}
}

func testBusyForMinutes(t *testing.T, answers bool) {
	s := newSchedule(t, newEngine(t))
	all, err := memory.New(300 << 10)
	if err != nil {
		t.Fatal(err)
	}
	budget := all.Buffered()
	var most atomic.Int64
	busy := make(chan struct{})
	r := s.start(&faultyEngine{Engine: s.e, fault: func(b *store.Batch) (bool, error) {
		most.Store(max(most.Load(), budget.Used()))
		if b.Advances[0].From < 0 {
			return true, nil
		}
		if !answers {
			<-busy
		}
		select {
		case <-busy:
			return true, nil
		default:
			return false, store.ErrTransient
		}
	}}, func(o *Options) { o.Memory, o.Flush.MaxRecords = all, 5000 })
	for range 10 {
		s.load(400)
		<-time.After(time.Minute)
		most.Store(max(most.Load(), budget.Used()))
	}
	st := r.first()
	paused := slices.ContainsFunc(r.Status().Partitions, func(p PartitionStatus) bool { return p.Paused != "" }) // others may wait for its memory
	if !paused || st.Progress.Next != 0 {
		t.Errorf("Got %+v from a store that is busy, want a pause", st)
	}
	if most.Load() < budget.Limit()/2 {
		t.Errorf("Got %d bytes held at most, of %d: the schedule shows nothing", most.Load(), budget.Limit())
	}
	close(busy)
	r.caughtUp(s.b)
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	if most.Load() > budget.Limit() || budget.Used() != 0 {
		t.Errorf("Got %d bytes held at most, of %d, and %d at the end", most.Load(), budget.Limit(), budget.Used())
	}
	s.finish()
}

// meteredFS has as much free space as the test says.
type meteredFS struct {
	vfs.FS
	free atomic.Uint64
}

func (m *meteredFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: m.free.Load()}, nil
}

func TestSchedule30FullDisk(t *testing.T) {
	t.Parallel()
	disk := &meteredFS{FS: vfs.NewMem()}
	disk.free.Store(1 << 40)
	db, err := pebblestore.Open("db", &pebblestore.Options{FS: disk, CacheBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	createTables(t, db)
	s := newSchedule(t, db)
	r := s.start(db)
	for range 3 {
		s.load(300)
		r.caughtUp(s.b)
		disk.free.Store(1 << 20)
		s.b.produce(0, "a")
		waitFor(t, func() bool { return r.first().Paused == "disk full" })
		s.load(300)
		disk.free.Store(1 << 40)
		r.caughtUp(s.b)
		waitFor(t, func() bool { return r.first().Paused == "" })
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	s.finish()
}

// jumpingClock is a store's clock that goes from 1970 to 2096 and back at each look.
type jumpingClock struct {
	mu          sync.Mutex
	rng         *rand.Rand
	last        cell.Timestamp
	forth, back int
}

func (c *jumpingClock) now() cell.Timestamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := cell.Timestamp(c.rng.Int64N(4_000_000_000_000))
	if at < c.last {
		c.back++
	} else {
		c.forth++
	}
	c.last = at
	return at
}

// jumps returns how often the clock has gone either way.
func (c *jumpingClock) jumps() (forth, back int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.forth, c.back
}

func TestSchedule31ClockJumps(t *testing.T) {
	t.Parallel()
	clock := &jumpingClock{rng: rand.New(rand.NewPCG(5, 6))}
	fs := vfs.NewMem()
	open := func() *pebblestore.DB {
		db, err := pebblestore.Open("db", &pebblestore.Options{FS: fs, CacheBytes: 1 << 20, Now: clock.now})
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	db := open()
	defer func() { db.Close() }()
	createTables(t, db)
	s := newSchedule(t, db)
	for range thinned.Of(5, 2) {
		before, _ := clock.jumps()
		s.load(500)
		s.finish()
		if after, back := clock.jumps(); after-before < 10 || back < 10 {
			t.Errorf("Got a clock that jumped %d times forth and %d back: the schedule shows nothing", after-before, back)
		}
		if err := errors.Join(db.Flush(t.Context()), db.MajorCompact(t.Context(), "events"), db.MajorCompact(t.Context(), "counts")); err != nil {
			t.Fatal(err)
		}
		checkContents(t, db, s.b)
		if err := db.Close(); err != nil { // what is read from disk goes by no clock, either
			t.Fatal(err)
		}
		db = open()
		s.e = db
		checkContents(t, db, s.b)
	}
}

// What depends on the order of records, appends, checks and event ids, is in that
// order by whatever clock. An id is remembered for longer than the clock jumps.
func TestSchedule31ClockJumpsBetweenUnits(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			clock := &jumpingClock{rng: rand.New(rand.NewPCG(seed, 6))}
			db, err := pebblestore.Open("db", &pebblestore.Options{FS: vfs.NewMem(), CacheBytes: 1 << 20, Now: clock.now})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			createTables(t, db)
			simulateLedger(t, db, seed, 200*365*24*time.Hour)
			if forth, back := clock.jumps(); forth < 10 || back < 10 {
				t.Errorf("Got a clock that jumped %d times forth and %d back: the schedule shows nothing", forth, back)
			}
		})
	}
}

// versioned is the testMapper of one version of the rules.
type versioned struct {
	testMapper
	version string
}

func (m *versioned) Map(r *mapping.Record) (*mapping.Output, error) {
	if len(r.Value) == 1 {
		c := *r
		c.Value = []byte(m.version + string(r.Value))
		r = &c
	}
	return m.testMapper.Map(r)
}

// The rules change with a restart, in the middle of the log: each record is mapped
// by one version, whole.
func TestSchedule32MappingChanges(t *testing.T) {
	t.Parallel()
	s := newSchedule(t, newEngine(t))
	life := func(version string, done func() bool, opts ...testOption) {
		p := newTest(t, s.e, s.b, append(opts, func(o *Options) { o.Flush.MaxRecords = 16 })...)
		p.version, p.newMapper = version, func() mapper { return &versioned{version: version} }
		r := start(t, p, 0, 1, 2)
		waitFor(t, done)
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 8 {
		s.load(400)
		before := readProgress(t, s.e)
		life(fmt.Sprintf("v%d", i), func() bool { return readProgress(t, s.e) > before+100 }, killed)
	}
	s.load(400) // a partition of which nothing is left keeps its version
	life("v9", func() bool { return stored(t, s.e, s.b) })

	got, log := readContents(t, s.e), want(s.b)
	counted, plain := map[string]int64{}, map[string]string{}
	versions := map[string]bool{}
	for n, l := range s.b.logs {
		last := ""
		for offset := range l.end { // each version from one offset on
			row := fmt.Sprintf("%d/%d", n, offset)
			v, ok := got.Events[row]
			if !ok {
				continue
			}
			if len(v) != 3 || v[:2] < last {
				t.Errorf("Got %s at %s, after version %s", v, row, last)
				continue
			}
			last, plain[row] = v[:2], v[2:]
			counted[v]++
			versions[last] = true
		}
	}
	if d := cmp.Diff(counted, got.Counts); d != "" {
		t.Errorf("Got other counts than rows of each version and page (-want +got):\n%s", d)
	}
	log.Counts, got.Counts, got.Events = nil, nil, plain
	if d := cmp.Diff(log, got); d != "" {
		t.Errorf("Got other contents than the log has (-want +got):\n%s", d)
	}
	for _, a := range audit(t, s.e, s.b, false) {
		if len(a.Problems) > 0 {
			t.Errorf("Got problems %q in the audit of %+v", a.Problems, a.Progress)
		}
	}
	if len(versions) < 5 {
		t.Errorf("Got rows of %d versions: the schedule shows little", len(versions))
	}
	for _, pp := range allProgress(t, s.e) {
		if pp.Progress.MappingVersion != "v9" && pp.Progress.Next > 0 {
			t.Errorf("Got version %s stored, want that of the last batch", pp.Progress.MappingVersion)
		}
	}
}

// A batch that cannot be read stops its partition, says where, and skips nothing.
func TestSchedule36CorruptBatch(t *testing.T) {
	t.Parallel()
	s := newSchedule(t, newEngine(t))
	r := s.start(s.e)
	for range 3 {
		s.load(100)
		r.caughtUp(s.b)
		bad := &kafka.UnreadableError{Offset: s.b.logs[0].end, Err: errors.New("CRC-32C")}
		s.b.change(func() { s.b.broken = bad })
		waitFor(t, func() bool { return strings.Contains(r.first().Paused, bad.Error()) })
		s.b.change(func() { s.b.broken = nil })
	}
	s.load(100)
	r.caughtUp(s.b)
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	s.finish()
}

// What a snapshot holds is what the offsets in it say, whatever is applied before it is
// read; exports read nothing else.
func TestSchedule39SnapshotsHoldTheirOffsets(t *testing.T) {
	t.Parallel()
	e := newPebble(t)
	s := newSchedule(t, e)
	r := s.start(e)
	for i := range thinned.Of(20, 5) {
		s.load(200)
		snap, err := e.(store.Snapshotter).Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		where := fmt.Sprintf("snapshot %d", i)
		next := s.holdsItsOffsets(snap, where)
		if i%2 == 0 {
			s.load(50)
			waitStored(t, e, s.b) // of which the snapshot has nothing
		}
		if d := cmp.Diff(next, s.holdsItsOffsets(snap, where+", later")); d != "" {
			t.Errorf("%s: Got other offsets later (-before +later):\n%s", where, d)
		}
		if err := snap.Close(); err != nil {
			t.Fatal(err)
		}
	}
	r.caughtUp(s.b)
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	s.finish()
}

// SIGTERM ends each phase within the drain timeout.
func TestSchedule40StoppedInEachPhase(t *testing.T) {
	t.Parallel()
	waits := func(why string) func(*running) bool {
		return func(r *running) bool { return strings.Contains(r.first().Paused, why) }
	}
	type phase func(r *running) bool // reports whether r is in it
	for name, prepare := range map[string]func(s *schedule) (store.Engine, testOption, phase){
		"idle": func(s *schedule) (store.Engine, testOption, phase) {
			return s.e, func(*Options) {}, func(r *running) bool { return r.first().Owned && r.first().Paused == "" }
		},
		"no broker yet": func(s *schedule) (store.Engine, testOption, phase) {
			s.b.broken = errors.New("down")
			return s.e, func(*Options) {}, func(r *running) bool { return len(r.Status().Partitions) == 0 }
		},
		"no broker": func(s *schedule) (store.Engine, testOption, phase) {
			return &breaking{Engine: s.e, b: s.b}, func(*Options) {}, waits("down")
		},
		"paused": func(s *schedule) (store.Engine, testOption, phase) {
			s.load(100)
			return &faultyEngine{Engine: s.e, fault: func(b *store.Batch) (bool, error) {
				if b.Advances[0].From < 0 {
					return true, nil
				}
				return false, store.ErrDiskFull
			}}, func(*Options) {}, waits("disk full")
		},
		"in the store": func(s *schedule) (store.Engine, testOption, phase) {
			s.load(1000)
			e := &slowEngine{Engine: s.e}
			return e, func(*Options) {}, func(*running) bool { return e.inside.Load() > 0 }
		},
		"out of memory": func(s *schedule) (store.Engine, testOption, phase) {
			s.load(100)
			all, err := memory.New(1 << 20)
			if err != nil {
				s.t.Fatal(err)
			}
			if _, ok := all.Buffered().Try(all.Buffered().Limit()); !ok { // for good
				s.t.Fatal("no memory")
			}
			return s.e, func(o *Options) { o.Memory = all }, func(r *running) bool { return r.first().LogEnd > 0 && r.first().Progress.Next == 0 }
		},
		"in bulk": func(s *schedule) (store.Engine, testOption, phase) {
			s.load(4000)
			e := &slowEngine{Engine: s.e}
			return e, func(o *Options) { o.Backfill = Backfill{Lag: 10, MaxRecords: 90} }, func(r *running) bool { return r.first().Backfill && e.inside.Load() > 0 }
		},
		"breaker open": func(s *schedule) (store.Engine, testOption, phase) {
			for range 20 {
				s.b.produce(0, "a", "bad")
			}
			return s.e, withPoison(Poison{TripAt: 10, Window: 20, CloseAfter: time.Minute}), func(r *running) bool { return r.first().Tripped != "" }
		},
		"a record tried again": func(s *schedule) (store.Engine, testOption, phase) {
			s.b.produce(0, "a", "bad", "a")
			return s.e, withPoison(Poison{Policies: map[string]Policy{"decode": RetryRecords}, Retries: 1e6}), waits("tried again")
		},
		"reading its offset": func(s *schedule) (store.Engine, testOption, phase) {
			s.load(100)
			e := &unreadable{Engine: s.e}
			return e, func(*Options) {}, func(*running) bool { return e.inside.Load() > 0 }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSchedule(t, newEngine(t))
				e, opt, in := prepare(s)
				r := s.start(e, opt, func(o *Options) { o.DrainTimeout = 3 * time.Second })
				<-time.After(10 * time.Second)
				if !in(r) {
					t.Errorf("Got %+v, which is another phase: the schedule shows nothing", r.Status())
				}
				begun := time.Now()
				if err := r.close(); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begun); took > 3*time.Second {
					t.Errorf("Got the end after %v, want it within 3 s", took)
				}
				s.b.change(func() { s.b.broken = nil })
				s.finish()
			})
		})
	}
}

// unreadable answers no scan until the caller gives up.
type unreadable struct {
	store.Engine
	inside atomic.Int32 // calls
}

func (e *unreadable) Scan(ctx context.Context, s *store.Scan) store.Scanner {
	e.inside.Add(1)
	defer e.inside.Add(-1)
	<-ctx.Done()
	return e.Engine.Scan(ctx, s)
}

// slowEngine takes a second a batch, or until the caller gives up.
type slowEngine struct {
	store.Engine
	inside atomic.Int32 // calls
}

func (e *slowEngine) Apply(ctx context.Context, b *store.Batch) error {
	e.inside.Add(1)
	defer e.inside.Add(-1)
	if err := sleep(ctx, time.Second); err != nil {
		return err
	}
	return e.Engine.Apply(ctx, b)
}

// breaking is the store of a process whose broker goes away when it has begun its
// partitions.
type breaking struct {
	store.Engine
	b *fakeBroker
}

func (e *breaking) Apply(ctx context.Context, b *store.Batch) error {
	err := e.Engine.Apply(ctx, b)
	e.b.change(func() { e.b.broken = errors.New("down") })
	return err
}
