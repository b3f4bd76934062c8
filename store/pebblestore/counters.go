package pebblestore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"unsafe"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/counters"
	"sluice/store"
)

// counter is the cached state of one counter, or of one distinct count. Only the
// commit loop touches it.
type counter struct {
	hash    uint64           // of key, in this process
	key     string           // its stored key
	value   counters.Value   // of a distinct count, without Count
	sketch  *counters.Sketch // of a distinct count where it exists; nil = a counter
	exists  bool
	dirty   bool // changed in the running commit
	oldVal  counters.Value
	oldHave bool
}

// counterCache holds absolute counter values, between commits as many as its limit. Those
// that nobody asks for are forgotten first, nearly in the order in which they were asked for;
// that costs one look into a table an increment.
type counterCache struct {
	table      counterTable
	filter     *keyFilter
	seed       maphash.Seed
	sketches   []*counter // in table, distinct counts
	limit      int
	hits, miss int64
	skipped    int64 // of miss: the filter knew that there is no such counter
}

// newCounterCache returns an empty cache of limit counters, with a filter of at most
// filterBytes.
func newCounterCache(limit int, filterBytes int64) *counterCache {
	return &counterCache{
		table: newCounterTable(0), limit: limit, seed: maphash.MakeSeed(), filter: newKeyFilter(filterBytes),
	}
}

func (c *counterCache) hash(key []byte) uint64 { return maphash.Bytes(c.seed, key) }

// get returns the counter of key, or nil where it is not cached.
func (c *counterCache) get(key []byte) *counter { return c.find(c.hash(key), key) }

// slot returns where to look first for a key with this hash.
func (c *counterCache) slot(hash uint64) *counterSlot {
	return &c.table.slots[hash&uint64(len(c.table.slots)-1)]
}

// find is get of a key with this hash.
func (c *counterCache) find(hash uint64, key []byte) *counter { return c.table.find(hash, key) }

func (c *counterCache) add(e *counter) {
	c.table.add(e)
	c.filter.add(e.hash)
}

// age is called between commits, when no counter is dirty. Sketches stay no longer
// than one: they take up to 16 KiB each, and 40 % of a pipeline's are not asked for
// again.
func (c *counterCache) age() {
	for _, e := range c.sketches {
		c.table.remove(e)
	}
	clear(c.sketches)
	c.sketches = c.sketches[:0]
	c.table.shrink(c.limit)
}

// clear forgets everything but what is not stored.
func (c *counterCache) clear() {
	c.table, c.sketches = newCounterTable(0), nil
}

// counterUndo restores a counter to what it was before one change.
type counterUndo struct {
	c      *counter
	value  counters.Value
	exists bool
	dirty  bool

	sketch   *counters.Sketch
	register int   // of sketch, which the change has raised; -1 = none
	rank     uint8 // what it was
}

// restore takes one change back.
func (u *counterUndo) restore() {
	u.c.value, u.c.sketch, u.c.exists, u.c.dirty = u.value, u.sketch, u.exists, u.dirty
	if u.register >= 0 {
		u.sketch.SetRegister(u.register, u.rank)
	}
}

// decode reads the stored value of a column of f.
func (e *counter) decode(f *family, stored []byte) (err error) {
	if !f.desc.Distinct {
		e.value, err = counters.DecodeValue(stored)
		return err
	}
	d, err := counters.DecodeDistinct(stored)
	e.value, e.sketch = counters.Value{Time: d.Time, Sequence: d.Sequence}, d.Sketch
	return err
}

// append appends the stored value.
func (e *counter) append(dst []byte) []byte {
	if e.sketch != nil {
		return counters.AppendDistinct(dst, counters.Distinct{Sketch: e.sketch, Time: e.value.Time, Sequence: e.value.Sequence})
	}
	return counters.AppendValue(dst, e.value)
}

// counter returns the current state of a counter of f, or of a distinct count,
// earlier members of the commit included.
func (c *commit) counter(t *table, f *family, key []byte) (*counter, error) {
	return c.hashedCounter(t, f, key, c.db.loop.counters.hash(key))
}

