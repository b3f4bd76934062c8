package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"sluice/cell"
)

// BufferedMutatorOptions configures a BufferedMutator. The zero value is HBase's
// defaults.
type BufferedMutatorOptions struct {
	// BufferBytes is the memory of mutations beyond which the buffer is sent,
	// the mutation that crosses it included; 0 = 2 MiB
	// (hbase.client.write.buffer).
	BufferBytes int
	// MaxMutations is the number of mutations at which the buffer is sent; 0 =
	// any.
	MaxMutations int
	// FlushInterval is the age of its oldest mutation at which the buffer is
	// sent; 0 = any.
	FlushInterval time.Duration
	// MaxCellBytes is the largest cell that Mutate takes, key included; 0 =
	// DefaultMaxCellBytes, negative = any. The table has a limit of its own.
	MaxCellBytes int
	// Retries is how often what failed with ErrTransient is sent again; 0 = 15,
	// negative = never.
	Retries int
	// RetryPause is the pause before the first retry; they grow to 200 times
	// it, as HBase's do. 0 = 100 ms.
	RetryPause time.Duration
	// OnError takes what failed, in place of the results of Mutate, Flush and
	// Close, which then say nothing of it. The calls follow each other, on the
	// goroutine that sends: OnError must not call the BufferedMutator. nil =
	// calls return what failed. Set it where goroutines share a mutator and
	// each has to know of its own mutations.
	OnError func(*BufferedError)
}

// Validate reports numbers that make no sense, in an error that wraps
// ErrInvalidArgument.
func (o *BufferedMutatorOptions) Validate() error {
	if o.BufferBytes < 0 || o.MaxMutations < 0 || o.FlushInterval < 0 || o.RetryPause < 0 {
		return fmt.Errorf("%w: BufferBytes, MaxMutations, FlushInterval and RetryPause must not be negative", ErrInvalidArgument)
	}
	return nil
}

func (o BufferedMutatorOptions) withDefaults() BufferedMutatorOptions {
	if o.BufferBytes == 0 {
		o.BufferBytes = 2 << 20
	}
	if o.MaxCellBytes == 0 {
		o.MaxCellBytes = DefaultMaxCellBytes
	}
	if o.Retries == 0 {
		o.Retries = 15
	}
	if o.RetryPause == 0 {
		o.RetryPause = 100 * time.Millisecond
	}
	return o
}

// FailedMutation is a mutation that was not applied, and why.
type FailedMutation struct {
	Mutation *cell.Mutation // the buffer's copy, which is the receiver's from now on
	Err      error
}

// BufferedError is mutations that were not applied. They have left the buffer;
// what was sent with them and is not named was applied (HBase
// RetriesExhaustedWithDetailsException).
type BufferedError struct {
	Failed []FailedMutation // in the order in which they were buffered
}

// Error names the first failure and counts the rest.
func (e *BufferedError) Error() string {
	f := &e.Failed[0]
	text := fmt.Sprintf("store: buffered mutation of table %s, row %.100q: %v", f.Mutation.Table, f.Mutation.Row, f.Err)
	if n := len(e.Failed) - 1; n > 0 {
		text += fmt.Sprintf(" (and %d more)", n)
	}
	return text
}

// Unwrap returns the mutations' errors.
func (e *BufferedError) Unwrap() []error {
	errs := make([]error, len(e.Failed))
	for i := range e.Failed {
		errs[i] = e.Failed[i].Err
	}
	return errs
}

