package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
)

func TestParseFilterString(t *testing.T) {
	t.Parallel()
	bin := func(s string) Comparator { return Binary([]byte(s)) }
	prefix := func(s string) Filter { return &PrefixFilter{Prefix: []byte(s)} }
	all := func(f ...Filter) Filter { return &FilterList{Filters: f} }
	one := func(f ...Filter) Filter { return &FilterList{MustPassOne: true, Filters: f} }
	single := SingleColumnValueFilter{Family: "f", Qualifier: []byte("q"), Op: GreaterOrEqual, Comparator: bin("a")}
	strict := single
	strict.FilterIfMissing, strict.AnyVersion = true, true
	for _, test := range []struct {
		in, out string // out is what it is written as; empty = in
		want    Filter
	}{
		{"KeyOnlyFilter()", "", &KeyOnlyFilter{}},
		{"KeyOnlyFilter(True)", "KeyOnlyFilter(true)", &KeyOnlyFilter{LengthAsValue: true}},
		{" FirstKeyOnlyFilter( ) ", "FirstKeyOnlyFilter()", &FirstKeyOnlyFilter{}},
		{"PrefixFilter ('row' ) ", "PrefixFilter('row')", prefix("row")},
		{"PrefixFilter('')", "", prefix("")},
		{"PrefixFilter(')')", "", prefix(")")},
		{"PrefixFilter('中国, \xff\x00')", "", prefix("中国, \xff\x00")},
		{"ColumnPrefixFilter('qualifier')", "", &ColumnPrefixFilter{Prefix: []byte("qualifier")}},
		{"MultipleColumnPrefixFilter('q1','q2')", "MultipleColumnPrefixFilter('q1', 'q2')", &MultipleColumnPrefixFilter{Prefixes: [][]byte{[]byte("q1"), []byte("q2")}}},
		{"MultipleColumnPrefixFilter()", "", &MultipleColumnPrefixFilter{}},
		{"ColumnCountGetFilter(4)", "", &ColumnCountGetFilter{Limit: 4}},
		{"ColumnPaginationFilter(4, 6)", "", &ColumnPaginationFilter{Limit: 4, Offset: 6}},
		{"DependentColumnFilter('f', 'q')", "", &DependentColumnFilter{Family: "f", Qualifier: []byte("q")}},
		{"DependentColumnFilter('f', 'q', false)", "DependentColumnFilter('f', 'q')", &DependentColumnFilter{Family: "f", Qualifier: []byte("q")}},
		{"DependentColumnFilter('f', 'q', true)", "", &DependentColumnFilter{Family: "f", Qualifier: []byte("q"), DropDependent: true}},
		{"DependentColumnFilter('f', 'q', false, =, 'binary:abc')", "", &DependentColumnFilter{Family: "f", Qualifier: []byte("q"), Op: Equal, Comparator: bin("abc")}},
		{"ColumnValueFilter ('f', 'q', <, 'binary:v')", "ColumnValueFilter('f', 'q', <, 'binary:v')", &ColumnValueFilter{Family: "f", Qualifier: []byte("q"), Op: Less, Comparator: bin("v")}},
		{"PageFilter(4)", "", &PageFilter{PageSize: 4}},
		{"PageFilter(9223372036854775807)", "", &PageFilter{PageSize: 9223372036854775807}},
		{"InclusiveStopFilter ('row''3''')", "InclusiveStopFilter('row''3''')", &InclusiveStopFilter{Row: []byte("row'3'")}},
		{"InclusiveStopFilter('''')", "", &InclusiveStopFilter{Row: []byte("'")}},
		{"TimestampsFilter()", "", &TimestampsFilter{}},
		{"TimestampsFilter(9223372036854775806,6)", "TimestampsFilter(9223372036854775806, 6)", &TimestampsFilter{Timestamps: []cell.Timestamp{9223372036854775806, 6}}},
		{"RowFilter ( =,   'binary:regionse')", "RowFilter(=, 'binary:regionse')", &RowFilter{Op: Equal, Comparator: bin("regionse")}},
		{"RowFilter(<, 'binary:a:b')", "", &RowFilter{Op: Less, Comparator: bin("a:b")}},
		{"FamilyFilter(>=, 'binaryprefix:pre')", "", &FamilyFilter{Op: GreaterOrEqual, Comparator: Comparator{Type: CompareBinaryPrefix, Value: []byte("pre")}}},
		{"QualifierFilter(=, 'regexstring:pre*')", "", &QualifierFilter{Op: Equal, Comparator: Comparator{Type: CompareRegex, Value: []byte("pre*")}}},
		{"QualifierFilter(=, 'regexstringnocase:a|b')", "", &QualifierFilter{Op: Equal, Comparator: Comparator{Type: CompareRegex, Value: []byte("(?i)a|b")}}},
		{"ValueFilter(!=, 'substring:pre')", "", &ValueFilter{Op: NotEqual, Comparator: Comparator{Type: CompareSubstring, Value: []byte("pre")}}},
		{"ColumnRangeFilter('abc', TRUE, 'xyz', false)", "ColumnRangeFilter('abc', true, 'xyz', false)", &ColumnRangeFilter{Min: []byte("abc"), MinInclusive: true, Max: []byte("xyz")}},
		{"ColumnRangeFilter('', true, '', false)", "", &ColumnRangeFilter{MinInclusive: true}},
		{"SingleColumnValueFilter('f', 'q', >=, 'binary:a')", "", &single},
		{"SingleColumnValueFilter('f', 'q', >=, 'binary:a', false, true)", "SingleColumnValueFilter('f', 'q', >=, 'binary:a')", &single},
		{"SingleColumnValueFilter('f', 'q', >=, 'binary:a', true, false)", "", &strict},
		{"SingleColumnValueExcludeFilter('f', 'q', >=, 'binary:a', true, false)", "", &SingleColumnValueExcludeFilter{strict}},

		{"SKIP ValueFilter( =,  'binary:0')", "SKIP ValueFilter(=, 'binary:0')", &SkipFilter{&ValueFilter{Op: Equal, Comparator: bin("0")}}},
		{" WHILE\tPageFilter(1)", "WHILE PageFilter(1)", &WhileMatchFilter{&PageFilter{PageSize: 1}}},
		{"SKIP WHILE SKIP PrefixFilter('a')", "", &SkipFilter{&WhileMatchFilter{&SkipFilter{prefix("a")}}}},
		{"PrefixFilter('a')AND SKIP FirstKeyOnlyFilter()OR KeyOnlyFilter()", "PrefixFilter('a') AND SKIP FirstKeyOnlyFilter() OR KeyOnlyFilter()", one(all(prefix("a"), &SkipFilter{&FirstKeyOnlyFilter{}}), &KeyOnlyFilter{})},
		{"SKIP(PrefixFilter('a') AND PrefixFilter('b'))", "SKIP (PrefixFilter('a') AND PrefixFilter('b'))", &SkipFilter{all(prefix("a"), prefix("b"))}},
		{"SKIP (PrefixFilter('a')) AND PrefixFilter('b')", "SKIP PrefixFilter('a') AND PrefixFilter('b')", all(&SkipFilter{prefix("a")}, prefix("b"))},

		{"(FirstKeyOnlyFilter())", "FirstKeyOnlyFilter()", &FirstKeyOnlyFilter{}},
		{" (PrefixFilter ('a')AND\n\tFirstKeyOnlyFilter())", "PrefixFilter('a') AND FirstKeyOnlyFilter()", all(prefix("a"), &FirstKeyOnlyFilter{})},
		{"PrefixFilter('a') AND PrefixFilter('b') AND PrefixFilter('c')", "", all(prefix("a"), prefix("b"), prefix("c"))},
		{"PrefixFilter('a') OR PrefixFilter('b') OR PrefixFilter('c')", "", one(prefix("a"), prefix("b"), prefix("c"))},
		{"PrefixFilter('a') OR PrefixFilter('b') AND PrefixFilter('c') OR PrefixFilter('d')", "", one(prefix("a"), all(prefix("b"), prefix("c")), prefix("d"))},
		{"(PrefixFilter('a') OR PrefixFilter('b'))AND(PrefixFilter('c') OR PrefixFilter('d'))", "(PrefixFilter('a') OR PrefixFilter('b')) AND (PrefixFilter('c') OR PrefixFilter('d'))", all(one(prefix("a"), prefix("b")), one(prefix("c"), prefix("d")))},
		{"(PrefixFilter('a') AND PrefixFilter('b')) AND PrefixFilter('c')", "", all(all(prefix("a"), prefix("b")), prefix("c"))},
		{"PrefixFilter('a') OR (PrefixFilter('b') OR PrefixFilter('c'))", "", one(prefix("a"), one(prefix("b"), prefix("c")))},
		// Groups that end with two operators, of which HBase's parser loses one.
		{"(PrefixFilter('a') OR PrefixFilter('b') AND PrefixFilter('c'))", "PrefixFilter('a') OR PrefixFilter('b') AND PrefixFilter('c')", one(prefix("a"), all(prefix("b"), prefix("c")))},
		{"PrefixFilter('a') AND (PrefixFilter('b') OR SKIP PrefixFilter('c'))", "", all(prefix("a"), one(prefix("b"), &SkipFilter{prefix("c")}))},
		{"(SKIP WHILE PrefixFilter('a'))", "SKIP WHILE PrefixFilter('a')", &SkipFilter{&WhileMatchFilter{prefix("a")}}},
		{"(PrefixFilter('a') AND (PrefixFilter('b'))) OR PrefixFilter('c')", "PrefixFilter('a') AND PrefixFilter('b') OR PrefixFilter('c')", one(all(prefix("a"), prefix("b")), prefix("c"))},
	} {
		got, err := ParseFilterString(test.in)
		if err != nil {
			t.Errorf("%s: %v", test.in, err)
			continue
		}
		if d := cmp.Diff(test.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", test.in, d)
		}
		if test.out == "" {
			test.out = test.in
		}
		if out, err := FormatFilterString(got); err != nil || out != test.out {
			t.Errorf("%s is written %s, %v, want %s", test.in, out, err, test.out)
		}
	}
}

func TestParseFilterStringErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		in     string
		column int
		want   string // in the error
	}{
		{"", 1, "expected a filter, SKIP, WHILE or (, found the end"},
		{"  ", 3, "found the end"},
		{"()", 2, `expected a filter, SKIP, WHILE or (, found ")"`},
		{"(PrefixFilter('r')", 19, "expected AND, OR or ), found the end"},
		{"PrefixFilter('r'))", 18, `expected AND, OR or the end, found ")"`},
		{"PrefixFilter ('r'", 18, "expected , or ), found the end"},
		{"PrefixFilter ()", 1, "expected PrefixFilter('prefix'), found 0 arguments"},
		{"PrefixFilter", 13, "expected ( after PrefixFilter, found the end"},
		{"PrefixFilter(", 14, "expected an argument of PrefixFilter('prefix'), found the end"},
		{"PrefixFilter(,'r')", 14, `found ","`},
		{"PrefixFilter('r',)", 18, `found ")"`},
		{"PrefixFilter(('r'))", 14, `found "("`},
		{"PrefixFilter(row)", 14, `expected a quoted argument, found "row"`},
		{"PrefixFilter('row)", 14, "expected a closing quote"},
		{"PrefixFilter('中国') AND PrefixFilter('it''s)", 37, "expected a closing quote"},
		{"PrefixFilter('a') PrefixFilter('b')", 19, `expected AND, OR or the end, found "PrefixFilter"`},
		{"PrefixFilter('a') and PrefixFilter('b')", 19, `expected AND, OR or the end, found "and"`},
		{"PrefixFilter ('r') AND", 23, "expected a filter, SKIP, WHILE or (, found the end"},
		{"PrefixFilter ('r') AND OR PrefixFilter('s')", 24, `found "OR"`},
		{"PrefixFilter('a') PrefixFilter('b') AND", 19, "expected AND, OR or the end"},
		{"AND PrefixFilter('a')", 1, `expected a filter, SKIP, WHILE or (, found "AND"`},
		{"NoSuchFilter ('x')", 1, "expected one of KeyOnlyFilter, "},
		{"FuzzyRowFilter('x')", 1, `found "FuzzyRowFilter"`},
		{"prefixfilter('x')", 1, "expected one of KeyOnlyFilter, "},
		{"'PrefixFilter'('x')", 1, "expected a filter, SKIP, WHILE or ("},
		{"KeyOnlyFilter ('')", 16, `expected true or false, found "''"`},
		{"KeyOnlyFilter (1)", 16, `expected true or false, found "1"`},
		{"KeyOnlyFilter (true, true)", 1, "expected KeyOnlyFilter([lenAsVal]), found 2 arguments"},
		{"FirstKeyOnlyFilter ('')", 1, "found 1 arguments"},
		{"PageFilter('123')", 12, "expected a whole number of at most 64 bits"},
		{"PageFilter(9223372036854775808)", 12, "expected a whole number of at most 64 bits"},
		{"PageFilter(+1)", 12, `found "+1"`},
		{"PageFilter(1.5)", 12, `found "1.5"`},
		{"PageFilter(-1)", 1, "page size -1"},
		{"ColumnCountGetFilter('abc')", 22, "expected a whole number of at most 32 bits"},
		{"ColumnCountGetFilter(2147483648)", 22, "expected a whole number of at most 32 bits"},
		{"ColumnPaginationFilter(124)", 1, "expected ColumnPaginationFilter(limit, offset), found 1 arguments"},
		{"ColumnPaginationFilter(4, -123)", 1, "offset -123"},
		{"MultipleColumnPrefixFilter('a', 'a')", 1, `prefix "a" twice`},
		{"DependentColumnFilter('f', 'q', true, =)", 1, "found 4 arguments"},
		{"ColumnValueFilter('f', 'q', <, 'substring:v')", 32, "expected = or != before substring:"},
		{"SKIP", 5, "expected a filter, SKIP, WHILE or (, found the end"},
		{"WHILE AND", 7, `found "AND"`},
		{"SKIPPrefixFilter('a')", 1, `found "SKIPPrefixFilter"`},
		{"TimestampsFilter(-45, 6)", 1, "negative timestamp -45"},
		{"TimestampsFilter(5 6)", 20, `expected , or ), found "6"`},
		{"RowFilter (<>, 'binary:r')", 12, `expected one of < <= = != >= >, found "<>"`},
		{"RowFilter ('>=', 'binary:r')", 12, `found "'>='"`},
		{"RowFilter (=, binary)", 15, "expected 'binary:…', "},
		{"RowFilter (=, 'nosuch:r')", 15, `found "'nosuch:r'"`},
		{"RowFilter (=, 'r')", 15, "'regexstringnocase:…' or 'substring:…', found"},
		{"RowFilter (=, 'long:1')", 15, "expected 'binary:…'"},
		{"RowFilter (<, 'regexstring:r')", 15, "expected = or != before regexstring:"},
		{"ValueFilter (>=, 'substring:r')", 18, "expected = or != before substring:"},
		{"ValueFilter (<, 'regexstringnocase:r')", 17, "expected = or != before regexstringnocase:"},
		{"ValueFilter (=, 'regexstring:(')", 17, "missing closing )"},
		{"SingleColumnValueFilter ('f', 'q', =, 'binary:1', true)", 1, "found 5 arguments"},
		{"SingleColumnValueFilter ('f', 'q', =, 'binary:1', 'true', 'false')", 51, `expected true or false, found "'true'"`},
		{"ColumnRangeFilter ('a', true, 'b')", 1, "found 3 arguments"},
		{strings.Repeat("(", 200), 101, "at most 100 levels"},
		{strings.Repeat("SKIP ", 200), 501, "at most 100 levels"},
	} {
		_, err := ParseFilterString(test.in)
		if !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%s: error %v", test.in, err)
			continue
		}
		if where := fmt.Sprintf("filter string, column %d: ", test.column); !strings.Contains(err.Error(), where) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v\nwant %s… %s", test.in, err, where, test.want)
		}
	}
}

