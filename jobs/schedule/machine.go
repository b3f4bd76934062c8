package schedule

import (
	"slices"
	"time"
)

// Results of an Entry.
const (
	OK        = "ok"        // published
	Published = "published" // it had been published before
	Failed    = "failed"    // all attempts failed
	Cancelled = "cancelled" // for the next run, or by somebody
	Skipped   = "skipped"   // left out, as the run before was at work
	Missed    = "missed"    // nobody was there to start it in time
)

// Entry is one line of a job's history.
type Entry struct {
	Logical  time.Time `json:"logical_time"` // of the newest run, where it is about several
	Result   string    `json:"result"`
	Count    int64     `json:"count"` // runs that it is about: more than 1 for skipped and missed ones only
	Started  time.Time `json:"started_at"`
	Ended    time.Time `json:"ended_at"`
	Attempts int       `json:"attempts"` // 0 = never started
	RunID    string    `json:"run_id,omitempty"`
	Rows     int64     `json:"rows,omitempty"`
	Bytes    int64     `json:"bytes,omitempty"`
	Error    string    `json:"error,omitempty"` // of the last attempt
}

// State is what is remembered of a job's schedule across restarts.
type State struct {
	// Decided is the newest logical time that a decision was made about; zero =
	// the schedule has never been looked at.
	Decided time.Time `json:"decided"`
	// Pending are the logical times that were decided to run and have not ended,
	// the one at work first.
	Pending []time.Time `json:"pending,omitempty"`
	// Failures is how many runs in a row have failed, all their attempts.
	Failures int `json:"failures"`
	// Paused says that nothing starts until somebody resumes the schedule.
	Paused bool `json:"paused"`
	// Answered is the number of the last Ask that was answered, in a Shared store.
	Answered int64 `json:"answered,omitempty"`
	// Results counts runs by Result, since the schedule was first looked at.
	Results map[string]int64 `json:"results,omitempty"`
}

// clone returns a copy that shares nothing.
func (s *State) clone() State {
	c := *s
	c.Pending = slices.Clone(s.Pending)
	c.Results = make(map[string]int64, len(s.Results))
	for k, v := range s.Results {
		c.Results[k] = v
	}
	return c
}

// Machine decides what a schedule does, given the time and what has ended. It does
// nothing itself: Start and Cancel of a Decision are for its owner.
type Machine struct {
	schedule *Schedule
	state    State
	working  bool // Pending[0] was started by this Machine
	seen     bool // Tick was called
}

// Decision is what a Machine wants done.
type Decision struct {
	// Start is the logical time to start a run for; zero = none. Ended is owed
	// for it.
	Start time.Time
	// Cancel says to end the run at work; Ended is still owed for it.
	Cancel bool
	// Entries are for the history: what was left out.
	Entries []Entry
	// Changed says that the State is another one than before.
	Changed bool
	// Wake is when to call Tick again if nothing happens before; zero = never.
	Wake time.Time
}

// NewMachine returns a machine that goes on from st. A schedule that was never
// looked at begins with the first Tick: times before it were not missed.
func NewMachine(s *Schedule, st State) *Machine {
	return &Machine{schedule: s, state: st.clone()}
}

// State returns a copy of the state.
func (m *Machine) State() State { return m.state.clone() }

// maxDue bounds the times that are listed one by one; of more, only so many are
// counted as missed. A week of minutes fits.
const maxDue = 10_080

// Tick decides for the time now. A clock that went back decides nothing until it
// has come to where it was, as every time up to Decided is settled (invariant I10).
func (m *Machine) Tick(now time.Time) Decision {
	var d Decision
	first := !m.seen
	m.seen = true
	if m.state.Decided.IsZero() {
		m.state.Decided = now.Add(-m.schedule.offset).UTC()
		d.Changed = true
	}
	due := m.due(now, &d)
	if first {
		// What a process that has ended left undone has missed its time, too.
		due = append(m.state.Pending, due...)
		m.state.Pending = nil
	}
	if m.state.Paused {
		m.drop(&d, now, Skipped, due)
		due = nil
	}
	due = m.late(now, due, &d)
	switch {
	case len(due) == 0:
	case len(m.state.Pending) == 0:
		m.state.Pending = due
		d.Changed = true
	default:
		m.overlap(now, due, &d)
	}
	m.start(&d)
	if next := m.schedule.Next(m.state.Decided); !next.IsZero() {
		d.Wake = m.schedule.Start(next)
	}
	return d
}

