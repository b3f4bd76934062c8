package parquetfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding"
	"github.com/parquet-go/parquet-go/encoding/delta"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// numbers returns numbers in DELTA_BINARY_PACKED.
func numbers(t testing.TB, all ...int32) []byte {
	t.Helper()
	b, err := new(delta.BinaryPackedEncoding).EncodeInt32(nil, all)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPageBodyClaims: pages whose runs or lengths say that there are values without end are
// refused before memory is made for these.
func TestPageBodyClaims(t *testing.T) { // not parallel: it measures memory
	run := func(n uint64, value ...byte) []byte { return append(binary.AppendUvarint(nil, n<<1), value...) }
	packedRun := func(n uint64) []byte { return binary.AppendUvarint(nil, n<<1|1) }
	levels := func(runs ...[]byte) []byte {
		all := bytes.Join(runs, nil)
		return append(binary.LittleEndian.AppendUint32(nil, uint32(len(all))), all...)
	}
	many := func(n int, x int32) (all []int32) {
		for range n {
			all = append(all, x)
		}
		return all
	}
	header := func(values uint64) (b []byte) {
		for _, x := range []uint64{128, 4, values, 0} {
			b = binary.AppendUvarint(b, x)
		}
		return b
	}
	const rows = 5000
	text := bytes.Repeat([]byte("v"), 1<<20)
	for name, tt := range map[string]struct {
		encoding format.Encoding
		text     bool
		optional bool
		body     []byte
		want     string
	}{
		"levels":        {format.Plain, false, true, levels(run(math.MaxInt32, 1), run(math.MaxInt32, 1)), "runs of 2147483647 values"},
		"levels behind": {format.Plain, false, true, []byte{9, 0, 0, 0}, "levels that go on behind a page of 4 bytes"},
		"indexes":       {format.RLEDictionary, true, false, append([]byte{1}, run(math.MaxInt32, 0)...), "runs of 2147483647 values"},
		"no width":      {format.RLEDictionary, true, false, append([]byte{0}, packedRun(math.MaxInt32)...), "runs of 2147483647 values"},
		"numbers":       {format.DeltaBinaryPacked, false, false, header(math.MaxInt32), "2147483647 numbers in a page of 5000"},
		"lengths":       {format.DeltaLengthByteArray, true, false, numbers(t, many(rows, 1<<30)...), "texts of 1073741824 bytes and more"},
		"prefixes": {
			format.DeltaByteArray, true, false,
			bytes.Join([][]byte{numbers(t, append([]int32{0}, many(rows-1, 1<<20)...)...), numbers(t, append([]int32{1 << 20}, many(rows-1, 0)...)...), text}, nil),
			"bytes and more in a page of",
		},
	} {
		for _, version2 := range []bool{false, true} {
			if version2 && tt.optional {
				tt.body = tt.body[4:]
			}
			h := &format.PageHeader{Type: format.DataPage, UncompressedPageSize: int32(len(tt.body)), CompressedPageSize: int32(len(tt.body))}
			if version2 {
				h.Type = format.DataPageV2
				v := format.DataPageHeaderV2{NumValues: rows, NumRows: rows, Encoding: tt.encoding}
				if tt.optional {
					v.DefinitionLevelsByteLength = int32(len(tt.body))
				}
				h.DataPageHeaderV2 = thrift.New(v)
			} else {
				h.DataPageHeader = thrift.New(format.DataPageHeader{NumValues: rows, Encoding: tt.encoding, DefinitionLevelEncoding: format.RLE, RepetitionLevelEncoding: format.RLE})
			}
			file := crafted(t, h, tt.body, func(m *format.FileMetaData) {
				g := &m.RowGroups[0]
				c := &g.Columns[0].MetaData
				m.NumRows, g.NumRows, c.NumValues = rows, rows, rows
				c.Encoding = []format.Encoding{tt.encoding}
				if tt.text {
					m.Schema[1].Type.Set(format.ByteArray)
					c.Type = format.ByteArray
				}
				if tt.optional {
					m.Schema[1].RepetitionType.Set(format.Optional)
				}
			})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := readForeign(file)
			runtime.ReadMemStats(&after)
			if version2 && name == "levels behind" {
				continue // the header says it
			}
			if !errors.Is(err, ErrClaim) || !strings.Contains(err.Error(), "column a: ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s, version 2 %v: Got %v, want %q", name, version2, err, tt.want)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 32<<20 {
				t.Errorf("%s, version 2 %v: %d bytes were made", name, version2, n)
			}
		}
	}
}

// TestForeignDelta reads texts and numbers in the encodings that have lengths and
// differences, in blocks that are full or not, and lengths of any width.
func TestForeignDelta(t *testing.T) {
	t.Parallel()
	type row struct {
		K string `parquet:"k,delta"`
		P string `parquet:"p,optional,delta"` // empty is null
		N int64  `parquet:"n,delta"`
	}
	for _, rows := range []int{1, 2, 33, 127, 128, 129, 130, 1000, 9000} {
		for _, version := range []int{1, 2} {
			var b bytes.Buffer
			w := parquet.NewGenericWriter[row](&b, parquet.DataPageVersion(version))
			for i := range rows {
				r := row{K: strings.Repeat("k", i*i%701) + fmt.Sprint(i), N: int64(i * i * i)}
				if i%5 != 2 {
					r.P = r.K
				}
				if _, err := w.Write([]row{r}); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if n, err := readForeignColumns(b.Bytes(), "k", "p", "n"); n != rows || err != nil {
				t.Errorf("Got %d rows, %v, want %d", n, err, rows)
			}
		}
	}
	// In DELTA_BYTE_ARRAY, lengths come twice.
	for _, lengths := range [][]int32{{3}, {0, 5, 1 << 20, 7}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34}} {
		want, sum := int32(0), int32(0)
		for _, n := range lengths {
			want += n
		}
		rest, err := walkDelta(append(numbers(t, lengths...), "rest"...), len(lengths), func(n int32) error { sum += n; return nil })
		if err != nil || string(rest) != "rest" || sum != want {
			t.Errorf("%v: Got %d bytes, %q, %v", lengths, sum, rest, err)
		}
	}
}

// FuzzPageBody: what is encoded of values passes, and what passes is decoded to no more
// than a page may have.
func FuzzPageBody(f *testing.F) {
	for which := range uint8(4) {
		f.Add([]byte("one two three two one one"), which)
		f.Add(numbers(f, 1, 2, 3, 1<<20), which)
		f.Add(append([]byte{1}, 16, 1, 3, 0xff), which)
	}
	f.Fuzz(func(t *testing.T, b []byte, which uint8) {
		e := []encoding.Encoding{&parquet.DeltaLengthByteArray, &parquet.DeltaByteArray, &parquet.DeltaBinaryPacked, &parquet.RLEDictionary}[which%4]
		kind := format.ByteArray
		if which%4 == 2 {
			kind = format.Int32
		}
		check := func(b []byte, values int) error {
			p := pageBody{kind: kind, encoding: e.Encoding(), values: values, most: 1 << 20}
			return p.check(b)
		}
		// The words of b are texts, and their lengths numbers.
		var text, encoded []byte
		var lengths []int32
		offsets := []uint32{0}
		for _, word := range bytes.Fields(b) {
			text = append(text, word...)
			offsets = append(offsets, uint32(len(text)))
			lengths = append(lengths, int32(len(word)))
		}
		var err error
		if which%4 < 2 {
			encoded, err = e.EncodeByteArray(nil, text, offsets)
		} else {
			encoded, err = e.EncodeInt32(nil, lengths)
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(text) < 1<<20 {
			if err := check(encoded, len(lengths)); err != nil {
				t.Errorf("%d values in %s: Got %v", len(lengths), e, err)
			}
		}
		const values = 100
		if check(b, values) != nil {
			return
		}
		n, most := 0, 1<<20
		func() {
			var err error
			defer recovered(&err) // as the reader does
			if which%4 < 2 {
				made, ends, _ := e.DecodeByteArray(nil, b, nil)
				n = len(made) + 4*len(ends) - 4*values
			} else {
				made, _ := e.DecodeInt32(nil, b)
				n = 4 * len(made)
			}
		}()
		if which%4 >= 2 {
			most = 4 * (values + morePageValues)
		}
		if n > most+64 {
			t.Errorf("%s: %x passes, and is decoded to %d bytes", e, b, n)
		}
	})
}
