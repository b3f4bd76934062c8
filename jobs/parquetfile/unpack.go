package parquetfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

// Pages in LZ4_RAW are not given to parquet-go (v0.32) as they are, and of files of others
// none at all, so that what they say of themselves is checked (pageBody). Of those in LZ4_RAW that have become smaller by less than
// two thirds it hands out another buffer than the one that it has decompressed into
// (github.com/parquet-go/parquet-go/issues/608), and where one is damaged it doubles its
// buffer for ever. The others unfold to whatever they do, however large the header of the
// page says that it is. parquet-go sees row groups with such pages as of another file, in
// which they are not compressed; and so it sees those whose codecs are not the ones of the
// file's first row group, which it would use instead.
//
// So it is with the pages of bools in files of others, whatever their codec: of those in RLE,
// as pages of version 2 mostly are, parquet-go takes a run of one value for eight bits a byte
// that says 1 and seven of 0, and the next run for one that begins with a byte. They are made
// pages in PLAIN.

// unpacked is a row group as of a file of its own: the bytes of the file that it is from,
// then those pages that are decompressed here, and a footer.
type unpacked struct {
	from    io.ReaderAt
	foreign bool  // it is of others
	size    int64 // of the file
	pages   []unpackedPage
	chunks  []unpackedPages // which pages are together, and the one that was read last
	footer  []byte
	end     int64 // of the pages
}

// unpackedPage is a page that is compressed in the file.
type unpackedPage struct {
	at     int64 // where it is in unpacked
	header []byte
	size   int // behind the header
	chunk  int
	// As it is in the file: where its bytes are behind the header, how many, and how many
	// of them, the levels, are not compressed; all = none is.
	body    int64
	packed  int
	levels  int
	crc     uint32
	checked bool      // there is a crc
	bools   *boolPage // in RLE, in whose place it is in PLAIN; else nil
	inside  *pageBody // of files of others
}

// unpackedPages are the pages of a column chunk.
type unpackedPages struct {
	codec format.CompressionCodec
	last  int // the page whose bytes are data; -1 = none
	data  []byte
}

// unpacks reports whether the pages of a column chunk are decompressed here.
func (r *Reader) unpacks(m *format.ColumnMetaData) bool {
	return m.Codec == format.Lz4Raw || r.from != nil
}

// asItIs reports whether parquet-go can be given the column chunks of a row group as they
// are: it takes all chunks of a column for compressed as the first is.
func (r *Reader) asItIs(columns []format.ColumnChunk) bool {
	first := r.file.Metadata().RowGroups[0].Columns
	for i := range columns {
		m := &columns[i].MetaData
		if r.unpacks(m) || i >= len(first) || m.Codec != first[i].MetaData.Codec {
			return false
		}
	}
	return true
}

// rowGroup returns a row group whose pages can be read, of the columns of r.
func (r *Reader) rowGroup(group int) (parquet.RowGroup, error) {
	g := r.file.Metadata().RowGroups[group]
	if r.asItIs(g.Columns) {
		return r.file.RowGroups()[group], nil
	}
	u := &unpacked{from: r.in, foreign: r.from != nil, size: r.size, end: r.size}
	g.Columns, g.Ordinal = slices.Clone(g.Columns), 0
	for i, c := range r.columns {
		for at := r.chunks[i]; at < min(r.chunks[i]+chunksOf(c.Type), len(g.Columns)); at++ {
			if m := &g.Columns[at].MetaData; r.unpacks(m) {
				leaf, _ := r.file.Schema().Lookup(m.PathInSchema...)
				if err := u.add(m, leaf, c.Nullable); err != nil {
					return nil, fmt.Errorf("row group %d, column %s: %w", group, c.Name, err)
				}
			}
		}
	}
	m := *r.file.Metadata()
	m.NumRows, m.RowGroups, m.KeyValueMetadata = g.NumRows, []format.RowGroup{g}, nil
	footer, err := thrift.Marshal(new(thrift.CompactProtocol), &m)
	if err != nil {
		return nil, err
	}
	u.footer = append(binary.LittleEndian.AppendUint32(footer, uint32(len(footer))), magic...)
	f, err := parquet.OpenFile(u, u.end+int64(len(u.footer)), parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
	if err != nil {
		return nil, err
	}
	return f.RowGroups()[0], nil
}

// add adds the pages of a column chunk, and makes m what it is then. nullable is of bools.
func (u *unpacked) add(m *format.ColumnMetaData, leaf parquet.LeafColumn, nullable bool) error {
	at := m.DataPageOffset
	if m.DictionaryPageOffset != 0 {
		at = m.DictionaryPageOffset
	}
	start, end := u.end, at+m.TotalCompressedSize
	first, found := m.DataPageOffset, false
	if _, err := checkChunk(u.from, u.size, m); err != nil {
		return err
	}
	for at < end {
		if at == first {
			m.DataPageOffset, found = u.end, true
		}
		h, n, err := readHeader(u.from, at, end-at)
		if err != nil {
			return fmt.Errorf("page at byte %d: %w", at, err)
		}
		p := unpackedPage{at: u.end, size: int(h.UncompressedPageSize), body: at + n, packed: int(h.CompressedPageSize), crc: uint32(h.CRC), checked: h.CRC != 0, chunk: len(u.chunks)}
		if h.Type == format.DataPageV2 && h.DataPageHeaderV2.Valid {
			v := &h.DataPageHeaderV2.V
			p.levels = int(v.RepetitionLevelsByteLength) + int(v.DefinitionLevelsByteLength)
			if v.IsCompressed.Valid && !v.IsCompressed.V {
				p.levels = p.packed
			}
			v.IsCompressed = thrift.New(false)
		}
		at += n + int64(h.CompressedPageSize)
		if u.foreign {
			p.inside = newPageBody(h, m.Type, leaf.MaxRepetitionLevel, leaf.MaxDefinitionLevel)
		}
		if m.Type == format.Boolean && u.foreign {
			if p.bools = newBoolPage(h, nullable); p.bools != nil {
				if p.bools.size > math.MaxInt32 {
					return claim("%d bools in a page of %d bytes", p.bools.values, p.bools.was)
				}
				p.size = p.bools.size
			}
		}
		h.CompressedPageSize, h.CRC = h.UncompressedPageSize, 0
		if p.header, err = thrift.Marshal(new(thrift.CompactProtocol), h); err != nil {
			return err
		}
		u.pages = append(u.pages, p)
		u.end += int64(len(p.header)) + int64(p.size)
	}
	if !found {
		return damaged("no page begins at byte %d", first)
	}
	if m.DictionaryPageOffset != 0 {
		m.DictionaryPageOffset = start
	}
	u.chunks = append(u.chunks, unpackedPages{codec: m.Codec, last: -1})
	m.Codec, m.TotalCompressedSize = format.Uncompressed, u.end-start
	return nil
}

// ReadAt reads bytes, as io.ReaderAt says.
func (u *unpacked) ReadAt(b []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("offset %d", off)
	}
	for n < len(b) {
		var from []byte
		switch at := off + int64(n); {
		case at < u.size:
			part := b[n:min(int64(len(b)), int64(n)+u.size-at)]
			if err := readFull(u.from, part, at); err != nil {
				return n, err
			}
			n += len(part)
			continue
		case at < u.end:
			i, ok := slices.BinarySearchFunc(u.pages, at, func(p unpackedPage, at int64) int {
				switch {
				case at < p.at:
					return 1
				case at >= p.at+int64(len(p.header))+int64(p.size):
					return -1
				}
				return 0
			})
			if !ok {
				return n, io.ErrUnexpectedEOF
			}
			p := &u.pages[i]
			if in := at - p.at; in < int64(len(p.header)) {
				from = p.header[in:]
				break
			}
			data, err := u.page(i)
			if err != nil {
				return n, err
			}
			from = data[at-p.at-int64(len(p.header)):]
		case at < u.end+int64(len(u.footer)):
			from = u.footer[at-u.end:]
		default:
			return n, io.EOF
		}
		n += copy(b[n:], from)
	}
	return n, nil
}

