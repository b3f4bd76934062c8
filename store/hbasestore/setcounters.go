package hbasestore

import (
	"context"
	"encoding/binary"
	"fmt"

	"sluice/cell"
	"sluice/counters"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// setPartition is the partition of apiSource that has, of each column, what
// SetCounters has set, at setTime: as that is set and not added, one timestamp does.
const (
	setPartition int32 = 1
	setTime      int64 = 1
)

// SetCounters gives columns of COUNTER and DISTINCT families a count to begin with: ms
// are puts of 8 bytes big-endian, or of a sketch, with the time of the count. What
// pipelines count, and what comes through the API, comes on top. Set again, a count
// takes the place of the one before, so that the call may be repeated; rows are atomic,
// the call is not. Its error wraps store.ErrInvalidArgument for anything but such puts,
// store.ErrRefused where a family is neither.
func (s *Store) SetCounters(ctx context.Context, ms []cell.Mutation) error {
	ctx, end, err := s.begin(ctx, false)
	if err != nil {
		return fmt.Errorf("set counters: %w", err)
	}
	defer end()
	hs := make([]*mutation, len(ms))
	for i := range ms {
		if hs[i], err = s.setCounters(ctx, &ms[i]); err != nil {
			return fmt.Errorf("set counters: %w", err)
		}
	}
	if err := ofWrites(s.write(ctx, hs)); err != nil {
		return fmt.Errorf("set counters: %w", err)
	}
	return nil
}

func (s *Store) setCounters(ctx context.Context, m *cell.Mutation) (*mutation, error) {
	put := &hbase.TPut{Row: m.Row}
	h := &mutation{table: store.CanonicalName(m.Table), row: m.Row, writes: []*hbase.TMutation{{Put: put}}}
	for i := range m.Ops {
		o := &m.Ops[i]
		c := &counter{table: h.table, family: o.Family, row: m.Row, column: o.Qualifier, distinct: counters.IsSketch(o.Value)}
		if o.Type != cell.OpPut || len(o.Value) != 8 && !c.distinct || o.Time < 0 || o.Time == cell.Latest || o.TTL != 0 {
			return nil, fmt.Errorf("table %s, row %.100q, %s:%.100q: %w: a count is a put of 8 bytes, or of a sketch, with a time", m.Table, m.Row, o.Family, o.Qualifier, store.ErrInvalidArgument)
		}
		if err := s.checkCounter(ctx, c); err != nil {
			return nil, err
		}
		c.base.time = o.Time
		if c.distinct {
			var err error
			if c.base.sketch, err = counters.DecodeSketch(o.Value); err != nil {
				return nil, fmt.Errorf("table %s, row %.100q, %s:%.100q: %w: %w", m.Table, m.Row, o.Family, o.Qualifier, store.ErrInvalidArgument, err)
			}
		} else {
			c.base.n = int64(binary.BigEndian.Uint64(o.Value))
		}
		at := setTime
		v := &hbase.TColumnValue{
			Family: []byte(o.Family), Qualifier: appendCounter(nil, o.Qualifier, apiSource, setPartition),
			Value: c.base.value(), Timestamp: &at,
		}
		put.ColumnValues = append(put.ColumnValues, v)
		h.size += len(m.Row) + len(o.Family) + len(v.Qualifier) + len(v.Value) + 16
	}
	if len(put.ColumnValues) == 0 {
		return nil, fmt.Errorf("table %s, row %.100q: %w: no counts", m.Table, m.Row, store.ErrInvalidArgument)
	}
	return h, nil
}
