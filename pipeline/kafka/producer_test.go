package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// smallBatches makes many record batches of a few records.
var smallBatches = &ProducerOptions{Compression: None, BatchBytes: 500}

// logOf reads t/0 as it is.
func logOf(t *testing.T, c *Client) []string {
	t.Helper()
	end, err := c.ListOffsets(testContext(t), "t", []int32{0})
	if err != nil {
		t.Fatal(err)
	}
	if end[0].End == 0 {
		return nil
	}
	return readTo(t, startFetcher(t, c, nil).Add("t", 0, 0), end[0].End)
}

// The brokers write, and say that they may not have.
func TestProduceOnceAfterDoubt(t *testing.T) {
	t.Parallel()
	for _, e := range []*kerr.Error{kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend} {
		t.Run(e.Message, func(t *testing.T) {
			t.Parallel()
			cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
			faults := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: e, Count: 7})
			if err := c.NewProducer(smallBatches).Produce(testContext(t), "t", numbered(0, 300)...); err != nil {
				t.Fatal(err)
			}
			if got := logOf(t, c); !slices.Equal(got, values(0, 300)) {
				t.Errorf("Got %d records, want each of 300 once", len(got))
			}
			if faults.Hits() != 7 {
				t.Errorf("Got %d faults", faults.Hits())
			}
		})
	}
}

// A broker that knows a topic, and none of its partitions yet, is asked again: no record can
// be dealt to none.
func TestProduceToNoPartitions(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	info, err := c.Topic(testContext(t), "t")
	if err != nil {
		t.Fatal(err)
	}
	empty := 0
	cluster.ControlKey(int16(kmsg.Metadata), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if topics := kreq.(*kmsg.MetadataRequest).Topics; len(topics) == 0 || empty == 2 {
			return nil, nil, false
		}
		empty++
		resp := kreq.ResponseKind().(*kmsg.MetadataResponse)
		resp.ClusterID = &info.ClusterID
		rt := kmsg.NewMetadataResponseTopic()
		rt.Topic, rt.TopicID = &info.Name, info.ID
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	msgs := numbered(0, 3)
	for i := range msgs {
		msgs[i].Partition = AnyPartition
	}
	if err := c.NewProducer(nil).Produce(testContext(t), "t", msgs...); err != nil {
		t.Fatal(err)
	}
	if got := logOf(t, c); !slices.Equal(got, values(0, 3)) || empty != 2 {
		t.Errorf("Got %q after %d answers without partitions", got, empty)
	}
}

// deafConn loses the answers to some produce requests.
type deafConn struct {
	net.Conn
	lose func() bool
	deaf atomic.Bool
}

func (c *deafConn) Write(b []byte) (int, error) {
	if len(b) > 6 && kmsg.Key(binary.BigEndian.Uint16(b[4:])) == kmsg.Produce && c.lose() {
		c.deaf.Store(true)
	}
	return c.Conn.Write(b)
}

// Read waits for an answer that is lost, so that the broker has applied what it
// answers.
func (c *deafConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.deaf.Load() {
		return 0, errors.Join(io.ErrUnexpectedEOF, c.Close())
	}
	return n, err
}

func TestProduceOnceAfterLostAnswers(t *testing.T) {
	t.Parallel()
	network := new(kfake.VirtualNetwork)
	cluster, err := kfake.NewCluster(kfake.Ports(1, 2, 3), kfake.ListenFn(network.Listen), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	var produced, lost atomic.Int64
	c := newTestClient(t, &Options{Brokers: []string{"127.0.0.1:1"}, Dial: func(ctx context.Context, netw, addr string) (net.Conn, error) {
		conn, err := network.DialContext(ctx, netw, addr)
		if err != nil {
			return nil, err
		}
		return &deafConn{Conn: conn, lose: func() bool {
			n := produced.Add(1)
			if n%3 != 0 || lost.Load() == 10 {
				return false
			}
			lost.Add(1)
			if n%2 == 0 { // and the leader moves
				_ = cluster.MoveTopicPartition("t", 0, int32(n/2%3))
			}
			return true
		}}, nil
	}})
	p := c.NewProducer(smallBatches)
	for i := range 10 {
		if err := p.Produce(testContext(t), "t", numbered(30*i, 30*i+30)...); err != nil {
			t.Fatal(err)
		}
	}
	if got := logOf(t, c); !slices.Equal(got, values(0, 300)) {
		t.Errorf("Got %d records, want each of 300 once", len(got))
	}
	if lost.Load() != 10 {
		t.Errorf("Got %d answers lost, want 10", lost.Load())
	}
}

// A broker that does not know the numbers of the producer any more.
func TestProduceSequenceLost(t *testing.T) {
	t.Parallel()
	for _, e := range []*kerr.Error{kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping} {
		t.Run(e.Message, func(t *testing.T) {
			t.Parallel()
			cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
			p := c.NewProducer(smallBatches)
			if err := p.Produce(testContext(t), "t", numbered(0, 50)...); err != nil {
				t.Fatal(err)
			}
			before := p.id
			ids := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Observe: true, Count: -1})
			cluster.Fault(
				kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.CoordinatorLoadInProgress, Count: 2},
				kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: e, Count: 2},
			)
			if err := p.Produce(testContext(t), "t", numbered(50, 100)...); err != nil {
				t.Fatal(err)
			}
			if got := logOf(t, c); !slices.Equal(got, values(0, 100)) {
				t.Errorf("Got %v", got)
			}
			if p.id == before || ids.Hits() < 2 {
				t.Errorf("Got producer id %v, %v before, after %d requests for one", p.id, before, ids.Hits())
			}
			if got := c.Metrics().Errors[code(e.Code).name()]; got != 2 {
				t.Errorf("Got %d counted, want 2: %v", got, c.Metrics().Errors)
			}
		})
	}
}

