package hbasestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"sluice/cell"
	"sluice/counters"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// A column of a DISTINCT family is cells of HBase's as one of a COUNTER family is, of
// the same qualifiers, and the same holds of them (type exact): the cell of one
// partition of a source is the sketch of all its elements up to the cell's timestamp. A
// read merges them. docs/format/hbase.md has their layout.

// sketchHeader is what a cell's value has before the sketch: the newest event time, 8
// bytes big-endian.
const sketchHeader = 8

func appendSketch(dst []byte, at cell.Timestamp, s *counters.Sketch) []byte {
	return s.Append(binary.BigEndian.AppendUint64(dst, uint64(at)))
}

// decodeSketch is the reverse of appendSketch. The error wraps store.ErrCorrupt.
func decodeSketch(value []byte) (at cell.Timestamp, s *counters.Sketch, err error) {
	if len(value) < sketchHeader {
		return 0, nil, fmt.Errorf("%w: a distinct count's cell has %d bytes", store.ErrCorrupt, len(value))
	}
	if at = cell.Timestamp(binary.BigEndian.Uint64(value)); at < 0 {
		return 0, nil, fmt.Errorf("%w: a distinct count's time is %d", store.ErrCorrupt, at)
	}
	if s, err = counters.DecodeSketch(value[sketchHeader:]); err != nil {
		return 0, nil, fmt.Errorf("%w: distinct count: %w", store.ErrCorrupt, err)
	}
	return at, s, nil
}

// element is one element of a distinct count: what a sketch keeps of it.
type element struct {
	offset   int64
	time     cell.Timestamp
	register uint16
	rank     uint8
}

func newElement(offset int64, at cell.Timestamp, text []byte) element {
	register, rank := counters.Rank(text)
	return element{offset, at, uint16(register), rank}
}

// raise adds an element and reports whether that changed anything: one that is there,
// and no newer than the newest, does not.
func (b *base) raise(e *element) bool {
	if b.sketch == nil {
		b.sketch, b.time = new(counters.Sketch), -1
	}
	changed := e.time > b.time
	b.time = max(b.time, e.time)
	if b.sketch.Register(int(e.register)) < e.rank {
		b.sketch.SetRegister(int(e.register), e.rank)
		changed = true
	}
	return changed
}

// value returns the cell's value.
func (b *base) value() []byte {
	if b.sketch != nil {
		return appendSketch(nil, b.time, b.sketch)
	}
	return appendCount(nil, b.count)
}

// decodeBase reads the cell that one partition of a source has of a column. The error
// wraps store.ErrCorrupt.
func decodeBase(distinct bool, v *hbase.TColumnValue) (b base, err error) {
	b.at = v.GetTimestamp()
	if len(v.Value) == 0 { // retired
		return b, nil
	}
	if distinct {
		b.time, b.sketch, err = decodeSketch(v.Value)
		return b, err
	}
	if b.count, err = decodeCount(v.Value, 0); err == nil && len(v.Value) != counterValue {
		err = fmt.Errorf("%w: the cell of a source has %d bytes", store.ErrCorrupt, len(v.Value))
	}
	return b, err
}

// merger merges the cells of a column of a DISTINCT family. The zero merger has none.
type merger struct {
	time   cell.Timestamp
	only   []byte           // the sketch of the one cell that there was; nil = there were several
	sketch *counters.Sketch // nil = there was no cell
}

// add takes the value of the next cell. Its error wraps store.ErrCorrupt.
func (m *merger) add(value []byte) error {
	at, s, err := decodeSketch(value) // of one alone, too: what is corrupt is not served
	if err != nil {
		return err
	}
	m.time = max(m.time, at)
	if m.sketch == nil {
		m.only, m.sketch = value[sketchHeader:], s
		return nil
	}
	m.only = nil
	m.sketch.Merge(s)
	return nil
}

// value returns the sketch of all cells.
func (m *merger) value() []byte {
	if m.only != nil {
		return m.only
	}
	return m.sketch.Append(nil)
}

// addition is what one call adds to a distinct count through the API.
type addition struct {
	family   string
	column   []byte
	elements []element // times may be cell.Latest
}

// takes reports whether a mutation that adds o, nil = nothing to a distinct count, may be
// one with a mutation that adds a.
func (a *addition) takes(o *addition) bool {
	if a == nil || o == nil {
		return a == o
	}
	return a.family == o.family && string(a.column) == string(o.column)
}

// adds notes what an operation adds to a distinct count. It returns false where that is
// another one than that of the operations before: HBase tests one column.
func (h *mutation) adds(o *cell.Op) bool {
	if h.addition == nil {
		h.addition = &addition{family: o.Family, column: o.Qualifier}
	}
	if h.addition.family != o.Family || string(h.addition.column) != string(o.Qualifier) {
		return false
	}
	h.addition.elements = append(h.addition.elements, newElement(0, o.Time, o.Value))
	return true
}

