package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestOrder(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 10, 12, 34, 56, 789_123_456, time.UTC)
	day := func(d int) time.Time { return time.Date(2026, 5, d, 0, 0, 0, 0, time.UTC) }
	s := compile(t, &Spec{Cron: "30 2 * * *"})
	for _, tt := range []struct {
		name       string
		q          OrderRequest
		cause      string
		next, to   time.Time
		times      int64
		wantErrors string
	}{
		{"now", OrderRequest{}, Manual, now.Truncate(time.Millisecond), time.Time{}, 1, ""},
		{"at a time", OrderRequest{Time: day(1)}, Manual, day(1), time.Time{}, 1, ""},
		{"of a clock a little ahead", OrderRequest{Time: now.Add(maxAhead)}, Manual, now.Add(maxAhead), time.Time{}, 1, ""},
		{"of the future", OrderRequest{Time: now.Add(maxAhead + 1)}, "", time.Time{}, time.Time{}, 0, "a run for 2026-05-10T12:35:56Z, and it is 2026-05-10T12:34:56Z"},
		{"range", OrderRequest{From: day(1), To: day(4)}, Backfill, day(1).Add(150 * time.Minute), day(4), 3, ""},
		{"from a time on", OrderRequest{From: day(1).Add(150 * time.Minute), To: day(1).Add(150*time.Minute + 1)}, Backfill, day(1).Add(150 * time.Minute), day(1).Add(150*time.Minute + 1), 1, ""},
		{"until now", OrderRequest{From: day(9)}, Backfill, day(9).Add(150 * time.Minute), now, 2, ""},
		{"not after now", OrderRequest{From: day(9), To: day(30)}, Backfill, day(9).Add(150 * time.Minute), now, 2, ""},
		{"none", OrderRequest{From: day(30)}, "", time.Time{}, time.Time{}, 0, "names no time from 2026-05-30"},
		{"backwards", OrderRequest{From: day(3), To: day(2)}, "", time.Time{}, time.Time{}, 0, "is not before"},
		{"without a beginning", OrderRequest{To: day(3)}, "", time.Time{}, time.Time{}, 0, "needs the time that it begins with"},
		{"both", OrderRequest{Time: day(1), From: day(1)}, "", time.Time{}, time.Time{}, 0, "either the time of one run"},
		{"before the year 0", OrderRequest{Time: time.Date(0, 1, 1, 0, 0, 0, 0, time.FixedZone("", 14*3600))}, "", time.Time{}, time.Time{}, 0, "of the year -1 in UTC"},
		{"from before the year 0", OrderRequest{From: time.Date(0, 1, 1, 0, 0, 0, 0, time.FixedZone("", 14*3600))}, "", time.Time{}, time.Time{}, 0, "of the year -1 in UTC"},
		{"until after the year 9999", OrderRequest{From: day(1), To: time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -2*3600))}, "", time.Time{}, time.Time{}, 0, "of the year 10000 in UTC"},
		{"too many", OrderRequest{From: day(1).AddDate(-40, 0, 0)}, "", time.Time{}, time.Time{}, 0, "more than 10080 times"},
	} {
		o, err := s.Order(tt.q, now)
		if tt.wantErrors != "" {
			if !errors.Is(err, ErrInvalidOrder) || !strings.Contains(err.Error(), tt.wantErrors) {
				t.Errorf("%s: Got %v, want %s", tt.name, err, tt.wantErrors)
			}
			continue
		}
		if err != nil || o.Cause != tt.cause || !o.Next.Equal(tt.next) || !o.To.Equal(tt.to) || o.Times != tt.times || len(o.ID) != 12 {
			t.Errorf("%s: Got %+v, %v", tt.name, o, err)
		}
		again, err := s.Order(tt.q, now)
		other, _ := s.Order(OrderRequest{Time: now.Add(-time.Hour)}, now)
		if err != nil || again.ID != o.ID || other.ID == o.ID {
			t.Errorf("%s: Got ids %s, %s, %s", tt.name, o.ID, again.ID, other.ID)
		}
	}
}

