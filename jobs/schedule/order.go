package schedule

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Causes of a Run.
const (
	Scheduled = "schedule" // its time has come
	CatchUp   = "catch-up" // its time had come when nobody was there, and it runs late
	Manual    = "manual"   // somebody has ordered it, for the instant of the order or another
	Backfill  = "backfill" // somebody has ordered the times of the schedule in a range
)

// Bounds of orders.
const (
	// MaxOrders is how many orders of a job may be open: more is a script that
	// does not look at the answers.
	MaxOrders = 64
	// MaxBackfill is how many times an order may have: a week of minutes.
	MaxBackfill = 10_080
	// maxAhead is how far after now the time of a manual run may be: clocks of
	// several machines differ.
	maxAhead = time.Minute
)

// Errors of orders.
var (
	// ErrInvalidOrder: there is nothing that such an order could mean.
	ErrInvalidOrder = errors.New("schedule: invalid order")
	// ErrNoOrder: no order of this id is open.
	ErrNoOrder = errors.New("schedule: no such order is open")
	// ErrTooManyOrders: MaxOrders are open.
	ErrTooManyOrders = errors.New("schedule: too many orders are open")
	// ErrOrderEnding: the same order was cancelled, and its run has not ended yet.
	ErrOrderEnding = errors.New("schedule: the same order is being cancelled")
	// ErrOrderCancelled is why a run is cancelled that somebody had ordered.
	ErrOrderCancelled = errors.New("schedule: the order was cancelled")
)

// Run is one run of a job that is to be made.
type Run struct {
	Logical time.Time `json:"logical_time"`
	Cause   string    `json:"cause"`
}

// UnmarshalJSON reads a Run, or a time alone, as it was written before runs had causes.
func (r *Run) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		*r = Run{Cause: Scheduled}
		return json.Unmarshal(data, &r.Logical)
	}
	type plain Run
	return json.Unmarshal(data, (*plain)(r))
}

// Order is runs that somebody has ordered: a manual run, or the times of a schedule in
// [From, To). One that is accepted is part of the State, so that it outlives processes.
type Order struct {
	ID        string    `json:"id"` // follows from the job, Cause, From and To
	Cause     string    `json:"cause"`
	From      time.Time `json:"from"`        // of a manual run: its logical time
	To        time.Time `json:"to,omitzero"` // zero for a manual run
	Accepted  time.Time `json:"accepted_at"`
	Next      time.Time `json:"next"`                // logical time of the run at work or to come
	Times     int64     `json:"times"`               // how many runs it is
	Ended     int64     `json:"ended"`               // of these
	Failed    int64     `json:"failed"`              // of those, with all their attempts
	Cancelled bool      `json:"cancelled,omitempty"` // it has ended when its run at work has
}

// OrderRequest says what is ordered: a manual run where From is zero, and a backfill
// otherwise.
type OrderRequest struct {
	// Time is what a manual run is for; at most a minute after now. Zero = now.
	Time time.Time
	// From and To bound the times of a backfill: [From, To). To is bounded by now,
	// as later times are the schedule's; zero = now.
	From, To time.Time
}

// CheckLogical returns an error for a time that no run can be for: RFC 3339, in which
// manifests, states and histories tell it, in UTC, has the years 0 to 9999.
func CheckLogical(at time.Time) error {
	if year := at.UTC().Year(); year < 0 || year > 9999 {
		return fmt.Errorf("a time of the year %d in UTC, which is not from 0 to 9999", year)
	}
	return nil
}

// Order returns the order that q asks for. Its error wraps ErrInvalidOrder.
func (s *Schedule) Order(q OrderRequest, now time.Time) (Order, error) {
	o := Order{Cause: Manual, Accepted: now.UTC()}
	for _, at := range []time.Time{q.Time, q.From, q.To} {
		if err := CheckLogical(at); err != nil {
			return o, fmt.Errorf("%w: %w", ErrInvalidOrder, err)
		}
	}
	if q.From.IsZero() {
		if !q.To.IsZero() {
			return o, fmt.Errorf("%w: a backfill needs the time that it begins with", ErrInvalidOrder)
		}
		at := q.Time
		if at.IsZero() {
			at = now.Truncate(time.Millisecond)
		}
		if at.Sub(now) > maxAhead {
			return o, fmt.Errorf("%w: a run for %s, and it is %s", ErrInvalidOrder, at.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
		}
		o.From, o.Next, o.Times = at.UTC(), at.UTC(), 1
		o.name(s.job)
		return o, nil
	}
	if !q.Time.IsZero() {
		return o, fmt.Errorf("%w: either the time of one run, or the range of a backfill", ErrInvalidOrder)
	}
	if !q.To.IsZero() && !q.From.Before(q.To) {
		return o, fmt.Errorf("%w: %s is not before %s", ErrInvalidOrder, q.From.UTC().Format(time.RFC3339), q.To.UTC().Format(time.RFC3339))
	}
	o.Cause, o.From, o.To = Backfill, q.From.UTC(), q.To.UTC()
	if q.To.IsZero() || q.To.After(now) {
		o.To = now.UTC()
	}
	if !s.count(&o) {
		return o, fmt.Errorf("%w: the schedule names no time from %s until %s", ErrInvalidOrder, o.From.Format(time.RFC3339), o.To.Format(time.RFC3339))
	}
	if o.Times > MaxBackfill {
		return o, fmt.Errorf("%w: more than %d times; order them in parts", ErrInvalidOrder, MaxBackfill)
	}
	o.name(s.job)
	return o, nil
}

// name gives the order its id.
func (o *Order) name(job string) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%s", job, o.Cause, o.From.Format(time.RFC3339Nano), o.To.Format(time.RFC3339Nano)))
	o.ID = hex.EncodeToString(sum[:6])
}

