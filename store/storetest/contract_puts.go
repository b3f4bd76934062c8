package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store"
)

// packed adds a packed put of columns, names and values in turns, to b, in arena.
func packed(t *testing.T, b *store.Batch, arena []byte, offset int64, table, row, family string, at cell.Timestamp, columns ...string) []byte {
	t.Helper()
	m := cell.Mutation{Table: table, Row: []byte(row)}
	for i := 0; i < len(columns); i += 2 {
		m.Put(family, []byte(columns[i]), at, []byte(columns[i+1]))
	}
	n, ok := store.PackedPutSize(&m)
	if !ok {
		t.Fatalf("%+v is no packed put", m)
	}
	rest, ok := b.Pack(slices.Grow(arena, n), offset, &m)
	if !ok {
		t.Fatalf("%+v was not packed", m)
	}
	return rest
}

// testPackedPuts: packed puts are the mutations that they were made of.
func testPackedPuts(t *testing.T, e *engine) {
	e.create("t", store.NewFamily("f"), store.NewFamily("g"))
	e.create("u", store.NewFamily("f"))
	var b store.Batch
	arena := packed(t, &b, nil, 1, "t", "a", "f", 100, "", "empty", "q", "")
	arena = packed(t, &b, arena, 3, "t", "a", "g", 100, "q", "1", "r", "2")
	arena = packed(t, &b, arena, 3, "u", "a\x00", "f", 0, "q", "3", "r", "4", "s", "5")
	arena = packed(t, &b, arena, 5, "t", "b", "f", 101, "q", "6", "r", "7")
	m := cell.Mutation{Table: "t", Row: []byte("a")}
	m.Put("f", []byte("q"), 99, []byte("older"))
	b.Add(2, m)
	m = cell.Mutation{Table: "t", Row: []byte("c")}
	m.Put("f", []byte("q"), 102, []byte("8"))
	b.Add(6, m)
	ok(t, e.Apply(t.Context(), &b))
	clear(arena) // the engine keeps nothing of the batch
	if len(b.Puts) != 4 || len(b.Mutations) != 2 {
		t.Errorf("the batch has %d puts and %d mutations, want 4 and 2", len(b.Puts), len(b.Mutations))
	}
	e.want(t, e, "t", `"a" f:""="empty"`, `"a" f:"q"=""`, `"a" g:"q"="1"`, `"a" g:"r"="2"`, `"b" f:"q"="6"`, `"b" f:"r"="7"`, `"c" f:"q"="8"`)
	e.want(t, e, "u", `"a\x00" f:"q"="3"`, `"a\x00" f:"r"="4"`, `"a\x00" f:"s"="5"`)
}

// testPackedPutsInOrder: of puts and mutations of one cell and time the one of the later
// record stays, and a condition sees those before it.
func testPackedPutsInOrder(t *testing.T, e *engine) {
	e.batchOnly()
	e.create("t", store.NewFamily("f"))
	var b store.Batch
	arena := make([]byte, 0, 1<<10)
	for offset := range int64(8) {
		row, value := fmt.Sprint(offset/2), fmt.Sprint(offset)
		if (offset+offset/4)%2 == 0 { // a put before a mutation, and the other way round
			arena = packed(t, &b, arena, offset, "t", row, "f", 100, "q", value, "r", value)
			continue
		}
		m := cell.Mutation{Table: "t", Row: []byte(row)}
		m.Put("f", []byte("q"), 100, []byte(value))
		b.Add(offset, m)
	}
	arena = packed(t, &b, arena, 8, "t", "x", "f", 100, "q", "8", "r", "8")
	b.Record(8, nil, &store.Cond{Family: "f", Qualifier: []byte("q"), Op: store.Equal, Value: []byte("8")}, cell.Mutation{
		Table: "t", Row: []byte("x"), Ops: []cell.Op{{Type: cell.OpPut, Family: "f", Qualifier: []byte("seen"), Time: 100, Value: []byte("yes")}},
	})
	b.Record(8, nil, &store.Cond{Family: "f", Qualifier: []byte("q"), Op: store.Equal, Value: []byte("9")}, cell.Mutation{
		Table: "t", Row: []byte("x"), Ops: []cell.Op{{Type: cell.OpPut, Family: "f", Qualifier: []byte("too early"), Time: 100, Value: []byte("yes")}},
	})
	packed(t, &b, arena, 9, "t", "x", "f", 100, "q", "9", "r", "9")
	ok(t, e.Apply(t.Context(), &b))
	e.want(t, e, "t", `"0" f:"q"="1"`, `"0" f:"r"="0"`, `"1" f:"q"="3"`, `"1" f:"r"="2"`,
		`"2" f:"q"="5"`, `"2" f:"r"="5"`, `"3" f:"q"="7"`, `"3" f:"r"="7"`,
		`"x" f:"q"="9"`, `"x" f:"r"="9"`, `"x" f:"seen"="yes"`)
}

// testPackedPutsRefused: what is wrong with a packed put is what is wrong with its
// mutation.
func testPackedPutsRefused(t *testing.T, e *engine) {
	e.batchOnly()
	ctx := t.Context()
	distinct := store.NewFamily("u")
	distinct.Distinct = true
	d := &store.TableDescriptor{
		Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f"), counterFamily("n"), distinct},
		MaxCellBytes: 100, MaxTimestampSlop: 1000,
	}
	ok(t, e.admin().CreateTable(ctx, d, nil))
	r := &store.TableDescriptor{Name: "r", Families: []store.FamilyDescriptor{store.NewFamily("f")}, ReadOnly: true}
	ok(t, e.admin().CreateTable(ctx, r, nil))
	now := e.clock.Now()
	large := string(bytes.Repeat([]byte("x"), 100))
	var b store.Batch
	var arena []byte
	for i, p := range []struct {
		table, row, family string
		at                 cell.Timestamp
		value              string
	}{
		{"nope", "r", "f", now, "v"},
		{"t", "r", "nope", now, "v"},
		{"t", "r", "n", now, "v"},
		{"t", "r", "u", now, "v"},
		{"t", "r", "f", now + 1001, "v"},
		{"t", "r", "f", now, large},
		{"r", "r", "f", now, "v"},
	} {
		arena = packed(t, &b, arena, int64(2*i), p.table, p.row, p.family, p.at, "q", p.value, "r", "v")
		arena = packed(t, &b, arena, int64(2*i+1), "t", "good", "f", now, "q", p.value[:1], "r", "v")
	}
	b.Advance(source("p"), 0, store.Absent, progress(14))
	var be, we *store.BatchError
	if err := e.Apply(ctx, &b); !errors.As(err, &be) {
		t.Fatalf("Apply = %v, want a *store.BatchError", err)
	}
	if err := e.Apply(ctx, b.Unpacked()); !errors.As(err, &we) || len(we.Refused) != 7 {
		t.Fatalf("Apply of the mutations = %v, want 7 refusals", err)
	}
	print := func(e *store.BatchError) (all []string) {
		for i := range e.Refused {
			r := &e.Refused[i]
			all = append(all, fmt.Sprintf("%d %s %s %v", r.Offset, r.Table, r.Row, r.Err))
		}
		return all
	}
	if d := cmp.Diff(print(we), print(be)); d != "" {
		t.Errorf("refusals of mutations and of packed puts (-want +got)\n%s", d)
	}
	e.want(t, e, "t") // nothing was applied
	e.stored(t, source("p"), 0, store.Absent)
}
