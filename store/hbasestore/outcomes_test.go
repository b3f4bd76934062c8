package hbasestore

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sluice/store"
)

// A check-and-put whose outcome nobody gets to know is made again until the deadline, and
// then told as what may be tried again; whoever applies the batch again begins with what
// is there.
func TestUnknownOutcomesEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newPipeGateway(t, "a", newMem(t))
		s := dial(t, func(o *Options) { o.RetryTimeout = 300 * time.Millisecond; o.pause = retryPause }, g)
		g.inject(func(method string) fault { return fault{internal: method == "checkAndMutate"} })
		b := &store.Batch{}
		b.Advance(store.Source{Pipeline: "p", Topic: "t", ClusterID: "c"}, 0, store.Absent, store.Progress{Next: 1, Applied: 1})
		begun := time.Now()
		if err := s.Apply(t.Context(), b); !errors.Is(err, store.ErrTransient) || errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("Got %v, want ErrTransient alone", err)
		}
		if took := time.Since(begun); took > 8*time.Second {
			t.Errorf("Got the end after %v with RetryTimeout 300 ms", took)
		}
		if n := g.count("checkAndMutate"); n < 2 || n > 20 {
			t.Errorf("Got %d calls in 300 ms", n)
		}
		g.inject(nil)
		if err := s.Apply(t.Context(), b); err != nil {
			t.Error(err)
		}
		if err := s.Apply(t.Context(), b); !errors.Is(err, store.ErrStale) {
			t.Errorf("Got %v of a batch that was applied, want ErrStale", err)
		}
	})
}

// A row's streak ends with a known outcome, and is none of another row.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	var o outcomes
	at := time.Unix(100, 0)
	for i, step := range []struct {
		key     string
		unknown bool
		n       int
		since   time.Duration
	}{
		{"a", true, 1, 0}, {"a", true, 2, 0}, {"b", true, 1, 2}, {"a", false, 0, 3}, {"a", true, 1, 4}, {"b", true, 2, 2}, {"b", false, 0, 6}, {"a", false, 0, 7},
	} {
		n, since := o.note(step.key, at.Add(time.Duration(i)), step.unknown)
		if n != step.n || !since.Equal(at.Add(step.since)) {
			t.Errorf("Step %d: got %d since %v, want %d since %v", i, n, since, step.n, at.Add(step.since))
		}
	}
	if len(o.rows) != 0 {
		t.Errorf("Got %d rows left", len(o.rows))
	}
}
