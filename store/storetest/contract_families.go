package storetest

import (
	"testing"

	"sluice/cell"
	"sluice/store"
)

func testReplaceFamilies(t *testing.T, e *engine) {
	replacer, isReplacer := e.Engine.(store.FamilyReplacer)
	if !isReplacer {
		t.Skip("the engine is no store.FamilyReplacer")
	}
	ctx := t.Context()
	e.create("t", store.NewFamily("f"), counterFamily("n"), counterFamily("n~2"))
	e.create("u", store.NewFamily("f"), store.NewFamily("g"), counterFamily("n"))
	count := func(table, family, row string, delta int64) {
		t.Helper()
		var b store.Batch
		b.Counters = []store.CounterDelta{{Table: table, Family: family, Row: []byte(row), Qualifier: []byte("q"), Delta: delta, Time: 5}}
		ok(t, e.Apply(ctx, &b))
	}
	write := func(m cell.Mutation) {
		t.Helper()
		var b store.Batch
		b.Add(-1, m)
		ok(t, e.Apply(ctx, &b))
	}
	count("t", "n", "old", 7)
	count("t", "n", "both", 8)
	count("t", "n~2", "both", 3)
	count("t", "n~2", "new", 4)
	write(put("t", "both", "untouched"))
	write(put("u", "row", "old"))
	m := cell.Mutation{Table: "u", Row: []byte("row")}
	m.Put("g", []byte("q"), 1, []byte("new"))
	write(m)

	for what, c := range map[string]struct {
		want error
		r    []store.FamilyReplacement
	}{
		"no table":               {store.ErrTableNotFound, []store.FamilyReplacement{{Table: "t", Family: "n", By: "n~2"}, {Table: "nope", Family: "n", By: "m"}}},
		"no family":              {store.ErrFamilyNotFound, []store.FamilyReplacement{{Table: "t", Family: "n", By: "n~2"}, {Table: "u", Family: "f", By: "nope"}}},
		"COUNTER by ordinary":    {store.ErrInvalidSchema, []store.FamilyReplacement{{Table: "u", Family: "n", By: "f"}}},
		"ordinary by COUNTER":    {store.ErrInvalidSchema, []store.FamilyReplacement{{Table: "u", Family: "f", By: "n"}}},
		"itself":                 {store.ErrInvalidArgument, []store.FamilyReplacement{{Table: "t", Family: "n", By: "n"}}},
		"one family for several": {store.ErrInvalidArgument, []store.FamilyReplacement{{Table: "t", Family: "n", By: "n~2"}, {Table: "default:t", Family: "n~2", By: "f"}}},
		"nothing for no family":  {store.ErrFamilyNotFound, []store.FamilyReplacement{{Table: "t", Family: "n"}, {Table: "u", Family: "nope"}}},
		"emptied and replaced":   {store.ErrInvalidArgument, []store.FamilyReplacement{{Table: "t", Family: "n"}, {Table: "t", Family: "n", By: "n~2"}}},
		"system table":           {store.ErrRefused, []store.FamilyReplacement{{Table: store.OffsetsTable, Family: "a", By: "b"}}},
	} {
		is(t, what, replacer.ReplaceFamilies(ctx, c.r), c.want)
	}
	e.want(t, e.Engine, "u", `"row" f:"q"="old"`, `"row" g:"q"="new"`)

	var snapshot store.Snapshot
	if s, isSnapshotter := e.Engine.(store.Snapshotter); isSnapshotter {
		var err error
		snapshot, err = s.Snapshot(ctx)
		ok(t, err)
		defer snapshot.Close()
	}
	ok(t, replacer.ReplaceFamilies(ctx, []store.FamilyReplacement{{Table: "t", Family: "n", By: "n~2"}, {Table: "u", Family: "f", By: "g"}}))
	const three, four, seven, eight = `"\x00\x00\x00\x00\x00\x00\x00\x03"`, `"\x00\x00\x00\x00\x00\x00\x00\x04"`, `"\x00\x00\x00\x00\x00\x00\x00\a"`, `"\x00\x00\x00\x00\x00\x00\x00\b"`
	for range 2 {
		e.want(t, e.Engine, "t", `"both" f:"q"="untouched"`, `"both" n:"q"=`+three, `"new" n:"q"=`+four)
		e.want(t, e.Engine, "u", `"row" f:"q"="new"`)
		d, err := e.Table(ctx, "t")
		ok(t, err)
		if len(d.Families) != 2 || d.Family("n") == nil || !d.Family("n").Counter {
			t.Errorf("families are %v", d.Families)
		}
		if !e.durable() {
			break
		}
		if snapshot != nil {
			e.want(t, snapshot, "t", `"both" f:"q"="untouched"`, `"both" n:"q"=`+eight, `"both" n~2:"q"=`+three, `"new" n~2:"q"=`+four, `"old" n:"q"=`+seven)
			ok(t, snapshot.Close())
			snapshot = nil
		}
		e.reopen()
	}
	// The families go on, and a family of the old name is another one.
	count("t", "n", "both", 1)
	e.want(t, e.Engine, "t", `"both" f:"q"="untouched"`, `"both" n:"q"=`+four, `"new" n:"q"=`+four)
	d, err := e.Table(ctx, "t")
	ok(t, err)
	d = d.Clone()
	d.Families = append(d.Families, counterFamily("n~2"))
	ok(t, e.admin().AlterTable(ctx, d))
	e.want(t, e.Engine, "t", `"both" f:"q"="untouched"`, `"both" n:"q"=`+four, `"new" n:"q"=`+four)
}

