package store

import (
	"bytes"
	"slices"

	"sluice/cell"
)

// filterScope is what a filter must be shown for its answers to be right.
type filterScope uint8

const (
	scopeScan filterScope = iota // every row: one that cannot pass leaves its trace
	scopeRow                     // every cell of a row; rows that cannot pass leave none
	scopeCell                    // what can pass
)

// hinter is a FilterState that says ahead what cannot pass, so that a scan seeks
// instead of reading it (HBase SEEK_NEXT_USING_HINT). A hint changes no result:
// what it leaves out would not have passed and would have left no trace. A
// FilterState that is no hinter has scopeScan.
type hinter interface {
	FilterState
	scope() filterScope
	// seekRow returns, of a row that SkipRow has dropped, where the rows end
	// that cannot pass: none in [row, next) does or, reversed, in [next, row].
	// nil is not known.
	seekRow(row []byte) (next []byte)
	// columns returns which cells of a family can pass, in any row.
	columns(family string) columnHint
}

// columnHint is a part of a family. The zero value is all of it.
type columnHint struct {
	qualifiers []cell.Range   // sorted, disjoint; nil = all, none = no cell
	oldest     cell.Timestamp // no cell before it
}

func (h columnHint) and(o columnHint) columnHint {
	return columnHint{qualifiers: intersectRanges(h.qualifiers, o.qualifiers), oldest: max(h.oldest, o.oldest)}
}

func (h columnHint) or(o columnHint) columnHint {
	return columnHint{qualifiers: uniteRanges(h.qualifiers, o.qualifiers), oldest: min(h.oldest, o.oldest)}
}

// scopeOf returns the scope of any filter.
func scopeOf(f FilterState) filterScope {
	if h, ok := f.(hinter); ok {
		return h.scope()
	}
	return scopeScan
}

// rowScoped begins the states of filters with scopeRow and no hints.
type rowScoped struct{ passAll }

func (rowScoped) scope() filterScope        { return scopeRow }
func (rowScoped) seekRow([]byte) []byte     { return nil }
func (rowScoped) columns(string) columnHint { return columnHint{} }

// cellScoped begins the states of filters with scopeCell and no hints.
type cellScoped struct{ rowScoped }

func (cellScoped) scope() filterScope { return scopeCell }

// noCell is the hint that nothing of a family can pass.
var noCell = []cell.Range{}

// appendRange appends [start, stop), unbounded above where end is true, unless it
// is empty.
func appendRange(rs []cell.Range, start, stop []byte, end bool) []cell.Range {
	switch {
	case end:
		return append(rs, cell.Range{Start: start})
	case bytes.Compare(start, stop) < 0:
		return append(rs, cell.Range{Start: start, Stop: stop})
	}
	return rs
}

// prefixRange returns the keys that begin with prefix.
func prefixRange(prefix []byte) cell.Range {
	return cell.Range{Start: prefix, Stop: cell.PrefixEnd(prefix)}
}

// mergeRanges sorts rs and joins those that overlap or touch, in place, and returns no
// nil.
func mergeRanges(rs []cell.Range) []cell.Range {
	if len(rs) == 0 {
		return noCell
	}
	slices.SortFunc(rs, func(a, b cell.Range) int { return bytes.Compare(a.Start, b.Start) })
	merged := rs[:0]
	for _, r := range rs {
		if n := len(merged); n > 0 {
			last := &merged[n-1]
			if len(last.Stop) == 0 {
				break
			}
			if bytes.Compare(r.Start, last.Stop) <= 0 {
				if len(r.Stop) == 0 || bytes.Compare(r.Stop, last.Stop) > 0 {
					last.Stop = r.Stop
				}
				continue
			}
		}
		merged = append(merged, r)
	}
	return merged
}

// uniteRanges returns what lies in a or in b; nil is everything.
func uniteRanges(a, b []cell.Range) []cell.Range {
	if a == nil || b == nil {
		return nil
	}
	return mergeRanges(slices.Concat(a, b))
}

// intersectRanges returns what lies in a and in b; nil is everything.
func intersectRanges(a, b []cell.Range) []cell.Range {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	both := noCell
	for len(a) > 0 && len(b) > 0 {
		start, stop := a[0].Start, a[0].Stop
		if bytes.Compare(b[0].Start, start) > 0 {
			start = b[0].Start
		}
		aEndsFirst := len(b[0].Stop) == 0 || len(stop) > 0 && bytes.Compare(stop, b[0].Stop) <= 0
		if !aEndsFirst {
			stop = b[0].Stop
		}
		both = appendRange(both, start, stop, len(stop) == 0)
		if aEndsFirst {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return both
}

// findRange returns the first of sorted rs that ends after key, and whether it
// contains it.
func findRange(rs []cell.Range, key []byte) (i int, in bool) {
	i, _ = slices.BinarySearchFunc(rs, key, func(r cell.Range, key []byte) int {
		if len(r.Stop) == 0 || bytes.Compare(key, r.Stop) < 0 {
			return 1
		}
		return -1
	})
	return i, i < len(rs) && bytes.Compare(key, rs[i].Start) >= 0
}