// TestStateOfBefore reads pending times as they were written without causes.
func TestStateOfBefore(t *testing.T) {
	t.Parallel()
	var st State
	if err := json.Unmarshal([]byte(`{"decided": "2026-05-01T00:00:00Z", "pending": ["2026-05-01T00:00:00Z", {"logical_time": "2026-05-02T00:00:00Z", "cause": "catch-up"}]}`), &st); err != nil {
		t.Fatal(err)
	}
	want := []Run{{time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC), Scheduled}, {time.Date(2026, 5, 2, 0, 0, 0, 0, time.UTC), CatchUp}}
	if d := cmp.Diff(want, st.Pending); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// causes returns the job's history with causes, the oldest first.
func (b *bed) causes() (got []string) {
	for _, e := range b.store.entries["job"] {
		got = append(got, fmt.Sprintf("%s %s %s x%d", e.Logical.Format("02 15:04"), e.Cause, e.Result, e.Count))
	}
	return got
}

func (b *bed) order(q OrderRequest) Order {
	b.t.Helper()
	o, err := b.runner.Order(b.t.Context(), "job", q)
	if err != nil {
		b.t.Fatal(err)
	}
	return o
}

// TestRunnerOrders: with every policy of overlap, orders wait for what is at work, a
// manual run goes before a backfill, and the times of the schedule that come meanwhile
// go before the rest of it, once.
func TestRunnerOrders(t *testing.T) {
	t.Parallel()
	// Each run takes 25 minutes of a schedule of hours.
	want := []string{
		"01 01:00 schedule ok x1", // until 01:25; the backfill is ordered at 01:10
		"31 20:00 backfill ok x1", // until 01:50; the manual run is ordered at 01:40
		"01 01:40 manual ok x1",   // until 02:15, so that 02:00 waits
		"01 02:00 schedule ok x1", // until 02:40
		"31 21:00 backfill ok x1", // until 03:05, so that 03:00 waits
		"01 03:00 schedule ok x1", // until 03:30
		"31 22:00 backfill ok x1", // until 03:55
		"01 04:00 schedule ok x1",
	}
	for _, overlap := range []string{OverlapSkip, QueueOne, Cancel} {
		t.Run(overlap, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := &bed{t: t, store: newMemory()}
				midnight := time.Now()
				b.start(compile(t, &Spec{Cron: "@hourly", Overlap: overlap}), func(ctx context.Context, r Request) (Outcome, error) {
					if got := b.runner.Status()[0]; got.Cause != r.Cause || !got.Working.Equal(r.Logical) {
						t.Errorf("Got %+v for %+v", got, r)
					}
					return Outcome{}, sleep(ctx, 25*time.Minute)
				})
				time.Sleep(70 * time.Minute)
				o := b.order(OrderRequest{From: midnight.Add(-4 * time.Hour), To: midnight.Add(-time.Hour)})
				if o.Times != 3 || o.Cause != Backfill {
					t.Errorf("Got %+v", o)
				}
				if again := b.order(OrderRequest{From: midnight.Add(-4 * time.Hour), To: midnight.Add(-time.Hour)}); again != o {
					t.Errorf("Got %+v of the same order, want %+v", again, o)
				}
				time.Sleep(30 * time.Minute)
				b.order(OrderRequest{})
				time.Sleep(170 * time.Minute)
				if st := b.runner.Status()[0].State; len(st.Orders) != 0 || st.Ordered[Backfill][OK] != 3 || st.Ordered[Manual][OK] != 1 || st.Results[OK] != 4 {
					t.Errorf("Got %+v", st)
				}
				b.stop()
				if d := cmp.Diff(want, b.causes()); d != "" {
					t.Errorf("history (-want +got):\n%s", d)
				}
				for _, e := range b.store.entries["job"] {
					if (e.Order == o.ID) != (e.Cause == Backfill) || (e.Order == "") != (e.Cause == Scheduled) {
						t.Errorf("Got %+v", e)
					}
				}
			})
		})
	}
}

