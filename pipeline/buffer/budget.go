package buffer

import (
	"context"
	"fmt"
	"sync"

	"sluice/cell"
	"sluice/counters"
)

// chunkBytes is the size of a chunk of copied keys and values. Smaller, and a
// chunk ends every few records; larger, and a thousand idle partitions with one
// record each hold real memory.
const chunkBytes = 32 << 10

// chunkOps is how many operations a chunk holds: 24 KiB.
const chunkOps = 256

// Budget is one limit of bytes for the buffers of all partitions, together with
// the memory that they reuse: chunks and batches that were released wait in it
// for the next partition that needs them. It is safe for concurrent use.
//
// Callers that wait are served in order, so that a large request is not starved
// by small ones. A request above the limit is granted when nothing else is held,
// so that a record larger than the limit passes alone.
type Budget struct {
	limit int64

	mu      sync.Mutex
	used    int64
	waiters []*waiter

	chunks  [][]byte
	ops     [][]cell.Op
	batches []*Batch
}

type waiter struct {
	n     int64
	ready chan struct{} // closed when granted
}

// NewBudget returns a budget of limit bytes. Its error says that limit is not
// positive.
func NewBudget(limit int64) (*Budget, error) {
	if limit <= 0 {
		return nil, fmt.Errorf("buffer: budget of %d bytes, must be positive", limit)
	}
	return &Budget{limit: limit}, nil
}

// Limit returns the limit in bytes.
func (b *Budget) Limit() int64 { return b.limit }

// Used returns the bytes that are held now. It is above Limit only where a
// single record is larger than it.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// TryAcquire takes n bytes if they are free and nobody waits for some.
func (b *Budget) TryAcquire(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiters) > 0 || !b.fits(n) {
		return false
	}
	b.used += n
	return true
}

// Acquire takes n bytes and waits for them. Its error wraps ctx's.
func (b *Budget) Acquire(ctx context.Context, n int64) error {
	b.mu.Lock()
	if len(b.waiters) == 0 && b.fits(n) {
		b.used += n
		b.mu.Unlock()
		return nil
	}
	w := &waiter{n: n, ready: make(chan struct{})}
	b.waiters = append(b.waiters, w)
	b.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.ready: // granted while giving up
		b.used -= n
	default:
		for i, other := range b.waiters {
			if other == w {
				b.waiters = append(b.waiters[:i], b.waiters[i+1:]...)
				break
			}
		}
	}
	b.grant()
	return fmt.Errorf("wait for %d of %d bytes of buffer memory: %w", n, b.limit, context.Cause(ctx))
}

// Release gives n bytes back.
func (b *Budget) Release(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.used < 0 {
		panic("buffer: more memory released than acquired")
	}
	b.grant()
}

func (b *Budget) fits(n int64) bool { return b.used+n <= b.limit || b.used == 0 }

func (b *Budget) grant() {
	for len(b.waiters) > 0 && b.fits(b.waiters[0].n) {
		b.used += b.waiters[0].n
		close(b.waiters[0].ready)
		b.waiters = b.waiters[1:]
	}
}

// charge takes n bytes that are in use already.
func (b *Budget) charge(n int64) {
	b.mu.Lock()
	b.used += n
	b.mu.Unlock()
}

func (b *Budget) chunk() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.chunks); n > 0 {
		c := b.chunks[n-1]
		b.chunks = b.chunks[:n-1]
		return c
	}
	return make([]byte, 0, chunkBytes)
}

func (b *Budget) opChunk() []cell.Op {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.ops); n > 0 {
		c := b.ops[n-1]
		b.ops = b.ops[:n-1]
		return c
	}
	return make([]cell.Op, 0, chunkOps)
}

func (b *Budget) batch() *Batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.batches); n > 0 {
		batch := b.batches[n-1]
		b.batches = b.batches[:n-1]
		return batch
	}
	return &Batch{budget: b, coalescer: counters.NewCoalescer()}
}

// reclaim takes an emptied batch and its chunks back. What is kept for reuse
// stays below the limit: beyond it the garbage collector gets them.
func (b *Budget) reclaim(batch *Batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	room := b.limit - int64(len(b.chunks))*chunkBytes - int64(len(b.ops))*chunkOps*opSize
	for _, c := range batch.chunks {
		if room -= chunkBytes; room < 0 {
			batch.large = true // the operations still point into it
			break
		}
		b.chunks = append(b.chunks, c[:0])
	}
	for _, c := range batch.opChunks {
		if room -= chunkOps * opSize; room < 0 {
			break
		}
		if batch.large {
			clear(c) // costs 60 ns a record, and nothing needs it otherwise
		}
		b.ops = append(b.ops, c[:0])
	}
	batch.large = false
	clear(batch.chunks)
	clear(batch.opChunks)
	batch.chunks, batch.opChunks = batch.chunks[:0], batch.opChunks[:0]
	if int64(len(b.batches)+1)*(1<<20) <= b.limit { // a batch keeps about 1 MiB of slices
		b.batches = append(b.batches, batch)
	}
}
