package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store"
)

// contract is what every engine must do beside HBase's semantics of a cell.
var contract = []struct {
	name string
	run  func(*testing.T, *engine)
}{
	{"traits", testTraits},
	{"schema", testSchema},
	{"system tables", testSystemTables}, // before what leaves offsets behind, where a server does
	{"alter", testAlter},
	{"replace families", testReplaceFamilies},
	{"empty families", testEmptyFamilies},
	{"changes", testChanges},
	{"regions", testRegions},
	{"table state", testTableState},
	{"truncate", testTruncate},
	{"namespaces", testNamespaces},
	{"table attributes", testTableAttributes},
	{"region stats", testRegionStats},
	{"split point", testSplitPoint},
	{"keys and order", testKeys},
	{"wide row", testWideRow},
	{"parts of rows", testParts},
	{"cursors", testCursors},
	{"cursors last", testCursorsLast},
	{"cursor errors", testCursorErrors},
	{"gets of many rows", testGetRows},
	{"nil mutations", testNilMutations},
	{"ownership", testOwnership},
	{"closed", testClosed},
	{"context", testContext},
	{"row mutations", testMutateRows},
	{"deletes of one mutation", testDeletesTogether},
	{"newest version deleted twice", testNewestDeletedTwice},
	{"batch", testBatch},
	{"batch refused", testBatchRefused},
	{"batch refused unseen", testBatchRefusedUnseen},
	{"packed puts", testPackedPuts},
	{"packed puts in order", testPackedPutsInOrder},
	{"packed puts refused", testPackedPutsRefused},
	{"batch advance", testAdvance},
	{"batch records", testRecords},
	{"batch order", testBatchOrder},
	{"batch checks", testChecks},
	{"batch ids for a while", testOnceTTL},
	{"counters", testCounters},
	{"counter limits", testCounterLimits},
	{"counter expiry", testCounterExpiry},
	{"distinct", testDistinct},
	{"distinct deletes", testDistinctDeletes},
	{"distinct refused", testDistinctRefused},
	{"distinct expiry", testDistinctExpiry},
	{"distinct replay", testDistinctReplay},
	{"snapshot", testSnapshot},
	{"snapshot agrees", testSnapshotAgrees},
	{"atomic rows", testAtomicRows},
	{"concurrent increments", testConcurrentIncrements},
	{"concurrent conditions", testConcurrentConditions},
	{"filter hints", testFilterHints},
	{"filters and family markers", testFilterMarkers},
	{"filters and limits", testFilterLimits},
	{"durability", testDurability},
	{"durability of puts", testDurabilityPlain},
}

// RunContractWithin tests what every engine must do beside HBase's semantics of a cell, as
// far as l offers it.
func RunContractWithin(t *testing.T, open Factory, l *Limits) {
	l.check(t)
	for _, test := range contract {
		t.Run(test.name, func(t *testing.T) {
			if why := l.Without[test.name]; why != "" {
				t.Skip(why)
			}
			e := start(t, open)
			e.limits = *l
			test.run(t, e)
		})
	}
}

// is fails t where err does not wrap want.
func is(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want an error that wraps %v", what, err, want)
	}
}

// ok fails t at once where err is not nil.
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// dump prints the rows of a table, newest versions. Rows that are had as they are stored
// must be the same.
func dump(t *testing.T, r store.Reader, s *store.Scan) []string {
	t.Helper()
	var out [2][]string
	for i := range out {
		sc := r.Scan(t.Context(), s)
		defer sc.Close()
		ok(t, rows(sc, i == 1, func(row *cell.Row) {
			for _, c := range row.Cells {
				out[i] = append(out[i], fmt.Sprintf("%q %s:%q=%q", row.Key, c.Family, c.Qualifier, c.Value))
			}
		}))
	}
	if d := cmp.Diff(out[0], out[1]); d != "" {
		t.Errorf("scan of %s, and what is stored (-want +got):\n%s", s.Table, d)
	}
	return out[0]
}

// rows calls f for each row of a scan, and with packed takes those that it can as they
// are stored.
func rows(sc store.Scanner, packed bool, f func(*cell.Row)) error {
	stored, can := sc.(store.PackedScanner)
	var some cell.PackedRows
	var scratch []cell.Cell
	for most := 1; ; most++ { // all numbers of rows at once, from one on
		for packed && can && stored.NextPacked(&some, most, 1<<20) > 0 {
			for i := range some.Len() {
				row, err := some.Row(i, scratch)
				if err != nil {
					return err
				}
				f(&row)
			}
		}
		if !sc.Next() {
			return sc.Err()
		}
		f(sc.Row())
	}
}

