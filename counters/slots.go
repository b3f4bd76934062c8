package counters

// slots finds numbered things by their hashes, by open addressing: a slot is the high half
// of a hash and, in the low half, the number + 1; 0 = free. There are a power of two of
// them, and at most half are taken.
type slots []uint64

const minSlots = 1 << 10 // 8 KiB: smaller saves nothing and grows at once

// next returns the first slot from at on of a thing that may have the hash, and its number.
// Where there is none, ok is false and the slot is the free one for such a thing.
func (s slots) next(hash, at uint64) (slot uint64, i uint32, ok bool) {
	mask := uint64(len(s) - 1)
	for at &= mask; s[at] != 0; at = (at + 1) & mask {
		if s[at]>>32 == hash>>32 {
			return at, uint32(s[at]) - 1, true
		}
	}
	return at, 0, false
}

// set gives a slot that is free to thing i.
func (s slots) set(slot, hash uint64, i uint32) { s[slot] = hash&^0xFFFFFFFF | uint64(i+1) }

// add gives thing i, which has none, its slot.
func (s slots) add(hash uint64, i uint32) {
	mask := uint64(len(s) - 1)
	at := hash & mask
	for s[at] != 0 {
		at = (at + 1) & mask
	}
	s.set(at, hash, i)
}

// need returns how many slots there are to be for n things: as many as there are where
// that is enough.
func (s slots) need(n int) int {
	room := max(len(s), minSlots)
	for 2*n > room {
		room *= 2
	}
	return room
}
