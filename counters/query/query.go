// Package query reads counters back through a store.Reader: one counter, the
// series of a row's buckets, their sum, and the rows that count the most; and the
// same of what a pipeline's rollups have counted, by dimensions and time.
//
// A counter is read as an ordinary cell: its value is the count, 8 bytes
// big-endian, its timestamp the newest event time. So the package reads COUNTER
// families and incremented columns of ordinary families alike, from a running
// engine, from a snapshot of one, or over the network. A cell of a DISTINCT family
// is a sketch: its count is an estimate (counters.Sketch), and the sum of several is
// the estimate of how many different elements were in any of them.
//
// All functions are safe for concurrent use, and what they return belongs to the
// caller. They keep nothing and cache nothing; each call is one scan, which sees
// each row at one instant and different rows at different ones, unless the Reader
// is a snapshot.
package query

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"sluice/cell"
	"sluice/counters"
	"sluice/store"
)

// Counter is one counter, or the sum of several.
type Counter struct {
	Qualifier []byte // nil in a sum
	Count     int64
	Time      cell.Timestamp // newest event time
	Estimate  bool           // Count is of a DISTINCT family, with the relative standard error counters.SketchError
}

// reading is one counter as a scan finds it.
type reading struct {
	qualifier []byte
	count     int64
	sketch    *counters.Sketch // of a DISTINCT family; nil = count
	time      cell.Timestamp
}

func (r *reading) counter() Counter {
	c := Counter{Qualifier: r.qualifier, Count: r.count, Time: r.time}
	if r.sketch != nil {
		c.Count, c.Estimate = r.sketch.Count(), true
	}
	return c
}

// add sums r up with another. The sum of sketches is that of the union, made in
// o's memory or in r's.
func (r *reading) add(o *reading) {
	r.count += o.count
	r.time = max(r.time, o.time)
	switch {
	case o.sketch == nil:
	case r.sketch == nil:
		r.sketch = o.sketch
	default:
		r.sketch.Merge(o.sketch)
	}
}

// Buckets is the qualifiers in [From, To): a range of time buckets where
// qualifiers are dates. Empty From or To is unbounded; the zero value is all
// qualifiers.
type Buckets struct {
	From, To []byte
}

// One returns the Buckets that hold one qualifier only.
func One(qualifier []byte) Buckets {
	return Buckets{From: qualifier, To: append(bytes.Clone(qualifier), 0)}
}

// one reports whether b holds just the qualifier From: nothing lies between a
// string and the same with a zero byte.
func (b Buckets) one() bool {
	n := len(b.From)
	return len(b.To) == n+1 && b.To[n] == 0 && string(b.To[:n]) == string(b.From)
}

func (b Buckets) below(qualifier []byte) bool { return string(qualifier) < string(b.From) }
func (b Buckets) beyond(qualifier []byte) bool {
	return len(b.To) != 0 && string(qualifier) >= string(b.To)
}

// cellsPerRow bounds what a wide row (a counter a minute for years) needs in
// memory at once: at some 100 bytes a count it is 50 KiB, and 6 MiB of the largest
// sketches.
const cellsPerRow = 512

// Get returns one counter; ok is false where it was never incremented, was
// deleted or has expired. The error wraps store.ErrInvalidArgument (row),
// store.ErrTableNotFound, store.ErrFamilyNotFound, store.ErrNotANumber where the
// cell is no counter, or store.ErrCorrupt where it is a sketch that is broken.
func Get(ctx context.Context, r store.Reader, table string, row []byte, family string, qualifier []byte) (c Counter, ok bool, err error) {
	series, err := Range(ctx, r, table, row, family, One(qualifier))
	if err != nil || len(series) == 0 {
		return Counter{}, false, err
	}
	return series[0], true, nil
}

// Range returns the counters of one row and family in b, by ascending qualifier.
// Errors are those of Get.
func Range(ctx context.Context, r store.Reader, table string, row []byte, family string, b Buckets) ([]Counter, error) {
	return readRange(ctx, r, table, row, family, b, func(*reading) {})
}

// RangeAndSum returns what Range and Sum do, of one reading: what is counted meanwhile
// is in both or in none.
func RangeAndSum(ctx context.Context, r store.Reader, table string, row []byte, family string, b Buckets) (series []Counter, sum Counter, err error) {
	var all reading
	if series, err = readRange(ctx, r, table, row, family, b, all.add); err != nil {
		return nil, Counter{}, err
	}
	return series, all.counter(), nil
}

