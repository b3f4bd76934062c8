package pebblestore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"sluice/cell"
	"sluice/region"
	"sluice/store"
)

// maxPackedBytes is where a packed value is cut: a reader holds one whole.
const maxPackedBytes = 64 << 10

// maxRetainedBytes is the most memory that a commit keeps for the next: several
// times the usual one, as a single huge batch must not hold its memory for ever.
const maxRetainedBytes = 64 << 20

// staging gathers the cells that are to be written, as key-values. It belongs to one
// goroutine at a time.
type staging struct {
	packing *packing
	cat     *catalog
	now     cell.Timestamp
	seq     uint64 // the last sequence allotted

	buf   []byte      // keys and values, as staged
	kvs   []staged    // TagData key-values, in order of application but within runs
	cells []cell.Cell // of the mutation that is being staged
	ops   []cell.Op   // of the packed put that is being staged as a mutation

	sorter keyOrder // of kvs
	sorted []staged // what kvs were before they were sorted, for its memory

	// heads[i] is that of kvs[i], of the bytes from leadBytes on and without the sequence,
	// taken when the key was just written: to read 80,000 keys again costs as much as to
	// sort them. There are none where the keys do not all begin with lead.
	heads []keyHead
	spare []keyHead // for their sorting
	lead  uint32
	mixed bool
	// runs are the ends of parts of kvs, from the first on, each of which is in order.
	runs []int

	tally region.Tally // of what is staged, until it is counted

	lastTab *table
	lastNam string
}

// staged is one key-value in staging.buf.
type staged struct {
	start int // of the key; the value follows it
	key   int // length
	value int // length
}

const (
	// sequenceBytes end the key of a TagData key-value.
	sequenceBytes = 8
	// leadBytes begin it: its tag and all of the table's id but the last byte.
	leadBytes = 4
)

// begin empties s.
func (s *staging) begin(cat *catalog, now cell.Timestamp, seq uint64) {
	s.cat, s.now, s.seq, s.lastTab, s.lastNam = cat, now, seq, nil, ""
	if cap(s.buf) > maxRetainedBytes {
		s.buf, s.kvs, s.sorted, s.sorter, s.heads, s.spare = nil, nil, nil, keyOrder{}, nil, nil
	}
	s.buf, s.kvs, s.heads, s.runs, s.mixed = s.buf[:0], s.kvs[:0], s.heads[:0], s.runs[:0], false
}

// table returns a table that users may write to.
func (s *staging) table(name string) (*table, error) {
	if s.lastTab != nil && s.lastNam == name {
		return s.lastTab, nil
	}
	t, err := s.cat.lookup(name)
	if err != nil {
		return nil, err
	}
	if t.system && t.id != outboxID && t.id != jobsID {
		return nil, fmt.Errorf("%w: table %s is written by the store itself", store.ErrRefused, name)
	}
	if err := t.served(); err != nil {
		return nil, err
	}
	s.lastTab, s.lastNam = t, name
	return t, nil
}

// stage adds cells of one row in their order. Neighbouring puts of one family,
// time and TTL become one packed key-value.
func (s *staging) stage(t *table, row []byte, cells []cell.Cell) error {
	alone := 0 // cells before it are not packed: their run was counted, and is too much
	for i := 0; i < len(cells); {
		first := &cells[i]
		f, _ := t.family(first.Family)
		n, size := 1, len(first.Qualifier)+len(first.Value)
		if first.Kind == cell.KindPut && i >= alone {
			for i+n < len(cells) {
				o := &cells[i+n]
				more := len(o.Qualifier) + len(o.Value)
				if o.Kind != cell.KindPut || o.Time != first.Time || o.TTL != first.TTL || o.Family != first.Family || size+more > maxPackedBytes {
					break
				}
				size += more
				n++
			}
		}
		if n > 1 && !s.packing.allows(t.id, f.id, row, size) {
			alone, n = i+n, 1
		}
		run := cells[i : i+n]
		i += n
		if n > 1 {
			run = ascending(run)
		}
		if len(s.buf) > math.MaxInt32 {
			return fmt.Errorf("%w: the commit is larger than 2 GiB: send smaller batches", store.ErrRefused)
		}
		s.seq++
		start := len(s.buf)
		if len(run) > 1 {
			key := s.packedKey(t, f, row, first.Time)
			s.buf = cell.AppendPackedHeader(s.buf, first.TTL, false)
			for j := range run {
				s.buf = cell.AppendPackedColumn(s.buf, run[j].Qualifier, run[j].Value)
			}
			s.staged(start, key)
			continue
		}
		o := &run[0]
		s.buf = cell.AppendRowPrefix(s.buf, f.tag, t.id, f.id, row)
		s.buf = cell.AppendPart(s.buf, o.Qualifier)
		s.buf = cell.AppendVersion(s.buf, o.Time, o.Kind, s.seq)
		key := len(s.buf) - start
		if o.Kind == cell.KindPut {
			s.buf = cell.AppendValue(s.buf, o.TTL, o.Value)
		} else {
			s.buf = cell.AppendValue(s.buf, 0, nil)
		}
		s.staged(start, key)
	}
	return nil
}

