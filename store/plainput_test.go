package store_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"sluice/cell"
	"sluice/store"
)

func plainTable() *store.TableDescriptor {
	counted := store.NewFamily("n")
	counted.Counter = true
	distinct := store.NewFamily("u")
	distinct.Distinct = true
	return &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f"), store.NewFamily("g"), counted, distinct}}
}

// What PlainPut takes for one is valid and writes its operations as they stand.
func TestPlainPutIsWhatItSays(t *testing.T) {
	t.Parallel()
	const now = 1_000_000
	rng := rand.New(rand.NewPCG(1, 2))
	pick := func(likely int, others ...int) int {
		if rng.IntN(12) > 0 {
			return likely
		}
		return others[rng.IntN(len(others))]
	}
	plain := 0
	for range 50_000 {
		table := plainTable()
		table.ReadOnly = rng.IntN(50) == 0
		if rng.IntN(3) == 0 {
			table.MaxTimestampSlop = 1000
		}
		if rng.IntN(3) == 0 {
			table.MaxCellBytes = 60
		}
		m := cell.Mutation{Table: "t", Row: make([]byte, pick(5, 0, 1, cell.MaxRowLength, cell.MaxRowLength+1))}
		if rng.IntN(30) == 0 {
			m.Durability = cell.Durability(rng.IntN(7))
		}
		if rng.IntN(50) == 0 {
			m.Read = &cell.TimeRange{Min: cell.Timestamp(rng.IntN(3)) - 1, Max: 5}
		}
		at, ttl := cell.Timestamp(pick(now, now+1000, now+1001, 0, -1)), int64(pick(0, 5, -5))
		if rng.IntN(40) == 0 {
			at = cell.Latest
		}
		if rng.IntN(40) == 0 {
			ttl = cell.NoLife
		}
		family := []string{"f", "g", "n", "u", "x"}[pick(0, 1, 2, 3, 4)]
		for i := range pick(3, 0, 1, 2) {
			o := cell.Op{Type: cell.OpPut, Family: family, Qualifier: []byte{byte('a' + i)}, Time: at, TTL: ttl, Value: make([]byte, pick(3, 0, 20, 40))}
			switch rng.IntN(30) {
			case 0:
				o.Type = cell.OpType(rng.IntN(10))
			case 1:
				o.Qualifier = []byte{byte('a' + rng.IntN(4))}
			case 2:
				o.Time--
			case 3:
				o.TTL = 7
			case 4:
				o.Family = "g"
			}
			m.Ops = append(m.Ops, o)
		}
		f, size, ok := store.PlainPut(table, &m, now)
		if !ok {
			continue
		}
		plain++
		if err := store.ValidateMutation(table, &m, now); err != nil {
			t.Fatalf("%+v of %+v is no plain put: %v", m, table, err)
		}
		cells, result, err := store.ResolveMutation(table, &m, now, nil)
		if err != nil || len(result) > 0 || len(cells) != len(m.Ops) || table.Families[f].Name != m.Ops[0].Family {
			t.Fatalf("family %d, %d operations: cells %v, result %v, error %v", f, len(m.Ops), cells, result, err)
		}
		bytesOf := 0
		for i := range cells {
			c, o := &cells[i], &m.Ops[i]
			bytesOf += len(o.Qualifier) + len(o.Value)
			if c.Kind != cell.KindPut || c.Family != o.Family || !bytes.Equal(c.Qualifier, o.Qualifier) || !bytes.Equal(c.Value, o.Value) ||
				c.Time != o.Time || c.TTL != o.TTL || c.Time != cells[0].Time || c.TTL != cells[0].TTL || c.Family != cells[0].Family {
				t.Fatalf("operation %+v writes %+v", o, c)
			}
		}
		if bytesOf != size || !slices.IsSortedFunc(cells, func(a, b cell.Cell) int { return bytes.Compare(a.Qualifier, b.Qualifier) }) {
			t.Fatalf("size %d, want %d, of %v", size, bytesOf, cells)
		}
	}
	if plain < 5_000 {
		t.Errorf("%d of 50,000 mutations were plain puts: they are to be most of those that are valid", plain)
	}
}

