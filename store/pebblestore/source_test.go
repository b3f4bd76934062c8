package pebblestore

import (
	"fmt"
	"testing"

	"sluice/internal/turns"
	"sluice/store"
)

// TestSkippedRowsYield passes rows that a filter skips, of which the scanner hears
// nothing, while another goroutine is ready, on one core.
func TestSkippedRowsYield(t *testing.T) { // not parallel: turns.During
	db := open(t, t.TempDir(), nil)
	create(t, db, "t", store.NewFamily("f"))
	const yields = 10
	var b store.Batch
	for i := range yields * probeRows {
		b.Add(0, *put(fmt.Sprintf("r%05d", i), 1, "f", "q", "v"))
	}
	if err := db.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	none, err := store.ParseFilterString("RowFilter(=, 'substring:nothing')")
	if err != nil {
		t.Fatal(err)
	}
	sc := db.Scan(t.Context(), &store.Scan{Table: "t", Filter: none})
	defer sc.Close()
	var found bool
	got := turns.During(func() { found = sc.Next() })
	if err := sc.Err(); err != nil || found {
		t.Fatalf("Got %v, %v", sc.Row(), err)
	}
	if got < yields/2 {
		t.Errorf("Another goroutine had %d turns while %d rows were skipped, want about %d", got, yields*probeRows, yields)
	}
}
