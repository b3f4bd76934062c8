package jobs

import (
	"context"
	"fmt"

	"golang.org/x/sync/semaphore"

	"sluice/cell"
	"sluice/store"
)

// Bounds of what a readAhead holds: a group of changed rows, where these are small, and
// parts of about packedBytes, or one larger one. Another part may be read and wait.
const (
	aheadParts = changedRows / packedRows
	aheadBytes = aheadParts * packedBytes
)

// readAhead is a scan whose first rows, those that can be had as they are stored, are read
// by a goroutine of its own, some parts ahead of who takes them.
type readAhead struct {
	store.PackedScanner
	parts chan *cell.PackedRows // closed where PackedScanner goes on, in the taker's goroutine
	spare chan *cell.PackedRows
	held  *semaphore.Weighted // bytes of parts
	stop  context.CancelFunc
	err   error // of the goroutine, from where parts is closed on

	part  *cell.PackedRows // of which rows from at on are still to be taken; nil = none
	at    int
	row   cell.Row
	inRow bool  // the current row is row
	bad   error // of a row in a part
}

// newReadAhead begins to read sc, a scan in ctx, ahead for a job. spare has parts whose
// memory may be used again, and takes them.
func newReadAhead(ctx context.Context, j *Job, sc store.PackedScanner, spare chan *cell.PackedRows) *readAhead {
	ctx, stop := context.WithCancel(ctx)
	r := &readAhead{
		PackedScanner: sc, parts: make(chan *cell.PackedRows, aheadParts), spare: spare,
		held: semaphore.NewWeighted(aheadBytes), stop: stop,
	}
	go func() {
		defer close(r.parts)
		r.err = j.atPriority()
		for more := true; more && r.err == nil; {
			more, r.err = r.read(ctx, j.folds())
		}
	}()
	return r
}

// read reads a part, and reports whether there was one.
func (r *readAhead) read(ctx context.Context, fold bool) (more bool, err error) {
	var p *cell.PackedRows
	select {
	case p = <-r.spare:
	default:
		p = new(cell.PackedRows)
	}
	p.Fold = fold
	if r.PackedScanner.NextPacked(p, packedRows, packedBytes) == 0 {
		r.give(p)
		return false, nil
	}
	if r.held.Acquire(ctx, weight(p)) != nil {
		return false, context.Cause(ctx)
	}
	select {
	case r.parts <- p:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// weight is how many of aheadBytes a part takes.
func weight(p *cell.PackedRows) int64 { return int64(min(p.Bytes(), aheadBytes)) }

// give keeps the memory of p for another part, where there is room, unless it is large.
func (r *readAhead) give(p *cell.PackedRows) {
	if p.Bytes() > 2*packedBytes {
		return
	}
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
	if r.part == nil {
		if r.part, r.at = <-r.parts, 0; r.part != nil {
			r.held.Release(weight(r.part))
		}
	}
	return r.part != nil
}

// NextPacked is that of store.PackedScanner, whose bounds of bytes are those of the parts.
func (r *readAhead) NextPacked(rows *cell.PackedRows, most, bytes int) int {
	switch {
	case r.bad != nil:
		return 0
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
	if r.bad != nil {
		return false
	}
	if r.inRow = r.load(); !r.inRow {
		return r.err == nil && r.PackedScanner.Next()
	}
	row, err := r.part.Row(r.at, r.row.Cells)
	if err != nil {
		r.bad = fmt.Errorf("%w: %w", store.ErrCorrupt, err)
		return false
	}
	r.row = row
	r.at++
	return true
}

// Row is the current row.
func (r *readAhead) Row() *cell.Row {
	switch {
	case r.bad != nil:
		return nil
	case r.inRow:
		return &r.row
	}
	return r.PackedScanner.Row()
}

// Err returns the first error, once Next has returned false.
func (r *readAhead) Err() error {
	switch {
	case r.bad != nil:
		return r.bad
	case r.err != nil:
		return r.err
	}
	return r.PackedScanner.Err()
}

// Close ends the goroutine, and the scan.
func (r *readAhead) Close() error {
	r.stop()
	for range r.parts { // until its goroutine has ended
	}
	return r.PackedScanner.Close()
}
