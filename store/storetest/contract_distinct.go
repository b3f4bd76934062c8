package storetest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/counters"
	"sluice/store"
)

func distinctFamily(name string) store.FamilyDescriptor {
	f := store.NewFamily(name)
	f.Distinct = true
	return f
}

// element returns a mutation that adds an element to u:c of a row, at a time.
func element(row, value string, at cell.Timestamp) cell.Mutation {
	return cell.Mutation{Table: "t", Row: []byte(row), Ops: []cell.Op{{Type: cell.OpAppend, Family: "u", Qualifier: []byte("c"), Value: []byte(value), Time: at}}}
}

// addElements adds elements to u:c of a row, in one batch.
func (e *engine) addElements(t *testing.T, row string, at cell.Timestamp, elements ...string) {
	t.Helper()
	var b store.Batch
	for _, x := range elements {
		b.Add(0, element(row, x, at))
	}
	ok(t, e.Apply(t.Context(), &b))
}

// distinct checks that u:c of a row is the sketch of these elements, at a time; no
// elements, that it is not there.
func (e *engine) distinct(t *testing.T, row string, at cell.Timestamp, elements ...string) {
	t.Helper()
	s := new(counters.Sketch)
	for _, x := range elements {
		s.Add([]byte(x))
	}
	var want []cell.Cell
	if len(elements) > 0 {
		want = []cell.Cell{{Family: "u", Qualifier: []byte("c"), Time: at, Kind: cell.KindPut, Value: s.Append(nil)}}
	}
	sc := e.Scan(t.Context(), &store.Scan{Table: "t", Start: []byte(row), Stop: []byte(row), StopInclusive: true, Columns: []store.Column{{Family: "u", Qualifier: []byte("c")}}})
	defer sc.Close()
	var got []cell.Cell
	if sc.Next() {
		got = sc.Row().Cells
	}
	ok(t, sc.Err())
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("distinct count of row %s (-want +got):\n%s", row, d)
	}
}

func users(from, to int) []string {
	var all []string
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprintf("user-%d", i))
	}
	return all
}

func testDistinct(t *testing.T, e *engine) {
	ctx := t.Context()
	table := e.create("t", distinctFamily("u"), store.NewFamily("f"))
	e.distinct(t, "r", 0)
	e.addElements(t, "r", 100, "a", "b", "a")
	e.distinct(t, "r", 100, "a", "b")
	e.addElements(t, "r", 50, "c", "a") // late: adds, and does not lower the time
	e.distinct(t, "r", 100, "a", "b", "c")
	e.addElements(t, "r", 70, "c") // it is there
	e.distinct(t, "r", 100, "a", "b", "c")
	e.addElements(t, "r", 120, "c") // it is there, and is newer
	e.distinct(t, "r", 120, "a", "b", "c")
	e.addElements(t, "r", cell.Latest, "") // the empty text is an element
	e.distinct(t, "r", e.clock.Now(), "a", "b", "c", "")
	m := element("r", "x", 5)
	m.Ops = append(m.Ops, element("r", "y", 6).Ops...)
	res, err := table.MutateRow(ctx, &m)
	if err != nil || !res.Applied || len(res.Cells) != 0 {
		t.Errorf("two appends return %+v, %v", res, err)
	}
	e.distinct(t, "r", e.clock.Now(), "a", "b", "c", "", "x", "y")
	e.addElements(t, "appended", 1, "a")
	value, err := table.Append(ctx, []byte("appended"), "u", []byte("c"), []byte("b"))
	if err != nil || value != nil {
		t.Errorf("Append returns %q, %v", value, err)
	}
	e.distinct(t, "appended", e.clock.Now(), "a", "b")

	// Through both forms, in several commits, with what a batch repeats.
	e.addElements(t, "big", 1, users(0, 3000)...)
	e.distinct(t, "big", 1, users(0, 3000)...)
	e.addElements(t, "big", 2, users(2000, 6000)...)
	e.distinct(t, "big", 2, users(0, 6000)...)
	if c, has := e.Engine.(store.Compactor); has {
		ok(t, e.shell(c.MajorCompact(ctx, "t")))
		e.distinct(t, "big", 2, users(0, 6000)...)
	}
	if e.durable() && !e.limits.ShellOnly {
		e.reopen()
		e.distinct(t, "r", e.clock.Now(), "a", "b", "c", "", "x", "y")
		e.distinct(t, "big", 2, users(0, 6000)...)
	}
	e.addElements(t, "big", 3, users(5000, 7000)...)
	e.distinct(t, "big", 3, users(0, 7000)...)
}

