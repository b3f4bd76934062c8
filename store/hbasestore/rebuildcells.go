package hbasestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// What a switch (type switcher) does with the cells of counters.

// numbers says which sources count in which way.
type numbers struct {
	others map[uint32]string // pipelines that are not this one
	fresh  map[uint32]bool   // of the rebuild, and of redrives since it was begun
	// live are the numbers by which partitions of the pipeline, and journals of its
	// redrives, begin: of those what has another number now, or gets one, is retired.
	live    map[uint32]bool
	retired map[cellSource]bool
}

// cellSource is what the qualifier of a counter's cell names besides the column.
type cellSource struct {
	source    uint32
	partition int32
}

// retires reports whether a cell is retired.
func (n *numbers) retires(source uint32, partition int32) bool {
	switch {
	case n.fresh[source] || n.others[source] != "":
		return false
	case n.live[source]:
		return n.retired[cellSource{source, partition}]
	}
	return true
}

// numbers reads which numbers are whose, for a switch to rebuilt.
func (w *switcher) numbers(ctx context.Context, rebuilt string) (*numbers, error) {
	n := &numbers{others: map[uint32]string{}, fresh: map[uint32]bool{}, live: map[uint32]bool{}, retired: map[cellSource]bool{}}
	lives := map[store.Source]uint32{}
	if err := w.each(ctx, sourcesTable, nil, ownRows, func(r *hbase.TResult_) error {
		if bytes.Equal(r.Row, []byte(numbersRow)) {
			return nil
		}
		src, _, err := store.DecodeSourceRow(append(bytes.Clone(r.Row), 0, 0, 0, 0))
		if err != nil {
			return err
		}
		if len(r.ColumnValues) == 0 {
			return fmt.Errorf("%w: row %.100q of %s", store.ErrCorrupt, r.Row, sourcesTable)
		}
		s, err := decodeSource(r.ColumnValues[0].Value)
		if err != nil {
			return err
		}
		switch {
		case !w.ours(src.Pipeline):
			n.others[s.id] = src.Pipeline
		case src.Pipeline == rebuilt, src.Pipeline == rebuilt+redriveSuffix, src.Pipeline == rebuilt+keptSuffix:
			n.fresh[s.id] = true
		case src.Pipeline == w.pipeline, src.Pipeline == w.pipeline+redriveSuffix:
			n.live[s.id], lives[src] = true, s.id
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if err := w.each(ctx, journalsTable, nil, ownRows, func(r *hbase.TResult_) error {
		src, number, err := store.DecodeSourceRow(r.Row)
		if err != nil || src.Pipeline != w.pipeline+redriveSuffix {
			return err
		}
		for _, v := range r.ColumnValues {
			if string(v.Qualifier) != stateQualifier {
				continue
			}
			s, err := decodeJournalState(v.Value)
			if err != nil {
				return err
			}
			if s.source != lives[src] {
				n.retired[cellSource{lives[src], number}] = true
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	all, err := w.partitions(ctx, rebuilt)
	for _, p := range all {
		if p.state.becomes != 0 {
			n.retired[cellSource{lives[p.source], p.number}] = true
		}
	}
	return n, err
}

// replace is step 4 for one family.
func (w *switcher) replace(ctx context.Context, r *store.FamilyReplacement, n *numbers) error {
	d, err := w.tables.descriptor(ctx, r.Table)
	if errors.Is(err, store.ErrTableNotFound) { // it was dropped since
		return nil
	}
	if err != nil {
		return err
	}
	served := d.Family(r.Family)
	if served == nil || r.By != "" && d.Family(r.By) == nil { // it was done
		return nil
	}
	families := []string{r.Family}
	if r.By != "" {
		families = append(families, r.By)
	}
	var start []byte
	for {
		rows, err := w.x.cells.scanRows(ctx, d.Name, families, start, counterRows)
		if err != nil || len(rows) == 0 {
			return err
		}
		var hs []*mutation
		for _, row := range rows {
			more, err := n.rewrite(d.Name, r, served.Distinct, row)
			if err != nil {
				return err
			}
			hs = append(hs, more...)
		}
		if err := errors.Join(w.x.cells.write(ctx, hs)...); err != nil {
			return err
		}
		start = append(bytes.Clone(rows[len(rows)-1].Row), 0)
	}
}

// change is what becomes of a cell of a column: a put of it, or a delete.
type change struct {
	column []byte
	put    *hbase.TColumnValue
	delete *hbase.TColumn
}

// rewrite returns the mutations that put the cells of r.By into the place of those of
// r.Family in one row: one, but for rows so large that each is of some columns.
func (n *numbers) rewrite(table string, r *store.FamilyReplacement, distinct bool, row *hbase.TResult_) ([]*mutation, error) {
	var changes []change
	there := map[string]*hbase.TColumnValue{} // of r.Family, by qualifier
	for _, v := range row.ColumnValues {
		if string(v.Family) == r.Family {
			there[string(v.Qualifier)] = v
		}
	}
	family := []byte(r.Family)
	for _, v := range row.ColumnValues {
		column, source, partition, _, err := decodeCounter(v.Qualifier, nil)
		if err != nil {
			return nil, fmt.Errorf("table %s, row %.100q: %w", table, row.Row, err)
		}
		c := change{column: column}
		at := v.GetTimestamp()
		switch {
		case string(v.Family) != r.Family:
			old := there[string(v.Qualifier)]
			if source == apiSource || old != nil && old.GetTimestamp() >= at {
				continue
			}
			c.put = &hbase.TColumnValue{Family: family, Qualifier: v.Qualifier, Value: v.Value, Timestamp: &at}
		case source == apiSource && partition == 0 && !distinct: // HBase adds to it
			c.delete = &hbase.TColumn{Family: family, Qualifier: v.Qualifier, Timestamp: &at}
		case len(v.Value) == 0:
			continue
		case source == apiSource:
			if partition == 0 {
				at++ // its timestamps count its changes
			}
			c.put = &hbase.TColumnValue{Family: family, Qualifier: v.Qualifier, Value: []byte{}, Timestamp: &at}
		case n.retires(source, partition):
			at = retiredAt
			c.put = &hbase.TColumnValue{Family: family, Qualifier: v.Qualifier, Value: []byte{}, Timestamp: &at}
		default:
			continue
		}
		changes = append(changes, c)
	}
	slices.SortStableFunc(changes, func(a, b change) int { return bytes.Compare(a.column, b.column) })
	var hs []*mutation
	var h *mutation
	for i := range changes {
		c := &changes[i]
		if h == nil || h.size > maxCallBytes && !bytes.Equal(changes[i-1].column, c.column) {
			h = &mutation{table: table, row: row.Row}
			hs = append(hs, h)
		}
		h.change(c)
	}
	return hs, nil
}

// change adds a change of a cell to h: puts are one write, and deletes another.
func (h *mutation) change(c *change) {
	i := slices.IndexFunc(h.writes, func(m *hbase.TMutation) bool { return (m.Put != nil) == (c.put != nil) })
	if i < 0 {
		i = len(h.writes)
		m := &hbase.TMutation{}
		if c.put != nil {
			m.Put = &hbase.TPut{Row: h.row}
		} else {
			m.DeleteSingle = hbase.NewTDelete()
			m.DeleteSingle.Row, m.DeleteSingle.DeleteType = h.row, hbase.TDeleteType_DELETE_COLUMNS
		}
		h.writes = append(h.writes, m)
	}
	if c.put != nil {
		h.writes[i].Put.ColumnValues = append(h.writes[i].Put.ColumnValues, c.put)
		h.size += len(h.row) + len(c.put.Family) + len(c.put.Qualifier) + len(c.put.Value) + 16
		return
	}
	h.writes[i].DeleteSingle.Columns = append(h.writes[i].DeleteSingle.Columns, c.delete)
	h.size += len(h.row) + len(c.delete.Family) + len(c.delete.Qualifier) + 16
}
