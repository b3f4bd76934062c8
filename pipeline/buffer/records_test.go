package buffer

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/cell"
	"sluice/store"
)

func TestAddRecordsCopiesUnits(t *testing.T) {
	t.Parallel()
	b := newBuffer(t, nil)
	b.Start(5, Mark{Offset: 4})
	row, value, id, expected := []byte("r1"), []byte("v"), []byte("id"), []byte("old")
	m := cell.Mutation{Table: "t", Row: row}
	m.Put("f", []byte("q"), 7, value)
	inc := incrementOf("t", "r2", 9, "n")
	cond := &store.Cond{Family: "f", Qualifier: []byte("q"), Op: store.Less, Value: expected}
	rs := []store.Record{
		{Offset: 99, Once: id, OnceTTL: 1000, Checks: []*store.Cond{cond, nil}, Mutations: []cell.Mutation{m, inc}},
		{Once: []byte{}, Cond: cond, Mutations: []cell.Mutation{inc}},
		{Mutations: []cell.Mutation{inc}},
	}
	for _, offset := range []int64{5, 8} {
		if err := b.AddRecords(t.Context(), offset, "p\x00", rs); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range [][]byte{row, value, id, expected} {
		s[0] = 'X' // they were copied
	}
	rs[0].Mutations[0].Ops[0].Family, rs[0].Checks[0].Family = "X", "X"
	if got, want := b.Len(), 2; got != want {
		t.Errorf("Got %d records, want %d", got, want)
	}
	got := b.Take(source, 0, 5, &store.Progress{First: 5, Next: 5, Unmet: 3, Duplicate: 2, MappingVersion: "v", MappingFrom: 1}, "v")
	if got.Bytes <= 0 || got.Bytes > got.grant.Bytes() {
		t.Errorf("Got %d bytes of %d granted", got.Bytes, got.grant.Bytes())
	}
	unit := func(offset int64) []store.Record {
		m := cell.Mutation{Table: "t", Row: []byte("r1")}
		m.Put("f", []byte("q"), 7, []byte("v"))
		cond := &store.Cond{Family: "f", Qualifier: []byte("q"), Op: store.Less, Value: []byte("old")}
		return []store.Record{
			{Offset: offset, Once: []byte("p\x00\xff\x00\x01id"), OnceTTL: 1000, Checks: []*store.Cond{cond, nil}, Mutations: []cell.Mutation{m, inc}},
			{Offset: offset, Once: []byte("p\x00\xff\x00\x01"), Cond: cond, Mutations: []cell.Mutation{inc}},
			{Offset: offset, Mutations: []cell.Mutation{inc}},
		}
	}
	want := store.Batch{Records: append(unit(5), unit(8)...)}
	want.Advance(source, 0, 5, store.Progress{
		First: 5, Next: 9, LastOffset: 4, Applied: 2, Control: 2, Unmet: 3, Duplicate: 2, MappingVersion: "v", MappingFrom: 1,
	})
	if d := cmp.Diff(want, got.Store); d != "" {
		t.Errorf("batch (-want +got):\n%s", d)
	}
	got.Release()
	if used := b.budget.Used(); used != 0 {
		t.Errorf("Got %d bytes used after the release", used)
	}
}

// Units and sums take effect in the order of records only where they are apart.
func TestUnitsAndSumsAreApart(t *testing.T) {
	t.Parallel()
	unit := []store.Record{{Mutations: []cell.Mutation{incrementOf("t", "r", 1, "n")}}}
	sum := []cell.Mutation{incrementOf("t", "r", 1, "n")}
	b := newBuffer(t, nil)
	b.Start(0, Mark{})
	take := func() { b.Take(source, 0, 0, &store.Progress{}, "").Release() }
	add(t, b, 0, sum...)
	if err := b.AddRecords(t.Context(), 1, "p", unit); !errors.Is(err, ErrFull) {
		t.Errorf("Got %v for a unit behind a sum, want ErrFull", err)
	}
	take()
	for offset, add := range []func(ctx context.Context, offset int64) error{
		func(ctx context.Context, offset int64) error { return b.AddRecords(ctx, offset, "p", unit) },
		func(ctx context.Context, offset int64) error {
			return b.Add(ctx, offset, []cell.Mutation{putOf("t", "r", "q", "v")})
		},
		func(ctx context.Context, offset int64) error { return b.AddRecords(ctx, offset, "p", unit) },
	} {
		if err := add(t.Context(), int64(offset)+1); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Add(t.Context(), 4, sum); !errors.Is(err, ErrFull) {
		t.Errorf("Got %v for a sum behind a unit, want ErrFull", err)
	}
	take()
	add(t, b, 4, sum...)
}

// Engines whose batches are not atomic take no units. Those that nothing is decided of,
// such as deletes beside increments, are what a record became without them.
func TestUnitsOfOtherEngines(t *testing.T) {
	t.Parallel()
	deletion := cell.Mutation{Table: "u", Row: []byte("r")}
	deletion.DeleteColumn("f", []byte("q"), 7)
	b := newBuffer(t, &Options{Separate: true})
	b.Start(0, Mark{})
	add(t, b, 0, incrementOf("t", "r", 1, "n"))
	units := []store.Record{
		{Mutations: []cell.Mutation{deletion, incrementOf("t", "r", 2, "n")}},
		{Mutations: []cell.Mutation{putOf("t", "r", "q", "v"), incrementOf("t", "r", 3, "n")}},
	}
	if err := b.AddRecords(t.Context(), 1, "p", units); err != nil {
		t.Fatal(err)
	}
	got := b.Take(source, 0, 0, &store.Progress{}, "")
	var counted []string
	for _, c := range got.Store.Counters {
		counted = append(counted, fmt.Sprint(c.Offset, c.Delta, c.Time))
	}
	want := []string{"0 1 1", "1 1 2", "1 1 3"}
	if d := cmp.Diff(want, counted); d != "" {
		t.Errorf("Got other increments (-want +got):\n%s", d)
	}
	if n := len(got.Store.Records); n != 0 || len(got.Store.Mutations) != 2 || got.Counts.Applied != 2 || got.Ops.Deletes != 1 {
		t.Errorf("Got %d units, %+v, %+v, %+v", n, got.Store.Mutations, got.Counts, got.Ops)
	}
	got.Release()
	if used := b.budget.Used(); used != 0 {
		t.Errorf("Got %d bytes used after the release", used)
	}
	for name, r := range map[string]store.Record{
		"id": {Once: []byte("id")}, "condition": {Cond: &store.Cond{}}, "check": {Checks: []*store.Cond{{}}},
	} {
		r.Mutations = units[0].Mutations[1:]
		b.Start(2, Mark{})
		if err := b.AddRecords(t.Context(), 2, "p", []store.Record{r}); err != nil {
			t.Fatal(err)
		}
		got := b.Take(source, 0, 0, &store.Progress{}, "")
		if len(got.Store.Records) != 1 {
			t.Errorf("%s: got %+v, want the unit, which the engine refuses", name, got.Store)
		}
		got.Release()
	}
}

// The offset that a mapping begins at is that of its first batch.
func TestMappingFrom(t *testing.T) {
	t.Parallel()
	b := newBuffer(t, nil)
	b.Start(7, Mark{})
	prev := store.Progress{First: 2, Next: 7, MappingVersion: "v1", MappingFrom: 2}
	for _, step := range []struct {
		version string
		next    int64
		want    int64
	}{{"v1", 9, 2}, {"v2", 12, 9}, {"v2", 15, 9}, {"v1", 16, 15}} {
		b.Skip(step.next)
		got := b.Take(source, 0, prev.Next, &prev, step.version)
		prev = got.Progress
		got.Release()
		if prev.MappingVersion != step.version || prev.MappingFrom != step.want {
			t.Errorf("Got version %s from %d on, want %s from %d on", prev.MappingVersion, prev.MappingFrom, step.version, step.want)
		}
	}
}

// Puts of units of which nothing is tested are packed, and are the same.
func TestAddRecordsPacks(t *testing.T) {
	t.Parallel()
	b := newBuffer(t, nil)
	row, value := []byte("r1"), []byte("v")
	m := cell.Mutation{Table: "t", Row: row}
	m.Put("f", []byte("q"), 7, value)
	m.Put("f", []byte("r"), 7, nil)
	one := cell.Mutation{Table: "t", Row: row}
	one.Put("f", []byte("q"), 7, value)
	inc := incrementOf("t", "r2", 9, "n")
	check := []*store.Cond{nil, {Family: "f", Op: store.Equal}}
	const n = 300 // more than a chunk has
	var want []store.Record
	for i := range int64(n) {
		rs := []store.Record{
			{Once: []byte("id"), OnceTTL: 1000, Mutations: []cell.Mutation{m, inc, m}},
			{Once: []byte("of"), OnceTTL: 1000, Mutations: []cell.Mutation{m, one}},
			{Once: []byte("a"), Checks: check, Mutations: []cell.Mutation{m, inc}},
		}
		if err := b.AddRecords(t.Context(), i, "p", rs); err != nil {
			t.Fatal(err)
		}
		copied := CloneRecords("p", rs)
		for j := range copied {
			copied[j].Offset = i
		}
		copied[0].Mutations[1], copied[0].Mutations[2] = copied[0].Mutations[2], copied[0].Mutations[1] // puts come first
		want = append(want, copied...)
	}
	row[0], value[0] = 'X', 'X'
	got := b.Take(source, 0, 0, &store.Progress{}, "v")
	for i := range got.Store.Records {
		if packed := len(got.Store.Records[i].Puts); packed != []int{2, 0, 0}[i%3] {
			t.Fatalf("unit %d has %d packed puts", i, packed)
		}
	}
	if d := cmp.Diff(want, got.Store.Unpacked().Records, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("units (-want +got):\n%s", d)
	}
	if want := (Ops{Puts: n * (4 + 3 + 2), Increments: n * 2}); got.Ops != want {
		t.Errorf("Got %+v, want %+v", got.Ops, want)
	}
	if got.Bytes <= 0 || got.Bytes > got.grant.Bytes() {
		t.Errorf("Got %d bytes of %d granted", got.Bytes, got.grant.Bytes())
	}
	got.Release()
	b.Close()
}
