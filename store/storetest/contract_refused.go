package storetest

import (
	"errors"
	"slices"
	"testing"

	"sluice/cell"
	"sluice/store"
)

// testBatchRefusedUnseen: a record that is refused is not there for the records
// behind it, whichever of its members was refused. What they are tested against is
// what they will meet when the batch is sent without it.
func testBatchRefusedUnseen(t *testing.T, e *engine) {
	e.batchOnly()
	e.create("t", store.NewFamily("f"), counterFamily("n"))
	increment := func(row string) cell.Mutation {
		m := cell.Mutation{Table: "t", Row: []byte(row)}
		m.Increment("f", []byte("q"), 1)
		return m
	}
	equals := func(v string) *store.Cond {
		return &store.Cond{Family: "f", Qualifier: []byte("q"), Op: store.Equal, Value: []byte(v)}
	}
	delta := func(offset int64, family string) store.CounterDelta {
		return store.CounterDelta{Table: "t", Family: family, Row: []byte("r"), Qualifier: []byte("c"), Delta: 1, Time: cell.Latest, Offset: offset}
	}
	nope := put("nope", "r", "v")
	for name, c := range map[string]struct {
		fill func(b *store.Batch)
		want []int64
	}{
		"mutations of one record": {func(b *store.Batch) {
			b.Add(1, put("t", "a", "text"))
			b.Add(1, nope)
			b.Add(2, increment("a")) // of no text
		}, []int64{1}},
		"mutation behind the refused one": {func(b *store.Batch) {
			b.Add(1, nope)
			b.Add(1, put("t", "a", "text"))
			b.Add(2, increment("a"))
		}, []int64{1}},
		"mutation and record": {func(b *store.Batch) {
			b.Add(1, put("t", "a", "text"))
			b.Record(1, nil, nil, nope)
			b.Record(2, nil, nil, increment("a"))
		}, []int64{1}},
		"record and record": {func(b *store.Batch) {
			b.Record(1, nil, nil, put("t", "a", "text"))
			b.Record(1, nil, nil, put("t", "b", "text"), nope)
			b.Record(2, nil, nil, increment("a"), increment("b"))
		}, []int64{1}},
		"counter": {func(b *store.Batch) {
			b.Add(1, put("t", "a", "text"))
			b.Counters = append(b.Counters, delta(1, "nope"))
			b.Add(2, increment("a"))
		}, []int64{1}},
		"condition": {func(b *store.Batch) {
			b.Add(1, put("t", "a", "x"))
			b.Add(1, nope)
			b.Record(2, nil, equals("x"), put("t", "a", "y"), nope) // does not hold, so nothing of it can be refused
		}, []int64{1}},
		"id": {func(b *store.Batch) {
			b.Record(1, []byte("id"), nil, put("t", "a", "text"))
			b.Record(1, nil, nil, nope)
			b.Record(2, []byte("id"), nil, nope) // nobody has used it
		}, []int64{1, 2}},
		"seen by what is left": {func(b *store.Batch) {
			b.Add(1, put("t", "a", "text"))
			b.Add(2, put("t", "a", "12345678"))
			b.Add(2, nope)
			b.Add(3, increment("a")) // of the text
			b.Add(4, put("t", "a", "12345678"))
			b.Add(5, increment("a"))
		}, []int64{2, 3}},
		"without a record each stands alone": {func(b *store.Batch) {
			b.Add(-1, put("t", "a", "text"))
			b.Add(-1, nope)
			b.Add(-1, increment("a"))
		}, []int64{-1, -1}},
	} {
		var b store.Batch
		c.fill(&b)
		err := e.Apply(t.Context(), &b)
		var refused *store.BatchError
		if !errors.As(err, &refused) {
			t.Errorf("%s: Apply = %v, want a *store.BatchError", name, err)
			continue
		}
		var got []int64
		for _, r := range refused.Refused {
			got = append(got, r.Offset)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: offsets %d are refused, want %d: %v", name, got, c.want, err)
		}
		e.want(t, e, "t")
	}
}

// testNilMutations: a mutation that is nil is refused by itself, wherever the engine
// looks at mutations, and the others beside it are applied.
func testNilMutations(t *testing.T, e *engine) {
	e.create("t", store.NewFamily("f"))
	table, err := store.OpenTable(t.Context(), e.Engine, "t")
	ok(t, err)
	row := []byte("r")
	good := put("t", "r", "v")
	is(t, "MutateRow of nil", second(e.MutateRow(t.Context(), nil, nil)), store.ErrInvalidArgument)
	is(t, "MutateRow of nil under a condition", second(e.MutateRow(t.Context(), &store.Cond{Family: "f", Op: store.Equal}, nil)), store.ErrInvalidArgument)
	is(t, "Table.MutateRow of nil", second(table.MutateRow(t.Context(), nil)), store.ErrInvalidArgument)
	is(t, "Table.MutateRow of one that is nil", second(table.MutateRow(t.Context(), &good, nil)), store.ErrInvalidArgument)
	is(t, "CheckAndPut of nil", second(table.CheckAndPut(t.Context(), row, nil, nil)), store.ErrInvalidArgument)
	is(t, "CheckAndDelete of nil", second(table.CheckAndDelete(t.Context(), row, nil, nil)), store.ErrInvalidArgument)
	is(t, "CheckAndMutate of one that is nil", second(table.CheckAndMutate(t.Context(), row, nil, &good, nil)), store.ErrInvalidArgument)
	if got := dump(t, e, &store.Scan{Table: "t"}); len(got) != 0 {
		t.Errorf("refused mutations have written %q", got)
	}
	results, errs := table.MutateRows(t.Context(), nil, &good, nil)
	if len(results) != 3 || len(errs) != 3 {
		t.Fatalf("MutateRows: %d results and %d errors of 3 mutations", len(results), len(errs))
	}
	is(t, "MutateRows, the first", errs[0], store.ErrInvalidArgument)
	is(t, "MutateRows, the last", errs[2], store.ErrInvalidArgument)
	if errs[1] != nil || !results[1].Applied || results[0].Applied {
		t.Errorf("MutateRows beside nil: %v, %v", results, errs)
	}
	if got := dump(t, e, &store.Scan{Table: "t"}); len(got) != 1 {
		t.Errorf("rows behind MutateRows: %q", got)
	}
}
