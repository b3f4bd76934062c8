package arrowfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/ipc"
	"github.com/apache/arrow/go/v15/arrow/memory"

	"sluice/jobs/columnar"
)

// readForeign reads all of columns.
func readForeign(file []byte, columns ...string) (rows int, err error) {
	r, err := NewForeignReader(bytes.NewReader(file), int64(len(file)), columns, nil)
	if err != nil {
		return 0, err
	}
	for {
		b, err := r.Next()
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			return rows, errors.Join(err, r.Close())
		}
		rows += b.Rows()
	}
}

// textFile returns a file of one record batch of a nullable text column a.
func textFile(t testing.TB, codec string, values ...string) []byte {
	t.Helper()
	columns := []columnar.Column{{Name: "a", Type: columnar.String, Nullable: true}}
	batch := columnar.NewBatch(columns)
	for _, v := range values {
		if err := batch.Vector(0).AppendBytes([]byte(v)); err != nil {
			t.Fatal(err)
		}
	}
	batch.Vector(0).AppendNull()
	var b bytes.Buffer
	w, err := NewWriter(&b, columns, &Options{Codec: codec})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(batch); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// patched returns a file in which the bytes of old, which are there n times, are others.
func patched(t *testing.T, file, old, other []byte, n int) []byte {
	t.Helper()
	if got := bytes.Count(file, old); got != n {
		t.Fatalf("% x is there %d times, want %d", old, got, n)
	}
	return bytes.ReplaceAll(file, old, other)
}

func u64(n ...uint64) (b []byte) {
	for _, n := range n {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

// allocated returns how many bytes do has asked for.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestClaims: a file that says that it has more than it has is refused, and no memory is
// made for what it says.
func TestClaims(t *testing.T) {
	text := strings.Repeat("x", 1000)
	plain, packed := textFile(t, "none", text), textFile(t, "zstd", text)
	for _, file := range [][]byte{plain, packed} {
		if n, err := readForeign(file, "a"); n != 2 || err != nil {
			t.Fatalf("Got %d rows, %v of an honest file", n, err)
		}
	}
	footer := len(plain) - tailBytes - int(binary.LittleEndian.Uint32(plain[len(plain)-tailBytes:]))
	// blockAt is where the file says where its record batch is.
	blockAt := func() int {
		for i := footer; i < len(plain)-tailBytes; i += 4 {
			at, meta := binary.LittleEndian.Uint64(plain[i:]), binary.LittleEndian.Uint32(plain[i+8:])
			if at > 0 && at < uint64(footer) && at+uint64(meta)+binary.LittleEndian.Uint64(plain[i+16:]) <= uint64(footer) && meta > 0 && at%8 == 0 && binary.LittleEndian.Uint32(plain[at:]) == math.MaxUint32 {
				return i
			}
		}
		t.Fatal("there is no block")
		return 0
	}()
	at := func(i int, b []byte) []byte {
		file := bytes.Clone(plain)
		copy(file[i:], b)
		return file
	}
	const huge = 1 << 36
	offsets := u64(8, 12) // the buffer of the text's offsets: three, behind eight bytes of nulls
	if bytes.Count(plain, offsets) == 0 {
		offsets = u64(64, 12)
	}
	size := u64(1000)
	for name, tt := range map[string]struct {
		file []byte
		want string
	}{
		"footer":       {at(len(plain)-tailBytes, []byte{0xf0, 0xff, 0xff, 0x7f}), "a footer of 2147483632 bytes"},
		"block":        {at(blockAt+16, u64(huge)), "where the footer begins at byte"},
		"metadata":     {at(blockAt+8, []byte{0xf8, 0xff, 0xff, 0x7f}), "where the footer begins at byte"},
		"offset":       {at(blockAt, u64(math.MaxInt64-7)), "where the footer begins at byte"},
		"below":        {at(blockAt, u64(math.MaxUint64-7)), "where the footer begins at byte"},
		"buffer":       {patched(t, plain, offsets, append(bytes.Clone(offsets[:8]), u64(huge)...), 1), "buffer 1 has 68719476736 bytes from byte"},
		"uncompressed": {patched(t, packed, size, u64(huge), 1), "68719476736 bytes, where"},
	} {
		var rows int
		var err error
		n := allocated(func() { rows, err = readForeign(tt.file, "a") })
		if !errors.Is(err, ErrClaim) || !strings.Contains(err.Error(), tt.want) || rows > 0 {
			t.Errorf("%s: Got %d rows, %v, want %q", name, rows, err, tt.want)
		}
		if n > 100<<20 {
			t.Errorf("%s: %d bytes were asked for", name, n)
		}
	}
}

// TestSchemaClaims: the lists of a schema are as long as they can be, and no deeper than
// Arrow reads them.
func TestSchemaClaims(t *testing.T) { // not parallel: what others ask for would count
	deep := arrow.DataType(arrow.PrimitiveTypes.Int8)
	for range maxNested + 1 {
		deep = arrow.ListOf(deep)
	}
	var none bytes.Buffer
	w, err := ipc.NewFileWriter(&position{w: &none}, ipc.WithSchema(arrow.NewSchema([]arrow.Field{{Name: "a", Type: deep}}, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := readForeign(none.Bytes(), "a"); !errors.Is(err, ErrClaim) || !strings.Contains(err.Error(), "nested more than 64 deep") {
		t.Errorf("Got %v of lists in lists", err)
	}
	file := textFile(t, "none", "x")
	end := len(file) - tailBytes
	start := end - int(binary.LittleEndian.Uint32(file[end:]))
	// Every number of the footer in turn is what a list could have for a length.
	claims := 0
	for i := start; i < end; i += 4 {
		bad := bytes.Clone(file)
		copy(bad[i:], []byte{0xff, 0xff, 0xff, 0x3f})
		n := allocated(func() {
			if _, err := readForeign(bad, "a"); errors.Is(err, ErrClaim) {
				claims++
			}
		})
		if n > 100<<20 {
			t.Errorf("byte %d of %d of the footer: %d bytes were asked for", i-start, end-start, n)
		}
	}
	if claims < 4 { // at least the fields, the name, the blocks, and the sizes of the block
		t.Errorf("Got %d claims", claims)
	}
}

// TestForeignValues: values that there are no bytes for, and those that go back to the
// bytes of others, are refused before a row is returned.
func TestForeignValues(t *testing.T) {
	t.Parallel()
	offsets := func(n ...int32) *memory.Buffer {
		return memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(n))
	}
	valid := memory.NewBufferBytes([]byte{0b101})
	texts := func(n ...int32) arrow.ArrayData {
		return array.NewData(arrow.BinaryTypes.String, len(n)-1, []*memory.Buffer{valid, offsets(n...), memory.NewBufferBytes([]byte("abcd"))}, nil, 1, 0)
	}
	maps := func(n ...int32) arrow.ArrayData {
		typ := arrow.MapOf(arrow.BinaryTypes.String, arrow.BinaryTypes.String)
		of := func() arrow.ArrayData {
			return array.NewData(arrow.BinaryTypes.String, 2, []*memory.Buffer{nil, offsets(0, 2, 4), memory.NewBufferBytes([]byte("abcd"))}, nil, 0, 0)
		}
		entries := array.NewData(typ.Elem(), 2, []*memory.Buffer{nil}, []arrow.ArrayData{of(), of()}, 0, 0)
		return array.NewData(typ, len(n)-1, []*memory.Buffer{valid, offsets(n...)}, []arrow.ArrayData{entries}, 1, 0)
	}
	bits := func(n int) arrow.ArrayData {
		return array.NewData(arrow.FixedWidthTypes.Boolean, 9000, []*memory.Buffer{nil, memory.NewBufferBytes(make([]byte, n))}, nil, 0, 0)
	}
	for name, tt := range map[string]struct {
		data arrow.ArrayData
		want string
	}{
		"texts":          {texts(0, 2, 2, 4), ""},
		"texts go back":  {texts(0, 4, 0, 4), "damaged: value 1 ends before it begins"},
		"maps":           {maps(0, 1, 1, 2), ""},
		"maps go back":   {maps(0, 2, 0, 2), "damaged: value 1 ends before it begins"},
		"maps of no map": {maps(0, 1, 1, 3), "damaged: its maps have 3 entries, and there are 2"},
		"bools":          {bits(1125), ""},
		"no bools":       {bits(1040), "damaged: it has 9000 values, in 1040 bytes"},
	} {
		schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: tt.data.DataType(), Nullable: true}}, nil)
		rec := array.NewRecord(schema, []arrow.Array{array.MakeFromData(tt.data)}, int64(tt.data.Len()))
		if err := checkColumn(rec, rec.Column(0)); (err == nil) != (tt.want == "") || err != nil && err.Error() != tt.want {
			t.Errorf("%s: Got %v, want %q", name, err, tt.want)
		}
		if tt.want != "" {
			rec.Release() // Arrow does not write such
			continue
		}
		r := writeRecord(t, rec)
		file := make([]byte, r.Size())
		if _, err := r.ReadAt(file, 0); err != nil {
			t.Fatal(err)
		}
		if rows, err := readForeign(file, "a"); rows != tt.data.Len() || err != nil {
			t.Errorf("%s: Got %d rows, %v", name, rows, err)
		}
	}
	if _, ok := foreignType(&arrow.FixedSizeBinaryType{}); ok {
		t.Error("bytes of no width are taken: any number of rows has none")
	}
}

// FuzzForeign: no file makes the reader panic, or ask for all memory.
func FuzzForeign(f *testing.F) {
	for _, codec := range codecNames {
		f.Add(textFile(f, codec, "x", "yz", strings.Repeat("x", 1000)))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := NewForeignReader(bytes.NewReader(file), int64(len(file)), []string{"a"}, nil)
		if err != nil {
			return
		}
		for range 100 {
			if _, err := r.Next(); err != nil {
				break
			}
		}
		_ = r.Close()
	})
}
