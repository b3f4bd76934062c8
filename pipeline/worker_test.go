package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/pipeline/buffer"
	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
	"sluice/pipeline/memory"
	"sluice/store"
)

func checkContents(t *testing.T, e store.Engine, b *fakeBroker) {
	t.Helper()
	if d := cmp.Diff(want(b), readContents(t, e)); d != "" {
		t.Errorf("Got other contents than the log has (-want +got):\n%s", d)
	}
	for _, a := range audit(t, e, b, false) {
		if len(a.Problems) > 0 {
			t.Errorf("Got problems %q in the audit of %+v", a.Problems, a.Progress)
		}
	}
}

// unsummedEngine refuses increments of several records that were summed, as an engine
// of store.AtomicRow must.
type unsummedEngine struct{ store.Engine }

func (e unsummedEngine) Apply(ctx context.Context, b *store.Batch) error {
	last := map[string]int64{}
	for _, c := range b.Counters {
		key := fmt.Sprintf("%s %q %q", c.Table, c.Row, c.Qualifier)
		if before, ok := last[key]; c.Delta != 1 || ok && before >= c.Offset {
			return fmt.Errorf("%w: an increment of %d at offset %d, after one at %d", store.ErrUnsupported, c.Delta, c.Offset, before)
		}
		last[key] = c.Offset
	}
	return e.Engine.Apply(ctx, b)
}

func TestPartitionBecomesRowsCountsAndLetters(t *testing.T) {
	t.Parallel()
	many := make([]string, 1000)
	for i := range many {
		many[i] = []string{"a", "b", "skip", "c", "bad", "-"}[i*i%6]
	}
	engines := map[string]func(testing.TB) store.Engine{
		"mem": newEngine, "pebble": newPebble,
		"rows": func(t testing.TB) store.Engine { return unsummedEngine{rowEngine{newEngine(t)}} },
	}
	for name, values := range map[string][]string{
		"one":                     {"a"},
		"poison first":            {"bad", "a", "b"},
		"poison last":             {"a", "b", "bad"},
		"poison alone":            {"bad"},
		"only poison":             {"bad", "bad", "bad"},
		"only filtered":           {"skip", "skip"},
		"control first and last":  {"-", "a", "-"},
		"only control":            {"-"},
		"refused first":           {"huge", "a", "a"},
		"refused last":            {"a", "a", "huge"},
		"refused alone":           {"huge"},
		"refused twice":           {"huge", "a", "huge", "a"},
		"refused counter":         {"a", "long", "a"},
		"refused counter thrice":  {"long", "a", "long", "long", "a"},
		"panic":                   {"a", "panic", "a"},
		"refused and bad":         {"bad", "huge", "skip", "long", "-", "a"},
		"more than several fulls": many,
	} {
		for engine, open := range engines {
			t.Run(name+", "+engine, func(t *testing.T) {
				t.Parallel()
				e, b := open(t), newFakeBroker(1)
				b.produce(0, values...)
				r := start(t, newTest(t, e, b), 0)
				r.caughtUp(b)
				b.produce(0, "after")
				r.caughtUp(b)
				if err := r.close(); err != nil {
					t.Fatal(err)
				}
				checkContents(t, e, b)
				m := r.Metrics()
				w := want(b).Progress
				if m.Applied != w.Applied || m.Filtered != w.Filtered || m.Dead != w.Dead || m.Control != w.Control {
					t.Errorf("Got metrics %+v, want the counts of %+v", m, w)
				}
				if m.BufferBytes != 0 {
					t.Errorf("Got %d bytes of the budget held after the end", m.BufferBytes)
				}
			})
		}
	}
}