// TestRunnerOrdersOutlive: an accepted backfill goes on in the next process with the
// run that was cut off, tries failed runs again, and waits for the end of a pause, for
// which a manual run does not.
func TestRunnerOrdersOutlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t: t, store: newMemory()}
		s := compile(t, &Spec{Cron: "@daily", Retries: 1, Backoff: time.Minute, PauseAfter: 2})
		midnight := time.Now()
		broken := errors.New("no space")
		run := func(ctx context.Context, r Request) (Outcome, error) {
			if r.Logical.Day() == 28 && r.Attempt == 1 || r.Logical.Day() >= 29 && r.Cause == Backfill {
				return Outcome{}, broken
			}
			return Outcome{RunID: "r"}, sleep(ctx, 10*time.Minute)
		}
		b.start(s, run)
		o := b.order(OrderRequest{From: midnight.AddDate(0, 0, -5), To: midnight})
		time.Sleep(15 * time.Minute) // in the run for the 28th, after its retry
		b.stop()
		if got := b.store.states["job"].Orders; len(got) != 1 || got[0].ID != o.ID || got[0].Ended != 1 || got[0].Next.Day() != 28 {
			t.Errorf("Got %+v", got)
		}
		time.Sleep(time.Hour)
		b.start(s, run)
		time.Sleep(time.Hour) // the 29th and 30th fail
		if st := b.runner.Status()[0].State; !st.Paused || len(st.Orders) != 1 || st.Orders[0].Failed != 2 {
			t.Errorf("Got %+v, want a pause with an open order", st)
		}
		b.order(OrderRequest{Time: midnight.Add(time.Hour)})
		time.Sleep(time.Hour)
		if st := b.runner.Status()[0].State; !st.Paused || st.Failures != 0 || len(st.Orders) != 1 {
			t.Errorf("Got %+v, want a pause after a manual run", st)
		}
		if err := b.runner.Resume(t.Context(), "job"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if st := b.runner.Status()[0].State; st.Paused || len(st.Orders) != 0 {
			t.Errorf("Got %+v, want no order", st)
		}
		b.stop()
		want := []string{
			"27 backfill ok x1", "28 backfill ok x1", "29 backfill failed x1", "30 backfill failed x1", "01 manual ok x1", "31 backfill failed x1",
		}
		var got []string
		for _, e := range b.store.entries["job"] {
			got = append(got, fmt.Sprintf("%s %s %s x%d", e.Logical.Format("02"), e.Cause, e.Result, e.Count))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("history (-want +got):\n%s", d)
		}
		attempts := map[int]int{}
		for _, e := range b.store.entries["job"] {
			attempts[e.Logical.Day()] = e.Attempts
		}
		if d := cmp.Diff(map[int]int{27: 1, 28: 2, 29: 2, 30: 2, 31: 2, 1: 1}, attempts); d != "" {
			t.Errorf("attempts (-want +got):\n%s", d)
		}
	})
}

