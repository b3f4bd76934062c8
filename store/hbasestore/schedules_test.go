package hbasestore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/jobs/history"
	"sluice/jobs/schedule"
	"sluice/store"
)

// TestSharedSchedules: of two processes one holds a schedule on HBase; what the other
// would store is refused, also after a lease and when answers are lost.
func TestSharedSchedules(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g := newGateway(t, nil, false)
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	process := func(name string) *history.Shared {
		return history.NewShared(dial(t, nil, g), &history.SharedOptions{Process: name, Lease: time.Minute, Now: func() time.Time { return now }})
	}
	a, b := process("a"), process("b")
	take := func(h *history.Shared, want bool) schedule.Claim {
		t.Helper()
		c, err := h.Take(ctx, "job")
		if err != nil || c.Held != want {
			t.Fatalf("Got %+v, %v, want held %t", c, err, want)
		}
		return c
	}
	entry := func(hour int) schedule.Entry {
		l := time.Date(2026, 5, 1, hour, 0, 0, 0, time.UTC)
		return schedule.Entry{Logical: l, Result: schedule.OK, Count: 1, Started: l, Ended: l.Add(time.Minute)}
	}
	take(a, true)
	if c := take(b, false); c.Holder != a.Name() {
		t.Errorf("Got holder %q, want %q", c.Holder, a.Name())
	}
	first := schedule.State{Decided: now, Results: map[string]int64{schedule.OK: 1}}
	// The answer is lost, of what was done and of what was not.
	for _, f := range []fault{{dropAfter: true}, {dropBefore: true}} {
		g.first(1, "checkAndMutate", f)
		err := a.Save(ctx, "job", first, []schedule.Entry{entry(1)})
		for errors.Is(err, store.ErrUnknownOutcome) {
			err = a.Save(ctx, "job", first, []schedule.Entry{entry(1)})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// The state is decided, and the history is not written.
	g.inject(func(method string) fault {
		if strings.HasPrefix(method, "put") {
			return fault{text: "org.apache.hadoop.hbase.security.AccessDeniedException: no"}
		}
		return fault{}
	})
	second := schedule.State{Decided: now.Add(time.Hour), Pending: []schedule.Run{{Logical: now, Cause: schedule.CatchUp}}, Answered: 7}
	if err := a.Save(ctx, "job", second, []schedule.Entry{entry(2), entry(3)}); err == nil {
		t.Fatal("a history that is not written is no error")
	}
	g.inject(nil)
	now = now.Add(30 * time.Second)
	if _, err := a.Renew(ctx, "job"); err != nil {
		t.Fatal(err)
	}
	now = now.Add(31 * time.Second)
	take(b, false) // it was renewed since
	if err := b.Save(ctx, "job", first, nil); !errors.Is(err, schedule.ErrLost) {
		t.Errorf("Got %v of who does not hold it", err)
	}
	if _, err := b.Ask(ctx, "job", schedule.Wish{For: schedule.WishPause}); err != nil {
		t.Fatal(err)
	}
	if c, err := a.Renew(ctx, "job"); err != nil || !cmp.Equal(c.Asked, schedule.Ask{N: 1, Wishes: []schedule.Wish{{N: 1, For: schedule.WishPause}}}) {
		t.Errorf("Got %+v, %v, want what was asked for", c, err)
	}
	take(b, false)
	now = now.Add(time.Minute)
	c := take(b, true) // nothing was renewed
	if d := cmp.Diff(second, c.State); d != "" || c.Asked.N != 1 {
		t.Errorf("asked %+v, state (-want +got):\n%s", c.Asked, d)
	}
	entries, err := b.History(ctx, "job", 9)
	if d := cmp.Diff([]schedule.Entry{entry(3), entry(2), entry(1)}, entries); err != nil || d != "" {
		t.Errorf("%v, history (-want +got):\n%s", err, d)
	}
	// Who was stopped meanwhile finds out, also when the schedule is free again.
	if err := b.Release(ctx, "job"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Renew(ctx, "job"); !errors.Is(err, schedule.ErrLost) {
		t.Errorf("renew: Got %v, want ErrLost", err)
	}
	if err := a.Save(ctx, "job", first, nil); !errors.Is(err, schedule.ErrLost) {
		t.Errorf("save: Got %v, want ErrLost", err)
	}
	take(a, true)
	if _, err := b.Renew(ctx, "job"); !errors.Is(err, schedule.ErrLost) {
		t.Errorf("Got %v, want ErrLost", err)
	}
}
