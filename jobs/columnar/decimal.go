package columnar

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxPrecision is the most digits of a decimal: those that 64 bits hold.
const MaxPrecision = 18

// decimal is the kind of decimals: their Type has precision and scale above it.
const decimal = JSON + 1

// pow10 are the powers of ten up to MaxPrecision.
var pow10 = [MaxPrecision + 1]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18}

// Decimal returns the type of decimals of so many digits (1 to MaxPrecision), of which
// scale (0 to precision) are behind the point; ok is false for others. Vectors hold
// them as Int64s, without the point: 1.50 with scale 2 as 150.
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
	dst = append(strconv.AppendUint(dst, u/pow10[scale], 10), '.')
	return fmt.Appendf(dst, "%0*d", scale, u%pow10[scale])
}

// appendDecimal appends the decimal that b is the text of: an optional sign, digits
// and a point somewhere among them. Zeros beyond the scale change nothing.
func (v *Vector) appendDecimal(b []byte) string {
	const what = "not a decimal number"
	precision, scale, _ := v.typ.Decimal()
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
			return what
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
		return what
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