// readRange is Range that calls also with each counter, too. Its sketch is also's
// afterwards.
func readRange(ctx context.Context, r store.Reader, table string, row []byte, family string, b Buckets, also func(*reading)) ([]Counter, error) {
	var series []Counter
	err := scanRow(ctx, r, table, row, family, b, func(x *reading) {
		c := x.counter()
		c.Qualifier = bytes.Clone(c.Qualifier)
		if c.Qualifier == nil {
			c.Qualifier = []byte{}
		}
		series = append(series, c)
		also(x)
	})
	if err != nil {
		return nil, err
	}
	return series, nil
}

// Sum returns the sum of the counters of one row and family in b, with the newest
// of their times, and how many they are. The sum wraps around as counters do.
// Errors are those of Get.
func Sum(ctx context.Context, r store.Reader, table string, row []byte, family string, b Buckets) (sum Counter, n int, err error) {
	var all reading
	err = scanRow(ctx, r, table, row, family, b, func(x *reading) {
		all.add(x)
		n++
	})
	if err != nil {
		return Counter{}, 0, err
	}
	return all.counter(), n, nil
}

func scanRow(ctx context.Context, r store.Reader, table string, row []byte, family string, b Buckets, yield func(*reading)) error {
	if err := cell.CheckRow(row); err != nil {
		return fmt.Errorf("read counters of %s: %w: %w", table, store.ErrInvalidArgument, err)
	}
	s := &store.Scan{Table: table, Start: row, Stop: row, StopInclusive: true}
	return scan(ctx, r, s, family, b, func(_ []byte, x *reading) { yield(x) })
}

// scan runs s over the counters of family in b. The slices that yield gets are the
// scanner's; a sketch is its own.
func scan(ctx context.Context, r store.Reader, s *store.Scan, family string, b Buckets, yield func(row []byte, x *reading)) error {
	wrap := func(err error) error { return fmt.Errorf("read counters of %s:%s: %w", s.Table, family, err) }
	s.Columns = []store.Column{{Family: family, All: true}}
	if b.one() {
		s.Columns[0] = store.Column{Family: family, Qualifier: b.From}
	} else {
		s.Batch = cellsPerRow
		if len(b.From)+len(b.To) > 0 {
			// An engine seeks to the range; what follows here is for readers that
			// do not.
			f := &store.ColumnRangeFilter{MinInclusive: true}
			if len(b.From) > 0 {
				f.Min = b.From
			}
			if len(b.To) > 0 {
				f.Max = b.To
			}
			s.Filter = f
		}
	}
	single := len(s.Start) != 0 && s.StopInclusive && string(s.Start) == string(s.Stop)
	sc := r.Scan(ctx, s)
	for sc.Next() {
		row := sc.Row()
		for i := range row.Cells {
			c := &row.Cells[i]
			if b.below(c.Qualifier) {
				continue
			}
			if b.beyond(c.Qualifier) {
				if single {
					return closed(sc, wrap)
				}
				break
			}
			x := reading{qualifier: c.Qualifier, time: c.Time}
			if err := x.read(c.Value); err != nil {
				sc.Close()
				if errors.Is(err, store.ErrCorrupt) && ordinary(ctx, r, s.Table, family) {
					err = notANumber(c.Value) // a text in Cyrillic begins as a sketch does
				}
				return wrap(fmt.Errorf("row %q, qualifier %q: %w", row.Key, c.Qualifier, err))
			}
			yield(row.Key, &x)
		}
	}
	if err := sc.Err(); err != nil {
		sc.Close()
		return wrap(err)
	}
	return closed(sc, wrap)
}

// read takes a cell's value: a count of 8 bytes, or a sketch.
func (r *reading) read(value []byte) (err error) {
	switch {
	case len(value) == 8:
		r.count = int64(binary.BigEndian.Uint64(value))
		return nil
	case counters.IsSketch(value):
		if r.sketch, err = counters.DecodeSketch(value); err != nil {
			return fmt.Errorf("%w: %w", store.ErrCorrupt, err)
		}
		return nil
	}
	return notANumber(value)
}

func notANumber(value []byte) error {
	return fmt.Errorf("%w: it has %d bytes", store.ErrNotANumber, len(value))
}

// ordinary reports whether the schema says that a family holds no sketches. A reader
// that has no schema does not say so.
func ordinary(ctx context.Context, r store.Reader, table, family string) bool {
	schema, ok := r.(interface {
		Table(ctx context.Context, name string) (*store.TableDescriptor, error)
	})
	if !ok {
		return false
	}
	t, err := schema.Table(ctx, table)
	if err != nil {
		return false
	}
	f := t.Family(family)
	return f != nil && !f.Distinct
}

func closed(sc store.Scanner, wrap func(error) error) error {
	if err := sc.Close(); err != nil {
		return wrap(err)
	}
	return nil
}
