package jobs

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"sluice/jobs/columnar"
	"sluice/jobs/rowsort"
	"sluice/jobs/spill"
	"sluice/jobs/work"
)

// sortedRun is the part of a run that is sorted by other columns than the row key: all
// regions are scanned into a sorter, each worker with a collector of its own; when the
// last has ended, the rows come out of it in order and are written to files, a
// partition after the other.
//
// The key of a row is its directory, where there are partitions, then the columns of the
// job's sort, its row key, and, where a row of the table makes several, which of these
// it is. So no two are equal, and files are the same however the rows were divided.
type sortedRun struct {
	*run
	sorter *rowsort.Sorter
	rows   *replay

	mu    sync.Mutex
	parts map[string]*filePartition // by their directories as they are in keys

	merged atomic.Int64 // rows that were written
}

// newSortedRun returns the sort of r, whose workers are so many.
func (r *run) newSortedRun(workers int) (*sortedRun, error) {
	s := &sortedRun{run: r, parts: map[string]*filePartition{}}
	j := r.Job
	disk, err := spillDisk(j.spec.SpillDir, r.Out, j.spec.SpillBytes)
	if err != nil {
		return nil, err
	}
	s.sorter = rowsort.New(&rowsort.Options{
		Columns: j.layout.columns, MemoryBytes: j.spec.MemoryBytes, Collectors: workers, Disk: disk,
	})
	return s, nil
}

// spillDisk returns where a run to out spills: in dir, which has to be there, or where a job
// says none in out, which may still have to be made, unless that is in a bucket.
func spillDisk(dir, out string, limit int64) (*spill.Disk, error) {
	if dir == "" && !inBucket(out) {
		dir = out
	}
	disk := &spill.Disk{Dir: dir, Limit: limit}
	if dir != "" && dir != out {
		if err := disk.Check(); err != nil {
			return nil, fmt.Errorf("spill_dir: %w", err)
		}
	}
	return disk, nil
}

// begun says that the upload has begun: w is what is finished of it, nil = nothing. The rows
// are read and sorted again, as nothing of what was sorted outlives its process.
func (s *sortedRun) begun(w *finishedWork) {
	s.rows = s.newReplay(&s.Job.layout, s.Job.formats, w)
	s.rows.perNumber = perNumber
	if w != nil {
		s.Logger.Info("export resumed: its rows are read and sorted again, finished files are kept", "job", s.name, "run", s.id, "files", len(s.files))
	}
}

// sortCollector takes the rows of one worker.
type sortCollector struct {
	run       *sortedRun
	collector *rowsort.Collector
	orders    []columnar.Order // of the job's sort
	key       []byte
	last      []byte // what tells the partition of the row before
	part      []byte // that partition, as it is in keys
	place     uint64 // of the row among those of the worker
}

func (s *sortedRun) collector(i int) *sortCollector {
	c := &sortCollector{run: s, collector: s.sorter.Collector(i)}
	for k := range s.Job.spec.Sort {
		c.orders = append(c.orders, s.Job.spec.Sort[k].order())
	}
	return c
}

// write adds the rows of a batch, which have these row keys.
func (c *sortCollector) write(b *columnar.Batch, keys *rowKeys) error {
	j := c.run.Job
	filed := j.filed(b)
	for i := range b.Rows() {
		c.key = c.key[:0]
		if j.partition != nil {
			if err := c.partition(b, i, keys.at(i)); err != nil {
				return err
			}
			c.key = append(c.key, c.part...)
		}
		for k, column := range j.sort {
			c.key = c.orders[k].AppendTo(c.key, b.Vector(column), i)
		}
		c.key = columnar.AppendTextKey(c.key, keys.at(i))
		if j.schema.Mode() == columnar.PerCell {
			c.place++ // a row of the table comes from one worker
			c.key = binary.BigEndian.AppendUint64(c.key, c.place)
		}
		if err := c.collector.Add(c.key, filed, i); err != nil {
			return c.run.Job.sortError(err)
		}
	}
	return nil
}

// sortError names the job, whose keys the messages of a sort speak of.
func (j *Job) sortError(err error) error {
	return &sortError{job: j.name, err: err}
}

type sortError struct {
	job string
	err error
}

