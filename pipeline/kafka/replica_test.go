package kafka

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/pipeline/memory"
)

// preferReplica makes node 0 send readers of t/0 that say a rack to node 1, and
// returns how many fetches each of the two has answered.
func preferReplica(t *testing.T, cluster *kfake.Cluster) (leader, replica *atomic.Int64) {
	t.Helper()
	if err := cluster.MoveTopicPartition("t", 0, 0); err != nil {
		t.Fatal(err)
	}
	cluster.SetFollowers("t", 0, []int32{1})
	leader, replica = new(atomic.Int64), new(atomic.Int64)
	cluster.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		req := kreq.(*kmsg.FetchRequest)
		if req.Rack != "near" {
			t.Errorf("Got rack %q", req.Rack)
		}
		switch cluster.CurrentNode() {
		case 0:
			if len(req.Topics) == 0 {
				return nil, nil, false
			}
			leader.Add(1)
			resp := req.ResponseKind().(*kmsg.FetchResponse)
			rt := kmsg.NewFetchResponseTopic()
			rt.TopicID = req.Topics[0].TopicID
			rp := kmsg.NewFetchResponseTopicPartition()
			rp.PreferredReadReplica = 1
			rt.Partitions = append(rt.Partitions, rp)
			resp.Topics = append(resp.Topics, rt)
			return resp, nil, true
		case 1:
			replica.Add(1)
		}
		return nil, nil, false
	})
	return leader, replica
}

func TestFetchFromReplica(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	leader, replica := preferReplica(t, cluster)
	r := startFetcher(t, c, &FetchOptions{Rack: "near"}).Add("t", 0, 0)
	for i := range 5 {
		produce(t, c, "t", numbered(i, i+1)...)
		if got := readTo(t, r, int64(i+1)); !slices.Equal(got, values(i, i+1)) {
			t.Fatalf("Got %v", got)
		}
	}
	if leader.Load() != 1 || replica.Load() < 5 {
		t.Errorf("Got %d fetches from the leader and %d from the replica, want 1 and at least 5", leader.Load(), replica.Load())
	}
}

// A replica that is behind, or none any more, is left; the leader names one again.
func TestFetchReplicaFails(t *testing.T) {
	t.Parallel()
	for _, e := range []*kerr.Error{kerr.OffsetOutOfRange, kerr.NotLeaderForPartition, kerr.ReplicaNotAvailable} {
		t.Run(e.Message, func(t *testing.T) {
			t.Parallel()
			cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
			leader, _ := preferReplica(t, cluster)
			faults := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Nodes: []int32{1}, Topic: "t", Err: e, Count: 3})
			produce(t, c, "t", numbered(0, 10)...)
			r := startFetcher(t, c, &FetchOptions{Rack: "near"}).Add("t", 0, 0)
			if got := readTo(t, r, 10); !slices.Equal(got, values(0, 10)) {
				t.Errorf("Got %v", got)
			}
			if faults.Hits() != 3 || leader.Load() != 4 {
				t.Errorf("Got %d faults and %d fetches from the leader, want 3 and 4", faults.Hits(), leader.Load())
			}
			if got := c.Metrics().OutOfRange; got != 0 {
				t.Errorf("Got %d out of range: a replica cannot tell", got)
			}
		})
	}
}

