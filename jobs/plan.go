package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/store"
)

// DefaultSampleRows is how many rows of a region a Plan reads and encodes unless
// told otherwise: enough for a Parquet file's dictionaries and compression to show,
// at most a second a region.
const DefaultSampleRows = 100_000

// PlanOptions configures Plan. Job and Source must be set.
type PlanOptions struct {
	Job    *Job
	Source instant.Source
	// SampleRows is how many rows of each region are read (with rows: cell, cells), and
	// encoded but for those that the job's conditions leave out. Default:
	// DefaultSampleRows.
	SampleRows int64

	cutBytes int64 // of a part of a region, where tests want many
}

// How a SplitPlan's numbers came about.
const (
	Counted   = "counted"   // every row was read
	Estimated = "estimated" // from a sample, by bytes
	AtLeast   = "at least"  // of a sample alone: nothing tells how much more there is
)

// SplitPlan is one region's share of a run, or a part of it.
type SplitPlan struct {
	Rows    cell.Range // that the job wants
	Basis   string     // Counted, Estimated or AtLeast
	Count   int64      // output rows
	Formats []FormatPlan
}

// FormatPlan is the files of one format. Of a split of a job that is sorted, Files is 0, as
// the run's files have rows of all of them.
type FormatPlan struct {
	Format string
	Files  int
	Bytes  int64
}

// RunPlan is what a run of a job would do.
type RunPlan struct {
	Job      string
	Table    string
	Sequence uint64 // of the last commit that it would contain
	// TimeBound is, of an Unfrozen source, what the timestamps of all cells are
	// below; 0 = the table at one commit.
	TimeBound cell.Timestamp
	// TimeRange is which cells a run that begins now would read; nil = all.
	TimeRange *ReadTimes
	Regions   int // of the table that have rows that the job wants
	Splits    []SplitPlan
	Basis     string // of the sums: the weakest of the splits'
	Count     int64
	Formats   []FormatPlan
}

// Plan returns what Run would do, in a run that is full, without writing anything: one
// split a region, or several of a large one, with its rows, files and bytes. It reads
// and encodes the beginning of each split; one that ends within the sample is counted,
// the others are extrapolated where the Source is a Sizer; of a job with partitions, the bytes and files
// are estimates always: those of rows that are not divided, and no fewer files than
// partitions in the sample. A value that a column cannot take is an
// error as in Run, if it is in the sample.
func Plan(ctx context.Context, o *PlanOptions) (*RunPlan, error) {
	switch {
	case o.Job == nil:
		return nil, errors.New("jobs: PlanOptions.Job is not set")
	case o.Source == nil:
		return nil, errors.New("jobs: PlanOptions.Source is not set")
	}
	p, err := plan(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", o.Job.name, err)
	}
	return p, nil
}

func plan(ctx context.Context, o *PlanOptions) (*RunPlan, error) {
	sample := o.SampleRows
	if sample <= 0 {
		sample = DefaultSampleRows
	}
	job, err := o.Job.at(time.Now())
	if err != nil {
		return nil, err
	}
	t, err := job.open(ctx, o.Source)
	if err != nil {
		return nil, err
	}
	p := &RunPlan{Job: o.Job.name, Table: o.Job.Table(), Sequence: o.Source.Sequence(), Basis: Counted, TimeRange: job.times, Regions: len(t.splits)}
	if err := t.cut(ctx, o.cutBytes); err != nil {
		return nil, err
	}
	if u := instant.UnfrozenOf(o.Source); u != nil {
		p.TimeBound = u.Before()
	}
	for i := range t.Job.formats {
		p.Formats = append(p.Formats, FormatPlan{Format: t.Job.formats[i].name})
	}
	b := t.builder(false)
	partitions := map[string]struct{}{} // of all regions
	parts := map[string]int64{}         // of each region
	for i := range t.splits {
		parts[string(t.splits[i].Region.Start)]++
	}
	for i := range t.splits {
		s, err := t.planSplit(ctx, &t.splits[i], b, max(1, sample/parts[string(t.splits[i].Region.Start)]), partitions)
		if err != nil {
			return nil, err
		}
		p.add(s)
	}
	for i := range p.Formats {
		f := &p.Formats[i]
		if len(t.Job.sort) > 0 {
			f.Files = max(len(partitions), t.Job.filesOf(f.Bytes))
		}
		f.Files = max(1, f.Files) // one with the columns and no rows
	}
	return p, nil
}

func (p *RunPlan) add(s *SplitPlan) {
	p.Splits = append(p.Splits, *s)
	p.Count += s.Count
	for i := range s.Formats {
		p.Formats[i].Files += s.Formats[i].Files
		p.Formats[i].Bytes += s.Formats[i].Bytes
	}
	if s.Basis == AtLeast || s.Basis == Estimated && p.Basis == Counted {
		p.Basis = s.Basis
	}
}

