package store

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"sluice/cell"
)

// filterJSON is the written form of every filter: an object whose type is HBase's
// class name. Bytes are strings as ParseBytes reads them.
type filterJSON struct {
	Type              string            `json:"type"`
	Op                string            `json:"op,omitempty"`
	Comparator        *comparatorJSON   `json:"comparator,omitempty"`
	Family            string            `json:"family,omitempty"`
	Qualifier         *string           `json:"qualifier,omitempty"`
	FilterIfMissing   bool              `json:"filterIfMissing,omitempty"`
	LatestVersionOnly *bool             `json:"latestVersionOnly,omitempty"`
	Filters           []json.RawMessage `json:"filters,omitempty"`
	PageSize          *int64            `json:"pageSize,omitempty"`
	Prefix            *string           `json:"prefix,omitempty"`
	Min               *string           `json:"min,omitempty"`
	MinInclusive      bool              `json:"minInclusive,omitempty"`
	Max               *string           `json:"max,omitempty"`
	MaxInclusive      bool              `json:"maxInclusive,omitempty"`
	Row               *string           `json:"row,omitempty"`
	LenAsVal          bool              `json:"lenAsVal,omitempty"`
	Timestamps        []cell.Timestamp  `json:"timestamps,omitempty"`
	Prefixes          []string          `json:"prefixes,omitempty"`
	Qualifiers        []string          `json:"qualifiers,omitempty"`
	Limit             *int              `json:"limit,omitempty"`
	Offset            *int              `json:"offset,omitempty"`
	ColumnOffset      *string           `json:"columnOffset,omitempty"`
	DropDependent     bool              `json:"dropDependentColumn,omitempty"`
	Chance            *float64          `json:"chance,omitempty"`
	Pairs             [][2]string       `json:"pairs,omitempty"`
	Ranges            []rowRangeJSON    `json:"ranges,omitempty"`
	Filter            json.RawMessage   `json:"filter,omitempty"`
}

// rowRangeJSON is a RowRange as [start, start inclusive, stop, stop inclusive].
type rowRangeJSON struct {
	start, stop                   string
	startInclusive, stopInclusive bool
}

// UnmarshalJSON reads the four elements.
func (r *rowRangeJSON) UnmarshalJSON(b []byte) error {
	parts := []any{&r.start, &r.startInclusive, &r.stop, &r.stopInclusive}
	n := len(parts)
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	if len(parts) != n {
		return fmt.Errorf("a row range of %d elements, want [start, start inclusive, stop, stop inclusive]", len(parts))
	}
	return nil
}

// MarshalJSON writes the four elements.
func (r rowRangeJSON) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{r.start, r.startInclusive, r.stop, r.stopInclusive})
}

type comparatorJSON struct {
	Type   ComparatorType `json:"type"`
	Value  *string        `json:"value,omitempty"`
	BitOp  string         `json:"bitop,omitempty"`
	Offset int            `json:"offset,omitempty"`
}

// maxFilterNesting bounds filters in filters: what protobuf, in which HBase writes
// them, nests.
const maxFilterNesting = 100

// maxRepeated bounds what a short text can ask for: no cell is larger.
const maxRepeated = DefaultMaxCellBytes

