package kafka

import (
	"context"
	"time"

	"sluice/pipeline/memory"
)

// asked is a partition in a request.
type asked struct {
	r         *PartitionReader
	gen       int
	topicID   [16]byte
	offset    int64
	epoch     int32 // of the leader
	lastEpoch int32 // of the last batch fetched
	maxBytes  int32
	replica   bool         // the broker is not the leader
	grant     memory.Grant // for the answer
}

// minPart is the least that a partition's part of the memory counts as, in bytes: two
// record batches of a page. Where even that is not there for all, they take turns.
const minPart = 8 << 10

// part returns how much of the fetched memory a partition may hold; how much of that
// may wait to be decoded; and how much one answer may bring, in bytes. The part is an
// equal one, so that a partition whose reader stands still takes nothing from the
// others. An answer is a third of it at most: one is mapped, one waits, and one is on
// its way.
func (f *Fetcher) part() (part, buffer int64, answer int) {
	b := f.mem.budget
	part = max(b.Fair(b.Fetched()), minPart)
	buffer = min(f.o.BufferBytes, part)
	return part, buffer, int(max(min(int64(f.o.MaxPartitionBytes), buffer/2, part/3), 1))
}

// take ends the last request of the loop whose session s is and appends to parts
// the partitions of n that have room, and memory for what they ask for, and that no
// other loop asks for; and to checks those of them whose log is to be compared first.
// wait is when to look again where there is none.
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
	part, buffer, answer := f.part()
	for key, r := range f.readers {
		r.mu.Lock()
		mine := r.inflight == s
		if mine {
			r.inflight = nil
		}
		most := max(answer, r.need)
		ask := false
		switch held := r.held.Load(); {
		case r.inflight != nil || r.closed || r.err != nil || r.node == anyNode:
		case r.source(now) != n.id:
			if other := f.nodes[r.source(now)]; mine && other != nil {
				other.signal() // until now it could not have it
			}
		case muted > 0:
			wait = min(wait, muted)
		case r.retryAt.After(now):
			wait = min(wait, r.retryAt.Sub(now))
		case r.unchecked:
			r.inflight = s
			checks = append(checks, f.ask(key, r, n, most))
		case r.queued > 0 && r.queued+int64(most) > buffer:
			// Full: paused until its reader has decoded a chunk.
		case held > 0 && held+f.mem.raw.Bytes(most) > part:
			// It has its part: paused until its reader's batches are released.
		default:
			ask = true
		}
		switch {
		case !ask && r.source(now) == n.id:
			r.leaveQueue() // others may have the memory meanwhile
		case ask && f.granted(r, most):
			r.inflight = s
			a := f.ask(key, r, n, most)
			a.grant = r.ticket.Take()
			r.ticket = nil
			parts = append(parts, a)
		}
		r.mu.Unlock()
	}
	// A broker fills the answer in the request's order, and returns a batch
	// larger than the limit for the first partition only: the random order of
	// the map gives each its turn; in a session the broker takes turns.
	return parts, checks, wait
}

// ask is the question for r. r.mu is held, and f.mu.
func (f *Fetcher) ask(key topicPartition, r *PartitionReader, n *leaderNode, most int) asked {
	return asked{
		r: r, gen: r.gen, topicID: f.ids[key.topic], offset: r.fetchAt,
		epoch: r.epoch, lastEpoch: r.lastEpoch, maxBytes: int32(most), replica: n.id != r.node,
	}
}

// granted reports whether r has the memory for an answer of most bytes, and queues for
// it where it has not. r.mu is held.
func (f *Fetcher) granted(r *PartitionReader, most int) bool {
	bytes := f.mem.raw.Bytes(most)
	if r.ticket != nil && r.ticket.Bytes() != bytes {
		r.leaveQueue()
	}
	if r.ticket == nil {
		t, err := f.mem.budget.Fetched().Ask(bytes, 0, f.memoryReady)
		if err != nil { // it shrank since accept has looked: not of a budget
			panic("kafka: " + err.Error())
		}
		r.ticket = t
	}
	return r.ticket.Granted()
}

// leaveQueue gives up what r waits for, or has and does not use. r.mu is held.
func (r *PartitionReader) leaveQueue() {
	if r.ticket != nil {
		r.ticket.Cancel()
		r.ticket = nil
	}
}

// memoryReady tells that a partition that waited for memory has it.
func (f *Fetcher) memoryReady() {
	select {
	case f.memoryFree <- struct{}{}:
	default:
	}
}

// passMemory wakes the brokers' loops when a partition that waited for memory has it,
// until ctx ends. Who gives memory back may hold a lock that waking them takes.
func (f *Fetcher) passMemory(ctx context.Context) {
	for {
		select {
		case <-f.memoryFree:
		case <-ctx.Done():
			return
		}
		f.mu.Lock()
		for _, n := range f.nodes {
			n.signal()
		}
		f.mu.Unlock()
	}
}