// TestRunnerCancelsOrders: one that is at work, one that waits, and one whose process
// ended before its run did.
func TestRunnerCancelsOrders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t: t, store: newMemory()}
		s := compile(t, &Spec{Cron: "@daily"})
		midnight := time.Now()
		stubborn := false
		run := func(ctx context.Context, _ Request) (Outcome, error) {
			err := sleep(ctx, time.Hour)
			if err != nil && context.Cause(ctx) != context.Canceled && !errors.Is(context.Cause(ctx), ErrOrderCancelled) {
				t.Errorf("Got cause %v", context.Cause(ctx))
			}
			if err != nil && stubborn {
				time.Sleep(time.Hour)
			}
			return Outcome{}, err
		}
		b.start(s, run)
		first := b.order(OrderRequest{From: midnight.AddDate(0, 0, -3)})
		second := b.order(OrderRequest{Time: midnight.Add(-time.Hour)})
		third := b.order(OrderRequest{From: midnight.AddDate(0, 0, -30), To: midnight.AddDate(0, 0, -20)})
		time.Sleep(time.Minute)
		for _, id := range []string{third.ID, first.ID} {
			if err := b.runner.CancelOrder(t.Context(), "job", id); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(2 * time.Hour)
		for _, id := range []string{first.ID, second.ID, "none"} {
			if err := b.runner.CancelOrder(t.Context(), "job", id); !errors.Is(err, ErrNoOrder) {
				t.Errorf("Got %v, want ErrNoOrder", err)
			}
		}
		if err := b.runner.CancelOrder(t.Context(), "other", first.ID); !errors.Is(err, ErrNoSchedule) {
			t.Errorf("Got %v, want ErrNoSchedule", err)
		}
		if _, err := b.runner.Order(t.Context(), "other", OrderRequest{}); !errors.Is(err, ErrNoSchedule) {
			t.Errorf("Got %v, want ErrNoSchedule", err)
		}
		if _, err := b.runner.Order(t.Context(), "job", OrderRequest{To: midnight}); !errors.Is(err, ErrInvalidOrder) {
			t.Errorf("Got %v, want ErrInvalidOrder", err)
		}
		stubborn = true
		q := OrderRequest{From: midnight.AddDate(0, 0, -2), To: midnight}
		fourth := b.order(q)
		time.Sleep(time.Minute)
		if err := b.runner.CancelOrder(t.Context(), "job", fourth.ID); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if _, err := b.runner.Order(t.Context(), "job", q); !errors.Is(err, ErrOrderEnding) {
			t.Errorf("Got %v, want ErrOrderEnding", err)
		}
		b.stop()
		b.start(s, run)
		for i := range MaxOrders {
			b.order(OrderRequest{Time: midnight.Add(time.Duration(-i) * time.Second)})
		}
		if _, err := b.runner.Order(t.Context(), "job", OrderRequest{}); !errors.Is(err, ErrTooManyOrders) {
			t.Errorf("Got %v, want ErrTooManyOrders", err)
		}
		b.stop()
		if d := cmp.Diff([]string{
			"11 00:00 backfill cancelled x10", // the third, that waited
			"29 00:00 backfill cancelled x1",  // the first, at work
			"31 00:00 backfill cancelled x2",  // and its rest
			"31 23:00 manual ok x1",
			"31 00:00 backfill cancelled x2", // the fourth, in the next process
		}, b.causes()); d != "" {
			t.Errorf("history (-want +got):\n%s", d)
		}
	})
}

// TestOrdersAfterAChange: an open backfill goes by the schedule as it is when a process
// starts.
func TestOrdersAfterAChange(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 10, 12, 0, 0, 0, time.UTC)
	o, err := compile(t, &Spec{Cron: "@hourly"}).Order(OrderRequest{From: now.Add(-48 * time.Hour)}, now)
	if err != nil || o.Times != 48 {
		t.Fatalf("Got %+v, %v", o, err)
	}
	o.Ended, o.Next = 3, o.Next.Add(3*time.Hour)
	m := NewMachine(compile(t, &Spec{Cron: "@daily"}), State{Decided: now, Orders: []Order{o}})
	d := m.Tick(now)
	if got := m.State().Orders[0]; got.Times != 5 || got.Ended != 3 || !d.Start.Equal(time.Date(2026, 5, 9, 0, 0, 0, 0, time.UTC)) || d.Cause != Backfill || !d.Changed {
		t.Errorf("Got %+v, %+v", got, d)
	}
	m = NewMachine(compile(t, &Spec{Cron: "@yearly"}), State{Decided: now, Orders: []Order{o}})
	if d := m.Tick(now); len(m.State().Orders) != 0 || !d.Changed || !d.Start.IsZero() {
		t.Errorf("Got %+v, %+v, want no order", m.State().Orders, d)
	}
}

