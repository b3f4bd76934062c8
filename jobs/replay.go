package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"math"
	"path"

	"sluice/jobs/columnar"
)

// errOtherRows: a join, or a sort, that was resumed does not make the rows that are in its
// finished files.
var errOtherRows = errors.New("the rows are not those that the run had when it was cut off (cells with a TTL may have expired); run it again without --resume")

// replay writes the files of a run that makes all rows again when it is resumed: a join, or
// one that is sorted. Rows that are in finished files it compares with these.
type replay struct {
	run       *execution
	outputs   []*replayOutput
	left      map[fileSet][]File // of a run that was cut off, whose rows did not come again yet
	perNumber int                // how many files of a partition have the first number of their names in common
}

// filePartition is where rows of a partition go; zero = there are no partitions.
type filePartition struct {
	dir    string
	values []*string
}

// replayOutput is the files of one format, a partition after the other.
type replayOutput struct {
	fileWriter
	digest hash.Hash // of the batches of the current file; nil where nobody goes on
	// done are the files of the run that was cut off whose rows did not come
	// again yet, and passed the rows of the first that did.
	done    []File
	passed  int64
	digests map[string]string // by path
	chunk   int               // of the current file, in its partition
}

// newReplay returns what writes the files of x, whose upload has begun; w is what is
// finished of it, nil = nothing.
func (x *execution) newReplay(l *layout, formats []format, w *finishedWork) *replay {
	p := &replay{run: x, perNumber: math.MaxInt}
	if w == nil {
		w = &finishedWork{}
	}
	p.left = w.sets()
	for i := range formats {
		o := &replayOutput{fileWriter: fileWriter{upload: x.upload, layout: l, format: &formats[i], metadata: x.metadata}, digests: w.digests}
		if x.notes != nil {
			o.digest = sha256.New()
		}
		p.outputs = append(p.outputs, o)
	}
	return p
}

// enter begins a partition.
func (p *replay) enter(to *filePartition) {
	for _, o := range p.outputs {
		set := fileSet{o.format.name, path.Clean(to.dir)}
		o.done, o.chunk = p.left[set], len(p.left[set])
		delete(p.left, set)
	}
}

// write appends a batch of a partition in every format.
func (p *replay) write(ctx context.Context, b *columnar.Batch, to *filePartition) error {
	for _, o := range p.outputs {
		if len(o.done) > 0 {
			if err := o.pass(b); err != nil {
				return err
			}
			continue
		}
		if o.full() {
			if err := p.finish(ctx, o, to); err != nil {
				return err
			}
		}
		if o.writer == nil {
			if err := p.create(ctx, o, to); err != nil {
				return err
			}
		}
		if err := o.add(b); err != nil {
			return err
		}
		if o.digest != nil {
			b.HashTo(o.digest)
		}
	}
	return p.run.yielder.wait(ctx)
}

// leave ends the files of a partition, which make one without rows where there are none.
func (p *replay) leave(ctx context.Context, to *filePartition) error {
	for _, o := range p.outputs {
		switch {
		case len(o.done) == 1 && o.done[0].Rows == 0:
			continue // the file that says the columns
		case len(o.done) > 0:
			return fmt.Errorf("%s: %w", o.done[0].Path, errOtherRows)
		case o.writer == nil && o.chunk > 0:
			continue // all rows were in finished files
		}
		if err := p.finish(ctx, o, to); err != nil {
			return err
		}
	}
	return nil
}

// end returns an error where rows that are in finished files did not come again.
func (p *replay) end() error {
	for _, files := range p.left {
		if len(files) > 0 {
			return fmt.Errorf("%s: %w", files[0].Path, errOtherRows)
		}
	}
	return nil
}

// create begins the next file of a format.
func (p *replay) create(ctx context.Context, o *replayOutput, to *filePartition) error {
	return o.create(ctx, path.Join(to.dir, partName(o.chunk/p.perNumber, o.chunk%p.perNumber, o.format.name)))
}

// finish ends the current file of a format; without any, one without rows says the columns.
func (p *replay) finish(ctx context.Context, o *replayOutput, to *filePartition) error {
	if o.writer == nil {
		if err := p.create(ctx, o, to); err != nil {
			return err
		}
	}
	f, err := o.close()
	if err != nil {
		return err
	}
	f.Partition = to.values
	n := &workNote{Region: o.chunk / p.perNumber, File: &f}
	if o.digest != nil {
		n.Digest = o.takeDigest()
	}
	if err := p.run.note(ctx, n); err != nil {
		return err
	}
	o.chunk++
	return p.run.done(f)
}

// pass takes rows that are in a finished file, and compares them with it.
func (o *replayOutput) pass(b *columnar.Batch) error {
	b.HashTo(o.digest)
	o.passed += int64(b.Rows())
	f := &o.done[0]
	if o.passed < f.Rows {
		return nil
	}
	if o.passed > f.Rows || o.takeDigest() != o.digests[f.Path] {
		return fmt.Errorf("%s: %w", f.Path, errOtherRows)
	}
	o.done, o.passed = o.done[1:], 0
	return nil
}

// takeDigest returns the digest of the batches so far and begins anew.
func (o *replayOutput) takeDigest() string {
	sum := hex.EncodeToString(o.digest.Sum(nil))
	o.digest.Reset()
	return sum
}
