package promql

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// series is one of a scrape, with Prometheus's labels added.
type series struct {
	labels labels.Labels
	value  float64
}

// scrape parses an answer of /metrics as Prometheus does.
func scrape(t *testing.T, page []byte) []series {
	t.Helper()
	target := []string{"job", "sluice", "instance", "sluice:8087"}
	all := []series{{labels.FromStrings(append([]string{"__name__", "up"}, target...)...), 1}}
	p := textparse.NewPromParser(page, labels.NewSymbolTable(), false)
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("parse /metrics: %v", err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var l labels.Labels
		p.Labels(&l)
		_, _, v := p.Series()
		b := labels.NewBuilder(l)
		for i := 0; i < len(target); i += 2 {
			b.Set(target[i], target[i+1])
		}
		all = append(all, series{b.Labels(), v})
	}
}

// A timeline is an hour and a half of scrapes, of which the first half is as before
// and the second as after a change.
const (
	interval = 15 * time.Second
	change   = 45 * time.Minute
	length   = 90 * time.Minute
)

var epoch = time.Unix(1_700_000_000, 0)

// edit says what a series is worth at since the change, before it below zero; false
// = it is not there.
type edit func(name string, l labels.Labels, since time.Duration, v float64) (float64, bool)

// timeline is what Prometheus would have stored.
type timeline []storage.Series

func newTimeline(before, after []series, e edit) timeline {
	all := map[string][]chunks.Sample{}
	sets := map[string]labels.Labels{}
	for at := time.Duration(0); at < length; at += interval {
		now := before
		if at >= change {
			now = after
		}
		for _, s := range now {
			v, ok := s.value, true
			if e != nil {
				v, ok = e(s.labels.Get("__name__"), s.labels, at-change, v)
			}
			if !ok {
				continue
			}
			key := s.labels.String()
			sets[key] = s.labels
			all[key] = append(all[key], sample{epoch.Add(at).UnixMilli(), v})
		}
	}
	var out timeline
	for key, samples := range all {
		out = append(out, storage.NewListSeries(sets[key], samples))
	}
	slices.SortFunc(out, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return out
}

// Querier returns the series of all times; the engine picks the samples it wants.
func (tl timeline) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		set := &seriesSet{}
		for _, s := range tl {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Labels().Get(m.Name)) }) {
				set.rest = append(set.rest, s)
			}
		}
		return set
	}}, nil
}

type seriesSet struct {
	rest []storage.Series
	at   storage.Series
}

func (s *seriesSet) Next() bool {
	if len(s.rest) == 0 {
		return false
	}
	s.at, s.rest = s.rest[0], s.rest[1:]
	return true
}
func (s *seriesSet) At() storage.Series                { return s.at }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

type sample struct {
	t int64
	v float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.v }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

func newEngine() *promql.Engine {
	return promql.NewEngine(promql.EngineOpts{
		MaxSamples: 10_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, // Prometheus's default
		Parser: parser.NewParser(parser.Options{}),
	})
}

// evaluate runs expr at since the change. What Prometheus would annotate, as a rate
// of what is no counter, is an error.
func evaluate(engine *promql.Engine, tl timeline, expr string, since time.Duration) (promql.Vector, error) {
	ctx := context.Background()
	q, err := engine.NewInstantQuery(ctx, tl, nil, expr, epoch.Add(change+since))
	if err != nil {
		return nil, err
	}
	defer q.Close()
	r := q.Exec(ctx)
	if r.Err != nil {
		return nil, r.Err
	}
	if err := r.Warnings.AsErrors(); len(err) > 0 {
		return nil, errors.Join(err...)
	}
	v, err := r.Vector()
	if err != nil {
		return nil, fmt.Errorf("%T is no vector: %w", r.Value, err)
	}
	return slices.Clone(v), nil
}
