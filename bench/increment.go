package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"sluice/cell"
	"sluice/jobs"
	"sluice/jobs/columnar"
	"sluice/store"
)

const (
	incrementStage = "increment"

	// incrementShare of the rows are changed before each increment: one in so many.
	incrementShare = 100
)

// incrementPhase is one way in which the changed rows lie among the others.
type incrementPhase struct {
	name    string                 // of the report
	key     string                 // in sample.Extra, with secondsKey or cpuKey
	goal    string                 // for its share of the time of a full export
	changed func(i, rows int) bool // whether row i is
	compact bool                   // after the change, so that blocks hold changed rows and others
	grown   bool                   // of the table that was made larger
	anew    bool                   // all of the rows' columns are put, not one
	beside  bool                   // not these rows are put, but others behind them
}

// incrementGrowth is how many times as many rows the larger table has: of enough that the
// fixed cost of a run is little, and of so few that they are written in seconds.
const incrementGrowth = 4

var incrementPhases = []incrementPhase{
	{name: "nothing", key: "nothing", changed: func(int, int) bool { return false }},
	{name: "1 % of the rows, together", key: "together", goal: "≤ 0.05", changed: together},
	{name: "1 % of the rows, all over", key: "all over", goal: "≤ 0.05", changed: allOver},
	{name: "1 % of the rows, all over, then compacted", key: "compacted", compact: true, changed: func(i, rows int) bool {
		return i%incrementShare == incrementShare/2 && i < rows/incrementShare*incrementShare
	}},
	{name: "1 % of the rows, put anew, all over", key: "anew", goal: "≤ 0.05", changed: allOver, anew: true},
	{name: "1 % of 4 times as many rows, together", key: "together, large", goal: "≤ 0.05", changed: together, grown: true},
	{name: "1 % of 4 times as many rows, all over", key: "all over, large", goal: "≤ 0.05", grown: true, changed: allOver},
	{name: "1 % of 4 times as many rows, put anew, all over", key: "anew, large", goal: "≤ 0.05", grown: true, changed: allOver, anew: true},
	{name: "1 % new rows, among 4 times as many, all over", key: "new, large", goal: "≤ 0.05", grown: true, changed: allOver, anew: true, beside: true},
}

func allOver(i, rows int) bool {
	return i%incrementShare == 0 && i < rows/incrementShare*incrementShare
}

func together(i, rows int) bool { return i >= rows/2 && i < rows/2+rows/incrementShare }

// The keys of what the increments are compared with.
const (
	fullExport  = "full"
	largeExport = "full, large"
)

// full is the key of what the increment is compared with.
func (p *incrementPhase) full() string {
	if p.grown {
		return largeExport
	}
	return fullExport
}

func secondsKey(key string) string { return key + " seconds" }
func cpuKey(key string) string     { return key + " CPU seconds" }

