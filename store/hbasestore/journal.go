package hbasestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"sluice/cell"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// An entry decides about no more units, and writes about no more bytes: it is one
// cell, and the rows that conditions test are read whole.
const (
	journalUnits = 20
	journalBytes = 512 << 10
	// entryOverhead is more than sums and the cell's key add to what units write.
	entryOverhead = 4 << 10
)

var _ store.Journaler = (*Store)(nil)

// ApplyJournaled implements store.Journaler, as type journaled says.
func (s *Store) ApplyJournaled(ctx context.Context, src *store.Source, partition int32, b *store.Batch) error {
	ctx, end, err := s.begin(ctx, false)
	if err != nil {
		return fmt.Errorf("apply batch: %w", err)
	}
	defer end()
	most := s.o.MaxCellBytes
	if s.o.Framed {
		most = min(most, s.o.MaxFrameBytes)
	}
	j := &journaled{journal: journal{x: s.exact, source: src, partition: partition}, schemas: s, nonce: rand.Uint64, most: most - entryOverhead}
	if err := j.apply(ctx, b); err != nil {
		return fmt.Errorf("apply batch: %w", err)
	}
	return nil
}

// schemas is what applying by a journal asks of tables.
type schemas interface {
	Table(ctx context.Context, name string) (*store.TableDescriptor, error)
	validate(ctx context.Context, m *cell.Mutation, conditional bool) (*mutation, error)
	checkCounter(ctx context.Context, c *counter) error
}

// journaled applies conditional units by a journal to a store whose batches are not
// atomic, each whole and once (invariant I2), whoever is killed between two calls and
// whoever else uses the same journal. It is of one call.
//
// Entries come one after the other. In order:
//
//  1. settle: an entry that is pending is carried out, by whoever finds it.
//  2. decide: the rows that conditions test, and the numbers that are added to, are
//     read. What is to be written is known then, to the last byte.
//  3. claim: a check-and-put from the state that was read stores all of that as the
//     journal's next entry.
//  4. carry out: rows; then counters, of which an entry's revision is the offset (see
//     counter.add).
//  5. finish: a check-and-put says that the entry is not pending any more.
//
// What conditions test is changed by entries alone. A state that is not pending says
// that all entries up to it are carried out, and the claim that it is still so: hence
// what was read in between holds at the entry's turn. Who carries an entry out reads
// it from the row, so that all write the same: puts and deletes with times, sums as
// absolute values with a higher timestamp than what they replace, and cells of counters that are a
// pure function of the entries up to theirs. A late or repeated write of an entry
// changes nothing that a later one has changed.
//
// A claim whose answer is lost is found by its nonce. Where another entry stands there
// already nobody knows, and the error says so.
type journaled struct {
	journal
	schemas schemas
	nonce   func() uint64
	most    int // bytes of an entry
}

// unit is a unit of a batch, as the journal takes it.
type unit struct {
	cond   *store.Cond
	table  string // with row, what cond is tested on
	row    []byte
	writes []cell.Mutation // puts and deletes; increments of COUNTER families, elements of DISTINCT ones
	sums   []sum
	size   int
}

// sum is an increment of a column that holds a number.
type sum struct {
	table, family string
	row, column   []byte
	delta         int64
	time          cell.Timestamp // of what is stored
}

func (s *sum) key() string {
	return string(append(cell.AppendPart(cell.AppendPart(cell.AppendPart(nil, []byte(s.table)), s.row), []byte(s.family)), s.column...))
}

func (j *journaled) apply(ctx context.Context, b *store.Batch) error {
	units, err := j.units(ctx, b)
	if err != nil {
		return err
	}
	unmet := int64(0)
	for first := true; first || len(units) > 0; first = false {
		n, u, err := j.some(ctx, units)
		if err != nil {
			return fmt.Errorf("journal of %s, topic %s, partition %d: %w", j.source.Pipeline, j.source.Topic, j.partition, err)
		}
		units, unmet = units[n:], unmet+u
	}
	b.Unapplied = store.Unapplied{Unmet: unmet}
	return nil
}

// units checks a batch and returns what it is made of.
func (j *journaled) units(ctx context.Context, b *store.Batch) ([]*unit, error) {
	if len(b.Puts)+len(b.Mutations)+len(b.Counters)+len(b.Advances) > 0 {
		return nil, fmt.Errorf("%w: a journal takes conditional records alone", store.ErrUnsupported)
	}
	units := make([]*unit, len(b.Records))
	var refused refusals
	for i := range b.Records {
		r := b.Records[i].Unpacked()
		u, err := j.unit(ctx, r)
		units[i] = u
		if err == nil {
			continue
		}
		var table string
		var row []byte
		if len(r.Mutations) > 0 {
			table, row = r.Mutations[0].Table, r.Mutations[0].Row
		}
		if errors.Is(err, store.ErrUnsupported) || !refused.add(ctx, r.Offset, table, row, err) {
			return nil, fmt.Errorf("record %d: %w", r.Offset, err)
		}
	}
	return units, refused.err()
}

