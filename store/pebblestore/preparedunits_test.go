package pebblestore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store"
)

// unitDraw draws batches of records whose event ids come again: of the same batch, of
// others, and after they were forgotten.
type unitDraw struct {
	rng    *rand.Rand
	now    *atomic.Int64
	offset int64
}

// batch returns a batch of records, with puts and mutations of no unit among them, that
// moves a partition on.
func (d *unitDraw) batch() *store.Batch {
	from := store.Absent
	if d.offset > 0 {
		from = d.offset
	}
	b := &store.Batch{Bulk: d.rng.IntN(3) == 0}
	first := d.offset
	for range minPrepared {
		offset := d.offset
		if d.rng.IntN(8) == 0 {
			m := put(d.row(), d.time(), "f", "a", "beside")
			if d.rng.IntN(2) == 0 {
				d.elements(m)
			}
			b.Add(offset, *m)
		}
		if d.rng.IntN(8) == 0 {
			if _, ok := b.Pack(make([]byte, 0, 100), offset, put(d.row(), d.time(), "f", "a", "packed", "b", fmt.Sprint(offset))); !ok {
				panic("It was not packed")
			}
		}
		for range 1 + d.rng.IntN(2) {
			b.Records = append(b.Records, d.record(offset))
		}
		d.offset++
	}
	slices.SortStableFunc(b.Mutations, func(x, y store.Mutation) int { return int(x.Offset - y.Offset) })
	n := d.offset - first
	b.Advance(store.Source{Pipeline: "p", Topic: "x"}, 0, from, store.Progress{Next: d.offset, Applied: d.offset})
	if n != minPrepared {
		panic(n)
	}
	return b
}

func (d *unitDraw) row() string { return fmt.Sprintf("r%03d", d.rng.IntN(60)) }

func (d *unitDraw) time() cell.Timestamp {
	return cell.Timestamp(d.now.Load() - int64(d.rng.IntN(8))*1000)
}

func (d *unitDraw) record(offset int64) store.Record {
	r := store.Record{Offset: offset}
	if d.rng.IntN(10) > 0 {
		r.Once = fmt.Appendf(nil, "id\x00%d", d.rng.IntN(2000))
		r.OnceTTL = []int64{0, 3000, 5000}[d.rng.IntN(3)]
	}
	for range d.rng.IntN(3) {
		m := cell.Mutation{Table: "t", Row: []byte(d.row())}
		if d.rng.IntN(2) == 0 {
			at := d.time()
			for _, q := range []string{"a", "b", "c"}[:1+d.rng.IntN(3)] {
				m.Put("f", []byte(q), at, fmt.Appendf(nil, "%d", offset))
			}
		}
		if len(m.Ops) == 0 || d.rng.IntN(4) == 0 {
			for range 1 + d.rng.IntN(3) {
				family := []string{"n", "short"}[d.rng.IntN(2)]
				m.Ops = append(m.Ops, cell.Op{Type: cell.OpIncrement, Family: family, Qualifier: []byte{'q', byte('0' + d.rng.IntN(3))}, Time: d.time(), Delta: int64(d.rng.IntN(9) - 2)})
			}
		}
		if d.rng.IntN(3) == 0 {
			d.elements(&m)
		}
		if n, ok := store.PackedPutSize(&m); ok && d.rng.IntN(2) == 0 {
			if r.Puts, _, ok = store.PackPut(r.Puts, make([]byte, 0, n), -1, &m); !ok {
				panic("It was not packed")
			}
			continue
		}
		r.Mutations = append(r.Mutations, m)
	}
	return r
}

// elements adds elements of distinct counts to m.
func (d *unitDraw) elements(m *cell.Mutation) {
	for range 1 + d.rng.IntN(2) {
		m.Append([]string{"d", "soon"}[d.rng.IntN(2)], []byte{'q', byte('0' + d.rng.IntN(3))}, fmt.Appendf(nil, "%d", d.rng.IntN(500)))
		m.Ops[len(m.Ops)-1].Time = d.time()
	}
}

// TestPreparedUnitsChangeNothing applies the same batches prepared and one record after
// the other: the tables, what became of the records and what was late are the same.
func TestPreparedUnitsChangeNothing(t *testing.T) {
	t.Parallel()
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	duplicates := int64(0)
	for seed := range uint64(rounds) {
		rng := rand.New(rand.NewPCG(seed, 7))
		var now atomic.Int64
		now.Store(10_000_000)
		var dbs [2]*DB
		short := counterFamily("short")
		short.TTL = 5
		for i := range dbs {
			o := memory()
			o.Now = func() cell.Timestamp { return cell.Timestamp(now.Load()) }
			o.MinBulkKeys = 150
			dbs[i] = open(t, "db", o)
			distinct, soon := store.NewFamily("d"), store.NewFamily("soon")
			distinct.Distinct, soon.Distinct, soon.TTL = true, true, 5
			create(t, dbs[i], "t", store.NewFamily("f"), counterFamily("n"), short, distinct, soon)
			create(t, dbs[i], "u", counterFamily("n"))
		}
		d := &unitDraw{rng: rng, now: &now}
		for round := range 8 {
			b := d.batch()
			var unapplied [2]store.Unapplied
			for i, db := range dbs {
				r := &request{batch: b}
				switch i {
				case 0: // or else the loop prepares it
					if r.prepared = db.prepare(b); r.prepared == nil {
						t.Fatalf("seed %d, round %d: the batch is not prepared", seed, round)
					}
					if rng.IntN(3) == 0 {
						now.Add(int64(rng.IntN(2500))) // some are late by the time of the commit
					}
					if rng.IntN(4) == 0 {
						db.recycle(r)
					}
				case 1: // beside a sum they are staged one by one
					one := *b
					one.Counters = []store.CounterDelta{{Table: "u", Family: "n", Row: []byte("r"), Qualifier: []byte("q"), Delta: 1, Time: 1, Offset: -1}}
					if r.batch = &one; db.prepare(&one) != nil {
						t.Fatalf("seed %d, round %d: the batch is prepared", seed, round)
					}
				}
				if err := db.submit(t.Context(), r); err != nil {
					t.Fatalf("seed %d, round %d: %v", seed, round, err)
				}
				unapplied[i] = r.dropped
			}
			duplicates += unapplied[0].Duplicate
			if unapplied[0] != unapplied[1] {
				t.Fatalf("seed %d, round %d: prepared %+v, else %+v", seed, round, unapplied[0], unapplied[1])
			}
			scan := &store.Scan{Table: "t", Raw: true}
			if diff := cmp.Diff(rows(t, dbs[1], scan), rows(t, dbs[0], scan)); diff != "" {
				t.Fatalf("seed %d, round %d: -one by one, +prepared:\n%s", seed, round, diff)
			}
			if x, y := dbs[0].metrics.late.Load(), dbs[1].metrics.late.Load(); x != y {
				t.Fatalf("seed %d, round %d: prepared, %d increments are late, else %d", seed, round, x, y)
			}
			if x, y := recentIDs(t, dbs[0]), recentIDs(t, dbs[1]); x != y {
				t.Fatalf("seed %d, round %d: prepared, %d ids are kept, else %d", seed, round, x, y)
			}
			now.Add(int64(rng.IntN(2000)))
		}
	}
	if duplicates < int64(rounds) {
		t.Errorf("%d records dropped: the test says little", duplicates)
	}
}
