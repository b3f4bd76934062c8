package kafka

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// member consumes a group in the background and reports its generations.
type member struct {
	group  *Group
	gens   chan *Generation // each has begun
	failed chan error       // what Next gave up with
	done   chan struct{}
}

// join makes a member whose generations run an idle function until they end.
func join(t *testing.T, c *Client, store string, topics ...string) *member {
	t.Helper()
	return joinWith(t, c, &GroupOptions{
		ID: "g", Topics: topics, StoreID: store,
		SessionTimeout: 3 * time.Second, Heartbeat: 50 * time.Millisecond, Rebalance: 5 * time.Second,
		PartitionWatch: 50 * time.Millisecond, RetryBackoff: 20 * time.Millisecond,
	})
}

func joinWith(t *testing.T, c *Client, o *GroupOptions) *member {
	t.Helper()
	g, err := c.JoinGroup(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	return follow(t, g)
}

// follow takes the generations of a group that was joined.
func follow(t *testing.T, g *Group) *member {
	m := &member{group: g, gens: make(chan *Generation, 100), failed: make(chan error, 1), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(m.done)
		for {
			gen, err := g.Next(ctx)
			if err != nil {
				m.failed <- err
				return
			}
			gen.Run(func(ctx context.Context) { <-ctx.Done() })
			m.gens <- gen
		}
	}()
	t.Cleanup(func() {
		cancel()
		_ = g.Close()
		<-m.done
	})
	return m
}

// await returns the first generation that f accepts.
func (m *member) await(t *testing.T, f func(g *Generation) bool) *Generation {
	t.Helper()
	ctx := testContext(t)
	for {
		select {
		case g := <-m.gens:
			if f(g) {
				return g
			}
		case err := <-m.failed:
			t.Fatal(err)
		case <-ctx.Done():
			t.Fatal("no such generation")
		}
	}
}

// eventually waits until f holds.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ctx := testContext(t); !f(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		}
	}
}

func owns(n int) func(g *Generation) bool {
	return func(g *Generation) bool { return count(g.Assignment) == n }
}

func TestGroupRebalance(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(4, "a"), kfake.SeedTopics(2, "b"))
	first := join(t, c, "s", "a", "b")
	g := first.await(t, owns(6))
	if diff := cmp.Diff(Assignment{"a": {0, 1, 2, 3}, "b": {0, 1}}, g.Assignment); diff != "" {
		t.Errorf("first assignment (-want +got):\n%s", diff)
	}
	second := join(t, c, "s", "a", "b")
	one, two := first.await(t, owns(3)), second.await(t, owns(3))
	all := make(Assignment)
	for _, g := range []*Generation{one, two} {
		for topic, parts := range g.Assignment {
			all[topic] = append(all[topic], parts...)
			slices.Sort(all[topic])
		}
	}
	if diff := cmp.Diff(Assignment{"a": {0, 1, 2, 3}, "b": {0, 1}}, all); diff != "" {
		t.Errorf("both assignments (-want +got):\n%s", diff)
	}
	if err := second.group.Close(); err != nil {
		t.Fatal(err)
	}
	first.await(t, owns(6))
	if got := c.Metrics().Rebalances; got < 4 {
		t.Errorf("Got %d rebalances, want 4 at least", got)
	}
}

func TestGroupRunEndsWithGeneration(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(1, "a"))
	m := join(t, c, "s", "a")
	g := m.await(t, owns(1))
	ended := make(chan error, 1)
	g.Run(func(ctx context.Context) {
		<-ctx.Done()
		ended <- context.Cause(ctx)
	})
	if err := m.group.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case cause := <-ended:
		if !errors.Is(cause, ErrGenerationEnded) {
			t.Errorf("Got cause %v, want ErrGenerationEnded", cause)
		}
	default:
		t.Error("Close returned before the function of Run")
	}
	late := make(chan error, 1)
	g.Run(func(ctx context.Context) { late <- ctx.Err() })
	if err := <-late; err == nil {
		t.Error("Got a live ctx after the end of the generation")
	}
	if err := <-m.failed; !errors.Is(err, ErrClosed) {
		t.Errorf("Got %v from Next after Close, want ErrClosed", err)
	}
}

