package memstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"sluice/cell"
	"sluice/counters"
	"sluice/store"
)

// tx is one commit in the making: an overlay of changed rows over the store's.
// Reads through it see what it has written. The store is locked for its life.
type tx struct {
	s        *Store
	now      cell.Timestamp // the clock is read once a commit
	sequence uint64
	rows     map[rowKey]*row
	once     map[onceKey]struct{}
	undo     []func() // what takes back the changes, last to first
	wrote    []rowKey // rows that were mutated, for region.Load
}

type rowKey struct{ table, row string }

// onceKey is an event id and for how many ms it is remembered; 0 = for ever.
type onceKey struct {
	id  string
	ttl int64
}

func (s *Store) newTx() *tx {
	return &tx{s: s, now: s.now(), sequence: s.sequence, rows: make(map[rowKey]*row), once: make(map[onceKey]struct{})}
}

func (tx *tx) commit() {
	if len(tx.rows) > 0 {
		tx.sequence++ // that of the change, whatever was written
	}
	for k, r := range tx.rows {
		tx.s.tables[k.table].changed[k.row] = tx.sequence
		if r == nil {
			delete(tx.s.tables[k.table].rows, k.row)
		} else {
			tx.s.tables[k.table].rows[k.row] = r
		}
	}
	for _, k := range tx.wrote {
		tx.s.tables[k.table].load.Wrote([]byte(k.row), int64(tx.now))
	}
	for id := range tx.once {
		tx.s.once[id] = tx.now
	}
	tx.s.sequence = tx.sequence
}

// rollback takes back all changes since undo had n entries.
func (tx *tx) rollback(n int) {
	for i := len(tx.undo) - 1; i >= n; i-- {
		tx.undo[i]()
	}
	tx.undo = tx.undo[:n]
}

func (tx *tx) row(table string, key []byte) *row {
	if r, ok := tx.rows[rowKey{table, string(key)}]; ok {
		return r
	}
	return tx.s.tables[table].rows[string(key)]
}

func (tx *tx) setRow(table string, key []byte, r *row) {
	k := rowKey{table, string(key)}
	old, had := tx.rows[k]
	tx.undo = append(tx.undo, func() {
		if had {
			tx.rows[k] = old
		} else {
			delete(tx.rows, k)
		}
	})
	tx.rows[k] = r
}

// write appends cells, in order of application.
func (tx *tx) write(t *store.TableDescriptor, key []byte, cells []cell.Cell) {
	byFamily := make(map[string][]written)
	for _, c := range cells {
		tx.sequence++
		c.Qualifier, c.Value = bytes.Clone(c.Qualifier), bytes.Clone(c.Value)
		byFamily[c.Family] = append(byFamily[c.Family], written{Cell: c, sequence: tx.sequence})
	}
	r := tx.row(t.Name, key)
	for family, added := range byFamily {
		v := r.family(family)
		v.mem = slices.Concat(v.mem, added)
		r = r.with(family, v)
	}
	tx.setRow(t.Name, key, r)
}

// reader reads one row as the transaction sees it.
func (tx *tx) reader(t *store.TableDescriptor, key []byte) store.ReadRow {
	return func(s *store.Scan) ([]cell.Cell, error) {
		sel, err := store.NewSelection(s, t)
		if err != nil {
			return nil, err
		}
		src := &source{sel: sel, now: tx.now, closed: tx.s.closed}
		if r := tx.row(t.Name, key); r != nil {
			src.rows = []keyed{{string(key), r}}
		}
		sc := store.NewScanner(context.Background(), sel, src)
		defer sc.Close()
		if !sc.Next() {
			return nil, sc.Err()
		}
		return sc.Row().Cells, nil
	}
}

// userTable returns the schema of a table that callers may write.
func (tx *tx) userTable(name string) (*store.TableDescriptor, error) {
	t := lookup(tx.s.tables, name)
	switch {
	case t == nil:
		return nil, fmt.Errorf("%w: %s", store.ErrTableNotFound, name)
	case name == store.OffsetsTable:
		return nil, fmt.Errorf("%w: %s is written by Batch.Advance only", store.ErrRefused, name)
	}
	return t.desc, t.served()
}

