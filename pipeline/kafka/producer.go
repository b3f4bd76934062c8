package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// AnyPartition leaves the choice of a Message's partition to the Producer.
const AnyPartition int32 = -1

// Message is a record to be written. A nil Key or Value is Kafka's null.
type Message struct {
	Key, Value []byte
	Headers    []Header
	Time       time.Time // zero = now
	// Partition to write to; AnyPartition = by Key as Java's default
	// partitioner does (murmur2), or in turn where Key is nil.
	Partition int32
}

// ProducerOptions tune a Producer. nil and zero values mean the defaults.
type ProducerOptions struct {
	// Compression of the record batches. Default LZ4.
	Compression Compression
	// BatchBytes is the largest record batch before compression. Default
	// 900 KiB: brokers refuse more than 1 MiB (message.max.bytes) unless told
	// otherwise.
	BatchBytes int
	// DeliveryTimeout is how long a Produce keeps trying. Default 30 s.
	DeliveryTimeout time.Duration
}

// Producer writes records and waits until all in-sync replicas have them
// (acks=all). It is not idempotent: where a broker's answer is lost, records
// are sent again and may be in the log twice. It is safe for concurrent use.
type Producer struct {
	c      *Client
	o      ProducerOptions
	logger *slog.Logger
	turn   atomic.Uint32
	err    error // of the options; returned by Produce

	encoders sync.Pool // of *encoder

	mu     sync.Mutex // guards below
	closed bool
	topics map[string]*topicMeta
}

// NewProducer returns a producer. A mistake in the options is reported by the
// first Produce.
func (c *Client) NewProducer(o *ProducerOptions) *Producer {
	p := &Producer{c: c, logger: c.o.Logger, topics: make(map[string]*topicMeta)}
	if o != nil {
		p.o = *o
	}
	if p.o.Compression == "" {
		p.o.Compression = LZ4
	}
	if p.o.BatchBytes <= 0 {
		p.o.BatchBytes = 900 << 10
	}
	if p.o.DeliveryTimeout <= 0 {
		p.o.DeliveryTimeout = 30 * time.Second
	}
	e, err := newEncoder(p.o.Compression)
	if err != nil {
		p.err = fmt.Errorf("kafka: producer: %w", err)
		return p
	}
	p.encoders.Put(e)
	return p
}

// Close makes later calls of Produce fail. Calls in progress go on.
func (p *Producer) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return nil
}

// Produce writes msgs to a topic, in their order within each partition, and
// returns when all of them are acknowledged. Where it fails some may have been
// written. A topic that does not exist is not created: the error wraps
// ErrTopicNotFound. Slices of msgs are only read, and not kept.
func (p *Producer) Produce(ctx context.Context, topic string, msgs ...Message) error {
	if p.err != nil {
		return p.err
	}
	if len(msgs) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.o.DeliveryTimeout)
	defer cancel()
	meta, err := p.meta(ctx, topic, false)
	if err != nil {
		return fmt.Errorf("produce to %s: %w", topic, err)
	}
	queues, err := p.deal(meta, msgs)
	if err != nil {
		return fmt.Errorf("produce to %s: %w", topic, err)
	}
	if err := p.deliver(ctx, topic, meta, queues); err != nil {
		return fmt.Errorf("produce to %s: %w", topic, err)
	}
	p.c.metrics.produced.Add(int64(len(msgs)))
	return nil
}

// meta returns who leads the topic, asking again where fresh is set.
func (p *Producer) meta(ctx context.Context, topic string, fresh bool) (*topicMeta, error) {
	p.mu.Lock()
	m, closed := p.topics[topic], p.closed
	p.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	if m != nil && !fresh {
		return m, nil
	}
	metas, err := p.c.topics(ctx, topic)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.topics[topic] = metas[topic]
	p.mu.Unlock()
	return metas[topic], nil
}

// queue is what is still to be written to a partition.
type queue struct {
	partition int32
	msgs      []*Message
	limit     int // of the next batch, in messages; halved where it is too large
}

// deal spreads messages over partitions.
func (p *Producer) deal(meta *topicMeta, msgs []Message) (map[int32]*queue, error) {
	queues := make(map[int32]*queue, len(meta.Partitions))
	n := uint32(len(meta.Partitions))
	for i := range msgs {
		m := &msgs[i]
		part := m.Partition
		switch {
		case part < 0 && m.Key != nil:
			part = meta.Partitions[(murmur2(m.Key)&0x7fffffff)%n]
		case part < 0:
			part = meta.Partitions[p.turn.Add(1)%n]
		default:
			if _, ok := meta.leaders[part]; !ok {
				return nil, fmt.Errorf("%w: it has no partition %d", ErrTopicNotFound, part)
			}
		}
		q := queues[part]
		if q == nil {
			q = &queue{partition: part, limit: len(msgs), msgs: make([]*Message, 0, len(msgs)/int(n)+1)}
			queues[part] = q
		}
		q.msgs = append(q.msgs, m)
	}
	return queues, nil
}

