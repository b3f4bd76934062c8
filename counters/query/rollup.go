package query

import (
	"bytes"
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
// bucket of b that [from, to) touches, also where that is nothing. A bucket ends where
// the next one begins, but where clocks went back over midnight: a day and the one
// before it, each from the first instant that is of it to the last, overlap there. The
// error wraps store.ErrInvalidArgument (no such bucket, values, times, more than
// MaxPoints buckets) or is one of Get's.
func (r *Rollup) Series(ctx context.Context, rd store.Reader, b counters.Bucket, values [][]byte, from, to cell.Timestamp) ([]Point, error) {
	points, _, err := r.SeriesAndSum(ctx, rd, b, values, from, to)
	return points, err
}

// SeriesAndSum returns what Series and Sum do, of one reading: what is counted
// meanwhile is in both or in none.
func (r *Rollup) SeriesAndSum(ctx context.Context, rd store.Reader, b counters.Bucket, values [][]byte, from, to cell.Timestamp) ([]Point, Counter, error) {
	row, err := r.row(values)
	if err != nil {
		return nil, Counter{}, err
	}
	names, err := r.names(b, from, to)
	if err != nil {
		return nil, Counter{}, err
	}
	o, err := r.buckets(b, from, to, names)
	if err != nil {
		return nil, Counter{}, err
	}
	var all reading
	var bad error
	at := 0
	err = scanRow(ctx, rd, r.Table, row, b.Family(r.Distinct), names, func(x *reading) {
		c := x.counter()
		for at < len(o.names) && o.names[at] < string(c.Qualifier) {
			at++
		}
		switch {
		case bad != nil:
		case at == len(o.names) || o.names[at] != string(c.Qualifier):
			if _, bad = b.ParseName(c.Qualifier, r.Zone); bad == nil {
				bad = fmt.Errorf("%s is no bucket of this zone", c.Qualifier)
			}
			bad = fmt.Errorf("read rollup %s of %s: row %q: %w", r.Head(), r.Table, row, bad)
		default:
			o.points[at].Count, o.points[at].Time = c.Count, c.Time
			all.add(x)
		}
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return nil, Counter{}, err
	}
	sum := all.counter()
	sum.Estimate = r.Distinct
	return o.points, sum, nil
}

// stretch is an unbroken time in which a bucket goes on.
type stretch struct {
	start, stop cell.Timestamp
	name        string
}

// at returns the stretch that t is in; ok is false after the last one that has a name.
func (r *Rollup) at(b counters.Bucket, t cell.Timestamp) (s stretch, ok bool) {
	name, err := b.AppendName(nil, max(0, t), r.Zone)
	if err != nil {
		return stretch{}, false
	}
	zone := b.Zone(r.Zone)
	start := b.Truncate(max(0, t), zone)
	return stretch{start, b.Next(start, zone), string(name)}, true
}

// apart is where two stretches of one bucket are: the second is the second one after the
// first, as only the next day, for less than a day, comes between.
const apart = 2

// bucketsOf is points and their names, by which they are sorted.
type bucketsOf struct {
	points []Point
	names  []string
}

// add adds a stretch to its bucket.
func (o *bucketsOf) add(s stretch) {
	for i := len(o.names) - 1; i >= 0 && i >= len(o.names)-apart; i-- {
		if o.names[i] == s.name {
			o.points[i].Stop = s.stop
			return
		}
	}
	o.points, o.names = append(o.points, Point{Start: s.start, Stop: s.stop}), append(o.names, s.name)
}

// buckets returns the buckets that [from, to) touches, which names has named.
func (r *Rollup) buckets(b counters.Bucket, from, to cell.Timestamp, named Buckets) (*bucketsOf, error) {
	o := &bucketsOf{}
	s, _ := r.at(b, from)
	if b == counters.Total {
		o.add(s)
		return o, nil
	}
	for k := 0; k < apart && s.start > 0; k++ { // where the first one may have begun
		s, _ = r.at(b, s.start-1)
	}
	for ok, after := true, 0; ok && after < apart; s, ok = r.at(b, s.stop) {
		if s.start >= to { // where the last one may go on
			after++
		}
		if named.below([]byte(s.name)) || named.beyond([]byte(s.name)) {
			continue
		}
		if o.add(s); len(o.points) > MaxPoints {
			return nil, r.invalid(fmt.Errorf("from %d to %d are more than %d buckets of a %s", from, to, MaxPoints, b))
		}
	}
	return o, nil
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
	zone, known := b.Zone(r.Zone), b >= counters.Minute && b <= counters.Total
	if from >= to || known && to <= b.Truncate(0, zone) {
		return Buckets{}, r.invalid(fmt.Errorf("the times [%d, %d) hold no %s from 1970 on", from, to, b))
	}
	from, to = max(0, from), max(1, to) // no event is before 1970, though the bucket of 1970's first may begin there
	first, err := b.AppendName(nil, from, r.Zone)
	if err != nil {
		return Buckets{}, r.invalid(err)
	}
	last, err := b.AppendName(nil, to-1, r.Zone)
	if err != nil {
		return Buckets{}, r.invalid(err)
	}
	// Where clocks went back over midnight, the name of a day comes before that of its eve.
	if next := b.Next(b.Truncate(from, zone), zone); next < to {
		if name, err := b.AppendName(nil, next, r.Zone); err == nil && bytes.Compare(name, first) < 0 {
			first = name
		}
	}
	if before := b.Truncate(to-1, zone) - 1; before >= from {
		if name, err := b.AppendName(nil, before, r.Zone); err == nil && bytes.Compare(name, last) > 0 {
			last = name
		}
	}
	return Buckets{From: first, To: append(last, 0)}, nil
}
