package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
	"time"

	"sluice/cell"
	"sluice/internal/turns"
	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/jobs/join"
	"sluice/jobs/target"
	"sluice/store"
)

// sideInput is one side of a join that is read, and must be closed.
type sideInput interface {
	join.Input
	// part returns what part was read, 0 to 1, and how much all of it is beside the
	// other side, which is of the same kind.
	part() (done, weight float64)
	Close() error
}

// watchedInput is a side of which each batch is told.
type watchedInput struct {
	join.Input
	told func()
}

// Next returns the next rows.
func (w *watchedInput) Next() (*columnar.Batch, error) {
	b, err := w.Input.Next()
	w.told()
	return b, err
}

// tableInput is the rows that a job would export, in key order, or, of a side that is
// looked up, those of them that were asked for.
type tableInput struct {
	ctx     context.Context
	job     *Job
	table   *store.TableDescriptor
	source  instant.Source
	scans   []*store.Scan // to do
	builder *columnar.Builder
	scanner store.Scanner // of the current scan; nil = none
	stored  storedRows    // of it
	pacing  pacing
	most    int // bytes of values after which a batch is full; 0 = columnar's bound alone
	turn    turns.Turn

	gauge  gauge
	splits []instant.Split // of the scans to do; nil = rows are looked up
	split  *instant.Split  // of the scanner; nil = none
}

var _ join.Finder = (*tableInput)(nil)

// openTable begins to read the table of a job; told says that somebody is told how far that
// is, by the clock now.
func openTable(ctx context.Context, j *Job, source instant.Source, told bool, now func() time.Time, y *yielder) (*tableInput, error) {
	o, err := j.open(ctx, source)
	if err != nil {
		return nil, err
	}
	j = o.Job
	t := &tableInput{
		ctx: ctx, job: j, source: source, table: o.table, splits: o.splits, builder: columnar.NewBuilder(j.schema), stored: newStoredRows(j),
		pacing: pacing{pace: newPace(j.spec.RowsPerSecond), yielder: y},
	}
	m, err := measure(ctx, source, j, t.splits, told)
	if err != nil {
		return nil, err
	}
	t.gauge = gauge{measures: m, now: now}
	for i := range t.splits {
		t.scans = append(t.scans, j.scan(&t.splits[i]))
	}
	return t, nil
}

// Columns returns the job's columns.
func (t *tableInput) Columns() []columnar.Column { return t.job.Columns() }

// Find begins to read the rows with these keys, which is all that Next returns then.
// As store.Table.GetRows does, it makes one scan of them, which seeks from one to the
// next, or, on HBase, gets several at a time. With a filter of the job's, HBase does not
// do that: of an Unfrozen source it makes one scan of each then.
func (t *tableInput) Find(keys [][]byte) (join.Input, error) {
	if err := t.Close(); err != nil {
		return nil, err
	}
	t.scans, t.splits, t.split = nil, nil, nil
	f := &store.MultiRowRangeFilter{}
	for _, key := range keys {
		if cell.CheckRow(key) == nil && t.job.rows.Contains(key) { // no row has another key
			f.Ranges = append(f.Ranges, store.RowRange{Start: key, Stop: key, StopInclusive: true})
		}
	}
	if len(f.Ranges) == 0 {
		return t, nil
	}
	if t.job.filter != nil && instant.UnfrozenOf(t.source) != nil {
		for _, r := range f.Ranges {
			s := t.job.scan(&instant.Split{Rows: cell.Range{Start: r.Start, Stop: r.Stop}})
			s.StopInclusive = true
			t.scans = append(t.scans, s)
		}
		return t, nil
	}
	s := t.job.scan(&instant.Split{Rows: cell.Range{Start: f.Ranges[0].Start, Stop: f.Ranges[len(f.Ranges)-1].Stop}})
	s.StopInclusive, s.Filter = true, f
	if t.job.filter != nil {
		s.Filter = &store.FilterList{Filters: []store.Filter{f, t.job.filter}}
	}
	t.scans = append(t.scans, s)
	return t, nil
}