func testEmptyFamilies(t *testing.T, e *engine) {
	replacer, isReplacer := e.Engine.(store.FamilyReplacer)
	if !isReplacer {
		t.Skip("the engine is no store.FamilyReplacer")
	}
	ctx := t.Context()
	e.create("t", store.NewFamily("f"), counterFamily("n"), counterFamily("m"))
	e.create("u", counterFamily("n"), counterFamily("n~2"))
	count := func(table, family, row string, delta int64) {
		t.Helper()
		var b store.Batch
		b.Counters = []store.CounterDelta{{Table: table, Family: family, Row: []byte(row), Qualifier: []byte("q"), Delta: delta, Time: 5}}
		ok(t, e.Apply(ctx, &b))
	}
	var b store.Batch
	b.Add(-1, put("t", "both", "untouched"))
	ok(t, e.Apply(ctx, &b))
	count("t", "n", "both", 7)
	count("t", "m", "both", 8)
	count("t", "m", "only", 8)
	count("u", "n", "row", 3)
	count("u", "n~2", "row", 4)
	// Two families are emptied and a third is replaced, in one commit.
	ok(t, replacer.ReplaceFamilies(ctx, []store.FamilyReplacement{{Table: "t", Family: "n"}, {Table: "u", Family: "n", By: "n~2"}, {Table: "t", Family: "m"}}))
	const one, four = `"\x00\x00\x00\x00\x00\x00\x00\x01"`, `"\x00\x00\x00\x00\x00\x00\x00\x04"`
	for range 2 {
		e.want(t, e.Engine, "t", `"both" f:"q"="untouched"`)
		e.want(t, e.Engine, "u", `"row" n:"q"=`+four)
		d, err := e.Table(ctx, "t")
		ok(t, err)
		if len(d.Families) != 3 || d.Family("n") == nil || !d.Family("n").Counter || !d.Family("m").Counter {
			t.Errorf("families are %v", d.Families)
		}
		if !e.durable() {
			break
		}
		e.reopen()
	}
	// What is counted from then on begins at nothing.
	count("t", "m", "both", 1)
	e.want(t, e.Engine, "t", `"both" f:"q"="untouched"`, `"both" m:"q"=`+one)
	ok(t, e.Engine.(store.FamilyReplacer).ReplaceFamilies(ctx, []store.FamilyReplacement{{Table: "t", Family: "m"}}))
	e.want(t, e.Engine, "t", `"both" f:"q"="untouched"`)
}