// runIncrement exports the rows that the pipeline stage has left in s.Dir whole, and
// then, each time after one in a hundred was changed, what was changed. The sample is
// of the full export; the increments are in Extra.
func runIncrement(ctx context.Context, s *spec) (got sample, err error) {
	c, db, err := openAtRest(ctx, s, true)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	declared := c.Jobs[rowTable]
	declared.Formats = []string{jobs.Parquet}
	declared.Incremental.FullEvery = 3 + len(incrementPhases)
	declared.Columns = slices.Clone(declared.Columns)
	nullable := true // a row that is gone has no values
	for i := range declared.Columns {
		declared.Columns[i].Nullable = &nullable
	}
	declared.Columns = append(declared.Columns,
		columnar.ColumnSpec{Name: "row", From: columnar.FromRow, Type: "bytes"},
		columnar.ColumnSpec{Name: "op", From: columnar.FromOp, Type: "string"})
	job, err := jobs.Compile(incrementStage, &declared, nil)
	if err != nil {
		return sample{}, err
	}
	in := incrementExports{db: db, job: job, out: scratch(s, "increment-out")}
	defer func() { err = errors.Join(err, os.RemoveAll(in.out)) }()
	rows, err := in.export(ctx, true) // warms the caches up
	if err != nil {
		return sample{}, err
	}
	if rows < s.Events { // the stages before have added some
		return sample{}, fmt.Errorf("WRONG: the export has %d rows, and there were %d events", rows, s.Events)
	}
	extra := map[string]float64{}
	if _, got, err = measured(s, func() error { return in.want(ctx, true, rows) }); err != nil {
		return sample{}, err
	}
	extra[secondsKey(fullExport)], extra[cpuKey(fullExport)] = got.Seconds, got.CPU
	for i := range incrementPhases {
		p := &incrementPhases[i]
		grows := p.grown && extra[secondsKey(largeExport)] == 0
		if grows {
			if err := in.grow(ctx, s); err != nil {
				return sample{}, err
			}
			rows *= incrementGrowth
		}
		// What the phase before has left to compact is not this one's.
		if err := rest(s); err != nil {
			return sample{}, err
		}
		if grows {
			_, took, err := measured(in.profiled(s, largeExport), func() error { return in.want(ctx, true, rows) })
			if err != nil {
				return sample{}, err
			}
			extra[secondsKey(largeExport)], extra[cpuKey(largeExport)] = took.Seconds, took.CPU
		}
		changed, err := in.change(ctx, s, p, rows)
		if err != nil {
			return sample{}, err
		}
		_, took, err := measured(in.profiled(s, p.key), func() error { return in.want(ctx, false, changed) })
		if err != nil {
			return sample{}, err
		}
		extra[secondsKey(p.key)], extra[cpuKey(p.key)] = took.Seconds, took.CPU
	}
	got.Extra = extra
	return got, nil
}

// incrementExports are the runs of one incremental job.
type incrementExports struct {
	db   store.Engine
	job  *jobs.Job
	out  string
	next int64 // offset of the changes
}

// profiled returns s with a CPU profile of its own, where there are to be some.
func (in *incrementExports) profiled(s *spec, key string) *spec {
	one := *s
	if s.Profile != "" {
		one.Profile = strings.TrimSuffix(s.Profile, ".pprof") + "-" + strings.NewReplacer(" ", "-", ",", "").Replace(key) + ".pprof"
	}
	return &one
}

// grow adds copies of all rows beside them, so that there are incrementGrowth times as
// many.
func (in *incrementExports) grow(ctx context.Context, s *spec) error {
	source, from := store.Source{Pipeline: incrementStage, Topic: topic}, store.Absent
	if in.next > 0 {
		from = in.next
	}
	var b store.Batch
	first := in.next
	write := func() error {
		b.Advance(source, 0, from, store.Progress{Next: in.next, Applied: in.next})
		err := in.db.Apply(ctx, &b)
		b.Reset()
		from, first = in.next, in.next
		return err
	}
	if err := each(in.db.Scan(ctx, &store.Scan{Table: rowTable}), func(row *cell.Row) error {
		for n := range incrementGrowth - 1 {
			m := cell.Mutation{Table: rowTable, Row: append(slices.Clone(row.Key), byte(n))}
			for _, c := range row.Cells {
				m.Put(c.Family, slices.Clone(c.Qualifier), c.Time, slices.Clone(c.Value))
			}
			b.Add(in.next, m)
			in.next++
		}
		if in.next-first < int64(s.Batch) {
			return nil
		}
		return write()
	}); err != nil {
		return err
	}
	if err := write(); err != nil {
		return err
	}
	compactor, ok := in.db.(store.Compactor)
	if !ok {
		return fmt.Errorf("%w: engine %s does not compact when it is asked to", store.ErrUnsupported, in.db.Traits().Name)
	}
	return compactor.MajorCompact(ctx, rowTable)
}

// want runs the job, which must write so many rows.
func (in *incrementExports) want(ctx context.Context, full bool, rows int) error {
	got, err := in.export(ctx, full)
	if err == nil && got != rows {
		err = fmt.Errorf("WRONG: the export (full: %t) has %d rows, not %d", full, got, rows)
	}
	return err
}

