package rowkey

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"sluice/cell"
)

func checkText(x []byte, width int) error {
	switch {
	case len(x) > width:
		return fmt.Errorf("%w: text %.100q of %d bytes in %d", ErrValue, x, len(x), width)
	case len(x) > 0 && x[len(x)-1] == 0:
		return fmt.Errorf("%w: text %.100q ends in a zero byte", ErrValue, x)
	}
	return nil
}

// Encoder makes a composite key, field by field. The order of keys is that of
// their first fields, where those are equal that of their second, and so on: each
// field is order preserving and has one width. A key that ends early is a prefix
// of all keys which begin with its fields, for Scan.Prefix or the bounds of a
// scan. The zero value is empty and ready.
//
// After the first error fields are ignored; Key reports it.
type Encoder struct {
	key  []byte
	rest bool // the last field has no width
	err  error
}

// Uint8 adds 1 byte.
func (e *Encoder) Uint8(v uint8) *Encoder {
	if e.open("uint8") {
		e.key = append(e.key, v)
	}
	return e
}

// Uint16 adds 2 bytes.
func (e *Encoder) Uint16(v uint16) *Encoder {
	if e.open("uint16") {
		e.key = binary.BigEndian.AppendUint16(e.key, v)
	}
	return e
}

// Uint32 adds 4 bytes.
func (e *Encoder) Uint32(v uint32) *Encoder {
	if e.open("uint32") {
		e.key = binary.BigEndian.AppendUint32(e.key, v)
	}
	return e
}

// Uint64 adds 8 bytes.
func (e *Encoder) Uint64(v uint64) *Encoder {
	if e.open("uint64") {
		e.key = binary.BigEndian.AppendUint64(e.key, v)
	}
	return e
}

// Int64 adds 8 bytes: AppendInt64.
func (e *Encoder) Int64(v int64) *Encoder {
	if e.open("int64") {
		e.key = AppendInt64(e.key, v)
	}
	return e
}

// Time adds 8 bytes, earlier times first, also those before 1970.
func (e *Encoder) Time(t cell.Timestamp) *Encoder {
	if e.open("time") {
		e.key = AppendInt64(e.key, int64(t))
	}
	return e
}

// ReverseTime adds 8 bytes, later times first: AppendReverseTime.
func (e *Encoder) ReverseTime(t cell.Timestamp) *Encoder {
	if e.open("reversed time") {
		e.key = AppendReverseTime(e.key, t)
	}
	return e
}

// Text adds width bytes: AppendText.
func (e *Encoder) Text(x string, width int) *Encoder {
	if e.open("text") {
		e.key, e.err = AppendText(e.key, []byte(x), width)
	}
	return e
}

// Bytes adds exactly width bytes; x must have as many.
func (e *Encoder) Bytes(x []byte, width int) *Encoder {
	if e.open("bytes") {
		if len(x) != width {
			e.err = fmt.Errorf("%w: %d bytes in %d", ErrValue, len(x), width)
			return e
		}
		e.key = append(e.key, x...)
	}
	return e
}

// Rest adds x as it is. It has no width, so it must be the last field.
func (e *Encoder) Rest(x []byte) *Encoder {
	if e.open("rest") {
		e.key, e.rest = append(e.key, x...), true
	}
	return e
}

// open reports whether a field can be added.
func (e *Encoder) open(field string) bool {
	if e.err == nil && e.rest {
		e.err = fmt.Errorf("%w: %s behind the rest, which has no width", ErrValue, field)
	}
	return e.err == nil
}

// Key returns the key, the caller's own. The error wraps ErrValue or
// cell.ErrRowEmpty or cell.ErrRowTooLong.
func (e *Encoder) Key() ([]byte, error) {
	if e.err != nil {
		return nil, e.err
	}
	if err := cell.CheckRow(e.key); err != nil {
		return nil, fmt.Errorf("encode row key: %w", err)
	}
	return bytes.Clone(e.key), nil
}

// Decoder takes a composite key apart, with the fields in the order in which an
// Encoder had them. After the first error fields are zero; Err and End report it.
type Decoder struct {
	key  []byte
	left []byte
	err  error
}

// NewDecoder returns a decoder of key, which is kept.
func NewDecoder(key []byte) *Decoder { return &Decoder{key: key, left: key} }

// take returns the next n bytes, or nil.
func (d *Decoder) take(field string, n int) []byte {
	if d.err == nil && (n < 0 || len(d.left) < n) {
		d.err = fmt.Errorf("%w: %.100q has %d bytes left for %s, which has %d", ErrKey, d.key, len(d.left), field, n)
	}
	if d.err != nil {
		return nil
	}
	b := d.left[:n:n]
	d.left = d.left[n:]
	return b
}

// Uint8 returns the next 1-byte field.
func (d *Decoder) Uint8() uint8 {
	if b := d.take("a uint8", 1); b != nil {
		return b[0]
	}
	return 0
}

// Uint16 returns the next 2-byte field.
func (d *Decoder) Uint16() uint16 {
	if b := d.take("a uint16", 2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

// Uint32 returns the next 4-byte field.
func (d *Decoder) Uint32() uint32 {
	if b := d.take("a uint32", 4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// Uint64 returns the next 8-byte field.
func (d *Decoder) Uint64() uint64 {
	if b := d.take("a uint64", 8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// Int64 returns the next field of Encoder.Int64.
func (d *Decoder) Int64() int64 {
	if b := d.take("an int64", 8); b != nil {
		return int64(binary.BigEndian.Uint64(b) ^ 1<<63)
	}
	return 0
}

// Time returns the next field of Encoder.Time.
func (d *Decoder) Time() cell.Timestamp { return cell.Timestamp(d.Int64()) }

// ReverseTime returns the next field of Encoder.ReverseTime.
func (d *Decoder) ReverseTime() cell.Timestamp {
	if b := d.take("a reversed time", 8); b != nil {
		return cell.Timestamp(math.MaxInt64 - binary.BigEndian.Uint64(b))
	}
	return 0
}

// Text returns the next field of Encoder.Text, without the filling.
func (d *Decoder) Text(width int) string {
	return string(bytes.TrimRight(d.take("a text", width), "\x00"))
}

// Bytes returns the next width bytes, which share the key's memory.
func (d *Decoder) Bytes(width int) []byte { return d.take("bytes", width) }

// Rest returns all that is left, which may be nothing and shares the key's memory.
func (d *Decoder) Rest() []byte { return d.take("the rest", len(d.left)) }

// Err returns the first error, which wraps ErrKey.
func (d *Decoder) Err() error { return d.err }

// End returns the first error, where there was none one for bytes that are left.
// It wraps ErrKey.
func (d *Decoder) End() error {
	if d.err == nil && len(d.left) > 0 {
		d.err = fmt.Errorf("%w: %.100q has %d bytes behind its last field", ErrKey, d.key, len(d.left))
	}
	return d.err
}
