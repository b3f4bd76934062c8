package kafka

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"sluice/pipeline/memory"
)

// PartitionReader hands out the records of one partition in order, from the
// offset given to Add or SeekTo on. Next and SeekTo are for one goroutine; Close is
// for any.
type PartitionReader struct {
	f         *Fetcher
	topic     string
	partition int32

	ready chan struct{} // has one element when Next has something to look at
	room  chan struct{} // has one element when a batch was released
	gone  chan struct{} // closed by Close

	held    atomic.Int64 // bytes of chunks that were fetched and not given back
	decoded atomic.Int64 // bytes of batches that were handed out and not released

	// What the last batch took, for the next one; owned by Next.
	lastRecords int
	lastTaken   int64
	ratio       float64 // of decompressed to compressed bytes

	mu  sync.Mutex // guards below; taken after Fetcher.mu where both are
	gen int        // counts SeekTo: answers to older requests are dropped
	cur *chunk     // being decoded
	// queue is fetched and not yet decoded; queued its bytes, and those of the
	// chunk that is being decoded.
	queue   []*chunk
	queued  int64
	fetchAt int64          // next offset to fetch
	need    int            // bytes of a batch that did not fit in an answer, else 0
	ticket  *memory.Ticket // for the next answer; nil = none
	barren  int            // answers, one after the other, that had nothing at fetchAt, where the log goes on
	err     error          // why no more will be fetched, without the place; handed out after queue
	closed  bool

	// Routing.
	inflight     *session  // of the loop whose request asks for it; nil = none
	node         int32     // leader; anyNode = unknown
	epoch        int32     // of the leader
	lastEpoch    int32     // of the last batch fetched; -1 = unknown
	unchecked    bool      // the leader has changed since, and its log is to be compared
	replica      int32     // to fetch from instead of the leader; anyNode = none
	replicaUntil time.Time // when the leader is asked again for one
	retryAt      time.Time
	failures     int
	missing      time.Time // since when the cluster knows no such partition
}

// Next returns the next batch, which the caller releases, and blocks until
// there is one. Its error is a *PartitionError, which stays until SeekTo. That wraps an
// *OutOfRangeError where the log does not hold the offset, an *UnreadableError where a
// batch cannot be read or takes more than the bounds or the memory there is, or
// ErrTopicNotFound, ErrTopicChanged, ErrAuth, ErrTLS or ErrClosed; or it says that the
// brokers have told no id of a topic that had one for RequestTimeout. A ctx that ends costs
// nothing: the next call goes on where this one stopped.
//
// Batches that were not released count against the memory: who keeps all of them waits
// for itself.
func (r *PartitionReader) Next(ctx context.Context) (*Batch, error) {
	b, err := r.next(ctx)
	if err != nil {
		return nil, &PartitionError{r.topic, r.partition, err}
	}
	return b, nil
}

func (r *PartitionReader) next(ctx context.Context) (*Batch, error) {
	for {
		c, err := r.take()
		if err != nil {
			return nil, err
		}
		if c == nil {
			select {
			case <-r.ready:
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		b, d, err := r.decode(ctx, c)
		m := &r.f.c.metrics
		m.control.Add(d.control)
		m.aborted.Add(d.aborted)
		switch {
		case errors.Is(err, memory.ErrGone):
			r.put(c) // closed: the next look says so
			continue
		case err != nil && ctx.Err() != nil && !isFinal(err):
			r.put(c)
			return nil, err
		case err != nil:
			c.release()
			if !errors.Is(err, memory.ErrTooLarge) {
				m.corrupt.Add(1)
			}
			r.fail(err)
			continue
		}
		r.put(c)
		if b.Next == b.From {
			b.Release() // only batches before the asked offset
			continue
		}
		m.records.Add(int64(len(b.Records)))
		return b, nil
	}
}

// take returns the chunk to decode from, nil where there is none yet. Until put
// it belongs to the caller.
func (r *PartitionReader) take() (*chunk, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, ErrClosed
	}
	if c := r.cur; c != nil {
		r.cur = nil
		return c, nil
	}
	if len(r.queue) == 0 {
		return nil, r.err
	}
	c := r.queue[0]
	r.queue[0] = nil
	r.queue = r.queue[1:]
	return c, nil
}

// put gives c back after a decoding; what is left of it comes next.
func (r *PartitionReader) put(c *chunk) {
	if node := r.putLocked(c); node != anyNode {
		r.f.wakeNode(node) // there is room again
	}
}

func (r *PartitionReader) putLocked(c *chunk) (wake int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		c.release()
		return anyNode
	case c.at < len(c.buf):
		r.cur = c
		return anyNode
	}
	r.queued -= int64(cap(c.buf))
	c.release()
	return r.source(time.Now())
}

