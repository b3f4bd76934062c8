package hbasestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// request is how a call is made.
type request struct {
	what  string // for errors: "scan", "put"
	table string // "" = none
	row   []byte // for errors, which are a *store.RowError then; nil = none, or several
	// once says that the call must not be made again when it may have been
	// applied: its loss is store.ErrUnknownOutcome then.
	once bool
	// whole says that it puts a whole schema into the place of another, so that it must
	// not be made again where somebody else has altered the table meanwhile: that would be
	// undone. The change of one family is made of what the table is then.
	whole bool
	// rows says that it reads or writes rows of the table, which is asked about where no
	// answer comes: see watch.
	rows bool
	// scan says that it looks for rows, which may take longer than the timeout where the
	// gateway works.
	scan    bool
	timeout time.Duration // 0 = Options.CallTimeout
	gateway *gateway      // nil = any
	avoid   *gateway      // it has failed the try before: another is asked where one works
	served  **gateway     // where not nil, is told which one it was
}

func (r *request) fail(err error) error {
	switch {
	case r.row != nil:
		return atRow(r.table, r.row, "%s: %w", r.what, err)
	case r.table == "":
		return fmt.Errorf("%s: %w", r.what, err)
	}
	return fmt.Errorf("%s %s: %w", r.what, r.table, err)
}

// caller is what a call does on its connection.
type caller = func(context.Context, *hbase.THBaseServiceClient) error

// call makes a call, and makes it again where it may and HBase may have recovered.
func (s *Store) call(ctx context.Context, r request, f caller) error {
	ctx, end, err := s.begin(ctx, false)
	if err != nil {
		return r.fail(err)
	}
	defer end()
	return s.retry(ctx, r, f)
}

// retry is call inside a call or scan that has begun.
func (s *Store) retry(ctx context.Context, r request, f caller) error {
	deadline := time.Now().Add(s.o.RetryTimeout)
	var served *gateway
	if r.served == nil {
		r.served = &served
	}
	for attempt := 0; ; attempt++ {
		sent, err := s.try(ctx, r, f)
		switch {
		case err == nil:
			return nil
		case r.once && sent && lost(err):
			return r.fail(fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err))
		case errors.Is(err, store.ErrTableReadOnly):
			s.schemas.forget(r.table) // what is known of it says otherwise
			return r.fail(err)
		case context.Cause(ctx) != nil || !errors.Is(err, store.ErrTransient) || r.whole && errors.Is(err, errAltered):
			return r.fail(err)
		}
		if r.avoid = nil; !neutral(err) {
			r.avoid = *r.served
		}
		if errors.Is(err, errNotServing) && r.table != "" {
			s.regions.forget(r.table) // it was moved, or split
			if s.disabled(ctx, r.table) {
				return r.fail(&store.DisabledError{Table: r.table})
			}
		}
		if !time.Now().Before(deadline) {
			return r.fail(err)
		}
		if err := s.wait(ctx, attempt); err != nil {
			return r.fail(err)
		}
	}
}

// wait pauses before the call that follows attempt.
func (s *Store) wait(ctx context.Context, attempt int) error {
	pause := time.NewTimer(s.o.pause(attempt))
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-ctx.Done():
		return cause(ctx)
	}
}

// retryPause is 50 ms, doubled with each attempt up to 5 s, less a random part of
// up to its half, so that callers which failed together do not come back together.
func retryPause(attempt int) time.Duration {
	pause := min(50*time.Millisecond<<min(attempt, 10), 5*time.Second)
	return pause - rand.N(pause/2)
}

// try makes a call once. sent says that it may have been applied; the error is the
// context's where that ended it, else classed.
func (s *Store) try(ctx context.Context, r request, f caller) (sent bool, err error) {
	if why := cause(ctx); why != nil {
		return false, why
	}
	if r.rows && s.off.known(r.table) && s.disabled(ctx, r.table) {
		return false, &store.DisabledError{Table: r.table}
	}
	c, err := s.pool.get(ctx, r.gateway, r.avoid)
	if err != nil {
		return false, err
	}
	timeout := r.timeout
	if timeout == 0 {
		timeout = s.o.CallTimeout
	}
	if r.served != nil {
		*r.served = c.gateway
	}
	if r.rows {
		var done func()
		ctx, done = s.watch(ctx, c.gateway, r.table)
		defer done()
	}
	sent, broken, err := c.call(ctx, timeout, f)
	why := cause(ctx)
	switch {
	case broken && why != nil:
		s.pool.drop(c)
		if err == nil {
			return true, nil // it was answered just before
		}
		return sent, &lostError{why}
	case broken && r.scan && errors.Is(err, os.ErrDeadlineExceeded):
		s.pool.suspect(c)
		return sent, &lostError{fmt.Errorf("%w: gateway %s: %w", store.ErrTransient, c.gateway.address, err)}
	case broken:
		s.pool.put(c, err, nil)
		return sent, &lostError{fmt.Errorf("%w: gateway %s: %w", store.ErrTransient, c.gateway.address, err)}
	}
	err = classify(r.table, err)
	s.pool.put(c, nil, err)
	return sent, err
}

// ownCause is a cause for which the store itself ends the context of a call.
type ownCause struct{ error }

func (c ownCause) Unwrap() error { return c.error }

// cause returns why ctx has ended: its error, and with it the cause that the caller of the
// store has given, or one of the store's own; nil where it has not.
func cause(ctx context.Context) error {
	err, why := ctx.Err(), context.Cause(ctx)
	var own ownCause
	if err == nil || errors.Is(why, err) || errors.As(why, &own) {
		return why
	}
	return fmt.Errorf("%w: %w", err, why)
}

// lostError is the end of a connection before the answer was read.
type lostError struct{ err error }

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// lost reports whether it is unknown what became of the call that err ended.
func lost(err error) bool {
	if errors.Is(err, errAltered) {
		return false // HBase has looked, and left it
	}
	var l *lostError
	return errors.As(err, &l) || errors.Is(err, store.ErrTransient) || errors.Is(err, errInternal)
}
