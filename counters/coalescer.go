package counters

import (
	"hash/maphash"
	"math"
	"math/bits"

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
// and qualifiers into arenas and, once these have grown to the size of a batch,
// allocates nothing. Make one with NewCoalescer. It belongs to one goroutine at a
// time.
//
// Rows and columns are numbered, and a counter is a pair of numbers: an event that is
// counted by minute, hour and day has one row in three columns, and the columns are
// those of the event before, until the minute ends.
type Coalescer struct {
	families []family // what the columns' tags point at
	rows     interner
	columns  interner // qualifiers, their families as tags; next: the column that came behind it
	sums     []sum    // in order of their first increment
	slots    slots    // of the sums that are neither their row's nor their column's first
	column   uint32   // of the last increment
	indexes  []uint32 // of the last mutation
	from     func(table, family string) cell.Timestamp
}

// family is a table and family by number, so that the hot path compares no names. One whose
// counters expire has another number for what is too late.
type family struct {
	table, name string
	from        cell.Timestamp // older increments are late
	late        bool
}

// forever is before every timestamp.
const forever cell.Timestamp = math.MinInt64

// sum is one counter of the batch.
type sum struct {
	row, column uint32
	delta       int64
	time        cell.Timestamp
	offset      int64
}

const (
	// maxFamilies bounds what Reset keeps. Names come from compiled rules, a
	// handful; only tables named by day bring new ones for ever.
	maxFamilies = 64
	// sumBytes is what one sum holds beside its row and column: the struct, and two
	// slots, as the table is at most half full.
	sumBytes = sumSize + 2*8
	sumSize  = 32
	// none is no index, and behind all that are.
	none = ^uint32(0)
	// minSums is the least that sums and their keys grow to.
	minSums = 64
	// spread is 2⁶⁴ / golden ratio: multiplied, it spreads a sum over all bits.
	spread = 0x9E3779B97F4A7C15
)

// NewCoalescer returns an empty Coalescer.
func NewCoalescer() *Coalescer {
	seed := maphash.MakeSeed()
	return &Coalescer{
		rows:    interner{seed: seed, slots: make(slots, minSlots)},
		columns: interner{seed: seed, slots: make(slots, minSlots)},
		slots:   make(slots, minSlots),
	}
}

// CountFrom begins a batch: from returns the event time from which on an increment of a
// family counts, as its counters expire; nil = always. Older ones have a sum of their own,
// which the engine leaves out: in one with a newer increment they would count, and in a
// batch of their own they would not. Call it while c is empty.
func (c *Coalescer) CountFrom(from func(table, family string) cell.Timestamp) {
	c.from = from
	for i := range c.families {
		f := &c.families[i]
		f.from = c.counted(f.table, f.name)
	}
}

func (c *Coalescer) counted(table, family string) cell.Timestamp {
	if c.from == nil {
		return forever
	}
	return c.from(table, family)
}

// Add adds delta, of an event at time t in the record at offset, to one counter.
// The count wraps around as Merge does; the newest time and the first offset are
// kept, also where the deltas add up to 0. row and qualifier are copied.
func (c *Coalescer) Add(table, familyName string, row, qualifier []byte, delta int64, t cell.Timestamp, offset int64) {
	r := c.rows.number(0, row)
	c.add(r, 0, c.columnNumber(table, familyName, qualifier, t), delta, t, offset)
}

// AddMutation adds the increments of m, of the record at offset, as Add does, their
// event times in Op.Time. It leaves out what else m has.
func (c *Coalescer) AddMutation(m *cell.Mutation, offset int64) {
	c.indexes = c.AppendIndexes(c.indexes[:0], m, offset)
}

// AppendIndexes does what AddMutation does, and appends for each increment the index in
// Deltas of its counter.
func (c *Coalescer) AppendIndexes(dst []uint32, m *cell.Mutation, offset int64) []uint32 {
	r, n := uint32(0), uint32(0)
	for i := range m.Ops {
		op := &m.Ops[i]
		if op.Type != cell.OpIncrement {
			continue
		}
		if n == 0 {
			r = c.rows.number(0, m.Row)
		}
		dst = append(dst, c.add(r, n, c.columnNumber(m.Table, op.Family, op.Qualifier, op.Time), op.Delta, op.Time, offset))
		n++
	}
	return dst
}

// add adds to a counter, whose row has had nth counters before in the same record, and
// returns its index in sums.
func (c *Coalescer) add(row, nth, column uint32, delta int64, t cell.Timestamp, offset int64) uint32 {
	i, slot := c.find(row, nth, column)
	if i < uint32(len(c.sums)) {
		s := &c.sums[i]
		s.delta += delta
		s.time = max(s.time, t)
		return i
	}
	c.sums = append(c.sums, sum{row: row, column: column, delta: delta, time: t, offset: offset})
	r, col := &c.rows.entries[row], &c.columns.entries[column]
	known := r.first != none && col.first != none
	r.first, col.first = min(r.first, i), min(col.first, i)
	if !known {
		return i
	}
	c.slots.set(slot, hashSum(row, column), i)
	if 2*len(c.sums) > len(c.slots) {
		c.grow(2 * len(c.slots))
	}
	return i
}

// columnNumber returns the number of a family and qualifier at time t. Rules emit their increments
// in the same order for every record, so that the column that came behind the last one
// before is nearly always the right one.
func (c *Coalescer) columnNumber(table, name string, qualifier []byte, t cell.Timestamp) uint32 {
	if c.column < uint32(len(c.columns.entries)) {
		next := c.columns.entries[c.column].next
		e := &c.columns.entries[next]
		if f := &c.families[e.tag]; f.late == (t < f.from) && f.name == name && f.table == table && string(c.columns.key(next)) == string(qualifier) {
			c.column = next
			return next
		}
	}
	col := c.columns.number(c.familyNumber(table, name, t), qualifier)
	c.columns.entries[c.column].next = col
	c.column = col
	return col
}

// find returns the index of the sum of a row and a column; where there is none, the index
// that it is to have, and the slot, where it is to have one.
func (c *Coalescer) find(row, nth, column uint32) (i uint32, slot uint64) {
	end := uint32(len(c.sums))
	r, col := c.rows.entries[row].first, c.columns.entries[column].first
	if r == none || col == none {
		return end, 0
	}
	// An event that brought a row has made all its counters one behind the other.
	if i = r + nth; i < end {
		if s := &c.sums[i]; s.row == row && s.column == column {
			return i, 0
		}
	}
	if c.sums[r].column == column {
		return r, 0
	}
	if c.sums[col].row == row {
		return col, 0
	}
	h := hashSum(row, column)
	slot, i, ok := c.slots.next(h, h)
	for ; ok; slot, i, ok = c.slots.next(h, slot+1) {
		if s := &c.sums[i]; s.row == row && s.column == column {
			return i, 0
		}
	}
	return end, slot
}

// hashSum spreads two numbers over all bits.
func hashSum(row, column uint32) uint64 {
	hi, lo := bits.Mul64((uint64(row)<<32|uint64(column))^spread, spread)
	return hi ^ lo
}

// grow makes the slots as many, a power of two.
func (c *Coalescer) grow(room int) {
	c.slots = make(slots, room)
	for n := range c.sums {
		i, s := uint32(n), &c.sums[n]
		if c.rows.entries[s.row].first != i && c.columns.entries[s.column].first != i {
			c.slots.add(hashSum(s.row, s.column), i)
		}
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
func (c *Coalescer) Bytes() int { return c.rows.bytes() + c.columns.bytes() + len(c.sums)*sumBytes }

// Held returns the memory that c keeps, in bytes: at least Bytes.
func (c *Coalescer) Held() int {
	return c.rows.held() + c.columns.held() + cap(c.sums)*sumSize + len(c.slots)*8
}

// Growth returns how much memory Reserve allocates for n counters more with keys of as
// many bytes, while what it outgrows is still held. Of nil, it is that of a new
// Coalescer besides.
func (c *Coalescer) Growth(n, keys int) int {
	if c == nil {
		c = new(Coalescer)
	}
	size := c.rows.growth(n, keys) + c.columns.growth(n, keys)
	if room := grown(len(c.sums), cap(c.sums), n); room > cap(c.sums) {
		size += room * sumSize
	}
	if room := c.slots.need(len(c.sums) + n); room > len(c.slots) {
		size += room * 8
	}
	return size
}

// Reserve makes room for n counters more with keys of as many bytes together: the next
// n calls of Add allocate nothing.
func (c *Coalescer) Reserve(n, keys int) {
	c.rows.reserve(n, keys)
	c.columns.reserve(n, keys)
	if room := grown(len(c.sums), cap(c.sums), n); room > cap(c.sums) {
		c.sums = append(make([]sum, 0, room), c.sums...)
	}
	if room := c.slots.need(len(c.sums) + n); room > len(c.slots) {
		c.grow(room)
	}
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
// Reset, and counters share them; the Coalescer must not change while it runs.
func (c *Coalescer) Deltas(yield func(Delta) bool) {
	for i := range c.sums {
		s := &c.sums[i]
		f := &c.families[c.columns.entries[s.column].tag]
		if !yield(Delta{
			Table: f.table, Family: f.name, Row: c.rows.key(s.row), Qualifier: c.columns.key(s.column),
			Delta: s.delta, Time: s.time, Offset: s.offset,
		}) {
			return
		}
	}
}

// Reset empties c and keeps its memory. It ends the life of the slices that
// Deltas yielded.
func (c *Coalescer) Reset() {
	c.rows.reset()
	c.columns.reset()
	c.sums = c.sums[:0]
	clear(c.slots)
	c.column = 0
	if len(c.families) > maxFamilies {
		c.families = nil
	}
}

// familyNumber returns the number of a table and family at time t, a new one where it has
// none.
func (c *Coalescer) familyNumber(table, name string, t cell.Timestamp) uint32 {
	for i := range c.families {
		if f := &c.families[i]; f.name == name && f.table == table && f.late == (t < f.from) {
			return uint32(i)
		}
	}
	from := c.counted(table, name)
	c.families = append(c.families, family{table: table, name: name, from: from, late: t < from})
	return uint32(len(c.families) - 1)
}
