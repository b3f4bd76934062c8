package pebblestore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/store"
)

// maxPackedBytes is where a packed value is cut: a reader holds one whole.
const maxPackedBytes = 64 << 10

// maxRetainedBytes is the most memory that a commit keeps for the next: several
// times the usual one, as a single huge batch must not hold its memory for ever.
const maxRetainedBytes = 64 << 20

// commit gathers what members of one Pebble batch write. A member that fails is
// rolled back and leaves nothing behind. It belongs to the commit loop, which
// reuses it for its memory.
type commit struct {
	db  *DB
	cat *catalog
	now cell.Timestamp
	seq uint64 // the last sequence allotted

	buf   []byte   // keys and values, as staged
	kvs   []staged // TagData key-values, in order of application
	cells []cell.Cell

	counterUndo []counterUndo
	sketch      []byte // of the distinct count that is being written
	dirty       []*counter
	offsets     []offsetUndo
	onces       []string // system keys of event ids, in order
	onceSet     map[string]struct{}
	sweeps      map[int64]int64 // time to live → period of event ids before which they are over
	swept       map[int64]int64 // the same, as stored; it outlives the commit
	late        int64           // increments beyond their family's TTL
	conflicts   int64           // conditions that did not hold, event ids seen before

	rows    map[string][]int32 // row prefix → indexes of kvs, up to indexed
	indexed int
	it      *pebble.Iterator // over everything as it was before the commit
	key     []byte
	lastTab *table
	lastNam string

	sync bool // a member wants to be on disk before its call returns
	bulk bool // a member is a bulk batch

	deltaMutation cell.Mutation
	deltas        []delta // of the batch that is being staged
	deltaKeys     []byte
	readRow       store.ReadRow // read, as a value made once: one for each mutation would be garbage
}

// staged is one key-value in commit.buf.
type staged struct {
	head  uint64 // the first eight bytes that not all keys share; set by sort
	next  uint64 // the eight bytes after those
	start int    // of the key; the value follows it
	key   int    // length
	value int    // length
}

// mark is a state that a failed member is rolled back to.
type mark struct {
	buf, kvs, counters, dirty, offsets, onces int
	seq                                       uint64
	late                                      int64
}

func (c *commit) mark() mark {
	return mark{len(c.buf), len(c.kvs), len(c.counterUndo), len(c.dirty), len(c.offsets), len(c.onces), c.seq, c.late}
}

func (c *commit) rollback(m mark) {
	for i := len(c.counterUndo) - 1; i >= m.counters; i-- {
		c.counterUndo[i].restore()
	}
	for i := len(c.offsets) - 1; i >= m.offsets; i-- {
		c.offsets[i].undo()
	}
	for _, k := range c.onces[m.onces:] {
		delete(c.onceSet, k)
	}
	for c.indexed > m.kvs {
		c.indexed--
		p := c.rowPrefix(c.indexed)
		list := c.rows[string(p)]
		c.rows[string(p)] = list[:len(list)-1]
	}
	c.buf, c.kvs, c.counterUndo, c.dirty = c.buf[:m.buf], c.kvs[:m.kvs], c.counterUndo[:m.counters], c.dirty[:m.dirty]
	c.offsets, c.onces, c.seq, c.late = c.offsets[:m.offsets], c.onces[:m.onces], m.seq, m.late
}

// begin empties c for the next commit.
func (c *commit) begin(cat *catalog, now cell.Timestamp, seq uint64) {
	c.cat, c.now, c.seq = cat, now, seq
	if cap(c.buf) > maxRetainedBytes {
		c.buf, c.kvs = nil, nil
	}
	c.buf, c.kvs, c.counterUndo, c.dirty = c.buf[:0], c.kvs[:0], c.counterUndo[:0], c.dirty[:0]
	c.offsets, c.onces, c.late, c.conflicts = c.offsets[:0], c.onces[:0], 0, 0
	clear(c.onceSet)
	clear(c.sweeps)
	clear(c.rows)
	c.indexed, c.lastTab, c.lastNam, c.sync, c.bulk = 0, nil, "", false, false
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
	return len(c.kvs) == 0 && len(c.dirty) == 0 && len(c.offsets) == 0 && len(c.onces) == 0
}

