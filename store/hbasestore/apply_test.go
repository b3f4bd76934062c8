package hbasestore

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store"
	"sluice/store/memstore"
)

// Rows are put together by region; a row's mutations are one, in their order.
func TestApplyGroups(t *testing.T) {
	t.Parallel()
	mem := newMem(t, "g", "p")
	g := newGateway(t, mem, false)
	s := dial(t, nil, g)
	b := &store.Batch{}
	for i, row := range []string{"a", "h", "q", "b", "i", "a"} {
		b.Add(int64(i), *put(row, fmt.Sprint(i)))
	}
	del := cell.Mutation{Table: "t", Row: []byte("h")}
	del.DeleteColumn("f", []byte("q"), 5)
	b.Add(6, del)
	if err := s.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	got, err := collect(mem.Scan(t.Context(), &store.Scan{Table: "t"}))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`"a" f:"q"@1 Put="5"`, `"b" f:"q"@1 Put="3"`, `"i" f:"q"@1 Put="4"`, `"q" f:"q"@1 Put="2"`}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	// a and b; i and q alone; h with its delete.
	for method, n := range map[string]int{"putMultiple": 1, "put": 2, "mutateRow": 1} {
		if g.count(method) != n {
			t.Errorf("Got %d calls of %s, want %d", g.count(method), method, n)
		}
	}
}

// Deletes that may be repeated go by region, too, behind puts of their rows before them
// and before those behind.
func TestApplyDeletes(t *testing.T) {
	t.Parallel()
	mem := newMem(t, "m")
	addFamily(t, mem)
	g := newGateway(t, mem, false)
	s := dial(t, nil, g)
	fill := &store.Batch{}
	rows := []string{"a", "b", "c", "d", "n", "o"}
	for i, row := range rows {
		fill.Add(int64(i), *put(row, "v"))
		other := cell.Mutation{Table: "t", Row: []byte(row)}
		other.Put("g", []byte("q"), 1, []byte("w"))
		fill.Add(int64(i), other)
	}
	if err := s.Apply(t.Context(), fill); err != nil {
		t.Fatal(err)
	}
	before := g.count("putMultiple") + g.count("put") + g.count("mutateRow")
	b := &store.Batch{}
	for i, row := range rows {
		m := cell.Mutation{Table: "t", Row: []byte(row)}
		switch row {
		case "a":
			m.DeleteRow(5)
		case "b":
			m.DeleteFamily("f", 5)
		case "c":
			m.Delete("f", []byte("q"), 1)
		case "d":
			m.DeleteFamilyVersion("g", 1)
		default:
			m.DeleteColumn("g", []byte("q"), 5)
		}
		b.Add(int64(i), m)
	}
	latest := cell.Mutation{Table: "t", Row: []byte("c")}
	latest.Delete("g", []byte("q"), cell.Latest) // of whatever is newest: not to be made twice
	b.Add(6, latest)
	if err := s.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	got, err := collect(mem.Scan(t.Context(), &store.Scan{Table: "t"}))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`"b" g:"q"@1 Put="w"`, `"d" f:"q"@1 Put="v"`, `"n" f:"q"@1 Put="v"`, `"o" f:"q"@1 Put="v"`}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for method, n := range map[string]int{"deleteMultiple": 2, "deleteSingle": 1} {
		if g.count(method) != n {
			t.Errorf("Got %d calls of %s, want %d", g.count(method), method, n)
		}
	}
	if n := g.count("putMultiple") + g.count("put") + g.count("mutateRow"); n != before {
		t.Errorf("Got %d other calls", n-before)
	}
}

