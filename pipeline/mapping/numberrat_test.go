package mapping

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// Property: numbers are what math/big says of them.
func TestNumbersAreRationals(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.StringMatching(`-?(0|[1-9][0-9]{0,21})(\.[0-9]{1,5})?([eE][+-]?[0-9]{1,2})?`),
			rapid.StringMatching(`-?(9223372036854775[78][0-9]{2}|90071992547409[0-9]{2})\.0{1,3}([eE]-?[0-3])?`),
			rapid.StringMatching(`-?0\.0{0,9}[0-9]{1,20}([eE]\+?[0-9]{1,2})?`),
		).Draw(t, "text")
		want, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatalf("%s is no number", text)
		}
		i, f, integer := parseNumber([]byte(text))
		near, exact := want.Float64()
		switch {
		case integer && want.Cmp(new(big.Rat).SetInt64(i)) != 0:
			t.Fatalf("%s is the integer %d", text, i)
		case !integer && f != near:
			t.Fatalf("%s is %v, want %v", text, f, near)
		case !integer && want.IsInt() && want.Num().IsInt64() && !exact:
			t.Fatalf("%s is no integer, but %v, which it is not", text, f)
		}
		shift := rapid.SampledFrom([]int{0, 3}).Draw(t, "shift")
		scaled := want.Mul(want, new(big.Rat).SetInt64(int64(math.Pow10(shift))))
		half := big.NewRat(1, 2)
		if scaled.Sign() < 0 {
			half.Neg(half)
		}
		scaled.Add(scaled, half) // away from zero, then cut
		rounded := new(big.Int).Quo(scaled.Num(), scaled.Denom())
		got, ok := roundedNumber([]byte(text), shift)
		switch {
		case ok && (!rounded.IsInt64() || rounded.Int64() != got):
			t.Fatalf("%s times 10^%d is rounded to %d, want %v", text, shift, got, rounded)
		case !ok && rounded.IsInt64():
			t.Fatalf("%s times 10^%d is not rounded, want %v", text, shift, rounded)
		}
	})
}
