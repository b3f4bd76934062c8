package spill

import (
	"encoding/binary"
	"fmt"
	"math"

	"sluice/jobs/columnar"
)

// AppendRow appends a row of b, whose values follow each other: 0 for a null, else 1
// and 8 bytes little-endian of a number, 16 of a decimal of more than 18 digits, one of a
// bool, a text, or how many entries a map has and each of its keys and values. Texts have
// their length before them, which is an uvarint as that of maps is.
func AppendRow(dst []byte, b *columnar.Batch, row int) []byte {
	for i := range b.Columns() {
		dst = appendValue(dst, b.Vector(i), row)
	}
	return dst
}

func appendValue(dst []byte, v *columnar.Vector, row int) []byte {
	if v.IsNull(row) {
		return append(dst, 0)
	}
	dst = append(dst, 1)
	switch v.Type().Storage() {
	case columnar.Int64:
		return binary.LittleEndian.AppendUint64(dst, uint64(v.Int64s()[row]))
	case columnar.Decimal128:
		x := v.Decimals()[row]
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(dst, x.LowBits()), uint64(x.HighBits()))
	case columnar.Float64:
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(v.Float64s()[row]))
	case columnar.Bool:
		if v.Bool(row) {
			return append(dst, 1)
		}
		return append(dst, 0)
	case columnar.Entries:
		start, end := v.EntriesOf(row)
		dst = binary.AppendUvarint(dst, uint64(end-start))
		for e := start; e < end; e++ {
			dst = appendValue(appendValue(dst, v.Keys(), e), v.Values(), e)
		}
		return dst
	}
	return AppendSized(dst, v.Bytes(row))
}

// AppendSized appends b with its length before it.
func AppendSized(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// TakeRow is the inverse of AppendRow: it appends the row to b and returns what
// follows it. Its error wraps ErrDamaged; then b has vectors of several lengths.
func TakeRow(from []byte, b *columnar.Batch) (rest []byte, err error) {
	rest = from
	for i := range b.Columns() {
		if rest, err = takeValue(rest, b.Vector(i), b.Columns()[i].Name); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// takeValue is the inverse of appendValue, for the column of this name.
func takeValue(from []byte, v *columnar.Vector, name string) (rest []byte, err error) {
	if len(from) == 0 || from[0] > 1 {
		return nil, Damaged(name)
	}
	present := from[0] == 1
	rest = from[1:]
	if !present {
		v.AppendNull()
		return rest, nil
	}
	size := 8
	switch v.Type().Storage() {
	case columnar.Bool:
		size = 1
	case columnar.Decimal128:
		size = 16
	case columnar.Bytes:
		text, rest, ok := TakeSized(rest)
		if !ok {
			return nil, Damaged(name)
		}
		return rest, v.AppendBytes(text)
	case columnar.Entries:
		entries, n := binary.Uvarint(rest)
		if n <= 0 {
			return nil, Damaged(name)
		}
		for rest = rest[n:]; entries > 0; entries-- {
			if rest, err = takeValue(rest, v.Keys(), name); err != nil {
				return nil, err
			}
			if rest, err = takeValue(rest, v.Values(), name); err != nil {
				return nil, err
			}
		}
		return rest, v.AppendEntries()
	}
	if len(rest) < size {
		return nil, Damaged(name)
	}
	switch v.Type().Storage() {
	case columnar.Bool:
		v.AppendBool(rest[0] != 0)
	case columnar.Decimal128:
		v.AppendDecimal(columnar.NewInt128(int64(binary.LittleEndian.Uint64(rest[8:])), binary.LittleEndian.Uint64(rest)))
	case columnar.Float64:
		v.AppendFloat64(math.Float64frombits(binary.LittleEndian.Uint64(rest)))
	default:
		v.AppendInt64(int64(binary.LittleEndian.Uint64(rest)))
	}
	return rest[size:], nil
}

// TakeSized is the inverse of AppendSized; b is a part of from.
func TakeSized(from []byte) (b, rest []byte, ok bool) {
	n, size := binary.Uvarint(from)
	if size <= 0 || n > uint64(len(from)-size) {
		return nil, nil, false
	}
	end := size + int(n)
	return from[size:end:end], from[end:], true
}

// Damaged is the error of a row that ends in the part of this name.
func Damaged(part string) error {
	return fmt.Errorf("%w: a row ends in its %s", ErrDamaged, part)
}