// due returns the times that have come since the last Tick. Of very many it drops
// the oldest.
func (m *Machine) due(now time.Time, d *Decision) []time.Time {
	var due []time.Time
	if oldest := now.Add(-m.schedule.offset - m.schedule.window()); m.state.Decided.Before(oldest) {
		// Times before are missed in any case; a long absence must not list
		// them all.
		var missed []time.Time
		for at := m.schedule.Next(m.state.Decided); !at.IsZero() && at.Before(oldest); at = m.schedule.Next(at) {
			missed = append(missed, at)
			m.state.Decided = at
			if len(missed) == maxDue {
				if before := oldest.Add(-time.Second).UTC(); before.After(at) {
					m.state.Decided = before
				}
				break
			}
		}
		m.drop(d, now, Missed, missed)
	}
	for at := m.schedule.Next(m.state.Decided); !at.IsZero() && !m.schedule.Start(at).After(now); at = m.schedule.Next(at) {
		due = append(due, at)
		m.state.Decided = at
		d.Changed = true
		if len(due) > maxDue {
			m.drop(d, now, Missed, due[:1])
			due = due[1:]
		}
	}
	return due
}

// late leaves of the due times those that may run.
func (m *Machine) late(now time.Time, due []time.Time, d *Decision) []time.Time {
	if n := slices.IndexFunc(due, func(t time.Time) bool { return now.Sub(m.schedule.Start(t)) <= m.schedule.window() }); n != 0 {
		if n < 0 {
			n = len(due)
		}
		m.drop(d, now, Missed, due[:n])
		due = due[n:]
	}
	if n := len(due) - 1; n > 0 && m.schedule.spec.CatchUp != All {
		m.drop(d, now, Missed, due[:n])
		due = due[n:]
	}
	return due
}

// overlap has times come while others are at work or wait.
func (m *Machine) overlap(now time.Time, due []time.Time, d *Decision) {
	d.Changed = true
	spec := &m.schedule.spec
	switch {
	case spec.Overlap == OverlapSkip:
		m.drop(d, now, Skipped, due)
		return
	case spec.Overlap == QueueOne && spec.CatchUp == All:
		m.state.Pending = append(m.state.Pending, due...)
		return
	}
	working := 0
	if m.working {
		working = 1
	}
	n := len(due) - 1
	m.drop(d, now, Skipped, append(slices.Clone(m.state.Pending[working:]), due[:n]...))
	m.state.Pending = append(m.state.Pending[:working:working], due[n])
	d.Cancel = m.working && spec.Overlap == Cancel
}

// start begins the first pending run, if none is at work.
func (m *Machine) start(d *Decision) {
	if m.working || m.state.Paused || len(m.state.Pending) == 0 {
		return
	}
	m.working = true
	d.Start = m.state.Pending[0]
}

// Ended tells that the run at work has ended, and how: e.Result is OK, Published,
// Failed or Cancelled, and e.Logical what Start said. It adds e to the Decision's
// Entries.
func (m *Machine) Ended(now time.Time, e Entry) Decision {
	d := Decision{Changed: true}
	if !m.working || !m.state.Pending[0].Equal(e.Logical) {
		return m.Tick(now) // not of a run that this machine has started
	}
	m.working = false
	m.state.Pending = m.state.Pending[1:]
	e.Count = 1
	m.record(&d, e)
	switch e.Result {
	case OK, Published:
		m.state.Failures = 0
	case Failed:
		m.state.Failures++
		if after := m.schedule.spec.PauseAfter; after > 0 && m.state.Failures >= after {
			m.state.Paused = true
			m.drop(&d, now, Skipped, m.state.Pending)
			m.state.Pending = nil
		}
	}
	next := m.Tick(now)
	next.Entries = append(d.Entries, next.Entries...)
	next.Changed = true
	return next
}

// Pause stops the schedule: what is at work ends, nothing else starts.
func (m *Machine) Pause() { m.state.Paused = true }

// Resume lets a paused schedule go on with the first time after now; what came
// meanwhile was left out.
func (m *Machine) Resume(now time.Time) Decision {
	before := m.Tick(now) // still paused: settles what has come
	m.state.Paused, m.state.Failures = false, 0
	d := m.Tick(now)
	d.Entries = append(before.Entries, d.Entries...)
	d.Changed = true
	return d
}

// drop records times that do not run.
func (m *Machine) drop(d *Decision, now time.Time, result string, all []time.Time) {
	if len(all) > 0 {
		m.record(d, Entry{Logical: all[len(all)-1], Result: result, Count: int64(len(all)), Started: now.UTC(), Ended: now.UTC()})
	}
}

func (m *Machine) record(d *Decision, e Entry) {
	d.Entries = append(d.Entries, e)
	d.Changed = true
	if m.state.Results == nil {
		m.state.Results = map[string]int64{}
	}
	m.state.Results[e.Result] += e.Count
}
