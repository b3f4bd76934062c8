package store

import (
	"fmt"
	"strconv"
	"strings"

	"sluice/cell"
)

// filterForm is how a filter is written in the filter language (HBase's
// createFilterFromArguments).
type filterForm struct {
	name   string
	args   string // what it takes, for errors
	counts []int  // how many arguments; nil = any number
	parse  func(a *filterArgs) Filter
}

func (f *filterForm) usage() string { return f.name + "(" + f.args + ")" }

// filterForms are the filters that HBase's ParseFilter registers, in its order.
var filterForms = []filterForm{
	{"KeyOnlyFilter", "[lenAsVal]", []int{0, 1}, func(a *filterArgs) Filter {
		return &KeyOnlyFilter{LengthAsValue: a.more() && a.boolean()}
	}},
	{"FirstKeyOnlyFilter", "", []int{0}, func(*filterArgs) Filter { return &FirstKeyOnlyFilter{} }},
	{"PrefixFilter", "'prefix'", []int{1}, func(a *filterArgs) Filter { return &PrefixFilter{Prefix: a.bytes()} }},
	{"ColumnPrefixFilter", "'prefix'", []int{1}, func(a *filterArgs) Filter { return &ColumnPrefixFilter{Prefix: a.bytes()} }},
	{"MultipleColumnPrefixFilter", "'prefix', …", nil, func(a *filterArgs) Filter {
		f := &MultipleColumnPrefixFilter{}
		for a.more() {
			f.Prefixes = append(f.Prefixes, a.bytes())
		}
		return f
	}},
	{"ColumnCountGetFilter", "columns", []int{1}, func(a *filterArgs) Filter { return &ColumnCountGetFilter{Limit: a.count()} }},
	{"PageFilter", "rows", []int{1}, func(a *filterArgs) Filter { return &PageFilter{PageSize: a.integer()} }},
	{"ColumnPaginationFilter", "limit, offset", []int{2}, func(a *filterArgs) Filter {
		return &ColumnPaginationFilter{Limit: a.count(), Offset: a.count()}
	}},
	{"InclusiveStopFilter", "'row'", []int{1}, func(a *filterArgs) Filter { return &InclusiveStopFilter{Row: a.bytes()} }},
	{"TimestampsFilter", "timestamp, …", nil, func(a *filterArgs) Filter {
		f := &TimestampsFilter{}
		for a.more() {
			f.Timestamps = append(f.Timestamps, cell.Timestamp(a.integer()))
		}
		return f
	}},
	{"RowFilter", "operator, 'comparator'", []int{2}, func(a *filterArgs) Filter {
		op, c := a.comparison()
		return &RowFilter{Op: op, Comparator: c}
	}},
	{"FamilyFilter", "operator, 'comparator'", []int{2}, func(a *filterArgs) Filter {
		op, c := a.comparison()
		return &FamilyFilter{Op: op, Comparator: c}
	}},
	{"QualifierFilter", "operator, 'comparator'", []int{2}, func(a *filterArgs) Filter {
		op, c := a.comparison()
		return &QualifierFilter{Op: op, Comparator: c}
	}},
	{"ValueFilter", "operator, 'comparator'", []int{2}, func(a *filterArgs) Filter {
		op, c := a.comparison()
		return &ValueFilter{Op: op, Comparator: c}
	}},
	{"ColumnRangeFilter", "'min', minInclusive, 'max', maxInclusive", []int{4}, func(a *filterArgs) Filter {
		f := &ColumnRangeFilter{}
		f.Min, f.MinInclusive = a.bound(), a.boolean()
		f.Max, f.MaxInclusive = a.bound(), a.boolean()
		return f
	}},
	{"SingleColumnValueFilter", singleColumnArgs, []int{4, 6}, func(a *filterArgs) Filter {
		f := a.singleColumnValue()
		return &f
	}},
	{"SingleColumnValueExcludeFilter", singleColumnArgs, []int{4, 6}, func(a *filterArgs) Filter {
		return &SingleColumnValueExcludeFilter{a.singleColumnValue()}
	}},
	{"DependentColumnFilter", "'family', 'qualifier'[, dropDependentColumn[, operator, 'comparator']]", []int{2, 3, 5}, func(a *filterArgs) Filter {
		f := &DependentColumnFilter{Family: a.text(), Qualifier: a.bytes()}
		f.DropDependent = a.more() && a.boolean()
		if a.more() {
			f.Op, f.Comparator = a.comparison()
		}
		return f
	}},
	{"ColumnValueFilter", "'family', 'qualifier', operator, 'comparator'", []int{4}, func(a *filterArgs) Filter {
		f := &ColumnValueFilter{Family: a.text(), Qualifier: a.bytes()}
		f.Op, f.Comparator = a.comparison()
		return f
	}},
}

