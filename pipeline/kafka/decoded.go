package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sluice/pipeline/memory"
)

// minDecoded is what a partition's batch may take at least, in bytes, however many
// partitions there are: below, the fixed cost of a batch shows.
const minDecoded = 64 << 10

// noRoom asks for memory: the batch that is being decoded takes need bytes in all, as
// far as was seen, and more than it was granted is not free now.
type noRoom struct{ need int64 }

// Error is seen only where nobody waits for memory.
func (e *noRoom) Error() string { return fmt.Sprintf("no memory for a batch of %d bytes", e.need) }

// reserve makes sure that n bytes more are granted.
func (b *Batch) reserve(n int64) error {
	if over := b.taken + n - b.grant.Bytes(); over > 0 && !b.grant.Grow(over) {
		return &noRoom{b.taken + n}
	}
	b.taken += n
	return nil
}

// growRecords makes room for n records more.
func (b *Batch) growRecords(n int) error {
	have := len(b.Records)
	if cap(b.Records)-have >= n {
		return nil
	}
	if b.mem == nil { // a control batch: a record or two
		b.Records = slices.Grow(b.Records, n)
		return nil
	}
	pool := b.mem.records
	want := max(have+n, 2*have)
	if have == 0 {
		want = max(n, b.hint)
	}
	err := b.reserve(pool.Bytes(want))
	if err != nil && want > have+n {
		want = have + n
		err = b.reserve(pool.Bytes(want))
	}
	if err != nil {
		return err
	}
	grown := append(pool.Get(want), b.Records...)
	b.putRecords()
	b.Records = grown
	return nil
}

func (b *Batch) putRecords() {
	clear(b.Records) // stale slices would keep the memory of others from the collector
	b.taken -= int64(cap(b.Records)) * int64(recordSize)
	b.mem.records.Put(b.Records)
	b.Records = nil
}

// growHeaders makes room for n headers more, which lie side by side. Earlier records
// keep the slice that theirs are in.
func (b *Batch) growHeaders(n int) error {
	if cap(b.headers)-len(b.headers) >= n {
		return nil
	}
	if b.mem == nil {
		b.headers = make([]Header, 0, n)
		return nil
	}
	pool := b.mem.headers
	want := max(n, 2*cap(b.headers))
	err := b.reserve(pool.Bytes(want))
	if err != nil && want > n {
		want = n
		err = b.reserve(pool.Bytes(want))
	}
	if err != nil {
		return err
	}
	if b.headers != nil {
		b.filled = append(b.filled, b.headers)
	}
	b.headers = pool.Get(want)
	return nil
}

// cutHeaders takes back what growHeaders and appending have done since there were
// filled slices and one with used headers.
func (b *Batch) cutHeaders(filled, used int) {
	if b.mem == nil {
		return
	}
	for len(b.filled) > filled {
		b.putHeaders(b.headers)
		last := len(b.filled) - 1
		b.headers, b.filled[last] = b.filled[last], nil
		b.filled = b.filled[:last]
	}
	if used == 0 && b.headers != nil {
		b.putHeaders(b.headers)
		b.headers = nil
		return
	}
	clear(b.headers[used:])
	b.headers = b.headers[:used]
}

func (b *Batch) putHeaders(h []Header) {
	clear(h)
	b.taken -= int64(cap(h)) * int64(headerSize)
	b.mem.headers.Put(h)
}

// arena lends room for n decompressed bytes.
func (b *Batch) arena(n int) ([]byte, error) {
	if err := b.reserve(b.mem.arenas.Bytes(n)); err != nil {
		return nil, err
	}
	return b.mem.arenas.Get(n), nil
}

func (b *Batch) putArena(a []byte) {
	b.taken -= int64(cap(a))
	b.mem.arenas.Put(a)
}

// growArena returns a with room for n bytes more. Where it cannot, a is as it was.
func (b *Batch) growArena(a []byte, n int) ([]byte, error) {
	if cap(a)-len(a) >= n {
		return a, nil
	}
	grown, err := b.arena(max(2*cap(a), len(a)+n))
	if err != nil {
		if grown, err = b.arena(len(a) + n); err != nil {
			return a, err
		}
	}
	grown = append(grown, a...)
	b.putArena(a)
	return grown, nil
}

