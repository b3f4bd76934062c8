package mapping

import (
	"bytes"
	"math"
	"strconv"
)

// parseNumber returns the value of a number's text: an integer where it is written
// as one and fits, or where it is whole, fits, and no float is it (9007199254740993.00);
// else a float.
func parseNumber(x []byte) (i int64, f float64, integer bool) {
	if i, ok := parseInteger(x); ok {
		return i, 0, true
	}
	f, _ = strconv.ParseFloat(string(x), 64) // out of range is ±Inf, which no function takes
	if f >= 1<<53 && f <= 1<<63 || f <= -(1<<53) && f >= -(1<<63) {
		if i, rest, ok := pointAt(x, 0); ok && len(bytes.TrimLeft(rest, "0")) == 0 && (f == 1<<63 || f == -(1<<63) || int64(f) != i) {
			return i, 0, true
		}
	}
	return 0, f, false
}

// parseInteger returns the integer that is written in digits, where it fits.
func parseInteger(x []byte) (int64, bool) {
	if n := len(x); n > 0 && n <= 18 {
		k := 0
		if x[0] == '-' {
			k = 1
		}
		v := int64(0)
		ok := k < n
		for ; k < n; k++ {
			c := x[k] - '0'
			if c > 9 {
				ok = false
				break
			}
			v = v*10 + int64(c)
		}
		if ok {
			if x[0] == '-' {
				v = -v
			}
			return v, true
		}
	}
	v, err := strconv.ParseInt(string(x), 10, 64)
	return v, err == nil
}

// roundedNumber returns x times 10^shift, rounded to a whole number as math.Round does, and
// whether x is a number in decimal whose whole part fits.
func roundedNumber(x []byte, shift int) (int64, bool) {
	i, rest, ok := pointAt(x, shift)
	switch {
	case !ok:
		return 0, false
	case len(rest) == 0 || rest[0] < '5':
		return i, true
	case x[0] == '-':
		return i - 1, i > math.MinInt64
	}
	return i + 1, i < math.MaxInt64
}

// pointAt returns the digits of the number x before and behind its point, once that has
// moved by shift places: the whole part, with x's sign, and the digits of the rest. ok is
// false where x is no number in decimal, or where the whole part does not fit.
func pointAt(x []byte, shift int) (whole int64, rest []byte, ok bool) {
	digits := make([]byte, 0, 64)
	point, k := -1, 0
	negative := len(x) > 0 && x[0] == '-'
	if negative {
		k = 1
	}
	for ; k < len(x) && ('0' <= x[k] && x[k] <= '9' || x[k] == '.' && point < 0); k++ {
		if x[k] == '.' {
			point = len(digits)
		} else {
			digits = append(digits, x[k])
		}
	}
	if len(digits) == 0 {
		return 0, nil, false
	}
	if point < 0 {
		point = len(digits)
	}
	if k < len(x) {
		exponent, err := strconv.Atoi(string(x[k+1:]))
		if err != nil || x[k] != 'e' && x[k] != 'E' || exponent > math.MaxInt32 || exponent < math.MinInt32 {
			return 0, nil, false
		}
		shift += exponent
	}
	if point += shift; point < 0 {
		return 0, append([]byte{'0'}, digits...), true // how many zeros there are is all one
	}
	zeros := 0
	for zeros < len(digits) && digits[zeros] == '0' {
		zeros++
	}
	switch {
	case point == 0:
		return 0, digits, true
	case zeros == len(digits):
		return 0, nil, true // 0e30
	case point-zeros > 19: // digits of the largest that fits
		return 0, nil, false
	}
	for len(digits) < point {
		digits = append(digits, '0')
	}
	text := digits[:point]
	if negative {
		text = append([]byte{'-'}, text...)
	}
	whole, err := strconv.ParseInt(string(text), 10, 64)
	return whole, digits[point:], err == nil
}
