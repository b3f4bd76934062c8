package arrowfile

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/ipc"
	"github.com/apache/arrow/go/v15/arrow/memory"
)

// Arrow makes memory for whatever a footer, the metadata of a record batch and its
// compressed buffers say that there is. What they say in FlatBuffers is checked before,
// against the bytes that there are; memory for the rest comes from an allocator with a
// bound.

// ErrClaim is wrapped by errors about files that say that they hold more than they can.
var ErrClaim = errors.New("arrow: damaged or hostile: it claims more than it can hold")

func claim(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrClaim, fmt.Sprintf(format, args...))
}

const (
	// A file ends with the length of the footer and the magic.
	magic     = "ARROW1"
	tailBytes = 4 + len(magic)
	// A record batch takes at most these bytes of memory, and as many besides for each
	// byte that it has in the file: columns of one value shrink to next to nothing.
	anyBatchBytes, maxShrink = 1 << 30, 64
	// maxNested is how deep columns are within each other; Arrow reads no deeper ones.
	maxNested = 64
	// maxShared is how often, on average, a byte of a footer may count: writers may
	// write a text once that is needed often.
	maxShared = 16
)

// limited is an allocator with a bound, which panics beyond it with an error that wraps
// ErrClaim.
type limited struct {
	memory.Allocator
	left int64
}

func (l *limited) take(n int64) {
	if n > l.left {
		panic(claim("%d bytes, where %d are to be expected at most", n, l.left))
	}
	l.left -= n
}

// Allocate returns size bytes.
func (l *limited) Allocate(size int) []byte {
	l.take(int64(size))
	return l.Allocator.Allocate(size)
}

// Reallocate returns b with another length.
func (l *limited) Reallocate(size int, b []byte) []byte {
	l.take(int64(size) - int64(len(b)))
	return l.Allocator.Reallocate(size, b)
}

// Free takes b back.
func (l *limited) Free(b []byte) {
	l.left += int64(len(b))
	l.Allocator.Free(b)
}

// checked is an Arrow file whose footer and messages are checked before Arrow reads them.
type checked struct {
	*ipc.FileReader
	from    io.ReaderAt
	memory  *limited
	batches []block
}

// block is where a file has a message (Block in Arrow's File.fbs).
type block struct{ offset, meta, body int64 }

// open opens the file of size bytes in r.
func open(r io.ReaderAt, size int64, allocator memory.Allocator) (*checked, error) {
	if allocator == nil {
		allocator = memory.DefaultAllocator
	}
	c := &checked{from: r, memory: &limited{Allocator: allocator, left: anyBatchBytes}}
	dictionaries, batches, err := checkFooter(r, size)
	if err != nil {
		return nil, err
	}
	c.batches = batches
	for i, b := range dictionaries {
		if err := c.checkMessage(b, headerDictionary); err != nil {
			return nil, fmt.Errorf("dictionary %d: %w", i, err)
		}
		c.memory.left += maxShrink * (b.meta + b.body)
	}
	c.FileReader, err = ipc.NewFileReader(io.NewSectionReader(r, 0, size), ipc.WithAllocator(c.memory))
	return c, err
}

// record reads record batch i, which the caller releases.
func (c *checked) record(i int) (arrow.Record, error) {
	b := c.batches[i]
	if err := c.checkMessage(b, headerBatch); err != nil {
		return nil, err
	}
	c.memory.left = anyBatchBytes + maxShrink*(b.meta+b.body)
	return c.RecordAt(i)
}

