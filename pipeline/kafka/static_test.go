package kafka

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func assign(t *testing.T, c *Client, o *AssignOptions) *Static {
	t.Helper()
	o.PartitionWatch = 10 * time.Millisecond
	s, err := c.Assign(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func next(t *testing.T, s *Static) *Generation {
	t.Helper()
	g, err := s.Next(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestStaticAssignment(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(2, "a"), kfake.SeedTopics(1, "b"))
	s := assign(t, c, &AssignOptions{Topics: []string{"a", "b"}, GroupID: "g"})
	g := next(t, s)
	if diff := cmp.Diff(Assignment{"a": {0, 1}, "b": {0}}, g.Assignment); diff != "" || g.ID != 1 {
		t.Errorf("generation %d (-want +got):\n%s", g.ID, diff)
	}
	ended := make(chan error, 1)
	g.Run(func(ctx context.Context) {
		<-ctx.Done()
		ended <- context.Cause(ctx)
	})
	// Offsets are for lag tools, in a group without members.
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.NotCoordinator, Count: 2})
	if err := g.Commit(testContext(t), map[string]map[int32]int64{"a": {0: 7}, "b": {0: 1}}); err != nil {
		t.Fatal(err)
	}
	if got, err := c.CommittedOffsets(testContext(t), "g", "a", []int32{0, 1}); err != nil || got[0] != 7 {
		t.Errorf("Got %v and %v committed", got, err)
	}
	// Partitions that are added end the generation; the next one has them.
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.Version, req.TimeoutMillis = 0, 5000
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = "a", 3
	req.Topics = append(req.Topics, rt)
	node, err := c.controller(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.request(testContext(t), node, req); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, ErrGenerationEnded) {
		t.Errorf("Got cause %v", err)
	}
	g = next(t, s)
	if diff := cmp.Diff(Assignment{"a": {0, 1, 2}, "b": {0}}, g.Assignment); diff != "" || g.ID != 2 {
		t.Errorf("generation %d (-want +got):\n%s", g.ID, diff)
	}
	// A function that returns ends it, too.
	g.Run(func(context.Context) {})
	if g = next(t, s); g.ID != 3 {
		t.Errorf("Got generation %d", g.ID)
	}
	running := make(chan struct{})
	g.Run(func(ctx context.Context) {
		<-ctx.Done()
		close(running)
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-running:
	default:
		t.Error("Close returned before the functions of Run")
	}
	if _, err := s.Next(testContext(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("Got %v, want ErrClosed", err)
	}
}

// Named partitions stay the same, and brokers in trouble are waited out.
func TestStaticPartitions(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(4, "a"))
	s := assign(t, c, &AssignOptions{Topics: []string{"a"}, Partitions: []int32{3, 1}})
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "a", Err: kerr.LeaderNotAvailable, Count: 3})
	g := next(t, s)
	if diff := cmp.Diff(Assignment{"a": {1, 3}}, g.Assignment); diff != "" {
		t.Errorf("assignment (-want +got):\n%s", diff)
	}
	if err := g.Commit(testContext(t), map[string]map[int32]int64{"a": {1: 1}}); err != nil {
		t.Errorf("Got %v without a group", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Got %v, want the end of ctx", err)
	}
}

func TestStaticErrors(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(2, "a"))
	for text, o := range map[string]*AssignOptions{
		"without topics": nil,
		"named twice":    {Topics: []string{"a"}, Partitions: []int32{1, 1}},
		"negative":       {Topics: []string{"a"}, PartitionWatch: -1},
		"no partition 2": {Topics: []string{"a"}, Partitions: []int32{0, 2}},
		"no such topic":  {Topics: []string{"nope"}},
	} {
		if _, err := c.Assign(testContext(t), o); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("Got %v, want %q", err, text)
		}
	}
	// A group with members keeps its offsets.
	join(t, c, "s", "a").await(t, owns(2))
	g := next(t, assign(t, c, &AssignOptions{Topics: []string{"a"}, GroupID: "g"}))
	if err := g.Commit(testContext(t), map[string]map[int32]int64{"a": {0: 7}}); err == nil || !strings.Contains(err.Error(), "members of its own") {
		t.Errorf("Got %v, want the group's members named", err)
	}
}

