package store

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
)

// Which rows a scan comes to: what a filter rules out ahead is not among them.
func TestFilterSeeksRows(t *testing.T) {
	t.Parallel()
	keys := []string{"a0", "a1", "a2", "b0", "b1", "b2", "c0", "c1", "c2"}
	var rows, reversed []string
	for _, k := range keys {
		rows = append(rows, k+": a:q@1=v")
		reversed = append([]string{k + ": a:q@1=v"}, reversed...)
	}
	b := &PrefixFilter{Prefix: []byte("b")}
	ranges := &MultiRowRangeFilter{Ranges: []RowRange{{Start: []byte("c1"), Stop: []byte("c2")}, {Start: []byte("a1"), Stop: []byte("a1"), StopInclusive: true}}}
	fuzzy := &FuzzyRowFilter{Pairs: []FuzzyPair{{Key: []byte("?2"), Mask: []byte{1, 0}}}}
	low := &RowFilter{Op: Less, Comparator: Binary([]byte("a1"))}
	for _, test := range []struct {
		name     string
		filter   Filter
		asked    []string
		reversed []string
	}{
		{"prefix", b, []string{"a0", "b0", "b1", "b2", "c0"}, []string{"c2", "b2", "b1", "b0", "a2"}},
		{"ranges", ranges, []string{"a0", "a1", "a2", "c1", "c2"}, []string{"c2", "c1", "c0", "a1", "a0"}},
		{"fuzzy", fuzzy, []string{"a0", "a2", "b0", "b2", "c0", "c2"}, []string{"c2", "c1", "b2", "b1", "a2", "a1"}},
		{"row", low, []string{"a0", "a1"}, []string{"c2", "a0"}},
		{"both", &FilterList{Filters: []Filter{ranges, fuzzy}}, []string{"a0", "a2", "c1", "c2"}, []string{"c2", "c1", "b2", "a1"}},
		{"either", &FilterList{MustPassOne: true, Filters: []Filter{ranges, b}}, []string{"a0", "a1", "a2", "b0", "b1", "b2", "c0", "c1", "c2"}, nil},
		{"either, one is done", &FilterList{MustPassOne: true, Filters: []Filter{low, &PrefixFilter{Prefix: []byte("c")}}}, []string{"a0", "a1", "c0", "c1", "c2"}, []string{"c2", "c1", "c0", "b2", "a0"}},
		{"either, one does not know", &FilterList{MustPassOne: true, Filters: []Filter{b, &RowFilter{Op: Equal, Comparator: Comparator{Type: CompareSubstring, Value: []byte("x")}}}}, keys, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, src := scanList(t, Scan{Filter: test.filter}, rows...)
			if d := cmp.Diff(test.asked, src.asked); d != "" {
				t.Errorf("rows asked about (-want +got):\n%s", d)
			}
			if test.reversed == nil {
				return
			}
			_, src = scanList(t, Scan{Filter: test.filter, Reversed: true}, reversed...)
			if d := cmp.Diff(test.reversed, src.asked); d != "" {
				t.Errorf("rows asked about, reversed (-want +got):\n%s", d)
			}
		})
	}
}

// What a selection asks of its engine for a filter.
func TestFilterSelectsColumns(t *testing.T) {
	t.Parallel()
	type family struct {
		Name       string
		Qualifiers [][]byte
		Ranges     []cell.Range
		Oldest     cell.Timestamp
	}
	onlyB := &FamilyFilter{Op: Equal, Comparator: Binary([]byte("b"))}
	upTo := []cell.Range{{Stop: []byte("d")}}
	under := &QualifierFilter{Op: Less, Comparator: Binary([]byte("d"))}
	prefixes := &MultipleColumnPrefixFilter{Prefixes: [][]byte{[]byte("x"), []byte("ab"), []byte("\xff")}}
	for _, test := range []struct {
		name string
		scan Scan
		want []family // of families a and b
	}{
		{"family", Scan{Filter: onlyB}, []family{{Name: "b"}}},
		{"prefixes", Scan{Filter: &FilterList{Filters: []Filter{onlyB, prefixes}}}, []family{{Name: "b", Ranges: []cell.Range{{Start: []byte("ab"), Stop: []byte("ac")}, {Start: []byte("x"), Stop: []byte("y")}, {Start: []byte("\xff")}}}}},
		{"intersection", Scan{Filter: &FilterList{Filters: []Filter{onlyB, prefixes, under}}}, []family{{Name: "b", Ranges: []cell.Range{{Start: []byte("ab"), Stop: []byte("ac")}}}}},
		{"union", Scan{Filter: &FilterList{MustPassOne: true, Filters: []Filter{under, &ColumnPrefixFilter{Prefix: []byte("c")}}}}, []family{{Name: "a", Ranges: upTo}, {Name: "b", Ranges: upTo}}},
		{"union with a filter of values", Scan{Filter: &FilterList{MustPassOne: true, Filters: []Filter{under, &ValueFilter{Op: Equal, Comparator: Binary(nil)}}}}, []family{{Name: "a"}, {Name: "b"}}},
		{"among columns", Scan{Filter: under, Columns: []Column{{Family: "a", Qualifier: []byte("x")}, {Family: "a", Qualifier: []byte("c")}}}, []family{{Name: "a", Qualifiers: [][]byte{[]byte("c")}}}},
		{"behind a filter that counts", Scan{Filter: &FilterList{Filters: []Filter{&FirstKeyOnlyFilter{}, onlyB}}}, []family{{Name: "a"}, {Name: "b"}}},
		{"before a filter that counts", Scan{Filter: &FilterList{Filters: []Filter{onlyB, &FirstKeyOnlyFilter{}}}}, []family{{Name: "b"}}},
		{"before a filter that ends the scan", Scan{Filter: &FilterList{Filters: []Filter{onlyB, &WhileMatchFilter{Filter: onlyB}}}}, []family{{Name: "a"}, {Name: "b"}}},
		{"times", Scan{Filter: &TimestampsFilter{Timestamps: []cell.Timestamp{9, 7}}}, []family{{Name: "a", Oldest: 7}, {Name: "b", Oldest: 7}}},
		{"nothing", Scan{Filter: &TimestampsFilter{}}, nil},
		{"raw", Scan{Filter: onlyB, Raw: true}, []family{{Name: "a"}, {Name: "b"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.scan.Columns == nil {
				test.scan.Columns = []Column{{Family: "a", All: true}, {Family: "b", All: true}}
			}
			sel, err := NewSelection(&test.scan, testTable(t))
			if err != nil {
				t.Fatal(err)
			}
			var got []family
			for _, sf := range sel.Families() {
				got = append(got, family{Name: sf.Family.Name, Qualifiers: sf.Qualifiers, Ranges: sf.Ranges, Oldest: sf.Oldest})
			}
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("Families() (-want +got):\n%s", d)
			}
			if sel.Empty() != (test.want == nil) {
				t.Errorf("Empty() = %v", sel.Empty())
			}
		})
	}
}