// mutate applies m where all of conds are nil or hold. After an error the
// transaction is as it was before.
func (tx *tx) mutate(m *cell.Mutation, conds ...*store.Cond) (store.Result, error) {
	t, err := tx.userTable(m.Table)
	if err != nil {
		return store.Result{}, err
	}
	read := tx.reader(t, m.Row)
	var tested cell.Timestamp
	for _, cond := range conds {
		holds, at, err := store.CheckCondition(t, m.Row, cond, read)
		if err != nil || !holds {
			return store.Result{}, err
		}
		tested = max(tested, at)
	}
	if err := store.ValidateMutation(t, m, tx.now); err != nil {
		return store.Result{}, err
	}
	cells, result, err := store.AppendResolved(nil, t, m, tx.now, max(tx.now, tested), read)
	if err != nil {
		return store.Result{}, err
	}
	tx.write(t, m.Row, cells)
	tx.wrote = append(tx.wrote, rowKey{t.Name, string(m.Row)})
	result = append(result, tx.count(t, m)...)
	slices.SortStableFunc(result, cell.CompareColumns)
	for i := range result {
		result[i].Qualifier, result[i].Value = bytes.Clone(result[i].Qualifier), bytes.Clone(result[i].Value)
	}
	return store.Result{Applied: true, Cells: result}, nil
}

// count applies the operations of m on COUNTER and DISTINCT families, which keep one
// cell a column: 8 bytes big-endian, or a sketch, at the newest event time. It
// returns the counters that were incremented as they are at the end.
func (tx *tx) count(t *store.TableDescriptor, m *cell.Mutation) []cell.Cell {
	if !slices.ContainsFunc(t.Families, func(f store.FamilyDescriptor) bool { return f.InPlace() }) {
		return nil
	}
	r := tx.row(t.Name, m.Row)
	var touched []cell.Cell
	for i := range m.Ops {
		o := &m.Ops[i]
		if o.Type == cell.OpDeleteRow {
			for j := range t.Families {
				if t.Families[j].InPlace() {
					r = r.with(t.Families[j].Name, versions{})
				}
			}
			continue
		}
		f := t.Family(o.Family)
		if !f.InPlace() {
			continue
		}
		all := r.family(f.Name).all()
		at := slices.IndexFunc(all, func(w written) bool { return bytes.Equal(w.Qualifier, o.Qualifier) })
		switch o.Type {
		case cell.OpDeleteFamily:
			all = nil
		case cell.OpDeleteColumn:
			if at >= 0 {
				all = slices.Delete(all, at, at+1)
			}
		case cell.OpAppend:
			all = tx.append(f, all, at, o)
		case cell.OpIncrement:
			time := o.Time
			if time == cell.Latest {
				time = tx.now
			}
			if f.Expired(time, tx.now) {
				continue // too late to count: its bucket is gone
			}
			var n uint64
			if at >= 0 {
				if old := all[at]; !f.Expired(old.Time, tx.now) {
					n, time = binary.BigEndian.Uint64(old.Value), max(time, old.Time)
				}
				all = slices.Delete(all, at, at+1)
			}
			tx.sequence++
			c := cell.Cell{Family: f.Name, Qualifier: bytes.Clone(o.Qualifier), Time: time, Kind: cell.KindPut, Value: binary.BigEndian.AppendUint64(nil, n+uint64(o.Delta))}
			all = append(all, written{Cell: c, sequence: tx.sequence})
			touched = slices.DeleteFunc(touched, func(p cell.Cell) bool { return p.Family == c.Family && bytes.Equal(p.Qualifier, c.Qualifier) })
			touched = append(touched, c)
		}
		r = r.with(f.Name, versions{mem: all})
	}
	tx.setRow(t.Name, m.Row, r)
	return touched
}

