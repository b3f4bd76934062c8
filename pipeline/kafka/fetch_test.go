package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// cannedFetch makes the cluster answer the next fetches of t/0 with raw record
// batches, one answer a fetch, as long as fill sets something; the fetched
// offset is its argument. It runs on the cluster's goroutine.
func cannedFetch(cluster *kfake.Cluster, fill func(offset int64, p *kmsg.FetchResponseTopicPartition) bool) {
	cluster.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		req := kreq.(*kmsg.FetchRequest)
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewFetchResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewFetchResponseTopicPartition()
				rp.Partition, rp.HighWatermark, rp.LastStableOffset = p.Partition, 1000, 1000
				if !fill(p.FetchOffset, &rp) {
					return nil, nil, false
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
}

// nextError reads until an error.
func nextError(t testing.TB, r *PartitionReader) error {
	t.Helper()
	ctx := testContext(t)
	for {
		b, err := r.Next(ctx)
		if err != nil {
			if ctx.Err() != nil {
				t.Fatalf("Got no error but %v", err)
			}
			return err
		}
		b.Release()
	}
}

// Every error of a reader says where it is, to programs and once to people.
func TestReadErrorsNameThePlaceOnce(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(2, "views"))
	closed := startFetcher(t, c, nil).Add("views", 1, 0)
	closed.Close()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		ctx  context.Context
		r    *PartitionReader
		want error
	}{
		{t.Context(), closed, ErrClosed},
		{ended, startFetcher(t, c, nil).Add("views", 1, 0), context.Canceled},
		{t.Context(), startFetcher(t, c, nil).Add("views", 1, 25), ErrOutOfRange},
		{t.Context(), startFetcher(t, c, &FetchOptions{TopicIDs: map[string][16]byte{"views": {9}}}).Add("views", 1, 0), ErrTopicChanged},
	} {
		_, err := tc.r.Next(tc.ctx)
		at, ok := errors.AsType[*PartitionError](err)
		if !ok || at.Topic != "views" || at.Partition != 1 || !errors.Is(err, tc.want) || strings.Count(err.Error(), "views/1") != 1 || strings.Count(err.Error(), "views") != 1 {
			t.Errorf("Got %v, want %v with its place, once", err, tc.want)
		}
	}
}

func TestFetchRetriesErrors(t *testing.T) {
	t.Parallel()
	for _, e := range []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch,
		kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.KafkaStorageError, kerr.OffsetNotAvailable, kerr.UnknownServerError,
	} {
		t.Run(e.Message, func(t *testing.T) {
			t.Parallel()
			cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
			produce(t, c, "t", numbered(0, 10)...)
			faults := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "t", Err: e, Count: 3})
			r := startFetcher(t, c, nil).Add("t", 0, 0)
			if got := readTo(t, r, 10); !slices.Equal(got, values(0, 10)) {
				t.Errorf("Got %v", got)
			}
			if faults.Hits() != 3 {
				t.Errorf("Got %d faults, want 3", faults.Hits())
			}
			if got := c.Metrics().Errors[code(e.Code).name()]; got != 3 {
				t.Errorf("Got %d counted, want 3: %v", got, c.Metrics().Errors)
			}
		})
	}
}

func TestFetchFollowsLeader(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	r := startFetcher(t, c, nil).Add("t", 0, 0)
	for i := range 6 {
		if err := cluster.MoveTopicPartition("t", 0, int32(i%3)); err != nil {
			t.Fatal(err)
		}
		produce(t, c, "t", numbered(10*i, 10*i+10)...)
		if got := readTo(t, r, int64(10*i+10)); !slices.Equal(got, values(10*i, 10*i+10)) {
			t.Fatalf("Got %v after move %d", got, i)
		}
	}
	if got := c.Metrics().LeaderMoves; got < 3 {
		t.Errorf("Got %d leader moves, want 3 at least", got)
	}
}

func TestFetchSurvivesLostNode(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	produce(t, c, "t", numbered(0, 10)...)
	r := startFetcher(t, c, nil).Add("t", 0, 0)
	readTo(t, r, 10)
	if err := cluster.RemoveNode(cluster.LeaderFor("t", 0)); err != nil {
		t.Fatal(err)
	}
	produce(t, c, "t", numbered(10, 20)...)
	if got := readTo(t, r, 20); !slices.Equal(got, values(10, 20)) {
		t.Errorf("Got %v", got)
	}
}

