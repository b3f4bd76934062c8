package store

import (
	"fmt"
	"math"
	"math/rand/v2"

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

// RowFilter keeps rows whose key compares so. With a binary comparator it reads no
// others.
type RowFilter struct {
	Op         CompareOp
	Comparator Comparator
}

// Start returns the filter's state.
func (f *RowFilter) Start(s *Scan) (FilterState, error) {
	test, err := f.Comparator.test(f.Op)
	if err != nil {
		return nil, fmt.Errorf("RowFilter: %w", err)
	}
	if rows := f.Comparator.ranges(f.Op); rows != nil {
		return &rowRangesFilter{ranges: rows, reversed: s.Reversed}, nil
	}
	return &rowFilter{test: test}, nil
}

type rowFilter struct {
	cellScoped
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

// PrefixFilter keeps rows that begin with Prefix, and reads no others but one.
type PrefixFilter struct{ Prefix []byte }

// Start returns the filter's state.
func (f *PrefixFilter) Start(s *Scan) (FilterState, error) {
	return &rowRangesFilter{ranges: []cell.Range{prefixRange(f.Prefix)}, reversed: s.Reversed}, nil
}

// InclusiveStopFilter ends the scan after Row.
type InclusiveStopFilter struct{ Row []byte }

// Start returns the filter's state.
func (f *InclusiveStopFilter) Start(s *Scan) (FilterState, error) {
	rows := cell.Range{Stop: after(f.Row)}
	if s.Reversed {
		rows = cell.Range{Start: f.Row}
	}
	return &rowRangesFilter{ranges: []cell.Range{rows}, reversed: s.Reversed}, nil
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
	cellScoped
	size, rows int64
}

func (f *pageFilter) Done() bool { return f.rows >= f.size }

func (f *pageFilter) DropRow() bool {
	f.rows++
	return f.rows > f.size
}

func (f *pageFilter) WholeRow() bool { return true }

// RandomRowFilter keeps each row with the probability Chance: below 0 none, from 1
// on all.
type RandomRowFilter struct{ Chance float64 }

// Start returns the filter's state.
func (f *RandomRowFilter) Start(*Scan) (FilterState, error) {
	if math.IsNaN(f.Chance) || math.IsInf(f.Chance, 0) {
		return nil, fmt.Errorf("RandomRowFilter: %w: chance %v", ErrInvalidArgument, f.Chance)
	}
	return &randomRowFilter{rowFilter{test: func([]byte) bool { return rand.Float64() < f.Chance }}}, nil
}

type randomRowFilter struct{ rowFilter }

func (f *randomRowFilter) WholeRow() bool { return true }
