package tables

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/cell"
	"sluice/jobs/history"
	"sluice/jobs/jobstest"
	"sluice/jobs/schedule"
	"sluice/store"
)

// TestCopySharedSchedules copies the schedule of a store that several daemons share, with
// an entry that its holder had not got to, into one of either kind: nobody holds it there,
// and what is asked for then is done.
func TestCopySharedSchedules(t *testing.T) {
	t.Parallel()
	decided := time.Date(2030, 1, 2, 3, 4, 0, 0, time.UTC)
	entry := schedule.Entry{Logical: decided, Result: schedule.OK, Count: 1, Ended: time.Now().UTC().Truncate(time.Second)}
	source := jobstest.NewEngine(t)
	from := history.NewShared(source, nil)
	remember(t, source, "j", &history.Kept{
		State: schedule.State{Decided: decided, Answered: 1}, Holder: "a daemon that was killed",
		Asked: schedule.Ask{N: 1, Wishes: []schedule.Wish{{N: 1, For: schedule.WishPause}}}, Entries: []schedule.Entry{entry},
	})
	for _, rows := range []bool{false, true} {
		to := &dying{Store: jobstest.NewEngine(t), rows: rows, writes: 1 << 30}
		n, err := CopyStore(t.Context(), frozenAt(t, source, to))
		if err != nil || n.Schedules != 1 {
			t.Fatalf("rows %t: Got %+v, %v", rows, n, err)
		}
		got, err := history.State(t.Context(), to, "j")
		if d := cmp.Diff(schedule.State{Decided: decided}, got, cmpopts.EquateEmpty()); d != "" || err != nil {
			t.Errorf("rows %t: %v, (-want +got):\n%s", rows, err, d)
		}
		entries, err := history.Entries(t.Context(), to, "j", 10)
		if d := cmp.Diff([]schedule.Entry{entry}, entries); d != "" || err != nil {
			t.Errorf("rows %t: history: %v, (-want +got):\n%s", rows, err, d)
		}
		if !rows {
			continue
		}
		h := history.NewShared(to, nil)
		if _, err := h.Ask(t.Context(), "j", schedule.Wish{For: schedule.WishPause}); err != nil {
			t.Fatal(err)
		}
		c, err := h.Take(t.Context(), "j")
		if err != nil || !c.Held || c.Asked.N != 1 || c.State.Answered != 0 || len(c.Asked.Wishes) != 1 {
			t.Errorf("Got %+v, %v, want the schedule, and a pause to come", c, err)
		}
	}

	further := jobstest.NewEngine(t)
	remember(t, further, "j", &history.Kept{State: schedule.State{Decided: decided.Add(time.Minute)}})
	if _, err := CopyStore(t.Context(), frozenAt(t, source, further)); !errors.Is(err, store.ErrRefused) || !strings.Contains(err.Error(), "runs of job j until 2030-01-02 03:05") {
		t.Errorf("into one that is further: Got %v", err)
	}
	if _, err := from.Ask(t.Context(), "j", schedule.Wish{For: schedule.WishResume}); err != nil {
		t.Fatal(err)
	}
	if _, err := CopyStore(t.Context(), frozenAt(t, source, jobstest.NewEngine(t))); !errors.Is(err, store.ErrRefused) || !strings.Contains(err.Error(), "job j (resume)") {
		t.Errorf("with a wish that nobody has followed: Got %v", err)
	}
}

// remember writes the row that a store keeps of a shared schedule, see
// docs/format/jobs.md.
func remember(t *testing.T, e store.Engine, job string, k *history.Kept) {
	t.Helper()
	value, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	m := cell.Mutation{Table: store.JobsTable, Row: append(cell.AppendPart(nil, []byte(job)), 's')}
	m.Put(store.JobsFamily, []byte("state"), 1, value)
	if _, err := e.MutateRow(t.Context(), nil, &m); err != nil {
		t.Fatal(err)
	}
}