// checkFooter checks the footer of a file of size bytes, and returns where the file has
// its dictionaries and its record batches. What is wrong in other ways, Arrow finds.
func checkFooter(r io.ReaderAt, size int64) (dictionaries, batches []block, err error) {
	if size < int64(2*len(magic)+4) {
		return nil, nil, nil // too short: Arrow's error says so
	}
	var tail [tailBytes]byte
	if err := readFull(r, tail[:], size-int64(tailBytes)); err != nil {
		return nil, nil, err
	}
	if string(tail[4:]) != magic {
		return nil, nil, nil
	}
	n, end := int64(binary.LittleEndian.Uint32(tail[:])), size-int64(tailBytes)
	if n > end-int64(len(magic)) {
		return nil, nil, claim("a footer of %d bytes in a file of %d", n, size)
	}
	w := flat{b: make([]byte, n), left: maxShared * n}
	if err := readFull(r, w.b, end-n); err != nil {
		return nil, nil, err
	}
	footer, err := w.root()
	if err != nil {
		return nil, nil, fmt.Errorf("footer: %w", err)
	}
	if schema, ok, err := footer.table(1); err != nil {
		return nil, nil, fmt.Errorf("footer: %w", err)
	} else if ok {
		err := schema.each(1, func(t flatTable) error { return t.checkField(0) })
		if err == nil {
			err = schema.checkMetadata(2)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("schema: %w", err)
		}
	}
	left := end - n
	for i, to := range []*[]block{&dictionaries, &batches} {
		if *to, err = footer.blocks(2+i, end-n, &left); err != nil {
			return nil, nil, fmt.Errorf("footer: %w", err)
		}
	}
	return dictionaries, batches, nil
}

// blocks returns the blocks in a field, which lie before byte end of the file, and takes
// them from the bytes that are left for all of them: they do not overlap.
func (t flatTable) blocks(field int, end int64, left *int64) ([]block, error) {
	const blockBytes = 24
	at, n, err := t.vector(field, blockBytes)
	if err != nil {
		return nil, err
	}
	var all []block
	for ; n > 0; n, at = n-1, at+blockBytes {
		b := block{
			offset: int64(binary.LittleEndian.Uint64(t.w.b[at:])),
			meta:   int64(int32(binary.LittleEndian.Uint32(t.w.b[at+8:]))),
			body:   int64(binary.LittleEndian.Uint64(t.w.b[at+16:])),
		}
		if b.offset < 0 || b.meta < 0 || b.body < 0 || b.offset > end || b.meta > end-b.offset || b.body > end-b.offset-b.meta {
			return nil, claim("message %d has %d and %d bytes from byte %d, where the footer begins at byte %d", len(all), b.meta, b.body, b.offset, end)
		}
		if *left -= b.meta + b.body; *left < 0 {
			return nil, claim("message %d lies in the bytes of others", len(all))
		}
		all = append(all, b)
	}
	return all, nil
}

// The types of a message's header (Message.fbs).
const (
	headerDictionary = 2
	headerBatch      = 3
)

// checkMessage checks the metadata of a message whose header must have this type.
func (c *checked) checkMessage(b block, header byte) error {
	w := flat{b: make([]byte, b.meta), left: maxShared * b.meta}
	if err := readFull(c.from, w.b, b.offset); err != nil {
		return err
	}
	// Before it stand a mark and its length; of old files, its length alone.
	prefix := 4
	if len(w.b) >= 4 {
		switch binary.LittleEndian.Uint32(w.b) {
		case 0:
			prefix = 0
		case 1<<32 - 1:
			prefix = 8
		}
	}
	if prefix > len(w.b) {
		return claim("a message of %d bytes", len(w.b))
	}
	w.b = w.b[prefix:]
	m, err := w.root()
	if err != nil {
		return err
	}
	if kind, ok, err := m.byte(1); err != nil || !ok || kind != header {
		return cmp.Or(err, errors.New("damaged: it is a message of another type"))
	}
	batch, ok, err := m.table(2)
	if err == nil && ok && header == headerDictionary {
		batch, ok, err = batch.table(1)
	}
	if err != nil || !ok {
		return cmp.Or(err, errFlat)
	}
	const bufferBytes = 16
	at, buffers, err := batch.vector(2, bufferBytes)
	if err != nil {
		return err
	}
	for i := range buffers {
		offset := int64(binary.LittleEndian.Uint64(w.b[at+i*bufferBytes:]))
		length := int64(binary.LittleEndian.Uint64(w.b[at+i*bufferBytes+8:]))
		if offset < 0 || length < 0 || offset > b.body || length > b.body-offset {
			return claim("buffer %d has %d bytes from byte %d, where there are %d", i, length, offset, b.body)
		}
	}
	at, counts, err := batch.vector(4, 8)
	if err != nil {
		return err
	}
	for i := range counts {
		if n := int64(binary.LittleEndian.Uint64(w.b[at+i*8:])); n < 0 || n > int64(buffers) {
			return claim("a column of %d buffers, where there are %d", n, buffers)
		}
	}
	return nil
}

