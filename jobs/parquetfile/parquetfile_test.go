package parquetfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"sluice/jobs/columnar"
	"sluice/jobs/columnar/columnartest"
)

// contract returns the files of o for the contract.
func contract(o Options) columnartest.Format {
	return columnartest.Format{
		Write: func(w io.Writer, columns []columnar.Column, metadata map[string]string) (columnar.FileWriter, error) {
			o := o
			o.Metadata = metadata
			return NewWriter(w, columns, &o)
		},
		Read: func(r io.ReaderAt, size int64) (columnar.FileReader, error) { return NewReader(r, size) },
	}
}

func TestContract(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{}, {Codec: "lz4", RowGroupRows: 7}, {Codec: "snappy", RowGroupBytes: 100_000}, {Codec: "none"}} {
		t.Run(fmt.Sprintf("codec=%s", o.Codec), func(t *testing.T) {
			t.Parallel()
			columnartest.Run(t, contract(o))
		})
	}
}

func TestYields(t *testing.T) { // not parallel: turns.During
	columnartest.Yields(t, contract(Options{}))
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
	order := []columnar.Order{{Column: "key"}, {Column: "colour", Descending: true, NullsFirst: true}}
	w, err := NewWriter(&out, columns, &Options{Order: order, RowGroupRows: 1000, Application: "sluice", Version: "v1"})
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
	if got, want := f.Schema().String(), "message sluice {\n\trequired binary key = 827115680;\n\toptional binary colour (STRING) = 710607188;\n\trequired binary id (STRING) = 806150499;\n\trequired int64 n (INT(64,true)) = 171149611;\n\trequired int64 at (TIMESTAMP(isAdjustedToUTC=true,unit=MICROS)) = 257582225;\n}"; got != want {
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
	if d := cmp.Diff(order, r.Order()); d != "" {
		t.Errorf("sorting columns: %s", d)
	}
	if got := f.Metadata().CreatedBy; !strings.HasPrefix(got, "sluice version v1") {
		t.Errorf("Got created by %q", got)
	}
}

// TestMapLayout looks at the groups that the format has for maps, the levels of nulls,
// empty maps and entries, the bounds of keys and values, and where the order is declared
// of a column behind a map.
func TestMapLayout(t *testing.T) {
	t.Parallel()
	raw, _ := columnar.Map(columnar.Bytes)
	counts, _ := columnar.Map(columnar.Int64)
	columns := []columnar.Column{{Name: "rest", Type: raw, Nullable: true}, {Name: "counts", Type: counts}, {Name: "key", Type: columnar.String}}
	b := columnar.NewBatch(columns)
	for i, entries := range []int{2, -1, 0, 1} {
		if entries < 0 {
			b.Vector(0).AppendNull()
		}
		for e := range entries {
			_ = b.Vector(0).Keys().AppendBytes(fmt.Appendf(nil, "k%d", e))
			_ = b.Vector(0).Values().AppendBytes([]byte{byte(0xf0 + i)})
			_ = b.Vector(1).Keys().AppendBytes([]byte("n"))
			b.Vector(1).Values().AppendInt64(int64(i - e))
		}
		if entries >= 0 {
			_ = b.Vector(0).AppendEntries()
		}
		_ = b.Vector(1).AppendEntries()
		_ = b.Vector(2).AppendBytes(fmt.Append(nil, i))
	}
	var out bytes.Buffer
	w, err := NewWriter(&out, columns, &Options{Order: columnar.Ascending("key")})
	if err == nil {
		err = w.Write(b)
	}
	if err == nil {
		_, err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := parquet.OpenFile(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		t.Fatal(err)
	}
	const schema = `message sluice {
	optional group rest (MAP) = 433348329 {
		repeated group key_value {
			required binary key (STRING) = 257140696;
			required binary value = 797730540;
		}
	}
	required group counts (MAP) = 557155140 {
		repeated group key_value {
			required binary key (STRING) = 126048437;
			required int64 value (INT(64,true)) = 477855974;
		}
	}
	required binary key (STRING) = 740609832;
}`
	if d := cmp.Diff(schema, f.Schema().String()); d != "" {
		t.Errorf("schema: %s", d)
	}
	var got []string
	g := f.Metadata().RowGroups[0]
	for i, c := range g.Columns {
		m := &c.MetaData
		got = append(got, fmt.Sprintf("%s: %d values, %d nulls, repeated %v, defined %v, %q to %q", strings.Join(m.PathInSchema, "."), m.NumValues, m.Statistics.NullCount,
			m.SizeStatistics.RepetitionLevelHistogram, m.SizeStatistics.DefinitionLevelHistogram, m.Statistics.MinValue, m.Statistics.MaxValue))
		if n := g.NumRows; n != 4 || f.OffsetIndexes()[i].PageLocations[0].FirstRowIndex != 0 {
			t.Errorf("Got %d rows", n)
		}
	}
	want := []string{
		`rest.key_value.key: 5 values, 2 nulls, repeated [4 1], defined [1 1 3], "k0" to "k1"`,
		`rest.key_value.value: 5 values, 2 nulls, repeated [4 1], defined [1 1 3], "\xf0" to "\xf3"`,
		`counts.key_value.key: 5 values, 2 nulls, repeated [4 1], defined [2 3], "n" to "n"`,
		`counts.key_value.value: 5 values, 2 nulls, repeated [4 1], defined [2 3], "\xff\xff\xff\xff\xff\xff\xff\xff" to "\x03\x00\x00\x00\x00\x00\x00\x00"`,
		`key: 4 values, 0 nulls, repeated [], defined [], "0" to "3"`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if s := g.SortingColumns; len(s) != 1 || s[0].ColumnIdx != 4 {
		t.Errorf("Got %v, want sorting by the fifth leaf", s)
	}
	_ = b.Vector(0).Keys().AppendBytes(nil)
	b.Vector(0).Values().AppendNull()
	_ = b.Vector(0).AppendEntries()
	if w, err = NewWriter(io.Discard, columns, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(b); err == nil || err.Error() != "write parquet column rest: a map has a null for a key or a value" {
		t.Errorf("Got %v for a null in a map", err)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]Options{
		`"gzip" is no codec of Parquet files`: {Codec: "gzip"},
		`sorted by "x", which is no column`:   {Order: columnar.Ascending("x")},
		"row groups of -1 bytes":              {RowGroupBytes: -1},
	} {
		if _, err := NewWriter(io.Discard, benchColumns, &o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Got %v, want %s", err, want)
		}
	}
}

// TestManyRowGroups: a file has no more row groups than readers can number, and says
// before that it should end.
func TestManyRowGroups(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: 32,768 row groups are one goroutine's work")
	}
	t.Parallel()
	columns := []columnar.Column{{Name: "n", Type: columnar.Int64}}
	var file bytes.Buffer
	w, err := NewWriter(&file, columns, &Options{RowGroupRows: 1, Codec: "none"})
	if err != nil {
		t.Fatal(err)
	}
	b := columnar.NewBatch(columns)
	b.Vector(0).AppendInt64(7)
	for i := range maxRowGroups {
		if got := w.Full(); got != (i >= maxRowGroups/2) {
			t.Fatalf("With %d row groups, full: %t", i, got)
		}
		if err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	whole := *w
	if err := w.Write(b); !errors.Is(err, errManyRowGroups) {
		t.Errorf("Got %v of one more", err)
	}
	if _, err := whole.Close(); err != nil {
		t.Fatal(err)
	}
	readSums(t, file.Bytes())
}