// TestFilterStringInJSON reads the language wherever a filter is written as JSON.
func TestFilterStringInJSON(t *testing.T) {
	t.Parallel()
	want := &FilterList{MustPassOne: true, Filters: []Filter{&PageFilter{PageSize: 1}, &PrefixFilter{Prefix: []byte("it's")}}}
	for _, in := range []string{
		` "PageFilter(1) OR PrefixFilter('it''s')"`,
		`{"type": "FilterList", "op": "MUST_PASS_ONE", "filters": ["PageFilter(1)", {"type": "PrefixFilter", "prefix": "it's"}]}`,
	} {
		got, err := ParseFilterJSON([]byte(in))
		if err != nil {
			t.Errorf("%s: %v", in, err)
		}
		if d := cmp.Diff(Filter(want), got); d != "" {
			t.Errorf("%s (-want +got):\n%s", in, d)
		}
	}
	for _, in := range []string{`""`, `"PageFilter(1)`, `"PageFilter(1)"x`} {
		if _, err := ParseFilterJSON([]byte(in)); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestFormatFilterStringErrors(t *testing.T) {
	t.Parallel()
	first := &FirstKeyOnlyFilter{}
	deep := Filter(first)
	for range maxFilterNesting {
		deep = &FilterList{Filters: []Filter{first, &FilterList{MustPassOne: true, Filters: []Filter{first, deep}}}}
	}
	for _, test := range []struct {
		name   string
		filter Filter
		want   error
	}{
		{"nil", nil, ErrUnsupported},
		{"no list", &FilterList{}, ErrUnsupported},
		{"nil in a list", &FilterList{Filters: []Filter{nil}}, ErrUnsupported},
		{"no operator", &RowFilter{Op: NoOp, Comparator: Binary(nil)}, ErrUnsupported},
		{"comparator", &RowFilter{Op: Equal, Comparator: Comparator{Type: CompareLong, Value: []byte("1")}}, ErrUnsupported},
		{"null", &ValueFilter{Op: Equal, Comparator: Comparator{Type: CompareNull}}, ErrUnsupported},
		{"order of a regex", &ValueFilter{Op: Less, Comparator: Comparator{Type: CompareRegex}}, ErrUnsupported},
		{"regex", &ValueFilter{Op: Equal, Comparator: Comparator{Type: CompareRegex, Value: []byte("(")}}, ErrInvalidArgument},
		{"no filter to skip", &SkipFilter{}, ErrUnsupported},
		{"fuzzy", &FuzzyRowFilter{Pairs: []FuzzyPair{{Key: []byte("a"), Mask: []byte{0}}}}, ErrUnsupported},
		{"column offset", &ColumnPaginationFilter{Limit: 1, ColumnOffset: []byte("a")}, ErrUnsupported},
		{"many columns", &ColumnCountGetFilter{Limit: 1 << 31}, ErrUnsupported},
		{"negative offset", &ColumnPaginationFilter{Offset: -1}, ErrInvalidArgument},
		{"empty bound", &ColumnRangeFilter{Min: []byte{}}, ErrUnsupported},
		{"deep", deep, ErrUnsupported},
		{"negative page", &PageFilter{PageSize: -1}, ErrInvalidArgument},
		{"negative time", &TimestampsFilter{Timestamps: []cell.Timestamp{-1}}, ErrInvalidArgument},
	} {
		if s, err := FormatFilterString(test.filter); !errors.Is(err, test.want) {
			t.Errorf("%s: %q, %v, want %v", test.name, s, err, test.want)
		}
	}
}

// drawStringFilter draws a filter that has a string form, as the parser would
// make it.
func drawStringFilter(rt *rapid.T, depth int) Filter {
	text := func(name string) []byte {
		return append([]byte{}, rapid.SliceOfN(rapid.SampledFrom([]byte("ab:',() \x00\xff")), 0, 5).Draw(rt, name)...)
	}
	comparison := func() (CompareOp, Comparator) {
		types := []ComparatorType{CompareBinary, CompareBinaryPrefix, CompareRegex, CompareSubstring}
		c := Comparator{Type: rapid.SampledFrom(types).Draw(rt, "comparator"), Value: text("value")}
		if c.Type == CompareRegex {
			c.Value = []byte(rapid.SampledFrom([]string{"", "a*", "^'b'$", "(?i)a|b", "(?i)"}).Draw(rt, "regex"))
		}
		if !ordered(c.Type) {
			return rapid.SampledFrom([]CompareOp{Equal, NotEqual}).Draw(rt, "op"), c
		}
		return CompareOp(rapid.IntRange(int(Less), int(Greater)).Draw(rt, "op")), c
	}
	last := 20
	if depth == 4 {
		last = 17 // nothing that holds filters
	}
	switch rapid.IntRange(0, last).Draw(rt, "kind") {
	case 0:
		return &KeyOnlyFilter{LengthAsValue: rapid.Bool().Draw(rt, "length")}
	case 1:
		return &FirstKeyOnlyFilter{}
	case 2:
		return &PrefixFilter{Prefix: text("prefix")}
	case 3:
		return &ColumnPrefixFilter{Prefix: text("prefix")}
	case 4:
		return &PageFilter{PageSize: rapid.Int64Min(0).Draw(rt, "rows")}
	case 5:
		return &InclusiveStopFilter{Row: text("row")}
	case 6:
		f := &TimestampsFilter{}
		for range rapid.IntRange(0, 3).Draw(rt, "times") {
			f.Timestamps = append(f.Timestamps, cell.Timestamp(rapid.Int64Min(0).Draw(rt, "time")))
		}
		return f
	case 7:
		op, c := comparison()
		return &RowFilter{Op: op, Comparator: c}
	case 8:
		op, c := comparison()
		return &FamilyFilter{Op: op, Comparator: c}
	case 9:
		op, c := comparison()
		return &QualifierFilter{Op: op, Comparator: c}
	case 10:
		op, c := comparison()
		return &ValueFilter{Op: op, Comparator: c}
	case 11:
		f := &ColumnRangeFilter{MinInclusive: rapid.Bool().Draw(rt, "from"), MaxInclusive: rapid.Bool().Draw(rt, "to")}
		if f.Min = text("min"); len(f.Min) == 0 {
			f.Min = nil
		}
		if f.Max = text("max"); len(f.Max) == 0 {
			f.Max = nil
		}
		return f
	case 12:
		op, c := comparison()
		f := SingleColumnValueFilter{
			Family: string(text("family")), Qualifier: text("qualifier"), Op: op, Comparator: c,
			FilterIfMissing: rapid.Bool().Draw(rt, "missing"), AnyVersion: rapid.Bool().Draw(rt, "any"),
		}
		if rapid.Bool().Draw(rt, "exclude") {
			return &SingleColumnValueExcludeFilter{f}
		}
		return &f
	case 13:
		f := &MultipleColumnPrefixFilter{}
		for i := range rapid.IntRange(0, 3).Draw(rt, "prefixes") {
			f.Prefixes = append(f.Prefixes, append(text("prefix"), byte(i))) // none twice
		}
		return f
	case 14:
		return &ColumnCountGetFilter{Limit: int(rapid.Int32Min(0).Draw(rt, "limit"))}
	case 15:
		return &ColumnPaginationFilter{Limit: int(rapid.Int32Min(0).Draw(rt, "limit")), Offset: int(rapid.Int32Min(0).Draw(rt, "offset"))}
	case 16:
		f := &DependentColumnFilter{Family: string(text("family")), Qualifier: text("qualifier"), DropDependent: rapid.Bool().Draw(rt, "drop")}
		if rapid.Bool().Draw(rt, "compare") {
			f.Op, f.Comparator = comparison()
		}
		return f
	case 17:
		op, c := comparison()
		return &ColumnValueFilter{Family: string(text("family")), Qualifier: text("qualifier"), Op: op, Comparator: c}
	case 18:
		return &SkipFilter{Filter: drawStringFilter(rt, depth+1)}
	case 19:
		return &WhileMatchFilter{Filter: drawStringFilter(rt, depth+1)}
	}
	l := &FilterList{MustPassOne: rapid.Bool().Draw(rt, "one")}
	for range rapid.IntRange(2, 4).Draw(rt, "members") {
		l.Filters = append(l.Filters, drawStringFilter(rt, depth+1))
	}
	return l
}

func TestFilterStringRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		f := drawStringFilter(rt, 0)
		s, err := FormatFilterString(f)
		if err != nil {
			rt.Fatal(err)
		}
		back, err := ParseFilterString(s)
		if err != nil {
			rt.Fatalf("%s: %v", s, err)
		}
		if d := cmp.Diff(f, back); d != "" {
			rt.Fatalf("%s (-want +got):\n%s", s, d)
		}
	})
}

