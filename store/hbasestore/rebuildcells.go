package hbasestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"sluice/cell"
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
	old     map[uint32]bool // of rebuilds before, and of redrives before this one
	taken   int64           // timestamp of what is taken of the API's counts
}

// cellSource is what the qualifier of a counter's cell names besides the column.
type cellSource struct {
	source    uint32
	partition int32
}

// retires reports whether a cell is retired.
func (n *numbers) retires(source uint32, partition int32) bool {
	return n.old[source] || n.live[source] && n.retired[cellSource{source, partition}]
}

// knows reports whether n has the numbers of all cells of a family in rows. One that is
// given out later is in no cell that was read before.
func (n *numbers) knows(family string, rows []*hbase.TResult_) (bool, error) {
	for _, row := range rows {
		for _, v := range row.ColumnValues {
			_, source, _, _, err := decodeCounter(v.Qualifier, nil)
			if err != nil {
				return false, err
			}
			if string(v.Family) == family && source != apiSource && n.others[source] == "" && !n.fresh[source] && !n.live[source] && !n.old[source] {
				return false, nil
			}
		}
	}
	return true, nil
}

// numbers reads which numbers are whose, for a switch to rebuilt.
func (w *switcher) numbers(ctx context.Context, rebuilt string) (*numbers, error) {
	n := &numbers{others: map[uint32]string{}, fresh: map[uint32]bool{}, live: map[uint32]bool{}, retired: map[cellSource]bool{}, old: map[uint32]bool{}}
	lives := map[store.Source]uint32{}
	if err := w.x.eachSource(ctx, func(src *store.Source, r *registered) error {
		switch {
		case !w.ours(src.Pipeline):
			n.others[r.id] = src.Pipeline
		case src.Pipeline == rebuilt, src.Pipeline == rebuilt+redriveSuffix, src.Pipeline == rebuilt+keptSuffix:
			n.fresh[r.id] = true
		case src.Pipeline == w.pipeline, src.Pipeline == w.pipeline+redriveSuffix:
			n.live[r.id], lives[*src] = true, r.id
		default:
			n.old[r.id] = true
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if err := w.x.eachJournal(ctx, w.redrive, func(src *store.Source, number int32, _ []byte, s *journalState) error {
		if s.source != lives[*src] {
			n.retired[cellSource{lives[*src], number}] = true
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

// replace is step 4 for one family, as s and what, the state of the journal of switches,
// say.
func (w *switcher) replace(ctx context.Context, s journalState, what *note, r *store.FamilyReplacement) error {
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
	n := &numbers{} // knows none
	return w.x.pages(ctx, d.Name, families, nil, counterRows, func(rows []*hbase.TResult_) (bool, error) {
		known, err := n.knows(r.Family, rows)
		if err == nil && (!known || n.taken == 0) {
			if n, err = w.numbers(ctx, what.rebuilt); err == nil {
				n.taken = what.taken
				known, err = n.knows(r.Family, rows)
			}
		}
		switch {
		case err != nil:
			return false, err
		case !known:
			return false, fmt.Errorf("%w: table %s, family %s: a cell of a source that %s does not have", store.ErrCorrupt, d.Name, r.Family, sourcesTable)
		}
		// Where another process has carried the switch out meanwhile the rows may be
		// those of pipelines that have gone on. As it stands, nothing in them is of a
		// later switch.
		switch now, _, err := w.load(ctx); {
		case err != nil:
			return false, err
		case now != s:
			return false, fmt.Errorf("%w: another process has finished the switch", store.ErrStale)
		}
		var hs []*mutation
		for _, row := range rows {
			more, err := n.rewrite(d.Name, r, served.Distinct, row)
			if err != nil {
				return false, err
			}
			hs = append(hs, more...)
		}
		return true, ofWrites(w.x.cells.write(ctx, hs))
	})
}

// take notes beside what was rebuilt of a row how much of the API's counts is taken
// (takenPartition). These are what was added before the switch is decided; what HBase adds
// from now on is left, whoever carries the switch out, and how often.
func (w *switcher) take(at int64, r *store.FamilyReplacement, distinct bool, row *hbase.TResult_) (*mutation, error) {
	put := &hbase.TPut{Row: row.Row}
	h := &mutation{table: r.Table, row: row.Row, writes: []*hbase.TMutation{{Put: put}}}
	for _, v := range row.ColumnValues {
		column, source, partition, _, err := decodeCounter(v.Qualifier, nil)
		if err != nil {
			return nil, err
		}
		if source != apiSource || partition != 0 || len(v.Value) == 0 {
			continue
		}
		t, err := takenOf(at, r.By, distinct, column, v)
		if err != nil {
			return nil, err
		}
		put.ColumnValues = append(put.ColumnValues, t)
		h.size += len(h.row) + len(r.By) + len(t.Qualifier) + len(t.Value) + 16
	}
	return h, nil
}

// takenOf returns the cell of takenPartition that takes all of v, one of the API's.
func takenOf(at int64, family string, distinct bool, column []byte, v *hbase.TColumnValue) (*hbase.TColumnValue, error) {
	t := &hbase.TColumnValue{Family: []byte(family), Qualifier: appendCounter(nil, column, apiSource, takenPartition), Value: []byte{}, Timestamp: &at}
	if distinct {
		return t, nil
	}
	c, err := decodeCount(v.Value, cell.Timestamp(v.GetTimestamp()))
	t.Value = appendCount(nil, count{-c.n, c.time})
	return t, err
}

// rewrite returns the mutations that put the cells of r.By into the place of those of
// r.Family in one row: one, but for rows so large that each is of some columns.
func (n *numbers) rewrite(table string, r *store.FamilyReplacement, distinct bool, row *hbase.TResult_) ([]*mutation, error) {
	changes, err := n.replaced(r, distinct, row)
	if err != nil {
		return nil, fmt.Errorf("table %s, row %.100q: %w", table, row.Row, err)
	}
	slices.SortStableFunc(changes, func(a, b replacedCell) int { return bytes.Compare(a.column, b.column) })
	var hs []*mutation
	var h *mutation
	for i := range changes {
		c := &changes[i]
		if h == nil || h.size > maxCallBytes && !bytes.Equal(changes[i-1].column, c.column) {
			h = &mutation{table: table, row: row.Row, writes: []*hbase.TMutation{{Put: &hbase.TPut{Row: row.Row}}}}
			hs = append(hs, h)
		}
		p := h.writes[0].Put
		p.ColumnValues = append(p.ColumnValues, c.put)
		h.size += len(h.row) + len(r.Family) + len(c.put.Qualifier) + len(c.put.Value) + 16
	}
	return hs, nil
}

// replacedCell is a cell that a switch puts into a served family, of a counter's column.
type replacedCell struct {
	column []byte
	put    *hbase.TColumnValue
}

// replaced returns what rewrite puts into one row.
func (n *numbers) replaced(r *store.FamilyReplacement, distinct bool, row *hbase.TResult_) (changes []replacedCell, err error) {
	there := map[string]*hbase.TColumnValue{} // by family and qualifier
	cellOf := func(family string, qualifier []byte) *hbase.TColumnValue { return there[family+":"+string(qualifier)] }
	for _, v := range row.ColumnValues {
		there[string(v.Family)+":"+string(v.Qualifier)] = v
	}
	family := []byte(r.Family)
	for _, v := range row.ColumnValues {
		column, source, partition, _, err := decodeCounter(v.Qualifier, nil)
		if err != nil {
			return nil, err
		}
		put := func(value []byte, at int64) {
			changes = append(changes, replacedCell{column, &hbase.TColumnValue{Family: family, Qualifier: v.Qualifier, Value: value, Timestamp: &at}})
		}
		at := v.GetTimestamp()
		switch {
		case string(v.Family) != r.Family:
			old := cellOf(r.Family, v.Qualifier)
			if source == apiSource && (partition != takenPartition || at != n.taken) || old != nil && old.GetTimestamp() >= at {
				continue
			}
			put(v.Value, at)
		case len(v.Value) == 0, source == apiSource && partition == takenPartition:
		case source == apiSource && partition == 0:
			// Of a family that is emptied what there is now is taken, of another what
			// was noted (take). In any case once.
			mark := appendCounter(nil, column, apiSource, takenPartition)
			if done := cellOf(r.Family, mark); done != nil && done.GetTimestamp() >= n.taken {
				continue
			}
			if noted := cellOf(r.By, mark); r.By != "" && (noted == nil || noted.GetTimestamp() != n.taken) {
				continue
			}
			if r.By == "" {
				taken, err := takenOf(n.taken, r.Family, distinct, column, v)
				if err != nil {
					return nil, err
				}
				changes = append(changes, replacedCell{column, taken})
			}
			if distinct { // its timestamps count its changes
				put([]byte{}, at+1)
			}
		case source == apiSource:
			put([]byte{}, at)
		case n.retires(source, partition):
			put([]byte{}, retiredAt)
		}
	}
	return changes, nil
}