// giveBack returns all memory of b to its pools, but not its grant.
func (b *Batch) giveBack() {
	for i, a := range b.arenas {
		b.putArena(a)
		b.arenas[i] = nil
	}
	b.arenas = b.arenas[:0]
	if b.Records != nil {
		b.putRecords()
	}
	for i, h := range b.filled {
		b.putHeaders(h)
		b.filled[i] = nil
	}
	b.filled = b.filled[:0]
	if b.headers != nil {
		b.putHeaders(b.headers)
		b.headers = nil
	}
}

// newBatch lends an empty batch.
func (f *Fetcher) newBatch(r *PartitionReader) *Batch {
	b, ok := f.batches.Get().(*Batch)
	if !ok {
		b = &Batch{release: f.releaseBatch}
	}
	b.Topic, b.Partition, b.reader, b.mem = r.topic, r.partition, r, f.mem
	return b
}

func (f *Fetcher) releaseBatch(b *Batch) {
	b.giveBack()
	b.grant.Release()
	r, raw, held := b.reader, b.raw, b.held
	*b = Batch{Aborted: b.Aborted[:0], arenas: b.arenas, filled: b.filled, release: b.release}
	f.batches.Put(b)
	if held > 0 {
		r.decoded.Add(-held)
		select {
		case r.room <- struct{}{}:
		default:
		}
	}
	if raw != nil && raw.release() {
		f.wakeNode(r.from()) // the partition may have held its part of the memory
	}
}

// Borrowed returns how many bytes of the buffered memory the batch holds, which it has
// borrowed as it is larger than the decoded memory. Who buffers what becomes of its
// records has so much less (memory.Share.Ask).
func (b *Batch) Borrowed() int64 { return b.grant.Borrowed() }

// Slab returns the size of the largest piece of memory that records lie in, in bytes: as
// much stays in memory as long as anything refers to one byte of it.
func (b *Batch) Slab() int {
	n := 0
	if b.raw != nil {
		n = cap(b.raw.buf)
	}
	for _, a := range b.arenas {
		n = max(n, cap(a))
	}
	return n
}

// decode returns the next batch of c, nil where ctx ended or the reader was closed
// before there was memory for it; then c goes on where it stopped.
func (r *PartitionReader) decode(ctx context.Context, c *chunk) (*Batch, decoded, error) {
	share := r.f.mem.budget.Decoded()
	target := max(r.f.mem.budget.Fair(share)/2, minDecoded)
	if err := r.awaitPart(ctx, target); err != nil {
		return nil, decoded{}, err
	}
	b := r.f.newBatch(r)
	b.hint, b.ratio, b.target = r.lastRecords, r.ratio, target
	var ok bool
	if b.grant, ok = share.Try(min(r.lastTaken, target)); !ok {
		b.grant = share.Empty()
	}
	for {
		d, err := c.decode(b, r.f.c.codecs)
		short, wait := errors.AsType[*noRoom](err)
		if !wait {
			if err != nil {
				b.Release()
				return nil, d, err
			}
			b.grant.Shrink(b.taken)
			b.held = b.grant.Bytes()
			r.decoded.Add(b.held)
			r.lastRecords, r.lastTaken, r.ratio = len(b.Records), b.taken, b.ratio
			return b, d, nil
		}
		// Nothing of it is held while waiting, and nothing is guessed any more.
		need := short.need
		b.giveBack()
		b.grant.Release()
		b.hint = 0
		if b.grant, err = share.Acquire(ctx, need, c.grant.Borrowed(), r.gone); err != nil {
			b.grant = memory.Grant{}
			b.Release()
			if errors.Is(err, memory.ErrTooLarge) {
				h, _ := parseBatchHeader(c.buf[c.at:]) // as decode has read it
				return nil, d, &UnreadableError{Offset: max(h.begins(c.pos), c.pos), Next: h.beyond(), Err: err}
			}
			return nil, d, err
		}
	}
}

// awaitPart waits until the batches of the partition that were not released leave room
// for one more in its part of the memory: a partition whose records are not taken must
// leave the others theirs.
func (r *PartitionReader) awaitPart(ctx context.Context, target int64) error {
	for held := r.decoded.Load(); held > 0 && held+min(r.lastTaken, target) > 2*target; held = r.decoded.Load() {
		select {
		case <-r.room:
		case <-r.gone:
			return memory.ErrGone
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
