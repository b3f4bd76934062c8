package store

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
)

func TestFilters(t *testing.T) {
	t.Parallel()
	rows := []string{
		"apple: a:color@2=green a:size@1=7 b:color@1=red",
		"banana: a:color@2=yellow a:taste@3=sweet",
		"cherry: a:size@1=2 b:size@4=3",
	}
	single := SingleColumnValueFilter{Family: "a", Qualifier: []byte("color"), Op: Equal, Comparator: Binary([]byte("green"))}
	missing, exclude := single, SingleColumnValueExcludeFilter{single}
	missing.FilterIfMissing = true
	onlyColor := &QualifierFilter{Op: Equal, Comparator: Binary([]byte("color"))}
	onlyB := &FamilyFilter{Op: Equal, Comparator: Binary([]byte("b"))}
	for _, test := range []struct {
		name   string
		filter Filter
		want   []string
	}{
		{"row", &RowFilter{Op: GreaterOrEqual, Comparator: Binary([]byte("banana"))}, rows[1:]},
		{"row by regex", &RowFilter{Op: Equal, Comparator: Comparator{Type: CompareRegex, Value: []byte("an+a$")}}, rows[1:2]},
		{"row by substring", &RowFilter{Op: NotEqual, Comparator: Comparator{Type: CompareSubstring, Value: []byte("PPL")}}, rows[1:]},
		{"row by prefix comparator", &RowFilter{Op: LessOrEqual, Comparator: Comparator{Type: CompareBinaryPrefix, Value: []byte("b")}}, rows[:2]},
		{"no operator keeps nothing", &RowFilter{Op: NoOp, Comparator: Binary(nil)}, nil},
		{"family", onlyB, []string{"apple: b:color@1=red", "cherry: b:size@4=3"}},
		{"qualifier", onlyColor, []string{"apple: a:color@2=green b:color@1=red", "banana: a:color@2=yellow"}},
		{"value", &ValueFilter{Op: Less, Comparator: Binary([]byte("7"))}, []string{"cherry: a:size@1=2 b:size@4=3"}},
		{"single", &single, []string{rows[0], rows[2]}},
		{"single, not if missing", &missing, rows[:1]},
		{"single, excluded", &exclude, []string{"apple: a:size@1=7 b:color@1=red", rows[2]}},
		{"prefix", &PrefixFilter{Prefix: []byte("ba")}, rows[1:2]},
		{"stop", &InclusiveStopFilter{Row: []byte("banana")}, rows[:2]},
		{"stop at no row", &InclusiveStopFilter{}, nil},
		{"page", &PageFilter{PageSize: 2}, rows[:2]},
		{"column prefix", &ColumnPrefixFilter{Prefix: []byte("s")}, []string{"apple: a:size@1=7", "cherry: a:size@1=2 b:size@4=3"}},
		{"column range", &ColumnRangeFilter{Min: []byte("color"), Max: []byte("size"), MaxInclusive: true}, []string{"apple: a:size@1=7", "cherry: a:size@1=2 b:size@4=3"}},
		{"column range, open", &ColumnRangeFilter{Max: []byte("size")}, []string{"apple: a:color@2=green b:color@1=red", "banana: a:color@2=yellow"}},
		{"first", &FirstKeyOnlyFilter{}, []string{"apple: a:color@2=green", "banana: a:color@2=yellow", "cherry: a:size@1=2"}},
		{"keys", &FilterList{Filters: []Filter{&FirstKeyOnlyFilter{}, &KeyOnlyFilter{}}}, []string{"apple: a:color@2=", "banana: a:color@2=", "cherry: a:size@1="}},
		{"times", &TimestampsFilter{Timestamps: []cell.Timestamp{4, 3}}, []string{"banana: a:taste@3=sweet", "cherry: b:size@4=3"}},
		{"no times", &TimestampsFilter{}, nil},
		{"empty list", &FilterList{}, rows},
		{"all", &FilterList{Filters: []Filter{onlyB, onlyColor}}, []string{"apple: b:color@1=red"}},
		{"any", &FilterList{MustPassOne: true, Filters: []Filter{onlyB, onlyColor}}, []string{"apple: a:color@2=green b:color@1=red", "banana: a:color@2=yellow", "cherry: b:size@4=3"}},
		{"any of rows", &FilterList{MustPassOne: true, Filters: []Filter{&PrefixFilter{Prefix: []byte("a")}, &RowFilter{Op: Equal, Comparator: Binary([]byte("cherry"))}}}, []string{rows[0], rows[2]}},
		{"any of steps", &FilterList{MustPassOne: true, Filters: []Filter{&FirstKeyOnlyFilter{}, &ColumnPrefixFilter{Prefix: []byte("t")}}}, []string{"apple: a:color@2=green", "banana: a:color@2=yellow a:taste@3=sweet", "cherry: a:size@1=2"}},
		{"any with a key transform", &FilterList{MustPassOne: true, Filters: []Filter{&FilterList{Filters: []Filter{onlyB, &KeyOnlyFilter{}}}, onlyColor}}, []string{"apple: a:color@2=green b:color@1=", "banana: a:color@2=yellow", "cherry: b:size@4="}},
		{"page of what passed", &FilterList{Filters: []Filter{onlyB, &PageFilter{PageSize: 2}}}, []string{"apple: b:color@1=red", "cherry: b:size@4=3"}},
		{"row by no prefix", &RowFilter{Op: NotEqual, Comparator: Comparator{Type: CompareBinaryPrefix, Value: []byte("b")}}, []string{rows[0], rows[2]}},
		{"row ranges", &MultiRowRangeFilter{Ranges: []RowRange{{Start: []byte("c")}, {Start: []byte("apple"), StartExclusive: true, Stop: []byte("banana"), StopInclusive: true}}}, rows[1:]},
		{"overlapping row ranges", &MultiRowRangeFilter{Ranges: []RowRange{{Start: []byte("b"), Stop: []byte("c")}, {Stop: []byte("bb")}}}, rows[:2]},
		{"fuzzy", &FuzzyRowFilter{Pairs: []FuzzyPair{{Key: []byte("?a"), Mask: []byte{1, 0}}, {Key: []byte("c??r"), Mask: []byte{0, 1, 1, 0}}}}, rows[1:]},
		{"fuzzy, longer than a row", &FuzzyRowFilter{Pairs: []FuzzyPair{{Key: []byte("apple pie"), Mask: make([]byte, 9)}}}, rows[:1]},
		{"no chance", &RandomRowFilter{Chance: -1}, nil},
		{"every chance", &RandomRowFilter{Chance: 1}, rows},
		{"column value", &ColumnValueFilter{Family: "a", Qualifier: []byte("size"), Op: Greater, Comparator: Binary([]byte("2"))}, []string{"apple: a:size@1=7"}},
		{"dependent", &DependentColumnFilter{Family: "b", Qualifier: []byte("color")}, []string{"apple: a:size@1=7 b:color@1=red"}},
		{"dependent, dropped", &DependentColumnFilter{Family: "b", Qualifier: []byte("color"), DropDependent: true}, []string{"apple: a:size@1=7"}},
		{"dependent, compared", &DependentColumnFilter{Family: "a", Qualifier: []byte("color"), Op: Equal, Comparator: Binary([]byte("yellow"))}, []string{"banana: a:color@2=yellow"}},
		{"column prefixes", &MultipleColumnPrefixFilter{Prefixes: [][]byte{[]byte("ta"), []byte("si"), []byte("size")}}, []string{"apple: a:size@1=7", "banana: a:taste@3=sweet", "cherry: a:size@1=2 b:size@4=3"}},
		{"no column prefixes", &MultipleColumnPrefixFilter{}, rows},
		{"up to a column", &FirstKeyValueMatchingQualifiersFilter{Qualifiers: [][]byte{[]byte("color"), []byte("taste")}}, []string{"apple: a:color@2=green", "banana: a:color@2=yellow", rows[2]}},
		{"column count ends the scan", &ColumnCountGetFilter{Limit: 2}, []string{"apple: a:color@2=green a:size@1=7"}},
		{"column page over families", &ColumnPaginationFilter{Limit: 2, Offset: 1}, []string{"apple: a:size@1=7 b:color@1=red", "banana: a:taste@3=sweet", "cherry: b:size@4=3"}},
		{"column page by column", &ColumnPaginationFilter{Limit: 1, ColumnOffset: []byte("d")}, []string{"apple: a:size@1=7", "banana: a:taste@3=sweet", "cherry: a:size@1=2"}},
		{"column page of none", &ColumnPaginationFilter{}, nil},
		{"skip", &SkipFilter{Filter: &ValueFilter{Op: NotEqual, Comparator: Binary([]byte("red"))}}, rows[1:]},
		{"skip by row", &SkipFilter{Filter: &PrefixFilter{Prefix: []byte("b")}}, rows[1:2]},
		{"while by cell", &WhileMatchFilter{Filter: &ValueFilter{Op: NotEqual, Comparator: Binary([]byte("sweet"))}}, []string{rows[0], "banana: a:color@2=yellow"}},
		{"while by row", &WhileMatchFilter{Filter: &RowFilter{Op: Less, Comparator: Binary([]byte("b"))}}, rows[:1]},
		{"while by the end of a row", &WhileMatchFilter{Filter: &missing}, rows[:1]},
		{"while, beside a prefix", &FilterList{Filters: []Filter{&PrefixFilter{Prefix: []byte("c")}, &WhileMatchFilter{Filter: &RowFilter{Op: NotEqual, Comparator: Binary([]byte("banana"))}}}}, nil},
		{"count, then filter", &FilterList{Filters: []Filter{&ColumnPaginationFilter{Limit: 1}, &ColumnPrefixFilter{Prefix: []byte("s")}}}, []string{"cherry: a:size@1=2"}},
		{"filter, then count", &FilterList{Filters: []Filter{&ColumnPrefixFilter{Prefix: []byte("s")}, &ColumnPaginationFilter{Limit: 1}}}, []string{"apple: a:size@1=7", "cherry: a:size@1=2"}},
		{"a missing column behind a family", &FilterList{Filters: []Filter{onlyB, &missing}}, nil},
		{"any, one stepping over columns, one over rows", &FilterList{MustPassOne: true, Filters: []Filter{&ColumnPaginationFilter{Limit: 2}, &FirstKeyOnlyFilter{}}}, []string{"apple: a:color@2=green a:size@1=7", rows[1], rows[2]}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for range 2 { // a description serves several scans
				got, _ := scanList(t, Scan{Filter: test.filter}, rows...)
				if d := cmp.Diff(test.want, got); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
			}
			// Written and read back it is the same filter.
			b, err := MarshalFilter(test.filter)
			if err != nil {
				t.Fatal(err)
			}
			back, err := ParseFilterJSON(b)
			if err != nil {
				t.Fatalf("%s: %v", b, err)
			}
			got, _ := scanList(t, Scan{Filter: back}, rows...)
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("after %s (-want +got):\n%s", b, d)
			}
		})
	}
}

