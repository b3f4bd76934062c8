package pebblestore

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/counters"
	"sluice/store"
)

// A sketch or a count that is broken on disk is reported by reads and by commits,
// with table, row and column, and never counted on.
func TestCorruptCountsAreNamed(t *testing.T) {
	t.Parallel()
	db := open(t, "/db", memory())
	n, u := store.NewFamily("n"), store.NewFamily("u")
	n.Counter, u.Distinct = true, true
	ctx := t.Context()
	create(t, db, "damaged", n, u)
	var s counters.Sketch
	s.Add([]byte("a"))
	good := counters.AppendDistinct(nil, counters.Distinct{Sketch: &s, Time: 5, Sequence: 1})
	table, err := db.catalog.Load().lookup("damaged")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		family string
		value  []byte
		op     cell.Op
	}{
		{"u", good[:len(good)-1], cell.Op{Type: cell.OpAppend, Value: []byte("b"), Time: 9}},
		{"u", nil, cell.Op{Type: cell.OpAppend, Value: []byte("b"), Time: 9}},
		{"n", good, cell.Op{Type: cell.OpIncrement, Delta: 1, Time: 9}},
	} {
		f, _ := table.family(c.family)
		key := cell.AppendPart(cell.AppendRowPrefix(nil, f.tag, table.id, f.id, []byte("r")), []byte("q"))
		if err := db.pebble.Set(key, c.value, pebble.NoSync); err != nil {
			t.Fatal(err)
		}
		if err := db.exclusive(ctx, HoldSchema, func() error {
			db.loop.counters.filter.add(db.loop.counters.hash(key)) // as a store that is opened knows
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		sc := db.Scan(ctx, &store.Scan{Table: "damaged", Columns: []store.Column{{Family: c.family, All: true}}})
		if sc.Next() {
			t.Errorf("%s: a broken cell was read: %+v", c.family, sc.Row())
		}
		named(t, "scan", sc.Err(), "damaged", `row "r"`)
		sc.Close()
		c.op.Family, c.op.Qualifier = c.family, []byte("q")
		m := &cell.Mutation{Table: "damaged", Row: []byte("r"), Ops: []cell.Op{c.op}}
		_, err := db.MutateRow(ctx, nil, m)
		named(t, "mutation", err, "damaged", `row "r"`, c.family+`:"q"`)
		var b store.Batch
		b.Add(3, *m)
		err = db.Apply(ctx, &b)
		named(t, "batch", err, "damaged", `row "r"`, c.family+`:"q"`)
		var refused *store.BatchError
		if errors.As(err, &refused) {
			t.Errorf("%s: the record was refused for what the store has lost: %v", c.family, err)
		}
	}
}

// named checks that err is about corruption and has the texts.
func named(t *testing.T, what string, err error, texts ...string) {
	t.Helper()
	if !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("%s: %v, want ErrCorrupt", what, err)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v does not name %s", what, err, text)
		}
	}
}