func (e *engine) want(t *testing.T, r store.Reader, table string, want ...string) {
	t.Helper()
	if d := cmp.Diff(want, dump(t, r, &store.Scan{Table: table})); d != "" {
		t.Errorf("scan of %s (-want +got):\n%s", table, d)
	}
}

// put returns a mutation that writes f:q of row.
func put(table, row, value string) cell.Mutation {
	m := cell.Mutation{Table: table, Row: []byte(row)}
	m.Put("f", []byte("q"), cell.Latest, []byte(value))
	return m
}

func counterFamily(name string) store.FamilyDescriptor {
	f := store.NewFamily(name)
	f.Counter = true
	return f
}

// testDeletesTogether has one mutation delete a family, and a column, up to several times:
// each of them leaves its marker, as of several mutations.
func testDeletesTogether(t *testing.T, e *engine) {
	f := store.NewFamily("f")
	f.Versions = 10
	e.create("t", f)
	write := func(m *cell.Mutation) {
		t.Helper()
		_, err := e.MutateRow(t.Context(), nil, m)
		ok(t, err)
	}
	for _, row := range []string{"family", "column"} {
		for at := cell.Timestamp(100); at <= 600; at += 100 {
			m := &cell.Mutation{Table: "t", Row: []byte(row)}
			m.Put("f", []byte("q"), at, []byte("v"))
			write(m)
		}
	}
	family := &cell.Mutation{Table: "t", Row: []byte("family")}
	column := &cell.Mutation{Table: "t", Row: []byte("column")}
	for _, at := range []cell.Timestamp{500, 300} {
		// DeleteFamily is HBase's Delete.addFamily, which forgets those before it.
		family.Ops = append(family.Ops, cell.Op{Type: cell.OpDeleteFamily, Family: "f", Time: at})
		column.DeleteColumn("f", []byte("q"), at)
	}
	write(family)
	write(column)
	for row, want := range map[string][]string{
		"family": {`  f:"" @500 = "" DeleteFamily`, `  f:"" @300 = "" DeleteFamily`, `  f:"q" @600 = "v" Put`},
		"column": {`  f:"q" @600 = "v" Put`, `  f:"q" @500 = "" DeleteColumn`, `  f:"q" @300 = "" DeleteColumn`},
	} {
		at := &store.Scan{Table: "t", Start: []byte(row), Stop: []byte(row), StopInclusive: true, Versions: store.AllVersions}
		seen := func() (got []string) {
			t.Helper()
			sc := e.Scan(t.Context(), at)
			defer sc.Close()
			for sc.Next() {
				got = append(got, cells(slices.DeleteFunc(sc.Row().Cells, func(c cell.Cell) bool {
					return at.Raw && c.Kind == cell.KindPut && c.Time < 600 // it may show what markers mask, or not
				}), at.Raw)...)
			}
			ok(t, sc.Err())
			return got
		}
		if d := cmp.Diff([]string{`  f:"q" @600 = "v"`}, seen()); d != "" {
			t.Errorf("row %s (-want +got):\n%s", row, d)
		}
		at.Raw = true
		if d := cmp.Diff(want, seen()); d != "" {
			t.Errorf("row %s, raw (-want +got):\n%s", row, d)
		}
	}
}

