package jobs

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/jobs/target"
	"sluice/jobs/work"
	"sluice/store"
)

// RunOptions is one run of a job. Job and Source must be set.
type RunOptions struct {
	Job    *Job
	Source instant.Source
	// Out is the directory below which the job has its own. Default: the job's.
	Out string
	// Target replaces the local directory Out. It is not closed.
	Target target.Target
	// Parallelism is how many goroutines export, each a region, or a part of a
	// large one, at a time; one that has none left encodes what another scans. Where it
	// is more than 1, each of them has changed rows read ahead. Default: GOMAXPROCS.
	Parallelism int
	// LogicalTime is what the run is for; with the job's name it makes the
	// run's id, so that a second run for the same time is refused with
	// target.ErrExists. Default: Now.
	LogicalTime time.Time
	// Checkpoint names the instant of Source for ever: whoever has the name can
	// open it again, or learns that it is gone. With it, a run that is cut off
	// (by a kill, a target that is out of reach) leaves what it has finished,
	// and a Run for the same LogicalTime and Checkpoint goes on with that; one
	// of another Checkpoint, or of a job that was changed, begins anew. Default:
	// none; nothing is left to be resumed. A target that is no target.Resumer
	// cannot resume.
	Checkpoint string
	// Holder is the store that Source is an instant of, and StoreID its id, for
	// incremental jobs; their runs fail without. HoldChanges before Source is
	// taken makes the second run an increment. An Unfrozen Source needs the id
	// alone.
	Holder  store.ChangeHolder
	StoreID string
	// Full makes the run of an incremental job full.
	Full bool
	// SchemaChanges is by what rule the columns are compared with those of the runs before:
	// ChangesAny, ChangesCompatible or ChangesNone. Default: the job's.
	SchemaChanges string
	// Engine and Version are stored in the manifest. Default: empty.
	Engine, Version string
	// Logger tells of the run's start and end. nil discards.
	Logger *slog.Logger
	// Progress is called after every batch and file, by one goroutine at a
	// time; it must return soon.
	Progress func(work.Progress)
	// Lag returns how far the pipelines are behind that fill the store, for jobs that
	// yield to that; it must return soon. nil = nobody knows, and no run pauses.
	Lag func(ctx context.Context) ([]PipelineLag, error)
	// Yielding is called when the run pauses for ingest, each second while it does, and when
	// it goes on, by one goroutine at a time. nil = nobody is told.
	Yielding func(Yielding)
	// Recorder counts across runs; nil = none.
	Recorder *Recorder
	// Now is the clock, which several goroutines ask. Default: time.Now.
	Now func() time.Time
	// Confirm is called when all files are written, right before the run is
	// published; where it returns an error the run is not. nil = nobody is asked.
	Confirm func(ctx context.Context) error
	// Published is called when the run is visible, before _latest.json names it, with
	// a ctx that does not end; where it returns an error _latest.json stays as it is,
	// until FinishPublished. nil = nobody is told.
	Published func(ctx context.Context, m *Manifest) error

	batchRows int   // of a batch, where tests want many; 0 = columnar's
	cutBytes  int64 // of a part of a region, where tests want many; 0 = by the job's files
}

// Metrics are the totals of a Recorder.
type Metrics struct {
	Started  int64 // runs
	Finished int64 // runs that were published
	Failed   int64 // runs that ended with an error, cancelled ones included
	Rows     int64 // output rows appended
	Files    int64 // finished, published or not
	Bytes    int64 // of these files
	Busy     time.Duration
}

// Recorder adds up what the runs that share it do. The zero value is ready; it is
// safe for concurrent use.
type Recorder struct {
	started, finished, failed, rows, files, bytes, busy atomic.Int64
}

