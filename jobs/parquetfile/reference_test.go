package parquetfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/parquet-go/parquet-go"
	"pgregory.net/rapid"

	"sluice/jobs/columnar"
	"sluice/jobs/columnar/columnartest"
)

// reference writes batches by parquet-go's own column writers, with the options and
// encodings of a Writer, from a parquet.Value for each value.
func reference(out io.Writer, columns []columnar.Column, o *Options, batches []*columnar.Batch) error {
	c, err := codec(o.Codec)
	if err != nil {
		return err
	}
	sample := columnar.NewBatch(columns)
	if len(batches) > 0 {
		sample = batches[0]
	}
	opts := []parquet.WriterOption{
		parquet.Compression(c), parquet.DictionaryMaxBytes(dictionaryBytes), parquet.DataPageStatistics(false),
		parquet.CreatedBy(o.Application, o.Version, ""),
		newSchema(columns, func(l *leaf, n parquet.Node) parquet.Node {
			return encoded(n, l.part.of(sample.Vector(l.column)), len(o.Order) > 0 && o.Order[0].Column == l.name)
		}),
	}
	for k, v := range o.Metadata {
		opts = append(opts, parquet.KeyValueMetadata(k, v))
	}
	var sorting []parquet.SortingColumn
	for _, by := range o.Order {
		s := parquet.Ascending(by.Column)
		if by.Descending {
			s = parquet.Descending(by.Column)
		}
		if by.NullsFirst {
			s = parquet.NullsFirst(s)
		}
		sorting = append(sorting, s)
	}
	opts = append(opts, parquet.SortingWriterConfig(parquet.SortingColumns(sorting...)))
	w := parquet.NewGenericWriter[any](out, opts...)
	rows := int64(0)
	leaves := leavesOf(columns)
	for _, b := range batches {
		for i, cw := range w.ColumnWriters() {
			l := &leaves[i]
			v := b.Vector(l.column)
			for start, end := 0, 0; start < v.Len(); start = end {
				end = min(start+valuesPerAppend, v.Len())
				if l.repeated {
					end = rowsToAppend(v, start)
				}
				if _, err := cw.WriteRowValues(referenceValues(v, l, start, end)); err != nil {
					return err
				}
			}
		}
		if rows += int64(b.Rows()); o.RowGroupRows > 0 && rows >= o.RowGroupRows {
			if err := w.Flush(); err != nil {
				return err
			}
			rows = 0
		}
	}
	return w.Close()
}

func referenceValues(v *columnar.Vector, l *leaf, start, end int) (all []parquet.Value) {
	if !l.repeated {
		for i := start; i < end; i++ {
			level := int(l.maxDefinition)
			if v.IsNull(i) {
				level = 0
			}
			all = append(all, referenceValue(v, i).Level(0, level, l.column))
		}
		return all
	}
	for i := start; i < end; i++ {
		first, last := v.EntriesOf(i)
		switch {
		case v.IsNull(i):
			all = append(all, parquet.Value{})
		case first == last:
			all = append(all, parquet.Value{}.Level(0, int(l.maxDefinition)-1, l.column))
		}
		for e := first; e < last; e++ {
			all = append(all, referenceValue(l.part.of(v), e).Level(min(1, e-first), int(l.maxDefinition), l.column))
		}
	}
	return all
}

func referenceValue(v *columnar.Vector, i int) (x parquet.Value) {
	switch {
	case v.IsNull(i):
	case v.Type().Storage() == columnar.Int64:
		x = parquet.Int64Value(v.Int64s()[i])
	case v.Type().Storage() == columnar.Decimal128:
		precision, _, _ := v.Type().Decimal()
		x = parquet.FixedLenByteArrayValue(appendFixed(nil, v.Decimals()[i], decimalBytes(precision)))
	case v.Type() == columnar.Float64:
		x = parquet.DoubleValue(v.Float64s()[i])
	case v.Type() == columnar.Bool:
		x = parquet.BooleanValue(v.Bool(i))
	default:
		x = parquet.ByteArrayValue(v.Bytes(i))
	}
	return x
}

// fatal is what testing.T and rapid.T share.
type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
}

