package kafka

import (
	"context"
	"fmt"
	"time"

	"sluice/pipeline/memory"
)

// distribute hands the answer's partitions to their readers. A full request is
// answered for every partition, one within a session for those with news.
func (f *Fetcher) distribute(ctx context.Context, resp *fetchResponse, fl *flight, full bool) {
	for i := range resp.partitions {
		p := &resp.partitions[i]
		a := fl.answered(p)
		if a == nil {
			continue // not asked for
		}
		delete(fl.open, topicPartition{a.r.topic, a.r.partition})
		f.fetched(ctx, a, p)
	}
	rest := codeNone
	if full && resp.throttle == 0 { // a broker that throttles answers for nothing
		rest = codeUnknownServerError
	}
	for _, i := range fl.open {
		a := &fl.parts[i]
		a.r.answered(a.gen, rest)
	}
}

// answered notes the answer to the request of generation gen for r, with a code
// that calls for another try; stale ones for another leader. The loop that asked
// still has the partition, until its next take.
func (r *PartitionReader) answered(gen int, e code) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gen != gen {
		return
	}
	switch {
	case e == codeNone:
		r.failures = 0
		if r.barren > 0 { // a session names a partition only where there is news
			r.barren++
		}
	case e.stale():
		r.node, r.replica = anyNode, anyNode
		r.backoff(time.Now())
	default:
		r.backoff(time.Now())
	}
}

// fetched handles the answer for one partition.
func (f *Fetcher) fetched(ctx context.Context, a *asked, p *fetchedPartition) {
	if p.code != codeNone {
		f.c.metrics.countError(p.code.name())
	}
	r := a.r
	switch {
	case a.replica && p.code != codeNone && !p.code.auth():
		// It may be behind, or no replica any more: the leader knows.
		f.toLeader(a)
	case p.code == codeOffsetOutOfRange:
		f.checkRange(ctx, a)
	case p.code == codeCorruptMessage:
		r.failAt(a.gen, &UnreadableError{Offset: a.offset, Next: -1, Err: p.code})
	case p.code.auth():
		r.failAt(a.gen, p.code.denied(needsRead))
	case p.code != codeNone:
		r.answered(a.gen, p.code)
		f.wakeManager()
	case p.diverges:
		f.outOfRange(a, p.logStart, p.divergeAt)
	case p.preferred >= 0 && !a.replica && len(p.records) == 0:
		f.toReplica(ctx, a, p.preferred)
	default:
		f.accept(a, p)
	}
}

// outOfRange fails the reader: the log has not what was asked for.
func (f *Fetcher) outOfRange(a *asked, start, end int64) {
	f.c.metrics.outOfRange.Add(1)
	a.r.failAt(a.gen, &OutOfRangeError{Offset: a.offset, LogStart: start, End: end})
}

// accept queues the record batches of an answer.
func (f *Fetcher) accept(a *asked, p *fetchedPartition) {
	r := a.r
	if p.refused > 0 && f.fits(a, p.refused, p.beyond) {
		r.resize(a.gen, p.refused) // it comes again when there is memory for it
		r.answered(a.gen, codeNone)
		return
	}
	if p.tooLarge > 0 {
		f.tooLarge(a, p.tooLarge, p.beyond)
		return
	}
	if p.refused > 0 {
		return
	}
	if len(p.records) == 0 && p.stable > a.offset {
		r.empty(a.gen)
	}
	c := &chunk{
		buf: p.records, from: a.offset, lastStable: p.stable, logStart: p.logStart,
		aborted: p.aborted, mem: f.mem, grant: a.grant, held: &r.held,
	}
	c.refs.Store(1)
	p.records, a.grant = nil, memory.Grant{}
	c.grant.Shrink(int64(cap(c.buf)))
	r.held.Add(c.grant.Bytes())
	f.c.metrics.fetchedBytes.Add(int64(len(c.buf)))
	need, beyond, err := c.scan()
	firstBase := int64(-1)
	if len(c.buf) > 0 {
		if h, err := parseBatchHeader(c.buf); err == nil {
			firstBase = h.base
		}
	}
	// Retention may pass the offset between two fetches: then the answer
	// begins at the new log start, which looks like compaction.
	if p.logStart > a.offset && (firstBase < 0 || firstBase > a.offset) {
		c.release()
		f.outOfRange(a, p.logStart, p.high)
		return
	}
	if c.next == c.from {
		c.release()
	} else if !r.push(a.gen, c) {
		c.release()
		return
	}
	switch {
	case err != nil:
		f.c.metrics.corrupt.Add(1)
		r.failAt(a.gen, &UnreadableError{Offset: c.next, Next: -1, Err: err})
	case need > f.o.MaxBatchBytes:
		f.tooLarge(a, need, beyond)
	case f.fits(a, need, beyond):
		r.resize(a.gen, need)
		r.answered(a.gen, codeNone)
	}
}

// tooLarge fails the reader of a: the record batch there, which ends before beyond, has n
// bytes.
func (f *Fetcher) tooLarge(a *asked, n int, beyond int64) {
	f.c.metrics.corrupt.Add(1)
	a.r.failAt(a.gen, &UnreadableError{
		Offset: a.offset, Next: beyond,
		Err: fmt.Errorf("batch of %d bytes, %w of %d bytes", n, errTooMuch, f.o.MaxBatchBytes),
	})
}

// fits reports whether a batch of n bytes, which ends before beyond, can have memory at
// all. Where it cannot, that is the error of the partition of a.
func (f *Fetcher) fits(a *asked, n int, beyond int64) bool {
	err := f.mem.budget.Fetched().Check(f.mem.raw.Bytes(n), 0)
	if err != nil {
		a.r.failAt(a.gen, &UnreadableError{Offset: a.offset, Next: beyond, Err: err})
	}
	return err == nil
}

// resize sets what the next request asks for at least: the size of a batch that
// came cut off, 0 where none did.
func (r *PartitionReader) resize(gen, need int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gen == gen {
		r.need = need
	}
}

// failAt is fail for the request of generation gen only.
func (r *PartitionReader) failAt(gen int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gen != gen || r.closed {
		return
	}
	if r.err == nil {
		r.err = err // after what is queued, which is before it
	}
	r.signal()
}

// checkRange finds out what an OFFSET_OUT_OF_RANGE means. A follower that has
// just become the leader may not know the newest offsets yet: then it is asked
// again.
func (f *Fetcher) checkRange(ctx context.Context, a *asked) {
	r := a.r
	one := []int32{r.partition}
	start, err := f.c.listOffsets(ctx, r.topic, one, earliestOffset, readUncommitted)
	var end map[int32]int64
	if err == nil {
		end, err = f.c.listOffsets(ctx, r.topic, one, latestOffset, readUncommitted)
	}
	if err != nil {
		f.logger.Warn("offset is out of range, and the range is unknown", "topic", r.topic, "partition", r.partition, "offset", a.offset, "err", err)
		r.answered(a.gen, codeNotLeader)
		f.wakeManager()
		return
	}
	if start[r.partition] <= a.offset && a.offset <= end[r.partition] {
		// Or it does not know the epoch that was fetched last.
		r.suspect(a.gen)
		r.answered(a.gen, codeNotLeader)
		f.wakeManager()
		return
	}
	f.outOfRange(a, start[r.partition], end[r.partition])
}
