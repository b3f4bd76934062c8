package store

import "sluice/cell"

// Filter drops rows and cells of a scan where the data is. A Filter is an
// immutable description, so that it can be sent to another process and used by
// several scans; Start makes the state of one scan, which is global to the scan
// and not per region.
type Filter interface {
	// Start returns the filter's state for one scan. Its error wraps
	// ErrInvalidArgument where the description is wrong.
	Start(s *Scan) (FilterState, error)
}

// FilterCode is what a filter says about a cell (HBase Filter.ReturnCode).
type FilterCode uint8

// The codes, from the smallest step to the largest.
const (
	FilterInclude FilterCode = iota + 1
	FilterIncludeAndNextColumn
	FilterIncludeAndNextRow
	FilterSkip
	FilterNextColumn
	FilterNextRow
)

// FilterState is driven as HBase drives a filter: for each row RowKey, for each
// cell Cell, then Row; Done ends the scan.
type FilterState interface {
	// Done reports that no further row can pass (HBase filterAllRemaining).
	Done() bool
	// SkipRow reports that the row is dropped unread (filterRowKey).
	SkipRow(row []byte) bool
	// Cell says what becomes of c, which it may change in place: a copy of
	// the reader's own (filterCell, transformCell).
	Cell(c *cell.Cell) FilterCode
	// Row sees the cells that passed, may return fewer, and reports whether
	// the row passes (filterRowCells, filterRow). It ends the row.
	Row(cells []cell.Cell) ([]cell.Cell, bool)
	// WholeRow reports that Row may drop it: incompatible with Scan.Batch.
	WholeRow() bool
}
