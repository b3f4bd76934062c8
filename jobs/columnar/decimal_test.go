package columnar

import (
	"bytes"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v15/arrow/decimal128"
	"pgregory.net/rapid"
)

// power10 returns 10ⁿ.
func power10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

var decimalText = regexp.MustCompile(`^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)$`)

// referenceDecimal returns by math/big the number that a text is as a decimal, without its
// point; nil = it is none.
func referenceDecimal(text string, precision, scale int) *big.Int {
	if !decimalText.MatchString(text) {
		return nil
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil
	}
	r.Mul(r, new(big.Rat).SetInt(power10(scale)))
	if !r.IsInt() || r.Num().CmpAbs(power10(precision)) >= 0 {
		return nil
	}
	return r.Num()
}

// decimalAt returns value i of a vector of decimals, without its point.
func decimalAt(v *Vector, i int) *big.Int {
	if v.typ.Storage() == Decimal128 {
		return v.decimals[i].BigInt()
	}
	return big.NewInt(v.int64s[i])
}

// checkDecimal compares what becomes of a text with what math/big makes of it, there and
// back again.
func checkDecimal(t rapid.TB, typ Type, text string) {
	t.Helper()
	precision, scale, _ := typ.Decimal()
	want := referenceDecimal(text, precision, scale)
	v := newVector(typ)
	why := v.appendValue(Text, []byte(text))
	if (why == "") != (want != nil) || v.n > 0 != (want != nil) {
		t.Fatalf("%q as %v: Got %q, %d values, want %v", text, typ, why, v.n, want)
	}
	if want == nil {
		return
	}
	if got := decimalAt(&v, 0); got.Cmp(want) != 0 {
		t.Fatalf("%q as %v: Got %v, want %v", text, typ, got, want)
	}
	back, err := v.AppendValue(nil, Text, 0)
	if wantText := new(big.Rat).SetFrac(want, power10(scale)).FloatString(scale); err != nil || string(back) != wantText {
		t.Fatalf("%v of %v: Got %s, %v, want %s", want, typ, back, err, wantText)
	}
	if why := v.appendValue(Text, back); why != "" || decimalAt(&v, 1).Cmp(want) != 0 {
		t.Fatalf("%s of %v, written by us: %s", back, typ, why)
	}
}

// anyDecimalType draws a type of decimals.
func anyDecimalType(t *rapid.T) Type {
	precision := rapid.IntRange(1, MaxPrecision).Draw(t, "precision")
	typ, ok := Decimal(precision, rapid.IntRange(0, precision).Draw(t, "scale"))
	if same, known := ParseType(typ.String()); !ok || !known || same != typ {
		t.Fatalf("%v is %v", typ, same)
	}
	return typ
}

// anyUnscaled draws a number that decimals of type typ have without their point.
func anyUnscaled(t *rapid.T, typ Type) *big.Int {
	precision, _, _ := typ.Decimal()
	end := power10(precision)
	most := new(big.Int).Sub(end, big.NewInt(1))
	x := rapid.OneOf(
		rapid.SampledFrom([]*big.Int{new(big.Int), big.NewInt(1), most}),
		rapid.Custom(func(t *rapid.T) *big.Int {
			x := new(big.Int).SetBytes(rapid.SliceOfN(rapid.Byte(), 0, 16).Draw(t, "bytes"))
			return x.Mod(x, end)
		}),
	).Draw(t, "number")
	if rapid.Bool().Draw(t, "negative") {
		return new(big.Int).Neg(x)
	}
	return x
}

// TestDecimalIsInverse: the text of every decimal is read as the decimal, and texts of
// others are refused; the name of its type is read as the type.
func TestDecimalIsInverse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		typ := anyDecimalType(t)
		precision, scale, _ := typ.Decimal()
		x := anyUnscaled(t, typ)
		text := new(big.Rat).SetFrac(x, power10(scale)).FloatString(scale)
		checkDecimal(t, typ, text)
		checkDecimal(t, typ, rapid.StringMatching(`[-+]?0{0,3}[0-9]{0,40}\.?[0-9]{0,40}`).Draw(t, "text"))
		if scale > 0 {
			text += "000"
		}
		checkDecimal(t, typ, "0"+strings.TrimPrefix(text, "-"))
		v := newVector(typ)
		if err := v.AppendUnscaled(decimal128.FromBigInt(x)); err != nil || decimalAt(&v, 0).Cmp(x) != 0 {
			t.Fatalf("%v as %v: Got %v, %v", x, typ, decimalAt(&v, 0), err)
		}
		beyond := new(big.Int).Add(power10(precision), new(big.Int).Abs(x))
		for _, x := range []*big.Int{beyond, new(big.Int).Neg(beyond)} {
			if x.BitLen() > 127 {
				continue // Arrow makes no number of it
			}
			if err := v.AppendUnscaled(decimal128.FromBigInt(x)); err == nil || v.n != 1 {
				t.Fatalf("%v as %v: Got no error", x, typ)
			}
		}
	})
	for _, s := range []string{"decimal", "decimal()", "decimal(5)", "decimal(5,2", "decimal(05,2)", "decimal(5, 2)", "decimal(5,6)", "decimal(0,0)", "decimal(39,0)", "decimal(5,-1)", "5,2"} {
		if typ, ok := ParseType(s); ok {
			t.Errorf("%q is %v", s, typ)
		}
	}
}

