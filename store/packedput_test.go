package store_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store"
)

// A packed put is the mutation that it was made of, takes as much of the arena as was
// said, and is plain where its mutation is.
func TestPackedPutIsItsMutation(t *testing.T) {
	t.Parallel()
	const now = 1_000_000
	rng := rand.New(rand.NewPCG(5, 6))
	packed, plain := 0, 0
	for range 20_000 {
		pick := func(likely int, others ...int) int {
			if rng.IntN(12) > 0 {
				return likely
			}
			return others[rng.IntN(len(others))]
		}
		table := plainTable()
		table.ReadOnly = rng.IntN(50) == 0
		if rng.IntN(3) == 0 {
			table.MaxTimestampSlop = 1000
		}
		if rng.IntN(3) == 0 {
			table.MaxCellBytes = 200
		}
		m := cell.Mutation{Table: "t", Row: make([]byte, pick(5, 0, 1, 300, cell.MaxRowLength, cell.MaxRowLength+1))}
		at, ttl := cell.Timestamp(pick(now, now+1000, now+1001, 0, -1)), int64(pick(0, 5, -5, int(cell.NoLife)))
		family := []string{"f", "g", "n", "u", "x"}[pick(0, 1, 2, 3, 4)]
		for i := range pick(3, 0, 1, 2) {
			o := cell.Op{Type: cell.OpPut, Family: family, Qualifier: fmt.Appendf(nil, "%0*d", 1+rng.IntN(3)*rng.IntN(70), i), Time: at, TTL: ttl, Value: make([]byte, pick(3, 0, 127, 128, 180, 17_000))}
			m.Ops = append(m.Ops, o)
		}
		n, ok := store.PackedPutSize(&m)
		_, _, want := store.PlainPut(table, &m, now)
		var b store.Batch
		room := 1 << 20
		if ok {
			room = n - 1
		}
		if rest, took := b.Pack(make([]byte, 3, 3+room), 7, &m); took || len(b.Puts) > 0 || len(rest) != 3 {
			t.Fatalf("%+v was packed in %d bytes", m, room)
		}
		if !ok {
			if want && len(m.Ops) > 1 && len(m.Row) < 1000 && len(m.Ops[0].Value)+len(m.Ops[1].Value) < 10_000 {
				t.Fatalf("%+v is no packed put", m)
			}
			continue
		}
		packed++
		arena := append(make([]byte, 0, 3+n), "xyz"...)
		rest, took := b.Pack(arena, 7, &m)
		if !took {
			t.Fatalf("%+v was not packed in the %d bytes that it takes", m, n)
		}
		p := &b.Puts[0]
		if len(rest) != 3+n || &rest[0] != &arena[0] || string(rest[:3]) != "xyz" {
			t.Fatalf("%+v takes %d bytes, want %d", m, len(rest)-3, n)
		}
		if got := p.Mutation(); !reflect.DeepEqual(got, store.Mutation{Offset: 7, Mutation: m}) {
			t.Fatalf("mutation %+v, want %+v", got, m)
		}
		size := 0
		for i := range m.Ops {
			size += len(m.Ops[i].Qualifier) + len(m.Ops[i].Value)
		}
		if p.Size() != size {
			t.Fatalf("size %d, want %d", p.Size(), size)
		}
		f, ok := store.PlainPackedPut(table, p, now)
		if ok != want || ok && table.Families[f].Name != family {
			t.Fatalf("%+v of %+v is plain: %t (family %d), want %t", m, table, ok, f, want)
		}
		if ok {
			plain++
		}
		_ = append(p.Row, "zzz"...) // has no room that is another's
		_ = append(p.Value(), "zzz"...)
		if got := p.Mutation(); !reflect.DeepEqual(got, store.Mutation{Offset: 7, Mutation: m}) {
			t.Fatalf("mutation after appending %+v, want %+v", got, m)
		}
	}
	if packed < 2_000 || plain < 2_000 {
		t.Errorf("%d of 20,000 mutations were packed, %d plain", packed, plain)
	}
}

