package kafka

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// askOf is a question for a partition, as a broker remembers it.
type askOf struct {
	offset                     int64
	epoch, lastEpoch, maxBytes int32
}

// modelBroker is the broker's side of a session, as KIP-227 has it.
type modelBroker struct {
	id, epoch int32
	asks      map[topicPartition]askOf
}

// fetch returns the partitions that the request is for, or the error.
func (b *modelBroker) fetch(req *kmsg.FetchRequest, newID int32) (map[topicPartition]askOf, error) {
	switch {
	case req.SessionEpoch == 0:
		b.id, b.epoch, b.asks = newID, 1, make(map[topicPartition]askOf)
	case req.SessionID != b.id || b.id == 0:
		return nil, codeFetchSessionNotFound
	case req.SessionEpoch != b.epoch:
		return nil, codeInvalidFetchSessionEpoch
	case b.epoch == math.MaxInt32:
		b.epoch = 1
	default:
		b.epoch++
	}
	for _, t := range req.ForgottenTopics {
		for _, p := range t.Partitions {
			if _, ok := b.asks[topicPartition{t.Topic, p}]; !ok {
				return nil, fmt.Errorf("%s/%d is forgotten and was not known", t.Topic, p)
			}
			delete(b.asks, topicPartition{t.Topic, p})
		}
	}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			ask := askOf{p.FetchOffset, p.CurrentLeaderEpoch, p.LastFetchedEpoch, p.PartitionMaxBytes}
			if b.asks[topicPartition{t.Topic, p.Partition}] == ask && req.SessionEpoch != 0 {
				return nil, fmt.Errorf("%s/%d has not changed", t.Topic, p.Partition)
			}
			b.asks[topicPartition{t.Topic, p.Partition}] = ask
		}
	}
	return b.asks, nil
}

// Whatever is lost on the way, a broker that answers fetches exactly what was
// wanted, and is told nothing twice.
func TestSessionAgreesWithBroker(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		readers := make([]*PartitionReader, 6)
		for i := range readers {
			readers[i] = &PartitionReader{topic: fmt.Sprint("t", i/3), partition: int32(i % 3)}
		}
		s, b := newSession(), new(modelBroker)
		o := (*FetchOptions)(nil).withDefaults()
		for step := range rapid.IntRange(1, 40).Draw(t, "steps") {
			var parts []asked
			want := make(map[topicPartition]askOf)
			for _, r := range readers {
				if !rapid.Bool().Draw(t, "wanted") {
					continue
				}
				ask := askOf{rapid.Int64Range(0, 2).Draw(t, "offset"), rapid.Int32Range(0, 1).Draw(t, "epoch"), -1, rapid.Int32Range(1, 2).Draw(t, "bytes")}
				parts = append(parts, asked{r: r, offset: ask.offset, epoch: ask.epoch, lastEpoch: ask.lastEpoch, maxBytes: ask.maxBytes})
				want[topicPartition{r.topic, r.partition}] = ask
			}
			if rapid.IntRange(0, 9).Draw(t, "epoch is the last") == 0 && s.epoch > 0 {
				s.epoch, b.epoch = math.MaxInt32, math.MaxInt32
			}
			if rapid.IntRange(0, 9).Draw(t, "broker forgets") == 0 {
				*b = modelBroker{}
			}
			newID := rapid.Int32Range(0, 3).Draw(t, "id") // 0 = no room
			got, err := b.fetch(s.request(13, &o, parts), newID)
			switch lost := rapid.IntRange(0, 9).Draw(t, "answer is lost") == 0; {
			case err != nil && errors.Is(err, codeFetchSessionNotFound):
				if !s.broken(err) || !s.full() {
					t.Fatalf("step %d: %v does not begin a session", step, err)
				}
			case err != nil:
				t.Fatalf("step %d: %v", step, err)
			default:
				if diff := cmp.Diff(want, got, cmp.AllowUnexported(topicPartition{}, askOf{})); diff != "" {
					t.Fatalf("step %d: asked (-want +got):\n%s", step, diff)
				}
				if lost {
					s.lost()
				} else if err := s.answered(b.id); err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
			}
		}
	})
}

