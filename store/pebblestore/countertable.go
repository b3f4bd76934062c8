package pebblestore

import "math/bits"

// counterTable finds counters by the hashes of their keys.
type counterTable struct {
	slots []counterSlot // a power of two
	n     int
}

type counterSlot struct {
	hash uint64
	c    *counter // nil = free
}

func newCounterTable(counters int) counterTable {
	return counterTable{slots: make([]counterSlot, 1<<bits.Len(uint(max(counters, 4)*4/3)))}
}

// find returns the slot of a key: its own, or the free one where it belongs.
func (t *counterTable) find(hash uint64, key []byte) *counterSlot {
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.c == nil || s.hash == hash && s.c.key == string(key) {
			return s
		}
	}
}

// add adds a counter that is not there.
func (t *counterTable) add(c *counter) {
	if t.n >= len(t.slots)/4*3 {
		old := t.slots
		t.slots = make([]counterSlot, 2*len(old))
		for _, s := range old {
			if s.c != nil {
				*t.find(s.hash, []byte(s.c.key)) = s
			}
		}
	}
	t.n++
	*t.find(c.hash, []byte(c.key)) = counterSlot{c.hash, c}
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
	t.n--
	// What comes behind and had to step aside for it moves up.
	for i := (at + 1) & mask; t.slots[i].c != nil; i = (i + 1) & mask {
		if home := t.slots[i].hash & mask; (i-home)&mask >= (i-at)&mask {
			t.slots[at], at = t.slots[i], i
		}
	}
	t.slots[at] = counterSlot{}
}