// export runs the job and returns how many rows it has written.
func (in *incrementExports) export(ctx context.Context, full bool) (rows int, err error) {
	sn, ok := in.db.(store.Snapshotter)
	holder, id, err := jobs.HolderOf(ctx, in.job, in.db)
	if err != nil {
		return 0, err
	}
	if !ok || holder == nil {
		return 0, fmt.Errorf("%w: engine %s does not know its changes", store.ErrUnsupported, in.db.Traits().Name)
	}
	if err := jobs.HoldChanges(ctx, in.job, holder, time.Now()); err != nil {
		return 0, err
	}
	snapshot, err := sn.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, snapshot.Close()) }()
	m, err := jobs.Run(ctx, &jobs.RunOptions{Job: in.job, Source: snapshot, Out: in.out, Holder: holder, StoreID: id, Full: full})
	if err != nil {
		return 0, err
	}
	if increment := m.Incremental.Number > 0; increment == full {
		return 0, fmt.Errorf("WRONG: full: %t was asked for, and it is number %d since a full run", full, m.Incremental.Number)
	}
	return int(m.Totals[0].Rows), nil
}

// change makes the phase's changes of so many rows, and returns how many were changed.
func (in *incrementExports) change(ctx context.Context, s *spec, p *incrementPhase, rows int) (int, error) {
	var changes []cell.Mutation
	i := 0
	if err := each(in.db.Scan(ctx, &store.Scan{Table: rowTable}), func(row *cell.Row) error {
		if p.changed(i, rows) {
			changes = append(changes, in.changed(s, p, row, len(changes)))
		}
		i++
		return nil
	}); err != nil {
		return 0, err
	}
	source, from := store.Source{Pipeline: incrementStage, Topic: topic}, store.Absent
	if in.next > 0 {
		from = in.next
	}
	var b store.Batch
	for part := range slices.Chunk(changes, 1000) {
		b.Reset()
		for _, m := range part {
			b.Add(in.next, m)
			in.next++
		}
		b.Advance(source, 0, from, store.Progress{Next: in.next, Applied: in.next})
		if err := in.db.Apply(ctx, &b); err != nil {
			return 0, err
		}
		from = in.next
	}
	if !p.compact {
		return len(changes), nil
	}
	compactor, ok := in.db.(store.Compactor)
	if !ok {
		return 0, fmt.Errorf("%w: engine %s does not compact when it is asked to", store.ErrUnsupported, in.db.Traits().Name)
	}
	return len(changes), compactor.MajorCompact(ctx, rowTable)
}

// changed is the phase's change of a row, after n others.
func (in *incrementExports) changed(s *spec, p *incrementPhase, row *cell.Row, n int) cell.Mutation {
	m := cell.Mutation{Table: rowTable, Row: slices.Clone(row.Key)}
	if p.beside {
		m.Row = append(m.Row, 0xff)
	}
	// After the events, which are of yesterday.
	at := in.next + int64(n)
	t := cell.Timestamp(s.Start + 48*time.Hour.Milliseconds() + at)
	if p.anew {
		for _, c := range row.Cells {
			if string(c.Qualifier) != "page" {
				m.Put(c.Family, slices.Clone(c.Qualifier), t, slices.Clone(c.Value))
			}
		}
	}
	m.Put("e", []byte("page"), t, fmt.Appendf(nil, "/changed/%d", at))
	return m
}

// incrementRatios adds what an increment takes of a full export.
func (r *report) incrementRatios(add func(name, goal string, s spread)) {
	for _, p := range incrementPhases {
		for _, part := range []struct {
			name, goal string
			key        func(string) string
		}{{"time", p.goal, secondsKey}, {"CPU", "", cpuKey}} {
			add(part.name+" of an increment of "+p.name+" / of a full export", part.goal, r.over(incrementStage, func(s *sample) float64 {
				return s.Extra[part.key(p.key)] / s.Extra[part.key(p.full())]
			}))
		}
	}
	// What every run takes, however little has changed: syncs, the catalog, files without
	// rows.
	add("milliseconds of an increment of nothing", "", r.over(incrementStage, func(s *sample) float64 {
		return 1000 * s.Extra[secondsKey("nothing")]
	}))
}
