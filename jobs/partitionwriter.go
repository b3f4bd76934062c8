package jobs

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/jobs/target"
)

// rowKeys are the row keys of the rows of a batch.
type rowKeys struct {
	data []byte
	ends []int
}

func (k *rowKeys) add(key []byte, times int) {
	for range times {
		k.data = append(k.data, key...)
		k.ends = append(k.ends, len(k.data))
	}
}

func (k *rowKeys) at(i int) []byte {
	start := 0
	if i > 0 {
		start = k.ends[i-1]
	}
	return k.data[start:k.ends[i]]
}

func (k *rowKeys) reset() { k.data, k.ends = k.data[:0], k.ends[:0] }

// partitionWriter divides the rows of a split among the files of its partitions, of
// which each is in the order of row keys. All of them are open until the split ends:
// at most partitioning.max.
type partitionWriter struct {
	*partitioning
	run   *run
	split *instant.Split
	all   map[string]*partition // by their values, as appendKey writes them
	dirs  map[string]*partition // by their directories
	last  *partition            // of the row before
	order []*partition          // of dirs, as they came
	key   []byte
	was   []byte // the key of last
}

// partition is one partition of a split.
type partition struct {
	outputs  []*output
	batch    *columnar.Batch // not written yet
	bytes    int             // of it
	min, max []byte          // its row keys; max is that of the last row seen
}

func (r *run) newPartitionWriter(s *instant.Split) *partitionWriter {
	return &partitionWriter{partitioning: r.Job.partition, run: r, split: s, all: map[string]*partition{}, dirs: map[string]*partition{}}
}

// write adds the rows of a batch, which have these keys.
func (w *partitionWriter) write(ctx context.Context, b *columnar.Batch, keys *rowKeys) error {
	for i := range b.Rows() {
		p, err := w.of(b, i, keys.at(i))
		if err != nil {
			return err
		}
		if err := w.add(ctx, p, b, i, keys.at(i)); err != nil {
			return err
		}
	}
	return nil
}

// of returns the partition of a row.
func (w *partitionWriter) of(b *columnar.Batch, i int, row []byte) (*partition, error) {
	w.key = w.appendKey(w.key[:0], b, i)
	if w.last != nil && bytes.Equal(w.key, w.was) {
		return w.last, nil
	}
	p, ok := w.all[string(w.key)]
	if !ok {
		values, err := w.values(w.run, b, i, row)
		if err != nil {
			return nil, err
		}
		dir := partitionDir(w.names, values)
		if p, ok = w.dirs[dir]; !ok {
			if len(w.dirs) == w.max {
				return nil, &PartitionsError{Job: w.run.Job.name, Max: w.max, Region: columnar.EscapeKey(w.split.Region.Start), Row: columnar.EscapeKey(row), Dir: dir}
			}
			p = &partition{batch: columnar.NewBatch(w.run.Job.layout.columns)}
			for f := range w.run.Job.formats {
				o := w.run.newOutput(w.split, &w.run.Job.formats[f])
				o.dir, o.partition = dir, values
				p.outputs = append(p.outputs, o)
			}
			w.dirs[dir], w.order = p, append(w.order, p)
		}
		w.all[string(w.key)] = p
	}
	w.last, w.was = p, append(w.was[:0], w.key...)
	return p, nil
}

