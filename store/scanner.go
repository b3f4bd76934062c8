package store

import (
	"bytes"
	"context"
	"fmt"

	"sluice/cell"
)

// RowSource yields the rows of a scan in its order, with versions, deletes, TTL,
// time ranges and columns resolved, not yet filtered. Engines implement it;
// NewScanner makes a Scanner of it.
type RowSource interface {
	// NextRow returns the next row, which has at least one cell, or nil at
	// the end. The row is the source's and valid until the next call, but the
	// scanner may change the elements of its Cells. skip, nil where nothing is
	// to be skipped, must be called once for each row before it is read; where
	// it returns true the source goes on to the next row, or to the one that
	// Selection.SeekRow names, or ends where Selection.Stopped holds.
	NextRow(skip func(row []byte) bool) (*cell.Row, error)
	// Close releases the source; it is called once.
	Close() error
}

// NewScanner returns the rows of src with the filter, version counts and limits
// of sel applied. It closes src. Its error wraps ctx's where that ended the scan.
func NewScanner(ctx context.Context, sel *Selection, src RowSource) Scanner {
	sc := &rowScanner{ctx: ctx, sel: sel, src: src}
	if sel.hints != nil {
		sc.skip = sc.skipRow
	}
	return sc
}

// FailedScanner returns a scanner without rows that reports err.
func FailedScanner(err error) Scanner { return &failedScanner{err: err} }

type failedScanner struct{ err error }

func (f *failedScanner) Next() bool     { return false }
func (f *failedScanner) Row() *cell.Row { return nil }
func (f *failedScanner) Err() error     { return f.err }
func (f *failedScanner) Close() error   { return nil }

// rowScanner is the second half of every engine's scan.
type rowScanner struct {
	ctx  context.Context // of the scan, whose calls have none of their own
	sel  *Selection
	src  RowSource
	skip func([]byte) bool

	rows   int // whole rows returned
	row    *cell.Row
	chunk  cell.Row    // the current piece of a row where Scan.Batch cuts it
	rest   []cell.Cell // what follows chunk in its row
	err    error
	closed bool
}

func (sc *rowScanner) skipRow(row []byte) bool {
	if sc.sel.stopped = sc.sel.filter.Done() || sc.ctx.Err() != nil; sc.sel.stopped {
		return true
	}
	skip := sc.sel.filter.SkipRow(row)
	if skip && sc.sel.filter.Done() {
		sc.sel.stopped = true
	}
	return skip
}

// Next moves to the next row, or to the next piece of a row.
func (sc *rowScanner) Next() bool {
	if sc.err != nil || sc.closed {
		sc.row = nil
		return false
	}
	if len(sc.rest) > 0 {
		sc.cut()
		return true
	}
	sc.row = nil
	for !sc.sel.stopped && (sc.sel.limit == 0 || sc.rows < sc.sel.limit) {
		if err := sc.ctx.Err(); err != nil {
			sc.err = fmt.Errorf("scan after %d rows: %w", sc.rows, err)
			return false
		}
		if f := sc.sel.filter; f != nil && f.Done() {
			break
		}
		row, err := sc.src.NextRow(sc.skip)
		if err != nil {
			sc.err = err
			return false
		}
		if row == nil {
			// A source may have ended because a skipped row found the
			// context done.
			if err := sc.ctx.Err(); err != nil && sc.sel.stopped {
				sc.err = fmt.Errorf("scan after %d rows: %w", sc.rows, err)
			}
			break
		}
		// A filter that must be shown every row is asked about rows that have
		// cells: which others are still stored is chance.
		if sc.sel.filter != nil && sc.skip == nil && sc.skipRow(row.Key) {
			continue
		}
		if row.Cells = sc.apply(row.Cells); len(row.Cells) == 0 {
			continue
		}
		sc.rows++
		sc.row = row
		if b := sc.sel.batch; b > 0 && len(row.Cells) > b {
			sc.chunk.Key, sc.rest = row.Key, row.Cells
			sc.cut()
		}
		return true
	}
	sc.sel.stopped = true
	return false
}

// cut makes the next piece of a row the current row.
func (sc *rowScanner) cut() {
	n := min(sc.sel.batch, len(sc.rest))
	sc.chunk.Cells, sc.rest = sc.rest[:n:n], sc.rest[n:]
	sc.row = &sc.chunk
}

// apply drops from a row's cells what the filter, the requested versions and the
// limits per family drop, in place. It is the order of HBase's
// UserScanQueryMatcher.mergeFilterResponse and StoreScanner.next: the filter
// sees a cell first, then versions are counted on what passed, then the limits of
// the family, and beyond its limit a family offers nothing more.
func (sc *rowScanner) apply(cells []cell.Cell) []cell.Cell {
	sel := sc.sel
	f := sel.filter
	if f == nil && sel.limitPerFamily == 0 && sel.offsetPerFamily == 0 {
		return cells
	}
	kept := cells[:0]
	for i, fam := 0, 0; i < len(cells); {
		end := i + 1
		for end < len(cells) && cells[end].Family == cells[i].Family {
			end++
		}
		for fam < len(sel.families)-1 && sel.families[fam].Family.Name != cells[i].Family {
			fam++
		}
		var done bool
		if kept, done = sc.applyFamily(kept, cells[i:end], sel.families[fam].Requested); done {
			break
		}
		i = end
	}
	if f == nil || len(kept) == 0 {
		return kept
	}
	if f.WholeRow() {
		kept = f.RowCells(kept)
	}
	if len(kept) > 0 && f.DropRow() {
		return nil
	}
	return kept
}

// applyFamily appends what remains of one family's cells to kept, which may
// share their memory at or before them. done ends the row and the scan.
func (sc *rowScanner) applyFamily(kept, cells []cell.Cell, requested int) (_ []cell.Cell, done bool) {
	sel, f := sc.sel, sc.sel.filter
	passed := 0 // cells of the family that count towards its limits
	limit := sel.limitPerFamily + sel.offsetPerFamily
	// kept may overwrite cells that were looked at already, so the current
	// column's qualifier is held apart from them.
	var column []byte
	inColumn, skipColumn, versions := false, false, 0
	for i := range cells {
		c := cells[i]
		if !inColumn || !bytes.Equal(column, c.Qualifier) {
			inColumn, skipColumn, versions, column = true, false, 0, c.Qualifier
		}
		if skipColumn {
			continue
		}
		code := FilterInclude
		if f != nil {
			if f.Done() {
				return kept, true
			}
			code = f.Cell(&c)
			if code.Included() {
				if versions++; versions > requested {
					skipColumn = true
					if code == FilterIncludeAndNextRow {
						return kept, false
					}
					continue
				}
				f.Transform(&c)
			}
		}
		switch code {
		case FilterSkip:
			continue
		case FilterNextColumn:
			skipColumn = true
			continue
		case FilterNextRow:
			return kept, false
		case FilterIncludeAndNextColumn:
			skipColumn = true
		}
		passed++
		if sel.limitPerFamily > 0 && passed > limit {
			return kept, false
		}
		if passed > sel.offsetPerFamily {
			kept = append(kept, c)
		}
		if code == FilterIncludeAndNextRow {
			return kept, false
		}
	}
	return kept, false
}

// Row returns the current row, valid until the next Next or Close.
func (sc *rowScanner) Row() *cell.Row { return sc.row }

// Err returns the first error.
func (sc *rowScanner) Err() error { return sc.err }

// Close releases the source.
func (sc *rowScanner) Close() error {
	if sc.closed {
		return nil
	}
	sc.closed, sc.row, sc.rest = true, nil, nil
	return sc.src.Close()
}