// Metrics returns the totals so far.
func (r *Recorder) Metrics() Metrics {
	return Metrics{
		Started: r.started.Load(), Finished: r.finished.Load(), Failed: r.failed.Load(),
		Rows: r.rows.Load(), Files: r.files.Load(), Bytes: r.bytes.Load(), Busy: time.Duration(r.busy.Load()),
	}
}

// run is one execution of Run.
type run struct {
	execution
	*opened
	work     *finishedWork // of the run that this one goes on with; nil = none
	pace     *pace
	changes  store.ChangeReader // of Source, where the run is an increment; nil = it is full
	since    uint64             // of an increment: its base's sequence
	baseTime time.Time          // and when that began to read
	// hold keeps known what changes: beside the export, and before it is published; nil = none
	hold     func(ctx context.Context) error
	spare    chan struct{} // a token for each of Parallelism that has no split
	measures *measures     // of its splits
	sorted   *sortedRun    // nil = the rows are in the order of their keys
	// incarnation is, of an Unfrozen source, what the table was when the run began.
	incarnation string
	looked      int64 // rows that were read to see whether cells have expired
}

// Run exports the job's table as its Source shows it and publishes the run. On an
// error, cancellation included, nothing of the run is visible, and what was
// written is removed unless the error wraps ErrResumable. One case is apart: where
// the run was published but the pointer to the latest run could not be replaced,
// Run returns the manifest and an error. The error of a run that another process
// is at wraps target.ErrBusy where both have a Checkpoint; that of a value that a column cannot take wraps a
// *columnar.ConvertError; that of a run published before, target.ErrExists.
func Run(ctx context.Context, o *RunOptions) (*Manifest, error) {
	r, err := newRun(o)
	if err != nil {
		return nil, err
	}
	r.Recorder.started.Add(1)
	m, err := r.run(ctx)
	took := r.Now().Sub(r.started)
	r.Recorder.busy.Add(int64(took))
	if err != nil {
		r.Recorder.failed.Add(1)
		return m, fmt.Errorf("export %s: %w", r.name, err)
	}
	r.Recorder.finished.Add(1)
	if r.Job.reportsExpired() && m.increment() {
		r.Logger.Info("rows were read to see whether cells have expired", "job", r.Job.name, "run", r.id, "rows", r.looked)
	}
	r.Logger.Info("export published", "job", r.Job.name, "run", r.id, "table", r.Job.Table(), "rows", r.progress.Rows, "bytes", r.progress.Bytes, "took", took)
	return m, nil
}

func newRun(o *RunOptions) (*run, error) {
	r := new(run)
	r.RunOptions = *o
	switch {
	case o.Job == nil:
		return nil, errors.New("jobs: RunOptions.Job is not set")
	case o.Source == nil:
		return nil, errors.New("jobs: RunOptions.Source is not set")
	case o.Parallelism < 0:
		return nil, fmt.Errorf("jobs: parallelism %d", o.Parallelism)
	}
	if r.Parallelism == 0 {
		r.Parallelism = runtime.GOMAXPROCS(0)
	}
	r.kind, r.name = "export", o.Job.name
	r.pace = newPace(o.Job.spec.RowsPerSecond)
	err := r.start(o.Job.spec.Out)
	if err == nil {
		if r.RunOptions.Job, err = o.Job.at(r.LogicalTime); err != nil {
			err = fmt.Errorf("%s %s: %w", r.kind, r.name, err)
		}
	}
	return r, err
}

