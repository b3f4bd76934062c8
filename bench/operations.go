package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sync/errgroup"

	"sluice/cell"
	"sluice/config"
	"sluice/store"
)

// The parts of the operations stage, keys of sample.Extra. Scans in seconds for all
// rows of a table, gets in ns each, writes a second.
const (
	coresScanSeconds    = "scan on all cores seconds"
	packedScanSeconds   = "packed scan seconds"
	unpackedScanSeconds = "unpacked scan seconds"
	rawPackedSeconds    = "raw scan of packed key-values seconds"
	rawUnpackedSeconds  = "raw scan of a key a cell seconds"
	rawOneSeconds       = "raw scans of packed key-values, one after another, seconds"
	rawCoresSeconds     = "raw scans of packed key-values, a part a core, seconds"
	getPresentNanos     = "get present ns"
	getAbsentNanos      = "get absent ns"
	incrementRate       = "increments a second, %d callers"
	checkAndPutRate     = "check-and-puts a second, %d callers"
)

// callers are the numbers of clients that write one by one.
var callers = [...]int{8, 256}

// runOperations reads and writes the store that the pipeline stage has left in
// s.Dir, as clients of the API do. The sample is a scan of all rows on one core;
// everything else is in Extra.
func runOperations(ctx context.Context, s *spec) (got sample, err error) {
	extra := map[string]float64{}
	if got, err = engineOperations(ctx, s, extra); err != nil {
		return sample{}, err
	}
	got.Extra = extra
	return got, rawScans(s, extra)
}

func engineOperations(ctx context.Context, s *spec, extra map[string]float64) (got sample, err error) {
	_, db, err := openAtRest(ctx, s, false)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rows, err := someRows(ctx, db, s.Events) // warms the caches up, too
	if err != nil {
		return sample{}, err
	}
	if _, got, err = measured(s, func() error { return scanOne(ctx, db, rowTable, s.Events) }); err != nil {
		return sample{}, err
	}
	if extra[coresScanSeconds], err = timed(func() error { return scanAll(ctx, db, s.Events) }); err != nil {
		return sample{}, err
	}
	if err := gets(ctx, db, rows, extra); err != nil {
		return sample{}, err
	}
	if err := packings(ctx, db, s, extra); err != nil {
		return sample{}, err
	}
	for _, n := range callers {
		if err := writes(ctx, db, s, n, extra); err != nil {
			return sample{}, err
		}
	}
	return got, nil
}

// rawScans reads every key-value of the tables that packings has made, the last two
// of all, by Pebble's own iterator: the second time, with warm caches, is measured.
func rawScans(s *spec, extra map[string]float64) (err error) {
	db, err := openRaw(s, s.Dir)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, db.Close())
		db.cache.Unref()
	}()
	before := cell.PrefixEnd([]byte{cell.TagData})
	rows := packingRows(s)
	for _, t := range []struct {
		key  string
		want int
	}{{rawUnpackedSeconds, rows * len(packingColumns)}, {rawPackedSeconds, rows}} {
		prefix, err := lastTable(db.DB, before)
		if err != nil {
			return err
		}
		before = prefix
		scan := func() error { return rawScan(db.DB, prefix, cell.PrefixEnd(prefix), t.want) }
		if err := scan(); err != nil {
			return err
		}
		if extra[t.key], err = timed(scan); err != nil {
			return err
		}
	}
	return rawCores(db.DB, before, rows, extra)
}

// rawCores scans the packed table under prefix by Pebble's iterators, by one and by one a
// core: more than they gain by a core more nobody does on this machine.
func rawCores(db *pebble.DB, prefix []byte, rows int, extra map[string]float64) (err error) {
	const times = 20 // one takes some milliseconds
	each := func(lower, upper []byte, want int) func() error {
		return func() error {
			for range times {
				if err := rawScan(db, lower, upper, want); err != nil {
					return err
				}
			}
			return nil
		}
	}
	if extra[rawOneSeconds], err = timed(each(prefix, cell.PrefixEnd(prefix), rows)); err != nil {
		return err
	}
	// Rows are numbers in hexadecimal, all over their range.
	cores := min(runtime.GOMAXPROCS(0), 16)
	bounds := [][]byte{prefix}
	for i := 1; i < cores; i++ {
		bounds = append(bounds, append(bytes.Clone(prefix), "0123456789abcdef"[i*16/cores]))
	}
	bounds = append(bounds, cell.PrefixEnd(prefix))
	extra[rawCoresSeconds], err = timed(func() error {
		var g errgroup.Group
		for i := range cores {
			g.Go(each(bounds[i], bounds[i+1], -1))
		}
		return g.Wait()
	})
	return err
}

