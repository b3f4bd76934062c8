package pebblestore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"sluice/cell"
	"sluice/store"
)

// TestRuns has batches prepared, adopted, rolled back and staged among others, at random:
// what is sorted then is sorted, and of the puts of one column at one time the later one
// comes first, whichever batch it is of.
func TestRuns(t *testing.T) {
	t.Parallel()
	db := open(t, "db", bulk(vfs.NewMem()))
	create(t, db, "t", store.NewFamily("f"))
	create(t, db, "u", store.NewFamily("f"))
	rng := rand.New(rand.NewPCG(1, 2))
	merged, mixed := 0, 0
	for round := range 400 {
		c := &commit{db: db, staging: staging{packing: &db.packing}}
		c.begin(db.catalog.Load(), db.opts.Now(), 1000)
		var want [][]byte // keys, in the order in which they were put
		rows := 1 + rng.IntN(3000)
		if round%4 == 0 { // so that sequences alone tell most keys apart
			rows = 1 + rng.IntN(3)
		}
		kind := rng.IntN(3)
		draw := func() (table string, row []byte) {
			table = "t"
			if round%3 == 0 && rng.IntN(300) == 0 {
				table = "u"
			}
			i := rng.IntN(rows)
			switch kind {
			case 0: // rows that their first bytes tell apart
				return table, fmt.Appendf(nil, "%04x/%d", uint16(i*40503), i)
			case 1: // that the next bytes do
				return table, fmt.Appendf(nil, "%c2345678%06d", 'a'+i%50, i)
			}
			return table, fmt.Appendf(nil, "%04d/%040d", i%3, i) // that none of them do, of many
		}
		for range rng.IntN(6) {
			m := c.mark()
			keys := len(want)
			p := newPrepared(&db.packing)
			p.begin(db.catalog.Load(), db.opts.Now(), 0)
			n := rng.IntN(1500)
			if rng.IntN(10) == 0 {
				n = rng.IntN(3)
			}
			alone := rng.IntN(12) == 0 // not prepared
			for range n {
				name, row := draw()
				mu := cell.Mutation{Table: name, Row: row}
				mu.Put("f", []byte("q"), 1, []byte("v"))
				to := &p.staging
				if alone {
					to = &c.staging
				}
				tab, err := to.table(name)
				if err != nil {
					t.Fatal(err)
				}
				if rng.IntN(800) == 0 && round%3 == 0 { // whose keys do not begin as all others do
					far := *tab
					far.id += 1 << 8
					tab = &far
				}
				cells, _, err := store.ResolveMutation(tab.desc, &mu, db.opts.Now(), nil)
				if err == nil {
					err = to.stage(tab, row, cells)
				}
				if err != nil {
					t.Fatal(err)
				}
				last := &to.kvs[len(to.kvs)-1]
				key := slices.Clone(to.buf[last.start : last.start+last.key])
				want = append(want, key[:len(key)-8])
			}
			if !alone {
				p.sortRun()
				if !c.adopts(p) {
					t.Fatal("It is not to be adopted")
				}
				c.adoptCells(p)
			}
			if rng.IntN(6) == 0 {
				c.rollback(m)
				want = want[:keys]
			}
		}
		if len(c.kvs) != len(want) {
			t.Fatalf("round %d: %d key-values, want %d", round, len(c.kvs), len(want))
		}
		order := make([]int, len(want))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(i, j int) int {
			if d := bytes.Compare(want[i], want[j]); d != 0 {
				return d
			}
			return j - i // the later one first
		})
		if runs := len(c.runs); runs > 1 && !c.mixed && c.inRuns() == len(c.kvs) {
			merged++
		}
		if c.mixed {
			mixed++
		}
		c.sort()
		sequence := map[int]uint64{}
		for at, i := range order {
			got := c.stagedKey(at)
			if !bytes.Equal(got[:len(got)-8], want[i]) {
				t.Fatalf("round %d: key %d is %q, want %q", round, at, got, want[i])
			}
			k := cell.Key{}
			if _, err := cell.DecodeKey(&k, got, nil); err != nil {
				t.Fatal(err)
			}
			sequence[i] = k.Sequence
		}
		for i := 1; i < len(order); i++ {
			if sequence[i] <= sequence[i-1] {
				t.Fatalf("round %d: put %d has sequence %d, the one before %d", round, i, sequence[i], sequence[i-1])
			}
		}
		if len(order) > 0 && (sequence[0] <= 1000 || sequence[len(order)-1] > c.seq) {
			t.Fatalf("round %d: sequences %d to %d, of 1001 to %d", round, sequence[0], sequence[len(order)-1], c.seq)
		}
	}
	if merged < 50 {
		t.Errorf("Got runs to merge in %d rounds", merged)
	}
	if mixed < 30 {
		t.Errorf("Got keys without heads in %d rounds", mixed)
	}
}
