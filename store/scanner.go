package store

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"

	"sluice/cell"
	"sluice/internal/turns"
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
	//
	// Where Selection.Pieces allows it, the row may be a part of one, with
	// More set; the next call returns the next part, or, where there is none,
	// the next row.
	NextRow(skip func(row []byte) bool) (*cell.Row, error)
	// Close releases the source; it is called once.
	Close() error
}

// PackedSource is a RowSource that can give rows as they are stored.
type PackedSource interface {
	RowSource
	// NextPacked appends the next rows of the only selected family to rows, no more
	// than most and, but for the last, bytes of them, as long as each is one put that
	// is seen whole or, with rows.Fold, can be told as one. Where the next row is none
	// such, or there is none, it appends nothing, and NextRow goes on. It is called only
	// where the scan leaves nothing out of such rows; skip is that of NextRow, which may
	// be asked once more about the row that NextRow goes on with.
	NextPacked(rows *cell.PackedRows, most, bytes int, skip func(row []byte) bool) error
}

// PackedScanner is a Scanner whose rows can be had many at a time, as they are stored,
// where they are. A Scanner that NewScanner made is one.
type PackedScanner interface {
	Scanner
	// NextPacked makes rows hold the next rows of the scan, at most most of them and
	// about bytes, and returns how many there are. Where it is none, Next tells what
	// comes: a row that is not stored as one put, or that this scan must look into, or
	// the end. With rows.Fold, which only a caller who wants the newest versions sets,
	// several puts are told as one. The rows are the caller's, until it calls NextPacked
	// with them again.
	NextPacked(rows *cell.PackedRows, most, bytes int) int
}

// NewScanner returns the rows of src with the filter, version counts and limits
// of sel applied. It closes src. Its error wraps ctx's where that ended the scan.
func NewScanner(ctx context.Context, sel *Selection, src RowSource) Scanner {
	sc := &rowScanner{ctx: ctx, sel: sel, src: src, most: sel.limit, place: sel.place}
	if sel.hints != nil {
		sc.skip = sc.skipRow
	}
	if sel.packed {
		sc.packed, _ = src.(PackedSource)
	}
	if p := sel.place; p != nil {
		sc.rows, sc.replay = p.rows, p.part
		if page := sel.pageRows; page > 0 && (sc.most == 0 || page < sc.most-sc.rows) {
			sc.most = sc.rows + min(page, math.MaxInt-sc.rows)
		}
	}
	return sc
}

// FirstRow returns the first row of a scan, the caller's own, or nil where it has none. It
// is for scans of few rows: what they read ahead is for nothing.
func FirstRow(ctx context.Context, r Reader, s *Scan) (*cell.Row, error) {
	sc := r.Scan(ctx, s)
	var row *cell.Row
	if sc.Next() {
		row = sc.Row().Clone()
	}
	if err := cmp.Or(sc.Err(), sc.Close()); err != nil {
		return nil, err
	}
	return row, nil
}

// GetRow returns a row as it is now, the caller's own, or nil where there is none.
func GetRow(ctx context.Context, r Reader, table string, key []byte) (*cell.Row, error) {
	return FirstRow(ctx, r, &Scan{Table: table, Start: key, Stop: key, StopInclusive: true})
}

// turnSteps is how many rows a scan reads before it looks whether others have a turn.
const turnSteps = 64

// FailedScanner returns a scanner without rows that reports err.
func FailedScanner(err error) Scanner { return &failedScanner{err: err} }

type failedScanner struct{ err error }

func (f *failedScanner) Next() bool     { return false }
func (f *failedScanner) Row() *cell.Row { return nil }
func (f *failedScanner) Err() error     { return f.err }
func (f *failedScanner) Close() error   { return nil }

// Cursor returns no cursor: that of the scan, if it has one, still holds.
func (f *failedScanner) Cursor() (Cursor, error) { return "", f.err }

// rowScanner is the second half of every engine's scan.
type rowScanner struct {
	ctx  context.Context // of the scan, whose calls have none of their own
	sel  *Selection
	src  RowSource
	skip func([]byte) bool

	packed PackedSource // src, where rows can be had as they are stored; nil = they cannot

	rows   int // returned, or begun
	most   int // rows, those of the parts before this one included; 0 = any number
	row    *cell.Row
	chunk  cell.Row    // the current piece of a row where the scan cuts it
	rest   []cell.Cell // what follows chunk in its row
	key    []byte      // of the row that the source has given a part of
	within bool        // the source is in the midst of a row
	begun  bool        // a piece of that row was returned
	passed bool        // that row is skipped
	state  familyState // of the family that was looked at last
	err    error
	closed bool
	over   bool // there are no more rows

	steps uint // of the source
	turn  turns.Turn

	place  *place // nil = nobody asks for cursors
	replay bool   // the row of the place is to come, of which a part was returned
	repeat bool   // what the source gives was returned
}