func TestFetchOutOfRange(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	produce(t, c, "t", numbered(0, 20)...)
	if err := cluster.DeleteRecords("t", 0, 5); err != nil {
		t.Fatal(err)
	}
	f := startFetcher(t, c, nil)
	r := f.Add("t", 0, 2)
	for i, tc := range []struct {
		offset int64
		text   string
	}{{2, "offsets 2 to 4 are gone"}, {25, "beyond the end 20"}} {
		if i > 0 { // once each: what is fetched already is counted
			r.SeekTo(tc.offset)
		}
		err := nextError(t, r)
		var oor *OutOfRangeError
		if !errors.As(err, &oor) || !errors.Is(err, ErrOutOfRange) {
			t.Fatalf("Got %v, want an OutOfRangeError", err)
		}
		if want := (OutOfRangeError{tc.offset, 5, 20}); *oor != want {
			t.Errorf("Got %+v, want %+v", *oor, want)
		}
		if !strings.Contains(err.Error(), tc.text) {
			t.Errorf("Got %q, want %q in it", err, tc.text)
		}
		if again := nextError(t, r); !errors.Is(again, oor) {
			t.Errorf("Got %v the second time", again)
		}
	}
	r.SeekTo(5)
	if got := readTo(t, r, 20); !slices.Equal(got, values(5, 20)) {
		t.Errorf("Got %v after SeekTo", got)
	}
	// While running: retention passes what is not fetched yet.
	if got := c.Metrics().OutOfRange; got != 2 {
		t.Errorf("Got %d out of range, want 2", got)
	}
}

// A log start that has passed the offset is data loss also where the broker
// answers with what is after it.
func TestFetchLogStartPassed(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	b := simple(50, 2)
	raw := b.encode(t)
	cannedFetch(cluster, func(offset int64, p *kmsg.FetchResponseTopicPartition) bool {
		p.LogStartOffset = 50
		p.RecordBatches = raw
		return true
	})
	r := startFetcher(t, c, nil).Add("t", 0, 10)
	var oor *OutOfRangeError
	if err := nextError(t, r); !errors.As(err, &oor) || oor.LogStart != 50 || oor.Offset != 10 {
		t.Errorf("Got %v", err)
	}
}

func TestFetchDivergingEpoch(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	cannedFetch(cluster, func(_ int64, p *kmsg.FetchResponseTopicPartition) bool {
		p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = 3, 40
		return true
	})
	r := startFetcher(t, c, nil).Add("t", 0, 60)
	var oor *OutOfRangeError
	if err := nextError(t, r); !errors.As(err, &oor) || oor.End != 40 || oor.Offset != 60 {
		t.Errorf("Got %v", err)
	}
}

// A leader that is behind may call an offset out of range that it has soon.
func TestFetchOutOfRangeByMistake(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	produce(t, c, "t", numbered(0, 10)...)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "t", Err: kerr.OffsetOutOfRange, Count: 2})
	r := startFetcher(t, c, nil).Add("t", 0, 4)
	if got := readTo(t, r, 10); !slices.Equal(got, values(4, 10)) {
		t.Errorf("Got %v", got)
	}
}

func TestFetchCorruptBatch(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	good, bad := simple(0, 5), simple(5, 5)
	raw := append(good.encode(t), bad.encode(t)...)
	raw[len(raw)-1] ^= 1
	cannedFetch(cluster, func(offset int64, p *kmsg.FetchResponseTopicPartition) bool {
		p.RecordBatches = raw
		return true
	})
	r := startFetcher(t, c, nil).Add("t", 0, 0)
	b, err := r.Next(testContext(t))
	if err != nil || len(b.Records) != 5 || b.Next != 5 {
		t.Fatalf("Got %+v and %v, want the batch before the corrupt one", b, err)
	}
	b.Release()
	err = nextError(t, r)
	var corrupt *UnreadableError
	if !errors.As(err, &corrupt) || corrupt.Offset != 5 || corrupt.Next != 10 || !strings.Contains(err.Error(), "offset 5: ") {
		t.Errorf("Got %v", err)
	}
	if c.Metrics().Corrupt != 1 {
		t.Errorf("Got %d corrupt, want 1", c.Metrics().Corrupt)
	}
}

