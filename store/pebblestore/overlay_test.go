package pebblestore

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/store"
)

// countUp adds 1 to f:n of a row and returns what it is then.
func countUp(t testing.TB, db *DB, row string) uint64 {
	t.Helper()
	m := &cell.Mutation{Table: "t", Row: []byte(row)}
	m.Increment("f", []byte("n"), 1)
	r, err := db.MutateRow(t.Context(), nil, m)
	if err != nil {
		t.Fatal(err)
	}
	return binary.BigEndian.Uint64(r.Cells[0].Value)
}

// A cell that is incremented often has many versions in the memtable until they are
// rewritten. An increment looks at the newest of them, not at all: the other columns of
// the row, in front of it and behind it, and markers change nothing in that.
func TestReadOfAHotCellStepsOverFewVersions(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir(), &Options{Sync: SyncNever})
	create(t, db, "t", store.NewFamily("f"))
	const n = 1000
	for i := range uint64(n) {
		if got := countUp(t, db, "r"); got != i+1 {
			t.Fatalf("increment %d returned %d", i+1, got)
		}
		for _, q := range []string{"a", "z"} {
			if _, err := db.MutateRow(t.Context(), nil, put("r", cell.Timestamp(i+1), "f", q, "x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	scans := map[string][]store.Column{
		"one column":    {{Family: "f", Qualifier: []byte("n")}},
		"two columns":   {{Family: "f", Qualifier: []byte("a")}, {Family: "f", Qualifier: []byte("z")}},
		"all columns":   nil,
		"absent column": {{Family: "f", Qualifier: []byte("nobody")}, {Family: "f", Qualifier: []byte("zz")}},
	}
	wants := map[string]int{"one column": 1, "two columns": 2, "all columns": 3, "absent column": 0}
	for name, columns := range scans {
		err := db.exclusive(t.Context(), HoldSchema, func() error {
			c := &db.loop.commit
			c.begin(db.catalog.Load(), db.opts.Now(), db.sequence.Load())
			defer c.end()
			cells, err := c.read(&store.Scan{Table: "t", Start: []byte("r"), Stop: []byte("r"), StopInclusive: true, Columns: columns})
			if err != nil {
				return err
			}
			if len(cells) != wants[name] {
				t.Errorf("%s: got %d cells, want %d", name, len(cells), wants[name])
			}
			stats := c.it.Stats()
			if steps := stats.ForwardStepCount[pebble.InternalIterCall]; steps > 10*stepKeys {
				t.Errorf("%s: %d steps over %d versions a column", name, steps, n)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := countUp(t, db, "r"); got != n+1 {
		t.Errorf("the last increment returned %d", got)
	}
}

// BenchmarkIncrementHotCell is an increment of one cell again and again, without sync.
func BenchmarkIncrementHotCell(b *testing.B) {
	db := open(b, b.TempDir(), &Options{Sync: SyncNever})
	create(b, db, "t", store.NewFamily("f"))
	want := uint64(0)
	for b.Loop() {
		if want++; countUp(b, db, "r") != want {
			b.Fatal("an increment is lost")
		}
	}
}

// What a commit has staged of a row is in the order of its keys, also when members
// are taken back in the middle.
func TestStagedRowIsInOrder(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir(), &Options{Sync: SyncNever})
	create(t, db, "t", store.NewFamily("f"))
	err := db.exclusive(t.Context(), HoldSchema, func() error {
		c := &db.loop.commit
		c.begin(db.catalog.Load(), db.opts.Now(), db.sequence.Load())
		defer c.end()
		for i := range uint64(300) {
			good := put("r", cell.Timestamp(1000-i), "f", string(rune('a'+i%17)), "x")
			good.Increment("f", []byte("n"), 1)
			r, err := c.row(nil, good)
			if err != nil {
				return err
			}
			if got := binary.BigEndian.Uint64(r.Cells[0].Value); got != i+1 {
				t.Fatalf("increment %d returned %d", i+1, got)
			}
			mark := c.mark()
			if _, err := c.row(nil, put("r", cell.Timestamp(i+1), "f", string(rune('a'+i%13)), "taken back")); err != nil {
				return err
			}
			c.index()
			c.rollback(mark)
		}
		c.index()
		listed := 0
		for prefix, list := range c.rows {
			listed += len(list)
			for i := 1; i < len(list); i++ {
				if bytes.Compare(c.stagedKey(int(list[i-1])), c.stagedKey(int(list[i]))) >= 0 {
					t.Errorf("row %q: %d and %d are not in order", prefix, i-1, i)
				}
			}
		}
		if listed != len(c.kvs) || listed != 600 {
			t.Errorf("Got %d key-values in order, %d staged, want 600", listed, len(c.kvs))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// BenchmarkIncrementHotCellInBatch is an increment of one cell in batches of 10,000.
func BenchmarkIncrementHotCellInBatch(b *testing.B) {
	db := open(b, b.TempDir(), &Options{Sync: SyncNever})
	create(b, db, "t", store.NewFamily("f"))
	const n = 10_000
	batch := &store.Batch{}
	for i := range int64(n) {
		m := cell.Mutation{Table: "t", Row: []byte("r")}
		m.Increment("f", []byte("n"), 1)
		batch.Add(i, m)
	}
	for b.Loop() {
		if err := db.Apply(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/increment")
}
