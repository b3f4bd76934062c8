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

// cut cuts the regions that are large into parts, where the source can, so that several
// cores read one region. Where the cuts are depends on the source and the job alone, and
// is noted with the run: a source that is opened again may cut elsewhere. A region of a
// job with partitions stays whole, as each part would have files of its own in each of
// them; and so does one of an increment, whose rows are few.
func (r *run) cut(ctx context.Context) error {
	c, ok := r.Source.(instant.Cutter)
	if !ok || r.changes != nil || r.Job.partition != nil && r.Job.sort == nil {
		return nil
	}
	size := r.cutBytes
	if size == 0 {
		size = max(cutFiles*r.Job.layout.targetFileBytes, minCutBytes)
	}
	r.cuts = nil
	for i := range r.splits {
		cuts, err := c.Cuts(ctx, r.Job.Table(), r.Job.families, r.splits[i].Rows, size)
		if errors.Is(err, store.ErrUnsupported) {
			return nil
		}
		if err != nil {
			return err
		}
		r.cuts = append(r.cuts, cuts...)
	}
	r.splits = instant.Cut(r.splits, r.cuts)
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