// A leader that names itself is no replica: what it says of the log holds.
func TestFetchLeaderPrefersItself(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	if err := cluster.MoveTopicPartition("t", 0, 0); err != nil {
		t.Fatal(err)
	}
	produce(t, c, "t", numbered(0, 10)...)
	left := 3
	cannedFetch(cluster, func(_ int64, p *kmsg.FetchResponseTopicPartition) bool {
		p.PreferredReadReplica = 0
		left--
		return left >= 0
	})
	r := startFetcher(t, c, &FetchOptions{Rack: "near"}).Add("t", 0, 0)
	if got := readTo(t, r, 10); !slices.Equal(got, values(0, 10)) {
		t.Errorf("Got %v", got)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.replica != anyNode || r.node != 0 {
		t.Errorf("Got leader %d and replica %d, want 0 and none", r.node, r.replica)
	}
}

// The lease of a replica ends: the leader is asked again.
func TestFetchReplicaLease(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	leader, _ := preferReplica(t, cluster)
	r := startFetcher(t, c, &FetchOptions{Rack: "near", MaxWait: 5 * time.Millisecond}).Add("t", 0, 0)
	produce(t, c, "t", numbered(0, 1)...)
	readTo(t, r, 1)
	r.mu.Lock()
	r.replicaUntil = time.Now()
	r.mu.Unlock()
	for ctx := testContext(t); leader.Load() < 2; {
		if err := sleep(ctx, time.Millisecond); err != nil {
			t.Fatal("the leader was not asked again")
		}
	}
	produce(t, c, "t", numbered(1, 2)...)
	readTo(t, r, 2)
}

// A broker that asks for patience gets it from every loop.
func TestFetchThrottled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, c := startCluster(t, kfake.SeedTopics(4, "t"))
		for p := range int32(4) {
			if err := cluster.MoveTopicPartition("t", p, 0); err != nil {
				t.Fatal(err)
			}
		}
		const throttle = 300 * time.Millisecond
		var asked atomic.Int64 // when, by the cluster
		early := make(chan time.Duration, 1)
		cluster.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			if at := asked.Load(); at != 0 {
				if since := time.Duration(time.Now().UnixNano() - at); since < throttle {
					select {
					case early <- since:
					default:
					}
				}
				return nil, nil, false
			}
			asked.Store(time.Now().UnixNano())
			resp := kreq.(*kmsg.FetchRequest).ResponseKind().(*kmsg.FetchResponse)
			resp.ThrottleMillis = int32(throttle.Milliseconds())
			return resp, nil, true
		})
		produce(t, c, "t", numbered(0, 10)...)
		f := startFetcher(t, c, nil)
		r := f.Add("t", 0, 0)
		synctest.Wait() // the answer is there
		for p := range int32(3) {
			f.Add("t", p+1, 0)
		}
		if got := readTo(t, r, 10); !slices.Equal(got, values(0, 10)) {
			t.Errorf("Got %v", got)
		}
		select {
		case since := <-early:
			t.Errorf("Got a fetch %v after the broker had asked for %v", since, throttle)
		default:
		}
		if m := c.Metrics(); m.Throttled != throttle || m.Errors["unknown_server_error"] != 0 {
			t.Errorf("Got throttled %v, errors %v", m.Throttled, m.Errors)
		}
	})
}

// The partitions' parts add up to the memory, and every one of them comes.
func TestFetchPartsOfMemory(t *testing.T) {
	t.Parallel()
	const partitions = 8
	m, err := memory.New(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	_, c := startCluster(t, kfake.SeedTopics(partitions, "t"))
	var msgs []Message
	for i := range partitions * 500 {
		msgs = append(msgs, Message{Value: make([]byte, 1000), Partition: int32(i % partitions)})
	}
	if err := c.NewProducer(&ProducerOptions{Compression: None, BatchBytes: 4 << 10}).Produce(testContext(t), "t", msgs...); err != nil {
		t.Fatal(err)
	}
	f := c.NewFetcher(&FetchOptions{Memory: m})
	readers := make([]*PartitionReader, partitions)
	for p := range readers {
		readers[p] = f.Add("t", int32(p), 0)
	}
	runFetcher(t, f) // with all of them: one alone has all of the bytes
	ctx := testContext(t)
	left := partitions
	for left > 0 {
		for _, r := range readers {
			if r.fetchedTo() >= 500 && r.queuedBytes() == 0 {
				continue
			}
			for _, r := range readers {
				if held, part := r.held.Load(), m.Fair(m.Fetched()); held > part {
					t.Fatalf("Got %d bytes of a partition, want its part of %d at most", held, part)
				}
			}
			if used := m.Fetched().Used(); used > m.Fetched().Limit() {
				t.Fatalf("Got %d bytes fetched, want up to %d", used, m.Fetched().Limit())
			}
			b, err := r.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if b.Next == 500 {
				left--
			}
			b.Release()
		}
	}
	for _, r := range readers {
		r.Close()
	}
}

func (r *PartitionReader) queuedBytes() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queued
}

func (r *PartitionReader) fetchedTo() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fetchAt
}