// A call that gave up leaves a batch in doubt; the next call's numbers must not be
// taken for it.
func TestProduceAfterGivingUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
		p := c.NewProducer(&ProducerOptions{Compression: None, DeliveryTimeout: 200 * time.Millisecond})
		faults := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: -1})
		if err := p.Produce(testContext(t), "t", numbered(0, 5)...); err == nil {
			t.Fatal("Got no error")
		}
		faults.Remove()
		patient := testContext(t)
		p.o.DeliveryTimeout = deadline
		if err := p.Produce(patient, "t", numbered(5, 10)...); err != nil {
			t.Fatal(err)
		}
		if got := logOf(t, c); !slices.Equal(got, values(0, 10)) {
			t.Errorf("Got %v, want both calls' records, each once", got)
		}
	})
}

// The error of a call whose time is over says what the broker said, whatever was
// cut off after that.
func TestProduceGivesReason(t *testing.T) {
	t.Parallel()
	for _, cut := range []kmsg.Key{kmsg.Produce, kmsg.Metadata} {
		t.Run(cut.Name(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
				over := make(chan struct{})
				defer close(over)
				refusals := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas})
				cluster.ControlKey(int16(cut), func(kmsg.Request) (kmsg.Response, error, bool) {
					cluster.KeepControl()
					if refusals.Hits() > 0 {
						cluster.SleepControl(func() { <-over })
					}
					return nil, nil, false
				})
				p := c.NewProducer(&ProducerOptions{Compression: None, DeliveryTimeout: time.Second})
				if err := p.Produce(testContext(t), "t", Message{}); !errors.Is(err, codeNotEnoughReplicas) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Got %v, want the deadline and the broker's reason", err)
				}
			})
		})
	}
}

// A topic that was deleted, and one that was made anew with fewer partitions: who produces
// hears of it at once, and what comes then goes to what is there.
func TestProduceTopicMadeAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, c := startCluster(t, kfake.SeedTopics(2, "t"))
		sent := 0
		cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			sent++
			return nil, nil, false
		})
		p := c.NewProducer(&ProducerOptions{Compression: None})
		two := numbered(0, 2)
		two[0].Partition, two[1].Partition = 0, 1
		if err := p.Produce(testContext(t), "t", two...); err != nil {
			t.Fatal(err)
		}
		if err := cluster.DeleteTopic("t"); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if i == 1 {
				sent = 0 // the first call did not know
			}
			if err := p.Produce(testContext(t), "t", Message{}); !errors.Is(err, ErrTopicNotFound) {
				t.Errorf("Got %v, want ErrTopicNotFound", err)
			}
		}
		if sent > 0 {
			t.Errorf("Got %d requests for a topic that is known to be gone", sent)
		}
		if err := cluster.CreateTopic("t", 2, nil); err != nil {
			t.Fatal(err)
		}
		if err := p.Produce(testContext(t), "t", two...); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(cluster.DeleteTopic("t"), cluster.CreateTopic("t", 1, nil)); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := p.Produce(testContext(t), "t", two[1]); !errors.Is(err, ErrTopicNotFound) || time.Since(begun) > 5*time.Second {
			t.Errorf("Got %v after %v, want ErrTopicNotFound at once", err, time.Since(begun))
		}
		if err := p.Produce(testContext(t), "t", numbered(0, 2)...); err != nil {
			t.Fatal(err)
		}
		if got := logOf(t, c); !slices.Equal(got, values(0, 2)) {
			t.Errorf("Got %v, want both records", got)
		}
	})
}