// sameAsReference compares the file of a Writer with that of parquet-go, byte for
// byte, and what a Reader finds in it with the batches.
func sameAsReference(t fatal, columns []columnar.Column, o *Options, batches []*columnar.Batch) {
	t.Helper()
	o.Application = "sluice"
	var got, want bytes.Buffer
	w, err := NewWriter(&got, columns, o)
	if err != nil {
		t.Fatalf("new writer: %v", err)
	}
	for _, b := range batches {
		if err := w.Write(b); err != nil {
			t.Fatalf("write: %v", err)
		}
	}
	if _, err := w.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	if err := reference(&want, columns, o, batches); err != nil {
		t.Fatalf("reference: %v", err)
	}
	if cutOtherwise(batches) { // then the pages are the same
		f, err := parquet.OpenFile(bytes.NewReader(got.Bytes()), int64(got.Len()))
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		pages := int(f.Metadata().RowGroups[0].Columns[0].ColumnIndexOffset)
		if want.Len() < pages || !bytes.Equal(got.Bytes()[:pages], want.Bytes()[:pages]) {
			t.Fatalf("The pages are not those of parquet-go")
		}
	} else if !bytes.Equal(got.Bytes(), want.Bytes()) {
		at := 0
		for at < min(got.Len(), want.Len()) && got.Bytes()[at] == want.Bytes()[at] {
			at++
		}
		t.Fatalf("The file has %d bytes, that of parquet-go %d; they differ from byte %d", got.Len(), want.Len(), at)
	}
	wrote := columnar.NewChecksum(len(columns))
	for _, b := range batches {
		wrote.Add(b)
	}
	if read := readSums(t, got.Bytes()); !slices.Equal(wrote.Sums(), read) {
		t.Fatalf("The values read are not those that were written: %v, %v", read, wrote.Sums())
	}
}

// cutOtherwise says whether a value may be cut otherwise than parquet-go cuts it, whose
// bounds are not always text, nor above what begins with many 0xFF: TestLongBounds and
// TestCutBounds have those.
func cutOtherwise(batches []*columnar.Batch) bool {
	var otherwise func(v *columnar.Vector) bool
	otherwise = func(v *columnar.Vector) bool {
		switch v.Type().Storage() {
		case columnar.Entries:
			return otherwise(v.Keys()) || otherwise(v.Values())
		case columnar.Bytes:
			for i := range v.Len() {
				if b := v.Bytes(i); len(b) > boundBytes || len(b) > indexedBytes && slices.ContainsFunc(b[:indexedBytes], func(x byte) bool { return x >= 0x7F }) {
					return true
				}
			}
		}
		return false
	}
	for _, b := range batches {
		for i := range b.Columns() {
			if otherwise(b.Vector(i)) {
				return true
			}
		}
	}
	return false
}

// readSums returns the checksums of what a Reader finds in a file.
func readSums(t fatal, file []byte) []string {
	t.Helper()
	r, err := NewReader(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	read := columnar.NewChecksum(len(r.Columns()))
	for {
		b, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("read: %v", err)
		}
		read.Add(b)
	}
	if err := r.Close(); err != nil {
		t.Fatalf("close reader: %v", err)
	}
	return read.Sums()
}

// ofOneSign makes the decimals of more than 64 bits in b negative, or none of them, as
// parquet-go compares their bytes as if they had no sign: TestDecimalBounds has both.
func ofOneSign(b *columnar.Batch, negative bool) {
	for i := range b.Columns() {
		decimals := b.Vector(i).Decimals()
		for k, x := range decimals {
			switch decimals[k] = x.Abs(); {
			case negative && x.Sign() == 0:
				decimals[k] = columnar.Int128FromInt64(-1)
			case negative:
				decimals[k] = x.Abs().Negate()
			}
		}
	}
}

// withoutZeros makes the floats in b that are zero 1, as parquet-go writes the zero that
// comes first as a bound: TestZeroBounds has both.
func withoutZeros(b *columnar.Batch) {
	for i := range b.Columns() {
		v := b.Vector(i)
		if v.Values() != nil {
			v = v.Values()
		}
		for k, x := range v.Float64s() {
			if x == 0 {
				v.Float64s()[k] = 1
			}
		}
	}
}

// TestSameAsReference writes a few values of every type, nulls between them.
func TestSameAsReference(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		columns := columnartest.Columns()
		for i := range columns {
			// Of pages of nulls parquet-go leaves out the bounds in the column index,
			// so that there are fewer than pages.
			columns[i].Nullable = columns[i].Nullable && columns[i].Type.Storage() != columnar.Decimal128
		}
		negative := rapid.Bool().Draw(t, "negative")
		var batches []*columnar.Batch
		for range rapid.IntRange(0, 3).Draw(t, "batches") {
			b := columnar.NewBatch(columns)
			columnartest.Fill(t, b, rapid.IntRange(1, 40).Draw(t, "rows"))
			ofOneSign(b, negative)
			withoutZeros(b)
			batches = append(batches, b)
		}
		o := &Options{
			Codec:        rapid.SampledFrom(codecNames).Draw(t, "codec"),
			RowGroupRows: rapid.Int64Range(0, 30).Draw(t, "row group"),
			Metadata:     map[string]string{"b": "1", "a": ""},
		}
		if rapid.Bool().Draw(t, "sorted") {
			o.Order = columnar.Ascending("Required string", "bytes")
			o.Order[0].Descending, o.Order[1].NullsFirst = rapid.Bool().Draw(t, "descending"), rapid.Bool().Draw(t, "nulls first")
		}
		sameAsReference(t, columns, o, batches)
	})
}