func TestFilterStartErrors(t *testing.T) {
	t.Parallel()
	for _, f := range []Filter{
		&MultiRowRangeFilter{},
		&MultiRowRangeFilter{Ranges: []RowRange{{Start: []byte("b"), Stop: []byte("a")}}},
		&MultiRowRangeFilter{Ranges: []RowRange{{Start: []byte("a"), Stop: []byte("a")}}},
		&FuzzyRowFilter{},
		&FuzzyRowFilter{Pairs: []FuzzyPair{{Key: []byte("ab"), Mask: []byte{0}}}},
		&FuzzyRowFilter{Pairs: []FuzzyPair{{Key: []byte("a"), Mask: []byte{2}}}},
		&MultipleColumnPrefixFilter{Prefixes: [][]byte{[]byte("a"), []byte("b"), []byte("a")}},
		&RandomRowFilter{Chance: math.NaN()},
		&ColumnCountGetFilter{Limit: -1},
		&ColumnPaginationFilter{Limit: -1},
		&ColumnPaginationFilter{Offset: -1},
		&ColumnPaginationFilter{Offset: 1, ColumnOffset: []byte{}},
		&SkipFilter{},
		&SkipFilter{Filter: &PageFilter{PageSize: -1}},
		&WhileMatchFilter{},
		&TimestampsFilter{Timestamps: []cell.Timestamp{-1}},
		&FilterList{Filters: []Filter{nil}},
		&DependentColumnFilter{Op: Equal, Comparator: Comparator{Type: CompareRegex, Value: []byte("(")}},
		&ColumnValueFilter{},
	} {
		if _, err := f.Start(&Scan{}); err == nil || !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%T%+v: %v, want ErrInvalidArgument", f, f, err)
		}
	}
	for _, f := range []Filter{&SkipFilter{Filter: &KeyOnlyFilter{}}, &WhileMatchFilter{Filter: &KeyOnlyFilter{}}, &DependentColumnFilter{}, &RandomRowFilter{}} {
		if _, err := NewSelection(&Scan{Filter: f, Batch: 1}, testTable(t)); !errors.Is(err, ErrIncompatibleFilter) {
			t.Errorf("%T with a batch: %v, want ErrIncompatibleFilter", f, err)
		}
	}
}

// Sets of ranges hold what their definitions say.
func TestRanges(t *testing.T) {
	t.Parallel()
	key := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 'a', 0xFF}), 0, 2)
	set := rapid.Custom(func(t *rapid.T) []cell.Range {
		if rapid.IntRange(0, 5).Draw(t, "all") == 0 {
			return nil
		}
		rs := noCell
		for range rapid.IntRange(0, 3).Draw(t, "ranges") {
			rs = appendRange(rs, key.Draw(t, "start"), key.Draw(t, "stop"), rapid.IntRange(0, 4).Draw(t, "open") == 0)
		}
		return mergeRanges(rs)
	})
	holds := func(rs []cell.Range, k []byte) bool {
		_, in := findRange(rs, k)
		return rs == nil || in
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b, k := set.Draw(t, "a"), set.Draw(t, "b"), key.Draw(t, "key")
		if got, want := holds(uniteRanges(a, b), k), holds(a, k) || holds(b, k); got != want {
			t.Errorf("%q in the union of %q and %q: %v", k, a, b, got)
		}
		both := intersectRanges(a, b)
		if got, want := holds(both, k), holds(a, k) && holds(b, k); got != want {
			t.Errorf("%q in the intersection of %q and %q: %v", k, a, b, got)
		}
		if both != nil && !cmp.Equal(both, mergeRanges(append([]cell.Range{}, both...))) {
			t.Errorf("the intersection of %q and %q is %q: not sorted or not joined", a, b, both)
		}
	})
	// A comparison of keys and the ranges that it stands for agree.
	rapid.Check(t, func(t *rapid.T) {
		c := Comparator{Type: rapid.SampledFrom([]ComparatorType{CompareBinary, CompareBinaryPrefix}).Draw(t, "type"), Value: key.Draw(t, "value")}
		op := CompareOp(rapid.IntRange(int(Less), int(NoOp)).Draw(t, "op"))
		test, err := c.test(op)
		if err != nil {
			t.Fatal(err)
		}
		k := key.Draw(t, "key")
		if got, want := holds(c.ranges(op), k), test(k); got != want {
			t.Errorf("%q %s %+v: %v by ranges %q", k, op, c, got, c.ranges(op))
		}
	})
}
