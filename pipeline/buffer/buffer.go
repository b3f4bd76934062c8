// Package buffer is the client-side write buffer between the mapping and the
// store: one Buffer a partition collects what records became, sums their
// increments per counter, and hands over a Batch that carries the partition's
// next offset and its audit counts. DESIGN.md says why it is built so.
//
// A Buffer copies everything that it is given, so the mapper's output and the
// fetched records may die at once. A Batch that was taken belongs to the taker
// until its Release; then its memory serves the next one. All buffers of a
// process share one Budget of bytes.
//
// A Buffer belongs to one goroutine at a time; a Budget is safe for concurrent
// use. The package does no I/O: who applies a batch, in which order, and what
// happens after an error is package pipeline's business.
package buffer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sluice/cell"
	"sluice/store"
)

// Defaults of Options.
const (
	// DefaultMaxRecords is as many as one commit takes (design D6). A commit
	// of 20,000 costs 15 % less an event than four of 5,000; beyond, only the
	// latency grows.
	DefaultMaxRecords = 20_000
	// DefaultMaxBytes holds 20,000 records of 200 bytes with their operations
	// twice over.
	DefaultMaxBytes = 32 << 20
	// DefaultMaxAge bounds how long a record waits behind a slow commit.
	DefaultMaxAge = time.Second
)

// ErrFull asks to take the batch and to add the record again: there is no memory
// for it beside what is buffered, or it must not share a batch with it.
var ErrFull = errors.New("buffer: full")

// ErrNoMemory is the ErrFull of a buffer that could go on if there were more memory:
// who has batches under way may wait for the end of one and add the record again.
var ErrNoMemory = fmt.Errorf("%w: no memory", ErrFull)

// Options configures a Buffer. A nil *Options and zero fields mean the defaults,
// except Budget.
type Options struct {
	MaxRecords int           // records after which Full reports true; default DefaultMaxRecords
	MaxBytes   int64         // bytes after which Full reports true; default DefaultMaxBytes
	MaxAge     time.Duration // after which Due reports true; default DefaultMaxAge
	Budget     *Budget       // shared memory limit; nil = one of its own of three batches
	// Separate makes all increments go to the store one by one, not summed, as
	// engines of store.AtomicRow need them. They may share a batch with deletes,
	// which such an engine lets counters have none of.
	Separate bool
	// CountsFrom is a store.CounterExpirer's; nil = counters do not expire. It is asked when
	// a batch is begun.
	CountsFrom func(table, family string) cell.Timestamp
}

// Mark identifies the last record that a batch covers, for Progress.
type Mark struct {
	Offset      int64
	Time        int64 // ms since the Unix epoch
	LeaderEpoch int32
	Fingerprint uint64
}

// Buffer collects what the records of one partition became. Offsets are given in
// ascending order from Start on; those that are left out count as control
// offsets, so that the audit equation of store.Progress always holds.
type Buffer struct {
	maxRecords int
	maxBytes   int64
	maxAge     time.Duration
	budget     *Budget
	countsFrom func(table, family string) cell.Timestamp

	cur      *Batch
	next     int64 // offset after the last one covered
	mark     Mark
	separate int64 // below this offset increments are not summed
	never    bool  // they are never summed
	waited   time.Duration
	lent     int64  // of the budget, to the records that are added
	packed   []bool // whether the puts of each unit that is being added are
}

// New returns an empty buffer that expects offset 0; see Start.
func New(o *Options) (*Buffer, error) {
	if o == nil {
		o = &Options{}
	}
	b := &Buffer{maxRecords: o.MaxRecords, maxBytes: o.MaxBytes, maxAge: o.MaxAge, budget: o.Budget, separate: -1, never: o.Separate, countsFrom: o.CountsFrom}
	if b.maxRecords == 0 {
		b.maxRecords = DefaultMaxRecords
	}
	if b.maxBytes == 0 {
		b.maxBytes = DefaultMaxBytes
	}
	if b.maxAge == 0 {
		b.maxAge = DefaultMaxAge
	}
	if b.maxRecords < 0 || b.maxBytes < 0 || b.maxAge < 0 {
		return nil, fmt.Errorf("buffer: max records %d, max bytes %d, max age %v: must not be negative", o.MaxRecords, o.MaxBytes, o.MaxAge)
	}
	if b.budget == nil {
		var err error
		if b.budget, err = NewBudget(3 * b.maxBytes); err != nil {
			return nil, err
		}
	}
	b.begin()
	return b, nil
}

