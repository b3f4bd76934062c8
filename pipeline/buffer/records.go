package buffer

import (
	"context"
	"slices"
	"unsafe"

	"sluice/cell"
	"sluice/store"
)

const (
	// chunkUnitPuts is how many packed puts of units are allocated at a time.
	chunkUnitPuts = 128

	recordSize = int64(unsafe.Sizeof(store.Record{}))
	condSize   = int64(unsafe.Sizeof(store.Cond{}))
)

// AddRecords buffers what the record at offset became where the store decides what
// of it is applied: all of rs in one batch, in order, nothing of it summed. Their
// Offset is not read; an event id in Once gets the name of the pipeline in front,
// as the ids of all sources share one space.
//
// Units and sums never share a batch: a sum would take effect behind all of them.
// Where nothing is ever summed (Options.Separate), units of which nothing is to be
// decided are added as Add does. The error is as Add's.
func (b *Buffer) AddRecords(ctx context.Context, offset int64, pipeline string, rs []store.Record) error {
	if b.never && !slices.ContainsFunc(rs, func(r store.Record) bool { return r.Once != nil || r.Cond != nil || r.Checks != nil }) {
		var ms []cell.Mutation
		for i := range rs {
			ms = append(ms, rs[i].Mutations...)
		}
		return b.Add(ctx, offset, ms)
	}
	c := b.cur
	if c.alone || c.sums() > 0 || len(c.Store.Counters) > 0 {
		return ErrFull
	}
	var z recordSizes
	b.packed = b.packed[:0]
	for i := range rs {
		b.packed = append(b.packed, z.addPacked(&rs[i], pipeline))
	}
	own := int64(z.mutations)*mutationSize + int64(z.conds)*condSize + int64(len(rs))*recordSize
	need := own + int64(z.puts)*putSize + int64(z.bytes) + int64(z.ops)*opSize
	if more := len(c.Store.Records) + len(rs); more > cap(c.Store.Records) {
		own += int64(grown(len(c.Store.Records), cap(c.Store.Records), len(rs))) * recordSize
	}
	puts, room := c.unitPuts, 0
	if z.puts > cap(puts)-len(puts) {
		room = max(z.puts, chunkUnitPuts)
		own += int64(room) * putSize
	}
	if err := b.reserve(ctx, &demand{bytes: z.bytes, ops: z.ops, own: own}); err != nil {
		return err
	}
	if room > 0 {
		puts = make([]store.PackedPut, 0, room)
	}
	c.Store.Records = grow(c.Store.Records, len(rs))
	b.cover(offset)
	c.Counts.Applied++
	w := z.copier(c.alloc(z.bytes), c.allocOps(z.ops))
	w.puts = puts
	for i := range rs {
		r := w.record(&rs[i], pipeline, b.packed[i])
		r.Offset = offset
		c.Store.Records = append(c.Store.Records, r)
		for j := range rs[i].Mutations {
			ops := rs[i].Mutations[j].Ops
			for k := range ops {
				c.Ops.add(ops[k].Type)
			}
		}
	}
	c.unitPuts = w.puts
	c.Bytes += need
	return nil
}

// CloneRecords returns a copy of rs in memory of its own, their event ids as
// AddRecords makes them.
func CloneRecords(pipeline string, rs []store.Record) []store.Record {
	var z recordSizes
	for i := range rs {
		z.add(&rs[i], pipeline)
	}
	w := z.copier(make([]byte, 0, z.bytes), make([]cell.Op, 0, z.ops))
	out := make([]store.Record, len(rs))
	for i := range rs {
		out[i] = w.record(&rs[i], pipeline, false)
		out[i].Offset = rs[i].Offset
	}
	return out
}

// recordSizes is what the units of a record take.
type recordSizes struct{ bytes, ops, mutations, puts, conds int }

// increments reports whether m is nothing but increments.
func increments(m *cell.Mutation) bool {
	for i := range m.Ops {
		if m.Ops[i].Type != cell.OpIncrement {
			return false
		}
	}
	return true
}

