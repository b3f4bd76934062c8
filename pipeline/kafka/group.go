package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Assignment is the partitions that one member owns: topic → partitions,
// ascending.
type Assignment map[string][]int32

// GroupOptions says which group to join and as what.
type GroupOptions struct {
	// ID of the consumer group. Required.
	ID string
	// Topics to consume. Required; they must exist.
	Topics []string
	// StoreID is the identity of the store that the records go to. Members of
	// another store are refused (design D4).
	StoreID string
	// SessionTimeout is how long the coordinator waits for a heartbeat before
	// it gives the partitions to others. Brokers refuse less than 6 s unless
	// told otherwise. Default 10 s.
	SessionTimeout time.Duration
	// Heartbeat is the interval of heartbeats. Default a third of
	// SessionTimeout, at most 3 s.
	Heartbeat time.Duration
	// Rebalance is how long the coordinator waits for members to come back
	// with their partitions put down. Default 30 s.
	Rebalance time.Duration
	// PartitionWatch is the interval at which new partitions are looked for.
	// Default 5 s.
	PartitionWatch time.Duration
	// RetryBackoff is the wait before joining again after an error. Default
	// 500 ms.
	RetryBackoff time.Duration
	// AwaitTopics has Next wait for a topic that is gone after the first generation, as it may
	// be made anew.
	AwaitTopics bool
	// Waiting is told why Next waits, where that is for more than other members, with an error
	// that wraps ErrUnreachable where no broker answers; and nil when a generation begins.
	Waiting func(err error)
}

// Validate reports what is missing or contradictory.
func (o *GroupOptions) Validate() error {
	switch {
	case o.ID == "":
		return errors.New("kafka: consumer group without an id")
	case len(o.Topics) == 0:
		return fmt.Errorf("kafka: consumer group %s without topics", o.ID)
	case o.SessionTimeout < 0 || o.Heartbeat < 0 || o.Rebalance < 0 || o.PartitionWatch < 0 || o.RetryBackoff < 0:
		return fmt.Errorf("kafka: consumer group %s: negative duration", o.ID)
	case o.Heartbeat > 0 && o.SessionTimeout > 0 && o.Heartbeat >= o.SessionTimeout:
		return fmt.Errorf("kafka: consumer group %s: heartbeat %v is not shorter than the session timeout %v", o.ID, o.Heartbeat, o.SessionTimeout)
	}
	return nil
}

func (o *GroupOptions) withDefaults() GroupOptions {
	d := *o
	d.Topics = slices.Clone(o.Topics)
	if d.SessionTimeout == 0 {
		d.SessionTimeout = 10 * time.Second
	}
	if d.Heartbeat == 0 {
		d.Heartbeat = min(3*time.Second, d.SessionTimeout/3)
	}
	if d.Rebalance == 0 {
		d.Rebalance = 30 * time.Second
	}
	if d.PartitionWatch == 0 {
		d.PartitionWatch = 5 * time.Second
	}
	if d.RetryBackoff == 0 {
		d.RetryBackoff = 500 * time.Millisecond
	}
	if d.Waiting == nil {
		d.Waiting = func(error) {}
	}
	return d
}

// Group is this process's membership in a consumer group. Next is for one
// goroutine.
type Group struct {
	c     *Client
	o     GroupOptions
	cg    *kafkago.ConsumerGroup
	b     *balancer
	conns *connSet
	// leaveWithin is how long Close lets kafka-go end the generation and leave
	// before it takes its connections away: a pending JoinGroup would hold it
	// for the whole rebalance timeout.
	leaveWithin time.Duration
	joined      bool // a generation has begun; of Next

	closeOnce sync.Once
}