// TestSameAsReferencePages writes chunks of many pages, with long runs of nulls and of
// equal values, dictionaries that fill up, and row groups of other sizes than pages.
func TestSameAsReferencePages(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: long pages are one goroutine's work")
	}
	t.Parallel()
	columns := columnartest.Columns()
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			var batches []*columnar.Batch
			for n := range 8 {
				b := columnar.NewBatch(columns)
				rows := 8192 + r.IntN(9000)
				for i, c := range columns {
					fillPages(t, r, b.Vector(i), c.Nullable, rows, n)
				}
				ofOneSign(b, seed == 1)
				batches = append(batches, b)
			}
			sameAsReference(t, columns, &Options{RowGroupRows: 40_000 + int64(seed)*20_000, Codec: codecNames[seed]}, batches)
		})
	}
}

// fillPages appends rows values. The first batch repeats itself, so that text has a
// dictionary, which others fill up.
func fillPages(t *testing.T, r *rand.Rand, v *columnar.Vector, nullable bool, rows, batch int) {
	t.Helper()
	distinct := 1 + r.IntN(200)
	if batch > 0 && r.IntN(2) == 0 {
		distinct = 1 << 30
	}
	null := false
	for range rows {
		if r.IntN(300) == 0 {
			null = !null
		}
		if nullable && (null || r.IntN(50) == 0) {
			v.AppendNull()
			continue
		}
		x := r.IntN(distinct)
		switch v.Type().Storage() {
		case columnar.Entries:
			n := r.IntN(3)
			if r.IntN(2000) == 0 { // more than what comes to a page together
				n = r.IntN(3000)
			}
			fillPages(t, r, v.Keys(), false, n, batch)
			fillPages(t, r, v.Values(), false, n, batch)
			if err := v.AppendEntries(); err != nil {
				t.Fatal(err)
			}
		case columnar.Int64:
			n := int64(x) - 100
			if precision, _, ok := v.Type().Decimal(); ok {
				n %= int64(math.Pow10(precision))
			}
			v.AppendInt64(n)
		case columnar.Decimal128:
			v.AppendDecimal(columnar.Int128FromInt64(int64(x) - 100))
		case columnar.Float64:
			v.AppendFloat64([]float64{math.Inf(1), math.Inf(-1), math.Copysign(0, -1), 0, float64(x)}[min(4, r.IntN(100))]) // TestNaNHasNoBounds has NaN
		case columnar.Bool:
			v.AppendBool(x&1 == 0)
		default:
			if err := v.AppendBytes(fmt.Appendf(nil, "%0*x", x%40, x)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestAllNull writes columns and pages without a value, and files without rows.
func TestAllNull(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: long pages of nulls are one goroutine's work")
	}
	t.Parallel()
	var columns []columnar.Column
	for _, c := range columnartest.Columns() {
		if c.Type.Storage() == columnar.Decimal128 {
			continue // TestDecimalBounds has pages of nulls
		}
		c.Nullable = true
		columns = append(columns, c)
	}
	b := columnar.NewBatch(columns)
	for i := range columns {
		for range 70_000 {
			b.Vector(i).AppendNull()
		}
	}
	sameAsReference(t, columns, &Options{}, []*columnar.Batch{b, b})
	sameAsReference(t, columns, &Options{Metadata: map[string]string{"a": "b"}}, nil)
}

// FuzzSameAsReference makes the values of the bytes: of each, how long the text is
// that the next ones hold, or that there is a null.
func FuzzSameAsReference(f *testing.F) {
	f.Add([]byte("\x03abc\xff\x00\x03abc\x20longer than what a word of the machine holds"), uint16(3), false)
	f.Fuzz(func(t *testing.T, data []byte, group uint16, sorted bool) {
		texts, _ := columnar.Map(columnar.String)
		columns := []columnar.Column{{Name: "text", Type: columnar.String, Nullable: true}, {Name: "raw", Type: columnar.Bytes}, {Name: "n", Type: columnar.Int64, Nullable: true}, {Name: "map", Type: texts, Nullable: true}}
		var batches []*columnar.Batch
		for b := columnar.NewBatch(columns); len(data) > 0; {
			n := int(data[0])
			data = data[1:]
			var text [8]byte
			copy(text[:], data)
			if n == 0xFF {
				b.Vector(0).AppendNull()
				b.Vector(2).AppendNull()
				b.Vector(3).AppendNull()
			} else {
				_ = b.Vector(0).AppendBytes(data[:min(n, len(data))])
				b.Vector(2).AppendInt64(int64(binary.LittleEndian.Uint64(text[:])))
				for e := range n % 4 {
					_ = b.Vector(3).Keys().AppendBytes(text[:e])
					_ = b.Vector(3).Values().AppendBytes(text[e:])
				}
				_ = b.Vector(3).AppendEntries()
			}
			_ = b.Vector(1).AppendBytes(data[:min(n/2, len(data))])
			data = data[min(n/4, len(data)):]
			if n%16 == 0 || len(data) == 0 {
				batches = append(batches, b)
				b = columnar.NewBatch(columns)
			}
		}
		o := &Options{Codec: "none", RowGroupRows: int64(group)}
		if sorted {
			o.Order = columnar.Ascending("text")
		}
		sameAsReference(t, columns, o, batches)
	})
}
