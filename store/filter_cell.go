package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"sluice/cell"
)

// FamilyFilter keeps cells whose family compares so.
type FamilyFilter struct {
	Op         CompareOp
	Comparator Comparator
}

// Start returns the filter's state.
func (f *FamilyFilter) Start(*Scan) (FilterState, error) {
	return startCompare("FamilyFilter", f.Op, &f.Comparator, FilterNextRow, func(c *cell.Cell) []byte { return []byte(c.Family) })
}

// QualifierFilter keeps cells whose qualifier compares so.
type QualifierFilter struct {
	Op         CompareOp
	Comparator Comparator
}

// Start returns the filter's state.
func (f *QualifierFilter) Start(*Scan) (FilterState, error) {
	return startCompare("QualifierFilter", f.Op, &f.Comparator, FilterSkip, func(c *cell.Cell) []byte { return c.Qualifier })
}

// ValueFilter keeps cells whose value compares so. Every version that the family
// keeps is offered, so an older one may pass where the newest does not.
type ValueFilter struct {
	Op         CompareOp
	Comparator Comparator
}

// Start returns the filter's state.
func (f *ValueFilter) Start(*Scan) (FilterState, error) {
	return startCompare("ValueFilter", f.Op, &f.Comparator, FilterSkip, func(c *cell.Cell) []byte { return c.Value })
}

func startCompare(name string, op CompareOp, c *Comparator, otherwise FilterCode, item func(*cell.Cell) []byte) (FilterState, error) {
	test, err := c.test(op)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &compareFilter{test: test, item: item, otherwise: otherwise}, nil
}

type compareFilter struct {
	passAll
	test      func([]byte) bool
	item      func(*cell.Cell) []byte
	otherwise FilterCode
}

func (f *compareFilter) Cell(c *cell.Cell) FilterCode {
	if f.test(f.item(c)) {
		return FilterInclude
	}
	return f.otherwise
}

// ColumnPrefixFilter keeps cells whose qualifier begins with Prefix.
type ColumnPrefixFilter struct{ Prefix []byte }

// Start returns the filter's state.
func (f *ColumnPrefixFilter) Start(*Scan) (FilterState, error) {
	return &columnPrefixFilter{prefix: f.Prefix}, nil
}

type columnPrefixFilter struct {
	passAll
	prefix []byte
}

func (f *columnPrefixFilter) Cell(c *cell.Cell) FilterCode {
	switch bytes.Compare(c.Qualifier[:min(len(c.Qualifier), len(f.prefix))], f.prefix) {
	case -1:
		return FilterNextColumn
	case 1:
		return FilterNextRow
	}
	return FilterInclude
}

// ColumnRangeFilter keeps cells whose qualifier lies between Min and Max; nil is
// open.
type ColumnRangeFilter struct {
	Min          []byte
	MinInclusive bool
	Max          []byte
	MaxInclusive bool
}

// Start returns the filter's state.
func (f *ColumnRangeFilter) Start(*Scan) (FilterState, error) {
	return &columnRangeFilter{ColumnRangeFilter: f}, nil
}

type columnRangeFilter struct {
	passAll
	*ColumnRangeFilter
}

func (f *columnRangeFilter) Cell(c *cell.Cell) FilterCode {
	if f.Min != nil {
		if cmp := bytes.Compare(c.Qualifier, f.Min); cmp < 0 || cmp == 0 && !f.MinInclusive {
			return FilterNextColumn
		}
	}
	if f.Max != nil {
		if cmp := bytes.Compare(c.Qualifier, f.Max); cmp > 0 || cmp == 0 && !f.MaxInclusive {
			return FilterNextRow
		}
	}
	return FilterInclude
}

// FirstKeyOnlyFilter keeps the first cell of each row.
type FirstKeyOnlyFilter struct{}

// Start returns the filter's state.
func (*FirstKeyOnlyFilter) Start(*Scan) (FilterState, error) { return &firstKeyOnlyFilter{}, nil }

type firstKeyOnlyFilter struct {
	passAll
	found bool
}

func (f *firstKeyOnlyFilter) SkipRow([]byte) bool {
	f.found = false
	return false
}

func (f *firstKeyOnlyFilter) Cell(*cell.Cell) FilterCode {
	if f.found {
		return FilterNextRow
	}
	f.found = true
	return FilterInclude
}

// KeyOnlyFilter empties values, or replaces them by their length, 4 bytes
// big-endian.
type KeyOnlyFilter struct{ LengthAsValue bool }

// Start returns the filter's state.
func (f *KeyOnlyFilter) Start(*Scan) (FilterState, error) {
	return &keyOnlyFilter{KeyOnlyFilter: f}, nil
}

type keyOnlyFilter struct {
	passAll
	*KeyOnlyFilter
}

func (f *keyOnlyFilter) Transform(c *cell.Cell) {
	if f.LengthAsValue {
		c.Value = binary.BigEndian.AppendUint32(nil, uint32(len(c.Value)))
	} else {
		c.Value = []byte{}
	}
}

// TimestampsFilter keeps cells whose timestamp is one of Timestamps.
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
	passAll
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
