package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sluice/jobs/columnar"
	"sluice/jobs/spill"
	"sluice/jobs/target"
	"sluice/store"
)

// chainMerge is the table that an increment and the runs that it goes on from make up. All
// of them are read side by side, in the order of their row keys: the newest run that has a
// row says what it is. So little more is held than a batch of each.
type chainMerge struct {
	runs    []*chainRun // the full one first
	key, op int         // columns of the run
	batch   *columnar.Batch
	bytes   int       // of the batch
	row     []byte    // whose rows are taken; of a run with a row a cell there may be many
	from    *chainRun // of which they are taken; nil = none
}

// chainRun is a run of a chain and where it is.
type chainRun struct {
	in    *runInput
	batch *columnar.Batch // nil = the next one is still to be read
	at    int             // in the batch
	ended bool
}

// newChainMerge returns the merge of runs, of which the last one is an increment of the
// others.
func newChainMerge(runs []*runInput) (*chainMerge, error) {
	last := runs[len(runs)-1]
	c := &chainMerge{
		key: last.manifest.keyColumn(), op: last.manifest.opColumn(), batch: columnar.NewBatch(last.columns),
	}
	for _, in := range runs {
		m := in.manifest
		if c.key < 0 || c.op < 0 || len(m.SortedBy) == 0 || m.SortedBy[0] != m.Columns[c.key].Name || !m.keyed() {
			return nil, fmt.Errorf("%w: run %s is an increment, and its rows are not in the order of a column with the row keys, by which they would be put together; name a full run",
				store.ErrUnsupported, last.manifest.RunID)
		}
		c.runs = append(c.runs, &chainRun{in: in})
	}
	return c, nil
}

// Next returns the next rows of the table.
func (c *chainMerge) Next() (*columnar.Batch, error) {
	c.batch.Reset()
	c.bytes = 0
	for c.batch.Rows() < columnar.DefaultBatchRows && c.bytes < columnar.DefaultBatchBytes {
		for _, r := range c.runs {
			if err := r.fill(); err != nil {
				return nil, err
			}
		}
		if c.from == nil && c.untouched() {
			if c.batch.Rows() > 0 {
				break // and that one comes next
			}
			b := c.runs[0].batch
			c.runs[0].batch = nil
			return b, nil
		}
		if c.from == nil && !c.choose() {
			break
		}
		if err := c.take(); err != nil {
			return nil, err
		}
	}
	if c.batch.Rows() == 0 {
		return nil, io.EOF
	}
	return c.batch, nil
}

// untouched reports whether a batch of the full run comes next of which no increment has
// any row: it need not be copied.
func (c *chainMerge) untouched() bool {
	full := c.runs[0]
	if full.ended || full.at > 0 {
		return false
	}
	last := full.batch.Vector(c.key).Bytes(full.batch.Rows() - 1)
	return !slices.ContainsFunc(c.runs[1:], func(r *chainRun) bool {
		return !r.ended && bytes.Compare(r.rowKey(c.key), last) <= 0
	})
}

// choose finds the next row, and which run says what it is. It reports whether there is one.
func (c *chainMerge) choose() bool {
	var least []byte
	for _, r := range c.runs {
		if r.ended {
			continue
		}
		key := r.rowKey(c.key)
		if d := bytes.Compare(key, least); c.from == nil || d <= 0 { // of equal ones the newest
			least, c.from = key, r
		}
	}
	c.row = append(c.row[:0], least...)
	return c.from != nil
}

// take goes past the rows with the key c.row in the batches that were read: those of c.from
// are appended, others are older.
func (c *chainMerge) take() error {
	more := false
	for _, r := range c.runs {
		for !r.ended && r.batch != nil && bytes.Equal(r.rowKey(c.key), c.row) {
			if r == c.from && string(r.batch.Vector(c.op).Bytes(r.at)) != columnar.OpDelete {
				n, err := c.batch.AppendRow(r.batch, r.at)
				if err != nil {
					return err
				}
				c.bytes += n
			}
			if r.at++; r.at == r.batch.Rows() {
				r.batch, more = nil, true // the next one may begin with that row
			}
			if c.bytes >= columnar.DefaultBatchBytes || c.batch.Rows() == columnar.DefaultBatchRows {
				return nil
			}
		}
	}
	if !more {
		c.from = nil
	}
	return nil
}

