package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// decimal is a number as Java's BigDecimal has it: unscaled / 10^scale.
type decimal struct {
	unscaled *big.Int
	scale    int32
}

// maxDecimalDigits bounds the text of a number, which is parsed in more than linear
// time.
const maxDecimalDigits = 4096

// parseDecimal reads BigDecimal's text: a sign, digits with a point, an exponent.
func parseDecimal(text []byte) (decimal, error) {
	bad := fmt.Errorf("%w: big decimal comparator: %.50q is not a number", ErrInvalidArgument, text)
	if len(text) > maxDecimalDigits {
		return decimal{}, bad
	}
	digits, exponent, hasExponent := strings.Cut(strings.ToLower(string(text)), "e")
	whole, fraction, _ := strings.Cut(digits, ".")
	if strings.Trim(strings.TrimLeft(whole, "+-")+fraction, "0123456789") != "" {
		return decimal{}, bad // what big.Int reads besides: underscores
	}
	unscaled, ok := new(big.Int).SetString(whole+fraction, 10)
	scale := int64(len(fraction))
	if hasExponent {
		e, err := strconv.ParseInt(exponent, 10, 32)
		ok = ok && err == nil
		scale -= e
	}
	if !ok || scale != int64(int32(scale)) {
		return decimal{}, bad
	}
	return decimal{unscaled: unscaled, scale: int32(scale)}, nil
}

// decodeDecimal reads what HBase's Bytes.toBytes(BigDecimal) writes.
func decodeDecimal(b []byte) (decimal, bool) {
	if len(b) < 5 {
		return decimal{}, false
	}
	d := decimal{unscaled: new(big.Int), scale: int32(binary.BigEndian.Uint32(b))}
	b = b[4:]
	if b[0] < 0x80 {
		d.unscaled.SetBytes(b)
		return d, true
	}
	inverse := bytes.Clone(b)
	for i := range inverse {
		inverse[i] = ^inverse[i]
	}
	d.unscaled.Not(d.unscaled.SetBytes(inverse))
	return d, true
}

// compare orders by value: 1.0 equals 1.00.
func (d decimal) compare(o decimal) int {
	sign := d.unscaled.Sign()
	if c := cmp.Compare(sign, o.unscaled.Sign()); c != 0 || sign == 0 {
		return c
	}
	// Scales may be two thousand million apart: numbers whose magnitudes differ
	// are told apart by them.
	low, high := d.magnitude()
	otherLow, otherHigh := o.magnitude()
	switch {
	case high < otherLow:
		return -sign
	case low > otherHigh:
		return sign
	}
	a, b := d.unscaled, o.unscaled
	if more := int64(o.scale) - int64(d.scale); more > 0 {
		a = scaled(a, more)
	} else if more < 0 {
		b = scaled(b, -more)
	}
	return a.Cmp(b)
}

// magnitude returns bounds of the decimal logarithm of a number that is not 0.
func (d decimal) magnitude() (low, high float64) {
	bits := float64(d.unscaled.BitLen())
	return (bits-1)*math.Log10(2) - float64(d.scale) - 1, bits*math.Log10(2) - float64(d.scale) + 1
}

func scaled(n *big.Int, exponent int64) *big.Int {
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(exponent), nil)
	return power.Mul(power, n)
}