// pack adds m, a store.PlainPut of f with qualifiers and values of size bytes, as the
// one packed key-value that stage makes of it. It reports false, and has added nothing,
// where stage makes something else, or may.
func (s *staging) pack(t *table, f *family, m *cell.Mutation, size int) bool {
	if len(m.Ops) < 2 || !s.packs(t, f, m.Row, size) {
		return false
	}
	s.seq++
	start := len(s.buf)
	key := s.packedKey(t, f, m.Row, m.Ops[0].Time)
	s.buf = cell.AppendPackedHeader(s.buf, m.Ops[0].TTL, false)
	for i := range m.Ops {
		s.buf = cell.AppendPackedColumn(s.buf, m.Ops[i].Qualifier, m.Ops[i].Value)
	}
	s.staged(start, key)
	return true
}

// stagePut is pack of a store.PlainPackedPut, whose columns are copied as they are.
func (s *staging) stagePut(t *table, f *family, p *store.PackedPut) bool {
	if !s.packs(t, f, p.Row, p.Size()) {
		return false
	}
	s.seq++
	start := len(s.buf)
	key := s.packedKey(t, f, p.Row, p.Time)
	s.buf = append(s.buf, p.Value()...)
	s.staged(start, key)
	return true
}

// packs reports whether columns of size bytes may be packed, and counts them.
func (s *staging) packs(t *table, f *family, row []byte, size int) bool {
	return size <= maxPackedBytes && len(s.buf) <= math.MaxInt32 && s.packing.allows(t.id, f.id, row, size)
}

// packedKey appends the key of a packed put with the last sequence and returns its
// length.
func (s *staging) packedKey(t *table, f *family, row []byte, at cell.Timestamp) int {
	start := len(s.buf)
	s.buf = append(cell.AppendRowPrefix(s.buf, f.tag, t.id, f.id, row), 0, 1)
	s.buf = cell.AppendVersion(s.buf, at, cell.KindPacked, s.seq)
	return len(s.buf) - start
}

// staged records the key-value that begins at start and ends s.buf.
func (s *staging) staged(start, key int) {
	s.leads(s.buf[start:])
	if !s.mixed {
		n := len(s.heads)
		s.heads = slices.Grow(s.heads, 1)[:n+1]
		s.heads[n].set(s.buf[start:start+key-sequenceBytes], leadBytes)
	}
	s.kvs = append(s.kvs, staged{start: start, key: key, value: len(s.buf) - start - key})
}

// leads notes that a key which begins as key does will follow those of kvs.
func (s *staging) leads(key []byte) {
	lead := binary.BigEndian.Uint32(key)
	if len(s.kvs) == 0 {
		s.lead = lead
	}
	if lead != s.lead {
		s.mix()
	}
}

// mix forgets the heads.
func (s *staging) mix() { s.heads, s.runs, s.mixed = s.heads[:0], s.runs[:0], true }

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

