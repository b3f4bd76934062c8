package pebblestore

import (
	"hash/maphash"
	"sync/atomic"
)

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
// a count are unpacked a little early. It is safe for concurrent use.
type packing struct {
	seed  maphash.Seed
	total atomic.Int64
	bytes [packingRows]atomic.Uint32
}

// allows reports whether size bytes more of a row and family may be packed, and
// counts them.
func (p *packing) allows(table uint32, family uint8, row []byte, size int) bool {
	if total := p.total.Add(int64(size)); total > packingEpoch && p.total.CompareAndSwap(total, int64(size)) {
		for i := range p.bytes {
			p.bytes[i].Store(0)
		}
	}
	h := maphash.Bytes(p.seed, row) + (uint64(table)<<8|uint64(family))*0x9E3779B97F4A7C15
	n := &p.bytes[h%packingRows]
	if n.Load() > maxFragmentBytes {
		return false
	}
	n.Add(uint32(size))
	return true
}
