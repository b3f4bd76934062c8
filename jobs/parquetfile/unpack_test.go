package parquetfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/compress/lz4"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"sluice/jobs/columnar"
)

// hard returns n bytes that LZ4 makes a little smaller, by less than a third.
func hard(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range n * 3 / 4 {
		b[i] = byte(r.Uint32())
	}
	copy(b[n*3/4:], b)
	return b
}

// TestLZ4 reads pages that LZ4 has not made much smaller, for which parquet-go's reader
// hands out another buffer than the one it has decompressed into
// (github.com/parquet-go/parquet-go/issues/608).
func TestLZ4(t *testing.T) {
	t.Parallel()
	type row struct {
		A []byte            `parquet:"a"`
		N *int64            `parquet:"n,optional"`
		D string            `parquet:"d,dict"`
		M map[string][]byte `parquet:"m"`
	}
	r := rand.New(rand.NewPCG(1, 2))
	var rows []row
	for i := range 3000 {
		n := r.Int64()
		x := row{A: hard(r, 40), N: &n, D: fmt.Sprintf("%x", hard(r, 12)), M: map[string][]byte{"k": hard(r, 24)}}
		if i%5 == 0 {
			x.N = nil
		}
		rows = append(rows, x)
	}
	for _, version := range []int{1, 2} {
		var b bytes.Buffer
		w := parquet.NewGenericWriter[row](&b, parquet.DataPageVersion(version), parquet.Compression(&lz4.Codec{Level: lz4.Fastest}), parquet.PageBufferSize(30_000), parquet.MaxRowsPerRowGroup(1300))
		if _, err := w.Write(rows); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		rd, err := NewForeignReader(bytes.NewReader(b.Bytes()), int64(b.Len()), []string{"a", "n", "d", "m"})
		if err != nil {
			t.Fatal(err)
		}
		at := map[string]int{}
		for i, c := range rd.Columns() {
			at[c.Name] = i
		}
		read := 0
		for {
			batch, err := rd.Next()
			if err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("version %d, after %d rows: %v", version, read, err)
			}
			a, n, d, m := batch.Vector(at["a"]), batch.Vector(at["n"]), batch.Vector(at["d"]), batch.Vector(at["m"])
			for i := range batch.Rows() {
				x := rows[read]
				if !bytes.Equal(a.Bytes(i), x.A) || n.IsNull(i) != (x.N == nil) || x.N != nil && n.Int64s()[i] != *x.N || string(d.Bytes(i)) != x.D || !bytes.Equal(m.Values().Bytes(i), x.M["k"]) {
					t.Fatalf("version %d: row %d is another one", version, read)
				}
				read++
			}
		}
		if read != len(rows) {
			t.Errorf("version %d: Got %d rows, want %d", version, read, len(rows))
		}
		if err := rd.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLZ4Own: likewise of our own files.
func TestLZ4Own(t *testing.T) {
	t.Parallel()
	columns := []columnar.Column{{Name: "a", Type: columnar.Bytes}, {Name: "n", Type: columnar.Int64, Nullable: true}}
	batch := columnar.NewBatch(columns)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 5000 {
		if err := batch.Vector(0).AppendBytes(hard(r, 40)); err != nil {
			t.Fatal(err)
		}
		if i%7 == 0 {
			batch.Vector(1).AppendNull()
		} else {
			batch.Vector(1).AppendInt64(r.Int64())
		}
	}
	want := columnar.NewChecksum(len(columns))
	want.Add(batch)
	var b bytes.Buffer
	w, err := NewWriter(&b, columns, &Options{Codec: "lz4"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(batch); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	rd, err := NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	got := columnar.NewChecksum(len(columns))
	for {
		b, err := rd.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		got.Add(b)
	}
	if fmt.Sprint(got.Sums()) != fmt.Sprint(want.Sums()) {
		t.Errorf("Got %v, want %v", got.Sums(), want.Sums())
	}
	if err := rd.Close(); err != nil {
		t.Error(err)
	}
}

// TestUnpackFull reads pages whose bytes are as many as parquet-go's buffers have, of all
// codecs.
func TestUnpackFull(t *testing.T) {
	t.Parallel()
	type row struct {
		A int64 `parquet:"a,plain"`
	}
	for _, c := range []compress.Codec{&parquet.Gzip, &parquet.Brotli, &parquet.Zstd, &parquet.Snappy, &parquet.Lz4Raw, &parquet.Uncompressed} {
		for _, n := range []int{511, 512, 513, 1024, 4096, 8192} {
			var b bytes.Buffer
			w := parquet.NewGenericWriter[row](&b, parquet.Compression(c), parquet.DataPageVersion(1))
			r, sum, got := rand.New(rand.NewPCG(1, uint64(n))), uint64(0), uint64(0)
			for range n {
				x := r.Int64()
				sum = sum*31 + uint64(x)
				if _, err := w.Write([]row{{x}}); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			rd, err := NewForeignReader(bytes.NewReader(b.Bytes()), int64(b.Len()), []string{"a"})
			if err != nil {
				t.Fatal(err)
			}
			for {
				batch, err := rd.Next()
				if err == io.EOF {
					break
				} else if err != nil {
					t.Fatalf("%v, %d rows: %v", c, n, err)
				}
				for _, x := range batch.Vector(0).Int64s() {
					got = got*31 + uint64(x)
				}
			}
			if got != sum {
				t.Errorf("%v: %d rows have other values", c, n)
			}
			if err := rd.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestUnpackLonger: what unfolds to more than the header of a page says is an error, and
// is not unfolded.
func TestUnpackLonger(t *testing.T) {
	t.Parallel()
	for codec, c := range map[format.CompressionCodec]compress.Codec{format.Gzip: &parquet.Gzip, format.Brotli: &parquet.Brotli, format.Zstd: &parquet.Zstd, format.Lz4Raw: &parquet.Lz4Raw} {
		for n, want := range map[int]string{16: "", 15: "damaged: 15 bytes where its header says 16", 17: "damaged: decompress: ", 50 << 20: "damaged: decompress: "} {
			if testing.Short() && n > 1<<20 && codec != format.Gzip {
				continue // the race detector makes minutes of them
			}
			body, err := c.Encode(nil, make([]byte, n))
			if err != nil {
				t.Fatal(err)
			}
			h := twoValues(func(h *format.PageHeader) { h.CompressedPageSize = int32(len(body)) })
			file := crafted(t, h, body, func(m *format.FileMetaData) { m.RowGroups[0].Columns[0].MetaData.Codec = codec })
			rows, err := readForeign(file)
			if want == "" {
				if rows != 2 || err != nil {
					t.Errorf("%v: Got %d rows, %v", codec, rows, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v of %d bytes: Got %d rows, %v, want %q", codec, n, rows, err, want)
			}
		}
	}
}

// TestLZ4Damaged: a page that is no LZ4, or is longer or shorter than its header says, is
// an error, and no memory is made beyond what the header says. A checksum is compared.
func TestLZ4Damaged(t *testing.T) {
	t.Parallel()
	edit := func(m *format.FileMetaData) { m.RowGroups[0].Columns[0].MetaData.Codec = format.Lz4Raw }
	literals := func(n int) []byte { return append([]byte{15 << 4, byte(n - 15)}, make([]byte, n)...) }
	for name, tt := range map[string]struct {
		body []byte
		crc  int32
		want string
	}{
		"whole":     {literals(16), 0, ""},
		"checksum":  {literals(16), 7, "damaged: its checksum is"},
		"no LZ4":    {bytes.Repeat([]byte{0xff}, 20), 0, "damaged: decompress: "},
		"too short": {literals(15), 0, "damaged: 15 bytes where its header says 16"},
		"too long":  {literals(17), 0, "damaged: decompress: "},
		"nothing":   {nil, 0, "damaged: "},
	} {
		h := twoValues(func(h *format.PageHeader) { h.CompressedPageSize, h.CRC = int32(len(tt.body)), tt.crc })
		rows, err := readForeign(crafted(t, h, tt.body, edit))
		if tt.want == "" {
			if rows != 2 || err != nil {
				t.Errorf("%s: Got %d rows, %v", name, rows, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Got %d rows, %v, want %q", name, rows, err, tt.want)
		}
	}
}

// splitFile returns what is before a file's footer, and that.
func splitFile(t *testing.T, file []byte) (body []byte, m format.FileMetaData) {
	t.Helper()
	n := int(binary.LittleEndian.Uint32(file[len(file)-tailBytes:]))
	body = file[:len(file)-tailBytes-n]
	if err := thrift.Unmarshal(new(thrift.CompactProtocol), file[len(body):len(file)-tailBytes], &m); err != nil {
		t.Fatal(err)
	}
	return body, m
}

// joinFile is the inverse of splitFile.
func joinFile(t *testing.T, body []byte, m *format.FileMetaData) []byte {
	t.Helper()
	footer, err := thrift.Marshal(new(thrift.CompactProtocol), m)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.LittleEndian.AppendUint32(slices.Concat(body, footer), uint32(len(footer))), magic...)
}

// joined returns a file with the row groups of both files, which have one schema.
func joined(t *testing.T, a, b []byte) []byte {
	t.Helper()
	body, m := splitFile(t, a)
	behind, second := splitFile(t, b)
	by := int64(len(body) - len(magic))
	for _, g := range second.RowGroups {
		g.FileOffset, g.Ordinal = g.FileOffset+by, int16(len(m.RowGroups))
		for i := range g.Columns {
			c := &g.Columns[i].MetaData
			c.DataPageOffset += by
			if c.DictionaryPageOffset != 0 {
				c.DictionaryPageOffset += by
			}
		}
		m.RowGroups, m.NumRows = append(m.RowGroups, g), m.NumRows+g.NumRows
	}
	for _, g := range m.RowGroups {
		for i := range g.Columns {
			c := &g.Columns[i]
			c.ColumnIndexOffset, c.ColumnIndexLength, c.OffsetIndexOffset, c.OffsetIndexLength = 0, 0, 0, 0
		}
	}
	return joinFile(t, slices.Concat(body, behind[len(magic):]), &m)
}

// TestForeignMixedCodecs reads files whose row groups are compressed with different codecs,
// of which parquet-go uses the first.
func TestForeignMixedCodecs(t *testing.T) {
	t.Parallel()
	type row struct {
		A int32  `parquet:"a"`
		S string `parquet:"s,dict"`
	}
	value := func(i int) row {
		n := int32(uint32(i+1) * 2654435761) // none of them shrinks
		return row{A: n, S: fmt.Sprint(n % 7)}
	}
	codecs := []compress.Codec{&parquet.Uncompressed, &parquet.Snappy, &parquet.Zstd, &parquet.Lz4Raw}
	for _, version := range []int{1, 2} {
		write := func(codec compress.Codec, from int) []byte {
			var b bytes.Buffer
			w := parquet.NewGenericWriter[row](&b, parquet.DataPageVersion(version), parquet.Compression(codec))
			for i := range 50 {
				if _, err := w.Write([]row{value(from + i)}); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			return b.Bytes()
		}
		for _, first := range codecs {
			for _, second := range codecs {
				file := joined(t, write(first, 0), write(second, 50))
				rd, err := NewForeignReader(bytes.NewReader(file), int64(len(file)), []string{"a", "s"})
				if err != nil {
					t.Fatal(err)
				}
				read := 0
				for {
					batch, err := rd.Next()
					if err == io.EOF {
						break
					} else if err != nil {
						t.Fatalf("version %d, %v and %v, after %d rows: %v", version, first, second, read, err)
					}
					for i := range batch.Rows() {
						want := value(read)
						if a, s := batch.Vector(0).Int64s()[i], batch.Vector(1).Bytes(i); a != int64(want.A) || string(s) != want.S {
							t.Fatalf("version %d, %v and %v: Got %d, %q in row %d, want %v", version, first, second, a, s, read, want)
						}
						read++
					}
				}
				if read != 100 {
					t.Errorf("version %d, %v and %v: Got %d rows, want 100", version, first, second, read)
				}
				if err := rd.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}
