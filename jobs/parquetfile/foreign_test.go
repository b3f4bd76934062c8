package parquetfile

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/compress/lz4"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"sluice/jobs/columnar"
	"sluice/jobs/columnar/columnartest"
)

// foreign is a row as others write it.
type foreign struct {
	I8     int8               `parquet:"i8"`
	I32    int32              `parquet:"i32,optional"`
	U32    uint32             `parquet:"u32"`
	I64    int64              `parquet:"i64"`
	U64    uint64             `parquet:"u64"`
	F32    float32            `parquet:"f32"`
	F64    float64            `parquet:"f64"`
	B      bool               `parquet:"b"`
	S      string             `parquet:"s,optional,dict"`
	Raw    []byte             `parquet:"raw"`
	ID     [16]byte           `parquet:"id,uuid"`
	Nested struct{ A, B int } `parquet:"nested"`
	List   []int64            `parquet:"list,list"`
	Ms     int64              `parquet:"ms,timestamp(millisecond)"`
	Us     time.Time          `parquet:"us,timestamp(microsecond)"`
	Ns     int64              `parquet:"ns,timestamp(nanosecond)"`
	Day    int32              `parquet:"day,date"`
}

func writeForeign(t *testing.T, rows ...foreign) *bytes.Reader {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[foreign](&b)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(b.Bytes())
}