// hashedCounter is counter of a key with this hash.
func (c *commit) hashedCounter(t *table, f *family, key []byte, hash uint64) (*counter, error) {
	cache := c.db.loop.counters
	if e := cache.find(hash, key); e != nil {
		cache.hits++
		return e, nil
	}
	cache.miss++
	e := &counter{hash: hash, key: string(key)}
	var value []byte
	var ok bool
	if cache.filter.absent(hash) {
		cache.skipped++
	} else {
		var err error
		if value, ok, err = c.lookup(key); err != nil {
			return nil, err
		}
	}
	if ok {
		if err := e.decode(f, value); err != nil {
			return nil, corruptCounter(t, f, key, err)
		}
		e.exists = true
	}
	cache.add(e)
	if f.desc.Distinct {
		cache.sketches = append(cache.sketches, e)
	}
	return e, nil
}

// corruptCounter is the error of a stored value that does not decode; its key names
// row and qualifier.
func corruptCounter(t *table, f *family, key []byte, err error) error {
	where := fmt.Sprintf("table %s, key %x", t.desc.Name, key)
	var k cell.Key
	if _, decodeErr := cell.DecodeKey(&k, key, nil); decodeErr == nil {
		where = fmt.Sprintf("table %s, row %.100q, column %s:%.100q", t.desc.Name, k.Row, f.desc.Name, k.Qualifier)
	}
	return fmt.Errorf("%w: counter: %s: %w", store.ErrCorrupt, where, err)
}

// set changes a counter in the commit.
func (c *commit) set(e *counter, v counters.Value, exists bool) {
	c.counterUndo = append(c.counterUndo, counterUndo{c: e, value: e.value, exists: e.exists, dirty: e.dirty, sketch: e.sketch, register: -1})
	if !e.dirty {
		e.dirty, e.oldVal, e.oldHave = true, e.value, e.exists
		c.dirty = append(c.dirty, e)
	}
	e.value, e.exists = v, exists
}

// increment adds delta to a counter at event time at and returns its new value.
// An event that is older than the family's TTL is left out: counted is false.
func (c *commit) increment(t *table, f *family, row, qualifier []byte, delta int64, at cell.Timestamp) (v counters.Value, counted bool, err error) {
	c.key = cell.AppendPart(cell.AppendRowPrefix(c.key[:0], f.tag, t.id, f.id, row), qualifier)
	return c.incrementKey(t, f, c.key, c.db.loop.counters.hash(c.key), delta, at)
}

// incrementKey is increment of the counter with this key and hash, of family f.
func (c *commit) incrementKey(t *table, f *family, key []byte, hash uint64, delta int64, at cell.Timestamp) (v counters.Value, counted bool, err error) {
	if at == cell.Latest {
		at = c.now
	}
	until := expiredUntil(f.desc, c.now)
	e, err := c.hashedCounter(t, f, key, hash)
	if err != nil {
		return v, false, err
	}
	v = e.value
	if !e.exists || v.Time < until {
		v = counters.Value{}
	}
	if at < until {
		c.late++
		return v, false, nil
	}
	c.seq++
	v = counters.Merge(v, delta, at, c.seq)
	c.set(e, v, true)
	return v, true, nil
}

// addElement adds an element to a distinct count at event time at. One that is
// there changes nothing unless it is newer than all; one that is older than the
// family's TTL is left out.
func (c *commit) addElement(t *table, f *family, row, qualifier, element []byte, at cell.Timestamp) error {
	if at == cell.Latest {
		at = c.now
	}
	c.key = cell.AppendPart(cell.AppendRowPrefix(c.key[:0], f.tag, t.id, f.id, row), qualifier)
	register, rank := counters.Rank(element)
	return c.raise(t, f, c.key, c.db.loop.counters.hash(c.key), register, rank, at)
}

