package pebblestore

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/counters"
	"sluice/store"
)

// counter is the cached state of one counter. Only the commit loop touches it.
type counter struct {
	key     string // its stored key
	value   counters.Value
	exists  bool
	dirty   bool // changed in the running commit
	oldVal  counters.Value
	oldHave bool
}

// counterCache holds absolute counter values in two generations: when the young
// one is half the limit, it becomes the old one, and what nobody asked for since
// is forgotten. That is LRU enough, and costs a map lookup an increment.
type counterCache struct {
	young, old map[string]*counter
	limit      int
	hits, miss int64
}

func newCounterCache(limit int) *counterCache {
	return &counterCache{young: map[string]*counter{}, limit: max(limit/2, 1)}
}

// get returns the counter of key, or nil where it is not cached.
func (c *counterCache) get(key []byte) *counter {
	if e := c.young[string(key)]; e != nil {
		return e
	}
	if e := c.old[string(key)]; e != nil {
		c.young[e.key] = e
		return e
	}
	return nil
}

func (c *counterCache) add(e *counter) { c.young[e.key] = e }

// age is called between commits, when no counter is dirty.
func (c *counterCache) age() {
	if len(c.young) >= c.limit {
		c.old, c.young = c.young, make(map[string]*counter, c.limit)
	}
}

// clear forgets everything.
func (c *counterCache) clear() { c.young, c.old = map[string]*counter{}, nil }

// counterUndo restores a counter to what it was before one change.
type counterUndo struct {
	c      *counter
	value  counters.Value
	exists bool
	dirty  bool
}

// counter returns the current state of a counter, earlier members of the commit
// included.
func (c *commit) counter(key []byte) (*counter, error) {
	cache := c.db.counters
	if e := cache.get(key); e != nil {
		cache.hits++
		return e, nil
	}
	cache.miss++
	e := &counter{key: string(key)}
	value, ok, err := c.lookup(key)
	if err != nil {
		return nil, err
	}
	if ok {
		if e.value, err = counters.DecodeValue(value); err != nil {
			return nil, fmt.Errorf("%w: counter %x: %w", store.ErrCorrupt, key, err)
		}
		e.exists = true
	}
	cache.add(e)
	return e, nil
}

// set changes a counter in the commit.
func (c *commit) set(e *counter, v counters.Value, exists bool) {
	c.counterUndo = append(c.counterUndo, counterUndo{c: e, value: e.value, exists: e.exists, dirty: e.dirty})
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
	return c.incrementKey(f, c.key, delta, at)
}

// incrementKey is increment of the counter with this key, of family f.
func (c *commit) incrementKey(f *family, key []byte, delta int64, at cell.Timestamp) (v counters.Value, counted bool, err error) {
	if at == cell.Latest {
		at = c.now
	}
	until := expiredUntil(f.desc, c.now)
	e, err := c.counter(key)
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

// deleteCounters removes a row's counters of one family, or one of them. Later
// increments start at 0.
func (c *commit) deleteCounters(t *table, f *family, row, qualifier []byte, all bool) error {
	c.key = cell.AppendRowPrefix(c.key[:0], f.tag, t.id, f.id, row)
	if !all {
		c.key = cell.AppendPart(c.key, qualifier)
		e, err := c.counter(c.key)
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
		if _, err := c.counter([]byte(k)); err != nil {
			return err
		}
	}
	for _, k := range keys {
		if e := c.db.counters.get([]byte(k)); e.exists {
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

// writeCounters adds the commit's counters to its batch.
func (c *commit) writeCounters(b *pebble.Batch) error {
	for _, e := range c.dirty {
		if !e.exists {
			if !e.oldHave {
				continue
			}
			if err := b.Delete([]byte(e.key), nil); err != nil {
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