// unit checks a record.
func (j *journaled) unit(ctx context.Context, r *store.Record) (*unit, error) {
	switch err := r.Check(); {
	case err != nil:
		return nil, err
	case len(r.Mutations) == 0:
		return nil, fmt.Errorf("%w: a unit without mutations", store.ErrInvalidArgument)
	case r.Once != nil, slices.ContainsFunc(r.Checks, func(c *store.Cond) bool { return c != nil }):
		return nil, fmt.Errorf("%w: event ids, and checks of single mutations, on HBase", store.ErrUnsupported)
	case r.Cond != nil && r.Cond.Time != nil:
		return nil, fmt.Errorf("%w: a condition with a time range, on HBase", store.ErrUnsupported)
	}
	u := &unit{cond: r.Cond, table: store.CanonicalName(r.Mutations[0].Table), row: r.Mutations[0].Row}
	for i := range r.Mutations {
		if err := j.add(ctx, u, &r.Mutations[i]); err != nil {
			return nil, err
		}
	}
	if u.size = len(appendEntry(nil, u.writes)); u.size > j.most {
		return nil, atRow(u.table, u.row, "%w: what its record writes has %d bytes in all, a journal's entry up to %d", store.ErrCellTooLarge, u.size, j.most)
	}
	return u, nil
}

// add checks a mutation of u.
func (j *journaled) add(ctx context.Context, u *unit, m *cell.Mutation) error {
	table := store.CanonicalName(m.Table)
	writes := cell.Mutation{Table: table, Row: m.Row, Durability: m.Durability}
	counted := cell.Mutation{Table: table, Row: m.Row}
	for i := range m.Ops {
		o := &m.Ops[i]
		element := o.Type == cell.OpAppend && j.distinct(ctx, table, o.Family)
		switch {
		case o.Type != cell.OpIncrement && !element:
			writes.Ops = append(writes.Ops, *o)
		case table == store.OutboxTable:
			u.sums = append(u.sums, sum{table: table, family: o.Family, row: m.Row, column: o.Qualifier, delta: o.Delta})
		case o.Time < 0 || o.Time == cell.Latest:
			return atRow(table, m.Row, "%w: %v at time %d", store.ErrInvalidArgument, o.Type, o.Time)
		default:
			if err := j.schemas.checkCounter(ctx, &counter{table: table, family: o.Family, row: m.Row, column: o.Qualifier, distinct: element}); err != nil {
				return err
			}
			counted.Ops = append(counted.Ops, *o)
		}
	}
	if len(writes.Ops) > 0 {
		h, err := j.schemas.validate(ctx, &writes, false)
		if err == nil && h.once {
			err = atRow(table, m.Row, "%w: on HBase a unit is made of puts and deletes with times", store.ErrUnsupported)
		}
		if err != nil {
			return err
		}
		u.writes = append(u.writes, writes)
	}
	if len(counted.Ops) > 0 {
		u.writes = append(u.writes, counted)
	}
	return nil
}

// distinct reports whether a family is a DISTINCT one. What is wrong with another is said
// where it is validated.
func (j *journaled) distinct(ctx context.Context, table, family string) bool {
	t, err := j.schemas.Table(ctx, table)
	if err != nil {
		return false
	}
	f := t.Family(family)
	return f != nil && f.Distinct
}

// counts reports whether an operation adds to a count: those of a mutation of an entry
// all do, or none does.
func counts(o *cell.Op) bool { return o.Type == cell.OpIncrement || o.Type == cell.OpAppend }

// some finishes what is pending, applies the first units and returns how many they
// are, and of how many the condition did not hold.
func (j *journaled) some(ctx context.Context, units []*unit) (n int, unmet int64, err error) {
	nonce := j.nonce()
	at := uint64(0) // the revision of the newest claim
	for {
		s, entry, err := j.change(ctx, nil, func(s journalState, entry []byte, lost bool) (journalState, []byte, error) {
			switch {
			case s.source != apiSource && s.nonce == nonce:
				return s, entry, nil // the answer was lost, and another process has gone on from it
			case lost && s.revision != at:
				return s, nil, fmt.Errorf("%w: another entry of the journal came behind", store.ErrUnknownOutcome)
			case s.pending():
				return s, entry, nil
			}
			var writes []cell.Mutation
			var err error
			if n, unmet, writes, err = j.decide(ctx, s, units); err != nil || len(writes) == 0 {
				return s, nil, err
			}
			at = s.revision
			if s.source == apiSource {
				r, err := j.x.register(ctx, j.source, nil)
				if err != nil {
					return s, nil, err
				}
				s.source = r.id
			}
			s.revision, s.nonce = s.revision+1, nonce
			return s, appendEntry(nil, writes), nil
		})
		if err != nil || !s.pending() {
			return n, unmet, err
		}
		if err := j.carryOut(ctx, s, entry); err != nil || s.nonce == nonce {
			return n, unmet, err
		}
	}
}