// A family that one mutation deletes up to two times is deleted up to both: of one Delete
// HBase keeps the last.
func TestDeleteFamilyTwice(t *testing.T) {
	t.Parallel()
	mem := newMem(t)
	addFamily(t, mem)
	s := dial(t, nil, newGateway(t, mem, false))
	m := &cell.Mutation{Table: "t", Row: []byte("a")} // as a raw copy of the row has it
	for _, at := range []cell.Timestamp{50, 30} {
		for _, family := range []string{"f", "g"} {
			m.Ops = append(m.Ops, cell.Op{Type: cell.OpDeleteFamily, Family: family, Time: at})
		}
	}
	m.Ops = append(m.Ops, cell.Op{Type: cell.OpDeleteFamily, Family: "g", Time: 20})
	m.Put("f", []byte("q"), 40, []byte("v"))
	if err := mutate(t, s, m); err != nil {
		t.Fatal(err)
	}
	got, err := collect(mem.Scan(t.Context(), &store.Scan{Table: "t", Raw: true}))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`"a" f:""@50 DeleteFamily=""`, `"a" f:""@30 DeleteFamily=""`, `"a" f:"q"@40 Put="v"`,
		`"a" g:""@50 DeleteFamily=""`, `"a" g:""@30 DeleteFamily=""`, `"a" g:""@20 DeleteFamily=""`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A delete that HBase refuses is told apart from those beside it.
func TestApplyDeletesInPart(t *testing.T) {
	t.Parallel()
	mem := newMem(t)
	addFamily(t, mem)
	s := dial(t, nil, newGateway(t, mem, false))
	if err := mutate(t, s, put("a", "v")); err != nil {
		t.Fatal(err)
	}
	if err := mem.AlterTable(t.Context(), newMemSchema()); err != nil { // behind its back
		t.Fatal(err)
	}
	b := &store.Batch{}
	for i, family := range []string{"f", "g", "f"} {
		m := cell.Mutation{Table: "t", Row: []byte{'a' + byte(i)}}
		m.DeleteColumn(family, []byte("q"), 5)
		b.Add(int64(i), m)
	}
	err := s.Apply(t.Context(), b)
	var partial *store.PartialError
	if !errors.As(err, &partial) || !errors.Is(err, store.ErrFamilyNotFound) || partial.Applied != 2 || len(partial.Failed) != 1 || partial.Failed[0].Offset != 1 {
		t.Errorf("Got %v", err)
	}
	if got, err := collect(mem.Scan(t.Context(), &store.Scan{Table: "t"})); err != nil || len(got) != 0 {
		t.Errorf("Got %q, %v", got, err)
	}
}

// addFamily gives table t of mem a family g.
func addFamily(t *testing.T, mem *memstore.Store) {
	t.Helper()
	two := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f"), store.NewFamily("g")}}
	if err := mem.AlterTable(t.Context(), two); err != nil {
		t.Fatal(err)
	}
}

// A batch of which HBase refuses a row says which, and that the others are there.
func TestApplyInPart(t *testing.T) {
	t.Parallel()
	mem := newMem(t)
	addFamily(t, mem)
	s := dial(t, nil, newGateway(t, mem, false))
	if _, err := s.Table(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	if err := mem.AlterTable(t.Context(), newMemSchema()); err != nil { // behind its back
		t.Fatal(err)
	}
	b := &store.Batch{}
	b.Add(1, *put("a", "v"))
	bad := cell.Mutation{Table: "t", Row: []byte("b")}
	bad.Put("g", nil, 1, nil)
	b.Add(2, bad)
	b.Add(3, *put("c", "v"))
	err := s.Apply(t.Context(), b)
	var partial *store.PartialError
	if !errors.As(err, &partial) || !errors.Is(err, store.ErrFamilyNotFound) || partial.Applied != 2 || len(partial.Failed) != 1 || partial.Failed[0].Offset != 2 {
		t.Errorf("Got %v", err)
	}
	got, err := collect(mem.Scan(t.Context(), &store.Scan{Table: "t"}))
	if err != nil || len(got) != 2 {
		t.Errorf("Got %q, %v", got, err)
	}
}

// What is known to be wrong is refused before anything is sent.
func TestApplyRefused(t *testing.T) {
	t.Parallel()
	g := newGateway(t, newMem(t), false)
	s := dial(t, nil, g)
	for _, test := range []struct {
		name string
		m    func(m *cell.Mutation)
		want error
	}{
		{"no columns", func(*cell.Mutation) {}, store.ErrInvalidArgument},
		{"no row", func(m *cell.Mutation) { m.Row = nil; m.Put("f", nil, 1, nil) }, store.ErrInvalidArgument},
		{"negative time", func(m *cell.Mutation) { m.Put("f", nil, -1, nil) }, store.ErrInvalidArgument},
		{"unknown family", func(m *cell.Mutation) { m.Put("g", nil, 1, nil) }, store.ErrFamilyNotFound},
		{"unknown table", func(m *cell.Mutation) { m.Table = "u"; m.Put("f", nil, 1, nil) }, store.ErrTableNotFound},
		{"large cell", func(m *cell.Mutation) { m.Put("f", nil, 1, make([]byte, 11<<20)) }, store.ErrCellTooLarge},
		{"put and increment", func(m *cell.Mutation) { m.Put("f", nil, 1, nil); m.Increment("f", nil, 1) }, store.ErrUnsupported},
		{"increment with a time", func(m *cell.Mutation) { m.Increment("f", nil, 1); m.Ops[0].Time = 5 }, store.ErrUnsupported},
		{"increment of a time range", func(m *cell.Mutation) { m.Increment("f", nil, 1); m.Read = &cell.TimeRange{Max: 5} }, store.ErrUnsupported},
	} {
		b := &store.Batch{}
		b.Add(1, *put("a", "v"))
		m := cell.Mutation{Table: "t", Row: []byte("r")}
		test.m(&m)
		b.Add(2, m)
		var refused *store.BatchError
		if err := s.Apply(t.Context(), b); !errors.As(err, &refused) || !errors.Is(err, test.want) || len(refused.Refused) != 1 || refused.Refused[0].Offset != 2 {
			t.Errorf("%s: Got %v", test.name, err)
		}
	}
	for name, b := range map[string]*store.Batch{
		"counters": {Counters: []store.CounterDelta{{Table: "t", Family: "f", Row: []byte("r")}}},
		"records":  {Records: []store.Record{{Mutations: []cell.Mutation{*put("r", "v")}}}},
	} {
		if err := s.Apply(t.Context(), b); !errors.Is(err, store.ErrUnsupported) {
			t.Errorf("%s: Got %v, want ErrUnsupported", name, err)
		}
	}
	if n := g.count("put") + g.count("putMultiple") + g.count("mutateRow"); n != 0 {
		t.Errorf("Got %d calls", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Apply(ctx, &store.Batch{Mutations: []store.Mutation{{Mutation: *put("r", "v")}}}); !errors.Is(err, context.Canceled) {
		t.Errorf("Got %v, want context.Canceled", err)
	}
}

// Mutations of one row that cannot be one are applied in their order.
func TestMutateRowsInOrder(t *testing.T) {
	t.Parallel()
	mem := newMem(t)
	s := dial(t, nil, newGateway(t, mem, false))
	var ms []*cell.Mutation
	for i := range 10 {
		m := &cell.Mutation{Table: "t", Row: []byte("r")}
		m.Append("f", []byte("q"), fmt.Append(nil, i))
		ms = append(ms, m, increment("r"))
	}
	results, errs := s.MutateRows(t.Context(), ms)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if got := string(results[18].Cells[0].Value); got != "0123456789" {
		t.Errorf("Got %q", got)
	}
	if n := counted(t, mem, "r"); n != 10 {
		t.Errorf("Got a count of %d", n)
	}
}
