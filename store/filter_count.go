package store

import (
	"bytes"
	"fmt"

	"sluice/cell"
)

// FirstKeyOnlyFilter keeps the first cell of each row.
type FirstKeyOnlyFilter struct{}

// Start returns the filter's state.
func (*FirstKeyOnlyFilter) Start(*Scan) (FilterState, error) {
	return &firstKeyFilter{last: func(*cell.Cell) bool { return true }}, nil
}

// FirstKeyValueMatchingQualifiersFilter keeps the cells of each row up to the first
// whose qualifier is one of Qualifiers, that one included; all where there is none.
type FirstKeyValueMatchingQualifiersFilter struct{ Qualifiers [][]byte }

// Start returns the filter's state.
func (f *FirstKeyValueMatchingQualifiersFilter) Start(*Scan) (FilterState, error) {
	qualifiers := make(map[string]bool, len(f.Qualifiers))
	for _, q := range f.Qualifiers {
		qualifiers[string(q)] = true
	}
	return &firstKeyFilter{last: func(c *cell.Cell) bool { return qualifiers[string(c.Qualifier)] }}, nil
}

type firstKeyFilter struct {
	rowScoped
	last  func(*cell.Cell) bool // nothing of the row passes after it
	found bool
}

func (f *firstKeyFilter) SkipRow([]byte) bool {
	f.found = false
	return false
}

func (f *firstKeyFilter) Cell(c *cell.Cell) FilterCode {
	if f.found {
		return FilterNextRow
	}
	f.found = f.last(c)
	return FilterInclude
}

// ColumnCountGetFilter keeps the newest version of the first Limit columns of a
// row. It is meant for Get: a scan ends with the first row that has more.
type ColumnCountGetFilter struct{ Limit int }

// Start returns the filter's state.
func (f *ColumnCountGetFilter) Start(*Scan) (FilterState, error) {
	if f.Limit < 0 {
		return nil, fmt.Errorf("ColumnCountGetFilter: %w: limit %d", ErrInvalidArgument, f.Limit)
	}
	return &columnCountGetFilter{limit: f.Limit}, nil
}

type columnCountGetFilter struct {
	rowScoped
	limit, count int
}

func (f *columnCountGetFilter) Done() bool { return f.count > f.limit }

func (f *columnCountGetFilter) SkipRow([]byte) bool {
	f.count = 0
	return false
}

func (f *columnCountGetFilter) Cell(*cell.Cell) FilterCode {
	f.count++
	if f.Done() {
		return FilterNextColumn
	}
	return FilterIncludeAndNextColumn
}

// ColumnPaginationFilter keeps, of each row and over its families, the newest
// version of Limit columns: those after the first Offset or, where ColumnOffset is
// not nil, those from the first qualifier that is not before it.
type ColumnPaginationFilter struct {
	Limit        int
	Offset       int
	ColumnOffset []byte
}

// Start returns the filter's state.
func (f *ColumnPaginationFilter) Start(*Scan) (FilterState, error) {
	if f.Limit < 0 || f.Offset < 0 {
		return nil, fmt.Errorf("ColumnPaginationFilter: %w: limit %d, offset %d", ErrInvalidArgument, f.Limit, f.Offset)
	}
	if f.Offset > 0 && f.ColumnOffset != nil {
		return nil, fmt.Errorf("ColumnPaginationFilter: %w: both an offset and a column offset", ErrInvalidArgument)
	}
	return &columnPaginationFilter{ColumnPaginationFilter: f}, nil
}

type columnPaginationFilter struct {
	rowScoped
	*ColumnPaginationFilter
	count int // columns from the offset on
	past  int // columns before it
}

func (f *columnPaginationFilter) SkipRow([]byte) bool {
	f.count, f.past = 0, 0
	return false
}

func (f *columnPaginationFilter) Cell(c *cell.Cell) FilterCode {
	switch {
	case f.count >= f.Limit:
		return FilterNextRow
	case f.count == 0 && f.ColumnOffset != nil && bytes.Compare(c.Qualifier, f.ColumnOffset) < 0:
		return FilterNextColumn
	case f.past < f.Offset:
		f.past++
		return FilterNextColumn
	}
	f.count++
	return FilterIncludeAndNextColumn
}
