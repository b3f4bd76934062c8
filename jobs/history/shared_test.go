package history_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/internal/thinned"
	"sluice/jobs/history"
	"sluice/jobs/schedule"
	"sluice/store"
	"sluice/store/memstore"
)

// shaky is a process's way to a store: it can be cut, when calls wait, and now and then
// the answer to a write is lost.
type shaky struct {
	store.Engine

	mu   sync.Mutex
	cut  chan struct{} // calls wait for its end; nil = it is not cut
	dead bool
	lose func() bool // the next answer
	n    int         // writes
}

var errCut = fmt.Errorf("%w: cut off", store.ErrTransient)

func (s *shaky) wait(ctx context.Context) error {
	s.mu.Lock()
	cut, dead := s.cut, s.dead
	s.mu.Unlock()
	if dead {
		return errCut
	}
	if cut != nil {
		select {
		case <-cut:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *shaky) MutateRow(ctx context.Context, cond *store.Cond, m *cell.Mutation) (store.Result, error) {
	if err := s.wait(ctx); err != nil {
		return store.Result{}, err
	}
	s.mu.Lock()
	lost := s.lose != nil && s.lose()
	applied := lost && s.n%2 == 0
	s.n++
	tidy := s.n%50 == 0
	s.mu.Unlock()
	if tidy { // every renewal leaves a version, and time is short here
		mem := s.Engine.(*memstore.Store)
		if err := errors.Join(mem.Flush(ctx), mem.MajorCompact(ctx, store.JobsTable)); err != nil {
			return store.Result{}, err
		}
	}
	if lost && !applied {
		return store.Result{}, store.ErrUnknownOutcome
	}
	r, err := s.Engine.MutateRow(ctx, cond, m)
	if lost && err == nil {
		return store.Result{}, store.ErrUnknownOutcome
	}
	return r, err
}

func (s *shaky) Apply(ctx context.Context, b *store.Batch) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	lost := s.lose != nil && s.lose()
	s.mu.Unlock()
	if lost {
		return errCut
	}
	return s.Engine.Apply(ctx, b)
}

func (s *shaky) Scan(ctx context.Context, q *store.Scan) store.Scanner {
	if err := s.wait(ctx); err != nil {
		return failedScan{err}
	}
	return s.Engine.Scan(ctx, q)
}

type failedScan struct{ err error }

func (failedScan) Next() bool     { return false }
func (failedScan) Row() *cell.Row { return nil }
func (s failedScan) Err() error   { return s.err }
func (failedScan) Close() error   { return nil }

// member is a process of several that have the same schedule.
type member struct {
	way    *shaky
	runner *schedule.Runner
	cancel context.CancelFunc
	done   chan struct{}
}

// herd is processes that share a schedule, and the place that they publish in.
type herd struct {
	t    *testing.T
	mem  *memstore.Store
	spec *schedule.Schedule
	rng  *rand.Rand // of the test's goroutine

	mu        sync.Mutex
	running   map[time.Time]int // runs at work that follow their context
	published map[time.Time]int // by logical time, how often somebody tried and nobody had
	refused   int               // runs that were over when their schedule was not theirs any more
	seed      uint64
}

func newHerd(t *testing.T, spec string, seed uint64) *herd {
	t.Helper()
	mem, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := schedule.Compile("job", &schedule.Spec{Cron: spec, CatchUp: schedule.All, Overlap: schedule.QueueOne})
	if err != nil {
		t.Fatal(err)
	}
	return &herd{t: t, mem: mem, spec: s, rng: rand.New(rand.NewPCG(seed, 1)), running: map[time.Time]int{}, published: map[time.Time]int{}, seed: seed}
}

// start starts a process. Answers are lost once in lossy calls; 0 = never.
func (h *herd) start(lossy int) *member {
	h.t.Helper()
	h.seed++
	rng := rand.New(rand.NewPCG(h.seed, 2))
	way := &shaky{Engine: h.mem}
	if lossy > 0 {
		way.lose = func() bool { return rng.IntN(lossy) == 0 }
	}
	m := &member{way: way, done: make(chan struct{})}
	runs := rand.New(rand.NewPCG(h.seed, 3)) // one run at a time
	r, err := schedule.New(&schedule.Options{
		Schedules: []*schedule.Schedule{h.spec}, Store: history.NewShared(way, nil),
		Run: func(ctx context.Context, r schedule.Request) (schedule.Outcome, error) { return h.run(ctx, r, runs) },
	})
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	m.runner, m.cancel = r, cancel
	go func() {
		r.Run(ctx)
		close(m.done)
	}()
	return m
}

func (h *herd) run(ctx context.Context, r schedule.Request, rng *rand.Rand) (schedule.Outcome, error) {
	follows := rng.IntN(3) > 0 // or it finds out only when it asks, as a process that was stopped does
	wait := ctx
	if follows {
		h.note(func() {
			if h.running[r.Logical]++; h.running[r.Logical] > 1 {
				h.t.Errorf("%v runs twice at once", r.Logical)
			}
		})
	} else {
		wait = context.WithoutCancel(ctx)
	}
	var ended error
	select {
	case <-time.After(time.Duration(rng.Int64N(int64(4 * time.Minute)))):
	case <-wait.Done():
		ended = wait.Err()
	}
	if follows {
		h.note(func() { h.running[r.Logical]-- })
	}
	if ended != nil {
		return schedule.Outcome{}, ended
	}
	if err := r.Confirm(context.WithoutCancel(ctx)); err != nil {
		if errors.Is(err, schedule.ErrLost) {
			h.note(func() { h.refused++ })
		}
		return schedule.Outcome{}, err
	}
	var there bool
	h.note(func() {
		there = h.published[r.Logical] > 0
		h.published[r.Logical]++
	})
	return schedule.Outcome{RunID: "r", Published: there}, nil
}

func (h *herd) note(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// kill ends a process of which the store hears nothing more.
func (h *herd) kill(m *member) {
	m.way.mu.Lock()
	m.way.dead = true
	m.way.mu.Unlock()
	m.cancel()
	<-m.done
}

// TestSharedSchedules has three processes with one schedule for six hours of virtual
// time: they are killed, stopped, cut off from the store for longer than their lease
// and back, lose answers and have runs that do not hear that they are to end. At any
// time a logical time has one run; each is settled exactly once in the history, and
// nothing is published by whoever has lost the schedule.
func TestSharedSchedules(t *testing.T) {
	t.Parallel()
	for seed := range thinned.Of[uint64](2, 1) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { sharedSchedules(t, newHerd(t, "@every 5m", 1000*(seed+1))) })
		})
	}
}

