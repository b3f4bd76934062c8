package history_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"sluice/jobs/history"
	"sluice/jobs/schedule"
	"sluice/store"
	"sluice/store/memstore"
)

// rowAtomic is a store whose batches are not atomic, as HBase's.
type rowAtomic struct{ store.Engine }

func (r rowAtomic) Traits() store.Traits {
	t := r.Engine.Traits()
	t.Atomic = store.AtomicRow
	return t
}

func newMemstore(t *testing.T) *memstore.Store {
	t.Helper()
	e, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// began is some time that the history still keeps.
var began = time.Now().Add(-24 * time.Hour).Truncate(time.Second).UTC()

// byHand is the entry of a run that somebody has made by hand.
func byHand(second int64) schedule.Entry {
	at := began.Add(time.Duration(second) * time.Second)
	return schedule.Entry{Logical: at, Result: schedule.OK, Count: 1, Cause: schedule.Manual, Started: at, Ended: at.Add(time.Minute), Attempts: 1, RunID: "r", Rows: 7}
}

// TestRecord: a run is in the history and in the counts once, however often it is
// told, and the state of the schedule stays as it is otherwise.
func TestRecord(t *testing.T) {
	t.Parallel()
	for _, atomic := range []store.Atomicity{store.AtomicBatch, store.AtomicRow} {
		t.Run(fmt.Sprint(atomic), func(t *testing.T) {
			t.Parallel()
			var e store.Engine = newMemstore(t)
			if atomic == store.AtomicRow {
				e = rowAtomic{e}
			}
			before := schedule.State{Decided: time.Unix(5, 0).UTC(), Failures: 3, Paused: true, Results: map[string]int64{"ok": 9}}
			if err := saveState(t, e, before); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				for _, at := range []int64{100, 200} {
					if left, err := history.Record(t.Context(), e, "j", byHand(at)); left || err != nil {
						t.Fatalf("Got %t, %v", left, err)
					}
				}
			}
			st, err := history.State(t.Context(), e, "j")
			if err != nil || fmt.Sprint(st.Ordered) != "map[manual:map[ok:2]]" || !st.Paused || st.Failures != 3 || fmt.Sprint(st.Results) != "map[ok:9]" || !st.Decided.Equal(before.Decided) {
				t.Errorf("Got %+v, %v", st, err)
			}
			old := byHand(100)
			old.Ended = old.Ended.Add(-401 * 24 * time.Hour)
			if _, err := history.Record(t.Context(), e, "j", old); err != nil {
				t.Error(err)
			}
			all, err := history.Entries(t.Context(), e, "j", 10)
			if err != nil || len(all) != 2 || all[0] != byHand(200) || all[1] != byHand(100) {
				t.Errorf("Got %+v, %v", all, err)
			}
			for _, change := range []func(e *schedule.Entry){
				func(e *schedule.Entry) { e.Cause = schedule.Scheduled },
				func(e *schedule.Entry) { e.Result = schedule.Missed },
				func(e *schedule.Entry) { e.Count = 2 },
				func(e *schedule.Entry) { e.Order = "x" },
				func(e *schedule.Entry) { e.Ended = time.Time{} },
				func(e *schedule.Entry) { e.Logical = time.Time{} },
			} {
				wrong := byHand(300)
				change(&wrong)
				if _, err := history.Record(t.Context(), e, "j", wrong); !errors.Is(err, store.ErrInvalidArgument) {
					t.Errorf("%+v: Got %v, want ErrInvalidArgument", wrong, err)
				}
			}
		})
	}
}

// saveState stores the state of job j as a daemon would that has ended.
func saveState(t *testing.T, e store.Engine, st schedule.State) error {
	t.Helper()
	if e.Traits().Atomic == store.AtomicBatch {
		h, err := history.New(e)
		if err != nil {
			return err
		}
		return h.Save(t.Context(), "j", st, nil)
	}
	h := history.NewShared(e, nil)
	if _, err := h.Take(t.Context(), "j"); err != nil {
		return err
	}
	return errors.Join(h.Save(t.Context(), "j", st, nil), h.Release(t.Context(), "j"))
}

// TestRecordOfHeldSchedule: where a daemon on HBase holds the schedule, it is told of
// a run, once, and the history has it when it has answered.
func TestRecordOfHeldSchedule(t *testing.T) {
	t.Parallel()
	e := rowAtomic{newMemstore(t)}
	daemon := history.NewShared(e, nil)
	claim, err := daemon.Take(t.Context(), "j")
	if err != nil || !claim.Held {
		t.Fatalf("Got %+v, %v", claim, err)
	}
	tell := func(want bool) {
		t.Helper()
		if left, err := history.Record(t.Context(), e, "j", byHand(100)); left != want || err != nil {
			t.Errorf("Got %t, %v", left, err)
		}
	}
	tell(true)
	tell(true)
	if claim, err = daemon.Renew(t.Context(), "j"); err != nil || len(claim.Asked.Wishes) != 1 {
		t.Fatalf("Got %+v, %v", claim, err)
	}
	s, err := schedule.Compile("j", &schedule.Spec{Cron: "@yearly"})
	if err != nil {
		t.Fatal(err)
	}
	m := schedule.NewMachine(s, claim.State)
	d := m.Answer(claim.Asked, began.Add(time.Hour))
	if err := daemon.Save(t.Context(), "j", m.State(), d.Entries); err != nil {
		t.Fatal(err)
	}
	tell(false)
	all, err := daemon.History(t.Context(), "j", 10)
	if err != nil || len(all) != 1 || all[0] != byHand(100) || m.State().Ordered[schedule.Manual][schedule.OK] != 1 {
		t.Errorf("Got %+v, %v, %+v", all, err, m.State())
	}
}

// TestCheckEntry: a run may be for a time before 1970, and for none that no state could say.
func TestCheckEntry(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		logical time.Time
		ok      bool
	}{
		{time.Date(1969, 12, 31, 23, 59, 59, 0, time.UTC), true},
		{time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), true},
		{time.Time{}, false},
		{time.Date(0, 1, 1, 0, 0, 0, 0, time.FixedZone("", 3600)), false},
	} {
		e := byHand(1)
		e.Logical = tt.logical
		if err := history.CheckEntry(&e); (err == nil) != tt.ok || err != nil && !errors.Is(err, store.ErrInvalidArgument) {
			t.Errorf("%v: Got %v", tt.logical, err)
		}
	}
}