func testDistinctDeletes(t *testing.T, e *engine) {
	ctx := t.Context()
	table := e.create("t", distinctFamily("u"), store.NewFamily("f"))
	e.addElements(t, "r", 100, "a", "b", "a")
	e.addElements(t, "big", 2, users(0, 6000)...)

	// Deletes take effect in the order of commits; counting starts anew.
	ok(t, table.Delete(ctx, []byte("r"), store.Column{Family: "u", Qualifier: []byte("c")}))
	e.distinct(t, "r", 0)
	e.addElements(t, "r", 10, "a")
	e.distinct(t, "r", 10, "a")
	ok(t, table.Delete(ctx, []byte("r"), store.Column{Family: "u", All: true}))
	e.distinct(t, "r", 0)
	e.addElements(t, "r", 10, "b")
	ok(t, table.Delete(ctx, []byte("r")))
	e.distinct(t, "r", 0)
	m := element("r", "x", 5)
	m.DeleteColumn("u", []byte("c"), cell.Latest)
	m.Ops = append(m.Ops, element("r", "y", 6).Ops...)
	res, err := table.MutateRow(ctx, &m)
	if err != nil || !res.Applied || len(res.Cells) != 0 {
		t.Errorf("append, delete, append returns %+v, %v", res, err)
	}
	e.distinct(t, "r", 6, "y")

	// A sketch is read as any cell by a condition, and a failed one adds nothing.
	add := element("r", "z", 7)
	held, err := table.CheckAndMutate(ctx, []byte("r"), &store.Cond{Family: "u", Qualifier: []byte("c"), Op: store.Equal, Value: []byte("no")}, &add)
	if err != nil || held.Applied {
		t.Errorf("CheckAndMutate = %+v, %v, want not applied", held, err)
	}
	e.distinct(t, "r", 6, "y")
	check := func() {
		t.Helper()
		e.distinct(t, "r", 6, "y")
		e.distinct(t, "big", 2, users(0, 6000)...)
	}
	if c, has := e.Engine.(store.Compactor); has {
		ok(t, c.MajorCompact(ctx, "t"))
		check()
	}
	if e.durable() {
		e.reopen()
		check()
	}
}

