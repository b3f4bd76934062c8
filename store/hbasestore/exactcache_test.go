package hbasestore

import (
	"testing"
	"testing/synctest"
	"time"

	"sluice/store"
)

// TestUnusedPartitions: what is kept of a partition that has no batch any more, as another
// process has it, is dropped after a while, and takes no share of the cache then.
func TestUnusedPartitions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newExact(nil, 100)
		apply := func(number int32, from int64) (known bool) {
			p := x.take(&store.Advance{Source: views, Partition: number, From: from})
			known = p.known
			p.known, p.state.next = true, from+1
			x.give(p)
			return known
		}
		apply(0, 0)
		apply(1, 0)
		for n := int64(1); n < 25; n++ {
			time.Sleep(time.Minute)
			if !apply(0, n) {
				t.Errorf("minute %d: one with a batch a minute was dropped", n)
			}
			if want := n < 10; (len(x.partitions) == 2) != want {
				t.Errorf("minute %d: Got %d partitions", n, len(x.partitions))
			}
		}
		if share := x.share(); share != 50 {
			t.Errorf("Got a share of %d", share)
		}
		if apply(1, 1) {
			t.Error("One without a batch for a while was kept")
		}
	})
}
