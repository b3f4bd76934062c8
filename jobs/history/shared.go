package history

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"sluice/cell"
	"sluice/jobs/schedule"
	"sluice/store"
)

var _ schedule.Shared = (*Shared)(nil)

// Shared is a History in a store that several processes write to, such as
// several daemons on one HBase. A job's row of store.JobsTable changes by check-and-put
// alone; one process at a time holds the schedule, and what any other would store is
// refused (schedule.Shared). It needs nothing of the engine but atomic rows:
// docs/format/jobs.md has how state and history stay in step. It is safe for
// concurrent use and borrows the engine.
type Shared struct {
	engine store.Engine
	name   string
	lease  time.Duration
	now    func() time.Time

	mu   sync.Mutex // guards jobs, not what they hold
	jobs map[string]*sharedJob
}

// SharedOptions configures NewShared.
type SharedOptions struct {
	// Process names this one to whoever reads who holds a schedule. Default: host
	// and process id.
	Process string
	// Lease is for how long a hold must not have been renewed before it is taken.
	// Default: schedule.Lease.
	Lease time.Duration
	// Now is a clock whose differences are true. Default: time.Now.
	Now func() time.Time
}

// sharedJob is what a process knows of a job's row. Whoever has its token uses it.
type sharedJob struct {
	token chan struct{}

	held    bool
	row     sharedRow // as this process has written it, while held
	written bool      // its entries are in the history

	seen   []byte    // value of another holder's row
	seenAt time.Time // since when it has been that
}

// sharedRow is the row of a job, and its value in j:state.
type sharedRow struct {
	Kept
	value []byte // nil = there is none
	time  cell.Timestamp
}

// Kept is the JSON of what is kept of a schedule; an engine with atomic batches keeps its
// State alone.
type Kept struct {
	schedule.State
	Holder   string           `json:"holder,omitempty"`
	Revision int64            `json:"revision"` // the cell's timestamp
	Asked    schedule.Ask     `json:"asked,omitzero"`
	Entries  []schedule.Entry `json:"entries,omitempty"` // of the newest decision; perhaps not in the history yet
}

