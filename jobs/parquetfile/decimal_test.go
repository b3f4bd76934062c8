package parquetfile

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"sluice/jobs/columnar"
	"sluice/jobs/columnar/columnartest"
)

// numberOf returns the number that b is in two's complement.
func numberOf(b []byte) *big.Int {
	x := new(big.Int).SetBytes(b)
	if b[0]&0x80 != 0 {
		x.Sub(x, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return x
}

// fixedOf is the inverse of numberOf.
func fixedOf(x *big.Int, length int) []byte {
	return new(big.Int).And(x, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), uint(8*length)), big.NewInt(1))).FillBytes(make([]byte, length))
}

// TestDecimalBytes: decimals take as few bytes as hold all of so many digits.
func TestDecimalBytes(t *testing.T) {
	t.Parallel()
	for precision := 1; precision <= columnar.MaxPrecision; precision++ {
		most := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(precision)), nil)
		most.Sub(most, big.NewInt(1))
		if got, want := decimalBytes(precision), most.BitLen()/8+1; got != want {
			t.Errorf("%d digits: Got %d bytes, want %d", precision, got, want)
		}
	}
}

// TestDecimalBounds writes decimals of both signs in pages that ascend, descend, have no
// order and have nothing but nulls, with dictionaries and without: the footer and the
// column index have the bounds of numbers with a sign.
func TestDecimalBounds(t *testing.T) {
	t.Parallel()
	const rowsOfPage = 40_000 // more than come to one
	for _, c := range []struct {
		name      string
		precision int
		distinct  int64
		at        func(i int64) (x int64, null bool)
		order     format.BoundaryOrder
	}{
		{"ascending", 19, 0, func(i int64) (int64, bool) { return i - 2*rowsOfPage, false }, format.Ascending},
		{"descending", 38, 0, func(i int64) (int64, bool) { return 2*rowsOfPage - i, false }, format.Descending},
		{"none", 27, 0, func(i int64) (int64, bool) { return (i - 2*rowsOfPage) * (i % 7) * (1 - 2*(i/50_000%2)), false }, format.Unordered},
		{"nulls", 38, 0, func(i int64) (int64, bool) { return i - rowsOfPage, i > rowsOfPage/2 && i < 4*rowsOfPage-10 }, format.Unordered},
		{"all null", 20, 0, func(i int64) (int64, bool) { return 0, true }, format.Ascending},
		{"dictionary", 38, 13, func(i int64) (int64, bool) { return i%13 - 6, i%5 == 0 }, format.Ascending},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			typ, _ := columnar.Decimal(c.precision, c.precision/2)
			columns := []columnar.Column{{Name: "d", Type: typ, Nullable: true}}
			var out bytes.Buffer
			w, err := NewWriter(&out, columns, nil)
			if err != nil {
				t.Fatal(err)
			}
			// A factor that fills the type, or nearly.
			factor := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(c.precision-7)), nil)
			numbers := make([]*big.Int, 4*rowsOfPage) // nil = null
			wrote := columnar.NewChecksum(1)
			for start := 0; start < len(numbers); start += 8000 {
				b := columnar.NewBatch(columns)
				for i := start; i < start+8000; i++ {
					x, null := c.at(int64(i))
					if null {
						b.Vector(0).AppendNull()
						continue
					}
					numbers[i] = new(big.Int).Mul(big.NewInt(x), factor)
					v, err := columnar.ParseInt128(fixedOf(numbers[i], 16))
					if err != nil {
						t.Fatal(err)
					}
					if err := b.Vector(0).AppendUnscaled(v); err != nil {
						t.Fatal(err)
					}
				}
				wrote.Add(b)
				if err := w.Write(b); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := w.Close(); err != nil {
				t.Fatal(err)
			}
			checkDecimalBounds(t, out.Bytes(), numbers, c.order, c.distinct)
			if read := readSums(t, out.Bytes()); !slices.Equal(read, wrote.Sums()) {
				t.Errorf("Got other values than were written: %v, %v", read, wrote.Sums())
			}
		})
	}
}