// The second delete of a column's newest version deletes the one before it, whatever
// the mutation does between the two.
func testNewestDeletedTwice(t *testing.T, e *engine) {
	f := store.NewFamily("f")
	f.Versions = 10
	e.create("t", f)
	q, z := []byte("q"), []byte("z")
	mutate := func(row string, ops func(*cell.Mutation)) {
		t.Helper()
		m := &cell.Mutation{Table: "t", Row: []byte(row)}
		ops(m)
		_, err := e.MutateRow(t.Context(), nil, m)
		ok(t, err)
	}
	for _, c := range []struct {
		row     string
		between func(*cell.Mutation)
		want    []string
	}{
		{"beside", func(*cell.Mutation) {}, []string{`  f:"q" @200 = "v"`, `  f:"q" @100 = "v"`}},
		{"put", func(m *cell.Mutation) { m.Put("f", z, 500, []byte("w")) }, []string{`  f:"q" @200 = "v"`, `  f:"q" @100 = "v"`, `  f:"z" @500 = "w"`}},
		{"delete", func(m *cell.Mutation) { m.DeleteColumn("f", q, 100) }, []string{`  f:"q" @200 = "v"`}},
	} {
		for at := cell.Timestamp(100); at <= 400; at += 100 {
			mutate(c.row, func(m *cell.Mutation) { m.Put("f", q, at, []byte("v")) })
		}
		mutate(c.row, func(m *cell.Mutation) {
			m.Delete("f", q, cell.Latest)
			c.between(m)
			m.Delete("f", q, cell.Latest)
		})
		sc := e.Scan(t.Context(), &store.Scan{Table: "t", Start: []byte(c.row), Stop: []byte(c.row), StopInclusive: true, Versions: store.AllVersions})
		var got []string
		ok(t, rows(sc, false, func(row *cell.Row) { got = append(got, cells(row.Cells, false)...) }))
		ok(t, sc.Close())
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("row %s (-want +got):\n%s", c.row, d)
		}
	}
}

func testTraits(t *testing.T, e *engine) {
	tr := e.Traits()
	if tr.Name == "" || tr.Atomic != store.AtomicRow && tr.Atomic != store.AtomicBatch {
		t.Errorf("Traits() = %+v, want a name and an atomicity", tr)
	}
}

func testSchema(t *testing.T, e *engine) {
	ctx, admin := t.Context(), e.admin()
	d := &store.TableDescriptor{Name: "b", Families: []store.FamilyDescriptor{store.NewFamily("g"), store.NewFamily("f")}}
	d.Families[0].Versions, d.Families[1].TTL, d.MaxTimestampSlop = 7, 60, 5
	d.Attributes = map[string]string{"OWNER": "me"}
	ok(t, admin.CreateTable(ctx, d, nil))
	want := d.Clone()
	ok(t, want.Validate())
	d.Families[0].Versions, d.Attributes["OWNER"] = 9, "you" // the engine has its own
	if n, ok := e.Engine.(store.Namespacer); ok {
		if err := n.CreateNamespace(ctx, &store.Namespace{Name: "ns"}); err != nil {
			t.Fatal(err)
		}
	}
	e.create("ns:a", store.NewFamily("f"))
	check := func() {
		t.Helper()
		got, err := e.Table(ctx, "b")
		ok(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Table(b) (-want +got):\n%s", diff)
		}
		names, err := e.admin().Tables(ctx)
		ok(t, err)
		if diff := cmp.Diff([]string{"b", "ns:a"}, names); diff != "" {
			t.Errorf("Tables() (-want +got):\n%s", diff)
		}
	}
	check()
	if e.durable() {
		e.reopen()
		admin = e.admin()
		check()
	}
	is(t, "create again", admin.CreateTable(ctx, want, nil), store.ErrTableExists)
	is(t, "create without families", admin.CreateTable(ctx, &store.TableDescriptor{Name: "x"}, nil), store.ErrInvalidSchema)
	is(t, "create a bad name", admin.CreateTable(ctx, &store.TableDescriptor{Name: "-x", Families: want.Families}, nil), store.ErrInvalidArgument)
	if err := admin.CreateTable(ctx, &store.TableDescriptor{Name: store.SystemNamespace + ":x", Families: want.Families}, nil); err == nil {
		t.Error("a table in the store's own namespace was created")
	}
	for what, err := range map[string]error{
		"Table":        second(e.Table(ctx, "nope")),
		"Regions":      second(e.Regions(ctx, "nope")),
		"Scan":         e.scanError(&store.Scan{Table: "nope"}),
		"AlterTable":   admin.AlterTable(ctx, &store.TableDescriptor{Name: "nope", Families: want.Families}),
		"DropTable":    admin.DropTable(ctx, "nope"),
		"SplitRegion":  admin.SplitRegion(ctx, "nope", []byte("m")),
		"MergeRegions": admin.MergeRegions(ctx, "nope", nil, []byte("m")),
		"MutateRow":    e.mutateError("nope"),
		"OpenTable":    second(store.OpenTable(ctx, e.Engine, "nope")),
	} {
		is(t, what+" of an unknown table", err, store.ErrTableNotFound)
	}

	ok(t, second(e.MutateRow(ctx, nil, mutation("b", "r"))))
	e.drop("b")
	is(t, "Table after DropTable", second(e.Table(ctx, "b")), store.ErrTableNotFound)
	ok(t, admin.CreateTable(ctx, want, nil))
	e.want(t, e, "b")
}