// begin begins a batch.
func (b *Buffer) begin() {
	b.cur = b.budget.batch()
	b.cur.countsFrom = b.countsFrom
}

// Start drops what is buffered and expects offset next. mark is of the last
// record before it.
func (b *Buffer) Start(next int64, mark Mark) {
	b.Drop()
	b.next, b.mark = next, mark
}

// Resize changes the limits of Options for what is added from now on.
func (b *Buffer) Resize(maxRecords int, maxBytes int64) {
	b.maxRecords, b.maxBytes = maxRecords, maxBytes
}

// Drop forgets what is buffered and gives its memory back. Start follows before
// more is added.
func (b *Buffer) Drop() {
	b.cur.Release()
	b.begin()
}

// Separate makes increments of records below offset go to the store one by one,
// not summed, so that the store can name each record that it refuses.
func (b *Buffer) Separate(below int64) { b.separate = below }

// Next returns the offset after the last one covered.
func (b *Buffer) Next() int64 { return b.next }

// Empty reports whether nothing was covered since the last Take.
func (b *Buffer) Empty() bool { return b.cur.empty() }

// Len returns how many records are buffered.
func (b *Buffer) Len() int { return b.cur.Records }

// Bytes returns the memory that the buffered content takes.
func (b *Buffer) Bytes() int64 { return b.cur.Bytes }

// Waited returns for how long Add, AddRecords and Dead have waited for the budget since
// the last call.
func (b *Buffer) Waited() time.Duration {
	d := b.waited
	b.waited = 0
	return d
}

// Full reports that the batch should be taken before more is added.
func (b *Buffer) Full() bool {
	return b.cur.Records >= b.maxRecords || b.cur.Bytes >= b.maxBytes || b.cur.alone
}

// Due returns when the batch should be taken at the latest; ok is false where
// nothing is buffered.
func (b *Buffer) Due() (t time.Time, ok bool) {
	if b.cur.empty() {
		return t, false
	}
	return b.cur.Opened.Add(b.maxAge), true
}

// Add buffers what the record at offset became: all of ms in one batch.
// Increments must be of COUNTER families with the event time in Op.Time, as the
// mapping emits them; they are summed per counter.
//
// Its error is ErrFull, and nothing was added, where the batch must be taken
// first. With nothing buffered it waits for the budget instead; then the error
// wraps ctx's, or is a *memory.TooLargeError where the record does not fit it.
func (b *Buffer) Add(ctx context.Context, offset int64, ms []cell.Mutation) error {
	if b.cur.alone {
		return ErrFull
	}
	if b.addPacked(offset, ms) {
		return nil
	}
	var z sizes
	packed := !b.never && z.pack(ms)
	if !packed {
		z = sizes{}
		for i := range ms {
			z.add(&ms[i])
		}
	}
	if !b.never && (z.deletes > 0 || b.cur.deletes) {
		if ok, err := b.addOrdered(ctx, offset, ms, &z); ok || err != nil {
			return err
		}
	}
	if z.increments > 0 && len(b.cur.Store.Records) > 0 {
		return ErrFull // see AddRecords
	}
	need := int64(z.plain) + int64(z.ops)*opSize + int64(z.mutations)*mutationSize + int64(z.puts)*putSize
	separate := b.never || offset < b.separate
	d := demand{bytes: z.plain, ops: z.ops, mutations: z.mutations, puts: z.puts, deltas: z.increments}
	if separate {
		d.bytes += z.counter
		need += int64(z.counter) + int64(z.increments)*deltaSize
	} else {
		d.sums, d.keys = z.increments, z.counter
	}
	if err := b.reserve(ctx, &d); err != nil {
		return err
	}
	c := b.cur
	b.cover(offset)
	c.Counts.Applied++
	before := c.body.coalescer.Bytes()
	w := writer{offset: offset, arena: c.alloc(d.bytes), ops: c.allocOps(d.ops)}
	for i := range ms {
		m := &ms[i]
		switch {
		case z.increments == 0:
		case separate:
			c.deltas(&w, m)
		default:
			c.body.coalescer.AddMutation(m, offset)
		}
		if packed {
			c.put(&w, m)
		} else {
			c.mutation(&w, m)
		}
	}
	c.Bytes += need + int64(c.body.coalescer.Bytes()-before)
	return nil
}

