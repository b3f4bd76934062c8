package query_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/counters"
	"sluice/counters/query"
	"sluice/region"
	"sluice/store"
	"sluice/store/memstore"
)

// increment is one increment of a test, "row family qualifier delta time" apart.
type increment struct {
	row, family, qualifier string
	delta                  int64
	time                   cell.Timestamp
}

// newStore returns a store with a table "counts" that has the COUNTER families
// "day" and "minute" and an ordinary family "raw".
func newStore(t testing.TB) *memstore.Store {
	t.Helper()
	s, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	table := &store.TableDescriptor{Name: "counts", Families: []store.FamilyDescriptor{store.NewFamily("day"), store.NewFamily("minute"), store.NewFamily("raw")}}
	table.Families[0].Counter, table.Families[1].Counter = true, true
	if err := s.CreateTable(t.Context(), table, [][]byte{[]byte("/m")}); err != nil {
		t.Fatal(err)
	}
	return s
}

// apply puts increments through a coalescer into the store, as ingest does.
func apply(t testing.TB, s *memstore.Store, increments ...increment) {
	t.Helper()
	c := counters.NewCoalescer()
	for i, x := range increments {
		c.Add("counts", x.family, []byte(x.row), []byte(x.qualifier), x.delta, x.time, int64(i))
	}
	var b store.Batch
	for d := range c.Deltas {
		b.Counters = append(b.Counters, store.CounterDelta(d))
	}
	if err := s.Apply(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
}

func pageViews(t testing.TB) *memstore.Store {
	t.Helper()
	s := newStore(t)
	apply(t, s,
		increment{"/a", "day", "20261120", 5, 100},
		increment{"/a", "day", "20261121", 7, 300},
		increment{"/a", "day", "20261121", 1, 200},
		increment{"/a", "day", "20261122", 2, 400},
		increment{"/a", "minute", "202611211130", 8, 300},
		increment{"/b", "day", "20261121", 9, 250},
		increment{"/b", "day", "", 3, 50},
		increment{"/z", "day", "20261121", 8, 10},
		increment{"/z", "day", "20261119", -8, 10},
	)
	return s
}

func TestGet(t *testing.T) {
	t.Parallel()
	s := pageViews(t)
	for _, c := range []struct {
		row, family, qualifier string
		want                   query.Counter
		ok                     bool
	}{
		{"/a", "day", "20261121", query.Counter{Qualifier: []byte("20261121"), Count: 8, Time: 300}, true},
		{"/a", "minute", "202611211130", query.Counter{Qualifier: []byte("202611211130"), Count: 8, Time: 300}, true},
		{"/z", "day", "20261119", query.Counter{Qualifier: []byte("20261119"), Count: -8, Time: 10}, true},
		{"/b", "day", "", query.Counter{Qualifier: []byte{}, Count: 3, Time: 50}, true},
		{"/a", "day", "", query.Counter{}, false},
		{"/a", "day", "2026112", query.Counter{}, false},
		{"/a", "day", "202611211", query.Counter{}, false},
		{"/none", "day", "20261121", query.Counter{}, false},
	} {
		got, ok, err := query.Get(t.Context(), s, "counts", []byte(c.row), c.family, []byte(c.qualifier))
		if err != nil || ok != c.ok {
			t.Errorf("Get(%s %s:%s) ok = %v, %v", c.row, c.family, c.qualifier, ok, err)
		}
		if diff := gocmp.Diff(c.want, got); diff != "" {
			t.Errorf("Get(%s %s:%s) (-want +got)\n%s", c.row, c.family, c.qualifier, diff)
		}
	}
}

func TestRangeAndSum(t *testing.T) {
	t.Parallel()
	s := pageViews(t)
	for _, c := range []struct {
		row, from, to string
		want          string
		sum           int64
		time          cell.Timestamp
	}{
		{"/a", "", "", "20261120=5@100 20261121=8@300 20261122=2@400", 15, 400},
		{"/a", "20261121", "", "20261121=8@300 20261122=2@400", 10, 400},
		{"/a", "20261121", "20261122", "20261121=8@300", 8, 300},
		{"/a", "", "20261121", "20261120=5@100", 5, 100},
		{"/a", "202611", "202612", "20261120=5@100 20261121=8@300 20261122=2@400", 15, 400},
		{"/a", "20261123", "", "", 0, 0},
		{"/a", "20261122", "20261121", "", 0, 0},
		{"/b", "", "", "=3@50 20261121=9@250", 12, 250},
		{"/z", "", "", "20261119=-8@10 20261121=8@10", 0, 10},
		{"/none", "", "", "", 0, 0},
	} {
		b := query.Buckets{From: []byte(c.from), To: []byte(c.to)}
		series, err := query.Range(t.Context(), s, "counts", []byte(c.row), "day", b)
		if err != nil {
			t.Errorf("Range(%s, %s): %v", c.row, b, err)
		}
		var got []string
		for _, x := range series {
			got = append(got, fmt.Sprintf("%s=%d@%d", x.Qualifier, x.Count, x.Time))
		}
		if diff := gocmp.Diff(c.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("Range(%s, %s) (-want +got)\n%s", c.row, b, diff)
		}
		sum, n, err := query.Sum(t.Context(), s, "counts", []byte(c.row), "day", b)
		want := query.Counter{Count: c.sum, Time: c.time}
		if diff := gocmp.Diff(want, sum); err != nil || n != len(series) || diff != "" {
			t.Errorf("Sum(%s, %s): %d, %v (-want +got)\n%s", c.row, b, n, err, diff)
		}
	}
}

func TestTop(t *testing.T) {
	t.Parallel()
	s := pageViews(t)
	for _, c := range []struct {
		rows cell.Range
		b    query.Buckets
		n    int
		want string
	}{
		{cell.Range{}, query.Buckets{}, 10, "/a=15@400 /b=12@250 /z=0@10"},
		{cell.Range{}, query.Buckets{}, 2, "/a=15@400 /b=12@250"},
		{cell.Range{}, query.One([]byte("20261121")), 10, "/b=9@250 /a=8@300 /z=8@10"},
		{cell.Range{}, query.One([]byte("20261121")), 2, "/b=9@250 /a=8@300"},
		{cell.Range{}, query.One([]byte("")), 10, "/b=3@50"},
		{cell.Range{}, query.Buckets{To: []byte("20261121")}, 10, "/a=5@100 /b=3@50 /z=-8@10"},
		{cell.Range{Start: []byte("/b"), Stop: []byte("/z")}, query.Buckets{}, 10, "/b=12@250"},
		{cell.Range{Start: []byte("/c"), Stop: []byte("/d")}, query.Buckets{}, 10, ""},
	} {
		top, err := query.Top(t.Context(), s, "counts", c.rows, "day", c.b, c.n)
		if err != nil {
			t.Errorf("Top(%v, %s, %d): %v", c.rows, c.b, c.n, err)
		}
		var got []string
		for _, x := range top {
			got = append(got, fmt.Sprintf("%s=%d@%d", x.Row, x.Count, x.Time))
		}
		if diff := gocmp.Diff(c.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("Top(%v, %s, %d) (-want +got)\n%s", c.rows, c.b, c.n, diff)
		}
	}
}

func TestTopAgainstSorting(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := newStore(t)
		sums := map[string]int64{}
		var increments []increment
		for range rapid.IntRange(1, 60).Draw(rt, "increments") {
			x := increment{
				row:       fmt.Sprintf("/%d", rapid.IntRange(0, 20).Draw(rt, "row")),
				family:    "day",
				qualifier: fmt.Sprint(rapid.IntRange(0, 5).Draw(rt, "bucket")),
				delta:     rapid.Int64Range(-3, 3).Draw(rt, "delta"),
			}
			increments = append(increments, x)
			if x.qualifier >= "1" && x.qualifier < "4" {
				sums[x.row] += x.delta
			}
		}
		apply(t, s, increments...)
		n := rapid.IntRange(1, 25).Draw(rt, "n")
		got, err := query.Top(t.Context(), s, "counts", cell.Range{}, "day", query.Buckets{From: []byte("1"), To: []byte("4")}, n)
		if err != nil {
			rt.Fatal(err)
		}
		var want []query.Total
		for row, sum := range sums {
			want = append(want, query.Total{Row: []byte(row), Count: sum})
		}
		slices.SortFunc(want, func(a, b query.Total) int {
			return cmp.Or(-cmp.Compare(a.Count, b.Count), bytes.Compare(a.Row, b.Row))
		})
		if diff := gocmp.Diff(want[:min(n, len(want))], got); diff != "" && len(want)+len(got) > 0 {
			rt.Fatalf("Top %d (-want +got)\n%s", n, diff)
		}
	})
}

