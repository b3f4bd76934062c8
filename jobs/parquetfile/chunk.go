package parquetfile

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/crc32"
	"math"
	"math/bits"
	"slices"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/encoding"
	"github.com/parquet-go/parquet-go/encoding/rle"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"sluice/jobs/columnar"
)

const (
	// A page is written when its values take this much. It is what readers
	// decompress at a time, and what the column index can pass over.
	pageBytes = 256_901
	// A dictionary pays while it fits a core's cache; beyond it, a column chunk
	// goes on in plain.
	dictionaryBytes = 1 << 20
	// Values come to a page in slices of this many, so that it does not outgrow
	// pageBytes by more. Those of a row of maps are not divided.
	valuesPerAppend = 1024
	// Bounds in the column index are cut to about this many bytes, and those of
	// the chunk, which are in the footer, that readers take whole, to these.
	indexedBytes = 16
	boundBytes   = 256
)

// chunk writes one leaf of a row group after the other: data pages version 2, after
// a dictionary page, if there is one, as parquet-format's README.md and Encodings.md
// say, kept in memory until the row group is complete. It makes, byte for byte, what
// parquet-go's ColumnWriter makes of the same values, without a parquet.Value for
// each, but for the bounds of long ones (cut).
type chunk struct {
	leaf       *leaf
	typ        parquet.Type
	encoding   encoding.Encoding // of pages without numbers of the dictionary
	codec      compress.Codec
	compressed bool

	page       page
	dictionary *dictionary // nil = the column has none
	plain      bool        // the dictionary is full: the pages to come are plain

	pages    []byte // written
	meta     format.ColumnMetaData
	index    parquet.ColumnIndexer
	offsets  format.OffsetIndex
	rows     int64   // in pages
	levels   []int64 // by page: how many levels of definition are 0, and so on up to the greatest
	repeats  []int64 // likewise of repetition
	min, max parquet.Value
	bounded  bool // there are min and max
	nan      bool // there is a NaN, and so no bounds of anything

	// The page being written.
	header        bytes.Buffer
	encoder       thrift.Encoder
	repeated      []byte // its levels of repetition
	defined       []byte // those of definition
	body, smaller []byte // its values, and compressed
}

// newChunk returns the writer of a leaf whose node is n.
func newChunk(l *leaf, n parquet.Node, codec compress.Codec) *chunk {
	k := &chunk{
		leaf: l, typ: n.Type(), encoding: n.Encoding(), codec: codec,
		compressed: codec.CompressionCodec() != format.Uncompressed,
	}
	if l.typ.Storage() == columnar.Decimal128 {
		k.page.width = k.typ.Length()
	}
	if k.encoding == nil {
		k.encoding = &parquet.Plain
	}
	if k.encoding.Encoding() == format.RLEDictionary {
		k.dictionary, k.encoding = newDictionary(k.page.width), &parquet.Plain
	}
	k.encoder.Reset(new(thrift.CompactProtocol).NewWriter(&k.header))
	k.reset()
	return k
}

// reset begins the next row group.
func (k *chunk) reset() {
	encodings := []format.Encoding{k.encoding.Encoding()}
	if k.dictionary != nil {
		k.dictionary.reset()
		encodings = append(encodings, format.RLEDictionary)
	}
	if k.leaf.maxDefinition > 0 {
		encodings = append(encodings, format.RLE)
	}
	slices.Sort(encodings)
	k.page.reset()
	k.plain = false
	k.pages = k.pages[:0]
	k.meta = format.ColumnMetaData{
		Type: format.Type(k.typ.Kind()), Encoding: encodings, PathInSchema: k.leaf.path, Codec: k.codec.CompressionCodec(),
	}
	k.index = k.typ.NewColumnIndexer(0) // chunk.cut cuts: parquet-go's own is below values of many 0xFF
	k.offsets = format.OffsetIndex{}
	k.rows, k.levels, k.repeats = 0, nil, nil
	k.bounded, k.nan = false, false
}

