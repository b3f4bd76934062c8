package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"sluice/cell"
)

// FamilyFilter keeps cells whose family compares so, and reads no other families.
type FamilyFilter struct {
	Op         CompareOp
	Comparator Comparator
}

// Start returns the filter's state.
func (f *FamilyFilter) Start(*Scan) (FilterState, error) {
	st, err := startCompare("FamilyFilter", f.Op, &f.Comparator, FilterNextRow, func(c *cell.Cell) []byte { return []byte(c.Family) })
	if err != nil {
		return nil, err
	}
	return &familyFilter{st}, nil
}

type familyFilter struct{ *compareFilter }

func (f *familyFilter) columns(family string) (h columnHint) {
	if !f.test([]byte(family)) {
		h.qualifiers = noCell
	}
	return h
}

// QualifierFilter keeps cells whose qualifier compares so. With a binary
// comparator it reads no others.
type QualifierFilter struct {
	Op         CompareOp
	Comparator Comparator
}

// Start returns the filter's state.
func (f *QualifierFilter) Start(*Scan) (FilterState, error) {
	st, err := startCompare("QualifierFilter", f.Op, &f.Comparator, FilterSkip, func(c *cell.Cell) []byte { return c.Qualifier })
	if err != nil {
		return nil, err
	}
	st.hint.qualifiers = f.Comparator.ranges(f.Op)
	return st, nil
}

// ValueFilter keeps cells whose value compares so. Every version that the family
// keeps is offered, so an older one may pass where the newest does not.
type ValueFilter struct {
	Op         CompareOp
	Comparator Comparator
}

// Start returns the filter's state.
func (f *ValueFilter) Start(*Scan) (FilterState, error) {
	st, err := startCompare("ValueFilter", f.Op, &f.Comparator, FilterSkip, func(c *cell.Cell) []byte { return c.Value })
	if err != nil {
		return nil, err
	}
	return st, nil
}

func startCompare(name string, op CompareOp, c *Comparator, otherwise FilterCode, item func(*cell.Cell) []byte) (*compareFilter, error) {
	test, err := c.test(op)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &compareFilter{test: test, item: item, otherwise: otherwise}, nil
}

type compareFilter struct {
	cellScoped
	test      func([]byte) bool
	item      func(*cell.Cell) []byte
	otherwise FilterCode
	hint      columnHint
}

func (f *compareFilter) Cell(c *cell.Cell) FilterCode {
	if f.test(f.item(c)) {
		return FilterInclude
	}
	return f.otherwise
}

func (f *compareFilter) columns(string) columnHint { return f.hint }

// ColumnPrefixFilter keeps cells whose qualifier begins with Prefix, and reads few
// others.
type ColumnPrefixFilter struct{ Prefix []byte }

// Start returns the filter's state.
func (f *ColumnPrefixFilter) Start(*Scan) (FilterState, error) {
	return &columnRangesFilter{ranges: []cell.Range{prefixRange(f.Prefix)}}, nil
}

// MultipleColumnPrefixFilter keeps cells whose qualifier begins with any of
// Prefixes, and reads few others. None keeps all; one twice is an error. Unlike
// HBase's it keeps what begins with a prefix of another of its prefixes, too.
type MultipleColumnPrefixFilter struct{ Prefixes [][]byte }

// Start returns the filter's state.
func (f *MultipleColumnPrefixFilter) Start(*Scan) (FilterState, error) {
	if len(f.Prefixes) == 0 {
		return &cellScoped{}, nil
	}
	sorted := slices.Clone(f.Prefixes)
	slices.SortFunc(sorted, bytes.Compare)
	ranges := make([]cell.Range, len(sorted))
	for i, p := range sorted {
		if i > 0 && bytes.Equal(p, sorted[i-1]) {
			return nil, fmt.Errorf("MultipleColumnPrefixFilter: %w: prefix %q twice", ErrInvalidArgument, p)
		}
		ranges[i] = prefixRange(p)
	}
	return &columnRangesFilter{ranges: mergeRanges(ranges)}, nil
}

// ColumnRangeFilter keeps cells whose qualifier lies between Min and Max, and
// reads few others; nil is open.
type ColumnRangeFilter struct {
	Min          []byte
	MinInclusive bool
	Max          []byte
	MaxInclusive bool
}

// Start returns the filter's state.
func (f *ColumnRangeFilter) Start(*Scan) (FilterState, error) {
	start, stop := f.Min, f.Max
	if start != nil && !f.MinInclusive {
		start = after(start)
	}
	if stop != nil && f.MaxInclusive {
		stop = after(stop)
	}
	return &columnRangesFilter{ranges: appendRange(noCell, start, stop, stop == nil)}, nil
}

// columnRangesFilter is the state of filters that keep ranges of qualifiers.
type columnRangesFilter struct {
	cellScoped
	ranges []cell.Range // sorted, disjoint
}

func (f *columnRangesFilter) Cell(c *cell.Cell) FilterCode {
	switch i, in := findRange(f.ranges, c.Qualifier); {
	case in:
		return FilterInclude
	case i == len(f.ranges):
		return FilterNextRow
	}
	return FilterNextColumn
}

func (f *columnRangesFilter) columns(string) columnHint { return columnHint{qualifiers: f.ranges} }

// KeyOnlyFilter empties values, or replaces them by their length, 4 bytes
// big-endian.
type KeyOnlyFilter struct{ LengthAsValue bool }

// Start returns the filter's state.
func (f *KeyOnlyFilter) Start(*Scan) (FilterState, error) {
	return &keyOnlyFilter{KeyOnlyFilter: f}, nil
}

type keyOnlyFilter struct {
	cellScoped
	*KeyOnlyFilter
}

func (f *keyOnlyFilter) Transform(c *cell.Cell) {
	if f.LengthAsValue {
		c.Value = binary.BigEndian.AppendUint32(nil, uint32(len(c.Value)))
	} else {
		c.Value = []byte{}
	}
}

// TimestampsFilter keeps cells whose timestamp is one of Timestamps; of a column it
// reads no version that is older than all of them. Those between them are read, as
// with HBase's canHint = false: they may be delete markers.
type TimestampsFilter struct{ Timestamps []cell.Timestamp }

// Start returns the filter's state.
func (f *TimestampsFilter) Start(*Scan) (FilterState, error) {
	for _, t := range f.Timestamps {
		if t < 0 {
			return nil, fmt.Errorf("TimestampsFilter: %w: negative timestamp %d", ErrInvalidArgument, t)
		}
	}
	sorted := slices.Clone(f.Timestamps)
	slices.Sort(sorted)
	return &timestampsFilter{sorted: sorted}, nil
}

type timestampsFilter struct {
	cellScoped
	sorted []cell.Timestamp
}

func (f *timestampsFilter) Cell(c *cell.Cell) FilterCode {
	if len(f.sorted) == 0 || c.Time < f.sorted[0] {
		return FilterNextColumn // versions only get older
	}
	if _, found := slices.BinarySearch(f.sorted, c.Time); found {
		return FilterInclude
	}
	return FilterSkip
}

func (f *timestampsFilter) columns(string) columnHint {
	if len(f.sorted) == 0 {
		return columnHint{qualifiers: noCell}
	}
	return columnHint{oldest: f.sorted[0]}
}