// decide returns what the first n units write at the journal's next entry, and of how
// many of them the condition does not hold.
func (j *journaled) decide(ctx context.Context, s journalState, units []*unit) (n int, unmet int64, writes []cell.Mutation, err error) {
	size := 0
	written := map[string]bool{} // rows, by rowOf
	for n < len(units) && n < journalUnits && (n == 0 || size+units[n].size <= min(journalBytes, j.most)) && !written[rowOf(units[n].table, units[n].row)] {
		u := units[n]
		for i := range u.writes {
			written[rowOf(u.writes[i].Table, u.writes[i].Row)] = true
		}
		for i := range u.sums {
			written[rowOf(u.sums[i].table, u.sums[i].row)] = true
		}
		size += u.size
		n++
	}
	rows, sums, err := j.read(ctx, units[:n])
	if err != nil {
		return 0, 0, nil, err
	}
	changed := map[string]*sum{}
	var order []string
	for _, u := range units[:n] {
		holds, err := j.holds(ctx, u, rows[rowOf(u.table, u.row)])
		if err != nil {
			return 0, 0, nil, err
		}
		if !holds {
			unmet++
			continue
		}
		writes = append(writes, u.writes...)
		for i := range u.sums {
			v := u.sums[i]
			key := v.key()
			if changed[key] == nil {
				order = append(order, key)
				stored := v
				stored.delta, stored.time = sums[key].delta, sums[key].time
				changed[key] = &stored
			}
			changed[key].delta += v.delta
		}
	}
	for _, key := range order {
		v := changed[key]
		m := cell.Mutation{Table: v.table, Row: v.row}
		// A number that was copied here has the time of another store.
		m.Put(v.family, v.column, max(cell.Timestamp(s.revision)+1, v.time+1), binary.BigEndian.AppendUint64(nil, uint64(v.delta)))
		writes = append(writes, m)
	}
	return n, unmet, writes, nil
}

func rowOf(table string, row []byte) string {
	return string(append(cell.AppendPart(nil, []byte(table)), row...))
}

// read reads the rows that conditions test, by rowOf, and the numbers that are added
// to, by sum.key.
func (j *journaled) read(ctx context.Context, units []*unit) (rows map[string][]*hbase.TColumnValue, sums map[string]sum, err error) {
	gets := map[string][]*hbase.TGet{} // by table
	rows, sums = map[string][]*hbase.TColumnValue{}, map[string]sum{}
	keys := map[string][]string{} // of the sums of each get, "" = a row that is tested
	for _, u := range units {
		if u.cond != nil {
			gets[u.table], keys[u.table] = append(gets[u.table], &hbase.TGet{Row: u.row}), append(keys[u.table], "")
		}
		for i := range u.sums {
			v := &u.sums[i]
			key := v.key()
			if slices.Contains(keys[v.table], key) {
				continue
			}
			gets[v.table] = append(gets[v.table], &hbase.TGet{Row: v.row, Columns: []*hbase.TColumn{{Family: []byte(v.family), Qualifier: v.column}}})
			keys[v.table] = append(keys[v.table], key)
		}
	}
	for table, all := range gets {
		results, err := j.x.cells.read(ctx, table, all)
		if err != nil {
			return nil, nil, err
		}
		for i, r := range results {
			key := keys[table][i]
			switch {
			case key == "":
				rows[rowOf(table, all[i].Row)] = r.ColumnValues
			case len(r.ColumnValues) == 0:
			case len(r.ColumnValues[0].Value) != 8:
				return nil, nil, fmt.Errorf("table %s, row %.100q: %w: %d bytes", table, all[i].Row, store.ErrNotANumber, len(r.ColumnValues[0].Value))
			default:
				v := r.ColumnValues[0]
				sums[key] = sum{delta: int64(binary.BigEndian.Uint64(v.Value)), time: cell.Timestamp(v.GetTimestamp())}
			}
		}
	}
	return rows, sums, nil
}

