package parquetfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"pgregory.net/rapid"

	"sluice/jobs/columnar"
)

// boundedFile writes texts and the same bytes as two columns and returns the file.
func boundedFile(t *testing.T, values []string) []byte {
	t.Helper()
	columns := []columnar.Column{{Name: "text", Type: columnar.String}, {Name: "bytes", Type: columnar.Bytes}}
	b := columnar.NewBatch(columns)
	for _, v := range values {
		text := v
		if !utf8.ValidString(text) {
			text = ""
		}
		for i, x := range []string{text, v} {
			if err := b.Vector(i).AppendBytes([]byte(x)); err != nil {
				t.Fatal(err)
			}
		}
	}
	var file bytes.Buffer
	w, err := NewWriter(&file, columns, &Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// TestLongBounds: readers that pass over pages and row groups by their bounds miss no
// row, whatever the values begin with; bounds of text are text (parquet.thrift,
// ColumnIndex: "such more compact values must still be valid values within the column's
// logical type"); and what is long is in the pages alone, not in the footer too.
func TestLongBounds(t *testing.T) {
	t.Parallel()
	const long = 1 << 20
	for name, values := range map[string][]string{
		"short":           {"a", "b"},
		"huge":            {strings.Repeat("a", long), strings.Repeat("b", long)},
		"0xFF":            {"a", strings.Repeat("\xff", 16) + "\x01"},
		"0xFF of a chunk": {"a", strings.Repeat("\xff", 300) + "\x01"},
		"0xFF alone":      {"a", strings.Repeat("\xff", 1000)},
		"runes":           {strings.Repeat("日本", 200), "a" + strings.Repeat("日本", 200)},
		"highest rune":    {"a", strings.Repeat("\U0010FFFF", 200)},
		"0x7F":            {strings.Repeat("\x7f", 300)},
		"surrogates":      {strings.Repeat("\uD7FF", 300)},
	} {
		file := boundedFile(t, values)
		if n := binary.LittleEndian.Uint32(file[len(file)-8:]); n > 4096 {
			t.Errorf("%s: the footer has %d bytes", name, n)
		}
		f, err := parquet.OpenFile(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			text := i == 0
			in := slices.Clone(values)
			for k := range in {
				if text && !utf8.ValidString(in[k]) {
					in[k] = ""
				}
			}
			least, greatest := slices.Min(in), slices.Max(in)
			holds := func(where string, lo, hi []byte) {
				t.Helper()
				if string(lo) > least || string(hi) < greatest {
					t.Errorf("%s: %s: %.40q to %.40q does not hold %.40q to %.40q", name, where, lo, hi, least, greatest)
				}
				if text && (!utf8.Valid(lo) || !utf8.Valid(hi)) {
					t.Errorf("%s: %s: %q to %q is not text", name, where, lo, hi)
				}
			}
			index := f.ColumnIndexes()[i]
			holds(fmt.Sprint("page of column ", i), index.MinValues[0], index.MaxValues[0])
			s := &f.Metadata().RowGroups[0].Columns[i].MetaData.Statistics
			if s.MinValue == nil && s.MaxValue == nil && (name == "0xFF alone" || name == "0xFF of a chunk" || name == "highest rune") {
				continue // nothing short is above
			}
			holds(fmt.Sprint("column ", i), s.MinValue, s.MaxValue)
		}
	}
}

// TestCutBounds: what is cut stays a bound, and short.
func TestCutBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(4, 20).Draw(t, "n")
		text := rapid.Bool().Draw(t, "text")
		var b []byte
		if text {
			b = []byte(string(rapid.SliceOfN(rapid.OneOf(rapid.Rune(), rapid.SampledFrom([]rune{utf8.MaxRune, 0xD7FF, 0x7F, 0x7FF, 0xFFFF, utf8.RuneError, 'a'})), 0, 30).Draw(t, "runes")))
		} else {
			b = rapid.SliceOfN(rapid.OneOf(rapid.Byte(), rapid.Just(byte(0xFF))), 0, 30).Draw(t, "bytes")
		}
		whole := bytes.Clone(b)
		lo, hi := cutBelow(b, n, text), cutAbove(b, n, text)
		if !bytes.Equal(b, whole) {
			t.Fatal("the value has changed")
		}
		if bytes.Compare(lo, b) > 0 || bytes.Compare(hi, b) < 0 {
			t.Fatalf("%q to %q does not hold %q", lo, hi, b)
		}
		if len(b) <= n && (!bytes.Equal(lo, b) || !bytes.Equal(hi, b)) {
			t.Fatalf("Got %q to %q of %q, which fits", lo, hi, b)
		}
		if len(lo) > n || len(hi) > n+utf8.UTFMax && !bytes.Equal(hi, b) {
			t.Fatalf("Got %q to %q of %q, longer than %d", lo, hi, b, n)
		}
		if text && (!utf8.Valid(lo) || !utf8.Valid(hi)) {
			t.Fatalf("Got %q to %q of %q, which is no text", lo, hi, b)
		}
	})
}

