package pipeline

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/store"
)

// A partition that is far behind is applied in full bulk batches until it has
// nearly caught up; what comes then is applied as it comes.
func TestBacklogIsAppliedInBulk(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		backfill Backfill
		backlog  int
		bulk     []int // records of the bulk batches
	}{
		"far behind":    {Backfill{Lag: 100, MaxRecords: 60}, 1000, []int{60, 60, 60, 60, 60, 60, 60, 60, 60, 60, 60, 60, 60, 60, 60, 60}},
		"not so far":    {Backfill{Lag: 100, MaxRecords: 60}, 100, nil},
		"never in bulk": {Backfill{}, 1000, nil},
		"small batches": {Backfill{Lag: 20, MaxRecords: 1}, 30, []int{16}}, // those of flush are larger
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e, b := newEngine(t), newFakeBroker(1)
				var mu sync.Mutex
				var bulk []int
				live := 0
				watched := &faultyEngine{Engine: e, fault: func(b *store.Batch) (bool, error) {
					mu.Lock()
					defer mu.Unlock()
					n := int(b.Advances[0].Progress.Next - max(b.Advances[0].From, 0))
					switch {
					case b.Bulk:
						bulk = append(bulk, n)
					case n > 0:
						live++
					}
					return true, nil
				}}
				for range tt.backlog {
					b.produce(0, "a")
				}
				r := start(t, newTest(t, watched, b, func(o *Options) { o.Backfill, o.Flush.MaxRecords = tt.backfill, 16 }), 0)
				r.caughtUp(b)
				for range 5 {
					b.produce(0, "b")
					<-time.After(time.Second)
				}
				r.caughtUp(b)
				if st, m := r.first(), r.Metrics(); st.Backfill || m.Backfills != int64(min(len(tt.bulk), 1)) {
					t.Errorf("Got %d backfills, under way: %t", m.Backfills, st.Backfill)
				}
				if err := r.close(); err != nil {
					t.Fatal(err)
				}
				got := 0
				for _, n := range bulk {
					got += n
				}
				want := 0
				for _, n := range tt.bulk {
					want += n
				}
				// The last of them may be the rest of what was buffered.
				if len(bulk) < len(tt.bulk) || len(bulk) > len(tt.bulk)+1 || got < want || live < 5 {
					t.Errorf("Got bulk batches of %v and %d others, want %v", bulk, live, tt.bulk)
				}
				for i := range tt.bulk {
					if bulk[i] != tt.bulk[i] {
						t.Errorf("Got bulk batches of %v, want %v", bulk, tt.bulk)
						break
					}
				}
				checkContents(t, e, b)
			})
		})
	}
}
