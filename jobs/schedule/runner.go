package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Store keeps what schedules remember. It is safe for concurrent use; a job is
// used by one Runner at a time.
type Store interface {
	// Load returns the state of a job, the zero State where there is none.
	Load(ctx context.Context, job string) (State, error)
	// Save replaces the state of a job and adds entries to its history, in one
	// step. Its error wraps ErrLost where a Shared store refuses it.
	Save(ctx context.Context, job string, s State, entries []Entry) error
	// History returns up to n entries of a job, the newest first.
	History(ctx context.Context, job string, n int) ([]Entry, error)
}

// Request asks for one attempt of a run.
type Request struct {
	Job     string
	Logical time.Time
	Cause   string // of the Run
	Attempt int    // from 1
	// Confirm is to be called right before the run is published: its error says
	// that this process does not, or may not, run the schedule any more, and that
	// the run must not be published.
	Confirm func(ctx context.Context) error
}

// Outcome is what an attempt has published; with an error, PausedSeconds alone counts.
type Outcome struct {
	RunID string
	Rows  int64
	Bytes int64
	// PausedSeconds is for how long it has paused so that ingest could catch up.
	PausedSeconds float64
	// Published says that the run had been published before: nothing was done.
	Published bool
}

// Options configures New. Schedules, Store and Run must be set.
type Options struct {
	Schedules []*Schedule
	Store     Store
	// Run makes one attempt of a run and returns when it has ended; a cancelled
	// ctx ends it soon, whose cause wraps ErrReplaced where the next run is to
	// take its place, ErrOrderCancelled where it was ordered and is not wanted any
	// more, and otherwise is that of Runner.Run's ctx: such a run is asked for
	// again. After an error that is Lasting there is no retry. It is called by several
	// goroutines, once a job at a time.
	Run func(ctx context.Context, r Request) (Outcome, error)
	// Logger tells of runs that fail, of times that were missed and of schedules
	// that pause. nil discards.
	Logger *slog.Logger
}

// Status is what a schedule does now.
type Status struct {
	Job     string
	State   State
	Working time.Time // logical time of the run at work; zero = none
	Cause   string    // of the run at work
	Attempt int       // of the run at work
	Since   time.Time // start of the run at work
	Next    time.Time // logical time
	Err     error     // the state could not be loaded or saved: nothing starts
	// Holder is the process that runs the schedule, in a Shared store; empty =
	// none, or the store is not shared. Of another's, State is a few seconds old.
	Holder string
	Held   bool // Holder is this process
}

// Errors of Runner.
var (
	// ErrNoSchedule: no job of this name has a schedule.
	ErrNoSchedule = errors.New("schedule: no such schedule")
	// ErrReplaced is why a run is cancelled for the next one (overlap cancel).
	ErrReplaced = errors.New("schedule: the next run takes the place of this one")
	// ErrNotRunning: Run has returned.
	ErrNotRunning = errors.New("schedule: not running")
)

// Lasting returns an error that is err, and after which a run is not tried again: nothing
// but a change by somebody has it end better.
func Lasting(err error) error { return &lasting{err} }

type lasting struct{ error }

func (l *lasting) Unwrap() error { return l.error }

// Runner runs the schedules of a process: one goroutine a job, and one more while
// a run of it is at work. It is safe for concurrent use; Run is called once.
type Runner struct {
	o    Options
	jobs map[string]*job
}

// New returns a Runner.
func New(o *Options) (*Runner, error) {
	if o == nil || o.Store == nil || o.Run == nil {
		return nil, errors.New("schedule: Options.Store and Options.Run must be set")
	}
	r := &Runner{o: *o, jobs: map[string]*job{}}
	if r.o.Logger == nil {
		r.o.Logger = slog.New(slog.DiscardHandler)
	}
	for _, s := range o.Schedules {
		if r.jobs[s.job] != nil {
			return nil, fmt.Errorf("schedule: job %s is given twice", s.job)
		}
		r.jobs[s.job] = &job{
			runner: r, schedule: s, ended: make(chan Entry), asked: make(chan question),
			done: make(chan struct{}), nudge: make(chan struct{}, 1), status: Status{Job: s.job},
		}
	}
	return r, nil
}

// Run runs the schedules until ctx ends, then cancels what is at work and waits for
// it. A run that is cancelled so has not ended: it is pending when the next Runner
// starts.
func (r *Runner) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, j := range r.jobs {
		wg.Go(func() { j.run(ctx) })
	}
	wg.Wait()
}