// After an answer that cannot be read others are asked for, for as long as calls try; where
// none can be read, that is what they say, and a static assignment goes on trying.
func TestWrongAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, o := startBroker(t)
		o.RequestTimeout = 200 * time.Millisecond
		dial := o.Dial
		var fetches, metadata atomic.Int32 // to be spoiled
		o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return &wrongConn{Conn: conn, fetches: &fetches, metadata: &metadata}, err
		}
		c := newTestClient(t, o)
		ctx := testContext(t)
		s, err := c.Assign(ctx, &AssignOptions{Topics: []string{"t"}})
		if err != nil {
			t.Fatal(err)
		}
		metadata.Store(1)
		if _, err := c.Topic(ctx, "t"); err != nil {
			t.Error(err)
		}
		metadata.Store(1 << 20)
		if _, err := c.Topic(ctx, "t"); !errors.Is(err, errProtocol) || errors.Is(err, ErrUnreachable) {
			t.Errorf("Got %v", err)
		}
		time.AfterFunc(2*o.RequestTimeout, func() { metadata.Store(0) })
		g, err := s.Next(ctx)
		if err != nil || len(g.Assignment["t"]) != 1 || metadata.Load() > 0 {
			t.Errorf("Got %+v, %v", g, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A topic that the ACLs refuse is an error at first; after the first generation it is named and
// waited for, once a new partition or a reader has ended that.
func TestStaticWithARefusedTopic(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(2, "a"), kfake.SeedTopics(1, "b"))
	refuse := func() *kfake.FaultHandle {
		return cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "b", Err: kerr.TopicAuthorizationFailed, Count: -1})
	}
	const why = "topic b: TOPIC_AUTHORIZATION_FAILED; the brokers' ACLs must allow this user DESCRIBE on the topic"
	refuses := refuse()
	if _, err := c.Assign(testContext(t), &AssignOptions{Topics: []string{"a", "b"}}); !errors.Is(err, ErrAuth) || !strings.Contains(err.Error(), why) {
		t.Errorf("Got %v, want that it is refused", err)
	}
	refuses.Remove()
	waits := make(chan error, 1000)
	s := assign(t, c, &AssignOptions{Topics: []string{"a", "b"}, Waiting: func(err error) { waits <- err }})
	next(t, s).Run(func(context.Context) {}) // it ends
	if err := <-waits; err != nil {
		t.Errorf("Got %v of a generation", err)
	}
	refuses = refuse()
	told := make(chan error, 1)
	go func() {
		err := <-waits
		refuses.Remove()
		told <- err
	}()
	if g := next(t, s); len(g.Assignment["a"]) != 2 || len(g.Assignment["b"]) != 1 {
		t.Errorf("Got %v", g.Assignment)
	}
	if err := <-told; !errors.Is(err, ErrAuth) || !strings.Contains(err.Error(), why) {
		t.Errorf("Got %v of a topic that is refused", err)
	}
}

// A commit that the ACLs refuse says of which partition, or group, and what they must allow.
func TestStaticCommitRefused(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(2, "a"))
	g := next(t, assign(t, c, &AssignOptions{Topics: []string{"a"}, GroupID: "g"}))
	for e, want := range map[*kerr.Error]string{
		kerr.TopicAuthorizationFailed: "commit offsets of group g: a/1: TOPIC_AUTHORIZATION_FAILED; the brokers' ACLs must allow this user READ on the topic",
		kerr.GroupAuthorizationFailed: "commit offsets of group g: a/1: GROUP_AUTHORIZATION_FAILED; the brokers' ACLs must allow this user READ on the group",
	} {
		fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Group: "g", Err: e, Count: -1})
		if err := g.Commit(testContext(t), map[string]map[int32]int64{"a": {1: 7}}); !errors.Is(err, ErrAuth) || err.Error() != want {
			t.Errorf("Got %v, want %s", err, want)
		}
		fault.Remove()
	}
}
