package parquetfile

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"sluice/jobs/columnar"
	"sluice/jobs/columnar/columnartest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{}, {Codec: "lz4", RowGroupRows: 7}, {Codec: "snappy", RowGroupBytes: 100_000}, {Codec: "none"}} {
		t.Run(fmt.Sprintf("codec=%s", o.Codec), func(t *testing.T) {
			t.Parallel()
			columnartest.Run(t, columnartest.Format{
				Write: func(w io.Writer, columns []columnar.Column, metadata map[string]string) (columnar.FileWriter, error) {
					o := o
					o.Metadata = metadata
					return NewWriter(w, columns, &o)
				},
				Read: func(r io.ReaderAt, size int64) (columnar.FileReader, error) { return NewReader(r, size) },
			})
		})
	}
}

// TestLayout looks at what the footer says: row groups, encodings, sort order,
// bounds.
func TestLayout(t *testing.T) {
	t.Parallel()
	columns := []columnar.Column{
		{Name: "key", Type: columnar.Bytes},
		{Name: "colour", Type: columnar.String, Nullable: true},
		{Name: "id", Type: columnar.String},
		{Name: "n", Type: columnar.Int64},
		{Name: "at", Type: columnar.Timestamp},
	}
	var out bytes.Buffer
	w, err := NewWriter(&out, columns, &Options{Order: []string{"key"}, RowGroupRows: 1000, Application: "sluice", Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	b := columnar.NewBatch(columns)
	for k := range 3 {
		b.Reset()
		for i := range 700 {
			i += 700 * k
			_ = b.Vector(0).AppendBytes(fmt.Appendf(nil, "key%06d", i))
			_ = b.Vector(1).AppendBytes([]byte([]string{"red", "green"}[i%2]))
			_ = b.Vector(2).AppendBytes(fmt.Appendf(nil, "%x", i*i*i))
			b.Vector(3).AppendInt64(int64(i))
			b.Vector(4).AppendInt64(int64(i) * 1000)
		}
		if err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := parquet.OpenFile(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		t.Fatal(err)
	}
	var groups []int64
	for _, g := range f.RowGroups() {
		groups = append(groups, g.NumRows())
	}
	if d := cmp.Diff([]int64{1400, 700}, groups); d != "" {
		t.Errorf("row groups: %s", d)
	}
	var encodings []string
	for _, c := range f.Metadata().RowGroups[0].Columns {
		encodings = append(encodings, fmt.Sprintf("%s %v %v", c.MetaData.PathInSchema[0], c.MetaData.Encoding, c.MetaData.Codec))
	}
	want := []string{
		"key [DELTA_BYTE_ARRAY] ZSTD", "colour [PLAIN RLE RLE_DICTIONARY] ZSTD", "id [DELTA_LENGTH_BYTE_ARRAY] ZSTD",
		"n [DELTA_BINARY_PACKED] ZSTD", "at [DELTA_BINARY_PACKED] ZSTD",
	}
	if d := cmp.Diff(want, encodings); d != "" {
		t.Errorf("encodings: %s", d)
	}
	if got, want := f.Schema().String(), "message sluice {\n\trequired binary key;\n\toptional binary colour (STRING);\n\trequired binary id (STRING);\n\trequired int64 n (INT(64,true));\n\trequired int64 at (TIMESTAMP(isAdjustedToUTC=true,unit=MICROS));\n}"; got != want {
		t.Errorf("Got schema %s", got)
	}
	min, max, ok := f.RowGroups()[1].ColumnChunks()[0].(*parquet.FileColumnChunk).Bounds()
	if !ok || string(min.ByteArray()) != "key001400" || string(max.ByteArray()) != "key002099" {
		t.Errorf("Got bounds %s to %s, %t", min, max, ok)
	}
	r, err := NewReader(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"key"}, r.Order()); d != "" {
		t.Errorf("sorting columns: %s", d)
	}
	if got := f.Metadata().CreatedBy; !strings.HasPrefix(got, "sluice version v1") {
		t.Errorf("Got created by %q", got)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]Options{
		`"gzip" is no codec of Parquet files`: {Codec: "gzip"},
		`sorted by "x", which is no column`:   {Order: []string{"x"}},
		"row groups of -1 bytes":              {RowGroupBytes: -1},
	} {
		if _, err := NewWriter(io.Discard, benchColumns, &o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Got %v, want %s", err, want)
		}
	}
}
