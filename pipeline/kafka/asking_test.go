package kafka

import (
	"context"
	"errors"
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
// broker was away, take few connections: a broker's queue for new ones is short. Nor do
// they have the topic described again for each, with all its partitions.
func TestManyPartitionsTakeFewConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const partitions = 300
		cluster, o := startBroker(t, kfake.SeedTopics(partitions, "wide"))
		var dialled, unanswered, described atomic.Int32
		var late atomic.Bool
		late.Store(true) // by a network's time, so that all who would ask meanwhile have asked
		cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			if len(req.(*kmsg.MetadataRequest).Topics) > 0 {
				described.Add(1)
			}
			return nil, nil, false
		})
		dial := o.Dial
		o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialled.Add(1)
			time.Sleep(time.Millisecond)
			conn, err := dial(ctx, network, addr)
			return &lateConn{conn, &late}, err
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
				if _, _, err := c.EpochEnd(t.Context(), "wide", p, 0); err != nil {
					unanswered.Add(1)
				}
			})
		}
		wg.Wait()
		// To any broker, to the one that leads, and the transport's own.
		if n, most := dialled.Load(), int32(2*asksAtOnce+2); n > most || unanswered.Load() > 0 {
			t.Errorf("%d partitions made %d connections, want at most %d; %d questions had no answer", partitions, n, most, unanswered.Load())
		}
		if n := described.Load(); n > partitions/10 {
			t.Errorf("%d partitions had the topic described %d times", partitions, n)
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

// What a partition asks when it is opened does not hold up the fetch loops, which ask a
// broker again what it takes after a fetch has failed.
func TestFetchDoesNotWaitForTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, o := startBroker(t)
		var slow, cut atomic.Bool
		dial := o.Dial
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return &lateConn{conn, &slow}, err
		}
		cluster.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			if slow.Load() {
				cluster.SleepControl(func() { time.Sleep(20 * time.Millisecond) })
			}
			return nil, nil, false
		})
		cluster.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			if cut.Swap(false) {
				return nil, errors.New("cut"), true
			}
			return nil, nil, false
		})
		c := newTestClient(t, o)
		produce(t, c, "t", numbered(0, 1)...)
		r := startFetcher(t, c, nil).Add("t", 0, 0)
		readTo(t, r, 1)

		slow.Store(true)
		const questions = 500
		begun := time.Now()
		var wg sync.WaitGroup
		for i := range questions { // each another one: equal ones are asked together
			wg.Go(func() {
				if _, err := c.OffsetsAt(t.Context(), "t", []int32{0}, time.UnixMilli(int64(i))); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		cut.Store(true)
		for cut.Load() {
			time.Sleep(time.Millisecond)
		}
		failed := time.Now()
		produce(t, c, "t", numbered(1, 2)...)
		readTo(t, r, 2)
		if took := time.Since(failed); took > time.Second {
			t.Errorf("fetched again after %v", took)
		}
		wg.Wait()
		if took := time.Since(begun); took < 2*time.Second {
			t.Errorf("all was answered within %v: nothing had to wait", took)
		}
	})
}

// lateConn sends a millisecond late where late says so: in a bubble, once all that the
// broker has begun is done. Of two controls that sleep one right after the other it loses
// track.
type lateConn struct {
	net.Conn
	late *atomic.Bool
}

func (c *lateConn) Write(b []byte) (int, error) {
	if c.late.Load() {
		time.Sleep(time.Millisecond)
	}
	return c.Conn.Write(b)
}