func TestFiltersReversed(t *testing.T) {
	t.Parallel()
	rows := []string{"c: a:q@1=v", "b2: a:q@1=v", "b1: a:q@1=v", "a: a:q@1=v"}
	for _, test := range []struct {
		filter Filter
		want   []string
	}{
		{&PrefixFilter{Prefix: []byte("b")}, rows[1:3]},
		{&InclusiveStopFilter{Row: []byte("b2")}, rows[:2]},
		{&RowFilter{Op: Less, Comparator: Binary([]byte("b2"))}, rows[2:]},
		{&MultiRowRangeFilter{Ranges: []RowRange{{Stop: []byte("b")}, {Start: []byte("b2"), Stop: []byte("b2"), StopInclusive: true}}}, []string{rows[1], rows[3]}},
		{&FuzzyRowFilter{Pairs: []FuzzyPair{{Key: []byte("?1"), Mask: []byte{1, 0}}}}, []string{rows[0], rows[2], rows[3]}},
	} {
		got, _ := scanList(t, Scan{Filter: test.filter, Reversed: true}, rows...)
		if d := cmp.Diff(test.want, got); d != "" {
			t.Errorf("%T (-want +got):\n%s", test.filter, d)
		}
	}
}

func TestSingleColumnVersions(t *testing.T) {
	t.Parallel()
	row := "r: b:q@3=new b:q@2=old b:x@1=v"
	f := SingleColumnValueFilter{Family: "b", Qualifier: []byte("q"), Op: Equal, Comparator: Binary([]byte("old"))}
	if got, _ := scanList(t, Scan{Filter: &f, Versions: 3}, row); got != nil {
		t.Errorf("by the newest version: %q", got)
	}
	f.AnyVersion = true
	if got, _ := scanList(t, Scan{Filter: &f, Versions: 3}, row); len(got) != 1 {
		t.Errorf("by any version: %q", got)
	}
}

