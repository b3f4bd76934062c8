package schedule

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// memory is a Store in memory that fails while broken, and saves nothing before ctx
// ends while stuck.
type memory struct {
	mu      sync.Mutex
	states  map[string]State
	entries map[string][]Entry
	broken  error
	stuck   bool
}

func newMemory() *memory {
	return &memory{states: map[string]State{}, entries: map[string][]Entry{}}
}

func (m *memory) Load(_ context.Context, job string) (State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.states[job]
	return st.clone(), m.broken
}

func (m *memory) Save(ctx context.Context, job string, s State, entries []Entry) error {
	if m.stuck {
		<-ctx.Done()
		return ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken == nil {
		m.states[job] = s.clone()
		m.entries[job] = append(m.entries[job], entries...)
	}
	return m.broken
}

func (m *memory) History(_ context.Context, job string, n int) ([]Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := slices.Clone(m.entries[job])
	slices.Reverse(all)
	return all[:min(n, len(all))], m.broken
}

func (m *memory) breakWith(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken = err
}

// bed is a Runner in a bubble of virtual time.
type bed struct {
	t      *testing.T
	store  *memory
	log    *slog.Logger // nil discards
	cancel context.CancelFunc
	runner *Runner
	done   chan struct{}

	mu     sync.Mutex
	starts []string // of attempts: "hh:mm for hh:mm/attempt"
}

func (b *bed) start(s *Schedule, run func(ctx context.Context, r Request) (Outcome, error)) {
	b.t.Helper()
	r, err := New(&Options{Schedules: []*Schedule{s}, Store: b.store, Logger: b.log, Run: func(ctx context.Context, r Request) (Outcome, error) {
		b.mu.Lock()
		b.starts = append(b.starts, fmt.Sprintf("%s for %s/%d", time.Now().UTC().Format("15:04"), r.Logical.Format("15:04"), r.Attempt))
		b.mu.Unlock()
		return run(ctx, r)
	}})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	b.runner, b.cancel, b.done = r, cancel, make(chan struct{})
	go func() {
		r.Run(ctx)
		close(b.done)
	}()
	synctest.Wait()
}

func (b *bed) stop() {
	b.cancel()
	<-b.done
}

// history returns the job's history, the oldest first.
func (b *bed) history() []string {
	var got []string
	for _, e := range b.store.entries["job"] {
		got = append(got, fmt.Sprintf("%s %s x%d", e.Logical.Format("15:04"), e.Result, e.Count))
	}
	return got
}

func (b *bed) expect(starts, history []string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if d := cmp.Diff(starts, b.starts); d != "" {
		b.t.Errorf("starts (-want +got):\n%s", d)
	}
	if d := cmp.Diff(history, b.history()); d != "" {
		b.t.Errorf("history (-want +got):\n%s", d)
	}
}

// sleep returns when d has passed or ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Bubbles begin at midnight UTC, 2000-01-01.

// The end of the process is no trouble with the store.
func TestRunnerStopsWhileItSaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t: t, store: newMemory()}
		b.store.stuck = true
		b.start(compile(t, &Spec{Cron: "@hourly"}), func(context.Context, Request) (Outcome, error) { return Outcome{}, nil })
		time.Sleep(90 * time.Minute)
		b.stop()
		if st := b.runner.Status()[0]; st.Err != nil {
			t.Errorf("Got %v of a save that was not waited for", st.Err)
		}
	})
}