// raise is addElement of an element with this rank for a register, to the distinct count
// with this key and hash.
func (c *commit) raise(t *table, f *family, key []byte, hash uint64, register int, rank uint8, at cell.Timestamp) error {
	until := expiredUntil(f.desc, c.now)
	e, err := c.hashedCounter(t, f, key, hash)
	switch {
	case err != nil:
		return err
	case at < until:
		c.late++
		return nil
	}
	if !e.exists || e.value.Time < until {
		c.seq++
		c.set(e, counters.Value{Time: at, Sequence: c.seq}, true)
		e.sketch = new(counters.Sketch)
		e.sketch.SetRegister(register, rank)
		return nil
	}
	before := e.sketch.Register(register)
	if before >= rank && at <= e.value.Time {
		return nil
	}
	c.seq++
	c.set(e, counters.Value{Time: max(at, e.value.Time), Sequence: c.seq}, true)
	if before < rank {
		u := &c.counterUndo[len(c.counterUndo)-1]
		u.register, u.rank = register, before
		e.sketch.SetRegister(register, rank)
	}
	return nil
}

// deleteCounters removes a row's counters of one family, or one of them. Later
// increments start at 0.
func (c *commit) deleteCounters(t *table, f *family, row, qualifier []byte, all bool) error {
	c.key = cell.AppendRowPrefix(c.key[:0], f.tag, t.id, f.id, row)
	if !all {
		c.key = cell.AppendPart(c.key, qualifier)
		e, err := c.counter(t, f, c.key)
		if err != nil || !e.exists {
			return err
		}
		c.seq++
		c.set(e, counters.Value{Sequence: c.seq}, false)
		return nil
	}
	prefix := string(c.key)
	var keys []string
	if err := c.scanPrefix(c.key, func(key, _ []byte) error {
		keys = append(keys, string(key))
		return nil
	}); err != nil {
		return err
	}
	for _, k := range keys {
		if _, err := c.counter(t, f, []byte(k)); err != nil {
			return err
		}
	}
	for _, k := range keys {
		if e := c.db.loop.counters.get([]byte(k)); e.exists {
			c.seq++
			c.set(e, counters.Value{Sequence: c.seq}, false)
		}
	}
	for _, e := range c.dirty {
		if e.exists && len(e.key) > len(prefix) && e.key[:len(prefix)] == prefix {
			c.seq++
			c.set(e, counters.Value{Sequence: c.seq}, false)
		}
	}
	return nil
}

// uncounted returns, sorted, the keys of the changes that the commit's deletions of
// counters are, where somebody holds them: the counters leave nothing else behind.
func (c *commit) uncounted() [][]byte {
	if len(c.cat.held) == 0 {
		return nil
	}
	var keys [][]byte
	for _, e := range c.dirty {
		if e.exists || !e.oldHave {
			continue
		}
		key := []byte(e.key)
		if _, ok := c.cat.held[binary.BigEndian.Uint32(key[1:])]; ok {
			keys = append(keys, cell.AppendChange(nil, key[:cell.SplitKey(key)], e.value.Sequence))
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	return keys
}

// writeCounters adds the commit's counters to its batch.
func (c *commit) writeCounters(b *pebble.Batch) error {
	c.sortCounters()
	for i, e := range c.dirty {
		c.prefetchDirty(i)
		if !e.exists {
			if !e.oldHave {
				continue
			}
			if err := b.Delete([]byte(e.key), nil); err != nil {
				return err
			}
			continue
		}
		if e.sketch != nil {
			c.sketch = e.append(c.sketch[:0])
			if err := b.Set([]byte(e.key), c.sketch, nil); err != nil {
				return err
			}
			continue
		}
		op := b.SetDeferred(len(e.key), counters.ValueLength)
		copy(op.Key, e.key)
		counters.AppendValue(op.Value[:0], e.value)
		if err := op.Finish(); err != nil {
			return err
		}
	}
	return nil
}

// sortCounters puts the counters that the commit has changed in the order of their keys.
// Those of one batch are, but for what batches before it have changed, and a commit has a
// hundred batches where there are as many partitions: in their order Pebble would insert
// the counters at three times the cost.
func (c *commit) sortCounters() {
	sorted := true
	for i := 1; i < len(c.dirty) && sorted; i++ {
		c.prefetchDirty(i)
		sorted = c.dirty[i-1].key < c.dirty[i].key
	}
	if sorted {
		return
	}
	order := c.counterSorter.of(len(c.dirty), func(i int) []byte {
		key := c.dirty[i].key
		return unsafe.Slice(unsafe.StringData(key), len(key)) // which nobody changes
	})
	c.sorting = permuted(c.sorting, c.dirty, order)
	c.dirty, c.sorting = c.sorting, c.dirty
}
