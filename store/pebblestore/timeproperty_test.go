package pebblestore

import (
	"fmt"
	"math"
	"testing"

	"sluice/cell"
	"sluice/store"
)

// TestTimeRangeLeavesOutBlocks: a scan of what is young reads none of the blocks of what
// is old. TestPackedRows tests that it finds the same.
func TestTimeRangeLeavesOutBlocks(t *testing.T) {
	t.Parallel()
	o := memory()
	o.blockBytes = 1000
	db, err := Open("", o)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	f := store.NewFamily("f")
	if err := db.CreateTable(t.Context(), &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{f}}, nil); err != nil {
		t.Fatal(err)
	}
	write := func(step int, at cell.Timestamp) {
		t.Helper()
		var b store.Batch
		for i := 0; i < 3000; i += step {
			m := cell.Mutation{Table: "t", Row: fmt.Appendf(nil, "row%05d", i)}
			for _, q := range []string{"a", "b"} {
				m.Put("f", []byte(q), at, fmt.Appendf(nil, "%s of %d at %d", q, i, at))
			}
			b.Add(0, m)
		}
		if err := db.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if err := db.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	read := func(s *store.Scan) (rows int, blocks int64) {
		t.Helper()
		before := db.pebble.Metrics().BlockCache
		sc := db.Scan(t.Context(), s)
		for sc.Next() {
			rows++
		}
		if err := sc.Err(); err != nil {
			t.Fatal(err)
		}
		if err := sc.Close(); err != nil {
			t.Fatal(err)
		}
		after := db.pebble.Metrics().BlockCache
		return rows, after.Hits + after.Misses - before.Hits - before.Misses
	}
	write(1, 100)
	write(300, 200)
	young := &cell.TimeRange{Min: 101, Max: math.MaxInt64}
	all, most := read(&store.Scan{Table: "t"})
	some, few := read(&store.Scan{Table: "t", Time: young})
	last, fewer := read(&store.Scan{Table: "t", Time: young, Reversed: true})
	if all != 3000 || some != 10 || last != 10 || most < 100 || few > most/20 || fewer > most/5 {
		t.Errorf("Got %d rows of %d blocks, %d of %d of a time range, and %d of %d reversed", all, most, some, few, last, fewer)
	}
}