// holds tests a unit's condition on its row.
func (j *journaled) holds(ctx context.Context, u *unit, values []*hbase.TColumnValue) (bool, error) {
	if u.cond == nil {
		return true, nil
	}
	t, err := j.schemas.Table(ctx, u.table)
	if err != nil {
		return false, err
	}
	holds, _, err := store.CheckCondition(t, u.row, u.cond, func(s *store.Scan) (cells []cell.Cell, err error) {
		sel, err := store.NewSelection(s, t)
		if err != nil {
			return nil, err
		}
		sc := store.NewScanner(ctx, sel, &oneRowSource{sel, u.row, values})
		if sc.Next() {
			cells = slices.Clone(sc.Row().Cells)
		}
		return cells, errors.Join(sc.Err(), sc.Close())
	})
	return holds, err
}

// oneRowSource is a row that was read whole, in its newest versions.
type oneRowSource struct {
	sel    *store.Selection
	row    []byte
	values []*hbase.TColumnValue // nil at the end
}

// NextRow implements store.RowSource.
func (o *oneRowSource) NextRow(skip func([]byte) bool) (*cell.Row, error) {
	values := o.values
	if o.values = nil; len(values) == 0 || skip != nil && skip(o.row) {
		return nil, nil
	}
	row := &cell.Row{Key: o.row}
	for _, sf := range o.sel.Families() {
		for _, v := range values {
			if sf.Family.Name == string(v.Family) && sf.Wants(v.Qualifier) {
				row.Cells = append(row.Cells, cell.Cell{Family: sf.Family.Name, Qualifier: v.Qualifier, Time: cell.Timestamp(v.GetTimestamp()), Kind: cell.KindPut, Value: v.Value})
			}
		}
	}
	if len(row.Cells) == 0 {
		return nil, nil
	}
	return row, nil
}

// Close implements store.RowSource.
func (o *oneRowSource) Close() error { return nil }

// carryOut writes what the pending entry of s says, and finishes it.
func (j *journaled) carryOut(ctx context.Context, s journalState, entry []byte) error {
	fail := func(err error) error {
		return fmt.Errorf("entry %d is decided and not carried out; whoever uses the journal next does it: %w", s.revision, err)
	}
	ms, err := decodeEntry(entry)
	if err != nil {
		return fail(err)
	}
	rows, counters, err := j.prepare(ctx, s, ms)
	if err != nil {
		return fail(err)
	}
	units, _, _ := joinRows(rows)
	if err := ofWrites(j.x.cells.write(ctx, units)); err != nil {
		return fail(err)
	}
	if err := j.x.count(ctx, &partition{state: state{source: s.source, floors: s.floors}}, j.partition, counters); err != nil {
		return fail(err)
	}
	if _, _, err := j.change(ctx, &s, func(now journalState, _ []byte, _ bool) (journalState, []byte, error) {
		if now == s {
			now.revision++
		}
		return now, nil, nil
	}); err != nil {
		return fail(err)
	}
	return nil
}

// dropped reports whether err says that what an entry writes to is no more. The writes are
// left out then, as if it had been dropped right behind them: nobody could finish the entry,
// and nothing else of the journal be begun.
func dropped(err error) bool {
	return errors.Is(err, store.ErrTableNotFound) || errors.Is(err, store.ErrFamilyNotFound)
}

// prepare returns the writes of an entry in the form in which HBase takes them.
func (j *journaled) prepare(ctx context.Context, s journalState, ms []cell.Mutation) (rows []*mutation, counters []*counter, err error) {
	add := func(m *cell.Mutation) error {
		h, err := j.schemas.validate(ctx, m, false)
		if err == nil {
			rows = append(rows, h)
		}
		return err
	}
	byKey := map[string]*counter{}
	for i := range ms {
		m := &ms[i]
		if len(m.Ops) > 0 && !counts(&m.Ops[0]) {
			err := add(m)
			if dropped(err) {
				for _, o := range m.Ops {
					one := cell.Mutation{Table: m.Table, Row: m.Row, Ops: []cell.Op{o}}
					if err = add(&one); err != nil && !dropped(err) {
						break
					}
					err = nil
				}
			}
			if err != nil {
				return nil, nil, err
			}
			continue
		}
		for k := range m.Ops {
			o := &m.Ops[k]
			key := (&sum{table: m.Table, family: o.Family, row: m.Row, column: o.Qualifier}).key()
			c := byKey[key]
			if c == nil {
				c = &counter{table: m.Table, family: o.Family, row: m.Row, column: bytes.Clone(o.Qualifier), key: key, distinct: o.Type == cell.OpAppend}
				byKey[key] = c
				switch err := j.schemas.checkCounter(ctx, c); {
				case err == nil:
					counters = append(counters, c)
				case !dropped(err):
					return nil, nil, err
				}
			}
			if at := int64(s.revision) - 1; c.distinct {
				c.elements = append(c.elements, newElement(at, o.Time, o.Value))
			} else {
				c.steps = append(c.steps, step{at, o.Delta, o.Time})
			}
		}
	}
	return rows, counters, nil
}