func TestFetchCorruptFrame(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	good := simple(0, 5)
	raw := append(good.encode(t), good.encode(t)...)
	raw[len(raw)/2+batchMagicAt] = 3
	cannedFetch(cluster, func(offset int64, p *kmsg.FetchResponseTopicPartition) bool {
		p.RecordBatches = raw
		return true
	})
	r := startFetcher(t, c, nil).Add("t", 0, 0)
	if got := readTo(t, r, 5); len(got) != 5 {
		t.Errorf("Got %v before the corrupt batch", got)
	}
	if err := nextError(t, r); !errors.Is(err, ErrCorruptBatch) || !strings.Contains(err.Error(), "message format 3") {
		t.Errorf("Got %v", err)
	}
}

// Compacted logs: gaps, empty batches alone in an answer, a batch whose tail is
// gone. Each answer must move the offset on.
func TestFetchCompacted(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	batch := func(base int64, lastDelta int32, deltas ...int32) []byte {
		b := testBatch{base: base, lastDelta: lastDelta, producer: -1}
		for _, d := range deltas {
			b.records = append(b.records, testRecord{delta: d, value: fmt.Append(nil, base+int64(d))})
		}
		return b.encode(t)
	}
	answers := map[int64][]byte{
		0:  batch(0, 9),        // empty, alone
		10: batch(12, 7, 0, 3), // gap before, tail gone
		20: bytes.Join([][]byte{batch(20, 4), batch(25, 0), batch(26, 3, 1), batch(30, 9)}, nil),
	}
	cannedFetch(cluster, func(offset int64, p *kmsg.FetchResponseTopicPartition) bool {
		p.RecordBatches = answers[offset]
		return true
	})
	r := startFetcher(t, c, nil).Add("t", 0, 0)
	if got, want := readTo(t, r, 40), []string{"12", "15", "27"}; !slices.Equal(got, want) {
		t.Errorf("Got %v, want %v", got, want)
	}
}

// A batch that never fits in what is asked for: old brokers cut it, the request
// grows until it fits.
func TestFetchGrowsForLargeBatch(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	b := testBatch{base: 0, lastDelta: -1, producer: -1, records: []testRecord{{value: make([]byte, 300<<10)}}}
	raw := b.encode(t)
	asked := make(chan int32, 100)
	cluster.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		req := kreq.(*kmsg.FetchRequest)
		p := req.Topics[0].Partitions[0]
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		rt := kmsg.NewFetchResponseTopic()
		rt.TopicID = req.Topics[0].TopicID
		rp := kmsg.NewFetchResponseTopicPartition()
		if p.FetchOffset == 0 {
			asked <- p.PartitionMaxBytes
			rp.RecordBatches = raw[:min(len(raw), int(p.PartitionMaxBytes))]
		}
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	r := startFetcher(t, c, &FetchOptions{MaxPartitionBytes: 10 << 10, BufferBytes: 100 << 10}).Add("t", 0, 0)
	if got := readTo(t, r, 1); len(got) != 1 || len(got[0]) != 300<<10 {
		t.Errorf("Got %d records", len(got))
	}
	if first, second := <-asked, <-asked; first != 10<<10 || int(second) != len(raw) {
		t.Errorf("Got requests of %d and %d bytes, want %d and %d", first, second, 10<<10, len(raw))
	}
	// Above the bound it is reported.
	r2 := startFetcher(t, c, &FetchOptions{MaxPartitionBytes: 10 << 10, MaxBatchBytes: 100 << 10}).Add("t", 0, 0)
	if err := nextError(t, r2); !errors.Is(err, ErrBatchTooLarge) || !strings.Contains(err.Error(), "more than the") {
		t.Errorf("Got %v", err)
	}
}