// Status returns a status a job, by name.
func (r *Runner) Status() []Status {
	var all []Status
	for _, j := range r.jobs {
		j.mu.Lock()
		s := j.status
		s.State = j.status.State.clone()
		j.mu.Unlock()
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Status) int { return cmp.Compare(a.Job, b.Job) })
	return all
}

// Upcoming returns the next n logical times of a job. Its error wraps
// ErrNoSchedule.
func (r *Runner) Upcoming(job string, n int) ([]time.Time, error) {
	j := r.jobs[job]
	if j == nil {
		return nil, fmt.Errorf("%w: %s", ErrNoSchedule, job)
	}
	return j.schedule.Upcoming(time.Now(), j.State().Decided, n), nil
}

// History returns up to n entries of a job, the newest first. Its error wraps
// ErrNoSchedule.
func (r *Runner) History(ctx context.Context, job string, n int) ([]Entry, error) {
	if r.jobs[job] == nil {
		return nil, fmt.Errorf("%w: %s", ErrNoSchedule, job)
	}
	return r.o.Store.History(ctx, job, n)
}

// Pause keeps a job from starting until Resume, but for manual runs; what is at work
// ends. It returns when that is stored; in a Shared store that is the wish, which the
// process that runs the schedule answers within seconds. Its error wraps ErrNoSchedule
// or ErrNotRunning.
func (r *Runner) Pause(ctx context.Context, job string) error {
	_, err := r.ask(ctx, job, Wish{For: WishPause}, func(m *Machine, now time.Time) Decision {
		m.Pause()
		d := m.Tick(now)
		d.Changed = true
		return d
	})
	return err
}

// Resume ends a pause: the schedule goes on with the first time from now on. Its
// error wraps ErrNoSchedule or ErrNotRunning.
func (r *Runner) Resume(ctx context.Context, job string) error {
	_, err := r.ask(ctx, job, Wish{For: WishResume}, (*Machine).Resume)
	return err
}

// Order has a job run as q says, also while its schedule is paused or another run is at
// work: then it waits. It returns when the order is stored, so that it is carried out
// though this process end; what is open already is not ordered again. Its error wraps
// ErrNoSchedule, ErrInvalidOrder, ErrTooManyOrders, ErrOrderEnding or ErrNotRunning.
func (r *Runner) Order(ctx context.Context, job string, q OrderRequest) (Order, error) {
	j := r.jobs[job]
	if j == nil {
		return Order{}, fmt.Errorf("%w: %s", ErrNoSchedule, job)
	}
	want, err := j.schedule.Order(q, time.Now())
	if err != nil {
		return want, err
	}
	var refused error
	var accepted Order
	o, err := r.ask(ctx, job, Wish{For: WishOrder, Order: &want}, func(m *Machine, now time.Time) (d Decision) {
		accepted, d, refused = m.Order(want, now)
		return d
	})
	if err != nil {
		return o, err
	}
	if _, shared := r.o.Store.(Shared); !shared {
		o, err = accepted, refused
	}
	if err == nil {
		r.o.Logger.Info("export is ordered", "job", job, "order", o.ID, "cause", o.Cause, "time", o.From, "times", o.Times)
	}
	return o, err
}

// CancelOrder ends an order: what is at work of it is cancelled, the rest left out. It
// returns when that is stored, which in a Shared store is the wish, as with Pause. Its
// error wraps ErrNoSchedule, ErrNoOrder or ErrNotRunning.
func (r *Runner) CancelOrder(ctx context.Context, job, id string) error {
	var refused error
	_, err := r.ask(ctx, job, Wish{For: WishCancel, ID: id}, func(m *Machine, now time.Time) (d Decision) {
		d, refused = m.CancelOrder(id, now)
		return d
	})
	if err == nil {
		err = refused
	}
	return err
}

// Record adds the entry of a run that somebody has made by hand to the history of a job,
// and counts it. It returns when that is stored; in a Shared store that is the wish, as
// with Pause. Its error wraps ErrNoSchedule or ErrNotRunning.
func (r *Runner) Record(ctx context.Context, job string, e Entry) error {
	_, err := r.ask(ctx, job, Wish{For: WishRecord, Entry: &e}, func(m *Machine, now time.Time) Decision {
		return m.Record(e, now)
	})
	return err
}

