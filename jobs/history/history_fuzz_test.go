package history_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/cell"
	"sluice/jobs/history"
	"sluice/jobs/schedule"
	"sluice/store"
)

// FuzzHistory has the state of a schedule, and an entry of its history, say anything: what
// cannot be read is corrupt, and what can is the same once it is written again.
func FuzzHistory(f *testing.F) {
	entry := byHand(7)
	for _, v := range []any{
		schedule.State{Decided: began, Pending: []schedule.Run{{Logical: began, Cause: schedule.Scheduled}}, Results: map[string]int64{"ok": 1}, Orders: []schedule.Order{{ID: "a", From: began}}},
		history.Kept{Revision: 7, Entries: []schedule.Entry{entry}},
		entry,
	} {
		b, err := json.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, b)
	}
	f.Add([]byte(`{"decided":"2026-01-01T00:00:00+23:59","pending":["2026-01-01T00:00:00Z",null]}`), []byte(`{"ended":"9999-12-31T23:59:59-23:59"}`))
	f.Add([]byte(`{"pending":["9999-12-31T23:59:59-23:59"],"left_out":{"logical_time":"0000-01-01T00:00:00+23:59"}}`), []byte(`null`))
	f.Fuzz(func(t *testing.T, state, entry []byte) {
		e, to := newMemstore(t), newMemstore(t)
		defer to.Close()
		defer e.Close()
		h, err := history.New(e)
		if err != nil {
			t.Fatal(err)
		}
		for kind, c := range map[string][2][]byte{"s": {[]byte("state"), state}, "h\x00": {[]byte("entry"), entry}} {
			m := cell.Mutation{Table: store.JobsTable, Row: append(cell.AppendPart(nil, []byte("job")), kind...)}
			m.Put(store.JobsFamily, c[0], 1, c[1])
			if _, err := e.MutateRow(t.Context(), nil, &m); err != nil {
				t.Fatal(err)
			}
		}
		corrupt := func(what string, err error) {
			if err != nil && !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%s: Got %v, want ErrCorrupt", what, err)
			}
		}
		entries, err := history.Entries(t.Context(), e, "job", 5)
		corrupt("entries", err)
		st, err := h.Load(t.Context(), "job")
		if corrupt("state", err); err == nil {
			if err := h.Save(t.Context(), "job", st, entries); err != nil {
				t.Fatalf("what was read cannot be written: %v", err)
			}
			again, err := h.Load(t.Context(), "job")
			if d := cmp.Diff(st, again, cmpopts.EquateEmpty(), cmpopts.EquateApproxTime(0)); err != nil || d != "" {
				t.Errorf("%v (-first +again):\n%s", err, d)
			}
		}
		states := map[string]schedule.State{}
		err = history.Each(t.Context(), e, func(job string, k *history.Kept) error {
			states[job] = k.State
			return nil
		}, nil)
		if corrupt("each", err); err == nil {
			// An entry that ended before 1970 is refused by the store that it is copied into.
			if err := history.Copy(t.Context(), e, to, states); !errors.Is(err, store.ErrInvalidArgument) {
				corrupt("copy", err)
			}
		}
	})
}