// TestAskAdd: the wishes that were left are as many as were not answered, and orders
// are asked for once.
func TestAskAdd(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 10, 12, 0, 0, 0, time.UTC)
	s := compile(t, &Spec{Cron: "@hourly"})
	order := func(i int) *Order {
		o, err := s.Order(OrderRequest{Time: now.Add(time.Duration(-i) * time.Second)}, now)
		if err != nil {
			t.Fatal(err)
		}
		return &o
	}
	var a Ask
	st := State{Orders: []Order{*order(1)}, Answered: 1}
	add := func(w Wish, n int, want error) {
		t.Helper()
		if _, err := a.Add(&st, w); !errors.Is(err, want) || len(a.Wishes) != n {
			t.Errorf("Got %v and %+v, want %v", err, a, want)
		}
	}
	add(Wish{For: WishPause}, 1, nil)
	add(Wish{For: WishOrder, Order: order(1)}, 1, nil) // open; the first wish stays, as nothing is written
	add(Wish{For: WishOrder, Order: order(2)}, 1, nil) // the first was answered
	add(Wish{For: WishOrder, Order: order(2)}, 1, nil)
	add(Wish{For: WishCancel, ID: order(3).ID}, 1, ErrNoOrder)
	add(Wish{For: WishCancel, ID: order(2).ID}, 2, nil)
	add(Wish{For: WishOrder, Order: order(2)}, 2, ErrOrderEnding)
	add(Wish{For: WishResume}, 3, nil)
	for i := range MaxOrders - 2 {
		add(Wish{For: WishOrder, Order: order(10 + i)}, 4+i, nil)
	}
	add(Wish{For: WishOrder, Order: order(9)}, 1+MaxOrders, ErrTooManyOrders)

	byHand := func(i int) Wish {
		return Wish{For: WishRecord, Entry: &Entry{Logical: now.Add(time.Duration(i) * time.Second), Ended: now, Result: OK, Count: 1, Cause: Manual}}
	}
	for i := range MaxOrders {
		add(byHand(i), 2+MaxOrders+i, nil)
		add(byHand(i), 2+MaxOrders+i, nil)
	}
	add(byHand(-1), 1+2*MaxOrders, ErrTooManyRecords)

	m := NewMachine(s, st)
	d := m.Answer(a, now)
	if got := m.State().Ordered[Manual][OK]; got != MaxOrders || len(d.Entries) < MaxOrders {
		t.Errorf("Got %d runs by hand and %d entries, want %d", got, len(d.Entries), MaxOrders)
	}
	if got := m.State(); len(got.Orders) != MaxOrders-1 || got.Answered != a.N || got.Paused || !d.Changed || d.Start.IsZero() {
		t.Errorf("Got %+v, %+v", got, d)
	}
	if d := m.Answer(a, now); d.Changed || !d.Start.IsZero() {
		t.Errorf("Got %+v of wishes that were answered", d)
	}
	if o, err := a.Add(&State{Answered: a.N}, Wish{For: WishPause}); err != nil || len(a.Wishes) != 1 || o.ID != "" {
		t.Errorf("Got %+v, %v", a, err)
	}
}