func second[T any](_ T, err error) error { return err }

func mutation(table, row string) *cell.Mutation {
	m := put(table, row, "v")
	return &m
}

func (e *engine) mutateError(table string) error {
	return second(e.MutateRow(e.t.Context(), nil, mutation(table, "r")))
}

func (e *engine) scanError(s *store.Scan) error { return e.scanErrorIn(e.t.Context(), s) }

func (e *engine) scanErrorIn(ctx context.Context, s *store.Scan) error {
	sc := e.Scan(ctx, s)
	defer sc.Close()
	for sc.Next() {
	}
	return sc.Err()
}

func testAlter(t *testing.T, e *engine) {
	ctx := t.Context()
	table := e.create("t", store.NewFamily("f"), store.NewFamily("g"), counterFamily("n"))
	ok(t, table.Put(ctx, []byte("r"), "f", []byte("q"), []byte("1")))
	ok(t, table.Put(ctx, []byte("r"), "g", []byte("q"), []byte("2")))
	d, err := e.Table(ctx, "t")
	ok(t, err)
	d = d.Clone()
	d.Families = []store.FamilyDescriptor{store.NewFamily("f"), store.NewFamily("h"), counterFamily("n")}
	ok(t, e.admin().AlterTable(ctx, d))
	is(t, "put into a family that is gone", table.Put(ctx, []byte("r"), "g", nil, nil), store.ErrFamilyNotFound)
	ok(t, table.Put(ctx, []byte("r"), "h", []byte("q"), []byte("3")))
	e.want(t, e, "t", `"r" f:"q"="1"`, `"r" h:"q"="3"`)
	d = d.Clone()
	d.Families = append(d.Families, store.NewFamily("g"))
	ok(t, e.admin().AlterTable(ctx, d))
	e.want(t, e, "t", `"r" f:"q"="1"`, `"r" h:"q"="3"`) // g begins empty
	d = d.Clone()
	d.Family("n").Counter = false
	is(t, "a COUNTER family made ordinary", e.admin().AlterTable(ctx, d), store.ErrInvalidSchema)
	d.Families = nil
	is(t, "alter to no families", e.admin().AlterTable(ctx, d), store.ErrInvalidSchema)
}

func testRegions(t *testing.T, e *engine) {
	ctx, admin := t.Context(), e.admin()
	d := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}
	ok(t, admin.CreateTable(ctx, d, [][]byte{[]byte("p"), []byte("g")})) // sorted by the engine
	var all []string
	for _, row := range []string{"a", "g", "m\x00", "z"} {
		ok(t, second(e.MutateRow(ctx, nil, mutation("t", row))))
		all = append(all, fmt.Sprintf("%q f:\"q\"=\"v\"", row))
	}
	want := func(bounds ...string) {
		t.Helper()
		m, err := e.Regions(ctx, "t")
		ok(t, err)
		var got []string
		for i := range m.Len() {
			r := m.At(i)
			if i > 0 && !bytes.Equal(r.Start, m.At(i-1).Stop) {
				t.Errorf("region %d starts at %q, the one before it stops at %q", i, r.Start, m.At(i-1).Stop)
			}
			got = append(got, string(r.Start))
		}
		if last := m.At(m.Len() - 1); len(last.Stop) != 0 {
			t.Errorf("the last region stops at %q", last.Stop)
		}
		if diff := cmp.Diff(append([]string{""}, bounds...), got); diff != "" {
			t.Errorf("regions (-want +got):\n%s", diff)
		}
		e.want(t, e, "t", all...)
	}
	want("g", "p")
	before, err := e.Regions(ctx, "t")
	ok(t, err)
	ok(t, admin.SplitRegion(ctx, "t", []byte("m\x00")))
	want("g", "m\x00", "p")
	if before.Len() != 3 {
		t.Errorf("a region map changed after it was handed out: %d regions", before.Len())
	}
	is(t, "split at a region's start", admin.SplitRegion(ctx, "t", []byte("g")), store.ErrInvalidArgument)
	is(t, "split at the empty row", admin.SplitRegion(ctx, "t", nil), store.ErrInvalidArgument)
	for what, rows := range map[string][]string{
		"no region": {}, "one region": {"h"}, "a region twice": {"h", "i"}, "a region twice and another": {"a", "h", "i"},
		"regions that are not adjacent": {"h", "z"}, "regions with a gap": {"a", "h", "z"},
	} {
		is(t, "merge of "+what, admin.MergeRegions(ctx, "t", keys(rows...)...), store.ErrMergeRegion)
		want("g", "m\x00", "p")
	}
	ok(t, admin.MergeRegions(ctx, "t", keys("z", "m\x00")...)) // in any order, by any of their rows
	want("g", "m\x00")
	ok(t, admin.MergeRegions(ctx, "t", keys("m", "", "z")...))
	want()
	ok(t, admin.SplitRegion(ctx, "t", []byte("g")))
	if e.durable() {
		e.reopen()
		want("g")
	}
	d.Name = "u"
	is(t, "a split key given twice", e.admin().CreateTable(ctx, d, [][]byte{[]byte("a"), []byte("a")}), store.ErrInvalidArgument)
	is(t, "an empty split key", e.admin().CreateTable(ctx, d, [][]byte{{}}), store.ErrInvalidArgument)
}

