package jobs

import (
	"context"
	"errors"
	"sync"
	"time"

	"sluice/cell"
	"sluice/jobs/instant"
	"sluice/store"
)

// measureEvery is how often a region's progress is measured: it reads the index of a
// few files.
const measureEvery = 500 * time.Millisecond

// measures is what the parts of a job's table weigh, and what of each is done. It is safe for
// concurrent use.
type measures struct {
	job     *Job
	sizer   instant.Sizer   // nil = every part counts as one
	weights map[int]float64 // by part (instant.Split.Index)
	total   float64

	mu   sync.Mutex
	done map[int]float64 // by part, 0 to 1
}

// measure weighs the parts of a job's table, alike unless somebody is told how far they are.
func measure(ctx context.Context, source instant.Source, j *Job, splits []instant.Split, told bool) (*measures, error) {
	m := &measures{job: j, weights: map[int]float64{}, done: map[int]float64{}}
	if z, ok := source.(instant.Sizer); ok && told {
		m.sizer = z
	}
	for i := range splits {
		s := &splits[i]
		if m.sizer != nil {
			n, err := m.sizer.RangeBytes(ctx, j.Table(), j.families, s.Rows)
			if err != nil && !errors.Is(err, store.ErrUnsupported) {
				return nil, err
			}
			m.weights[s.Index] = float64(n)
		}
		m.total += m.weights[s.Index]
	}
	if m.total > 0 {
		return m, nil
	}
	m.sizer = nil // nothing was flushed, or nothing tells
	for i := range splits {
		m.weights[splits[i].Index] = 1
	}
	m.total = float64(len(splits))
	return m, nil
}

// sum is what part of all is done.
func (m *measures) sum() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	done := 0.0
	for i, part := range m.done {
		done += part * m.weights[i]
	}
	return min(done/m.total, 1)
}

// whole notes that a part is done.
func (m *measures) whole(part int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done[part] = 1
}

// advance measures how far a part is that is done with rows up to max.
func (m *measures) advance(ctx context.Context, s *instant.Split, max []byte) {
	weight := m.weights[s.Index]
	n, err := m.sizer.RangeBytes(ctx, m.job.Table(), m.job.families, cell.Range{Start: s.Rows.Start, Stop: append(max[:len(max):len(max)], 0)})
	if err != nil || weight == 0 {
		return // progress is not worth the run
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done[s.Index] = min(float64(n)/weight, 1)
}

// gauge has measures told, now and then, how far one reader of parts is.
type gauge struct {
	*measures
	now func() time.Time
	at  time.Time // of the last time
}

// reached says that the rows of a part up to max are done with.
func (g *gauge) reached(ctx context.Context, s *instant.Split, max []byte) {
	if g.sizer == nil || g.now().Sub(g.at) < measureEvery {
		return
	}
	g.at = g.now()
	g.advance(ctx, s, max)
}
