package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/cell"
	"sluice/jobs"
	"sluice/jobs/arrowfile"
	"sluice/jobs/columnar"
	"sluice/jobs/parquetfile"
	"sluice/store"
)

// The export's parts, keys of sample.Extra: seconds.
const (
	scanSeconds          = "scan seconds"
	encodeParquetSeconds = "encode Parquet seconds"
	encodeArrowSeconds   = "encode Arrow seconds"
	wholeArrowSeconds    = "whole Arrow seconds"
	scanOneSeconds       = "scan on one core seconds"
	encodeOneSeconds     = "encode Parquet on one core seconds"
	scanCPU              = "scan CPU seconds"
	encodeParquetCPU     = "encode Parquet CPU seconds"
	parquetBytes         = "Parquet bytes"
	arrowBytes           = "Arrow bytes"
)

// runExport exports the rows that the pipeline stage has left in s.Dir. The sample
// is of Parquet as a whole; the parts are in Extra.
func runExport(ctx context.Context, s *spec) (got sample, err error) {
	c, db, err := openAtRest(ctx, s, true)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	sn, ok := db.(store.Snapshotter)
	if !ok {
		return sample{}, fmt.Errorf("%w: engine %s has no snapshots", store.ErrUnsupported, db.Traits().Name)
	}
	snapshot, err := sn.Snapshot(ctx)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, snapshot.Close()) }()
	desc, err := snapshot.Table(ctx, rowTable)
	if err != nil {
		return sample{}, err
	}
	jobSpec := c.Jobs[rowTable]
	schema, err := columnar.Compile(jobSpec.Columns, columnar.RowsMode(jobSpec.Rows), desc)
	if err != nil {
		return sample{}, err
	}

	// Warms the caches up, too: the batches are what the encoders get.
	batches, err := collect(ctx, snapshot, schema)
	if err != nil {
		return sample{}, err
	}
	extra := map[string]float64{}
	scan := func() error { return scanAll(ctx, snapshot, s.Events) }
	encodeParquet := func() error {
		return encode(batches, func() (columnar.FileWriter, error) {
			return parquetfile.NewWriter(io.Discard, schema.Columns(), &parquetfile.Options{Codec: jobSpec.Compression, Order: columnar.Ascending(schema.Order()...)})
		})
	}
	if err := parts(extra, scan, encodeParquet); err != nil {
		return sample{}, err
	}
	extra[encodeArrowSeconds], err = timed(func() error {
		return encode(batches, func() (columnar.FileWriter, error) {
			return arrowfile.NewWriter(io.Discard, schema.Columns(), &arrowfile.Options{Codec: jobSpec.Compression})
		})
	})
	if err != nil {
		return sample{}, err
	}
	clear(batches)
	if err := arrowSides(ctx, snapshot, jobSpec.Columns, schema, jobSpec.Compression, extra); err != nil {
		return sample{}, err
	}
	out := scratch(s, "export-out")
	defer func() { err = errors.Join(err, os.RemoveAll(out)) }()
	whole := func(format string) (int64, error) {
		spec := jobSpec
		spec.Formats = []string{format}
		job, err := jobs.Compile(rowTable+"_"+format, &spec, desc)
		if err != nil {
			return 0, err
		}
		m, err := jobs.Run(ctx, &jobs.RunOptions{Job: job, Source: snapshot, Out: out})
		if err != nil {
			return 0, err
		}
		if len(m.Totals) != 1 || m.Totals[0].Rows != int64(s.Events) {
			return 0, fmt.Errorf("WRONG: the export's totals are %v, and there were %d events", m.Totals, s.Events)
		}
		return m.Totals[0].Bytes, nil
	}
	var size int64
	extra[wholeArrowSeconds], err = timed(func() (err error) {
		size, err = whole(jobs.Arrow)
		return err
	})
	if err != nil {
		return sample{}, err
	}
	extra[arrowBytes] = float64(size)
	if _, got, err = measured(s, func() (err error) {
		size, err = whole(jobs.Parquet)
		return err
	}); err != nil {
		return sample{}, err
	}
	extra[parquetBytes] = float64(size)
	got.Extra = extra
	return got, nil
}

// parts measures what an export does besides building columns and writing files: on
// all cores, as it does, and on one.
func parts(extra map[string]float64, scan, encodeParquet func() error) error {
	for _, part := range []struct {
		do                func() error
		all, cpu, oneCore string
	}{
		{scan, scanSeconds, scanCPU, scanOneSeconds},
		{encodeParquet, encodeParquetSeconds, encodeParquetCPU, encodeOneSeconds},
	} {
		var err error
		before, err := processCPU()
		if err != nil {
			return err
		}
		if extra[part.all], err = timed(part.do); err != nil {
			return err
		}
		after, err := processCPU()
		if err != nil {
			return err
		}
		extra[part.cpu] = (after - before).Seconds()
		if extra[part.oneCore], err = onOneCore(part.do); err != nil {
			return err
		}
	}
	return nil
}

func timed(f func() error) (float64, error) {
	runtime.GC()
	begun := time.Now()
	err := f()
	return time.Since(begun).Seconds(), err
}

func onOneCore(f func() error) (float64, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	return timed(f)
}

// perRegion calls f for each region of the rows' table, as many at a time as there
// are cores, as an export does.
func perRegion(ctx context.Context, r store.Reader, f func(store.Scanner) error) error {
	regions, err := r.Regions(ctx, rowTable)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, info := range regions.All() {
		g.Go(func() error {
			return f(r.Scan(ctx, &store.Scan{Table: rowTable, Start: info.Start, Stop: info.Stop}))
		})
	}
	return g.Wait()
}

func scanAll(ctx context.Context, r store.Reader, want int) error {
	var mu sync.Mutex
	total := 0
	err := perRegion(ctx, r, func(s store.Scanner) error {
		rows := 0
		err := each(s, func(*cell.Row) error { rows++; return nil })
		mu.Lock()
		defer mu.Unlock()
		total += rows
		return err
	})
	if err == nil && total != want {
		err = fmt.Errorf("scanned %d rows of %d", total, want)
	}
	return err
}

// collect scans all rows into batches of their own.
func collect(ctx context.Context, r store.Reader, schema *columnar.Schema) ([]*columnar.Batch, error) {
	var mu sync.Mutex
	var all []*columnar.Batch
	err := perRegion(ctx, r, func(s store.Scanner) error {
		var mine []*columnar.Batch
		b := columnar.NewBuilder(schema)
		err := each(s, func(row *cell.Row) error {
			if b.Full() {
				mine = append(mine, b.Batch())
				b = columnar.NewBuilder(schema)
			}
			return b.Append(row)
		})
		mine = append(mine, b.Batch())
		mu.Lock()
		defer mu.Unlock()
		all = append(all, mine...)
		return err
	})
	return all, err
}

// encode writes the batches into one writer a core.
func encode(batches []*columnar.Batch, newWriter func() (columnar.FileWriter, error)) error {
	var g errgroup.Group
	cores := runtime.GOMAXPROCS(0)
	for part := range slices.Chunk(batches, (len(batches)+cores-1)/cores) {
		g.Go(func() error {
			w, err := newWriter()
			if err != nil {
				return err
			}
			for _, b := range part {
				if err := w.Write(b); err != nil {
					return err
				}
			}
			_, err = w.Close()
			return err
		})
	}
	return g.Wait()
}