func sharedSchedules(t *testing.T, h *herd) {
	members := make([]*member, 3)
	begun := time.Now()
	for time.Since(begun) < 6*time.Hour {
		for i, m := range members {
			if m == nil {
				members[i] = h.start(25)
			}
		}
		time.Sleep(time.Duration(h.rng.Int64N(int64(20 * time.Minute))))
		held := 0
		for _, m := range members {
			if m.runner.Status()[0].Held {
				held++
			}
		}
		if held > 1 {
			t.Fatalf("%d processes hold the schedule", held)
		}
		i := h.rng.IntN(len(members))
		for j, m := range members {
			if m.runner.Status()[0].Held && h.rng.IntN(3) > 0 {
				i = j
			}
		}
		m := members[i]
		switch h.rng.IntN(3) {
		case 0:
			h.kill(m)
			members[i] = nil
		case 1:
			m.cancel()
			<-m.done
			members[i] = nil
		case 2:
			cut := make(chan struct{})
			m.way.mu.Lock()
			m.way.cut = cut
			m.way.mu.Unlock()
			time.Sleep(time.Duration(h.rng.Int64N(int64(3 * time.Minute))))
			m.way.mu.Lock()
			m.way.cut = nil
			m.way.mu.Unlock()
			close(cut)
		}
	}
	for _, m := range members {
		if m != nil {
			m.cancel()
			<-m.done
		}
	}
	last := history.NewShared(h.mem, nil)
	claim, err := last.Take(t.Context(), "job")
	for err == nil && !claim.Held {
		time.Sleep(time.Second)
		claim, err = last.Take(t.Context(), "job")
	}
	if err != nil {
		t.Fatal(err)
	}
	entries, err := last.History(t.Context(), "job", 100_000)
	if err != nil {
		t.Fatal(err)
	}
	settled := map[time.Time]bool{}
	var n, sum int64
	for _, e := range entries {
		if settled[e.Logical] {
			t.Errorf("%v is settled twice", e.Logical)
		}
		settled[e.Logical] = true
		n += e.Count
		if tried := h.published[e.Logical]; (e.Result == schedule.OK || e.Result == schedule.Published) && tried == 0 {
			t.Errorf("%v is said to be %s", e.Logical, e.Result)
		}
	}
	for _, m := range claim.State.Results {
		sum += m
	}
	want := int64(0)
	for at := h.spec.Next(begun); !at.After(claim.State.Decided); at = h.spec.Next(at) {
		want++
	}
	if got := n + int64(len(claim.State.Pending)); got != want || sum != n {
		t.Errorf("Got %d settled and %d pending of %d, counted as %d", n, len(claim.State.Pending), want, sum)
	}
	if len(h.published) < 30 {
		t.Errorf("Got %d published", len(h.published))
	}
	t.Logf("%d settled, %d published, %d refused", n, len(h.published), h.refused)
}

