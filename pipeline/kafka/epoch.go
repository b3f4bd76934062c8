package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// EpochEnd asks the leader of a partition where, in its log, the records of leader
// epochs up to epoch end: the offset after the last of them (KIP-320). Who has
// read further in that epoch has read records that the log lost. It is -1 where
// the leader does not know the epoch. found is the latest of these epochs that the log
// has: where that is an earlier one, none of the records of epoch are there, whatever
// stands at their offsets, unless compaction has taken all of them.
func (c *Client) EpochEnd(ctx context.Context, topic string, partition, epoch int32) (found int32, end int64, err error) {
	found, end = -1, -1
	err = c.attempt(ctx, func(ctx context.Context) error {
		meta, err := c.topicOnce(ctx, topic, partition)
		if err != nil {
			return err
		}
		l, ok := meta.leaders[partition]
		switch {
		case !ok:
			return fmt.Errorf("%w: it has no partition %d", ErrTopicNotFound, partition)
		case l.node < 0:
			return codeLeaderNotAvailable
		}
		key := topicPartition{topic, partition}
		ends, err := c.epochEnds(ctx, l.node, map[topicPartition]epochAsk{key: {leader: l.epoch, epoch: epoch}})
		if err != nil {
			return err
		}
		got, ok := ends[key]
		switch {
		case !ok:
			return fmt.Errorf("%w: partition %d is missing in OffsetForLeaderEpoch", errProtocol, partition)
		case got.code != codeNone:
			c.metrics.countError(got.code.name())
			return got.code
		}
		found, end = got.epoch, got.end
		return nil
	})
	if err != nil {
		return -1, -1, fmt.Errorf("ask where leader epoch %d of %s/%d ends: %w", epoch, topic, partition, err)
	}
	return found, end, nil
}

// epochAsk is a question about a partition: the epoch of its leader, as we know
// it, and the epoch whose end is wanted.
type epochAsk struct{ leader, epoch int32 }

// epochEnd is the answer; end is -1 where the leader does not know the epoch.
type epochEnd struct {
	code  code
	epoch int32
	end   int64
}

// epochEnds asks one broker, once.
func (c *Client) epochEnds(ctx context.Context, node int32, asks map[topicPartition]epochAsk) (map[topicPartition]epochEnd, error) {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.Version = 3 // the first that takes consumers without more rights than to read
	req.ReplicaID = -1
	topics := make(map[string]int) // → index in req.Topics
	for key, ask := range asks {
		n, ok := topics[key.topic]
		if !ok {
			n = len(req.Topics)
			topics[key.topic] = n
			t := kmsg.NewOffsetForLeaderEpochRequestTopic()
			t.Topic = key.topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = key.partition, ask.leader, ask.epoch
		req.Topics[n].Partitions = append(req.Topics[n].Partitions, p)
	}
	resp, err := c.request(ctx, node, req)
	if err != nil {
		return nil, err
	}
	ends := make(map[topicPartition]epochEnd, len(asks))
	for _, t := range resp.(*kmsg.OffsetForLeaderEpochResponse).Topics {
		for _, p := range t.Partitions {
			e := epochEnd{code: code(p.ErrorCode), epoch: p.LeaderEpoch, end: p.EndOffset}
			if p.LeaderEpoch < 0 {
				e.end = -1
			}
			ends[topicPartition{t.Topic, p.Partition}] = e
		}
	}
	return ends, nil
}

// check compares, after a change of leaders, the logs of n with what was fetched
// of them. Fetch requests say the last epoch, too, and brokers compare it; but not
// every broker does, and this is asked before a record of the new leader is read.
func (f *Fetcher) check(ctx context.Context, n *leaderNode, parts []asked) {
	asks := make(map[topicPartition]epochAsk, len(parts))
	for _, a := range parts {
		asks[topicPartition{a.r.topic, a.r.partition}] = epochAsk{leader: a.epoch, epoch: a.lastEpoch}
	}
	rctx, cancel := context.WithTimeout(ctx, f.c.o.RequestTimeout)
	defer cancel()
	ends, err := f.c.epochEnds(rctx, n.id, asks)
	if err != nil {
		f.failed(ctx, n, parts, err)
		return
	}
	for i := range parts {
		a := &parts[i]
		r := a.r
		got, ok := ends[topicPartition{r.topic, r.partition}]
		if !ok {
			got.code = codeUnknownServerError
		}
		if got.code != codeNone {
			f.c.metrics.countError(got.code.name())
		}
		switch {
		case got.code.auth():
			r.failAt(a.gen, fmt.Errorf("compare with its leader: %w", got.code))
		case got.code != codeNone:
			r.answered(a.gen, got.code)
			f.wakeManager()
		case got.end >= 0 && got.end < a.offset:
			f.outOfRange(a, -1, got.end)
		default:
			r.checked(a.gen, got.end >= 0)
		}
	}
}

// suspect has the log compared before it is fetched again.
func (r *PartitionReader) suspect(gen int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gen == gen {
		r.unchecked = r.lastEpoch >= 0
	}
}

// checked ends a comparison in which nothing was found. An epoch that the leader
// does not know is not sent to it again: it could not say what follows it.
func (r *PartitionReader) checked(gen int, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gen != gen {
		return
	}
	r.unchecked, r.failures = false, 0
	if !known {
		r.lastEpoch = -1
	}
}