// addPacked is add of a unit whose puts are packed, and reports whether they are: where each
// mutation is a packed put or has nothing but increments, and nothing is tested. A put does
// not see what increments do.
func (z *recordSizes) addPacked(r *store.Record, pipeline string) bool {
	packed := *z
	packed.once(r, pipeline)
	ok := r.Cond == nil && r.Checks == nil && r.Asides == nil
	for i := 0; ok && i < len(r.Mutations); i++ {
		m := &r.Mutations[i]
		if increments(m) {
			packed.mutation(m)
			continue
		}
		var n int
		n, ok = store.PackedPutSize(m)
		packed.bytes += n
		packed.puts++
	}
	if !ok {
		z.add(r, pipeline)
		return false
	}
	*z = packed
	return true
}

func (z *recordSizes) add(r *store.Record, pipeline string) {
	z.once(r, pipeline)
	for i := range r.Mutations {
		z.mutation(&r.Mutations[i])
	}
	z.cond(r.Cond)
	for _, c := range r.Checks {
		z.cond(c)
	}
}

func (z *recordSizes) once(r *store.Record, pipeline string) {
	if r.Once != nil {
		z.bytes += 2*len(pipeline) + 2 + len(r.Once) // a zero byte of the name becomes two
	}
}

func (z *recordSizes) mutation(m *cell.Mutation) {
	z.mutations++
	z.ops += len(m.Ops)
	z.bytes += len(m.Row)
	for i := range m.Ops {
		z.bytes += len(m.Ops[i].Qualifier) + len(m.Ops[i].Value)
	}
}

func (z *recordSizes) cond(c *store.Cond) {
	if c != nil {
		z.conds++
		z.bytes += len(c.Qualifier) + len(c.Value)
	}
}

// copier returns a copier into bytes and ops, which have room.
func (z *recordSizes) copier(bytes []byte, ops []cell.Op) *recordCopier {
	return &recordCopier{bytes: bytes, ops: ops, mutations: make([]cell.Mutation, 0, z.mutations), conds: make([]store.Cond, 0, z.conds)}
}

// recordCopier copies the units of a record into memory that has room for them.
type recordCopier struct {
	bytes     []byte
	puts      []store.PackedPut
	ops       []cell.Op
	mutations []cell.Mutation
	conds     []store.Cond
}

func (w *recordCopier) put(v []byte) (copied []byte) {
	w.bytes, copied = put(w.bytes, v)
	return copied
}

// record copies r, its puts packed or not, as addPacked or add has measured it.
func (w *recordCopier) record(r *store.Record, pipeline string, packed bool) store.Record {
	to := store.Record{OnceTTL: r.OnceTTL, Cond: w.cond(r.Cond)}
	if r.Once != nil {
		n := len(w.bytes)
		w.bytes = store.AppendOnce(w.bytes, pipeline, r.Once)
		to.Once = w.bytes[n:len(w.bytes):len(w.bytes)]
	}
	if r.Checks != nil {
		to.Checks = make([]*store.Cond, len(r.Checks))
		for i, c := range r.Checks {
			to.Checks[i] = w.cond(c)
		}
	}
	first, firstPut := len(w.mutations), len(w.puts)
	for i := range r.Mutations {
		m := &r.Mutations[i]
		if packed && !increments(m) {
			var ok bool
			if w.puts, w.bytes, ok = store.PackPut(w.puts, w.bytes, -1, m); !ok {
				panic("buffer: a packed put does not fit what store.PackedPutSize says of it")
			}
			continue
		}
		row := w.put(m.Row)
		n := len(w.ops)
		for j := range m.Ops {
			op := m.Ops[j]
			op.Qualifier, op.Value = w.put(op.Qualifier), w.put(op.Value)
			w.ops = append(w.ops, op)
		}
		w.mutations = append(w.mutations, cell.Mutation{Table: m.Table, Row: row, Ops: w.ops[n:len(w.ops):len(w.ops)], Read: copyRange(m.Read)})
	}
	to.Mutations = w.mutations[first:len(w.mutations):len(w.mutations)]
	if n := len(w.puts); n > firstPut {
		to.Puts = w.puts[firstPut:n:n]
	}
	return to
}

func (w *recordCopier) cond(c *store.Cond) *store.Cond {
	if c == nil {
		return nil
	}
	n := *c
	n.Qualifier, n.Value = w.put(c.Qualifier), w.put(c.Value)
	w.conds = append(w.conds, n)
	return &w.conds[len(w.conds)-1]
}