// ask changes a job's Machine, or leaves word in a Shared store, which says of what
// order. Where its error is nil, change has returned.
func (r *Runner) ask(ctx context.Context, name string, w Wish, change func(*Machine, time.Time) Decision) (Order, error) {
	j := r.jobs[name]
	if j == nil {
		return Order{}, fmt.Errorf("%w: %s", ErrNoSchedule, name)
	}
	if s, ok := r.o.Store.(Shared); ok {
		return j.leaveWord(ctx, s, w)
	}
	q := question{change: change, stored: make(chan struct{})}
	asked := j.asked
	for {
		select {
		case asked <- q:
			asked = nil // once
		case <-q.stored:
			return Order{}, nil
		case <-j.done:
			return Order{}, fmt.Errorf("%w: %s", ErrNotRunning, name)
		case <-ctx.Done():
			return Order{}, ctx.Err()
		}
	}
}

// question asks a job to change its Machine.
type question struct {
	change func(*Machine, time.Time) Decision
	stored chan struct{} // closed when what it decided is stored
}

// longestSleep is how long a job trusts its timer: timers follow the monotonic
// clock, which stands still while a machine sleeps and knows nothing of a wall
// clock that was set.
const longestSleep = time.Minute

// storeRetry is the wait after the state could not be loaded or saved.
const storeRetry = 10 * time.Second

// job is one schedule at work.
type job struct {
	runner   *Runner
	schedule *Schedule
	ended    chan Entry
	asked    chan question
	done     chan struct{} // closed when run has returned

	cancel context.CancelCauseFunc // of the run at work; nil = none
	behind bool                    // the clock is, behind what was decided

	lose  context.CancelCauseFunc // ends the tenure in a Shared store
	nudge chan struct{}           // has the hold renewed now

	mu     sync.Mutex
	status Status
}

func (j *job) run(ctx context.Context) {
	defer close(j.done)
	if s, ok := j.runner.o.Store.(Shared); ok {
		j.runShared(ctx, s)
		return
	}
	var state State
	if !j.persist(ctx, func() (err error) { state, err = j.runner.o.Store.Load(ctx, j.schedule.job); return err }) {
		return
	}
	m := NewMachine(j.schedule, state)
	j.tenure(ctx, m, m.Tick(time.Now()))
}

// tenure runs the schedule from its first decision d on, until ctx ends; what is at
// work then has ended when it returns.
func (j *job) tenure(ctx context.Context, m *Machine, d Decision) {
	var stored chan struct{} // of the question that d answers
	for {
		if !j.apply(ctx, m, d) {
			break
		}
		if stored != nil {
			close(stored)
			stored = nil
		}
		timer := time.NewTimer(longestSleep)
		if !d.Wake.IsZero() {
			timer.Reset(min(longestSleep, max(0, time.Until(d.Wake))))
		}
		select {
		case <-timer.C:
			d = m.Tick(time.Now())
		case e := <-j.ended:
			j.working(Run{}, 0)
			j.cancel(nil)
			j.cancel = nil
			if ctx.Err() != nil {
				timer.Stop()
				j.last(m, e)
				return
			}
			d = m.Ended(time.Now(), e)
		case q := <-j.asked:
			d, stored = q.change(m, time.Now()), q.stored
		case <-ctx.Done():
			timer.Stop()
			j.drain(m)
			return
		}
		timer.Stop()
	}
	j.drain(m)
}

// drain ends the run at work.
func (j *job) drain(m *Machine) {
	if j.cancel == nil {
		return
	}
	j.cancel(nil) // its ctx has ended
	e := <-j.ended
	j.cancel = nil
	j.working(Run{}, 0)
	j.last(m, e)
}

// last stores the end of the run at work, after which nothing is begun. One that
// was cancelled stays pending; where the store fails it does, too, and is found
// published.
func (j *job) last(m *Machine, e Entry) {
	if e.Result == Cancelled {
		return
	}
	d := m.EndedLast(time.Now(), e)
	ctx, cancel := context.WithTimeout(context.Background(), storeRetry)
	defer cancel()
	if err := j.runner.o.Store.Save(ctx, j.schedule.job, m.State(), d.Entries); err != nil {
		j.runner.o.Logger.Warn("end of an export was not stored; it will be looked at again", "job", j.schedule.job, "err", err)
	}
}

// State returns the state as it was last shown.
func (j *job) State() State {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.status.State.clone()
}

// save stores what was decided. A schedule that is lost ends ctx.
func (j *job) save(ctx context.Context, s State, entries []Entry) error {
	err := j.runner.o.Store.Save(ctx, j.schedule.job, s, entries)
	if errors.Is(err, ErrLost) {
		j.lost(err)
	}
	return err
}

