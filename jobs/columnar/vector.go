package columnar

import (
	"errors"
	"fmt"
	"math"
)

var (
	// errVectorFull means that a batch was not taken in time.
	errVectorFull = errors.New("columnar: more than 2 GiB in one column of a batch")
	errOffsets    = errors.New("columnar: offsets of text that do not ascend, or go beyond it")
)

// Vector is the values of one column of a Batch, in Arrow's memory layout. A null
// has a zero value in its place. The zero Vector cannot be used; a Batch makes
// its own.
type Vector struct {
	typ      Type
	n        int
	nulls    int
	valid    []byte // bit i = value i is not null; kept only once there is a null
	int64s   []int64
	decimals []Int128
	floats   []float64
	bits     []byte  // Bool
	offsets  []int32 // String, Bytes, JSON: n+1 offsets into data; maps: into keys and values
	data     []byte
	keys     *Vector // of maps, one after the other, without those of nulls
	values   *Vector // as many
}

func newVector(t Type) Vector {
	v := Vector{typ: t}
	switch t.Storage() {
	case Bytes:
		v.offsets = append(v.offsets, 0)
	case Entries:
		v.offsets = append(v.offsets, 0)
		value, _ := t.Map()
		keys, values := newVector(String), newVector(value)
		v.keys, v.values = &keys, &values
	}
	return v
}

// reset empties v and keeps its memory, except where one huge batch has made it
// much larger than what batches need.
func (v *Vector) reset() {
	const keepBytes = 16 << 20
	v.n, v.nulls = 0, 0
	v.valid, v.int64s, v.decimals, v.floats, v.bits = v.valid[:0], v.int64s[:0], v.decimals[:0], v.floats[:0], v.bits[:0]
	if v.offsets != nil {
		v.offsets = v.offsets[:1]
	}
	if cap(v.data) > keepBytes {
		v.data = nil
	}
	v.data = v.data[:0]
	if v.keys != nil {
		v.keys.reset()
		v.values.reset()
	}
}

// Type returns the type of the values.
func (v *Vector) Type() Type { return v.typ }

// Len returns the number of values, nulls included.
func (v *Vector) Len() int { return v.n }

// Nulls returns the number of nulls.
func (v *Vector) Nulls() int { return v.nulls }

// IsNull reports whether value i is null.
func (v *Vector) IsNull(i int) bool { return v.nulls > 0 && v.valid[i>>3]&(1<<(i&7)) == 0 }

// Int64s returns the values of an Int64 or Timestamp vector, and those of one of decimals
// of up to 18 digits.
func (v *Vector) Int64s() []int64 { return v.int64s }

// Decimals returns the values of a vector of decimals of more than 18 digits, without
// their point.
func (v *Vector) Decimals() []Int128 { return v.decimals }

// Float64s returns the values of a Float64 vector.
func (v *Vector) Float64s() []float64 { return v.floats }

// Bool returns value i of a Bool vector.
func (v *Vector) Bool(i int) bool { return v.bits[i>>3]&(1<<(i&7)) != 0 }

// Bytes returns value i of a String, Bytes or JSON vector, valid as long as its Batch.
func (v *Vector) Bytes(i int) []byte {
	a, b := v.offsets[i], v.offsets[i+1]
	return v.data[a:b:b]
}

// Text returns the values of a String, Bytes or JSON vector one after the other, and the
// n+1 offsets at which they begin and end; a null takes none of them. Both are valid
// as long as the Batch, and must not be changed.
func (v *Vector) Text() (data []byte, offsets []int32) { return v.data, v.offsets }

// Memory returns the bytes of memory that the values take.
func (v *Vector) Memory() int {
	n := 8*(len(v.int64s)+len(v.floats)) + 16*len(v.decimals) + len(v.valid) + len(v.bits) + 4*len(v.offsets) + len(v.data)
	if v.keys != nil {
		n += v.keys.Memory() + v.values.Memory()
	}
	return n
}

// Size returns about how many bytes value i takes: 8, or 16 of a decimal of more than 18
// digits, or those of its texts, and of a map those of its keys and values.
func (v *Vector) Size(i int) int {
	switch v.typ.Storage() {
	case Bytes:
		return int(v.offsets[i+1] - v.offsets[i])
	case Entries:
		n := 0
		for e, end := v.EntriesOf(i); e < end; e++ {
			n += v.keys.Size(e) + v.values.Size(e)
		}
		return n
	case Decimal128:
		return 16
	}
	return 8
}