func TestErrors(t *testing.T) {
	t.Parallel()
	s := pageViews(t)
	ctx := t.Context()
	m := &cell.Mutation{Table: "counts", Row: []byte("/text")}
	m.Put("raw", []byte("q"), 5, []byte("nine bytes"))
	m.Put("raw", []byte("n"), 5, []byte{0, 0, 0, 0, 0, 0, 1, 0})
	cyrillic := &cell.Mutation{Table: "counts", Row: []byte("/cyrillic")}
	cyrillic.Put("raw", []byte("q"), 5, []byte("сайты")) // whose first byte is a sketch's
	if _, err := s.MutateRow(ctx, nil, cyrillic); err != nil {
		t.Fatal(err)
	}
	if _, err := s.MutateRow(ctx, nil, m); err != nil {
		t.Fatal(err)
	}
	if c, ok, err := query.Get(ctx, s, "counts", m.Row, "raw", []byte("n")); err != nil || !ok || c.Count != 256 || c.Time != 5 {
		t.Errorf("a number in an ordinary family = %+v, %v, %v", c, ok, err)
	}

	call := func(table string, row []byte, family string) error {
		_, _, err := query.Get(ctx, s, table, row, family, []byte("q"))
		_, err2 := query.Range(ctx, s, table, row, family, query.Buckets{})
		if (err == nil) != (err2 == nil) {
			t.Errorf("Get says %v, Range %v", err, err2)
		}
		return err
	}
	for _, c := range []struct {
		name string
		err  error
		want error
	}{
		{"no such table", call("nope", []byte("/a"), "day"), store.ErrTableNotFound},
		{"no such family", call("counts", []byte("/a"), "nope"), store.ErrFamilyNotFound},
		{"empty row", call("counts", nil, "day"), store.ErrInvalidArgument},
		{"long row", call("counts", make([]byte, cell.MaxRowLength+1), "day"), store.ErrInvalidArgument},
		{"not a number", call("counts", m.Row, "raw"), store.ErrNotANumber},
		{"not a sketch either", call("counts", cyrillic.Row, "raw"), store.ErrNotANumber},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v; want %v", c.name, c.err, c.want)
		}
	}
	for _, n := range []int{-1, 0, query.MaxTop + 1} {
		if _, err := query.Top(ctx, s, "counts", cell.Range{}, "day", query.Buckets{}, n); !errors.Is(err, store.ErrInvalidArgument) {
			t.Errorf("Top %d: %v; want ErrInvalidArgument", n, err)
		}
	}
	if _, err := query.Top(ctx, s, "counts", cell.Range{}, "raw", query.Buckets{}, 5); !errors.Is(err, store.ErrNotANumber) {
		t.Errorf("Top of a family of text: %v; want ErrNotANumber", err)
	}
	if _, _, err := query.Sum(ctx, s, "counts", m.Row, "raw", query.Buckets{}); !errors.Is(err, store.ErrNotANumber) {
		t.Errorf("Sum of text: %v; want ErrNotANumber", err)
	}
}