// append adds an element to the sketch of a column of a DISTINCT family, whose
// cells are all and whose cell is all[at], if any.
func (tx *tx) append(f *store.FamilyDescriptor, all []written, at int, o *cell.Op) []written {
	time := o.Time
	if time == cell.Latest {
		time = tx.now
	}
	if f.Expired(time, tx.now) {
		return all
	}
	sketch := new(counters.Sketch)
	if at >= 0 {
		if old := all[at]; !f.Expired(old.Time, tx.now) {
			var err error
			if sketch, err = counters.DecodeSketch(old.Value); err != nil {
				panic("memstore: its own sketch: " + err.Error())
			}
			if !sketch.Add(o.Value) && time <= old.Time {
				return all // it is there: nothing is written
			}
			time = max(time, old.Time)
		}
		all = slices.Delete(all, at, at+1)
	}
	sketch.Add(o.Value)
	tx.sequence++
	c := cell.Cell{Family: f.Name, Qualifier: bytes.Clone(o.Qualifier), Time: time, Kind: cell.KindPut, Value: sketch.Append(nil)}
	return append(all, written{Cell: c, sequence: tx.sequence})
}

// checkCounter refuses a delta, which is m as a mutation, for what is no COUNTER
// family, and whatever else is wrong with it.
func (tx *tx) checkCounter(c *store.CounterDelta, m *cell.Mutation) error {
	t, err := tx.userTable(c.Table)
	if err != nil {
		return err
	}
	f := t.Family(c.Family)
	if f == nil {
		return fmt.Errorf("table %s: %w: %q", c.Table, store.ErrFamilyNotFound, c.Family)
	}
	if !f.Counter {
		return fmt.Errorf("table %s: %w: family %s is not a COUNTER family", c.Table, store.ErrRefused, c.Family)
	}
	return store.ValidateMutation(t, m, tx.now)
}

// record applies r or drops it, and says which in o. On an error it returns the
// mutation that was refused.
func (tx *tx) record(r *store.Record, o *outcomes) (*cell.Mutation, error) {
	r = r.Unpacked()
	first := &cell.Mutation{}
	if len(r.Mutations) > 0 {
		first = &r.Mutations[0]
	}
	if err := r.Check(); err != nil {
		return first, err
	}
	id := onceKey{string(r.Once), r.OnceTTL}
	if len(r.Once) > 0 && tx.used(id) {
		o.duplicate = true
		return nil, nil
	}
	if r.Cond != nil && len(r.Mutations) > 0 {
		if holds, err := tx.holds(first, r.Cond); err != nil {
			return first, err
		} else if !holds {
			o.unmet = true
			return nil, nil
		}
	}
	undo := len(tx.undo)
	any := len(r.Mutations) == 0
	for i := range r.Mutations {
		m := &r.Mutations[i]
		conds := []*store.Cond{nil}
		if i == 0 {
			conds[0] = r.Cond
		}
		if r.Checks != nil {
			conds = append(conds, r.Checks[i])
		}
		res, err := tx.mutate(m, conds...)
		if err != nil {
			tx.rollback(undo)
			return m, err
		}
		any = any || res.Applied && !r.Aside(i)
	}
	if !any {
		tx.rollback(undo)
		o.unmet = true
		return nil, nil
	}
	o.applied = true
	if len(r.Once) > 0 {
		tx.once[id] = struct{}{}
		tx.undo = append(tx.undo, func() { delete(tx.once, id) })
	}
	return nil, nil
}

// used reports whether an event id was used, as far as is remembered.
func (tx *tx) used(id onceKey) bool {
	if _, now := tx.once[id]; now {
		return true
	}
	at, before := tx.s.once[id]
	return before && (id.ttl == 0 || int64(tx.now-at) <= id.ttl)
}

// holds reports whether cond holds for the row of m.
func (tx *tx) holds(m *cell.Mutation, cond *store.Cond) (bool, error) {
	t, err := tx.userTable(m.Table)
	if err != nil {
		return false, err
	}
	holds, _, err := store.CheckCondition(t, m.Row, cond, tx.reader(t, m.Row))
	return holds, err
}

