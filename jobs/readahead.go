package jobs

import (
	"fmt"

	"sluice/cell"
	"sluice/store"
)

// aheadParts is how many parts, each of at most packedRows rows and about packedBytes
// bytes, a readAhead holds: a group of changed rows, where these are small.
const aheadParts = changedRows / packedRows

// readAhead is a scan whose first rows, those that can be had as they are stored, are read
// by a goroutine of its own, up to aheadParts parts ahead of who takes them.
type readAhead struct {
	store.PackedScanner
	parts chan *cell.PackedRows // closed where PackedScanner goes on, in the taker's goroutine
	spare chan *cell.PackedRows
	stop  chan struct{}
	err   error // of the goroutine, from where parts is closed on

	part  *cell.PackedRows // of which rows from at on are still to be taken; nil = none
	at    int
	row   cell.Row
	inRow bool // the current row is row
	ended bool // parts is closed, and empty
	done  bool // it is closed
}

// newReadAhead begins to read sc ahead for a job. spare has parts whose memory may be used
// again, and takes them.
func newReadAhead(j *Job, sc store.PackedScanner, spare chan *cell.PackedRows) *readAhead {
	r := &readAhead{
		PackedScanner: sc,
		parts:         make(chan *cell.PackedRows, aheadParts), spare: spare, stop: make(chan struct{}),
	}
	go func() {
		defer close(r.parts)
		if r.err = j.atPriority(); r.err != nil {
			return
		}
		for {
			var p *cell.PackedRows
			select {
			case p = <-spare:
			default:
				p = new(cell.PackedRows)
			}
			p.Fold = j.folds()
			if sc.NextPacked(p, packedRows, packedBytes) == 0 {
				r.give(p)
				return
			}
			select {
			case r.parts <- p:
			case <-r.stop:
				return
			}
		}
	}()
	return r
}

// give keeps the memory of p for another part, where there is room.
func (r *readAhead) give(p *cell.PackedRows) {
	select {
	case r.spare <- p:
	default:
	}
}

// load makes part the next one with rows, and reports whether there is one.
func (r *readAhead) load() bool {
	if r.part != nil && r.at == r.part.Len() {
		r.give(r.part)
		r.part = nil
	}
	if r.part == nil && !r.ended {
		r.part, r.at = <-r.parts, 0
		r.ended = r.part == nil
	}
	return r.part != nil
}

// NextPacked is that of store.PackedScanner, whose bounds of bytes are those of the parts.
func (r *readAhead) NextPacked(rows *cell.PackedRows, most, bytes int) int {
	switch {
	case !r.load():
		if r.err != nil {
			return 0
		}
		return r.PackedScanner.NextPacked(rows, most, bytes)
	case r.at > 0 || r.part.Len() > most: // Next tells its rows
		return 0
	}
	*rows, *r.part = *r.part, *rows
	r.at = r.part.Len()
	return rows.Len()
}

// Next moves to the next row.
func (r *readAhead) Next() bool {
	r.inRow = r.load()
	if !r.inRow {
		return r.err == nil && r.PackedScanner.Next()
	}
	row, err := r.part.Row(r.at, r.row.Cells)
	if err != nil {
		r.err, r.part, r.ended, r.inRow = fmt.Errorf("%w: %w", store.ErrCorrupt, err), nil, true, false
		return false
	}
	r.row = row
	r.at++
	return true
}

// Row is the current row.
func (r *readAhead) Row() *cell.Row {
	if r.inRow {
		return &r.row
	}
	return r.PackedScanner.Row()
}

// Err returns the first error.
func (r *readAhead) Err() error {
	if r.err != nil {
		return r.err
	}
	return r.PackedScanner.Err()
}

// Close ends the goroutine, and the scan.
func (r *readAhead) Close() error {
	if !r.done {
		r.done = true
		close(r.stop)
		for range r.parts { // until its goroutine has ended
		}
	}
	return r.PackedScanner.Close()
}
