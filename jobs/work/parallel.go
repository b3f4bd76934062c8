package work

import (
	"context"
	"runtime"
	"sync"
)

// Parallel calls do for 0 to n-1, at most limit at a time (0 = GOMAXPROCS), in
// order of their beginning. The first error ends the context of the others, and is
// returned when all have ended.
func Parallel(ctx context.Context, limit, n int, do func(ctx context.Context, i int) error) error {
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
	return context.Cause(ctx)
}
