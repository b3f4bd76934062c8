package columnar

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/apache/arrow/go/v15/arrow/decimal128"
)

// MaxPrecision is the most digits of a decimal: those that 128 bits hold.
const MaxPrecision = 38

// maxPrecision64 is the most digits of the decimals that 64 bits hold.
const maxPrecision64 = 18

// decimal is the kind of decimals: their Type has precision and scale above it.
const decimal = JSON + 1

// Decimal128 is the Storage of decimals of more digits than 64 bits hold. It is no type
// of columns.
const Decimal128 = Entries + 1

// Int128 is a number in 128 bits, two's complement.
type Int128 = decimal128.Num

// pow10 are the powers of ten up to maxPrecision64.
var pow10 = [maxPrecision64 + 1]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18}

// Decimal returns the type of decimals of so many digits (1 to MaxPrecision), of which
// scale (0 to precision) are behind the point; ok is false for others. Vectors hold
// them without the point, 1.50 with scale 2 as 150: those of up to 18 digits as Int64s,
// others as Int128s.
func Decimal(precision, scale int) (t Type, ok bool) {
	if precision < 1 || precision > MaxPrecision || scale < 0 || scale > precision {
		return 0, false
	}
	return decimal | Type(precision)<<8 | Type(scale)<<16, true
}

// Decimal returns the precision and the scale of a type of decimals; ok is false for
// others.
func (t Type) Decimal() (precision, scale int, ok bool) {
	return int(t >> 8 & 0xff), int(t >> 16), t&0xff == decimal
}

// parseDecimalType reads decimal(PRECISION,SCALE).
func parseDecimalType(s string) (Type, bool) {
	digits, scale, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(s, "decimal("), ")"), ",")
	p, errP := strconv.Atoi(digits)
	n, errS := strconv.Atoi(scale)
	t, ok := Decimal(p, n)
	return t, ok && errP == nil && errS == nil && t.String() == s
}

// AppendNumber appends the text of a number that a vector of type t holds as an
// Int64: a decimal has all digits of its scale.
func (t Type) AppendNumber(dst []byte, x int64) []byte {
	_, scale, ok := t.Decimal()
	if !ok || scale == 0 {
		return strconv.AppendInt(dst, x, 10)
	}
	u := uint64(x)
	if x < 0 {
		dst, u = append(dst, '-'), -u
	}
	var room [MaxPrecision + 2]byte
	return appendPoint(dst, strconv.AppendUint(room[:0], u, 10), scale)
}

// AppendDecimal appends the text of a decimal of type t, with all digits of its scale.
func (t Type) AppendDecimal(dst []byte, x Int128) []byte {
	_, scale, _ := t.Decimal()
	if x.Sign() < 0 {
		dst = append(dst, '-')
	}
	u := magnitude(x)
	// All of 128 bits are less than 10¹⁹·2⁶⁴: two words of digits, the lower with zeros.
	const word, wordDigits = 1e19, 19
	high, low := bits.Div64(u.hi, u.lo, word)
	var room, lower [MaxPrecision + 2]byte
	digits, rest := room[:0], strconv.AppendUint(lower[:0], low, 10)
	if high > 0 {
		digits = append(strconv.AppendUint(digits, high, 10), zeros[:wordDigits-len(rest)]...)
	}
	digits = append(digits, rest...)
	return appendPoint(dst, digits, scale)
}

// zeros are as many as a decimal can begin with.
const zeros = "00000000000000000000000000000000000000"

// appendPoint appends digits with a point before the last of them, which are scale many.
func appendPoint(dst, digits []byte, scale int) []byte {
	whole := len(digits) - scale
	switch {
	case scale == 0:
		return append(dst, digits...)
	case whole <= 0:
		dst = append(append(dst, "0."...), zeros[:-whole]...)
		return append(dst, digits...)
	}
	dst = append(append(dst, digits[:whole]...), '.')
	return append(dst, digits[whole:]...)
}

const notDecimal = "not a decimal number"

// appendDecimal appends the decimal that b is the text of: an optional sign, digits
// and a point somewhere among them. Zeros beyond the scale change nothing.
func (v *Vector) appendDecimal(b []byte) string {
	precision, scale, _ := v.typ.Decimal()
	if precision > maxPrecision64 {
		return v.appendDecimal128(b, precision, scale)
	}
	digits, negative := b, false
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		digits, negative = b[1:], b[0] == '-'
	}
	var n uint64
	seen, point, behind := false, false, 0
	for _, c := range digits {
		d := c - '0'
		switch {
		case c == '.' && !point:
			point = true
			continue
		case d > 9:
			return notDecimal
		}
		seen = true
		if point {
			if behind == scale {
				if d != 0 {
					return fmt.Sprintf("more than %d digits behind the point", scale)
				}
				continue
			}
			behind++
		}
		if n = n*10 + uint64(d); n >= pow10[precision] {
			return fmt.Sprintf("more than %d digits", precision)
		}
	}
	if !seen {
		return notDecimal
	}
	if n >= pow10[precision-(scale-behind)] {
		return fmt.Sprintf("more than %d digits, of which %d are behind the point", precision, scale)
	}
	x := int64(n * pow10[scale-behind])
	if negative {
		x = -x
	}
	v.AppendInt64(x)
	return ""
}