// wideReader is a Reader of one table whose rows all have the same wide family,
// which it hands out in pieces, reusing its memory as an engine does. It checks
// that its scanner is closed.
type wideReader struct {
	rows, cells int
	err         error // after the last row
	closeErr    error

	scans  []store.Scan
	served int // cells handed out
	closed int
}

func (r *wideReader) Regions(context.Context, string) (*region.Map, error) {
	return nil, store.ErrUnsupported
}

func (r *wideReader) Scan(_ context.Context, s *store.Scan) store.Scanner {
	r.scans = append(r.scans, *s)
	return &wideScanner{r: r, piece: s.Batch, one: s.StopInclusive}
}

type wideScanner struct {
	r             *wideReader
	piece         int
	one           bool // of the rows, the first only
	rowAt, cellAt int
	row           cell.Row
}

func (s *wideScanner) Next() bool {
	if s.cellAt == s.r.cells {
		s.rowAt, s.cellAt = s.rowAt+1, 0
	}
	if s.rowAt >= s.r.rows || s.one && s.rowAt > 0 {
		return false
	}
	s.row.Key = fmt.Appendf(s.row.Key[:0], "row%03d", s.rowAt)
	for i := range s.row.Cells {
		copy(s.row.Cells[i].Qualifier, "overwritten")
	}
	s.row.Cells = s.row.Cells[:0]
	for ; len(s.row.Cells) < s.piece && s.cellAt < s.r.cells; s.cellAt++ {
		s.row.Cells = append(s.row.Cells, cell.Cell{
			Family: "f", Qualifier: fmt.Appendf(nil, "%06d", s.cellAt), Time: cell.Timestamp(s.cellAt), Kind: cell.KindPut,
			Value: []byte{0, 0, 0, 0, 0, 0, 0, byte(1 + s.rowAt)},
		})
		s.r.served++
	}
	return true
}