// Next returns the next rows.
func (t *tableInput) Next() (*columnar.Batch, error) {
	t.builder.Reset()
	for {
		if t.scanner == nil {
			if len(t.scans) == 0 {
				break
			}
			t.scanner = t.source.Scan(t.ctx, t.scans[0])
			t.scans = t.scans[1:]
			if len(t.splits) > 0 {
				t.split, t.splits = &t.splits[0], t.splits[1:]
			}
		}
		if err := t.fill(); err != nil {
			return nil, err
		}
		if t.full() {
			return t.builder.Batch(), nil
		}
		err := errors.Join(t.scanner.Err(), t.scanner.Close())
		t.scanner = nil
		if err != nil {
			return nil, fmt.Errorf("scan table %s: %w", t.job.Table(), err)
		}
		if t.split != nil {
			t.gauge.whole(t.split.Index)
		}
	}
	if err := t.pacing.end(t.ctx); err != nil {
		return nil, err
	}
	if t.builder.Batch().Rows() == 0 {
		return nil, io.EOF
	}
	return t.builder.Batch(), nil
}

// fill appends the rows of the scan until the batch is full or there are no more.
func (t *tableInput) fill() (err error) {
	var last []byte
	appendRow := func(row *cell.Row) error {
		if err := t.pacing.read(t.ctx, t.job.rowsOf(row)); err != nil {
			return err
		}
		last = row.Key
		if err := t.builder.Append(row); err != nil {
			return refused(t.job.Table(), err)
		}
		return nil
	}
	for n := 0; !t.full() && err == nil; n++ {
		packed := t.stored.next(t.scanner, columnar.DefaultBatchRows-t.builder.Batch().Rows())
		if packed || n%packedRows == 0 {
			t.turn.Give()
		}
		if !packed {
			if !t.scanner.Next() {
				return nil
			}
			err = appendRow(t.scanner.Row())
			continue
		}
		rows := &t.stored.rows
		var taken bool
		switch taken, err = t.builder.AppendPacked(rows); {
		case err != nil:
			err = refused(t.job.Table(), err)
		case taken:
			last = rows.Key(rows.Len() - 1)
			err = t.pacing.read(t.ctx, rows.Len())
		default:
			err = t.stored.each(t.job.Table(), appendRow)
		}
	}
	if err == nil && t.split != nil {
		t.gauge.reached(t.ctx, t.split, last)
	}
	return err
}

// full reports that the batch is to be taken.
func (t *tableInput) full() bool {
	b := t.builder.Batch()
	return t.builder.Full() || t.most > 0 && b.Rows() > 0 && b.Bytes() >= t.most
}

// part returns what part of the table was read, and what it weighs.
func (t *tableInput) part() (done, weight float64) {
	return t.gauge.sum(), t.gauge.total
}

// Close ends the scan.
func (t *tableInput) Close() error {
	if t.scanner == nil {
		return nil
	}
	err := t.scanner.Close()
	t.scanner = nil
	return err
}

// runInput is the rows of a published run, file after file, or, where that is divided
// into partitions, in the order of its row keys. A file is read when its size and
// checksum are those of the manifest (invariant I7).
type runInput struct {
	ctx      context.Context
	target   target.Target
	at       string // the directory or bucket that target is
	dir      string // of the run, below the target
	manifest *Manifest
	sum      string // SHA-256 of the manifest
	columns  []columnar.Column
	files    []File          // to read
	file     *runFile        // nil = none
	merge    *partitionMerge // nil = file after file
	chain    *chainMerge     // of the run and those that it goes on from, which have the rows; nil = it has them

	rows, read int64 // of all files to read, and so far
	bytes      int64 // of all of them
}

// runFile is a file of a run that is read.
type runFile struct {
	columnar.FileReader
	file target.File
}

// Close ends reading.
func (f *runFile) Close() error { return errors.Join(f.FileReader.Close(), f.file.Close()) }

// openRunInput finds a published run; bucket opens those that are not in a directory.
func openRunInput(ctx context.Context, at string, bucket func(at string) (target.Target, error)) (_ *runInput, err error) {
	var t target.Target
	name, below := "", at // what paths are below
	switch {
	case !inBucket(at):
		t, below, name, err = openRun(at)
	case bucket == nil:
		err = fmt.Errorf("%w: run %s: JoinOptions say of no bucket", store.ErrUnsupported, at)
	default:
		t, err = bucket(at)
	}
	if err != nil {
		return nil, err
	}
	found, err := findManifest(ctx, t, name)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", at, err), t.Close())
	}
	r := newRunInput(ctx, t, below, path.Dir(found.name), found.manifest, found.manifest.Totals[0].Format)
	r.sum = hexSHA256(found.data)
	if r.manifest.increment() {
		if r, err = r.chained(bucket); err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
	}
	return r, nil
}

