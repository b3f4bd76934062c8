package hbasestore

import (
	"context"
	"fmt"

	"sluice/cell"
	"sluice/store/hbasestore/internal/hbase"
)

// step is one increment.
type step struct {
	offset int64
	delta  int64
	time   cell.Timestamp
}

// counter is the increments of one counter in a batch, by ascending offset, or what the
// batch adds to a distinct count.
type counter struct {
	table, family string
	row, column   []byte
	key           string // of all four, see appendCounterKey
	distinct      bool   // of a DISTINCT family: elements, not steps
	qualifier     []byte // of the cell that the batch's partition has of it
	base          base
	steps         []step
	elements      []element
}

// appendCounterKey appends what tells a column apart from all others.
func appendCounterKey(dst []byte, table, family string, row, column []byte) []byte {
	return append(cell.AppendPart(cell.AppendPart(cell.AppendPart(dst, []byte(table)), []byte(family)), row), column...)
}

// add adds to the base what it does not have, and reports whether there was any. The
// base's timestamp is the offset after its last increment, not the end of the batch:
// the cells of a counter are then the same ones wherever batches end, and a replay
// writes none. Of a distinct count it is the offset after the last element that has
// changed it, by what the elements before have made of it, which borders do not change.
func (c *counter) add() bool {
	before := c.base.at
	for _, s := range c.steps {
		if s.offset >= before {
			c.base.n += s.delta
			c.base.time = max(c.base.time, s.time)
			c.base.at = s.offset + 1
		}
	}
	for i := range c.elements {
		if e := &c.elements[i]; e.offset >= before && c.base.raise(e) {
			c.base.at = e.offset + 1
		}
	}
	return c.base.at > before
}

// countSketches is how many distinct counts are read and written at a time: each may
// have 16 KiB in memory and 12 KiB in a call and in its answer.
const countSketches = 500

// count adds the increments and elements of a batch to the counters' cells.
func (x *exact) count(ctx context.Context, p *partition, number int32, counters []*counter) error {
	for len(counters) > 0 {
		n, sketches := 0, 0
		for n < len(counters) && sketches < countSketches {
			if counters[n].distinct {
				sketches++
			}
			n++
		}
		if err := x.countSome(ctx, p, number, counters[:n]); err != nil {
			return err
		}
		if counters = counters[n:]; len(counters) > 0 {
			p.bases.limit(x.share())
		}
	}
	return nil
}

func (x *exact) countSome(ctx context.Context, p *partition, number int32, counters []*counter) error {
	var unknown []*counter
	for _, c := range counters {
		c.qualifier = appendCounter(nil, c.column, p.state.source, number)
		var ok bool
		if c.base, ok = p.bases.get(c.key); !ok {
			unknown = append(unknown, c)
		}
	}
	if err := x.readBases(ctx, unknown); err != nil {
		return err
	}
	floors, err := decodeFloors(p.state.floors)
	if err != nil {
		return err
	}
	for _, c := range unknown { // what the cache has was counted from the floors of this state
		if at := floors.of(c); at > 0 && c.base.at <= at {
			c.base = base{at: at}
		}
	}
	writes := map[string]*mutation{} // by table and row
	var hs []*mutation
	var key []byte
	for _, c := range counters {
		if !c.add() {
			continue
		}
		key = append(cell.AppendPart(key[:0], []byte(c.table)), c.row...)
		h := writes[string(key)]
		if h == nil || h.size > maxCallBytes {
			h = &mutation{table: c.table, row: c.row, writes: []*hbase.TMutation{{Put: &hbase.TPut{Row: c.row}}}}
			writes[string(key)] = h
			hs = append(hs, h)
		}
		at := c.base.at
		v := &hbase.TColumnValue{Family: []byte(c.family), Qualifier: c.qualifier, Value: c.base.value(), Timestamp: &at}
		put := h.writes[0].Put
		put.ColumnValues = append(put.ColumnValues, v)
		h.size += len(c.row) + len(c.family) + len(v.Qualifier) + len(v.Value) + 16
	}
	if err := ofWrites(x.cells.write(ctx, hs)); err != nil {
		return fmt.Errorf("counters: %w", err)
	}
	for _, c := range counters {
		p.bases.put(c.key, c.base)
		c.base.sketch = nil // the cache's, which drops what is too much
	}
	return nil
}

// readBases reads the cells of counters.
func (x *exact) readBases(ctx context.Context, counters []*counter) error {
	tables := map[string][]*hbase.TGet{}
	of := map[string][][]*counter{} // of each get of a table
	rows := map[string]int{}        // by table and row: the get
	var key []byte
	for _, c := range counters {
		key = append(cell.AppendPart(key[:0], []byte(c.table)), c.row...)
		i, ok := rows[string(key)]
		if !ok {
			i = len(tables[c.table])
			rows[string(key)] = i
			tables[c.table] = append(tables[c.table], &hbase.TGet{Row: c.row})
			of[c.table] = append(of[c.table], nil)
		}
		get := tables[c.table][i]
		get.Columns = append(get.Columns, &hbase.TColumn{Family: []byte(c.family), Qualifier: c.qualifier})
		of[c.table][i] = append(of[c.table][i], c)
	}
	for table, gets := range tables {
		results, err := x.cells.read(ctx, table, gets)
		if err != nil {
			return fmt.Errorf("counters: %w", err)
		}
		for i, r := range results {
			found := map[string]*hbase.TColumnValue{}
			for _, v := range r.ColumnValues {
				key = append(cell.AppendPart(key[:0], v.Family), v.Qualifier...)
				found[string(key)] = v
			}
			for _, c := range of[table][i] {
				key = append(cell.AppendPart(key[:0], []byte(c.family)), c.qualifier...)
				v := found[string(key)]
				if v == nil {
					continue
				}
				var err error
				if c.base, err = decodeBase(c.distinct, v); err != nil {
					return fmt.Errorf("table %s, row %.100q, %s:%.100q: %w", table, c.row, c.family, c.column, err)
				}
			}
		}
	}
	return nil
}
