package pebblestore

import (
	"math/bits"

	"sluice/internal/prefetch"
)

// keyFilter knows which keys are certainly not stored. It is of counters and distinct
// counts, as half of those that a pipeline asks for and the cache has not are new ones (of
// the minute that has just begun), and of event ids, which nearly all are new: to find out
// from the store costs as much as to write them, or more. It is a Bloom filter, in layers of
// which each is eight times the last. What is deleted stays in it, which costs a look-up.
//
// A store that is opened with such keys in it has them read beside the commits, once; until
// then the filter excludes nothing. Only the commit loop touches it.
type keyFilter struct {
	layers   []filterLayer
	limit    *int64 // keys that all filters which share it may still have; without them it excludes nothing any more
	complete bool   // it has every stored key
	off      bool
}

// filterLayer is a Bloom filter whose bits for one key lie in one cache line.
type filterLayer struct {
	blocks []filterBlock
	keys   int // that fit
	room   int // of them, what still fits
}

type filterBlock [8]uint64

const (
	// firstFilterKeys fit in the first layer, 80 KiB.
	firstFilterKeys = 1 << 16
	filterGrowth    = 8
	// At ten bits a key, six of them set, a layer that is full passes 1.5 % of
	// what it has not.
	filterBitsPerKey = 10
	filterProbes     = 6
)

// newKeyFilter returns an empty filter of at most maxBytes, roughly.
func newKeyFilter(maxBytes int64) *keyFilter {
	limit := filterLimit(maxBytes)
	return &keyFilter{limit: &limit, off: limit < firstFilterKeys}
}

// filterLimit is how many keys have room in so many bytes, roughly.
func filterLimit(maxBytes int64) int64 { return maxBytes * 8 / filterBitsPerKey }

// absent reports that no key with this hash is stored.
func (f *keyFilter) absent(hash uint64) bool {
	return f.complete && !f.off && !f.may(hash)
}

func (f *keyFilter) may(hash uint64) bool {
	for i := range f.layers {
		if f.layers[i].may(hash) {
			return true
		}
	}
	return false
}

// prefetch asks for what may and add read of a key with this hash.
func (f *keyFilter) prefetch(hash uint64) {
	for i := range f.layers {
		b, _ := f.layers[i].place(hash)
		prefetch.Value(b)
	}
}

// add notes that a key is stored, or will be.
func (f *keyFilter) add(hash uint64) {
	if f.off || f.may(hash) {
		return
	}
	last := len(f.layers) - 1
	if last < 0 || f.layers[last].room == 0 {
		keys := firstFilterKeys
		for range f.layers {
			keys *= filterGrowth
		}
		if keys = int(min(int64(keys), *f.limit)); keys < firstFilterKeys {
			f.drop()
			f.off = true
			return
		}
		*f.limit -= int64(keys)
		f.layers = append(f.layers, newFilterLayer(keys))
		last++
	}
	f.layers[last].add(hash)
}

// drop gives back what f has of its limit. It has no keys afterwards.
func (f *keyFilter) drop() {
	for i := range f.layers {
		*f.limit += int64(f.layers[i].keys)
	}
	f.layers = nil
}

func newFilterLayer(keys int) filterLayer {
	return filterLayer{blocks: make([]filterBlock, (keys*filterBitsPerKey+511)/512), keys: keys, room: keys}
}

// place returns the block of a hash and the bits in it, nine for each probe.
func (l *filterLayer) place(hash uint64) (*filterBlock, uint64) {
	at, _ := bits.Mul64(hash, uint64(len(l.blocks)))
	return &l.blocks[at], hash * 0x9e3779b97f4a7c15
}

func (l *filterLayer) may(hash uint64) bool {
	b, probes := l.place(hash)
	for range filterProbes {
		if b[probes>>6&7]&(1<<(probes&63)) == 0 {
			return false
		}
		probes >>= 9
	}
	return true
}

func (l *filterLayer) add(hash uint64) {
	b, probes := l.place(hash)
	for range filterProbes {
		b[probes>>6&7] |= 1 << (probes & 63)
		probes >>= 9
	}
	l.room--
}