// TestDecimalLeast: the least number of 128 bits, which has none with the other sign, is no
// decimal, and its text is in the error.
func TestDecimalLeast(t *testing.T) {
	t.Parallel()
	typ, _ := Decimal(38, 2)
	v := newVector(typ)
	const want = "a decimal of more than 38 digits: -1701411834604692317316873037158841057.28"
	if err := v.AppendUnscaled(decimal128.New(math.MinInt64, 0)); err == nil || err.Error() != want || v.n != 0 {
		t.Errorf("Got %v, want %s", err, want)
	}
}

// FuzzDecimal reads any bytes as decimals of any type.
func FuzzDecimal(f *testing.F) {
	for _, text := range []string{"", ".", "-", "+.5", "-0", "1e5", "1.2.3", "\xb0", "99999999999999999999999999999999999999", "-0.00000000000000000000000000000000000001", "170141183460469231731687303715884105728", "0000000000000000000000000000000000000000000000000001.50000"} {
		f.Add([]byte(text), uint8(38), uint8(10))
		f.Add([]byte(text), uint8(18), uint8(18))
	}
	f.Fuzz(func(t *testing.T, text []byte, precision, scale uint8) {
		if typ, ok := Decimal(int(precision), int(scale)); ok && len(text) < 500 {
			checkDecimal(t, typ, string(text))
		}
	})
}

// TestParseInt128 reads numbers in two's complement of any length.
func TestParseInt128(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		fill := bytes.Repeat([]byte{rapid.SampledFrom([]byte{0, 0xff, 0x80}).Draw(t, "fill")}, rapid.IntRange(0, 20).Draw(t, "more"))
		b := append(fill, rapid.SliceOfN(rapid.Byte(), 0, 17).Draw(t, "bytes")...)
		want := new(big.Int).SetBytes(b)
		if len(b) > 0 && b[0]&0x80 != 0 {
			want.Sub(want, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
		}
		bits := want.BitLen()
		if want.Sign() < 0 {
			bits = new(big.Int).Not(want).BitLen() // -2¹²⁷ has 127, as 2¹²⁷-1
		}
		fits := len(b) > 0 && bits < 128
		got, err := ParseInt128(b)
		if (err == nil) != fits || fits && got.BigInt().Cmp(want) != 0 {
			t.Fatalf("%x: Got %v, %v, want %v", b, got.BigInt(), err, want)
		}
	})
}

// TestDecimalOrder: keys of decimals compare bytewise as their numbers do.
func TestDecimalOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		typ := anyDecimalType(t)
		v := newVector(typ)
		var numbers []*big.Int
		for range rapid.IntRange(1, 20).Draw(t, "values") {
			x := anyUnscaled(t, typ)
			numbers = append(numbers, x)
			if err := v.AppendUnscaled(decimal128.FromBigInt(x)); err != nil {
				t.Fatal(err)
			}
		}
		o := Order{Descending: rapid.Bool().Draw(t, "descending")}
		var keys [][]byte
		for i := range numbers {
			keys = append(keys, o.AppendTo(nil, &v, i))
		}
		slices.SortFunc(numbers, func(a, b *big.Int) int {
			if o.Descending {
				a, b = b, a
			}
			return a.Cmp(b)
		})
		slices.SortFunc(keys, bytes.Compare)
		for i, x := range numbers {
			one := newVector(typ)
			if err := one.AppendUnscaled(decimal128.FromBigInt(x)); err != nil {
				t.Fatal(err)
			}
			if want := o.AppendTo(nil, &one, 0); !bytes.Equal(keys[i], want) {
				t.Fatalf("Key %d of %v is %x, that of %v is %x", i, typ, keys[i], x, want)
			}
		}
	})
}
