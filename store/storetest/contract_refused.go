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
