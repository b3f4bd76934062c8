package jobs

import (
	"context"
	"errors"
	"time"

	"sluice/cell"
	"sluice/jobs/instant"
	"sluice/store"
)

// measureEvery is how often a region's progress is measured: it reads the index of a
// few files.
const measureEvery = 500 * time.Millisecond

// measures is what the parts of a run weigh.
type measures struct {
	sizer   instant.Sizer   // nil = every region counts as one
	weights map[int]float64 // by region
	total   float64
	parts   map[int]float64 // done of each region, 0 to 1
}

// measure weighs the regions, where somebody wants to know.
func (r *run) measure(ctx context.Context) error {
	m := &r.measures
	m.parts, m.weights, m.total = map[int]float64{}, map[int]float64{}, 0
	if z, ok := r.Source.(instant.Sizer); ok && r.Progress != nil {
		m.sizer = z
	}
	for i := range r.splits {
		s := &r.splits[i]
		if m.sizer != nil {
			n, err := m.sizer.RangeBytes(ctx, r.Job.Table(), r.Job.families, s.Rows)
			if err != nil && !errors.Is(err, store.ErrUnsupported) {
				return err
			}
			m.weights[s.Index] = float64(n)
		}
		m.total += m.weights[s.Index]
	}
	if m.total > 0 {
		return nil
	}
	m.sizer = nil // nothing was flushed, or nothing tells
	for i := range r.splits {
		m.weights[r.splits[i].Index] = 1
	}
	m.total = float64(len(r.splits))
	return nil
}

// sum is what part of the run is done.
func (m *measures) sum() float64 {
	done := 0.0
	for region, part := range m.parts {
		done += part * m.weights[region]
	}
	return min(done/m.total, 1)
}

// advance measures how far a split is, now and then: rows up to max are written.
func (e *splitExport) advance(ctx context.Context, max []byte) {
	r := e.run
	if r.measures.sizer == nil || r.Now().Sub(e.measured) < measureEvery {
		return
	}
	e.measured = r.Now()
	r.advance(ctx, e.split, max)
}

// advance measures how far a split is that is done with rows up to max.
func (r *run) advance(ctx context.Context, s *instant.Split, max []byte) {
	weight := r.measures.weights[s.Index]
	n, err := r.measures.sizer.RangeBytes(ctx, r.Job.Table(), r.Job.families, cell.Range{Start: s.Rows.Start, Stop: append(max[:len(max):len(max)], 0)})
	if err != nil || weight == 0 {
		return // progress is not worth the run
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.measures.parts[s.Index] = min(float64(n)/weight, 1)
}