func TestGroupNewPartitions(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(1, "a"))
	m := join(t, c, "s", "a")
	m.await(t, owns(1))
	addPartitions(t, c, "a", 3)
	m.await(t, owns(3))
}

// Partitions that are added after the leader has looked for them, and before its
// generation begins, are found all the same.
func TestGroupNewPartitionsWhileJoining(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "a"))
	dealt, added := make(chan struct{}), make(chan struct{})
	cluster.ControlKey(int16(kmsg.OffsetFetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.DropControl()
		close(dealt)
		cluster.SleepControl(func() { <-added })
		return nil, nil, false
	})
	m := join(t, c, "s", "a")
	select {
	case <-dealt:
	case <-testContext(t).Done():
		t.Fatal("no assignment")
	}
	addPartitions(t, c, "a", 3)
	close(added)
	m.await(t, owns(1))
	m.await(t, owns(3))
}

func addPartitions(t *testing.T, c *Client, topic string, total int32) {
	t.Helper()
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = 1000
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = topic, total
	req.Topics = append(req.Topics, rt)
	if err := c.attempt(testContext(t), func(ctx context.Context) error {
		node, err := c.controller(ctx)
		if err != nil {
			return err
		}
		resp, err := c.request(ctx, node, req)
		if err != nil {
			return err
		}
		if e := code(resp.(*kmsg.CreatePartitionsResponse).Topics[0].ErrorCode); e != codeNone {
			return e
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestGroupCommit(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(2, "a"))
	produce(t, c, "a", numbered(0, 10)...)
	first := join(t, c, "s", "a")
	old := first.await(t, owns(2))
	if err := old.Commit(testContext(t), map[string]map[int32]int64{"a": {0: 7}}); err != nil {
		t.Fatal(err)
	}
	commit := cluster.GroupInfo("g").Commits["a"][0]
	if commit.Offset != 7 || commit.LeaderEpoch != -1 {
		t.Errorf("Got commit %+v, want offset 7 with an unknown leader epoch", commit)
	}
	// A zombie: its generation is over, it does not know.
	join(t, c, "s", "a").await(t, owns(1))
	if err := old.Commit(testContext(t), map[string]map[int32]int64{"a": {0: 9}}); !errors.Is(err, ErrGenerationEnded) {
		t.Errorf("Got %v from the commit of an old generation, want ErrGenerationEnded", err)
	}
	if got := cluster.GroupInfo("g").Commits["a"][0].Offset; got != 7 {
		t.Errorf("Got committed offset %d, want 7", got)
	}
}

// Of what a coordinator answers to a commit, only what says that this member has no
// part in the group any more is the end of its generation.
func TestGroupCommitErrors(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "a"))
	gen := join(t, c, "s", "a").await(t, owns(1))
	for e, ended := range map[*kerr.Error]bool{
		kerr.IllegalGeneration:         true,
		kerr.UnknownMemberID:           true,
		kerr.RebalanceInProgress:       true,
		kerr.NotCoordinator:            true,
		kerr.CoordinatorLoadInProgress: false,
		kerr.CoordinatorNotAvailable:   false,
		kerr.GroupAuthorizationFailed:  false,
		kerr.InvalidCommitOffsetSize:   false,
		kerr.OffsetMetadataTooLarge:    false,
		kerr.TopicAuthorizationFailed:  false,
		kerr.UnknownTopicOrPartition:   false,
	} {
		cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Group: "g", Err: e})
		err := gen.Commit(testContext(t), map[string]map[int32]int64{"a": {0: 7}})
		if err == nil || errors.Is(err, ErrGenerationEnded) != ended {
			t.Errorf("Got %v from a commit that is answered with %s, want the end of the generation: %t", err, e.Message, ended)
		}
		for denied, want := range map[*kerr.Error]string{
			kerr.TopicAuthorizationFailed: "topics a: TOPIC_AUTHORIZATION_FAILED; the brokers' ACLs must allow this user READ on the topic",
			kerr.GroupAuthorizationFailed: "GROUP_AUTHORIZATION_FAILED; the brokers' ACLs must allow this user READ on the group",
		} {
			if e == denied && !strings.Contains(err.Error(), want) {
				t.Errorf("Got %v, want %s", err, want)
			}
		}
	}
}