// lastTable returns the prefix of the keys of the last table before a key, which has one
// family.
func lastTable(db *pebble.DB, before []byte) (prefix []byte, err error) {
	it, err := db.NewIter(nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	if !it.SeekLT(before) {
		return nil, errors.Join(errors.New("no table"), it.Error())
	}
	return bytes.Clone(it.Key()[:6]), nil // tag, table and family
}

// rawScan reads the key-values from lower to upper, of which there must be want, or some
// where that is -1.
func rawScan(db *pebble.DB, lower, upper []byte, want int) (err error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if len(value) == 0 {
			return fmt.Errorf("key %x has no value", it.Key())
		}
		n++
	}
	if want >= 0 && n != want || n == 0 {
		return fmt.Errorf("raw Pebble has %d key-values from %x to %x, want %d", n, lower, upper, want)
	}
	return it.Error()
}

// scanOne scans a table from its first row to its last.
func scanOne(ctx context.Context, r store.Reader, table string, want int) error {
	rows := 0
	err := each(r.Scan(ctx, &store.Scan{Table: table}), func(row *cell.Row) error {
		if len(row.Cells) != 6 {
			return fmt.Errorf("row %q has %d columns, want 6", row.Key, len(row.Cells))
		}
		rows++
		return nil
	})
	if err == nil && rows != want {
		err = fmt.Errorf("scanned %d rows of %d", rows, want)
	}
	return err
}

// someRows returns up to 10,000 row keys from all over the table, in an order that
// jumps.
func someRows(ctx context.Context, r store.Reader, events int) ([][]byte, error) {
	step := max(1, events/10_000)
	var keys [][]byte
	n := 0
	err := each(r.Scan(ctx, &store.Scan{Table: rowTable}), func(row *cell.Row) error {
		if n++; n%step == 0 {
			keys = append(keys, bytes.Clone(row.Key))
		}
		return nil
	})
	jumping := make([][]byte, len(keys))
	for i := range keys {
		jumping[i] = keys[i*7919%len(keys)]
	}
	return jumping, err
}

