package parquetfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// parquet-go makes memory for whatever a footer and the headers of pages say that there
// is. Of files of others that is checked before, against what the file can hold.

// ErrClaim is wrapped by errors about files that say that they hold more than they can.
var ErrClaim = errors.New("parquet: damaged or hostile: it claims more than it can hold")

func claim(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrClaim, fmt.Sprintf(format, args...))
}

const (
	// tailBytes are the length of the footer and the magic at the end of a file.
	tailBytes = 8
	// A header of a page has a few dozen bytes, and in some files two bounds, each a
	// whole value: most are read at once, and none is larger than the other.
	headerRead, maxHeader = 512, 1 << 20
	// A page may have this many bytes for each that it is compressed to, besides some
	// that any may have: one of zeros shrinks to next to nothing.
	maxShrink, anyPageBytes = 256, 64 << 20
	// A page may have this many values besides one a bit: nulls and repetitions take no
	// bytes. Writers end pages long before, at a million bytes or 20,000 rows.
	anyPageValues = 1 << 24
)

// checkFooter checks the lengths within the footer of a file of size bytes, and returns
// it. What is wrong in other ways, parquet-go finds.
func checkFooter(r io.ReaderAt, size int64) (footer []byte, err error) {
	if size < int64(len(magic))+tailBytes {
		return nil, nil // too short: parquet-go's error says so
	}
	var tail [tailBytes]byte
	if err := readFull(r, tail[:], size-tailBytes); err != nil {
		return nil, err
	}
	if string(tail[4:]) != magic {
		return nil, nil
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	if n > size-tailBytes-int64(len(magic)) {
		return nil, claim("a footer of %d bytes in a file of %d", n, size)
	}
	footer = make([]byte, n)
	if err := readFull(r, footer, size-tailBytes-n); err != nil {
		return nil, err
	}
	w := compactWalk{b: footer, all: n}
	switch err := w.structure(0); {
	case errors.Is(err, errCutOff):
		return nil, claim("a footer of %d bytes that goes on behind its end", n)
	case err != nil:
		return nil, fmt.Errorf("footer: %w", err)
	}
	return footer, nil
}

// checkChunk checks what the headers of a column chunk's pages say, in a file of size
// bytes, before the pages are read, and returns of how many values and nulls.
func checkChunk(r io.ReaderAt, size int64, m *format.ColumnMetaData) (said chunkCounts, err error) {
	at := m.DataPageOffset
	if m.DictionaryPageOffset != 0 {
		at = m.DictionaryPageOffset
	}
	if at < int64(len(magic)) || m.TotalCompressedSize < 0 || at > size-tailBytes || m.TotalCompressedSize > size-tailBytes-at {
		return said, claim("a column chunk of %d bytes at byte %d of a file of %d", m.TotalCompressedSize, at, size)
	}
	end := at + m.TotalCompressedSize
	if m.DataPageOffset < at || m.DataPageOffset > end {
		return said, claim("pages at byte %d, of a column chunk from byte %d to %d", m.DataPageOffset, at, end)
	}
	for at < end {
		h, n, err := readHeader(r, at, end-at)
		if err == nil {
			err = checkPage(h, end-at-n, m.Codec)
		}
		if err == nil && m.Codec == format.Snappy {
			err = checkSnappy(r, at+n, h)
		}
		if err != nil {
			return said, fmt.Errorf("page at byte %d: %w", at, err)
		}
		said.add(h)
		at += n + int64(h.CompressedPageSize)
	}
	return said, nil
}

// readHeader reads the header of a page at an offset, with left bytes behind it, and
// returns how many it takes.
func readHeader(r io.ReaderAt, at, left int64) (*format.PageHeader, int64, error) {
	for size := int64(headerRead); ; size = maxHeader {
		b := make([]byte, min(left, size))
		if err := readFull(r, b, at); err != nil {
			return nil, 0, err
		}
		w := compactWalk{b: b, all: left}
		err := w.structure(0)
		if errors.Is(err, errCutOff) {
			if int64(len(b)) < min(left, maxHeader) {
				continue
			}
			return nil, 0, claim("its header has more than %d bytes", len(b))
		}
		if err != nil {
			return nil, 0, err
		}
		h := new(format.PageHeader)
		if err := thrift.Unmarshal(new(thrift.CompactProtocol), b[:w.at], h); err != nil {
			return nil, 0, fmt.Errorf("decode its header: %w", err)
		}
		return h, int64(w.at), nil
	}
}

// checkPage checks the header of a page behind which there are left bytes of its chunk.
func checkPage(h *format.PageHeader, left int64, codec format.CompressionCodec) error {
	size, smaller := int64(h.UncompressedPageSize), int64(h.CompressedPageSize)
	switch {
	case smaller < 0 || size < 0:
		return claim("%d bytes, compressed to %d", size, smaller)
	case smaller > left:
		return claim("%d bytes, where its column chunk has %d more", smaller, left)
	case codec == format.Uncompressed && size > smaller:
		return claim("%d bytes, in %d that are not compressed", size, smaller)
	case size > anyPageBytes+maxShrink*smaller:
		return claim("%d bytes, compressed to %d", size, smaller)
	}
	values := int64(0)
	switch {
	case h.Type == format.DictionaryPage && h.DictionaryPageHeader.Valid:
		// Each takes at least a byte, in all types but bool, which has none.
		if n := int64(h.DictionaryPageHeader.V.NumValues); n < 0 || n > size {
			return claim("a dictionary of %d values in %d bytes", n, size)
		}
	case h.Type == format.DataPage && h.DataPageHeader.Valid:
		values = int64(h.DataPageHeader.V.NumValues)
	case h.Type == format.DataPageV2 && h.DataPageHeaderV2.Valid:
		v := &h.DataPageHeaderV2.V
		values = int64(v.NumValues)
		if levels := int64(v.RepetitionLevelsByteLength) + int64(v.DefinitionLevelsByteLength); v.RepetitionLevelsByteLength < 0 || v.DefinitionLevelsByteLength < 0 || levels > min(size, smaller) {
			return claim("levels of %d bytes in a page of %d", levels, min(size, smaller))
		}
		if v.NumNulls < 0 || v.NumRows < 0 || int64(v.NumNulls) > values || int64(v.NumRows) > values {
			return claim("%d nulls and %d rows among %d values", v.NumNulls, v.NumRows, values)
		}
	}
	if values < 0 || values > anyPageValues+8*size {
		return claim("%d values in %d bytes", values, size)
	}
	return nil
}

// checkSnappy checks the length that a page in Snappy's format begins with (its
// format_description.txt), by which a decoder makes memory.
func checkSnappy(r io.ReaderAt, at int64, h *format.PageHeader) error {
	levels := int64(0) // before what is compressed
	if h.Type == format.DataPageV2 {
		v := &h.DataPageHeaderV2.V
		if v.IsCompressed.Valid && !v.IsCompressed.V {
			return nil
		}
		levels = int64(v.RepetitionLevelsByteLength) + int64(v.DefinitionLevelsByteLength)
	}
	b := make([]byte, min(binary.MaxVarintLen64, int64(h.CompressedPageSize)-levels))
	if len(b) == 0 {
		return nil
	}
	if err := readFull(r, b, at+levels); err != nil {
		return err
	}
	if n, _ := binary.Uvarint(b); n > uint64(int64(h.UncompressedPageSize)-levels) {
		return claim("%d bytes in what was compressed of %d", n, int64(h.UncompressedPageSize)-levels)
	}
	return nil
}

// openFile opens a file of size bytes whose footer it has checked, and returns that, too.
// The indexes of its pages, for which nobody asks, are not read.
func openFile(r io.ReaderAt, size int64) (f *parquet.File, footer []byte, err error) {
	if footer, err = checkFooter(r, size); err != nil {
		return nil, nil, err
	}
	f, err = parquet.OpenFile(r, size, parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
	return f, footer, err
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

var (
	// errCutOff: the bytes end before what they say that there is, of which there may be
	// more.
	errCutOff = errors.New("it ends in the middle")
	errThrift = errors.New("damaged: it is not Thrift's compact protocol")
)

// compactWalk passes over what is written in Thrift's compact protocol
// (thrift-compact-protocol.md of Apache Thrift) without making any of it.
type compactWalk struct {
	b   []byte
	at  int
	all int64 // bytes that there are, of which b may be the first
}

// The types of fields, and of elements.
const (
	compactTrue   = 1
	compactFalse  = 2
	compactByte   = 3
	compactI16    = 4
	compactI32    = 5
	compactI64    = 6
	compactDouble = 7
	compactBinary = 8
	compactList   = 9
	compactSet    = 10
	compactMap    = 11
	compactStruct = 12
	compactUUID   = 13
)

// maxNested is how deep structs and lists are within each other: Parquet's are 6 deep.
const maxNested = 32

// structure passes over a struct.
func (w *compactWalk) structure(depth int) error {
	if depth > maxNested {
		return errThrift
	}
	for {
		head, err := w.byte()
		if err != nil {
			return err
		}
		if head == 0 {
			return nil
		}
		if head>>4 == 0 { // the number of the field is not the one before and a little
			if _, err := w.varint(); err != nil {
				return err
			}
		}
		// The type of a bool is its value.
		if kind := head & 15; kind != compactTrue && kind != compactFalse {
			if err := w.value(kind, depth); err != nil {
				return err
			}
		}
	}
}

// value passes over a value, in a list or of a field.
func (w *compactWalk) value(kind byte, depth int) error {
	switch kind {
	case compactTrue, compactFalse, compactByte:
		return w.skip(1)
	case compactI16, compactI32, compactI64:
		_, err := w.varint()
		return err
	case compactDouble:
		return w.skip(8)
	case compactUUID:
		return w.skip(16)
	case compactBinary:
		n, err := w.varint()
		if err != nil {
			return err
		}
		return w.skip(n)
	case compactList, compactSet:
		head, err := w.byte()
		if err != nil {
			return err
		}
		n := uint64(head >> 4)
		if n == 15 {
			if n, err = w.varint(); err != nil {
				return err
			}
		}
		return w.elements(n, depth, head&15)
	case compactMap:
		n, err := w.varint()
		if err != nil || n == 0 {
			return err
		}
		kinds, err := w.byte()
		if err != nil {
			return err
		}
		return w.elements(n, depth, kinds>>4, kinds&15)
	case compactStruct:
		return w.structure(depth + 1)
	}
	return errThrift
}

// elements passes over n elements, each of values of these types. Structs of lists have
// more than the byte that ends them: Parquet's have fields that must be there.
func (w *compactWalk) elements(n uint64, depth int, kinds ...byte) error {
	if depth >= maxNested {
		return errThrift
	}
	least := int64(0) // bytes of an element
	for _, k := range kinds {
		least++
		if k == compactStruct {
			least++
		}
	}
	if n > uint64(w.all-int64(w.at))/uint64(least) {
		return claim("a list of %d elements where there are %d bytes", n, w.all-int64(w.at))
	}
	for range n {
		for _, k := range kinds {
			start := w.at
			if err := w.value(k, depth+1); err != nil {
				return err
			}
			if k == compactStruct && w.at == start+1 {
				return errThrift
			}
		}
	}
	return nil
}

func (w *compactWalk) byte() (byte, error) {
	if w.at >= len(w.b) {
		return 0, errCutOff
	}
	w.at++
	return w.b[w.at-1], nil
}

func (w *compactWalk) varint() (uint64, error) {
	x, n := binary.Uvarint(w.b[w.at:])
	switch {
	case n < 0:
		return 0, errThrift
	case n == 0:
		return 0, errCutOff
	}
	w.at += n
	return x, nil
}

// skip passes over n bytes.
func (w *compactWalk) skip(n uint64) error {
	if n > math.MaxInt64 || int64(n) > w.all-int64(w.at) {
		return claim("%d bytes where there are %d", n, w.all-int64(w.at))
	}
	if int64(n) > int64(len(w.b)-w.at) {
		return errCutOff
	}
	w.at += int(n)
	return nil
}