func TestSessionErrors(t *testing.T) {
	t.Parallel()
	in := func() *session { s := newSession(); s.id, s.epoch = 7, 3; return s }
	for _, tc := range []struct {
		err    error
		broken bool
		id     int32
	}{
		{codeFetchSessionNotFound, true, 0},
		{codeInvalidFetchSessionEpoch, true, 7}, // the broker is told to end it
		{codeFetchSessionTopicID, true, 7},
		{codeNotLeader, false, 7},
		{errors.New("connection reset"), false, 7},
	} {
		s := in()
		if got := s.broken(fmt.Errorf("fetch: %w", tc.err)); got != tc.broken || s.id != tc.id || s.full() != tc.broken {
			t.Errorf("%v: Got %v, session %d, full %v", tc.err, got, s.id, s.full())
		}
		if s := newSession(); s.broken(tc.err) {
			t.Errorf("%v: Got a refused full request taken for a lost session", tc.err)
		}
	}
	if s := in(); s.answered(8) == nil || !s.full() {
		t.Errorf("Got an answer of another session accepted")
	}
	if s := in(); s.answered(0) != nil || !s.full() || s.id != 0 {
		t.Errorf("Got session %d after the broker has ended it", s.id)
	}
}

// A session names topics in one way only: where that changes, the broker is told to end it.
func TestSessionChangesNames(t *testing.T) {
	t.Parallel()
	s := newSession()
	r := &PartitionReader{topic: "t"}
	var o FetchOptions
	for i, step := range []struct {
		id      [16]byte
		version int16
		epoch   int32 // of the session, in the request
	}{{[16]byte{1}, 13, 0}, {[16]byte{1}, 13, 1}, {[16]byte{}, namedFetch, 0}, {[16]byte{}, namedFetch, 1}, {[16]byte{1}, 13, 0}} {
		ask := asked{r: r, topicID: step.id, offset: int64(i), epoch: 5, lastEpoch: int32(i)}
		version := s.version(13, []asked{ask})
		req := s.request(version, &o, []asked{ask})
		if version != step.version || req.SessionEpoch != step.epoch || i > 0 && req.SessionID != 7 {
			t.Errorf("step %d: Got version %d, session %d, epoch %d", i, version, req.SessionID, req.SessionEpoch)
		}
		if p := req.Topics[0].Partitions[0]; p.FetchOffset != int64(i) || p.CurrentLeaderEpoch != 5 || p.LastFetchedEpoch != int32(i) {
			t.Errorf("step %d: Got %+v", i, p)
		}
		if err := s.answered(7); err != nil {
			t.Fatal(err)
		}
	}
}

// watchFetches calls seen with every fetch request. It runs on the cluster's
// goroutine.
func watchFetches(cluster *kfake.Cluster, seen func(node int32, req *kmsg.FetchRequest)) {
	cluster.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		seen(cluster.CurrentNode(), kreq.(*kmsg.FetchRequest))
		return nil, nil, false
	})
}

// A partition with news does not make the requests name those without.
func TestFetchSession(t *testing.T) {
	t.Parallel()
	const partitions = 30
	cluster, c := startCluster(t, kfake.SeedTopics(partitions, "t"))
	var mu sync.Mutex
	named := 0
	watchFetches(cluster, func(_ int32, req *kmsg.FetchRequest) {
		mu.Lock()
		defer mu.Unlock()
		for _, t := range req.Topics {
			named += len(t.Partitions)
		}
	})
	f := startFetcher(t, c, &FetchOptions{MaxWait: 5 * time.Millisecond})
	readers := make([]*PartitionReader, partitions)
	for p := range readers {
		readers[p] = f.Add("t", int32(p), 0)
	}
	const rounds = 50
	for i := range rounds {
		produce(t, c, "t", numbered(i, i+1)...)
		if got := readTo(t, readers[0], int64(i+1)); !slices.Equal(got, values(i, i+1)) {
			t.Fatalf("Got %v in round %d", got, i)
		}
	}
	// Whatever the others were asked in between: they have not moved.
	p := c.NewProducer(nil)
	for i := range int32(partitions) {
		if err := p.Produce(testContext(t), "t", Message{Value: []byte("last"), Partition: i}); err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range readers[1:] {
		if got := readTo(t, r, 1); !slices.Equal(got, []string{"last"}) {
			t.Errorf("Got %v in partition %d", got, i+1)
		}
	}
	m := c.Metrics()
	mu.Lock()
	defer mu.Unlock()
	if m.FullFetches > 2*3 || m.Fetches < rounds {
		t.Errorf("Got %d full requests of %d, want one for each loop of three brokers", m.FullFetches, m.Fetches)
	}
	// The partitions of a broker move to its other loop at most once for each
	// record; without sessions each request would name ten.
	if int64(named) > 4*m.Fetches {
		t.Errorf("Got %d partitions named in %d requests", named, m.Fetches)
	}
}

func TestFetchSessionLost(t *testing.T) {
	t.Parallel()
	for _, e := range []*kerr.Error{kerr.FetchSessionIDNotFound, kerr.InvalidFetchSessionEpoch, kerr.FetchSessionTopicIDError} {
		t.Run(e.Message, func(t *testing.T) {
			t.Parallel()
			cluster, c := startCluster(t, kfake.SeedTopics(6, "t"))
			faults := cluster.Fault(kfake.Fault{
				Keys: []kmsg.Key{kmsg.Fetch}, TopLevel: true, Err: e, Count: 10,
				When: func(req kmsg.Request) bool { return req.(*kmsg.FetchRequest).SessionEpoch > 0 },
			})
			f := startFetcher(t, c, &FetchOptions{MaxWait: 5 * time.Millisecond})
			r := f.Add("t", 0, 0)
			for p := range int32(5) {
				f.Add("t", p+1, 0)
			}
			if err := faults.Wait(testContext(t), 10); err != nil {
				t.Fatal(err)
			}
			produce(t, c, "t", numbered(0, 10)...)
			if got := readTo(t, r, 10); !slices.Equal(got, values(0, 10)) {
				t.Errorf("Got %v", got)
			}
			// The last answers may still be on their way to the other loops.
			m := awaitMetrics(t, c, func(m Metrics) bool {
				return m.Errors[code(e.Code).name()] >= 10 && m.FullFetches >= 10
			})
			if got := m.Errors[code(e.Code).name()]; got != 10 {
				t.Errorf("Got %d counted, want 10: %v", got, m.Errors)
			}
		})
	}
}

// Brokers with room for one session: the loops throw each other's out.
func TestFetchSessionEvicted(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(6, "t"), kfake.BrokerConfigs(map[string]string{"max.incremental.fetch.session.cache.slots": "1"}))
	one := startFetcher(t, c, &FetchOptions{MaxWait: 5 * time.Millisecond})
	two := startFetcher(t, c, &FetchOptions{MaxWait: 5 * time.Millisecond})
	for p := range int32(6) {
		a, b := one.Add("t", p, 0), two.Add("t", p, 0)
		msgs := numbered(0, 20)
		for i := range msgs {
			msgs[i].Partition = p
		}
		produce(t, c, "t", msgs...)
		for _, r := range []*PartitionReader{a, b} {
			if got := readTo(t, r, 20); !slices.Equal(got, values(0, 20)) {
				t.Errorf("Got %v of partition %d", got, p)
			}
		}
	}
}