func keys(rows ...string) [][]byte {
	all := make([][]byte, len(rows))
	for i, row := range rows {
		all[i] = []byte(row)
	}
	return all
}

func testSystemTables(t *testing.T, e *engine) {
	ctx := t.Context()
	for _, d := range store.SystemTables() {
		got, err := e.Table(ctx, d.Name)
		ok(t, err)
		if got.Name != d.Name {
			t.Errorf("Table(%s).Name = %s", d.Name, got.Name)
		}
		e.want(t, e, d.Name)
		if err := e.admin().DropTable(ctx, d.Name); err == nil {
			t.Errorf("system table %s was dropped", d.Name)
		}
	}
	m := &cell.Mutation{Table: store.OffsetsTable, Row: []byte("r")}
	m.Put(store.ProgressFamily, []byte(store.ProgressQualifier), cell.Latest, nil)
	if _, err := e.MutateRow(ctx, nil, m); err == nil {
		t.Error("the offsets table was written by a mutation")
	}
	m = &cell.Mutation{Table: store.OutboxTable, Row: []byte("r")}
	large := store.DefaultMaxCellBytes + 1
	if n := e.limits.MaxCellBytes; n > 0 {
		large = n - 1<<10 // with its key
	}
	m.Put(store.OutboxFamily, []byte("raw"), cell.Latest, bytes.Repeat([]byte("x"), large))
	ok(t, e.Apply(ctx, &store.Batch{Mutations: []store.Mutation{{Mutation: *m}}}))
	m.Ops = nil
	m.DeleteRow(cell.Latest)
	ok(t, second(e.MutateRow(ctx, nil, m)))
	e.want(t, e, store.OutboxTable)
	m = &cell.Mutation{Table: store.JobsTable, Row: []byte("r")}
	m.Put(store.JobsFamily, []byte("q"), 5, []byte("v"))
	ok(t, e.Apply(ctx, &store.Batch{Mutations: []store.Mutation{{Mutation: *m}}}))
	m.Ops = nil
	m.DeleteRow(cell.Latest)
	ok(t, second(e.MutateRow(ctx, nil, m)))
	e.want(t, e, store.JobsTable)
}