func (r *run) run(ctx context.Context) (_ *Manifest, err error) {
	r.yielder = r.newYielder(r.RunOptions.Job.spec.YieldToLag)
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	closeTarget, err := r.openTarget()
	if err != nil {
		return nil, err
	}
	defer closeTarget()
	if err := r.Job.checkColumns(ctx, r.Target, cmp.Or(r.SchemaChanges, r.Job.spec.SchemaChanges)); err != nil {
		return nil, err
	}
	m, err := r.manifest(ctx)
	if err != nil {
		return nil, err
	}
	regions := len(r.splits)
	if err := r.cut(ctx); err != nil {
		return nil, err
	}
	if err := r.measure(ctx); err != nil {
		return nil, err
	}
	r.Logger.Info("export started", "job", r.Job.name, "run", r.id, "table", r.Job.Table(), "regions", regions, "parts", len(r.splits))
	if len(r.Job.sort) > 0 {
		if r.sorted, err = r.newSortedRun(r.workers()); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, r.sorted.sorter.Close()) }()
	}
	want, parts, err := r.state(m)
	if err != nil {
		return nil, err
	}
	m, err = r.publish(ctx, m, want, parts, r)
	if err == nil {
		r.letGo(context.WithoutCancel(ctx), m)
	}
	return m, err
}

// open opens the job.
func (r *run) open(ctx context.Context) (err error) {
	r.opened, err = r.RunOptions.Job.open(ctx, r.Source)
	return err
}

// measure weighs the splits. After an error they are weighed as before.
func (r *run) measure(ctx context.Context) error {
	m, err := measure(ctx, r.Source, r.Job, r.splits, r.Progress != nil)
	if err == nil {
		r.measures = m
	}
	return err
}

// manifest returns the run's manifest without its files.
func (r *run) manifest(ctx context.Context) (*Manifest, error) {
	m := &Manifest{
		FormatVersion: ManifestVersion, Job: r.Job.name, RunID: r.id, LogicalTime: r.LogicalTime, StartedAt: r.started,
		Sequence: r.Source.Sequence(), Offsets: []Offset{}, Table: r.Job.Table(), Rows: string(r.Job.schema.Mode()),
		Mode: r.Job.spec.Mode, Versions: r.Job.spec.Versions,
		SortedBy: names(r.Job.layout.order), Sort: r.Job.spec.Sort, PartitionBy: r.Job.spec.PartitionBy, StartRow: columnar.EscapeKey(r.Job.rows.Start), StopRow: columnar.EscapeKey(r.Job.rows.Stop),
		Families: append([]string{}, r.Job.families...), TimeRange: r.Job.times, Filter: r.Job.spec.Filter, Where: r.Job.spec.Where, Iceberg: r.Job.spec.Iceberg, Engine: r.Engine, Version: r.Version,
	}
	if key := &r.Job.spec.RowKey; len(key.Fields) > 0 {
		m.RowKey = key
	}
	for _, s := range r.Job.schema.Specs() {
		m.Columns = append(m.Columns, Column{Name: s.Name, From: s.From, Type: s.Type, Coding: s.Coding, Nullable: *s.Nullable, OnError: s.OnError})
	}
	offsets, err := completeTo(ctx, r.Source)
	if err != nil {
		return nil, err
	}
	m.Offsets = append(m.Offsets, offsets...)
	if u := instant.UnfrozenOf(r.Source); u != nil {
		if r.incarnation, err = u.Incarnation(ctx, r.Job.Table(), r.Job.families); err != nil {
			return nil, err
		}
	}
	if err := r.planIncrement(ctx, m); err != nil {
		return nil, err
	}
	if u := instant.UnfrozenOf(r.Source); u != nil {
		describeUnfrozen(m, u, r.table)
	}
	r.metadata = m.metadata()
	return m, m.follow(ctx, r.Target)
}

// completeTo returns up to where the data of a source is complete, which only the
// progress of pipelines says: a rebuild of counters has read the same records, and
// stands where it ended for good.
func completeTo(ctx context.Context, s instant.Source) ([]Offset, error) {
	var all []store.PartitionProgress
	var err error
	if u := instant.UnfrozenOf(s); u != nil {
		all = slices.Clone(u.Progress())
	} else if all, err = instant.Progress(ctx, s); err != nil {
		return nil, err
	}
	return offsetsOf(slices.DeleteFunc(all, func(p store.PartitionProgress) bool { return !p.Source.OfPipeline() })), nil
}

