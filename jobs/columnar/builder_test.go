package columnar_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/columnar/columnartest"
)

func put(family, qualifier string, t cell.Timestamp, value string) cell.Cell {
	return cell.Cell{Family: family, Qualifier: []byte(qualifier), Time: t, Kind: cell.KindPut, Value: []byte(value)}
}

func be(v uint64) string { return string(binary.BigEndian.AppendUint64(nil, v)) }

// TestConvert has one value of each type and coding, and what cannot be read.
func TestConvert(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ typ, coding, value, want string }{
		{"string", "text", "grün", `"grün"`},
		{"string", "text", "\xff", "not UTF-8"},
		{"bytes", "raw", "\xff\x00", `"\xff\x00"`},
		{"int64", "text", "-9223372036854775808", "-9223372036854775808"},
		{"int64", "text", "+9223372036854775807", "9223372036854775807"},
		{"int64", "text", "9223372036854775808", "out of range"},
		{"int64", "text", "-9223372036854775809", "out of range"},
		{"int64", "text", "99999999999999999999", "out of range"},
		{"int64", "text", "", "not a decimal number"},
		{"int64", "text", "-", "not a decimal number"},
		{"int64", "text", "1.0", "not a decimal number"},
		{"int64", "text", " 1", "not a decimal number"},
		{"int64", "int64be", be(math.MaxUint64), "-1"},
		{"int64", "int64be", "1", "not 8 bytes long"},
		{"int64", "distinct", "\xd1\x0e\x01\x0a\x17\x01\x0d\x24\xc1", "2"},
		{"int64", "distinct", "\xd1\x0e\x01\x0a", "not a sketch: counters: corrupt value: sketch of 4 bytes: the sparse form has 3 bytes a register and at most 4095"},
		{"float64", "text", "-1e-3", fmt.Sprintf("%x", math.Float64bits(-1e-3))},
		{"float64", "text", "one", "not a number in the range of a double"},
		{"float64", "text", "1_0", "not a number in the range of a double"},
		{"float64", "text", "0x1p-2", "not a number in the range of a double"},
		{"float64", "float64be", be(math.Float64bits(2.5)), fmt.Sprintf("%x", math.Float64bits(2.5))},
		{"float64", "float64be", "", "not 8 bytes long"},
		{"bool", "text", "true", "true"},
		{"bool", "text", "0", "false"},
		{"bool", "text", "yes", "neither true nor false"},
		{"bool", "raw", "\x00", "false"},
		{"bool", "raw", "\xff", "true"},
		{"bool", "raw", "true", "not 1 byte long"},
		{"timestamp", "text", "-1", "-1000"},
		{"timestamp", "text", "9223372036854775807", "out of range for a timestamp in µs"},
		{"timestamp", "int64be", be(1700000000123), "1700000000123000"},
		{"timestamp", "rfc3339", "1970-01-01T00:00:01.000002+00:00", "1000002"},
		{"timestamp", "rfc3339", "1970-01-01", "not a time such as"},
		{"json", "text", ` {"a": [1.50, null]}`, `" {\"a\": [1.50, null]}"`},
		{"json", "text", `"\u00e9"`, `"\"\\u00e9\""`},
		{"json", "text", `"\ud83d\uDE00\ud83d\ude00"`, `"\"\\ud83d\\uDE00\\ud83d\\ude00\""`},
		{"json", "text", `"\\ud83d"`, `"\"\\\\ud83d\""`},
		{"json", "text", "{", "not JSON in UTF-8"},
		{"json", "text", "", "not JSON in UTF-8"},
		{"json", "text", "1 2", "not JSON in UTF-8"},
		{"json", "text", "\"\xff\"", "not JSON in UTF-8"},
		{"json", "text", `"\ud83d"`, "JSON with half of a surrogate pair, which is no character"},
		{"json", "text", `["\uD83Dx\uDE00"]`, "JSON with half of a surrogate pair, which is no character"},
		{"json", "text", `{"\uDE00\uD83D": 1}`, "JSON with half of a surrogate pair, which is no character"},
		{"json", "text", `"\ud83d\\ude00"`, "JSON with half of a surrogate pair, which is no character"},
		{"json", "text", `"\ud83d\ud83d\ude00"`, "JSON with half of a surrogate pair, which is no character"},
		{"decimal(5,2)", "text", "-12.3", "-12.30"},
		{"decimal(5,2)", "text", "+999.9900", "999.99"},
		{"decimal(5,2)", "text", "000.05", "0.05"},
		{"decimal(5,2)", "text", "-.5", "-0.50"},
		{"decimal(5,2)", "text", "7.", "7.00"},
		{"decimal(5,2)", "text", "0.005", "more than 2 digits behind the point"},
		{"decimal(5,2)", "text", "1000", "more than 5 digits, of which 2 are behind the point"},
		{"decimal(5,2)", "text", "9999999999999999999999", "more than 5 digits"},
		{"decimal(5,2)", "text", "1e2", "not a decimal number"},
		{"decimal(5,2)", "text", "1.2.3", "not a decimal number"},
		{"decimal(5,2)", "text", ".", "not a decimal number"},
		{"decimal(5,2)", "text", "", "not a decimal number"},
		{"decimal(18,0)", "text", "-999999999999999999", "-999999999999999999"},
		{"decimal(18,0)", "text", "1000000000000000000", "more than 18 digits"},
		{"decimal(18,18)", "text", "0.000000000000000001", "0.000000000000000001"},
		{"decimal(18,18)", "text", "1", "more than 18 digits, of which 18 are behind the point"},
		{"decimal(19,0)", "text", "-9999999999999999999", "-9999999999999999999"},
		{"decimal(19,0)", "text", "10000000000000000000", "more than 19 digits"},
		{"decimal(38,38)", "text", "-.00000000000000000000000000000000000001", "-0.00000000000000000000000000000000000001"},
		{"decimal(38,38)", "text", "1", "more than 38 digits, of which 38 are behind the point"},
		{"decimal(38,10)", "text", "+0009999999999999999999999999999.999999999900", "9999999999999999999999999999.9999999999"},
		{"decimal(38,10)", "text", "1.00000000001", "more than 10 digits behind the point"},
		{"decimal(38,10)", "text", "1,5", "not a decimal number"},
		{"int64", "u8", "\xff", "255"},
		{"int64", "u8", "", "not 1 byte long"},
		{"int64", "u16", "\x01\x02", "258"},
		{"int64", "u16", "\x01", "not 2 bytes long"},
		{"int64", "u32", "\xff\xff\xff\xff", "4294967295"},
		{"int64", "u32", be(1), "not 4 bytes long"},
		{"int64", "u64", be(math.MaxInt64), "9223372036854775807"},
		{"int64", "u64", be(math.MaxInt64 + 1), "out of range"},
		{"int64", "i64", "\x7f\xff\xff\xff\xff\xff\xff\xff", "-1"},
		{"int64", "i64", "1", "not 8 bytes long"},
		{"int64", "reverse_ts", be(math.MaxInt64 - 7), "7"},
		{"int64", "hex", "00fF", "255"},
		{"int64", "hex", "7fffffffffffffff", "9223372036854775807"},
		{"int64", "hex", "8000000000000000", "out of range"},
		{"int64", "hex", "00000000000000001", "not 1 to 16 hex digits"},
		{"int64", "hex", "", "not 1 to 16 hex digits"},
		{"int64", "hex", "g", "not 1 to 16 hex digits"},
		{"int64", "varint", "\xac\x02", "300"},
		{"int64", "varint", "\x80\x00", "0"}, // longer than need be, as Protocol Buffers allow
		{"int64", "varint", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "-1"},
		{"int64", "varint", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "out of range"},
		{"int64", "varint", "", "not a whole varint"},
		{"int64", "varint", "\x80", "not a whole varint"},
		{"int64", "varint", "\x01\x01", "there are bytes behind the varint"},
		{"int64", "zigzag", "\x01", "-1"},
		{"int64", "zigzag", "\x02", "1"},
		{"int64", "zigzag", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "-9223372036854775808"},
		{"int64", "zigzag", "\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "9223372036854775807"},
		{"bytes", "hex", "00Ff", `"\x00\xff"`},
		{"bytes", "hex", "", `""`},
		{"bytes", "hex", "0", "not two hex digits a byte"},
		{"bytes", "hex", "0x", "not hex digits"},
		{"string", "fixed", "grün\x00\x00", `"grün"`},
		{"string", "fixed", "\x00\xc3\x00", "not UTF-8"},
		{"string", "reverse", "moc.nürg", `"grün.com"`},
		{"string", "reverse", "moc", `"com"`},
		{"string", "reverse", "\xc3", "not UTF-8"},
		{"timestamp", "i64", be(1<<63 | 1), "1000"},
		{"timestamp", "i64", be(math.MaxUint64), "out of range for a timestamp in µs"},
		{"timestamp", "reverse_ts", be(math.MaxInt64 - 1431857103123), "1431857103123000"},
	} {
		spec := columnar.ColumnSpec{Name: "c", From: "info:q", Type: tt.typ, Coding: tt.coding}
		row := &cell.Row{Key: []byte("row\x00"), Cells: []cell.Cell{put("info", "q", 1, tt.value)}}
		build := func(onError string) (*columnar.Batch, error) {
			spec.OnError = onError
			s, err := columnar.Compile([]columnar.ColumnSpec{spec}, "", table())
			if err != nil {
				t.Fatal(err)
			}
			b := columnar.NewBuilder(s)
			return b.Batch(), b.Append(row)
		}
		batch, err := build("fail")
		if err == nil {
			if got := columnartest.Texts(batch)[0][0]; got != tt.want {
				t.Errorf("%s %s of %q: got %s, want %s", tt.coding, tt.typ, tt.value, got, tt.want)
			}
			continue
		}
		ce := new(columnar.ConvertError)
		if !errors.As(err, &ce) || !strings.HasPrefix(ce.Reason, tt.want) || !strings.HasPrefix(err.Error(), `table t, row "row\x00", column c (info:q): value `) {
			t.Errorf("%s %s of %q: got %v, want %s", tt.coding, tt.typ, tt.value, err, tt.want)
		}
		batch, err = build("null")
		if err != nil || !batch.Vector(0).IsNull(0) || batch.Vector(0).Len() != 1 {
			t.Errorf("%s %s of %q with on_error: null: got %v", tt.coding, tt.typ, tt.value, err)
		}
	}
}

