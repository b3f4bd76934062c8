package work

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestParallel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var at, most, done atomic.Int32
		begun := time.Now()
		err := Parallel(t.Context(), 3, 7, func(context.Context, int) error {
			at.Add(1)
			time.Sleep(time.Second / 2) // all that begin now have
			most.Store(max(most.Load(), at.Load()))
			time.Sleep(time.Second / 2)
			at.Add(-1)
			done.Add(1)
			return nil
		})
		// Seven parts of a second, three at a time.
		if took := time.Since(begun); err != nil || done.Load() != 7 || most.Load() != 3 || took != 3*time.Second {
			t.Errorf("Got %d parts, %d at a time, in %s, %v", done.Load(), most.Load(), took, err)
		}
	})
}

func TestParallelEndsWithTheFirstError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		var begun, ended atomic.Int32
		err := Parallel(t.Context(), 2, 10, func(ctx context.Context, i int) error {
			begun.Add(1)
			defer ended.Add(1)
			if i == 0 {
				time.Sleep(time.Second)
				return broken
			}
			<-ctx.Done() // the error of another ends it
			return ctx.Err()
		})
		if !errors.Is(err, broken) || begun.Load() != 2 || ended.Load() != 2 {
			t.Errorf("Got %v of %d parts, %d ended", err, begun.Load(), ended.Load())
		}
	})
}

func TestParallelCancelled(t *testing.T) {
	t.Parallel()
	why := errors.New("the caller's reason")
	for _, cause := range []error{nil, why} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		err := Parallel(ctx, 1, 3, func(ctx context.Context, _ int) error { return ctx.Err() })
		if !errors.Is(err, context.Canceled) || cause != nil && !errors.Is(err, cause) {
			t.Errorf("Got %v", err)
		}
	}
}

func TestReporter(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(0)
	var got Progress
	var r Reporter
	r.Start(func(p Progress) { got = p }, func() time.Time { return at }, 4)
	r.Regions()
	at = at.Add(3 * time.Second)
	r.Rows(5)
	r.RegionDone(2)
	if want := (Progress{Regions: 4, RegionsDone: 1, Rows: 7, Elapsed: 3 * time.Second, Done: 0.25}); got != want {
		t.Errorf("Got %+v, want %+v", got, want)
	}
	r.File(100)
	if want := (Progress{Regions: 4, RegionsDone: 1, Rows: 7, Files: 1, Bytes: 100, Elapsed: 3 * time.Second, Done: 0.5}); got != want {
		t.Errorf("Got %+v, want %+v", got, want)
	}
	var silent Reporter // nobody wants to know
	silent.Start(nil, time.Now, 1)
	silent.Rows(1)
}
