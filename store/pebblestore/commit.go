package pebblestore

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/store"
)

// commit gathers what members of one Pebble batch write. A member that fails is
// rolled back and leaves nothing behind. It belongs to the commit loop, which
// reuses it for its memory.
type commit struct {
	db *DB
	staging
	deltaList // of the batch that is being staged

	counterUndo   []counterUndo
	counterSorter keyOrder
	sketch        []byte // of the distinct count that is being written
	dirty         []*counter
	sorting       []*counter // what dirty was before it was sorted, for its memory
	offsets       []offsetUndo
	onces         onceSet
	windows       []*onceWindow
	sweeps        map[int64]int64 // time to live → period of event ids before which they are over
	swept         map[int64]int64 // the same, as stored; it outlives the commit
	late          int64           // increments beyond their family's TTL
	conflicts     int64           // conditions that did not hold, event ids seen before

	rows    map[string][]int32 // row prefix → indexes of kvs, up to indexed
	indexed int
	it      *pebble.Iterator // over everything as it was before the commit
	key     []byte
	usedKey []byte

	prepared *prepared // in the loop; nil = none ever was

	sync bool // a member wants to be on disk before its call returns
	bulk bool // a member is a bulk batch

	readRow store.ReadRow // read, as a value made once: one for each mutation would be garbage
}

// mark is a state that a failed member is rolled back to.
type mark struct {
	buf, kvs, counters, dirty, offsets, onces int
	seq                                       uint64
	late                                      int64
}

func (c *commit) mark() mark {
	return mark{len(c.buf), len(c.kvs), len(c.counterUndo), len(c.dirty), len(c.offsets), c.onces.len(), c.seq, c.late}
}

func (c *commit) rollback(m mark) {
	for i := len(c.counterUndo) - 1; i >= m.counters; i-- {
		c.counterUndo[i].restore()
	}
	for i := len(c.offsets) - 1; i >= m.offsets; i-- {
		c.offsets[i].undo()
	}
	c.onces.truncate(m.onces)
	c.unindex(m.kvs)
	c.truncate(m.kvs, m.buf)
	c.counterUndo, c.dirty = c.counterUndo[:m.counters], c.dirty[:m.dirty]
	c.offsets, c.seq, c.late = c.offsets[:m.offsets], m.seq, m.late
}

// begin empties c for the next commit.
func (c *commit) begin(cat *catalog, now cell.Timestamp, seq uint64) {
	c.staging.begin(cat, now, seq)
	c.counterUndo, c.dirty = c.counterUndo[:0], c.dirty[:0]
	c.offsets, c.late, c.conflicts = c.offsets[:0], 0, 0
	c.onces.reset()
	clear(c.windows)
	c.windows = c.windows[:0]
	clear(c.sweeps)
	clear(c.rows)
	c.indexed, c.sync, c.bulk = 0, false, false
}

// end releases what begin and reading took.
func (c *commit) end() {
	if c.it == nil {
		return
	}
	// The iterator repeats the error of its last read. The member that asked
	// has it; it is not the others'.
	_ = c.it.Close()
	c.it = nil
}

// empty reports that the commit would write nothing.
func (c *commit) empty() bool {
	return len(c.kvs) == 0 && len(c.dirty) == 0 && len(c.offsets) == 0 && c.onces.len() == 0
}

// mutate stages one mutation whose condition holds: tested is the time that
// store.CheckCondition returned. It returns the new cells of increments and
// appends. On an error the caller rolls back.
func (c *commit) mutate(t *table, m *cell.Mutation, tested cell.Timestamp) ([]cell.Cell, error) {
	if err := store.ValidateMutation(t.desc, m, c.now); err != nil {
		return nil, err
	}
	write, result, err := store.AppendResolved(c.cells[:0], t.desc, m, c.now, max(c.now, tested), c.readRow)
	if err != nil {
		return nil, err
	}
	c.cells = write
	if err := c.stage(t, m.Row, write); err != nil {
		return nil, err
	}
	t.load.Wrote(m.Row, int64(c.now))
	c.sync = c.sync || synced(t, m.Durability)
	counted, err := c.countOps(t, m)
	if err != nil {
		return nil, err
	}
	if len(counted) > 0 {
		result = append(result, counted...)
		slices.SortStableFunc(result, cell.CompareColumns)
	}
	return result, nil
}

