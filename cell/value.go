package cell

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrCorruptValue is wrapped by the errors of the value decoders.
var ErrCorruptValue = errors.New("cell: corrupt value")

// Header bits of a stored TagData value.
const (
	valueTTL       = 1 << 0 // 8 bytes big-endian follow: the cell TTL in ms
	valueSequences = 1 << 1 // packed only: each column is followed by its own 8-byte sequence
	valueKnown     = valueTTL | valueSequences
)

// AppendValue appends the stored form of one cell's value: a header byte, the
// cell TTL (8 bytes, only where there is one) and the value. ttl is in ms; 0 = none,
// NoLife = 0 ms, and nothing else is negative.
func AppendValue(dst []byte, ttl int64, value []byte) []byte {
	return append(appendValueHeader(dst, ttl, 0), value...)
}

func appendValueHeader(dst []byte, ttl int64, flags byte) []byte {
	if ttl == 0 {
		return append(dst, flags)
	}
	return binary.BigEndian.AppendUint64(append(dst, flags|valueTTL), uint64(max(ttl, 0)))
}

// DecodeValue reads what AppendValue wrote. value points into b. Its error wraps
// ErrCorruptValue.
func DecodeValue(b []byte) (ttl int64, value []byte, err error) {
	ttl, flags, rest, err := decodeValueHeader(b)
	if err != nil {
		return 0, nil, err
	}
	if flags&valueSequences != 0 {
		return 0, nil, fmt.Errorf("%w: packed header on a single cell", ErrCorruptValue)
	}
	return ttl, rest, nil
}

// Lasting reports whether a stored value begins as one without a TTL, and sequences
// whether it is then a packed one whose columns have sequences of their own.
func Lasting(value []byte) (lasting, sequences bool) {
	if len(value) == 0 {
		return false, false
	}
	return value[0]&^valueSequences == 0, value[0] == valueSequences
}

func decodeValueHeader(b []byte) (ttl int64, flags byte, rest []byte, err error) {
	if len(b) == 0 {
		return 0, 0, nil, fmt.Errorf("%w: empty", ErrCorruptValue)
	}
	flags, rest = b[0], b[1:]
	if flags&^valueKnown != 0 {
		return 0, 0, nil, fmt.Errorf("%w: header %#02x", ErrCorruptValue, flags)
	}
	if flags&valueTTL != 0 {
		if len(rest) < 8 {
			return 0, 0, nil, fmt.Errorf("%w: short TTL", ErrCorruptValue)
		}
		ttl, rest = int64(binary.BigEndian.Uint64(rest)), rest[8:]
		switch {
		case ttl < 0:
			return 0, 0, nil, fmt.Errorf("%w: TTL %d", ErrCorruptValue, ttl)
		case ttl == 0:
			ttl = NoLife
		}
	}
	return ttl, flags, rest, nil
}

// AppendPackedHeader begins a packed value: one or more columns of one row, family
// and timestamp, which share ttl (ms; 0 = none, NoLife = 0). perColumn says that
// each AppendPackedColumn is followed by its own sequence, by
// AppendPackedSequence; otherwise all share the key's.
func AppendPackedHeader(dst []byte, ttl int64, perColumn bool) []byte {
	if perColumn {
		return appendValueHeader(dst, ttl, valueSequences)
	}
	return appendValueHeader(dst, ttl, 0)
}

// AppendPackedColumn appends one column. Columns must come in strictly ascending
// order of their qualifiers: the decoder refuses any other.
func AppendPackedColumn(dst, qualifier, value []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(qualifier)))
	dst = append(dst, qualifier...)
	dst = binary.AppendUvarint(dst, uint64(len(value)))
	return append(dst, value...)
}

// AppendPackedSequence appends a column's own sequence, after its
// AppendPackedColumn, in a value begun with perColumn.
func AppendPackedSequence(dst []byte, sequence uint64) []byte {
	return binary.BigEndian.AppendUint64(dst, sequence)
}

// Packed iterates over the columns of a packed value. It allocates nothing: what
// it yields are slices of the value, whatever lengths the value claims. The zero
// value has no columns.
type Packed struct {
	TTL       int64  // ms, of every column; 0 = none
	Qualifier []byte // of the current column; points into the value
	Value     []byte // of the current column; points into the value
	Sequence  uint64 // of the current column

	rest      []byte
	last      []byte // qualifier of the column before; nil = none yet
	perColumn bool
	err       error
}

// Reset starts over on b, whose key has this sequence. Its error, which Err
// repeats, wraps ErrCorruptValue.
func (p *Packed) Reset(b []byte, sequence uint64) error {
	ttl, flags, rest, err := decodeValueHeader(b)
	if err == nil && len(rest) == 0 {
		err = fmt.Errorf("%w: packed without columns", ErrCorruptValue)
	}
	*p = Packed{TTL: ttl, Sequence: sequence, rest: rest, perColumn: flags&valueSequences != 0, err: err}
	return err
}