// addPacked is Add of what it nearly always is: packed puts, and increments that are
// summed, for which the batch has all memory already. It looks at each operation once. Of
// anything else it reports false, and has added nothing.
func (b *Buffer) addPacked(offset int64, ms []cell.Mutation) bool {
	c := b.cur
	if b.never || offset < b.separate || c.body == nil || len(c.chunks) == 0 || c.deletes || len(c.Store.Records) > 0 {
		return false
	}
	last := len(c.chunks) - 1
	puts, start := len(c.Store.Puts), len(c.chunks[last])
	arena, d, ok := c.chunks[last], demand{}, true
	for i := range ms {
		m := &ms[i]
		if d.increments(m) {
			continue
		}
		if len(c.Store.Puts) < cap(c.Store.Puts) {
			arena, ok = c.Store.Pack(arena, offset, m)
		} else {
			ok = false
		}
		if !ok {
			break
		}
	}
	if !ok || !c.fits(&d) {
		clear(c.Store.Puts[puts:]) // they point at the chunk
		c.Store.Puts = c.Store.Puts[:puts]
		return false
	}
	b.cover(offset)
	c.Counts.Applied++
	c.chunks[last] = arena
	before := c.body.coalescer.Bytes()
	for i := range ms {
		m := &ms[i]
		if len(m.Ops) > 0 && m.Ops[0].Type == cell.OpIncrement {
			c.body.coalescer.AddMutation(m, offset)
		} else {
			c.Ops.Puts += int64(len(m.Ops))
		}
	}
	c.Bytes += int64(len(arena)-start) + int64(len(c.Store.Puts)-puts)*putSize + int64(c.body.coalescer.Bytes()-before)
	return true
}

// sizes is what a record's mutations take.
type sizes struct {
	plain      int // bytes of what is not an increment
	counter    int // bytes of the increments' keys
	ops        int // that are not increments
	mutations  int // that have one of these
	puts       int // that are packed, without operations
	increments int
	deletes    int
}

// pack adds what ms take where each of them is a packed put or has nothing but
// increments, and reports whether that is so.
func (z *sizes) pack(ms []cell.Mutation) bool {
	for i := range ms {
		m := &ms[i]
		if n, ok := store.PackedPutSize(m); ok {
			z.plain += n
			z.puts++
			continue
		}
		for j := range m.Ops {
			op := &m.Ops[j]
			if op.Type != cell.OpIncrement {
				return false
			}
			z.increments++
			z.counter += len(m.Row) + len(op.Qualifier)
		}
	}
	return true
}

func (z *sizes) add(m *cell.Mutation) {
	ops := z.ops
	for j := range m.Ops {
		op := &m.Ops[j]
		switch op.Type {
		case cell.OpIncrement:
			z.increments++
			z.counter += len(m.Row) + len(op.Qualifier)
			continue
		case cell.OpPut, cell.OpAppend:
		default:
			z.deletes++
		}
		z.ops++
		z.plain += len(op.Qualifier) + len(op.Value)
	}
	if z.ops > ops {
		z.mutations++
		z.plain += len(m.Row)
	}
}

// together is what n mutations take, of which z is, their increments not summed.
func (z *sizes) together(n int) int64 {
	return int64(z.plain+z.counter) + int64(z.ops+z.increments)*opSize + int64(n)*mutationSize
}

