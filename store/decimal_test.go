package store

import (
	"encoding/binary"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// encode is the inverse of decodeDecimal: Java's BigInteger.toByteArray behind the
// scale.
func (d decimal) encode() []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(d.scale))
	n := d.unscaled
	size := n.BitLen()/8 + 1
	if n.Sign() >= 0 {
		return append(b, n.FillBytes(make([]byte, size))...)
	}
	inverse := new(big.Int).Not(n).FillBytes(make([]byte, size))
	for i := range inverse {
		inverse[i] = ^inverse[i]
	}
	return append(b, inverse...)
}

func (d decimal) rat() *big.Rat {
	power := scaled(big.NewInt(1), int64(max(d.scale, -d.scale)))
	if d.scale < 0 {
		return new(big.Rat).SetInt(power.Mul(power, d.unscaled))
	}
	return new(big.Rat).SetFrac(d.unscaled, power)
}

// Numbers order as fractions do, read from text or from what is stored.
func TestDecimalCompare(t *testing.T) {
	t.Parallel()
	number := rapid.Custom(func(t *rapid.T) decimal {
		n := new(big.Int).Mul(big.NewInt(rapid.Int64Range(-200, 200).Draw(t, "number")), scaled(big.NewInt(1), rapid.Int64Range(0, 12).Draw(t, "zeros")))
		return decimal{unscaled: n, scale: rapid.Int32Range(-12, 12).Draw(t, "scale")}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		if got, want := a.compare(b), a.rat().Cmp(b.rat()); got != want {
			t.Errorf("%v compares with %v as %d, want %d", a.rat(), b.rat(), got, want)
		}
		stored, ok := decodeDecimal(a.encode())
		if !ok || stored.compare(a) != 0 {
			t.Errorf("%v stored as %x is %v", a.rat(), a.encode(), stored)
		}
		text := new(big.Rat).SetFrac(a.unscaled, big.NewInt(1_000_000)).FloatString(6)
		read, err := parseDecimal([]byte(text))
		if err != nil || read.compare(decimal{unscaled: a.unscaled, scale: 6}) != 0 {
			t.Errorf("%s read as %v, %v", text, read, err)
		}
	})
}

// Scales at both ends of their range are compared without being written out.
func TestDecimalScales(t *testing.T) {
	t.Parallel()
	var sorted []decimal
	for _, text := range []string{"-1e2147483647", "-1.5", "-1e-2147483647", "0e5", "1e-2147483647", "9e-2147483647", "10e-2147483647", "1", "1e2147483647"} {
		d, err := parseDecimal([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		sorted = append(sorted, d)
	}
	if !slices.IsSortedFunc(sorted, decimal.compare) {
		t.Error("they are not in order")
	}
	for i := range sorted {
		if sorted[i].compare(sorted[i]) != 0 || i > 0 && sorted[i].compare(sorted[i-1]) != 1 {
			t.Errorf("number %d", i)
		}
	}
}

// FuzzDecimal: any text and any stored bytes compare with each other, or are said
// to be no number.
func FuzzDecimal(f *testing.F) {
	f.Add([]byte("-12.50"), []byte{0, 0, 0, 2, 0xFB, 0x1E})
	f.Add([]byte("+.5e-7"), []byte{0x80, 0, 0, 0, 0})
	f.Add([]byte("1e2147483647"), []byte{0x7F, 0xFF, 0xFF, 0xFF, 0xFF})
	f.Fuzz(func(t *testing.T, text, stored []byte) {
		a, err := parseDecimal(text)
		b, ok := decodeDecimal(stored)
		if err != nil || !ok {
			return
		}
		if a.compare(b) != -b.compare(a) || a.compare(a) != 0 || b.compare(b) != 0 {
			t.Errorf("%q and %x: %d, %d", text, stored, a.compare(b), b.compare(a))
		}
		if again, ok := decodeDecimal(b.encode()); !ok || again.compare(b) != 0 {
			t.Errorf("%x, written again: %x", stored, b.encode())
		}
	})
}
