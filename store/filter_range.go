package store

import (
	"bytes"
	"fmt"

	"sluice/cell"
)

// rowRangesFilter is the state of filters that keep ranges of rows: it ends the
// scan beyond the last and seeks from one to the next.
type rowRangesFilter struct {
	cellScoped
	ranges   []cell.Range // sorted, disjoint
	reversed bool
	at       int // the range of the row before, or the next one
	drop     bool
	done     bool
	next     []byte
}

func (f *rowRangesFilter) Done() bool { return f.done }

func (f *rowRangesFilter) SkipRow(row []byte) bool {
	i, in := f.find(row)
	f.at, f.drop, f.next = i, !in, nil
	switch {
	case in:
	case !f.reversed && i < len(f.ranges):
		f.next = f.ranges[i].Start
	case f.reversed && i > 0:
		f.next = f.ranges[i-1].Stop
	default:
		f.done = true
	}
	return f.drop
}

// find is findRange. Rows come in order, and mostly one of the next two ranges is
// theirs.
func (f *rowRangesFilter) find(row []byte) (i int, in bool) {
	for i := f.at; i < min(f.at+2, len(f.ranges)); i++ {
		if r := &f.ranges[i]; bytes.Compare(row, r.Start) >= 0 && (len(r.Stop) == 0 || bytes.Compare(row, r.Stop) < 0) {
			return i, true
		}
	}
	return findRange(f.ranges, row)
}

func (f *rowRangesFilter) Cell(*cell.Cell) FilterCode {
	if f.drop {
		return FilterNextRow
	}
	return FilterInclude
}

func (f *rowRangesFilter) DropRow() bool { return f.drop }

func (f *rowRangesFilter) seekRow([]byte) []byte { return f.next }

// RowRange is a range of rows: [Start, Stop) unless the flags say otherwise, empty
// ends open.
type RowRange struct {
	Start          []byte
	StartExclusive bool
	Stop           []byte
	StopInclusive  bool
}

// MultiRowRangeFilter keeps the rows of any of its ranges, at least one, and reads
// few others: it seeks from range to range. The ranges may come in any order and
// overlap; one that ends before it starts is an error.
type MultiRowRangeFilter struct{ Ranges []RowRange }

// Start returns the filter's state.
func (f *MultiRowRangeFilter) Start(s *Scan) (FilterState, error) {
	if len(f.Ranges) == 0 {
		return nil, fmt.Errorf("MultiRowRangeFilter: %w: no ranges", ErrInvalidArgument)
	}
	rows := make([]cell.Range, 0, len(f.Ranges))
	size := 0
	for i := range f.Ranges {
		size += len(f.Ranges[i].Start) + len(f.Ranges[i].Stop) + 2
	}
	room := make([]byte, 0, size) // of ends that are made: one allocation, also for thousands of rows
	next := func(key []byte) []byte {
		room = append(append(room, key...), 0)
		return room[len(room)-len(key)-1 : len(room) : len(room)]
	}
	for i := range f.Ranges {
		r := &f.Ranges[i]
		if d := bytes.Compare(r.Start, r.Stop); len(r.Start) > 0 && len(r.Stop) > 0 && (d > 0 || d == 0 && !r.StopInclusive) {
			return nil, fmt.Errorf("MultiRowRangeFilter: %w: range %d from %q to %q has no rows", ErrInvalidArgument, i, r.Start, r.Stop)
		}
		start, stop := r.Start, r.Stop
		if r.StartExclusive {
			start = next(start)
		}
		if r.StopInclusive && len(stop) > 0 {
			stop = next(stop)
		}
		rows = appendRange(rows, start, stop, len(stop) == 0)
	}
	return &rowRangesFilter{ranges: mergeRanges(rows), reversed: s.Reversed}, nil
}

// FuzzyPair is a pattern of row keys. Mask has a byte for each of Key: 0 where a
// row's byte must be Key's, 1 where it may be any.
type FuzzyPair struct{ Key, Mask []byte }

// FuzzyRowFilter keeps rows that match any of its patterns, at least one, and
// seeks over those that cannot. As in HBase a longer row matches by its first
// bytes, and a shorter one by those that it has.
type FuzzyRowFilter struct{ Pairs []FuzzyPair }

// Start returns the filter's state.
func (f *FuzzyRowFilter) Start(s *Scan) (FilterState, error) {
	if len(f.Pairs) == 0 {
		return nil, fmt.Errorf("FuzzyRowFilter: %w: no pairs", ErrInvalidArgument)
	}
	for i, p := range f.Pairs {
		if len(p.Key) != len(p.Mask) {
			return nil, fmt.Errorf("FuzzyRowFilter: %w: pair %d has a key of %d bytes and a mask of %d", ErrInvalidArgument, i, len(p.Key), len(p.Mask))
		}
		for _, m := range p.Mask {
			if m > 1 {
				return nil, fmt.Errorf("FuzzyRowFilter: %w: pair %d has %d in its mask, want 0 or 1", ErrInvalidArgument, i, m)
			}
		}
	}
	return &fuzzyRowFilter{pairs: f.Pairs, reversed: s.Reversed}, nil
}

type fuzzyRowFilter struct {
	cellScoped
	pairs     []FuzzyPair
	reversed  bool
	drop      bool
	done      bool
	next      []byte
	candidate []byte
}

func (f *fuzzyRowFilter) Done() bool { return f.done }

func (f *fuzzyRowFilter) SkipRow(row []byte) bool {
	f.drop, f.next = true, f.next[:0]
	for i := range f.pairs {
		p := &f.pairs[i]
		at := p.mismatch(row)
		if at < 0 {
			f.drop = false
			return false
		}
		if f.candidate = p.appendNext(f.candidate[:0], row, at, f.reversed); len(f.candidate) == 0 {
			continue
		}
		if len(f.next) == 0 || bytes.Compare(f.candidate, f.next) < 0 != f.reversed {
			f.next, f.candidate = f.candidate, f.next
		}
	}
	f.done = len(f.next) == 0
	return true
}

// mismatch returns where row first differs from the pattern; -1 = nowhere.
func (p *FuzzyPair) mismatch(row []byte) int {
	for i := range min(len(row), len(p.Key)) {
		if p.Mask[i] == 0 && row[i] != p.Key[i] {
			return i
		}
	}
	return -1
}

// appendNext appends, for a row that differs first at the byte at, where rows can
// match again: at or after the key or, reversed, before it. Nothing appended is
// nowhere. Every prefix of a matching row matches, so that the key is short.
func (p *FuzzyPair) appendNext(dst, row []byte, at int, reversed bool) []byte {
	switch {
	case reversed && row[at] > p.Key[at]:
		return append(append(dst, row[:at]...), p.Key[at]+1)
	case reversed && at > 0:
		// No row with these first bytes matches but they themselves.
		return append(append(dst, row[:at]...), 0)
	case reversed:
		return dst
	case row[at] < p.Key[at]:
		return append(append(dst, row[:at]...), p.Key[at])
	}
	for at--; at >= 0; at-- {
		if p.Mask[at] == 1 && row[at] < 0xFF {
			return append(append(dst, row[:at]...), row[at]+1)
		}
	}
	return dst
}

func (f *fuzzyRowFilter) Cell(*cell.Cell) FilterCode {
	if f.drop {
		return FilterNextRow
	}
	return FilterInclude
}

func (f *fuzzyRowFilter) DropRow() bool { return f.drop }

func (f *fuzzyRowFilter) seekRow([]byte) []byte {
	if len(f.next) == 0 || !f.drop {
		return nil
	}
	return f.next
}