func TestGroupRefusesOtherStore(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(3, "a"))
	first := join(t, c, "store-one", "a")
	first.await(t, owns(3))
	second := join(t, c, "store-two", "a")
	select {
	case err := <-second.failed:
		if !errors.Is(err, ErrOtherStore) {
			t.Fatalf("Got %v, want ErrOtherStore", err)
		}
		for _, want := range []string{"store-one", "store-two", `group g`} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("Got %q, which does not name %s", err, want)
			}
		}
	case <-testContext(t).Done():
		t.Fatal("the member of another store was not refused")
	}
	if err := second.group.Close(); err != nil {
		t.Fatal(err)
	}
	first.await(t, owns(3)) // it has kept everything
	select {
	case g := <-second.gens:
		t.Errorf("Got generation %+v for the other store", g.Assignment)
	default:
	}
}

func TestGroupRefusesOtherPrograms(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(1, "a"))
	other, err := kafkago.NewConsumerGroup(kafkago.ConsumerGroupConfig{
		ID: "g", Brokers: c.o.Brokers, Topics: []string{"a"},
		Dialer: &kafkago.Dialer{DialFunc: c.o.Dial, Timeout: time.Second}, HeartbeatInterval: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if _, err := other.Next(testContext(t)); err != nil {
		t.Fatal(err)
	}
	m := join(t, c, "s", "a")
	select {
	case err := <-m.failed:
		if !errors.Is(err, ErrOtherStore) || !strings.Contains(err.Error(), "group g") {
			t.Errorf("Got %v, want ErrOtherStore naming the group", err)
		}
	case <-testContext(t).Done():
		t.Fatal("joined a group of another program")
	}
}

// Members that the coordinator assigns itself (KIP-848) are no obstacle to kfake. Kafka
// answers the join of a member like ours with UNKNOWN_SERVER_ERROR, for as long as they are
// there.
func TestGroupRefusesConsumersOfTheNewProtocol(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "a"))
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Group: "g", TopLevel: true, Err: kerr.UnknownServerError, Count: -1})
	m := join(t, c, "s", "a")
	if err := fault.Wait(testContext(t), 2); err != nil { // without such members it is waited out
		t.Fatal(err)
	}
	node, err := c.coordinator(testContext(t), "g")
	if err != nil {
		t.Fatal(err)
	}
	beat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	beat.Group, beat.MemberID, beat.SubscribedTopicNames, beat.RebalanceTimeoutMillis = "g", "them", []string{"a"}, 60_000
	beat.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	resp, err := c.request(testContext(t), node, beat)
	if err != nil {
		t.Fatal(err)
	}
	if err := kerr.ErrorForCode(resp.(*kmsg.ConsumerGroupHeartbeatResponse).ErrorCode); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-m.failed:
		if !errors.Is(err, ErrOtherStore) || !strings.Contains(err.Error(), "group g") || !strings.Contains(err.Error(), `"sluice"`) {
			t.Errorf("Got %v, want ErrOtherStore naming the group and the member's client", err)
		}
	case <-testContext(t).Done():
		t.Fatal("waits in a group of another program")
	}
}