// Next moves to the next column and reports whether there is one. After false,
// Err says whether the value was corrupt, and the current column is not to be
// used.
func (p *Packed) Next() bool {
	if p.err != nil || len(p.rest) == 0 {
		return false
	}
	var qualifier []byte
	if qualifier, p.err = p.slice(); p.err != nil {
		return false
	}
	if p.last != nil && !ascending(p.last, qualifier) {
		p.err = fmt.Errorf("%w: packed qualifier %q after %q", ErrCorruptValue, qualifier, p.last)
		return false
	}
	p.last, p.Qualifier = qualifier, qualifier
	if p.Value, p.err = p.slice(); p.err != nil {
		return false
	}
	if p.perColumn {
		if len(p.rest) < 8 {
			p.err = fmt.Errorf("%w: short sequence", ErrCorruptValue)
			return false
		}
		p.Sequence, p.rest = binary.BigEndian.Uint64(p.rest), p.rest[8:]
	}
	return true
}

// PackedColumns returns how many columns a packed value has. Its error wraps
// ErrCorruptValue.
func PackedColumns(value []byte) (n int, err error) {
	var p Packed
	if err := p.Reset(value, 0); err != nil {
		return 0, err
	}
	for p.Next() {
		n++
	}
	return n, p.Err()
}

// AppendCells appends the columns that Next has not yet yielded to dst, as the puts
// of family at t, and returns the extended slice. They point into the value. Err
// says whether it was corrupt; then some columns may be missing.
func (p *Packed) AppendCells(dst []Cell, family string, t Timestamp) []Cell {
	// In locals: each store of a slice into p would be one the collector watches.
	rest, last := p.rest, p.last
	for !p.perColumn {
		// Lengths below 128 are all but a few, and a scan reads millions.
		if len(rest) < 2 || rest[0] >= 0x80 {
			break
		}
		q := 1 + int(rest[0])
		if q >= len(rest) || rest[q] >= 0x80 {
			break
		}
		v := q + 1
		end := v + int(rest[q])
		if end > len(rest) {
			break
		}
		qualifier := rest[1:q:q]
		if last != nil && !ascending(last, qualifier) {
			break
		}
		dst = appendCell(dst, family, qualifier, t, rest[v:end:end], p.TTL)
		last, rest = qualifier, rest[end:]
	}
	p.last, p.rest = last, rest
	for p.Next() {
		dst = appendCell(dst, family, p.Qualifier, t, p.Value, p.TTL)
	}
	return dst
}

// appendCell appends a put, without writing it twice.
func appendCell(dst []Cell, family string, qualifier []byte, t Timestamp, value []byte, ttl int64) []Cell {
	n := len(dst)
	if n == cap(dst) {
		dst = append(dst, Cell{})
	}
	dst = dst[:n+1]
	c := &dst[n]
	c.Family, c.Qualifier, c.Time, c.Kind, c.Value, c.TTL = family, qualifier, t, KindPut, value, ttl
	return dst
}

// ascending reports whether a sorts before b: mostly the first byte tells.
func ascending(a, b []byte) bool {
	if len(a) > 0 && len(b) > 0 && a[0] != b[0] {
		return a[0] < b[0]
	}
	return bytes.Compare(a, b) < 0
}

// Left returns how many bytes follow the current column.
func (p *Packed) Left() int { return len(p.rest) }

// Err returns the first corruption found; it wraps ErrCorruptValue.
func (p *Packed) Err() error { return p.err }

// slice takes a length and that many bytes off the rest. It never returns nil
// without an error, so that an empty qualifier differs from none.
func (p *Packed) slice() ([]byte, error) {
	// Lengths below 128 are all but a few, and a scan reads millions.
	if len(p.rest) > 0 && p.rest[0] < 0x80 && int(p.rest[0]) < len(p.rest) {
		n := 1 + int(p.rest[0])
		b := p.rest[1:n:n]
		p.rest = p.rest[n:]
		return b, nil
	}
	n, w := binary.Uvarint(p.rest)
	switch {
	case w <= 0:
		return nil, fmt.Errorf("%w: packed length is no uvarint", ErrCorruptValue)
	case w > 1 && p.rest[w-1] == 0:
		return nil, fmt.Errorf("%w: packed length %d in %d bytes", ErrCorruptValue, n, w)
	case n > uint64(len(p.rest)-w):
		return nil, fmt.Errorf("%w: packed column of %d bytes, %d left", ErrCorruptValue, n, len(p.rest)-w)
	}
	b := p.rest[w : w+int(n) : w+int(n)]
	p.rest = p.rest[w+int(n):]
	return b, nil
}
