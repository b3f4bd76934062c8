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
	return BudgetOf(s), nil
}

// BudgetOf returns the budget of the buffered memory of a process, the same one each time.
// It lives as long as the share.
func BudgetOf(s *memory.Share) *Budget { return memory.Only(s, newBudget) }

func newBudget(s *memory.Share) *Budget {
	b := &Budget{share: s}
	// What is made first is let go of first: idle operations point at keys and values.
	// Bodies point at nothing, and cost most to make anew.
	b.ops = memory.NewPool[cell.Op](s)
	b.chunks = memory.NewPool[byte](s)
	b.bodies = memory.NewShelf[*body](s)
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
	puts      []store.PackedPut
	mutations []store.Mutation
	counters  []store.CounterDelta
	coalescer *counters.Coalescer
}

// size returns the memory that s holds.
func (s *body) size() int64 {
	return int64(cap(s.puts))*putSize + int64(cap(s.mutations))*mutationSize + int64(cap(s.counters))*deltaSize + int64(s.coalescer.Held())
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
	puts      int   // of Store.Puts
	mutations int   // of Store.Mutations
	deltas    int   // of Store.Counters, now or when the batch is taken
	sums      int   // of the coalescer, of the deltas
	keys      int   // bytes of these
	own       int64 // bytes that are the record's own
}

// increments adds the operations of m, to be summed, where they are increments and nothing
// else, and reports whether they are.
func (z *demand) increments(m *cell.Mutation) bool {
	keys := len(m.Ops) * len(m.Row)
	for i := range m.Ops {
		if m.Ops[i].Type != cell.OpIncrement {
			return false
		}
		keys += len(m.Ops[i].Qualifier)
	}
	z.deltas += len(m.Ops)
	z.sums += len(m.Ops)
	z.keys += keys
	return true
}

// alone returns the bytes that are allocated for z with nothing else in the batch.
func (z *demand) alone() int64 {
	n := z.large()
	if z.bytes > 0 && z.bytes <= chunkBytes/4 {
		n += chunkBytes
	}
	if z.ops > 0 && z.ops <= chunkOps/4 {
		n += chunkOps * opSize
	}
	return n + new(Batch).growth(z)
}

// large returns the bytes of z that are in no chunk and in no body.
func (z *demand) large() int64 {
	n := z.own
	if z.bytes > chunkBytes/4 {
		n += int64(z.bytes)
	}
	if z.ops > chunkOps/4 {
		n += int64(z.ops) * opSize
	}
	return n
}

// room returns how many more elements fit the last of chunks.
func room[T any](chunks [][]T) int {
	if len(chunks) == 0 {
		return 0
	}
	last := chunks[len(chunks)-1]
	return cap(last) - len(last)
}

// fits reports whether the batch holds all memory that z needs. It is asked for each
// record.
func (b *Batch) fits(z *demand) bool {
	return z.own == 0 && z.bytes <= min(room(b.chunks), chunkBytes/4) && z.ops <= min(room(b.opChunks), chunkOps/4) && b.body != nil &&
		len(b.Store.Puts)+z.puts <= cap(b.Store.Puts) && len(b.Store.Mutations)+z.mutations <= cap(b.Store.Mutations) &&
		(z.deltas == 0 || len(b.Store.Counters)+b.body.coalescer.Len()+z.deltas <= cap(b.Store.Counters)) &&
		(z.sums == 0 || b.body.coalescer.Growth(z.sums, z.keys) == 0)
}

// provide allocates what z needs and the batch does not hold. It reports false where
// there is no memory for it; then the batch may hold a part of it.
func (b *Batch) provide(z *demand) bool {
	if b.body == nil {
		b.embody()
	}
	if n := b.growth(z); n > 0 {
		if !b.grow(n) {
			return false
		}
		b.prepare(z, n)
	}
	var ok bool
	if b.opChunks, ok = provide(b, b.opChunks, b.budget.ops, z.ops, chunkOps); !ok {
		return false
	}
	if b.chunks, ok = provide(b, b.chunks, b.budget.chunks, z.bytes, chunkBytes); !ok {
		return false
	}
	return b.grow(z.large())
}