// What is refused leaves no element behind, in whichever form the sketch is.
func testDistinctRefused(t *testing.T, e *engine) {
	ctx := t.Context()
	table := e.create("t", distinctFamily("u"), store.NewFamily("f"))
	e.addElements(t, "small", 5, "a")
	e.addElements(t, "edge", 5, users(0, 4700)...) // some elements below the dense form
	e.addElements(t, "large", 5, users(0, 6000)...)
	check := func() {
		t.Helper()
		e.distinct(t, "new", 0)
		e.distinct(t, "small", 5, "a")
		e.distinct(t, "edge", 5, users(0, 4700)...)
		e.distinct(t, "large", 5, users(0, 6000)...)
	}
	var b store.Batch
	for _, row := range []string{"new", "small", "edge", "large"} {
		for _, x := range users(20_000, 20_200) { // takes "edge" into the dense form
			b.Add(0, element(row, x, 9))
		}
		del := cell.Mutation{Table: "t", Row: []byte(row)}
		del.DeleteRow(cell.Latest)
		b.Add(1, del)
		b.Add(2, element(row, "after", 9))
	}
	b.Add(3, put("nope", "r", "v"))
	if err := e.Apply(ctx, &b); err == nil {
		t.Error("a batch with an unknown table was applied")
	}
	check()
	// A record whose second half is refused, in a commit with one that is not.
	b.Reset()
	b.Add(0, element("other", "x", 9))
	b.Record(1, nil, nil, element("small", "b", 9), put("nope", "r", "v"))
	if err := e.Apply(ctx, &b); err == nil {
		t.Error("a record with an unknown table was applied")
	}
	check()
	for _, op := range []cell.Op{
		{Type: cell.OpPut, Value: []byte("v")},
		{Type: cell.OpIncrement, Delta: 1},
		{Type: cell.OpDelete, Time: 1},
		{Type: cell.OpDeleteFamilyVersion, Time: 1},
		{Type: cell.OpAppend, Value: []byte("v"), TTL: 5},
	} {
		op.Family, op.Qualifier = "u", []byte("c")
		m := table.NewMutation([]byte("small"))
		m.Put("f", nil, cell.Latest, nil)
		m.Ops = append(m.Ops, op)
		_, err := table.MutateRow(ctx, m)
		is(t, fmt.Sprintf("%s on a DISTINCT family", op.Type), err, store.ErrRefused)
	}
	delta := store.CounterDelta{Table: "t", Family: "u", Row: []byte("small"), Qualifier: []byte("c"), Delta: 1}
	var refused *store.BatchError
	if err := e.Apply(ctx, &store.Batch{Counters: []store.CounterDelta{delta}}); !errors.As(err, &refused) {
		t.Errorf("a count for a DISTINCT family: %v, want a *BatchError", err)
	}
	check()

	d, err := e.Table(ctx, "t")
	ok(t, err)
	d = d.Clone()
	d.Family("u").Distinct = false
	is(t, "a DISTINCT family made ordinary", e.admin().AlterTable(ctx, d), store.ErrInvalidSchema)
	d.Family("u").Counter = true
	is(t, "a DISTINCT family made one of counters", e.admin().AlterTable(ctx, d), store.ErrInvalidSchema)
	d.Family("u").Distinct = true
	is(t, "a family of both", e.admin().AlterTable(ctx, d), store.ErrInvalidSchema)
	check()
}

func testDistinctExpiry(t *testing.T, e *engine) {
	f := distinctFamily("u")
	f.TTL = 10
	e.create("t", f)
	now := e.clock.Now()
	e.addElements(t, "r", now-4000, "a")
	e.addElements(t, "r", now-10_001, "b") // beyond the TTL: its bucket is gone
	e.distinct(t, "r", now-4000, "a")
	e.clock.Advance(6000)
	e.distinct(t, "r", now-4000, "a") // exactly at its end
	e.clock.Advance(1)
	e.distinct(t, "r", 0)
	e.addElements(t, "r", cell.Latest, "c") // counts anew
	e.distinct(t, "r", e.clock.Now(), "c")
	e.addElements(t, "late", now-10_001, "a")
	e.distinct(t, "late", 0)
}

// Elements and the offset are one unit: a batch that is applied again is stale, and
// adds nothing, not even a newer time.
func testDistinctReplay(t *testing.T, e *engine) {
	ctx := t.Context()
	e.create("t", distinctFamily("u"))
	s := store.Source{Pipeline: "p", Topic: "t", TopicID: [16]byte{1}}
	var b store.Batch
	b.Add(0, element("r", "a", 5))
	b.Advance(s, 0, store.Absent, store.Progress{Next: 1, Applied: 1})
	ok(t, e.Apply(ctx, &b))
	b.Mutations = nil
	b.Add(0, element("r", "b", 9))
	is(t, "the same offset again", e.Apply(ctx, &b), store.ErrStale)
	e.distinct(t, "r", 5, "a")
}
