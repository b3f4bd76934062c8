package store

import (
	"fmt"

	"sluice/cell"
)

// SkipFilter drops a row whole where Filter does not plainly include one of its
// cells. Of Filter it asks about cells only: that a PageFilter is full, or what a
// SingleColumnValueFilter says of the row at its end, does not count. Unlike in
// HBase, a filter of row keys in it works.
type SkipFilter struct{ Filter Filter }

// Start returns the filter's state.
func (f *SkipFilter) Start(s *Scan) (FilterState, error) {
	st, err := startWrapped("SkipFilter", f.Filter, s)
	if err != nil {
		return nil, err
	}
	return &skipFilter{wrapped: st}, nil
}

func startWrapped(name string, f Filter, s *Scan) (FilterState, error) {
	if f == nil {
		return nil, fmt.Errorf("%s: %w: no filter", name, ErrInvalidArgument)
	}
	st, err := f.Start(s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return st, nil
}

type skipFilter struct {
	rowScoped
	wrapped FilterState
	drop    bool
}

func (f *skipFilter) scope() filterScope { return min(scopeRow, scopeOf(f.wrapped)) }

func (f *skipFilter) SkipRow(row []byte) bool {
	f.drop = false
	f.wrapped.SkipRow(row)
	return false
}

func (f *skipFilter) Cell(c *cell.Cell) FilterCode {
	code := f.wrapped.Cell(c)
	if code != FilterInclude {
		f.drop = true
	}
	return code
}

func (f *skipFilter) Transform(c *cell.Cell) { f.wrapped.Transform(c) }
func (f *skipFilter) DropRow() bool          { return f.drop }
func (f *skipFilter) WholeRow() bool         { return true }

// WhileMatchFilter ends the scan, over all regions, with the first row or cell that
// Filter does not plainly include. What was included of that row is returned.
type WhileMatchFilter struct{ Filter Filter }

// Start returns the filter's state.
func (f *WhileMatchFilter) Start(s *Scan) (FilterState, error) {
	st, err := startWrapped("WhileMatchFilter", f.Filter, s)
	if err != nil {
		return nil, err
	}
	return &whileMatchFilter{wrapped: st}, nil
}

// whileMatchFilter has scopeScan: a row that is not shown to it could not end the
// scan.
type whileMatchFilter struct {
	passAll
	wrapped FilterState
	done    bool
}

func (f *whileMatchFilter) Done() bool { return f.done || f.wrapped.Done() }

func (f *whileMatchFilter) SkipRow(row []byte) bool {
	skip := f.wrapped.SkipRow(row)
	f.done = f.done || skip
	return skip
}

func (f *whileMatchFilter) Cell(c *cell.Cell) FilterCode {
	code := f.wrapped.Cell(c)
	f.done = f.done || code != FilterInclude
	return code
}

func (f *whileMatchFilter) Transform(c *cell.Cell) { f.wrapped.Transform(c) }

func (f *whileMatchFilter) DropRow() bool {
	drop := f.wrapped.DropRow()
	f.done = f.done || drop
	return drop
}

func (f *whileMatchFilter) WholeRow() bool { return true }