// appendDecimal128 is appendDecimal of more digits than 64 bits hold. That of fewer
// has a loop of its own, as it would take a quarter longer this way.
func (v *Vector) appendDecimal128(b []byte, precision, scale int) string {
	whole, fraction, negative, ok := cutDecimal(b)
	switch {
	case !ok:
		return notDecimal
	case len(fraction) > scale:
		return fmt.Sprintf("more than %d digits behind the point", scale)
	case len(whole) > precision-scale && scale == 0:
		return fmt.Sprintf("more than %d digits", precision)
	case len(whole) > precision-scale:
		return fmt.Sprintf("more than %d digits, of which %d are behind the point", precision, scale)
	}
	u := uint128{}.digits(whole).digits(fraction)
	for n := scale - len(fraction); n > 0; n -= maxPrecision64 {
		u = u.shift(min(n, maxPrecision64), 0)
	}
	v.AppendDecimal(u.signed(negative))
	return ""
}

// cutDecimal returns the digits of a decimal before its point and behind it, without
// those that change nothing; ok is false where b is not the text of one.
func cutDecimal(b []byte) (whole, fraction []byte, negative, ok bool) {
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		negative, b = b[0] == '-', b[1:]
	}
	whole = b
	for i, c := range b {
		if c-'0' <= 9 {
			continue
		}
		if c != '.' || len(whole) < len(b) {
			return nil, nil, false, false
		}
		whole, fraction = b[:i], b[i+1:]
	}
	ok = len(whole)+len(fraction) > 0
	for len(whole) > 0 && whole[0] == '0' {
		whole = whole[1:]
	}
	for n := len(fraction); n > 0 && fraction[n-1] == '0'; n-- {
		fraction = fraction[:n-1]
	}
	return whole, fraction, negative, ok
}

// digits64 returns the number that up to 19 digits are.
func digits64(digits []byte) (n uint64) {
	for _, c := range digits {
		n = n*10 + uint64(c-'0')
	}
	return n
}

// uint128 is a number without a sign.
type uint128 struct{ hi, lo uint64 }

// magnitude returns x without its sign.
func magnitude(x Int128) uint128 {
	if x.Sign() < 0 {
		x = x.Negate() // of -2¹²⁷ itself, whose bits are those of 2¹²⁷
	}
	return uint128{uint64(x.HighBits()), x.LowBits()}
}

// signed returns x, which is at most 2¹²⁷-1, or what it is below 0.
func (x uint128) signed(negative bool) Int128 {
	n := decimal128.New(int64(x.hi), x.lo)
	if negative {
		return n.Negate()
	}
	return n
}

// shift returns x·10ⁿ + y, for n up to maxPrecision64.
func (x uint128) shift(n int, y uint64) uint128 {
	hi, lo := bits.Mul64(x.lo, pow10[n])
	lo, carry := bits.Add64(lo, y, 0)
	return uint128{x.hi*pow10[n] + hi + carry, lo}
}

// digits returns the number whose digits are those of x and then these.
func (x uint128) digits(more []byte) uint128 {
	for len(more) > 0 {
		n := min(len(more), maxPrecision64)
		x = x.shift(n, digits64(more[:n]))
		more = more[n:]
	}
	return x
}

// NewInt128 returns high·2⁶⁴ + low.
func NewInt128(high int64, low uint64) Int128 { return decimal128.New(high, low) }

// Int128FromInt64 returns x.
func Int128FromInt64(x int64) Int128 { return decimal128.FromI64(x) }

// errNo128 is a number of more than 128 bits.
var errNo128 = errors.New("a decimal of more than 128 bits")

// ParseInt128 returns the number that b is in two's complement, big-endian, of any
// length but 0. Its error says that it is longer than 128 bits.
func ParseInt128(b []byte) (Int128, error) {
	if len(b) == 0 {
		return Int128{}, errors.New("a decimal of no bytes")
	}
	sign := byte(0)
	if b[0] >= 0x80 {
		sign = 0xff
	}
	for ; len(b) > 16; b = b[1:] {
		if b[0] != sign || b[1]&0x80 != sign&0x80 {
			return Int128{}, errNo128
		}
	}
	var u uint128
	if sign != 0 {
		u = uint128{^uint64(0), ^uint64(0)}
	}
	for _, c := range b {
		u = uint128{u.hi<<8 | u.lo>>56, u.lo<<8 | uint64(c)}
	}
	return u.signed(false), nil
}

// AppendUnscaled64s is AppendUnscaled of many, to a vector of decimals of up to 18 digits.
// Where one has more digits than the type, those before it are appended.
func (v *Vector) AppendUnscaled64s(xs []int64) error {
	precision, _, _ := v.typ.Decimal()
	end := int64(decimal128.GetScaleMultiplier(precision).LowBits())
	for i, x := range xs {
		if x <= -end || x >= end {
			v.AppendInt64s(xs[:i])
			return v.AppendUnscaled(Int128FromInt64(x)) // its error
		}
	}
	v.AppendInt64s(xs)
	return nil
}

// AppendUnscaled appends a decimal, given without its point, to a vector of decimals.
// Its error says that it has more digits than the type.
func (v *Vector) AppendUnscaled(x Int128) error {
	precision, _, _ := v.typ.Decimal()
	u, end := magnitude(x), decimal128.GetScaleMultiplier(precision)
	if hi := uint64(end.HighBits()); u.hi > hi || u.hi == hi && u.lo >= end.LowBits() {
		return fmt.Errorf("a decimal of more than %d digits: %s", precision, v.typ.AppendDecimal(nil, x))
	}
	if precision > maxPrecision64 {
		v.AppendDecimal(x)
	} else {
		v.AppendInt64(int64(x.LowBits()))
	}
	return nil
}
