package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"sluice/cell"
	"sluice/store"
)

// preparable is a batch of n puts and counters that moves a partition from after
// where from is to n.
func preparable(from, n int64) *store.Batch {
	b := &store.Batch{Bulk: true}
	for i := range n {
		row := fmt.Sprintf("r%04d", (i*7919+from)%n)
		b.Add(i, *put(row, 5, "f", "a", fmt.Sprint(i), "b", "x"))
		b.Counters = append(b.Counters, store.CounterDelta{Table: "t", Family: "n", Row: []byte(row), Qualifier: []byte("q"), Delta: i, Time: 5, Offset: i})
	}
	b.Advance(store.Source{Pipeline: "p", Topic: "x"}, 0, from, store.Progress{Next: n, Applied: n})
	return b
}

// TestPreparedBatchChangesNothing applies one batch prepared, unprepared, and
// prepared for a catalog that is no longer the one of its commit.
func TestPreparedBatchChangesNothing(t *testing.T) {
	t.Parallel()
	var want string
	for _, how := range []string{"unprepared", "prepared", "of another catalog"} {
		db := open(t, "db", bulk(vfs.NewMem()))
		create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
		b := preparable(store.Absent, 100)
		for i := 1; i < 100; i += 2 {
			if _, ok := b.Pack(make([]byte, 0, 100), int64(i), put(fmt.Sprintf("r%04d", i), 6, "f", "a", "packed", "b", "y")); !ok {
				t.Fatal("It was not packed")
			}
		}
		r := &request{batch: b}
		if how != "unprepared" {
			if r.prepared = db.prepare(b); r.prepared == nil {
				t.Fatal("The batch is not prepared")
			}
		}
		if how == "of another catalog" {
			if err := db.SplitRegion(t.Context(), "t", []byte("r0050")); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.submit(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		got := strings.Join(rows(t, db, &store.Scan{Table: "t"}), "\n")
		switch how {
		case "unprepared":
			want = got
		default:
			if got != want {
				t.Errorf("%s: got\n%s\nwant\n%s", how, got, want)
			}
		}
		if len(db.preparing) != maxPrepared {
			t.Errorf("%s: %d of %d are free", how, len(db.preparing), maxPrepared)
		}
	}
}

// TestNotPrepared has batches that the loop alone can stage.
func TestNotPrepared(t *testing.T) {
	t.Parallel()
	db := open(t, "db", bulk(vfs.NewMem()))
	create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
	for name, change := range map[string]func(b *store.Batch){
		"an event id beside sums": func(b *store.Batch) {
			b.Record(200, []byte("id"), nil, *put("r", 5, "f", "a", "1"))
		},
		"a condition": func(b *store.Batch) {
			b.Counters = nil
			b.Record(200, []byte("id"), &store.Cond{Family: "f", Qualifier: []byte("q"), Op: store.Equal}, *put("r", 5, "f", "a", "1"))
		},
		"a check": func(b *store.Batch) {
			b.Counters = nil
			b.Records = append(b.Records, store.Record{Offset: 200, Checks: make([]*store.Cond, 1), Mutations: []cell.Mutation{*put("r", 5, "f", "a", "1")}})
		},
		"a delete in a record": func(b *store.Batch) {
			b.Counters = nil
			m := *put("r", 5, "f", "a", "1")
			m.DeleteColumn("f", []byte("b"), 5)
			b.Record(200, []byte("id"), nil, m)
		},
		"a mutation of nothing": func(b *store.Batch) {
			b.Counters = nil
			b.Record(200, []byte("id"), nil, cell.Mutation{Table: "t", Row: []byte("r")})
		},
		"a record's unknown family": func(b *store.Batch) {
			b.Counters = nil
			b.Record(200, []byte("id"), nil, cell.Mutation{Table: "t", Row: []byte("r"), Ops: []cell.Op{{Type: cell.OpIncrement, Family: "u", Qualifier: []byte("q"), Time: 5, Delta: 1}}})
		},
		"a delete":  func(b *store.Batch) { b.Mutations[3].DeleteColumn("f", []byte("a"), 5) },
		"an append": func(b *store.Batch) { b.Mutations[3].Append("f", []byte("a"), []byte("1")) },
		"an append to a value": func(b *store.Batch) {
			b.Mutations[3].Append("f", []byte("a"), []byte("1"))
			b.Mutations[3].Ops[len(b.Mutations[3].Ops)-1].Time = 5
		},
		"the time of its commit": func(b *store.Batch) {
			b.Mutations[3].Ops[0].Time = 1<<63 - 1
		},
		"an unknown table":  func(b *store.Batch) { b.Mutations[3].Table = "u" },
		"an unknown family": func(b *store.Batch) { b.Counters[3].Family = "u" },
		"no counter":        func(b *store.Batch) { b.Counters[3].Family = "f" },
		"few, live":         func(b *store.Batch) { b.Bulk, b.Counters = false, b.Counters[1:] },
	} {
		b := preparable(store.Absent, 100)
		change(b)
		if db.prepare(b) != nil {
			t.Errorf("%s: the batch is prepared", name)
		}
	}
	if len(db.preparing) != maxPrepared {
		t.Errorf("%d of %d are free", len(db.preparing), maxPrepared)
	}
}

// TestPreparedIsGivenBack pins that no way a batch can end keeps what was prepared.
func TestPreparedIsGivenBack(t *testing.T) {
	t.Parallel()
	db := open(t, "db", bulk(vfs.NewMem()))
	create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
	if err := db.Apply(t.Context(), preparable(7, 100)); !errors.Is(err, store.ErrStale) {
		t.Errorf("Got %v of a stale batch", err)
	}
	// The loop is busy, and the caller does not wait.
	busy, free := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- db.exclusive(t.Context(), HoldSchema, func() error { close(busy); <-free; return nil })
	}()
	<-busy
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := db.Apply(ctx, preparable(store.Absent, 100)); !errors.Is(err, context.Canceled) {
		t.Errorf("Got %v of a batch that was withdrawn", err)
	}
	close(free)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if len(db.preparing) != maxPrepared {
		t.Errorf("%d of %d are free", len(db.preparing), maxPrepared)
	}
	// More than there are free ones, of a backfill.
	var more []*prepared
	for range 2 * maxPrepared {
		more = append(more, db.prepare(preparable(store.Absent, 100)))
	}
	for _, p := range more {
		if p == nil {
			t.Fatal("A batch of a backfill is not prepared")
		}
		db.spare(p)
	}
	if len(db.preparing) != maxPrepared {
		t.Errorf("%d of %d are free", len(db.preparing), maxPrepared)
	}
}
