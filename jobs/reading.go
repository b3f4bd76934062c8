package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/store"
)

// ReadOptions configures OpenReading. Job and Source must be set.
type ReadOptions struct {
	Job    *Job
	Source instant.Source
	// BatchBytes is how many bytes of values make a batch, besides its last rows. Default:
	// columnar.DefaultBatchBytes of texts.
	BatchBytes int

	cutBytes int64 // of a part of a region, where tests want many
}

// Reading is the rows that a run of a job would export from one instant, in the same parts,
// for who takes them as batches and not as files. An incremental job's are those of a run
// that is full and for the time of OpenReading. It is immutable and safe for concurrent use, as long as its Source is there.
type Reading struct {
	*opened
	pace       *pace
	offsets    []Offset
	described  Manifest // what describeUnfrozen says
	batchBytes int
}

// CheckReading says why the job's rows cannot be read in parts without files, an error
// that wraps store.ErrUnsupported, or returns nil.
func (j *Job) CheckReading() error {
	if len(j.sort) > 0 {
		return fmt.Errorf("%w: job %s has sort, which orders the rows of all regions before the first is there: read a run of its files, or a job without sort, and sort what comes",
			store.ErrUnsupported, j.name)
	}
	return nil
}

// OpenReading plans to read the job's table as its Source shows it. Its error wraps
// store.ErrUnsupported where CheckReading's does. There is nothing to be closed.
func OpenReading(ctx context.Context, o *ReadOptions) (*Reading, error) {
	switch {
	case o.Job == nil:
		return nil, errors.New("jobs: ReadOptions.Job is not set")
	case o.Source == nil:
		return nil, errors.New("jobs: ReadOptions.Source is not set")
	}
	if err := o.Job.CheckReading(); err != nil {
		return nil, err
	}
	r, err := openReading(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", o.Job.name, err)
	}
	return r, nil
}

func openReading(ctx context.Context, o *ReadOptions) (*Reading, error) {
	job, err := o.Job.at(time.Now())
	if err != nil {
		return nil, err
	}
	t, err := job.open(ctx, o.Source)
	if err != nil {
		return nil, err
	}
	if err := t.cut(ctx, o.cutBytes); err != nil {
		return nil, err
	}
	r := &Reading{opened: t, pace: newPace(o.Job.spec.RowsPerSecond), batchBytes: o.BatchBytes}
	if r.offsets, err = completeTo(ctx, o.Source); err != nil {
		return nil, err
	}
	if u := instant.UnfrozenOf(o.Source); u != nil {
		r.described = Manifest{Offsets: r.offsets, Mode: t.Job.spec.Mode}
		describeUnfrozen(&r.described, u, t.table)
	}
	return r, nil
}

// Columns returns the columns of the batches.
func (r *Reading) Columns() []columnar.Column { return r.Job.Columns() }

// Parts returns the parts in the order of their row keys; no part is empty as a range, and
// there is at least one.
func (r *Reading) Parts() []instant.Split { return r.splits }

// Sequence returns that of the last commit that the rows contain.
func (r *Reading) Sequence() uint64 { return r.source.Sequence() }

// Offsets returns up to where the rows are complete.
func (r *Reading) Offsets() []Offset { return r.offsets }

// Consistency returns what Manifest's fields Consistency, TimeBound and Limits say of a run.
func (r *Reading) Consistency() (consistency string, bound cell.Timestamp, limits []string) {
	return r.described.Consistency, r.described.TimeBound, r.described.Limits
}

// Read calls f with the rows of a part, of Parts by its index, in batches in key order; a
// batch is valid until f returns, and nothing else is kept of the part. It ends with f's
// first error, with ctx, or where Source is lost. The work is done, and f called, in a
// goroutine of its own that takes only what others leave of the processors, where the
// system has that (PriorityLow); rows_per_second counts over all parts that are read at once.
func (r *Reading) Read(ctx context.Context, part int, f func(b *columnar.Batch) error) error {
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: it ends with the goroutine
		err := lowerThread()
		if err == nil || errors.Is(err, store.ErrUnsupported) {
			err = r.read(ctx, part, f)
		}
		ended <- err
	}()
	return <-ended
}

// read does Read's work.
func (r *Reading) read(ctx context.Context, part int, f func(b *columnar.Batch) error) (err error) {
	j := r.Job
	in := &tableInput{
		ctx: ctx, job: j, source: r.source, table: r.table, builder: columnar.NewBuilder(j.schema), stored: newStoredRows(j),
		pacing: pacing{pace: r.pace}, most: r.batchBytes, scans: []*store.Scan{j.scan(&r.splits[part])},
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("read %s: %w", j.name, context.Cause(ctx))
		}
		b, err := in.Next()
		if errors.Is(err, io.EOF) {
			// Rows of a source that was lost meanwhile may be missing.
			return instant.Check(ctx, r.source)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", j.name, err)
		}
		if err := f(b); err != nil {
			return err
		}
	}
}