// Where the coordinator does not know a topic while the partitions are dealt, kafka-go deals
// none of any topic. They are dealt again, and a topic that is gone is the group's end.
func TestGroupDealsUnknownTopicsAgain(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]bool{"for a moment": false, "gone": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, o := startBroker(t, kfake.SeedTopics(3, "a"), kfake.SeedTopics(2, "b"), kfake.AllowAutoTopicCreation())
			o.RequestTimeout = 300 * time.Millisecond
			m := join(t, newTestClient(t, o), "s", "a", "b")
			m.await(t, owns(5))
			if gone {
				if err := cluster.DeleteTopic("b"); err != nil {
					t.Fatal(err)
				}
			} else {
				cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "b", Err: kerr.UnknownTopicOrPartition, When: func(r kmsg.Request) bool {
					return r.(*kmsg.MetadataRequest).Version == 6 // kafka-go's
				}})
			}
			cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: "g", TopLevel: true, Err: kerr.NotCoordinator})
			if !gone {
				m.await(t, owns(5))
				return
			}
			for {
				select {
				case g := <-m.gens:
					t.Errorf("Got generation %+v", g.Assignment)
				case err := <-m.failed:
					if !errors.Is(err, ErrTopicNotFound) || !strings.Contains(err.Error(), "no such topic: b") {
						t.Errorf("Got %v, want ErrTopicNotFound naming the topic", err)
					}
					if cluster.TopicInfo("b") != nil {
						t.Error("the group has made the topic")
					}
					return
				case <-testContext(t).Done():
					t.Fatal("waits with nothing to read")
				}
			}
		})
	}
}

// A topic that is gone is waited for where the options say so, and who waits is told why.
func TestGroupAwaitsTopic(t *testing.T) {
	t.Parallel()
	cluster, o := startBroker(t, kfake.SeedTopics(3, "a"), kfake.SeedTopics(2, "b"))
	o.RequestTimeout = 300 * time.Millisecond
	why := make(chan error, 1000)
	m := joinWith(t, newTestClient(t, o), &GroupOptions{
		ID: "g", Topics: []string{"a", "b"}, SessionTimeout: 2 * time.Second, RetryBackoff: 20 * time.Millisecond,
		AwaitTopics: true, Waiting: func(err error) { why <- err },
	})
	m.await(t, owns(5))
	if err := cluster.DeleteTopic("b"); err != nil {
		t.Fatal(err)
	}
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: "g", TopLevel: true, Err: kerr.NotCoordinator})
	for waits := false; !waits; {
		select {
		case err := <-why:
			waits = errors.Is(err, ErrTopicNotFound)
		case err := <-m.failed:
			t.Fatal(err)
		case <-testContext(t).Done():
			t.Fatal("says nothing")
		}
	}
	if err := cluster.CreateTopic("b", 2, nil); err != nil {
		t.Fatal(err)
	}
	m.await(t, owns(5))
	var last error
	for len(why) > 0 {
		last = <-why
	}
	if last != nil {
		t.Errorf("Got %v of a generation", last)
	}
}

// While a topic is refused, a try to join, for which other members put their partitions
// down, comes ever later, and new partitions of another topic do not end the generation.
func TestGroupWaitsWhileATopicIsRefused(t *testing.T) {
	t.Parallel()
	cluster, o := startBroker(t, kfake.SeedTopics(3, "a"), kfake.SeedTopics(2, "b"))
	var log logs
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	var joins atomic.Int64
	cluster.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		joins.Add(1)
		return nil, nil, false
	})
	var asked atomic.Int64
	m := joinWith(t, newTestClient(t, o), &GroupOptions{
		ID: "g", Topics: []string{"a", "b"}, SessionTimeout: 2 * time.Second, RetryBackoff: 10 * time.Millisecond, PartitionWatch: 20 * time.Millisecond,
	})
	m.await(t, owns(5))
	cluster.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		asked.Add(1)
		return nil, nil, false
	})
	refuses := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "b", Err: kerr.TopicAuthorizationFailed, Count: -1})
	addPartitions(t, m.group.c, "a", 4)
	eventually(t, "the new partition is told of", func() bool { return strings.Contains(log.String(), "which wait for another topic") })
	if len(m.gens) > 0 {
		t.Error("the new partition has ended the generation")
	}
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: "g", TopLevel: true, Err: kerr.NotCoordinator})
	eventually(t, "the group is tried", func() bool { return strings.Contains(log.String(), "a topic is refused") })
	asked.Store(0)
	before := joins.Load()
	eventually(t, "topics are asked for", func() bool { return asked.Load() >= 60 }) // 600 ms at 10 ms a try
	if got := joins.Load() - before; got > 12 {
		t.Errorf("Got %d tries to join while topics were asked for %d times", got, asked.Load())
	}
	refuses.Remove()
	m.await(t, owns(6))
}