// synced reports whether a mutation of table t with durability d wants to be on disk before
// its call returns.
func synced(t *table, d cell.Durability) bool {
	if d == cell.UseDefault {
		d = t.desc.Durability()
	}
	return d >= cell.SyncWAL
}

// countOps applies the operations on COUNTER and DISTINCT families and returns the
// counters that were incremented.
func (c *commit) countOps(t *table, m *cell.Mutation) ([]cell.Cell, error) {
	var result []cell.Cell
	for i := range m.Ops {
		o := &m.Ops[i]
		if o.Type == cell.OpDeleteRow {
			for j := range t.fams {
				if f := &t.fams[j]; f.tag == cell.TagCounter {
					if err := c.deleteCounters(t, f, m.Row, nil, true); err != nil {
						return nil, err
					}
				}
			}
			continue
		}
		f, _ := t.family(o.Family)
		if f.tag != cell.TagCounter {
			continue
		}
		switch o.Type {
		case cell.OpIncrement:
			v, counted, err := c.increment(t, f, m.Row, o.Qualifier, o.Delta, o.Time)
			if err != nil {
				return nil, err
			}
			if !counted {
				continue
			}
			n := cell.Cell{Family: o.Family, Qualifier: o.Qualifier, Time: v.Time, Kind: cell.KindPut, Value: binary.BigEndian.AppendUint64(nil, uint64(v.Count))}
			if at := slices.IndexFunc(result, func(r cell.Cell) bool { return r.Family == n.Family && bytes.Equal(r.Qualifier, n.Qualifier) }); at >= 0 {
				result[at] = n
			} else {
				result = append(result, n)
			}
		case cell.OpAppend:
			if err := c.addElement(t, f, m.Row, o.Qualifier, o.Value, o.Time); err != nil {
				return nil, err
			}
		case cell.OpDeleteColumn:
			if err := c.deleteCounters(t, f, m.Row, o.Qualifier, false); err != nil {
				return nil, err
			}
		case cell.OpDeleteFamily:
			if err := c.deleteCounters(t, f, m.Row, nil, true); err != nil {
				return nil, err
			}
		}
	}
	return result, nil
}

// system calls set for what the commit writes into system tables, the last
// sequence among it: none is allotted after it. The slices are set's until it returns.
func (c *commit) system(set func(key, value []byte) error) error {
	for i := range c.offsets {
		o := c.offsets[i].o
		if err := set([]byte(o.key), o.value); err != nil {
			return err
		}
	}
	var value []byte
	if err := c.onces.sorted(func(key []byte) error {
		c.seq++
		value = appendSystemValue(value[:0], c.now, c.seq, nil)
		return set(key, value)
	}); err != nil {
		return err
	}
	return set(sequenceKey(), c.db.sequenceValue(c.now, c.seq))
}

// write fills b with everything that the commit has staged, in key order: Pebble
// inserts sorted keys a third faster.
func (c *commit) write(b *pebble.Batch) error {
	c.sort()
	if err := c.system(func(key, value []byte) error { return b.Set(key, value, nil) }); err != nil {
		return err
	}
	if err := c.writeSweeps(b); err != nil {
		return err
	}
	if err := c.writeCounters(b); err != nil {
		return err
	}
	for _, key := range c.uncounted() {
		if err := b.Set(key, nil, nil); err != nil {
			return err
		}
	}
	for i := range c.kvs {
		c.prefetch(c.kvs, i)
		s := &c.kvs[i]
		op := b.SetDeferred(s.key, s.value)
		copy(op.Key, c.buf[s.start:s.start+s.key])
		copy(op.Value, c.buf[s.start+s.key:s.start+s.key+s.value])
		if err := op.Finish(); err != nil {
			return err
		}
	}
	return nil
}

// settle makes the caches what the commit has made of the store, or, where it
// failed, what they were.
func (c *commit) settle(ok bool) {
	for i, e := range c.dirty {
		c.prefetchDirty(i)
		e.dirty = false
		if !ok {
			e.value, e.exists = e.oldVal, e.oldHave
		}
	}
	if !ok {
		for i := len(c.offsets) - 1; i >= 0; i-- {
			c.offsets[i].undo()
		}
		return
	}
	for ttl, before := range c.sweeps {
		if c.swept == nil {
			c.swept = map[int64]int64{}
		}
		c.swept[ttl] = before
		c.db.loop.onces.forget(ttl, before)
	}
}