var (
	_ Resumable     = (*rowScanner)(nil)
	_ PackedScanner = (*rowScanner)(nil)
)

func (sc *rowScanner) skipRow(row []byte) bool {
	if sc.sel.stopped = sc.sel.filter.Done() || sc.ctx.Err() != nil; sc.sel.stopped {
		return true
	}
	skip := sc.sel.filter.SkipRow(row)
	if skip && sc.sel.filter.Done() {
		sc.sel.stopped = true
	}
	if skip && sc.place != nil {
		sc.left(&cell.Row{Key: row})
	}
	return skip
}

// left moves the place to a row, or part of one, that is done with. A part leaves
// what the filter keeps as it was before its row: that is read again.
func (sc *rowScanner) left(row *cell.Row) {
	sc.place.at(row, sc.rows)
	if !row.More {
		sc.place.keep(sc.sel.filter)
	}
}

// full reports that no further row may begin.
func (sc *rowScanner) full() bool {
	return sc.most > 0 && sc.rows >= sc.most && !sc.begun && !sc.replay
}

// Cursor returns where the scan is.
func (sc *rowScanner) Cursor() (Cursor, error) {
	if sc.place == nil {
		return "", fmt.Errorf("%w: the scan has not asked for cursors: set NeedCursor", errCursor)
	}
	return sc.place.encode(), nil
}

// Next moves to the next row, or to the next piece of a row.
func (sc *rowScanner) Next() bool {
	if !sc.next() {
		return false
	}
	if sc.place != nil {
		sc.left(sc.row)
	}
	return true
}

func (sc *rowScanner) next() bool {
	if sc.err != nil || sc.closed || sc.over {
		sc.row = nil
		return false
	}
	if len(sc.rest) > 0 {
		sc.cut()
		return true
	}
	sc.row = nil
	ended := sc.sel.stopped
	for !sc.sel.stopped && !sc.full() {
		if err := sc.ctx.Err(); err != nil {
			sc.err = fmt.Errorf("scan after %d rows: %w", sc.rows, err)
			return false
		}
		if f := sc.sel.filter; f != nil && f.Done() {
			ended = true
			break
		}
		if sc.steps++; sc.steps%turnSteps == 0 {
			sc.turn.Give()
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
			ended = sc.err == nil
			break
		}
		if sc.take(row) {
			return true
		}
	}
	if sc.sel.stopped && !ended && !sc.full() {
		// A filter that must be shown every row has ended the scan, or ctx has.
		if err := sc.ctx.Err(); err != nil {
			sc.err = fmt.Errorf("scan after %d rows: %w", sc.rows, err)
			return false
		}
		ended = true
	}
	if sc.place != nil {
		sc.place.ended = ended || sc.sel.limit > 0 && sc.rows >= sc.sel.limit
	}
	sc.sel.stopped, sc.over = true, true
	return false
}

// NextPacked implements PackedScanner.
func (sc *rowScanner) NextPacked(rows *cell.PackedRows, most, bytes int) int {
	rows.Reset("")
	sc.row = nil
	if sc.most > 0 {
		most = min(most, sc.most-sc.rows)
	}
	if sc.packed == nil || sc.err != nil || sc.closed || sc.over || most <= 0 || sc.ctx.Err() != nil {
		return 0 // Next knows why
	}
	sc.turn.Give()
	if sc.err = sc.packed.NextPacked(rows, most, bytes, sc.skip); sc.err != nil {
		rows.Reset("")
	}
	sc.rows += rows.Len()
	if err := sc.ctx.Err(); err != nil && sc.err == nil && sc.sel.stopped {
		sc.err = fmt.Errorf("scan after %d rows: %w", sc.rows, err) // a skipped row has found it done
	}
	return rows.Len()
}

