package query

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"slices"

	"sluice/cell"
	"sluice/store"
)

// Total is the sum of one row's counters.
type Total struct {
	Row      []byte
	Count    int64
	Time     cell.Timestamp // newest event time among them
	Estimate bool           // of a DISTINCT family
}

// MaxTop is the largest n of Top: what is kept in memory is a heap of n rows, and
// whoever wants more of them wants an export.
const MaxTop = 100_000

// Top returns the n rows in rows whose counters of family in b have the largest
// sums, largest first; rows with equal sums come by ascending key. Rows without a
// counter in b do not appear. It reads the family of every row in rows and keeps n
// of them in memory; n is 1..MaxTop. Sums wrap around as counters do; rows of a
// DISTINCT family rank by the estimates of their unions. The error
// wraps store.ErrInvalidArgument (n) or is one of Get's.
func Top(ctx context.Context, r store.Reader, table string, rows cell.Range, family string, b Buckets, n int) ([]Total, error) {
	if n < 1 || n > MaxTop {
		return nil, fmt.Errorf("read top rows of %s:%s: %w: n is %d, want 1..%d", table, family, store.ErrInvalidArgument, n, MaxTop)
	}
	var best totals
	var row []byte // the current one; its memory is reused; empty = none yet, as no row key is
	var sum reading
	finish := func() {
		if len(row) == 0 {
			return
		}
		c := sum.counter()
		current := Total{Row: row, Count: c.Count, Time: c.Time, Estimate: c.Estimate}
		switch {
		case len(best) < n:
			current.Row = bytes.Clone(row)
			heap.Push(&best, current)
		case rank(current, best[0]) < 0:
			// The row that falls out leaves its memory to the one that comes.
			current.Row = append(best[0].Row[:0], row...)
			best[0] = current
			heap.Fix(&best, 0)
		}
	}
	s := &store.Scan{Table: table, Start: rows.Start, Stop: rows.Stop}
	err := scan(ctx, r, s, family, b, func(key []byte, x *reading) {
		if string(key) != string(row) {
			finish()
			row, sum = append(row[:0], key...), reading{}
		}
		sum.add(x)
	})
	if err != nil {
		return nil, err
	}
	finish()
	slices.SortFunc(best, rank)
	return best, nil
}

// rank orders a before b where a belongs higher in the list.
func rank(a, b Total) int {
	if c := cmp.Compare(b.Count, a.Count); c != 0 {
		return c
	}
	return bytes.Compare(a.Row, b.Row)
}

// totals is a heap whose root is the row that falls out first.
type totals []Total

func (t totals) Len() int           { return len(t) }
func (t totals) Less(i, j int) bool { return rank(t[i], t[j]) > 0 }
func (t totals) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *totals) Push(x any)        { *t = append(*t, x.(Total)) }
func (t *totals) Pop() any {
	last := len(*t) - 1
	x := (*t)[last]
	*t = (*t)[:last]
	return x
}
