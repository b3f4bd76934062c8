package jobs

import (
	"context"
	"errors"
	"fmt"

	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/store"
)

const (
	// cutFiles is how many files' worth of a table makes a part of a region: with one,
	// every file would be a short one, as files compress better than the store does;
	// with many, a core that has none left would wait long for the others.
	cutFiles = 2
	// minCutBytes is the smallest part. A scan begins in some milliseconds, and reads
	// so much in half a second.
	minCutBytes = 64 << 20
)

// cut cuts the regions that are large into parts of about size bytes, 0 = by the job's
// files, where the source can, so that several cores read one region. Where the cuts are
// depends on the source and the job alone. A region of a job with partitions stays whole,
// as each part would have files of its own in each of them.
func (o *opened) cut(ctx context.Context, size int64) error {
	c, ok := o.source.(instant.Cutter)
	if !ok || o.Job.partition != nil && o.Job.sort == nil {
		return nil
	}
	if size == 0 {
		size = max(cutFiles*o.Job.layout.targetFileBytes, minCutBytes)
	}
	o.cuts = nil
	for i := range o.splits {
		cuts, err := c.Cuts(ctx, o.Job.Table(), o.Job.families, o.splits[i].Rows, size)
		if errors.Is(err, store.ErrUnsupported) {
			return nil
		}
		if err != nil {
			return err
		}
		o.cuts = append(o.cuts, cuts...)
	}
	o.splits = instant.Cut(o.splits, o.cuts)
	return nil
}

// cut cuts the regions of a full run; those of an increment, whose rows are few, stay whole.
// Where the cuts are is noted with the run: a source that is opened again may cut elsewhere.
func (r *run) cut(ctx context.Context) error {
	if r.changes == nil {
		if err := r.opened.cut(ctx, r.cutBytes); err != nil {
			return err
		}
	}
	r.progress.Regions = len(r.splits)
	return nil
}

// keepCuts returns what a run notes of its cuts.
func keepCuts(cuts [][]byte) (keys []string) {
	for _, key := range cuts {
		keys = append(keys, columnar.EscapeKey(key))
	}
	return keys
}

// cutAsBefore cuts the regions where the run was cut that left notes of these keys. After
// an error the parts are as they were.
func (r *run) cutAsBefore(ctx context.Context, keys []string) error {
	var cuts [][]byte
	for i, s := range keys {
		key, err := columnar.UnescapeKey(s)
		if err != nil || i > 0 && string(key) <= string(cuts[i-1]) {
			return useless(errors.Join(fmt.Errorf("%w: cut %q", ErrManifest, s), err))
		}
		cuts = append(cuts, key)
	}
	was := r.splits
	r.splits = instant.Cut(r.Job.splits(r.regions), cuts)
	r.progress.Regions = len(r.splits)
	err := r.measure(ctx)
	if err != nil {
		r.splits, r.progress.Regions = was, len(was)
	}
	return err
}