// addElements adds to the cell of apiSource by check-and-put. Added again, elements
// change nothing, so an answer that is lost is asked for again.
func (s *Store) addElements(ctx context.Context, h *mutation) error {
	a, now, began := h.addition, s.o.Now(), time.Now()
	qualifier := appendCounter(nil, a.column, apiSource, 0)
	get := &hbase.TGet{Row: h.row, Columns: []*hbase.TColumn{{Family: []byte(a.family), Qualifier: qualifier}}}
	for attempt := 0; ; attempt++ {
		results, err := s.getMultiple(ctx, h.table, []*hbase.TGet{get})
		if err != nil {
			return err
		}
		var b base
		var old []byte
		if values := results[0].ColumnValues; len(values) > 0 {
			old = values[0].Value
			if b, err = decodeBase(true, values[0]); err != nil {
				return fmt.Errorf("column %s:%.100q: %w", a.family, a.column, err)
			}
		}
		changed := false
		for _, e := range a.elements {
			if e.time == cell.Latest {
				e.time = now
			}
			changed = b.raise(&e) || changed
		}
		if !changed {
			return nil
		}
		at := b.at + 1 // no date: what is written last must win, whatever a server's clock says
		put := []*hbase.TColumnValue{{Family: []byte(a.family), Qualifier: qualifier, Value: b.value(), Timestamp: &at}}
		ok, err := s.checkAndPut(ctx, h.table, h.row, a.family, string(qualifier), old, put)
		switch {
		case ok && err == nil:
			return nil
		case err != nil && (!errors.Is(err, store.ErrUnknownOutcome) || ctx.Err() != nil || time.Since(began) > s.o.RetryTimeout):
			return err
		case time.Since(began) > s.o.RetryTimeout:
			return fmt.Errorf("%w: others add to %s:%.100q all the time", store.ErrTransient, a.family, a.column)
		}
		if err != nil {
			continue // checkAndPut has paused
		}
		if err := s.wait(ctx, attempt); err != nil {
			return err
		}
	}
}

// takeElements takes the elements of distinct counts out of the mutations of a batch
// with progress. It returns what is left of these, and the elements by column. The error
// is a *store.BatchError where records are refused.
func (s *Store) takeElements(ctx context.Context, b *store.Batch) (rest []store.Mutation, all []*counter, err error) {
	first := len(b.Mutations)
	for i := range b.Mutations {
		if appends(&b.Mutations[i].Mutation) {
			first = i
			break
		}
	}
	if first == len(b.Mutations) {
		return b.Mutations, nil, nil
	}
	rest = append(make([]store.Mutation, 0, len(b.Mutations)), b.Mutations[:first]...)
	a := &b.Advances[0]
	byKey := map[string]*counter{}
	var key []byte
	var refused refusals
	mark := s.schemas.mark()
	for i := first; i < len(b.Mutations); i++ {
		m := &b.Mutations[i]
		if !appends(&m.Mutation) {
			rest = append(rest, *m)
			continue
		}
		t, err := s.checked(ctx, &m.Mutation, false, mark)
		if err != nil {
			if !refused.add(ctx, m.Offset, m.Table, m.Row, err) {
				return nil, nil, fmt.Errorf("apply batch: %w", err)
			}
			continue
		}
		others := store.Mutation{Offset: m.Offset, Mutation: cell.Mutation{Table: m.Table, Row: m.Row, Read: m.Read, Durability: m.Durability}}
		for j := range m.Ops {
			o := &m.Ops[j]
			if o.Type != cell.OpAppend || !t.Family(o.Family).Distinct {
				others.Ops = append(others.Ops, *o)
				continue
			}
			if m.Offset < max(a.From, 0) || m.Offset >= a.Progress.Next || o.Time < 0 || o.Time == cell.Latest {
				return nil, nil, fmt.Errorf("apply batch: table %s, row %.100q: %w: an element at offset %d and time %d, in a batch of the offsets %d to %d",
					m.Table, m.Row, store.ErrInvalidArgument, m.Offset, o.Time, a.From, a.Progress.Next-1)
			}
			key = appendCounterKey(key[:0], t.Name, o.Family, m.Row, o.Qualifier)
			c := byKey[string(key)]
			if c == nil {
				c = &counter{table: t.Name, family: o.Family, row: m.Row, column: o.Qualifier, key: string(key), distinct: true}
				byKey[c.key] = c
				all = append(all, c)
			}
			if n := len(c.elements); n > 0 && c.elements[n-1].offset > m.Offset {
				return nil, nil, fmt.Errorf("apply batch: table %s, row %.100q: %w: elements of one column at offsets %d and %d are not in order",
					m.Table, m.Row, store.ErrInvalidArgument, c.elements[n-1].offset, m.Offset)
			}
			c.elements = append(c.elements, newElement(m.Offset, o.Time, o.Value))
		}
		if len(others.Ops) > 0 {
			rest = append(rest, others)
		}
	}
	return rest, all, refused.err()
}

func appends(m *cell.Mutation) bool {
	for i := range m.Ops {
		if m.Ops[i].Type == cell.OpAppend {
			return true
		}
	}
	return false
}