func TestEpochEnd(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	ctx := testContext(t)
	first := cluster.PartitionInfo("t", 0).Epoch
	produce(t, c, "t", numbered(0, 10)...)
	if err := cluster.MoveTopicPartition("t", 0, (cluster.LeaderFor("t", 0)+1)%3); err != nil {
		t.Fatal(err)
	}
	produce(t, c, "t", numbered(10, 30)...)
	cluster.Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetForLeaderEpoch}, Err: kerr.FencedLeaderEpoch},
		kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetForLeaderEpoch}, Err: kerr.UnknownLeaderEpoch},
		kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetForLeaderEpoch}, Err: kerr.NotLeaderForPartition},
	)
	for epoch, want := range map[int32]int64{first: 10, first + 1: 30, first + 7: -1} {
		if _, got, err := c.EpochEnd(ctx, "t", 0, epoch); err != nil || got != want {
			t.Errorf("Got %d and %v for epoch %d, want %d", got, err, epoch, want)
		}
	}
	if _, _, err := c.EpochEnd(ctx, "t", 4, 0); !errors.Is(err, ErrTopicNotFound) {
		t.Errorf("Got %v for a partition that is not there", err)
	}
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetForLeaderEpoch}, Err: kerr.TopicAuthorizationFailed})
	if _, _, err := c.EpochEnd(ctx, "t", 0, 0); !errors.Is(err, ErrAuth) {
		t.Errorf("Got %v, want ErrAuth", err)
	}
}

// A new leader whose log ends before what was fetched has lost records: those that
// it has at the same offsets by now are others.
func TestFetchTruncated(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	epoch := cluster.PartitionInfo("t", 0).Epoch
	produce(t, c, "t", numbered(0, 10)...)
	r := startFetcher(t, c, nil).Add("t", 0, 0)
	readTo(t, r, 10)
	// Two that have to be asked again, then the answer.
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetForLeaderEpoch}, Err: kerr.UnknownLeaderEpoch, Count: 2})
	tries := 0
	cluster.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if tries++; tries <= 2 {
			return nil, nil, false
		}
		req := kreq.(*kmsg.OffsetForLeaderEpochRequest)
		if got := req.Topics[0].Partitions[0].LeaderEpoch; got != epoch {
			t.Errorf("Got asked for epoch %d, want %d", got, epoch)
		}
		resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = "t"
		rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		rp.LeaderEpoch, rp.EndOffset = epoch, 6
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	if err := cluster.MoveTopicPartition("t", 0, (cluster.LeaderFor("t", 0)+1)%3); err != nil {
		t.Fatal(err)
	}
	produce(t, c, "t", numbered(10, 20)...) // the log is longer than what was fetched
	var oor *OutOfRangeError
	if err := nextError(t, r); !errors.As(err, &oor) || oor.Offset != 10 || oor.End != 6 {
		t.Errorf("Got %v, want the truncation at 6", err)
	}
}

// A leader that calls a good offset out of range, as it does for an epoch that it
// does not know, is not asked about that epoch for ever.
func TestFetchUnknownEpoch(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	produce(t, c, "t", numbered(0, 10)...)
	r := startFetcher(t, c, nil).Add("t", 0, 0)
	readTo(t, r, 10)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "t", Err: kerr.OffsetOutOfRange, Count: -1, When: func(req kmsg.Request) bool {
		for _, t := range req.(*kmsg.FetchRequest).Topics {
			for _, p := range t.Partitions {
				if p.LastFetchedEpoch >= 0 {
					return true
				}
			}
		}
		return false
	}})
	var compared atomic.Int64
	cluster.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		compared.Add(1)
		req := kreq.(*kmsg.OffsetForLeaderEpochRequest)
		resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = "t"
		rt.Partitions = append(rt.Partitions, kmsg.NewOffsetForLeaderEpochResponseTopicPartition()) // -1, -1
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	produce(t, c, "t", numbered(10, 11)...)
	if b, err := r.Next(testContext(t)); err != nil || b.From != 10 {
		t.Errorf("Got %+v and %v", b, err)
	} else {
		b.Release()
	}
	if compared.Load() != 1 {
		t.Errorf("Got %d questions for the epoch's end, want 1", compared.Load())
	}
}