func TestNotNullable(t *testing.T) {
	t.Parallel()
	s, err := columnar.Compile([]columnar.ColumnSpec{{Name: "c", From: "info:q", Type: "string", Nullable: ptr(false)}}, "", table())
	if err != nil {
		t.Fatal(err)
	}
	err = columnar.NewBuilder(s).Append(&cell.Row{Key: []byte("r"), Cells: []cell.Cell{put("info", "other", 1, "")}})
	want := `table t, row "r", column c (info:q): no cell, and the column has nullable: false`
	if err == nil || err.Error() != want {
		t.Errorf("Got %v, want %s", err, want)
	}
}

// A time of a cell that no timestamp can be is named.
func TestTimeOutOfRange(t *testing.T) {
	t.Parallel()
	s, err := columnar.Compile([]columnar.ColumnSpec{{Name: "t", From: columnar.FromTimestamp, Type: "timestamp"}}, "", table())
	if err != nil {
		t.Fatal(err)
	}
	err = columnar.NewBuilder(s).Append(&cell.Row{Key: []byte("r"), Cells: []cell.Cell{put("info", "q", math.MaxInt64-1, "")}})
	want := `table t, row "r", column t ($timestamp): value "9223372036854775806" is not timestamp: out of range for a timestamp in µs (on_error: null would export null)`
	if err == nil || err.Error() != want {
		t.Errorf("Got %v, want %s", err, want)
	}
}