// checkField checks a column of a schema, and those below it (Field in Schema.fbs).
func (t flatTable) checkField(depth int) error {
	const union = 14
	if depth > maxNested {
		return claim("columns that are nested more than %d deep", maxNested)
	}
	if err := t.text(0); err != nil {
		return err
	}
	if kind, ok, err := t.byte(2); err != nil {
		return err
	} else if ok && kind == union {
		if typ, ok, err := t.table(3); err != nil {
			return err
		} else if ok {
			if _, _, err := typ.vector(1, 4); err != nil {
				return err
			}
		}
	}
	if err := t.each(5, func(t flatTable) error { return t.checkField(depth + 1) }); err != nil {
		return err
	}
	return t.checkMetadata(6)
}

// checkMetadata checks a field of pairs of texts.
func (t flatTable) checkMetadata(field int) error {
	return t.each(field, func(t flatTable) error {
		if err := t.text(0); err != nil {
			return err
		}
		return t.text(1)
	})
}

// checkValues checks that an array has the bytes of its values, and that those of texts,
// bytes and maps follow each other: if they went back in a null, the same bytes could be
// values of any number of rows. Of other types Arrow has checked it.
func checkValues(a arrow.Array) error {
	if a.Len() == 0 {
		return nil
	}
	switch a := a.(type) {
	case *array.Boolean:
		return bytesFor(a, 1)
	case *array.FixedSizeBinary:
		return bytesFor(a, 8*a.DataType().(*arrow.FixedSizeBinaryType).ByteWidth)
	case *array.String:
		return ascend(a.ValueOffsets())
	case *array.LargeString:
		return ascend(a.ValueOffsets())
	case *array.Binary:
		return ascend(a.ValueOffsets())
	case *array.LargeBinary:
		return ascend(a.ValueOffsets())
	case *array.Map:
		offsets := a.Offsets()[a.Data().Offset():][:a.Len()+1]
		for _, entries := range []arrow.Array{a.Keys(), a.Items()} {
			if n := int64(offsets[a.Len()]); n > int64(entries.Len()) {
				return fmt.Errorf("damaged: its maps have %d entries, and there are %d", n, entries.Len())
			}
			if err := checkValues(entries); err != nil {
				return err
			}
		}
		return ascend(offsets)
	}
	return nil
}

// bytesFor checks that the values of an array have bits bits each.
func bytesFor(a arrow.Array, bits int) error {
	have := 0
	if b := a.Data().Buffers()[1]; b != nil {
		have = b.Len()
	}
	if n := a.Data().Offset() + a.Len(); n > have*8/bits {
		return fmt.Errorf("damaged: it has %d values, in %d bytes", n, have)
	}
	return nil
}

func ascend[T int32 | int64](offsets []T) error {
	for i := range offsets[1:] {
		if offsets[i] < 0 || offsets[i+1] < offsets[i] {
			return fmt.Errorf("damaged: value %d ends before it begins", i)
		}
	}
	return nil
}

// errFlat: what should be a FlatBuffer is none.
var errFlat = errors.New("damaged: its metadata is no FlatBuffer")

