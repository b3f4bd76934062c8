// Package rowkey is the row-key designs of the HBase literature: salts, hash
// prefixes, reversals, reversed time and composites of fixed-width fields.
//
// A table is sorted by row key alone, so its key decides what a scan can find,
// whether the newest comes first and whether writes spread over regions.
// docs/row-keys.md says when to take which. Every design here is also a function
// of a pipeline's mapping, which calls this package: a key made there is read
// here.
//
// All codes are fixed for ever and big-endian. Those that are called order
// preserving compare as bytes (bytes.Compare) as their values do. Append functions
// append to dst and return it, as those of encoding/binary do; nothing is kept and
// nothing here panics on input. The package does no I/O; package rowkey/salted
// scans salted tables.
package rowkey

import (
	"encoding/binary"
	"errors"
	"math"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"sluice/cell"
)

// Errors of this package.
var (
	// ErrValue: a value that its field cannot hold.
	ErrValue = errors.New("rowkey: value does not fit its field")
	// ErrKey: a row key that was not made as the caller says.
	ErrKey = errors.New("rowkey: malformed row key")
)

// day is a day's length in ms.
const day = 86_400_000

// Hash64 is the hash of all designs: XXH64 with seed 0.
func Hash64(x []byte) uint64 { return xxhash.Sum64(x) }

// Hash32 is the upper 4 bytes of Hash64.
func Hash32(x []byte) uint32 { return uint32(Hash64(x) >> 32) }

// Hash16 is the upper 2 bytes of Hash64.
func Hash16(x []byte) uint16 { return uint16(Hash64(x) >> 48) }

// AppendHash16 appends Hash16(x): 2 bytes. As a prefix of x it spreads keys that
// count up over the whole table; a row is still found by its x, a range of x is
// not.
func AppendHash16(dst, x []byte) []byte { return binary.BigEndian.AppendUint16(dst, Hash16(x)) }

// AppendReversed appends x with its characters in reverse; a byte that is not
// UTF-8 counts as a character. Of valid UTF-8 the reverse of the reverse is x.
func AppendReversed(dst, x []byte) []byte {
	for len(x) > 0 {
		_, n := utf8.DecodeLastRune(x)
		dst = append(dst, x[len(x)-n:]...)
		x = x[:len(x)-n]
	}
	return dst
}

// AppendReverseTime appends 2⁶³-1 − t in 8 bytes: later times sort first.
func AppendReverseTime(dst []byte, t cell.Timestamp) []byte {
	return binary.BigEndian.AppendUint64(dst, math.MaxInt64-uint64(t))
}

// AppendInt64 appends v with its sign bit inverted, in 8 bytes, so that negative
// numbers sort before positive ones. (HBase's Bytes.toBytes(long), which counters
// use, sorts them behind.)
func AppendInt64(dst []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(v)^1<<63)
}

// AppendText appends x, filled up with zero bytes to width: order preserving where
// all texts of a field have one width. The error wraps ErrValue where x is longer,
// or ends in a zero byte, which could not be told from the filling.
func AppendText(dst, x []byte, width int) ([]byte, error) {
	if err := checkText(x, width); err != nil {
		return dst, err
	}
	dst = append(dst, x...)
	for range width - len(x) {
		dst = append(dst, 0)
	}
	return dst, nil
}

// MsOfDay returns the ms since midnight UTC of t, which may lie before 1970:
// 0..86,399,999.
func MsOfDay(t cell.Timestamp) uint32 { return uint32(((t % day) + day) % day) }

// MinuteOfDay returns the minute of t's day in UTC: 0..1439.
func MinuteOfDay(t cell.Timestamp) uint16 { return uint16(MsOfDay(t) / 60_000) }