// fill reads the next batch where there is none.
func (r *chainRun) fill() error {
	for !r.ended && (r.batch == nil || r.batch.Rows() == 0) {
		b, err := r.in.Next()
		if err == io.EOF {
			r.batch, r.ended = nil, true
			return nil
		}
		if err != nil {
			return err
		}
		r.batch, r.at = b, 0
	}
	return nil
}

// rowKey is the row key of the next row.
func (r *chainRun) rowKey(column int) []byte { return r.batch.Vector(column).Bytes(r.at) }

// chained returns the rows of the table that r, an increment, and the runs beside it make
// up. It closes r's target where it returns an error.
func (r *runInput) chained(bucket func(at string) (target.Target, error)) (_ *runInput, err error) {
	whole := &runInput{ctx: r.ctx, target: r.target, manifest: r.manifest, sum: r.sum, columns: r.columns}
	defer func() {
		if err != nil {
			err = errors.Join(err, whole.Close())
		}
	}()
	if r.dir == "." { // the target is the run's directory, and the others are beside it
		t, parent, dir, err := openParent(r.at, bucket)
		if err != nil {
			return nil, err
		}
		r.at, r.dir = parent, dir
		if err := whole.target.Close(); err != nil {
			whole.target = t
			return nil, err
		}
		r.target, whole.target = t, t
	}
	before, err := ReadChain(r.ctx, r.target, r.manifest)
	if err != nil {
		return nil, err
	}
	runs := r.behind(before, r.manifest.Totals[0].Format)
	for _, in := range runs {
		whole.rows, whole.bytes = whole.rows+in.rows, whole.bytes+in.bytes
	}
	whole.chain, err = newChainMerge(runs)
	return whole, err
}

// behind returns the runs before r, which ReadChain has, and r, in one of their formats.
func (r *runInput) behind(before []*Manifest, format string) []*runInput {
	runs := []*runInput{r}
	for i := range slices.Backward(before) {
		runs = slices.Insert(runs, 0, newRunInput(r.ctx, r.target, r.at, runs[0].manifest.Incremental.Base, before[i], format))
	}
	return runs
}

// ReadChainBeside is ReadChain of a run in dir, a directory or s3://BUCKET/PREFIX, beside
// which the others are. bucket opens what is in a bucket, and may be nil for a directory.
func ReadChainBeside(ctx context.Context, m *Manifest, dir string, bucket func(at string) (target.Target, error)) (before []*Manifest, err error) {
	if !m.increment() {
		return nil, nil
	}
	t, _, _, err := openParent(dir, bucket)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	return ReadChain(ctx, t, m)
}

// openParent opens what the directory or prefix of a run is in; dir is the run's, below it. The
// others are beside the run's own directory, and not beside a link to it.
func openParent(at string, bucket func(at string) (target.Target, error)) (t target.Target, parent, dir string, err error) {
	if inBucket(at) {
		parent, dir = path.Split(strings.TrimRight(strings.TrimPrefix(at, "s3://"), "/"))
		parent = "s3://" + strings.TrimRight(parent, "/")
		t, err = bucket(parent)
		return t, parent, dir, err
	}
	if at, err = ownPath(at); err != nil {
		return nil, "", "", err
	}
	parent, dir = filepath.Split(at)
	t, err = target.OpenLocal(parent)
	return t, parent, dir, err
}

// ownPath returns the absolute path of a directory, which no link is part of.
func ownPath(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// spillTo gives the merges of partitions memory, and what does not fit to the disk.
func (r *runInput) spillTo(memory int64, disk *spill.Disk) {
	if r.chain != nil {
		for _, c := range r.chain.runs {
			c.in.spillTo(max(1, memory/int64(len(r.chain.runs))), disk)
		}
		return
	}
	if r.merge != nil {
		r.merge.memory, r.merge.disk = memory, disk
	}
}

// manifests are those of the run and of the runs that it goes on from, which come first.
func (r *runInput) manifests() []*Manifest {
	if r.chain == nil {
		return []*Manifest{r.manifest}
	}
	var all []*Manifest
	for _, c := range r.chain.runs {
		all = append(all, c.in.manifest)
	}
	return all
}

// read is how many rows of the runs were read.
func (c *chainMerge) read() (n int64) {
	for _, r := range c.runs {
		n += r.in.read
	}
	return n
}

// close ends reading.
func (c *chainMerge) close() error {
	var errs []error
	for _, r := range c.runs {
		errs = append(errs, r.in.close())
	}
	return errors.Join(errs...)
}
