package pebblestore

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"sluice/cell"
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
	kvs   []staged    // TagData key-values, in order of application
	cells []cell.Cell // of the mutation that is being staged
	ops   []cell.Op   // of the packed put that is being staged as a mutation

	sorter keyOrder // of kvs
	sorted []staged // what kvs were before they were sorted, for its memory

	lastTab *table
	lastNam string
}

// staged is one key-value in staging.buf.
type staged struct {
	start int // of the key; the value follows it
	key   int // length
	value int // length
}

// begin empties s.
func (s *staging) begin(cat *catalog, now cell.Timestamp, seq uint64) {
	s.cat, s.now, s.seq, s.lastTab, s.lastNam = cat, now, seq, nil, ""
	if cap(s.buf) > maxRetainedBytes {
		s.buf, s.kvs, s.sorted, s.sorter = nil, nil, nil, keyOrder{}
	}
	s.buf, s.kvs = s.buf[:0], s.kvs[:0]
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
	for i := 0; i < len(cells); {
		first := &cells[i]
		f, _ := t.family(first.Family)
		n, size := 1, len(first.Qualifier)+len(first.Value)
		if first.Kind == cell.KindPut {
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
			n = 1
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
	s.kvs = append(s.kvs, staged{start: start, key: key, value: len(s.buf) - start - key})
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

// sort puts the staged key-values in key order.
func (s *staging) sort() {
	order := s.sorter.of(len(s.kvs), func(i int) []byte { return s.buf[s.kvs[i].start : s.kvs[i].start+s.kvs[i].key] })
	s.sorted = slices.Grow(s.sorted[:0], len(order))
	for i := range order {
		s.sorted = append(s.sorted, s.kvs[order[i].at])
	}
	s.kvs, s.sorted = s.sorted, s.kvs
}
