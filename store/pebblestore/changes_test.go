package pebblestore

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store"
)

// columns is what ChangedRows tells of a row.
type columns struct {
	Columns int
	Time    cell.Timestamp
}

// changedSince returns the rows of t that were changed after since.
func changedSince(t *testing.T, db *DB, since uint64) map[string]columns {
	t.Helper()
	s, err := db.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]columns{}
	for row, err := range s.(store.ChangeReader).ChangedRows(t.Context(), "t", nil, cell.Range{}, since) {
		if err != nil {
			t.Fatal(err)
		}
		got[string(row.Key)] = columns{row.Columns, row.Time}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return got
}

// TestChangedRowColumns: of a row that was put, ChangedRows tells how many columns were,
// and the earliest time of these, wherever the put lies.
func TestChangedRowColumns(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	o := memory()
	o.Now = func() cell.Timestamp { return 1000 }
	db, err := Open("", o)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	n := store.NewFamily("n")
	n.Counter = true
	d := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f"), store.NewFamily("g"), n}}
	if err := db.CreateTable(ctx, d, nil); err != nil {
		t.Fatal(err)
	}
	write := func(row string, change func(m *cell.Mutation)) {
		t.Helper()
		m := &cell.Mutation{Table: "t", Row: []byte(row)}
		change(m)
		if _, err := db.MutateRow(ctx, nil, m); err != nil {
			t.Fatal(err)
		}
	}
	put := func(at cell.Timestamp, family string, columns ...string) func(m *cell.Mutation) {
		return func(m *cell.Mutation) {
			for _, q := range columns {
				m.Put(family, []byte(q), at, []byte("v"))
			}
		}
	}
	rows := []string{"a column", "both", "counted", "counted as a put ends", "deleted", "older", "two families", "two times"}
	for _, row := range rows {
		write(row, put(100, "f", "a", "b", "c"))
	}
	write("not changed", put(100, "f", "a", "b", "c"))
	if err := db.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	h, err := db.HoldChanges(ctx, store.ChangeHold{Name: "x", Table: "t", Until: 1e6})
	if err != nil {
		t.Fatal(err)
	}
	write("a column", put(200, "f", "b"))
	write("both", put(200, "f", "a", "b"))
	write("counted", func(m *cell.Mutation) { m.Increment("n", []byte("q"), 1) })
	// A qualifier that ends as the key of a put does.
	write("counted as a put ends", func(m *cell.Mutation) { m.Increment("n", []byte("aaaaaaaaaa\xfbaaaaaa"), 1) })
	write("deleted", func(m *cell.Mutation) { m.DeleteRow(300) })
	write("older", put(50, "f", "a", "b"))
	write("two families", put(200, "f", "a", "b"))
	write("two families", put(150, "g", "a", "b"))
	write("two times", put(200, "f", "a"))
	write("two times", put(300, "f", "b", "c"))
	want := map[string]columns{
		"a column": {1, 200}, "both": {2, 200}, "counted": {}, "counted as a put ends": {}, "deleted": {}, "older": {2, 50}, "two families": {4, 150},
		"two times": {2, 300}, // what is first of the row
	}
	for _, where := range []string{"in memory", "in a table", "rewritten"} {
		if d := cmp.Diff(want, changedSince(t, db, h.Since)); d != "" {
			t.Errorf("%s (-want +got):\n%s", where, d)
		}
		switch where {
		case "in memory":
			err = db.Flush(ctx)
		case "in a table":
			err = db.MajorCompact(ctx, "t")
			want["older"] = columns{} // a later version was there
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestChangedRowsOfRewrites: a compaction, which does not look at what was not flushed,
// changes the rows of which something else is seen then, and no others.
func TestChangedRowsOfRewrites(t *testing.T) {
	t.Parallel()
	db := open(t, "db", memory())
	create(t, db, "t", store.NewFamily("f"))
	ctx := t.Context()
	flush := func() {
		t.Helper()
		if err := db.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	// Each version in a flush of its own, or that would drop the first.
	for at := cell.Timestamp(1); at <= 2; at++ {
		for _, row := range []string{"masked", "newer", "older", "unseen"} {
			mutate(t, db, put(row, at, "f", "q", "old"))
		}
		flush()
	}
	mutate(t, db, put("newer", 3, "f", "q", "new"))
	mutate(t, db, put("older", 0, "f", "q", "new"))
	for row, at := range map[string]cell.Timestamp{"masked": 2, "unseen": 1} {
		m := &cell.Mutation{Table: "t", Row: []byte(row)}
		m.Delete("f", []byte("q"), at)
		mutate(t, db, m)
	}
	h, err := db.HoldChanges(ctx, store.ChangeHold{Name: "x", Table: "t", Until: 1e15})
	if err != nil {
		t.Fatal(err)
	}
	all := &store.Scan{Table: "t"}
	want(t, db, all, "masked: f:q@1=old", "newer: f:q@3=new", "older: f:q@2=old", "unseen: f:q@2=old")
	if err := db.MajorCompact(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	want(t, db, all, "newer: f:q@3=new", "older: f:q@2=old", "unseen: f:q@2=old")
	if d := cmp.Diff(map[string]columns{"masked": {}}, changedSince(t, db, h.Since)); d != "" {
		t.Errorf("rows that were changed (-want +got):\n%s", d)
	}
}