// TestSharedPause: whoever asks, the holder answers, also one that comes later, once.
func TestSharedPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHerd(t, "@hourly", 1)
		first := h.start(0)
		synctest.Wait()
		second := h.start(0)
		synctest.Wait()
		status := func(m *member) schedule.Status { return m.runner.Status()[0] }
		if a, b := status(first), status(second); !a.Held || b.Held || b.Holder != a.Holder || a.Holder == "" {
			t.Fatalf("Got %+v and %+v", a, b)
		}
		paused := func(want bool) {
			t.Helper()
			time.Sleep(12 * time.Second)
			if a, b := status(first), status(second); a.State.Paused != want || b.State.Paused != want {
				t.Fatalf("Got %+v and %+v, want paused %t", a, b, want)
			}
		}
		if err := second.runner.Pause(t.Context(), "job"); err != nil {
			t.Fatal(err)
		}
		paused(true)
		time.Sleep(90 * time.Minute)
		if err := first.runner.Resume(t.Context(), "job"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the holder looks at once
		if status(first).State.Paused {
			t.Error("the holder has not looked")
		}
		paused(false)
		h.kill(first)
		other := history.NewShared(h.mem, &history.SharedOptions{Process: "shell"})
		if _, err := other.Ask(t.Context(), "job", schedule.Wish{For: schedule.WishPause}); err != nil { // nobody is there
			t.Fatal(err)
		}
		time.Sleep(schedule.Lease + 15*time.Second)
		if b := status(second); !b.Held || !b.State.Paused {
			t.Fatalf("Got %+v, want it held and paused", b)
		}
		if err := second.runner.Resume(t.Context(), "nothing"); !errors.Is(err, schedule.ErrNoSchedule) {
			t.Errorf("Got %v", err)
		}
		second.cancel()
		<-second.done
		third := h.start(0)
		synctest.Wait()
		if c := status(third); !c.Held || !c.State.Paused {
			t.Errorf("Got %+v right after the second has given it up", c)
		}
		entries, err := other.History(t.Context(), "job", 10)
		if err != nil || len(entries) != 1 || entries[0].Result != schedule.Skipped {
			t.Errorf("Got %+v, %v, want the hour of the pause to be skipped", entries, err)
		}
		third.cancel()
		<-third.done
	})
}

// TestSharedOrders: whoever accepts an order, the holder runs it, and the next holder
// goes on with it.
func TestSharedOrders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHerd(t, "@daily", 3)
		midnight := time.Now()
		first := h.start(0)
		synctest.Wait()
		second := h.start(0)
		synctest.Wait()
		q := schedule.OrderRequest{From: midnight.AddDate(0, 0, -5)}
		o, err := second.runner.Order(t.Context(), "job", q)
		if err != nil {
			t.Fatal(err)
		}
		again, err := first.runner.Order(t.Context(), "job", schedule.OrderRequest{From: q.From, To: midnight})
		if err != nil || again != o {
			t.Errorf("Got %+v, %v of the same order, want %+v", again, err, o)
		}
		time.Sleep(10 * time.Second)
		if st := first.runner.Status()[0]; st.Working.IsZero() || st.Cause != schedule.Backfill {
			t.Errorf("Got %+v", st)
		}
		h.kill(first)
		other, err := second.runner.Order(t.Context(), "job", schedule.OrderRequest{From: midnight.AddDate(0, 0, -50), To: midnight.AddDate(0, 0, -40)})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := second.runner.CancelOrder(t.Context(), "job", other.ID); err != nil {
			t.Fatal(err)
		}
		if err := second.runner.CancelOrder(t.Context(), "job", "none"); !errors.Is(err, schedule.ErrNoOrder) {
			t.Errorf("Got %v, want ErrNoOrder", err)
		}
		if _, err := second.runner.Order(t.Context(), "job", schedule.OrderRequest{Time: midnight}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		st := second.runner.Status()[0].State
		if len(st.Orders) != 0 || st.Ordered[schedule.Backfill][schedule.OK]+st.Ordered[schedule.Backfill][schedule.Published] != o.Times ||
			st.Ordered[schedule.Backfill][schedule.Cancelled] != other.Times || st.Ordered[schedule.Manual][schedule.OK] != 1 {
			t.Errorf("Got %+v", st)
		}
		settled := map[time.Time]int64{}
		entries, err := history.Entries(t.Context(), h.mem, "job", 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			settled[e.Logical] += e.Count
		}
		want := map[time.Time]int64{midnight.UTC(): 1, midnight.AddDate(0, 0, -41).UTC(): 10}
		for i := range 5 {
			want[midnight.AddDate(0, 0, -1-i).UTC()] = 1
		}
		if d := cmp.Diff(want, settled); d != "" {
			t.Errorf("settled (-want +got):\n%s", d)
		}
		second.cancel()
		<-second.done
	})
}
