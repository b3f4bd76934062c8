package pebblestore

// What a commit has gathered it reads in the order of the keys, which is all over the
// memory: to wait for each key-value and each counter costs as much as what is done
// with it. The functions of this file read a byte of what will be needed a little
// later; a core does not wait for such a read, and finds the rest in the cache. They
// are not inlined, as the compiler would leave out a read that nobody uses.

// aheadKVs is how many key-values before it is copied one is asked for.
const aheadKVs = 6

// prefetch asks for the key-value that comes aheadKVs after kvs[i].
func (s *staging) prefetch(kvs []staged, i int) {
	if i += aheadKVs; i < len(kvs) {
		const most = 512 // the processor goes on by itself
		kv := &kvs[i]
		touch(s.buf[kv.start : kv.start+min(kv.key+kv.value, most)])
	}
}

// touch reads a byte of each of b's cache lines.
//
//go:noinline
func touch(b []byte) (sum byte) {
	const line = 64
	for i := 0; i < len(b); i += line {
		sum += b[i]
	}
	return sum
}

// How many counters before it is added a counter is asked for, and before that the
// slot that leads to it.
const (
	aheadCounters = 4
	aheadSlots    = 2 * aheadCounters
)

// prefetchCounters asks for the counters that come after l.sorted[i].
func (c *commit) prefetchCounters(l *deltaList, i int) {
	if i+aheadSlots >= len(l.sorted) {
		return
	}
	cache := c.db.counters
	touchSlot(cache.slot(l.deltas[l.sorted[i+aheadSlots].at].hash))
	if e := cache.slot(l.deltas[l.sorted[i+aheadCounters].at].hash).c; e != nil {
		touchCounter(e)
	}
}

//go:noinline
func touchSlot(s *counterSlot) uint64 { return s.hash }

//go:noinline
func touchCounter(e *counter) byte {
	if len(e.key) == 0 {
		return 0
	}
	return e.key[0]
}
