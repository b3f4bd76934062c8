package store

import (
	"bytes"
	"fmt"

	"sluice/cell"
)

// FilterList combines filters: all must pass or, with MustPassOne, any one. An
// empty list passes everything.
type FilterList struct {
	MustPassOne bool
	Filters     []Filter
}

// Start returns the list's state.
func (f *FilterList) Start(s *Scan) (FilterState, error) {
	members := make([]FilterState, len(f.Filters))
	for i, m := range f.Filters {
		if m == nil {
			return nil, fmt.Errorf("FilterList: %w: filter %d is nil", ErrInvalidArgument, i)
		}
		st, err := m.Start(s)
		if err != nil {
			return nil, fmt.Errorf("FilterList: filter %d: %w", i, err)
		}
		members[i] = st
	}
	switch {
	case len(members) == 0:
		return &cellScoped{}, nil
	case f.MustPassOne:
		return &anyOf{members: members, reversed: s.Reversed, last: make([]lastCell, len(members)), included: make([]bool, len(members))}, nil
	}
	return &allOf{members: members, reversed: s.Reversed}, nil
}

// listScope is the least of the members'.
func listScope(members []FilterState) filterScope {
	least := scopeCell
	for _, m := range members {
		least = min(least, scopeOf(m))
	}
	return least
}

// allOf is HBase's FilterListWithAND: a later member sees only what those before
// it included, and the result is the largest step of any.
type allOf struct {
	members  []FilterState
	reversed bool
}

func (f *allOf) scope() filterScope { return listScope(f.members) }

// seekRow returns the farthest of the members' hints.
func (f *allOf) seekRow(row []byte) (next []byte) {
	for _, m := range f.members {
		own := m.(hinter).seekRow(row)
		if own != nil && (next == nil || bytes.Compare(own, next) > 0 != f.reversed) {
			next = own
		}
	}
	return next
}

// columns returns what the members can pass, up to the first that must be shown
// what later ones would drop.
func (f *allOf) columns(family string) (h columnHint) {
	for _, m := range f.members {
		h = h.and(m.(hinter).columns(family))
		if scopeOf(m) < scopeCell {
			break
		}
	}
	return h
}

func (f *allOf) Done() bool {
	for _, m := range f.members {
		if m.Done() {
			return true
		}
	}
	return false
}

func (f *allOf) SkipRow(row []byte) bool {
	skip := false
	for _, m := range f.members {
		if m.Done() || m.SkipRow(row) {
			skip = true
		}
	}
	return skip
}

func (f *allOf) Cell(c *cell.Cell) FilterCode {
	code := FilterInclude
	for _, m := range f.members {
		if m.Done() {
			return FilterNextRow
		}
		code = both(code, m.Cell(c))
		if !code.Included() {
			return code
		}
	}
	return code
}

func (f *allOf) Transform(c *cell.Cell) {
	for _, m := range f.members {
		m.Transform(c)
	}
}

func (f *allOf) RowCells(cells []cell.Cell) []cell.Cell {
	for _, m := range f.members {
		cells = m.RowCells(cells)
	}
	return cells
}

func (f *allOf) DropRow() bool {
	for _, m := range f.members {
		if m.DropRow() {
			return true
		}
	}
	return false
}

func (f *allOf) WholeRow() bool { return anyWholeRow(f.members) }

func anyWholeRow(members []FilterState) bool {
	for _, m := range members {
		if m.WholeRow() {
			return true
		}
	}
	return false
}

// anyOf is HBase's FilterListWithOR: the result is the smallest step of any
// member, and a member that asked for a larger one sees no cell before it.
type anyOf struct {
	members  []FilterState
	reversed bool
	last     []lastCell
	included []bool // by member, for the current cell
}

// lastCell is what a member of anyOf said last in this row, and of which column.
type lastCell struct {
	code      FilterCode
	family    string
	qualifier []byte
}

func (f *anyOf) scope() filterScope { return listScope(f.members) }

// seekRow returns the nearest of the members' hints, if each has one.
func (f *anyOf) seekRow(row []byte) (next []byte) {
	for _, m := range f.members {
		if m.Done() {
			continue
		}
		own := m.(hinter).seekRow(row)
		if own == nil {
			return nil
		}
		if next == nil || bytes.Compare(own, next) < 0 != f.reversed {
			next = own
		}
	}
	return next
}

func (f *anyOf) columns(family string) columnHint {
	h := f.members[0].(hinter).columns(family)
	for _, m := range f.members[1:] {
		h = h.or(m.(hinter).columns(family))
	}
	return h
}

func (f *anyOf) Done() bool {
	for _, m := range f.members {
		if !m.Done() {
			return false
		}
	}
	return true
}

func (f *anyOf) SkipRow(row []byte) bool {
	skip := true
	for i, m := range f.members {
		f.last[i].code = 0
		if !m.Done() && !m.SkipRow(row) {
			skip = false
		}
	}
	return skip
}

func (f *anyOf) Cell(c *cell.Cell) FilterCode {
	var code FilterCode
	for i, m := range f.members {
		f.included[i] = false
		if m.Done() {
			continue
		}
		own := f.last[i].past(c)
		if own == 0 {
			own = m.Cell(c)
			f.included[i] = own.Included()
			l := &f.last[i]
			l.code, l.family, l.qualifier = own, c.Family, append(l.qualifier[:0], c.Qualifier...)
		}
		if code == 0 {
			code = own
		} else {
			code = either(code, own)
		}
	}
	if code == 0 {
		return FilterSkip
	}
	return code
}

// past returns how far the member still steps at c; 0 = it must be asked.
func (l *lastCell) past(c *cell.Cell) FilterCode {
	switch l.code {
	case FilterNextColumn, FilterIncludeAndNextColumn:
		if l.family == c.Family && bytes.Equal(l.qualifier, c.Qualifier) {
			return FilterNextColumn
		}
	case FilterNextRow, FilterIncludeAndNextRow:
		if l.family == c.Family {
			return FilterNextRow
		}
	}
	return 0
}

func (f *anyOf) Transform(c *cell.Cell) {
	for i, m := range f.members {
		if f.included[i] {
			m.Transform(c)
		}
	}
}

func (f *anyOf) RowCells(cells []cell.Cell) []cell.Cell {
	for _, m := range f.members {
		cells = m.RowCells(cells)
	}
	return cells
}

func (f *anyOf) DropRow() bool {
	for _, m := range f.members {
		if !m.DropRow() {
			return false
		}
	}
	return true
}

func (f *anyOf) WholeRow() bool { return anyWholeRow(f.members) }

// A code is whether the cell passes and how far to step: 0 to the next cell, 1 to
// the next column, 2 to the next row.
func (c FilterCode) step() int { return int(c-FilterInclude) % 3 }

func filterCode(include bool, step int) FilterCode {
	if include {
		return FilterInclude + FilterCode(step)
	}
	return FilterSkip + FilterCode(step)
}

func both(a, b FilterCode) FilterCode {
	return filterCode(a.Included() && b.Included(), max(a.step(), b.step()))
}

func either(a, b FilterCode) FilterCode {
	return filterCode(a.Included() || b.Included(), min(a.step(), b.step()))
}
