package pebblestore

import (
	"errors"
	"fmt"
	"testing"

	"sluice/cell"
	"sluice/store"
)

// TestRangeBytes wants a tenth of the rows to take about a tenth of the bytes, by
// family too.
func TestRangeBytes(t *testing.T) {
	t.Parallel()
	db := open(t, "db", memory())
	create(t, db, "t", store.NewFamily("f"), store.NewFamily("g"))
	const n = 3000
	for i := range n {
		// No two values are alike, so that compression does not hide them.
		m := &cell.Mutation{Table: "t", Row: fmt.Appendf(nil, "r%04d", i)}
		m.Put("f", []byte("q"), 1, fmt.Appendf(nil, "%0300d", i))
		mutate(t, db, m)
	}
	if err := db.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	taken, err := db.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s, ok := taken.(*Snapshot)
	if !ok {
		t.Fatalf("Got a %T", taken)
	}
	size := func(rows cell.Range, families ...string) int64 {
		t.Helper()
		b, err := s.RangeBytes(t.Context(), "t", families, rows)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	all := size(cell.Range{})
	tenth := size(cell.Range{Start: []byte("r1000"), Stop: []byte("r1300")})
	if ratio := float64(tenth) / float64(all); all == 0 || ratio < 0.05 || ratio > 0.2 {
		t.Errorf("Got %d of %d bytes for a tenth of the rows", tenth, all)
	}
	if f, g := size(cell.Range{}, "f"), size(cell.Range{}, "g"); f != all || g != 0 {
		t.Errorf("Got %d and %d bytes in families f and g, want all %d in f", f, g, all)
	}
	if _, err := s.RangeBytes(t.Context(), "none", nil, cell.Range{}); !errors.Is(err, store.ErrTableNotFound) {
		t.Errorf("Got %v, want ErrTableNotFound", err)
	}
}
