package store_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store"
)

// plain hides an engine's optional abilities.
type plain struct{ store.Engine }

func openTable(t *testing.T) *store.Table {
	t.Helper()
	e := newEngine()
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := e.CreateTable(t.Context(), &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f"), store.NewFamily("g")}}, nil); err != nil {
		t.Fatal(err)
	}
	table, err := store.OpenTable(t.Context(), plain{e}, "t")
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// values returns the newest values of a row by column.
func values(t *testing.T, table *store.Table, row string) map[string]string {
	t.Helper()
	got := map[string]string{}
	r, err := table.Get(t.Context(), []byte(row), nil)
	if err != nil {
		t.Fatal(err)
	}
	if r == nil {
		return got
	}
	for _, c := range r.Cells {
		got[c.Family+":"+string(c.Qualifier)] = string(c.Value)
	}
	return got
}

func TestTable(t *testing.T) {
	t.Parallel()
	ctx, table := t.Context(), openTable(t)
	row := []byte("r")
	for _, c := range []struct{ family, qualifier string }{{"f", "a"}, {"f", "b"}, {"g", "a"}} {
		if err := table.Put(ctx, row, c.family, []byte(c.qualifier), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	if v, err := table.Append(ctx, row, "f", []byte("a"), []byte("+")); err != nil || string(v) != "v+" {
		t.Errorf("Append = %q, %v, want v+", v, err)
	}
	if n, err := table.Increment(ctx, row, "g", []byte("n"), -2); err != nil || n != -2 {
		t.Errorf("Increment = %d, %v, want -2", n, err)
	}
	if _, err := table.Increment(ctx, row, "f", []byte("a"), 1); !errors.Is(err, store.ErrNotANumber) {
		t.Errorf("Increment of text: %v", err)
	}
	if err := table.Delete(ctx, row, store.Column{Family: "f", Qualifier: []byte("b")}, store.Column{Family: "g", All: true}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{"f:a": "v+"}, values(t, table, "r")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, test := range []struct {
		columns []store.Column
		want    bool
	}{{nil, true}, {[]store.Column{{Family: "g", All: true}}, false}, {[]store.Column{{Family: "f", Qualifier: []byte("a")}}, true}} {
		if got, err := table.Exists(ctx, row, test.columns...); err != nil || got != test.want {
			t.Errorf("Exists(%v) = %v, %v, want %v", test.columns, got, err, test.want)
		}
	}
	d, err := table.Descriptor(ctx)
	if err != nil || d.Name != table.Name() || len(d.Families) != 2 {
		t.Errorf("Descriptor = %+v, %v", d, err)
	}
}

func TestTableMutations(t *testing.T) {
	t.Parallel()
	ctx, table := t.Context(), openTable(t)
	row := []byte("r")
	puts, deletes, other := table.NewMutation(row), table.NewMutation(row), table.NewMutation([]byte("other"))
	puts.Put("f", []byte("q"), 5, []byte("v"))
	deletes.DeleteColumn("f", []byte("q"), 4)
	other.Put("f", []byte("q"), 5, []byte("v"))
	early, late := table.NewMutation(row), table.NewMutation(row)
	early.Increment("f", []byte("n"), 1)
	late.Increment("f", []byte("n"), 1)
	early.Read, late.Read = &cell.TimeRange{Max: 5}, &cell.TimeRange{Max: 9}
	free := &store.Cond{Family: "f", Qualifier: []byte("q"), Op: store.Equal}
	only := func(_ any, err error) error { return err }
	for _, test := range []struct {
		name string
		err  error
		want error
	}{
		{"MutateRow of two rows", only(table.MutateRow(ctx, puts, other)), store.ErrWrongRow},
		{"MutateRow of nothing", only(table.MutateRow(ctx)), store.ErrInvalidArgument},
		{"MutateRow with an empty one", only(table.MutateRow(ctx, puts, table.NewMutation(row))), store.ErrInvalidArgument},
		{"MutateRow with two read ranges", only(table.MutateRow(ctx, early, late)), store.ErrInvalidArgument},
		{"CheckAndMutate of another row", only(table.CheckAndMutate(ctx, row, free, other)), store.ErrInvalidArgument},
		{"CheckAndPut of a delete", only(table.CheckAndPut(ctx, row, free, deletes)), store.ErrInvalidArgument},
		{"CheckAndDelete of a put", only(table.CheckAndDelete(ctx, row, free, puts)), store.ErrInvalidArgument},
		{"CheckAndDelete of an increment", only(table.CheckAndDelete(ctx, row, free, early)), store.ErrInvalidArgument},
		{"Get of no row", only(table.Get(ctx, nil, nil)), store.ErrInvalidArgument},
		{"raw Get", only(table.Get(ctx, row, &store.Scan{Raw: true})), store.ErrInvalidArgument},
		{"Get of no family", only(table.Get(ctx, row, &store.Scan{Columns: []store.Column{{Family: "x", All: true}}})), store.ErrFamilyNotFound},
		{"Exists of no row", only(table.Exists(ctx, nil)), store.ErrInvalidArgument},
	} {
		if !errors.Is(test.err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, test.err, test.want)
		}
	}
	if got := values(t, table, "r"); len(got) != 0 {
		t.Errorf("refused mutations left %v", got)
	}
	if got, err := table.CheckAndPut(ctx, row, free, puts); err != nil || !got {
		t.Errorf("CheckAndPut = %v, %v, want true", got, err)
	}
	if got, err := table.CheckAndDelete(ctx, row, free, deletes); err != nil || got {
		t.Errorf("CheckAndDelete = %v, %v, want false", got, err)
	}
	ops := len(puts.Ops)
	if r, err := table.MutateRow(ctx, puts, deletes, late); err != nil || !r.Applied || len(r.Cells) != 1 {
		t.Errorf("MutateRow = %+v, %v", r, err)
	}
	if len(puts.Ops) != ops {
		t.Error("MutateRow changed what it was given")
	}
	// An engine without RowMutator takes them one by one.
	bad := table.NewMutation([]byte("bad"))
	bad.Put("x", nil, 1, nil)
	results, errs := table.MutateRows(ctx, bad, other)
	if len(results) != 2 || !errors.Is(errs[0], store.ErrFamilyNotFound) || errs[1] != nil || !results[1].Applied {
		t.Errorf("MutateRows = %+v, %v", results, errs)
	}
}

func TestTableRows(t *testing.T) {
	t.Parallel()
	ctx, table := t.Context(), openTable(t)
	for _, row := range []string{"a", "b", "c"} {
		if err := table.Put(ctx, []byte(row), "f", nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for row, err := range table.Rows(ctx, &store.Scan{Table: "ignored"}) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, string(row.Key)); len(got) == 2 {
			break
		}
	}
	if d := cmp.Diff([]string{"a", "b"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	steps := 0
	for row, err := range table.Rows(ctx, nil) {
		if steps++; row != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("step %d: %v, %v, want a nil row and context.Canceled", steps, row, err)
		}
	}
	if steps != 1 {
		t.Errorf("%d steps, want the error alone", steps)
	}
	if _, err := store.OpenTable(t.Context(), newEngine(), "nope"); !errors.Is(err, store.ErrTableNotFound) {
		t.Errorf("OpenTable: %v", err)
	}
}

// asked is an engine that remembers which durabilities it was asked for.
type asked struct {
	store.Engine
	durabilities []cell.Durability
}

func (a *asked) Apply(ctx context.Context, b *store.Batch) error {
	for i := range b.Mutations {
		a.durabilities = append(a.durabilities, b.Mutations[i].Durability)
	}
	return a.Engine.Apply(ctx, b)
}

func (a *asked) MutateRow(ctx context.Context, cond *store.Cond, m *cell.Mutation) (store.Result, error) {
	a.durabilities = append(a.durabilities, m.Durability)
	return a.Engine.MutateRow(ctx, cond, m)
}

func askedTable(t *testing.T) (*asked, *store.Table) {
	t.Helper()
	e := newEngine()
	if err := e.CreateTable(t.Context(), &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}, nil); err != nil {
		t.Fatal(err)
	}
	a := &asked{Engine: e}
	table, err := store.OpenTable(t.Context(), a, "t")
	if err != nil {
		t.Fatal(err)
	}
	return a, table
}

func durablePut(d cell.Durability) *cell.Mutation {
	m := &cell.Mutation{Row: []byte("r"), Durability: d}
	m.Put("f", []byte("q"), 5, []byte("v"))
	return m
}

// What is buffered is as durable as it says, not as its table says.
func TestBufferKeepsDurability(t *testing.T) {
	t.Parallel()
	e, table := askedTable(t)
	b, err := table.BufferedMutator(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []cell.Durability{cell.UseDefault, cell.SkipWAL, cell.AsyncWAL, cell.SyncWAL, cell.FsyncWAL}
	for _, d := range want {
		if err := b.Mutate(t.Context(), durablePut(d)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, e.durabilities); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// Mutations of a row that are applied as one are as durable as the safest of them.
func TestJoinedMutationsAreAsDurableAsTheSafest(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		of   []cell.Durability
		want cell.Durability
	}{
		{[]cell.Durability{cell.AsyncWAL, cell.SyncWAL}, cell.SyncWAL},
		{[]cell.Durability{cell.FsyncWAL, cell.SkipWAL}, cell.FsyncWAL},
		{[]cell.Durability{cell.SkipWAL, cell.AsyncWAL, cell.SkipWAL}, cell.AsyncWAL},
		{[]cell.Durability{cell.SkipWAL, cell.UseDefault}, cell.UseDefault}, // which may be safer
		{[]cell.Durability{cell.UseDefault, cell.AsyncWAL}, cell.UseDefault},
		{[]cell.Durability{cell.UseDefault, cell.SyncWAL}, cell.SyncWAL},
	} {
		e, table := askedTable(t)
		var ms []*cell.Mutation
		for _, d := range test.of {
			ms = append(ms, durablePut(d))
		}
		if _, err := table.MutateRow(t.Context(), ms...); err != nil {
			t.Fatal(err)
		}
		if len(e.durabilities) != 1 || e.durabilities[0] != test.want {
			t.Errorf("%v: Got %v, want %v", test.of, e.durabilities, test.want)
		}
	}
}

// Bounds that are as large as a number can be are no bounds.
func TestScanOfLargestBounds(t *testing.T) {
	t.Parallel()
	ctx, table := t.Context(), openTable(t)
	for _, row := range []string{"a", "b", "c", "d"} {
		m := table.NewMutation([]byte(row))
		for _, q := range []string{"p", "q", "r"} {
			m.Put("f", []byte(q), 5, []byte("v"))
		}
		if _, err := table.MutateRow(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	scan := func(s *store.Scan) (rows, cells int, next store.Cursor) {
		t.Helper()
		sc := table.Scan(ctx, s)
		defer sc.Close()
		for sc.Next() {
			rows, cells = rows+1, cells+len(sc.Row().Cells)
		}
		next, err := store.CursorOf(sc)
		if sc.Err() != nil || s.NeedCursor && err != nil {
			t.Fatal(sc.Err(), err)
		}
		return rows, cells, next
	}
	if rows, cells, _ := scan(&store.Scan{LimitPerFamily: math.MaxInt, OffsetPerFamily: 1}); rows != 4 || cells != 8 {
		t.Errorf("Got %d rows of %d cells behind the first of each row, want 4 of 8", rows, cells)
	}
	page := store.Scan{Limit: 3, PageRows: 2, NeedCursor: true}
	_, _, page.Cursor = scan(&page)
	page.PageRows = math.MaxInt
	if rows, _, next := scan(&page); rows != 1 || !next.End() {
		t.Errorf("Got %d rows behind a page of 2, of at most 3 in all", rows)
	}
}