// JoinGroup makes this process a member of a consumer group. It checks that the
// topics exist (kafka-go would create them), and returns before the first
// generation begins; call Next for that.
func (c *Client) JoinGroup(ctx context.Context, o *GroupOptions) (*Group, error) {
	if o == nil {
		o = &GroupOptions{}
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	g := &Group{c: c, o: o.withDefaults(), b: &balancer{storeID: o.StoreID}, leaveWithin: 3 * time.Second}
	if _, err := c.topics(ctx, g.o.Topics...); err != nil {
		return nil, fmt.Errorf("join group %s: %w", o.ID, err)
	}
	g.conns = newConnSet(&c.o, c.sasl)
	g.conns.makeNone = true
	cg, err := kafkago.NewConsumerGroup(kafkago.ConsumerGroupConfig{
		ID:      g.o.ID,
		Brokers: []string{seedAddress},
		Dialer: &kafkago.Dialer{
			ClientID: c.o.ClientID,
			Timeout:  c.o.DialTimeout,
			DialFunc: func(ctx context.Context, network, address string) (net.Conn, error) {
				if address == seedAddress {
					return c.seeds.dial(ctx, g.conns.dial)
				}
				return g.conns.dial(ctx, network, address)
			},
		},
		Topics:            g.o.Topics,
		GroupBalancers:    []kafkago.GroupBalancer{g.b},
		HeartbeatInterval: g.o.Heartbeat,
		SessionTimeout:    g.o.SessionTimeout,
		RebalanceTimeout:  g.o.Rebalance,
		JoinGroupBackoff:  g.o.RetryBackoff,
		Timeout:           c.o.RequestTimeout,
	})
	if err != nil {
		return nil, fmt.Errorf("join group %s: %w", o.ID, err)
	}
	g.cg = cg
	return g, nil
}

// Next waits for the next generation. It begins only after the last one has
// ended and every function of its Run has returned; call Next again as soon as
// it has. Trouble with the coordinator is logged and waited out. Its error
// wraps ErrOtherStore where the group belongs to another store, ErrTopicNotFound where a
// topic is gone and not awaited, ErrAuth where
// the brokers refuse this client, or the group to it (a topic that they refuse is waited
// for), ErrTLS where one cannot be trusted before the first
// generation (later, that is trouble that is waited out), ErrClosed after Close, or is ctx's.
func (g *Group) Next(ctx context.Context) (*Generation, error) {
	j := &joining{g: g, log: g.c.o.Logger.With("group", g.o.ID), said: map[string]bool{}}
	for {
		gen, err := g.cg.Next(ctx)
		if err != nil {
			if err := j.failed(ctx, err); err != nil {
				return nil, err
			}
			continue
		}
		a, foreign := assigned(gen)
		if foreign {
			return nil, g.otherStore(ctx)
		}
		dealt := g.b.leads()
		if unknown := undealt(dealt); len(unknown) > 0 {
			gen.Start(func(context.Context) {}) // it ends, and its partitions are dealt anew
			if err := j.unknown(ctx, unknown); err != nil {
				return nil, err
			}
			continue
		}
		g.c.metrics.rebalances.Add(1)
		j.log.Info("consumer group generation begins", "generation", gen.ID, "partitions", count(a))
		g.joined = true
		g.o.Waiting(nil)
		next := newGeneration(gen, a)
		if dealt != nil {
			next.Run(func(ctx context.Context) { g.watch(ctx, dealt) })
		}
		return next, nil
	}
}

// assigned returns the partitions of a generation, and whether it has been dealt to members
// of another store.
func assigned(gen *kafkago.Generation) (a Assignment, foreign bool) {
	a = make(Assignment)
	for topic, parts := range gen.Assignments {
		for _, p := range parts {
			if p.ID == foreignPartition {
				foreign = true
				continue
			}
			a[topic] = append(a[topic], int32(p.ID))
		}
		slices.Sort(a[topic])
	}
	return a, foreign
}

// watch returns, which ends the generation, when a topic has another number of
// partitions than were dealt. That is the leader's work, as in the Java client.
// kafka-go's own watch compares with what it sees first, and so never finds the
// partitions that were added after the leader had looked.
func (g *Group) watch(ctx context.Context, dealt map[string]int) {
	t := time.NewTicker(g.o.PartitionWatch)
	defer t.Stop()
	topics := slices.Sorted(maps.Keys(dealt))
	waits := false // new partitions do, and that was said
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		got, err := g.c.topicsOnce(ctx, topics...)
		changed := slices.IndexFunc(topics, func(topic string) bool {
			m := got.metas[topic] // one that is gone is its readers' to report
			return m != nil && len(m.Partitions) > 0 && len(m.Partitions) != dealt[topic]
		})
		if err != nil || changed < 0 {
			continue
		}
		topic := topics[changed]
		logger := g.c.o.Logger.With("group", g.o.ID, "topic", topic, "partitions", len(got.metas[topic].Partitions), "dealt", dealt[topic])
		// While another topic is not told of nobody could join again, and nothing would be read.
		metas, err := g.c.topicsWith(ctx, upTo(dealt[topic]), topics...)
		if err == nil && len(metas[topic].Partitions) == dealt[topic] {
			continue // the broker lags behind
		}
		if err == nil {
			logger.Info("topic has new partitions, consumer group rebalances")
			return
		}
		if !waits && ctx.Err() == nil {
			logger.Warn("topic has new partitions, which wait for another topic", "err", err)
			waits = true
		}
	}
}

