package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync/atomic"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/jobs/work"
	"sluice/store"
)

// output is one split's files of one format, one after the other.
type output struct {
	fileWriter
	run   *run
	split *instant.Split

	dir       string    // of its partition; empty = the run's
	partition []*string // the values of that

	after    []byte // rows up to this one are in files of a run that was cut off; nil = none
	chunk    int    // of the current file; files are numbered from 0
	rows     int64  // of the finished files
	min, max []byte
}

// newOutput returns the output of a split in one format.
func (r *run) newOutput(s *instant.Split, f *format) *output {
	return &output{fileWriter: fileWriter{upload: r.upload, layout: &r.Job.layout, format: f, metadata: r.metadata}, run: r, split: s}
}

// create begins the next file.
func (o *output) create(ctx context.Context) (err error) {
	o.min, o.max = nil, nil
	return o.fileWriter.create(ctx, path.Join(o.dir, partName(o.split.Index, o.chunk, o.format.name)))
}

// write appends a batch whose rows have keys from min to max.
func (o *output) write(ctx context.Context, b *columnar.Batch, min, max []byte) error {
	if bytes.Compare(max, o.after) <= 0 {
		return nil // batches end where files have ended
	}
	if o.writer == nil {
		if err := o.create(ctx); err != nil {
			return err
		}
		o.min = bytes.Clone(min)
	}
	o.max = append(o.max[:0], max...)
	return o.add(b)
}

// finish closes the current file, if there is one, and adds it to the run.
func (o *output) finish(ctx context.Context) error {
	if o.writer == nil {
		return nil
	}
	f, err := o.close()
	if err != nil {
		return err
	}
	f.MinRow, f.MaxRow = columnar.EscapeKey(o.min), columnar.EscapeKey(o.max)
	f.RegionStart, f.RegionStop = columnar.EscapeKey(o.split.Region.Start), columnar.EscapeKey(o.split.Region.Stop)
	f.Partition = o.partition
	if err := o.run.note(ctx, &workNote{Region: o.split.Index, File: &f}); err != nil {
		return err
	}
	o.chunk++
	o.rows += f.Rows
	return o.run.done(f)
}

// splitExport is the work on one split.
type splitExport struct {
	run      *run
	builder  *columnar.Builder
	outputs  []*output        // none where there are partitions
	parts    *partitionWriter // nil = there are no partitions
	keys     rowKeys          // of the batch, where there are
	min, max []byte           // row keys of the batch; max is the last row seen
	first    bool             // the batch has no row yet
	split    *instant.Split
	gauge    gauge
	handoff  *handoff       // has the outputs; nil = nobody
	sorter   *sortCollector // takes the rows; nil = the outputs, or parts, do
	pacing   pacing
	stored   storedRows  // that come
	lacking  atomic.Bool // changed rows that were put with all columns wanted some, too often
	// ends are the row keys, ascending, at which files have ended that a run has
	// left: batches end there again, so that the files after them become the same.
	ends [][]byte
}

// exportSplit scans one split into its files, or into sorter, where that is not nil. A
// region without rows makes none.
func (r *run) exportSplit(ctx context.Context, s *instant.Split, b *columnar.Builder, sorter *sortCollector) error {
	b.Reset()
	e := &splitExport{run: r, builder: b, first: true, split: s, sorter: sorter, stored: newStoredRows(r.Job), pacing: pacing{pace: r.pace, yielder: r.yielder}, gauge: gauge{measures: r.measures, now: r.Now}}
	switch {
	case sorter != nil:
	case r.Job.partition != nil:
		e.parts = r.newPartitionWriter(s)
	default:
		for i := range r.Job.formats {
			e.outputs = append(e.outputs, r.newOutput(s, &r.Job.formats[i]))
		}
	}
	scan := r.Job.scan(s)
	if r.work != nil {
		after, ends, err := r.work.resumeAt(s.Index, e.outputs)
		if err != nil {
			return err
		}
		if after != nil {
			scan.Start = append(bytes.Clone(after), 0)
		}
		e.ends = ends
	}
	read := e.scan
	if r.changes != nil {
		read = e.scanChanges
	}
	err := read(ctx, scan)
	if err == nil {
		err = e.pacing.end(ctx)
	}
	if e.handoff != nil {
		if failed := e.handoff.end(); err == nil {
			err = failed
		}
	}
	if err != nil {
		return err
	}
	if sorter == nil {
		rows, err := e.finish(ctx)
		if err != nil {
			return err
		}
		if err := r.note(ctx, &workNote{Region: s.Index, Rows: rows}); err != nil {
			return err
		}
	}
	r.measures.whole(s.Index)
	r.report(func(p *work.Progress) { p.RegionsDone++ })
	return nil
}