// A topic that the ACLs refuse at a rebalance is named and waited for.
func TestGroupWithARefusedTopic(t *testing.T) {
	t.Parallel()
	cluster, o := startBroker(t, kfake.SeedTopics(3, "a"), kfake.SeedTopics(2, "b"))
	var log logs
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	why := make(chan error, 1000)
	m := joinWith(t, newTestClient(t, o), &GroupOptions{
		ID: "g", Topics: []string{"a", "b"}, SessionTimeout: 2 * time.Second, RetryBackoff: 20 * time.Millisecond,
		Waiting: func(err error) { why <- err },
	})
	m.await(t, owns(5))
	refuses := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "b", Err: kerr.TopicAuthorizationFailed, Count: -1})
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: "g", TopLevel: true, Err: kerr.NotCoordinator})
	for named := 0; named < 2; {
		select {
		case err := <-why:
			if err != nil && strings.Contains(err.Error(), "topic b: TOPIC_AUTHORIZATION_FAILED; the brokers' ACLs must allow this user DESCRIBE on the topic") {
				named++
			}
		case err := <-m.failed:
			t.Fatal(err)
		case <-testContext(t).Done():
			t.Fatal("says nothing of the topic")
		}
	}
	refuses.Remove()
	m.await(t, owns(5))
	if got := strings.Count(log.String(), "a topic is refused"); got != 1 {
		t.Errorf("Got %d warnings, want one, in\n%s", got, log.String())
	}
}

func TestGroupCoordinatorTrouble(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "a"))
	for _, e := range []*kerr.Error{kerr.CoordinatorLoadInProgress, kerr.NotCoordinator, kerr.CoordinatorNotAvailable} {
		cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Group: "g", TopLevel: true, Err: e})
	}
	m := join(t, c, "s", "a")
	m.await(t, owns(1))
	// A lost heartbeat ends the generation; the member comes back by itself.
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: "g", TopLevel: true, Err: kerr.NotCoordinator})
	m.await(t, owns(1))
	if got := c.Metrics().Errors["coordinator_load_in_progress"]; got != 1 {
		t.Errorf("Got %d counted, want 1", got)
	}
}

// A full group is waited for, and it is said once what can be done about it, also where
// there was other trouble before.
func TestGroupFull(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "a"))
	var log logs
	c.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Group: "g", TopLevel: true, Err: kerr.CoordinatorLoadInProgress})
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Group: "g", TopLevel: true, Err: kerr.GroupMaxSizeReached, Count: 3})
	join(t, c, "s", "a").await(t, owns(1))
	if got := c.Metrics().Errors["group_max_size_reached"]; got != 3 {
		t.Errorf("Got %d answers of a full group, want 3", got)
	}
	if got := strings.Count(log.String(), "raise the brokers' group.max.size\" group=g err=GROUP_MAX_SIZE_REACHED"); got != 1 {
		t.Errorf("Got %d times what to do, want once, in:\n%s", got, log.String())
	}
}