// upTo returns the first n partitions of a topic.
func upTo(n int) []int32 {
	parts := make([]int32, n)
	for i := range parts {
		parts[i] = int32(i)
	}
	return parts
}

func count(a Assignment) int {
	n := 0
	for _, ps := range a {
		n += len(ps)
	}
	return n
}

// groupClients asks the coordinator once for the client ids of the members of a group
// whose partitions it assigns itself (KIP-848), sorted, each once. There are none where
// the group is none of that kind, and where nobody tells.
func (c *Client) groupClients(ctx context.Context, group string) []string {
	ctx, cancel := context.WithTimeout(ctx, c.o.RequestTimeout)
	defer cancel()
	node, err := c.coordinator(ctx, group)
	if err != nil {
		return nil
	}
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{group}
	resp, err := c.request(ctx, node, req)
	if err != nil {
		return nil // a broker that does not know the request has no such groups
	}
	var clients []string
	for _, rg := range resp.(*kmsg.ConsumerGroupDescribeResponse).Groups {
		for i := range rg.Members {
			clients = append(clients, rg.Members[i].ClientID)
		}
	}
	slices.Sort(clients)
	return slices.Compact(clients)
}

// otherStore names the stores in the group, as far as the coordinator tells.
func (g *Group) otherStore(ctx context.Context) error {
	stores, err := g.c.groupStores(ctx, g.o.ID)
	if err != nil {
		g.c.o.Logger.Warn("members of the group are unknown", "group", g.o.ID, "err", err)
	}
	stores = slices.DeleteFunc(stores, func(s string) bool { return s == g.o.StoreID })
	return fmt.Errorf("%w: group %s is used by store %q, this is store %q; one data directory consumes all partitions: stop the other process, or give this pipeline a group of its own",
		ErrOtherStore, g.o.ID, stores, g.o.StoreID)
}

// coordinator asks which broker coordinates a group.
func (c *Client) coordinator(ctx context.Context, group string) (int32, error) {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorKey = 2, group
	resp, err := c.request(ctx, anyNode, req)
	if err != nil {
		return anyNode, err
	}
	found := resp.(*kmsg.FindCoordinatorResponse)
	if found.ErrorCode != 0 {
		return anyNode, code(found.ErrorCode).denied(needsGroup)
	}
	return found.NodeID, nil
}

