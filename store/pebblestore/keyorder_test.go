package pebblestore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestKeyOrder compares the order of many kinds of keys with that of comparing, equal
// ones and those that end inside the first sixteen bytes among them.
func TestKeyOrder(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	kinds := map[string]func() []byte{
		"random": func() []byte {
			b := make([]byte, rng.IntN(40))
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			return b
		},
		"shared": func() []byte { return fmt.Appendf(nil, "page-%030d", rng.IntN(5000)) },
		"few":    func() []byte { return fmt.Append(nil, rng.IntN(3)) },
		"zeros":  func() []byte { return make([]byte, rng.IntN(20)) },
		"one":    func() []byte { return []byte("a") },
		"families": func() []byte {
			return fmt.Appendf(nil, "%d%s/page-%06d", rng.IntN(3), []string{"a", "bc", ""}[rng.IntN(3)], rng.IntN(9000))
		},
		"late":     func() []byte { return fmt.Appendf(nil, "%d-the same for long-%d", rng.IntN(2), rng.IntN(100)) },
		"ordered":  nil,
		"backward": nil,
	}
	var o keyOrder
	for name, kind := range kinds {
		for _, n := range []int{0, 1, 2, 100, minRadix - 1, minRadix, 5000} {
			keys, want := make([][]byte, n), make([]int, n)
			for i := range keys {
				want[i] = i
				switch name {
				case "ordered":
					keys[i] = fmt.Appendf(nil, "%020d", i)
				case "backward":
					keys[i] = fmt.Appendf(nil, "%020d", n-i)
				default:
					keys[i] = kind()
				}
			}
			slices.SortStableFunc(want, func(a, b int) int { return bytes.Compare(keys[a], keys[b]) })
			for i, x := range o.of(n, func(i int) []byte { return keys[i] }) {
				if int(x.at) != want[i] {
					t.Fatalf("%s: got key %d, %x, at %d of %d, want key %d, %x", name, x.at, keys[x.at], i, n, want[i], keys[want[i]])
				}
			}
		}
	}
}

// The order of a commit's keys, by the byte and by comparing.
func BenchmarkKeyOrder(b *testing.B) {
	rng := rand.New(rand.NewPCG(7, 8))
	random, counted := make([][]byte, 20_000), make([][]byte, 20_000)
	for i := range random {
		random[i] = fmt.Appendf(nil, "\x01\x00\x00\x00\x10\x01%016x-%d", rng.Uint64(), i)
		counted[i] = fmt.Appendf(nil, "\x02\x00\x00\x00\x10%c/page/%06d\x00\x00202611%02d", 1+i%3, rng.IntN(20_000), 1+rng.IntN(3))
	}
	// Rows of many views of some users, each key before its value, as they are staged.
	users := rand.NewZipf(rng, 1.05, 8, 49_999)
	rows, staged := make([][]byte, 20_000), make([]byte, 0, 20_000*240)
	for i := range rows {
		user := users.Uint64()
		start := len(staged)
		staged = fmt.Appendf(staged, "\x01\x00\x00\x00\x10\x01%04x/u%07d/", uint16(user*40503), user)
		staged = binary.BigEndian.AppendUint64(staged, math.MaxInt64-uint64(1_700_000_000_000+i*7))
		staged = binary.BigEndian.AppendUint64(append(staged, 1, 3), uint64(i+0x1010101))
		rows[i] = staged[start:len(staged):len(staged)]
		staged = append(staged, make([]byte, 180)...)
	}
	for name, keys := range map[string][][]byte{"random": random, "counters": counted, "rows": rows} {
		key := func(i int) []byte { return keys[i] }
		b.Run("radix/"+name, func(b *testing.B) {
			var o keyOrder
			for b.Loop() {
				o.of(len(keys), key)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(keys)), "ns/key")
		})
		b.Run("compare/"+name, func(b *testing.B) {
			sorted := make([][]byte, len(keys))
			for b.Loop() {
				copy(sorted, keys)
				slices.SortFunc(sorted, bytes.Compare)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(keys)), "ns/key")
		})
	}
}

// Counters are in the order of their keys when they are written, whatever the order in which
// batches have changed them.
func TestSortCounters(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(9, 10))
	var c commit
	for range 200 {
		c.dirty = c.dirty[:0]
		seen := map[string]bool{}
		n := 1 + rng.IntN(3*minRadix)
		for range 1 + rng.IntN(5) { // batches
			batch := len(c.dirty)
			for range n {
				key := fmt.Sprintf("\x02\x00\x00\x00\x10\x01/page/%06d\x00\x002026", rng.IntN(9*n))
				if !seen[key] {
					seen[key] = true
					c.dirty = append(c.dirty, &counter{key: key})
				}
			}
			slices.SortFunc(c.dirty[batch:], func(a, b *counter) int { return strings.Compare(a.key, b.key) })
		}
		want := slices.Clone(c.dirty)
		slices.SortFunc(want, func(a, b *counter) int { return strings.Compare(a.key, b.key) })
		c.sortCounters()
		if !slices.Equal(want, c.dirty) {
			t.Fatalf("%d counters are not in order", len(want))
		}
	}
}
