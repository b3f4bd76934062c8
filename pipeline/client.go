package pipeline

import (
	"context"
	"fmt"

	"sluice/pipeline/kafka"
	"sluice/pipeline/memory"
)

// client is a broker over package kafka.
type client struct {
	c      *kafka.Client
	fetch  *kafka.FetchOptions
	group  string
	memory *memory.Budget // nil = one of its own for each fetcher
}

var _ broker = (*client)(nil)

func (c *client) topic(ctx context.Context, name string) (topicInfo, error) {
	t, err := c.c.Topic(ctx, name)
	if err != nil {
		return topicInfo{}, err
	}
	return topicInfo{id: t.ID, clusterID: t.ClusterID, partitions: t.Partitions}, nil
}

func (c *client) offsets(ctx context.Context, topic string, partitions []int32) (map[int32]span, error) {
	offsets, err := c.c.ListOffsets(ctx, topic, partitions)
	spans := make(map[int32]span, len(offsets))
	for n, o := range offsets {
		spans[n] = span{o.Start, o.End}
	}
	return spans, err
}

func (c *client) logEnds(ctx context.Context, topic string, partitions []int32) (map[int32]int64, error) {
	return c.c.LogEnds(ctx, topic, partitions)
}

func (c *client) epochEnd(ctx context.Context, topic string, partition, epoch int32) (found int32, end int64, err error) {
	return c.c.EpochEnd(ctx, topic, partition, epoch)
}

func (c *client) startOffsets(ctx context.Context, topic string, partitions []int32, s *Start) (map[int32]int64, error) {
	if s.From == StartAtTime {
		return c.c.OffsetsAt(ctx, topic, partitions, s.Time)
	}
	committed, err := c.c.CommittedOffsets(ctx, c.group, topic, partitions)
	if err != nil {
		return nil, err
	}
	for _, n := range partitions {
		if _, ok := committed[n]; !ok {
			return nil, fmt.Errorf("%w: group %s, %s/%d; set start to earliest, latest or a timestamp", ErrNotCommitted, c.group, topic, n)
		}
	}
	return committed, nil
}

func (c *client) fetcher(ids map[string][16]byte) fetcher {
	var o kafka.FetchOptions
	if c.fetch != nil {
		o = *c.fetch
	}
	o.TopicIDs, o.Memory = ids, c.memory
	return clientFetcher{c.c.NewFetcher(&o)}
}

// clientFetcher is a fetcher over package kafka.
type clientFetcher struct{ *kafka.Fetcher }

func (f clientFetcher) reader(topic string, partition int32, offset int64) reader {
	return f.Add(topic, partition, offset)
}

// letterProducer is a producer over package kafka.
type letterProducer struct{ p *kafka.Producer }

var _ producer = (*letterProducer)(nil)

func (p *letterProducer) produce(ctx context.Context, topic string, letters []kafka.Message) error {
	return p.p.Produce(ctx, topic, letters...)
}