// TestMerge appends rows with random cells to a schema that names some of them,
// some twice, in any order, and compares with a look-up by name.
func TestMerge(t *testing.T) {
	t.Parallel()
	qualifiers := []string{"", "a", "ab", "b", "\xff"}
	rapid.Check(t, func(t *rapid.T) {
		var specs []columnar.ColumnSpec
		for i := range rapid.IntRange(1, 6).Draw(t, "columns") {
			specs = append(specs, columnar.ColumnSpec{
				Name: strconv.Itoa(i), Type: "bytes",
				From: rapid.SampledFrom([]string{"info", "n"}).Draw(t, "family") + ":" + rapid.SampledFrom(qualifiers).Draw(t, "qualifier"),
			})
		}
		s, err := columnar.Compile(specs, "", table())
		if err != nil {
			t.Fatal(err)
		}
		b := columnar.NewBuilder(s)
		var want [][]string
		for range rapid.IntRange(0, 5).Draw(t, "rows") {
			row := cell.Row{Key: []byte("r")}
			values := map[string]string{}
			for _, f := range []string{"info", "n", "z"} {
				for _, q := range qualifiers {
					for version := range rapid.IntRange(0, 2).Draw(t, "versions") {
						v := fmt.Sprint(f, q, version)
						row.Cells = append(row.Cells, put(f, q, cell.Timestamp(5-version), v))
						if version == 0 {
							values[f+":"+q] = v
						}
					}
				}
			}
			if err := b.Append(&row); err != nil {
				t.Fatal(err)
			}
			if len(row.Cells) == 0 {
				continue
			}
			var texts []string
			for _, spec := range specs {
				if v, ok := values[spec.From]; ok {
					texts = append(texts, fmt.Sprintf("%q", v))
				} else {
					texts = append(texts, "null")
				}
			}
			want = append(want, texts)
		}
		if d := cmp.Diff(want, columnartest.Texts(b.Batch()), cmp.Transformer("nil", func(s [][]string) [][]string { return append([][]string{}, s...) })); d != "" {
			t.Fatal(d)
		}
	})
}

