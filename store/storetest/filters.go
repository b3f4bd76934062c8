package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/internal/thinned"
	"sluice/store"
)

// drawFilter draws any filter but those that draw lots, nested at most depth deep,
// over the rows, families and qualifiers of random histories.
func drawFilter(rt *rapid.T, depth int) store.Filter {
	first, last := 0, 16
	if depth > 0 && rapid.Bool().Draw(rt, "nested") {
		first, last = 17, 20
	}
	op := store.CompareOp(rapid.IntRange(int(store.Less), int(store.Greater)).Draw(rt, "op"))
	family := rapid.SampledFrom(metaFamilies).Draw(rt, "filter family")
	number := func(what string) int { return rapid.IntRange(0, 3).Draw(rt, what) }
	yes := func(what string) bool { return rapid.Bool().Draw(rt, what) }
	qualifiers := func() [][]byte {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(metaQualifiers), 0, 2, func(q []byte) string { return string(q) }).Draw(rt, "qualifiers")
	}
	single := func() store.SingleColumnValueFilter {
		return store.SingleColumnValueFilter{
			Family: family, Qualifier: drawQualifier(rt), Op: op, Comparator: drawComparator(rt, drawFilterBytes(rt)),
			FilterIfMissing: yes("if missing"), AnyVersion: yes("any version"),
		}
	}
	switch kind := rapid.IntRange(first, last).Draw(rt, "filter"); kind {
	case 0:
		return &store.RowFilter{Op: op, Comparator: drawComparator(rt, drawFilterRow(rt))}
	case 1:
		return &store.FamilyFilter{Op: op, Comparator: drawComparator(rt, []byte(family))}
	case 2:
		return &store.QualifierFilter{Op: op, Comparator: drawComparator(rt, drawQualifier(rt))}
	case 3:
		return &store.ValueFilter{Op: op, Comparator: drawComparator(rt, drawFilterBytes(rt))}
	case 4:
		f := single()
		return &f
	case 5:
		return &store.SingleColumnValueExcludeFilter{SingleColumnValueFilter: single()}
	case 6:
		return &store.ColumnValueFilter{Family: family, Qualifier: drawQualifier(rt), Op: op, Comparator: drawComparator(rt, drawFilterBytes(rt))}
	case 7:
		f := &store.DependentColumnFilter{Family: family, Qualifier: drawQualifier(rt), DropDependent: yes("drop")}
		if yes("compared") {
			f.Op, f.Comparator = op, drawComparator(rt, drawFilterBytes(rt))
		}
		return f
	case 8:
		if yes("stop") {
			return &store.InclusiveStopFilter{Row: drawFilterRow(rt)}
		}
		return &store.PrefixFilter{Prefix: drawFilterRow(rt)[:1]}
	case 9:
		return &store.PageFilter{PageSize: int64(number("page"))}
	case 10:
		if q := qualifiers(); len(q) != 1 {
			return &store.MultipleColumnPrefixFilter{Prefixes: q}
		}
		return &store.ColumnPrefixFilter{Prefix: drawQualifier(rt)}
	case 11:
		f := &store.ColumnRangeFilter{Min: drawQualifier(rt), MinInclusive: yes("min inclusive"), Max: drawQualifier(rt), MaxInclusive: yes("max inclusive")}
		if yes("open") {
			f.Max = nil
		}
		return f
	case 12:
		if yes("get") {
			return &store.ColumnCountGetFilter{Limit: number("limit")}
		}
		f := &store.ColumnPaginationFilter{Limit: number("limit")}
		if yes("by column") {
			f.ColumnOffset = drawQualifier(rt)
		} else {
			f.Offset = number("offset")
		}
		return f
	case 13:
		if yes("first key") {
			return &store.FirstKeyOnlyFilter{}
		}
		return &store.FirstKeyValueMatchingQualifiersFilter{Qualifiers: qualifiers()}
	case 14:
		if yes("keys") {
			return &store.KeyOnlyFilter{LengthAsValue: yes("length")}
		}
		f := &store.TimestampsFilter{}
		for range number("timestamps") {
			f.Timestamps = append(f.Timestamps, 10_000_000+cell.Timestamp(rapid.IntRange(-8, 4).Draw(rt, "time")*3000))
		}
		return f
	case 15:
		f := &store.FuzzyRowFilter{}
		for range number("pairs")%2 + 1 {
			p := store.FuzzyPair{Key: drawFilterRow(rt)}
			for range p.Key {
				p.Mask = append(p.Mask, byte(rapid.IntRange(0, 1).Draw(rt, "mask")))
			}
			f.Pairs = append(f.Pairs, p)
		}
		return f
	case 16:
		f := &store.MultiRowRangeFilter{}
		for range number("ranges")%2 + 1 {
			r := store.RowRange{Start: drawFilterRow(rt), Stop: drawFilterRow(rt), StartExclusive: yes("start exclusive"), StopInclusive: true}
			if bytes.Compare(r.Start, r.Stop) > 0 {
				r.Start, r.Stop = r.Stop, r.Start
			}
			f.Ranges = append(f.Ranges, r)
		}
		return f
	case 17:
		return &store.SkipFilter{Filter: drawFilter(rt, depth-1)}
	case 18:
		return &store.WhileMatchFilter{Filter: drawFilter(rt, depth-1)}
	}
	return drawFilterList(rt, depth)
}