// flat is what is written as a FlatBuffer (FlatBuffers' Internals), of which the part that
// says how much there is is walked through.
type flat struct {
	b []byte
	// left is how many bytes may still be passed over: parts may be shared, and a few
	// bytes that name each other be endlessly many.
	left int64
}

// flatTable is a table.
type flatTable struct {
	w      *flat
	at     int
	vtable []byte // the offsets of its fields
}

func (w *flat) take(n int64) error {
	if w.left -= n; w.left < 0 {
		return claim("metadata of %d bytes that is endless", len(w.b))
	}
	return nil
}

// u32 reads four bytes.
func (w *flat) u32(at int) (int, error) {
	if at < 0 || at > len(w.b)-4 {
		return 0, errFlat
	}
	return int(binary.LittleEndian.Uint32(w.b[at:])), nil
}

// root returns the table that w is of.
func (w *flat) root() (flatTable, error) {
	at, err := w.u32(0)
	if err != nil {
		return flatTable{}, err
	}
	return w.table(at)
}

func (w *flat) table(at int) (t flatTable, err error) {
	back, err := w.u32(at)
	if err != nil {
		return t, err
	}
	v := at - int(int32(back))
	if v < 0 || v > len(w.b)-4 {
		return t, errFlat
	}
	n := int(binary.LittleEndian.Uint16(w.b[v:]))
	if n < 4 || n%2 != 0 || n > len(w.b)-v {
		return t, errFlat
	}
	return flatTable{w: w, at: at, vtable: w.b[v+4 : v+n]}, w.take(4)
}

// field returns where field i has its size bytes; 0 = it has none.
func (t flatTable) field(i, size int) (int, error) {
	if 2*i+2 > len(t.vtable) {
		return 0, nil
	}
	offset := int(binary.LittleEndian.Uint16(t.vtable[2*i:]))
	if offset == 0 {
		return 0, nil
	}
	if t.at+offset > len(t.w.b)-size {
		return 0, errFlat
	}
	return t.at + offset, nil
}

// byte returns field i, of a byte.
func (t flatTable) byte(i int) (byte, bool, error) {
	at, err := t.field(i, 1)
	if at == 0 || err != nil {
		return 0, false, err
	}
	return t.w.b[at], true, nil
}

// table returns field i, a table.
func (t flatTable) table(i int) (flatTable, bool, error) {
	at, err := t.field(i, 4)
	if at == 0 || err != nil {
		return flatTable{}, false, err
	}
	to, err := t.w.u32(at)
	if err != nil {
		return flatTable{}, false, err
	}
	sub, err := t.w.table(at + to)
	return sub, err == nil, err
}

// vector returns where field i has its n elements of size bytes each.
func (t flatTable) vector(i, size int) (at, n int, err error) {
	at, err = t.field(i, 4)
	if at == 0 || err != nil {
		return 0, 0, err
	}
	to, err := t.w.u32(at)
	if err != nil {
		return 0, 0, err
	}
	if n, err = t.w.u32(at + to); err != nil {
		return 0, 0, err
	}
	at += to + 4
	if n > (len(t.w.b)-at)/size {
		return 0, 0, claim("%d elements where there are %d bytes", n, len(t.w.b)-at)
	}
	return at, n, t.w.take(int64(n) * int64(size))
}

// text passes over field i, a text.
func (t flatTable) text(i int) error {
	_, _, err := t.vector(i, 1)
	return err
}

// each calls do with the tables in field i.
func (t flatTable) each(i int, do func(flatTable) error) error {
	at, n, err := t.vector(i, 4)
	for ; n > 0 && err == nil; n, at = n-1, at+4 {
		to, _ := t.w.u32(at)
		var sub flatTable
		if sub, err = t.w.table(at + to); err == nil {
			err = do(sub)
		}
	}
	return err
}

func readFull(r io.ReaderAt, b []byte, at int64) error {
	if n, err := r.ReadAt(b, at); n < len(b) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}