// finish ends all files and returns the rows of each format.
func (e *splitExport) finish(ctx context.Context) (int64, error) {
	if e.parts != nil {
		err := e.parts.finish(ctx)
		return e.parts.rows(), err
	}
	for _, o := range e.outputs {
		if err := o.finish(ctx); err != nil {
			return 0, err
		}
	}
	return e.outputs[0].rows, nil
}

func (e *splitExport) scan(ctx context.Context, s *store.Scan) (err error) {
	sc := e.run.Source.Scan(ctx, s)
	defer func() { err = errors.Join(err, sc.Close()) }()
	if err := e.each(sc, func() error { return e.packedRows(ctx) }, func(row *cell.Row) error { return e.row(ctx, row) }); err != nil {
		return err
	}
	return e.flush(ctx)
}

// each calls packed with the next rows in e.stored, where they can be had as they are
// stored, and one for each of the others.
func (e *splitExport) each(sc store.Scanner, packed func() error, one func(row *cell.Row) error) error {
	for {
		for e.stored.next(sc, e.room()) {
			if err := packed(); err != nil {
				return err
			}
		}
		if !sc.Next() {
			break
		}
		if err := one(sc.Row()); err != nil {
			return err
		}
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("scan table %s: %w", e.run.Job.Table(), err)
	}
	return nil
}

// room is how many rows the batch has room for.
func (e *splitExport) room() int {
	most := columnar.DefaultBatchRows
	if e.run.batchRows > 0 {
		most = e.run.batchRows
	}
	return most - e.builder.Batch().Rows()
}

// packedRows appends the rows of e.stored: at once where nothing can happen among them,
// and otherwise one by one.
func (e *splitExport) packedRows(ctx context.Context) error {
	rows := &e.stored.rows
	last := rows.Len() - 1
	// What the job's conditions leave out of an increment is gone.
	alone := len(e.ends) > 0 || e.run.changes != nil && e.run.Job.schema.Conditional()
	for i := 0; i <= last && !alone; i++ {
		before := e.max
		if i > 0 {
			before = rows.Key(i - 1)
		}
		alone = bytes.Compare(rows.Key(i), before) <= 0 // row says what is wrong
	}
	if !alone {
		if err := e.cut(ctx, rows.Key(0)); err != nil {
			return err
		}
		taken, err := e.builder.AppendPacked(rows)
		if err != nil {
			return refused(e.run.Job.Table(), err)
		}
		if taken {
			return e.taken(ctx)
		}
	}
	return e.stored.each(e.run.Job.Table(), func(row *cell.Row) error { return e.row(ctx, row) })
}

// taken takes note of the rows of e.stored, which the builder has taken.
func (e *splitExport) taken(ctx context.Context) error {
	rows, kept := &e.stored.rows, e.builder.Kept()
	if err := e.pacing.read(ctx, rows.Len()); err != nil {
		return err
	}
	first, last := -1, 0
	for i := range rows.Len() {
		if kept != nil && !kept[i] {
			continue
		}
		if first < 0 {
			first = i
		}
		last = i
		if e.parts != nil || e.sorter != nil {
			e.keys.add(rows.Key(i), 1)
		}
	}
	if first < 0 {
		return nil
	}
	return e.appended(ctx, rows.Key(first), rows.Key(last))
}

// appended takes note of rows that were appended, whose keys are from first to last, and
// has the batch written where it is full.
func (e *splitExport) appended(ctx context.Context, first, last []byte) error {
	if e.first {
		e.min = append(e.min[:0], first...)
		e.first = false
	}
	e.max = append(e.max[:0], last...)
	if e.full() {
		return e.flush(ctx)
	}
	return nil
}

// row appends one scanned row, or a part of one in mode cell.
func (e *splitExport) row(ctx context.Context, row *cell.Row) error {
	if len(row.Cells) == 0 {
		return nil
	}
	if err := e.pacing.read(ctx, e.run.Job.rowsOf(row)); err != nil {
		return err
	}
	order := bytes.Compare(row.Key, e.max)
	if order < 0 || (order == 0 && e.run.Job.schema.Mode() == columnar.PerRow) {
		return fmt.Errorf("%w: scan of table %s returned row %q after %q", store.ErrCorrupt, e.run.Job.Table(), row.Key, e.max)
	}
	if order > 0 {
		// Files are cut between rows, so that their key ranges are disjoint.
		if err := e.cut(ctx, row.Key); err != nil {
			return err
		}
	}
	if e.run.Job.schema.Mode() == columnar.PerRow {
		return e.append(ctx, row)
	}
	for cells := row.Cells; len(cells) > 0; {
		part := cells[:min(len(cells), cellsPerRow)]
		cells = cells[len(part):]
		if err := e.append(ctx, &cell.Row{Key: row.Key, Cells: part}); err != nil {
			return err
		}
	}
	return nil
}

