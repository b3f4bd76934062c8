package hbasestore

import "sluice/counters"

// base is the cell of a counter that a batch builds on: of one source and partition.
type base struct {
	count
	at     int64            // its timestamp: the offset after the last increment in it; 0 = the cell is absent
	sketch *counters.Sketch // of a distinct count, which has no count; nil = none yet
	weight int              // in the cache that has it
}

// counterBytes is how many bytes of keys and sketches weigh as much as a counter: one of a
// key of less, all in all.
const counterBytes = 200

// baseCache keeps the cells of a partition's counters. Those that were not asked for
// since the last limit are dropped first. The zero value is empty.
type baseCache struct {
	young, old baseSet
}

// baseSet is cells by the keys of their counters.
type baseSet struct {
	bases  map[string]base
	weight int
}

// get returns a cell, whose sketch the caller may change if it puts it back.
func (b *baseCache) get(key string) (base, bool) {
	v, ok := b.young.bases[key]
	if !ok {
		if v, ok = b.old.bases[key]; ok {
			b.put(key, v)
		}
	}
	return v, ok
}

func (b *baseCache) put(key string, v base) {
	size := len(key)
	if v.sketch != nil {
		size += v.sketch.Bytes()
	}
	v.weight = 1 + size/counterBytes
	y := &b.young
	if y.bases == nil {
		y.bases = map[string]base{}
	}
	y.weight += v.weight - y.bases[key].weight
	y.bases[key] = v
}

// limit bounds what is kept to the weight of n counters, but for what the batch before
// has touched. Half of it is kept for longer where it is asked for.
func (b *baseCache) limit(n int) {
	if b.young.weight > n/2 {
		b.old, b.young = b.young, baseSet{}
	}
	if b.old.weight > n {
		b.old = baseSet{}
	}
}
