package work

import (
	"context"
	"errors"
	"runtime"
	"sync"
)

// Parallel calls do for 0 to n-1, at most limit at a time (0 = GOMAXPROCS), in
// order of their beginning. The first error ends the context of the others, and is
// returned when all have ended; where ctx ends before, why, as First has it.
func Parallel(ctx context.Context, limit, n int, do func(ctx context.Context, i int) error) error {
	outer := ctx
	if limit <= 0 {
		limit = runtime.GOMAXPROCS(0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan int)
	var wg sync.WaitGroup
	for range min(limit, n) {
		wg.Go(func() {
			for i := range work {
				if err := do(ctx, i); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
feed:
	for i := range n {
		select {
		case work <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(work)
	wg.Wait()
	return First(outer, ctx)
}

// First returns why ctx, which was derived from outer, has ended; nil where it has not. Where
// outer has ended it with a cause, that wraps the error of outer, too.
func First(outer, ctx context.Context) error {
	cause, err := context.Cause(ctx), outer.Err()
	if err == nil || errors.Is(cause, err) || !errors.Is(cause, context.Cause(outer)) {
		return cause
	}
	return &endedError{cause, err}
}

// endedError is the cause of a context's end.
type endedError struct{ cause, err error }

func (e *endedError) Error() string   { return e.cause.Error() }
func (e *endedError) Unwrap() []error { return []error{e.cause, e.err} }