// NewShared returns the history in an engine for a process, which is another
// one each time. o may be nil.
func NewShared(e store.Engine, o *SharedOptions) *Shared {
	if o == nil {
		o = new(SharedOptions)
	}
	h := &Shared{engine: e, name: o.Process, lease: o.Lease, now: o.Now, jobs: map[string]*sharedJob{}}
	if h.name == "" {
		host, _ := os.Hostname() // it is for people
		h.name = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	h.name += "/" + rand.Text()[:8]
	if h.lease == 0 {
		h.lease = schedule.Lease
	}
	if h.now == nil {
		h.now = time.Now
	}
	return h
}

// Name is this process in Claim.Holder: its name, and a text that no other has.
func (h *Shared) Name() string { return h.name }

// use returns a job, which is the caller's until it calls done.
func (h *Shared) use(ctx context.Context, job string) (j *sharedJob, done func(), err error) {
	h.mu.Lock()
	if j = h.jobs[job]; j == nil {
		j = &sharedJob{token: make(chan struct{}, 1)}
		h.jobs[job] = j
	}
	h.mu.Unlock()
	select {
	case j.token <- struct{}{}:
		return j, func() { <-j.token }, nil
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// read returns the row of a job.
func (h *Shared) read(ctx context.Context, job string) (r sharedRow, err error) {
	row, err := store.GetRow(ctx, h.engine, store.JobsTable, stateRow(job))
	if row == nil {
		return r, err
	}
	for _, c := range row.Cells {
		if string(c.Qualifier) == stateColumn {
			r.value, r.time = c.Value, c.Time
		}
	}
	if err := json.Unmarshal(r.value, &r.Kept); err != nil {
		return r, fmt.Errorf("%w: schedule of job %s: %w", store.ErrCorrupt, job, err)
	}
	return r, nil
}

// swap replaces the row old by next, and reports false where it is another one by now.
func (h *Shared) swap(ctx context.Context, job string, old sharedRow, next Kept) (r sharedRow, ok bool, err error) {
	// No server's clock decides what is the newest.
	next.Revision = int64(old.time) + 1
	r = sharedRow{Kept: next, time: cell.Timestamp(next.Revision)}
	if r.value, err = json.Marshal(&next); err != nil {
		return r, false, fmt.Errorf("encode a %s: %w", stateColumn, err)
	}
	m := cell.Mutation{Table: store.JobsTable, Row: stateRow(job)}
	m.Put(store.JobsFamily, []byte(stateColumn), r.time, r.value)
	res, err := h.engine.MutateRow(ctx, &store.Cond{Family: store.JobsFamily, Qualifier: []byte(stateColumn), Op: store.Equal, Value: old.value}, &m)
	if errors.Is(err, store.ErrUnknownOutcome) {
		now, rerr := h.read(ctx, job)
		switch {
		case rerr != nil:
			return r, false, errors.Join(err, rerr)
		case bytes.Equal(now.value, r.value):
			return r, true, nil
		case bytes.Equal(now.value, old.value):
			return r, false, err // not yet, or never; trying again does no harm
		}
		return r, false, nil
	}
	return r, res.Applied, err
}

// write adds entries to the history. Writing them again changes nothing.
func (h *Shared) write(ctx context.Context, job string, entries []schedule.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	var b store.Batch
	for i := range entries {
		e := &entries[i]
		if err := addJSON(&b, entryRow(job, e), entryColumn, cell.Timestamp(e.Ended.UnixMilli()), historyTTL, e); err != nil {
			return err
		}
	}
	if err := h.engine.Apply(ctx, &b); err != nil {
		return fmt.Errorf("save the history of job %s: %w", job, err)
	}
	return nil
}

// Load returns the state of a job's schedule, whoever holds it.
func (h *Shared) Load(ctx context.Context, job string) (schedule.State, error) {
	r, err := h.read(ctx, job)
	return r.State, err
}

// History returns up to n entries of a job, the newest first.
func (h *Shared) History(ctx context.Context, job string, n int) ([]schedule.Entry, error) {
	return Entries(ctx, h.engine, job, n)
}

// Take implements schedule.Shared.
func (h *Shared) Take(ctx context.Context, job string) (c schedule.Claim, err error) {
	j, done, err := h.use(ctx, job)
	if err != nil {
		return c, err
	}
	defer done()
	j.held = false
	r, err := h.read(ctx, job)
	if err != nil {
		return c, err
	}
	if r.Holder != "" && r.Holder != h.name {
		now := h.now()
		if !bytes.Equal(j.seen, r.value) {
			j.seen, j.seenAt = r.value, now
		}
		if now.Sub(j.seenAt) < h.lease {
			return schedule.Claim{Holder: r.Holder, State: r.State, Asked: r.Asked}, nil
		}
	}
	// What the holder before may not have got to.
	if err := h.write(ctx, job, r.Entries); err != nil {
		return c, err
	}
	next := r.Kept
	next.Holder, next.Entries = h.name, nil
	r, ok, err := h.swap(ctx, job, r, next)
	if err != nil {
		return c, fmt.Errorf("take the schedule of job %s: %w", job, err)
	}
	if !ok {
		j.seen = nil
		return schedule.Claim{State: next.State}, nil // by another, or asked for something: next time
	}
	j.held, j.row, j.written = true, r, true
	return h.claim(j), nil
}

func (h *Shared) claim(j *sharedJob) schedule.Claim {
	return schedule.Claim{Held: true, Holder: h.name, State: j.row.State, Asked: j.row.Asked}
}

// change replaces the row that this process holds; somebody may have asked for
// something in between. Its error wraps schedule.ErrLost.
func (h *Shared) change(ctx context.Context, job string, j *sharedJob, what string, change func(s *Kept)) error {
	for j.held {
		next := j.row.Kept
		change(&next)
		r, ok, err := h.swap(ctx, job, j.row, next)
		if err != nil {
			return fmt.Errorf("%s of job %s: %w", what, job, err)
		}
		if ok {
			j.row = r
			return nil
		}
		if r, err = h.read(ctx, job); err != nil {
			return fmt.Errorf("%s of job %s: %w", what, job, err)
		}
		if r.Holder != h.name {
			j.held = false
			return fmt.Errorf("%s of job %s: %w: %s", what, job, schedule.ErrLost, holderText(r.Holder))
		}
		j.row = r
	}
	return fmt.Errorf("%s of job %s: %w", what, job, schedule.ErrLost)
}

func holderText(holder string) string {
	if holder == "" {
		return "it was taken and given up again"
	}
	return holder
}

// Renew implements schedule.Shared.
func (h *Shared) Renew(ctx context.Context, job string) (c schedule.Claim, err error) {
	j, done, err := h.use(ctx, job)
	if err != nil {
		return c, err
	}
	defer done()
	if err := h.change(ctx, job, j, "renew the hold of the schedule", func(*Kept) {}); err != nil {
		return c, err
	}
	return h.claim(j), nil
}

// Save implements schedule.Store. The entries are in the row of the state until they
// are in the history, so that both are decided by one write.
func (h *Shared) Save(ctx context.Context, job string, s schedule.State, entries []schedule.Entry) error {
	j, done, err := h.use(ctx, job)
	if err != nil {
		return err
	}
	defer done()
	if j.held && !j.written { // after an error
		if err := h.write(ctx, job, j.row.Entries); err != nil {
			return err
		}
		j.written = true
	}
	if err := h.change(ctx, job, j, "save the schedule", func(n *Kept) { n.State, n.Entries = s, entries }); err != nil {
		return err
	}
	j.written = false
	if err := h.write(ctx, job, entries); err != nil {
		return err
	}
	j.written = true
	return nil
}

// Release implements schedule.Shared.
func (h *Shared) Release(ctx context.Context, job string) error {
	j, done, err := h.use(ctx, job)
	if err != nil {
		return err
	}
	defer done()
	if !j.held {
		return nil
	}
	err = h.change(ctx, job, j, "give up the schedule", func(s *Kept) { s.Holder = "" })
	j.held = false
	return err
}

// Ask implements schedule.Shared.
func (h *Shared) Ask(ctx context.Context, job string, w schedule.Wish) (schedule.Order, error) {
	for {
		r, err := h.read(ctx, job)
		if err != nil {
			return schedule.Order{}, err
		}
		next := r.Kept
		order, err := next.Asked.Add(&r.State, w)
		if err != nil {
			return order, err
		}
		if next.Asked.N == r.Asked.N {
			return order, nil // it was asked for before
		}
		_, ok, err := h.swap(ctx, job, r, next)
		if err != nil {
			return order, fmt.Errorf("ask for the schedule of job %s: %w", job, err)
		}
		if ok {
			return order, nil
		}
	}
}