// TestMarkers: a cell says what it is, and a delete marker has no value.
func TestMarkers(t *testing.T) {
	t.Parallel()
	s, err := columnar.Compile([]columnar.ColumnSpec{
		{Name: "op", From: "$op", Type: "string"}, {Name: "qualifier", From: "$qualifier", Type: "string"}, {Name: "value", From: "$value", Type: "string"},
	}, columnar.PerCell, table())
	if err != nil {
		t.Fatal(err)
	}
	b := columnar.NewBuilder(s)
	row := cell.Row{Key: []byte("r"), Cells: []cell.Cell{
		{Family: "info", Kind: cell.KindDeleteFamily},
		{Family: "info", Kind: cell.KindDeleteFamilyVersion},
		put("info", "", 1, ""),
		{Family: "info", Qualifier: []byte("a"), Kind: cell.KindDeleteColumn},
		{Family: "info", Qualifier: []byte("a"), Kind: cell.KindDelete},
		put("info", "a", 1, "v"),
	}}
	if err := b.Append(&row); err != nil {
		t.Fatal(err)
	}
	want := [][]string{
		{`"delete_family"`, `""`, "null"},
		{`"delete_family_version"`, `""`, "null"},
		{`"put"`, `""`, `""`},
		{`"delete_column"`, `"a"`, "null"},
		{`"delete"`, `"a"`, "null"},
		{`"put"`, `"a"`, `"v"`},
	}
	if d := cmp.Diff(want, columnartest.Texts(b.Batch())); d != "" {
		t.Error(d)
	}
}

