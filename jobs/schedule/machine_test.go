package schedule

import (
	"encoding/json"
	"testing"
	"time"
)

// told is the history of a Machine that a test drives.
type told struct {
	t       *testing.T
	m       *Machine
	entries []Entry
}

func (h *told) did(d Decision) Decision {
	h.entries = append(h.entries, d.Entries...)
	return d
}

// ticks calls Tick every second for a while, the first time a second after from.
func (h *told) ticks(from time.Time, seconds int) time.Time {
	for range seconds {
		from = from.Add(time.Second)
		h.did(h.m.Tick(from))
	}
	return from
}

// restart goes on with the state as it is stored.
func (h *told) restart() {
	h.t.Helper()
	data, err := json.Marshal(h.m.State())
	if err != nil {
		h.t.Fatal(err)
	}
	var st State
	if err := json.Unmarshal(data, &st); err != nil {
		h.t.Fatal(err)
	}
	h.m = NewMachine(h.m.schedule, st)
}

// skipped returns how many entries tell of times that were skipped, and of how many.
func (h *told) skipped() (entries int, times int64) {
	for _, e := range h.entries {
		if e.Result == Skipped {
			entries++
			times += e.Count
		}
	}
	return entries, times
}

// leftOut returns how many times were skipped that no entry tells of yet.
func leftOut(s *State) int64 {
	if s.LeftOut == nil {
		return 0
	}
	return s.LeftOut.Count
}

// check compares the history with how many times were skipped, and with the counts.
func (h *told) check(when string, entries int, times, counted int64) {
	h.t.Helper()
	if n, of := h.skipped(); n != entries || of != times {
		h.t.Errorf("%s: %d entries of %d times, want %d of %d", when, n, of, entries, times)
	}
	if got := h.m.State().Results[Skipped]; got != counted {
		h.t.Errorf("%s: %d times are counted as skipped, want %d", when, got, counted)
	}
}

// TestPauseGrowsNoHistory: of a pause the history has the first time that was left out,
// at once, and all others together when it ends, whoever runs the schedule then.
func TestPauseGrowsNoHistory(t *testing.T) {
	h := &told{t: t, m: NewMachine(compile(t, &Spec{Cron: "@every 1s"}), State{})}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h.did(h.m.Tick(now))
	h.m.Pause()
	began := now.Add(2 * time.Second)
	now = h.ticks(now, 1000)
	h.check("paused", 1, 1, 1000)
	h.restart()
	now = h.ticks(now, 1000)
	h.check("paused, of the next process", 1, 1, 2000)
	d := h.did(h.m.Resume(now))
	h.check("resumed", 2, 2000, 2000)
	last := h.entries[len(h.entries)-1]
	if !last.Logical.Equal(now) || !last.Started.Equal(began) || !last.Ended.Equal(now) || last.Cause != Scheduled {
		t.Errorf("entry of the pause: %+v", last)
	}
	if !d.Changed || h.m.State().LeftOut != nil {
		t.Errorf("after the pause: %+v", h.m.State())
	}
	h.m.Pause()
	h.ticks(now, 3)
	h.check("paused again", 3, 2001, 2003)
}

// TestOverlapGrowsNoHistory: the same, for times that come while a run is at work.
func TestOverlapGrowsNoHistory(t *testing.T) {
	for _, overlap := range []string{OverlapSkip, QueueOne} {
		t.Run(overlap, func(t *testing.T) {
			h := &told{t: t, m: NewMachine(compile(t, &Spec{Cron: "@every 1s", Overlap: overlap}), State{})}
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			h.did(h.m.Tick(now))
			now = now.Add(time.Second)
			run := h.did(h.m.Tick(now))
			if run.Start.IsZero() {
				t.Fatal("nothing was started")
			}
			now = h.ticks(now, 1000)
			skipped := int64(1000)
			if overlap == QueueOne {
				skipped-- // one waits
			}
			h.check("at work", 1, 1, skipped)
			next := h.did(h.m.Ended(now, Entry{Logical: run.Start, Result: OK, Ended: now}))
			h.check("ended", 2, skipped, skipped)
			if waits := !next.Start.IsZero(); waits != (overlap == QueueOne) {
				t.Errorf("at the end of the run, this is started: %s", next.Start)
			}
		})
	}
}