// deliver writes the queues, one batch a partition and request, all leaders at
// the same time, until they are empty.
func (p *Producer) deliver(ctx context.Context, topic string, meta *topicMeta, queues map[int32]*queue) error {
	wait := minRetry
	for len(queues) > 0 {
		byNode := make(map[int32][]*queue)
		var last error
		for part, q := range queues {
			node := meta.leaders[part].node
			if node < 0 {
				last = fmt.Errorf("partition %d: %w", part, codeLeaderNotAvailable)
				continue
			}
			byNode[node] = append(byNode[node], q)
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for node, qs := range byNode {
			wg.Go(func() {
				if err := p.drain(ctx, node, topic, qs); err != nil {
					mu.Lock()
					last = err
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		for part, q := range queues {
			if len(q.msgs) == 0 {
				delete(queues, part)
			}
		}
		if last == nil {
			wait = minRetry
			continue
		}
		if !retryable(last) {
			return last
		}
		p.c.metrics.retries.Add(1)
		if sleep(ctx, wait) != nil {
			return fmt.Errorf("%w (last: %w)", ctx.Err(), last)
		}
		wait = min(2*wait, maxRetry)
		p.logger.Warn("produce fails, trying again", "topic", topic, "err", last)
		fresh, err := p.meta(ctx, topic, true)
		if err != nil {
			return err
		}
		meta = fresh
	}
	return nil
}

// drain writes queues to their leader until they are empty or one fails.
func (p *Producer) drain(ctx context.Context, node int32, topic string, qs []*queue) error {
	e, ok := p.encoders.Get().(*encoder)
	if !ok {
		var err error
		if e, err = newEncoder(p.o.Compression); err != nil {
			return err
		}
	}
	defer p.encoders.Put(e)
	var body []byte
	for {
		req := kmsg.NewPtrProduceRequest()
		req.Version = 8
		req.Acks = -1
		req.TimeoutMillis = int32(p.c.o.RequestTimeout.Milliseconds())
		rt := kmsg.NewProduceRequestTopic()
		rt.Topic = topic
		sent := make(map[int32]int, len(qs)) // partition → messages in the request
		byPart := make(map[int32]*queue, len(qs))
		// The transport may still send a request that was given up: its bytes
		// are not reused.
		body = make([]byte, 0, cap(body))
		now := time.Now()
		for _, q := range qs {
			if len(q.msgs) == 0 {
				continue
			}
			n := q.batchLen(p.o.BatchBytes)
			start := len(body)
			var err error
			if body, err = e.encode(body, q.msgs[:n], now); err != nil {
				return err
			}
			rp := kmsg.NewProduceRequestTopicPartition()
			rp.Partition, rp.Records = q.partition, body[start:]
			rt.Partitions = append(rt.Partitions, rp)
			sent[q.partition], byPart[q.partition] = n, q
		}
		if len(sent) == 0 {
			return nil
		}
		req.Topics = append(req.Topics, rt)
		rctx, cancel := context.WithTimeout(ctx, p.c.o.RequestTimeout)
		resp, err := p.c.request(rctx, node, req)
		cancel()
		if err != nil {
			return err
		}
		if err := p.acknowledged(resp.(*kmsg.ProduceResponse), sent, byPart); err != nil {
			return err
		}
	}
}

// acknowledged takes what a response acknowledges off the queues.
func (p *Producer) acknowledged(resp *kmsg.ProduceResponse, sent map[int32]int, queues map[int32]*queue) error {
	var failed error
	for _, t := range resp.Topics {
		for _, rp := range t.Partitions {
			n, ok := sent[rp.Partition]
			if !ok {
				continue
			}
			delete(sent, rp.Partition)
			q := queues[rp.Partition]
			switch e := code(rp.ErrorCode); {
			case e == codeNone:
				q.msgs = q.msgs[n:]
			case e == codeMessageTooLarge && n > 1:
				q.limit = n / 2
			default:
				p.c.metrics.countError(e.name())
				// One that is final decides.
				if failed == nil || retryable(failed) {
					failed = fmt.Errorf("partition %d: %w", rp.Partition, e)
				}
			}
		}
	}
	if failed == nil && len(sent) > 0 {
		return errors.Join(errProtocol, errors.New("partitions are missing in the produce response"))
	}
	return failed
}

// batchLen is how many of the next messages fit in a batch; one at least.
func (q *queue) batchLen(limit int) int {
	size := 0
	for i, m := range q.msgs {
		size += m.size()
		if i > 0 && (size > limit || i >= q.limit) {
			return i
		}
	}
	return len(q.msgs)
}

// murmur2 is the hash of Java's default partitioner
// (org.apache.kafka.common.utils.Utils.murmur2), so that this producer puts a
// key where any other does.
func murmur2(data []byte) uint32 {
	const (
		seed uint32 = 0x9747b28c
		m    uint32 = 0x5bd1e995
		r           = 24
	)
	h := seed ^ uint32(len(data))
	for len(data) >= 4 {
		k := uint32(data[0]) | uint32(data[1])<<8 | uint32(data[2])<<16 | uint32(data[3])<<24
		k *= m
		k ^= k >> r
		k *= m
		h = h*m ^ k
		data = data[4:]
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(data[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h
}