// appendBit sets bit i, the next one, of a bitmap.
func appendBit(bits []byte, i int, set bool) []byte {
	if i&7 == 0 {
		bits = append(bits, 0)
	}
	if set {
		bits[i>>3] |= 1 << (i & 7)
	}
	return bits
}

// appended counts a value that is not null.
func (v *Vector) appended() {
	if v.nulls > 0 {
		v.valid = appendBit(v.valid, v.n, true)
	}
	v.n++
}

// AppendNull appends a null.
func (v *Vector) AppendNull() {
	if v.nulls == 0 {
		for i := range v.n {
			v.valid = appendBit(v.valid, i, true)
		}
	}
	v.valid = appendBit(v.valid, v.n, false)
	switch v.typ.Storage() {
	case Int64:
		v.int64s = append(v.int64s, 0)
	case Decimal128:
		v.decimals = append(v.decimals, Int128{})
	case Float64:
		v.floats = append(v.floats, 0)
	case Bool:
		v.bits = appendBit(v.bits, v.n, false)
	case Entries:
		v.offsets = append(v.offsets, int32(v.keys.n))
	default:
		v.offsets = append(v.offsets, int32(len(v.data)))
	}
	v.n++
	v.nulls++
}

// AppendInt64 appends to an Int64 or Timestamp vector.
func (v *Vector) AppendInt64(x int64) {
	v.int64s = append(v.int64s, x)
	v.appended()
}

// AppendDecimal appends a decimal, given without its point, to a vector of decimals of
// more than 18 digits. It must not have more than the type.
func (v *Vector) AppendDecimal(x Int128) {
	v.decimals = append(v.decimals, x)
	v.appended()
}

// AppendFloat64 appends to a Float64 vector.
func (v *Vector) AppendFloat64(x float64) {
	v.floats = append(v.floats, x)
	v.appended()
}

// AppendBool appends to a Bool vector.
func (v *Vector) AppendBool(x bool) {
	v.bits = appendBit(v.bits, v.n, x)
	v.appended()
}

// AppendBytes appends a copy of b to a String, Bytes or JSON vector, which holds less
// than 2 GiB; above that it returns an error and appends nothing.
func (v *Vector) AppendBytes(b []byte) error {
	if len(b) > math.MaxInt32-len(v.data) {
		return errVectorFull
	}
	v.data = append(v.data, b...)
	v.offsets = append(v.offsets, int32(len(v.data)))
	v.appended()
	return nil
}

// appendedMany counts n values that are not null.
func (v *Vector) appendedMany(n int) {
	if v.nulls > 0 {
		for i := range n {
			v.valid = appendBit(v.valid, v.n+i, true)
		}
	}
	v.n += n
}

// AppendInt64s appends to an Int64 or Timestamp vector.
func (v *Vector) AppendInt64s(xs []int64) {
	v.int64s = append(v.int64s, xs...)
	v.appendedMany(len(xs))
}

// AppendFloat64s appends to a Float64 vector.
func (v *Vector) AppendFloat64s(xs []float64) {
	v.floats = append(v.floats, xs...)
	v.appendedMany(len(xs))
}

// AppendText appends copies of n values to a String, Bytes or JSON vector, which lie in data
// one after the other, at n+1 offsets that ascend. Its error is that of AppendBytes, or
// says that offsets is damaged; then it appends nothing.
func (v *Vector) AppendText(data []byte, offsets []uint32) error {
	if len(offsets) < 2 {
		return nil
	}
	first, last := offsets[0], offsets[len(offsets)-1]
	if first > last || uint64(last) > uint64(len(data)) {
		return errOffsets
	}
	if int64(last-first) > int64(math.MaxInt32-len(v.data)) {
		return errVectorFull
	}
	n, at := len(v.offsets), first
	for _, end := range offsets[1:] {
		if end < at {
			v.offsets = v.offsets[:n]
			return errOffsets
		}
		v.offsets = append(v.offsets, int32(end-first)+int32(len(v.data)))
		at = end
	}
	v.data = append(v.data, data[first:last]...)
	v.appendedMany(len(offsets) - 1)
	return nil
}