// newRunInput begins to read the run of a manifest in dir, below t, in one of its formats.
func newRunInput(ctx context.Context, t target.Target, at, dir string, m *Manifest, format string) *runInput {
	r := &runInput{ctx: ctx, target: t, at: at, dir: dir, manifest: m, columns: m.columns()}
	for i := range r.manifest.Files {
		f := &r.manifest.Files[i]
		if f.Format != format {
			continue // the same rows again
		}
		r.files = append(r.files, *f)
		r.rows += f.Rows
		r.bytes += f.Bytes
	}
	if len(r.manifest.PartitionBy) > 0 && len(r.manifest.SortedBy) > 0 && len(r.manifest.Sort) == 0 {
		r.merge = newPartitionMerge(r)
	}
	return r
}

// Columns returns the run's columns.
func (r *runInput) Columns() []columnar.Column { return r.columns }

// part returns what part of the rows was read, and how many bytes they are.
func (r *runInput) part() (done, weight float64) {
	if r.chain != nil {
		return float64(r.chain.read()) / float64(max(r.rows, 1)), float64(r.bytes)
	}
	return float64(r.read) / float64(max(r.rows, 1)), float64(r.bytes)
}

// Next returns the next rows.
func (r *runInput) Next() (*columnar.Batch, error) {
	b, err := r.next()
	if err == nil {
		r.read += int64(b.Rows())
	}
	return b, err
}

func (r *runInput) next() (*columnar.Batch, error) {
	if r.chain != nil {
		return r.chain.Next()
	}
	if r.merge != nil {
		return r.merge.next()
	}
	for {
		if r.file == nil {
			if len(r.files) == 0 {
				return nil, io.EOF
			}
			var err error
			if r.file, err = r.open(&r.files[0]); err != nil {
				return nil, err
			}
			r.files = r.files[1:]
		}
		b, err := r.file.Next()
		if err != io.EOF {
			return b, err
		}
		err = r.file.Close()
		r.file = nil
		if err != nil {
			return nil, err
		}
	}
}

// place returns where a file is, for errors.
func (r *runInput) place(f *File) string {
	if inBucket(r.at) {
		return strings.TrimSuffix(r.at, "/") + "/" + path.Join(r.dir, f.Path)
	}
	return filepath.Join(r.at, filepath.FromSlash(path.Join(r.dir, f.Path)))
}

// open checks a file and opens it.
func (r *runInput) open(f *File) (*runFile, error) {
	file, err := r.target.Open(r.ctx, path.Join(r.dir, f.Path))
	if err != nil {
		return nil, err
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s: %s; run export verify", store.ErrCorrupt, r.place(f), fmt.Sprintf(format, args...))
	}
	var reader columnar.FileReader
	check := func() error {
		if file.Size() != f.Bytes {
			return bad("it has %d bytes, the manifest says %d", file.Size(), f.Bytes)
		}
		h := sha256.New()
		if _, err := io.Copy(h, &contextReader{ctx: r.ctx, r: io.NewSectionReader(file, 0, f.Bytes)}); err != nil {
			return fmt.Errorf("read %s: %w", f.Path, err)
		}
		if got := hex.EncodeToString(h.Sum(nil)); got != f.SHA256 {
			return bad("its sha256 is %s, the manifest says %s", got, f.SHA256)
		}
		if reader, err = r.manifest.read(f, file, f.Bytes); err != nil {
			return err
		}
		if err := compareColumns(reader.Columns(), r.manifest.Columns); err != nil {
			return errors.Join(bad("%v", err), reader.Close())
		}
		return nil
	}
	if err := check(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &runFile{reader, file}, nil
}

// Close ends reading.
func (r *runInput) Close() error { return errors.Join(r.close(), r.target.Close()) }

// close ends reading, and leaves the target open.
func (r *runInput) close() error {
	var errs []error
	if r.chain != nil {
		errs = append(errs, r.chain.close())
	}
	if r.file != nil {
		errs = append(errs, r.file.Close())
		r.file = nil
	}
	if r.merge != nil {
		errs = append(errs, r.merge.close())
	}
	return errors.Join(errs...)
}