// groupStores asks the coordinator for the store ids that the members of a
// group announced, sorted, each once.
func (c *Client) groupStores(ctx context.Context, group string) ([]string, error) {
	var stores []string
	err := c.attempt(ctx, func(ctx context.Context) error {
		node, err := c.coordinator(ctx, group)
		if err != nil {
			return err
		}
		desc := kmsg.NewPtrDescribeGroupsRequest()
		desc.Version, desc.Groups = 4, []string{group}
		resp, err := c.request(ctx, node, desc)
		if err != nil {
			return err
		}
		stores = nil
		for _, rg := range resp.(*kmsg.DescribeGroupsResponse).Groups {
			if rg.ErrorCode != 0 {
				return code(rg.ErrorCode)
			}
			if rg.State != "Stable" {
				return codeRebalanceInProgress // until then there is no metadata
			}
			for _, m := range rg.Members {
				raw := slices.Clone(m.ProtocolMetadata)
				// kafka-go says version 1 and leaves out what that adds.
				clear(raw[:min(2, len(raw))])
				meta := kmsg.NewConsumerMemberMetadata()
				if err := meta.ReadFrom(raw); err != nil {
					continue // another program's
				}
				if id, ok := storeOf(meta.UserData); ok {
					stores = append(stores, id)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("describe group %s: %w", group, err)
	}
	slices.Sort(stores)
	return slices.Compact(stores), nil
}

// Close ends the generation, waits for the functions of its Run, and leaves the
// group, so that others get the partitions at once. A coordinator that does not
// answer delays it by 3 s at most.
func (g *Group) Close() error {
	g.closeOnce.Do(func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = g.cg.Close() // always nil
		}()
		t := time.NewTimer(g.leaveWithin)
		defer t.Stop()
		select {
		case <-done:
		case <-t.C:
			g.conns.closeAll()
			<-done
		}
		g.conns.closeAll()
	})
	return nil
}

// Generation is one assignment of partitions to the members of a group: from
// the moment that Next returns it until a rebalance, a lost coordinator or
// Close ends it. It says nothing about exclusive ownership: a member that was
// cut off may still believe in an older one (the store's compare-and-set is
// what keeps it out).
type Generation struct {
	ID         int32
	MemberID   string
	Assignment Assignment

	gen    *kafkago.Generation // nil where static is set
	static *staticGeneration
	ended  chan struct{}
}

func newGeneration(gen *kafkago.Generation, a Assignment) *Generation {
	g := &Generation{ID: gen.ID, MemberID: gen.MemberID, Assignment: a, gen: gen, ended: make(chan struct{})}
	gen.Start(func(ctx context.Context) {
		<-ctx.Done()
		close(g.ended)
	})
	return g
}

// Run starts fn in a goroutine; its ctx ends when the generation does, with
// ErrGenerationEnded as the cause. fn must return soon after: the group cannot
// go on before. When a function of the generation returns early, the whole
// generation ends and the group is joined again. After the end of the
// generation Run still calls fn, with a ctx that has ended.
func (g *Generation) Run(fn func(ctx context.Context)) {
	if g.static != nil {
		g.static.run(fn)
		return
	}
	g.gen.Start(func(end context.Context) {
		ctx, cancel := context.WithCancelCause(context.Background())
		defer cancel(nil)
		stop := context.AfterFunc(end, func() { cancel(ErrGenerationEnded) })
		defer stop()
		if end.Err() != nil {
			cancel(ErrGenerationEnded)
		}
		fn(ctx)
	})
}

// Commit tells the coordinator the next offset of each partition, topic →
// partition → offset, for tools that show lag; nothing here reads it back. Its
// error wraps ErrGenerationEnded where this member is not the owner any more.
// The leader epoch is sent as unknown: a wrong one makes KIP-320 clients think
// that the log was truncated.
func (g *Generation) Commit(ctx context.Context, offsets map[string]map[int32]int64) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("commit offsets: %w", err)
	}
	if g.static != nil {
		return g.static.commit(ctx, offsets)
	}
	req := make(map[string]map[int]int64, len(offsets))
	for topic, parts := range offsets {
		req[topic] = make(map[int]int64, len(parts))
		for p, off := range parts {
			req[topic][int(p)] = off
		}
	}
	err := g.gen.CommitOffsets(req)
	if err == nil {
		return nil
	}
	var k kafkago.Error
	if errors.As(err, &k) {
		switch e := code(k); e {
		case codeIllegalGeneration, codeUnknownMemberID, codeRebalanceInProgress, codeNotCoordinator:
			return fmt.Errorf("commit offsets of generation %d: %w: %w", g.ID, ErrGenerationEnded, e)
		case codeTopicAuthorization: // kafka-go does not say of which; the others' are committed
			return fmt.Errorf("commit offsets of generation %d: topics %s: %w", g.ID, strings.Join(slices.Sorted(maps.Keys(offsets)), ", "), e.deniedCommit())
		case codeGroupAuthorization:
			return fmt.Errorf("commit offsets of generation %d: %w", g.ID, e.deniedCommit())
		}
	}
	select {
	case <-g.ended: // kafka-go has closed its connection
		return fmt.Errorf("commit offsets of generation %d: %w: %w", g.ID, ErrGenerationEnded, err)
	default:
	}
	return fmt.Errorf("commit offsets of generation %d: %w", g.ID, err)
}
