package join

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"sluice/jobs/columnar"
)

// appendSpilled appends a row as it lies in a spillFile: its key, then each value: 0
// for a null, else 1 and 8 bytes little-endian of a number, one of a bool, or a text.
// Keys and texts have their length before them, as an uvarint.
func appendSpilled(dst, key []byte, columns []columnar.Column, r ref) []byte {
	dst = appendSized(dst, key)
	for i := range columns {
		v := r.batch.Vector(i)
		if v.IsNull(r.row) {
			dst = append(dst, 0)
			continue
		}
		dst = append(dst, 1)
		switch v.Type().Storage() {
		case columnar.Int64:
			dst = binary.LittleEndian.AppendUint64(dst, uint64(v.Int64s()[r.row]))
		case columnar.Float64:
			dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(v.Float64s()[r.row]))
		case columnar.Bool:
			b := byte(0)
			if v.Bool(r.row) {
				b = 1
			}
			dst = append(dst, b)
		default:
			dst = appendSized(dst, v.Bytes(r.row))
		}
	}
	return dst
}

func appendSized(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// takeSpilled is the inverse of appendSpilled: it appends the row to b and returns
// its key, a part of from, and what follows. Its error wraps ErrSpill; then b has
// vectors of several lengths.
func takeSpilled(from []byte, b *columnar.Batch) (key, rest []byte, err error) {
	key, rest, ok := takeSized(from)
	if !ok {
		return nil, nil, errSpilled("key")
	}
	for i := range b.Columns() {
		v := b.Vector(i)
		if len(rest) == 0 || rest[0] > 1 {
			return nil, nil, errSpilled(b.Columns()[i].Name)
		}
		present := rest[0] == 1
		rest = rest[1:]
		if !present {
			v.AppendNull()
			continue
		}
		size := 8
		switch v.Type().Storage() {
		case columnar.Bool:
			size = 1
		case columnar.Bytes:
			var text []byte
			if text, rest, ok = takeSized(rest); !ok {
				return nil, nil, errSpilled(b.Columns()[i].Name)
			}
			if err := v.AppendBytes(text); err != nil {
				return nil, nil, err
			}
			continue
		}
		if len(rest) < size {
			return nil, nil, errSpilled(b.Columns()[i].Name)
		}
		switch v.Type().Storage() {
		case columnar.Bool:
			v.AppendBool(rest[0] != 0)
		case columnar.Float64:
			v.AppendFloat64(math.Float64frombits(binary.LittleEndian.Uint64(rest)))
		default:
			v.AppendInt64(int64(binary.LittleEndian.Uint64(rest)))
		}
		rest = rest[size:]
	}
	return key, rest, nil
}

func takeSized(from []byte) (b, rest []byte, ok bool) {
	n, size := binary.Uvarint(from)
	if size <= 0 || n > uint64(len(from)-size) {
		return nil, nil, false
	}
	end := size + int(n)
	return from[size:end:end], from[end:], true
}

func errSpilled(what string) error {
	return fmt.Errorf("%w: a row ends in its %s", ErrSpill, what)
}

// partInput is the rows of a part, with their keys: an extent is a batch.
type partInput struct {
	parts   *parts
	extents []extent // to read
	buffer  []byte   // of the current one
	batch   *columnar.Batch
	keys    [][]byte // of the batch's rows
}

// Columns returns the side's columns; none where keys are all that is wanted of it.
func (p *partInput) Columns() []columnar.Column { return p.parts.columns }

// Next reads the next extent.
func (p *partInput) Next() (*columnar.Batch, error) {
	if len(p.extents) == 0 {
		return nil, io.EOF
	}
	p.batch.Reset()
	p.keys = p.keys[:0]
	var err error
	if p.buffer, err = p.parts.file.read(p.buffer, p.extents[0]); err != nil {
		return nil, err
	}
	p.extents = p.extents[1:]
	for rest := p.buffer; len(rest) > 0; {
		var key []byte
		if key, rest, err = takeSpilled(rest, p.batch); err != nil {
			return nil, err
		}
		p.keys = append(p.keys, key)
	}
	return p.batch, nil
}
