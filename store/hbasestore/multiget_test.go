package hbasestore

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store"
)

// Rows that are absent make calls larger only up to their bound.
func TestGetAbsentRows(t *testing.T) {
	t.Parallel()
	g := newGateway(t, newMem(t), false)
	s := dial(t, nil, g)
	table, err := store.OpenTable(t.Context(), s, "t")
	if err != nil {
		t.Fatal(err)
	}
	rows := make([][]byte, 20_000) // of 40 calls
	for i := range rows {
		rows[i] = fmt.Appendf(nil, "x%05d", i)
	}
	if _, err := table.GetRows(t.Context(), rows, nil); err != nil {
		t.Fatal(err)
	}
	if n := g.count("getMultiple"); n < len(rows)/maxCallRows || n > len(rows)/maxCallRows+5 {
		t.Errorf("Got %d calls", n)
	}
}

// TestGetRows: rows that are named are asked for by name, some hundred a call, and
// nothing between them is read.
func TestGetRows(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil, false)
	s := dial(t, nil, g)
	createCounted(t, s)
	table, err := store.OpenTable(t.Context(), s, "c")
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	for i := range 2000 {
		m := cell.Mutation{Table: "c", Row: fmt.Appendf(nil, "r%04d", i)}
		m.Put("f", []byte("q"), 5, fmt.Append(nil, i))
		b.Add(0, m)
	}
	if err := s.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Increment(t.Context(), []byte("r0007"), "n", []byte("x"), 3); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{2, 16, 17, 1200} {
		rows := make([][]byte, n)
		for i := range rows {
			rows[i] = fmt.Appendf(nil, "r%04d", rng.IntN(2500)) // a fifth is absent, some are asked for twice
		}
		rows[0] = []byte("r0007")
		for _, scan := range []*store.Scan{
			nil,
			{Columns: []store.Column{{Family: "n", Qualifier: []byte("x")}}},
			{Columns: []store.Column{{Family: "f", Qualifier: []byte("none")}}},
			{Columns: []store.Column{{Family: "f", All: true}}, Time: &cell.TimeRange{Min: 6, Max: 7}},
		} {
			scans, calls := g.count("openScanner")+g.count("getScannerResults"), g.count("getMultiple")
			got, err := table.GetRows(t.Context(), rows, scan)
			if err != nil {
				t.Fatal(err)
			}
			if n := g.count("openScanner") + g.count("getScannerResults") - scans; n > 0 {
				t.Errorf("%d rows: Got %d scans", len(rows), n)
			}
			if n := g.count("getMultiple") - calls; n < 1 || n > 8 {
				t.Errorf("%d rows: Got %d calls", len(rows), n)
			}
			for i, row := range rows {
				want, err := table.Get(t.Context(), row, scan)
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(want, got[i]); d != "" {
					t.Fatalf("row %s of %d, %+v (-want +got):\n%s", row, n, scan, d)
				}
			}
		}
	}
	// A scan of the same rows with a limit, and one that is closed early.
	f := &store.MultiRowRangeFilter{}
	for i := range 100 {
		row := fmt.Appendf(nil, "r%04d", 3*i)
		f.Ranges = append(f.Ranges, store.RowRange{Start: row, Stop: row, StopInclusive: true})
	}
	n := 0
	sc := s.Scan(t.Context(), &store.Scan{Table: "c", Filter: f, Start: []byte("r0030"), Limit: 20})
	for sc.Next() {
		if want := fmt.Sprintf("r%04d", 30+3*n); string(sc.Row().Key) != want {
			t.Fatalf("Got row %s, want %s", sc.Row().Key, want)
		}
		n++
	}
	if err := sc.Err(); err != nil || n != 20 {
		t.Errorf("Got %d rows and %v, want 20", n, err)
	}
	if err := sc.Close(); err != nil {
		t.Error(err)
	}
	// A gateway that ends the connection is asked again.
	g.first(1, "getMultiple", fault{dropBefore: true})
	if got, err := table.GetRows(t.Context(), [][]byte{[]byte("r0001"), []byte("r0002")}, nil); err != nil || got[0] == nil || got[1] == nil {
		t.Errorf("Got %v, %v", got, err)
	}
}