// append appends a row, or some of its cells, to the batch, and has that written where it
// is full.
func (e *splitExport) append(ctx context.Context, row *cell.Row) error {
	before := e.builder.Batch().Rows()
	if err := e.builder.Append(row); err != nil {
		return refused(e.run.Job.Table(), err)
	}
	added := e.builder.Batch().Rows() - before
	if added == 0 { // the job's conditions leave it out
		if e.run.changes == nil || e.run.Job.schema.Mode() == columnar.PerCell { // other cells of the row may come
			return nil
		}
		return e.gone(ctx, row.Key) // it may have been there before
	}
	if e.parts != nil || e.sorter != nil {
		e.keys.add(row.Key, added)
	}
	return e.appended(ctx, row.Key, row.Key)
}

// rowsOf is how many rows a scanned one counts as: with rows: cell, its cells.
func (j *Job) rowsOf(row *cell.Row) int {
	if j.schema.Mode() == columnar.PerCell {
		return len(row.Cells)
	}
	return 1
}

// full reports that the batch is to be written before the next row.
func (e *splitExport) full() bool {
	return e.builder.Full() || e.run.batchRows > 0 && e.builder.Batch().Rows() >= e.run.batchRows
}

// gone appends that there is no row with this key any more.
func (e *splitExport) gone(ctx context.Context, key []byte) error {
	if bytes.Compare(key, e.max) <= 0 {
		return fmt.Errorf("%w: row %q of table %s is gone after %q", store.ErrCorrupt, key, e.run.Job.Table(), e.max)
	}
	if err := e.cut(ctx, key); err != nil {
		return err
	}
	if err := e.builder.AppendGone(key); err != nil {
		return err
	}
	if e.parts != nil || e.sorter != nil {
		e.keys.add(key, 1)
	}
	return e.appended(ctx, key, key)
}

// flush has the batch written to every format.
func (e *splitExport) flush(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("scan table %s: %w", e.run.Job.Table(), context.Cause(ctx))
	}
	b := e.builder.Batch()
	if b.Rows() == 0 {
		return nil
	}
	if e.handoff == nil && e.full() { // the last batch is waited for anyway
		e.share(ctx)
	}
	var err error
	if e.handoff != nil {
		err = e.handoff.take()
	} else {
		err = e.write(ctx, b, e.min, e.max)
	}
	if err != nil {
		return err
	}
	e.builder.Reset()
	e.keys.reset()
	e.first = true
	return e.run.yielder.wait(ctx)
}

// write writes a batch, whose rows have keys from min to max, to every format.
func (e *splitExport) write(ctx context.Context, b *columnar.Batch, min, max []byte) error {
	if ctx.Err() != nil {
		return fmt.Errorf("scan table %s: %w", e.run.Job.Table(), context.Cause(ctx))
	}
	if e.parts != nil {
		if err := e.parts.write(ctx, b, &e.keys); err != nil {
			return err
		}
	}
	if e.sorter != nil {
		if err := e.sorter.write(b, &e.keys); err != nil {
			return err
		}
	}
	for _, o := range e.outputs {
		if err := o.write(ctx, b, min, max); err != nil {
			return err
		}
	}
	e.gauge.reached(ctx, e.split, max)
	e.run.add(b.Rows())
	return nil
}

// finishFull ends the files that are full.
func (e *splitExport) finishFull(ctx context.Context) error {
	for _, o := range e.outputs {
		if !o.full() {
			continue
		}
		if err := o.finish(ctx); err != nil {
			return err
		}
	}
	return nil
}

// cut ends the files that are full, of a batch that ends there, too; the next row,
// of this key, begins their successors.
func (e *splitExport) cut(ctx context.Context, key []byte) error {
	// A handoff ends them itself, after the batch that fills them.
	end := e.handoff == nil && slices.ContainsFunc(e.outputs, func(o *output) bool { return o.full() })
	for len(e.ends) > 0 && bytes.Compare(e.ends[0], key) < 0 {
		e.ends = e.ends[1:]
		end = true
	}
	if !end {
		return nil
	}
	// Rows of the batch come before the cut. With them, more files may be full.
	if err := e.flush(ctx); err != nil || e.handoff != nil {
		return err
	}
	return e.finishFull(ctx)
}