func gets(ctx context.Context, r store.Reader, rows [][]byte, extra map[string]float64) error {
	for key, change := range map[string]func([]byte) []byte{
		getPresentNanos: func(row []byte) []byte { return row },
		getAbsentNanos:  func(row []byte) []byte { return append(row[:len(row)-1:len(row)-1], row[len(row)-1]^0x55, 1) },
	} {
		want := key == getPresentNanos
		seconds, err := timed(func() error {
			for _, row := range rows {
				row = change(row)
				sc := r.Scan(ctx, &store.Scan{Table: rowTable, Start: row, Stop: row, StopInclusive: true})
				found := sc.Next()
				if err := errors.Join(sc.Err(), sc.Close()); err != nil {
					return err
				}
				if found != want {
					return fmt.Errorf("row %q: found %t, want %t", row, found, want)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		extra[key] = seconds / float64(len(rows)) * 1e9
	}
	return nil
}

var packingColumns = [...][]byte{[]byte("agent"), []byte("country"), []byte("duration"), []byte("page"), []byte("referrer"), []byte("user")}

func packingRows(s *spec) int { return min(s.Events, 100_000) }

// packings scans two tables with the same rows, whose six puts came in one
// mutation, and in six.
func packings(ctx context.Context, db config.Engine, s *spec, extra map[string]float64) error {
	n, names := packingRows(s), packingColumns
	value := []byte("0123456789abcdef0123456789abcdef")
	for _, t := range []struct {
		name, key string
		mutations int // of a row
	}{{"bench_packed", packedScanSeconds, 1}, {"bench_unpacked", unpackedScanSeconds, len(names)}} {
		if err := db.CreateTable(ctx, &store.TableDescriptor{Name: t.name, Families: []store.FamilyDescriptor{store.NewFamily("f")}}, nil); err != nil {
			return err
		}
		var b store.Batch
		for i := 0; i < n; i++ {
			row := fmt.Appendf(nil, "%08x", uint32(i)*2654435761)
			for part := range t.mutations {
				m := cell.Mutation{Table: t.name, Row: row}
				for k := part; k < len(names); k += t.mutations {
					m.Put("f", names[k], 1_700_000_000_000, value)
				}
				b.Add(int64(i), m)
			}
			if (i+1)%10_000 == 0 || i == n-1 {
				if err := db.Apply(ctx, &b); err != nil {
					return err
				}
				b.Reset()
			}
		}
		if err := db.Flush(ctx); err != nil {
			return err
		}
		if err := scanOne(ctx, db, t.name, n); err != nil {
			return err
		}
		seconds, err := timed(func() error { return scanOne(ctx, db, t.name, n) })
		if err != nil {
			return err
		}
		extra[t.key] = seconds
	}
	return nil
}

// writes measures single increments and check-and-puts of n callers.
func writes(ctx context.Context, db config.Engine, s *spec, n int, extra map[string]float64) error {
	each := max(2, min(s.Events/50, 20_000)/n) // operations of a caller
	rate := func(f func(caller, i int) error) (float64, error) {
		begun := time.Now()
		g, ctx := errgroup.WithContext(ctx)
		for caller := range n {
			g.Go(func() error {
				for i := range each {
					if err := errors.Join(ctx.Err(), f(caller, i)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		err := g.Wait()
		return float64(n*each) / time.Since(begun).Seconds(), err
	}
	var err error
	extra[fmt.Sprintf(incrementRate, n)], err = rate(func(caller, _ int) error {
		m := cell.Mutation{Table: countTable, Row: fmt.Appendf(nil, "bench-%d-%d", n, caller)}
		m.Increment("hour", []byte("x"), 1)
		_, err := db.MutateRow(ctx, nil, &m)
		return err
	})
	if err != nil {
		return err
	}
	extra[fmt.Sprintf(checkAndPutRate, n)], err = rate(func(caller, i int) error {
		cond := &store.Cond{Family: "e", Qualifier: []byte("turn"), Op: store.Equal, Value: binary.BigEndian.AppendUint64(nil, uint64(i))}
		if i == 0 {
			cond.Value = nil // absent
		}
		m := cell.Mutation{Table: rowTable, Row: fmt.Appendf(nil, "bench-%d-%d", n, caller)}
		m.Put("e", []byte("turn"), cell.Latest, binary.BigEndian.AppendUint64(nil, uint64(i)+1))
		r, err := db.MutateRow(ctx, cond, &m)
		if err == nil && !r.Applied {
			err = fmt.Errorf("row %s, turn %d: the condition did not hold", m.Row, i)
		}
		return err
	})
	return err
}

// operationTable has what clients of the API get.
func (r *report) operationTable() *table {
	t := &table{head: []string{"operations of the store", "median", "min..max", "unit"}}
	add := func(name, unit string, s spread) {
		t.rows = append(t.rows, []string{name, number(s.median), number(s.min) + ".." + number(s.max), unit})
	}
	key := func(k string, scale float64) spread {
		return r.over(operationsStage, func(s *sample) float64 { return s.Extra[k] * scale })
	}
	add("scan of all rows, one core", "k rows/s", r.rates(operationsStage))
	add("get of a row that is there", "µs", key(getPresentNanos, 1e-3))
	add("get of a row that is not", "µs", key(getAbsentNanos, 1e-3))
	for _, n := range callers {
		add(fmt.Sprintf("increments, fsynced, %d callers", n), "k/s", key(fmt.Sprintf(incrementRate, n), 1e-3))
		add(fmt.Sprintf("check-and-puts, fsynced, %d callers", n), "k/s", key(fmt.Sprintf(checkAndPutRate, n), 1e-3))
	}
	r.besideOperations(add)
	return t
}

// operationRatios are the ratios of the operations.
func (r *report) operationRatios(add func(name, goal string, s spread)) {
	over := func(f func(*sample) float64) spread { return r.over(operationsStage, f) }
	const cells = "cells of a scan, %s / of Pebble's iterator, a key a cell"
	add(fmt.Sprintf(cells, "packed rows"), "≥ 0.80", over(func(s *sample) float64 { return s.Extra[rawUnpackedSeconds] / s.Extra[packedScanSeconds] }))
	add(fmt.Sprintf(cells, "a key a cell"), "", over(func(s *sample) float64 { return s.Extra[rawUnpackedSeconds] / s.Extra[unpackedScanSeconds] }))
	add("rows of a scan, packed / of Pebble's iterator, packed", "", over(func(s *sample) float64 { return s.Extra[rawPackedSeconds] / s.Extra[packedScanSeconds] }))
	add("scan by region on all cores / on one", "≥ 1.70", over(func(s *sample) float64 { return s.Seconds / s.Extra[coresScanSeconds] }))
	add("Pebble's iterators on all cores / on one, packed", "", over(func(s *sample) float64 { return s.Extra[rawOneSeconds] / s.Extra[rawCoresSeconds] }))
	add("scan of packed rows / of a key a cell", "", over(func(s *sample) float64 { return s.Extra[unpackedScanSeconds] / s.Extra[packedScanSeconds] }))
	add("time of a get of no row / of a row", "≤ 0.30", over(func(s *sample) float64 { return s.Extra[getAbsentNanos] / s.Extra[getPresentNanos] }))
}
