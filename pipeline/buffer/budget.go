package buffer

import (
	"sync"

	"sluice/cell"
	"sluice/counters"
	"sluice/pipeline/memory"
	"sluice/store"
)

// chunkBytes is the size of a chunk of copied keys and values. Smaller, and a
// chunk ends every few records; larger, and a thousand idle partitions with one
// record each hold real memory.
const chunkBytes = 32 << 10

// chunkOps is how many operations a chunk holds: 24 KiB.
const chunkOps = 256

// Budget is the buffered memory of all partitions: the limit, and what they reuse.
// Chunks and slices that were released wait in it for the next partition that needs
// them, below the limit together with what is in use. It is safe for concurrent use.
type Budget struct {
	share  *memory.Share
	chunks *memory.Pool[byte]
	ops    *memory.Pool[cell.Op]
	bodies *memory.Shelf[*body]

	batches sync.Pool // of *Batch, without memory
}

// NewBudget returns a budget of limit bytes, for buffers that share memory with
// nothing else. Its error says that limit is not positive.
func NewBudget(limit int64) (*Budget, error) {
	s, err := memory.NewShare("buffered", limit)
	if err != nil {
		return nil, err
	}
	return NewBudgetOf(s), nil
}

// NewBudgetOf returns a budget of the buffered memory of a process. It lives as long as
// the share.
func NewBudgetOf(s *memory.Share) *Budget {
	// What is made first is let go of first: idle bodies point at operations, and
	// these at keys and values.
	b := &Budget{share: s, bodies: memory.NewShelf[*body](s)}
	b.ops = memory.NewPool[cell.Op](s)
	b.chunks = memory.NewPool[byte](s)
	return b
}

// Limit returns the limit in bytes.
func (b *Budget) Limit() int64 { return b.share.Limit() }

// Used returns the bytes that are held now, never above Limit.
func (b *Budget) Used() int64 { return b.share.Used() }

// batch lends an empty batch.
func (b *Budget) batch() *Batch {
	batch, ok := b.batches.Get().(*Batch)
	if !ok {
		batch = &Batch{budget: b}
	}
	batch.grant = b.share.Empty()
	return batch
}

// body is what a batch is built in besides chunks: slices that keep the size of the
// batches that they have held.
type body struct {
	mutations []store.Mutation
	counters  []store.CounterDelta
	coalescer *counters.Coalescer
}

// size returns the memory that s holds.
func (s *body) size() int64 {
	return int64(cap(s.mutations))*mutationSize + int64(cap(s.counters))*deltaSize + int64(s.coalescer.Held())
}

// grown returns the capacity that a slice of length n and capacity room is to have
// for more elements: room where they fit.
func grown(n, room, more int) int {
	if n+more <= room {
		return room
	}
	return max(64, 2*room, n+more)
}

// grow returns s with room for n elements more, as grown says.
func grow[T any](s []T, n int) []T {
	if room := grown(len(s), cap(s), n); room > cap(s) {
		return append(make([]T, 0, room), s...)
	}
	return s
}

// demand is what a record needs of a batch's memory.
type demand struct {
	bytes     int   // of keys and values, in a chunk
	ops       int   // in a chunk
	mutations int   // of Store.Mutations
	deltas    int   // of Store.Counters, now or when the batch is taken
	sums      int   // of the coalescer, of the deltas
	keys      int   // bytes of these
	own       int64 // bytes that are the record's own
}

// needs returns how much memory is allocated for z, in bytes, while what is outgrown is
// still held; grows where that is not in chunks alone.
func (b *Batch) needs(z *demand) (n int64, grows bool) {
	n = z.own
	switch last := len(b.chunks) - 1; {
	case z.bytes > chunkBytes/4:
		n += int64(z.bytes)
	case z.bytes > 0 && (last < 0 || cap(b.chunks[last])-len(b.chunks[last]) < z.bytes):
		n += chunkBytes
	}
	switch last := len(b.opChunks) - 1; {
	case z.ops > chunkOps/4:
		n += int64(z.ops) * opSize
	case z.ops > 0 && (last < 0 || cap(b.opChunks[last])-len(b.opChunks[last]) < z.ops):
		n += chunkOps * opSize
	}
	outside := n
	var s body
	if b.body != nil {
		s = body{b.Store.Mutations, b.Store.Counters, b.body.coalescer}
	}
	if room := grown(len(s.mutations), cap(s.mutations), z.mutations); room > cap(s.mutations) {
		n += int64(room) * mutationSize
	}
	if room := grown(len(s.counters)+s.coalescer.Len(), cap(s.counters), z.deltas); room > cap(s.counters) {
		n += int64(room) * deltaSize
	}
	if b.body == nil || z.sums > 0 {
		n += int64(s.coalescer.Growth(z.sums, z.keys))
	}
	return n, n > outside
}

// prepare allocates what needs has counted besides chunks and the record's own.
func (b *Batch) prepare(z *demand) {
	before := int64(0)
	if b.body == nil {
		b.body = &body{coalescer: counters.NewCoalescer()}
	} else {
		before = b.size()
	}
	b.Store.Mutations = grow(b.Store.Mutations, z.mutations)
	if sums := b.body.coalescer.Len(); len(b.Store.Counters)+sums+z.deltas > cap(b.Store.Counters) {
		room := grown(len(b.Store.Counters)+sums, cap(b.Store.Counters), z.deltas)
		b.Store.Counters = append(make([]store.CounterDelta, 0, room), b.Store.Counters...)
	}
	if z.sums > 0 {
		b.body.coalescer.Reserve(z.sums, z.keys)
	}
	b.taken += b.size() - before
}

// size returns the memory of the batch's body as it is now.
func (b *Batch) size() int64 {
	return (&body{b.Store.Mutations, b.Store.Counters, b.body.coalescer}).size()
}

// embody gives the batch a body that another has released, where there is one.
func (b *Batch) embody() {
	if s, bytes, ok := b.budget.bodies.Get(&b.grant); ok {
		b.body, b.taken = s, b.taken+bytes
		b.Store.Mutations, b.Store.Counters = s.mutations, s.counters
	}
}

// disembody gives the body back for the next batch.
func (b *Batch) disembody() {
	s := b.body
	if s == nil {
		return
	}
	if b.large {
		clear(b.Store.Mutations)
		clear(b.Store.Counters)
	}
	s.mutations, s.counters = b.Store.Mutations[:0], b.Store.Counters[:0]
	s.coalescer.Reset()
	bytes := s.size()
	b.Store.Mutations, b.Store.Counters, b.body = nil, nil, nil
	b.taken -= bytes
	b.budget.bodies.Return(&b.grant, s, bytes)
}

// free gives the memory of the batch back for the next ones.
func (b *Batch) free() {
	b.disembody()
	for _, c := range b.opChunks {
		if b.large {
			clear(c) // costs 60 ns a record, and nothing needs it otherwise
		}
		b.budget.ops.Return(&b.grant, c)
	}
	for _, c := range b.chunks {
		b.budget.chunks.Return(&b.grant, c)
	}
	clear(b.chunks)
	clear(b.opChunks)
	b.chunks, b.opChunks = b.chunks[:0], b.opChunks[:0]
	b.large, b.taken = false, 0
	b.grant.Release()
}