// appendKey appends what tells the partition of a row from others.
func (p *partitioning) appendKey(key []byte, b *columnar.Batch, i int) []byte {
	for _, column := range p.by {
		switch v := b.Vector(column); {
		case v.IsNull(i):
			key = append(key, 0)
		case v.Type() == columnar.Int64:
			x := uint64(v.Int64s()[i])
			key = append(key, 1, byte(x>>56), byte(x>>48), byte(x>>40), byte(x>>32), byte(x>>24), byte(x>>16), byte(x>>8), byte(x))
		case v.Type() == columnar.Bool && v.Bool(i):
			key = append(key, 3)
		case v.Type() == columnar.Bool:
			key = append(key, 2)
		default:
			text := v.Bytes(i)
			n := len(text)
			key = append(key, 1, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
			key = append(key, text...)
		}
	}
	return key
}

// filed returns the columns of b that are in files, valid as long as b.
func (j *Job) filed(b *columnar.Batch) *columnar.Batch {
	if j.partition == nil {
		return b
	}
	f := columnar.NewBatch(j.layout.columns)
	for n, column := range j.partition.files {
		f.Share(n, b.Vector(column))
	}
	return f
}

// text returns the text of value i of v, of the n-th column of partitions, nil for null, or
// why no directory, of a bucket or not, can have it in its name.
func (p *partitioning) text(bucket bool, n int, v *columnar.Vector, i int) (text *string, why string) {
	if text, why = partitionText(v, i); why != "" || text == nil {
		return nil, why
	}
	if size := len(p.names[n]) + 1 + len(escapePartition(*text)); size > maxPartitionName {
		return nil, fmt.Sprintf("as a partition it makes the name of a directory of %d bytes, which has at most %d", size, maxPartitionName)
	}
	// Escaped, the one would be three other characters for Spark, which takes each byte for
	// one.
	if bucket && strings.ContainsAny(*text, "\uFFFE\uFFFF") {
		return nil, "it has U+FFFE or U+FFFF, which the answers of a bucket's service, in XML, cannot have in a name"
	}
	return text, ""
}

// toBucket reports whether the run goes to a bucket, not to a directory.
func (r *run) toBucket() bool {
	_, bucket := r.Target.(*target.S3)
	return bucket
}

// values returns the texts of the partition of a row. Its error is a
// *columnar.ConvertError where no directory can have them as its name.
func (p *partitioning) values(r *run, b *columnar.Batch, i int, row []byte) ([]*string, error) {
	j, values := r.Job, make([]*string, len(p.by))
	for n, column := range p.by {
		text, why := p.text(r.toBucket(), n, b.Vector(column), i)
		if why != "" {
			if p.nulls[n] {
				continue
			}
			spec := &j.schema.Specs()[column]
			value := b.Vector(column).Bytes(i) // numbers are never refused
			return nil, &columnar.ConvertError{
				Table: j.Table(), Row: bytes.Clone(row), Column: spec.Name, From: spec.From, Type: b.Vector(column).Type(),
				Value: bytes.Clone(value[:min(len(value), 64)]), Reason: why,
			}
		}
		values[n] = text
	}
	if dir := partitionDir(p.names, values); len(dir) > maxPartitionPath {
		return nil, &columnar.ConvertError{
			Table: j.Table(), Row: bytes.Clone(row), Column: p.names[0], From: "partition_by", Type: columnar.String,
			Value: []byte(dir[:64]), Final: true, Reason: fmt.Sprintf("its directories make a path of %d bytes, which has at most %d", len(dir), maxPartitionPath),
		}
	}
	return values, nil
}

// PartitionsError says that a region, or a run that is sorted, has more partitions than may be written at once.
type PartitionsError struct {
	Job    string
	Max    int
	Region string // its first row key, escaped; of a run that is sorted, empty
	Row    string // which begins one more
	Dir    string // of that one
	Sorted bool   // the run is sorted, and Max is of all its regions
}

// Error says what can be done.
func (e *PartitionsError) Error() string {
	if e.Sorted {
		return fmt.Sprintf("row %s makes %s one more than %d partitions: set max_partitions of job %s, at most %d, or partition by what has fewer values",
			e.Row, e.Dir, e.Max, e.Job, limitPartitions)
	}
	return fmt.Sprintf("row %s of the region that begins at %q makes %s one more than %d partitions: set max_partitions of job %s, at most %d (each has a file open, and they share the memory of %d row groups), or partition by what has fewer values",
		e.Row, e.Region, e.Dir, e.Max, e.Job, limitPartitions, partitionGroups)
}

// add appends row i of b to a partition. Files end between rows of the table.
func (w *partitionWriter) add(ctx context.Context, p *partition, b *columnar.Batch, i int, key []byte) error {
	if !bytes.Equal(key, p.max) {
		for _, o := range p.outputs {
			if !o.full() {
				continue
			}
			if err := p.flush(ctx); err != nil {
				return err
			}
			if err := o.finish(ctx); err != nil {
				return err
			}
		}
	}
	if p.batch.Rows() == 0 {
		p.min = append(p.min[:0], key...)
	}
	p.max = append(p.max[:0], key...)
	for n, column := range w.files {
		from := b.Vector(column)
		if err := p.batch.Vector(n).AppendFrom(from, i); err != nil {
			return err
		}
		p.bytes += from.Size(i)
	}
	if p.batch.Rows() >= columnar.DefaultBatchRows || int64(p.bytes) >= min(columnar.DefaultBatchBytes, w.run.Job.layout.rowGroupBytes) ||
		w.run.batchRows > 0 && p.batch.Rows() >= w.run.batchRows {
		return p.flush(ctx)
	}
	return nil
}

// flush writes the partition's batch in every format.
func (p *partition) flush(ctx context.Context) error {
	if p.batch.Rows() == 0 {
		return nil
	}
	for _, o := range p.outputs {
		if err := o.write(ctx, p.batch, p.min, p.max); err != nil {
			return err
		}
	}
	p.batch.Reset()
	p.bytes = 0
	return nil
}

// finish ends all files.
func (w *partitionWriter) finish(ctx context.Context) error {
	for _, p := range w.order {
		if err := p.flush(ctx); err != nil {
			return err
		}
		for _, o := range p.outputs {
			if err := o.finish(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// rows returns the rows of each format.
func (w *partitionWriter) rows() (n int64) {
	for _, p := range w.order {
		n += p.outputs[0].rows
	}
	return n
}