func testKeys(t *testing.T, e *engine) {
	ctx := t.Context()
	table := e.create("t", store.NewFamily("f"), store.NewFamily("g"))
	longest := cell.MaxRowLength
	if n := e.limits.MaxRowLength; n > 0 {
		longest = n
	}
	rows := []string{"\x00", "\x00\x00", "\x00\x01", "\x00\xff", "a", "a\x00", "a\x00\x01", "a\x01", "b", "\xff", "\xff\xff", strings.Repeat("k", longest)}
	slices.Reverse(rows)
	for _, row := range rows {
		for _, q := range []string{"\xff", "", "\x00", "q\x00\x01"} {
			ok(t, table.Put(ctx, []byte(row), "g", []byte(q), []byte(row)))
		}
	}
	slices.Sort(rows)
	for _, reversed := range []bool{false, true} {
		var got []string
		for row, err := range table.Rows(ctx, &store.Scan{Reversed: reversed}) {
			ok(t, err)
			got = append(got, string(row.Key))
			var qualifiers []string
			for _, c := range row.Cells {
				qualifiers = append(qualifiers, string(c.Qualifier))
				if string(c.Value) != string(row.Key) {
					t.Errorf("row %.20q has the value of row %.20q", row.Key, c.Value)
				}
			}
			if d := cmp.Diff([]string{"", "\x00", "q\x00\x01", "\xff"}, qualifiers); d != "" {
				t.Errorf("qualifiers of %.20q (-want +got):\n%s", row.Key, d)
			}
		}
		if d := cmp.Diff(rows, got); d != "" {
			t.Errorf("rows, reversed %v (-want +got):\n%s", reversed, d)
		}
		slices.Reverse(rows)
	}
	// Every pair of bounds, compared with a naive choice.
	for _, start := range rows {
		for _, stop := range rows {
			for flags := range 8 {
				s := &store.Scan{Start: []byte(start), Stop: []byte(stop), StartExclusive: flags&1 != 0, StopInclusive: flags&2 != 0, Reversed: flags&4 != 0, Columns: []store.Column{{Family: "g", Qualifier: []byte{0}}}}
				var want, got []string
				for _, row := range rows {
					c, d := strings.Compare(row, start), strings.Compare(stop, row)
					if s.Reversed {
						c, d = -c, -d
					}
					if (c > 0 || c == 0 && !s.StartExclusive) && (d > 0 || d == 0 && s.StopInclusive) {
						want = append(want, row)
					}
				}
				if s.Reversed {
					slices.Reverse(want)
				}
				for row, err := range table.Rows(ctx, s) {
					ok(t, err)
					got = append(got, string(row.Key))
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Fatalf("scan %.20q %.20q flags %d (-want +got):\n%s", start, stop, flags, d)
				}
			}
		}
	}
}

func testWideRow(t *testing.T, e *engine) {
	ctx := t.Context()
	table := e.create("t", store.NewFamily("f"), store.NewFamily("g"))
	const columns = 3000
	qualifier := func(i int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(i)) }
	for from := 0; from < columns; from += 500 { // several puts of several columns
		m := table.NewMutation([]byte("r"))
		for i := from; i < from+500; i++ {
			m.Put("f", qualifier(i), 5, []byte("old"))
			m.Put("g", qualifier(i), cell.Latest, []byte("v"))
		}
		ok(t, second(table.MutateRow(ctx, m)))
	}
	m := table.NewMutation([]byte("r"))
	for i := 0; i < columns; i += 3 {
		m.Put("f", qualifier(i), 5, []byte("new")) // the same coordinates again
	}
	m.DeleteColumn("g", qualifier(7), cell.Latest)
	ok(t, second(table.MutateRow(ctx, m)))
	row, err := table.Get(ctx, []byte("r"), nil)
	ok(t, err)
	if len(row.Cells) != 2*columns-1 {
		t.Fatalf("%d cells, want %d", len(row.Cells), 2*columns-1)
	}
	for i, c := range row.Cells[:columns] {
		want := "old"
		if i%3 == 0 {
			want = "new"
		}
		if !bytes.Equal(c.Qualifier, qualifier(i)) || string(c.Value) != want {
			t.Fatalf("cell %d is %q=%q, want %q=%q", i, c.Qualifier, c.Value, qualifier(i), want)
		}
	}
	s := &store.Scan{Columns: []store.Column{{Family: "f", Qualifier: qualifier(2999)}, {Family: "g", Qualifier: qualifier(7)}, {Family: "g", Qualifier: qualifier(8)}}}
	if row, err = table.Get(ctx, []byte("r"), s); err != nil || len(row.Cells) != 2 {
		t.Errorf("Get of three columns: %v, %v, want two cells", row, err)
	}
	pieces := 0
	for piece, err := range table.Rows(ctx, &store.Scan{Batch: 700}) {
		ok(t, err)
		if pieces++; len(piece.Cells) > 700 {
			t.Errorf("a piece of %d cells", len(piece.Cells))
		}
	}
	if pieces != 9 {
		t.Errorf("%d pieces, want 9", pieces)
	}
}

func testOwnership(t *testing.T, e *engine) {
	ctx := t.Context()
	table := e.create("t", store.NewFamily("f"))
	row, value := []byte("row"), []byte("value")
	m := table.NewMutation(row)
	m.Put("f", value[:1], cell.Latest, value)
	res, err := table.MutateRow(ctx, m)
	ok(t, err)
	_ = res
	copy(row, "xxx")
	copy(value, "yyyyy")
	e.want(t, e, "t", `"row" f:"v"="value"`)
	got, err := table.Get(ctx, []byte("row"), nil)
	ok(t, err)
	copy(got.Cells[0].Value, "zzzzz")
	for r, err := range table.Rows(ctx, nil) {
		ok(t, err)
		r.Cells = r.Cells[:0]
	}
	e.want(t, e, "t", `"row" f:"v"="value"`)
	if next, err := table.Get(ctx, []byte("nope"), nil); next != nil || err != nil {
		t.Errorf("Get of no row = %v, %v", next, err)
	}
}

