package hbasestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"sluice/cell"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// step is one increment.
type step struct {
	offset int64
	delta  int64
	time   cell.Timestamp
}

// counter is the increments of one counter in a batch, by ascending offset.
type counter struct {
	table, family string
	row, column   []byte
	key           string // of all four
	qualifier     []byte // of the cell that the batch's partition has of it
	base          base
	steps         []step
}

// add adds to the base what it does not have, and reports whether there was any. The
// base's timestamp is the offset after its last increment, not the end of the batch:
// the cells of a counter are then the same ones wherever batches end, and a replay
// writes none.
func (c *counter) add() bool {
	before := c.base.at
	for _, s := range c.steps {
		if s.offset >= before {
			c.base.n += s.delta
			c.base.time = max(c.base.time, s.time)
			c.base.at = s.offset + 1
		}
	}
	return c.base.at > before
}

// count adds the increments of a batch to the counters' cells.
func (x *exact) count(ctx context.Context, p *partition, number int32, counters []*counter) error {
	if len(counters) == 0 {
		return nil
	}
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
	writes := map[string]*mutation{} // by table and row
	var hs []*mutation
	var key []byte
	for _, c := range counters {
		if !c.add() {
			continue
		}
		key = append(cell.AppendPart(key[:0], []byte(c.table)), c.row...)
		h := writes[string(key)]
		if h == nil {
			h = &mutation{table: c.table, row: c.row, writes: []*hbase.TMutation{{Put: &hbase.TPut{Row: c.row}}}}
			writes[string(key)] = h
			hs = append(hs, h)
		}
		at := c.base.at
		v := &hbase.TColumnValue{Family: []byte(c.family), Qualifier: c.qualifier, Value: appendCount(nil, c.base.count), Timestamp: &at}
		put := h.writes[0].Put
		put.ColumnValues = append(put.ColumnValues, v)
		h.size += len(c.row) + len(c.family) + len(v.Qualifier) + len(v.Value) + 16
	}
	if err := errors.Join(x.cells.write(ctx, hs)...); err != nil {
		return fmt.Errorf("counters: %w", err)
	}
	for _, c := range counters {
		p.bases.put(c.key, c.base)
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
			for _, v := range r.ColumnValues {
				for _, c := range of[table][i] {
					if c.family != string(v.Family) || !bytes.Equal(c.qualifier, v.Qualifier) {
						continue
					}
					n, err := decodeCount(v.Value, 0)
					if err == nil && len(v.Value) != counterValue {
						err = fmt.Errorf("%w: the cell of a source has %d bytes", store.ErrCorrupt, len(v.Value))
					}
					if err != nil {
						return fmt.Errorf("table %s, row %.100q, %s:%.100q: %w", table, c.row, c.family, c.column, err)
					}
					c.base = base{n, v.GetTimestamp()}
				}
			}
		}
	}
	return nil
}