func (e *sortError) Error() string { return "sort the rows of job " + e.job + ": " + e.err.Error() }
func (e *sortError) Unwrap() error { return e.err }

// partition finds out which partition a row is of.
func (c *sortCollector) partition(b *columnar.Batch, i int, row []byte) error {
	p := c.run.Job.partition
	start := len(c.key)
	c.key = p.appendKey(c.key, b, i)
	same := c.part != nil && bytes.Equal(c.key[start:], c.last)
	c.last = append(c.last[:0], c.key[start:]...)
	c.key = c.key[:start]
	if same {
		return nil
	}
	values, err := p.values(c.run.run, b, i, row)
	if err != nil {
		return err
	}
	dir := partitionDir(p.names, values)
	c.part = columnar.AppendTextKey(c.part[:0], []byte(dir))
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	if c.run.parts[string(c.part)] == nil {
		if len(c.run.parts) == p.max {
			return &PartitionsError{Job: c.run.Job.name, Max: p.max, Row: columnar.EscapeKey(row), Dir: dir, Sorted: true}
		}
		c.run.parts[string(c.part)] = &filePartition{dir: dir, values: values}
	}
	return nil
}

// write writes the files, when all rows were collected.
func (s *sortedRun) write(ctx context.Context) error {
	rows, err := s.sorter.Sorted(ctx)
	if err != nil {
		return s.Job.sortError(err)
	}
	s.Logger.Info("rows are sorted", "job", s.Job.name, "run", s.id, "rows", s.progress.Rows)
	b := columnar.NewBatch(s.Job.layout.columns)
	size, current := 0, &filePartition{}
	var at []byte // current, as it is in keys; nil = none
	if s.Job.partition == nil {
		at = []byte{}
		s.rows.enter(current)
	}
	for {
		ok, err := rows.Next()
		if err != nil {
			return s.Job.sortError(err)
		}
		if !ok {
			break
		}
		if s.Job.partition != nil {
			part, _, _ := columnar.CutTextKey(rows.Key())
			if at == nil || !bytes.Equal(part, at) {
				if err := s.leave(ctx, b, current, at != nil); err != nil {
					return err
				}
				size, at, current = 0, bytes.Clone(part), s.parts[string(part)]
				s.rows.enter(current)
			}
		}
		size += rows.Size()
		if err := rows.AppendTo(b); err != nil {
			return s.Job.sortError(err)
		}
		if b.Rows() >= columnar.DefaultBatchRows || int64(size) >= min(columnar.DefaultBatchBytes, s.Job.layout.rowGroupBytes) ||
			s.batchRows > 0 && b.Rows() >= s.batchRows {
			if err := s.flush(ctx, b, current); err != nil {
				return err
			}
			size = 0
		}
	}
	if at == nil { // there are partitions, and no rows: for readers who take the columns from there
		p := s.Job.partition
		current.values = make([]*string, len(p.by))
		current.dir = partitionDir(p.names, current.values)
		s.rows.enter(current)
	}
	if err := s.leave(ctx, b, current, true); err != nil {
		return err
	}
	return s.rows.end()
}

// leave ends a partition, if there was one.
func (s *sortedRun) leave(ctx context.Context, b *columnar.Batch, p *filePartition, entered bool) error {
	if !entered {
		return nil
	}
	if err := s.flush(ctx, b, p); err != nil {
		return err
	}
	return s.rows.leave(ctx, p)
}

// flush writes a batch of a partition in every format.
func (s *sortedRun) flush(ctx context.Context, b *columnar.Batch, p *filePartition) error {
	if ctx.Err() != nil {
		return fmt.Errorf("write sorted rows: %w", context.Cause(ctx))
	}
	if b.Rows() == 0 {
		return nil
	}
	if err := s.rows.write(ctx, b, p); err != nil {
		return err
	}
	s.merged.Add(int64(b.Rows()))
	s.report(func(*work.Progress) {})
	b.Reset()
	return nil
}

// perNumber is how many files have the first number of their names in common, so that
// names are in the order of their numbers.
const perNumber = 10_000

// part is what part of the rows is written, 0 to 1.
func (s *sortedRun) part(rows int64) float64 {
	if rows == 0 {
		return 0
	}
	return min(float64(s.merged.Load())/float64(rows), 1)
}