// from is source, for who does not hold r.mu.
func (r *PartitionReader) from() int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.source(time.Now())
}

// isFinal reports whether err is of the batch, and not of the waiting for its memory.
func isFinal(err error) bool {
	_, unreadable := errors.AsType[*UnreadableError](err)
	return unreadable
}

// source is the broker to fetch from: a replica in our rack where the leader has
// named one, else the leader. r.mu is held.
func (r *PartitionReader) source(now time.Time) int32 {
	if r.replica != anyNode && r.node != anyNode && now.Before(r.replicaUntil) {
		return r.replica
	}
	return r.node
}

// fail drops what is buffered and makes err the reader's.
func (r *PartitionReader) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop()
	r.gen++
	r.inflight = nil
	r.err = err
	r.signal()
}

// drop releases everything buffered, and what it waits for. r.mu is held.
func (r *PartitionReader) drop() {
	r.leaveQueue()
	if r.cur != nil {
		r.cur.release()
		r.cur = nil
	}
	for _, c := range r.queue {
		c.release()
	}
	r.queue, r.queued = nil, 0
}

// signal wakes Next. r.mu need not be held.
func (r *PartitionReader) signal() {
	select {
	case r.ready <- struct{}{}:
	default:
	}
}

// SeekTo drops what is buffered, forgets an error, and goes on at offset.
func (r *PartitionReader) SeekTo(offset int64) {
	r.mu.Lock()
	r.drop()
	r.gen++
	r.inflight = nil
	r.err = nil
	r.fetchAt, r.lastEpoch, r.unchecked = offset, -1, false
	r.retryAt, r.failures, r.barren, r.missing = time.Time{}, 0, 0, time.Time{}
	node := r.source(time.Now())
	r.mu.Unlock()
	r.f.wakeNode(node)
	r.f.wakeManager()
}

// barrenAnswers is how many answers without records show that there are none: one may be
// empty as the records of other partitions have filled it, and each asks anew after the wait
// for records.
const barrenAnswers = 3

// Barren reports whether the broker answers, again and again, that it has nothing at the
// offset that is asked for, nor behind it, although the log is longer: compaction has
// taken what there was. It is false while the broker cannot answer.
func (r *PartitionReader) Barren() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.barren >= barrenAnswers
}

// empty notes an answer without records to the request of generation gen.
func (r *PartitionReader) empty(gen int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gen == gen && r.barren == 0 {
		r.barren = 1
	}
}

// Close stops the fetching of the partition and frees its buffers; batches that
// were handed out stay valid.
func (r *PartitionReader) Close() {
	r.f.remove(r)
	r.mu.Lock()
	first := !r.closed
	r.closed = true
	r.gen++
	r.drop()
	r.mu.Unlock()
	if first {
		r.f.mem.budget.Leave()
		close(r.gone)
	}
	r.signal()
}

// push appends a fetched chunk for the request of generation gen, and reports
// whether it was taken.
func (r *PartitionReader) push(gen int, c *chunk) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.gen != gen {
		return false
	}
	r.queue = append(r.queue, c)
	r.queued += int64(cap(c.buf))
	r.fetchAt, r.lastEpoch, r.barren = c.next, c.epoch, 0
	r.signal()
	return true
}
