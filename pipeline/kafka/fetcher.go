package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchesPerLeader is how many requests may be under way to one broker, over
// disjoint partitions. With one, a partition whose buffer has room again would
// wait for the end of the others' long poll; more than two wait no less.
const fetchesPerLeader = 2

// Waits between tries of a partition or a broker that fails.
const (
	minRetry = 20 * time.Millisecond
	maxRetry = time.Second
)

// metadataInterval is how often the leaders and topic ids are looked at without
// a reason, as a topic may be created anew while it is idle.
const metadataInterval = 30 * time.Second

// FetchOptions tune a Fetcher. nil and zero values mean the defaults.
type FetchOptions struct {
	// MaxWait is how long a broker waits for records at the end of a
	// partition. Default 250 ms.
	MaxWait time.Duration
	// MinBytes is how much it waits for. Default 1.
	MinBytes int
	// MaxPartitionBytes of one partition in one answer. Default 4 MiB, at most
	// half of BufferBytes. A record batch that is larger comes all the same.
	MaxPartitionBytes int
	// MaxBytes of one answer. Default 32 MiB.
	MaxBytes int
	// MaxBatchBytes is the largest record batch, as stored, that is accepted;
	// a larger one is reported as corrupt. Default 128 MiB.
	MaxBatchBytes int
	// BufferBytes of a partition that are fetched ahead of its reader; then it
	// is left out of requests. One answer may go beyond it. Default 8 MiB.
	BufferBytes int64
	// TopicIDs that the partitions are expected to have. A topic with another
	// id fails its readers with ErrTopicChanged. Of a topic that is not in it,
	// the id that the cluster reports first is expected from then on.
	TopicIDs map[string][16]byte
}

func (o *FetchOptions) withDefaults() FetchOptions {
	var d FetchOptions
	if o != nil {
		d = *o
	}
	if d.MaxWait <= 0 {
		d.MaxWait = 250 * time.Millisecond
	}
	if d.MinBytes <= 0 {
		d.MinBytes = 1
	}
	if d.BufferBytes <= 0 {
		d.BufferBytes = 8 << 20
	}
	if d.MaxPartitionBytes <= 0 {
		d.MaxPartitionBytes = 4 << 20
	}
	d.MaxPartitionBytes = int(min(int64(d.MaxPartitionBytes), max(1, d.BufferBytes/2)))
	if d.MaxBytes <= 0 {
		d.MaxBytes = 32 << 20
	}
	if d.MaxBatchBytes <= 0 {
		d.MaxBatchBytes = 128 << 20
	}
	return d
}

// Fetcher fetches partitions from their leaders into a bounded buffer each, as
// a read_committed consumer. Add, and the readers that it returns, may be used
// before, during and after Run; records arrive while Run runs.
//
// Per leader it has up to two requests under way, each with all partitions that
// have room; a partition whose buffer is full is left out until its reader has
// caught up. Decoding happens in the readers' goroutines. Lost connections,
// moved leaders and restarted brokers are waited out.
type Fetcher struct {
	c      *Client
	o      FetchOptions
	logger *slog.Logger
	manage chan struct{} // has one element when the manager has something to do

	batches sync.Pool // of *Batch

	mu      sync.Mutex // guards below
	readers map[topicPartition]*PartitionReader
	nodes   map[int32]*leaderNode
	ids     map[string][16]byte
}

type topicPartition struct {
	topic     string
	partition int32
}

// leaderNode is a broker that leads partitions that are fetched.
type leaderNode struct {
	id   int32
	wake chan struct{}

	mu      sync.Mutex // guards below
	failing bool       // for logging at changes only
}

// NewFetcher returns a fetcher without partitions.
func (c *Client) NewFetcher(o *FetchOptions) *Fetcher {
	f := &Fetcher{
		c:       c,
		o:       o.withDefaults(),
		logger:  c.o.Logger,
		manage:  make(chan struct{}, 1),
		readers: make(map[topicPartition]*PartitionReader),
		nodes:   make(map[int32]*leaderNode),
		ids:     make(map[string][16]byte),
	}
	for topic, id := range f.o.TopicIDs {
		f.ids[topic] = id
	}
	return f
}

// Add starts the fetching of a partition at offset. A partition is added once;
// its reader is to be closed before it is added again, else the older reader is
// closed.
func (f *Fetcher) Add(topic string, partition int32, offset int64) *PartitionReader {
	r := &PartitionReader{
		f: f, topic: topic, partition: partition,
		ready:   make(chan struct{}, 1),
		fetchAt: offset, maxBytes: f.o.MaxPartitionBytes,
		node: anyNode, epoch: -1, lastEpoch: -1,
	}
	key := topicPartition{topic, partition}
	f.mu.Lock()
	old := f.readers[key]
	f.readers[key] = r
	f.mu.Unlock()
	if old != nil {
		old.Close()
	}
	f.wakeManager()
	return r
}

