package store

import (
	"bytes"
	"fmt"

	"sluice/cell"
)

// passAll is the state that every filter state begins with: HBase's FilterBase.
type passAll struct{}

func (passAll) Done() bool                             { return false }
func (passAll) SkipRow([]byte) bool                    { return false }
func (passAll) Cell(*cell.Cell) FilterCode             { return FilterInclude }
func (passAll) Transform(*cell.Cell)                   {}
func (passAll) RowCells(cells []cell.Cell) []cell.Cell { return cells }
func (passAll) DropRow() bool                          { return false }
func (passAll) WholeRow() bool                         { return false }

// RowFilter keeps rows whose key compares so.
type RowFilter struct {
	Op         CompareOp
	Comparator Comparator
}

// Start returns the filter's state.
func (f *RowFilter) Start(*Scan) (FilterState, error) {
	test, err := f.Comparator.test(f.Op)
	if err != nil {
		return nil, fmt.Errorf("RowFilter: %w", err)
	}
	return &rowFilter{test: test}, nil
}

type rowFilter struct {
	passAll
	test func([]byte) bool
	drop bool
}

func (f *rowFilter) SkipRow(row []byte) bool {
	f.drop = !f.test(row)
	return f.drop
}

func (f *rowFilter) Cell(*cell.Cell) FilterCode {
	if f.drop {
		return FilterNextRow
	}
	return FilterInclude
}

func (f *rowFilter) DropRow() bool { return f.drop }

// PrefixFilter keeps rows that begin with Prefix and ends the scan after them.
// Scan.Prefix, which does not read the rows before them either, is cheaper.
type PrefixFilter struct{ Prefix []byte }

// Start returns the filter's state.
func (f *PrefixFilter) Start(s *Scan) (FilterState, error) {
	return &prefixFilter{prefix: f.Prefix, reversed: s.Reversed}, nil
}

type prefixFilter struct {
	passAll
	prefix   []byte
	reversed bool
	drop     bool
	passed   bool // the scan is beyond the prefix
}

func (f *prefixFilter) Done() bool { return f.passed }

func (f *prefixFilter) SkipRow(row []byte) bool {
	c := bytes.Compare(row[:min(len(row), len(f.prefix))], f.prefix)
	f.passed = f.passed || c > 0 && !f.reversed || c < 0 && f.reversed
	f.drop = c != 0
	return f.drop
}

func (f *prefixFilter) Cell(*cell.Cell) FilterCode {
	if f.drop {
		return FilterNextRow
	}
	return FilterInclude
}

func (f *prefixFilter) DropRow() bool { return f.drop }

// InclusiveStopFilter ends the scan after Row.
type InclusiveStopFilter struct{ Row []byte }

// Start returns the filter's state.
func (f *InclusiveStopFilter) Start(s *Scan) (FilterState, error) {
	return &inclusiveStopFilter{row: f.Row, reversed: s.Reversed}, nil
}

type inclusiveStopFilter struct {
	passAll
	row      []byte
	reversed bool
	done     bool
}

func (f *inclusiveStopFilter) Done() bool { return f.done }

func (f *inclusiveStopFilter) SkipRow(row []byte) bool {
	c := bytes.Compare(row, f.row)
	f.done = f.done || c > 0 && !f.reversed || c < 0 && f.reversed
	return f.done
}

func (f *inclusiveStopFilter) Cell(*cell.Cell) FilterCode {
	if f.done {
		return FilterNextRow
	}
	return FilterInclude
}

// PageFilter ends the scan after PageSize rows. It is global to the scan, unlike
// HBase's, which counts in every region anew.
type PageFilter struct{ PageSize int64 }

// Start returns the filter's state.
func (f *PageFilter) Start(*Scan) (FilterState, error) {
	if f.PageSize < 0 {
		return nil, fmt.Errorf("PageFilter: %w: page size %d", ErrInvalidArgument, f.PageSize)
	}
	return &pageFilter{size: f.PageSize}, nil
}

type pageFilter struct {
	passAll
	size, rows int64
}

func (f *pageFilter) Done() bool { return f.rows >= f.size }

func (f *pageFilter) DropRow() bool {
	f.rows++
	return f.rows > f.size
}

func (f *pageFilter) WholeRow() bool { return true }

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
	passAll
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