func TestRunnerOverlap(t *testing.T) {
	t.Parallel()
	// Each run takes more than two hours of a schedule of hours.
	long := func(ctx context.Context, r Request) (out Outcome, err error) {
		defer func() {
			stopped := time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) > 6*time.Hour+30*time.Minute
			if err != nil && errors.Is(context.Cause(ctx), ErrReplaced) == stopped {
				t.Errorf("run for %v: Got the cause %v, end of the runner: %t", r.Logical, context.Cause(ctx), stopped)
			}
		}()
		return Outcome{RunID: "r" + r.Logical.Format("15"), Rows: 3, Bytes: 4}, sleep(ctx, 140*time.Minute)
	}
	for overlap, want := range map[string]struct{ starts, history []string }{
		OverlapSkip: {
			[]string{"01:00 for 01:00/1", "04:00 for 04:00/1"},
			[]string{"02:00 skipped x1", "01:00 ok x1", "03:00 skipped x1", "05:00 skipped x1", "04:00 ok x1", "06:00 skipped x1"},
		},
		QueueOne: {
			[]string{"01:00 for 01:00/1", "03:20 for 03:00/1", "05:40 for 05:00/1"},
			[]string{"02:00 skipped x1", "01:00 ok x1", "04:00 skipped x1", "03:00 ok x1"},
		},
		Cancel: {
			[]string{"01:00 for 01:00/1", "02:00 for 02:00/1", "03:00 for 03:00/1", "04:00 for 04:00/1", "05:00 for 05:00/1", "06:00 for 06:00/1"},
			[]string{"01:00 cancelled x1", "02:00 cancelled x1", "03:00 cancelled x1", "04:00 cancelled x1", "05:00 cancelled x1"},
		},
	} {
		t.Run(overlap, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := &bed{t: t, store: newMemory()}
				b.start(compile(t, &Spec{Cron: "@hourly", Overlap: overlap}), long)
				time.Sleep(6*time.Hour + 31*time.Minute)
				b.stop()
				b.expect(want.starts, want.history)
			})
		})
	}
}

// TestRunnerRetries has attempts that fail, a schedule that pauses, and one that is
// resumed.
func TestRunnerRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t: t, store: newMemory()}
		failing := errors.New("no space")
		s := compile(t, &Spec{Cron: "@hourly", Retries: 2, Backoff: 5 * time.Minute, PauseAfter: 2})
		b.start(s, func(_ context.Context, r Request) (Outcome, error) {
			if r.Logical.Hour() == 1 && r.Attempt == 3 || r.Logical.Hour() > 4 {
				return Outcome{Published: r.Logical.Hour() == 6}, nil
			}
			return Outcome{}, failing
		})
		time.Sleep(5*time.Hour + 30*time.Minute) // 02:00 and 03:00 fail, then it pauses
		if st := b.runner.Status(); len(st) != 1 || !st[0].State.Paused || st[0].State.Failures != 2 {
			t.Errorf("Got %+v, want a paused schedule", st)
		}
		if err := b.runner.Resume(t.Context(), "job"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := b.runner.Pause(t.Context(), "job"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := b.runner.Pause(t.Context(), "other"); !errors.Is(err, ErrNoSchedule) {
			t.Errorf("Got %v, want ErrNoSchedule", err)
		}
		b.stop()
		if err := b.runner.Resume(t.Context(), "job"); !errors.Is(err, ErrNotRunning) {
			t.Errorf("Got %v after the end, want ErrNotRunning", err)
		}
		b.expect([]string{
			"01:00 for 01:00/1", "01:05 for 01:00/2", "01:15 for 01:00/3",
			"02:00 for 02:00/1", "02:05 for 02:00/2", "02:15 for 02:00/3",
			"03:00 for 03:00/1", "03:05 for 03:00/2", "03:15 for 03:00/3",
			"06:00 for 06:00/1",
		}, []string{"01:00 ok x1", "02:00 failed x1", "03:00 failed x1", "04:00 skipped x1", "05:00 skipped x1", "06:00 published x1", "07:00 skipped x1"})
		all, err := b.runner.History(t.Context(), "job", 6)
		if err != nil || len(all) != 6 || all[4].Error != "no space" || all[4].Attempts != 3 || all[5].Result != Failed {
			t.Errorf("Got history %+v, %v", all, err)
		}
	})
}