// What is buffered when a partition is taken away is applied, if that goes
// quickly, and by the next owner if not.
func TestStopDrainsOrLeavesIt(t *testing.T) {
	t.Parallel()
	for _, drain := range []time.Duration{time.Minute, -1} {
		t.Run(drain.String(), func(t *testing.T) {
			t.Parallel()
			mem, b := newEngine(t), newFakeBroker(1)
			entered, leave := make(chan struct{}, 10), make(chan struct{})
			e := &faultyEngine{Engine: mem, fault: func(s *store.Batch) (bool, error) {
				if s.Advances[0].From >= 0 {
					entered <- struct{}{}
					<-leave
				}
				return true, nil
			}}
			r := start(t, newTest(t, e, b, func(o *Options) { o.DrainTimeout = drain }), 0)
			b.produce(0, "a")
			<-entered // the first batch is in the engine
			b.produce(0, "a", "b")
			waitFor(t, func() bool { return r.first().Position == 3 })
			r.stop()
			if drain < 0 {
				waitFor(t, func() bool { return r.Pipeline.opts.Memory.Buffered().Used() > 0 })
			}
			close(leave)
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			if drain > 0 {
				checkContents(t, mem, b)
			}
			again := start(t, newTest(t, mem, b), 0)
			again.caughtUp(b)
			if err := again.close(); err != nil {
				t.Fatal(err)
			}
			checkContents(t, mem, b)
		})
	}
}

// unending is an engine that answers batches of a partition with no more than the end of
// their context, once on is set.
type unending struct {
	store.Engine
	on atomic.Bool
}

func (e *unending) Apply(ctx context.Context, b *store.Batch) error {
	if len(b.Advances) > 0 && e.on.Load() {
		<-ctx.Done()
		return fmt.Errorf("write: %w", ctx.Err())
	}
	return e.Engine.Apply(ctx, b)
}

// A batch that is still under way when the drain timeout is over may be in the store in
// part, on HBase: that is said, and only then.
func TestDrainTimeoutIsSaid(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{true, false} {
		for _, drain := range []time.Duration{time.Second, -1} {
			synctest.Test(t, func(t *testing.T) {
				e, b := &unending{Engine: newEngine(t)}, newFakeBroker(1)
				var log jsonLog
				r := start(t, newTest(t, e, b, func(o *Options) { o.DrainTimeout, o.Logger = drain, slog.New(slog.NewJSONHandler(&log, nil)) }), 0)
				b.produce(0, "a")
				r.caughtUp(b)
				e.on.Store(late)
				if late {
					b.produce(0, "a", "b")
				}
				synctest.Wait()
				if err := r.close(); err != nil {
					t.Fatal(err)
				}
				var want []string
				if late {
					want = []string{"t/0@1"}
				}
				if d := cmp.Diff(want, log.places(t, "the drain timeout is over with a batch under way; the next owner of the partition applies the rest of it")); d != "" {
					t.Errorf("late %t, drain %v (-want +got): %s", late, drain, d)
				}
			})
		}
	}
}

// rowAtomic is an engine whose batches are not atomic, by what it says.
type rowAtomic struct{ store.Engine }

func (e rowAtomic) Traits() store.Traits {
	t := e.Engine.Traits()
	t.Atomic = store.AtomicRow
	return t
}

// TestLeftPaused: of a partition that the store has paused it is said, when it is left, why
// that is, and that a batch may be applied in part where that can be.
func TestLeftPaused(t *testing.T) {
	t.Parallel()
	for _, whole := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var down atomic.Int64
			b := newFakeBroker(1)
			var e store.Engine = &faultyEngine{Engine: newEngine(t), fault: func(*store.Batch) (bool, error) {
				if down.Load() != 0 {
					return false, fmt.Errorf("test: %w", store.ErrTransient)
				}
				return true, nil
			}}
			said := "partition is left while it is paused; its next owner goes on"
			if !whole {
				e = rowAtomic{e}
				said = "partition is left while it is paused, perhaps with a batch applied in part; its next owner applies the rest, with the same rules"
			}
			var log jsonLog
			r := start(t, newTest(t, e, b, func(o *Options) { o.Logger = slog.New(slog.NewJSONHandler(&log, nil)) }), 0)
			b.produce(0, "a")
			r.caughtUp(b)
			down.Store(1)
			b.produce(0, "b")
			time.Sleep(time.Minute)
			synctest.Wait()
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff([]string{"t/0@1"}, log.places(t, said)); d != "" {
				t.Errorf("whole %t (-want +got): %s", whole, d)
			}
		})
	}
}

