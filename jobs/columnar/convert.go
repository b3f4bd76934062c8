package columnar

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"
	"unsafe"

	"sluice/counters"
	"sluice/rowkey"
)

// ConvertError is a cell that a column cannot take.
type ConvertError struct {
	Table  string
	Row    []byte
	Column string
	From   string
	Type   Type
	Coding Coding
	Value  []byte // its first 64 bytes; nil where the cell is absent
	Absent bool   // there is no cell, and the column is not nullable
	Final  bool   // on_error: null does not help
	Reason string
}

// Error names table, row, column and value, and what can be done.
func (e *ConvertError) Error() string {
	where := fmt.Sprintf("table %s, row %q, column %s (%s)", e.Table, e.Row, e.Column, e.From)
	if e.Absent {
		return where + ": no cell, and the column has nullable: false"
	}
	coding := ""
	if e.Coding != 0 {
		coding = " in coding " + e.Coding.String()
	}
	help := " (on_error: null would export null)"
	switch {
	case e.Final:
		help = ""
	case e.Type == String && e.Coding == Text:
		help = " (type: bytes takes every value; on_error: null would export null)"
	}
	return fmt.Sprintf("%s: value %q is not %s%s: %s%s", where, e.Value, e.Type, coding, e.Reason, help)
}

// appendValue appends the value that b holds, and returns why it cannot, or ""
// where it has.
func (v *Vector) appendValue(c Coding, b []byte) string {
	switch v.typ & 0xff {
	case decimal:
		return v.appendDecimal(b)
	case String:
		return v.appendString(c, b)
	case Bytes:
		if c == Hex {
			return v.appendHex(b)
		}
		return appendData(v, b)
	case JSON:
		if why := notJSON(b); why != "" {
			return why
		}
		return appendData(v, b)
	case Int64:
		return v.appendInt(c, b)
	case Timestamp:
		return v.appendTimestamp(c, b)
	case Float64:
		return v.appendFloat(c, b)
	default:
		return v.appendBool(c, b)
	}
}

func appendData(v *Vector, b []byte) string {
	if err := v.AppendBytes(b); err != nil {
		return err.Error()
	}
	return ""
}

// notJSON returns why b is no document by RFC 8259 that readers take, or "". Its grammar
// lets an escape name half of a surrogate pair, which is no character (section 8.2): DuckDB
// reads no value of a column that has one.
func notJSON(b []byte) string {
	switch {
	case !utf8.Valid(b) || !json.Valid(b):
		return "not JSON in UTF-8"
	case halfSurrogate(b):
		return "JSON with half of a surrogate pair, which is no character"
	}
	return ""
}

// halfSurrogate reports whether an escape of b, which is JSON, is a surrogate whose other
// half does not stand beside it.
func halfSurrogate(b []byte) bool {
	high := false // the escape right before was the first half of a pair
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 {
			return high
		}
		if high && i > 0 {
			return true
		}
		b = b[i:]
		if b[1] != 'u' {
			if high {
				return true
			}
			b = b[2:]
			continue
		}
		second := hexDigit(b[3])
		surrogate := hexDigit(b[2]) == 0xd && second >= 8
		if low := surrogate && second >= 12; low != high {
			return true
		}
		high = surrogate && second < 12
		b = b[6:]
	}
}

func (v *Vector) appendString(c Coding, b []byte) string {
	if c == Fixed {
		b = bytes.TrimRight(b, "\x00")
	}
	if !utf8.Valid(b) {
		return "not UTF-8"
	}
	start := len(v.data)
	why := appendData(v, b)
	if c == Reverse && why == "" {
		rowkey.AppendReversed(v.data[:start], b) // as many bytes, in the place of b's
	}
	return why
}

// appendHex appends the bytes that are written in hex.
func (v *Vector) appendHex(b []byte) string {
	if len(b)%2 != 0 {
		return "not two hex digits a byte"
	}
	for _, c := range b {
		if hexDigit(c) > 15 {
			return "not hex digits"
		}
	}
	start := len(v.data)
	if why := appendData(v, b[:len(b)/2]); why != "" {
		return why
	}
	for i := range len(b) / 2 {
		v.data[start+i] = hexDigit(b[2*i])<<4 | hexDigit(b[2*i+1])
	}
	return ""
}

func (v *Vector) appendInt(c Coding, b []byte) string {
	x, why := parseInt(c, b)
	if why == "" {
		v.AppendInt64(x)
	}
	return why
}

func parseInt(c Coding, b []byte) (int64, string) {
	switch c {
	case Int64BE:
		if len(b) != 8 {
			return 0, "not 8 bytes long"
		}
		return int64(binary.BigEndian.Uint64(b)), ""
	case Distinct:
		s, err := counters.DecodeSketch(b)
		if err != nil {
			return 0, "not a sketch: " + err.Error()
		}
		return s.Count(), ""
	case U8, U16, U32, U64, I64, ReverseTS:
		return parseKeyInt(c, b)
	case Hex:
		return parseHex(b)
	case Varint, ZigZag:
		return parseVarint(c, b)
	}
	return parseDecimal(b)
}