// TestRunnerLasting: a run whose error lasts is not tried again, and the next time is.
func TestRunnerLasting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t: t, store: newMemory()}
		wrong := errors.New("the columns have changed")
		b.start(compile(t, &Spec{Cron: "@hourly", Retries: 3}), func(_ context.Context, r Request) (Outcome, error) {
			if r.Logical.Hour() == 1 {
				return Outcome{}, fmt.Errorf("run: %w", Lasting(wrong))
			}
			if r.Attempt < 2 {
				return Outcome{}, wrong
			}
			return Outcome{RunID: "r"}, nil
		})
		time.Sleep(150 * time.Minute)
		b.stop()
		b.expect([]string{"01:00 for 01:00/1", "02:00 for 02:00/1", "02:01 for 02:00/2"}, []string{"01:00 failed x1", "02:00 ok x1"})
		if e := b.store.entries["job"][0]; e.Attempts != 1 || e.Error != "run: the columns have changed" {
			t.Errorf("Got %+v", e)
		}
		if err := Lasting(wrong); !errors.Is(err, wrong) {
			t.Errorf("Got %v, want it to be what it wraps", err)
		}
	})
}

// TestRunnerPaused: for how long a run has paused for ingest the history has, however it has
// ended: of the last attempt, as the error.
func TestRunnerPaused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t: t, store: newMemory()}
		b.start(compile(t, &Spec{Cron: "@hourly", Retries: 1, Overlap: Cancel}), func(ctx context.Context, r Request) (Outcome, error) {
			out := Outcome{PausedSeconds: float64(10*r.Logical.Hour() + r.Attempt)}
			switch r.Logical.Hour() {
			case 1:
				return out, errors.New("no room")
			case 2:
				return out, sleep(ctx, 2*time.Hour)
			}
			return out, nil
		})
		time.Sleep(190 * time.Minute)
		b.stop()
		var got []string
		for _, e := range b.store.entries["job"] {
			got = append(got, fmt.Sprintf("%s %v", e.Result, e.PausedSeconds))
		}
		if d := cmp.Diff([]string{"failed 12", "cancelled 21", "ok 31"}, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}

// TestRunnerRestart stops a Runner in the middle of a run and starts another one
// later: what was at work is repeated, what was missed is caught up with by policy.
func TestRunnerRestart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name            string
		catchUp         string
		away            time.Duration
		starts, history []string
	}{
		{
			"soon", Last, 10 * time.Minute,
			[]string{"01:00 for 01:00/1", "01:40 for 01:00/1", "02:30 for 02:00/1"},
			[]string{"01:00 ok x1", "02:00 ok x1"},
		},
		{
			"last", Last, 4 * time.Hour,
			[]string{"01:00 for 01:00/1", "05:30 for 05:00/1"},
			[]string{"02:00 missed x1", "01:00 missed x1", "04:00 missed x2", "05:00 ok x1"},
		},
		{
			"all, in the window", All, 4 * time.Hour,
			[]string{"01:00 for 01:00/1", "05:30 for 03:00/1", "06:20 for 04:00/1", "07:10 for 05:00/1"},
			[]string{"02:00 missed x1", "01:00 missed x1", "03:00 ok x1", "04:00 ok x1", "05:00 ok x1"},
		},
		{
			"none", None, 4 * time.Hour,
			[]string{"01:00 for 01:00/1", "06:00 for 06:00/1"},
			[]string{"05:00 missed x4", "01:00 missed x1"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := &bed{t: t, store: newMemory()}
				s := compile(t, &Spec{Cron: "@hourly", CatchUp: tt.catchUp, Window: 3 * time.Hour, Overlap: QueueOne})
				long := func(ctx context.Context, _ Request) (Outcome, error) { return Outcome{}, sleep(ctx, 50*time.Minute) }
				b.start(s, long)
				time.Sleep(90 * time.Minute)
				b.stop()
				if got := b.store.states["job"].Pending; len(got) != 1 {
					t.Errorf("Got %v pending, want the run at work", got)
				}
				time.Sleep(tt.away)
				b.start(s, long)
				for started := 0; started < len(tt.starts); {
					time.Sleep(time.Minute)
					synctest.Wait()
					b.mu.Lock()
					started = len(b.starts)
					b.mu.Unlock()
				}
				time.Sleep(55 * time.Minute)
				synctest.Wait()
				got := b.history()
				b.stop()
				b.mu.Lock()
				defer b.mu.Unlock()
				if d := cmp.Diff(tt.starts, b.starts[:len(tt.starts)]); d != "" {
					t.Errorf("starts (-want +got):\n%s", d)
				}
				if d := cmp.Diff(tt.history, got[:min(len(got), len(tt.history))]); d != "" {
					t.Errorf("history (-want +got):\n%s", d)
				}
			})
		})
	}
}

