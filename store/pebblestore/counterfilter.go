package pebblestore

import (
	"context"
	"errors"
	"math/bits"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/store"
)

// counterFilter knows which counters are certainly not stored: half of those that a
// pipeline asks for and the cache has not are new ones (of the minute that has just
// begun), and to find out from the store costs as much as to write them. It is a
// Bloom filter, in layers of which each is eight times the last, of the keys of all
// counters and distinct counts. What is deleted stays in it, which costs a look-up.
//
// A store that is opened with counters in it has them read beside the commits,
// once; until then the filter excludes nothing. Only the commit loop touches it.
type counterFilter struct {
	layers   []filterLayer
	limit    int64 // of keys; beyond them it excludes nothing any more
	complete bool  // it has every stored counter
	off      bool
}

// filterLayer is a Bloom filter whose bits for one key lie in one cache line.
type filterLayer struct {
	blocks []filterBlock
	room   int // keys that still fit
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

// newCounterFilter returns an empty filter of at most maxBytes, roughly.
func newCounterFilter(maxBytes int64) *counterFilter {
	limit := maxBytes * 8 / filterBitsPerKey
	return &counterFilter{limit: limit, off: limit < firstFilterKeys}
}

// absent reports that no counter with this hash is stored.
func (f *counterFilter) absent(hash uint64) bool {
	return f.complete && !f.off && !f.may(hash)
}

func (f *counterFilter) may(hash uint64) bool {
	for i := range f.layers {
		if f.layers[i].may(hash) {
			return true
		}
	}
	return false
}

// add notes that a counter is stored, or will be.
func (f *counterFilter) add(hash uint64) {
	if f.off || f.may(hash) {
		return
	}
	last := len(f.layers) - 1
	if last < 0 || f.layers[last].room == 0 {
		keys := firstFilterKeys
		for range f.layers {
			keys *= filterGrowth
		}
		if keys = int(min(int64(keys), f.limit)); keys < firstFilterKeys {
			f.layers, f.off = nil, true
			return
		}
		f.limit -= int64(keys)
		f.layers = append(f.layers, newFilterLayer(keys))
		last++
	}
	f.layers[last].add(hash)
}

func newFilterLayer(keys int) filterLayer {
	return filterLayer{blocks: make([]filterBlock, (keys*filterBitsPerKey+511)/512), room: keys}
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

// filterFill reads the counters of a store that has some into the filter.
type filterFill struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// filterChunk is how many counters go into the filter at once: a tenth of a
// millisecond of the commit loop.
const filterChunk = 1 << 12

// startFilter makes the filter complete: at once where no counter is stored, or
// beside the commits. It is called before the commit loop runs.
func (db *DB) startFilter() error {
	db.filling = &filterFill{cancel: func() {}, done: make(chan struct{})}
	f := db.counters.filter
	low, high := []byte{cell.TagCounter}, []byte{cell.TagCounter + 1}
	it, err := db.pebble.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: high})
	if err != nil {
		close(db.filling.done)
		return engineError(err)
	}
	if f.off || !it.First() {
		f.complete = it.Error() == nil
		close(db.filling.done)
		return engineError(it.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	db.filling.cancel = cancel
	go func() {
		defer close(db.filling.done)
		defer cancel()
		if err := db.fillFilter(ctx, it); err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrClosed) {
			// Whoever needs what cannot be read is told.
			db.opts.Logger.Warn("counters are looked up one by one: they could not be read at once", "err", err)
		}
	}()
	return nil
}

// fillFilter reads on from it, which it closes. What is written meanwhile the
// commits add.
func (db *DB) fillFilter(ctx context.Context, it *pebble.Iterator) (err error) {
	defer func() {
		if e := db.closeIterator(it); err == nil {
			err = e
		}
	}()
	f := db.counters.filter
	hashes := make([]uint64, 0, filterChunk)
	take := func(complete bool) error {
		defer func() { hashes = hashes[:0] }()
		return db.exclusive(ctx, func() error {
			for _, h := range hashes {
				f.add(h)
			}
			f.complete = complete
			return nil
		})
	}
	for ok := true; ok; ok = it.Next() {
		hashes = append(hashes, db.counters.hash(it.Key()))
		if len(hashes) < filterChunk {
			continue
		}
		if err := take(false); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return engineError(err)
	}
	return take(true)
}

// stop ends the reading.
func (f *filterFill) stop() {
	f.cancel()
	<-f.done
}