// A record larger than the limits comes from a real broker all the same.
func TestFetchLargeRecord(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(2, "t"), kfake.BrokerConfigs(map[string]string{"message.max.bytes": "10000000"}))
	msgs := []Message{
		{Value: bytes.Repeat([]byte("a"), 3<<20), Partition: 0},
		{Value: []byte("b"), Partition: 0},
		{Value: bytes.Repeat([]byte("c"), 3<<20), Partition: 1},
	}
	p := c.NewProducer(&ProducerOptions{Compression: None})
	if err := p.Produce(testContext(t), "t", msgs...); err != nil {
		t.Fatal(err)
	}
	f := startFetcher(t, c, &FetchOptions{MaxPartitionBytes: 1 << 10, MaxBytes: 1 << 10, BufferBytes: 4 << 10})
	r0, r1 := f.Add("t", 0, 0), f.Add("t", 1, 0)
	if got := readTo(t, r0, 2); len(got) != 2 || len(got[0]) != 3<<20 || got[1] != "b" {
		t.Errorf("Got %d records of partition 0", len(got))
	}
	if got := readTo(t, r1, 1); len(got) != 1 || len(got[0]) != 3<<20 {
		t.Errorf("Got %d records of partition 1", len(got))
	}
}

// A partition whose reader does not read is paused at its bound and holds up no
// other.
func TestFetchPausesFullPartition(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(2, "t"))
	var msgs []Message
	for i := range 4000 {
		msgs = append(msgs, Message{Value: bytes.Repeat([]byte("x"), 1000), Partition: int32(i % 2)})
	}
	p := c.NewProducer(&ProducerOptions{Compression: None, BatchBytes: 8 << 10})
	if err := p.Produce(testContext(t), "t", msgs...); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(cluster.MoveTopicPartition("t", 0, 0), cluster.MoveTopicPartition("t", 1, 0)); err != nil {
		t.Fatal(err)
	}
	const bound = 128 << 10
	f := startFetcher(t, c, &FetchOptions{MaxPartitionBytes: 32 << 10, BufferBytes: bound})
	lazy, eager := f.Add("t", 0, 0), f.Add("t", 1, 0)
	if got := readTo(t, eager, 2000); len(got) != 2000 {
		t.Errorf("Got %d records of the other partition", len(got))
	}
	for ctx := testContext(t); lazy.queuedBytes() == 0; {
		if err := sleep(ctx, time.Millisecond); err != nil {
			t.Fatal("Got nothing of the partition whose reader does not read")
		}
	}
	if queued := lazy.queuedBytes(); queued > bound {
		t.Errorf("Got %d bytes buffered, want up to %d", queued, bound)
	}
	if got := readTo(t, lazy, 2000); len(got) != 2000 {
		t.Errorf("Got %d records of the paused partition", len(got))
	}
}

func TestFetchSeekWhileRunning(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(1, "t"))
	produce(t, c, "t", numbered(0, 100)...)
	r := startFetcher(t, c, nil).Add("t", 0, 90)
	readTo(t, r, 100)
	for _, from := range []int{0, 99, 50, 50, 7} {
		r.SeekTo(int64(from))
		if got := readTo(t, r, 100); !slices.Equal(got, values(from, 100)) {
			t.Errorf("Got %v from %d on", got, from)
		}
	}
}

func TestReaderClose(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(1, "t"))
	f := startFetcher(t, c, nil)
	r := f.Add("t", 0, 0)
	done := make(chan error)
	go func() {
		_, err := r.Next(context.Background())
		done <- err
	}()
	r.Close()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("Got %v, want ErrClosed", err)
	}
	// Added again: the new reader works, the old stays closed.
	produce(t, c, "t", numbered(0, 3)...)
	again := f.Add("t", 0, 0)
	third := f.Add("t", 0, 1)
	if err := nextError(t, again); !errors.Is(err, ErrClosed) {
		t.Errorf("Got %v from a reader that was replaced, want ErrClosed", err)
	}
	if got := readTo(t, third, 3); !slices.Equal(got, values(1, 3)) {
		t.Errorf("Got %v", got)
	}
}

func TestFetcherStops(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(1, "t"))
	f := c.NewFetcher(nil)
	r := f.Add("t", 0, 0)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.Run(ctx) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Got %v from Run, want context.Canceled", err)
	}
	if err := nextError(t, r); !errors.Is(err, ErrClosed) {
		t.Errorf("Got %v from Next, want ErrClosed", err)
	}
}