// Bytes returns the memory that ms take in a batch, increments not summed.
func Bytes(ms []cell.Mutation) int64 {
	var z sizes
	for i := range ms {
		z.add(&ms[i])
	}
	return z.together(len(ms))
}

// addOrdered keeps deletes and increments apart, because a batch does not say in
// which order its mutations and its counters take effect: they never share one,
// and a record that has both is alone in its own, as a unit in order. It reports
// whether it has added the record.
func (b *Buffer) addOrdered(ctx context.Context, offset int64, ms []cell.Mutation, z *sizes) (bool, error) {
	c := b.cur
	switch {
	case z.deletes > 0 && z.increments > 0:
		if !c.empty() {
			return false, ErrFull
		}
		used := z.together(len(ms))
		if err := b.reserve(ctx, &demand{own: used}); err != nil {
			return false, err
		}
		b.cover(offset)
		c.Counts.Applied++
		c.alone = true
		c.Store.Record(offset, nil, nil, Clone(ms)...)
		for i := range ms {
			for j := range ms[i].Ops {
				c.Ops.add(ms[i].Ops[j].Type)
			}
		}
		c.Bytes += used
		return true, nil
	case z.increments > 0 && c.deletes, z.deletes > 0 && (c.sums() > 0 || len(c.Store.Counters) > 0):
		return false, ErrFull
	}
	c.deletes = c.deletes || z.deletes > 0
	return false, nil
}

// Clone returns a copy of ms in memory of its own.
func Clone(ms []cell.Mutation) []cell.Mutation {
	out := make([]cell.Mutation, len(ms))
	for i := range ms {
		m := &ms[i]
		out[i] = cell.Mutation{Table: m.Table, Row: bytes.Clone(m.Row), Ops: slices.Clone(m.Ops), Read: copyRange(m.Read)}
		for j := range out[i].Ops {
			op := &out[i].Ops[j]
			op.Qualifier, op.Value = bytes.Clone(op.Qualifier), bytes.Clone(op.Value)
		}
	}
	return out
}

func copyRange(r *cell.TimeRange) *cell.TimeRange {
	if r == nil {
		return nil
	}
	c := *r
	return &c
}

// put appends v to arena, which has room for it, and returns the copy without
// spare capacity. A nil v stays nil.
func put(arena, v []byte) (rest, copied []byte) {
	if v == nil {
		return arena, nil
	}
	n := len(arena)
	arena = append(arena, v...)
	return arena, arena[n:len(arena):len(arena)]
}

// Filter counts the record at offset as one that the mapping left out.
func (b *Buffer) Filter(offset int64) {
	b.cover(offset)
	b.cur.Counts.Filtered++
}

// Discard counts the record at offset as one that could not be applied and is not
// kept either.
func (b *Buffer) Discard(offset int64) {
	b.cover(offset)
	b.cur.Counts.Dropped++
}

// Dead buffers the outbox row of a dead letter. Its error is as Add's.
func (b *Buffer) Dead(ctx context.Context, d *DeadLetter) error {
	if b.cur.alone {
		return ErrFull
	}
	m, err := d.Mutation()
	if err != nil {
		return err
	}
	size := int64(len(m.Row)) + mutationSize + int64(len(m.Ops))*opSize
	for i := range m.Ops {
		size += int64(len(m.Ops[i].Value))
	}
	if err := b.reserve(ctx, &demand{own: size - mutationSize, mutations: 1}); err != nil {
		return err
	}
	b.cover(d.Offset)
	c := b.cur
	c.Counts.Dead++
	c.Store.Add(d.Offset, m) // m was made here: no copy is needed
	c.large = true
	c.Bytes += size
	for i := range c.Dead {
		if c.Dead[i].Stage == d.Stage && c.Dead[i].Class == d.Class {
			c.Dead[i].N++
			return nil
		}
	}
	c.Dead = append(c.Dead, Letters{Stage: d.Stage, Class: d.Class, N: 1})
	return nil
}

// Skip counts the offsets up to next, exclusive, as control offsets: nothing in
// them is for us.
func (b *Buffer) Skip(next int64) {
	if next > b.next {
		b.open()
		b.cur.Counts.Control += next - b.next
		b.next = next
	}
}

