package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"sluice/pipeline/memory"
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
	// a larger one is reported as too large (ErrBatchTooLarge). Default 128 MiB.
	MaxBatchBytes int
	// BufferBytes of a partition that are fetched ahead of its reader, what is
	// being decoded included; then it is left out of requests. One record
	// batch that is larger may go beyond it. Default 8 MiB.
	BufferBytes int64
	// Memory bounds what all partitions hold together, of this fetcher and of the
	// others that share it: of its fetched and its decoded memory each has an equal
	// part, so that one whose reader stands still takes nothing from the others.
	// nil = a budget of its own of DefaultMemoryBytes.
	Memory *memory.Budget
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

	mem        *fetchMemory
	memoryFree chan struct{} // has one element when a partition has got memory that it waited for
	batches    sync.Pool     // of *Batch, without memory

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
		c:      c,
		o:      o.withDefaults(),
		logger: c.o.Logger,
		manage: make(chan struct{}, 1),

		memoryFree: make(chan struct{}, 1),

		readers: make(map[topicPartition]*PartitionReader),
		nodes:   make(map[int32]*leaderNode),
		ids:     make(map[string][16]byte),
	}
	f.mem = fetchMemoryOf(f.o.Memory)
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
		room:    make(chan struct{}, 1),
		gone:    make(chan struct{}),
		fetchAt: offset,
		node:    anyNode, replica: anyNode, epoch: -1, lastEpoch: -1,
	}
	f.mem.budget.Join()
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
// wraps ErrAuth, ErrTooOld or ErrTooNew, with which waiting does not help. A broker whose
// certificate cannot be trusted fails its readers with ErrTLS: those that are added later
// are fetched as soon as there is another one. It is called once. When it has returned, readers hand out what they have and then
// ErrClosed.
func (f *Fetcher) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	f.loops.Go(func() { f.passMemory(ctx) })
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
		r.stop(fmt.Errorf("fetcher has stopped: %w", ErrClosed))
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
	r.leaveQueue()
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
			case errors.Is(err, ErrTLS):
				f.failUnrouted(err)
			case lasting(err):
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

// fetchLoop is one of the loops of a broker.
func (f *Fetcher) fetchLoop(ctx context.Context, n *leaderNode) {
	s := newSession()
	var parts, checks []asked
	for ctx.Err() == nil {
		var wait time.Duration
		parts, checks, wait = f.take(n, s, parts[:0], checks[:0])
		switch {
		case len(checks) > 0:
			giveBack(parts) // they are asked for with those that are compared first
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
		begun := time.Now()
		fl := f.flight(parts)
		resp, err := f.fetch(ctx, n, s, parts, fl)
		full := s.full() // of the request; fetch can begin the session anew
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
			f.distribute(ctx, resp, fl, full)
		case s.broken(err):
			f.logger.Debug("fetch session begins anew", "node", n.id, "err", err)
		default:
			s.lost()
			f.failed(ctx, n, parts, err)
		}
		if fl.abandon() {
			parts = nil // its answer is still being read
		} else {
			fl.drop(resp)
		}
	}
}

// flight is a request for parts, whose memory it has.
func (f *Fetcher) flight(parts []asked) *flight {
	fl := &flight{mem: f.mem, parts: parts, open: make(map[topicPartition]int, len(parts)), topics: make(map[[16]byte]string)}
	for i := range parts {
		r := parts[i].r
		fl.open[topicPartition{r.topic, r.partition}] = i
		fl.topics[parts[i].topicID] = r.topic
	}
	return fl
}

// errAbandoned: nobody waits for the answer any more.
var errAbandoned = errors.New("the fetch was given up")

// fetch runs the request for parts.
func (f *Fetcher) fetch(ctx context.Context, n *leaderNode, s *session, parts []asked, fl *flight) (*fetchResponse, error) {
	rctx, cancel := context.WithTimeout(ctx, f.o.MaxWait+f.c.o.RequestTimeout)
	defer cancel()
	v, err := f.c.negotiate(rctx, n.id)
	if err != nil {
		return nil, err
	}
	version := s.version(v.fetch, parts)
	req := s.request(version, &f.o, parts)
	most := f.o.limits(len(fl.parts))
	var resp *fetchResponse
	x := &exchange{node: n.id, clientID: f.c.o.ClientID, req: req, read: func(r io.Reader, size int) error {
		if !fl.begin() {
			return errAbandoned
		}
		got, err := readFetchResponse(r, size, version, fl, most)
		resp = got
		fl.end(got)
		return err
	}}
	// Where ctx ends first, resp may still be written later: it is not read.
	if _, err := f.c.exchange(rctx, x); err != nil {
		return nil, err
	}
	if resp.code != codeNone {
		resp.release(f.mem)
		f.c.metrics.countError(resp.code.name())
		return nil, resp.code
	}
	return resp, nil
}

// failed puts the partitions of a request that got no answer back.
func (f *Fetcher) failed(ctx context.Context, n *leaderNode, parts []asked, err error) {
	final := lasting(err)
	if ctx.Err() == nil {
		f.c.forget(n.id)
		f.c.metrics.retries.Add(1)
		n.mu.Lock()
		first := !n.failing
		n.failing = true
		n.mu.Unlock()
		switch {
		case final:
			f.logger.Warn("fetch fails", "node", n.id, "err", err)
		case first:
			f.logger.Warn("fetch fails, trying again", "node", n.id, "err", err)
		}
	}
	now := time.Now()
	for i := range parts { // whose grants an answer that is still being read may grow
		a := &parts[i]
		a.r.mu.Lock()
		if a.r.gen == a.gen {
			a.r.inflight = nil
			a.r.node, a.r.replica = anyNode, anyNode
			a.r.backoff(now)
			if final && a.r.err == nil && ctx.Err() == nil {
				a.r.err = err
				a.r.signal()
			}
		}
		a.r.mu.Unlock()
	}
	f.wakeManager()
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
