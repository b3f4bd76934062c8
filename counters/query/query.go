// Package query reads counters back through a store.Reader: one counter, the
// series of a row's buckets, their sum, and the rows that count the most.
//
// A counter is read as an ordinary cell: its value is the count, 8 bytes
// big-endian, its timestamp the newest event time. So the package reads COUNTER
// families and incremented columns of ordinary families alike, from a running
// engine, from a snapshot of one, or over the network.
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
	"fmt"

	"sluice/cell"
	"sluice/store"
)

// Counter is one counter, or the sum of several.
type Counter struct {
	Qualifier []byte // nil in a sum
	Count     int64
	Time      cell.Timestamp // newest event time
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
// memory at once; at some 100 bytes a cell it is 400 KiB.
const cellsPerRow = 4096

// Get returns one counter; ok is false where it was never incremented, was
// deleted or has expired. The error wraps store.ErrInvalidArgument (row),
// store.ErrTableNotFound, store.ErrFamilyNotFound, or store.ErrNotANumber where
// the cell is no counter.
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
	var series []Counter
	err := scanRow(ctx, r, table, row, family, b, func(c Counter) {
		c.Qualifier = bytes.Clone(c.Qualifier)
		if c.Qualifier == nil {
			c.Qualifier = []byte{}
		}
		series = append(series, c)
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
	err = scanRow(ctx, r, table, row, family, b, func(c Counter) {
		sum.Count += c.Count
		sum.Time = max(sum.Time, c.Time)
		n++
	})
	if err != nil {
		return Counter{}, 0, err
	}
	return sum, n, nil
}

func scanRow(ctx context.Context, r store.Reader, table string, row []byte, family string, b Buckets, yield func(Counter)) error {
	if err := cell.CheckRow(row); err != nil {
		return fmt.Errorf("read counters of %s: %w: %w", table, store.ErrInvalidArgument, err)
	}
	s := &store.Scan{Table: table, Start: row, Stop: row, StopInclusive: true}
	return scan(ctx, r, s, family, b, func(_ []byte, c Counter) { yield(c) })
}

// scan runs s over the counters of family in b. The slices that yield gets are the
// scanner's.
func scan(ctx context.Context, r store.Reader, s *store.Scan, family string, b Buckets, yield func(row []byte, c Counter)) error {
	wrap := func(err error) error { return fmt.Errorf("read counters of %s:%s: %w", s.Table, family, err) }
	s.Columns = []store.Column{{Family: family, All: true}}
	if b.one() {
		s.Columns[0] = store.Column{Family: family, Qualifier: b.From}
	} else {
		s.Batch = cellsPerRow
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
			if len(c.Value) != 8 {
				err := fmt.Errorf("row %q, qualifier %q: %w: it has %d bytes", row.Key, c.Qualifier, store.ErrNotANumber, len(c.Value))
				sc.Close()
				return wrap(err)
			}
			yield(row.Key, Counter{Qualifier: c.Qualifier, Count: int64(binary.BigEndian.Uint64(c.Value)), Time: c.Time})
		}
	}
	if err := sc.Err(); err != nil {
		sc.Close()
		return wrap(err)
	}
	return closed(sc, wrap)
}

func closed(sc store.Scanner, wrap func(error) error) error {
	if err := sc.Close(); err != nil {
		return wrap(err)
	}
	return nil
}
