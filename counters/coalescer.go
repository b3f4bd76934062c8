package counters

import (
	"hash/maphash"
	"math/bits"
	"strings"

	"sluice/cell"
)

// Delta is the sum of a batch's increments of one counter. Its fields are those of
// store.CounterDelta, to which it converts.
type Delta struct {
	Table     string
	Family    string
	Row       []byte
	Qualifier []byte
	Delta     int64
	Time      cell.Timestamp // newest event time among the increments
	Offset    int64          // of the first record that touched it
}

// Coalescer sums the increments of one batch, a delta a counter. It copies rows
// and qualifiers into an arena and, once that has grown to the size of a batch,
// allocates nothing. Make one with NewCoalescer. It belongs to one goroutine at a
// time.
type Coalescer struct {
	seed     maphash.Seed
	families []family // what the counters' family indexes point at
	guess    int      // index of the family that comes next if rules repeat in order
	sums     []sum    // in order of their first increment
	arena    []byte   // row and qualifier of each sum, in the same order
	slots    []uint64 // open addressing: high half of the hash, low half index into sums + 1; 0 = free
}

// family is a table and family by number, so that the hot path compares no names.
type family struct{ table, name string }

// sum is one counter of the batch.
type sum struct {
	key       int // start in the arena
	row       int // length
	qualifier int // length
	family    uint32
	delta     int64
	time      cell.Timestamp
	offset    int64
}

const (
	minSlots = 1 << 10 // 8 KiB: smaller saves nothing and grows at once
	// maxFamilies bounds what Reset keeps. Names come from compiled rules, a
	// handful; only tables named by day bring new ones for ever.
	maxFamilies = 64
	// sumBytes is what one sum holds beside its key: the struct, and two slots,
	// as the table is at most half full.
	sumBytes = sumSize + 2*8
	sumSize  = 56
	// minSums is the least that sums and their keys grow to.
	minSums = 64
)

// NewCoalescer returns an empty Coalescer.
func NewCoalescer() *Coalescer {
	return &Coalescer{seed: maphash.MakeSeed(), slots: make([]uint64, minSlots)}
}

// Add adds delta, of an event at time t in the record at offset, to one counter.
// The count wraps around as Merge does; the newest time and the first offset are
// kept, also where the deltas add up to 0. row and qualifier are copied.
func (c *Coalescer) Add(table, familyName string, row, qualifier []byte, delta int64, t cell.Timestamp, offset int64) {
	f := c.familyIndex(table, familyName)
	h := c.hash(f, row, qualifier)
	mask := uint64(len(c.slots) - 1)
	i := h & mask
	for ; c.slots[i] != 0; i = (i + 1) & mask {
		if c.slots[i]>>32 != h>>32 {
			continue
		}
		s := &c.sums[uint32(c.slots[i])-1]
		if s.family == f && c.holds(s, row, qualifier) {
			s.delta += delta
			s.time = max(s.time, t)
			return
		}
	}
	c.sums = append(c.sums, sum{
		key: len(c.arena), row: len(row), qualifier: len(qualifier), family: f,
		delta: delta, time: t, offset: offset,
	})
	c.arena = append(append(c.arena, row...), qualifier...)
	c.slots[i] = h&^0xFFFFFFFF | uint64(uint32(len(c.sums)))
	if 2*len(c.sums) > len(c.slots) {
		c.grow(2 * len(c.slots))
	}
}

// Len returns the number of counters, 0 of nil.
func (c *Coalescer) Len() int {
	if c == nil {
		return 0
	}
	return len(c.sums)
}

// Bytes returns the memory that the counters hold. It grows with Add and is 0
// after Reset, though the memory is kept.
func (c *Coalescer) Bytes() int { return len(c.arena) + len(c.sums)*sumBytes }

// Held returns the memory that c keeps, in bytes: at least Bytes.
func (c *Coalescer) Held() int {
	return cap(c.arena) + cap(c.sums)*sumSize + len(c.slots)*8
}

// Growth returns how much memory Reserve allocates for n counters more with keys of as
// many bytes, while what it outgrows is still held. Of nil, it is that of a new
// Coalescer besides.
func (c *Coalescer) Growth(n, keys int) int {
	if c == nil {
		c = new(Coalescer)
	}
	size := 0
	if room := grown(len(c.sums), cap(c.sums), n); room > cap(c.sums) {
		size += room * sumSize
	}
	if room := grown(len(c.arena), cap(c.arena), keys); room > cap(c.arena) {
		size += room
	}
	if slots := c.slotsFor(n); slots > len(c.slots) {
		size += slots * 8
	}
	return size
}