// ParseBytes reads the written form of bytes: "hex:" and hexadecimal digits,
// "long:" and a decimal number for its 8 bytes big-endian, "repeat:c:n" for n
// times c; anything else is its own UTF-8. Its error wraps ErrInvalidArgument.
func ParseBytes(s string) ([]byte, error) {
	bad := func(why string) ([]byte, error) {
		return nil, fmt.Errorf("%w: %.100q: %s", ErrInvalidArgument, s, why)
	}
	switch {
	case strings.HasPrefix(s, "hex:"):
		b, err := hex.DecodeString(s[4:])
		if err != nil {
			return bad("not hexadecimal")
		}
		return b, nil
	case strings.HasPrefix(s, "long:"):
		n, err := strconv.ParseInt(s[5:], 10, 64)
		if err != nil {
			return bad("not a 64-bit number")
		}
		return []byte{byte(n >> 56), byte(n >> 48), byte(n >> 40), byte(n >> 32), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, nil
	case strings.HasPrefix(s, "repeat:"):
		what, count, ok := strings.Cut(s[7:], ":")
		n, err := strconv.Atoi(count)
		if !ok || err != nil || n < 0 || n > maxRepeated/max(len(what), 1) {
			return bad("want repeat:c:n, at most 10 MiB")
		}
		return bytes.Repeat([]byte(what), n), nil
	}
	return []byte(s), nil
}

// FormatBytes writes bytes so that ParseBytes reads them back.
func FormatBytes(b []byte) string {
	s := string(b)
	if !utf8.ValidString(s) || strings.HasPrefix(s, "hex:") || strings.HasPrefix(s, "long:") || strings.HasPrefix(s, "repeat:") {
		return "hex:" + hex.EncodeToString(b)
	}
	return s
}

// opNames are the written forms of the comparisons.
var opNames = [...]string{Less: "LESS", LessOrEqual: "LESS_OR_EQUAL", Equal: "EQUAL", NotEqual: "NOT_EQUAL", GreaterOrEqual: "GREATER_OR_EQUAL", Greater: "GREATER", NoOp: "NO_OP"}

// String returns the comparison as HBase's CompareOperator spells it.
func (op CompareOp) String() string {
	if op < Less || op > NoOp {
		return fmt.Sprintf("CompareOp(%d)", uint8(op))
	}
	return opNames[op]
}

// ParseCompareOp reads what CompareOp.String writes. Its error wraps
// ErrInvalidArgument.
func ParseCompareOp(s string) (CompareOp, error) {
	for op := Less; op <= NoOp; op++ {
		if opNames[op] == s {
			return op, nil
		}
	}
	return 0, fmt.Errorf("%w: comparison %q, want one of %s", ErrInvalidArgument, s, strings.Join(opNames[Less:], ", "))
}

// FilterList operators.
const (
	mustPassAll = "MUST_PASS_ALL"
	mustPassOne = "MUST_PASS_ONE"
)

// ParseFilterJSON reads a filter from an object {"type": HBase's class name, …} or
// from a string in the filter language (ParseFilterString). Its error wraps
// ErrInvalidArgument, or ErrUnsupported, naming the class, for a filter that does
// not exist here.
func ParseFilterJSON(b []byte) (Filter, error) { return parseFilterJSON(b, 1) }

func parseFilterJSON(b []byte, depth int) (Filter, error) {
	if depth > maxFilterNesting {
		return nil, fmt.Errorf("%w: filters nested deeper than %d", ErrInvalidArgument, maxFilterNesting)
	}
	if bytes.HasPrefix(bytes.TrimLeft(b, " \t\r\n"), []byte{'"'}) {
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return nil, fmt.Errorf("%w: filter: %w", ErrInvalidArgument, err)
		}
		return ParseFilterString(s)
	}
	var named struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(b, &named); err != nil {
		return nil, fmt.Errorf("%w: filter: %w", ErrInvalidArgument, err)
	}
	j := filterJSON{Type: named.Type}
	if _, err := j.filter(depth); errors.Is(err, ErrUnsupported) {
		return nil, fmt.Errorf("filter %s: %w", j.Type, err) // before its unknown keys
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil {
		return nil, fmt.Errorf("%w: filter %s: %w", ErrInvalidArgument, named.Type, err)
	}
	f, err := j.filter(depth)
	if err != nil {
		return nil, fmt.Errorf("filter %s: %w", j.Type, err)
	}
	return f, nil
}

func (j *filterJSON) filter(depth int) (Filter, error) {
	r := filterReader{j: j, depth: depth}
	var f Filter
	switch j.Type {
	case "RowFilter":
		f = &RowFilter{Op: r.op(), Comparator: r.comparator()}
	case "FamilyFilter":
		f = &FamilyFilter{Op: r.op(), Comparator: r.comparator()}
	case "QualifierFilter":
		f = &QualifierFilter{Op: r.op(), Comparator: r.comparator()}
	case "ValueFilter":
		f = &ValueFilter{Op: r.op(), Comparator: r.comparator()}
	case "SingleColumnValueFilter":
		f = r.singleColumnValue()
	case "SingleColumnValueExcludeFilter":
		f = &SingleColumnValueExcludeFilter{*r.singleColumnValue()}
	case "PrefixFilter":
		f = &PrefixFilter{Prefix: r.required("prefix", j.Prefix)}
	case "InclusiveStopFilter":
		f = &InclusiveStopFilter{Row: r.required("row", j.Row)}
	case "PageFilter":
		if j.PageSize == nil {
			return nil, fmt.Errorf("%w: pageSize is missing", ErrInvalidArgument)
		}
		f = &PageFilter{PageSize: *j.PageSize}
	case "ColumnPrefixFilter":
		f = &ColumnPrefixFilter{Prefix: r.required("prefix", j.Prefix)}
	case "ColumnRangeFilter":
		f = &ColumnRangeFilter{Min: r.bytes("min", j.Min), MinInclusive: j.MinInclusive, Max: r.bytes("max", j.Max), MaxInclusive: j.MaxInclusive}
	case "FirstKeyOnlyFilter":
		f = &FirstKeyOnlyFilter{}
	case "KeyOnlyFilter":
		f = &KeyOnlyFilter{LengthAsValue: j.LenAsVal}
	case "TimestampsFilter":
		f = &TimestampsFilter{Timestamps: j.Timestamps}
	case "ColumnValueFilter":
		f = &ColumnValueFilter{Family: j.Family, Qualifier: r.required("qualifier", j.Qualifier), Op: r.op(), Comparator: r.comparator()}
	case "DependentColumnFilter":
		d := &DependentColumnFilter{Family: j.Family, Qualifier: r.required("qualifier", j.Qualifier), DropDependent: j.DropDependent}
		if j.Op != "" || j.Comparator != nil {
			d.Op, d.Comparator = r.op(), r.comparator()
		}
		f = d
	case "MultipleColumnPrefixFilter":
		f = &MultipleColumnPrefixFilter{Prefixes: r.list("prefixes", j.Prefixes)}
	case "FirstKeyValueMatchingQualifiersFilter":
		f = &FirstKeyValueMatchingQualifiersFilter{Qualifiers: r.list("qualifiers", j.Qualifiers)}
	case "ColumnCountGetFilter":
		f = &ColumnCountGetFilter{Limit: r.number("limit", j.Limit)}
	case "ColumnPaginationFilter":
		p := &ColumnPaginationFilter{Limit: r.number("limit", j.Limit), ColumnOffset: r.bytes("columnOffset", j.ColumnOffset)}
		if j.ColumnOffset == nil || j.Offset != nil {
			p.Offset = r.number("offset", j.Offset)
		}
		f = p
	case "RandomRowFilter":
		if j.Chance == nil {
			return nil, fmt.Errorf("%w: chance is missing", ErrInvalidArgument)
		}
		f = &RandomRowFilter{Chance: *j.Chance}
	case "FuzzyRowFilter":
		f = r.fuzzyRow()
	case "MultiRowRangeFilter":
		f = r.multiRowRange()
	case "SkipFilter":
		f = &SkipFilter{Filter: r.filter()}
	case "WhileMatchFilter":
		f = &WhileMatchFilter{Filter: r.filter()}
	case "FilterList":
		f = r.filterList()
	case "":
		return nil, fmt.Errorf("%w: type is missing", ErrInvalidArgument)
	default:
		return nil, fmt.Errorf("%w: this filter", ErrUnsupported)
	}
	return f, r.err
}

// filterReader reads the parts of a filter; the first error stays.
type filterReader struct {
	j     *filterJSON
	depth int
	err   error
}

func (r *filterReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *filterReader) op() CompareOp {
	op, err := ParseCompareOp(r.j.Op)
	if err != nil {
		r.fail(err)
	}
	return op
}

func (r *filterReader) bytes(name string, s *string) []byte {
	if s == nil {
		return nil
	}
	b, err := ParseBytes(*s)
	if err != nil {
		r.fail(fmt.Errorf("%s: %w", name, err))
	}
	return b
}

func (r *filterReader) required(name string, s *string) []byte {
	if s == nil {
		r.fail(fmt.Errorf("%w: %s is missing", ErrInvalidArgument, name))
	}
	return r.bytes(name, s)
}

func (r *filterReader) list(name string, texts []string) [][]byte {
	var all [][]byte
	for i := range texts {
		all = append(all, r.bytes(name, &texts[i]))
	}
	return all
}

func (r *filterReader) number(name string, n *int) int {
	if n == nil {
		r.fail(fmt.Errorf("%w: %s is missing", ErrInvalidArgument, name))
		return 0
	}
	return *n
}

func (r *filterReader) comparator() Comparator {
	c := r.j.Comparator
	if c == nil {
		r.fail(fmt.Errorf("%w: comparator is missing", ErrInvalidArgument))
		return Comparator{}
	}
	out := Comparator{Type: c.Type, BitOp: c.BitOp, Offset: c.Offset}
	if (c.Type == CompareLong || c.Type == CompareBigDecimal) && c.Value != nil {
		out.Value = []byte(*c.Value) // a decimal number
	} else if c.Type != CompareNull {
		out.Value = r.required("comparator value", c.Value)
	}
	return out
}

func (r *filterReader) singleColumnValue() *SingleColumnValueFilter {
	j := r.j
	return &SingleColumnValueFilter{
		Family: j.Family, Qualifier: r.required("qualifier", j.Qualifier), Op: r.op(), Comparator: r.comparator(),
		FilterIfMissing: j.FilterIfMissing, AnyVersion: j.LatestVersionOnly != nil && !*j.LatestVersionOnly,
	}
}

func (r *filterReader) fuzzyRow() *FuzzyRowFilter {
	f := &FuzzyRowFilter{}
	for i := range r.j.Pairs {
		p := &r.j.Pairs[i]
		f.Pairs = append(f.Pairs, FuzzyPair{Key: r.bytes("key", &p[0]), Mask: r.bytes("mask", &p[1])})
	}
	return f
}

func (r *filterReader) multiRowRange() *MultiRowRangeFilter {
	f := &MultiRowRangeFilter{}
	for i := range r.j.Ranges {
		j := &r.j.Ranges[i]
		f.Ranges = append(f.Ranges, RowRange{
			Start: r.bytes("start", &j.start), StartExclusive: !j.startInclusive,
			Stop: r.bytes("stop", &j.stop), StopInclusive: j.stopInclusive,
		})
	}
	return f
}

func (r *filterReader) filter() Filter {
	if len(r.j.Filter) == 0 {
		r.fail(fmt.Errorf("%w: filter is missing", ErrInvalidArgument))
		return nil
	}
	f, err := parseFilterJSON(r.j.Filter, r.depth+1)
	if err != nil {
		r.fail(err)
	}
	return f
}

func (r *filterReader) filterList() *FilterList {
	f := &FilterList{}
	switch r.j.Op {
	case mustPassAll, "":
	case mustPassOne:
		f.MustPassOne = true
	default:
		r.fail(fmt.Errorf("%w: op %q, want %s or %s", ErrInvalidArgument, r.j.Op, mustPassAll, mustPassOne))
	}
	for _, b := range r.j.Filters {
		m, err := parseFilterJSON(b, r.depth+1)
		if err != nil {
			r.fail(err)
		}
		f.Filters = append(f.Filters, m)
	}
	return f
}

// MarshalFilter writes f so that ParseFilterJSON reads it back. Its error wraps
// ErrUnsupported for a Filter that is not of this package.
func MarshalFilter(f Filter) ([]byte, error) {
	var j filterJSON
	var err error
	text := func(b []byte) *string {
		s := FormatBytes(b)
		return &s
	}
	open := func(b []byte) *string {
		if b == nil {
			return nil
		}
		return text(b)
	}
	compare := func(op CompareOp, c *Comparator) {
		j.Op, j.Comparator = op.String(), &comparatorJSON{Type: c.Type, BitOp: c.BitOp, Offset: c.Offset}
		switch c.Type {
		case CompareNull:
		case CompareLong, CompareBigDecimal:
			s := string(c.Value)
			j.Comparator.Value = &s
		default:
			j.Comparator.Value = text(c.Value)
		}
	}
	list := func(all [][]byte) (texts []string) {
		for _, b := range all {
			texts = append(texts, FormatBytes(b))
		}
		return texts
	}
	wrap := func(kind string, f Filter) error {
		b, err := MarshalFilter(f)
		j.Type, j.Filter = kind, b
		return err
	}
	single := func(f *SingleColumnValueFilter) {
		compare(f.Op, &f.Comparator)
		j.Family, j.Qualifier, j.FilterIfMissing = f.Family, text(f.Qualifier), f.FilterIfMissing
		if f.AnyVersion {
			j.LatestVersionOnly = new(bool)
		}
	}
	switch f := f.(type) {
	case *RowFilter:
		j.Type = "RowFilter"
		compare(f.Op, &f.Comparator)
	case *FamilyFilter:
		j.Type = "FamilyFilter"
		compare(f.Op, &f.Comparator)
	case *QualifierFilter:
		j.Type = "QualifierFilter"
		compare(f.Op, &f.Comparator)
	case *ValueFilter:
		j.Type = "ValueFilter"
		compare(f.Op, &f.Comparator)
	case *SingleColumnValueFilter:
		j.Type = "SingleColumnValueFilter"
		single(f)
	case *SingleColumnValueExcludeFilter:
		j.Type = "SingleColumnValueExcludeFilter"
		single(&f.SingleColumnValueFilter)
	case *PrefixFilter:
		j.Type, j.Prefix = "PrefixFilter", text(f.Prefix)
	case *InclusiveStopFilter:
		j.Type, j.Row = "InclusiveStopFilter", text(f.Row)
	case *PageFilter:
		j.Type, j.PageSize = "PageFilter", &f.PageSize
	case *ColumnPrefixFilter:
		j.Type, j.Prefix = "ColumnPrefixFilter", text(f.Prefix)
	case *ColumnRangeFilter:
		j.Type, j.Min, j.MinInclusive, j.Max, j.MaxInclusive = "ColumnRangeFilter", open(f.Min), f.MinInclusive, open(f.Max), f.MaxInclusive
	case *FirstKeyOnlyFilter:
		j.Type = "FirstKeyOnlyFilter"
	case *KeyOnlyFilter:
		j.Type, j.LenAsVal = "KeyOnlyFilter", f.LengthAsValue
	case *TimestampsFilter:
		j.Type, j.Timestamps = "TimestampsFilter", f.Timestamps
	case *ColumnValueFilter:
		j.Type, j.Family, j.Qualifier = "ColumnValueFilter", f.Family, text(f.Qualifier)
		compare(f.Op, &f.Comparator)
	case *DependentColumnFilter:
		j.Type, j.Family, j.Qualifier, j.DropDependent = "DependentColumnFilter", f.Family, text(f.Qualifier), f.DropDependent
		if f.Op != 0 {
			compare(f.Op, &f.Comparator)
		}
	case *MultipleColumnPrefixFilter:
		j.Type, j.Prefixes = "MultipleColumnPrefixFilter", list(f.Prefixes)
	case *FirstKeyValueMatchingQualifiersFilter:
		j.Type, j.Qualifiers = "FirstKeyValueMatchingQualifiersFilter", list(f.Qualifiers)
	case *ColumnCountGetFilter:
		j.Type, j.Limit = "ColumnCountGetFilter", &f.Limit
	case *ColumnPaginationFilter:
		j.Type, j.Limit, j.ColumnOffset = "ColumnPaginationFilter", &f.Limit, open(f.ColumnOffset)
		if f.ColumnOffset == nil || f.Offset != 0 {
			j.Offset = &f.Offset
		}
	case *RandomRowFilter:
		j.Type, j.Chance = "RandomRowFilter", &f.Chance
	case *FuzzyRowFilter:
		j.Type = "FuzzyRowFilter"
		for _, p := range f.Pairs {
			j.Pairs = append(j.Pairs, [2]string{FormatBytes(p.Key), FormatBytes(p.Mask)})
		}
	case *MultiRowRangeFilter:
		j.Type = "MultiRowRangeFilter"
		for _, r := range f.Ranges {
			j.Ranges = append(j.Ranges, rowRangeJSON{FormatBytes(r.Start), FormatBytes(r.Stop), !r.StartExclusive, r.StopInclusive})
		}
	case *SkipFilter:
		err = wrap("SkipFilter", f.Filter)
	case *WhileMatchFilter:
		err = wrap("WhileMatchFilter", f.Filter)
	case *FilterList:
		j.Type, j.Op = "FilterList", mustPassAll
		if f.MustPassOne {
			j.Op = mustPassOne
		}
		for _, m := range f.Filters {
			b, err := MarshalFilter(m)
			if err != nil {
				return nil, err
			}
			j.Filters = append(j.Filters, b)
		}
	default:
		return nil, fmt.Errorf("%w: writing a filter of type %T", ErrUnsupported, f)
	}
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(&j)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidArgument, err) // a chance that is no number
	}
	return b, nil
}