// TestRunnerStopsLate: times that come while a process that is to stop waits for its run to
// end are for the next process.
func TestRunnerStopsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t: t, store: newMemory()}
		s := compile(t, &Spec{Cron: "@hourly"})
		run := func(_ context.Context, r Request) (Outcome, error) {
			if r.Logical.Hour() == 1 {
				time.Sleep(62 * time.Minute) // it is being published when it is to end
			}
			return Outcome{}, nil
		}
		b.start(s, run)
		time.Sleep(119 * time.Minute)
		b.stop()
		if st := b.store.states["job"]; st.Paused || len(st.Pending) > 0 {
			t.Errorf("Got %+v", st)
		}
		b.start(s, run)
		time.Sleep(time.Minute)
		synctest.Wait()
		b.stop()
		b.expect([]string{"01:00 for 01:00/1", "02:02 for 02:00/1"}, []string{"01:00 ok x1", "02:00 ok x1"})
	})
}

// TestRunnerClockWentBack: where the clock has gone back, the log says so once, and the next
// time is the one that comes first after what was decided.
func TestRunnerClockWentBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := &bed{t: t, store: newMemory(), log: slog.New(slog.NewTextHandler(&log, nil))}
		there := time.Now().UTC().Truncate(time.Hour).Add(3 * time.Hour)
		b.store.states["job"] = State{Decided: there}
		b.start(compile(t, &Spec{Cron: "@hourly"}), func(context.Context, Request) (Outcome, error) { return Outcome{}, nil })
		time.Sleep(179 * time.Minute)
		synctest.Wait()
		if next, err := b.runner.Upcoming("job", 2); err != nil || len(next) != 2 || !next[0].Equal(there.Add(time.Hour)) {
			t.Errorf("Got %v, %v, want those after %s", next, err, there)
		}
		if n := strings.Count(log.String(), "the clock has gone back"); n != 1 {
			t.Errorf("the log tells of it %d times: %s", n, &log)
		}
		time.Sleep(62 * time.Minute)
		b.stop()
		b.expect([]string{"04:00 for 04:00/1"}, []string{"04:00 ok x1"})
	})
}

// TestRunnerBrokenStore starts nothing that it could not remember.
func TestRunnerBrokenStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t: t, store: newMemory()}
		s := compile(t, &Spec{Cron: "@hourly"})
		b.start(s, func(context.Context, Request) (Outcome, error) { return Outcome{}, nil })
		time.Sleep(30 * time.Minute)
		full := errors.New("disk full")
		b.store.breakWith(full)
		time.Sleep(time.Hour)
		if st := b.runner.Status(); !errors.Is(st[0].Err, full) {
			t.Errorf("Got %v, want that of the store", st[0].Err)
		}
		b.store.breakWith(nil)
		time.Sleep(time.Hour)
		st := b.runner.Status()
		if st[0].Err != nil || !st[0].Next.Equal(time.Date(2000, 1, 1, 3, 0, 0, 0, time.UTC)) || !st[0].Working.IsZero() {
			t.Errorf("Got %+v", st[0])
		}
		next, err := b.runner.Upcoming("job", 3)
		if err != nil || len(next) != 3 || next[2].Hour() != 5 {
			t.Errorf("Got %v, %v, want 03:00 to 05:00", next, err)
		}
		b.stop()
		b.expect([]string{"01:30 for 01:00/1", "02:00 for 02:00/1"}, []string{"01:00 ok x1", "02:00 ok x1"})
	})
}
