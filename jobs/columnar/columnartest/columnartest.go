// Package columnartest is the contract of columnar.FileWriter and FileReader: the
// same tests for every file format.
//
// It is for tests only; nothing but them imports it. A Format's functions may be
// called from several goroutines.
package columnartest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v15/arrow/decimal128"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/internal/turns"
	"sluice/jobs/columnar"
)

// Format is how files of one format are written and read.
type Format struct {
	Write func(w io.Writer, columns []columnar.Column, metadata map[string]string) (columnar.FileWriter, error)
	Read  func(r io.ReaderAt, size int64) (columnar.FileReader, error)
}

// Run runs the contract on f.
func Run(t *testing.T, f Format) {
	t.Run("round trip", func(t *testing.T) { t.Parallel(); rapid.Check(t, f.roundTrip) })
	t.Run("no rows", func(t *testing.T) { t.Parallel(); f.noRows(t) })
	t.Run("many batches", func(t *testing.T) { t.Parallel(); f.manyBatches(t) })
	t.Run("write error", func(t *testing.T) { t.Parallel(); f.writeError(t) })
	t.Run("closed", func(t *testing.T) { t.Parallel(); f.closed(t) })
	t.Run("truncated", func(t *testing.T) { t.Parallel(); f.truncated(t) })
}

// Yields writes batches of f while another goroutine is ready, on one core: it must have
// its turn at each batch, also where writing is all that the process does. The calling
// test must not run in parallel (turns.During).
func Yields(t *testing.T, f Format) {
	w, err := f.Write(io.Discard, numberColumns, nil)
	if err != nil {
		t.Fatal(err)
	}
	const batches = 50
	b := numbers(numberColumns, 0, 100)
	got := turns.During(func() {
		for range batches {
			err = errors.Join(err, w.Write(b))
		}
	})
	if _, closed := w.Close(); err != nil || closed != nil {
		t.Fatal(err, closed)
	}
	if got < batches/2 {
		t.Errorf("Another goroutine had %d turns while %d batches were written", got, batches)
	}
}

// Columns returns a nullable and a required column of each type and of some decimals, and
// one of each type of maps, every other one nullable.
func Columns() []columnar.Column {
	var cs []columnar.Column
	var types []columnar.Type
	for typ := columnar.String; typ <= columnar.JSON; typ++ {
		types = append(types, typ)
	}
	for _, digits := range [][2]int{{18, 0}, {18, 18}, {1, 1}, {9, 2}, {19, 0}, {38, 10}} {
		typ, _ := columnar.Decimal(digits[0], digits[1])
		types = append(types, typ)
	}
	for i, value := range []columnar.Type{columnar.Bytes, columnar.String, columnar.Int64, columnar.Float64} {
		typ, _ := columnar.Map(value)
		cs = append(cs, columnar.Column{Name: typ.String(), Type: typ, Nullable: i%2 == 0})
	}
	for _, typ := range types {
		cs = append(cs, columnar.Column{Name: typ.String(), Type: typ, Nullable: true}, columnar.Column{Name: "Required " + typ.String(), Type: typ})
	}
	// Files keep the order of the columns, whatever their names.
	cs[0], cs[len(cs)-1] = cs[len(cs)-1], cs[0]
	return cs
}

