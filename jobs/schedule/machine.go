package schedule

import (
	"maps"
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
	Count    int64     `json:"count"`           // runs that it is about: more than 1 only where none was started
	Cause    string    `json:"cause,omitempty"` // why it was to run; empty in entries from before there were causes
	Order    string    `json:"order,omitempty"` // id of the order that it belongs to
	Started  time.Time `json:"started_at"`
	Ended    time.Time `json:"ended_at"`
	Attempts int       `json:"attempts"` // 0 = never started
	RunID    string    `json:"run_id,omitempty"`
	Rows     int64     `json:"rows,omitempty"`
	Bytes    int64     `json:"bytes,omitempty"`
	// PausedSeconds is for how long the last attempt paused so that ingest could catch up.
	PausedSeconds float64 `json:"paused_seconds,omitempty"`
	Error         string  `json:"error,omitempty"` // of the last attempt
}

// same reports whether both are the entry of one row of the history.
func (e *Entry) same(other *Entry) bool {
	return e.Ended.Equal(other.Ended) && e.Logical.Equal(other.Logical) && e.Order == other.Order
}

// State is what is remembered of a job's schedule across restarts.
type State struct {
	// Decided is the newest logical time that a decision was made about; zero =
	// the schedule has never been looked at.
	Decided time.Time `json:"decided"`
	// Pending are the times of the schedule that were decided to run and have not
	// ended, the one at work first.
	Pending []Run `json:"pending,omitempty"`
	// Orders are the open orders, in the order in which they were accepted.
	Orders []Order `json:"orders,omitempty"`
	// Failures is how many runs in a row have failed, all their attempts.
	Failures int `json:"failures"`
	// Paused says that nothing starts until somebody resumes the schedule.
	Paused bool `json:"paused"`
	// LeftOut is what a pause, or a run that is at work, has left out since the Entry
	// of the first such time; nil = there is none.
	LeftOut *LeftOut `json:"left_out,omitempty"`
	// Answered is the number of the last Ask that was answered, in a Shared store.
	Answered int64 `json:"answered,omitempty"`
	// Results counts the times of the schedule by Result, since it was first looked
	// at.
	Results map[string]int64 `json:"results,omitempty"`
	// Ordered counts runs of orders, and those that somebody has made by hand, by
	// Cause and Result.
	Ordered map[string]map[string]int64 `json:"ordered,omitempty"`
}

// LeftOut is times that were skipped, of which one Entry tells when the pause or the
// run ends that has left them out: a schedule of every second must not fill the history.
type LeftOut struct {
	Count   int64     `json:"count"`
	Logical time.Time `json:"logical_time,omitzero"` // of the newest
	Since   time.Time `json:"since,omitzero"`        // when the first was left out
}

// clone returns a copy that shares nothing.
func (s *State) clone() State {
	c := *s
	c.Pending, c.Orders = slices.Clone(s.Pending), slices.Clone(s.Orders)
	if s.LeftOut != nil {
		left := *s.LeftOut
		c.LeftOut = &left
	}
	c.Results = make(map[string]int64, len(s.Results))
	maps.Copy(c.Results, s.Results)
	if s.Ordered != nil {
		c.Ordered = make(map[string]map[string]int64, len(s.Ordered))
		for cause, results := range s.Ordered {
			c.Ordered[cause] = maps.Clone(results)
		}
	}
	return c
}

// Awaited returns the runs, by job and logical time, that have begun and not ended by the
// states of jobs, or begin next of their orders: one that waits for its next attempt is
// written by nobody.
func Awaited(states map[string]State) map[string][]time.Time {
	all := map[string][]time.Time{}
	for job, s := range states {
		for _, r := range s.Pending {
			all[job] = append(all[job], r.Logical)
		}
		for i := range s.Orders {
			all[job] = append(all[job], s.Orders[i].Next)
		}
	}
	return all
}