func testClosed(t *testing.T, e *engine) {
	ctx := context.WithoutCancel(t.Context())
	e.create("t", store.NewFamily("f"))
	for range 2 {
		ok(t, e.Close())
	}
	for what, err := range map[string]error{
		"Apply":     e.Apply(ctx, &store.Batch{Mutations: []store.Mutation{{Mutation: put("t", "r", "v")}}}),
		"MutateRow": second(e.MutateRow(ctx, nil, mutation("t", "r"))),
		"Scan":      e.scanError(&store.Scan{Table: "t"}),
		"Table":     second(e.Table(ctx, "t")),
		"Regions":   second(e.Regions(ctx, "t")),
	} {
		is(t, what+" after Close", err, store.ErrClosed)
	}
	e.Engine = e.open(t, Options{Now: e.clock.Now, Dir: t.TempDir()}) // for the cleanup's Close
}

func testContext(t *testing.T, e *engine) {
	table := e.create("t", store.NewFamily("f"))
	for _, row := range []string{"a", "b"} {
		ok(t, second(e.MutateRow(t.Context(), nil, mutation("t", row))))
	}
	why := errors.New("the caller's reason")
	ctx, cancel := context.WithCancelCause(t.Context())
	sc := e.Scan(ctx, &store.Scan{Table: "t"})
	defer sc.Close()
	if sc.Row() != nil {
		t.Error("a scan has a row before its first Next")
	}
	if !sc.Next() || sc.Row() == nil {
		t.Fatal(sc.Err())
	}
	cancel(why)
	if sc.Next() || sc.Row() != nil {
		t.Error("a scan went on after its context ended")
	}
	is(t, "a scan whose context ended", sc.Err(), context.Canceled)
	for range 2 {
		ok(t, sc.Close())
	}
	is(t, "a scan that begins after its context ended", e.scanErrorIn(ctx, &store.Scan{Table: "t"}), context.Canceled)
	expired, cancel2 := context.WithDeadlineCause(t.Context(), time.Now(), why)
	defer cancel2()
	for range 20 { // none of them may slip through
		is(t, "Apply", e.Apply(ctx, &store.Batch{Mutations: []store.Mutation{{Mutation: put("t", "c", "v")}}}), context.Canceled)
		is(t, "Put", table.Put(ctx, []byte("c"), "f", nil, nil), context.Canceled)
		is(t, "Put", table.Put(expired, []byte("c"), "f", nil, nil), context.DeadlineExceeded)
	}
	e.want(t, e, "t", `"a" f:"q"="v"`, `"b" f:"q"="v"`)
}

func testMutateRows(t *testing.T, e *engine) {
	ctx := t.Context()
	table := e.create("t", store.NewFamily("f"))
	bad, good, last := put("t", "a", "1"), put("t", "a", "2"), put("t", "b", "3")
	bad.Ops[0].Family = "nope"
	inc := cell.Mutation{Row: []byte("c")}
	inc.Increment("f", []byte("n"), 4)
	results, errs := table.MutateRows(ctx, &bad, &good, &inc, &last)
	if len(results) != 4 || len(errs) != 4 {
		t.Fatalf("%d results and %d errors, want 4", len(results), len(errs))
	}
	is(t, "the bad one", errs[0], store.ErrFamilyNotFound)
	for i := 1; i < 4; i++ {
		if errs[i] != nil || !results[i].Applied {
			t.Errorf("mutation %d: %+v, %v", i, results[i], errs[i])
		}
	}
	if len(results[2].Cells) != 1 || !bytes.Equal(results[2].Cells[0].Value, []byte{0, 0, 0, 0, 0, 0, 0, 4}) {
		t.Errorf("increment's result: %+v", results[2])
	}
	e.want(t, e, "t", `"a" f:"q"="2"`, `"b" f:"q"="3"`, `"c" f:"n"="\x00\x00\x00\x00\x00\x00\x00\x04"`)
}