func TestFetchTopicCreatedAnew(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
	produce(t, c, "t", numbered(0, 10)...)
	before, err := c.Topic(testContext(t), "t")
	if err != nil {
		t.Fatal(err)
	}
	r := startFetcher(t, c, nil).Add("t", 0, 0)
	readTo(t, r, 10)
	if err := cluster.DeleteTopic("t"); err != nil {
		t.Fatal(err)
	}
	if err := c.CreateTopic(testContext(t), "t", 1); err != nil {
		t.Fatal(err)
	}
	produce(t, c, "t", numbered(0, 30)...) // beyond the old offset
	if err := nextError(t, r); !errors.Is(err, ErrTopicChanged) {
		t.Errorf("Got %v, want ErrTopicChanged", err)
	}
	// The same for one that starts with the old id.
	r = startFetcher(t, c, &FetchOptions{TopicIDs: map[string][16]byte{"t": before.ID}}).Add("t", 0, 10)
	if err := nextError(t, r); !errors.Is(err, ErrTopicChanged) {
		t.Errorf("Got %v with the old id, want ErrTopicChanged", err)
	}
}

func TestFetchMissingTopic(t *testing.T) {
	t.Parallel()
	network := new(kfake.VirtualNetwork)
	cluster, err := kfake.NewCluster(kfake.Ports(1), kfake.ListenFn(network.Listen), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	c := newTestClient(t, &Options{Brokers: []string{"localhost:1"}, Dial: network.DialContext, RequestTimeout: 200 * time.Millisecond})
	f := startFetcher(t, c, nil)
	r, none := f.Add("nope", 0, 0), f.Add("t", 9, 0)
	for _, r := range []*PartitionReader{r, none} {
		if err := nextError(t, r); !errors.Is(err, ErrTopicNotFound) {
			t.Errorf("Got %v, want ErrTopicNotFound", err)
		}
	}
}

// kfake's own transactions, through its producer API in raw requests.
func TestFetchTransactions(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(1, "t"))
	ctx := testContext(t)
	tx := newTxn(t, c, "tx")
	produce(t, c, "t", numbered(0, 3)...)
	var want []string
	want = append(want, values(0, 3)...)
	for i, commit := range []bool{false, true, false, true} {
		v := []string{fmt.Sprintf("%d-a", i), fmt.Sprintf("%d-b", i)}
		tx.produce(ctx, "t", v...)
		tx.end(ctx, commit)
		if commit {
			want = append(want, v...)
		}
	}
	end, err := c.ListOffsets(ctx, "t", []int32{0})
	if err != nil {
		t.Fatal(err)
	}
	if end[0] != (Offsets{0, 15}) { // 3 plain, 8 of transactions, 4 markers
		t.Errorf("Got %+v", end[0])
	}
	r := startFetcher(t, c, nil).Add("t", 0, 0)
	if got := readTo(t, r, 15); !slices.Equal(got, want) {
		t.Errorf("Got %v, want %v", got, want)
	}
	m := c.Metrics()
	if m.Control != 4 || m.Aborted != 4 || m.Records != 7 {
		t.Errorf("Got %d control, %d aborted, %d records", m.Control, m.Aborted, m.Records)
	}
	// An open transaction holds the last stable offset back.
	tx.produce(ctx, "t", "open")
	produce(t, c, "t", numbered(3, 4)...)
	if end, err := c.ListOffsets(ctx, "t", []int32{0}); err != nil || end[0].End != 15 {
		t.Errorf("Got %+v, %v with an open transaction, want end 15", end, err)
	}
	if end, err := c.LogEnds(ctx, "t", []int32{0}); err != nil || end[0] != 17 {
		t.Errorf("Got %v, %v with an open transaction, want the log to end at 17", end, err)
	}
	tx.end(ctx, true)
	if got := readTo(t, r, 18); !slices.Equal(got, []string{"open", "3"}) {
		t.Errorf("Got %v after the open transaction", got)
	}
}

// txn is a transactional producer in raw requests.
type txn struct {
	t     testing.TB
	c     *Client
	id    string
	pid   int64
	epoch int16
	seq   int32
	codec int16
}

func newTxn(t testing.TB, c *Client, id string) *txn {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID, req.TransactionTimeoutMillis = 4, &id, 60000
	x := &txn{t: t, c: c, id: id}
	var resp *kmsg.InitProducerIDResponse
	for ctx := testContext(t); ; {
		resp = x.ask(ctx, req).(*kmsg.InitProducerIDResponse)
		if !code(resp.ErrorCode).temporary() {
			break
		}
		if err := sleep(ctx, minRetry); err != nil {
			t.Fatal(err)
		}
	}
	x.check(resp.ErrorCode)
	x.pid, x.epoch = resp.ProducerID, resp.ProducerEpoch
	return x
}

