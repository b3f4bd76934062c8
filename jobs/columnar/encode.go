package columnar

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"sluice/cell"
	"sluice/rowkey"
)

// AppendValue appends the bytes that a cell has which coding c reads as the i-th value
// of v, which is not null: the inverse of what fills a Builder, but for texts of
// numbers and times, of which the shortest is written. Text and bytes are taken in each
// other's codings. Its error says why there are no such bytes.
func (v *Vector) AppendValue(dst []byte, c Coding, i int) ([]byte, error) {
	if v.typ.Storage() == Bytes {
		return v.appendBytesAs(dst, c, i)
	}
	switch {
	case v.typ.Storage() == Decimal128 && c == Text:
		return v.typ.AppendDecimal(dst, v.decimals[i]), nil
	case (v.typ == Int64 || v.typ&0xff == decimal) && c == Text:
		return v.typ.AppendNumber(dst, v.int64s[i]), nil
	case v.typ == Int64 && c == Int64BE:
		return binary.BigEndian.AppendUint64(dst, uint64(v.int64s[i])), nil
	case v.typ == Float64 && c == Text:
		return strconv.AppendFloat(dst, v.floats[i], 'g', -1, 64), nil
	case v.typ == Float64 && c == Float64BE:
		return binary.BigEndian.AppendUint64(dst, math.Float64bits(v.floats[i])), nil
	case v.typ == Bool && c == Text:
		return strconv.AppendBool(dst, v.Bool(i)), nil
	case v.typ == Bool && c == Raw:
		if v.Bool(i) {
			return append(dst, 0xff), nil // as Bytes.toBytes(true)
		}
		return append(dst, 0), nil
	case v.typ == Timestamp && c == RFC3339:
		t := time.UnixMicro(v.int64s[i]).UTC()
		if y := t.Year(); y < 0 || y > 9999 {
			return dst, fmt.Errorf("the year %d has no RFC 3339 text", y)
		}
		return t.AppendFormat(dst, time.RFC3339Nano), nil
	case v.typ == Int64 && c != Distinct:
		return appendKeyInt(dst, c, v.int64s[i])
	case v.typ == Timestamp:
		return appendMillis(dst, c, v.int64s[i])
	}
	return dst, fmt.Errorf("nothing can be written that coding %v reads as %v", c, v.typ)
}

// appendBytesAs is AppendValue of text and bytes.
func (v *Vector) appendBytesAs(dst []byte, c Coding, i int) ([]byte, error) {
	b := v.Bytes(i)
	if v.typ == JSON {
		if why := notJSON(b); why != "" {
			return dst, errors.New("it is " + why)
		}
	}
	switch {
	case c == Hex:
		return hex.AppendEncode(dst, b), nil
	case c == Raw:
		return append(dst, b...), nil
	case !utf8.Valid(b):
		return dst, fmt.Errorf("%q is not UTF-8", b[:min(len(b), 64)])
	case c == Fixed && bytes.HasSuffix(b, []byte{0}):
		return dst, errors.New("it ends in a zero byte, as the filling does")
	case c == Reverse:
		return rowkey.AppendReversed(dst, b), nil
	}
	return append(dst, b...), nil
}

// appendMillis appends a time, which is whole ms since 1970.
func appendMillis(dst []byte, c Coding, micros int64) ([]byte, error) {
	ms := micros / 1000
	switch {
	case ms*1000 != micros:
		return dst, fmt.Errorf("the time %d µs is not in ms, as coding %v has it", micros, c)
	case c == Text:
		return strconv.AppendInt(dst, ms, 10), nil
	case c == Int64BE:
		return binary.BigEndian.AppendUint64(dst, uint64(ms)), nil
	}
	return appendKeyInt(dst, c, ms)
}

// appendKeyInt appends n in a coding of package rowkey, of Protocol Buffers, or in hex.
func appendKeyInt(dst []byte, c Coding, n int64) ([]byte, error) {
	unsigned := func(bits int) error {
		if n < 0 || bits < 64 && n >= 1<<bits {
			return fmt.Errorf("%d does not fit %v", n, c)
		}
		return nil
	}
	switch c {
	case U8:
		return append(dst, byte(n)), unsigned(8)
	case U16:
		return binary.BigEndian.AppendUint16(dst, uint16(n)), unsigned(16)
	case U32:
		return binary.BigEndian.AppendUint32(dst, uint32(n)), unsigned(32)
	case U64:
		return binary.BigEndian.AppendUint64(dst, uint64(n)), unsigned(64)
	case I64:
		return rowkey.AppendInt64(dst, n), nil
	case ReverseTS:
		return rowkey.AppendReverseTime(dst, cell.Timestamp(n)), nil
	case Varint:
		return binary.AppendUvarint(dst, uint64(n)), nil
	case ZigZag:
		return binary.AppendVarint(dst, n), nil
	case Hex:
		return strconv.AppendUint(dst, uint64(n), 16), unsigned(64)
	}
	return dst, fmt.Errorf("nothing can be written that coding %v reads as a number", c)
}