func (s *wideScanner) Row() *cell.Row { return &s.row }

func (s *wideScanner) Err() error { return s.r.err }

func (s *wideScanner) Close() error { s.r.closed++; return s.r.closeErr }

func TestWideRows(t *testing.T) {
	t.Parallel()
	r := &wideReader{rows: 5, cells: 10_000}
	top, err := query.Top(t.Context(), r, "t", cell.Range{}, "f", query.Buckets{}, 2)
	if err != nil {
		t.Fatal(err)
	}
	want := []query.Total{{Row: []byte("row004"), Count: 50_000, Time: 9999}, {Row: []byte("row003"), Count: 40_000, Time: 9999}}
	if diff := gocmp.Diff(want, top); diff != "" {
		t.Errorf("Top (-want +got)\n%s", diff)
	}
	series, err := query.Range(t.Context(), r, "t", []byte("row000"), "f", query.Buckets{From: []byte("000010"), To: []byte("000012")})
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff([]query.Counter{{Qualifier: []byte("000010"), Count: 1, Time: 10}, {Qualifier: []byte("000011"), Count: 1, Time: 11}}, series); diff != "" {
		t.Errorf("Range (-want +got)\n%s", diff)
	}
	before := r.served
	series, err = query.Range(t.Context(), r, "t", []byte("row000"), "f", query.Buckets{})
	if err != nil || len(series) != 10_000 {
		t.Fatalf("%d counters, %v; want 10000", len(series), err)
	}
	for i, c := range series {
		if string(c.Qualifier) != fmt.Sprintf("%06d", i) {
			t.Fatalf("counter %d has qualifier %q: it is the scanner's memory", i, c.Qualifier)
		}
	}
	r.served = before
	if r.served >= 5*10_000+10_000 {
		t.Errorf("%d cells read: Range did not stop behind its last bucket", r.served)
	}
	if r.closed != len(r.scans) {
		t.Errorf("%d scanners, %d closed", len(r.scans), r.closed)
	}
	for _, s := range r.scans {
		if s.Batch < 100 || s.Batch > 10_000 {
			t.Errorf("%d cells of a row are asked for at once", s.Batch)
		}
	}
}

func TestScannerErrors(t *testing.T) {
	t.Parallel()
	broken, unclosed := errors.New("broken"), errors.New("cannot close")
	for _, r := range []*wideReader{{rows: 1, cells: 10, err: broken}, {rows: 1, cells: 10, closeErr: unclosed}} {
		want := cmp.Or(r.err, r.closeErr)
		got, err := query.Range(t.Context(), r, "t", []byte("row000"), "f", query.Buckets{})
		if !errors.Is(err, want) || got != nil {
			t.Errorf("Range = %v, %v; want %v", got, err, want)
		}
		// Stopping early hides no error of Close either.
		_, err = query.Range(t.Context(), r, "t", []byte("row000"), "f", query.Buckets{To: []byte("000002")})
		if r.closeErr != nil && !errors.Is(err, want) {
			t.Errorf("Range that stops early: %v; want %v", err, want)
		}
		if top, err := query.Top(t.Context(), r, "t", cell.Range{}, "f", query.Buckets{}, 3); !errors.Is(err, want) || top != nil {
			t.Errorf("Top = %v, %v; want %v", top, err, want)
		}
		if sum, n, err := query.Sum(t.Context(), r, "t", []byte("row000"), "f", query.Buckets{}); !errors.Is(err, want) || n != 0 || sum.Count != 0 {
			t.Errorf("Sum = %v, %d, %v; want %v", sum, n, err, want)
		}
		if r.closed != len(r.scans) {
			t.Errorf("%d scanners, %d closed", len(r.scans), r.closed)
		}
	}
}
