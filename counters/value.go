// Package counters is the arithmetic of counts: how a counter's value is stored
// and merged, which time bucket an event falls into, and how a batch's increments
// become one delta a counter.
//
// A counter is a column of a COUNTER family (design D7): a count that wraps as
// two's complement does, and the newest event time among its increments. The
// engine stores absolute values and alone owns them; everybody before it deals in
// deltas, which commute.
//
// The package is pure: no I/O, no clock. A Coalescer belongs to one goroutine at a
// time; the functions are safe everywhere. Reading counters back is
// counters/query; formatting bucket names is pipeline/mapping.
package counters

import (
	"encoding/binary"
	"errors"
	"fmt"

	"sluice/cell"
)

// ValueLength is the length in bytes of a stored counter value.
const ValueLength = 8 + 8 + 8

// ErrCorrupt is wrapped by the errors of DecodeValue.
var ErrCorrupt = errors.New("counters: corrupt value")

// Value is what is stored for one counter. The zero Value is a counter that was
// never incremented. docs/format/counter.md has the layout.
type Value struct {
	Count    int64
	Time     cell.Timestamp // newest event time among the increments; never negative
	Sequence uint64         // of the commit's operation that wrote it
}

// AppendValue appends the stored form of v: count, time and sequence, each 8
// bytes big-endian.
func AppendValue(dst []byte, v Value) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(v.Count))
	dst = binary.BigEndian.AppendUint64(dst, uint64(v.Time))
	return binary.BigEndian.AppendUint64(dst, v.Sequence)
}

// DecodeValue reads what AppendValue wrote. Its error wraps ErrCorrupt.
func DecodeValue(b []byte) (Value, error) {
	if len(b) != ValueLength {
		return Value{}, fmt.Errorf("%w: %d bytes, want %d", ErrCorrupt, len(b), ValueLength)
	}
	v := Value{
		Count:    int64(binary.BigEndian.Uint64(b)),
		Time:     cell.Timestamp(binary.BigEndian.Uint64(b[8:])),
		Sequence: binary.BigEndian.Uint64(b[16:]),
	}
	if v.Time < 0 {
		return Value{}, fmt.Errorf("%w: negative time %d", ErrCorrupt, v.Time)
	}
	return v, nil
}

// Merge returns v after an increment by delta of events up to time t, written as
// sequence. The count wraps around silently at the ends of int64, as HBase's
// does, so that merging deltas in any order or grouping gives the same count. The
// time never goes down: a late event adds to its counter and leaves the time.
func Merge(v Value, delta int64, t cell.Timestamp, sequence uint64) Value {
	return Value{Count: v.Count + delta, Time: max(v.Time, t), Sequence: sequence}
}

// StoredSequence returns the sequence in a value of AppendValue or AppendDistinct,
// and false where b is too short for either. It does not check the rest.
func StoredSequence(b []byte) (sequence uint64, ok bool) {
	switch {
	case len(b) == ValueLength: // no sketch is so long
		return binary.BigEndian.Uint64(b[16:]), true
	case len(b) >= DistinctHeader:
		return binary.BigEndian.Uint64(b[8:]), true
	}
	return 0, false
}