// Reserve makes room for n counters more with keys of as many bytes together: the next
// n calls of Add allocate nothing.
func (c *Coalescer) Reserve(n, keys int) {
	if room := grown(len(c.sums), cap(c.sums), n); room > cap(c.sums) {
		c.sums = append(make([]sum, 0, room), c.sums...)
	}
	if room := grown(len(c.arena), cap(c.arena), keys); room > cap(c.arena) {
		c.arena = append(make([]byte, 0, room), c.arena...)
	}
	if slots := c.slotsFor(n); slots > len(c.slots) {
		c.grow(slots)
	}
}

// slotsFor returns how many slots n counters more need.
func (c *Coalescer) slotsFor(n int) int {
	slots := max(len(c.slots), minSlots)
	for 2*(len(c.sums)+n) > slots {
		slots *= 2
	}
	return slots
}

// grown returns the capacity that a slice of length n and capacity room is to have for
// more elements: room where they fit.
func grown(n, room, more int) int {
	if n+more <= room {
		return room
	}
	return max(minSums, 2*room, n+more)
}

// Deltas calls yield with each counter's delta, in the order of their first
// increments, until it returns false: an iter.Seq. The slices are valid until
// Reset; the Coalescer must not change while it runs.
func (c *Coalescer) Deltas(yield func(Delta) bool) {
	for i := range c.sums {
		s := &c.sums[i]
		f := &c.families[s.family]
		row, qualifier := c.key(s)
		if !yield(Delta{
			Table: f.table, Family: f.name, Row: row, Qualifier: qualifier,
			Delta: s.delta, Time: s.time, Offset: s.offset,
		}) {
			return
		}
	}
}

// Reset empties c and keeps its memory. It ends the life of the slices that
// Deltas yielded.
func (c *Coalescer) Reset() {
	c.sums, c.arena = c.sums[:0], c.arena[:0]
	clear(c.slots)
	if len(c.families) > maxFamilies {
		c.families, c.guess = nil, 0
	}
}

// familyIndex returns the number of a table and family, a new one where it has
// none. Rules emit their increments in the same order for every record, so that
// the family after the last one asked for is nearly always the right one.
func (c *Coalescer) familyIndex(table, name string) uint32 {
	i := c.guess
	for range c.families {
		if i >= len(c.families) {
			i = 0
		}
		if f := &c.families[i]; f.name == name && f.table == table {
			c.guess = i + 1
			return uint32(i)
		}
		i++
	}
	// Cloned, so that names cut out of a reused buffer do no harm.
	c.families = append(c.families, family{table: strings.Clone(table), name: strings.Clone(name)})
	c.guess = 0
	return uint32(len(c.families) - 1)
}

// hash mixes the parts so that row "a", qualifier "bc" and row "ab", qualifier
// "c" differ.
func (c *Coalescer) hash(f uint32, row, qualifier []byte) uint64 {
	h := maphash.Bytes(c.seed, row) + uint64(f)
	h = bits.RotateLeft64(h, 29) ^ maphash.Bytes(c.seed, qualifier)
	return h * 0x9E3779B97F4A7C15 // 2⁶⁴ / golden ratio: spreads the sum of the two over all bits
}

func (c *Coalescer) key(s *sum) (row, qualifier []byte) {
	middle, end := s.key+s.row, s.key+s.row+s.qualifier
	return c.arena[s.key:middle:middle], c.arena[middle:end:end]
}

func (c *Coalescer) holds(s *sum, row, qualifier []byte) bool {
	r, q := c.key(s)
	return string(r) == string(row) && string(q) == string(qualifier)
}

// grow makes the slots as many, a power of two. A slot holds only the hash's high half, so that the
// sums are hashed again.
func (c *Coalescer) grow(slots int) {
	c.slots = make([]uint64, slots)
	mask := uint64(len(c.slots) - 1)
	for n := range c.sums {
		s := &c.sums[n]
		row, qualifier := c.key(s)
		h := c.hash(s.family, row, qualifier)
		i := h & mask
		for c.slots[i] != 0 {
			i = (i + 1) & mask
		}
		c.slots[i] = h&^0xFFFFFFFF | uint64(n+1)
	}
}