// count sets Next and Times of a backfill by the schedule as it is now, to which Ended
// times do not belong any more, and returns false where none is left. It stops beyond
// MaxBackfill.
func (s *Schedule) count(o *Order) bool {
	from := o.Next
	if from.IsZero() {
		from = o.From
	}
	o.Times = o.Ended
	first := s.Next(from.Add(-time.Nanosecond))
	for at := first; !at.IsZero() && at.Before(o.To) && o.Times <= o.Ended+MaxBackfill; at = s.Next(at) {
		o.Times++
	}
	o.Next = first
	return o.Times > o.Ended
}

// Order accepts an order: it is run as soon as nothing else is at work, a manual run
// before anything that waits, a backfill after all else. One that is open already is
// not accepted twice. The order that is open is returned; the error wraps
// ErrTooManyOrders or ErrOrderEnding.
func (m *Machine) Order(o Order, now time.Time) (Order, Decision, error) {
	if i := m.orderAt(o.ID); i >= 0 {
		var err error
		if m.state.Orders[i].Cancelled {
			err = fmt.Errorf("%w: %s", ErrOrderEnding, o.ID)
		}
		return m.state.Orders[i], m.Tick(now), err
	}
	if len(m.state.Orders) >= MaxOrders {
		return o, m.Tick(now), fmt.Errorf("%w: %d", ErrTooManyOrders, MaxOrders)
	}
	m.state.Orders = append(m.state.Orders, o)
	d := m.Tick(now)
	d.Changed = true
	return o, d, nil
}

// CancelOrder ends an order: its run at work is cancelled, and what has not begun is
// left out. The error wraps ErrNoOrder.
func (m *Machine) CancelOrder(id string, now time.Time) (Decision, error) {
	i := m.orderAt(id)
	if i < 0 {
		return m.Tick(now), fmt.Errorf("%w: %s", ErrNoOrder, id)
	}
	var before Decision
	atWork := m.working && m.order == id
	m.state.Orders[i].Cancelled = true
	if !atWork {
		m.endOrder(&before, now, i)
	}
	d := m.Tick(now)
	d.Entries = append(before.Entries, d.Entries...)
	d.Changed, d.Cancel = true, d.Cancel || atWork
	return d, nil
}

func (m *Machine) orderAt(id string) int {
	return slices.IndexFunc(m.state.Orders, func(o Order) bool { return o.ID == id })
}

// endOrder closes an order of which nothing is at work.
func (m *Machine) endOrder(d *Decision, now time.Time, i int) {
	o := m.state.Orders[i]
	m.state.Orders = slices.Delete(m.state.Orders, i, i+1)
	d.Changed = true
	if left := o.Times - o.Ended; left > 0 {
		last := o.Next
		for n := int64(1); n < left; n++ {
			last = m.schedule.Next(last)
		}
		m.record(d, Entry{
			Logical: last, Result: Cancelled, Count: left, Cause: o.Cause, Order: o.ID, Started: now.UTC(), Ended: now.UTC(),
		})
	}
}

// openOrders settles what has become of orders since a process has ended: those that
// were cancelled have ended, and the schedule may name other times than it did.
func (m *Machine) openOrders(d *Decision, now time.Time) {
	for i := 0; i < len(m.state.Orders); {
		o := &m.state.Orders[i]
		was := *o
		switch {
		case o.Cancelled:
			m.endOrder(d, now, i)
			continue
		case o.Cause == Backfill && !m.schedule.count(o):
			m.state.Orders = slices.Delete(m.state.Orders, i, i+1)
			d.Changed = true
			continue
		}
		d.Changed = d.Changed || *o != was
		i++
	}
}

// nextOrder returns the order to run next, of which manual ones come first and
// backfills wait for the end of a pause; -1 = none.
func (m *Machine) nextOrder(cause string) int {
	if cause == Backfill && m.state.Paused {
		return -1
	}
	return slices.IndexFunc(m.state.Orders, func(o Order) bool { return o.Cause == cause })
}

// endedOrder tells that a run of an order has ended with a result.
func (m *Machine) endedOrder(d *Decision, now time.Time, result string) {
	i := m.orderAt(m.order)
	if i < 0 {
		return // it cannot be: an order stays as long as its run is at work
	}
	o := &m.state.Orders[i]
	o.Ended++
	if result == Failed {
		o.Failed++
	}
	if o.Ended < o.Times {
		o.Next = m.schedule.Next(o.Next)
	}
	if o.Cancelled || o.Ended >= o.Times {
		m.endOrder(d, now, i)
	}
}