// TestRecord compares the Arrow record of a batch with the batch, and reads it
// back into another.
func TestRecord(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		columns := columnartest.Columns()
		b := columnar.NewBatch(columns)
		columnartest.Fill(t, b, rapid.IntRange(0, 70).Draw(t, "rows"))
		r := b.Record(columnar.ArrowSchema(columns, nil))
		defer r.Release()
		if r.NumRows() != int64(b.Rows()) {
			t.Fatalf("Got %d rows, want %d", r.NumRows(), b.Rows())
		}
		for i := range columns {
			if got, want := r.Column(i).NullN(), b.Vector(i).Nulls(); got != want {
				t.Fatalf("Got %d nulls, want %d", got, want)
			}
		}
		again := columnar.NewBatch(columns)
		if err := again.SetRecord(r); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(columnartest.Texts(b), columnartest.Texts(again)); d != "" {
			t.Fatal(d)
		}
	})
}

// TestRecordSharesMemory: a record is the batch's memory, not a copy.
func TestRecordSharesMemory(t *testing.T) {
	t.Parallel()
	columns := []columnar.Column{{Name: "n", Type: columnar.Int64}}
	b := columnar.NewBatch(columns)
	b.Vector(0).AppendInt64(1)
	r := b.Record(columnar.ArrowSchema(columns, nil))
	defer r.Release()
	b.Vector(0).Int64s()[0] = 2
	if got := r.Column(0).(*array.Int64).Value(0); got != 2 {
		t.Errorf("Got %d, want the changed value", got)
	}
}

// TestAllocations: a batch of a size that was there before costs nothing.
func TestAllocations(t *testing.T) {
	s, err := columnar.Compile(benchColumns, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	rows := benchRows(1000)
	b := columnar.NewBuilder(s)
	got := testing.AllocsPerRun(5, func() {
		b.Reset()
		for i := range rows {
			if err := b.Append(&rows[i]); err != nil {
				t.Fatal(err)
			}
		}
	})
	if got != 0 {
		t.Errorf("Got %v allocations for 1000 rows, want none", got)
	}
}

func TestFull(t *testing.T) {
	t.Parallel()
	s, err := columnar.Compile([]columnar.ColumnSpec{{Name: "v", From: "info:q", Type: "bytes"}}, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	b := columnar.NewBuilder(s)
	row := &cell.Row{Key: []byte("r"), Cells: []cell.Cell{put("info", "q", 1, strings.Repeat("x", columnar.DefaultBatchBytes))}}
	if b.Full() {
		t.Error("an empty builder is full")
	}
	if err := b.Append(row); err != nil || !b.Full() {
		t.Errorf("Got not full after %d bytes, %v", columnar.DefaultBatchBytes, err)
	}
	b.Reset()
	row.Cells[0].Value = nil
	for i := range columnar.DefaultBatchRows {
		if b.Full() {
			t.Fatalf("full after %d rows", i)
		}
		if err := b.Append(row); err != nil {
			t.Fatal(err)
		}
	}
	if !b.Full() {
		t.Errorf("not full after %d rows", columnar.DefaultBatchRows)
	}
}

// A row key that is no text, as most are that have a number in them, is named with the type
// that takes it.
func TestBytesAreNoString(t *testing.T) {
	t.Parallel()
	s, err := columnar.Compile([]columnar.ColumnSpec{{Name: "k", From: columnar.FromRow, Type: "string"}}, "", table())
	if err != nil {
		t.Fatal(err)
	}
	err = columnar.NewBuilder(s).Append(&cell.Row{Key: []byte("u\xff"), Cells: []cell.Cell{put("info", "q", 1, "")}})
	want := `table t, row "u\xff", column k ($row): value "u\xff" is not string in coding text: not UTF-8 (type: bytes takes every value; on_error: null would export null)`
	if err == nil || err.Error() != want {
		t.Errorf("Got %v, want %s", err, want)
	}
}
