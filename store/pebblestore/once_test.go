package pebblestore

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/store"
)

// recentIDs returns how many event ids with a time to live the store keeps.
func recentIDs(t *testing.T, db *DB) (n int) {
	t.Helper()
	low := cell.AppendFamilyPrefix(nil, cell.TagSystem, recentID, systemFamily)
	it, err := db.pebble.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: cell.PrefixEnd(low)})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		n++
	}
	return n
}

// Event ids take the room of two periods, and those of a time to live that nobody
// uses any more go when the store is opened.
func TestEventIDsAreForgotten(t *testing.T) {
	t.Parallel()
	var now atomic.Int64
	now.Store(10_000_000)
	o := memory()
	o.Now = func() cell.Timestamp { return cell.Timestamp(now.Load()) }
	db, err := Open("d", o)
	if err != nil {
		t.Fatal(err)
	}
	create(t, db, "t", store.NewFamily("f"))
	id := 0
	use := func(ttl int64, n int) {
		t.Helper()
		var b store.Batch
		for range n {
			id++
			b.Records = append(b.Records, store.Record{
				Once: fmt.Append([]byte{0}, id), OnceTTL: ttl, Mutations: []cell.Mutation{*put("r", cell.Latest, "f", "q", "v")},
			})
		}
		if err := db.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if b.Unapplied != (store.Unapplied{}) {
			t.Fatalf("Got %+v unapplied of new ids", b.Unapplied)
		}
	}
	const ttl = 1000
	use(0x0100, 7) // a number with zero bytes at its end
	use(ttl-1, 5)
	use(ttl+1, 3)
	use(0, 11) // for ever
	for period := range 10 {
		use(ttl, 10)
		if got, most := recentIDs(t, db), 7+5+3+10*min(period+1, 2); got != most {
			t.Errorf("Period %d: %d ids are kept, want %d", period, got, most)
		}
		now.Add(ttl)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, "d", o)
	if got := recentIDs(t, db); got != 10 {
		t.Errorf("%d ids are kept, want the last period's 10", got)
	}
	var b store.Batch
	b.Records = []store.Record{{Once: []byte("\x0026"), Mutations: []cell.Mutation{*put("r", cell.Latest, "f", "q", "v")}}}
	if err := db.Apply(t.Context(), &b); err != nil || b.Unapplied.Duplicate != 1 {
		t.Errorf("Got %v, %+v of an id that is never forgotten, want a duplicate", err, b.Unapplied)
	}
	now.Add(1 << 40)
	use(ttl, 1)
	if got := recentIDs(t, db); got != 1 {
		t.Errorf("%d ids are kept, want 1", got)
	}
}
