package pebblestore

import (
	"errors"
	"fmt"
	"slices"

	"sluice/cell"
	"sluice/store"
)

// offset is the cached progress of one source's partition. Only the commit loop
// touches it.
type offset struct {
	key     string // its stored key
	next    int64  // store.Absent where nothing is stored
	dropped store.Unapplied
	value   []byte // as stored
}

// offsetUndo restores an offset to what it was before one Advance.
type offsetUndo struct {
	o       *offset
	next    int64
	dropped store.Unapplied
	value   []byte
}

// undo takes the Advance back.
func (u *offsetUndo) undo() { u.o.next, u.o.dropped, u.o.value = u.next, u.dropped, u.value }

// batch stages b, whole or not at all, and returns what became of its records. p is
// of b, or nil. Its error is a *store.BatchError or wraps store.ErrStale.
//
// There are two ways to stage a batch, of which the second has a case of its own for
// records. Member by member (members) is the one that can do all: what is read sees the
// members before it, and what is wrong is told of the record that it is of. What depends on
// nothing stored is prepared (prepared), encoded, summed and sorted beside the loop, where
// staging it is one copy; where a part of it is wrong it is not prepared, so that only
// members has to say what. Records of which only their event ids depend on what is stored
// are prepared, too, as if none was used (preparedUnits), and not as members: nearly all
// ids are new, and what the few others add is taken off again.
func (c *commit) batch(b *store.Batch, p *prepared) (store.Unapplied, error) {
	m := c.mark()
	c.sync = c.sync || len(b.Advances)+len(b.Counters)+len(b.Records) > 0
	if err := c.advance(b.Advances); err != nil {
		c.rollback(m)
		return store.Unapplied{}, err
	}
	var refused []store.Refusal
	refuse := func(offset int64, table string, row []byte, err error) error {
		if !refusable(err) {
			return err
		}
		refused = append(refused, store.Refusal{Offset: offset, Table: table, Row: slices.Clone(row), Err: err})
		return nil
	}
	var dropped store.Unapplied
	var err error
	if p, ok := c.prepare(b, p); ok {
		dropped, err = c.adopt(p, b, refuse)
	} else {
		dropped, err = c.members(b, refuse)
	}
	if err == nil && len(refused) > 0 {
		err = store.NewBatchError(refused)
	}
	if err == nil {
		err = c.drop(b.Advances, dropped)
	}
	if err != nil {
		c.rollback(m)
		return store.Unapplied{}, err
	}
	c.bulk = c.bulk || b.Bulk
	return dropped, nil
}

// drop counts what was dropped of a batch in the progress that its last Advance
// has staged.
func (c *commit) drop(advances []store.Advance, d store.Unapplied) error {
	if d == (store.Unapplied{}) {
		return nil
	}
	a, err := store.CountsUnapplied(advances)
	if a == nil {
		return err
	}
	o := c.offsets[len(c.offsets)-1].o
	o.dropped.Unmet += d.Unmet
	o.dropped.Duplicate += d.Duplicate
	c.seq++
	o.value = c.progress(a, o)
	return nil
}

// progress returns the stored form of what a, the last Advance of o, makes of it.
func (c *commit) progress(a *store.Advance, o *offset) []byte {
	p := a.Progress.Settle(o.dropped)
	return appendSystemValue(nil, c.now, c.seq, store.AppendProgress(nil, &p))
}

// refusable reports whether err is about one record, which the batch can do
// without. Whatever else there is, a disk that cannot be read above all, is about
// the store: records must not become dead letters for it, nor for a table that an
// operator has disabled for a while.
func refusable(err error) bool {
	if errors.Is(err, store.ErrTableNotEnabled) || errors.Is(err, store.ErrTransient) || errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrClosed) {
		return false
	}
	for _, class := range []error{
		store.ErrRefused, store.ErrInvalidArgument, store.ErrTableNotFound, store.ErrFamilyNotFound,
		store.ErrTimestampTooFar, store.ErrIncompatibleFilter, store.ErrWrongRow,
	} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

