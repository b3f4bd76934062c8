package cell

import (
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
// cell TTL (8 bytes, only where ttl is not 0) and the value.
func AppendValue(dst []byte, ttl int64, value []byte) []byte {
	return append(appendValueHeader(dst, ttl, 0), value...)
}

func appendValueHeader(dst []byte, ttl int64, flags byte) []byte {
	if ttl == 0 {
		return append(dst, flags)
	}
	return binary.BigEndian.AppendUint64(append(dst, flags|valueTTL), uint64(ttl))
}

// DecodeValue reads what AppendValue wrote. value points into b.
func DecodeValue(b []byte) (ttl int64, value []byte, err error) {
	ttl, flags, rest, err := decodeValueHeader(b)
	if err == nil && flags&valueSequences != 0 {
		err = fmt.Errorf("%w: packed header on a single cell", ErrCorruptValue)
	}
	return ttl, rest, err
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
		if ttl <= 0 {
			return 0, 0, nil, fmt.Errorf("%w: TTL %d", ErrCorruptValue, ttl)
		}
	}
	return ttl, flags, rest, nil
}

// AppendPackedHeader begins a packed value: several columns of one row, family
// and timestamp. perColumn says that each AppendPackedColumn carries its own
// sequence; otherwise all share the key's.
func AppendPackedHeader(dst []byte, ttl int64, perColumn bool) []byte {
	if perColumn {
		return appendValueHeader(dst, ttl, valueSequences)
	}
	return appendValueHeader(dst, ttl, 0)
}

// AppendPackedColumn appends one column. Columns must come in strictly ascending
// order of their qualifiers.
func AppendPackedColumn(dst, qualifier, value []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(qualifier)))
	dst = append(dst, qualifier...)
	dst = binary.AppendUvarint(dst, uint64(len(value)))
	return append(dst, value...)
}

// Packed iterates over the columns of a packed value. The zero value is empty.
type Packed struct {
	TTL       int64  // ms, of every column; 0 = none
	Qualifier []byte // of the current column; points into the value
	Value     []byte // of the current column; points into the value
	Sequence  uint64 // of the current column

	rest      []byte
	perColumn bool
	err       error
}

// Reset starts over on b, whose key has this sequence.
func (p *Packed) Reset(b []byte, sequence uint64) error {
	ttl, flags, rest, err := decodeValueHeader(b)
	*p = Packed{TTL: ttl, Sequence: sequence, rest: rest, perColumn: flags&valueSequences != 0, err: err}
	return err
}

// Next moves to the next column and reports whether there is one. After false,
// Err says whether the value was corrupt.
func (p *Packed) Next() bool {
	if p.err != nil || len(p.rest) == 0 {
		return false
	}
	if p.Qualifier, p.err = p.slice(); p.err != nil {
		return false
	}
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

// Err returns the first corruption found.
func (p *Packed) Err() error { return p.err }

func (p *Packed) slice() ([]byte, error) {
	n, w := binary.Uvarint(p.rest)
	if w <= 0 || n > uint64(len(p.rest)-w) {
		return nil, fmt.Errorf("%w: packed column of %d bytes, %d left", ErrCorruptValue, n, len(p.rest))
	}
	b := p.rest[w : w+int(n) : w+int(n)]
	p.rest = p.rest[w+int(n):]
	return b, nil
}

// AppendPackedSequence appends a column's own sequence, after its
// AppendPackedColumn, in a value begun with perColumn.
func AppendPackedSequence(dst []byte, sequence uint64) []byte {
	return binary.BigEndian.AppendUint64(dst, sequence)
}
