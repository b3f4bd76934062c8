package query

import (
	"context"
	"fmt"
	"time"

	"sluice/cell"
	"sluice/counters"
	"sluice/store"
)

// Rollup is where one rollup of a pipeline's mapping counts, by one set of its
// dimensions. Its fields are those of the rules that wrote it: nothing in the store
// says what they were.
type Rollup struct {
	Table           string
	counters.Rollup                // name, and the set's dimensions in their order
	Distinct        bool           // it counts different values
	Zone            *time.Location // in which days, weeks and months begin; nil = UTC
}

// Point is one bucket of a series, [Start, Stop).
type Point struct {
	Start, Stop cell.Timestamp
	Count       int64          // 0 where nothing was counted
	Time        cell.Timestamp // newest event time; 0 where nothing was counted
}

// MaxPoints is the most buckets of a series: 69 days of minutes.
const MaxPoints = 100_000

// Series returns what was counted for these values, one a dimension, in every
// bucket of b that [from, to) touches, also where that is nothing. The error wraps
// store.ErrInvalidArgument (values, times, more than MaxPoints buckets) or is one of
// Get's.
func (r *Rollup) Series(ctx context.Context, rd store.Reader, b counters.Bucket, values [][]byte, from, to cell.Timestamp) ([]Point, error) {
	row, err := r.row(values)
	if err != nil {
		return nil, err
	}
	names, err := r.names(b, from, to)
	if err != nil {
		return nil, err
	}
	zone := b.Zone(r.Zone)
	var points []Point
	for start := b.Truncate(from, zone); ; {
		stop := b.Next(start, zone)
		if len(points) == MaxPoints {
			return nil, r.invalid(fmt.Errorf("from %d to %d are more than %d buckets of a %s", from, to, MaxPoints, b))
		}
		points = append(points, Point{Start: start, Stop: stop})
		if start = stop; start >= to {
			break
		}
	}
	counted, err := Range(ctx, rd, r.Table, row, b.Family(r.Distinct), names)
	if err != nil {
		return nil, err
	}
	at := 0
	for i := range counted {
		c := &counted[i]
		start, err := b.ParseName(c.Qualifier, r.Zone)
		if err != nil {
			return nil, fmt.Errorf("read rollup %s of %s: row %q: %w", r.Head(), r.Table, row, err)
		}
		for at < len(points) && points[at].Start < start {
			at++
		}
		if at == len(points) || points[at].Start != start {
			return nil, fmt.Errorf("read rollup %s of %s: row %q: %s is no bucket of this zone", r.Head(), r.Table, row, c.Qualifier)
		}
		points[at].Count, points[at].Time = c.Count, c.Time
	}
	return points, nil
}

// Sum returns what was counted for these values, one a dimension, in the buckets of b
// that [from, to) touches, all together. The error is one of Series's.
func (r *Rollup) Sum(ctx context.Context, rd store.Reader, b counters.Bucket, values [][]byte, from, to cell.Timestamp) (Counter, error) {
	row, err := r.row(values)
	if err != nil {
		return Counter{}, err
	}
	names, err := r.names(b, from, to)
	if err != nil {
		return Counter{}, err
	}
	sum, _, err := Sum(ctx, rd, r.Table, row, b.Family(r.Distinct), names)
	sum.Estimate = r.Distinct
	return sum, err
}

// Group is what was counted for one combination of values.
type Group struct {
	Values   [][]byte // one a dimension
	Count    int64
	Time     cell.Timestamp // newest event time
	Estimate bool           // of a distinct count
}

// Top returns the n combinations of values that begin with these, and for which most
// was counted in the buckets of b that [from, to) touches, largest first; equal ones
// by their values. It reads the rows of all combinations, whether they were counted
// then or not, and keeps n of them in memory; n is 1..MaxTop. The error is one of
// Series's.
func (r *Rollup) Top(ctx context.Context, rd store.Reader, b counters.Bucket, values [][]byte, from, to cell.Timestamp, n int) ([]Group, error) {
	if err := r.Validate(); err != nil {
		return nil, r.invalid(err)
	}
	rows, err := r.Rows(values...)
	if err != nil {
		return nil, r.invalid(err)
	}
	names, err := r.names(b, from, to)
	if err != nil {
		return nil, err
	}
	top, err := Top(ctx, rd, r.Table, rows, b.Family(r.Distinct), names, n)
	if err != nil {
		return nil, err
	}
	groups := make([]Group, len(top))
	for i, t := range top {
		values, err := r.Values(t.Row)
		if err != nil {
			return nil, fmt.Errorf("read rollup of %s: %w", r.Table, err)
		}
		groups[i] = Group{Values: values, Count: t.Count, Time: t.Time, Estimate: r.Distinct}
	}
	return groups, nil
}

func (r *Rollup) invalid(err error) error {
	return fmt.Errorf("read rollup %s of %s: %w: %w", r.Head(), r.Table, store.ErrInvalidArgument, err)
}

func (r *Rollup) row(values [][]byte) ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, r.invalid(err)
	}
	row, err := r.Row(values...)
	if err != nil {
		return nil, r.invalid(err)
	}
	return row, nil
}

// names returns the qualifiers of the buckets that [from, to) touches. Total has one,
// whatever the times are.
func (r *Rollup) names(b counters.Bucket, from, to cell.Timestamp) (Buckets, error) {
	if b == counters.Total {
		return One([]byte("total")), nil
	}
	if from < 0 || from >= to {
		return Buckets{}, r.invalid(fmt.Errorf("the times [%d, %d) hold no bucket", from, to))
	}
	first, err := b.AppendName(nil, from, r.Zone)
	if err != nil {
		return Buckets{}, r.invalid(err)
	}
	last, err := b.AppendName(nil, to-1, r.Zone)
	if err != nil {
		return Buckets{}, r.invalid(err)
	}
	return Buckets{From: first, To: append(last, 0)}, nil
}