// Abort counts the offsets up to next, exclusive, as control offsets, of which n are
// records of an aborted transaction.
func (b *Buffer) Abort(next, n int64) {
	if next > b.next {
		b.Skip(next)
		b.cur.Counts.Aborted += n
	}
}

// Late notes that the record added last was of a late event.
func (b *Buffer) Late() { b.cur.Counts.Late++ }

// Mark notes which record was the last one covered.
func (b *Buffer) Mark(m Mark) { b.mark = m }

func (b *Buffer) open() {
	if b.cur.empty() {
		b.cur.Opened = time.Now()
	}
}

func (b *Buffer) cover(offset int64) {
	b.Skip(offset)
	if offset < b.next {
		panic(fmt.Sprintf("buffer: offset %d added after offset %d", offset, b.next-1))
	}
	b.open()
	b.cur.Records++
	b.next = offset + 1
}

// reserve makes sure that the memory for z is there, and that all of it but what is
// large is allocated. Its error is ErrNoMemory where something is buffered, which has to
// go first.
func (b *Buffer) reserve(ctx context.Context, z *demand) error {
	c := b.cur
	if c.fits(z) || c.provide(z) {
		return nil
	}
	if !c.empty() {
		return ErrNoMemory
	}
	// The batch holds nothing meanwhile: others may wait for just that.
	c.free()
	begun := time.Now()
	need := z.alone()
	grant, err := b.budget.share.Acquire(ctx, need, b.lent, nil)
	b.waited += time.Since(begun)
	if err != nil {
		c.grant = b.budget.share.Empty()
		return err
	}
	c.grant, c.spare = grant, need
	if !c.provide(z) {
		panic(fmt.Sprintf("buffer: %d bytes were granted and do not suffice", need))
	}
	return nil
}

// Lent says how many bytes of the budget the records that are being added hold
// themselves (kafka.Batch.Borrowed): a record must fit beside them.
func (b *Buffer) Lent(bytes int64) { b.lent = bytes }

// Take hands over what is buffered as a batch that moves partition of s from
// where prev left it (from, which is prev.Next or store.Absent) to Next, and
// goes on with an empty buffer. version is the mapping's: where it is not prev's,
// MappingFrom begins with the batch. The batch is valid
// until its Release.
func (b *Buffer) Take(s store.Source, partition int32, from int64, prev *store.Progress, version string) *Batch {
	c := b.cur
	c.sumDeltas()
	c.Ops.Increments += int64(len(c.Store.Counters))
	c.From = from
	mappingFrom := prev.MappingFrom
	if version != prev.MappingVersion {
		mappingFrom = prev.Next
	}
	c.Progress = store.Progress{
		First:          prev.First,
		Next:           b.next,
		LeaderEpoch:    b.mark.LeaderEpoch,
		LastOffset:     b.mark.Offset,
		LastTime:       b.mark.Time,
		Fingerprint:    b.mark.Fingerprint,
		MappingVersion: version,
		MappingFrom:    mappingFrom,
		Duplicate:      prev.Duplicate, // the store counts these two,
		Unmet:          prev.Unmet,     // and takes them off Applied
		Applied:        prev.Applied + c.Counts.Applied,
		Filtered:       prev.Filtered + c.Counts.Filtered,
		Dead:           prev.Dead + c.Counts.Dead,
		Control:        prev.Control + c.Counts.Control,
		Lost:           prev.Lost,
		Dropped:        prev.Dropped + c.Counts.Dropped,
		Aborted:        prev.Aborted + c.Counts.Aborted,
		Late:           prev.Late + c.Counts.Late,
		Gaps:           prev.Gaps,
		Skipped:        prev.Skipped,
		Skips:          prev.Skips,
	}
	c.Store.Advance(s, partition, from, c.Progress)
	b.begin()
	b.cur.want = c.used()
	return c
}

// Close gives the memory of what is buffered back. The buffer is not used
// afterwards.
func (b *Buffer) Close() { b.cur.Release() }