// filesOf is how many files of the job's size hold so many bytes.
func (j *Job) filesOf(bytes int64) int {
	return int((bytes + j.layout.targetFileBytes - 1) / j.layout.targetFileBytes)
}

// sampled is the beginning of a split, encoded.
type sampled struct {
	rows  int64               // that come out
	read  int64               // those, and others
	bytes []int64             // by format
	parts map[string]struct{} // partitions; empty = there are none
	last  []byte              // row key
	all   bool                // the split ended
}

// planSplit plans a split by the rows that it begins with, at least limit, and adds their
// partitions.
func (o *opened) planSplit(ctx context.Context, s *instant.Split, b *columnar.Builder, limit int64, partitions map[string]struct{}) (*SplitPlan, error) {
	got, err := o.sample(ctx, s, b, limit)
	if err != nil {
		return nil, err
	}
	p := &SplitPlan{Rows: s.Rows, Basis: Counted, Count: got.rows}
	factor := 1.0
	if !got.all {
		p.Basis = AtLeast
		f, err := o.extrapolate(ctx, s, got.last)
		if err != nil {
			return nil, err
		}
		if f > 0 {
			p.Basis, factor = Estimated, f
			p.Count = int64(float64(got.rows) * f)
		}
	}
	maps.Copy(partitions, got.parts)
	for i := range o.Job.formats {
		f := FormatPlan{Format: o.Job.formats[i].name}
		if got.rows > 0 {
			f.Bytes = int64(float64(got.bytes[i]) * factor)
			if len(o.Job.sort) == 0 {
				f.Files = max(len(got.parts), o.Job.filesOf(f.Bytes))
			}
		}
		p.Formats = append(p.Formats, f)
	}
	return p, nil
}

// sample reads and encodes the first rows of a split, at least limit, cut between
// two rows.
func (o *opened) sample(ctx context.Context, s *instant.Split, b *columnar.Builder, limit int64) (_ *sampled, err error) {
	b.Reset()
	got := &sampled{bytes: make([]int64, len(o.Job.formats)), parts: map[string]struct{}{}}
	writers := make([]columnar.FileWriter, len(o.Job.formats))
	for i := range o.Job.formats {
		if writers[i], err = o.Job.formats[i].write(io.Discard, &o.Job.layout, nil); err != nil {
			return nil, err
		}
	}
	flush := func() error {
		got.rows += int64(b.Batch().Rows())
		for _, w := range writers {
			if b.Batch().Rows() == 0 {
				continue
			}
			if err := w.Write(o.Job.filed(b.Batch())); err != nil {
				return err
			}
		}
		if p := o.Job.partition; p != nil {
			for i := range b.Batch().Rows() {
				got.parts[string(p.appendKey(nil, b.Batch(), i))] = struct{}{}
			}
		}
		b.Reset()
		return ctx.Err()
	}
	scan := o.Job.scan(s)
	sc := o.source.Scan(ctx, scan)
	defer func() { err = errors.Join(err, sc.Close()) }()
	for {
		if !sc.Next() {
			if err := sc.Err(); err != nil {
				return nil, fmt.Errorf("scan table %s: %w", scan.Table, err)
			}
			got.all = true
			break
		}
		row := sc.Row()
		if got.read >= limit && !bytes.Equal(row.Key, got.last) {
			break
		}
		got.last = append(got.last[:0], row.Key...)
		got.read += int64(o.Job.rowsOf(row))
		if err := b.Append(row); err != nil {
			return nil, err
		}
		if b.Full() {
			if err := flush(); err != nil {
				return nil, err
			}
		}
	}
	if err := flush(); err != nil {
		return nil, err
	}
	for i, w := range writers {
		stats, err := w.Close()
		if err != nil {
			return nil, err
		}
		got.bytes[i] = stats.Bytes
	}
	return got, nil
}

// extrapolate returns how many times as much the split holds as its rows up to
// last, or 0 where nothing tells.
func (o *opened) extrapolate(ctx context.Context, s *instant.Split, last []byte) (float64, error) {
	z, ok := o.source.(instant.Sizer)
	if !ok {
		return 0, nil
	}
	var sizes [2]int64
	for i, rows := range []cell.Range{{Start: s.Rows.Start, Stop: append(bytes.Clone(last), 0)}, s.Rows} {
		n, err := z.RangeBytes(ctx, o.Job.Table(), o.Job.families, rows)
		if errors.Is(err, store.ErrUnsupported) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		sizes[i] = n
	}
	if sizes[0] <= 0 || sizes[1] < sizes[0] {
		return 0, nil
	}
	return float64(sizes[1]) / float64(sizes[0]), nil
}
