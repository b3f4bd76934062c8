package kafka

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Timestamps with a meaning of their own in ListOffsets.
const (
	latestOffset   int64 = -1
	earliestOffset int64 = -2
)

// Isolation levels of ListOffsets and Fetch.
const (
	readUncommitted int8 = 0
	readCommitted   int8 = 1
)

// Offsets is the part of a partition that a read_committed consumer can read:
// [Start, End).
type Offsets struct {
	Start int64 // log start: the first offset that the broker still has
	End   int64 // last stable offset: the first of the oldest open transaction, or the log end
}

// ListOffsets returns what the partitions of a topic hold. It needs all of them
// to have a leader within RequestTimeout; beside its error it returns what is known of
// those that have.
func (c *Client) ListOffsets(ctx context.Context, topic string, partitions []int32) (map[int32]Offsets, error) {
	start, err := c.listOffsets(ctx, topic, partitions, earliestOffset, readCommitted)
	if err != nil && len(start) == 0 {
		return nil, err
	}
	end, endErr := c.listOffsets(ctx, topic, slices.Collect(maps.Keys(start)), latestOffset, readCommitted)
	out := make(map[int32]Offsets, len(end))
	for p, at := range end {
		out[p] = Offsets{Start: start[p], End: at}
	}
	return out, cmp.Or(err, endErr)
}

// LogEnds returns the high watermark of partitions of a topic: the end of what
// all in-sync replicas have. Beyond Offsets.End it holds open transactions.
func (c *Client) LogEnds(ctx context.Context, topic string, partitions []int32) (map[int32]int64, error) {
	return c.listOffsets(ctx, topic, partitions, latestOffset, readUncommitted)
}

// OffsetsAt returns for each partition the offset of the first record that is
// at t or later, by its timestamp; where there is none, the last stable offset.
func (c *Client) OffsetsAt(ctx context.Context, topic string, partitions []int32, t time.Time) (map[int32]int64, error) {
	// The ends first: a record that comes meanwhile is after them.
	ends, err := c.listOffsets(ctx, topic, partitions, latestOffset, readCommitted)
	if err != nil {
		return nil, err
	}
	at, err := c.listOffsets(ctx, topic, partitions, max(0, t.UnixMilli()), readCommitted)
	if err != nil {
		return nil, err
	}
	for p, off := range at {
		if off < 0 {
			at[p] = ends[p]
		}
	}
	return at, nil
}

// listOffsets asks the leaders of the partitions, again where one has moved. Beside its
// error it returns what it has found.
func (c *Client) listOffsets(ctx context.Context, topic string, partitions []int32, timestamp int64, isolation int8) (map[int32]int64, error) {
	found := make(map[int32]int64, len(partitions))
	err := c.attempt(ctx, func(ctx context.Context) error {
		meta, err := c.topicOnce(ctx, topic, partitions...)
		if err != nil {
			return err
		}
		var failed error
		byNode := make(map[int32][]kmsg.ListOffsetsRequestTopicPartition)
		for _, p := range partitions {
			if _, ok := found[p]; ok {
				continue
			}
			l, ok := meta.leaders[p]
			if !ok {
				return fmt.Errorf("%w: it has no partition %d", ErrTopicNotFound, p)
			}
			if l.node < 0 {
				failed = fmt.Errorf("partition %d: %w", p, codeLeaderNotAvailable)
				continue
			}
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Partition, rp.CurrentLeaderEpoch, rp.Timestamp = p, l.epoch, timestamp
			byNode[l.node] = append(byNode[l.node], rp)
		}
		for node, parts := range byNode {
			if err := c.listOffsetsOf(ctx, listed{node, topic, timestamp, isolation}, parts, found); err != nil && (failed == nil || lasting(err)) {
				failed = err
			}
		}
		return failed
	})
	if err != nil {
		return found, fmt.Errorf("list offsets of %s: %w", topic, err)
	}
	return found, nil
}

// listOffsetsOf sets what the leader of parts tells of them, together with others who ask
// it at this time.
func (c *Client) listOffsetsOf(ctx context.Context, about listed, parts []kmsg.ListOffsetsRequestTopicPartition, found map[int32]int64) error {
	got, err := c.listing.ask(ctx, about, parts, func(ctx context.Context, parts []kmsg.ListOffsetsRequestTopicPartition) (map[int32]listedOffset, error) {
		return c.listOffsetsOnce(ctx, about, parts)
	})
	if err != nil {
		return err
	}
	var failed error
	for _, p := range parts {
		o, ok := got[p.Partition]
		switch {
		case !ok && failed == nil:
			failed = fmt.Errorf("%w: partition %d is missing in ListOffsets", errProtocol, p.Partition)
		case !ok:
		case o.code != codeNone:
			failed = fmt.Errorf("partition %d: %w", p.Partition, o.code)
		default:
			found[p.Partition] = o.at
		}
	}
	return failed
}

// listed is what one ListOffsets request is about, but for the partitions.
type listed struct {
	node      int32
	topic     string
	timestamp int64 // ms since the Unix epoch, earliestOffset or latestOffset
	isolation int8
}

// listedOffset is what a broker tells of a partition.
type listedOffset struct {
	at   int64
	code code
}

// listOffsetsOnce asks for parts, of which some may be the same partition.
func (c *Client) listOffsetsOnce(ctx context.Context, about listed, parts []kmsg.ListOffsetsRequestTopicPartition) (map[int32]listedOffset, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version = 5
	req.ReplicaID = -1
	req.IsolationLevel = about.isolation
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = about.topic
	// Of two that know the partition as of different epochs the later one is right.
	slices.SortFunc(parts, func(a, b kmsg.ListOffsetsRequestTopicPartition) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(b.CurrentLeaderEpoch, a.CurrentLeaderEpoch))
	})
	rt.Partitions = slices.CompactFunc(parts, func(a, b kmsg.ListOffsetsRequestTopicPartition) bool { return a.Partition == b.Partition })
	req.Topics = append(req.Topics, rt)
	resp, err := c.request(ctx, about.node, req)
	if err != nil {
		return nil, err
	}
	got := make(map[int32]listedOffset, len(rt.Partitions))
	for _, t := range resp.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			e := code(p.ErrorCode)
			if e != codeNone {
				c.metrics.countError(e.name())
			}
			got[p.Partition] = listedOffset{p.Offset, e}
		}
	}
	return got, nil
}