// AppendIndexed appends copies of values to a String, Bytes or JSON vector: of each number
// the one that lies in data from that offset to the next. Its error is that of
// AppendBytes, or says that there is no such value; those before it are appended.
func (v *Vector) AppendIndexed(data []byte, offsets []uint32, numbers []int32) error {
	for _, i := range numbers {
		if i < 0 || int(i) >= len(offsets)-1 || offsets[i] > offsets[i+1] || uint64(offsets[i+1]) > uint64(len(data)) {
			return errOffsets
		}
		if err := v.AppendBytes(data[offsets[i]:offsets[i+1]]); err != nil {
			return err
		}
	}
	return nil
}

// AppendFrom appends value i of from, which has the same type, or is one of String,
// Bytes and JSON as v is; a null stays null. Its error is that of AppendBytes; after it
// a map has entries that are no value's.
func (v *Vector) AppendFrom(from *Vector, i int) error {
	if from.IsNull(i) {
		v.AppendNull()
		return nil
	}
	switch from.typ.Storage() {
	case Int64:
		v.AppendInt64(from.int64s[i])
	case Decimal128:
		v.AppendDecimal(from.decimals[i])
	case Float64:
		v.AppendFloat64(from.floats[i])
	case Bool:
		v.AppendBool(from.Bool(i))
	case Entries:
		for e, end := from.EntriesOf(i); e < end; e++ {
			if err := v.keys.AppendFrom(from.keys, e); err != nil {
				return err
			}
			if err := v.values.AppendFrom(from.values, e); err != nil {
				return err
			}
		}
		return v.AppendEntries()
	default:
		return v.AppendBytes(from.Bytes(i))
	}
	return nil
}

// Keys returns the keys of all values of a map vector, one value's after the other's;
// nil of other vectors.
func (v *Vector) Keys() *Vector { return v.keys }

// Values returns the values of all maps of a map vector as Keys returns the keys.
func (v *Vector) Values() *Vector { return v.values }

// EntriesOf returns where the entries of value i of a map vector lie in Keys and Values:
// [start, end), which are equal where the map is empty or null.
func (v *Vector) EntriesOf(i int) (start, end int) {
	return int(v.offsets[i]), int(v.offsets[i+1])
}

// AppendEntries appends to a map vector the map of the keys and values that were
// appended to Keys and Values since its last value: as many of both. Its error says that
// they are not as many, or that the vector is full.
func (v *Vector) AppendEntries() error {
	if v.keys.n != v.values.n {
		return fmt.Errorf("columnar: a map of %d keys and %d values", v.keys.n-int(v.offsets[v.n]), v.values.n-int(v.offsets[v.n]))
	}
	if v.keys.n > math.MaxInt32 {
		return errVectorFull
	}
	v.offsets = append(v.offsets, int32(v.keys.n))
	v.appended()
	return nil
}

// dropEntries removes the keys and values that were appended since the last value.
func (v *Vector) dropEntries() {
	n := int(v.offsets[v.n])
	v.keys.cut(n)
	v.values.cut(n)
}

// cut leaves the first n values. Of the others none is null.
func (v *Vector) cut(n int) {
	switch v.typ.Storage() {
	case Int64:
		v.int64s = v.int64s[:n]
	case Decimal128:
		v.decimals = v.decimals[:n]
	case Float64:
		v.floats = v.floats[:n]
	case Bool:
		v.bits = cutBits(v.bits, n)
	case Entries:
		v.offsets = v.offsets[:n+1]
		v.keys.cut(int(v.offsets[n]))
		v.values.cut(int(v.offsets[n]))
	default:
		v.offsets = v.offsets[:n+1]
		v.data = v.data[:v.offsets[n]]
	}
	if v.nulls > 0 {
		v.valid = cutBits(v.valid, n)
	}
	v.n = n
}

// truncate leaves the first n values.
func (v *Vector) truncate(n int) {
	if v.keys != nil {
		v.keys.truncate(int(v.offsets[n]))
		v.values.truncate(int(v.offsets[n]))
	}
	for i := n; i < v.n && v.nulls > 0; i++ {
		if v.IsNull(i) {
			v.nulls--
		}
	}
	if v.nulls == 0 {
		v.valid = v.valid[:0]
	}
	v.cut(n)
}
