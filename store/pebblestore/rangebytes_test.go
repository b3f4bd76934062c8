package pebblestore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
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

// TestCuts cuts a table whose rows have two families, of which one is far larger, into
// parts of about equal size, as a whole, of some rows, and of one family.
func TestCuts(t *testing.T) {
	t.Parallel()
	db := open(t, "db", memory())
	create(t, db, "t", store.NewFamily("f"), store.NewFamily("g"))
	create(t, db, "small", store.NewFamily("f"))
	random := rand.NewChaCha8([32]byte{})
	value := func() []byte {
		b := make([]byte, 500)
		_, _ = random.Read(b) // never fails
		return b
	}
	for i := range 3000 {
		m := &cell.Mutation{Table: "t", Row: fmt.Appendf(nil, "user\x00%04d", i)}
		m.Put("f", []byte("q"), 1, value())
		m.Put("f", []byte("r"), 1, value())
		if i < 300 {
			m.Put("g", []byte("q"), 1, []byte("x"))
		}
		mutate(t, db, m)
	}
	mutate(t, db, &cell.Mutation{Table: "small", Row: []byte("r"), Ops: []cell.Op{{Type: cell.OpPut, Family: "f", Time: 1}}})
	if err := db.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	taken, err := db.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s := taken.(*Snapshot)
	size := func(rows cell.Range, families ...string) int64 {
		t.Helper()
		b, err := s.RangeBytes(t.Context(), "t", families, rows)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	row := func(key []byte, none int) int { // its number
		if n, err := strconv.Atoi(strings.TrimPrefix(string(key), "user\x00")); err == nil {
			return n
		}
		return none
	}
	for name, c := range map[string]struct {
		rows     cell.Range
		families []string
		parts    int64
	}{
		"all":         {parts: 7},
		"many":        {parts: 10},
		"some rows":   {rows: cell.Range{Start: []byte("user\x000500"), Stop: []byte("user\x002500")}, parts: 5},
		"one family":  {families: []string{"f"}, parts: 4},
		"no parts":    {parts: 1},
		"of one row":  {rows: cell.Range{Start: []byte("user\x000500"), Stop: []byte("user\x000500\x00")}, parts: 1},
		"of no rows":  {rows: cell.Range{Start: []byte("v")}, parts: 1},
		"fewer cells": {families: []string{"g"}, parts: 1},
	} {
		total := size(c.rows, c.families...)
		cuts, err := s.Cuts(t.Context(), "t", c.families, c.rows, max(1<<10, total/c.parts))
		if err != nil {
			t.Fatal(err)
		}
		// Files may be merged between two looks at their sizes.
		if got := int64(len(cuts)) + 1; got != c.parts && (c.parts == 1 || got < c.parts-1 || got > c.parts+1) {
			t.Errorf("%s: Got %d parts, want %d", name, got, c.parts)
		}
		low := c.rows.Start
		for i, cut := range append(cuts, c.rows.Stop) {
			if i < len(cuts) && (!c.rows.Contains(cut) || string(cut) <= string(low)) {
				t.Errorf("%s: %q is not behind %q", name, cut, low)
			}
			// All rows are alike.
			all, got := row(c.rows.Stop, 3000)-row(c.rows.Start, 0), row(cut, 3000)-row(low, 0)
			if mean := all / (len(cuts) + 1); c.parts > 1 && (got < mean/3 || got > mean*2) {
				t.Errorf("%s: part %d of %d has %d of %d rows", name, i, c.parts, got, all)
			}
			low = cut
		}
	}
	if cuts, err := s.Cuts(t.Context(), "small", nil, cell.Range{}, 1); err != nil || len(cuts) > 0 {
		t.Errorf("Got %q, %v of a table of one row", cuts, err)
	}
	if cuts, err := s.Cuts(t.Context(), "t", nil, cell.Range{Stop: []byte("user\x000200")}, 0); err != nil || len(cuts) == 0 || len(cuts) > 200 {
		t.Errorf("Got %d cuts, %v of 200 rows in parts of nothing", len(cuts), err)
	}
	if _, err := s.Cuts(t.Context(), "none", nil, cell.Range{}, 1); !errors.Is(err, store.ErrTableNotFound) {
		t.Errorf("Got %v, want ErrTableNotFound", err)
	}
}