// Partitions that leave a fetcher leave its sessions, too.
func TestFetchSessionForgets(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(2, "t"), kfake.SeedTopics(1, "u"))
	for _, err := range []error{cluster.MoveTopicPartition("t", 0, 0), cluster.MoveTopicPartition("t", 1, 0), cluster.MoveTopicPartition("u", 0, 0)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	// What the brokers remember to have been asked for. A session that is begun anew,
	// as after an answer that came too late, forgets what it does not name.
	var mu sync.Mutex
	remembered := make(map[int32]map[string]bool)
	changed := make(chan struct{}, 1)
	watchFetches(cluster, func(node int32, req *kmsg.FetchRequest) {
		mu.Lock()
		defer mu.Unlock()
		if remembered[node] == nil || req.SessionEpoch <= 0 {
			remembered[node] = make(map[string]bool)
		}
		for _, ft := range req.Topics {
			for _, p := range ft.Partitions {
				remembered[node][fmt.Sprintf("%x/%d", ft.TopicID, p.Partition)] = true
			}
		}
		for _, ft := range req.ForgottenTopics {
			for _, p := range ft.Partitions {
				delete(remembered[node], fmt.Sprintf("%x/%d", ft.TopicID, p))
			}
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	remember := func(partition string) bool {
		mu.Lock()
		defer mu.Unlock()
		for _, of := range remembered {
			if of[partition] {
				return true
			}
		}
		return false
	}
	f := startFetcher(t, c, &FetchOptions{MaxWait: 5 * time.Millisecond})
	stays, leaves, other := f.Add("t", 0, 0), f.Add("t", 1, 0), f.Add("u", 0, 0)
	produce(t, c, "u", numbered(0, 1)...)
	produce(t, c, "t", numbered(0, 1)...)
	readTo(t, other, 1)
	readTo(t, stays, 1)
	gone := []string{fmt.Sprintf("%x/1", cluster.TopicInfo("t").TopicID), fmt.Sprintf("%x/0", cluster.TopicInfo("u").TopicID)}
	if !remember(gone[1]) {
		t.Fatal("what was read was not asked for")
	}
	leaves.Close()
	other.Close()
	ctx := testContext(t)
	for slices.ContainsFunc(gone, remember) {
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("not forgotten: one of %v", gone)
		}
	}
	produce(t, c, "t", numbered(1, 5)...)
	if got := readTo(t, stays, 5); !slices.Equal(got, values(1, 5)) {
		t.Errorf("Got %v", got)
	}
}