// members stages the puts, mutations and records of b in the order of
// store.Batch.InOrder, then its counters. What can be wrong with a counter does
// not depend on what is stored: it is known first, so that no member sees another
// of a record that is refused for a counter.
func (c *commit) members(b *store.Batch, refuse func(int64, string, []byte, error) error) (store.Unapplied, error) {
	var bad map[int64]bool
	l := &c.deltaList
	if err := l.take(&c.staging, b.Counters, func(d *store.CounterDelta, err error) error {
		if bad == nil {
			bad = map[int64]bool{}
		}
		bad[d.Offset] = d.Offset >= 0
		return refuse(d.Offset, d.Table, d.Row, err)
	}); err != nil {
		return store.Unapplied{}, err
	}
	run := recordRun{c: c, bad: bad, refuse: refuse}
	var err error
	mutation := func(offset int64, m *cell.Mutation) {
		if err != nil || !run.enter(offset) {
			return
		}
		t, e := c.table(m.Table)
		if e == nil {
			_, e = c.mutate(t, m, 0)
		}
		if e != nil {
			if err = run.fail(m.Table, m.Row, e); err != nil {
				return
			}
		}
		run.applied = true
	}
	b.InOrder(func(p *store.PackedPut) {
		c.ops = p.AppendOps(c.ops[:0])
		mutation(p.Offset, &cell.Mutation{Table: p.Table, Row: p.Row, Ops: c.ops})
	}, func(m *store.Mutation) {
		mutation(m.Offset, &m.Mutation)
	}, func(r *store.Record) {
		if err == nil && run.enter(r.Offset) {
			err = c.record(r, &run)
		}
	})
	if err != nil {
		return store.Unapplied{}, err
	}
	run.end()
	l.order(c.db.loop.counters)
	return run.dropped, c.addDeltas(l, b.Counters, refuse)
}

// recordRun is the members of one record, which stand together in a batch. Where
// one of them is refused, all are taken back and none is staged any more: what
// comes behind is tested against what will be there without them.
type recordRun struct {
	c      *commit
	bad    map[int64]bool // offsets of records that are refused for a counter
	refuse func(int64, string, []byte, error) error

	offset  int64
	before  mark // of the record's first member
	begun   bool
	refused bool
	outcomes
	dropped store.Unapplied // of the runs that have ended
}

// outcomes says which of them the members of a record had.
type outcomes struct{ applied, unmet, duplicate bool }

// enter begins with the next member, of the record at offset, and reports whether
// it is to be staged. Members without a record, at offset -1, stand alone.
func (r *recordRun) enter(offset int64) bool {
	if !r.begun || offset != r.offset || offset < 0 {
		r.end()
		r.begun, r.offset, r.before, r.refused = true, offset, r.c.mark(), r.bad[offset]
	}
	return !r.refused
}

// end counts the record whose members have all been entered.
func (r *recordRun) end() {
	switch o := r.outcomes; {
	case o.applied || r.refused:
	case o.unmet:
		r.dropped.Unmet++
	case o.duplicate:
		r.dropped.Duplicate++
	}
	r.outcomes = outcomes{}
}

// fail refuses the record of the current member.
func (r *recordRun) fail(table string, row []byte, err error) error {
	r.c.rollback(r.before)
	r.refused = true
	return r.refuse(r.offset, table, row, err)
}

// record stages one conditional unit, or drops it.
func (c *commit) record(r *store.Record, run *recordRun) error {
	m := c.mark()
	outcome, name, row, err := c.unit(r)
	if err != nil {
		return run.fail(name, row, err)
	}
	if !outcome.applied {
		c.rollback(m)
		c.conflicts++
	}
	run.applied = run.applied || outcome.applied
	run.unmet = run.unmet || outcome.unmet
	run.duplicate = run.duplicate || outcome.duplicate
	return nil
}