// checkDecimalBounds compares the footer and the column index of a file's only column
// chunk with its values, of which nil is null.
func checkDecimalBounds(t *testing.T, file []byte, numbers []*big.Int, order format.BoundaryOrder, distinct int64) {
	t.Helper()
	f, err := parquet.OpenFile(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	bounds := func(numbers []*big.Int) (lo, hi *big.Int) {
		for _, x := range numbers {
			if x == nil {
				continue
			}
			if lo == nil || x.Cmp(lo) < 0 {
				lo = x
			}
			if hi == nil || x.Cmp(hi) > 0 {
				hi = x
			}
		}
		return lo, hi
	}
	is := func(where string, got []byte, want *big.Int) {
		t.Helper()
		if (len(got) == 0) != (want == nil) || want != nil && numberOf(got).Cmp(want) != 0 {
			t.Errorf("%s: Got %x, want %v", where, got, want)
		}
	}
	meta := &f.Metadata().RowGroups[0].Columns[0].MetaData
	lo, hi := bounds(numbers)
	is("least", meta.Statistics.MinValue, lo)
	is("greatest", meta.Statistics.MaxValue, hi)
	if n := int64(len(slices.DeleteFunc(slices.Clone(numbers), func(x *big.Int) bool { return x != nil }))); meta.Statistics.NullCount != n {
		t.Errorf("Got %d nulls, want %d", meta.Statistics.NullCount, n)
	}
	if has := meta.DictionaryPageOffset > 0; has != (distinct > 0 || lo == nil) {
		t.Errorf("Got a dictionary: %t", has)
	}
	index, pages := f.ColumnIndexes()[0], f.OffsetIndexes()[0].PageLocations
	if len(index.MinValues) != len(pages) || len(index.MaxValues) != len(pages) || len(index.NullPages) != len(pages) || distinct == 0 && lo != nil && len(pages) < 3 {
		t.Fatalf("Got bounds of %d and %d pages of %d", len(index.MinValues), len(index.MaxValues), len(pages))
	}
	for i := range pages {
		end := int64(len(numbers))
		if i+1 < len(pages) {
			end = pages[i+1].FirstRowIndex
		}
		lo, hi := bounds(numbers[pages[i].FirstRowIndex:end])
		is(fmt.Sprint("least of page ", i), index.MinValues[i], lo)
		is(fmt.Sprint("greatest of page ", i), index.MaxValues[i], hi)
		if index.NullPages[i] != (lo == nil) {
			t.Errorf("Page %d: nothing but nulls: %t", i, index.NullPages[i])
		}
	}
	if len(pages) > 1 && index.BoundaryOrder != order {
		t.Errorf("Got order %v, want %v", index.BoundaryOrder, order)
	}
}

// foreignDecimals are columns of decimals of each physical type that files of others may
// have.
var foreignDecimals = parquet.Group{
	"i32":  parquet.Decimal(2, 9, parquet.Int32Type),
	"i64":  parquet.Optional(parquet.Decimal(0, 18, parquet.Int64Type)),
	"five": parquet.Decimal(2, 11, parquet.FixedLenByteArrayType(5)),
	"wide": parquet.Decimal(10, 38, parquet.FixedLenByteArrayType(16)),
	"much": parquet.Optional(parquet.Decimal(3, 30, parquet.FixedLenByteArrayType(20))),
	"nine": parquet.Decimal(0, 19, parquet.FixedLenByteArrayType(9)),
	"huge": parquet.Decimal(10, 50, parquet.FixedLenByteArrayType(32)),
	"free": parquet.Encoded(parquet.Decimal(5, 25, parquet.ByteArrayType), &parquet.RLEDictionary),
}

// writeForeignDecimals writes rows of numbers without their points, by column; those that
// are left out are null, or 0 where there is no null.
func writeForeignDecimals(t *testing.T, rows ...map[string]*big.Int) *bytes.Reader {
	t.Helper()
	var out bytes.Buffer
	w := parquet.NewGenericWriter[any](&out, parquet.NewSchema("foreign", foreignDecimals))
	for _, numbers := range rows {
		var row parquet.Row
		for i, f := range foreignDecimals.Fields() {
			n, level := numbers[f.Name()], 0
			var x parquet.Value
			if f.Optional() && n != nil {
				level = 1
			} else if n == nil {
				n = new(big.Int)
			}
			switch length := f.Type().Length(); {
			case f.Optional() && level == 0:
			case f.Type().Kind() == parquet.Int32:
				x = parquet.Int32Value(int32(n.Int64()))
			case f.Type().Kind() == parquet.Int64:
				x = parquet.Int64Value(n.Int64())
			case f.Type().Kind() == parquet.FixedLenByteArray:
				x = parquet.FixedLenByteArrayValue(fixedOf(n, length))
			default:
				x = parquet.ByteArrayValue(fixedOf(n, (n.BitLen()+8)/8))
			}
			row = append(row, x.Level(0, level, i))
		}
		if _, err := w.WriteRows([]parquet.Row{row}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(out.Bytes())
}

// number returns the number of these digits.
func number(digits string) *big.Int {
	n, _ := new(big.Int).SetString(digits, 10)
	return n
}

// TestForeignDecimals reads decimals of each physical type, of any length.
func TestForeignDecimals(t *testing.T) {
	t.Parallel()
	nines := strings.Repeat("9", 38)
	r := writeForeignDecimals(t,
		map[string]*big.Int{"i32": big.NewInt(-150), "i64": number("-" + nines[:18]), "five": big.NewInt(-123456), "wide": number("-" + nines), "much": big.NewInt(-1), "nine": number("-" + nines[:19]), "free": big.NewInt(-1)},
		map[string]*big.Int{"i32": big.NewInt(7), "wide": number(nines), "free": big.NewInt(12345678)})
	want := map[string]string{
		"i32": "decimal(9,2) -1.50 0.07", "i64": "decimal(18,0) -999999999999999999 null", "five": "decimal(11,2) -1234.56 0.00",
		"wide": "decimal(38,10) -9999999999999999999999999999.9999999999 9999999999999999999999999999.9999999999",
		"much": "decimal(30,3) -0.001 null", "nine": "decimal(19,0) -9999999999999999999 0", "free": "decimal(25,5) -0.00001 123.45678",
	}
	rd, err := NewForeignReader(r, r.Size(), slices.Sorted(maps.Keys(want)))
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	b, err := rd.Next()
	if err != nil || b.Rows() != 2 || len(rd.Columns()) != len(want) {
		t.Fatalf("Got %v rows, %v", b, err)
	}
	for i, c := range rd.Columns() {
		got := c.Type.String()
		for row := range 2 {
			got += " " + columnartest.Text(b.Vector(i), row)
		}
		if got != want[c.Name] {
			t.Errorf("%s: Got %s, want %s", c.Name, got, want[c.Name])
		}
	}
	if _, err := NewForeignReader(r, r.Size(), []string{"huge"}); err == nil || !strings.Contains(err.Error(), "column huge has type") {
		t.Errorf("50 digits: Got %v", err)
	}
}

// TestForeignDecimalsBeyond: a number with more digits than its type says is an error that
// names it, and so are more than 128 bits.
func TestForeignDecimalsBeyond(t *testing.T) {
	t.Parallel()
	power := func(n int) *big.Int { return number("1" + strings.Repeat("0", n)) }
	r := writeForeignDecimals(t, map[string]*big.Int{
		"i32": power(9), "i64": power(18), "five": new(big.Int).Neg(power(11)), "much": new(big.Int).Lsh(big.NewInt(1), 127), "wide": power(38), "free": power(25),
	})
	for name, want := range map[string]string{
		"i32": "more than 9 digits: 10000000.00", "i64": "more than 18 digits: 1000000000000000000", "five": "more than 11 digits: -1000000000.00",
		"much": "more than 128 bits", "wide": "more than 38 digits: 10000000000000000000000000000.0000000000", "free": "more than 25 digits: 100000000000000000000.00000",
	} {
		rd, err := NewForeignReader(r, r.Size(), []string{name})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rd.Next(); err == nil || !strings.HasSuffix(err.Error(), "row 1, column "+name+": a decimal of "+want) {
			t.Errorf("%s: Got %v, want %q", name, err, want)
		}
		if err := rd.Close(); err != nil {
			t.Error(err)
		}
	}
}

// FuzzForeignDecimals reads any bytes as a decimal of any length.
func FuzzForeignDecimals(f *testing.F) {
	f.Add([]byte{}, uint8(19), uint8(3))
	f.Add([]byte{0x80}, uint8(19), uint8(3))
	f.Add(bytes.Repeat([]byte{0xff}, 40), uint8(38), uint8(0))
	f.Fuzz(func(t *testing.T, b []byte, precision, scale uint8) {
		typ, ok := columnar.Decimal(int(precision), int(scale))
		if !ok || len(b) > 64 {
			return
		}
		v := columnar.NewBatch([]columnar.Column{{Name: "d", Type: typ}}).Vector(0)
		if len(b) == 0 {
			if err := appendDecimal(v, b); err == nil {
				t.Fatal("Got no error of no bytes")
			}
			return
		}
		want := numberOf(b)
		fits := want.CmpAbs(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(precision)), nil)) < 0
		if err := appendDecimal(v, b); (err == nil) != fits || v.Len() > 0 != fits {
			t.Fatalf("%x as %v: Got %v, %d values", b, typ, err, v.Len())
		}
		if !fits {
			return
		}
		text, err := v.AppendValue(nil, columnar.Text, 0)
		if wantText := new(big.Rat).SetFrac(want, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)).FloatString(int(scale)); err != nil || string(text) != wantText {
			t.Fatalf("%x as %v: Got %s, %v, want %s", b, typ, text, err, wantText)
		}
	})
}