func TestProduceConcurrently(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: 5})
	p := c.NewProducer(smallBatches)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if err := p.Produce(testContext(t), "t", numbered(100*i, 100*i+100)...); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got, want := logOf(t, c), values(0, 800)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("Got %d records, want each of 800 once", len(got))
	}
}

func TestProduceNotAllowedIDs(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ClusterAuthorizationFailed, Count: -1})
	if err := c.NewProducer(nil).Produce(testContext(t), "t", Message{}); !errors.Is(err, ErrAuth) {
		t.Errorf("Got %v, want ErrAuth", err)
	}
}

// A broker that asks a producer for patience.
func TestProduceThrottled(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	const throttle = 100 * time.Millisecond
	var first, second time.Time
	cluster.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if !first.IsZero() {
			if second.IsZero() {
				second = time.Now()
			}
			return nil, nil, false
		}
		first = time.Now()
		req := kreq.(*kmsg.ProduceRequest)
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		resp.ThrottleMillis = int32(throttle.Milliseconds())
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic = "t"
		rt.Partitions = append(rt.Partitions, kmsg.NewProduceResponseTopicPartition())
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	p := c.NewProducer(smallBatches)
	if err := p.Produce(testContext(t), "t", numbered(0, 50)...); err != nil {
		t.Fatal(err)
	}
	if waited := second.Sub(first); waited < throttle {
		t.Errorf("Got the next request after %v, want %v at least", waited, throttle)
	}
}

func TestSequenceWraps(t *testing.T) {
	t.Parallel()
	s := sequence{producerID: producerID{1, 0}, next: math.MaxInt32 - 1}
	for _, want := range []int32{math.MaxInt32, 0, 1} {
		if s.advance(1); s.first() != want {
			t.Errorf("Got %d, want %d", s.first(), want)
		}
	}
	if s.producerID = noProducer; s.first() != -1 {
		t.Errorf("Got %d without a producer id", s.first())
	}
}

// What a topic does not take, such as a record without a key where it is compacted, is named
// as Kafka names it, with the broker's words.
func TestProduceRefused(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	why := "Compacted topic cannot accept message without key."
	cluster.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		resp := kreq.ResponseKind().(*kmsg.ProduceResponse)
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic = "t"
		rp := kmsg.NewProduceResponseTopicPartition()
		rp.ErrorCode, rp.ErrorMessage = kerr.InvalidRecord.Code, &why
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	err := c.NewProducer(nil).Produce(testContext(t), "t", Message{Value: []byte("v")})
	if want := "produce to t: partition 0: INVALID_RECORD: " + why; err == nil || err.Error() != want {
		t.Errorf("Got %v, want %s", err, want)
	}
	if got := c.Metrics().Errors["invalid_record"]; got != 1 {
		t.Errorf("Got %v", c.Metrics().Errors)
	}
}

// Brokers that take nothing for long are named once, however often a topic is tried and by
// how many calls, and once more when they do.
func TestProduceTroubleIsSaidOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
		var log logs
		c.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		p := c.NewProducer(&ProducerOptions{DeliveryTimeout: 5 * time.Second})
		defer p.Close()
		for i := range 2 {
			down := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Err: kerr.NotEnoughReplicas, Count: -1})
			for range 3 {
				if err := p.Produce(t.Context(), "t", numbered(0, 1)...); err == nil {
					t.Fatal("Got no error of brokers that take nothing")
				}
			}
			if down.Hits() < 12 {
				t.Errorf("Got %d tries, want many", down.Hits())
			}
			down.Remove()
			for range 2 {
				if err := p.Produce(t.Context(), "t", numbered(0, 1)...); err != nil {
					t.Fatal(err)
				}
			}
			fails, again := strings.Count(log.String(), "produce fails, trying again"), strings.Count(log.String(), "produce works again")
			if fails != i+1 || again != i+1 {
				t.Errorf("Got %d and %d lines of trouble %d and its end, want one each", fails, again, i+1)
			}
		}
	})
}