// A generation without partitions must last: a member that ends its own makes
// the whole group rebalance.
func TestMemberWithoutPartitionsStandsBy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newTest(t, newEngine(t), newFakeBroker(1))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.apply(ctx, nil) }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("Got the end of the generation (%v) before it was over", err)
		default:
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("Got nothing in time")
		}
	}
}

func TestTwoOwnersOfOnePartition(t *testing.T) {
	t.Parallel()
	e, b := newEngine(t), newFakeBroker(1)
	b.rng = rand.New(rand.NewPCG(1, 2))
	one, two := start(t, newTest(t, e, b), 0), start(t, newTest(t, e, b), 0)
	for i := range 300 {
		b.produce(0, fmt.Sprint("page", i%7), "bad", "huge", "x")
		if i%50 == 0 {
			one.caughtUpEither(two, b)
		}
	}
	waitStored(t, e, b)
	if err := one.close(); err != nil {
		t.Fatal(err)
	}
	if err := two.close(); err != nil {
		t.Fatal(err)
	}
	checkContents(t, e, b)
	if stale := one.Metrics().Stale + two.Metrics().Stale; stale == 0 {
		t.Error("Got no stale batch of two owners")
	}
}

func (r *running) caughtUpEither(_ *running, b *fakeBroker) { waitStored(r.t, r.opts.Engine, b) }

// waitStored waits until e has all that b has.
func waitStored(t testing.TB, e store.Engine, b *fakeBroker) {
	t.Helper()
	waitFor(t, func() bool { return stored(t, e, b) })
}

// stored reports whether e has all that b has.
func stored(t testing.TB, e store.Engine, b *fakeBroker) bool {
	t.Helper()
	all, err := store.AllProgress(context.Background(), e)
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	at := map[int32]int64{}
	for _, p := range all {
		if p.Source.TopicID == b.info.id {
			at[p.Partition] = p.Progress.Next
		}
	}
	for n, l := range b.logs {
		if at[n] < l.end {
			return false
		}
	}
	return true
}

func TestTroubleWithTheStoreIsWaitedOut(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		err    error
		apply  bool
		paused string
	}{
		"busy":       {store.ErrTransient, false, "store unavailable"},
		"disk full":  {store.ErrDiskFull, false, "disk full"},
		"lost reply": {store.ErrTransient, true, ""},
		"unknown":    {errors.New("connection reset"), false, "apply offsets"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mem, b := newEngine(t), newFakeBroker(1)
			var left atomic.Int64
			left.Store(5)
			var down atomic.Bool
			down.Store(!fault.apply)
			e := &faultyEngine{Engine: mem, fault: func(s *store.Batch) (bool, error) {
				if s.Advances[0].From < 0 {
					return true, nil
				}
				if down.Load() || left.Add(-1) >= 0 {
					return fault.apply, fmt.Errorf("test: %w", fault.err)
				}
				return true, nil
			}}
			r := start(t, newTest(t, e, b), 0)
			for i := range 20 {
				b.produce(0, fmt.Sprint(i%3), "bad")
			}
			if fault.paused != "" {
				waitFor(t, func() bool { return strings.HasPrefix(r.first().Paused, fault.paused) })
				down.Store(false)
			}
			r.caughtUp(b)
			waitFor(t, func() bool { return r.first().Paused == "" })
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			checkContents(t, mem, b)
		})
	}
}

// A table that is disabled is coming back: its records wait, and none of them is a
// dead letter.
func TestDisabledTablePauses(t *testing.T) {
	t.Parallel()
	for name, open := range bothEngines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, b := open(t), newFakeBroker(1)
			states, ok := e.(interface {
				DisableTable(ctx context.Context, name string) error
				EnableTable(ctx context.Context, name string) error
			})
			if !ok {
				t.Fatal("tables cannot be disabled")
			}
			r := start(t, newTest(t, e, b), 0)
			for _, table := range []string{"events", "counts"} {
				b.produce(0, "a", "bad", "b")
				r.caughtUp(b)
				if err := states.DisableTable(t.Context(), table); err != nil {
					t.Fatal(err)
				}
				b.produce(0, "a", "bad", "b")
				waitFor(t, func() bool { return strings.Contains(r.first().Paused, "disabled") })
				if err := states.EnableTable(t.Context(), table); err != nil {
					t.Fatal(err)
				}
			}
			r.caughtUp(b)
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			checkContents(t, e, b)
		})
	}
}

