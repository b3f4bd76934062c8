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
	putSize      = int64(unsafe.Sizeof(store.PackedPut{}))
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

	budget     *Budget
	countsFrom func(table, family string) cell.Timestamp // the Buffer's
	grant      memory.Grant                              // of the budget: the memory that is allocated, ≥ Bytes, and spare
	spare      int64                                     // granted to one who has waited, and not allocated yet
	want       int64                                     // size of the body that it is likely to need
	body       *body                                     // nil = nothing is in it
	chunks     [][]byte
	opChunks   [][]cell.Op
	unitPuts   []store.PackedPut // the last of those that Store.Records share
	deletes    bool              // has a delete: no increment may follow
	alone      bool              // has a record that must be the only one
	large      bool              // has memory besides the chunks, to be let go of
}

// Release gives the batch's memory back to the budget. The batch and every slice
// of it are invalid afterwards.
func (b *Batch) Release() {
	b.free()
	clear(b.Store.Records) // their memory is their own
	b.Store.Reset()
	b.Store.Records, b.unitPuts = nil, nil
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

// writer is where the copy of a record goes.
type writer struct {
	offset int64
	arena  []byte
	ops    []cell.Op
}

// deltas adds the increments of m each as its own, not summed.
func (b *Batch) deltas(w *writer, m *cell.Mutation) {
	for i := range m.Ops {
		op := &m.Ops[i]
		if op.Type != cell.OpIncrement {
			continue
		}
		d := store.CounterDelta{Table: m.Table, Family: op.Family, Delta: op.Delta, Time: op.Time, Offset: w.offset}
		w.arena, d.Row = put(w.arena, m.Row)
		w.arena, d.Qualifier = put(w.arena, op.Qualifier)
		b.Store.Counters = append(b.Store.Counters, d)
	}
}

// put adds m, a packed put unless it has nothing but increments.
func (b *Batch) put(w *writer, m *cell.Mutation) {
	if len(m.Ops) == 0 || m.Ops[0].Type == cell.OpIncrement {
		return
	}
	rest, ok := b.Store.Pack(w.arena, w.offset, m)
	if !ok {
		panic("buffer: a packed put does not fit what store.PackedPutSize says of it")
	}
	w.arena = rest
	b.Ops.Puts += int64(len(m.Ops))
}

// mutation adds what m has besides increments.
func (b *Batch) mutation(w *writer, m *cell.Mutation) {
	var row []byte
	first := len(w.ops)
	for i := range m.Ops {
		op := &m.Ops[i]
		if op.Type == cell.OpIncrement {
			continue
		}
		if len(w.ops) == first {
			w.arena, row = put(w.arena, m.Row)
		}
		b.Ops.add(op.Type)
		w.ops = append(w.ops, *op)
		to := &w.ops[len(w.ops)-1]
		w.arena, to.Qualifier = put(w.arena, op.Qualifier)
		w.arena, to.Value = put(w.arena, op.Value)
	}
	if ops := w.ops[first:len(w.ops):len(w.ops)]; len(ops) > 0 {
		b.Store.Add(w.offset, cell.Mutation{Table: m.Table, Row: row, Ops: ops, Read: copyRange(m.Read)})
	}
}
