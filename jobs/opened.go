package jobs

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/region"
	"sluice/store"
)

// opened is what a run, a plan or a join reads of a job: its table at the instant of a
// source, in splits.
type opened struct {
	Job     *Job // reads the families that are served; in a run it hides the one of RunOptions
	source  instant.Source
	table   *store.TableDescriptor
	regions *region.Map
	splits  []instant.Split
	cuts    [][]byte // where regions were cut
}

// open reads the schema and the regions of the job's table. Its error says why the job
// cannot be done with them.
func (j *Job) open(ctx context.Context, source instant.Source) (*opened, error) {
	t, err := source.Table(ctx, j.Table())
	if err != nil {
		return nil, err
	}
	for _, f := range slices.Concat(j.schema.Families(), j.families) {
		if t.Family(f) == nil {
			return nil, fmt.Errorf("%w: %s in table %s", store.ErrFamilyNotFound, f, j.Table())
		}
	}
	o := &opened{Job: j.served(t, instant.UnfrozenOf(source) != nil), source: source, table: t}
	if err := cmp.Or(o.Job.checkHistory(t), o.Job.checkTimes(t, instant.UnfrozenOf(source) != nil)); err != nil {
		return nil, err
	}
	m, err := source.Regions(ctx, j.Table())
	if err != nil {
		return nil, err
	}
	o.divide(m)
	return o, nil
}

// divide makes the regions of m the splits.
func (o *opened) divide(m *region.Map) {
	o.regions, o.splits = m, o.Job.splits(m)
}

// builder returns a builder of the job's rows. Its conditions take for null what the
// directories of partitions, of a bucket or not, make null.
func (o *opened) builder(bucket bool) *columnar.Builder {
	b := columnar.NewBuilder(o.Job.schema)
	if p := o.Job.partition; p != nil {
		b.TakeForNull(func(column int, v *columnar.Vector, i int) bool {
			n := slices.Index(p.by, column)
			if n < 0 || !p.nulls[n] {
				return false
			}
			_, why := p.text(bucket, n, v, i)
			return why != ""
		})
	}
	return b
}
