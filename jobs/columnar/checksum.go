package columnar

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"math"
	"strconv"
)

// Checksum is a digest of each column's values in order, independent of the file
// format, of encodings and of how rows are cut into batches and files. Readers in
// other languages compute the same (internal/integration/readers.py).
//
// A column's digest is the SHA-256 of its values: a null is the byte 0; a value is
// the byte 1, the length of its text (4 bytes big-endian) and its text: strings,
// bytes and JSON as they are, int64 and timestamp (µs) in decimal, bool as true or
// false, float64 as its 8 bytes big-endian, decimals with all digits of their scale,
// maps as what this makes of each key and its value, in their order.
type Checksum struct {
	hashes []hash.Hash
	buffer []byte
}

// NewChecksum returns the checksum of no rows of n columns.
func NewChecksum(n int) *Checksum {
	c := &Checksum{hashes: make([]hash.Hash, n)}
	for i := range c.hashes {
		c.hashes[i] = sha256.New()
	}
	return c
}

// Add appends the rows of b, which has the checksum's columns.
func (c *Checksum) Add(b *Batch) {
	for i, h := range c.hashes {
		v := b.Vector(i)
		c.buffer = c.buffer[:0]
		for j := range v.Len() {
			c.buffer = appendChecksum(c.buffer, v, j)
			if len(c.buffer) >= 64<<10 {
				h.Write(c.buffer)
				c.buffer = c.buffer[:0]
			}
		}
		h.Write(c.buffer)
	}
}

func appendChecksum(dst []byte, v *Vector, i int) []byte {
	if v.IsNull(i) {
		return append(dst, 0)
	}
	start := len(dst)
	dst = append(dst, 1, 0, 0, 0, 0)
	switch v.typ.Storage() {
	case Int64:
		dst = v.typ.AppendNumber(dst, v.int64s[i])
	case Decimal128:
		dst = v.typ.AppendDecimal(dst, v.decimals[i])
	case Float64:
		dst = binary.BigEndian.AppendUint64(dst, math.Float64bits(v.floats[i]))
	case Bool:
		dst = strconv.AppendBool(dst, v.Bool(i))
	case Entries:
		for e, end := v.EntriesOf(i); e < end; e++ {
			dst = appendChecksum(appendChecksum(dst, v.keys, e), v.values, e)
		}
	default:
		dst = append(dst, v.Bytes(i)...)
	}
	binary.BigEndian.PutUint32(dst[start+1:], uint32(len(dst)-start-5))
	return dst
}

// Sums returns the digests of all columns, 64 hex digits each.
func (c *Checksum) Sums() []string {
	sums := make([]string, len(c.hashes))
	for i, h := range c.hashes {
		sums[i] = hex.EncodeToString(h.Sum(nil))
	}
	return sums
}