// Each rule alone makes a mutation no packed put.
func TestPackedPutRefuses(t *testing.T) {
	t.Parallel()
	put := func(change func(m *cell.Mutation)) bool {
		m := cell.Mutation{Table: "t", Row: []byte("r")}
		m.Put("f", []byte("a"), 100, []byte("1"))
		m.Put("f", []byte("b"), 100, []byte("2"))
		change(&m)
		_, ok := store.PackedPutSize(&m)
		if _, took := new(store.Batch).Pack(make([]byte, 0, 1<<20), 0, &m); took != ok {
			t.Errorf("%+v: packed %t, has a size %t", m, took, ok)
		}
		return ok
	}
	if !put(func(*cell.Mutation) {}) {
		t.Fatal("two columns of one time are a packed put")
	}
	for name, change := range map[string]func(*cell.Mutation){
		"one column":        func(m *cell.Mutation) { m.Ops = m.Ops[:1] },
		"no row":            func(m *cell.Mutation) { m.Row = nil },
		"durability":        func(m *cell.Mutation) { m.Durability = cell.SkipWAL },
		"time range":        func(m *cell.Mutation) { m.Read = &cell.TimeRange{Max: 5} },
		"two families":      func(m *cell.Mutation) { m.Ops[1].Family = "g" },
		"two times":         func(m *cell.Mutation) { m.Ops[1].Time++ },
		"negative time":     func(m *cell.Mutation) { m.Ops[0].Time, m.Ops[1].Time = -1, -1 },
		"the store's clock": func(m *cell.Mutation) { m.Ops[0].Time, m.Ops[1].Time = cell.Latest, cell.Latest },
		"two TTLs":          func(m *cell.Mutation) { m.Ops[1].TTL = 5 },
		"negative TTL":      func(m *cell.Mutation) { m.Ops[0].TTL, m.Ops[1].TTL = -5, -5 },
		"a delete":          func(m *cell.Mutation) { m.Ops[1].Type = cell.OpDeleteColumn },
		"out of order":      func(m *cell.Mutation) { m.Ops[0].Qualifier = []byte("c") },
		"a column twice":    func(m *cell.Mutation) { m.Ops[0].Qualifier = []byte("b") },
		"too large":         func(m *cell.Mutation) { m.Ops[0].Value = make([]byte, 64<<10) },
	} {
		if put(change) {
			t.Errorf("%s: it is a packed put", name)
		}
	}
}

func TestBatchUnpacked(t *testing.T) {
	t.Parallel()
	put := func(row string) cell.Mutation {
		m := cell.Mutation{Table: "t", Row: []byte(row)}
		m.Put("f", []byte("a"), 100, []byte("1"))
		m.Put("f", []byte("b"), 100, []byte("2"))
		return m
	}
	var b store.Batch
	b.Add(1, put("1"))
	b.Add(3, put("3"))
	b.Bulk = true
	b.Record(2, nil, nil, put("x"))
	if b.Unpacked() != &b {
		t.Error("a batch without packed puts was copied")
	}
	for _, offset := range []int64{0, 2, 3, 9} {
		m := put(fmt.Sprint(offset))
		if _, ok := b.Pack(make([]byte, 0, 100), offset, &m); !ok {
			t.Fatal("It was not packed")
		}
	}
	got := b.Unpacked()
	want := store.Batch{Bulk: true, Records: b.Records}
	for _, offset := range []int64{0, 1, 2, 3, 3, 9} {
		want.Add(offset, put(fmt.Sprint(offset)))
	}
	if d := cmp.Diff(&want, got); d != "" {
		t.Errorf("Unpacked (-want +got)\n%s", d)
	}
	if len(b.Puts) != 4 || len(b.Mutations) != 2 {
		t.Errorf("the batch was changed: %d puts, %d mutations", len(b.Puts), len(b.Mutations))
	}
}

// The packed puts of a record come before its mutations, whose checks and asides stay theirs.
func TestRecordUnpacked(t *testing.T) {
	t.Parallel()
	put := func(row string) cell.Mutation {
		m := cell.Mutation{Table: "t", Row: []byte(row)}
		m.Put("f", []byte("a"), 100, []byte("1"))
		m.Put("f", []byte("b"), 100, []byte("2"))
		return m
	}
	plain := store.Record{Offset: 1, Once: []byte("id"), Mutations: []cell.Mutation{put("3")}}
	if plain.Unpacked() != &plain {
		t.Error("a record without packed puts was copied")
	}
	check := &store.Cond{Family: "f", Qualifier: []byte("q"), Op: store.Equal}
	r := plain
	r.Checks, r.Mutations, r.Asides = []*store.Cond{check, nil}, []cell.Mutation{put("3"), put("4")}, []int{1}
	for _, row := range []string{"1", "2"} {
		m := put(row)
		var ok bool
		if r.Puts, _, ok = store.PackPut(r.Puts, make([]byte, 0, 100), -1, &m); !ok {
			t.Fatal("It was not packed")
		}
	}
	want := store.Record{
		Offset: 1, Once: []byte("id"), Checks: []*store.Cond{nil, nil, check, nil}, Asides: []int{3},
		Mutations: []cell.Mutation{put("1"), put("2"), put("3"), put("4")},
	}
	b := store.Batch{Records: []store.Record{plain, r}}
	if d := cmp.Diff([]store.Record{plain, want}, b.Unpacked().Records); d != "" {
		t.Errorf("Unpacked (-want +got)\n%s", d)
	}
	if r.Asides[0] != 1 || len(r.Checks) != 2 || len(r.Mutations) != 2 {
		t.Errorf("the record was changed: %+v", r)
	}
}