// take makes the current row of what the source has given, and reports whether
// anything is left of it.
func (sc *rowScanner) take(row *cell.Row) bool {
	if !sc.within || !bytes.Equal(sc.key, row.Key) {
		sc.begun, sc.passed, sc.repeat, sc.state = false, false, false, familyState{}
		if sc.replay {
			// Where the row is gone, nothing of it is left.
			sc.replay = false
			sc.repeat = bytes.Equal(sc.place.row, row.Key)
			sc.begun = sc.repeat
		}
		if sc.full() {
			// The row before was the last, and has ended with its last part.
			sc.sel.stopped = true
			return false
		}
		// A filter that must be shown every row is asked about rows that have
		// cells: which others are still stored is chance.
		sc.passed = sc.sel.filter != nil && sc.skip == nil && sc.skipRow(row.Key)
	}
	if sc.within = row.More; row.More {
		sc.key = append(sc.key[:0], row.Key...)
	}
	if sc.passed {
		return false
	}
	if row.Cells = sc.apply(row.Cells); row.More {
		sc.state.column = bytes.Clone(sc.state.column) // the source reuses its memory
	}
	if sc.repeat {
		n := 0
		for n < len(row.Cells) && sc.place.returned(&row.Cells[n]) {
			n++
		}
		row.Cells = row.Cells[n:]
		sc.repeat = row.More && len(row.Cells) == 0
	}
	if len(row.Cells) == 0 {
		if sc.place != nil && !row.More {
			sc.left(&cell.Row{Key: row.Key})
		}
		return false
	}
	if !sc.begun {
		sc.rows++
	}
	sc.begun = row.More
	sc.row = row
	if sc.size(row.Cells) < len(row.Cells) {
		sc.chunk, sc.rest = *row, row.Cells
		sc.cut()
	}
	return true
}

// size returns how many of cells, at least one, make a Row.
func (sc *rowScanner) size(cells []cell.Cell) int {
	n := len(cells)
	if b := sc.sel.batch; b > 0 {
		n = min(n, b)
	}
	if sc.sel.maxBytes > 0 {
		bytes := 0
		for i := range cells[:n] {
			c := &cells[i]
			if bytes += len(c.Family) + len(c.Qualifier) + len(c.Value); bytes > sc.sel.maxBytes {
				return max(i, 1)
			}
		}
	}
	return n
}

// cut makes the next piece of a row the current row.
func (sc *rowScanner) cut() {
	n := sc.size(sc.rest)
	sc.chunk.Cells, sc.rest = sc.rest[:n:n], sc.rest[n:]
	sc.chunk.More = len(sc.rest) > 0 || sc.within
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
	if sel.whole || f == nil && sel.limitPerFamily == 0 && sel.offsetPerFamily == 0 {
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

// familyState is how far a row's family has been looked at: its cells may come in
// several parts.
type familyState struct {
	family     string
	passed     int    // cells that count towards the family's limits
	column     []byte // the current one
	inColumn   bool
	skipColumn bool // nothing more of it is wanted
	versions   int  // of it that the filter let pass
	ended      bool // nothing more of the family is wanted
}

// applyFamily appends what remains of one family's cells to kept, which may
// share their memory at or before them. done ends the row and the scan.
func (sc *rowScanner) applyFamily(kept, cells []cell.Cell, requested int) (_ []cell.Cell, done bool) {
	sel, f := sc.sel, sc.sel.filter
	st := &sc.state
	if st.family != cells[0].Family {
		*st = familyState{family: cells[0].Family}
	}
	for i := range cells {
		if st.ended {
			break
		}
		// kept may overwrite cells that were looked at already, so the current
		// column's qualifier is held apart from them.
		c := cells[i]
		if !st.inColumn || !bytes.Equal(st.column, c.Qualifier) {
			st.inColumn, st.skipColumn, st.versions, st.column = true, false, 0, c.Qualifier
		}
		if st.skipColumn {
			continue
		}
		code := FilterInclude
		if f != nil {
			if f.Done() {
				return kept, true
			}
			code = f.Cell(&c)
			if code.Included() {
				if st.versions++; st.versions > requested {
					st.skipColumn = true
					st.ended = code == FilterIncludeAndNextRow
					continue
				}
				f.Transform(&c)
			}
		}
		switch code {
		case FilterSkip:
			continue
		case FilterNextColumn:
			st.skipColumn = true
			continue
		case FilterNextRow:
			st.ended = true
			continue
		case FilterIncludeAndNextColumn:
			st.skipColumn = true
		}
		if st.passed++; st.passed > sel.offsetPerFamily {
			kept = append(kept, c)
		}
		full := sel.limitPerFamily > 0 && st.passed-sel.offsetPerFamily >= sel.limitPerFamily
		st.ended = full || code == FilterIncludeAndNextRow
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