// readOffsets returns the offsets that are stored in r.
func readOffsets(ctx context.Context, r store.Reader) ([]Offset, error) {
	all, err := instant.Progress(ctx, r)
	return offsetsOf(all), err
}

// offsetsOf returns progress as a manifest has it.
func offsetsOf(all []store.PartitionProgress) (offsets []Offset) {
	for i := range all {
		s := &all[i].Source
		offsets = append(offsets, Offset{
			Pipeline: s.Pipeline, Topic: s.Topic, ClusterID: s.ClusterID, TopicID: hex.EncodeToString(s.TopicID[:]),
			Partition: all[i].Partition, Next: all[i].Progress.Next,
		})
	}
	return offsets
}

// write writes the files of all splits, Parallelism at a time, and meanwhile has the
// store keep known what changes; the first error stops the others.
func (r *run) write(ctx context.Context) error {
	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	todo := make(chan *instant.Split)
	r.spare = make(chan struct{}, r.Parallelism)
	workers := r.workers()
	for range r.Parallelism - workers {
		r.spare <- struct{}{}
	}
	var wg sync.WaitGroup
	if r.hold != nil {
		wg.Go(func() {
			if err := r.hold(ctx); err != nil {
				cancel(err)
			}
		})
	}
	for i := range workers {
		wg.Go(func() {
			if err := r.Job.atPriority(); err != nil {
				cancel(err)
				return
			}
			b := r.builder(r.toBucket())
			var sorter *sortCollector
			if r.sorted != nil {
				sorter = r.sorted.collector(i)
			}
			for s := range todo {
				if err := r.exportSplit(ctx, s, b, sorter); err != nil {
					cancel(err)
					return
				}
			}
			r.spare <- struct{}{}
		})
	}
feed:
	for i := range r.splits {
		if r.work != nil {
			if _, done := r.work.done[r.splits[i].Index]; done {
				continue
			}
		}
		select {
		case todo <- &r.splits[i]:
		case <-ctx.Done():
			break feed
		}
	}
	close(todo)
	wg.Wait()
	if err := work.First(outer, ctx); err != nil {
		return err
	}
	if r.sorted != nil {
		return r.sorted.write(ctx)
	}
	if !slices.ContainsFunc(r.files, func(f File) bool { return f.Rows > 0 }) {
		return r.exportNothing(ctx)
	}
	return nil
}

// atFault implements steps.
func (r *run) atFault(err error) bool { return isHopeless(err) }

// exportNothing writes one file without rows in each format, so that a reader of
// an empty table finds its schema.
func (r *run) exportNothing(ctx context.Context) error {
	for i := range r.Job.formats {
		f := &r.Job.formats[i]
		if slices.ContainsFunc(r.files, func(have File) bool { return have.Format == f.name }) {
			continue // the run that was cut off has
		}
		o := r.newOutput(&r.splits[0], f)
		if p := r.Job.partition; p != nil { // for readers who take the columns from there
			o.partition = make([]*string, len(p.by))
			o.dir = partitionDir(p.names, o.partition)
		}
		if err := o.create(ctx); err != nil {
			return err
		}
		if err := o.finish(ctx); err != nil {
			return err
		}
	}
	return nil
}

// workers is how many goroutines read splits.
func (r *run) workers() int { return min(r.Parallelism, len(r.splits)) }

// add counts output rows.
func (r *run) add(rows int) {
	r.Recorder.rows.Add(int64(rows))
	r.report(func(p *work.Progress) { p.Rows += int64(rows) })
}

// report changes the progress and tells it, with what part of the run is done.
func (r *run) report(change func(p *work.Progress)) {
	r.execution.report(func(p *work.Progress) {
		change(p)
		p.Done = r.measures.sum()
		if r.sorted != nil { // half of it is reading, and half writing
			p.Done = (p.Done + r.sorted.part(p.Rows)) / 2
		}
	})
}