// write appends the values of v.
func (k *chunk) write(v *columnar.Vector) error {
	for start := 0; start < v.Len(); {
		end, err := start, error(nil)
		if k.leaf.repeated {
			end = rowsToAppend(v, start)
			err = k.page.appendRepeated(v, k.leaf, start, end, k.growing())
		} else {
			end = min(start+valuesPerAppend, v.Len())
			err = k.page.append(v, start, end, k.leaf.maxDefinition > 0, k.growing())
		}
		if err != nil {
			return err
		}
		start = end
		if k.page.size() >= pageBytes {
			if err := k.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// rowsToAppend returns the end of the rows of v, which has maps, that come to a page
// together: valuesPerAppend rows, and no more than as many entries, but at least one row.
func rowsToAppend(v *columnar.Vector, start int) (end int) {
	first, _ := v.EntriesOf(start)
	for end = start + 1; end < min(start+valuesPerAppend, v.Len()); end++ {
		if _, last := v.EntriesOf(end); last-first > valuesPerAppend {
			break
		}
	}
	return end
}

// growing returns the dictionary that the current page refers to; nil = none.
func (k *chunk) growing() *dictionary {
	if k.plain {
		return nil
	}
	return k.dictionary
}

// size returns what was written, and what was not as it is.
func (k *chunk) size() int64 {
	n := int64(len(k.pages) + k.page.size())
	if k.dictionary != nil {
		n += int64(len(k.dictionary.data))
	}
	return n
}

// flush writes the current page, if it has rows.
func (k *chunk) flush() (err error) {
	p := &k.page
	if p.rows == 0 {
		return nil
	}
	k.repeated, k.defined = k.repeated[:0], k.defined[:0]
	if k.leaf.repeated {
		if k.repeated, err = (&rle.Encoding{BitWidth: 1}).EncodeLevels(k.repeated, p.repeats); err != nil {
			return err
		}
	}
	if k.leaf.maxDefinition > 0 {
		if k.defined, err = (&rle.Encoding{BitWidth: bits.Len8(k.leaf.maxDefinition)}).EncodeLevels(k.defined, p.levels); err != nil {
			return err
		}
	}
	used := k.encoding
	var values encoding.Values
	d := k.growing()
	switch {
	case d != nil:
		used = &parquet.RLEDictionary
		k.body, err = encoding.EncodeInt32(k.body, encoding.Int32Values(p.indexes), used)
	default:
		switch k.leaf.typ.Storage() {
		case columnar.Int64:
			values = encoding.Int64Values(p.int64s)
		case columnar.Decimal128:
			values = encoding.FixedLenByteArrayValues(p.fixed, p.width)
		case columnar.Float64:
			values = encoding.DoubleValues(p.floats)
		case columnar.Bool:
			values = encoding.BooleanValues(p.bits)
		default:
			values = encoding.ByteArrayValues(p.data, p.offsets)
		}
		k.body, err = k.typ.Encode(k.body[:0], values, used)
	}
	if err != nil {
		return err
	}
	at := int64(len(k.pages))
	n, err := k.writePage(&format.PageHeader{
		Type: format.DataPageV2,
		DataPageHeaderV2: thrift.New(format.DataPageHeaderV2{
			NumValues: int32(p.nulls + p.values), NumNulls: int32(p.nulls), NumRows: int32(p.rows), Encoding: used.Encoding(),
			RepetitionLevelsByteLength: int32(len(k.repeated)), DefinitionLevelsByteLength: int32(len(k.defined)), IsCompressed: thrift.New(k.compressed),
		}),
	}, used.Encoding())
	if err != nil {
		return err
	}
	least, greatest, ok := p.bounds(d)
	if ok {
		k.widen(k.cut(least, greatest, boundBytes))
		least, greatest = k.cut(least, greatest, indexedBytes)
	}
	k.nan = k.nan || !ok && p.values > 0
	k.index.IndexPage(int64(p.nulls+p.values), int64(p.nulls), least, greatest)
	k.offsets.PageLocations = append(k.offsets.PageLocations, format.PageLocation{Offset: at, CompressedPageSize: int32(n), FirstRowIndex: k.rows})
	k.rows += int64(p.rows)
	if k.leaf.maxDefinition > 0 {
		k.levels = appendHistogram(k.levels, p.levels, k.leaf.maxDefinition)
	}
	if k.leaf.repeated {
		k.repeats = appendHistogram(k.repeats, p.repeats, 1)
	}
	k.meta.NumValues += int64(p.nulls + p.values)
	k.meta.Statistics.NullCount += int64(p.nulls)
	k.meta.SizeStatistics.UnencodedByteArrayDataBytes += int64(len(p.data))
	p.reset()
	if d != nil {
		d.nextPage()
		k.plain = len(d.data) > dictionaryBytes
	}
	return nil
}

// writePage writes the levels and values after their header, and returns how many bytes
// that took.
func (k *chunk) writePage(h *format.PageHeader, used format.Encoding) (n int, err error) {
	levels := len(k.repeated) + len(k.defined)
	size, body := levels+len(k.body), k.body
	if size > math.MaxInt32 {
		return 0, errPageTooLarge
	}
	if k.compressed {
		if k.smaller, err = k.codec.Encode(k.smaller[:0], k.body); err != nil {
			return 0, fmt.Errorf("compress a page: %w", err)
		}
		body = k.smaller
	}
	h.UncompressedPageSize, h.CompressedPageSize = int32(size), int32(levels+len(body))
	h.CRC = int32(crc32.Update(crc32.Update(crc32.ChecksumIEEE(k.repeated), crc32.IEEETable, k.defined), crc32.IEEETable, body))
	k.header.Reset()
	if err := k.encoder.Encode(h); err != nil {
		return 0, fmt.Errorf("encode a page header: %w", err)
	}
	before := len(k.pages)
	k.pages = append(append(k.pages, k.header.Bytes()...), k.repeated...)
	k.pages = append(append(k.pages, k.defined...), body...)
	k.meta.TotalUncompressedSize += int64(k.header.Len() + size)
	k.meta.TotalCompressedSize += int64(len(k.pages) - before)
	for i := range k.meta.EncodingStats {
		if s := &k.meta.EncodingStats[i]; s.PageType == h.Type && s.Encoding == used {
			s.Count++
			return len(k.pages) - before, nil
		}
	}
	k.meta.EncodingStats = append(k.meta.EncodingStats, format.PageEncodingStats{PageType: h.Type, Encoding: used, Count: 1})
	return len(k.pages) - before, nil
}

// widen takes the bounds of a page into those of the chunk.
func (k *chunk) widen(least, greatest parquet.Value) {
	if !k.bounded || k.typ.Compare(least, k.min) < 0 {
		k.min = least.Clone()
	}
	if !k.bounded || k.typ.Compare(greatest, k.max) > 0 {
		k.max = greatest.Clone()
	}
	k.bounded = true
}

// finish returns the column chunk with its indexes, and how many bytes of the chunk, which
// are the last of its pages, come before its first data page, from which the offsets count:
// those of the dictionary page. The index of the bounds is empty where there are none.
func (k *chunk) finish() (c format.ColumnChunk, index format.ColumnIndex, dictionary int, err error) {
	if err := k.flush(); err != nil {
		return c, index, 0, err
	}
	if k.dictionary != nil {
		k.repeated, k.defined = k.repeated[:0], k.defined[:0]
		if k.body, err = k.typ.Encode(k.body[:0], k.dictionary.values(), &parquet.Plain); err != nil {
			return c, index, 0, err
		}
		dictionary, err = k.writePage(&format.PageHeader{
			Type:                 format.DictionaryPage,
			DictionaryPageHeader: thrift.New(format.DictionaryPageHeader{NumValues: int32(k.dictionary.len()), Encoding: format.Plain}),
		}, format.Plain)
		if err != nil {
			return c, index, 0, err
		}
	}
	index = k.index.ColumnIndex()
	if k.leaf.maxDefinition > 0 {
		index.DefinitionLevelHistogram = k.levels
		k.meta.SizeStatistics.DefinitionLevelHistogram = sumHistograms(k.levels, k.leaf.maxDefinition)
	}
	if k.leaf.repeated {
		index.RepetitionLevelHistogram = k.repeats
		k.meta.SizeStatistics.RepetitionLevelHistogram = sumHistograms(k.repeats, 1)
	}
	// Where nothing short is above a value, there are no bounds, nor where there is a NaN:
	// to DuckDB and Spark it is greater than all numbers, and to pyarrow unequal to all, so
	// that bounds of the others would have them pass over rows that are asked for
	// (footer.dropBounds).
	if k.nan {
		index = format.ColumnIndex{}
	} else if k.bounded && (k.typ.Kind() != parquet.ByteArray || len(k.max.ByteArray()) < boundBytes+utf8.UTFMax) {
		k.meta.Statistics.MinValue = k.min.AppendBytes([]byte{})
		k.meta.Statistics.MaxValue = k.max.AppendBytes([]byte{})
	}
	slices.SortFunc(k.meta.EncodingStats, func(a, b format.PageEncodingStats) int {
		return cmp.Or(cmp.Compare(a.PageType, b.PageType), cmp.Compare(a.Encoding, b.Encoding))
	})
	return format.ColumnChunk{MetaData: k.meta}, index, dictionary, nil
}

// appendHistogram appends how many of levels are 0, and so on up to the greatest.
func appendHistogram(dst []int64, levels []byte, greatest byte) []int64 {
	if greatest == 1 { // nearly all: bytes.Count looks at many at a time
		present := bytes.Count(levels, []byte{1})
		return append(dst, int64(len(levels)-present), int64(present))
	}
	n := len(dst)
	dst = append(dst, make([]int64, int(greatest)+1)...)
	for _, l := range levels {
		dst[n+int(l)]++
	}
	return dst
}

// sumHistograms adds up what appendHistogram appended.
func sumHistograms(all []int64, greatest byte) []int64 {
	sum := make([]int64, int(greatest)+1)
	for i, n := range all {
		sum[i%len(sum)] += n
	}
	return sum
}