// TestKillTellsOfOverlap: what came while a run was at work is told of by the next
// process, where the run ended with the one before.
func TestKillTellsOfOverlap(t *testing.T) {
	h := &told{t: t, m: NewMachine(compile(t, &Spec{Cron: "@every 1s"}), State{})}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h.did(h.m.Tick(now))
	now = h.ticks(now, 11) // the first is at work
	h.check("at work", 1, 1, 10)
	h.restart()
	h.did(h.m.Tick(now))
	h.check("killed", 2, 10, 10)
}

// TestAbsenceGrowsNoHistory: of the times that came while no process was there the history
// has a few entries, however many they are, and each is counted once.
func TestAbsenceGrowsNoHistory(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		spec          Spec
		away          time.Duration
		missed, waits int64
	}{
		{Spec{Cron: "@every 1s"}, 23 * time.Hour, 23*3600 - 1, 1},
		{Spec{Cron: "@every 1s"}, 72 * time.Hour, -1, 1}, // those before the window are not all counted
		{Spec{Cron: "* * * * *", Window: 1000 * time.Hour}, 900 * time.Hour, 900*60 - 1, 1},
		{Spec{Cron: "* * * * *", Window: 1000 * time.Hour, CatchUp: All}, 900 * time.Hour, 900*60 - maxDue, maxDue},
	} {
		h := &told{t: t, m: NewMachine(compile(t, &c.spec), State{})}
		h.did(h.m.Tick(began))
		h.restart()
		h.did(h.m.Tick(began.Add(c.away)))
		var missed int64
		for _, e := range h.entries {
			if e.Result != Missed {
				t.Errorf("%+v: %+v", c.spec, e)
			}
			missed += e.Count
		}
		st := h.m.State()
		if len(h.entries) > 3 || c.missed >= 0 && missed != c.missed || st.Results[Missed] != missed || int64(len(st.Pending)) != c.waits {
			t.Errorf("%+v: %d entries of %d times, %d counted, %d wait", c.spec, len(h.entries), missed, st.Results[Missed], len(st.Pending))
		}
	}
}

// TestPauseLeavesOutWhatWaits: a time that waits for the run before is left out by a pause,
// whether that ends before or after the pause, or with the process.
func TestPauseLeavesOutWhatWaits(t *testing.T) {
	for _, c := range []struct {
		name    string
		catchUp string
		order   bool // what is at work was ordered, so that two times wait
		waits   int
		end     func(h *told, now time.Time, logical time.Time)
	}{
		{"ended after the pause", Last, false, 1, func(h *told, now, logical time.Time) {
			h.did(h.m.Resume(now))
			h.did(h.m.Ended(now, Entry{Logical: logical, Result: OK, Ended: now}))
		}},
		{"ended before", All, false, 9, func(h *told, now, logical time.Time) {
			h.did(h.m.Ended(now, Entry{Logical: logical, Result: OK, Ended: now}))
			h.did(h.m.Resume(now))
		}},
		{"beside an order", All, true, 10, func(h *told, now, logical time.Time) {
			h.did(h.m.Ended(now, Entry{Logical: logical, Result: OK, Ended: now}))
			h.did(h.m.Resume(now))
		}},
		{"killed", All, false, 10, func(h *told, now, _ time.Time) {
			h.restart()
			h.did(h.m.Tick(now))
			h.did(h.m.Resume(now))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := compile(t, &Spec{Cron: "@every 1s", Overlap: QueueOne, CatchUp: c.catchUp})
			h := &told{t: t, m: NewMachine(s, State{})}
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			run := h.did(h.m.Tick(now))
			if c.order {
				o, err := s.Order(OrderRequest{}, now)
				if err != nil {
					t.Fatal(err)
				}
				_, run, _ = h.m.Order(o, now)
			} else {
				now = now.Add(time.Second)
				run = h.did(h.m.Tick(now))
			}
			if run.Start.IsZero() {
				t.Fatal("nothing was started")
			}
			for range 10 - h.m.atWork() {
				now = now.Add(time.Second)
				h.did(h.m.Tick(now))
			}
			left := h.m.State().Results[Skipped]
			h.m.Pause()
			h.did(h.m.Tick(now))
			c.end(h, now, run.Start)
			st := h.m.State()
			if got := st.Results[Skipped] - left; got != int64(c.waits) || len(st.Pending) != 0 || h.m.working {
				t.Errorf("%d times are left out, want %d; state %+v, at work %t", got, c.waits, st, h.m.working)
			}
		})
	}
}
