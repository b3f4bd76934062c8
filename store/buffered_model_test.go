package store_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/store"
)

// tally is what callers of a mutator have given it and were told of.
type tally struct {
	mu     sync.Mutex
	given  map[string][]string // values by row, in the order of the calls
	refuse map[string]bool     // values that the engine refuses
	failed map[string]int      // how often a value was reported
}

func newTally() *tally {
	return &tally{given: map[string][]string{}, refuse: map[string]bool{}, failed: map[string]int{}}
}

// mutation returns a put of value to row, at one time for all so that the later
// one wins, which also counts one.
func (y *tally) mutation(row, value string, refused bool) *cell.Mutation {
	m := putOf(row, 1, value)
	m.Increment("n", []byte("count"), 1)
	if refused {
		m.Put("nope", nil, 1, nil)
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	y.given[row] = append(y.given[row], value)
	y.refuse[value] = refused
	return m
}

// told notes what a call returned; false where the error is another.
func (y *tally) told(err error) bool {
	var e *store.BufferedError
	if !errors.As(err, &e) {
		return err == nil || errors.Is(err, store.ErrReported)
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, f := range e.Failed {
		y.failed[string(f.Mutation.Ops[0].Value)]++
	}
	return true
}

// check compares the table with what was not reported: the last value of each row,
// and each increment applied once.
func (y *tally) check(table *store.Table) error {
	for row, given := range y.given {
		last, applied := "", 0
		for _, v := range given {
			switch {
			case y.failed[v] > 1:
				return fmt.Errorf("%s was reported %d times", v, y.failed[v])
			case y.failed[v] == 0 && y.refuse[v]:
				return fmt.Errorf("%s, which the engine refuses, was not reported", v)
			case y.failed[v] == 0:
				last = v
				applied++
			}
		}
		r, err := table.Get(context.Background(), []byte(row), nil)
		if err != nil {
			return err
		}
		got, count := "", 0
		if r != nil {
			got, count = string(r.Cells[0].Value), int(binary.BigEndian.Uint64(r.Cells[1].Value))
		}
		if got != last || count != applied {
			return fmt.Errorf("row %s has %q and counts %d, want %q and %d: given %v, failed %v", row, got, count, last, applied, given, y.failed)
		}
	}
	return nil
}

// step is one thing that a caller does.
type step struct {
	what      string // mutate, flush or wait
	mutations []given
}

type given struct {
	row     string
	refused bool
}

// Whatever the store refuses and however often it fails: what was not reported was
// applied once, in order, and what was reported was reported once and not applied.
func TestBufferedMutatorProperty(t *testing.T) {
	t.Parallel()
	steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
		return step{
			what: rapid.SampledFrom([]string{"mutate", "mutate", "mutate", "flush", "wait"}).Draw(rt, "what"),
			mutations: rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) given {
				return given{rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "row"), rapid.IntRange(0, 4).Draw(rt, "refused") == 0}
			}), 1, 4).Draw(rt, "mutations"),
		}
	}), 0, 30)
	rapid.Check(t, func(rt *rapid.T) {
		failing, steps := rapid.SliceOfN(rapid.Bool(), 1, 12).Draw(rt, "failing"), steps.Draw(rt, "steps")
		opts := store.BufferedMutatorOptions{
			BufferBytes:   rapid.SampledFrom([]int{0, 1, 1000}).Draw(rt, "bytes"),
			MaxMutations:  rapid.IntRange(0, 5).Draw(rt, "mutations"),
			FlushInterval: rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(rt, "interval"),
			Retries:       rapid.IntRange(-1, 4).Draw(rt, "retries"),
		}
		var err error
		synctest.Test(t, func(t *testing.T) { err = runSteps(t, steps, failing, &opts) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// runSteps does the steps on a store whose calls fail as failing says, over and
// over.
func runSteps(t *testing.T, steps []step, failing []bool, o *store.BufferedMutatorOptions) (err error) {
	_, table := hookedTable(t, func(_ context.Context, call int, _ *store.Batch) error {
		if failing[call%len(failing)] {
			return store.ErrTransient
		}
		return nil
	})
	b := mutator(t, table, o)
	y, n := newTally(), 0
	defer func() {
		if cerr := b.Close(t.Context()); err == nil && !y.told(cerr) {
			err = cerr
		}
		if err == nil {
			err = y.check(table)
		}
	}()
	for _, s := range steps {
		switch s.what {
		case "mutate":
			var ms []*cell.Mutation
			for _, g := range s.mutations {
				n++
				ms = append(ms, y.mutation(g.row, fmt.Sprint(n), g.refused))
			}
			if err := b.Mutate(t.Context(), ms...); !y.told(err) {
				return err
			}
		case "flush":
			if err := b.Flush(t.Context()); !y.told(err) {
				return err
			}
			if err := y.check(table); err != nil { // nothing is on its way
				return err
			}
		case "wait":
			time.Sleep(time.Second)
			synctest.Wait()
		}
	}
	return nil
}

// The same with callers at once, each on a row of its own.
func TestBufferedMutatorConcurrent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(3, 4)) // of the sending goroutine
		h, table := hookedTable(t, func(context.Context, int, *store.Batch) error {
			switch rng.IntN(10) {
			case 0:
				return store.ErrCorrupt
			case 1, 2, 3:
				return store.ErrTransient
			}
			return nil
		})
		b := mutator(t, table, &store.BufferedMutatorOptions{MaxMutations: 20, Retries: 3, FlushInterval: time.Second})
		y := newTally()
		var all sync.WaitGroup
		for c := range 8 {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(5, uint64(c)))
				for i := range 300 {
					m := y.mutation(fmt.Sprint("row", c), fmt.Sprintf("%d/%d", c, i), rng.IntN(20) == 0)
					if err := b.Mutate(t.Context(), m); !y.told(err) {
						t.Errorf("Mutate: %v", err)
					}
					switch rng.IntN(50) {
					case 0:
						if err := b.Flush(t.Context()); !y.told(err) {
							t.Errorf("Flush: %v", err)
						}
					case 1:
						time.Sleep(time.Second)
					}
				}
			})
		}
		all.Wait()
		if err := b.Close(t.Context()); !y.told(err) {
			t.Errorf("Close: %v", err)
		}
		if err := y.check(table); err != nil {
			t.Error(err)
		}
		if len(y.failed) == 0 || len(h.batches()) < 50 {
			t.Errorf("%d failures and %d batches: the test has tested little", len(y.failed), len(h.batches()))
		}
	})
}