// table returns a table that users may write to.
func (c *commit) table(name string) (*table, error) {
	if c.lastTab != nil && c.lastNam == name {
		return c.lastTab, nil
	}
	t, err := c.cat.lookup(name)
	if err != nil {
		return nil, err
	}
	if t.system && t.id != outboxID && t.id != jobsID {
		return nil, fmt.Errorf("%w: table %s is written by the store itself", store.ErrRefused, name)
	}
	if err := t.served(); err != nil {
		return nil, err
	}
	c.lastTab, c.lastNam = t, name
	return t, nil
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
	if !c.sync {
		d := m.Durability
		if d == cell.UseDefault {
			d = t.desc.Durability()
		}
		c.sync = d >= cell.SyncWAL
	}
	counted, err := c.countOps(t, m)
	if err != nil {
		return nil, err
	}
	if len(counted) > 0 {
		result = append(result, counted...)
		slices.SortStableFunc(result, func(a, b cell.Cell) int {
			if d := bytes.Compare([]byte(a.Family), []byte(b.Family)); d != 0 {
				return d
			}
			return bytes.Compare(a.Qualifier, b.Qualifier)
		})
	}
	return result, nil
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

// stage adds cells of one row in their order. Neighbouring puts of one family,
// time and TTL become one packed key-value.
func (c *commit) stage(t *table, row []byte, cells []cell.Cell) error {
	for i := 0; i < len(cells); {
		first := &cells[i]
		f, _ := t.family(first.Family)
		n, size := 1, len(first.Qualifier)+len(first.Value)
		if first.Kind == cell.KindPut {
			for i+n < len(cells) {
				o := &cells[i+n]
				s := len(o.Qualifier) + len(o.Value)
				if o.Kind != cell.KindPut || o.Time != first.Time || o.TTL != first.TTL || o.Family != first.Family || size+s > maxPackedBytes {
					break
				}
				size += s
				n++
			}
		}
		if n > 1 && !c.db.packing.allows(t.id, f.id, row, size) {
			n = 1
		}
		run := cells[i : i+n]
		i += n
		if n > 1 {
			run = ascending(run)
		}
		if len(c.buf) > math.MaxInt32 {
			return fmt.Errorf("%w: the commit is larger than 2 GiB: send smaller batches", store.ErrRefused)
		}
		c.seq++
		start := len(c.buf)
		c.buf = cell.AppendRowPrefix(c.buf, f.tag, t.id, f.id, row)
		if len(run) > 1 {
			c.buf = append(c.buf, 0, 1)
			c.buf = cell.AppendVersion(c.buf, first.Time, cell.KindPacked, c.seq)
			key := len(c.buf) - start
			c.buf = cell.AppendPackedHeader(c.buf, first.TTL, false)
			for j := range run {
				c.buf = cell.AppendPackedColumn(c.buf, run[j].Qualifier, run[j].Value)
			}
			c.staged(start, key)
			continue
		}
		o := &run[0]
		c.buf = cell.AppendPart(c.buf, o.Qualifier)
		c.buf = cell.AppendVersion(c.buf, o.Time, o.Kind, c.seq)
		key := len(c.buf) - start
		if o.Kind == cell.KindPut {
			c.buf = cell.AppendValue(c.buf, o.TTL, o.Value)
		} else {
			c.buf = cell.AppendValue(c.buf, 0, nil)
		}
		c.staged(start, key)
	}
	return nil
}

// staged records the key-value that begins at start and ends c.buf.
func (c *commit) staged(start, key int) {
	c.kvs = append(c.kvs, staged{start: start, key: key, value: len(c.buf) - start - key})
}

// ascending returns the run's cells in strictly ascending order of their
// qualifiers. Of a column that was put twice the later put stays. The run is
// changed in place.
func ascending(run []cell.Cell) []cell.Cell {
	sorted := true
	for i := 1; i < len(run); i++ {
		if bytes.Compare(run[i-1].Qualifier, run[i].Qualifier) >= 0 {
			sorted = false
			break
		}
	}
	if sorted {
		return run
	}
	slices.Reverse(run)
	slices.SortStableFunc(run, func(a, b cell.Cell) int { return bytes.Compare(a.Qualifier, b.Qualifier) })
	return slices.CompactFunc(run, func(a, b cell.Cell) bool { return bytes.Equal(a.Qualifier, b.Qualifier) })
}

// heads sets what the staged key-values are compared by.
func (c *commit) heads() {
	key := func(i int) []byte { return c.buf[c.kvs[i].start : c.kvs[i].start+c.kvs[i].key] }
	shared := sharedPrefix(len(c.kvs), key)
	for i := range c.kvs {
		c.kvs[i].head, c.kvs[i].next = keyHead(key(i)[shared:])
	}
}

// compare orders two staged key-values by their keys, after heads.
func (c *commit) compare(x, y *staged) int {
	switch {
	case x.head != y.head:
		return sign(x.head < y.head)
	case x.next != y.next:
		return sign(x.next < y.next)
	}
	return bytes.Compare(c.buf[x.start:x.start+x.key], c.buf[y.start:y.start+y.key])
}

// sort puts staged key-values of c in key order, after heads.
func (c *commit) sort(kvs []staged) {
	slices.SortFunc(kvs, func(x, y staged) int { return c.compare(&x, &y) })
}

// halve puts those of the staged key-values first that come before a middle one in
// key order, and returns how many they are: half, more or less.
func (c *commit) halve() int {
	c.heads()
	const samples = 101
	sample := make([]staged, 0, samples)
	for i := 0; i < len(c.kvs); i += len(c.kvs)/samples + 1 {
		sample = append(sample, c.kvs[i])
	}
	if len(sample) == 0 {
		return 0
	}
	c.sort(sample)
	middle := sample[len(sample)/2]
	low, high := 0, len(c.kvs)
	for low < high {
		if c.compare(&c.kvs[low], &middle) < 0 {
			low++
			continue
		}
		high--
		c.kvs[low], c.kvs[high] = c.kvs[high], c.kvs[low]
	}
	return low
}

// system calls set for what the commit writes into system tables, the last
// sequence among it: none is allotted after it.
func (c *commit) system(set func(key, value []byte) error) error {
	for i := range c.offsets {
		o := c.offsets[i].o
		if err := set([]byte(o.key), o.value); err != nil {
			return err
		}
	}
	for _, k := range c.onces {
		c.seq++
		if err := set([]byte(k), appendSystemValue(nil, c.now, c.seq, nil)); err != nil {
			return err
		}
	}
	return set(sequenceKey(), c.db.sequenceValue(c.now, c.seq))
}

// write fills b with everything that the commit has staged, in key order: Pebble
// inserts sorted keys a third faster.
func (c *commit) write(b *pebble.Batch) error {
	c.heads()
	c.sort(c.kvs)
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
	for _, e := range c.dirty {
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
	}
}