// BenchmarkDecimals writes decimals of 38 digits, and of 18 beside them.
func BenchmarkDecimals(b *testing.B) {
	for _, precision := range []int{18, 38} {
		typ, _ := columnar.Decimal(precision, 4)
		columns := []columnar.Column{{Name: "d", Type: typ, Nullable: true}}
		batch := columnar.NewBatch(columns)
		r := rand.New(rand.NewPCG(1, 2))
		for range 8192 {
			if err := batch.Vector(0).AppendUnscaled(columnar.Int128FromInt64(r.Int64N(1e15) - 5e14)); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprint(precision), func(b *testing.B) {
			for range b.N {
				var out bytes.Buffer
				w, err := NewWriter(&out, columns, nil)
				if err != nil {
					b.Fatal(err)
				}
				if err := w.Write(batch); err != nil {
					b.Fatal(err)
				}
				if _, err := w.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestDecimalsBeyond: a decimal of more digits than its type in a file of ours, whose
// writer did not look, is an error that names its row, from 1 over all row groups.
func TestDecimalsBeyond(t *testing.T) {
	t.Parallel()
	const groups, rows, bad = 3, 5000, 4321
	for _, c := range []struct {
		precision int
		x         int64
		want      string
	}{
		{5, 100_000, "a decimal of more than 5 digits: 1000.00"},
		{5, -100_000, "a decimal of more than 5 digits: -1000.00"},
		{5, math.MinInt64, "a decimal of more than 5 digits: -92233720368547758.08"},
		{18, 1e18, "a decimal of more than 18 digits: 10000000000000000.00"},
		{18, math.MaxInt64, "a decimal of more than 18 digits: 92233720368547758.07"},
		{5, 99_999, ""},
		{5, -99_999, ""},
		{18, 1 - 1e18, ""},
	} {
		for _, nullable := range []bool{false, true} {
			typ, _ := columnar.Decimal(c.precision, 2)
			columns := []columnar.Column{{Name: "k", Type: columnar.Int64}, {Name: "d", Type: typ, Nullable: nullable}}
			var out bytes.Buffer
			w, err := NewWriter(&out, columns, &Options{RowGroupRows: rows})
			if err != nil {
				t.Fatal(err)
			}
			for g := range groups {
				b := columnar.NewBatch(columns)
				for i := range rows {
					b.Vector(0).AppendInt64(math.MaxInt64) // no decimal
					switch {
					case g == groups-1 && i == bad-1:
						b.Vector(1).AppendInt64(c.x)
					case nullable && i%3 == 0:
						b.Vector(1).AppendNull()
					default:
						b.Vector(1).AppendInt64(int64(i))
					}
				}
				if err := w.Write(b); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := w.Close(); err != nil {
				t.Fatal(err)
			}
			rd, err := NewReader(bytes.NewReader(out.Bytes()), int64(out.Len()))
			if err != nil {
				t.Fatal(err)
			}
			read := 0
			for {
				b, nextErr := rd.Next()
				if err = nextErr; err != nil {
					break
				}
				read += b.Rows()
			}
			if c.want == "" {
				if err != io.EOF || read != groups*rows {
					t.Errorf("%d: Got %d rows, %v", c.x, read, err)
				}
			} else if want := fmt.Sprintf("row %d, column d: %s", (groups-1)*rows+bad, c.want); err == io.EOF || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%d, nulls %t: Got %v, want %s", c.x, nullable, err, want)
			}
			if err := rd.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
