package kafka

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/internal/spelling"
)

// TopicInfo says which topic a name stands for just now.
type TopicInfo struct {
	Name       string
	ID         [16]byte // differs for a topic that was deleted and created anew
	ClusterID  string
	Partitions []int32 // ascending; at least one, of a topic that was asked for by name
}

// topicMeta is what the fetcher and the producer need of a topic.
type topicMeta struct {
	TopicInfo
	leaders map[int32]leader
}

// leader is who leads a partition, as of an epoch.
type leader struct {
	node  int32 // anyNode = none at the moment
	epoch int32
}

// versions are the request versions that this package sends to a broker.
type versions struct {
	metadata, fetch int16
}

// wanted are the requests that need more than the lowest version that Kafka 4
// still takes: the highest this package codes, the lowest that will do.
var wanted = []struct {
	key       kmsg.Key
	low, high int16
	why       string
	set       func(v *versions, low, high int16) // what both sides know
}{
	// Who answers this is any broker, and may be an older one than was asked.
	{kmsg.Metadata, 10, 12, "topic ids", func(v *versions, low, _ int16) { v.metadata = low }},
	{kmsg.Fetch, 12, 13, "truncation detection", func(v *versions, _, high int16) { v.fetch = high }},
}

// negotiate asks a broker which versions it takes, once until forget is called.
func (c *Client) negotiate(ctx context.Context, node int32) (versions, error) {
	c.mu.Lock()
	known, ok := c.versions[node]
	c.mu.Unlock()
	if ok {
		return known, nil
	}
	who := "a broker"
	if node != anyNode {
		who = fmt.Sprintf("broker %d", node)
	}
	resp, peer, err := c.answer(ctx, node, kmsg.NewPtrApiVersionsRequest())
	if err != nil {
		return versions{}, fmt.Errorf("ask %s for request versions: %w", who, err)
	}
	r := resp.(*kmsg.ApiVersionsResponse)
	if r.ErrorCode != 0 {
		return versions{}, fmt.Errorf("ask %s for request versions: %w", who, code(r.ErrorCode))
	}
	if peer != "" {
		who += " (" + peer + ")"
	}
	var v versions
	for _, w := range wanted {
		i := slices.IndexFunc(r.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == int16(w.key) })
		switch {
		case i < 0:
			return versions{}, fmt.Errorf("%w: %s: it takes no %s, version %d of which is needed for %s; use Kafka 2.8 or later",
				ErrTooOld, who, w.key.Name(), w.low, w.why)
		case r.ApiKeys[i].MaxVersion < w.low:
			return versions{}, fmt.Errorf("%w: %s: it takes %s up to version %d, and %d is needed for %s; use Kafka 2.8 or later",
				ErrTooOld, who, w.key.Name(), r.ApiKeys[i].MaxVersion, w.low, w.why)
		case r.ApiKeys[i].MinVersion > w.high:
			return versions{}, fmt.Errorf("%w: %s: it takes %s from version %d on, and %d is the last that is known here; use a later Sluice",
				ErrTooNew, who, w.key.Name(), r.ApiKeys[i].MinVersion, w.high)
		}
		w.set(&v, max(w.low, r.ApiKeys[i].MinVersion), min(w.high, r.ApiKeys[i].MaxVersion))
	}
	c.mu.Lock()
	c.versions[node] = v
	c.mu.Unlock()
	return v, nil
}

// forget has a broker asked again which versions it takes: it has failed, and may be
// another one when it comes back.
func (c *Client) forget(node int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.versions, node)
}

// Topic returns the topic called name. It never creates it: the error is a *TopicError
// that wraps ErrTopicNotFound and lists names that are near. It wraps ErrUnreachable where
// no broker has answered within RequestTimeout.
func (c *Client) Topic(ctx context.Context, name string) (*TopicInfo, error) {
	all, err := c.Topics(ctx, name)
	if err != nil {
		return nil, err
	}
	return all[name], nil
}