// An hour of trouble is one warning, not one every five seconds.
func TestPauseIsLoggedOnce(t *testing.T) {
	t.Parallel()
	mem, b := newEngine(t), newFakeBroker(1)
	var left atomic.Int64
	left.Store(8)
	e := &faultyEngine{Engine: mem, fault: func(s *store.Batch) (bool, error) {
		if s.Advances[0].From < 0 || left.Add(-1) < 0 {
			return true, nil
		}
		b.produce(0, "more") // the offsets in the error differ each time
		return false, fmt.Errorf("attempt: %w", errors.New("connection reset"))
	}}
	var log strings.Builder
	var mu sync.Mutex
	p := newTest(t, e, b, func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(writerFunc(func(line []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return log.Write(line)
		}), nil))
	})
	b.produce(0, "a")
	r := start(t, p, 0)
	waitFor(t, func() bool { return left.Load() < 0 })
	r.caughtUp(b)
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if n := strings.Count(log.String(), "is paused"); n != 1 {
		t.Errorf("Got %d warnings, want 1:\n%s", n, log.String())
	}
	if n := strings.Count(log.String(), "is applied again"); n != 1 {
		t.Errorf("Got %d notes of the end of the pause, want 1:\n%s", n, log.String())
	}
	checkContents(t, mem, b)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestUselessErrorsStop(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{store.ErrCorrupt, store.ErrClosed, store.ErrReadOnly, store.ErrUnsupported} {
		mem, b := newEngine(t), newFakeBroker(1)
		e := &faultyEngine{Engine: mem, fault: func(s *store.Batch) (bool, error) {
			if s.Advances[0].From < 0 {
				return true, nil
			}
			return false, cause
		}}
		b.produce(0, "a")
		if err := start(t, newTest(t, e, b), 0).failed(); !errors.Is(err, cause) {
			t.Errorf("Got %v, want %v", err, cause)
		}
	}
}

// A store that refuses even the outbox row must not be asked for ever.
func TestRefusedDeadLetterStops(t *testing.T) {
	t.Parallel()
	mem, b := newEngine(t), newFakeBroker(1)
	e := &faultyEngine{Engine: mem, fault: func(s *store.Batch) (bool, error) {
		if s.Advances[0].From < 0 {
			return true, nil
		}
		return false, &store.BatchError{Refused: []store.Refusal{{Offset: 0, Table: "x", Err: store.ErrRefused}}}
	}}
	b.produce(0, "a")
	if err := start(t, newTest(t, e, b), 0).failed(); !errors.Is(err, errPoisonedOutbox) || !errors.Is(err, store.ErrRefused) {
		t.Errorf("Got %v, want errPoisonedOutbox and the refusal", err)
	}
}

// Partitions that want more memory than there is must not wait for each other.
func TestMemoryIsSharedWithoutDeadlock(t *testing.T) {
	t.Parallel()
	e, b := newEngine(t), newFakeBroker(6)
	all, err := memory.New(375 << 10)
	if err != nil {
		t.Fatal(err)
	}
	budget := all.Buffered() // room for what one partition takes, and a bit
	partitions := []int32{0, 1, 2, 3, 4, 5}
	var most atomic.Int64
	faulty := &faultyEngine{Engine: e, fault: func(*store.Batch) (bool, error) {
		most.Store(max(most.Load(), budget.Used()))
		return true, nil
	}}
	r := start(t, newTest(t, faulty, b, func(o *Options) {
		o.Memory = all
		o.Flush.MaxRecords = 5000
	}), partitions...)
	values := make([]string, 600)
	for i := range values {
		values[i] = fmt.Sprint("page", i%50) + strings.Repeat("x", 300)
	}
	for _, n := range partitions {
		b.produce(n, values...)
	}
	r.caughtUp(b)
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	checkContents(t, e, b)
	if budget.Used() != 0 || most.Load() > budget.Limit() {
		t.Errorf("Got %d bytes held after the end and %d at most, want 0 and %d", budget.Used(), most.Load(), budget.Limit())
	}
}

