package jobs

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPace(1000)
		begun := time.Now()
		var workers sync.WaitGroup
		for range 4 {
			workers.Go(func() {
				for range 10 {
					if err := p.wait(t.Context(), 250); err != nil {
						t.Error(err)
					}
				}
			})
		}
		workers.Wait()
		if got := time.Since(begun); got != 10*time.Second {
			t.Errorf("Got %v for 10,000 rows at 1,000 a second, want 10 s", got)
		}
		// What was not used is not made up for.
		time.Sleep(time.Hour) // on the bubble's clock
		begun = time.Now()
		for range 2 {
			if err := p.wait(t.Context(), 500); err != nil {
				t.Error(err)
			}
		}
		if got := time.Since(begun); got != time.Second {
			t.Errorf("Got %v for 1,000 rows after a pause, want 1 s", got)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("no more")
		time.AfterFunc(time.Second, func() { cancel(cause) })
		if err := p.wait(ctx, 1_000_000); !errors.Is(err, cause) {
			t.Errorf("Got %v from a wait that was cancelled", err)
		}
	})
}

func TestNoPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if err := newPace(0).wait(t.Context(), 1<<40); err != nil || time.Since(begun) != 0 {
			t.Errorf("Got %v after %v without a bound", err, time.Since(begun))
		}
	})
}
