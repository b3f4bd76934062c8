package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Lease is how long a process holds a schedule of a Shared store after it has renewed
// its hold: as long as an HBase takes to recover from the death of a server, so that
// this alone moves no schedule.
const Lease = 30 * time.Second

const (
	// renewal is how often a hold is renewed, and how often others look at it.
	renewal = 5 * time.Second
	// giveUp is how long after it was last renewed a hold counts as lost: what is
	// at work is cancelled, and has a third of the Lease to end.
	giveUp = 20 * time.Second
	// releaseTimeout bounds the last call of a Runner that ends.
	releaseTimeout = 5 * time.Second
)

// ErrLost is the error of whoever does not hold a schedule, or not any more.
var ErrLost = errors.New("schedule: another process holds the schedule")

// ErrTooManyRecords is the error of Ask for an entry of the history where too many wait
// for the process that holds the schedule.
var ErrTooManyRecords = errors.New("schedule: the process that holds the schedule has not noted what it was told")

// Shared is a Store that several processes use. One of them at most holds the schedule
// of a job; it alone decides for it, and runs it. Clocks of different machines are not
// compared: who wants the schedule looks for a whole Lease of its own clock whether it
// is renewed. Save is refused with ErrLost to whoever does not hold it.
type Shared interface {
	Store
	// Take takes the schedule where nobody holds it, or where its holder has not
	// renewed its hold between calls of Take that are a Lease apart.
	Take(ctx context.Context, job string) (Claim, error)
	// Renew renews the hold of this process. It takes nothing: its error wraps
	// ErrLost where another has taken the schedule since it was taken here, even
	// if that has given it up again.
	Renew(ctx context.Context, job string) (Claim, error)
	// Release gives up the hold of this process, if it has it.
	Release(ctx context.Context, job string) error
	// Ask leaves a wish for whoever holds the schedule, or will. It may be called by
	// anybody. An order that is open, or was asked for, is not asked for again: the
	// order that is meant is returned. Its error wraps ErrTooManyOrders,
	// ErrOrderEnding or ErrNoOrder as Machine's, or ErrTooManyRecords.
	Ask(ctx context.Context, job string, w Wish) (Order, error)
}

// Claim is what a Shared store says of a schedule.
type Claim struct {
	Held   bool   // by this process
	Holder string // the process; empty = none
	State  State
	Asked  Ask
}

// Ask is what was asked for of a schedule.
type Ask struct {
	N int64 `json:"n"` // of the last wish
	// Wishes are those that may not have been answered, in their order.
	Wishes []Wish `json:"wishes,omitempty"`
}

// What a Wish is for.
const (
	WishPause  = "pause"
	WishResume = "resume"
	WishOrder  = "order"  // that Order be accepted
	WishCancel = "cancel" // that the order ID be cancelled
	WishRecord = "record" // that Entry be added to the history
)

// Wish is one thing that somebody asks the holder of a schedule for.
type Wish struct {
	N     int64  `json:"n"` // counts them from 1
	For   string `json:"for"`
	Order *Order `json:"order,omitempty"`
	ID    string `json:"id,omitempty"`
	Entry *Entry `json:"entry,omitempty"`
}

// Add adds a wish to those that were not answered, which the state tells. What it says
// of orders is what Shared.Ask says, as is its error.
func (a *Ask) Add(s *State, w Wish) (Order, error) {
	open := map[string]Order{} // as the holder will find them
	for _, o := range s.Orders {
		open[o.ID] = o
	}
	left := a.Wishes[:0:0]
	records := 0
	for _, was := range a.Wishes {
		if was.N <= s.Answered {
			continue
		}
		left = append(left, was)
		if was.For == WishRecord {
			records++
			if w.For == WishRecord && was.Entry.same(w.Entry) {
				return Order{}, nil
			}
		}
		if was.For == WishOrder {
			open[was.Order.ID] = *was.Order
		}
		if o, ok := open[was.ID]; ok && was.For == WishCancel {
			o.Cancelled = true
			open[was.ID] = o
		}
	}
	var order Order
	switch w.For {
	case WishOrder:
		order = *w.Order
		if was, ok := open[order.ID]; ok && was.Cancelled {
			return was, fmt.Errorf("%w: %s", ErrOrderEnding, order.ID)
		} else if ok {
			return was, nil
		}
		if len(open) >= MaxOrders {
			return order, fmt.Errorf("%w: %d", ErrTooManyOrders, MaxOrders)
		}
	case WishCancel:
		var ok bool
		if order, ok = open[w.ID]; !ok {
			return order, fmt.Errorf("%w: %s", ErrNoOrder, w.ID)
		}
	case WishRecord:
		if records >= MaxOrders {
			return order, fmt.Errorf("%w: of %d runs by hand", ErrTooManyRecords, MaxOrders)
		}
	}
	a.N++
	w.N = a.N
	a.Wishes = append(left, w)
	return order, nil
}