// BufferedMutator collects mutations of one table and commits many at once (HBase
// BufferedMutator). Nobody sees what is buffered, and a crash loses it: Flush, or
// Close, before relying on it. Make one with Table.BufferedMutator and Close it.
//
// What is buffered is sent as one Batch, one batch after the other, so that
// mutations take effect in the order in which Mutate took them. That holds for
// retries, too: a batch that fails with ErrTransient keeps its place until it is
// applied or given up. Of one that was applied in part (PartialError) only the rest
// is sent again, and nothing that fails with ErrUnknownOutcome. A mutation that the
// store refuses is taken out of its batch and reported; the others are applied. All
// mutations of a batch that name no time get the same one.
//
// Each failed mutation is reported once, with its error: to OnError, or else in
// the *BufferedError of the first call that returns after it has failed, which may
// concern mutations of earlier calls. A call that waited for a batch of which
// another call has got the failures returns ErrReported.
//
// It is safe for concurrent use. It holds two buffers, one filling and one being
// sent, each of at most BufferBytes and the mutations of one Mutate call; beyond
// that Mutate waits.
type BufferedMutator struct {
	engine Engine
	table  string
	opts   BufferedMutatorOptions
	wake   chan struct{} // capacity 1: something has changed for run
	abort  context.CancelFunc
	ended  chan struct{} // closed when run has returned

	mu       sync.Mutex
	filling  *bufferFlush
	sending  *bufferFlush     // nil while nothing is sent
	failures []FailedMutation // that no call has returned yet
	failed   int              // mutations that ever were among failures
	closed   bool
}

// BufferedMutator returns a write buffer for the table; o may be nil. Its error
// wraps ErrInvalidArgument.
func (t *Table) BufferedMutator(o *BufferedMutatorOptions) (*BufferedMutator, error) {
	if o == nil {
		o = &BufferedMutatorOptions{}
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("buffered mutator of %s: %w", t.name, err)
	}
	ctx, abort := context.WithCancel(context.Background())
	b := &BufferedMutator{
		engine: t.engine, table: t.name, opts: o.withDefaults(),
		wake: make(chan struct{}, 1), abort: abort, ended: make(chan struct{}),
		filling: newBufferFlush(),
	}
	go b.run(ctx)
	return b, nil
}

// Mutate buffers copies of ms, all or none. Where they fill the buffer, it waits
// until they have been sent; where the buffer is full and waits for the one before
// it to be sent, Mutate waits for that first.
//
// After a *BufferedError or ErrReported, which may concern other mutations, ms was
// taken. After any other error it was not: the error wraps ErrInvalidArgument
// (another table, a bad row key, no operations, a cell above MaxCellBytes, which
// is ErrCellTooLarge, too), ErrClosed, or that of ctx. Where ctx ends while ms is
// being sent, Mutate returns nil: ms is in the next Flush.
func (b *BufferedMutator) Mutate(ctx context.Context, ms ...*cell.Mutation) error {
	refuse := func(err error) error {
		return fmt.Errorf("buffer %d mutations of %s: %w", len(ms), b.table, err)
	}
	own, size := make([]Mutation, len(ms)), 0
	for i, m := range ms {
		if err := b.check(m); err != nil {
			return refuse(err)
		}
		own[i].Mutation = cloneMutation(m, b.table)
		size += mutationBytes(m)
	}
	if err := ctx.Err(); err != nil {
		return refuse(err)
	}
	b.mu.Lock()
	before := b.failed
	for !b.closed && b.full(b.filling) {
		taken := b.filling.taken
		b.mu.Unlock()
		select {
		case <-taken:
		case <-ctx.Done():
			return refuse(ctx.Err())
		}
		b.mu.Lock()
	}
	if b.closed {
		b.mu.Unlock()
		return refuse(ErrClosed)
	}
	f := b.filling
	first := f.add(own, size)
	full := b.full(f)
	f.wanted = f.wanted || full
	if first || full {
		b.signal()
	}
	b.mu.Unlock()
	after := before
	if full {
		select {
		case <-f.done:
			after = f.failed
		case <-ctx.Done():
		}
	}
	return b.report(before, after)
}

