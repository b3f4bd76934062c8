package kafka

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// standingReader is a reader of t/0, which holds ten records, at offset, of a fetcher that
// does not run.
func standingReader(t *testing.T, offset int64) (*kfake.Cluster, *Fetcher, *PartitionReader) {
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	produce(t, c, "t", numbered(0, 10)...)
	f := c.NewFetcher(nil)
	r := f.Add("t", 0, offset)
	t.Cleanup(r.Close)
	return cluster, f, r
}

// Of what was asked before a seek, no answer counts, and the log behind the new offset is
// compared with nothing that was read before it.
func TestSeekForgets(t *testing.T) {
	t.Parallel()
	_, f, r := standingReader(t, 5)
	before := r.gen
	r.lastEpoch, r.unchecked = 3, true
	r.SeekTo(2)
	if r.lastEpoch != -1 || r.unchecked {
		t.Errorf("Got epoch %d, unchecked %v after a seek", r.lastEpoch, r.unchecked)
	}
	b := simple(5, 5)
	late := testChunk(f.mem, b.encode(t), 5)
	defer late.release()
	if _, _, err := late.scan(); err != nil {
		t.Fatal(err)
	}
	if r.push(before, late) {
		t.Error("Got the records taken that were asked for before the seek")
	}
	if r.failAt(before, errors.New("late")); r.err != nil {
		t.Errorf("Got %v of before the seek", r.err)
	}
}

// A partition follows the newest leader that it has heard of, and looks at the log of one
// that is new.
func TestRouteFollowsNewestLeader(t *testing.T) {
	t.Parallel()
	_, f, r := standingReader(t, 5)
	route := func(l leader) int32 {
		m := &topicMeta{TopicInfo: TopicInfo{ID: [16]byte{1}}, leaders: map[int32]leader{0: l}}
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.route(r, m, codeNone, m.ID)
	}
	r.node, r.epoch, r.lastEpoch = 1, 5, 4
	r.replica, r.replicaUntil = 2, time.Now().Add(time.Hour)
	if got := route(leader{node: 3, epoch: 4}); got != 1 || r.epoch != 5 || r.unchecked {
		t.Errorf("Got node %d, epoch %d, unchecked %v from a broker that lags behind", got, r.epoch, r.unchecked)
	}
	if got := route(leader{node: 1, epoch: 5}); got != 1 || r.replica != 2 || r.unchecked {
		t.Errorf("Got node %d, replica %d, unchecked %v of the leader that was there", got, r.replica, r.unchecked)
	}
	if got := route(leader{node: 3, epoch: 6}); got != 3 || r.replica != anyNode || !r.unchecked {
		t.Errorf("Got node %d, replica %d, unchecked %v of a new leader", got, r.replica, r.unchecked)
	}
	r.barren = barrenAnswers
	if r.backoff(time.Now()); r.Barren() {
		t.Error("Got a partition called barren whose broker does not answer")
	}
}

// A full request is answered for every partition, or the partition waits a little before
// it is asked for again. One within a session says so where there is no news, and a broker
// that throttles answers for nothing.
func TestPartitionWithoutAnswer(t *testing.T) {
	t.Parallel()
	_, f, r := standingReader(t, 5)
	for _, tc := range []struct {
		full     bool
		throttle time.Duration
		failures int
	}{{false, 0, 0}, {true, time.Second, 0}, {true, 0, 1}} {
		r.failures = 0
		fl := f.flight([]asked{{r: r, gen: r.gen, offset: 5}})
		f.distribute(testContext(t), &fetchResponse{throttle: tc.throttle}, fl, tc.full)
		if r.failures != tc.failures {
			t.Errorf("Got %d failures, want %d: %+v", r.failures, tc.failures, tc)
		}
	}
}

// The end of the log is within it: who waits there is not out of range, but may have an
// epoch that the leader does not know.
func TestCheckRange(t *testing.T) {
	t.Parallel()
	for offset, out := range map[int64]bool{0: false, 10: false, 11: true} {
		_, f, r := standingReader(t, offset)
		r.lastEpoch = 0
		f.checkRange(testContext(t), &asked{r: r, gen: r.gen, offset: offset})
		if got := errors.Is(r.err, ErrOutOfRange); got != out || r.unchecked == out {
			t.Errorf("offset %d: Got %v, unchecked %v", offset, r.err, r.unchecked)
		}
	}
}

// A log that ends, in the epoch that was read, where the reader is has lost nothing. An
// epoch that the leader does not know is not sent to it again.
func TestCheckComparesLogs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		epoch     int32
		end       int64
		out       bool
		lastEpoch int32
	}{
		{"ends there", 2, 10, false, 2},
		{"ends before", 2, 9, true, 2},
		{"is not known", -1, -1, false, -1},
		{"is not known, and has an end", -1, 3, false, -1},
	} {
		cluster, f, r := standingReader(t, 10)
		cluster.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			resp := kreq.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
			rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
			rt.Topic = "t"
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.LeaderEpoch, rp.EndOffset = tc.epoch, tc.end
			rt.Partitions = append(rt.Partitions, rp)
			resp.Topics = append(resp.Topics, rt)
			return resp, nil, true
		})
		r.lastEpoch, r.unchecked = 2, true
		n := &leaderNode{id: cluster.LeaderFor("t", 0)}
		f.check(testContext(t), n, []asked{{r: r, gen: r.gen, offset: 10, lastEpoch: 2}})
		if got := errors.Is(r.err, ErrOutOfRange); got != tc.out || !tc.out && (r.unchecked || r.lastEpoch != tc.lastEpoch) {
			t.Errorf("the epoch %s: Got %v, unchecked %v, epoch %d", tc.name, r.err, r.unchecked, r.lastEpoch)
		}
	}
}

// Where no record is as late as the time, a pipeline begins at the last stable offset: what
// is behind it, of an open transaction, it has not seen.
func TestOffsetsAtOpenTransaction(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	ctx := testContext(t)
	produce(t, c, "t", numbered(0, 3)...)
	tx := newTxn(t, c, "tx")
	tx.produce(ctx, "t", "a", "b")
	epoch := cluster.PartitionInfo("t", 0).Epoch
	var epochs []int32 // on the cluster's goroutine
	cluster.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		epochs = append(epochs, req.(*kmsg.ListOffsetsRequest).Topics[0].Partitions[0].CurrentLeaderEpoch)
		return nil, nil, false
	})
	if got, err := c.OffsetsAt(ctx, "t", []int32{0}, time.Now().Add(time.Hour)); err != nil || got[0] != 3 {
		t.Errorf("Got %v and %v, want 3", got, err)
	}
	if got, err := c.LogEnds(ctx, "t", []int32{0}); err != nil || got[0] != 5 {
		t.Errorf("Got %v and %v, want 5", got, err)
	}
	if want := slices.Repeat([]int32{epoch}, 3); !slices.Equal(epochs, want) {
		t.Errorf("Got the epochs %v in the requests, which fence, want %v", epochs, want)
	}
}