// Each rule alone makes a mutation no plain put.
func TestPlainPutRefuses(t *testing.T) {
	t.Parallel()
	put := func(change func(*store.TableDescriptor, *cell.Mutation)) bool {
		table, m := plainTable(), cell.Mutation{Table: "t", Row: []byte("r")}
		m.Put("f", []byte("a"), 100, []byte("1"))
		m.Put("f", []byte("b"), 100, []byte("2"))
		change(table, &m)
		_, _, ok := store.PlainPut(table, &m, 50)
		return ok
	}
	if !put(func(*store.TableDescriptor, *cell.Mutation) {}) {
		t.Fatal("two columns of one time are a plain put")
	}
	for name, change := range map[string]func(*store.TableDescriptor, *cell.Mutation){
		"read-only":     func(d *store.TableDescriptor, _ *cell.Mutation) { d.ReadOnly = true },
		"no operations": func(_ *store.TableDescriptor, m *cell.Mutation) { m.Ops = nil },
		"no row":        func(_ *store.TableDescriptor, m *cell.Mutation) { m.Row = nil },
		"durability":    func(_ *store.TableDescriptor, m *cell.Mutation) { m.Durability = cell.FsyncWAL + 1 },
		"time range":    func(_ *store.TableDescriptor, m *cell.Mutation) { m.Read = &cell.TimeRange{} },
		"no family":     func(_ *store.TableDescriptor, m *cell.Mutation) { m.Ops[0].Family, m.Ops[1].Family = "x", "x" },
		"counters":      func(_ *store.TableDescriptor, m *cell.Mutation) { m.Ops[0].Family, m.Ops[1].Family = "n", "n" },
		"two families":  func(_ *store.TableDescriptor, m *cell.Mutation) { m.Ops[1].Family = "g" },
		"two times":     func(_ *store.TableDescriptor, m *cell.Mutation) { m.Ops[1].Time++ },
		"negative time": func(_ *store.TableDescriptor, m *cell.Mutation) { m.Ops[0].Time, m.Ops[1].Time = -1, -1 },
		"the store's clock": func(_ *store.TableDescriptor, m *cell.Mutation) {
			m.Ops[0].Time, m.Ops[1].Time = cell.Latest, cell.Latest
		},
		"far ahead":        func(d *store.TableDescriptor, _ *cell.Mutation) { d.MaxTimestampSlop = 49 },
		"two TTLs":         func(_ *store.TableDescriptor, m *cell.Mutation) { m.Ops[1].TTL = 5 },
		"negative TTL":     func(_ *store.TableDescriptor, m *cell.Mutation) { m.Ops[0].TTL, m.Ops[1].TTL = -3, -3 },
		"a delete":         func(_ *store.TableDescriptor, m *cell.Mutation) { m.Ops[1].Type = cell.OpDelete },
		"one column twice": func(_ *store.TableDescriptor, m *cell.Mutation) { m.Ops[1].Qualifier = []byte("a") },
		"not in order":     func(_ *store.TableDescriptor, m *cell.Mutation) { m.Ops[1].Qualifier = []byte("A") },
		"a large cell":     func(d *store.TableDescriptor, m *cell.Mutation) { d.MaxCellBytes = 23 },
	} {
		if put(change) {
			t.Errorf("%s: it was a plain put still", name)
		}
	}
}

// PlainIncrement agrees with ValidateMutation.
func TestPlainIncrement(t *testing.T) {
	t.Parallel()
	for _, row := range []string{"", "r"} {
		for _, at := range []cell.Timestamp{-1, 0, 5, cell.Latest} {
			for _, limit := range []int{0, 30, 31, 32} {
				for _, readOnly := range []bool{false, true} {
					for i := range plainTable().Families {
						table := plainTable()
						table.MaxCellBytes, table.ReadOnly = limit, readOnly
						m := cell.Mutation{Table: "t", Row: []byte(row)}
						m.Ops = []cell.Op{{Type: cell.OpIncrement, Family: table.Families[i].Name, Qualifier: []byte("q"), Time: at, Delta: 1}}
						want := store.ValidateMutation(table, &m, 10) == nil && table.Families[i].Counter
						if got := store.PlainIncrement(table, i, m.Row, []byte("q"), at); got != want {
							t.Errorf("row %q, time %d, limit %d, read-only %v, family %s: %v, want %v", row, at, limit, readOnly, table.Families[i].Name, got, want)
						}
					}
				}
			}
		}
	}
}