// apply stores what was decided and does it. It returns false where ctx has ended
// before.
func (j *job) apply(ctx context.Context, m *Machine, d Decision) bool {
	state := m.State()
	if d.Changed && !j.persist(ctx, func() error { return j.save(ctx, state, d.Entries) }) {
		return false
	}
	for _, e := range d.Entries {
		j.log(&e)
	}
	if state.Paused && !j.State().Paused {
		j.runner.o.Logger.Warn("schedule is paused", "job", j.schedule.job, "failures", state.Failures)
	}
	j.tellBehind(state.Decided)
	j.mu.Lock()
	j.status.State, j.status.Next = state, j.schedule.Next(state.Decided)
	j.mu.Unlock()
	if !d.Start.IsZero() {
		var run context.Context
		run, j.cancel = context.WithCancelCause(ctx)
		go j.attempts(run, Run{Logical: d.Start, Cause: d.Cause}) // ends with a send on ended, which run or drain takes
	}
	if d.Cancel && j.cancel != nil { // perhaps what was started just now
		if m.order != "" {
			j.cancel(ErrOrderCancelled)
		} else {
			j.cancel(ErrReplaced)
		}
	}
	return true
}

// tellBehind warns once where the clock has gone back behind what was decided: it may take
// days until the next start.
func (j *job) tellBehind(decided time.Time) {
	was := j.behind
	j.behind = time.Until(j.schedule.Start(decided)) > onTime
	if j.behind && !was {
		j.runner.o.Logger.Warn("the clock has gone back: times that have come already do not come again, and the schedule starts nothing before it is there again", "job", j.schedule.job, "time", decided)
	}
}

func (j *job) log(e *Entry) {
	switch e.Result {
	case Failed:
		j.runner.o.Logger.Error("scheduled export failed", "job", j.schedule.job, "time", e.Logical, "cause", e.Cause, "attempts", e.Attempts, "err", e.Error)
	case Missed, Skipped:
		j.runner.o.Logger.Warn("scheduled exports were left out", "job", j.schedule.job, "time", e.Logical, "count", e.Count, "reason", e.Result)
	}
}

// persist calls f until it succeeds, and returns false where ctx has ended.
func (j *job) persist(ctx context.Context, f func() error) bool {
	for {
		err := f()
		if err != nil && ctx.Err() != nil {
			return false // the store is not to blame
		}
		j.mu.Lock()
		news := err != nil && j.status.Err == nil
		j.status.Err = err
		j.mu.Unlock()
		if err == nil {
			return true
		}
		if news {
			j.runner.o.Logger.Error("state of a schedule cannot be stored; nothing starts until it can", "job", j.schedule.job, "err", err)
		}
		select {
		case <-time.After(storeRetry):
		case <-ctx.Done():
			return false
		}
	}
}

func (j *job) working(r Run, attempt int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.status.Working.Equal(r.Logical) {
		j.status.Since = time.Now()
	}
	j.status.Working, j.status.Cause, j.status.Attempt = r.Logical, r.Cause, attempt
}

// attempts makes a run, with its retries, and sends how it ended.
func (j *job) attempts(ctx context.Context, r Run) {
	e := Entry{Logical: r.Logical, Started: time.Now().UTC()}
	for {
		e.Attempts++
		j.working(r, e.Attempts)
		out, err := j.runner.o.Run(ctx, Request{Job: j.schedule.job, Logical: r.Logical, Cause: r.Cause, Attempt: e.Attempts, Confirm: j.confirm})
		if err == nil {
			e.Result, e.Error = OK, ""
			if out.Published {
				e.Result = Published
			}
			e.RunID, e.Rows, e.Bytes, e.PausedSeconds = out.RunID, out.Rows, out.Bytes, out.PausedSeconds
			break
		}
		e.Result, e.Error, e.PausedSeconds = Failed, err.Error(), out.PausedSeconds
		again := !errors.As(err, new(*lasting)) && e.Attempts <= j.schedule.spec.Retries
		if ctx.Err() == nil && again {
			wait := time.NewTimer(j.schedule.Backoff(e.Attempts))
			select {
			case <-wait.C:
				continue
			case <-ctx.Done():
				wait.Stop()
			}
		}
		if ctx.Err() != nil {
			e.Result = Cancelled
		}
		break
	}
	e.Ended = time.Now().UTC()
	j.ended <- e
}
