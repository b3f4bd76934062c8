package rowkey

import (
	"fmt"

	"sluice/cell"
)

// MaxBuckets is the most buckets of a Salt, which is one byte.
const MaxBuckets = 256

// Salt puts one byte before keys, so that keys which count up spread over as many
// ranges as there are buckets. A row is found by its key as before, as the byte is
// computed from it; a range of keys is in all buckets (rowkey/salted scans them
// together). The number of buckets can never change while a table has rows.
//
// The zero value has one bucket.
type Salt struct{ last uint8 }

// NewSalt returns a salt of buckets, 1..MaxBuckets. Its error wraps ErrValue.
func NewSalt(buckets int) (Salt, error) {
	if buckets < 1 || buckets > MaxBuckets {
		return Salt{}, fmt.Errorf("%w: %d buckets, a salt has 1 to %d", ErrValue, buckets, MaxBuckets)
	}
	return Salt{last: uint8(buckets - 1)}, nil
}

// Buckets returns how many there are.
func (s Salt) Buckets() int { return int(s.last) + 1 }

// Of returns the bucket of x: Hash64(x) modulo the number of buckets. Rows that
// are to be read together, such as one user's, get a salt of what they share.
func (s Salt) Of(x []byte) byte { return byte(Hash64(x) % uint64(s.Buckets())) }

// Append appends key with its salt before it.
func (s Salt) Append(dst, key []byte) []byte { return append(append(dst, s.Of(key)), key...) }

// Split returns the bucket and the key of a salted key, whose memory key shares.
// The error wraps ErrKey where there is no salt, or one of more buckets.
func (s Salt) Split(salted []byte) (bucket byte, key []byte, err error) {
	if len(salted) == 0 || salted[0] > s.last {
		return 0, nil, fmt.Errorf("%w: %.100q has no salt of %d buckets", ErrKey, salted, s.Buckets())
	}
	return salted[0], salted[1:], nil
}

// SplitPoints returns the n-1 split points of a table that has a region a bucket.
func (s Salt) SplitPoints() [][]byte {
	points := make([][]byte, 0, s.last)
	for b := 1; b <= int(s.last); b++ {
		points = append(points, []byte{byte(b)})
	}
	return points
}

// Ranges returns where the keys in r are, one range a bucket, in order.
func (s Salt) Ranges(r cell.Range) []cell.Range {
	ranges := make([]cell.Range, s.Buckets())
	for b := range ranges {
		ranges[b].Start = append([]byte{byte(b)}, r.Start...)
		switch {
		case len(r.Stop) > 0:
			ranges[b].Stop = append([]byte{byte(b)}, r.Stop...)
		case b < MaxBuckets-1:
			ranges[b].Stop = []byte{byte(b + 1)}
		}
	}
	return ranges
}