// Flush sends what Mutate has taken and waits until it is applied, as durably as
// the engine's Apply says, or has failed. Its error is a *BufferedError, which
// holds all failures that were not reported yet, ErrReported, ErrClosed, or wraps
// that of ctx: the sending then goes on.
func (b *BufferedMutator) Flush(ctx context.Context) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return fmt.Errorf("flush buffer of %s: %w", b.table, ErrClosed)
	}
	before := b.failed
	f := b.sending
	if len(b.filling.mutations) > 0 {
		f = b.filling // sent after the other
		f.wanted = true
		b.signal()
	}
	b.mu.Unlock()
	if f == nil {
		return b.report(before, before)
	}
	select {
	case <-f.done:
		return b.report(before, f.failed)
	case <-ctx.Done():
		return fmt.Errorf("flush buffer of %s: %w", b.table, ctx.Err())
	}
}

// Close flushes and ends the mutator: every later call but Close fails with
// ErrClosed. Its error is a *BufferedError with the failures that were not
// reported yet, or ErrReported. Where ctx ends first, what was not applied by then
// is given up and has failed, and the error wraps that of ctx, too.
func (b *BufferedMutator) Close(ctx context.Context) error {
	b.mu.Lock()
	before := b.failed
	b.closed = true
	b.filling.wanted = len(b.filling.mutations) > 0
	b.signal()
	b.mu.Unlock()
	var ended error
	select {
	case <-b.ended:
	case <-ctx.Done():
		ended = ctx.Err()
		b.abort()
		<-b.ended
	}
	b.mu.Lock()
	after := b.failed
	b.mu.Unlock()
	err := b.report(before, after)
	if err != nil && ended != nil {
		return fmt.Errorf("close buffer of %s: %w: %w", b.table, ended, err)
	}
	return err
}

// report returns the failures that no call has returned yet. Where others have
// got those of a flush that brought the failed from before to after, it says so.
func (b *BufferedMutator) report(before, after int) error {
	b.mu.Lock()
	failures := b.failures
	b.failures = nil
	b.mu.Unlock()
	switch {
	case len(failures) > 0:
		return &BufferedError{Failed: failures}
	case after > before:
		return fmt.Errorf("flush buffer of %s: %w", b.table, ErrReported)
	}
	return nil
}

// check is what HBase's client checks before it buffers
// (ConnectionUtils.validatePut), and what no table would take.
func (b *BufferedMutator) check(m *cell.Mutation) error {
	switch {
	case m == nil:
		return fmt.Errorf("%w: nil", ErrInvalidArgument)
	case m.Table != "" && CanonicalName(m.Table) != CanonicalName(b.table):
		return fmt.Errorf("%w: row %.100q is of table %s", ErrInvalidArgument, m.Row, m.Table)
	case len(m.Ops) == 0:
		return fmt.Errorf("%w: row %.100q: no columns to write", ErrInvalidArgument, m.Row)
	}
	if err := checkRow(m.Row); err != nil {
		return err
	}
	for i := range m.Ops {
		o := &m.Ops[i]
		if o.Type != cell.OpPut && o.Type != cell.OpAppend || b.opts.MaxCellBytes < 0 {
			continue
		}
		if size := CellSize(m.Row, o.Family, o.Qualifier, len(o.Value)); size > b.opts.MaxCellBytes {
			return fmt.Errorf("%w: row %.100q: %w: %s:%.100q has %d bytes, at most %d",
				ErrInvalidArgument, m.Row, ErrCellTooLarge, o.Family, o.Qualifier, size, b.opts.MaxCellBytes)
		}
	}
	return nil
}

// full reports whether f must be sent before more is added to it.
func (b *BufferedMutator) full(f *bufferFlush) bool {
	return f.bytes > b.opts.BufferBytes || b.opts.MaxMutations > 0 && len(f.mutations) >= b.opts.MaxMutations
}