// page returns what is behind the header of page i.
func (u *unpacked) page(i int) ([]byte, error) {
	p := &u.pages[i]
	c := &u.chunks[p.chunk]
	if c.last == i {
		return c.data, nil
	}
	c.last = -1
	data, err := p.read(u.from, c.codec, c.data)
	if err == nil && p.bools != nil {
		data, err = p.bools.plain(data)
	}
	if err != nil {
		return nil, fmt.Errorf("page at byte %d: %w", p.body, err)
	}
	c.last, c.data = i, data
	return data, nil
}

// read decompresses the page into b, or where that is too small, other memory.
func (p *unpackedPage) read(from io.ReaderAt, codec format.CompressionCodec, b []byte) ([]byte, error) {
	packed := make([]byte, p.packed)
	if err := readFull(from, packed, p.body); err != nil {
		return nil, err
	}
	if p.checked {
		if got := crc32.ChecksumIEEE(packed); got != p.crc {
			return nil, damaged("its checksum is %08x, and its header says %08x", got, p.crc)
		}
	}
	size := p.size
	if p.bools != nil {
		size = p.bools.was
	}
	b = slices.Grow(b[:0], size)[:size]
	levels := min(p.levels, p.packed, size)
	copy(b, packed[:levels])
	n := 0
	if levels < p.packed {
		var err error
		// Behind the end of b there may be room, which is not to be used.
		if n, err = decompress(codec, b[levels:size:size], packed[levels:]); err != nil {
			return nil, damaged("decompress: %w", err)
		}
	}
	if levels+n != size {
		return nil, damaged("%d bytes where its header says %d", levels+n, size)
	}
	if p.inside != nil {
		if err := p.inside.check(b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// errLonger: a page is longer than its header says.
var errLonger = errors.New("it is longer than its header says")

// zstdDecoder decodes into what it is given, and no more.
var zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(err) // its options are wrong
	}
	return d
})

// decompress decompresses src into dst, and returns how many bytes that makes. More than
// dst holds are an error.
func decompress(codec format.CompressionCodec, dst, src []byte) (int, error) {
	var r io.Reader
	switch codec {
	case format.Uncompressed:
		if len(src) > len(dst) {
			return 0, errLonger
		}
		return copy(dst, src), nil
	case format.Snappy:
		if n, err := snappy.DecodedLen(src); err != nil || n > len(dst) {
			return 0, errors.Join(errLonger, err)
		}
		b, err := snappy.Decode(dst, src)
		return len(b), err
	case format.Lz4Raw:
		return lz4.UncompressBlock(src, dst)
	case format.Zstd:
		b, err := zstdDecoder().DecodeAll(src, dst[:0])
		return len(b), err
	case format.Gzip:
		z, err := gzip.NewReader(bytes.NewReader(src))
		if err != nil {
			return 0, err
		}
		r = z
	default:
		r = brotli.NewReader(bytes.NewReader(src))
	}
	n, err := io.ReadFull(r, dst)
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return n, nil // fewer, which the caller sees
	case err != nil:
		return n, err
	}
	switch more, err := io.ReadFull(r, make([]byte, 1)); {
	case more > 0:
		return n, errLonger
	case err != io.EOF:
		return n, err
	}
	return n, nil
}
