package pebblestore

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func TestCounterTable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		table, model := newCounterTable(0), map[string]*counter{}
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			// Hashes that collide, around the end of the table too, and some but for their
			// first bit.
			i := rapid.IntRange(0, 40).Draw(t, "key")
			key, hash := fmt.Append(nil, i), uint64(i%5)-3^uint64(i%2)<<63
			got := table.find(hash, key)
			if got != model[string(key)] {
				t.Fatalf("Got %v for %s, want %v", got, key, model[string(key)])
			}
			switch {
			case got == nil:
				c := &counter{hash: hash, key: string(key)}
				table.add(c)
				model[c.key] = c
			case rapid.Bool().Draw(t, "remove"):
				table.remove(got)
				table.remove(got) // which changes nothing
				delete(model, got.key)
			case rapid.IntRange(0, 9).Draw(t, "shrink") == 0:
				most := rapid.IntRange(0, len(model)+1).Draw(t, "to")
				want := min(len(model), most)
				table.shrink(most)
				left := map[*counter]bool{}
				for _, s := range table.slots {
					left[s.c] = s.c != nil
				}
				for k, c := range model {
					if !left[c] {
						delete(model, k)
					}
				}
				if len(model) != want {
					t.Fatalf("Got %d counters, want %d", len(model), want)
				}
			}
			if table.n != len(model) {
				t.Fatalf("Got %d counters, want %d", table.n, len(model))
			}
		}
	})
}

// TestCounterTableKeepsWhatIsAskedFor has half of a table asked for between any two times
// that others are added, and as many taken away: once the hand has gone round, and knows what
// nobody asks for, none of that half.
func TestCounterTableKeepsWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	const most, often, round = 1000, 500, 100
	rng := rand.New(rand.NewPCG(1, 2))
	table, next := newCounterTable(most), 0
	add := func() *counter {
		c := &counter{hash: rng.Uint64(), key: fmt.Sprint(next)}
		table.add(c)
		next++
		return c
	}
	var kept []*counter
	for range often {
		kept = append(kept, add())
	}
	for i := range 100 {
		for range round {
			add()
		}
		for at, c := range kept {
			switch got := table.find(c.hash, []byte(c.key)); {
			case got == nil && i < 20:
				kept[at] = add()
			case got != c:
				t.Fatalf("Counter %s is gone after %d rounds", c.key, i)
			}
		}
		table.shrink(most)
		if want := min(next, most); table.n != want {
			t.Fatalf("Got %d counters of %d, want %d", table.n, next, want)
		}
	}
	// Nobody asks any more: the others take their place.
	for range 2 * most {
		add()
		table.shrink(most)
	}
	for _, c := range kept {
		if table.find(c.hash, []byte(c.key)) != nil {
			t.Fatalf("Counter %s is still there", c.key)
		}
	}
}

// TestCounterCacheHoldsItsLimit asks for as many counters as the cache may have, again and
// again: none is read twice.
func TestCounterCacheHoldsItsLimit(t *testing.T) {
	t.Parallel()
	const limit = 1000
	cache := newCounterCache(limit, -1)
	missed := 0
	for i := range 10 * limit {
		key := fmt.Append(nil, i*7919%limit)
		if cache.get(key) == nil {
			missed++
			cache.add(&counter{hash: cache.hash(key), key: string(key)})
		}
		if i%37 == 0 {
			cache.age()
		}
	}
	if missed != limit {
		t.Errorf("Got %d counters that were not cached, want %d", missed, limit)
	}
}