func TestComparators(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		comparator Comparator
		item       string
		want       map[CompareOp]bool // item op comparator
	}{
		{Binary([]byte("m")), "a", map[CompareOp]bool{Less: true, LessOrEqual: true, NotEqual: true, Equal: false, Greater: false}},
		{Binary([]byte("m")), "\xff", map[CompareOp]bool{Greater: true, GreaterOrEqual: true, Less: false}},
		{Comparator{Type: CompareBinaryPrefix, Value: []byte("ab")}, "abc", map[CompareOp]bool{Equal: true, Less: false}},
		{Comparator{Type: CompareBinaryPrefix, Value: []byte("ab")}, "a", map[CompareOp]bool{Less: true, Equal: false}},
		{Comparator{Type: CompareRegex, Value: []byte("a.c")}, "xa\ncx", map[CompareOp]bool{Equal: true, NotEqual: false}},
		{Comparator{Type: CompareSubstring, Value: []byte("BC")}, "abcd", map[CompareOp]bool{Equal: true}},
		{Comparator{Type: CompareBit, BitOp: "AND", Value: []byte{0x0f}}, "\x10", map[CompareOp]bool{Equal: false, NotEqual: true}},
		{Comparator{Type: CompareBit, BitOp: "OR", Value: []byte{0x0f}}, "\x10", map[CompareOp]bool{Equal: true}},
		{Comparator{Type: CompareBit, BitOp: "XOR", Value: []byte{0x0f}}, "\x0f", map[CompareOp]bool{Equal: false}},
		{Comparator{Type: CompareBit, BitOp: "OR", Value: []byte{1}}, "\x01\x01", map[CompareOp]bool{Equal: false}},
		{Comparator{Type: CompareLong, Value: []byte("-5")}, string(number(-6)), map[CompareOp]bool{Less: true, Equal: false}},
		{Comparator{Type: CompareLong, Value: []byte("-5")}, string(number(7)), map[CompareOp]bool{Greater: true}},
		{Comparator{Type: CompareLong, Value: []byte("5")}, "short", map[CompareOp]bool{Equal: false}},
		{Comparator{Type: CompareBinaryComponent, Offset: 2, Value: []byte("cd")}, "abcdx", map[CompareOp]bool{Equal: true, Less: false}},
		{Comparator{Type: CompareBinaryComponent, Offset: 2, Value: []byte("cd")}, "abc", map[CompareOp]bool{Equal: false, Less: true}},
		{Comparator{Type: CompareBinaryComponent, Offset: 9, Value: []byte("cd")}, "abc", map[CompareOp]bool{Equal: false, Less: true}},
		{Comparator{Type: CompareBigDecimal, Value: []byte("-12.5")}, "\x00\x00\x00\x02\xfb\x1e", map[CompareOp]bool{Equal: true, Less: false}},
		{Comparator{Type: CompareBigDecimal, Value: []byte("1.25E3")}, "\x00\x00\x00\x00\x04\xe1", map[CompareOp]bool{Less: true, Greater: false, NotEqual: true}},
		{Comparator{Type: CompareBigDecimal, Value: []byte("5")}, "shrt", map[CompareOp]bool{Equal: false}},
		{Comparator{Type: CompareRegex, Value: []byte(`[]^a-]\Q[&&]\E[[:digit:]]`)}, "][&&]7", map[CompareOp]bool{Equal: true}},
		{Comparator{Type: CompareNull}, "", map[CompareOp]bool{Equal: false, NotEqual: true}},
	} {
		for op, want := range test.want {
			f, err := test.comparator.test(op)
			if err != nil {
				t.Fatal(err)
			}
			if got := f([]byte(test.item)); got != want {
				t.Errorf("%q %s %+v = %v, want %v", test.item, op, test.comparator, got, want)
			}
		}
	}
	for _, bad := range []Comparator{
		{Type: CompareBinaryComponent, Offset: -1},
		{Type: CompareBigDecimal, Value: []byte("1_0")},
		{Type: CompareBigDecimal, Value: []byte("")},
		{Type: CompareBigDecimal, Value: []byte("1e99999999999")},
		{Type: CompareBigDecimal, Value: bytes.Repeat([]byte("9"), maxDecimalDigits+1)},
		{Type: CompareRegex, Value: []byte("a(?=b)")},
		{Type: CompareRegex, Value: []byte(`(a)\1`)},
		{Type: CompareRegex, Value: []byte("[a-z&&[^b]]")},
		{Type: CompareRegex, Value: []byte("[^]&&a]")},
		{Type: CompareRegex, Value: []byte("[a[bc]]")},
		{Type: CompareRegex, Value: []byte("(")},
		{Type: CompareLong, Value: []byte("x")},
		{Type: CompareBit, BitOp: "NOR"},
	} {
		if _, err := bad.test(Equal); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%+v: %v, want ErrInvalidArgument", bad, err)
		}
	}
	if _, err := (&Comparator{Type: "bigger"}).test(Equal); !errors.Is(err, ErrUnsupported) {
		t.Errorf("unknown comparator: %v, want ErrUnsupported", err)
	}
}

func TestParseFilterJSONErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		json string
		want error
		says string
	}{
		{`{`, ErrInvalidArgument, "filter"},
		{`{}`, ErrInvalidArgument, "type is missing"},
		{`{"type":"NoSuchFilter"}`, ErrUnsupported, "NoSuchFilter"},
		{`{"type":"FilterList","op":"SOME"}`, ErrInvalidArgument, "MUST_PASS_ALL"},
		{`{"type":"FilterList","filters":[{"type":"NoSuchFilter"}]}`, ErrUnsupported, "NoSuchFilter"},
		{`{"type":"RowFilter","op":"ABOUT","comparator":{"type":"null"}}`, ErrInvalidArgument, "ABOUT"},
		{`{"type":"RowFilter","op":"EQUAL"}`, ErrInvalidArgument, "comparator is missing"},
		{`{"type":"RowFilter","op":"EQUAL","comparator":{"type":"binary"}}`, ErrInvalidArgument, "comparator value"},
		{`{"type":"PrefixFilter"}`, ErrInvalidArgument, "prefix"},
		{`{"type":"PrefixFilter","prefix":"hex:0"}`, ErrInvalidArgument, "hexadecimal"},
		{`{"type":"PrefixFilter","prefix":"a","prefx":"b"}`, ErrInvalidArgument, "prefx"},
		{`{"type":"NoSuchFilter","pears":[]}`, ErrUnsupported, "NoSuchFilter"},
		{`{"type":"PageFilter"}`, ErrInvalidArgument, "pageSize"},
		{`{"type":"RandomRowFilter"}`, ErrInvalidArgument, "chance"},
		{`{"type":"ColumnCountGetFilter"}`, ErrInvalidArgument, "limit"},
		{`{"type":"ColumnPaginationFilter","limit":1}`, ErrInvalidArgument, "offset"},
		{`{"type":"SkipFilter"}`, ErrInvalidArgument, "filter is missing"},
		{`{"type":"MultiRowRangeFilter","ranges":[["a",true]]}`, ErrInvalidArgument, "row range of 2"},
		{`{"type":"MultiRowRangeFilter","ranges":[["a",true,"b",true,"c"]]}`, ErrInvalidArgument, "row range of 5"},
		{`{"type":"FuzzyRowFilter","pairs":[["a","hex:0"]]}`, ErrInvalidArgument, "mask"},
		{strings.Repeat(`{"type":"SkipFilter","filter":`, 101) + `{"type":"KeyOnlyFilter"}` + strings.Repeat("}", 101), ErrInvalidArgument, "nested"},
	} {
		f, err := ParseFilterJSON([]byte(test.json))
		if !errors.Is(err, test.want) || !regexp.MustCompile(test.says).MatchString(err.Error()) {
			t.Errorf("%s: %v, %v, want %v about %s", test.json, f, err, test.want, test.says)
		}
	}
	if _, err := MarshalFilter(filterFunc(nil)); !errors.Is(err, ErrUnsupported) {
		t.Errorf("MarshalFilter of a foreign filter: %v", err)
	}
}

