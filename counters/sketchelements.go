package counters

import (
	"encoding/binary"
	"iter"
	"math/bits"
)

// Elements yields texts of 8 bytes, one a register in use, of which s is the sketch:
// a Sketch that these are added to, in any order, has its registers, whatever else it
// has. They are not what was added to s, which nothing knows any more. A text is valid
// until the next one.
func (s *Sketch) Elements() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var text [8]byte
		one := func(register int, rank uint8) bool {
			binary.LittleEndian.PutUint64(text[:], hashed(hashOf(register, rank)))
			return yield(text[:])
		}
		for _, e := range s.sparse {
			if !one(int(e>>6), uint8(e&63)) {
				return
			}
		}
		for i, rank := range s.dense {
			if rank > 0 && !one(i, rank) {
				return
			}
		}
	}
}

// Registers returns how many registers are in use: how many texts Elements yields.
func (s *Sketch) Registers() int {
	n := len(s.sparse)
	for _, rank := range s.dense {
		if rank > 0 {
			n++
		}
	}
	return n
}

// Bytes returns about how much memory the sketch takes.
func (s *Sketch) Bytes() int { return 4*cap(s.sparse) + len(s.dense) }

// hashOf returns the smallest hash that raises a register to a rank of 1..51.
func hashOf(register int, rank uint8) uint64 {
	h := uint64(register) << (64 - SketchPrecision)
	if rank < maxRank {
		h |= 1 << (64 - SketchPrecision - rank)
	}
	return h
}

// The primes of XXH64, and their inverses modulo 2^64: every step of it that a text of
// 8 bytes goes through can be taken back.
const (
	prime1 = 11400714785074694791
	prime2 = 14029467366897019727
	prime3 = 1609587929392839161
	prime4 = 9650029242287828579
	prime5 = 2870177450012600261

	inverse1 = 614540362697595703
	inverse2 = 839798700976720815
	inverse3 = 16855272203555305545
)

// hashed returns the number that, as 8 bytes little-endian, has the XXH64 (seed 0) h.
func hashed(h uint64) uint64 {
	// The avalanche, backwards.
	h ^= h >> 32
	h *= inverse3
	h ^= h>>29 ^ h>>58
	h *= inverse2
	h ^= h >> 33
	// One round of 8 bytes, backwards, into the length and the fifth prime.
	h = bits.RotateLeft64((h-prime4)*inverse1, -27)
	h ^= prime5 + 8
	return bits.RotateLeft64(h*inverse1, -31) * inverse2
}