// sort puts the staged key-values in key order.
func (s *staging) sort() {
	if s.merge() {
		return
	}
	s.sorter.tail = sequenceBytes
	var order []ordered
	if s.mixed {
		order = s.sorter.of(len(s.kvs), s.stagedKey)
	} else {
		order = s.sorter.sorted(s.heads, leadBytes, s.stagedKey)
		s.spare = permuted(s.spare, s.heads, order)
		s.heads, s.spare = s.spare, s.heads
	}
	s.sorted = permuted(s.sorted, s.kvs, order)
	s.kvs, s.sorted = s.sorted, s.kvs
	s.runs = s.runs[:0]
}

// permuted returns list in an order, in dst's memory.
func permuted[T any](dst, list []T, order []ordered) []T {
	dst = slices.Grow(dst[:0], len(order))[:len(order)]
	for i := range order {
		dst[i] = list[order[i].at]
	}
	return dst
}

// sortRun is sort of all that s holds, which is one run then, unless it is nothing or
// mixed. sorted has it in the order of application still.
func (s *staging) sortRun() {
	s.sort()
	if len(s.kvs) > 0 && !s.mixed {
		s.runs = append(s.runs[:0], len(s.kvs))
	}
}

// appendStaged stages the key-values of o, which lie at base of s.buf. They are a run where
// they are one of o and all before are runs, too.
func (s *staging) appendStaged(o *staging, base int) {
	if len(o.kvs) == 0 {
		return
	}
	before := len(s.kvs)
	s.leads(s.buf[base+o.kvs[0].start:])
	if o.mixed {
		s.mix()
	}
	for _, kv := range o.kvs {
		kv.start += base
		s.kvs = append(s.kvs, kv)
	}
	if s.mixed {
		return
	}
	s.heads = append(s.heads, o.heads...)
	if len(o.runs) == 1 && s.inRuns() == before {
		s.runs = append(s.runs, len(s.kvs))
	}
}

// inRuns returns how many of kvs, from the first on, are runs.
func (s *staging) inRuns() int {
	if len(s.runs) == 0 {
		return 0
	}
	return s.runs[len(s.runs)-1]
}

// truncate forgets the key-values from n on, and the bytes from size on.
func (s *staging) truncate(n, size int) {
	s.buf, s.kvs = s.buf[:size], s.kvs[:n]
	if !s.mixed {
		s.heads = s.heads[:n]
	}
	for s.inRuns() > n {
		s.runs = s.runs[:len(s.runs)-1]
	}
}

// maxRuns is how many runs are merged: each key is compared with that of every other.
const maxRuns = 8

// merge is sort of key-values that are few runs. Of others it reports false.
func (s *staging) merge() bool {
	n := len(s.runs)
	if n == 0 || n > maxRuns || s.inRuns() != len(s.kvs) {
		return false
	}
	if n == 1 {
		return true
	}
	var at, end [maxRuns]int
	for i, from := 0, 0; i < n; i++ {
		at[i], end[i] = from, s.runs[i]
		from = end[i]
	}
	s.sorted = slices.Grow(s.sorted[:0], len(s.kvs))
	for n > 1 {
		least := 0
		for i := 1; i < n; i++ {
			if s.before(at[i], at[least]) {
				least = i
			}
		}
		s.sorted = append(s.sorted, s.kvs[at[least]])
		if at[least]++; at[least] == end[least] {
			n--
			at[least], end[least] = at[n], end[n]
		}
	}
	s.sorted = append(s.sorted, s.kvs[at[0]:end[0]]...)
	s.kvs, s.sorted = s.sorted, s.kvs
	s.mix() // the heads are not in this order
	return true
}

// before reports whether the key of key-value i is before that of j. Both have heads.
func (s *staging) before(i, j int) bool {
	if d := s.heads[i].compare(&s.heads[j]); d != 0 {
		return d < 0
	}
	return bytes.Compare(s.stagedKey(i), s.stagedKey(j)) < 0
}

// stagedKey returns the key of staged key-value i.
func (s *staging) stagedKey(i int) []byte {
	k := &s.kvs[i]
	return s.buf[k.start : k.start+k.key : k.start+k.key]
}