// Fill appends n rows of values to b, chosen by t.
func Fill(t *rapid.T, b *columnar.Batch, n int) {
	for i, c := range b.Columns() {
		v := b.Vector(i)
		value, isMap := c.Type.Map()
		if !isMap {
			fill(t, c, v, n)
			continue
		}
		for range n {
			if c.Nullable && rapid.IntRange(0, 3).Draw(t, "null") == 0 {
				v.AppendNull()
				continue
			}
			entries := rapid.SampledFrom([]int{0, 1, 1, 2}).Draw(t, "entries")
			fill(t, columnar.Column{Type: columnar.String}, v.Keys(), entries)
			fill(t, columnar.Column{Type: value}, v.Values(), entries)
			if err := v.AppendEntries(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// fill appends n values, or nulls where c takes them, to v, which is of no map.
func fill(t *rapid.T, c columnar.Column, v *columnar.Vector, n int) {
	text := rapid.OneOf(rapid.SampledFrom([]string{"", "a", "red", "grün", "\x00"}), rapid.String())
	ints := rapid.OneOf(rapid.SampledFrom([]int64{0, -1, math.MaxInt64, math.MinInt64}), rapid.Int64())
	documents := rapid.SampledFrom([]string{`{}`, `{"a": [1, 2.50, "grün\n"]}`, "null", ` "x"`, "-1e400"})
	floats := rapid.OneOf(rapid.SampledFrom([]float64{0, math.Copysign(0, -1), math.Inf(1), math.SmallestNonzeroFloat64}), rapid.Float64())
	for range n {
		if c.Nullable && rapid.IntRange(0, 3).Draw(t, "null") == 0 {
			v.AppendNull()
			continue
		}
		if c.Type.Storage() == columnar.Decimal128 {
			v.AppendDecimal(decimals(c.Type).Draw(t, "decimal"))
			continue
		}
		if precision, _, ok := c.Type.Decimal(); ok {
			most := int64(math.Pow10(precision)) - 1
			v.AppendInt64(rapid.OneOf(rapid.Int64Range(-most, most), rapid.SampledFrom([]int64{0, most, -most})).Draw(t, "decimal"))
			continue
		}
		var err error
		switch c.Type {
		case columnar.Int64, columnar.Timestamp:
			v.AppendInt64(ints.Draw(t, "int"))
		case columnar.Float64:
			v.AppendFloat64(floats.Draw(t, "float"))
		case columnar.Bool:
			v.AppendBool(rapid.Bool().Draw(t, "bool"))
		case columnar.JSON:
			err = v.AppendBytes([]byte(documents.Draw(t, "json")))
		case columnar.String:
			err = v.AppendBytes([]byte(text.Draw(t, "string")))
		default:
			err = v.AppendBytes(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// decimals are those of a type of more than 18 digits.
func decimals(typ columnar.Type) *rapid.Generator[columnar.Int128] {
	precision, _, _ := typ.Decimal()
	end := decimal128.GetScaleMultiplier(precision)
	most := end.Sub(decimal128.FromI64(1))
	return rapid.OneOf(
		rapid.SampledFrom([]columnar.Int128{{}, decimal128.FromI64(-1), most, most.Negate()}),
		rapid.Custom(func(t *rapid.T) columnar.Int128 {
			_, x := decimal128.New(rapid.Int64().Draw(t, "high"), rapid.Uint64().Draw(t, "low")).Div(end)
			return x
		}),
	)
}

// Texts returns the rows of b, each value as a text.
func Texts(b *columnar.Batch) [][]string {
	rows := make([][]string, b.Rows())
	for i := range rows {
		for c := range b.Columns() {
			rows[i] = append(rows[i], Text(b.Vector(c), i))
		}
	}
	return rows
}

// Text returns value i of v as a text.
func Text(v *columnar.Vector, i int) string {
	switch {
	case v.IsNull(i):
		return "null"
	case v.Type().Storage() == columnar.Int64:
		return string(v.Type().AppendNumber(nil, v.Int64s()[i]))
	case v.Type().Storage() == columnar.Decimal128:
		return string(v.Type().AppendDecimal(nil, v.Decimals()[i]))
	case v.Type() == columnar.Float64:
		return fmt.Sprintf("%x", math.Float64bits(v.Float64s()[i]))
	case v.Type() == columnar.Bool:
		return fmt.Sprint(v.Bool(i))
	case v.Type().Storage() == columnar.Entries:
		var entries []string
		for e, end := v.EntriesOf(i); e < end; e++ {
			entries = append(entries, Text(v.Keys(), e)+": "+Text(v.Values(), e))
		}
		return "{" + strings.Join(entries, ", ") + "}"
	}
	return fmt.Sprintf("%q", v.Bytes(i))
}

// fatal is what testing.T and rapid.T share.
type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
}

// read returns all rows of a file, and what else it says.
func (f Format) read(t fatal, file []byte) (rows [][]string, columns []columnar.Column, metadata map[string]string, sums []string) {
	t.Helper()
	r, err := f.Read(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatalf("read: %v", err)
		return
	}
	sum := columnar.NewChecksum(len(r.Columns()))
	for {
		b, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("read: %v", err)
			return
		}
		rows = append(rows, Texts(b)...)
		sum.Add(b)
	}
	if err := r.Close(); err != nil {
		t.Fatalf("close reader: %v", err)
	}
	return rows, r.Columns(), r.Metadata(), sum.Sums()
}

func (f Format) roundTrip(t *rapid.T) {
	columns := Columns()
	var out bytes.Buffer
	w, err := f.Write(&out, columns, map[string]string{"sluice.job": "j"})
	if err != nil {
		t.Fatalf("new writer: %v", err)
	}
	b := columnar.NewBatch(columns)
	sum := columnar.NewChecksum(len(columns))
	var want [][]string
	for range rapid.IntRange(1, 3).Draw(t, "batches") {
		b.Reset()
		Fill(t, b, rapid.IntRange(0, 40).Draw(t, "rows"))
		want = append(want, Texts(b)...)
		sum.Add(b)
		if err := w.Write(b); err != nil {
			t.Fatalf("write: %v", err)
		}
	}
	stats, err := w.Close()
	if err != nil {
		t.Fatalf("close: %v", err)
	}
	if stats.Rows != int64(len(want)) || stats.Bytes != int64(out.Len()) || w.Size() != stats.Bytes {
		t.Fatalf("Got %+v and size %d, want %d rows and %d bytes", stats, w.Size(), len(want), out.Len())
	}
	rows, gotColumns, metadata, sums := f.read(t, out.Bytes())
	if d := cmp.Diff(want, rows); d != "" {
		t.Fatalf("rows: %s", d)
	}
	if d := cmp.Diff(columns, gotColumns); d != "" {
		t.Fatalf("columns: %s", d)
	}
	if metadata["sluice.job"] != "j" {
		t.Fatalf("Got metadata %v", metadata)
	}
	if d := cmp.Diff(sum.Sums(), sums); d != "" {
		t.Fatalf("checksums: %s", d)
	}
}

func (f Format) noRows(t *testing.T) {
	var out bytes.Buffer
	w, err := f.Write(&out, Columns(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(columnar.NewBatch(Columns())); err != nil {
		t.Fatal(err)
	}
	if stats, err := w.Close(); err != nil || stats.Rows != 0 || stats.Bytes != int64(out.Len()) {
		t.Fatalf("Got %+v, %v", stats, err)
	}
	rows, columns, _, _ := f.read(t, out.Bytes())
	if d := cmp.Diff(Columns(), columns); d != "" || len(rows) > 0 {
		t.Errorf("Got %d rows, columns %s", len(rows), d)
	}
}

// numbers returns a batch of n rows that begin at start.
func numbers(columns []columnar.Column, start, n int) *columnar.Batch {
	b := columnar.NewBatch(columns)
	for i := start; i < start+n; i++ {
		b.Vector(0).AppendInt64(int64(i))
		if i%3 == 0 {
			b.Vector(1).AppendNull()
		} else {
			_ = b.Vector(1).AppendBytes(fmt.Appendf(nil, "value %d of many", i%1000*i))
		}
	}
	return b
}

var numberColumns = []columnar.Column{{Name: "n", Type: columnar.Int64}, {Name: "s", Type: columnar.String, Nullable: true}}

// manyBatches writes more than a page, a dictionary and a row group hold.
func (f Format) manyBatches(t *testing.T) {
	var out bytes.Buffer
	w, err := f.Write(&out, numberColumns, nil)
	if err != nil {
		t.Fatal(err)
	}
	const batches, n = 12, 5000
	sum := columnar.NewChecksum(len(numberColumns))
	size := w.Size()
	for i := range batches {
		b := numbers(numberColumns, i*n, n)
		sum.Add(b)
		if err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		b.Reset() // the writer must not need it any more
	}
	if w.Size() <= size {
		t.Errorf("Got size %d after %d rows", w.Size(), batches*n)
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	rows, _, _, sums := f.read(t, out.Bytes())
	if d := cmp.Diff(sum.Sums(), sums); d != "" || len(rows) != batches*n {
		t.Errorf("Got %d rows, checksums %s", len(rows), d)
	}
}

// limited fails when more than n bytes are written.
type limited struct{ n int }

var errFull = errors.New("no space left")

func (l *limited) Write(b []byte) (int, error) {
	if l.n -= len(b); l.n < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// writeError has the disk fill up at every length.
func (f Format) writeError(t *testing.T) {
	var out bytes.Buffer
	if err := f.writeNumbers(&out); err != nil {
		t.Fatal(err)
	}
	for n := range out.Len() {
		if n%41 != 0 && n < out.Len()-10 {
			continue // every length in the footer's end, some of the others
		}
		if err := f.writeNumbers(&limited{n: n}); !errors.Is(err, errFull) {
			t.Fatalf("Got %v with room for %d of %d bytes", err, n, out.Len())
		}
	}
}

func (f Format) writeNumbers(w io.Writer) error {
	wr, err := f.Write(w, numberColumns, nil)
	if err != nil {
		return err
	}
	if err := wr.Write(numbers(numberColumns, 0, 50)); err != nil {
		return err
	}
	_, err = wr.Close()
	return err
}

func (f Format) closed(t *testing.T) {
	w, err := f.Write(io.Discard, numberColumns, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(numbers(numberColumns, 0, 1)); err == nil {
		t.Error("Got no error for Write after Close")
	}
	if _, err := w.Close(); err == nil {
		t.Error("Got no error for the second Close")
	}
}

// truncated cuts the file at every length: that must be an error, and no panic.
// Changed bytes are for checksums to find.
func (f Format) truncated(t *testing.T) {
	var out bytes.Buffer
	if err := f.writeNumbers(&out); err != nil {
		t.Fatal(err)
	}
	try := func(file []byte) error {
		r, err := f.Read(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			return err
		}
		defer r.Close()
		for {
			b, err := r.Next()
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return err
			}
			Texts(b)
		}
	}
	for n := range out.Len() {
		if n%5 != 0 && n < out.Len()-50 {
			continue
		}
		if err := try(out.Bytes()[:n]); err == nil {
			t.Errorf("Got no error for %d of %d bytes", n, out.Len())
		}
	}
}
