package arrowfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/decimal128"
	"github.com/apache/arrow/go/v15/arrow/ipc"
	"github.com/apache/arrow/go/v15/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"sluice/jobs/columnar"
	"sluice/jobs/columnar/columnartest"
)

// writeForeign writes a file of one record with a column for each type, whose values
// are the JSON ones.
func writeForeign(t *testing.T, rows string, fields ...arrow.Field) *bytes.Reader {
	t.Helper()
	schema := arrow.NewSchema(fields, nil)
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(rows))
	if err != nil {
		t.Fatal(err)
	}
	return writeRecord(t, rec)
}

// writeRecord writes a file of one record, and releases it.
func writeRecord(t *testing.T, rec arrow.Record) *bytes.Reader {
	t.Helper()
	defer rec.Release()
	f, err := os.Create(filepath.Join(t.TempDir(), "foreign.arrow"))
	if err != nil {
		t.Fatal(err)
	}
	w, err := ipc.NewFileWriter(f, ipc.WithSchema(rec.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(rec), w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(b)
}

func foreignFields() (names []string, fields []arrow.Field) {
	for _, f := range []arrow.Field{
		{Name: "list", Type: arrow.ListOf(arrow.PrimitiveTypes.Int8)},
		{Name: "i8", Type: arrow.PrimitiveTypes.Int8},
		{Name: "u32", Type: arrow.PrimitiveTypes.Uint32},
		{Name: "u64", Type: arrow.PrimitiveTypes.Uint64},
		{Name: "f16", Type: arrow.FixedWidthTypes.Float16},
		{Name: "f32", Type: arrow.PrimitiveTypes.Float32},
		{Name: "large", Type: arrow.BinaryTypes.LargeString, Nullable: true},
		{Name: "fixed", Type: &arrow.FixedSizeBinaryType{ByteWidth: 2}},
		{Name: "s", Type: &arrow.TimestampType{Unit: arrow.Second}},
		{Name: "ns", Type: &arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "UTC"}},
	} {
		fields = append(fields, f)
		if f.Name != "list" && f.Name != "u64" {
			names = append(names, f.Name)
		}
	}
	return names, fields
}

const foreignRow = `{"list": [1], "i8": -8, "u32": 4000000000, "u64": 1, "f16": -0.25, "f32": 1.5, "large": %s, "fixed": "AAE=", "s": "1970-01-01T00:00:02", "ns": "1970-01-01T00:00:00.00000%s"}`

func TestForeignReader(t *testing.T) {
	t.Parallel()
	names, fields := foreignFields()
	r := writeForeign(t, "["+fmt.Sprintf(foreignRow, `"é"`, "9")+","+fmt.Sprintf(foreignRow, "null", "8")+"]", fields...)
	rd, err := NewForeignReader(r, r.Size(), names, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	b, err := rd.Next()
	if err != nil || b.Rows() != 2 {
		t.Fatal(b, err)
	}
	var got []string
	for i, c := range rd.Columns() {
		v, text := b.Vector(i), ""
		switch c.Type {
		case columnar.Int64, columnar.Timestamp:
			text = fmt.Sprint(v.Int64s()[0])
		case columnar.Float64:
			text = fmt.Sprint(v.Float64s()[0])
		default:
			text = fmt.Sprintf("%q", v.Bytes(0))
		}
		got = append(got, fmt.Sprint(c.Name, " ", c.Type, " ", text, " ", v.IsNull(1)))
	}
	want := []string{
		"i8 int64 -8 false", "u32 int64 4000000000 false", "f16 float64 -0.25 false", "f32 float64 1.5 false", `large string "é" true`, `fixed bytes "\x00\x01" false`,
		"s timestamp 2000000 false", "ns timestamp 9 false",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if _, err := rd.Next(); err != io.EOF {
		t.Errorf("Got %v at the end", err)
	}
}

func TestForeignMaps(t *testing.T) {
	t.Parallel()
	r := writeForeign(t, `[{"m": [{"key": "a", "value": 1}, {"key": "b", "value": null}], "d": [], "i": []}, {"m": null, "d": [], "i": []}, {"m": [], "d": [], "i": []}]`,
		arrow.Field{Name: "m", Type: arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int16), Nullable: true},
		arrow.Field{Name: "d", Type: arrow.MapOf(arrow.BinaryTypes.String, arrow.FixedWidthTypes.Boolean)},
		arrow.Field{Name: "i", Type: arrow.MapOf(arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String)},
	)
	rd, err := NewForeignReader(r, r.Size(), []string{"m"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	b, err := rd.Next()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([][]string{{`{"a": 1, "b": null}`}, {"null"}, {"{}"}}, columnartest.Texts(b)); d != "" || rd.Columns()[0].Type.String() != "map(int64)" {
		t.Errorf("%v: %s", rd.Columns(), d)
	}
	for _, name := range []string{"d", "i"} {
		if _, err := NewForeignReader(r, r.Size(), []string{name}, nil); err == nil || !strings.Contains(err.Error(), "column "+name+" has type map<") {
			t.Errorf("%s: Got %v", name, err)
		}
	}
}

// TestForeignDecimals: decimals of 128 bits are ours, those that have more digits than
// their type says, or are wider, are refused.
func TestForeignDecimals(t *testing.T) {
	t.Parallel()
	decimal := func(precision, scale int32) arrow.DataType {
		return &arrow.Decimal128Type{Precision: precision, Scale: scale}
	}
	fields := []arrow.Field{
		{Name: "d9", Type: decimal(9, 2)},
		{Name: "d18", Type: decimal(18, 18), Nullable: true},
		{Name: "d38", Type: decimal(38, 10), Nullable: true},
		{Name: "d256", Type: &arrow.Decimal256Type{Precision: 50, Scale: 2}},
		{Name: "hundreds", Type: decimal(9, -2)},
	}
	const row = `{"d9": "%s", "d18": %s, "d38": %s, "d256": "1.00", "hundreds": "100"}`
	nines := strings.Repeat("9", 28) + "." + strings.Repeat("9", 10)
	r := writeForeign(t, "["+fmt.Sprintf(row, "-1.50", `"0.000000000000000001"`, `"-`+nines+`"`)+","+fmt.Sprintf(row, "7.00", "null", "null")+"]", fields...)
	rd, err := NewForeignReader(r, r.Size(), []string{"d9", "d18", "d38"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	b, err := rd.Next()
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, c := range rd.Columns() {
		types = append(types, c.Type.String())
	}
	if d := cmp.Diff([]string{"decimal(9,2)", "decimal(18,18)", "decimal(38,10)"}, types); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([][]string{{"-1.50", "0.000000000000000001", "-" + nines}, {"7.00", "null", "null"}}, columnartest.Texts(b)); d != "" {
		t.Error(d)
	}
	for name, want := range map[string]string{"d256": "column d256 has type decimal256(50, 2), of which no cell can be made", "hundreds": "column hundreds has type decimal(9, -2), of which"} {
		if _, err := NewForeignReader(r, r.Size(), []string{name}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Got %v, want %s", err, want)
		}
	}
	values := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields[:1], nil))
	defer values.Release()
	values.Field(0).(*array.Decimal128Builder).AppendValues([]decimal128.Num{decimal128.FromI64(100), decimal128.FromI64(1_000_000_000)}, nil)
	r = writeRecord(t, values.NewRecord())
	beyond, err := NewForeignReader(r, r.Size(), []string{"d9"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer beyond.Close()
	if _, err := beyond.Next(); err == nil || !strings.HasSuffix(err.Error(), "row 2, column d9: a decimal of more than 9 digits: 10000000.00") {
		t.Errorf("Got %v", err)
	}
}

func TestForeignReaderRefuses(t *testing.T) {
	t.Parallel()
	_, fields := foreignFields()
	r := writeForeign(t, "["+fmt.Sprintf(foreignRow, `"a"`, "9")+","+fmt.Sprintf(foreignRow, `"b"`, "0001")+"]", fields...)
	for name, want := range map[string]string{"nope": "no column nope; it has \"", "list": "column list has type", "u64": "column u64 has type"} {
		if _, err := NewForeignReader(r, r.Size(), []string{name}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Got %v, want %q", name, err, want)
		}
	}
	rd, err := NewForeignReader(r, r.Size(), []string{"ns"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	if _, err := rd.Next(); err == nil || !strings.Contains(err.Error(), "row 2, column ns: the time") {
		t.Errorf("Got %v, want the row of the time between two µs", err)
	}
}

// TestForeignCounts: a record batch whose columns say other numbers of values or of nulls
// than there are is refused, by its number and the column.
func TestForeignCounts(t *testing.T) {
	t.Parallel()
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
	for _, tt := range []struct {
		nulls int
		rows  int64
		want  string
	}{
		{2, 4, ""},
		{1, 4, "record batch 0, column a: damaged: it says that it has 1 nulls, and there are 2"},
		{3, 4, "record batch 0, column a: damaged: it says that it has 3 nulls, and there are 2"},
		{2, 3, "record batch 0, column a: damaged: it has 4 values, and the batch 3 rows"},
	} {
		valid, values := memory.NewBufferBytes([]byte{0b0101}), memory.NewBufferBytes(make([]byte, 32))
		data := array.NewData(arrow.PrimitiveTypes.Int64, 4, []*memory.Buffer{valid, values}, nil, tt.nulls, 0)
		r := writeRecord(t, array.NewRecord(schema, []arrow.Array{array.MakeFromData(data)}, tt.rows))
		rd, err := NewForeignReader(r, r.Size(), []string{"a"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := rd.Next()
		if tt.want == "" {
			if err != nil || b.Rows() != 4 || b.Vector(0).Nulls() != 2 {
				t.Errorf("Got %v of an honest file", err)
			}
		} else if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%d nulls, %d rows: Got %v, want %q", tt.nulls, tt.rows, err, tt.want)
		}
		if err := rd.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestForeignLargeValues: batches have fewer rows where values are large, so that the
// texts of a record batch may be more than one batch of ours can hold.
func TestForeignLargeValues(t *testing.T) {
	t.Parallel()
	const rows = 150
	build := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}, {Name: "v", Type: arrow.BinaryTypes.LargeString}}, nil))
	defer build.Release()
	value := strings.Repeat("v", 1<<20)
	for i := range rows {
		build.Field(0).(*array.Int64Builder).Append(int64(i))
		build.Field(1).(*array.LargeStringBuilder).Append(value[:len(value)-i])
	}
	file := writeRecord(t, build.NewRecord())
	r, err := NewForeignReader(file, file.Size(), []string{"n", "v"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := 0
	for {
		b, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := b.Bytes(); n > columnar.ReadBatchBytes+len(value)+16*(b.Rows()+1) {
			t.Errorf("Got a batch of %d bytes", n)
		}
		for i := range b.Rows() {
			if n, v := b.Vector(0).Int64s()[i], b.Vector(1).Bytes(i); n != int64(got) || len(v) != len(value)-got {
				t.Fatalf("row %d: Got number %d and %d bytes", got+1, n, len(v))
			}
			got++
		}
	}
	if got != rows {
		t.Errorf("Got %d rows, want %d", got, rows)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
