package store

import "sluice/cell"

// Filter drops rows and cells of a scan where the data is. A Filter is an
// immutable description, so that it can be sent to another process and used by
// several scans; Start makes the state of one scan, which is global to the scan
// and not per region.
type Filter interface {
	// Start returns the filter's state for one scan. Its error wraps
	// ErrInvalidArgument where the description is wrong, ErrUnsupported where
	// this build cannot run it.
	Start(s *Scan) (FilterState, error)
}

// FilterCode is what a filter says about a cell (HBase Filter.ReturnCode).
type FilterCode uint8

// The codes, from the smallest step to the largest. "Row" means, as in HBase,
// the rest of the row in the cell's family: the filter sees the next families'
// cells still.
const (
	FilterInclude FilterCode = iota + 1
	FilterIncludeAndNextColumn
	FilterIncludeAndNextRow
	FilterSkip
	FilterNextColumn
	FilterNextRow
)

// Included reports whether the cell passes.
func (c FilterCode) Included() bool { return c <= FilterIncludeAndNextRow }

// FilterState is driven as HBase drives a filter: for each row SkipRow, for each
// cell Cell and, where it passed, Transform, then RowCells and DropRow. Done ends
// the scan at any point. A state belongs to one goroutine.
type FilterState interface {
	// Done reports that nothing further can pass (HBase filterAllRemaining);
	// asked before every row and every cell.
	Done() bool
	// SkipRow begins a row and reports that it is dropped unread
	// (filterRowKey, after reset). row is valid during the call only.
	SkipRow(row []byte) bool
	// Cell says what becomes of c (filterCell). It must not change c.
	Cell(c *cell.Cell) FilterCode
	// Transform may change a cell that passed (transformCell): its fields,
	// not the bytes that they point to.
	Transform(c *cell.Cell)
	// RowCells sees the cells that passed, at least one, and may return fewer
	// in the same slice (filterRowCells). Asked only where WholeRow holds.
	RowCells(cells []cell.Cell) []cell.Cell
	// DropRow ends a row of which at least one cell passed and reports that it
	// is dropped (filterRow).
	DropRow() bool
	// WholeRow reports that RowCells or DropRow may decide by the whole row:
	// incompatible with Scan.Batch (hasFilterRow).
	WholeRow() bool
}
