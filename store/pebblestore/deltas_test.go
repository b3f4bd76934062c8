package pebblestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store"
)

// TestDeltasInAnyOrder adds sums of counters in random order, some of them twice in
// one batch, with a cache that holds next to none of them, and compares what is
// stored with a map.
func TestDeltasInAnyOrder(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir(), &Options{CounterCacheEntries: 8})
	create(t, db, "t", store.NewFamily("f"), counterFamily("n"), counterFamily("m"))
	create(t, db, "u", counterFamily("n"))
	rng := rand.New(rand.NewPCG(3, 4))
	type key struct{ table, family, row, qualifier string }
	want := map[key]int64{}
	for range 20 {
		var b store.Batch
		for i := range 200 {
			// Rows with zero bytes and short ones: keys below sixteen bytes.
			k := key{
				[]string{"t", "u"}[rng.IntN(2)], "n",
				[]string{"a", "a\x00", "\x00", "page-000000000001", "page-000000000002"}[rng.IntN(5)],
				[]string{"", "\x00", "b", "minute"}[rng.IntN(4)],
			}
			if k.table == "t" && rng.IntN(2) == 0 {
				k.family = "m"
			}
			d := int64(rng.IntN(9) - 3)
			want[k] += d
			b.Counters = append(b.Counters, store.CounterDelta{
				Table: k.table, Family: k.family, Row: []byte(k.row), Qualifier: []byte(k.qualifier), Delta: d, Time: 1, Offset: int64(i),
			})
		}
		if err := db.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	got := map[key]int64{}
	for _, name := range []string{"t", "u"} {
		s := db.Scan(t.Context(), &store.Scan{Table: name})
		for s.Next() {
			for _, c := range s.Row().Cells {
				got[key{name, c.Family, string(s.Row().Key), string(c.Qualifier)}] = int64(binary.BigEndian.Uint64(c.Value))
			}
		}
		if err := errors.Join(s.Err(), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
}

// TestDeltasRefused pins that every bad sum of a batch is named, by offset, and that
// nothing of the batch is counted.
func TestDeltasRefused(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir(), nil)
	create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
	delta := func(offset int64, table, family, row string) store.CounterDelta {
		return store.CounterDelta{Table: table, Family: family, Row: []byte(row), Qualifier: []byte("q"), Delta: 1, Time: 1, Offset: offset}
	}
	b := store.Batch{Counters: []store.CounterDelta{
		delta(7, "t", "f", "z"), delta(5, "t", "n", "good"), delta(4, "t", "x", "a"), delta(6, "missing", "n", "a"), delta(2, "t", "n", ""),
	}}
	var refusal *store.BatchError
	if err := db.Apply(t.Context(), &b); !errors.As(err, &refusal) {
		t.Fatalf("Apply: %v, want a BatchError", err)
	}
	var offsets []int64
	for _, r := range refusal.Refused {
		offsets = append(offsets, r.Offset)
	}
	if diff := cmp.Diff([]int64{2, 4, 6, 7}, offsets); diff != "" {
		t.Errorf("refused offsets (-want +got):\n%s", diff)
	}
	s := db.Scan(t.Context(), &store.Scan{Table: "t"})
	defer s.Close()
	if s.Next() {
		t.Errorf("row %q is there", s.Row().Key)
	}
	if err := s.Err(); err != nil {
		t.Error(err)
	}
}

func TestKeyHeadKeepsOrder(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	keys := [][]byte{{}, {0}, bytes.Repeat([]byte{0}, headWords*wordBytes), bytes.Repeat([]byte{0}, headWords*wordBytes+1), bytes.Repeat([]byte{255}, headWords*wordBytes)}
	for range 200 {
		k := make([]byte, rng.IntN(headWords*wordBytes+4))
		copy(k, keys[rng.IntN(len(keys))]) // often as far as the last bytes
		for i := rng.IntN(len(k) + 1); i < len(k); i++ {
			k[i] = byte(rng.IntN(3))
		}
		keys = append(keys, k)
	}
	for _, x := range keys {
		for _, y := range keys {
			var a, b keyHead
			a.set(append([]byte("shared"), x...), len("shared"))
			b.set(append([]byte("shared"), y...), len("shared"))
			for i, k := range [][]byte{x, y} { // as the whole of a key they are the same
				var alone keyHead
				alone.set(k, 0)
				if alone != []keyHead{a, b}[i] {
					t.Fatalf("the head of %x alone is %x, behind others %x", k, alone, []keyHead{a, b}[i])
				}
			}
			got := a.compare(&b)
			if want := bytes.Compare(x, y); got != 0 && got != want {
				t.Fatalf("the heads put %x and %x in order %d, want %d", x, y, got, want)
			}
			if len(x) == len(y) && len(x) <= headWords*wordBytes && got == 0 && !bytes.Equal(x, y) {
				t.Fatalf("the heads do not tell %x and %x apart", x, y)
			}
		}
	}
}

// BenchmarkNewCounters adds batches of 20,000 counters that are not there yet, in
// random order: what a table of counts by the minute gets when a backlog is read.
func BenchmarkNewCounters(b *testing.B) {
	db := open(b, b.TempDir(), nil)
	create(b, db, "t", counterFamily("n"))
	const n = 20_000
	rng := rand.New(rand.NewPCG(1, 2))
	var batch store.Batch
	minute := 0
	for b.Loop() {
		b.StopTimer()
		batch.Reset()
		for i := range n {
			batch.Counters = append(batch.Counters, store.CounterDelta{
				Table: "t", Family: "n", Row: fmt.Appendf(nil, "page-%05d", i/10), Qualifier: fmt.Appendf(nil, "%08d", minute+i%10),
				Delta: 1, Time: cell.Timestamp(1_700_000_000_000),
			})
		}
		rng.Shuffle(n, func(i, j int) { batch.Counters[i], batch.Counters[j] = batch.Counters[j], batch.Counters[i] })
		minute += 10
		b.StartTimer()
		if err := db.Apply(b.Context(), &batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/counter")
}

func TestSharedPrefix(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		keys []string
		want int
	}{
		{nil, 0},
		{[]string{"abc"}, 3},
		{[]string{"abc", "abd", "abcd"}, 2},
		{[]string{"abcd", "ab", "abce"}, 2},
		{[]string{"abc", "abc"}, 3},
		{[]string{"a", "", "a"}, 0},
		{[]string{"x", "y"}, 0},
	} {
		items := make([]ordered, len(test.keys))
		for i := range items {
			items[i].at = uint32(i)
		}
		if got := sharedPrefix(items, func(i int) []byte { return []byte(test.keys[i]) }); got != test.want {
			t.Errorf("%q: Got %d, want %d", test.keys, got, test.want)
		}
	}
}
