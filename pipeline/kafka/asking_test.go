package kafka

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Many partitions that are opened at once, as at the start of a process, or after a
// broker was away, take few connections: a broker's queue for new ones is short.
func TestManyPartitionsTakeFewConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const partitions = 300
		_, o := startBroker(t, kfake.SeedTopics(partitions, "wide"))
		var dialled, unanswered atomic.Int32
		dial := o.Dial
		o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialled.Add(1)
			time.Sleep(time.Millisecond) // a network's, so that all ask at one time
			return dial(ctx, network, addr)
		}
		c := newTestClient(t, o)
		var wg sync.WaitGroup
		for p := range int32(partitions) {
			wg.Go(func() {
				if _, err := c.Topic(t.Context(), "wide"); err != nil {
					unanswered.Add(1)
				}
				if _, err := c.ListOffsets(t.Context(), "wide", []int32{p}); err != nil {
					unanswered.Add(1)
				}
				if _, err := c.EpochEnd(t.Context(), "wide", p, 0); err != nil {
					unanswered.Add(1)
				}
			})
		}
		wg.Wait()
		// To any broker, to the one that leads, and the transport's own.
		if n, most := dialled.Load(), int32(2*asksAtOnce+2); n > most || unanswered.Load() > 0 {
			t.Errorf("%d partitions made %d connections, want at most %d; %d questions had no answer", partitions, n, most, unanswered.Load())
		}
	})
}

// A broker that does not answer holds up only what is asked of it.
func TestSilentBrokerHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a asking
		req := kmsg.NewPtrMetadataRequest()
		var ends []func()
		for range asksAtOnce {
			end, err := a.begin(t.Context(), 1, req)
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, end)
		}
		end, err := a.begin(t.Context(), 2, req)
		if err != nil {
			t.Fatal(err)
		}
		end()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.begin(ctx, 1, req); err != context.DeadlineExceeded {
			t.Errorf("Got %v, want the deadline of who waits", err)
		}
		ends[0]()
		if _, err := a.begin(t.Context(), 1, req); err != nil {
			t.Error(err)
		}
	})
}