// Topics returns the named topics by name; all of them, or an error as Topic
// has it. Without names it returns every topic but internal ones.
func (c *Client) Topics(ctx context.Context, names ...string) (map[string]*TopicInfo, error) {
	metas, err := c.topics(ctx, names...)
	if err != nil {
		return nil, err
	}
	infos := make(map[string]*TopicInfo, len(metas))
	for name, m := range metas {
		info := m.TopicInfo
		info.Partitions = slices.Clone(info.Partitions) // others have the answer, too
		infos[name] = &info
	}
	return infos, nil
}

// topics is Topics with leaders, within RequestTimeout.
func (c *Client) topics(ctx context.Context, names ...string) (map[string]*topicMeta, error) {
	return c.topicsWith(ctx, nil, names...)
}

// topicsWith is topics, where each ought to have parts. One that has them not is no error.
func (c *Client) topicsWith(ctx context.Context, parts []int32, names ...string) (map[string]*topicMeta, error) {
	var got told
	err := c.attempt(ctx, func(ctx context.Context) error {
		var err error
		if got, err = c.find(ctx, parts, names...); err != nil {
			return err
		}
		for _, name := range names {
			if err := c.described(ctx, name, got); err != nil {
				return &TopicError{name, err}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look up topics: %w", err)
	}
	return got.metas, nil
}

// topicOnce is topicsWith of one topic, once.
func (c *Client) topicOnce(ctx context.Context, name string, parts ...int32) (*topicMeta, error) {
	got, err := c.find(ctx, parts, name)
	if err != nil {
		return nil, err
	}
	return got.metas[name], c.described(ctx, name, got)
}

// described returns why what was answered describes no topic of that name, nil where it
// does.
func (c *Client) described(ctx context.Context, name string, got told) error {
	switch m, e := got.metas[name], got.errs[name]; {
	case e == codeUnknownTopicOrPartition:
		return c.topicNotFound(ctx, name)
	case e == codeInvalidTopic:
		return fmt.Errorf("%w: %q is not a valid topic name", ErrTopicNotFound, name)
	case e != codeNone:
		return fmt.Errorf("topic %s: %w", name, e.denied(needsDescribe))
	case m == nil:
		return fmt.Errorf("%w: topic %s is missing in the metadata", errProtocol, name)
	case len(m.Partitions) == 0: // known, and not its partitions yet
		return fmt.Errorf("%w: topic %s has no partitions in the metadata", errProtocol, name)
	}
	return nil
}

// topicsOnce asks any broker for the named topics, all where names is empty, once. Of a
// single topic the answer is shared with others who ask for it just now, and must not be
// changed.
func (c *Client) topicsOnce(ctx context.Context, names ...string) (told, error) {
	if len(names) != 1 {
		return c.metadata(ctx, anyNode, names)
	}
	return c.telling.ask(ctx, names[0], nil, func(ctx context.Context, _ []struct{}) (told, error) {
		return c.metadata(ctx, anyNode, names)
	})
}

// told is what a broker has told of topics.
type told struct {
	metas   map[string]*topicMeta
	errs    map[string]code // of the topics that the cluster reports one for
	brokers []int32         // of the cluster
}

// metadata is topicsOnce of a broker, or any where node is anyNode, with a request of its own.
func (c *Client) metadata(ctx context.Context, node int32, names []string) (told, error) {
	v, err := c.negotiate(ctx, node)
	if err != nil {
		return told{}, err
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Version = v.metadata
	req.AllowAutoTopicCreation = false
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := c.request(ctx, node, req)
	if err != nil {
		c.forget(node)
		return told{}, err
	}
	r := resp.(*kmsg.MetadataResponse)
	c.seeds.learn(r.Brokers)
	cluster := ""
	if r.ClusterID != nil {
		cluster = *r.ClusterID
	}
	got := told{metas: make(map[string]*topicMeta), errs: make(map[string]code)}
	for i := range r.Brokers {
		got.brokers = append(got.brokers, r.Brokers[i].NodeID)
	}
	for i := range r.Topics {
		t := &r.Topics[i]
		if t.Topic == nil || (t.IsInternal && len(names) == 0) {
			continue
		}
		if t.ErrorCode != 0 {
			got.errs[*t.Topic] = code(t.ErrorCode)
			continue
		}
		m := &topicMeta{
			TopicInfo: TopicInfo{Name: *t.Topic, ID: t.TopicID, ClusterID: cluster},
			leaders:   make(map[int32]leader, len(t.Partitions)),
		}
		for _, p := range t.Partitions {
			m.Partitions = append(m.Partitions, p.Partition)
			// Of a partition without a leader the broker reports
			// LEADER_NOT_AVAILABLE and node -1; it exists all the same.
			m.leaders[p.Partition] = leader{node: p.Leader, epoch: p.LeaderEpoch}
		}
		slices.Sort(m.Partitions)
		got.metas[*t.Topic] = m
	}
	return got, nil
}

// controller asks which broker creates topics. Brokers of a KRaft cluster name
// any of them, and it forwards the request.
func (c *Client) controller(ctx context.Context) (int32, error) {
	v, err := c.negotiate(ctx, anyNode)
	if err != nil {
		return anyNode, err
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Version = v.metadata
	req.Topics = []kmsg.MetadataRequestTopic{} // none; nil would be all
	resp, err := c.request(ctx, anyNode, req)
	if err != nil {
		c.forget(anyNode)
		return anyNode, err
	}
	return resp.(*kmsg.MetadataResponse).ControllerID, nil
}

// topicNotFound is the error for a missing topic, with the names that it may
// have been meant for; one that has come meanwhile is to be asked for again.
func (c *Client) topicNotFound(ctx context.Context, name string) error {
	hint := "create it first"
	if all, err := c.topicsOnce(ctx); err == nil {
		if _, ok := all.metas[name]; ok {
			return fmt.Errorf("topic %s: %w", name, codeUnknownTopicOrPartition)
		}
		names := make([]string, 0, len(all.metas))
		for n := range all.metas {
			names = append(names, n)
		}
		if near := nearest(name, names); len(near) > 0 {
			hint = "did you mean " + strings.Join(near, ", ") + "?"
		}
	}
	return fmt.Errorf("%w: %s (%s)", ErrTopicNotFound, name, hint)
}

// nearest returns up to three of names that are like name, the likest first.
func nearest(name string, names []string) []string {
	type near struct {
		name string
		dist int
	}
	var found []near
	for _, n := range names {
		d := spelling.Distance(name, n)
		contains := len(name) >= 3 && len(n) >= 3 && (strings.Contains(n, name) || strings.Contains(name, n))
		if d <= max(2, len(name)/3) || contains {
			found = append(found, near{n, d})
		}
	}
	slices.SortFunc(found, func(a, b near) int {
		return cmp.Or(cmp.Compare(a.dist, b.dist), strings.Compare(a.name, b.name))
	})
	out := make([]string, 0, 3)
	for _, f := range found[:min(3, len(found))] {
		out = append(out, f.name)
	}
	return out
}

// CreateTopic creates a topic with the cluster's default replication factor and
// waits until its partitions have leaders. A topic that exists is left as it
// is, and no error.
func (c *Client) CreateTopic(ctx context.Context, name string, partitions int) error {
	if partitions < 1 {
		return fmt.Errorf("kafka: create topic %s: %d partitions", name, partitions)
	}
	err := c.attempt(ctx, func(ctx context.Context) error {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.Version = 5 // the first where -1 asks for the default replication factor
		req.TimeoutMillis = int32(c.o.RequestTimeout.Milliseconds())
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, int32(partitions), -1
		req.Topics = append(req.Topics, t)
		node, err := c.controller(ctx)
		if err != nil {
			return err
		}
		resp, err := c.request(ctx, node, req)
		if err != nil {
			return err
		}
		for _, t := range resp.(*kmsg.CreateTopicsResponse).Topics {
			if e := code(t.ErrorCode); e != codeNone && e != codeTopicExists {
				return e.with(e, t.ErrorMessage)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	// The controller has it; the broker that is asked next may not yet.
	err = c.attempt(ctx, func(ctx context.Context) error {
		got, err := c.topicsOnce(ctx, name)
		if err != nil {
			return err
		}
		if e := got.errs[name]; e != codeNone {
			return e
		}
		m := got.metas[name]
		if m == nil || len(m.Partitions) == 0 {
			return codeUnknownTopicOrPartition
		}
		for _, l := range m.leaders {
			if l.node < 0 {
				return codeLeaderNotAvailable
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("wait for topic %s: %w", name, err)
	}
	return nil
}