func (f *Fetcher) remove(r *PartitionReader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := topicPartition{r.topic, r.partition}
	if f.readers[key] == r {
		delete(f.readers, key)
	}
}

// newBatch lends an empty batch.
func (f *Fetcher) newBatch(topic string, partition int32) *Batch {
	b, ok := f.batches.Get().(*Batch)
	if !ok {
		b = &Batch{release: f.releaseBatch}
	}
	b.Topic, b.Partition = topic, partition
	return b
}

// maxKeptRecords bounds what an idle batch keeps: a fetch of tiny records must
// not pin memory for ever.
const maxKeptRecords = 1 << 16

func (f *Fetcher) releaseBatch(b *Batch) {
	if b.raw != nil {
		b.raw.release()
	}
	for i, a := range b.arenas {
		f.c.codecs.pool.put(a)
		b.arenas[i] = nil
	}
	records, headers, arenas := b.Records, b.headers, b.arenas[:0]
	if cap(records) > maxKeptRecords {
		records = nil
	}
	if cap(headers) > maxKeptRecords {
		headers = nil
	}
	// Stale slices would keep the arenas of others from the collector.
	clear(records)
	clear(headers)
	*b = Batch{Records: records[:0], headers: headers[:0], arenas: arenas, release: b.release}
	f.batches.Put(b)
}

func (f *Fetcher) wakeManager() {
	select {
	case f.manage <- struct{}{}:
	default:
	}
}

// wakeNode tells a broker's loops that a partition may have room.
func (f *Fetcher) wakeNode(id int32) {
	f.mu.Lock()
	n := f.nodes[id]
	f.mu.Unlock()
	if n != nil {
		n.signal()
	}
}

func (n *leaderNode) signal() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// Run fetches until ctx ends and returns ctx's error, wrapped; or one that
// wraps ErrAuth or ErrTooOld, with which waiting does not help. It is called
// once. When it has returned, readers hand out what they have and then
// ErrClosed.
func (f *Fetcher) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	err := f.run(ctx, &wg)
	cancel()
	wg.Wait()
	f.mu.Lock()
	readers := make([]*PartitionReader, 0, len(f.readers))
	for _, r := range f.readers {
		readers = append(readers, r)
	}
	f.mu.Unlock()
	for _, r := range readers {
		r.stop(fmt.Errorf("read %s/%d: fetcher has stopped: %w", r.topic, r.partition, ErrClosed))
	}
	return err
}

// stop makes err the reader's after what is buffered.
func (r *PartitionReader) stop(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
	r.signal()
}

// run is the manager: it finds the leaders of partitions without one and starts
// the loops of new leaders.
func (f *Fetcher) run(ctx context.Context, wg *sync.WaitGroup) error {
	full := time.NewTicker(metadataInterval)
	defer full.Stop()
	wait := minRetry
	lost := false // for logging at changes only
	for {
		next, need := f.unrouted()
		if need {
			err := f.refresh(ctx, wg)
			switch {
			case ctx.Err() != nil:
				return fmt.Errorf("fetch: %w", ctx.Err())
			case err == nil:
				if lost {
					f.logger.Info("brokers answer again")
				}
				wait, lost = minRetry, false
				continue
			case !retryable(err):
				return fmt.Errorf("fetch: %w", err)
			}
			if !lost {
				f.logger.Warn("no broker answers, trying again", "err", err)
			}
			lost = true
			f.c.metrics.retries.Add(1)
			if sleep(ctx, wait) != nil {
				return fmt.Errorf("fetch: %w", ctx.Err())
			}
			wait = min(2*wait, maxRetry)
			continue
		}
		timer := time.NewTimer(next)
		select {
		case <-f.manage:
		case <-timer.C:
		case <-full.C:
			if err := f.refresh(ctx, wg); err != nil && ctx.Err() == nil {
				f.logger.Warn("no metadata", "err", err)
			}
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("fetch: %w", ctx.Err())
		}
		timer.Stop()
	}
}

// asked is a partition in a request.
type asked struct {
	r      *PartitionReader
	gen    int
	offset int64
	epoch  int32
}