// Answer does what somebody has asked for, each wish once, and goes on.
func (m *Machine) Answer(a Ask, now time.Time) Decision {
	var all Decision
	cancel := false
	for _, w := range a.Wishes {
		if w.N <= m.state.Answered {
			continue
		}
		var d Decision
		switch w.For {
		case WishPause:
			m.Pause()
			d = m.Tick(now)
		case WishResume:
			d = m.Resume(now)
		case WishOrder:
			_, d, _ = m.Order(*w.Order, now) // Ask.Add has seen to it that it can be
		case WishCancel:
			d, _ = m.CancelOrder(w.ID, now) // or it has ended meanwhile
		case WishRecord:
			d = m.Record(*w.Entry, now)
		}
		m.state.Answered, all.Changed = w.N, true
		all.merge(d)
		cancel = cancel || d.Cancel
	}
	d := m.Tick(now)
	all.merge(d)
	all.Wake, all.Cancel = d.Wake, cancel || d.Cancel
	if a.N > m.state.Answered {
		m.state.Answered, all.Changed = a.N, true
	}
	return all
}

// merge adds a decision that was made right after d.
func (d *Decision) merge(next Decision) {
	d.Entries = append(d.Entries, next.Entries...)
	d.Changed = d.Changed || next.Changed
	if !next.Start.IsZero() {
		d.Start, d.Cause = next.Start, next.Cause
	}
}

// runShared runs the schedule whenever this process holds it, until ctx ends.
func (j *job) runShared(ctx context.Context, s Shared) {
	for {
		claim, ok := j.take(ctx, s)
		if !ok {
			return
		}
		j.hold(ctx, s, claim)
	}
}

// take waits until this process holds the schedule, and returns false where ctx has
// ended before.
func (j *job) take(ctx context.Context, s Shared) (c Claim, ok bool) {
	look := time.NewTicker(renewal)
	defer look.Stop()
	for {
		if !j.persist(ctx, func() (err error) { c, err = s.Take(ctx, j.schedule.job); return err }) {
			return c, false
		}
		j.mu.Lock()
		if j.status.Holder != c.Holder {
			j.runner.o.Logger.Info("schedule has a holder", "job", j.schedule.job, "holder", c.Holder, "held", c.Held)
		}
		j.status.State, j.status.Holder, j.status.Held = c.State, c.Holder, c.Held
		j.status.Next = j.schedule.Next(c.State.Decided)
		j.mu.Unlock()
		if c.Held {
			return c, true
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return c, false
		}
	}
}

// hold runs the schedule until it is lost or ctx ends, when it is given up.
func (j *job) hold(ctx context.Context, s Shared, c Claim) {
	held, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	j.lose = lose
	renewed := make(chan struct{})
	go func() { // ends with held
		defer close(renewed)
		j.renew(held, s, c.State.Answered)
	}()
	m := NewMachine(j.schedule, c.State)
	j.tenure(held, m, m.Answer(c.Asked, time.Now()))
	cause := context.Cause(held)
	lose(nil)
	<-renewed
	j.mu.Lock()
	j.status.Held, j.status.Holder = false, ""
	j.mu.Unlock()
	if errors.Is(cause, ErrLost) {
		j.runner.o.Logger.Warn("schedule is lost to another process", "job", j.schedule.job, "err", cause)
		return
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := s.Release(last, j.schedule.job); err != nil && !errors.Is(err, ErrLost) {
		j.runner.o.Logger.Warn("schedule was not given up; another process takes it when the lease is over", "job", j.schedule.job, "err", err)
	}
}

// renew keeps the hold until ctx ends, and loses it where it cannot. It passes on what
// is asked for; answered is the last of it that was answered.
func (j *job) renew(ctx context.Context, s Shared, answered int64) {
	tick := time.NewTicker(renewal)
	defer tick.Stop()
	var q question
	var asked chan<- question // nil = there is nothing to pass on
	for last := time.Now(); ; {
		select {
		case asked <- q:
			asked = nil
			continue
		case <-tick.C:
		case <-j.nudge:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		// At least something: a process that was stopped for long finds out here.
		call, cancel := context.WithTimeout(ctx, max(renewal, giveUp-time.Since(last)))
		c, err := s.Renew(call, j.schedule.job)
		cancel()
		switch {
		case err == nil:
			last = began
		case errors.Is(err, ErrLost), time.Since(last) >= giveUp:
			j.lost(err)
			return
		default:
			continue
		}
		if c.Asked.N > answered {
			answered = c.Asked.N
			q = question{change: func(m *Machine, now time.Time) Decision { return m.Answer(c.Asked, now) }, stored: make(chan struct{})}
			asked = j.asked
		}
	}
}

// lost ends the tenure.
func (j *job) lost(err error) {
	if !errors.Is(err, ErrLost) {
		err = fmt.Errorf("%w, or may: the hold was not renewed for %s: %w", ErrLost, giveUp, err)
	}
	j.mu.Lock()
	j.status.Held = false // whatever is at work may take a while to end
	j.mu.Unlock()
	j.lose(err)
}

// confirm returns nil where this process holds the schedule now.
func (j *job) confirm(ctx context.Context) error {
	s, ok := j.runner.o.Store.(Shared)
	if !ok {
		return nil
	}
	_, err := s.Renew(ctx, j.schedule.job)
	if errors.Is(err, ErrLost) {
		j.lost(err)
	}
	return err
}

// leaveWord asks the holder of a shared schedule, which may be this process.
func (j *job) leaveWord(ctx context.Context, s Shared, w Wish) (Order, error) {
	o, err := s.Ask(ctx, j.schedule.job, w)
	if err != nil {
		return o, err
	}
	select {
	case j.nudge <- struct{}{}:
	default: // there is one
	}
	return o, nil
}