// unit stages r and says what came of it: one outcome. Where it is not applied
// the caller rolls back. On an error name and row are of the mutation at fault.
func (c *commit) unit(r *store.Record) (o outcomes, name string, row []byte, err error) {
	r = r.Unpacked()
	if len(r.Mutations) > 0 {
		name, row = r.Mutations[0].Table, r.Mutations[0].Row
	}
	if err := r.Check(); err != nil {
		return o, name, row, err
	}
	if len(r.Once) > 0 {
		switch seen, err := c.once(r.Once, r.OnceTTL); {
		case err != nil:
			return o, name, row, err
		case seen:
			return outcomes{duplicate: true}, "", nil, nil
		}
	}
	o.applied = len(r.Mutations) == 0
	for i := range r.Mutations {
		m := &r.Mutations[i]
		t, err := c.table(m.Table)
		if err != nil {
			return o, m.Table, m.Row, err
		}
		var tested cell.Timestamp
		var conds [2]*store.Cond
		if i == 0 {
			conds[0] = r.Cond
		}
		if r.Checks != nil {
			conds[1] = r.Checks[i]
		}
		holds := true
		for k := 0; holds && k < len(conds); k++ {
			if conds[k] == nil {
				continue
			}
			var at cell.Timestamp
			if holds, at, err = store.CheckCondition(t.desc, m.Row, conds[k], c.readRow); err != nil {
				return o, m.Table, m.Row, err
			}
			tested = max(tested, at)
			if !holds && k == 0 {
				return outcomes{unmet: true}, "", nil, nil
			}
		}
		if !holds {
			continue
		}
		if _, err := c.mutate(t, m, tested); err != nil {
			return o, m.Table, m.Row, err
		}
		o.applied = o.applied || !r.Aside(i)
	}
	o.unmet = !o.applied
	return o, "", nil, nil
}

// advance stages the compare-and-sets of the batch.
func (c *commit) advance(all []store.Advance) error {
	for i := range all {
		a := &all[i]
		row := store.AppendSourceRow(nil, &a.Source, a.Partition)
		if err := cell.CheckRow(row); err != nil {
			return fmt.Errorf("%w: source of pipeline %s, topic %s: %w", store.ErrInvalidArgument, a.Source.Pipeline, a.Source.Topic, err)
		}
		o, err := c.offset(row)
		if err != nil {
			return err
		}
		if o.next != a.From {
			return fmt.Errorf("%w: pipeline %s, topic %s, partition %d: stored %d, expected %d",
				store.ErrStale, a.Source.Pipeline, a.Source.Topic, a.Partition, o.next, a.From)
		}
		c.offsets = append(c.offsets, offsetUndo{o: o, next: o.next, dropped: o.dropped, value: o.value})
		c.seq++
		if a.From == store.Absent {
			o.dropped = store.Unapplied{Unmet: a.Progress.Unmet, Duplicate: a.Progress.Duplicate} // it may go on from another store
		}
		o.next = a.Progress.Next
		o.value = c.progress(a, o)
	}
	return nil
}

// offset returns the current progress of a row of the offsets table.
func (c *commit) offset(row []byte) (*offset, error) {
	key := offsetKey(row)
	if o := c.db.loop.offsets[string(key)]; o != nil {
		return o, nil
	}
	o := &offset{key: string(key), next: store.Absent}
	value, ok, err := c.lookup(key)
	if err != nil {
		return nil, err
	}
	if ok {
		_, _, payload, err := decodeSystemValue(value)
		if err != nil {
			return nil, err
		}
		p, err := store.DecodeProgress(payload)
		if err != nil {
			return nil, err
		}
		o.next, o.value = p.Next, slices.Clone(value)
		o.dropped = store.Unapplied{Unmet: p.Unmet, Duplicate: p.Duplicate}
	}
	c.db.loop.offsets[o.key] = o
	return o, nil
}

func offsetKey(row []byte) []byte {
	key := cell.AppendRowPrefix(nil, cell.TagSystem, offsetsID, systemFamily, row)
	return cell.AppendPart(key, []byte(store.ProgressQualifier))
}
