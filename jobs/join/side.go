package join

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"sluice/jobs/columnar"
)

// side reads one input row by row.
type side struct {
	ctx    context.Context
	name   string
	in     Input
	keys   []key
	right  bool
	sorted bool // rows must come in order of their keys

	part *partInput // what in is, where it brings its keys; nil = it is none

	batch *columnar.Batch
	rows  int // of the batch
	row   int
	key   []byte // of the row, encoded; valid until next
	null  bool   // the row's key is null
	last  []byte // of the last row with a key
	seen  bool   // there was one
	done  bool   // the input has ended
}

// next moves to the next row; the side is done after the last one.
func (s *side) next() error {
	if s.done {
		return nil
	}
	s.row++
	if s.row >= s.rows {
		if err := s.nextBatch(); err != nil || s.done {
			return err
		}
	}
	if s.part != nil {
		s.key = s.part.keys[s.row]
		return nil
	}
	s.key, s.null = s.appendKey(s.key[:0])
	if s.null || !s.sorted {
		return nil
	}
	if s.seen && bytes.Compare(s.key, s.last) < 0 {
		return fmt.Errorf("%w: the %s side has %s after %s; use method hash, or join by what it is sorted by",
			ErrNotSorted, s.name, describe(s.keys, s.key), describe(s.keys, s.last))
	}
	s.last, s.seen = append(s.last[:0], s.key...), true
	return nil
}

// nextBatch moves to the first row of the next batch that has one, without its key.
func (s *side) nextBatch() error {
	for {
		if s.ctx.Err() != nil {
			return fmt.Errorf("read the %s side: %w", s.name, context.Cause(s.ctx))
		}
		b, err := s.in.Next()
		if err == io.EOF {
			s.done, s.batch, s.rows = true, nil, 0
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the %s side: %w", s.name, err)
		}
		n := b.Rows()
		if s.part != nil {
			n = len(s.part.keys) // there may be no columns
		}
		if n > 0 {
			s.batch, s.rows, s.row = b, n, 0
			return nil
		}
	}
}

// column is this side's part of k.
func (s *side) column(k *key) *column {
	if s.right {
		return &k.right
	}
	return &k.left
}

// appendKey appends the key of the row, so that keys compare by bytes as their
// columns do one after the other: integers as 8 bytes big-endian with the sign
// turned, decimals of more than 18 digits as 16, text with 00 as 00 FF and 00 01 at
// its end. null says that a column is null, which equals nothing.
func (s *side) appendKey(dst []byte) (encoded []byte, null bool) {
	for i := range s.keys {
		c := s.column(&s.keys[i])
		v := s.batch.Vector(c.index)
		if v.IsNull(s.row) {
			return dst, true
		}
		switch v.Type().Storage() {
		case columnar.Int64:
			dst = binary.BigEndian.AppendUint64(dst, uint64(v.Int64s()[s.row])^1<<63)
		case columnar.Decimal128:
			dst = columnar.AppendDecimalKey(dst, v.Decimals()[s.row])
		case columnar.Bool:
			if v.Bool(s.row) {
				dst = append(dst, 1)
			} else {
				dst = append(dst, 0)
			}
		default:
			dst = appendText(dst, c.part.of(v.Bytes(s.row)))
		}
	}
	return dst, false
}

// of returns the part of b.
func (p Part) of(b []byte) []byte {
	switch {
	case p.Bytes > 0:
		return b[:min(p.Bytes, len(b))]
	case p.Until != "":
		before, _, _ := bytes.Cut(b, []byte(p.Until))
		return before
	}
	return b
}

func appendText(dst, b []byte) []byte {
	for {
		i := bytes.IndexByte(b, 0)
		if i < 0 {
			return append(append(dst, b...), 0, 1)
		}
		dst = append(append(dst, b[:i]...), 0, 0xFF)
		b = b[i+1:]
	}
}

// describe writes an encoded key for an error.
func describe(keys []key, encoded []byte) string {
	var out []byte
	for i := range keys {
		if i > 0 {
			out = append(out, ", "...)
		}
		switch keys[i].typ.Storage() {
		case columnar.Int64:
			n := int64(binary.BigEndian.Uint64(encoded) ^ 1<<63)
			if keys[i].typ == columnar.Timestamp {
				out = time.UnixMicro(n).UTC().AppendFormat(out, time.RFC3339Nano)
			} else {
				out = keys[i].typ.AppendNumber(out, n)
			}
			encoded = encoded[8:]
		case columnar.Decimal128:
			var x columnar.Int128
			x, encoded = columnar.CutDecimalKey(encoded)
			out = keys[i].typ.AppendDecimal(out, x)
		case columnar.Bool:
			out = fmt.Append(out, encoded[0] != 0)
			encoded = encoded[1:]
		default:
			n := 0
			var b []byte
			for ; encoded[n] != 0 || encoded[n+1] != 1; n++ {
				b = append(b, encoded[n])
				if encoded[n] == 0 {
					n++ // 00 FF
				}
			}
			out = fmt.Appendf(out, "%q", b)
			encoded = encoded[n+2:]
		}
	}
	return string(out)
}
