package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sync/errgroup"

	"sluice/cell"
	"sluice/config"
	"sluice/pipeline"
	"sluice/pipeline/buffer"
	"sluice/pipeline/memory"
	"sluice/store"
	"sluice/store/pebblestore"
)

// openStore opens a store with the tables of the example in dir. change may alter
// the options first.
func openStore(ctx context.Context, s *spec, dir string, change func(*pebblestore.Options)) (_ *pebblestore.DB, err error) {
	c, err := loadConfig(s, dir)
	if err != nil {
		return nil, err
	}
	o := c.PebbleOptions(nil)
	if change != nil {
		change(o)
	}
	db, err := pebblestore.Open(dir, o)
	if err != nil {
		return nil, err
	}
	if _, err := c.EnsureTables(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// prebuild maps the first n events into batches, by partition.
func prebuild(ctx context.Context, s *spec, e *events, n int) ([][]*buffer.Batch, error) {
	f, err := newFiller(e, s)
	if err != nil {
		return nil, err
	}
	all := make([][]*buffer.Batch, s.Partitions)
	err = f.fill(ctx, 0, n, true, func(p int32, b *buffer.Batch) { all[p] = append(all[p], b) })
	return all, err
}

// openAtRest opens the store that a stage before has left in s.Dir and waits for what
// it does of itself, so that no compaction of that stage is measured with this one.
// toScan has it opened as export run opens a store.
func openAtRest(ctx context.Context, s *spec, toScan bool) (*config.Config, config.Engine, error) {
	c, err := loadConfig(s, s.Dir)
	if err != nil {
		return nil, nil, err
	}
	if toScan {
		c = c.ForScans()
	}
	db, err := config.OpenEngine(ctx, c, nil)
	if err != nil {
		return nil, nil, err
	}
	if err := rest(s); err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return c, db, nil
}

// rest waits until the process rests: its store has nothing to flush or to compact.
func rest(s *spec) error {
	m, err := startMeter(0)
	if err != nil {
		return err
	}
	return m.settle(new(sample), s.Rest)
}

// applyAll applies the batches, those of a partition one after the other, as the
// pipeline does.
func applyAll(ctx context.Context, db *pebblestore.DB, all [][]*buffer.Batch) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, batches := range all {
		g.Go(func() error {
			for _, b := range batches {
				if err := db.Apply(ctx, &b.Store); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// inWarm runs f on a store of its own that is thrown away.
func inWarm(ctx context.Context, s *spec, f func(*pebblestore.DB) error) error {
	dir := s.Dir + "-warm"
	db, err := openStore(ctx, s, dir, nil)
	if err != nil {
		return err
	}
	return errors.Join(f(db), db.Close(), os.RemoveAll(dir))
}

func runStore(ctx context.Context, s *spec) (got sample, err error) {
	e := generate(s)
	warm, err := prebuild(ctx, s, e, e.warm())
	if err != nil {
		return sample{}, err
	}
	if err := inWarm(ctx, s, func(db *pebblestore.DB) error { return applyAll(ctx, db, warm) }); err != nil {
		return sample{}, err
	}
	all, err := prebuild(ctx, s, e, e.len())
	if err != nil {
		return sample{}, err
	}
	db, err := openStore(ctx, s, s.Dir, nil)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, db.Close(), os.RemoveAll(s.Dir)) }()
	m, got, err := measured(s, func() error { return applyAll(ctx, db, all) })
	if err != nil {
		return sample{}, err
	}
	if err := m.settle(&got, s.Rest); err != nil {
		return sample{}, err
	}
	addMetrics(&got, db, e.len())
	return got, verify(ctx, db, s)
}

// addMetrics notes what the store did.
func addMetrics(got *sample, db *pebblestore.DB, events int) {
	m := db.Metrics()
	got.Extra["commits"] = float64(m.Commits)
	got.Extra["bulk commits"] = float64(m.BulkCommits)
	got.Extra["events a commit"] = float64(events) / float64(max(m.Commits, 1))
	got.Extra["counters an event"] = float64(m.Counters) / float64(events)
	got.Extra["key-values an event"] = float64(m.KeyValues) / float64(events)
	got.Extra["compactions"] = float64(m.Compactions)
}

// verify adds up the counters of every unit and counts the rows: each must be the
// number of events, but for rows where s wants none.
func verify(ctx context.Context, r store.Reader, s *spec) error {
	events := s.Events
	sums := map[string]int64{}
	err := each(r.Scan(ctx, &store.Scan{Table: countTable}), func(row *cell.Row) error {
		for i := range row.Cells {
			c := &row.Cells[i]
			if len(c.Value) != 8 {
				return fmt.Errorf("counter %s:%s of %q has %d bytes", c.Family, c.Qualifier, row.Key, len(c.Value))
			}
			sums[c.Family] += int64(binary.BigEndian.Uint64(c.Value))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("add up the counters: %w", err)
	}
	for _, unit := range []string{"minute", "hour", "day"} {
		if sums[unit] != int64(events) {
			return fmt.Errorf("WRONG: the counters by the %s add up to %d, and there were %d events", unit, sums[unit], events)
		}
	}
	rows := 0
	err = each(r.Scan(ctx, &store.Scan{Table: rowTable}), func(row *cell.Row) error {
		if len(row.Cells) != 6 {
			return fmt.Errorf("row %q has %d columns, want 6", row.Key, len(row.Cells))
		}
		rows++
		return nil
	})
	want := events
	if s.Counts {
		want = 0
	}
	if err == nil && rows != want {
		err = fmt.Errorf("WRONG: %d rows of %d events, and there should be %d", rows, events, want)
	}
	return err
}

func each(s store.Scanner, f func(*cell.Row) error) error {
	for s.Next() {
		if err := f(s.Row()); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	return errors.Join(s.Err(), s.Close())
}

// runCapture applies the store stage's batches to a store whose write-ahead log is
// kept, and writes what it committed to the file s.Batches, for runRaw.
func runCapture(ctx context.Context, s *spec) (got sample, err error) {
	e := generate(s)
	all, err := prebuild(ctx, s, e, e.len())
	if err != nil {
		return sample{}, err
	}
	logs := newLogKeeper()
	db, err := openStore(ctx, s, s.Dir, func(o *pebblestore.Options) { o.FS = logs })
	if err != nil {
		return sample{}, err
	}
	before := db.Metrics().Commits
	_, got, err = measured(s, func() error { return applyAll(ctx, db, all) })
	commits := db.Metrics().Commits - before
	if err = errors.Join(err, db.Close(), os.RemoveAll(s.Dir)); err != nil {
		return sample{}, err
	}
	f, err := os.Create(s.Batches)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	tally, err := logs.writeBatches(f)
	if err != nil {
		return sample{}, err
	}
	if tally.rows != e.len() || int64(tally.written) != commits {
		return sample{}, fmt.Errorf("the write-ahead log has %d rows in %d commits, the store %d in %d", tally.rows, tally.written, e.len(), commits)
	}
	got.Extra["commits"] = float64(tally.written)
	got.Extra["key-values an event"] = float64(tally.keyValues) / float64(e.len())
	got.Extra["counters an event"] = float64(tally.counters) / float64(e.len())
	got.Extra["bytes an event"] = float64(tally.bytes) / float64(e.len())
	return got, nil
}

// rawDB is Pebble alone, with pebblestore's options.
type rawDB struct {
	*pebble.DB
	cache *pebble.Cache
	dir   string
}

func openRaw(s *spec, dir string) (*rawDB, error) {
	c, err := loadConfig(s, dir)
	if err != nil {
		return nil, err
	}
	o, err := pebblestore.PebbleOptions(c.PebbleOptions(nil))
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	db, err := pebble.Open(dir, o)
	if err != nil {
		o.Cache.Unref()
		return nil, err
	}
	return &rawDB{db, o.Cache, dir}, nil
}

func (db *rawDB) close() error {
	err := db.DB.Close()
	db.cache.Unref()
	return errors.Join(err, os.RemoveAll(db.dir))
}

// commit commits the batches one after the other. They are built before the meter
// runs.
func (db *rawDB) commit(s *spec, reprs [][]byte) (*meter, sample, error) {
	batches := make([]*pebble.Batch, len(reprs))
	for i, repr := range reprs {
		batches[i] = db.NewBatch()
		if err := batches[i].SetRepr(repr); err != nil {
			return nil, sample{}, err
		}
	}
	return measured(s, func() error {
		for _, b := range batches {
			if err := b.Commit(pebble.Sync); err != nil {
				return err
			}
		}
		return nil
	})
}

func runRaw(_ context.Context, s *spec) (got sample, err error) {
	data, err := os.ReadFile(s.Batches)
	if err != nil {
		return sample{}, err
	}
	reprs, err := splitBatches(data)
	if err != nil {
		return sample{}, err
	}
	warm, err := openRaw(s, s.Dir+"-warm")
	if err != nil {
		return sample{}, err
	}
	_, _, err = warm.commit(s, reprs[:max(1, int(warmUp*float64(len(reprs))))])
	if err = errors.Join(err, warm.close()); err != nil {
		return sample{}, err
	}
	db, err := openRaw(s, s.Dir)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	m, got, err := db.commit(s, reprs)
	if err != nil {
		return sample{}, err
	}
	if err := m.settle(&got, 0); err != nil {
		return sample{}, err
	}
	rows, err := db.rows()
	if err == nil && rows != s.Events {
		err = fmt.Errorf("raw Pebble has %d rows of %d events", rows, s.Events)
	}
	return got, err
}

// rows counts the key-values that are rows of the events table.
func (db *rawDB) rows() (n int, err error) {
	low := []byte{cell.TagData}
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: cell.PrefixEnd(low)})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		if !bytes.HasPrefix(it.Key(), low) {
			return 0, fmt.Errorf("key %x is out of bounds", it.Key())
		}
		n++
	}
	return n, it.Error()
}

// runPipeline applies the topic as if it came now.
func runPipeline(ctx context.Context, s *spec) (sample, error) {
	return runIngest(ctx, s, pipeline.Backfill{})
}

// runDedup is runPipeline of events that have ids, none of them twice.
func runDedup(ctx context.Context, s *spec) (sample, error) {
	ids := *s
	ids.IDs = true
	return runIngest(ctx, &ids, pipeline.Backfill{})
}

// runBackfill applies the topic as a backlog, from the first record to the last.
func runBackfill(ctx context.Context, s *spec) (sample, error) {
	return runIngest(ctx, s, pipeline.Backfill{Lag: 1})
}

func runIngest(ctx context.Context, s *spec, backfill pipeline.Backfill) (got sample, err error) {
	e := generate(s)
	ends, warmEnds := e.logEnds(e.len()), e.logEnds(e.warm())
	e = nil // the pipeline reads the topic; its heap should be its own
	all, err := memory.New(pipeline.DefaultMemoryBytes)
	if err != nil {
		return sample{}, err
	}
	client, err := openClient(s)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	ingest := func(db *pebblestore.DB, group string, ends map[int32]int64, measure bool) (m *meter, got sample, err error) {
		o, err := pipelineOptions(s)
		if err != nil {
			return nil, sample{}, err
		}
		o.Client, o.Engine, o.Memory, o.StoreID, o.Group = client, db, all, db.ID(), group
		o.DeadLetterTopic = "" // there are none, and the topic was not made
		o.Flush.MaxRecords, o.Backfill = s.Batch, backfill
		p, err := pipeline.New(o)
		if err != nil {
			return nil, sample{}, err
		}
		// The clock starts before the pipeline: measured collects garbage first, which
		// would take long beside a pipeline that runs, and give it a start of half a second.
		stop := func() error { return nil }
		ingestAll := func() error {
			running, cancel := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- p.Run(running) }()
			stop = func() error {
				cancel()
				return <-ended
			}
			return p.WaitStored(ctx, map[string]map[int32]int64{topic: ends})
		}
		if !measure {
			err = ingestAll()
			return nil, sample{}, errors.Join(err, stop())
		}
		m, got, err = measured(s, ingestAll)
		if err = errors.Join(err, stop()); err == nil {
			if err = m.settle(&got, s.Rest); err != nil {
				return nil, sample{}, err
			}
			var want int64
			for _, end := range ends {
				want += end
			}
			if mt := p.Metrics(); mt.Applied != want || mt.Filtered+mt.Dead+mt.Control+mt.Lost != 0 {
				err = fmt.Errorf("WRONG: %d events: applied %d, filtered %d, dead %d, control %d, lost %d",
					want, mt.Applied, mt.Filtered, mt.Dead, mt.Control, mt.Lost)
			}
		}
		return m, got, err
	}
	err = inWarm(ctx, s, func(db *pebblestore.DB) error {
		_, _, err := ingest(db, s.Group+"-warm", warmEnds, false)
		return err
	})
	if err != nil {
		return sample{}, fmt.Errorf("warm up: %w", err)
	}
	db, err := openStore(ctx, s, s.Dir, nil)
	if err != nil {
		return sample{}, err
	}
	defer func() {
		err = errors.Join(err, db.Close())
		if !s.Keep {
			err = errors.Join(err, os.RemoveAll(s.Dir))
		}
	}()
	if _, got, err = ingest(db, s.Group, ends, true); err != nil {
		return sample{}, err
	}
	addMetrics(&got, db, s.Events)
	return got, verify(ctx, db, s)
}

// scratch is where a stage may leave files beside its store.
func scratch(s *spec, name string) string { return filepath.Join(filepath.Dir(s.Dir), name) }