func (x *txn) check(e int16) {
	x.t.Helper()
	if e != 0 {
		x.t.Fatal(kerr.ErrorForCode(e))
	}
}

// ask sends a request to the transaction's coordinator.
func (x *txn) ask(ctx context.Context, req kmsg.Request) kmsg.Response {
	x.t.Helper()
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.Version, find.CoordinatorKey, find.CoordinatorType = 2, x.id, 1
	var out kmsg.Response
	if err := x.c.attempt(ctx, func(ctx context.Context) error {
		resp, err := x.c.request(ctx, anyNode, find)
		if err != nil {
			return err
		}
		if e := code(resp.(*kmsg.FindCoordinatorResponse).ErrorCode); e != codeNone {
			return e // the topic of transactions is made by the first of them
		}
		out, err = x.c.request(ctx, resp.(*kmsg.FindCoordinatorResponse).NodeID, req)
		return err
	}); err != nil {
		x.t.Fatal(err)
	}
	return out
}

func (x *txn) produce(ctx context.Context, topic string, vs ...string) {
	x.t.Helper()
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.Version, add.TransactionalID, add.ProducerID, add.ProducerEpoch = 3, x.id, x.pid, x.epoch
	at := kmsg.NewAddPartitionsToTxnRequestTopic()
	at.Topic, at.Partitions = topic, []int32{0}
	add.Topics = append(add.Topics, at)
	for {
		e := x.ask(ctx, add).(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions[0].ErrorCode
		if e != kerr.ConcurrentTransactions.Code { // the last marker is still being written
			x.check(e)
			break
		}
		if err := sleep(ctx, minRetry); err != nil {
			x.t.Fatal(err)
		}
	}

	b := testBatch{attrs: attrTransactional | x.codec, producer: x.pid, lastDelta: -1, firstTS: time.Now().UnixMilli(), maxTS: time.Now().UnixMilli()}
	for i, v := range vs {
		b.records = append(b.records, testRecord{delta: int32(i), value: []byte(v)})
	}
	raw := b.encode(x.t)
	var rb kmsg.RecordBatch
	if err := rb.ReadFrom(raw); err != nil {
		x.t.Fatal(err)
	}
	rb.ProducerEpoch, rb.FirstSequence, rb.PartitionLeaderEpoch = x.epoch, x.seq, -1
	x.seq += int32(len(vs))
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis, req.TransactionID = 8, -1, 5000, &x.id
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = seal(rb.AppendTo(nil))
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	if err := x.c.attempt(ctx, func(ctx context.Context) error { // a new topic's leader may not know it yet
		metas, err := x.c.topics(ctx, topic)
		if err != nil {
			return err
		}
		resp, err := x.c.request(ctx, metas[topic].leaders[0].node, req)
		if err != nil {
			return err
		}
		if e := code(resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode); e != codeNone {
			return e
		}
		return nil
	}); err != nil {
		x.t.Fatal(err)
	}
}

func (x *txn) end(ctx context.Context, commit bool) {
	x.t.Helper()
	req := kmsg.NewPtrEndTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = 3, x.id, x.pid, x.epoch, commit
	x.check(x.ask(ctx, req).(*kmsg.EndTxnResponse).ErrorCode)
}

// A connection that dies in the middle of an answer, over and over.
func TestFetchBrokenConnections(t *testing.T) {
	t.Parallel()
	network := new(kfake.VirtualNetwork)
	cluster, err := kfake.NewCluster(kfake.Ports(1), kfake.ListenFn(network.Listen), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	ok := newTestClient(t, &Options{Brokers: []string{"localhost:1"}, Dial: network.DialContext})
	p := ok.NewProducer(&ProducerOptions{Compression: None, BatchBytes: 2000})
	if err := p.Produce(testContext(t), "t", numbered(0, 2000)...); err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64 // more with each connection, so that the test ends
	c := newTestClient(t, &Options{Brokers: []string{"localhost:1"}, Dial: func(ctx context.Context, network_, addr string) (net.Conn, error) {
		conn, err := network.DialContext(ctx, network_, addr)
		return &dyingConn{Conn: conn, left: int(n.Add(5000))}, err
	}})
	r := startFetcher(t, c, &FetchOptions{MaxPartitionBytes: 10000, BufferBytes: 40000}).Add("t", 0, 0)
	if got := readTo(t, r, 2000); !slices.Equal(got, values(0, 2000)) {
		t.Errorf("Got %d records", len(got))
	}
	if c.Metrics().Errors["connection"] == 0 {
		t.Error("no connection died")
	}
}

// dyingConn ends after so many bytes read.
type dyingConn struct {
	net.Conn
	left int
}

func (c *dyingConn) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, errors.Join(net.ErrClosed, c.Close())
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

// An answer that belongs to no request is given up, with its connection, whether it is of a
// fetch or of the metadata: the fetcher goes on with others.
func TestFetchWrongAnswers(t *testing.T) {
	t.Parallel()
	_, o := startBroker(t)
	sound := newTestClient(t, o)
	produce(t, sound, "t", numbered(0, 10)...)
	dial := o.Dial
	var fetches, metadata atomic.Int32 // to be spoiled
	o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &wrongConn{Conn: conn, fetches: &fetches, metadata: &metadata}, err
	}
	c := newTestClient(t, o)
	r := startFetcher(t, c, nil).Add("t", 0, 0)
	readTo(t, r, 10)
	metadata.Store(2)
	fetches.Store(2)
	produce(t, sound, "t", numbered(10, 20)...)
	if got := readTo(t, r, 20); !slices.Equal(got, values(10, 20)) {
		t.Errorf("Got %v", got)
	}
	if fetches.Load() > 0 || metadata.Load() > 0 {
		t.Errorf("%d fetches and %d metadata were not spoiled", fetches.Load(), metadata.Load())
	}
}

// wrongConn answers some requests with the correlation id of another.
type wrongConn struct {
	net.Conn
	fetches, metadata *atomic.Int32
	asked             *atomic.Int32 // one of these, of the request that is not answered; nil = none
}

func (c *wrongConn) Write(b []byte) (int, error) {
	c.asked = nil
	if len(b) >= 8 && binary.BigEndian.Uint16(b[6:]) >= 10 { // kafka-go's own are of older versions
		switch kmsg.Key(binary.BigEndian.Uint16(b[4:])) {
		case kmsg.Fetch:
			c.asked = c.fetches
		case kmsg.Metadata:
			c.asked = c.metadata
		}
	}
	return c.Conn.Write(b)
}

func (c *wrongConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n >= 8 && c.asked != nil {
		if c.asked.Add(-1) >= 0 {
			b[7]++
		}
		c.asked = nil
	}
	return n, err
}

// A broker that answers, and has nothing at the offset, is told from one that does not answer.
func TestBarren(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		stable int64
		code   int16
		want   bool
	}{
		"compacted":        {10, 0, true},
		"at the end":       {5, 0, false},
		"does not lead it": {10, kerr.NotLeaderForPartition.Code, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, c := startCluster(t, kfake.SeedTopics(1, "t"))
			var asked atomic.Int64
			var records atomic.Pointer[[]byte]
			cannedFetch(cluster, func(_ int64, p *kmsg.FetchResponseTopicPartition) bool {
				asked.Add(1)
				p.LastStableOffset, p.ErrorCode = tc.stable, tc.code
				if raw := records.Load(); raw != nil {
					p.RecordBatches = *raw
				}
				return true
			})
			r := startFetcher(t, c, nil).Add("t", 0, 5)
			defer r.Close()
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for ctx := testContext(t); asked.Load() < 8 || tc.want && !r.Barren(); {
				if r.Barren() && !tc.want {
					break
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
					t.Fatalf("Got barren %v after %d answers", r.Barren(), asked.Load())
				}
			}
			if got := r.Barren(); got != tc.want {
				t.Errorf("Got %v, want %v", got, tc.want)
			}
			if !tc.want {
				return
			}
			b := simple(5, 5)
			raw := b.encode(t)
			records.Store(&raw)
			if got := readTo(t, r, 10); len(got) != 5 || r.Barren() {
				t.Errorf("Got %v, barren %v", got, r.Barren())
			}
		})
	}
}
