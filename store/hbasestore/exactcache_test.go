package hbasestore

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// TestUnusedPartitions: what is kept of a partition that has no batch any more, as another
// process has it, is dropped after a while, and takes no share of the cache then.
func TestUnusedPartitions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newExact(nil, 100)
		apply := func(number int32, from int64) (known bool) {
			p := x.take(&store.Advance{Source: views, Partition: number, From: from})
			known = p.known
			p.known, p.state.next = true, from+1
			x.give(p, nil)
			return known
		}
		apply(0, 0)
		apply(1, 0)
		for n := int64(1); n < 25; n++ {
			time.Sleep(time.Minute)
			if !apply(0, n) {
				t.Errorf("minute %d: one with a batch a minute was dropped", n)
			}
			if want := n < 10; (len(x.partitions) == 2) != want {
				t.Errorf("minute %d: Got %d partitions", n, len(x.partitions))
			}
		}
		if share := x.share(); share != 100 {
			t.Errorf("Got a share of %d", share)
		}
		if apply(1, 1) {
			t.Error("One without a batch for a while was kept")
		}
	})
}

// TestCacheIsShared: partitions that have a batch in work at the same time share the cache as
// those do that wait.
func TestCacheIsShared(t *testing.T) {
	t.Parallel()
	const partitions, bases = 20, 1000
	x := newExact(nil, bases)
	var ps []*partition
	for n := range int32(partitions) {
		ps = append(ps, x.take(&store.Advance{Source: views, Partition: n}))
	}
	for round := range 50 {
		for n, p := range ps {
			for i := range 20 {
				p.bases.put(fmt.Sprint(round, i), base{})
			}
			x.give(p, nil)
			if ps[n] = x.take(&store.Advance{Source: views, Partition: int32(n)}); ps[n] != p {
				t.Fatal("It was not kept")
			}
		}
	}
	kept := 0
	for _, p := range ps {
		kept += p.bases.young.weight + p.bases.old.weight
	}
	if kept > 2*bases || kept < bases/2 {
		t.Errorf("Got %d counters of %d partitions, want about %d", kept, partitions, bases)
	}
}

// TestLongKeysWeigh: what is kept of counters with long rows is as many bytes as of others.
func TestLongKeysWeigh(t *testing.T) {
	t.Parallel()
	var short, long baseCache
	short.put("page views", base{})
	long.put(strings.Repeat("p", 10*counterBytes), base{})
	if short.young.weight != 1 || long.young.weight != 11 {
		t.Errorf("Got weights of %d and %d", short.young.weight, long.young.weight)
	}
}

// largeRows are rows of a size, and the bytes of the largest page of them that was asked for.
type largeRows struct {
	cells
	rows, size, largest int
}

func (l *largeRows) scanRows(_ context.Context, _ string, _ []string, start []byte, n int) (out []*hbase.TResult_, err error) {
	for i := range l.rows {
		if row := fmt.Appendf(nil, "%05d", i); bytes.Compare(row, start) >= 0 && len(out) < n {
			out = append(out, &hbase.TResult_{Row: row, ColumnValues: []*hbase.TColumnValue{{Value: make([]byte, l.size)}}})
		}
	}
	l.largest = max(l.largest, len(out)*l.size)
	return out, nil
}

// TestPagesOfLargeRows: what reads all rows of counters, to remove or switch them, does not
// have the gateway hold many large ones at once.
func TestPagesOfLargeRows(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, 5 << 10, 400 << 10, 3 << 20} {
		l := &largeRows{rows: 250, size: size}
		if size > 1<<20 {
			l.rows = 7
		}
		rows := 0
		if err := newExact(l, 0).each(t.Context(), "t", nil, counterRows, func(*hbase.TResult_) error { rows++; return nil }); err != nil || rows != l.rows {
			t.Errorf("%d bytes: Got %d rows, %v", size, rows, err)
		}
		if l.largest > max(maxCallBytes, size) {
			t.Errorf("%d bytes: Got a page of %d", size, l.largest)
		}
	}
}
