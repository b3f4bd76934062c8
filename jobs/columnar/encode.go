package columnar

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"time"
)

// AppendValue appends the bytes that a cell has which coding c reads as the i-th value
// of v, which is not null: the inverse of what fills a Builder, but for texts of
// numbers and times, of which the shortest is written. Timestamps lose what is below
// a millisecond in the codings that have none. Its error says why there are no such
// bytes.
func (v *Vector) AppendValue(dst []byte, c Coding, i int) ([]byte, error) {
	switch {
	case v.typ == String, v.typ == Bytes:
		return append(dst, v.Bytes(i)...), nil
	case v.typ == Int64 && c == Text:
		return strconv.AppendInt(dst, v.int64s[i], 10), nil
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
	case v.typ == Timestamp && c == Text:
		return strconv.AppendInt(dst, floorMillis(v.int64s[i]), 10), nil
	case v.typ == Timestamp && c == Int64BE:
		return binary.BigEndian.AppendUint64(dst, uint64(floorMillis(v.int64s[i]))), nil
	case v.typ == Timestamp && c == RFC3339:
		t := time.UnixMicro(v.int64s[i]).UTC()
		if y := t.Year(); y < 0 || y > 9999 {
			return dst, fmt.Errorf("the year %d has no RFC 3339 text", y)
		}
		return t.AppendFormat(dst, time.RFC3339Nano), nil
	}
	return dst, fmt.Errorf("nothing can be written that coding %v reads as %v", c, v.typ)
}

// floorMillis returns the ms since 1970 that begin at or before so many µs.
func floorMillis(micros int64) int64 {
	ms := micros / 1000
	if micros%1000 < 0 {
		ms--
	}
	return ms
}