// advance is the compare-and-set of a source's offset.
func (tx *tx) advance(a *store.Advance) error {
	key := store.AppendSourceRow(nil, &a.Source, a.Partition)
	before, ok, err := tx.stored(key)
	if err != nil {
		return err
	}
	stored := store.Absent
	if ok {
		stored = before.Next
	} else {
		before.Unmet, before.Duplicate = a.Progress.Unmet, a.Progress.Duplicate // it may go on from another store
	}
	if stored != a.From {
		return fmt.Errorf("apply batch: pipeline %s, topic %s, partition %d: %w: stored %d, expected %d", a.Source.Pipeline, a.Source.Topic, a.Partition, store.ErrStale, stored, a.From)
	}
	tx.progress(key, a.Progress.Settle(store.Unapplied{Unmet: before.Unmet, Duplicate: before.Duplicate}))
	return nil
}

// progress stores p under a row of the offsets table.
func (tx *tx) progress(key []byte, p store.Progress) {
	t := tx.s.tables[store.OffsetsTable].desc
	tx.setRow(t.Name, key, nil) // one version, overwritten in place
	tx.write(t, key, []cell.Cell{{Family: store.ProgressFamily, Qualifier: []byte(store.ProgressQualifier), Time: tx.now, Kind: cell.KindPut, Value: store.AppendProgress(nil, &p)}})
}

// stored returns the progress under a row of the offsets table; ok is false where
// there is none.
func (tx *tx) stored(key []byte) (p store.Progress, ok bool, err error) {
	t := tx.s.tables[store.OffsetsTable].desc
	cells, err := tx.reader(t, key)(&store.Scan{Table: t.Name, Start: key, Stop: key, StopInclusive: true})
	if err != nil || len(cells) == 0 {
		return p, false, err
	}
	p, err = store.DecodeProgress(cells[0].Value)
	return p, err == nil, err
}

// drop counts what was dropped of a batch in the progress of its last Advance.
func (tx *tx) drop(advances []store.Advance, d store.Unapplied) error {
	if d == (store.Unapplied{}) {
		return nil
	}
	a, err := store.CountsUnapplied(advances)
	if err != nil {
		return fmt.Errorf("apply batch: %w", err)
	}
	if a == nil {
		return nil
	}
	key := store.AppendSourceRow(nil, &a.Source, a.Partition)
	p, _, err := tx.stored(key)
	if err != nil {
		return err
	}
	tx.progress(key, p.Settle(store.Unapplied{Unmet: p.Unmet + d.Unmet, Duplicate: p.Duplicate + d.Duplicate}))
	return nil
}

// recordRun is the members of one record, which stand together in a batch. Where
// one of them is refused, all are taken back and none is applied any more.
type recordRun struct {
	tx       *tx
	refused  []store.Refusal
	disabled error // no record's fault: all of them wait

	offset int64
	undo   int // of the transaction, before the record's first member
	begun  bool
	out    bool // the record is refused
	outcomes
	dropped store.Unapplied // of the records that have ended
}

// outcomes says which of them the members of a record had.
type outcomes struct{ applied, unmet, duplicate bool }

// end counts the record whose members have all been entered.
func (r *recordRun) end() {
	switch {
	case r.applied || r.out:
	case r.unmet:
		r.dropped.Unmet++
	case r.duplicate:
		r.dropped.Duplicate++
	}
	r.outcomes = outcomes{}
}

// enter begins with the next member, of the record at offset, and reports whether
// it is to be applied. Members without a record, at offset -1, stand alone.
func (r *recordRun) enter(offset int64) bool {
	if !r.begun || offset != r.offset || offset < 0 {
		r.end()
		refused := func(f store.Refusal) bool { return offset >= 0 && f.Offset == offset }
		r.begun, r.offset, r.undo, r.out = true, offset, len(r.tx.undo), slices.ContainsFunc(r.refused, refused)
	}
	return !r.out
}

// fail refuses the record of the current member.
func (r *recordRun) fail(m *cell.Mutation, err error) {
	r.tx.rollback(r.undo)
	r.out = true
	r.refuse(r.offset, m.Table, m.Row, err)
}

func (r *recordRun) refuse(offset int64, table string, row []byte, err error) {
	if errors.Is(err, store.ErrTableNotEnabled) {
		if r.disabled == nil {
			r.disabled = err
		}
		return
	}
	r.refused = append(r.refused, store.Refusal{Offset: offset, Table: table, Row: bytes.Clone(row), Err: err})
}
