package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
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
	// partitioner does (murmur2), or in turn, from any one on, where Key is nil.
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
// (acks=all). It is idempotent (KIP-98): its record batches are numbered, so that
// one which is sent again, because the answer was lost or a leader moved, is in the
// log once. That holds as long as Produce keeps trying; records of a call that
// failed may be in the log, and are written again by a later call. It is safe for
// concurrent use; calls for one topic take turns.
type Producer struct {
	c      *Client
	o      ProducerOptions
	logger *slog.Logger
	next   atomic.Uint32 // partition for a message without key
	err    error         // of the options; returned by Produce

	encoders sync.Pool // of *encoder

	mu     sync.Mutex // guards below
	closed bool
	topics map[string]*producerTopic

	idMu sync.Mutex // guards id; held while a new one is asked for
	id   producerID
}

// producerTopic is what a Producer knows of a topic.
type producerTopic struct {
	turn      chan struct{}       // full while a call writes to the topic
	sequences map[int32]*sequence // by partition; of the call that has the turn
	failing   bool                // for logging at changes only; of the call that has the turn

	meta *topicMeta // guarded by Producer.mu
}

// NewProducer returns a producer. A mistake in the options is reported by the
// first Produce.
func (c *Client) NewProducer(o *ProducerOptions) *Producer {
	p := &Producer{c: c, logger: c.o.Logger, topics: make(map[string]*producerTopic), id: noProducer}
	p.next.Store(rand.Uint32()) // what sends a record and ends would fill one partition alone
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
// ErrTopicNotFound, also where it was made anew with fewer partitions meanwhile; one
// for a record that the topic does not take by its size wraps ErrTooLarge. Slices of
// msgs are only read, and not kept.
func (p *Producer) Produce(ctx context.Context, topic string, msgs ...Message) error {
	if p.err != nil {
		return p.err
	}
	if len(msgs) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.o.DeliveryTimeout)
	defer cancel()
	if err := p.produce(ctx, topic, msgs); err != nil {
		return fmt.Errorf("produce to %s: %w", topic, err)
	}
	p.c.metrics.produced.Add(int64(len(msgs)))
	return nil
}

func (p *Producer) produce(ctx context.Context, topic string, msgs []Message) error {
	t := p.topic(topic)
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	meta, err := p.meta(ctx, topic, t)
	if err != nil {
		return err
	}
	queues, err := p.deal(t, meta, msgs)
	if errors.Is(err, ErrTopicNotFound) { // it may have the partition by now
		if meta, err = p.meta(ctx, topic, t, named(msgs)...); err != nil {
			return err
		}
		queues, err = p.deal(t, meta, msgs)
	}
	if err != nil {
		return err
	}
	return p.deliver(ctx, topic, t, meta, queues)
}

func (p *Producer) topic(name string) *producerTopic {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.topics[name]
	if t == nil {
		t = &producerTopic{turn: make(chan struct{}, 1), sequences: make(map[int32]*sequence)}
		p.topics[name] = t
	}
	return t
}

// named returns the partitions that messages name, each once.
func named(msgs []Message) []int32 {
	var parts []int32
	for i := range msgs {
		if p := msgs[i].Partition; p >= 0 {
			parts = append(parts, p)
		}
	}
	slices.Sort(parts)
	return slices.Compact(parts)
}

// meta returns who leads the topic, asking again where parts, which it ought to have, are
// given.
func (p *Producer) meta(ctx context.Context, topic string, t *producerTopic, parts ...int32) (*topicMeta, error) {
	p.mu.Lock()
	m, closed := t.meta, p.closed
	p.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	if m != nil && len(parts) == 0 {
		return m, nil
	}
	metas, err := p.c.topicsWith(ctx, parts, topic)
	if err != nil && !errors.Is(err, ErrTopicNotFound) {
		return nil, err
	}
	p.mu.Lock()
	t.meta = metas[topic] // none where the topic is gone: the next call asks first
	p.mu.Unlock()
	return metas[topic], err
}

// queue is what is still to be written to a partition.
type queue struct {
	partition int32
	msgs      []*Message
	limit     int // of the next batch, in messages; halved where it is too large
	seq       *sequence
	// sent is how many messages the batch has that was sent and of which it is
	// not known whether the log has it. It is sent again as it was.
	sent int
}

