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

	"sluice/jobs/columnar"
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
		"nope": "no column nope", "u64": "column u64 has type", "nested": "column nested has type", "list": "column list has type", "day": "column day has type",
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
