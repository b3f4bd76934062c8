package buffer

import (
	"time"
	"unsafe"

	"sluice/cell"
	"sluice/pipeline/memory"
	"sluice/store"
)

const (
	opSize       = int64(unsafe.Sizeof(cell.Op{}))
	mutationSize = int64(unsafe.Sizeof(store.Mutation{}))
	deltaSize    = int64(unsafe.Sizeof(store.CounterDelta{}))
)

// Letters counts dead letters of one stage and class.
type Letters struct {
	Stage string
	Class string
	N     int64
}

// Counts is what became of the offsets that a batch covers.
type Counts struct {
	Applied, Filtered, Dead, Dropped, Control int64

	Aborted int64 // of Control
	Late    int64 // of Applied
}

// Ops counts what a batch changes, by kind: increments as they are handed over, one
// a counter where they were summed. Dead letters are no part of it.
type Ops struct {
	Increments, Puts, Deletes, Appends int64
}

func (n *Ops) add(t cell.OpType) {
	switch t {
	case cell.OpIncrement:
		n.Increments++
	case cell.OpPut:
		n.Puts++
	case cell.OpAppend:
		n.Appends++
	default:
		n.Deletes++
	}
}

// Summary is what a batch stands for. It outlives the batch.
type Summary struct {
	From     int64          // stored offset that the batch expects; store.Absent for the first
	Progress store.Progress // what the batch stores
	Counts   Counts         // of this batch alone
	Ops      Ops
	Records  int       // in it, whatever became of them
	Bytes    int64     // memory that its content takes
	Dead     []Letters // its dead letters by stage and class
	// Unapplied is how many of Counts.Applied the store has dropped; set by
	// who applies the batch.
	Unapplied store.Unapplied
	Opened    time.Time // when its first record was added
}

// Batch is a filled buffer: what Engine.Apply takes, and what it stands for. It
// belongs to one goroutine at a time and dies with Release.
type Batch struct {
	Summary
	// Store holds the mutations, the counters' sums and the one Advance.
	Store store.Batch

	budget   *Budget
	grant    memory.Grant // of the budget: the memory that is allocated, ≥ Bytes, and spare
	spare    int64        // granted to one who has waited, and not allocated yet
	want     int64        // size of the body that it is likely to need
	body     *body        // nil = nothing is in it
	chunks   [][]byte
	opChunks [][]cell.Op
	deletes  bool // has a delete: no increment may follow
	alone    bool // has a record that must be the only one
	large    bool // has memory besides the chunks, to be let go of
}

// Release gives the batch's memory back to the budget. The batch and every slice
// of it are invalid afterwards.
func (b *Batch) Release() {
	b.free()
	clear(b.Store.Records) // their memory is their own
	b.Store.Reset()
	b.Store.Records = nil
	b.Summary = Summary{}
	b.deletes, b.alone = false, false
	b.budget.batches.Put(b) // it is somebody else's from here on
}

// sums returns how many counters are summed.
func (b *Batch) sums() int {
	if b.body == nil {
		return 0
	}
	return b.body.coalescer.Len()
}

// empty reports whether nothing was covered since the last Take.
func (b *Batch) empty() bool { return b.Counts == Counts{} }

// alloc returns n bytes of the arena, which provide has made, with no spare capacity.
func (b *Batch) alloc(n int) []byte {
	if n > chunkBytes/4 {
		b.large = true
		return make([]byte, 0, n) // rare, and it would waste up to a whole chunk
	}
	return ahead(b.chunks, n)
}

// allocOps returns n operations of the arena, as alloc does.
func (b *Batch) allocOps(n int) []cell.Op {
	if n > chunkOps/4 {
		b.large = true
		return make([]cell.Op, 0, n)
	}
	return ahead(b.opChunks, n)
}

// ahead takes n elements off the last chunk, which has room for them.
func ahead[T any](chunks [][]T, n int) []T {
	if n == 0 {
		return nil
	}
	last := len(chunks) - 1
	c := chunks[last]
	chunks[last] = c[:len(c)+n]
	return c[len(c) : len(c) : len(c)+n]
}

// sumDeltas moves the coalesced counters into Store.
func (b *Batch) sumDeltas() {
	if b.body == nil {
		return
	}
	for d := range b.body.coalescer.Deltas {
		b.Store.Counters = append(b.Store.Counters, store.CounterDelta(d))
	}
}

// delta adds an increment of its own, not summed, with its key in arena.
func (b *Batch) delta(offset int64, m *cell.Mutation, op *cell.Op, arena []byte) []byte {
	d := store.CounterDelta{Table: m.Table, Family: op.Family, Delta: op.Delta, Time: op.Time, Offset: offset}
	arena, d.Row = put(arena, m.Row)
	arena, d.Qualifier = put(arena, op.Qualifier)
	b.Store.Counters = append(b.Store.Counters, d)
	return arena
}