// TestMonthsOfOrders has a schedule of six hours for half a year, with orders at random times,
// some of them cancelled, processes that are killed, and a clock that is set back: every
// ordered time is settled exactly once, and every time of the schedule, too.
func TestMonthsOfOrders(t *testing.T) {
	t.Parallel()
	for seed := range uint64(9) {
		rng := rand.New(rand.NewPCG(seed, 41))
		s := compile(t, &Spec{
			Cron: "0 */6 * * *", Jitter: time.Hour,
			Overlap: []string{OverlapSkip, QueueOne, Cancel}[seed%3], CatchUp: []string{None, Last, All}[seed/3%3],
		})
		begun := time.Date(2016, 1, 1, 0, 0, 0, 0, time.UTC)
		now, end := begun, begun.AddDate(0, 6, 0)
		var ordered, settled, scheduled int64
		note := func(d Decision) {
			for _, e := range d.Entries {
				switch {
				case (e.Order != "") != (e.Cause == Manual || e.Cause == Backfill):
					t.Fatalf("%d: %+v", seed, e)
				case e.Order != "":
					settled += e.Count
				default:
					scheduled += e.Count
				}
			}
		}
		m := NewMachine(s, State{})
		var working, done time.Time
		decide := func(d Decision) {
			for {
				note(d)
				if !d.Start.IsZero() {
					if !working.IsZero() {
						t.Fatalf("%d: %s starts while %s is at work", seed, d.Start, working)
					}
					working, done = d.Start, now.Add(time.Duration(rng.ExpFloat64()*float64(time.Hour)))
				}
				if !d.Cancel {
					return
				}
				if working.IsZero() {
					t.Fatalf("%d: cancels nothing", seed)
				}
				e := Entry{Logical: working, Result: Cancelled}
				working = time.Time{}
				d = m.Ended(now, e)
			}
		}
		open := func() (n int64) {
			for _, o := range m.State().Orders {
				n += o.Times - o.Ended
			}
			return n
		}
		for now.Before(end) {
			if !working.IsZero() && !now.Before(done) {
				e := Entry{Logical: working, Result: []string{OK, OK, Published, Failed}[rng.IntN(4)]}
				working = time.Time{}
				decide(m.Ended(now, e))
			} else {
				decide(m.Tick(now))
			}
			if got := settled + open(); got != ordered {
				t.Fatalf("%d: %d ordered times are settled or open, want %d", seed, got, ordered)
			}
			switch rng.IntN(24) {
			case 0: // killed, and back after a while
				m, working = restarted(t, s, m), time.Time{}
				now = now.Add(time.Duration(rng.ExpFloat64() * float64(10*time.Hour)))
			case 1: // the clock is set back
				now = setBack(rng, now, begun)
			case 2, 3:
				q := OrderRequest{Time: now.Add(-time.Duration(rng.Int64N(int64(time.Hour))))}
				if rng.IntN(3) == 0 {
					from := now.Add(-time.Duration(rng.Int64N(int64(1000 * time.Hour))))
					q = OrderRequest{From: from, To: from.Add(time.Duration(1 + rng.Int64N(int64(60*time.Hour))))}
				}
				o, err := s.Order(q, now)
				if errors.Is(err, ErrInvalidOrder) && q.Time.IsZero() {
					continue // no time lies in it
				}
				if err != nil {
					t.Fatal(err)
				}
				_, d, err := m.Order(o, now)
				if err == nil {
					ordered += o.Times
				} else if !errors.Is(err, ErrTooManyOrders) {
					t.Fatal(err)
				}
				decide(d)
			case 4:
				if all := m.State().Orders; len(all) > 0 {
					d, err := m.CancelOrder(all[rng.IntN(len(all))].ID, now)
					if err != nil {
						t.Fatal(err)
					}
					decide(d)
				}
			case 5:
				m.Pause()
			case 6:
				decide(m.Resume(now))
			default:
				wake := now.Add(time.Hour)
				if !working.IsZero() && done.Before(wake) {
					wake = done
				}
				now = now.Add(max(time.Second, wake.Sub(now)))
			}
		}
		st := m.State()
		want := decidedSince(s, begun, st)
		if got := scheduled + int64(len(st.Pending)) + leftOut(&st); got != want || want < 700 {
			t.Errorf("%d: %d times of the schedule are settled, pending or left out, want %d", seed, got, want)
		}
		var counted int64
		for _, results := range st.Ordered {
			for _, n := range results {
				counted += n
			}
		}
		if counted != settled || settled < 80 {
			t.Errorf("%d: %d ordered times are counted, %d have entries", seed, counted, settled)
		}
	}
}
