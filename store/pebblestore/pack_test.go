package pebblestore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"sluice/cell"
	"sluice/store"
)

// What prepare packs at once, or copies as it was packed before, is what the commit loop
// makes of the same batch step by step: the same keys and values, in the same order.
func TestPreparedIsWhatTheLoopStages(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir(), &Options{RewriteInterval: -1})
	create(t, db, "t", store.NewFamily("f"), store.NewFamily("g"), counterFamily("n"))
	rng := rand.New(rand.NewPCG(3, 4))
	packed := 0
	for round := range 50 {
		var b store.Batch
		for i := range minPrepared + rng.IntN(100) {
			m := cell.Mutation{Table: "t", Row: fmt.Appendf(nil, "row\x00%d", rng.IntN(1000))}
			at := cell.Timestamp(1 + rng.IntN(5))
			for j := range 1 + rng.IntN(4) {
				switch rng.IntN(20) {
				case 0:
					at++
				case 1:
					j = rng.IntN(4)
				}
				family := "f"
				if rng.IntN(20) == 0 {
					family = "g"
				}
				m.Put(family, []byte{byte('a' + j)}, at, bytes.Repeat([]byte{byte(i)}, rng.IntN(40)))
				if rng.IntN(300) == 0 {
					m.Ops[len(m.Ops)-1].Value = make([]byte, maxPackedBytes)
				}
			}
			if n, ok := store.PackedPutSize(&m); ok && rng.IntN(2) == 0 {
				if _, ok := b.Pack(make([]byte, 0, n), int64(i), &m); !ok {
					t.Fatal("It was not packed")
				}
				continue
			}
			b.Add(int64(i), m)
		}
		now := db.opts.Now()
		p := newPrepared(&packing{seed: db.packing.seed})
		p.begin(db.catalog.Load(), now, 0)
		if !p.fill(&b, db.loop.counters, nil) {
			t.Fatalf("round %d: a batch of timed puts was not prepared", round)
		}
		want := newPrepared(&packing{seed: db.packing.seed})
		want.begin(db.catalog.Load(), now, 0)
		all := b.Unpacked().Mutations
		for i := range all {
			m := &all[i].Mutation
			tab, err := want.table("t")
			if err != nil {
				t.Fatal(err)
			}
			cells, _, err := store.ResolveMutation(tab.desc, m, now, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := want.stage(tab, m.Row, cells); err != nil {
				t.Fatal(err)
			}
			if _, _, ok := store.PlainPut(tab.desc, m, now); ok && len(m.Ops) > 1 {
				packed++
			}
		}
		want.sortRun()
		if len(p.kvs) != len(want.kvs) || !bytes.Equal(p.buf, want.buf) || p.seq != want.seq {
			t.Fatalf("round %d: %d key-values of %d bytes, want %d of %d", round, len(p.kvs), len(p.buf), len(want.kvs), len(want.buf))
		}
		for i := range p.kvs {
			if p.kvs[i] != want.kvs[i] {
				t.Fatalf("round %d: key-value %d is %+v, want %+v", round, i, p.kvs[i], want.kvs[i])
			}
		}
	}
	if packed < 1000 {
		t.Errorf("%d mutations were packed at once", packed)
	}
}
