package pebblestore

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/store"
)

// A scan that skips rows of several keys, in several files and blocks, comes to
// each row once and to the end.
func TestSkippedRowsEnd(t *testing.T) {
	t.Parallel()
	db := open(t, "db", memory())
	f := store.NewFamily("f")
	f.Versions = store.AllVersions
	create(t, db, "t", f)
	const n = 3000
	for version := range cell.Timestamp(3) { // a put each, so that a row has several keys
		var b store.Batch
		for i := range n {
			b.Add(int64(i), *put(fmt.Sprintf("r%04d", i), version+1, "f", "q", "0123456789abcdef"))
		}
		if err := db.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if err := db.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	sc := db.Scan(ctx, &store.Scan{Table: "t", Filter: &store.RowFilter{Op: store.Equal, Comparator: store.Comparator{Type: store.CompareRegex, Value: []byte("00$")}}})
	defer sc.Close()
	kept := 0
	for ; sc.Next(); kept++ {
		if want := fmt.Sprintf("r%04d", kept*100); string(sc.Row().Key) != want {
			t.Fatalf("row %d is %q, want %q", kept, sc.Row().Key, want)
		}
	}
	if err := sc.Err(); err != nil || kept != n/100 {
		t.Errorf("%d rows, %v, want %d", kept, err, n/100)
	}
}

// What follows a row's prefix at once lies behind all of the row's keys and not
// behind any other's.
func TestImmediateSuccessor(t *testing.T) {
	t.Parallel()
	c := comparer()
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 'a', 0xFF}), 1, 4)
		row, other := part.Draw(t, "row"), part.Draw(t, "other row")
		prefix := cell.AppendRowPrefix(nil, cell.TagData, 1, 1, row)
		next := c.ImmediateSuccessor(nil, prefix)
		if c.Split(next) != len(next) || bytes.Compare(prefix, next) >= 0 {
			t.Fatalf("%x follows %x", next, prefix)
		}
		key := cell.AppendVersion(cell.AppendPart(prefix, part.Draw(t, "qualifier")), 1, cell.KindPut, 1)
		if bytes.Compare(key, next) >= 0 {
			t.Fatalf("%x is before %x of its row", next, key)
		}
		if p := cell.AppendRowPrefix(nil, cell.TagData, 1, 1, other); bytes.Compare(row, other) < 0 && bytes.Compare(p, next) < 0 {
			t.Fatalf("%x of row %x is before %x", p, other, next)
		}
		if bound := prefix[:len(prefix)-1]; !bytes.Equal(c.ImmediateSuccessor(nil, bound), append(bytes.Clone(bound), 0)) {
			t.Fatalf("%x follows %x, which is no row", c.ImmediateSuccessor(nil, bound), bound)
		}
	})
}
