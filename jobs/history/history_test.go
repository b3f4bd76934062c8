package history_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/jobs/history"
	"sluice/jobs/schedule"
	"sluice/store"
	"sluice/store/memstore"
	"sluice/store/pebblestore"
)

func TestHistory(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) store.Engine{
		"mem": func(t *testing.T) store.Engine {
			s, err := memstore.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		"pebble": func(t *testing.T) store.Engine {
			db, err := pebblestore.Open(t.TempDir(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return db
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := open(t)
			defer e.Close()
			h, err := history.New(e)
			if err != nil {
				t.Fatal(err)
			}
			if st, err := h.Load(t.Context(), "a"); err != nil || !st.Decided.IsZero() {
				t.Fatalf("Got %+v, %v before the first Save", st, err)
			}
			at := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
			entry := func(hour int, result string) schedule.Entry {
				l := at.Add(time.Duration(hour) * time.Hour)
				return schedule.Entry{Logical: l, Result: result, Count: 1, Started: l, Ended: l.Add(time.Minute), Attempts: 2, RunID: "r", Rows: 3, Bytes: 4, Error: "e"}
			}
			st := schedule.State{
				Decided: at.Add(2 * time.Hour), Pending: []schedule.Run{{Logical: at, Cause: schedule.Scheduled}}, Failures: 1, Paused: true, Results: map[string]int64{"ok": 7},
				Orders:  []schedule.Order{{ID: "a", Cause: schedule.Manual, From: at, Accepted: at, Next: at, Times: 1}},
				Ordered: map[string]map[string]int64{schedule.Manual: {"ok": 1}},
			}
			if err := h.Save(t.Context(), "a", st, []schedule.Entry{entry(0, schedule.OK), entry(1, schedule.Failed)}); err != nil {
				t.Fatal(err)
			}
			st.Failures = 2
			if err := h.Save(t.Context(), "a", st, []schedule.Entry{entry(2, schedule.Missed)}); err != nil {
				t.Fatal(err)
			}
			// Names that begin alike are other jobs.
			if err := h.Save(t.Context(), "ab", schedule.State{}, []schedule.Entry{entry(3, schedule.OK)}); err != nil {
				t.Fatal(err)
			}
			got, err := h.Load(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(st, got); d != "" {
				t.Errorf("state (-want +got):\n%s", d)
			}
			for n, want := range map[int][]schedule.Entry{
				0: nil, 2: {entry(2, schedule.Missed), entry(1, schedule.Failed)},
				10: {entry(2, schedule.Missed), entry(1, schedule.Failed), entry(0, schedule.OK)},
			} {
				all, err := h.History(t.Context(), "a", n)
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(want, all); d != "" {
					t.Errorf("history of %d (-want +got):\n%s", n, d)
				}
			}
			bad := cell.Mutation{Table: store.JobsTable, Row: append(cell.AppendPart(nil, []byte("bad")), 's')}
			bad.Put(store.JobsFamily, []byte("state"), cell.Latest, []byte("{"))
			if _, err := e.MutateRow(t.Context(), nil, &bad); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Load(t.Context(), "bad"); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("Got %v, want ErrCorrupt", err)
			}
		})
	}
}