// TestNaNHasNoBounds: of floats of which one is NaN a file says no bounds in the statistics
// of its row groups, and the row group that has it no index of pages, whichever page it is
// in. DuckDB and Spark take NaN for greater than all numbers, so that those of the others
// would have them pass over rows that are asked for; of a NaN as a bound DataFusion passes
// over all rows, and takes the bounds of some row groups for those of all.
func TestNaNHasNoBounds(t *testing.T) {
	t.Parallel()
	const pages, rows = 3, pageBytes/8 + valuesPerAppend
	floats, _ := columnar.Map(columnar.Float64)
	columns := []columnar.Column{{Name: "x", Type: columnar.Float64}, {Name: "null", Type: columnar.Float64, Nullable: true}, {Name: "map", Type: floats}}
	for name, nan := range map[string]func(i int) bool{
		"none":           func(int) bool { return false },
		"the first page": func(i int) bool { return i < rows },
		"one":            func(i int) bool { return i == rows+7 },
		"the last":       func(i int) bool { return i == pages*rows-1 },
		"all":            func(int) bool { return true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var file bytes.Buffer
			w, err := NewWriter(&file, columns, &Options{RowGroupRows: pages * rows})
			if err != nil {
				t.Fatal(err)
			}
			b := columnar.NewBatch(columns)
			for i := range pages*rows + 1 { // the last one is a row group of its own
				x := float64(i)
				if i < pages*rows && nan(i) {
					x = math.NaN()
				}
				b.Vector(0).AppendFloat64(x)
				b.Vector(1).AppendFloat64(x)
				b.Vector(2).Values().AppendFloat64(x)
				if err := errors.Join(b.Vector(2).Keys().AppendBytes([]byte("k")), b.Vector(2).AppendEntries()); err != nil {
					t.Fatal(err)
				}
				if i >= pages*rows-1 {
					if err := w.Write(b); err != nil {
						t.Fatal(err)
					}
					b.Reset()
				}
			}
			if _, err := w.Close(); err != nil {
				t.Fatal(err)
			}
			f, err := parquet.OpenFile(bytes.NewReader(file.Bytes()), int64(file.Len()), parquet.SkipPageIndex(true))
			if err != nil {
				t.Fatal(err)
			}
			for g, group := range f.Metadata().RowGroups {
				for c := range group.Columns {
					chunk := &group.Columns[c]
					path := strings.Join(chunk.MetaData.PathInSchema, ".")
					bounded := name == "none" || path == "map.key_value.key"
					if got := len(chunk.MetaData.Statistics.MinValue) > 0; got != bounded || got != (len(chunk.MetaData.Statistics.MaxValue) > 0) {
						t.Errorf("group %d, %s: bounds %x to %x", g, path, chunk.MetaData.Statistics.MinValue, chunk.MetaData.Statistics.MaxValue)
					}
					if got := chunk.ColumnIndexOffset > 0; got != (bounded || g == 1) || got != (chunk.ColumnIndexLength > 0) {
						t.Errorf("group %d, %s: a column index at %d of %d bytes", g, path, chunk.ColumnIndexOffset, chunk.ColumnIndexLength)
					}
					if chunk.OffsetIndexOffset == 0 || chunk.OffsetIndexLength == 0 {
						t.Errorf("group %d, %s: no offset index", g, path)
					}
				}
			}
			readSums(t, file.Bytes())
		})
	}
}

// TestZeroBounds: a bound that is zero holds both zeros, also for readers to which -0 is
// less, as parquet.thrift says that they are to be written.
func TestZeroBounds(t *testing.T) {
	t.Parallel()
	negative := math.Copysign(0, -1)
	columns := []columnar.Column{{Name: "x", Type: columnar.Float64}}
	for name, c := range map[string]struct {
		values []float64
		lo, hi float64
	}{
		"+0":          {[]float64{0}, negative, 0},
		"-0":          {[]float64{negative}, negative, 0},
		"+0 and -0":   {[]float64{0, negative}, negative, 0},
		"-0 and +0":   {[]float64{negative, 0}, negative, 0},
		"above +0":    {[]float64{0, negative, 3}, negative, 3},
		"below -0":    {[]float64{negative, 0, -3}, -3, 0},
		"around zero": {[]float64{-1, 0, negative, 1}, -1, 1},
	} {
		var file bytes.Buffer
		w, err := NewWriter(&file, columns, nil)
		if err != nil {
			t.Fatal(err)
		}
		b := columnar.NewBatch(columns)
		for _, x := range c.values {
			b.Vector(0).AppendFloat64(x)
		}
		if err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Close(); err != nil {
			t.Fatal(err)
		}
		f, err := parquet.OpenFile(bytes.NewReader(file.Bytes()), int64(file.Len()))
		if err != nil {
			t.Fatal(err)
		}
		lo, hi := binary.LittleEndian.AppendUint64(nil, math.Float64bits(c.lo)), binary.LittleEndian.AppendUint64(nil, math.Float64bits(c.hi))
		s, index := &f.Metadata().RowGroups[0].Columns[0].MetaData.Statistics, f.ColumnIndexes()[0]
		if !bytes.Equal(s.MinValue, lo) || !bytes.Equal(s.MaxValue, hi) {
			t.Errorf("%s: statistics: Got %x to %x", name, s.MinValue, s.MaxValue)
		}
		if !bytes.Equal(index.MinValues[0], lo) || !bytes.Equal(index.MaxValues[0], hi) {
			t.Errorf("%s: column index: Got %x to %x", name, index.MinValues[0], index.MaxValues[0])
		}
	}
}