// Machine decides what a schedule does, given the time and what has ended. It does
// nothing itself: Start and Cancel of a Decision are for its owner.
type Machine struct {
	schedule *Schedule
	state    State
	working  bool   // at was started by this Machine
	at       Run    // the run at work
	order    string // that it is of; empty = it is Pending[0]
	seen     bool   // Tick was called
}

// Decision is what a Machine wants done.
type Decision struct {
	// Start is the logical time to start a run for; zero = none. Ended is owed
	// for it.
	Start time.Time
	// Cause is why.
	Cause string
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
		m.openOrders(&d, now)
		m.tellLeftOut(&d, now) // what was at work has ended, too
	}
	if m.state.Paused {
		// What waits is left out, too: Resume goes on with the first time after it.
		n := m.atWork()
		m.drop(&d, now, Skipped, append(m.state.Pending[n:], due...))
		m.state.Pending, due = m.state.Pending[:n:n], nil
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
func (m *Machine) due(now time.Time, d *Decision) []Run {
	var due []Run
	if oldest := now.Add(-m.schedule.offset - m.schedule.window()); m.state.Decided.Before(oldest) {
		// Times before are missed in any case; a long absence must not list
		// them all.
		var missed []Run
		for at := m.schedule.Next(m.state.Decided); !at.IsZero() && at.Before(oldest); at = m.schedule.Next(at) {
			missed = append(missed, Run{Logical: at})
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
	var missed []Run // of very many, the oldest: one entry tells of them
	for at := m.schedule.Next(m.state.Decided); !at.IsZero() && !m.schedule.Start(at).After(now); at = m.schedule.Next(at) {
		due = append(due, Run{Logical: at})
		m.state.Decided = at
		d.Changed = true
		if len(due) > maxDue {
			missed = append(missed, due[0])
			due = due[1:]
		}
	}
	m.drop(d, now, Missed, missed)
	return due
}

// late leaves of the due times those that may run, and says why they do.
func (m *Machine) late(now time.Time, due []Run, d *Decision) []Run {
	if n := slices.IndexFunc(due, func(r Run) bool { return now.Sub(m.schedule.Start(r.Logical)) <= m.schedule.window() }); n != 0 {
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
	for i := range due {
		switch {
		case due[i].Cause != "": // it was decided before
		case now.Sub(m.schedule.Start(due[i].Logical)) > onTime:
			due[i].Cause = CatchUp
		default:
			due[i].Cause = Scheduled
		}
	}
	return due
}

// overlap has times come while others of the schedule are at work or wait.
func (m *Machine) overlap(now time.Time, due []Run, d *Decision) {
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
	working := m.atWork()
	n := len(due) - 1
	m.drop(d, now, Skipped, append(slices.Clone(m.state.Pending[working:]), due[:n]...))
	m.state.Pending = append(m.state.Pending[:working:working], due[n])
	d.Cancel = working > 0 && spec.Overlap == Cancel
}

// atWork is how many of Pending are at work, 0 or 1.
func (m *Machine) atWork() int {
	if m.working && m.order == "" {
		return 1
	}
	return 0
}

// start begins a run, if none is at work and one may: one that somebody waits for
// before those of the schedule, and a backfill after them.
func (m *Machine) start(d *Decision) {
	if m.working {
		return
	}
	m.order = ""
	i := m.nextOrder(Manual)
	if i < 0 && !m.state.Paused && len(m.state.Pending) > 0 {
		m.at = m.state.Pending[0]
	} else {
		if i < 0 {
			i = m.nextOrder(Backfill)
		}
		if i < 0 {
			return
		}
		o := &m.state.Orders[i]
		m.order, m.at = o.ID, Run{Logical: o.Next, Cause: o.Cause}
	}
	m.working = true
	d.Start, d.Cause = m.at.Logical, m.at.Cause
}

// Ended tells that the run at work has ended, and how: e.Result is OK, Published,
// Failed or Cancelled, and e.Logical what Start said. It adds e to the Decision's
// Entries, with its cause and order.
func (m *Machine) Ended(now time.Time, e Entry) Decision {
	d := m.EndedLast(now, e)
	next := m.Tick(now)
	next.Entries = append(d.Entries, next.Entries...)
	next.Changed = next.Changed || d.Changed
	return next
}

// EndedLast is Ended of the last run of a process: it decides nothing of the times that have
// come since the last Tick, which the next process may catch up with.
func (m *Machine) EndedLast(now time.Time, e Entry) Decision {
	var d Decision
	if !m.working || !m.at.Logical.Equal(e.Logical) {
		return d // not of a run that this machine has started
	}
	m.working = false
	e.Count, e.Cause, e.Order = 1, m.at.Cause, m.order
	m.record(&d, e)
	if m.order == "" {
		m.state.Pending = m.state.Pending[1:]
	} else {
		m.endedOrder(&d, now, e.Result)
	}
	m.tellLeftOut(&d, now)
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
	return d
}

// Pause stops the schedule: what is at work ends, and nothing else starts but manual
// runs. What waits is left out with the next Tick.
func (m *Machine) Pause() { m.state.Paused = true }

// Resume lets a paused schedule go on with the first time after now; what came
// meanwhile was left out.
func (m *Machine) Resume(now time.Time) Decision {
	before := m.Tick(now) // still paused: settles what has come
	m.state.Paused, m.state.Failures = false, 0
	m.tellLeftOut(&before, now)
	d := m.Tick(now)
	d.Entries = append(before.Entries, d.Entries...)
	d.Changed = true
	return d
}

// drop records times of the schedule that do not run.
func (m *Machine) drop(d *Decision, now time.Time, result string, all []Run) {
	if len(all) == 0 {
		return
	}
	last, n := all[len(all)-1].Logical, int64(len(all))
	if left := m.state.LeftOut; left != nil && result == Skipped {
		if left.Count == 0 {
			left.Since = now.UTC()
		}
		left.Logical, left.Count = last, left.Count+n
		m.state.Add(&Entry{Result: result, Count: n})
		d.Changed = true
		return
	}
	if result == Skipped {
		m.state.LeftOut = new(LeftOut)
	}
	m.record(d, Entry{Logical: last, Result: result, Count: n, Cause: Scheduled, Started: now.UTC(), Ended: now.UTC()})
}

// tellLeftOut records the times that were skipped since the first, which were counted
// then, unless the schedule is paused: it is called when what has left them out is over.
func (m *Machine) tellLeftOut(d *Decision, now time.Time) {
	left := m.state.LeftOut
	if left == nil || m.state.Paused {
		return
	}
	m.state.LeftOut, d.Changed = nil, true
	if left.Count > 0 {
		d.Entries = append(d.Entries, Entry{
			Logical: left.Logical, Result: Skipped, Count: left.Count, Cause: Scheduled, Started: left.Since, Ended: now.UTC(),
		})
	}
}

func (m *Machine) record(d *Decision, e Entry) {
	d.Entries = append(d.Entries, e)
	d.Changed = true
	m.state.Add(&e)
}

// Add counts what e, an entry that is new in the history, tells of.
func (s *State) Add(e *Entry) {
	if e.Cause != Manual && e.Cause != Backfill {
		if s.Results == nil {
			s.Results = map[string]int64{}
		}
		s.Results[e.Result] += e.Count
		return
	}
	if s.Ordered == nil {
		s.Ordered = map[string]map[string]int64{}
	}
	if s.Ordered[e.Cause] == nil {
		s.Ordered[e.Cause] = map[string]int64{}
	}
	s.Ordered[e.Cause][e.Result] += e.Count
}

// Record adds an entry of a run that somebody has made by hand, outside the schedule, to
// the history. It changes nothing of what the schedule does.
func (m *Machine) Record(e Entry, now time.Time) Decision {
	var recorded Decision
	m.record(&recorded, e)
	d := m.Tick(now)
	d.Entries, d.Changed = append(recorded.Entries, d.Entries...), true
	return d
}