// fetchLoop is one of the loops of a leader.
func (f *Fetcher) fetchLoop(ctx context.Context, n *leaderNode) {
	v, err := f.c.negotiate(ctx)
	if err != nil {
		return // ctx has ended: the metadata that led here were negotiated
	}
	for ctx.Err() == nil {
		req, parts, wait := f.take(n, v.fetch)
		if len(parts) == 0 {
			timer := time.NewTimer(wait)
			select {
			case <-n.wake:
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
			continue
		}
		resp, err := f.fetch(ctx, n, req, v.fetch)
		if err != nil {
			f.failed(ctx, n, parts, err)
			continue
		}
		f.recovered(n)
		f.distribute(ctx, resp, parts)
		if resp.throttle > 0 {
			_ = sleep(ctx, time.Duration(resp.throttle)*time.Millisecond) // the loop looks at ctx
		}
	}
}

// take builds a request of the partitions of n that have room and are in no
// other one. wait is when to look again where there is none.
func (f *Fetcher) take(n *leaderNode, version int16) (*kmsg.FetchRequest, []asked, time.Duration) {
	now := time.Now()
	wait := time.Minute
	var parts []asked
	f.mu.Lock()
	defer f.mu.Unlock()
	req := newFetchRequest(version, &f.o)
	topics := make(map[string]int) // → index in req.Topics
	for key, r := range f.readers {
		r.mu.Lock()
		switch {
		case r.node != n.id || r.inflight || r.closed || r.err != nil:
		case r.retryAt.After(now):
			wait = min(wait, r.retryAt.Sub(now))
		case r.queued > 0 && r.queued+int64(r.maxBytes) > f.o.BufferBytes:
			// Full: paused until its reader takes a chunk.
		default:
			r.inflight = true
			parts = append(parts, asked{r: r, gen: r.gen, offset: r.fetchAt, epoch: r.epoch})
			i, ok := topics[key.topic]
			if !ok {
				i = len(req.Topics)
				topics[key.topic] = i
				t := kmsg.NewFetchRequestTopic()
				t.Topic, t.TopicID = key.topic, f.ids[key.topic]
				req.Topics = append(req.Topics, t)
			}
			p := kmsg.NewFetchRequestTopicPartition()
			p.Partition = key.partition
			p.CurrentLeaderEpoch = r.epoch
			p.FetchOffset = r.fetchAt
			p.LastFetchedEpoch = r.lastEpoch
			p.PartitionMaxBytes = int32(r.maxBytes)
			req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
		}
		r.mu.Unlock()
	}
	// A broker fills the answer in the request's order, and returns a batch
	// larger than the limit for the first partition only: the random order of
	// the map gives each its turn.
	return req, parts, wait
}

// fetch runs the request.
func (f *Fetcher) fetch(ctx context.Context, n *leaderNode, req *kmsg.FetchRequest, version int16) (*fetchResponse, error) {
	rctx, cancel := context.WithTimeout(ctx, f.o.MaxWait+f.c.o.RequestTimeout)
	defer cancel()
	limits := fetchLimits{partition: f.o.MaxPartitionBytes, batch: f.o.MaxBatchBytes}
	pool := f.c.codecs.pool
	var resp *fetchResponse
	x := &exchange{node: n.id, clientID: f.c.o.ClientID, req: req, read: func(r io.Reader, size int) error {
		var err error
		resp, err = readFetchResponse(r, size, version, pool, limits)
		return err
	}}
	// Where ctx ends first, resp may still be written later: it is not read.
	if _, err := f.c.exchange(rctx, x); err != nil {
		return nil, err
	}
	if resp.code != codeNone {
		resp.release(pool)
		return nil, resp.code
	}
	return resp, nil
}

// failed puts the partitions of a request that got no answer back.
func (f *Fetcher) failed(ctx context.Context, n *leaderNode, parts []asked, err error) {
	now := time.Now()
	for _, a := range parts {
		a.r.mu.Lock()
		if a.r.gen == a.gen {
			a.r.inflight = false
			a.r.node = anyNode
			a.r.backoff(now)
			if !retryable(err) && a.r.err == nil && !errors.Is(err, errProtocol) && ctx.Err() == nil {
				a.r.err = fmt.Errorf("fetch %s/%d: %w", a.r.topic, a.r.partition, err)
				a.r.signal()
			}
		}
		a.r.mu.Unlock()
	}
	f.wakeManager()
	if ctx.Err() != nil {
		return
	}
	f.c.metrics.retries.Add(1)
	n.mu.Lock()
	first := !n.failing
	n.failing = true
	n.mu.Unlock()
	if first {
		f.logger.Warn("fetch fails, trying again", "node", n.id, "err", err)
	}
}

func (f *Fetcher) recovered(n *leaderNode) {
	f.c.metrics.fetches.Add(1)
	n.mu.Lock()
	was := n.failing
	n.failing = false
	n.mu.Unlock()
	if was {
		f.logger.Info("fetch works again", "node", n.id)
	}
}
