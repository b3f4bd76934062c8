package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// CommittedOffsets returns the offsets that a consumer group has committed for
// partitions of a topic. Partitions without one are absent. The end of transactions that
// commit others is waited for (KIP-447), RequestTimeout at most.
func (c *Client) CommittedOffsets(ctx context.Context, group, topic string, partitions []int32) (map[int32]int64, error) {
	found := make(map[int32]int64, len(partitions))
	err := c.attempt(ctx, func(ctx context.Context) error {
		node, err := c.coordinator(ctx, group)
		if err != nil {
			return err
		}
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Version, req.Group, req.RequireStable = 7, group, true // the first that can ask for that
		rt := kmsg.NewOffsetFetchRequestTopic()
		rt.Topic, rt.Partitions = topic, partitions
		req.Topics = append(req.Topics, rt)
		resp, err := c.request(ctx, node, req)
		if err != nil {
			return err
		}
		fetched := resp.(*kmsg.OffsetFetchResponse)
		switch e := code(fetched.ErrorCode); e {
		case codeNone:
		case codeGroupIDNotFound:
			return nil // it never committed anything
		default:
			return e.denied(needsGroup)
		}
		clear(found)
		for _, t := range fetched.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode != 0 {
					return fmt.Errorf("partition %d: %w", p.Partition, code(p.ErrorCode))
				}
				if t.Topic == topic && p.Offset >= 0 {
					found[p.Partition] = p.Offset
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the offsets that group %s has committed of %s: %w", group, topic, err)
	}
	return found, nil
}