// TestForeignReader reads every type of which ours hold every value, from between
// columns that it passes over.
func TestForeignReader(t *testing.T) {
	t.Parallel()
	r := writeForeign(t, foreign{
		I8: -8, I32: -32, U32: 4_000_000_000, I64: -64, F32: 1.5, F64: 2.5, B: true, S: "é", Raw: []byte{0}, ID: [16]byte{1},
		List: []int64{1, 2, 3}, Ms: -1, Us: time.UnixMicro(7).UTC(), Ns: 9000,
	}, foreign{})
	names := []string{"ns", "i8", "i32", "u32", "i64", "f32", "f64", "b", "s", "raw", "id", "ms", "us"}
	rd, err := NewForeignReader(r, r.Size(), names)
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	b, err := rd.Next()
	if err != nil || b.Rows() != 2 {
		t.Fatal(b, err)
	}
	got := map[string]string{}
	for i, c := range rd.Columns() {
		v, text := b.Vector(i), "null"
		switch {
		case v.IsNull(0):
		case c.Type.Storage() == columnar.Int64:
			text = fmt.Sprint(v.Int64s()[0])
		case c.Type == columnar.Float64:
			text = fmt.Sprint(v.Float64s()[0])
		case c.Type == columnar.Bool:
			text = fmt.Sprint(v.Bool(0))
		default:
			text = fmt.Sprintf("%q", v.Bytes(0))
		}
		got[c.Name] = fmt.Sprint(c.Type, " ", text, " ", v.IsNull(1))
	}
	want := map[string]string{
		"i8": "int64 -8 false", "i32": "int64 -32 true", "u32": "int64 4000000000 false", "i64": "int64 -64 false", "f32": "float64 1.5 false",
		"f64": "float64 2.5 false", "b": "bool true false", "s": `string "é" true`, "raw": `bytes "\x00" false`,
		"id": `bytes "\x01` + strings.Repeat(`\x00`, 15) + `" false`, "ms": "timestamp -1000 false", "us": "timestamp 7 false", "ns": "timestamp 9 false",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if _, err := rd.Next(); err != io.EOF {
		t.Errorf("Got %v at the end", err)
	}
}

func TestForeignReaderRefuses(t *testing.T) {
	t.Parallel()
	r := writeForeign(t, foreign{Ns: 1, Ms: 1 << 62})
	for name, want := range map[string]string{
		"nope": "no column nope; it has \"", "u64": "column u64 has type", "nested": "column nested has type", "list": "column list has type", "day": "column day has type",
	} {
		if _, err := NewForeignReader(r, r.Size(), []string{"i8", name}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Got %v, want %q", name, err, want)
		}
	}
	for name, want := range map[string]string{"ns": "column ns: the time 1 ns is not in µs", "ms": "column ms: the time"} {
		rd, err := NewForeignReader(r, r.Size(), []string{name})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rd.Next(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Got %v, want %q", name, err, want)
		}
		if err := rd.Close(); err != nil {
			t.Error(err)
		}
	}
	damaged := bytes.NewReader([]byte("PAR1 and no more PAR1"))
	if _, err := NewForeignReader(damaged, damaged.Size(), []string{"a"}); err == nil {
		t.Error("Got no error for a damaged file")
	}
}

// annotatedType is a type with an annotation that parquet-go writes none of.
type annotatedType struct {
	parquet.Type
	logical   format.LogicalTypeValue
	converted deprecated.ConvertedType
}

func (t annotatedType) LogicalType() *format.LogicalType {
	if t.logical == nil {
		return nil
	}
	return &format.LogicalType{Value: t.logical}
}

func (t annotatedType) ConvertedType() *deprecated.ConvertedType {
	if t.logical != nil {
		return nil
	}
	return &t.converted
}

// TestForeignReaderTwice: of two columns of one name none is the one that was asked for.
func TestForeignReaderTwice(t *testing.T) {
	t.Parallel()
	type row struct {
		A string `parquet:"column_a"`
		B string `parquet:"column_b"`
	}
	var b bytes.Buffer
	w := parquet.NewGenericWriter[row](&b)
	if _, err := w.Write([]row{{"1", "2"}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	file := bytes.ReplaceAll(b.Bytes(), []byte("column_b"), []byte("column_a"))
	if _, err := NewForeignReader(bytes.NewReader(file), int64(len(file)), []string{"column_a"}); err == nil || !strings.Contains(err.Error(), "several columns column_a") {
		t.Errorf("Got %v", err)
	}
}

// TestForeignAnnotations reads FLOAT16, alone and as values of a map, and refuses what
// parquet-go reads as bytes without a meaning.
func TestForeignAnnotations(t *testing.T) {
	t.Parallel()
	fixed := func(n int) parquet.Type { return parquet.FixedLenByteArrayType(n) }
	half := parquet.Leaf(annotatedType{Type: fixed(2), logical: &format.Float16Type{}})
	schema := parquet.NewSchema("s", parquet.Group{
		"a":        parquet.Map(parquet.String(), half),
		"half":     parquet.Optional(half),
		"interval": parquet.Leaf(annotatedType{Type: fixed(12), converted: deprecated.Interval}),
		"late":     parquet.Leaf(parquet.Int64Type),
		"long":     parquet.Leaf(annotatedType{Type: fixed(3), logical: &format.Float16Type{}}),
		"variant":  parquet.Leaf(annotatedType{Type: parquet.ByteArrayType, logical: &format.VariantType{}}),
	})
	var b bytes.Buffer
	w := parquet.NewGenericWriter[any](&b, schema)
	for i, bits := range []string{"\x00\xc0", "\x01\x00", ""} { // -2, the least above 0, null
		row := parquet.Row{
			parquet.ValueOf("k").Level(0, 1, 0), parquet.ValueOf([]byte("\x00\x3c")).Level(0, 1, 1),
			parquet.ValueOf([]byte(bits)).Level(0, 1, 2), parquet.ValueOf(make([]byte, 12)).Level(0, 0, 3),
			parquet.ValueOf(int64(i)).Level(0, 0, 4), parquet.ValueOf(make([]byte, 3)).Level(0, 0, 5), parquet.ValueOf([]byte("v")).Level(0, 0, 6),
		}
		if bits == "" {
			row[2] = parquet.Value{}.Level(0, 0, 2)
		}
		if _, err := w.WriteRows([]parquet.Row{row}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := bytes.NewReader(b.Bytes())
	rd, err := NewForeignReader(r, r.Size(), []string{"a", "half", "late"})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := rd.Next()
	if err != nil || batch.Rows() != 3 {
		t.Fatal(batch, err)
	}
	if got := batch.Vector(1); got.Float64s()[0] != -2 || got.Float64s()[1] != 0x1p-24 || got.IsNull(0) || !got.IsNull(2) {
		t.Errorf("Got %v", got.Float64s())
	}
	if got := batch.Vector(2).Int64s(); got[0] != 0 || got[2] != 2 {
		t.Errorf("Got %v of the column behind", got)
	}
	for i, c := range rd.Columns() {
		if want := []string{"map(float64)", "float64", "int64"}[i]; fmt.Sprint(c.Type) != want {
			t.Errorf("Got %v of column %s, want %s", c.Type, c.Name, want)
		}
	}
	if err := rd.Close(); err != nil {
		t.Error(err)
	}
	for name, kind := range map[string]string{"interval": "INTERVAL", "long": "FLOAT16", "variant": "VARIANT"} {
		if _, err := NewForeignReader(r, r.Size(), []string{"late", name}); err == nil || !strings.Contains(err.Error(), "column "+name+" has type") || !strings.Contains(err.Error(), kind) {
			t.Errorf("%s: Got %v, want an error that names %s", name, err, kind)
		}
	}
}

// TestForeignConvertedDecimals reads decimals of which the file says no scale, as it may
// where it says a ConvertedType alone (LogicalTypes.md), and refuses those without digits.
func TestForeignConvertedDecimals(t *testing.T) {
	t.Parallel()
	schema := parquet.NewSchema("s", parquet.Group{
		"fixed": parquet.Leaf(annotatedType{Type: parquet.FixedLenByteArrayType(4), converted: deprecated.Decimal}),
		"int":   parquet.Leaf(annotatedType{Type: parquet.Int32Type, converted: deprecated.Decimal}),
	})
	var b bytes.Buffer
	w := parquet.NewGenericWriter[any](&b, schema)
	if _, err := w.WriteRows([]parquet.Row{{parquet.ValueOf([]byte("\xff\xff\xff\xfe")).Level(0, 0, 0), parquet.ValueOf(int32(-2)).Level(0, 0, 1)}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, column := range []string{"fixed", "int"} {
		file := edited(t, b.Bytes(), func(m *format.FileMetaData) {
			for i := range m.Schema[1:] {
				m.Schema[1+i].Precision = thrift.New(int32(9))
			}
		})
		rd, err := NewForeignReader(bytes.NewReader(file), int64(len(file)), []string{column})
		if err != nil {
			t.Fatal(err)
		}
		batch, err := rd.Next()
		if err != nil {
			t.Fatal(err)
		}
		if p, s, ok := rd.Columns()[0].Type.Decimal(); !ok || p != 9 || s != 0 {
			t.Errorf("%s: Got type %v, want decimals of 9 digits", column, rd.Columns()[0].Type)
		}
		if got := columnartest.Texts(batch); got[0][0] != "-2" {
			t.Errorf("%s: Got %v, want -2", column, got)
		}
		if err := rd.Close(); err != nil {
			t.Error(err)
		}
		want := "column " + column + " has type DECIMAL without a precision"
		if _, err := NewForeignReader(bytes.NewReader(b.Bytes()), int64(b.Len()), []string{column}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Got %v, want %q", err, want)
		}
		file = edited(t, b.Bytes(), func(m *format.FileMetaData) {
			for i := range m.Schema[1:] {
				m.Schema[1+i].ConvertedType = thrift.New(deprecated.ConvertedType(99))
			}
		})
		if _, err := NewForeignReader(bytes.NewReader(file), int64(len(file)), []string{column}); err == nil || !strings.Contains(err.Error(), "ConvertedType 99") {
			t.Errorf("Got %v of an unknown type", err)
		}
	}
}

// hadoopLZ4 is a codec that says it were that of Hadoop.
type hadoopLZ4 struct{ lz4.Codec }

func (*hadoopLZ4) CompressionCodec() format.CompressionCodec { return format.Lz4 }

// A file with a codec that cannot be read is refused when it is opened, where a column
// that is asked for has it, a map too.
func TestForeignCodecs(t *testing.T) {
	t.Parallel()
	type row struct {
		A string            `parquet:"a"`
		B map[string]string `parquet:"b"`
	}
	write := func(codec compress.Codec) *bytes.Reader {
		var b bytes.Buffer
		w := parquet.NewGenericWriter[row](&b, parquet.Compression(codec))
		for range 2 { // row groups
			if _, err := w.Write([]row{{A: "a", B: map[string]string{"k": "v"}}}); err != nil {
				t.Fatal(err)
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return bytes.NewReader(b.Bytes())
	}
	refused, taken := write(&hadoopLZ4{}), write(&parquet.Lz4Raw)
	for _, column := range []string{"a", "b"} {
		want := "row group 0, column " + column + ": it is compressed with LZ4,"
		if _, err := NewForeignReader(refused, refused.Size(), []string{column}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Got %v, want %q", err, want)
		}
		rd, err := NewForeignReader(taken, taken.Size(), []string{column})
		if err != nil {
			t.Fatal(err)
		}
		if batch, err := rd.Next(); err != nil || batch.Rows() != 1 {
			t.Errorf("LZ4_RAW, column %s: Got %v, %v", column, batch, err)
		}
		if err := rd.Close(); err != nil {
			t.Error(err)
		}
	}
}

// withMaps is a row with maps as others write it.
type withMaps struct {
	Before int64             `parquet:"before"`
	Counts map[string]int32  `parquet:"counts,optional"`
	Raw    map[string][]byte `parquet:"raw"`
	Days   map[int64]string  `parquet:"days"`
	Bools  map[string]bool   `parquet:"bools"`
	After  string            `parquet:"after"`
}

// TestForeignMaps reads maps between other columns, in both versions of pages, with rows
// larger than a page, and refuses those that ours do not hold.
func TestForeignMaps(t *testing.T) {
	t.Parallel()
	for version := 1; version <= 2; version++ {
		var b bytes.Buffer
		w := parquet.NewGenericWriter[withMaps](&b, parquet.DataPageVersion(version), parquet.PageBufferSize(100))
		rows := []withMaps{{Before: 1, Counts: map[string]int32{"a": -1}, Raw: map[string][]byte{"x": {0xff}}, After: "one"}, {Before: 2, After: "two"}}
		large := map[string]int32{}
		for i := range 3000 {
			large[fmt.Sprint(i)] = int32(i)
		}
		for range 3 {
			rows = append(rows, withMaps{Before: 3, Counts: large, After: "three"}, withMaps{Counts: map[string]int32{}})
		}
		for _, row := range rows { // one by one, or a page holds them all
			if _, err := w.Write([]withMaps{row}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		r := bytes.NewReader(b.Bytes())
		rd, err := NewForeignReader(r, r.Size(), []string{"after", "counts", "raw", "before"})
		if err != nil {
			t.Fatal(err)
		}
		batch, err := rd.Next()
		if err != nil || batch.Rows() != len(rows) {
			t.Fatal(batch, err)
		}
		var types []string
		for _, c := range rd.Columns() {
			types = append(types, fmt.Sprint(c.Name, " ", c.Type, " ", c.Nullable))
		}
		if d := cmp.Diff([]string{"before int64 false", "counts map(int64) true", "raw map false", "after string false"}, types); d != "" {
			t.Error(d)
		}
		got := columnartest.Texts(batch)
		if d := cmp.Diff([][]string{{"1", `{"a": -1}`, `{"x": "\xff"}`, `"one"`}, {"2", "null", "{}", `"two"`}}, got[:2]); d != "" {
			t.Error(d)
		}
		for i := 2; i < len(rows); i += 2 {
			if start, end := batch.Vector(1).EntriesOf(i); end-start != 3000 || got[i+1][1] != "null" && got[i+1][1] != "{}" {
				t.Errorf("row %d: %d entries, and then %s", i, end-start, got[i+1][1])
			}
		}
		if _, err := rd.Next(); err != io.EOF {
			t.Errorf("Got %v at the end", err)
		}
		if err := rd.Close(); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"days", "bools"} {
			if _, err := NewForeignReader(r, r.Size(), []string{name}); err == nil || !strings.Contains(err.Error(), "column "+name+" has type") {
				t.Errorf("%s: Got %v", name, err)
			}
		}
	}
}

// TestForeignMapValues reads maps with values that are null, which exports have not.
func TestForeignMapValues(t *testing.T) {
	t.Parallel()
	schema := parquet.NewSchema("t", parquet.Group{"m": parquet.Optional(parquet.Map(parquet.String(), parquet.Optional(parquet.Leaf(parquet.FloatType))))})
	var b bytes.Buffer
	w := parquet.NewGenericWriter[any](&b, schema)
	at := func(repeat, level int, v parquet.Value, column int) parquet.Value {
		return v.Level(repeat, level, column)
	}
	for column, values := range [][]parquet.Value{
		{at(0, 2, parquet.ByteArrayValue([]byte("a")), 0), at(1, 2, parquet.ByteArrayValue([]byte("b")), 0), at(0, 0, parquet.Value{}, 0), at(0, 1, parquet.Value{}, 0)},
		{at(0, 3, parquet.FloatValue(1.5), 1), at(1, 2, parquet.Value{}, 1), at(0, 0, parquet.Value{}, 1), at(0, 1, parquet.Value{}, 1)},
	} {
		if _, err := w.ColumnWriters()[column].WriteRowValues(values); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := bytes.NewReader(b.Bytes())
	rd, err := NewForeignReader(r, r.Size(), []string{"m"})
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	batch, err := rd.Next()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([][]string{{`{"a": 3ff8000000000000, "b": null}`}, {"null"}, {"{}"}}, columnartest.Texts(batch)); d != "" {
		t.Error(d)
	}
	if _, err := NewReader(r, r.Size()); err == nil || !strings.Contains(err.Error(), "column m has a type that exports do not have") {
		t.Errorf("Got %v", err)
	}
}