func (b *BufferedMutator) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// run sends one buffer after the other until the mutator is closed.
func (b *BufferedMutator) run(ctx context.Context) {
	defer close(b.ended)
	defer b.abort()
	for {
		f, left, closed := b.next()
		switch {
		case f != nil:
			b.finish(f, b.send(ctx, f.mutations))
			continue
		case closed:
			return
		}
		var due <-chan time.Time
		if left > 0 {
			due = time.After(left)
		}
		select {
		case <-b.wake:
		case <-due:
		}
	}
}

// next takes the buffer where it is to be sent now. Else left is how long until
// its age demands it; 0 = never.
func (b *BufferedMutator) next() (f *bufferFlush, left time.Duration, closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f = b.filling
	if !f.wanted {
		if b.opts.FlushInterval == 0 || len(f.mutations) == 0 {
			return nil, 0, b.closed
		}
		if left = time.Until(f.begun.Add(b.opts.FlushInterval)); left > 0 {
			return nil, left, b.closed
		}
	}
	b.filling, b.sending = newBufferFlush(), f
	close(f.taken)
	return f, 0, false
}

// finish tells the outcome of f.
func (b *BufferedMutator) finish(f *bufferFlush, failed []FailedMutation) {
	if len(failed) > 0 && b.opts.OnError != nil {
		b.opts.OnError(&BufferedError{Failed: failed})
		failed = nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sending = nil
	b.failures = append(b.failures, failed...)
	b.failed += len(failed)
	f.failed, f.mutations = b.failed, nil
	close(f.done)
}

// send applies ms, whose offsets are their places, but for those that it returns.
func (b *BufferedMutator) send(ctx context.Context, ms []Mutation) []FailedMutation {
	errs := map[int64]error{} // by offset
	for left, attempt := ms, 1; len(left) > 0; {
		err := b.engine.Apply(ctx, &Batch{Mutations: left})
		if err == nil {
			break
		}
		if rest := withoutRefused(left, err, errs); len(rest) < len(left) {
			left = rest // nothing was applied: again, without them
			continue
		}
		if left = withoutLost(left, err, attempt, errs); len(left) == 0 || attempt > b.opts.Retries || !pause(ctx, retryPause(b.opts.RetryPause, attempt)) {
			break
		}
		for i := range left {
			delete(errs, left[i].Offset)
		}
		attempt++
	}
	var failed []FailedMutation
	for i := range ms {
		if err := errs[ms[i].Offset]; err != nil {
			failed = append(failed, FailedMutation{Mutation: &ms[i].Mutation, Err: err})
		}
	}
	return failed
}

// withoutLost puts into errs why those of ms were not applied that err, of the
// attempt-th batch of them, says were not, and returns those that may be sent again.
func withoutLost(ms []Mutation, err error, attempt int, errs map[int64]error) (again []Mutation) {
	note := func(m *Mutation, err error) {
		if retryable(err) {
			again = append(again, *m)
		}
		if attempt > 1 {
			err = fmt.Errorf("%d attempts: %w", attempt, err)
		}
		errs[m.Offset] = err
	}
	var partial *PartialError
	if !errors.As(err, &partial) {
		for i := range ms {
			note(&ms[i], err)
		}
		return again
	}
	for _, f := range partial.Failed { // the others were applied
		if i, ok := slices.BinarySearchFunc(ms, f.Offset, func(m Mutation, offset int64) int { return cmp.Compare(m.Offset, offset) }); ok {
			note(&ms[i], f.Err)
		}
	}
	return again
}

// withoutRefused returns those of ms that err, of a batch of them, does not refuse,
// and puts the errors of the others into errs.
func withoutRefused(ms []Mutation, err error, errs map[int64]error) []Mutation {
	var refused *BatchError
	if !errors.As(err, &refused) {
		return ms
	}
	for i := range refused.Refused {
		errs[refused.Refused[i].Offset] = refused.Refused[i].Err
	}
	rest := make([]Mutation, 0, len(ms))
	for i := range ms {
		if errs[ms[i].Offset] == nil {
			rest = append(rest, ms[i])
		}
	}
	return rest
}
