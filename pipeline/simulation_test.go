package pipeline

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/store"
)

// seeds is how many random schedules are run on the model engine.
var seeds = flag.Int("seeds", 100, "random schedules that TestRandomSchedules runs")

// The random schedule: owners come and go, two at a time or none, replies are
// lost, the store fails before and after it applies, processes die without a
// flush. Whatever happens, the counters are the log.
func TestRandomSchedules(t *testing.T) {
	t.Parallel()
	for engine, open := range map[string]func(testing.TB) store.Engine{"mem": newEngine, "pebble": newPebble} {
		n := map[string]int{"mem": *seeds, "pebble": 10}[engine]
		if testing.Short() {
			n /= 5
		}
		for seed := range n {
			t.Run(fmt.Sprint(engine, seed), func(t *testing.T) {
				t.Parallel()
				run := func(t *testing.T) {
					if d := simulate(t, open(t), uint64(seed), nil); d != "" {
						t.Errorf("Got other contents than the log has (-want +got):\n%s", d)
					}
				}
				if engine == "mem" {
					synctest.Test(t, run) // Pebble has goroutines that never rest
				} else {
					run(t)
				}
			})
		}
	}
}

// What makes it exact, taken away: the simulation must notice each within two
// hundred schedules, or it shows nothing. (A reply before its commit is no such
// thing: the next batch is stale then, and the stored offset is read again.)
func TestSimulationFindsMutants(t *testing.T) {
	t.Parallel()
	for name, mutant := range map[string]func(store.Engine) store.Engine{
		"no compare-and-set":       func(e store.Engine) store.Engine { return &blind{e} },
		"offset in a second batch": func(e store.Engine) store.Engine { return &apart{e} },
		"offset before the data":   func(e store.Engine) store.Engine { return &early{e} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(200) {
				found := false
				synctest.Test(t, func(t *testing.T) {
					found = simulate(t, newEngine(t), seed, mutant) != ""
				})
				if found {
					return
				}
			}
			t.Error("Got the log from every schedule")
		})
	}
}

// blind stores an offset whatever was stored before.
type blind struct{ store.Engine }

func (e *blind) Apply(ctx context.Context, b *store.Batch) error {
	for {
		for i := range b.Advances {
			a := &b.Advances[i]
			p, ok, err := store.ReadProgress(ctx, e.Engine, &a.Source, a.Partition)
			if err != nil {
				return err
			}
			if a.From = store.Absent; ok {
				a.From = p.Next
			}
		}
		if err := e.Engine.Apply(ctx, b); !errors.Is(err, store.ErrStale) {
			return err
		}
	}
}

// apart stores the data first and then the offset.
type apart struct{ store.Engine }

func (e *apart) Apply(ctx context.Context, b *store.Batch) error {
	data, offset := *b, store.Batch{Advances: b.Advances}
	data.Advances = nil
	if err := e.Engine.Apply(ctx, &data); err != nil {
		return err
	}
	return e.Engine.Apply(ctx, &offset)
}

// early stores the offset first and then the data.
type early struct{ store.Engine }

func (e *early) Apply(ctx context.Context, b *store.Batch) error {
	data, offset := *b, store.Batch{Advances: b.Advances}
	data.Advances = nil
	if err := e.Engine.Apply(ctx, &offset); err != nil {
		return err
	}
	return e.Engine.Apply(ctx, &data)
}

// simulate runs the schedule of a seed and returns how the contents differ from
// the log. Between the store and the processes is mutant, where it is not nil.
func simulate(t *testing.T, mem store.Engine, seed uint64, mutant func(store.Engine) store.Engine) string {
	rng := rand.New(rand.NewPCG(seed, 7))
	const partitions = 3
	b := newFakeBroker(partitions)
	b.rng = rand.New(rand.NewPCG(rng.Uint64(), 1))
	var mu sync.Mutex
	faults := rand.New(rand.NewPCG(rng.Uint64(), 2))
	calm := false
	engine := func() store.Engine {
		var e store.Engine = &faultyEngine{Engine: mem, fault: func(*store.Batch) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			if calm {
				return true, nil
			}
			switch faults.IntN(20) {
			case 0: // lost before
				return false, store.ErrTransient
			case 1: // lost reply
				return true, store.ErrTransient
			case 2:
				return false, store.ErrDiskFull
			case 3:
				return true, errors.New("connection reset")
			}
			return true, nil
		}}
		if mutant != nil {
			e = mutant(e)
		}
		return e
	}
	values := []string{"a", "b", "c", "d", "a", "a", "skip", "bad", "-", "huge", "long"}
	var owners []*running
	all := []int32{0, 1, 2}
	begin := func() {
		drain := time.Duration(-1)
		if rng.IntN(2) == 0 {
			drain = time.Second
		}
		p := newTest(t, engine(), b, func(o *Options) {
			o.DrainTimeout = drain
			o.InFlight = 1 + rng.IntN(3)
			o.Flush.MaxRecords = 1 + rng.IntN(100)
		})
		owners = append(owners, start(t, p, all[:1+rng.IntN(partitions)]...))
	}
	// An owner that fails for good is as good as dead: what it leaves is compared.
	end := func(r *running) error {
		err := r.close()
		if mutant != nil {
			return nil
		}
		return err
	}
	for range 40 {
		switch rng.IntN(6) {
		case 0:
			begin()
		case 1:
			if len(owners) > 0 {
				i := rng.IntN(len(owners))
				if err := end(owners[i]); err != nil {
					t.Fatal(err)
				}
				owners = append(owners[:i], owners[i+1:]...)
			}
		default:
			n := int32(rng.IntN(partitions))
			for range rng.IntN(60) {
				b.produce(n, values[rng.IntN(len(values))])
			}
			<-time.After(time.Duration(rng.IntN(3)) * time.Millisecond)
		}
	}
	for _, o := range owners {
		if err := end(o); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	calm = true
	mu.Unlock()
	last := start(t, newTest(t, mem, b), all...)
	if mutant == nil {
		last.caughtUp(b)
		if err := last.close(); err != nil {
			t.Fatal(err)
		}
		return cmp.Diff(want(b), readUnchecked(t, mem))
	}
	waitFor(t, func() bool { return len(last.done) > 0 || stored(t, mem, b) })
	if err := last.close(); err != nil {
		return err.Error()
	}
	return cmp.Diff(want(b), readUnchecked(t, mem))
}