// drawFilterList draws a list, whose members a depth above 0 lets be filters of
// filters.
func drawFilterList(rt *rapid.T, depth int) *store.FilterList {
	f := &store.FilterList{MustPassOne: rapid.Bool().Draw(rt, "one")}
	for range rapid.SampledFrom([]int{0, 1, 2, 2, 2, 3}).Draw(rt, "members") {
		f.Filters = append(f.Filters, drawFilter(rt, depth-1))
	}
	return f
}

// drawFilterRow draws a row of random histories, or one of few bytes, so that rows
// share prefixes and have neighbours.
func drawFilterRow(rt *rapid.T) []byte {
	if rapid.Bool().Draw(rt, "known row") {
		return rapid.SampledFrom(metaRows).Draw(rt, "filter row")
	}
	return rapid.SliceOfN(rapid.SampledFrom([]byte{0, 'a', 'b', 0xFF}), 1, 3).Draw(rt, "filter row")
}

func drawFilterBytes(rt *rapid.T) []byte {
	return rapid.SampledFrom([][]byte{{}, []byte("a"), []byte("v1"), []byte("v2")}).Draw(rt, "compared value")
}

// drawComparator draws a comparator with value.
func drawComparator(rt *rapid.T, value []byte) store.Comparator {
	return rapid.SampledFrom([]store.Comparator{
		store.Binary(value), store.Binary(value),
		{Type: store.CompareBinaryPrefix, Value: value},
		{Type: store.CompareSubstring, Value: value},
		{Type: store.CompareBinaryComponent, Value: value, Offset: 1},
		{Type: store.CompareNull},
	}).Draw(rt, "comparator")
}

// unhinted hides from a scan what a filter can say ahead, so that it is asked about
// every row and cell.
type unhinted struct{ store.Filter }

func (f unhinted) Start(s *store.Scan) (store.FilterState, error) {
	st, err := f.Filter.Start(s)
	return struct{ store.FilterState }{st}, err
}

// testFilterHints requires that seeking changes no result: of random rows, random
// scans with random filters return the same cells whether the engine may leave out
// what the filter says ahead or not, and the same after the filter was written and
// read back.
func testFilterHints(t *testing.T, e *engine) {
	e.create("probe", store.NewFamily("f"))
	probe := e.Scan(t.Context(), &store.Scan{Table: "probe", Filter: unhinted{&store.FirstKeyOnlyFilter{}}})
	for probe.Next() {
	}
	if err := errors.Join(probe.Err(), probe.Close()); errors.Is(err, store.ErrUnsupported) {
		t.Skipf("the engine takes no filters of other packages: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	filters := thinned.Of(64, 16) // of a table
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		name := fmt.Sprintf("hints%d", e.clock.Now())
		e.clock.Advance(1)
		d := &store.TableDescriptor{Name: name}
		for _, f := range append(slices.Clone(metaFamilies), "v") {
			fd := store.NewFamily(f)
			fd.Versions, fd.NewVersionBehavior = rapid.IntRange(1, 3).Draw(rt, "versions"), f == "v"
			d.Families = append(d.Families, fd)
		}
		if err := e.admin().CreateTable(ctx, d, [][]byte{[]byte("b")}); err != nil {
			rt.Fatal(err)
		}
		defer e.drop(name)
		table, err := store.OpenTable(ctx, e.Engine, name)
		if err != nil {
			rt.Fatal(err)
		}
		for range rapid.IntRange(1, 16).Draw(rt, "rows") {
			m := cell.Mutation{Row: drawFilterRow(rt)}
			for range rapid.IntRange(1, 4).Draw(rt, "cells") {
				at := 10_000_000 + cell.Timestamp(rapid.IntRange(-8, 4).Draw(rt, "time")*3000)
				family, q := rapid.SampledFrom(append(metaFamilies, "v")).Draw(rt, "family"), drawQualifier(rt)
				if rapid.IntRange(0, 7).Draw(rt, "delete") == 0 && !(e.limits.NoNullDeletes && family == "v" && len(q) == 0) {
					m.DeleteColumn(family, q, at)
				} else {
					m.Put(family, q, at, drawFilterBytes(rt))
				}
			}
			if _, err := table.MutateRow(ctx, &m); err != nil {
				rt.Fatal(err)
			}
		}
		if c, ok := e.Engine.(store.Compactor); ok && rapid.Bool().Draw(rt, "flush") {
			if err := e.shell(c.Flush(ctx)); err != nil {
				rt.Fatal(err)
			}
		}
		for range filters {
			f := drawFilterList(rt, 2)
			b, err := store.MarshalFilter(f)
			if err != nil {
				rt.Fatal(err)
			}
			back, err := store.ParseFilterJSON(b)
			if err != nil {
				rt.Fatalf("%s: %v", b, err)
			}
			s := store.Scan{Table: name, Reversed: rapid.Bool().Draw(rt, "reversed"), Versions: rapid.IntRange(1, 3).Draw(rt, "scan versions"), Filter: unhinted{f}}
			if rapid.IntRange(0, 3).Draw(rt, "one family") == 0 {
				s.Columns = []store.Column{{Family: "f", All: rapid.Bool().Draw(rt, "all"), Qualifier: drawQualifier(rt)}}
			}
			if rapid.IntRange(0, 3).Draw(rt, "one row") == 0 {
				s.Start = drawFilterRow(rt)
				s.Stop, s.StopInclusive = s.Start, true
			}
			want := printScan(ctx, e, &s)
			for what, again := range map[string]store.Filter{"seeking": f, "seeking, read back": back} {
				s.Filter = again
				if d := cmp.Diff(want, printScan(ctx, e, &s)); d != "" {
					rt.Fatalf("%s with %s, reversed %v (-every row asked +%s):\n%s", what, b, s.Reversed, what, d)
				}
			}
		}
	})
}