// A partition that finds no memory while the store has a batch of it waits for that one,
// and then goes on filling: what it had is not handed over as a batch of its own.
func TestNoMemoryMakesNoSmallBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem, b := newEngine(t), newFakeBroker(1)
		all, err := memory.New(1500 << 10)
		if err != nil {
			t.Fatal(err)
		}
		leave, batches := make(chan struct{}), 0
		e := &faultyEngine{Engine: mem, fault: func(s *store.Batch) (bool, error) {
			if s.Advances[0].From < 0 {
				return true, nil
			}
			if batches++; batches == 1 {
				<-leave
			}
			return true, nil
		}}
		r := start(t, newTest(t, e, b, func(o *Options) { o.Memory, o.Flush.MaxRecords = all, 5000 }), 0)
		b.produce(0, "a")
		synctest.Wait() // it is in the engine
		budget := all.Buffered()
		others, ok := budget.Try(budget.Limit() - budget.Used() - 200<<10)
		if !ok {
			t.Fatalf("Got no memory for others, %d bytes of %d used", budget.Used(), budget.Limit())
		}
		values := make([]string, 400)
		for i := range values {
			values[i] = fmt.Sprint("page", i, strings.Repeat("x", 500))
		}
		b.produce(0, values...)
		synctest.Wait() // there is memory for some of them
		if free := budget.Limit() - budget.Used(); free >= 64<<10 {
			t.Errorf("Got %d bytes that nobody uses: the test has too few records", free)
		}
		others.Release()
		synctest.Wait()
		close(leave)
		r.caughtUp(b)
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
		checkContents(t, mem, b)
		if batches != 2 {
			t.Errorf("Got %d batches, want 2", batches)
		}
	})
}

// A partition that cannot go on holds no memory: a record that needs all of it
// passes in another one.
func TestPausedPartitionHoldsNoMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem, b := newEngine(t), newFakeBroker(2)
		all, err := memory.New(600 << 10)
		if err != nil {
			t.Fatal(err)
		}
		budget := all.Buffered()
		leave := make(chan struct{})
		var once sync.Once
		e := &faultyEngine{Engine: mem, fault: func(s *store.Batch) (_ bool, err error) {
			if s.Advances[0].Partition == 0 && s.Advances[0].From == 0 {
				once.Do(func() { <-leave; err = store.ErrTransient })
			}
			return err == nil, err
		}}
		r := start(t, newTest(t, e, b, func(o *Options) { o.Memory = all }), 0, 1)
		b.produce(0, "a")
		synctest.Wait() // it is in the engine
		b.produce(0, "b")
		synctest.Wait() // it is buffered behind it
		b.change(func() { b.offline = map[int32]bool{0: true} })
		close(leave)
		waitFor(t, func() bool { return r.first().Paused != "" })
		b.produce(1, "bad"+strings.Repeat("x", 260<<10)) // with its batch, all of it
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := r.WaitStored(ctx, map[string]map[int32]int64{"t": {1: 1}}); err != nil {
			t.Errorf("Got %v, and %d bytes held", err, budget.Used())
		}
		b.change(func() { b.offline = nil })
		r.caughtUp(b)
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
		checkContents(t, mem, b)
	})
}

// sloppyBroker is a broker whose readers leave out a batch now and then, and hand out some
// records again.
type sloppyBroker struct {
	*fakeBroker
	left, again atomic.Int64 // batches
}

func (b *sloppyBroker) fetcher(map[string][16]byte) fetcher { return b }

func (b *sloppyBroker) reader(topic string, partition int32, offset int64) reader {
	return &sloppyReader{fakeReader: b.fakeBroker.reader(topic, partition, offset).(*fakeReader), b: b}
}

type sloppyReader struct {
	*fakeReader
	b *sloppyBroker
	n int
}

func (r *sloppyReader) Next(ctx context.Context) (*kafka.Batch, error) {
	batch, err := r.fakeReader.Next(ctx)
	if err != nil {
		return nil, err
	}
	switch r.n++; {
	case r.n%5 == 4 && batch.Next < batch.LastStable: // another follows
		r.b.left.Add(1)
		batch.Release()
		return r.fakeReader.Next(ctx)
	case r.n%3 == 2:
		r.b.again.Add(1)
		r.offset = max(0, r.offset-30)
	}
	return batch, nil
}

