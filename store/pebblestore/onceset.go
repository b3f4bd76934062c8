package pebblestore

import (
	"bytes"

	"sluice/internal/prefetch"
)

// onceSet is the event ids that a commit uses, in order, each once, with their stored keys.
// It belongs to the commit loop. The zero value is empty.
type onceSet struct {
	ids   []onceEntry
	keys  []byte
	slots []uint32 // 1 + index in ids, at most half of them: open addressing by hash
	order keyOrder
}

// onceEntry is one event id.
type onceEntry struct {
	start, end int    // of its key in onceSet.keys
	hash       uint64 // of the id
}

// minOnceSlots is how many slots the first id makes, a power of two.
const minOnceSlots = 64

func (s *onceSet) len() int { return len(s.ids) }

// key returns the stored key of id i, valid until the next add.
func (s *onceSet) key(i int) []byte { return s.keys[s.ids[i].start:s.ids[i].end:s.ids[i].end] }

// add adds the id with this hash, whose key is prefix and id, unless it is there.
func (s *onceSet) add(hash uint64, prefix, id []byte) (added bool) {
	if 2*len(s.ids) >= len(s.slots) {
		s.grow()
	}
	mask := uint64(len(s.slots) - 1)
	at := hash & mask
	for ; s.slots[at] != 0; at = (at + 1) & mask {
		i := int(s.slots[at] - 1)
		if s.ids[i].hash != hash {
			continue
		}
		if k := s.key(i); len(k) == len(prefix)+len(id) && bytes.Equal(k[:len(prefix)], prefix) && bytes.Equal(k[len(prefix):], id) {
			return false
		}
	}
	start := len(s.keys)
	s.keys = append(append(s.keys, prefix...), id...)
	s.ids = append(s.ids, onceEntry{start: start, end: len(s.keys), hash: hash})
	s.slots[at] = uint32(len(s.ids))
	return true
}

// prefetch asks for where add looks for an id with this hash.
func (s *onceSet) prefetch(hash uint64) {
	if len(s.slots) > 0 {
		prefetch.Value(&s.slots[hash&uint64(len(s.slots)-1)])
	}
}

func (s *onceSet) grow() {
	s.slots = make([]uint32, max(minOnceSlots, 2*len(s.slots)))
	mask := uint64(len(s.slots) - 1)
	for i := range s.ids {
		at := s.ids[i].hash & mask
		for s.slots[at] != 0 {
			at = (at + 1) & mask
		}
		s.slots[at] = uint32(i + 1)
	}
}

// truncate forgets the ids from n on.
func (s *onceSet) truncate(n int) {
	mask := uint64(len(s.slots) - 1)
	for i := len(s.ids) - 1; i >= n; i-- {
		// What was added last none of the others has been passed by.
		at := s.ids[i].hash & mask
		for s.slots[at] != uint32(i+1) {
			at = (at + 1) & mask
		}
		s.slots[at] = 0
		s.keys = s.keys[:s.ids[i].start]
	}
	s.ids = s.ids[:n]
}

// reset empties s, which keeps the memory of a usual commit.
func (s *onceSet) reset() {
	switch {
	case cap(s.keys) > maxRetainedBytes:
		*s = onceSet{}
		return
	case len(s.ids) < len(s.slots)/16:
		s.truncate(0)
		return
	}
	clear(s.slots)
	s.ids, s.keys = s.ids[:0], s.keys[:0]
}

// sorted calls set for the key of each id, in the order of the keys.
func (s *onceSet) sorted(set func(key []byte) error) error {
	if len(s.ids) == 0 {
		return nil
	}
	order := s.order.of(len(s.ids), s.key)
	for i := range order {
		if j := i + aheadKVs; j < len(order) {
			prefetch.Bytes(s.key(int(order[j].at)))
		}
		if err := set(s.key(int(order[i].at))); err != nil {
			return err
		}
	}
	return nil
}