// testFilterMarkers requires that filters of columns, which say where to go on, do not go
// past the markers of a family: those that are older than a put of the column without a
// qualifier come behind it.
func testFilterMarkers(t *testing.T, e *engine) {
	table := e.create("t", store.NewFamily("f"))
	m := table.NewMutation([]byte("r"))
	m.Put("f", []byte("b"), 1000, []byte("masked"))
	m.Put("f", []byte("c"), 4000, []byte("kept"))
	m.Put("f", nil, 3000, []byte("unnamed"))
	if _, err := table.MutateRow(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	m = table.NewMutation([]byte("r"))
	m.DeleteFamily("f", 2000)
	if _, err := table.MutateRow(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]store.Filter{
		"prefix":   &store.ColumnPrefixFilter{Prefix: []byte("b")},
		"prefixes": &store.MultipleColumnPrefixFilter{Prefixes: [][]byte{[]byte("b"), []byte("c")}},
		"range":    &store.ColumnRangeFilter{Min: []byte("a"), MinInclusive: true, Max: []byte("d")},
		"list": &store.FilterList{Filters: []store.Filter{
			&store.ColumnRangeFilter{Min: []byte("a")},
			&store.ValueFilter{Op: store.Equal, Comparator: store.Comparator{Type: store.CompareSubstring, Value: []byte("E")}},
		}},
	} {
		var want []string
		if name != "prefix" {
			want = []string{`"r" f:"c"="kept"`}
		}
		if d := cmp.Diff(want, dump(t, e, &store.Scan{Table: "t", Filter: f})); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// testFilterLimits requires what HBase 2.6.1 does: a family that has reached its limit is
// not looked at any further, so that a filter that judges rows by a column behind it takes
// the column for missing.
func testFilterLimits(t *testing.T, e *engine) {
	table := e.create("t", store.NewFamily("f"))
	m := table.NewMutation([]byte("r"))
	for _, q := range []string{"a", "b", "c"} {
		m.Put("f", []byte(q), 1000, []byte(q))
	}
	if _, err := table.MutateRow(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		value   string
		missing bool
		offset  int
		want    [3]int // cells, by limits of 1 to 3
	}{
		{"x", false, 0, [3]int{1, 2, 0}},
		{"c", true, 0, [3]int{0, 0, 3}},
		{"x", false, 1, [3]int{1, 0, 0}},
	} {
		for i, want := range test.want {
			row, err := table.Get(t.Context(), []byte("r"), &store.Scan{
				LimitPerFamily: i + 1, OffsetPerFamily: test.offset,
				Filter: &store.SingleColumnValueFilter{
					Family: "f", Qualifier: []byte("c"), Op: store.Equal, Comparator: store.Binary([]byte(test.value)), FilterIfMissing: test.missing,
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			got := 0
			if row != nil {
				got = len(row.Cells)
			}
			if got != want {
				t.Errorf("%+v, limit %d: Got %d cells, want %d", test, i+1, got, want)
			}
		}
	}
}