// What a fetcher leaves out is fetched and not taken for offsets without a record, and
// what it hands out twice is applied once.
func TestFetchedRecordsFollowEachOther(t *testing.T) {
	t.Parallel()
	s := newSchedule(t, newEngine(t))
	s.load(2000)
	b := &sloppyBroker{fakeBroker: s.b}
	p := newTest(t, s.e, s.b)
	p.broker = b
	r := start(t, p, 0, 1, 2)
	r.caughtUp(s.b)
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	if b.left.Load() == 0 || b.again.Load() == 0 {
		t.Errorf("Got %d batches left out and %d twice", b.left.Load(), b.again.Load())
	}
	checkContents(t, s.e, s.b)
}

// stoppingMapper calls stop at a record, once.
type stoppingMapper struct {
	testMapper
	at   int64
	stop func()
}

func (m *stoppingMapper) Map(r *mapping.Record) (*mapping.Output, error) {
	if r.Offset == m.at {
		m.stop()
	}
	return m.testMapper.Map(r)
}

// A partition that is left amid a large batch applies what it has mapped of it, also where
// the next batch is there.
func TestLeftAmidABatch(t *testing.T) {
	t.Parallel()
	for range 10 { // either of two may be looked at first
		synctest.Test(t, func(t *testing.T) {
			mem, b := newEngine(t), newFakeBroker(1)
			leave := make(chan struct{})
			e := holdingFirst(mem, leave)
			p := newTest(t, e, b, func(o *Options) { o.Flush.MaxRecords = 100_000 })
			var r *running
			stopped := make(chan struct{})
			p.newMapper = func() mapper {
				return &stoppingMapper{at: 10, stop: func() {
					b.produce(0, "next")
					synctest.Wait() // it is fetched
					r.stop()
					close(stopped)
				}}
			}
			r = start(t, p, 0)
			b.produce(0, "a")
			synctest.Wait() // it is in the engine
			b.produce(0, slices.Repeat([]string{"a"}, 3000)...)
			<-stopped
			synctest.Wait() // the rest is left
			close(leave)
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			if got := readContents(t, mem); got.Progress.Next != 1024 {
				t.Fatalf("Got the offset %d stored, want 1024: what was mapped is applied", got.Progress.Next)
			}
		})
	}
}

// oneMapper maps every record to the same.
type oneMapper struct{ out *mapping.Output }

func (oneMapper) Release() {}

func (oneMapper) Forget() {}

func (m oneMapper) Map(*mapping.Record) (*mapping.Output, error) { return m.out, nil }

// TestRecordAllocatesNothing has a worker take records up into a buffer that has room, which
// it does a million times a second.
func TestRecordAllocatesNothing(t *testing.T) {
	buf, err := buffer.New(&buffer.Options{MaxRecords: 1 << 20, MaxBytes: 32 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Close()
	out := &mapping.Output{Mutations: []cell.Mutation{
		{Table: "events", Row: []byte("row"), Ops: []cell.Op{
			{Type: cell.OpPut, Family: "e", Qualifier: []byte("a"), Value: []byte("1"), Time: 1},
			{Type: cell.OpPut, Family: "e", Qualifier: []byte("b"), Value: []byte("2"), Time: 1},
		}},
		{Table: "views", Row: []byte("page"), Ops: []cell.Op{{Type: cell.OpIncrement, Family: "n", Qualifier: []byte("q"), Delta: 1, Time: 1}}},
	}}
	w := &worker{mapper: oneMapper{out}, buf: buf, log: slog.New(slog.DiscardHandler)}
	var r kafka.Record
	var rec mapping.Record
	records := func() {
		for range 100 {
			if err := w.record(t.Context(), &r, &rec); err != nil {
				t.Fatal(err)
			}
			r.Offset++
		}
	}
	buf.Start(0, buffer.Mark{})
	records()
	if n := testing.AllocsPerRun(10, records); n > 20 { // a little, now and then, where the buffer grows
		t.Errorf("Got %v allocations of 100 records", n)
	}
}