// deal spreads messages over partitions.
func (p *Producer) deal(t *producerTopic, meta *topicMeta, msgs []Message) (map[int32]*queue, error) {
	queues := make(map[int32]*queue, len(meta.Partitions))
	n := uint32(len(meta.Partitions))
	for i := range msgs {
		m := &msgs[i]
		part := m.Partition
		switch {
		case part < 0 && m.Key != nil:
			part = meta.Partitions[(murmur2(m.Key)&0x7fffffff)%n]
		case part < 0:
			part = meta.Partitions[p.next.Add(1)%n]
		default:
			if _, ok := meta.leaders[part]; !ok {
				return nil, fmt.Errorf("%w: it has no partition %d", ErrTopicNotFound, part)
			}
		}
		q := queues[part]
		if q == nil {
			seq := t.sequences[part]
			if seq == nil {
				seq = &sequence{producerID: noProducer, used: noProducer}
				t.sequences[part] = seq
			}
			q = &queue{partition: part, limit: len(msgs), msgs: make([]*Message, 0, len(msgs)/int(n)+1), seq: seq}
			queues[part] = q
		}
		q.msgs = append(q.msgs, m)
	}
	return queues, nil
}

// deliver writes the queues, one batch a partition and request, all leaders at
// the same time, until they are empty.
func (p *Producer) deliver(ctx context.Context, topic string, t *producerTopic, meta *topicMeta, queues map[int32]*queue) error {
	defer func() {
		for _, q := range queues {
			if q.sent > 0 { // given up, and perhaps in the log: its numbers are of no more use
				q.seq.producerID = noProducer
			}
		}
	}()
	wait := minRetry
	var reason error // of the last try that ctx did not cut off
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
			if t.failing {
				t.failing = false
				p.logger.Info("produce works again", "topic", topic)
			}
			continue
		}
		if !retryable(last) {
			return last
		}
		if reason == nil || !cutOff(ctx) {
			reason = last
		}
		p.c.metrics.retries.Add(1)
		if sleep(ctx, wait) != nil {
			return fmt.Errorf("%w (last: %w)", ctx.Err(), reason)
		}
		wait = min(2*wait, maxRetry)
		if !t.failing {
			t.failing = true
			p.logger.Warn("produce fails, trying again", "topic", topic, "err", last)
		}
		fresh, err := p.meta(ctx, topic, t, slices.Collect(maps.Keys(queues))...)
		switch {
		case err != nil && ctx.Err() != nil:
			return fmt.Errorf("%w (last: %w)", ctx.Err(), reason)
		case err != nil:
			return err
		}
		meta = fresh
		for part := range queues {
			if _, ok := meta.leaders[part]; !ok { // the topic was made anew
				return fmt.Errorf("%w: it has partition %d no more", ErrTopicNotFound, part)
			}
		}
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
			if err := p.number(ctx, q.seq); err != nil {
				return err
			}
			n := q.sent
			if n == 0 {
				n = q.batchLen(p.o.BatchBytes)
			}
			start := len(body)
			var err error
			if body, err = e.encode(body, q.msgs[:n], now, q.seq); err != nil {
				return err
			}
			q.sent = n
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
		produced := resp.(*kmsg.ProduceResponse)
		if err := p.acknowledged(produced, sent, byPart); err != nil {
			return err
		}
		if d := time.Duration(produced.ThrottleMillis) * time.Millisecond; d > 0 {
			p.c.metrics.throttled.Add(int64(d))
			if err := sleep(ctx, d); err != nil && !empty(qs) {
				return err
			}
		}
	}
}

func empty(qs []*queue) bool {
	return !slices.ContainsFunc(qs, func(q *queue) bool { return len(q.msgs) > 0 })
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
			e := code(rp.ErrorCode)
			if e != codeNone {
				p.c.metrics.countError(e.name())
			}
			switch {
			case e == codeNone, e == codeDuplicateSequence:
				q.msgs, q.sent = q.msgs[n:], 0
				q.seq.advance(n)
			case errors.Is(e, ErrTooLarge) && n > 1:
				q.limit, q.sent = n/2, 0
			default:
				if e.sequenceLost() {
					// The log has not this batch: it would know it as a
					// duplicate.
					p.logger.Warn("broker has lost the number of the last record batch, going on with a new producer id", "topic", t.Topic, "partition", rp.Partition, "err", e)
					q.seq.producerID, q.sent = noProducer, 0
				}
				// One that is final decides.
				if failed == nil || retryable(failed) {
					failed = fmt.Errorf("partition %d: %w", rp.Partition, e.with(e.denied(needsWrite), rp.ErrorMessage))
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
