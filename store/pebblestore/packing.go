package pebblestore

import "hash/maphash"

// Fragments of a row are in memory together when it is read. Once maxFragmentBytes
// of a row were packed, its further puts are a key a cell, which are streamed. The
// count begins anew after packingEpoch bytes of all rows, and when the store is
// opened.
const (
	maxFragmentBytes = 1 << 20
	packingEpoch     = 1 << 30
	packingRows      = 1 << 14
)

// packing counts what is packed of each row, by hashes of rows: two rows that share
// a count are unpacked a little early. It belongs to the commit loop.
type packing struct {
	seed  maphash.Seed
	total int
	bytes [packingRows]uint32
}

// allows reports whether size bytes more of a row and family may be packed, and
// counts them.
func (p *packing) allows(table uint32, family uint8, row []byte, size int) bool {
	if p.total += size; p.total > packingEpoch {
		p.total = size
		clear(p.bytes[:])
	}
	h := maphash.Bytes(p.seed, row) + (uint64(table)<<8|uint64(family))*0x9E3779B97F4A7C15
	n := &p.bytes[h%packingRows]
	if *n > maxFragmentBytes {
		return false
	}
	*n += uint32(size)
	return true
}