func TestParseBytes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "plain: text": "plain: text", "hex:00fF": "\x00\xff", "long:-2": string(number(-2)), "repeat:ab:3": "ababab", "repeat::9": "",
	} {
		if got, err := ParseBytes(text); err != nil || string(got) != want {
			t.Errorf("ParseBytes(%q) = %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"hex:0", "hex:zz", "long:", "long:1.5", "repeat:a", "repeat:a:-1", "repeat:a:99999999999", "repeat:ab:2147483647"} {
		if got, err := ParseBytes(text); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("ParseBytes(%q) = %d bytes, %v, want ErrInvalidArgument", text, len(got), err)
		}
	}
}

// FuzzFilterJSON: what is read is written back to the same description, and no
// input panics.
func FuzzFilterJSON(f *testing.F) {
	for _, s := range []string{
		`{"type":"FilterList","op":"MUST_PASS_ONE","filters":[{"type":"KeyOnlyFilter","lenAsVal":true},{"type":"FirstKeyOnlyFilter"}]}`,
		`{"type":"SingleColumnValueFilter","family":"f","qualifier":"hex:ff","op":"LESS","comparator":{"type":"long","value":"5"},"latestVersionOnly":false}`,
		`{"type":"ColumnRangeFilter","min":"a","minInclusive":true,"max":null}`,
		`{"type":"TimestampsFilter","timestamps":[1,2]}`,
		`{"type":"ValueFilter","op":"EQUAL","comparator":{"type":"bit","bitop":"XOR","value":"hex:01"}}`,
		`{"type":"SkipFilter","filter":{"type":"WhileMatchFilter","filter":{"type":"RandomRowFilter","chance":0.5}}}`,
		`{"type":"FuzzyRowFilter","pairs":[["a?c","hex:000100"]]}`,
		`{"type":"MultiRowRangeFilter","ranges":[["r2",true,"r3",true],["s",false,"",false]]}`,
		`{"type":"DependentColumnFilter","family":"f","qualifier":"q","dropDependentColumn":true,"op":"LESS","comparator":{"type":"bigdecimal","value":"1.5"}}`,
		`{"type":"ColumnPaginationFilter","limit":2,"columnOffset":"b"}`,
		`{"type":"MultipleColumnPrefixFilter","prefixes":["b","abd"]}`,
		`{"type":"FirstKeyValueMatchingQualifiersFilter","qualifiers":["b","hex:ff"]}`,
		`{"type":"ColumnValueFilter","family":"f","qualifier":"","op":"LESS","comparator":{"type":"binarycomponent","offset":3,"value":"b"}}`,
		`{"type":"ColumnCountGetFilter","limit":0}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		first, err := ParseFilterJSON(b)
		if err != nil {
			return
		}
		text, err := MarshalFilter(first)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseFilterJSON(text)
		if err != nil {
			t.Fatalf("%s, written as %s: %v", b, text, err)
		}
		twice, err := MarshalFilter(again)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(text), string(twice)); d != "" {
			t.Errorf("(-first +second):\n%s", d)
		}
		if _, err := first.Start(&Scan{}); err == nil {
			if _, err := again.Start(&Scan{}); err != nil {
				t.Errorf("%s starts, %s does not: %v", b, text, err)
			}
		}
	})
}
