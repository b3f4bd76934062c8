package join

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"sluice/jobs/columnar"
)

// appendSpilled appends a row as it lies in a spillFile: its key, then each value: 0
// for a null, else 1 and 8 bytes little-endian of a number, one of a bool, a text, or how
// many entries a map has and each of its keys and values. Keys and texts have their
// length before them, which is an uvarint as that of maps is.
func appendSpilled(dst, key []byte, columns []columnar.Column, r ref) []byte {
	dst = appendSized(dst, key)
	for i := range columns {
		dst = appendSpilledValue(dst, r.batch.Vector(i), r.row)
	}
	return dst
}

func appendSpilledValue(dst []byte, v *columnar.Vector, row int) []byte {
	if v.IsNull(row) {
		return append(dst, 0)
	}
	dst = append(dst, 1)
	switch v.Type().Storage() {
	case columnar.Int64:
		return binary.LittleEndian.AppendUint64(dst, uint64(v.Int64s()[row]))
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
			dst = appendSpilledValue(appendSpilledValue(dst, v.Keys(), e), v.Values(), e)
		}
		return dst
	}
	return appendSized(dst, v.Bytes(row))
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
		if rest, err = takeSpilledValue(rest, b.Vector(i), b.Columns()[i].Name); err != nil {
			return nil, nil, err
		}
	}
	return key, rest, nil
}

// takeSpilledValue is the inverse of appendSpilledValue, for the column of this name.
func takeSpilledValue(from []byte, v *columnar.Vector, name string) (rest []byte, err error) {
	if len(from) == 0 || from[0] > 1 {
		return nil, errSpilled(name)
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
	case columnar.Bytes:
		text, rest, ok := takeSized(rest)
		if !ok {
			return nil, errSpilled(name)
		}
		return rest, v.AppendBytes(text)
	case columnar.Entries:
		entries, n := binary.Uvarint(rest)
		if n <= 0 {
			return nil, errSpilled(name)
		}
		for rest = rest[n:]; entries > 0; entries-- {
			if rest, err = takeSpilledValue(rest, v.Keys(), name); err != nil {
				return nil, err
			}
			if rest, err = takeSpilledValue(rest, v.Values(), name); err != nil {
				return nil, err
			}
		}
		return rest, v.AppendEntries()
	}
	if len(rest) < size {
		return nil, errSpilled(name)
	}
	switch v.Type().Storage() {
	case columnar.Bool:
		v.AppendBool(rest[0] != 0)
	case columnar.Float64:
		v.AppendFloat64(math.Float64frombits(binary.LittleEndian.Uint64(rest)))
	default:
		v.AppendInt64(int64(binary.LittleEndian.Uint64(rest)))
	}
	return rest[size:], nil
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