// FuzzParseFilterString looks for panics, for errors that are not
// ErrInvalidArgument, and for filters that change when they are written and read.
func FuzzParseFilterString(f *testing.F) {
	for _, s := range []string{
		"", "()", "(PrefixFilter ('realtime')AND  SKIP FirstKeyOnlyFilter()OR KeyOnlyFilter())",
		"DependentColumnFilter('f', 'q', true, =, 'binary:abc') OR ColumnPaginationFilter(4, 6) AND MultipleColumnPrefixFilter('a', 'b')",
		"WHILE RowFilter (!=, 'binary:row1')", "InclusiveStopFilter ('row''3''')", "TimestampsFilter(9223372036854775806, 6)",
		"SingleColumnValueFilter ('family', 'qualifier', =, 'regexstringnocase:a', true, false)",
		"ColumnRangeFilter ('', true, 'a', FALSE) OR (PageFilter(-1) AND (KeyOnlyFilter()))",
		"ValueFilter(=, 'regexstring:(?i)a|b') AND QualifierFilter(!=, 'substring:\xff')",
		strings.Repeat("(", maxFilterNesting-1) + "FirstKeyOnlyFilter()" + strings.Repeat(")", maxFilterNesting-1),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		first, err := ParseFilterString(s)
		if err != nil {
			if !errors.Is(err, ErrInvalidArgument) {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		written, err := FormatFilterString(first)
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		second, err := ParseFilterString(written)
		if err != nil {
			t.Fatalf("%q, written %q: %v", s, written, err)
		}
		if d := cmp.Diff(first, second); d != "" {
			t.Fatalf("%q, written %q (-first +second):\n%s", s, written, d)
		}
	})
}