// A pending JoinGroup, which the coordinator answers only when the others have
// put their partitions down, does not hold up Close.
func TestGroupCloseWhileJoining(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, c := startCluster(t, kfake.SeedTopics(1, "a"))
		first := join(t, c, "s", "a")
		g := first.await(t, owns(1))
		release := make(chan struct{})
		defer close(release)
		g.Run(func(context.Context) { <-release })
		joins := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Group: "g", Observe: true, Count: -1})
		second := join(t, c, "s", "a")
		second.group.leaveWithin = 50 * time.Millisecond
		if err := joins.Wait(testContext(t), 1); err != nil {
			t.Fatal(err)
		}
		closed := make(chan error, 1)
		go func() { closed <- second.group.Close() }()
		select {
		case err := <-closed:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(4 * time.Second): // the rebalance timeout of join is 5 s
			t.Error("Close waits for the JoinGroup")
		}
		<-second.failed
	})
}

func TestGroupMissingTopic(t *testing.T) {
	t.Parallel()
	cluster, c := startCluster(t, kfake.SeedTopics(1, "a"), kfake.AllowAutoTopicCreation())
	_, err := c.JoinGroup(testContext(t), &GroupOptions{ID: "g", Topics: []string{"nope"}})
	if !errors.Is(err, ErrTopicNotFound) {
		t.Errorf("Got %v, want ErrTopicNotFound", err)
	}
	if cluster.TopicInfo("nope") != nil {
		t.Error("the topic was created")
	}
}

func TestGroupOptions(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(1, "a"))
	for name, o := range map[string]*GroupOptions{
		"no id":     {Topics: []string{"a"}},
		"no topics": {ID: "g"},
		"negative":  {ID: "g", Topics: []string{"a"}, Rebalance: -1},
		"heartbeat": {ID: "g", Topics: []string{"a"}, SessionTimeout: time.Second, Heartbeat: time.Second},
		"nothing":   nil,
	} {
		if _, err := c.JoinGroup(testContext(t), o); err == nil {
			t.Errorf("%s: Got no error", name)
		}
	}
}

func TestBalancer(t *testing.T) {
	t.Parallel()
	m := func(id, store string, topics ...string) kafkago.GroupMember {
		return kafkago.GroupMember{ID: id, Topics: topics, UserData: []byte(userDataPrefix + store)}
	}
	var partitions []kafkago.Partition
	for i := range 3 {
		partitions = append(partitions, kafkago.Partition{Topic: "a", ID: 2 - i}, kafkago.Partition{Topic: "b", ID: i})
	}
	for _, tc := range []struct {
		name    string
		members []kafkago.GroupMember
		want    kafkago.GroupMemberAssignments
	}{
		{
			"one",
			[]kafkago.GroupMember{m("x", "s", "a", "b")},
			kafkago.GroupMemberAssignments{"x": {"a": {0, 1, 2}, "b": {0, 1, 2}}},
		},
		{
			"two",
			[]kafkago.GroupMember{m("y", "s", "a", "b"), m("x", "s", "a", "b")},
			kafkago.GroupMemberAssignments{"x": {"a": {0, 2}, "b": {1}}, "y": {"a": {1}, "b": {0, 2}}},
		},
		{
			"other topics",
			[]kafkago.GroupMember{m("x", "s", "a"), m("y", "s", "b")},
			kafkago.GroupMemberAssignments{"x": {"a": {0, 1, 2}}, "y": {"b": {0, 1, 2}}},
		},
		{
			"other store",
			[]kafkago.GroupMember{m("x", "s", "a"), m("y", "other", "a")},
			kafkago.GroupMemberAssignments{"x": {"a": {0, 1, 2}}, "y": {"a": {foreignPartition}}},
		},
		{
			"no user data",
			[]kafkago.GroupMember{m("x", "s", "a"), {ID: "y", Topics: []string{"a"}}},
			kafkago.GroupMemberAssignments{"x": {"a": {0, 1, 2}}, "y": {"a": {foreignPartition}}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := (&balancer{storeID: "s"}).AssignGroups(tc.members, partitions)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("assignment (-want +got):\n%s", diff)
			}
		})
	}
}
