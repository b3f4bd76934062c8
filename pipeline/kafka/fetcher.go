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
	// half of what it may buffer. A record batch that is larger comes all the
	// same.
	MaxPartitionBytes int
	// MaxBytes of one answer. Default 32 MiB.
	MaxBytes int
	// MaxBatchBytes is the largest record batch, as stored, that is accepted;
	// a larger one is reported as corrupt. Default 128 MiB.
	MaxBatchBytes int
	// BufferBytes of a partition that are fetched ahead of its reader, what is
	// being decoded included; then it is left out of requests. One record
	// batch that is larger may go beyond it. Default 8 MiB.
	BufferBytes int64
	// TotalBytes of all partitions together. Each has an equal share of it, so
	// that one whose reader stands still takes nothing from the others; a
	// share is 8 KiB at least. Default 256 MiB.
	TotalBytes int64
	// Rack is where this process runs, as the brokers' broker.rack. Partitions
	// with an in-sync replica there are read from it, where the brokers'
	// replica.selector.class says so (KIP-392). "" reads from leaders.
	Rack string
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
	if d.TotalBytes <= 0 {
		d.TotalBytes = 256 << 20
	}
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
// Per broker it has up to two requests under way, each with partitions that have
// room, in a fetch session of its own (KIP-227); a partition whose buffer is full
// is left out until its reader has caught up. Decoding happens in the readers'
// goroutines. Lost connections, moved leaders, restarted brokers and brokers that
// ask for patience are waited out. After a change of a partition's leader the
// fetcher asks where the epoch that it has read ends (KIP-320): a log that lost
// records which were fetched is reported as out of range.
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

	loops sync.WaitGroup // of all nodes
}

type topicPartition struct {
	topic     string
	partition int32
}

// leaderNode is a broker that partitions are fetched from.
type leaderNode struct {
	id   int32
	wake chan struct{}

	mu      sync.Mutex // guards below
	failing bool       // for logging at changes only
	mutedTo time.Time  // until when the broker wants no requests
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
		fetchAt: offset,
		node:    anyNode, replica: anyNode, epoch: -1, lastEpoch: -1,
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
	*b = Batch{Records: records[:0], Aborted: b.Aborted[:0], headers: headers[:0], arenas: arenas, release: b.release}
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
	err := f.run(ctx)
	cancel()
	f.loops.Wait()
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
func (f *Fetcher) run(ctx context.Context) error {
	full := time.NewTicker(metadataInterval)
	defer full.Stop()
	wait := minRetry
	lost := false // for logging at changes only
	for {
		next, need := f.unrouted()
		if need {
			err := f.refresh(ctx)
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
			if err := f.refresh(ctx); err != nil && ctx.Err() == nil {
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
	r         *PartitionReader
	gen       int
	topicID   [16]byte
	offset    int64
	epoch     int32 // of the leader
	lastEpoch int32 // of the last batch fetched
	maxBytes  int32
	replica   bool // the broker is not the leader
}

// fetchLoop is one of the loops of a broker.
func (f *Fetcher) fetchLoop(ctx context.Context, n *leaderNode) {
	v, err := f.c.negotiate(ctx)
	if err != nil {
		return // ctx has ended: the metadata that led here were negotiated
	}
	s := newSession()
	var parts, checks []asked
	for ctx.Err() == nil {
		var wait time.Duration
		parts, checks, wait = f.take(n, s, parts[:0], checks[:0])
		switch {
		case len(checks) > 0:
			f.check(ctx, n, checks)
			continue
		case len(parts) == 0:
			timer := time.NewTimer(wait)
			select {
			case <-n.wake:
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
			continue
		}
		full := s.full()
		begun := time.Now()
		resp, err := f.fetch(ctx, n, s.request(v.fetch, &f.o, parts), v.fetch)
		if err == nil {
			f.c.metrics.fetched(time.Since(begun))
			err = s.answered(resp.session)
		}
		switch {
		case err == nil:
			f.recovered(n, resp.throttle)
			if full {
				f.c.metrics.fullFetches.Add(1)
			}
			f.distribute(ctx, resp, parts, full)
		case s.broken(err):
			f.logger.Debug("fetch session begins anew", "node", n.id, "err", err)
		default:
			s.lost()
			f.failed(ctx, n, parts, err)
		}
	}
}

// minShare is the least that a partition may buffer, in bytes: two record batches
// of a page.
const minShare = 8 << 10

// share returns what a partition may buffer and how much of it one answer may
// bring, in bytes. f.mu is held.
func (f *Fetcher) share() (buffer int64, answer int) {
	buffer = min(f.o.BufferBytes, max(f.o.TotalBytes/int64(max(len(f.readers), 1)), minShare))
	return buffer, int(min(int64(f.o.MaxPartitionBytes), max(buffer/2, 1)))
}

// take ends the last request of the loop whose session s is and appends to parts
// the partitions of n that have room and that no other loop asks for, and to
// checks those of them whose log is to be compared first. wait is when to look
// again where there is none.
//
// Both in one step: a partition stays with its loop as long as that asks for it,
// which keeps the sessions of the loops apart and their requests small. The other
// loop gets what has room again while this one waits for its broker.
func (f *Fetcher) take(n *leaderNode, s *session, parts, checks []asked) (_, _ []asked, wait time.Duration) {
	now := time.Now()
	wait = time.Minute
	f.mu.Lock()
	defer f.mu.Unlock()
	muted := n.muted(now)
	buffer, answer := f.share()
	for key, r := range f.readers {
		r.mu.Lock()
		mine := r.inflight == s
		if mine {
			r.inflight = nil
		}
		most := max(answer, r.need)
		switch {
		case r.inflight != nil || r.closed || r.err != nil || r.node == anyNode:
		case r.source(now) != n.id:
			if other := f.nodes[r.source(now)]; mine && other != nil {
				other.signal() // until now it could not have it
			}
		case muted > 0:
			wait = min(wait, muted)
		case r.retryAt.After(now):
			wait = min(wait, r.retryAt.Sub(now))
		case r.queued > 0 && r.queued+int64(most) > buffer && !r.unchecked:
			// Full: paused until its reader has decoded a chunk.
		default:
			r.inflight = s
			a := asked{
				r: r, gen: r.gen, topicID: f.ids[key.topic], offset: r.fetchAt,
				epoch: r.epoch, lastEpoch: r.lastEpoch, maxBytes: int32(most), replica: n.id != r.node,
			}
			if r.unchecked {
				checks = append(checks, a)
			} else {
				parts = append(parts, a)
			}
		}
		r.mu.Unlock()
	}
	// A broker fills the answer in the request's order, and returns a batch
	// larger than the limit for the first partition only: the random order of
	// the map gives each its turn; in a session the broker takes turns.
	return parts, checks, wait
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
		f.c.metrics.countError(resp.code.name())
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
			a.r.inflight = nil
			a.r.node, a.r.replica = anyNode, anyNode
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

// recovered notes an answer, and that the broker wants to be left alone for a
// while (KIP-219): by all loops, as its quotas are for the client.
func (f *Fetcher) recovered(n *leaderNode, throttle time.Duration) {
	f.c.metrics.fetches.Add(1)
	f.c.metrics.throttled.Add(int64(throttle))
	n.mu.Lock()
	was := n.failing
	n.failing = false
	if throttle > 0 {
		n.mutedTo = time.Now().Add(throttle)
	}
	n.mu.Unlock()
	if was {
		f.logger.Info("fetch works again", "node", n.id)
	}
}

// muted is for how long the broker still wants no requests.
func (n *leaderNode) muted(now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mutedTo.Sub(now)
}