// parseKeyInt reads the numbers of package rowkey.
func parseKeyInt(c Coding, b []byte) (int64, string) {
	if len(b) != c.width() {
		return 0, notLong[c.width()]
	}
	var n uint64
	for _, x := range b {
		n = n<<8 | uint64(x)
	}
	switch {
	case c == I64:
		n ^= 1 << 63
	case c == ReverseTS:
		n = math.MaxInt64 - n
	case n > math.MaxInt64:
		return 0, "out of range"
	}
	return int64(n), ""
}

// notLong says that a value has another width than its coding.
var notLong = [...]string{1: "not 1 byte long", 2: "not 2 bytes long", 4: "not 4 bytes long", 8: "not 8 bytes long"}

// width returns how many bytes a value in coding c has, and 0 where they differ.
func (c Coding) width() int {
	switch c {
	case U8:
		return 1
	case U16:
		return 2
	case U32:
		return 4
	case U64, I64, ReverseTS, Int64BE, Float64BE:
		return 8
	}
	return 0
}

// FixedWidth reports whether all values in coding c have as many bytes.
func (c Coding) FixedWidth() bool { return c.width() > 0 }

// parseVarint reads a number of Protocol Buffers, which ends where b does.
func parseVarint(c Coding, b []byte) (int64, string) {
	u, n := binary.Uvarint(b)
	switch {
	case n < 0:
		return 0, "out of range"
	case n == 0:
		return 0, "not a whole varint"
	case n < len(b):
		return 0, "there are bytes behind the varint"
	case c == ZigZag:
		return int64(u>>1) ^ -int64(u&1), ""
	}
	return int64(u), ""
}

// parseHex reads an unsigned number in hex, of up to 16 digits.
func parseHex(b []byte) (int64, string) {
	if len(b) == 0 || len(b) > 16 {
		return 0, "not 1 to 16 hex digits"
	}
	var n uint64
	for _, c := range b {
		d := hexDigit(c)
		if d > 15 {
			return 0, "not 1 to 16 hex digits"
		}
		n = n<<4 | uint64(d)
	}
	if n > math.MaxInt64 {
		return 0, "out of range"
	}
	return int64(n), ""
}

// parseDecimal is strconv.ParseInt in base 10 without the conversion to a string:
// an optional sign and digits.
func parseDecimal(b []byte) (int64, string) {
	digits, negative := b, false
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		digits, negative = b[1:], b[0] == '-'
	}
	if len(digits) == 0 {
		return 0, "not a decimal number"
	}
	var n uint64
	for _, c := range digits {
		d := c - '0'
		if d > 9 {
			return 0, "not a decimal number"
		}
		if n > (math.MaxUint64-9)/10 {
			return 0, "out of range"
		}
		n = n*10 + uint64(d)
	}
	switch {
	case negative && n <= 1<<63:
		return -int64(n), ""
	case !negative && n <= math.MaxInt64:
		return int64(n), ""
	}
	return 0, "out of range"
}

func (v *Vector) appendTimestamp(c Coding, b []byte) string {
	if c == RFC3339 {
		t, err := time.Parse(time.RFC3339Nano, view(b))
		if err != nil {
			return "not a time such as 2006-01-02T15:04:05Z"
		}
		// Every year that RFC 3339 can write fits µs in 64 bits.
		v.AppendInt64(t.UnixMicro())
		return ""
	}
	ms, why := parseInt(c, b)
	if why != "" {
		return why
	}
	return v.appendMillis(ms)
}

// appendMillis appends a time in ms to a Timestamp vector, which holds µs.
func (v *Vector) appendMillis(ms int64) string {
	if ms > math.MaxInt64/1000 || ms < math.MinInt64/1000 {
		return "out of range for a timestamp in µs"
	}
	v.AppendInt64(ms * 1000)
	return ""
}

func (v *Vector) appendFloat(c Coding, b []byte) string {
	if c == Float64BE {
		if len(b) != 8 {
			return "not 8 bytes long"
		}
		v.AppendFloat64(math.Float64frombits(binary.BigEndian.Uint64(b)))
		return ""
	}
	x, err := strconv.ParseFloat(view(b), 64)
	if err != nil || bytes.ContainsAny(b, "_xX") { // as Go's own numbers may be written
		return "not a number in the range of a double"
	}
	v.AppendFloat64(x)
	return ""
}

func (v *Vector) appendBool(c Coding, b []byte) string {
	if c == Raw {
		if len(b) != 1 {
			return "not 1 byte long"
		}
		v.AppendBool(b[0] != 0)
		return ""
	}
	switch string(b) {
	case "true", "TRUE", "True", "t", "1":
		v.AppendBool(true)
	case "false", "FALSE", "False", "f", "0":
		v.AppendBool(false)
	default:
		return "neither true nor false"
	}
	return ""
}

// view returns b as a string without a copy, for parsers that do not keep it:
// strconv and time clone what their errors show.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
