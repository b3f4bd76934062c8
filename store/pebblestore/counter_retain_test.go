package pebblestore

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"sluice/cell"
	"sluice/store"
)

// Counters are rewritten for their TTL while they are added to: none loses an
// increment, whether its value is cached or not, and none that expired comes back.
func TestCountersAreExactWhileTheyExpire(t *testing.T) {
	t.Parallel()
	o := eager()
	o.CounterCacheEntries = 40 // of 200: most are read from the store
	o.RewriteKeys = 30
	db := open(t, "db", o)
	var clock atomic.Int64
	clock.Store(10_000_000)
	db.opts.Now = func() cell.Timestamp { return cell.Timestamp(clock.Load()) }
	n := counterFamily("n")
	n.TTL = 100
	create(t, db, "t", store.NewFamily("f"), n)
	const counters = 200
	want := make([]int64, counters)
	for round := range 4 {
		// All that was counted before is over.
		clock.Add(101_000)
		clear(want)
		stop := make(chan struct{})
		var tidying sync.WaitGroup
		tidying.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if err := db.Tidy(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
		var writers sync.WaitGroup
		for w := range 4 {
			rng := rand.New(rand.NewPCG(uint64(round), uint64(w)))
			writers.Go(func() {
				for range 30 {
					var b store.Batch
					for range 1 + rng.IntN(10) {
						i := w + 4*rng.IntN(counters/4)
						b.Counters = append(b.Counters, store.CounterDelta{
							Table: "t", Family: "n", Row: fmt.Appendf(nil, "c%03d", i), Qualifier: []byte("q"),
							Delta: 1, Time: cell.Timestamp(clock.Load() - rng.Int64N(50_000)),
						})
						want[i]++
					}
					if err := db.Apply(t.Context(), &b); err != nil {
						t.Error(err)
					}
				}
			})
		}
		writers.Wait()
		close(stop)
		tidying.Wait()
		got := make([]int64, counters)
		sc := db.Scan(t.Context(), &store.Scan{Table: "t"})
		for sc.Next() {
			var i int
			if _, err := fmt.Sscanf(string(sc.Row().Key), "c%d", &i); err != nil {
				t.Fatal(err)
			}
			got[i] = int64(binary.BigEndian.Uint64(sc.Row().Cells[0].Value))
		}
		if err := sc.Err(); err != nil {
			t.Fatal(err)
		}
		sc.Close()
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("round %d: counter %d is %d, want %d", round, i, got[i], want[i])
			}
		}
	}
	if m := db.Metrics(); m.Rewrites == 0 || m.ReclaimedKeys == 0 {
		t.Errorf("Got %d rewrites and %d keys reclaimed: the test shows nothing", m.Rewrites, m.ReclaimedKeys)
	}
}
