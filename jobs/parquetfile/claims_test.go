package parquetfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"sluice/jobs/columnar"
)

// crafted returns a file of one column a, INT64, of one page with this header.
func crafted(t testing.TB, h *format.PageHeader, body []byte, edit func(*format.FileMetaData)) []byte {
	t.Helper()
	marshal := func(v any) []byte {
		b, err := thrift.Marshal(new(thrift.CompactProtocol), v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	file := append([]byte(magic), marshal(h)...)
	file = append(file, body...)
	root, a := format.SchemaElement{Name: "t"}, format.SchemaElement{Name: "a"}
	root.NumChildren.Set(1)
	a.Type.Set(format.Int64)
	a.RepetitionType.Set(format.Required)
	m := &format.FileMetaData{
		Version: 2, NumRows: 2, Schema: []format.SchemaElement{root, a},
		RowGroups: []format.RowGroup{{NumRows: 2, Columns: []format.ColumnChunk{{MetaData: format.ColumnMetaData{
			Type: format.Int64, Encoding: []format.Encoding{format.Plain}, PathInSchema: []string{"a"},
			NumValues: 2, TotalUncompressedSize: int64(len(file) - 4), TotalCompressedSize: int64(len(file) - 4), DataPageOffset: 4,
		}}}}},
	}
	if edit != nil {
		edit(m)
	}
	footer := marshal(m)
	return append(binary.LittleEndian.AppendUint32(append(file, footer...), uint32(len(footer))), magic...)
}

// twoValues is the header of a page of two numbers, in 16 bytes.
func twoValues(edit func(*format.PageHeader)) *format.PageHeader {
	h := &format.PageHeader{
		Type: format.DataPage, UncompressedPageSize: 16, CompressedPageSize: 16,
		DataPageHeader: thrift.New(format.DataPageHeader{NumValues: 2, Encoding: format.Plain, DefinitionLevelEncoding: format.RLE, RepetitionLevelEncoding: format.RLE}),
	}
	if edit != nil {
		edit(h)
	}
	return h
}

// readForeign reads all of column a.
func readForeign(file []byte) (rows int, err error) { return readForeignColumns(file, "a") }

func readForeignColumns(file []byte, columns ...string) (rows int, err error) {
	r, err := NewForeignReader(bytes.NewReader(file), int64(len(file)), columns)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	for {
		b, err := r.Next()
		if err == io.EOF {
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
		rows += b.Rows()
	}
}

// TestClaims: files of others that say of sizes and counts what cannot be are refused
// before memory is made for it.
func TestClaims(t *testing.T) {
	t.Parallel()
	body := make([]byte, 16)
	if n, err := readForeign(crafted(t, twoValues(nil), body, nil)); err != nil || n != 2 {
		t.Fatalf("Got %d rows, %v of an honest file", n, err)
	}
	v2 := func(edit func(*format.DataPageHeaderV2)) func(h *format.PageHeader) {
		return func(h *format.PageHeader) {
			h.Type, h.DataPageHeader = format.DataPageV2, thrift.Null[format.DataPageHeader]{}
			h.DataPageHeaderV2 = thrift.New(format.DataPageHeaderV2{NumValues: 2, NumRows: 2})
			edit(&h.DataPageHeaderV2.V)
		}
	}
	chunk := func(edit func(*format.ColumnMetaData)) func(m *format.FileMetaData) {
		return func(m *format.FileMetaData) { edit(&m.RowGroups[0].Columns[0].MetaData) }
	}
	const page = "row group 0, column a: page at byte 4: "
	for name, tt := range map[string]struct {
		page func(*format.PageHeader)
		file func(*format.FileMetaData)
		body []byte
		want string
	}{
		"compressed size":   {page: func(h *format.PageHeader) { h.CompressedPageSize = math.MaxInt32 }, want: page + ErrClaim.Error() + ": 2147483647 bytes, where its column chunk has 16 more"},
		"negative size":     {page: func(h *format.PageHeader) { h.CompressedPageSize = -1 }, want: page + ErrClaim.Error() + ": 16 bytes, compressed to -1"},
		"uncompressed size": {page: func(h *format.PageHeader) { h.UncompressedPageSize = math.MaxInt32 }, want: "2147483647 bytes, in 16 that are not compressed"},
		"shrunk": {
			page: func(h *format.PageHeader) { h.UncompressedPageSize = math.MaxInt32 }, file: chunk(func(m *format.ColumnMetaData) { m.Codec = format.Zstd }),
			want: "2147483647 bytes, compressed to 16",
		},
		"snappy": {
			file: chunk(func(m *format.ColumnMetaData) { m.Codec = format.Snappy }), body: binary.AppendUvarint(nil, math.MaxUint32),
			want: "4294967295 bytes in what was compressed of 16",
		},
		"values": {page: func(h *format.PageHeader) { h.DataPageHeader.V.NumValues = math.MaxInt32 }, want: "2147483647 values in 16 bytes"},
		"dictionary": {page: func(h *format.PageHeader) {
			h.Type, h.DictionaryPageHeader = format.DictionaryPage, thrift.New(format.DictionaryPageHeader{NumValues: 17})
		}, want: "a dictionary of 17 values in 16 bytes"},
		"levels":     {page: v2(func(h *format.DataPageHeaderV2) { h.DefinitionLevelsByteLength = 17 }), want: "levels of 17 bytes in a page of 16"},
		"nulls":      {page: v2(func(h *format.DataPageHeaderV2) { h.NumNulls = 3 }), want: "3 nulls and 2 rows among 2 values"},
		"rows":       {page: v2(func(h *format.DataPageHeaderV2) { h.NumRows = 3 }), want: "0 nulls and 3 rows among 2 values"},
		"chunk size": {file: chunk(func(m *format.ColumnMetaData) { m.TotalCompressedSize = math.MaxInt64 }), want: "column a: " + ErrClaim.Error() + ": a column chunk of 9223372036854775807 bytes at byte 4 of a file of"},
		"offset":     {file: chunk(func(m *format.ColumnMetaData) { m.DataPageOffset = 1 << 40 }), want: "a column chunk of"},
		"dictionary's offset": {
			file: chunk(func(m *format.ColumnMetaData) { m.DictionaryPageOffset, m.DataPageOffset = 5, 4 }), want: "pages at byte 4, of a column chunk from byte 5",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := append(bytes.Clone(tt.body), body...)[:16]
			_, err := readForeign(crafted(t, twoValues(tt.page), body, tt.file))
			if !errors.Is(err, ErrClaim) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestFooterClaims: so are lengths within a footer, and its own.
func TestFooterClaims(t *testing.T) {
	t.Parallel()
	many := binary.AppendUvarint(nil, 1<<40)
	for name, tt := range map[string]struct {
		footer []byte
		want   string
	}{
		"list":     {append([]byte{0x29, 0xfc}, many...), "a list of 1099511627776 elements where there are"},
		"text":     {append([]byte{0x18}, many...), "1099511627776 bytes where there are"},
		"map":      {append(append([]byte{0x1b}, many...), 0x88), "a list of 1099511627776 elements"},
		"cut off":  {[]byte{0x15}, "goes on behind its end"},
		"deep":     {bytes.Repeat([]byte{0x1c}, 100), errThrift.Error()},
		"empty":    {[]byte{0x29, 0x1c, 0, 0}, errThrift.Error()},
		"no type":  {[]byte{0x1f, 0}, errThrift.Error()},
		"too long": {nil, "a footer of 4000000000 bytes in a file of"},
	} {
		file := append([]byte(magic), tt.footer...)
		n := uint32(len(tt.footer))
		if tt.footer == nil {
			n = 4_000_000_000
		}
		file = append(binary.LittleEndian.AppendUint32(file, n), magic...)
		for _, foreign := range []bool{true, false} {
			var err error
			if foreign {
				_, err = readForeign(file)
			} else {
				_, err = NewReader(bytes.NewReader(file), int64(len(file)))
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: Got %v, want %q", name, err, tt.want)
			}
		}
	}
}

// TestLargeHeader reads a page whose header has bounds larger than what is read at once.
func TestLargeHeader(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]bool{headerRead: true, maxHeader / 3: true, maxHeader: false} {
		h := twoValues(func(h *format.PageHeader) {
			h.DataPageHeader.V.Statistics.MinValue, h.DataPageHeader.V.Statistics.MaxValue = make([]byte, size), make([]byte, size)
		})
		if _, err := readForeign(crafted(t, h, make([]byte, 16), nil)); (err == nil) != want {
			t.Errorf("bounds of %d bytes: Got %v", size, err)
		}
	}
}

// FuzzForeign: no file makes the reader panic, or read for ever, and no batch is larger
// than the values that it is to have and one of each column.
func FuzzForeign(f *testing.F) {
	f.Add(crafted(f, twoValues(nil), make([]byte, 16), nil))
	for _, name := range codecNames {
		c, err := codec(name)
		if err != nil {
			f.Fatal(err)
		}
		var b bytes.Buffer
		type row struct {
			A map[string]int64 `parquet:"a,optional"`
		}
		w := parquet.NewGenericWriter[row](&b, parquet.Compression(c))
		if _, err := w.Write([]row{{map[string]int64{"x": 1, "y": 2}}, {}, {map[string]int64{}}}); err != nil {
			f.Fatal(err)
		}
		if err := w.Close(); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	type delta struct {
		A string `parquet:"a,optional,delta"`
	}
	type dictionary struct {
		A string `parquet:"a,optional,dict"`
	}
	var b, c bytes.Buffer
	w, v := parquet.NewGenericWriter[delta](&b), parquet.NewGenericWriter[dictionary](&c, parquet.DataPageVersion(1))
	_, err := w.Write([]delta{{"one"}, {""}, {"one two"}})
	_, err2 := v.Write([]dictionary{{"one"}, {""}, {"one"}})
	if err := errors.Join(err, err2, w.Close(), v.Close()); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(c.Bytes())
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := NewForeignReader(bytes.NewReader(file), int64(len(file)), []string{"a"})
		if err != nil {
			return
		}
		for range 100 {
			b, err := r.Next()
			if err != nil {
				break
			}
			// A value is within a page, or, of a map, its entries are.
			if n := b.Bytes(); n > columnar.ReadBatchBytes+anyPageBytes+(maxShrink+8)*len(file) && r.maps[0] == nil {
				t.Errorf("Got a batch of %d bytes of a file of %d", n, len(file))
			}
		}
		_ = r.Close() // it may tell of the damage again
	})
}
