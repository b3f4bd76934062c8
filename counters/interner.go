package counters

import "hash/maphash"

// interner numbers byte strings, each under a tag, from 0 on in the order in which they
// come. It keeps them in an arena of its own. Once that has grown to the size of a batch
// it allocates nothing.
type interner struct {
	seed    maphash.Seed
	entries []interned
	arena   []byte // of the entries, in their order
	slots   slots  // of the entries
}

// interned is one string.
type interned struct {
	start  int // in the arena
	length uint32
	tag    uint32

	first uint32 // the Coalescer's: index of the first sum; none = it has no sum yet
	next  uint32 // the Coalescer's, see there
}

const (
	internedSize = 24
	// internedBytes is what one string holds beside its bytes: the struct, and two
	// slots, as the table is at most half full.
	internedBytes = internedSize + 2*8
)

// key returns string i, valid until reset, without spare capacity.
func (n *interner) key(i uint32) []byte {
	e := &n.entries[i]
	end := e.start + int(e.length)
	return n.arena[e.start:end:end]
}

// number returns the number of key under tag, a new one, and then copies key, where it
// has none.
func (n *interner) number(tag uint32, key []byte) uint32 {
	h := n.hash(tag, key)
	at, i, ok := n.slots.next(h, h)
	for ; ok; at, i, ok = n.slots.next(h, at+1) {
		if n.entries[i].tag == tag && string(n.key(i)) == string(key) {
			return i
		}
	}
	i = uint32(len(n.entries))
	n.entries = append(n.entries, interned{start: len(n.arena), length: uint32(len(key)), tag: tag, first: none})
	n.arena = append(n.arena, key...)
	n.slots.set(at, h, i)
	if 2*len(n.entries) > len(n.slots) {
		n.grow(2 * len(n.slots))
	}
	return i
}

func (n *interner) hash(tag uint32, key []byte) uint64 {
	return (maphash.Bytes(n.seed, key) + uint64(tag)) * spread
}

// grow makes the slots as many, a power of two. A slot holds only the hash's high half,
// so that the strings are hashed again.
func (n *interner) grow(room int) {
	n.slots = make(slots, room)
	for i := range n.entries {
		n.slots.add(n.hash(n.entries[i].tag, n.key(uint32(i))), uint32(i))
	}
}

// reset forgets all strings and keeps the memory.
func (n *interner) reset() {
	n.entries, n.arena = n.entries[:0], n.arena[:0]
	clear(n.slots)
}

// bytes returns the memory that the strings hold.
func (n *interner) bytes() int { return len(n.arena) + len(n.entries)*internedBytes }

// held returns the memory that n keeps, in bytes: at least bytes.
func (n *interner) held() int {
	return cap(n.arena) + cap(n.entries)*internedSize + len(n.slots)*8
}

// growth returns how much memory reserve allocates for as many strings more, of bytes
// bytes together, while what it outgrows is still held.
func (n *interner) growth(more, bytes int) int {
	size := 0
	if room := grown(len(n.entries), cap(n.entries), more); room > cap(n.entries) {
		size += room * internedSize
	}
	if room := grown(len(n.arena), cap(n.arena), bytes); room > cap(n.arena) {
		size += room
	}
	if room := n.slots.need(len(n.entries) + more); room > len(n.slots) {
		size += room * 8
	}
	return size
}

// reserve makes room for as many strings more, of bytes bytes together.
func (n *interner) reserve(more, bytes int) {
	if room := grown(len(n.entries), cap(n.entries), more); room > cap(n.entries) {
		n.entries = append(make([]interned, 0, room), n.entries...)
	}
	if room := grown(len(n.arena), cap(n.arena), bytes); room > cap(n.arena) {
		n.arena = append(make([]byte, 0, room), n.arena...)
	}
	if room := n.slots.need(len(n.entries) + more); room > len(n.slots) {
		n.grow(room)
	}
}
