package pebblestore

import "math/bits"

// counterTable finds counters by the hashes of their keys, and knows which of them nobody has
// asked for lately: its hand goes round and takes away those that were not asked for since it
// has passed them (CLOCK).
type counterTable struct {
	slots []counterSlot // a power of two, of which a quarter or more is free
	n     int
	hand  int // the slot that is looked at next
}

type counterSlot struct {
	hash uint64   // but for its first bit, askedFor
	c    *counter // nil = free
}

// askedFor is the bit of counterSlot.hash that says that the counter was asked for since the
// hand has passed it. What decides where a slot is are the last bits.
const askedFor = 1 << 63

func newCounterTable(counters int) counterTable {
	return counterTable{slots: make([]counterSlot, 1<<bits.Len(uint(max(counters, 4)*4/3)))}
}

// find returns the counter of a key, which it notes as asked for, or nil.
func (t *counterTable) find(hash uint64, key []byte) *counter {
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.c == nil {
			return nil
		}
		if (s.hash^hash)&^askedFor == 0 && s.c.key == string(key) {
			s.hash |= askedFor
			return s.c
		}
	}
}

// add adds a counter that is not there, as one that was asked for.
func (t *counterTable) add(c *counter) {
	if t.n >= len(t.slots)/4*3 {
		old := t.slots
		t.slots, t.hand = make([]counterSlot, 2*len(old)), 0
		for _, s := range old {
			if s.c != nil {
				t.put(s)
			}
		}
	}
	t.n++
	t.put(counterSlot{c.hash | askedFor, c})
}

// put puts s where it belongs, there being no other of its key.
func (t *counterTable) put(s counterSlot) {
	mask := uint64(len(t.slots) - 1)
	i := s.hash & mask
	for t.slots[i].c != nil {
		i = (i + 1) & mask
	}
	t.slots[i] = s
}

// remove removes a counter, if it is there.
func (t *counterTable) remove(c *counter) {
	mask := uint64(len(t.slots) - 1)
	at := c.hash & mask
	for ; t.slots[at].c != c; at = (at + 1) & mask {
		if t.slots[at].c == nil {
			return
		}
	}
	t.free(at)
}

// free frees a slot.
func (t *counterTable) free(at uint64) {
	mask := uint64(len(t.slots) - 1)
	t.n--
	// What comes behind and had to step aside for it moves up.
	for i := (at + 1) & mask; t.slots[i].c != nil; i = (i + 1) & mask {
		if home := t.slots[i].hash & mask; (i-home)&mask >= (i-at)&mask {
			t.slots[at], at = t.slots[i], i
		}
	}
	t.slots[at] = counterSlot{}
}

// shrink takes away counters until there are no more than most, those first that were not
// asked for since the hand has passed them.
func (t *counterTable) shrink(most int) {
	for t.n > most {
		switch s := &t.slots[t.hand]; {
		case s.c == nil:
		case s.hash&askedFor != 0:
			s.hash &^= askedFor
		default:
			t.free(uint64(t.hand))
			continue // what has moved up is looked at, too
		}
		t.hand = (t.hand + 1) & (len(t.slots) - 1)
	}
}