// provide returns chunks with room for n elements in the last one, which has size of
// them. What is larger than a quarter is in none.
func provide[T any](b *Batch, chunks [][]T, pool *memory.Pool[T], n, size int) ([][]T, bool) {
	if n <= room(chunks) || n > size/4 {
		return chunks, true
	}
	if bytes := pool.Bytes(size); b.spare >= bytes {
		b.spare -= bytes
		return append(chunks, pool.Get(size)), true
	}
	chunk, ok := pool.Take(&b.grant, size)
	if !ok {
		return chunks, false
	}
	return append(chunks, chunk), true
}

// grow takes n bytes.
func (b *Batch) grow(n int64) bool {
	if b.spare >= n {
		b.spare -= n
		return true
	}
	return b.grant.Grow(n)
}

// growth returns the bytes that prepare allocates, while what is outgrown is still held.
func (b *Batch) growth(z *demand) (n int64) {
	var c *counters.Coalescer
	if b.body != nil {
		c = b.body.coalescer
	}
	if room := grown(len(b.Store.Puts), cap(b.Store.Puts), z.puts); room > cap(b.Store.Puts) {
		n += int64(room) * putSize
	}
	if room := grown(len(b.Store.Mutations), cap(b.Store.Mutations), z.mutations); room > cap(b.Store.Mutations) {
		n += int64(room) * mutationSize
	}
	if room := grown(len(b.Store.Counters)+c.Len(), cap(b.Store.Counters), z.deltas); room > cap(b.Store.Counters) {
		n += int64(room) * deltaSize
	}
	if c == nil || z.sums > 0 {
		n += int64(c.Growth(z.sums, z.keys))
	}
	return n
}

// prepare allocates the n bytes that growth has counted, and gives back what is outgrown.
func (b *Batch) prepare(z *demand, n int64) {
	if b.body == nil {
		b.body = &body{coalescer: counters.NewCoalescer()}
		b.body.coalescer.CountFrom(b.countsFrom)
		n -= int64(b.body.coalescer.Held()) // it is there already
	}
	before := b.size()
	b.Store.Puts = grow(b.Store.Puts, z.puts)
	b.Store.Mutations = grow(b.Store.Mutations, z.mutations)
	if sums := b.body.coalescer.Len(); len(b.Store.Counters)+sums+z.deltas > cap(b.Store.Counters) {
		room := grown(len(b.Store.Counters)+sums, cap(b.Store.Counters), z.deltas)
		b.Store.Counters = append(make([]store.CounterDelta, 0, room), b.Store.Counters...)
	}
	if z.sums > 0 {
		b.body.coalescer.Reserve(z.sums, z.keys)
	}
	b.grant.Shrink(b.grant.Bytes() - (before + n - b.size()))
}

// size returns the memory of the batch's body as it is now.
func (b *Batch) size() int64 {
	return (&body{b.Store.Puts, b.Store.Mutations, b.Store.Counters, b.body.coalescer}).size()
}

// used returns the bytes of the body that hold something.
func (b *Batch) used() int64 {
	if b.body == nil {
		return 0
	}
	return int64(len(b.Store.Puts))*putSize + int64(len(b.Store.Mutations))*mutationSize + int64(len(b.Store.Counters))*deltaSize + int64(b.body.coalescer.Bytes())
}

// embody gives the batch a body that another has released, where there is one.
func (b *Batch) embody() {
	if s, _, ok := b.budget.bodies.Get(&b.grant, b.want); ok {
		b.body = s
		s.coalescer.CountFrom(b.countsFrom)
		b.Store.Puts, b.Store.Mutations, b.Store.Counters = s.puts, s.mutations, s.counters
	}
}

// disembody gives the body back for the next batch.
func (b *Batch) disembody() {
	s := b.body
	if s == nil {
		return
	}
	clear(b.Store.Puts) // they point at chunks, which may be let go of first
	clear(b.Store.Mutations)
	clear(b.Store.Counters)
	s.puts, s.mutations, s.counters = b.Store.Puts[:0], b.Store.Mutations[:0], b.Store.Counters[:0]
	s.coalescer.Reset()
	bytes := s.size()
	b.Store.Puts, b.Store.Mutations, b.Store.Counters, b.body = nil, nil, nil, nil
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
	b.large, b.spare = false, 0
	b.grant.Release()
}
