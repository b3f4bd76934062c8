package parquetfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"sluice/internal/thinned"
)

// hybrid appends bits as Parquet's format describes them in RLE: in runs of a bit and in
// packed ones, of which all but the last are of whole bytes.
func hybrid(r *rand.Rand, dst []byte, bits []bool) []byte {
	for len(bits) > 0 {
		n := 1
		for n < len(bits) && bits[n] == bits[0] {
			n++
		}
		if n >= 8 || r.IntN(3) == 0 {
			n = 1 + r.IntN(n)
			dst = binary.AppendUvarint(dst, uint64(n)<<1)
			bit := byte(0)
			if bits[0] {
				bit = 1
			}
			dst, bits = append(dst, bit), bits[n:]
			continue
		}
		groups := min(1+r.IntN(3), (len(bits)+7)/8)
		packed := make([]byte, groups)
		n = min(8*groups, len(bits))
		for i, bit := range bits[:n] {
			if bit {
				packed[i/8] |= 1 << (i % 8)
			}
		}
		dst, bits = append(binary.AppendUvarint(dst, uint64(groups)<<1|1), packed...), bits[n:]
	}
	return dst
}

// boolFile returns a file of a column a of bools in RLE, nil = null, of one page.
func boolFile(t *testing.T, r *rand.Rand, rows []*bool, nullable bool, version int, codec compress.Codec) []byte {
	t.Helper()
	var there, defined []bool
	for _, x := range rows {
		defined = append(defined, x != nil)
		if x != nil {
			there = append(there, *x)
		}
	}
	prefixed := func(b []byte) []byte { return append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...) }
	pack := func(b []byte) []byte {
		b, err := codec.Encode(nil, b)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var levels []byte
	if nullable {
		levels = hybrid(r, nil, defined)
	}
	values := prefixed(hybrid(r, nil, there))
	h, body := &format.PageHeader{}, []byte(nil)
	if version == 1 {
		if nullable {
			levels = prefixed(levels)
		}
		body = pack(append(bytes.Clone(levels), values...))
		h.DataPageHeader = thrift.New(format.DataPageHeader{NumValues: int32(len(rows)), Encoding: format.RLE, DefinitionLevelEncoding: format.RLE, RepetitionLevelEncoding: format.RLE})
	} else {
		body = append(bytes.Clone(levels), pack(values)...)
		h.Type = format.DataPageV2
		h.DataPageHeaderV2 = thrift.New(format.DataPageHeaderV2{
			NumValues: int32(len(rows)), NumRows: int32(len(rows)), NumNulls: int32(len(rows) - len(there)), Encoding: format.RLE, DefinitionLevelsByteLength: int32(len(levels)),
		})
	}
	h.UncompressedPageSize, h.CompressedPageSize = int32(len(levels)+len(values)), int32(len(body))
	return crafted(t, h, body, func(m *format.FileMetaData) {
		m.Schema[1].Type.Set(format.Boolean)
		if nullable {
			m.Schema[1].RepetitionType.Set(format.Optional)
		}
		m.NumRows = int64(len(rows))
		g := &m.RowGroups[0]
		g.NumRows = m.NumRows
		c := &g.Columns[0].MetaData
		c.Type, c.Encoding, c.NumValues, c.Codec = format.Boolean, []format.Encoding{format.RLE}, m.NumRows, codec.CompressionCodec()
		c.Statistics.NullCount = int64(len(rows) - len(there))
	})
}

// boolTexts reads column a as text.
func boolTexts(file []byte) (all []string, err error) {
	rd, err := NewForeignReader(bytes.NewReader(file), int64(len(file)), []string{"a"})
	if err != nil {
		return nil, err
	}
	defer rd.Close()
	for {
		b, err := rd.Next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		for i := range b.Rows() {
			if v := b.Vector(0); v.IsNull(i) {
				all = append(all, "null")
			} else {
				all = append(all, fmt.Sprint(v.Bool(i)))
			}
		}
	}
}

// TestForeignBools: bools in RLE are what the format says that they are, whatever runs they
// are written in, in pages of both versions.
func TestForeignBools(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	rounds := thinned.Of(400, 48)
	for round := range rounds {
		nullable, version := round%2 == 0, 1+round/2%2
		codec := []compress.Codec{&parquet.Uncompressed, &parquet.Snappy, &parquet.Gzip, &parquet.Zstd, &parquet.Brotli, &parquet.Lz4Raw}[round/4%6]
		var rows []*bool
		var want []string
		x := false
		for range 1 + r.IntN([]int{3, 40, 20_000}[r.IntN(3)]) {
			if r.IntN(6) == 0 {
				x = !x
			}
			if nullable && r.IntN(5) == 0 {
				rows, want = append(rows, nil), append(want, "null")
				continue
			}
			rows, want = append(rows, new(x)), append(want, fmt.Sprint(x))
		}
		file := boolFile(t, r, rows, nullable, version, codec)
		got, err := boolTexts(file)
		if err != nil || len(got) != len(want) {
			t.Fatalf("round %d, version %d, %v: Got %d of %d rows, %v", round, version, codec, len(got), len(want), err)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("round %d, version %d, %v: row %d of %d: Got %s, want %s", round, version, codec, i, len(want), got[i], want[i])
			}
		}
	}
}

// TestForeignBoolsDamaged: runs with fewer bools than there are to be are an error.
func TestForeignBoolsDamaged(t *testing.T) {
	t.Parallel()
	for name, body := range map[string][]byte{
		"too few": {2, 0, 0, 0, 1 << 1, 1}, "no bit": {1, 0, 0, 0, 2 << 1}, "no packed bits": {1, 0, 0, 0, 1<<1 | 1}, "too long": {9, 0, 0, 0, 2 << 1, 1}, "no length": {0},
	} {
		h := twoValues(func(h *format.PageHeader) {
			h.UncompressedPageSize, h.CompressedPageSize = int32(len(body)), int32(len(body))
			h.DataPageHeader.V.Encoding = format.RLE
		})
		file := crafted(t, h, body, func(m *format.FileMetaData) {
			m.Schema[1].Type.Set(format.Boolean)
			m.RowGroups[0].Columns[0].MetaData.Type = format.Boolean
		})
		if got, err := boolTexts(file); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: Got %v, %v", name, got, err)
		}
	}
}
