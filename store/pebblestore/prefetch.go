package pebblestore

import (
	"sluice/internal/prefetch"
	"sluice/store"
)

// What a commit has gathered it reads in the order of the keys, which is all over the
// memory: to wait for each key-value and each counter costs more than what is done with
// it. The functions of this file ask for what will be needed a little later.

// aheadKVs is how many key-values before it is copied one is asked for.
const aheadKVs = 6

// prefetch asks for the key-value that comes aheadKVs after kvs[i].
func (s *staging) prefetch(kvs []staged, i int) {
	if i += aheadKVs; i < len(kvs) {
		const most = 512 // the processor goes on by itself
		kv := &kvs[i]
		prefetch.Bytes(s.buf[kv.start : kv.start+min(kv.key+kv.value, most)])
	}
}

// How many counters before it is added a counter's key is asked for, and before that, one
// after the other, the counter that leads to it, the slot that leads to the counter, with
// the increment, and what leads to the slot.
const (
	aheadKeys     = 4
	aheadCounters = 2 * aheadKeys
	aheadSlots    = 3 * aheadKeys
	aheadDeltas   = 4 * aheadKeys
)

// prefetchCounters asks for the counters that come after l.sorted[i], of all.
func (c *commit) prefetchCounters(l *deltaList, all []store.CounterDelta, i int) {
	if i+aheadDeltas >= len(l.sorted) {
		return
	}
	cache := c.db.loop.counters
	prefetch.Value(&l.deltas[l.sorted[i+aheadDeltas].at])
	x := &l.deltas[l.sorted[i+aheadSlots].at]
	prefetch.Value(cache.slot(x.hash))
	prefetch.Value(&all[x.i])
	prefetch.Bytes(l.keys[x.start:x.end])
	if e := cache.slot(l.deltas[l.sorted[i+aheadCounters].at].hash).c; e != nil {
		prefetch.Value(e)
	}
	if e := cache.slot(l.deltas[l.sorted[i+aheadKeys].at].hash).c; e != nil {
		prefetch.String(e.key)
	}
}

// prefetchDirty asks for the counters that come after c.dirty[i], and for their keys.
func (c *commit) prefetchDirty(i int) {
	if i+2*aheadKeys >= len(c.dirty) {
		return
	}
	prefetch.Value(c.dirty[i+2*aheadKeys])
	prefetch.String(c.dirty[i+aheadKeys].key)
}
