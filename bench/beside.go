package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/cell"
	"sluice/jobs"
	"sluice/store"
)

const (
	besideStage = "beside"

	// An ingest of 20,000 rows a second, a tenth of what the store takes.
	besideInterval = 10 * time.Millisecond
	besideRows     = 200
)

// besidePhase is one way in which the commits go on, and an export beside them.
type besidePhase struct {
	name     string // of the report
	key      string // in sample.Extra: seconds
	priority string // of the export; empty = none
}

var besidePhases = []besidePhase{
	{"alone", "alone", ""},
	{"beside exports", "normal", jobs.PriorityNormal},
	{"beside exports of low priority", "low", jobs.PriorityLow},
}

// runBeside measures how long the commits of an ingest at a steady, moderate rate
// take, with and without exports of the rows that the pipeline stage has left in
// s.Dir going on in the same process. What matters is in Extra.
func runBeside(ctx context.Context, s *spec) (got sample, err error) {
	c, db, err := openAtRest(ctx, s, false)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	admin, ok := db.(store.Admin)
	if !ok {
		return sample{}, fmt.Errorf("%w: engine %s makes no tables", store.ErrUnsupported, db.Traits().Name)
	}
	if err := admin.CreateTable(ctx, &store.TableDescriptor{Name: besideStage, Families: []store.FamilyDescriptor{store.NewFamily("e")}}, nil); err != nil {
		return sample{}, err
	}
	in := besideIngest{db: db, from: store.Absent}
	extra := map[string]float64{}
	if _, got, err = measured(s, func() error {
		for i := range besidePhases {
			if err := in.phase(ctx, s, &besidePhases[i], c.Jobs[rowTable], extra); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return sample{}, err
	}
	got.Extra = extra
	return got, nil
}

// besideIngest commits rows as a pipeline's partition does.
type besideIngest struct {
	db   store.Engine
	from int64
	rows int64
}

// phase notes the median and the 99th percentile of the commits' times.
func (in *besideIngest) phase(ctx context.Context, s *spec, p *besidePhase, job jobs.Spec, extra map[string]float64) error {
	// Three seconds for a million events.
	least := max(time.Duration(s.Events)*3*time.Microsecond, 10*besideInterval)
	var took []time.Duration
	g, ctx := errgroup.WithContext(ctx)
	running, stop := context.WithTimeout(ctx, least)
	defer stop()
	exported := make(chan struct{})
	g.Go(func() (err error) {
		took, err = in.commit(ctx, running, exported)
		return err
	})
	g.Go(func() error {
		defer close(exported)
		if p.priority == "" {
			return nil
		}
		job.Priority, job.Formats = p.priority, []string{jobs.Parquet}
		for i := 0; i == 0 || running.Err() == nil; i++ {
			if err := in.export(ctx, s, &job); err != nil {
				return err
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	slices.Sort(took)
	extra[p.key+" p50"] = took[len(took)/2].Seconds()
	extra[p.key+" p99"] = took[len(took)*99/100].Seconds()
	return nil
}

// commit commits at each tick until running ends and the export that is under way
// has ended.
func (in *besideIngest) commit(ctx, running context.Context, exported <-chan struct{}) (took []time.Duration, err error) {
	tick := time.NewTicker(besideInterval)
	defer tick.Stop()
	var b store.Batch
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		b.Reset()
		for range besideRows {
			in.rows++
			m := cell.Mutation{Table: besideStage, Row: fmt.Appendf(nil, "%016x", uint64(in.rows)*0x9e3779b97f4a7c15)}
			for column := range 6 {
				m.Put("e", fmt.Append(nil, "c", column), cell.Timestamp(besideStart+in.rows), fmt.Append(nil, "value", in.rows))
			}
			b.Add(in.rows, m)
		}
		b.Advance(store.Source{Pipeline: besideStage, Topic: topic}, 0, in.from, store.Progress{Next: in.rows, Applied: in.rows})
		begun := time.Now()
		if err := in.db.Apply(ctx, &b); err != nil {
			return nil, err
		}
		took = append(took, time.Since(begun))
		in.from = in.rows
		if running.Err() != nil {
			select {
			case <-exported:
				return took, nil
			default:
			}
		}
	}
}

// besideStart is the time of the first row, ms since the Unix epoch.
const besideStart = 1_700_000_000_000

// export exports the rows once, from a snapshot of its own.
func (in *besideIngest) export(ctx context.Context, s *spec, spec *jobs.Spec) (err error) {
	sn, ok := in.db.(store.Snapshotter)
	if !ok {
		return fmt.Errorf("%w: engine %s has no snapshots", store.ErrUnsupported, in.db.Traits().Name)
	}
	snapshot, err := sn.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, snapshot.Close()) }()
	job, err := jobs.Compile(besideStage, spec, nil)
	if err != nil {
		return err
	}
	out := scratch(s, "beside-out")
	defer func() { err = errors.Join(err, os.RemoveAll(out)) }()
	m, err := jobs.Run(ctx, &jobs.RunOptions{Job: job, Source: snapshot, Out: out})
	if err != nil {
		return err
	}
	if m.Totals[0].Rows < int64(s.Events) {
		return fmt.Errorf("WRONG: the export has %d rows, and there were %d events", m.Totals[0].Rows, s.Events)
	}
	return nil
}

// besideOperations adds what the commits took.
func (r *report) besideOperations(add func(name, unit string, s spread)) {
	for _, p := range besidePhases {
		for _, q := range []string{"p50", "p99"} {
			add(fmt.Sprintf("commit of %d rows, %d a second, %s: %s", besideRows, int(time.Second/besideInterval), p.name, q), "ms",
				r.over(besideStage, func(s *sample) float64 { return s.Extra[p.key+" "+q] * 1e3 }))
		}
	}
}