const singleColumnArgs = "'family', 'qualifier', operator, 'comparator'[, filterIfMissing, latestVersionOnly]"

// FilterStringNames returns the names of the filters that ParseFilterString knows,
// in the order of HBase's ParseFilter.
func FilterStringNames() []string {
	names := make([]string, len(filterForms))
	for i := range filterForms {
		names[i] = filterForms[i].name
	}
	return names
}

// opSymbols are the comparisons as the filter language writes them; NoOp has none.
var opSymbols = [...]string{Less: "<", LessOrEqual: "<=", Equal: "=", NotEqual: "!=", GreaterOrEqual: ">=", Greater: ">"}

// comparatorForms are the comparators that HBase's ParseFilter registers. Of two
// of a type the one that says more stands first.
var comparatorForms = []struct {
	prefix string
	typ    ComparatorType
	value  string // what the comparator's value begins with
}{
	{"binary:", CompareBinary, ""},
	{"binaryprefix:", CompareBinaryPrefix, ""},
	{"regexstringnocase:", CompareRegex, "(?i)"},
	{"regexstring:", CompareRegex, ""},
	{"substring:", CompareSubstring, ""},
}

// filterArgs reads the arguments of one filter in order; the first error stays.
type filterArgs struct {
	p    *filterParser
	name filterToken
	list []filterToken
	next int
	err  error
}

// more reports that arguments are left.
func (a *filterArgs) more() bool { return a.next < len(a.list) }

// take returns the next argument, which must be of this kind.
func (a *filterArgs) take(kind filterTokenKind, what string) filterToken {
	t := a.list[a.next]
	a.next++
	if t.kind != kind {
		a.bad(t, what)
	}
	return t
}

func (a *filterArgs) bad(t filterToken, what string) {
	a.fail(a.p.expectedAt(t, what))
}

func (a *filterArgs) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

func (a *filterArgs) text() string { return a.take(tokenText, "a quoted argument").text }

func (a *filterArgs) bytes() []byte { return []byte(a.text()) }

// bound returns an end of a range, nil where it is empty: open.
func (a *filterArgs) bound() []byte {
	if b := a.bytes(); len(b) > 0 {
		return b
	}
	return nil
}

func (a *filterArgs) boolean() bool {
	t := a.take(tokenWord, "true or false")
	switch strings.ToLower(t.text) {
	case "true":
		return true
	case "false":
	default:
		a.bad(t, "true or false")
	}
	return false
}

func (a *filterArgs) integer() int64 { return a.number(64) }

// count reads a number of columns, in HBase an int.
func (a *filterArgs) count() int { return int(a.number(32)) }

func (a *filterArgs) number(bits int) int64 {
	what := fmt.Sprintf("a whole number of at most %d bits", bits)
	t := a.take(tokenWord, what)
	n, err := strconv.ParseInt(t.text, 10, bits)
	if err != nil || t.text[0] == '+' {
		a.bad(t, what)
	}
	return n
}

func (a *filterArgs) op() CompareOp {
	const what = "one of < <= = != >= >"
	t := a.take(tokenWord, what)
	for op := Less; op <= Greater; op++ {
		if opSymbols[op] == t.text {
			return op
		}
	}
	a.bad(t, what)
	return 0
}

// comparison reads an operator and a comparator.
func (a *filterArgs) comparison() (CompareOp, Comparator) {
	op := a.op()
	const what = "'binary:…', 'binaryprefix:…', 'regexstring:…', 'regexstringnocase:…' or 'substring:…'"
	t := a.take(tokenText, what)
	for _, form := range comparatorForms {
		value, ok := strings.CutPrefix(t.text, form.prefix)
		if !ok {
			continue
		}
		c := Comparator{Type: form.typ, Value: []byte(form.value + value)}
		if a.err == nil && !ordered(c.Type) && op != Equal && op != NotEqual {
			a.fail(a.p.errorAt(t.start, "expected = or != before %s, which has no order", form.prefix))
		}
		if _, err := c.comparison(); err != nil {
			a.fail(a.p.wrapAt(t.start, err))
		}
		return op, c
	}
	a.bad(t, what)
	return op, Comparator{}
}

// ordered reports whether the comparator knows more than equal and not equal.
func ordered(t ComparatorType) bool { return t != CompareRegex && t != CompareSubstring }

func (a *filterArgs) singleColumnValue() SingleColumnValueFilter {
	f := SingleColumnValueFilter{Family: a.text(), Qualifier: a.bytes()}
	f.Op, f.Comparator = a.comparison()
	if a.more() {
		f.FilterIfMissing = a.boolean()
		f.AnyVersion = !a.boolean()
	}
	return f
}
