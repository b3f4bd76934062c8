package columnar

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
)

// Order is one of the columns by which rows are sorted. Values compare as their types
// say: numbers and times by size, false before true, text and bytes bytewise. -0 is
// 0, and every NaN is the same, larger than all other numbers, as in PostgreSQL,
// DuckDB and Spark.
type Order struct {
	Column     string
	Descending bool // the largest value first
	NullsFirst bool // nulls before all values, otherwise behind them; whatever Descending says
}

// Ascending returns the order of rows that are sorted by these columns, ascending,
// nulls last.
func Ascending(columns ...string) []Order {
	orders := make([]Order, len(columns))
	for i, c := range columns {
		orders[i].Column = c
	}
	return orders
}

// String returns the column and what is not the default: "name", "name descending",
// "name nulls first".
func (o Order) String() string {
	s := o.Column
	if o.Descending {
		s += " descending"
	}
	if o.NullsFirst {
		s += " nulls first"
	}
	return s
}

// Sortable reports whether rows can be sorted by columns of type t: all but maps, and
// JSON, of which equal values have many texts.
func (t Type) Sortable() bool { return t != JSON && t.Storage() != Entries }

// AppendTo appends value i of v, of a Sortable type, so that bytewise, the rows'
// values that were appended one after the other compare as o and the columns before
// say.
func (o Order) AppendTo(dst []byte, v *Vector, i int) []byte {
	const first, value, last = 0, 1, 2
	if v.IsNull(i) {
		if o.NullsFirst {
			return append(dst, first)
		}
		return append(dst, last)
	}
	dst = append(dst, value)
	start := len(dst)
	switch v.typ.Storage() {
	case Int64:
		dst = binary.BigEndian.AppendUint64(dst, uint64(v.int64s[i])^1<<63)
	case Decimal128:
		dst = AppendDecimalKey(dst, v.decimals[i])
	case Float64:
		dst = binary.BigEndian.AppendUint64(dst, floatKey(v.floats[i]))
	case Bool:
		if v.Bool(i) {
			dst = append(dst, 1)
		} else {
			dst = append(dst, 0)
		}
	default:
		dst = AppendTextKey(dst, v.Bytes(i))
	}
	if o.Descending {
		for k := range dst[start:] {
			dst[start+k] ^= 0xff
		}
	}
	return dst
}

// floatKey returns a number that is larger the larger x is: the bits of x, turned where
// x is negative, and their sign otherwise.
func floatKey(x float64) uint64 {
	switch {
	case x == 0:
		x = 0 // not -0
	case x != x:
		x = math.NaN() // the one whose sign is not set
	}
	bits := math.Float64bits(x)
	if bits>>63 != 0 {
		return ^bits
	}
	return bits | 1<<63
}

// AppendDecimalKey appends x so that what was appended compares bytewise as numbers do:
// 16 bytes big-endian with the sign bit inverted.
func AppendDecimalKey(dst []byte, x Int128) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(x.HighBits())^1<<63)
	return binary.BigEndian.AppendUint64(dst, x.LowBits())
}

// CutDecimalKey returns the number that AppendDecimalKey appended, and what follows.
// key must begin with it.
func CutDecimalKey(key []byte) (x Int128, rest []byte) {
	return NewInt128(int64(binary.BigEndian.Uint64(key)^1<<63), binary.BigEndian.Uint64(key[8:])), key[16:]
}

// AppendTextKey appends b so that what was appended compares bytewise as b does,
// whatever is appended behind it: 00 as 00 FF, and 00 01 at its end.
func AppendTextKey(dst, b []byte) []byte {
	dst = slices.Grow(dst, len(b)+2)
	for {
		i := bytes.IndexByte(b, 0)
		if i < 0 {
			return append(append(dst, b...), 0, 1)
		}
		dst = append(append(dst, b[:i]...), 0, 0xff)
		b = b[i+1:]
	}
}

// CutTextKey returns what AppendTextKey appended, as it lies there, and what follows;
// ok is false where key does not begin with it.
func CutTextKey(key []byte) (text, rest []byte, ok bool) {
	for n := 0; n+1 < len(key); n++ {
		if key[n] != 0 {
			continue
		}
		if key[n+1] == 1 {
			return key[:n+2], key[n+2:], true
		}
		n++ // 00 FF
	}
	return nil, nil, false
}
