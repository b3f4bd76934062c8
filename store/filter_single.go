package store

import (
	"bytes"
	"fmt"
	"slices"

	"sluice/cell"
)

// SingleColumnValueFilter keeps whole rows by the value of one column, which must
// be among the selected ones: what is not read counts as missing.
type SingleColumnValueFilter struct {
	Family     string
	Qualifier  []byte
	Op         CompareOp
	Comparator Comparator
	// FilterIfMissing drops rows without the column, which pass otherwise.
	FilterIfMissing bool
	// AnyVersion lets any version that the scan is offered satisfy the
	// comparison, not only the newest (HBase latestVersionOnly = false).
	AnyVersion bool
}

// Start returns the filter's state.
func (f *SingleColumnValueFilter) Start(*Scan) (FilterState, error) {
	test, err := f.Comparator.test(f.Op)
	if err != nil {
		return nil, fmt.Errorf("SingleColumnValueFilter: %w", err)
	}
	return &singleColumnValueFilter{SingleColumnValueFilter: f, test: test}, nil
}

type singleColumnValueFilter struct {
	rowScoped
	*SingleColumnValueFilter
	test           func([]byte) bool
	found, matched bool
}

func (f *singleColumnValueFilter) SkipRow([]byte) bool {
	f.found, f.matched = false, false
	return false
}

func (f *singleColumnValueFilter) Cell(c *cell.Cell) FilterCode {
	switch {
	case f.matched:
		return FilterInclude
	case !f.AnyVersion && f.found:
		return FilterNextRow // found, and it did not match
	case c.Family != f.Family || !bytes.Equal(c.Qualifier, f.Qualifier):
		return FilterInclude
	}
	f.found = true
	if f.test(c.Value) {
		f.matched = true
	} else if !f.AnyVersion {
		return FilterNextRow
	}
	return FilterInclude
}

func (f *singleColumnValueFilter) DropRow() bool {
	if f.found {
		return !f.matched
	}
	return f.FilterIfMissing
}

func (f *singleColumnValueFilter) WholeRow() bool { return true }

// SingleColumnValueExcludeFilter is a SingleColumnValueFilter that leaves the
// column itself out of the rows that it keeps.
type SingleColumnValueExcludeFilter struct{ SingleColumnValueFilter }

// Start returns the filter's state.
func (f *SingleColumnValueExcludeFilter) Start(s *Scan) (FilterState, error) {
	st, err := f.SingleColumnValueFilter.Start(s)
	if err != nil {
		return nil, err
	}
	return &excludeFilter{st.(*singleColumnValueFilter)}, nil
}

type excludeFilter struct{ *singleColumnValueFilter }

func (f *excludeFilter) RowCells(cells []cell.Cell) []cell.Cell {
	kept := cells[:0]
	for _, c := range cells {
		if c.Family != f.Family || !bytes.Equal(c.Qualifier, f.Qualifier) {
			kept = append(kept, c)
		}
	}
	return kept
}

// ColumnValueFilter keeps the cells of one column whose value compares so, and
// nothing else of the row.
type ColumnValueFilter struct {
	Family     string
	Qualifier  []byte
	Op         CompareOp
	Comparator Comparator
}

// Start returns the filter's state.
func (f *ColumnValueFilter) Start(*Scan) (FilterState, error) {
	test, err := f.Comparator.test(f.Op)
	if err != nil {
		return nil, fmt.Errorf("ColumnValueFilter: %w", err)
	}
	return &columnValueFilter{ColumnValueFilter: f, test: test}, nil
}

type columnValueFilter struct {
	cellScoped
	*ColumnValueFilter
	test func([]byte) bool
}

func (f *columnValueFilter) Cell(c *cell.Cell) FilterCode {
	switch d := bytes.Compare(c.Qualifier, f.Qualifier); {
	case c.Family != f.Family || d > 0:
		return FilterNextRow
	case d < 0:
		return FilterNextColumn
	case f.test(c.Value):
		return FilterInclude
	}
	return FilterSkip
}

func (f *columnValueFilter) columns(family string) columnHint {
	if family != f.Family {
		return columnHint{qualifiers: noCell}
	}
	return columnHint{qualifiers: []cell.Range{{Start: f.Qualifier, Stop: after(f.Qualifier)}}}
}

// DependentColumnFilter keeps the cells of a row that have the timestamp of a cell
// of the reference column Family:Qualifier, which must be among the selected
// ones. Rows without it vanish.
type DependentColumnFilter struct {
	Family    string
	Qualifier []byte
	// DropDependent leaves the reference column itself out.
	DropDependent bool
	// Op is how the value of a reference cell must compare; 0 is any value,
	// and Comparator not used.
	Op         CompareOp
	Comparator Comparator
}

// Start returns the filter's state.
func (f *DependentColumnFilter) Start(*Scan) (FilterState, error) {
	st := &dependentColumnFilter{DependentColumnFilter: f, test: func([]byte) bool { return true }, times: map[cell.Timestamp]bool{}}
	if f.Op != 0 {
		test, err := f.Comparator.test(f.Op)
		if err != nil {
			return nil, fmt.Errorf("DependentColumnFilter: %w", err)
		}
		st.test = test
	}
	return st, nil
}

type dependentColumnFilter struct {
	rowScoped
	*DependentColumnFilter
	test  func([]byte) bool
	times map[cell.Timestamp]bool // of the row's reference cells
}

func (f *dependentColumnFilter) SkipRow([]byte) bool {
	clear(f.times)
	return false
}

func (f *dependentColumnFilter) Cell(c *cell.Cell) FilterCode {
	if c.Family != f.Family || !bytes.Equal(c.Qualifier, f.Qualifier) {
		return FilterInclude // RowCells decides: the reference may come later
	}
	if !f.test(c.Value) {
		return FilterSkip
	}
	f.times[c.Time] = true
	if f.DropDependent {
		return FilterSkip
	}
	return FilterInclude
}

func (f *dependentColumnFilter) RowCells(cells []cell.Cell) []cell.Cell {
	return slices.DeleteFunc(cells, func(c cell.Cell) bool { return !f.times[c.Time] })
}

func (f *dependentColumnFilter) WholeRow() bool { return true }
