package hbasestore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluice/cell"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

var _ store.CounterRemover = (*Store)(nil)

// remover removes counters beside processes that count. For each span, in order:
//
//  1. look: which partitions of which sources have cells there, and which rows their
//     states, or journals, have.
//  2. mark: the state of each gets a floor (type floor), at the offset where it stands
//     with nothing begun beyond. Where something is begun, a floor is wanted, and who
//     completes it decides the floor with the same check-and-put.
//  3. delete: of each cell of the span that is not above its partition's floor, the
//     column is deleted up to the floor.
//  4. clear: the floors are taken out of the states again.
//
// Why the counters then have what was applied from the floors on, whoever is killed
// between two calls, and whoever else counts or removes:
//
// A floor is decided by a check-and-put on a state that stands there, with nothing begun
// beyond. So all cells of what is before it are written, and whoever writes them again,
// late, writes none with a timestamp above it, nor in a column that had none: the
// deletes of step 3, which come after, are of all these columns, and hide what comes.
// (HBase forgets a delete when it compacts all of a region; what is written late behind
// that comes back. docs/guarantees.md says so.)
//
// Whoever begins a batch behind the floor has read the state with the floor, or that in
// which it is cleared, and cached no cells from before, as any change of the state drops
// the cache. With the floor, cells that are not above it count as absent; when it is
// cleared, they are deleted. Either way a counter begins at nothing there, and its cells
// are a pure function of the log from the floor on, as type exact has them of the log
// from its start.
//
// Steps 3 and 4 may be done again, by anybody, as long as the floor is there. One that is
// cleared was deleted up to; a higher one of another remover stays. A remover that is
// killed leaves floors with which processes count as they should; the next one finishes.
//
// A redrive's journal has entries in the place of batches, and revisions in that of
// offsets. What came through the API is in cells of its own (removeOwn).
//
// A rebuild counts the log anew: a switch to it takes the floors with the numbers, and
// what was removed and is in the log comes back. Both at once would be exact, too, but
// hardly what anybody wants; so they refuse each other.
type remover struct {
	x        *exact
	tables   familyTables
	wait     func(ctx context.Context, attempt int) error
	patience int // attempts, with wait between them
}

// patience of a remover on HBase is about half a minute.
const patience = 12

// owner is the row of a state that counts under a number.
type owner struct {
	source    store.Source
	partition int32
	row       []byte
	number    uint32
	journal   bool // a redrive's; otherwise a partition's
	floors    floors
}

// sortedSources returns the keys of m in their order: removals do the same calls in the
// same order each time, as schedules that are played again need it.
func sortedSources[V any](m map[cellSource]V) []cellSource {
	return slices.SortedFunc(maps.Keys(m), func(a, b cellSource) int {
		return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.partition, b.partition))
	})
}

func (o *owner) String() string {
	return fmt.Sprintf("pipeline %s, %s/%d", o.source.Pipeline, o.source.Topic, o.partition)
}

// standpoint is where an owner stands.
type standpoint struct {
	number uint32 // apiSource = it is about to be another
	floors floors
	// at is what a floor that is decided now is at: all before it is complete. unfinished =
	// why there is none.
	at         int64
	unfinished error
	last       bool // nobody waits any longer until it is finished
}

// standpoint returns where a partition stands.
func (s *state) standpoint(src *store.Source, partition int32) (*standpoint, error) {
	fs, err := decodeFloors(s.floors)
	st := &standpoint{number: s.source, floors: fs, at: s.next}
	if s.next != s.until {
		st.unfinished = &UnfinishedError{Source: *src, Partition: partition, Next: max(s.next, 0), Until: s.until, Version: s.version}
	}
	if s.becomes != 0 {
		st.number = apiSource
	}
	return st, err
}

// standpoint returns where a journal of redrives stands.
func (s *journalState) standpoint() (*standpoint, error) {
	fs, err := decodeFloors(s.floors)
	st := &standpoint{number: s.source, floors: fs, at: int64(s.revision) + 2}
	if s.pending() {
		st.unfinished = fmt.Errorf("%w: a redrive or purge of dead letters is not carried out: run \"ingest dlq redrive\" or \"purge\" once more, which finishes it", store.ErrRefused)
	}
	return st, err
}

// change changes an owner's floors to what to makes of where it stands. Where that is
// unfinished and to says wait it is asked again after a pause, and at last what is unfinished
// is the error. The floors of a journal that is unfinished are not changed.
func (r *remover) change(ctx context.Context, o *owner, to func(*standpoint) (want floors, wait bool, err error)) error {
	for attempt := 0; ; attempt++ {
		var unfinished error // while it is waited for
		ask := func(st *standpoint, err error) (string, error) {
			if err != nil {
				return "", err
			}
			st.last = attempt == r.patience
			want, wait, err := to(st)
			if unfinished = nil; wait {
				unfinished = st.unfinished
			}
			return want.encode(), err
		}
		var err error
		if o.journal {
			_, _, err = (&journal{x: r.x, source: &o.source, partition: o.partition}).change(ctx, nil, func(s journalState, entry []byte, _ bool) (journalState, []byte, error) {
				want, err := ask(s.standpoint())
				if err == nil && want != s.floors && !s.pending() {
					s.floors, s.revision = want, s.revision+2
				}
				return s, entry, err
			})
		} else {
			_, err = r.x.edit(ctx, statePlace(o.row), func(s state) (state, *store.Progress, error) {
				want, err := ask(s.standpoint(&o.source, o.partition))
				s.floors = want
				return s, nil, err
			})
		}
		switch {
		case err != nil || unfinished == nil:
			return err
		case attempt == r.patience:
			return fmt.Errorf("%s: %w", o, unfinished)
		}
		if err := r.wait(ctx, attempt); err != nil {
			return err
		}
	}
}

func (o *owner) changed() error {
	return fmt.Errorf("%w: %s counts under another number since, by a rebuild", store.ErrStale, o)
}

// mark is step 2 for one owner. It returns the floor.
func (r *remover) mark(ctx context.Context, o *owner, s span) (at int64, err error) {
	low, first := floorWanted, true
	err = r.change(ctx, o, func(st *standpoint) (want floors, wait bool, err error) {
		if st.number != o.number {
			return nil, false, o.changed()
		}
		if first {
			low, first = st.floors.at(s), false // of a remover that was killed, or is slow
		}
		switch at = st.floors.at(s); {
		case at > low:
			return st.floors, false, nil
		case st.unfinished == nil:
			at = st.at
			return st.floors.decide(s, at), false, nil
		case st.last:
			return st.floors.withdraw(s), true, nil
		case o.journal || st.floors.wants(s):
			return st.floors, true, nil
		}
		return append(slices.Clone(st.floors), floor{s, floorWanted}), true, nil
	})
	return at, err
}

// edit changes an owner's floors, of a journal once it is not unfinished.
func (r *remover) edit(ctx context.Context, o *owner, to func(floors) floors) error {
	return r.change(ctx, o, func(st *standpoint) (floors, bool, error) {
		want := to(st.floors)
		if st.number != o.number && len(st.floors) > 0 {
			return nil, false, o.changed()
		}
		return want, o.journal && st.unfinished != nil && !slices.Equal(want, st.floors), nil
	})
}

// owners returns whose states count under which number: of partitions, and of the
// journals of redrives.
func (r *remover) owners(ctx context.Context) (map[cellSource]*owner, error) {
	all := map[cellSource]*owner{}
	add := func(o *owner, st *standpoint, err error) error {
		switch name, redrives := strings.CutSuffix(o.source.Pipeline, redriveSuffix); {
		case strings.Contains(name, mark) || redrives != o.journal:
			return nil // a rebuild's, whose number is that of the pipeline once it is switched to
		case err != nil:
			return err
		case st.number == apiSource:
			return fmt.Errorf("%w: the counters of %s are being switched to those that were counted again", store.ErrRefused, o)
		}
		o.number, o.floors = st.number, st.floors
		all[cellSource{o.number, o.partition}] = o
		return nil
	}
	if err := r.x.eachState(ctx, nil, func(src *store.Source, number int32, row []byte, s *state) error {
		st, err := s.standpoint(src, number)
		return add(&owner{source: *src, partition: number, row: row}, st, err)
	}); err != nil {
		return nil, err
	}
	err := r.x.eachJournal(ctx, nil, func(src *store.Source, number int32, row []byte, s *journalState) error {
		st, err := s.standpoint()
		return add(&owner{source: *src, partition: number, row: row, journal: true}, st, err)
	})
	return all, err
}

// switches returns the revisions of the journals of switches, by row; its error wraps
// store.ErrRefused where one is decided and not carried out. Where two calls return the
// same, no partition has got another number in between.
func (r *remover) switches(ctx context.Context) (map[string]uint64, error) {
	revisions := map[string]uint64{}
	switches := func(pipeline string) bool { return strings.HasSuffix(pipeline, switcherSuffix) }
	err := r.x.eachJournal(ctx, switches, func(src *store.Source, _ int32, row []byte, s *journalState) error {
		if s.pending() {
			return switchPending(src)
		}
		revisions[string(row)] = s.revision
		return nil
	})
	return revisions, err
}

// within calls f for each cell of a span, row by row; ended is called behind each row.
func (r *remover) within(ctx context.Context, s span, f func(row, column []byte, at cellSource, v *hbase.TColumnValue) error, ended func() error) error {
	return r.x.pages(ctx, s.table, []string{s.family}, []byte(s.start), counterRows, func(rows []*hbase.TResult_) (bool, error) {
		for _, row := range rows {
			if s.stop != "" && string(row.Row) >= s.stop {
				return false, nil
			}
			for _, v := range row.ColumnValues {
				column, source, partition, _, err := decodeCounter(v.Qualifier, nil)
				if err != nil {
					return false, fmt.Errorf("table %s, row %.100q: %w", s.table, row.Row, err)
				}
				if !s.has(s.table, string(v.Family), string(row.Row), string(column)) {
					continue
				}
				if err := f(row.Row, column, cellSource{source, partition}, v); err != nil {
					return false, err
				}
			}
			if err := ended(); err != nil {
				return false, err
			}
		}
		return true, nil
	})
}

// look is step 1: who has cells of a span, and how many columns a reader sees.
func (r *remover) look(ctx context.Context, s span, distinct bool) (seen map[cellSource]bool, columns int64, err error) {
	seen = map[cellSource]bool{}
	var a adder
	count := func(ok bool) {
		if ok {
			columns++
		}
	}
	err = r.within(ctx, s, func(_, _ []byte, from cellSource, v *hbase.TColumnValue) error {
		seen[from] = true
		_, ok, err := a.add(s.family, distinct, &cell.Cell{Qualifier: v.Qualifier, Time: cell.Timestamp(v.GetTimestamp()), Value: v.Value})
		count(ok)
		return err
	}, func() error {
		_, ok := a.end()
		count(ok)
		return nil
	})
	return seen, columns, err
}

// remove removes the counters of a span. distinct says that its family is a DISTINCT one.
func (r *remover) remove(ctx context.Context, s span, distinct bool) (n int64, err error) {
	before, err := r.switches(ctx)
	if err != nil {
		return n, err
	}
	seen, _, err := r.look(ctx, s, distinct)
	if err != nil {
		return n, err
	}
	owners, err := r.owners(ctx)
	if err != nil {
		return n, err
	}
	switch after, err := r.switches(ctx); {
	case err != nil:
		return n, err
	case !maps.Equal(before, after): // a number that nobody has may be one that is about to be somebody's
		return n, fmt.Errorf("%w: a rebuild was switched to meanwhile", store.ErrStale)
	}
	up := map[cellSource]int64{} // up to where cells are deleted
	var marked []*owner
	var errs []error
	for _, from := range sortedSources(seen) {
		o := owners[from]
		switch {
		case from.source == apiSource:
		case o == nil:
			up[from] = retiredAt // nobody counts under that number any more
		default:
			at, err := r.mark(ctx, o, s)
			if err != nil { // it keeps its counters
				errs = append(errs, err)
				continue
			}
			up[from] = at
			marked = append(marked, o)
		}
	}
	if n, err = r.delete(ctx, s, up, &distinct); err == nil {
		err = r.clear(ctx, s, up, marked)
	}
	return n, errors.Join(append(errs, err)...)
}

// clear is step 4.
func (r *remover) clear(ctx context.Context, s span, up map[cellSource]int64, marked []*owner) error {
	var errs []error
	for _, o := range marked {
		at := up[cellSource{o.number, o.partition}]
		errs = append(errs, r.edit(ctx, o, func(fs floors) floors { return fs.without(s, at) }))
	}
	return errors.Join(errs...)
}

// deleteBatch is how many rows are deleted from together.
const deleteBatch = 100

// delete is step 3. distinct, where it is not nil, says what the family is: what came
// through the API is removed, too.
func (r *remover) delete(ctx context.Context, s span, up map[cellSource]int64, distinct *bool) (n int64, err error) {
	var hs []*mutation
	flush := func() error {
		err := ofWrites(r.x.cells.write(ctx, hs))
		hs = nil
		return err
	}
	var h *mutation // of the row
	var last []byte
	removed := false // something of the last column
	count := func() {
		if removed {
			n++
		}
		removed = false
	}
	err = r.within(ctx, s, func(row, column []byte, from cellSource, v *hbase.TColumnValue) error {
		if !bytes.Equal(last, column) {
			count()
			last = column
		}
		there := len(v.Value) > 0
		at, ok := up[from]
		if from.source == apiSource {
			if distinct == nil || !there || from.partition != 0 && from.partition != setPartition {
				return nil
			}
			gone, err := r.removeOwn(ctx, s, row, column, from.partition, *distinct)
			removed = removed || gone
			return err
		}
		if !ok || v.GetTimestamp() > at {
			return nil // it was counted since
		}
		removed = removed || there
		if h == nil || h.size > maxCallBytes {
			h = &mutation{table: s.table, row: row}
			hs = append(hs, h)
		}
		h.deleteCounter(s.family, v.Qualifier, at)
		return nil
	}, func() error {
		count()
		h, last = nil, nil
		if len(hs) < deleteBatch {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	return n, err
}

// deleteCounter adds the delete of a cell of a counter up to a timestamp.
func (h *mutation) deleteCounter(family string, qualifier []byte, at int64) {
	if len(h.writes) == 0 {
		d := hbase.NewTDelete()
		d.Row, d.DeleteType = h.row, hbase.TDeleteType_DELETE_COLUMNS
		h.writes = []*hbase.TMutation{{DeleteSingle: d}}
	}
	d := h.writes[0].DeleteSingle
	d.Columns = append(d.Columns, &hbase.TColumn{Family: []byte(family), Qualifier: qualifier, Timestamp: &at})
	h.size += len(h.row) + len(family) + len(qualifier) + 16
}

// removeOwn takes away what a cell of apiSource has, if it has anything, and reports
// whether it had. It is not deleted, as the next one may have the same timestamp, or one
// that is lower: HBase's sums are taken (takenPartition), others lose their value.
func (r *remover) removeOwn(ctx context.Context, s span, row, column []byte, partition int32, distinct bool) (had bool, err error) {
	at := &place{table: s.table, family: s.family, row: row, qualifier: string(appendCounter(nil, column, apiSource, partition))}
	sum := !distinct && partition == 0
	if sum {
		at.qualifier, at.beside = string(appendCounter(nil, column, apiSource, takenPartition)), at.qualifier
	}
	err = change(ctx, r.x.cells, at, func(now *seen) ([]*hbase.TColumnValue, error) {
		there := now.cell
		if sum {
			there = now.beside
		}
		if had = len(valueOf(there)) > 0; !had {
			return nil, nil
		}
		put := &hbase.TColumnValue{Family: []byte(s.family), Qualifier: there.Qualifier, Value: []byte{}}
		time := there.GetTimestamp()
		switch {
		case sum:
			// Between the revisions of two switches, which are even.
			time = 1
			if now.cell != nil {
				time = now.cell.GetTimestamp() | 1
			}
			var err error
			if put, err = takenOf(time, s.family, false, column, there); err != nil {
				return nil, fmt.Errorf("table %s, row %.100q: %w", s.table, row, err)
			}
			if had = !bytes.Equal(put.Value, valueOf(now.cell)); !had {
				return nil, nil
			}
		case partition == 0:
			time++ // its timestamps count its changes
		}
		put.Timestamp = &time
		return []*hbase.TColumnValue{put}, nil
	})
	return had && err == nil, err
}

// finish carries out what removers have left that were killed. It does what these would
// have done next, some time, so that it need not ask whether a rebuild is being switched
// to. A floor is of the number that its state was read with. Where a switch gives the
// partition another one meanwhile, the deletes are of cells that it retires, with a
// timestamp above all floors, and clear finds no floor, or another number, and leaves it.
// What a journal has counted under its number since a rebuild was begun no switch changes.
//
// Its error wraps store.ErrTableNotEnabled where all is done but what is in tables that are
// disabled, which is in nobody's way elsewhere.
func (r *remover) finish(ctx context.Context) error {
	owners, err := r.owners(ctx)
	if err != nil {
		return err
	}
	marked := map[span][]*owner{}
	var spans []span
	var disabled []error
	for _, from := range sortedSources(owners) {
		o := owners[from]
		for _, f := range o.floors {
			if f.at == floorWanted {
				if err := r.edit(ctx, o, func(fs floors) floors { return fs.withdraw(f.span) }); err != nil {
					return err
				}
				continue
			}
			if marked[f.span] == nil {
				spans = append(spans, f.span)
			}
			marked[f.span] = append(marked[f.span], o)
		}
	}
	for _, s := range spans {
		up := map[cellSource]int64{}
		for _, o := range marked[s] {
			up[cellSource{o.number, o.partition}] = o.floors.at(s)
		}
		d, err := r.tables.descriptor(ctx, s.table)
		switch {
		case errors.Is(err, store.ErrTableNotFound):
		case err != nil:
			return err
		case d.Family(s.family) != nil:
			switch _, err := r.delete(ctx, s, up, nil); {
			case errors.Is(err, store.ErrTableNotEnabled):
				disabled = append(disabled, fmt.Errorf("what a removal that was cut off has left in table %s, family %s, is removed by the next one once the table is enabled: %w", s.table, s.family, err))
				continue
			case err != nil:
				return err
			}
		}
		if err := r.clear(ctx, s, up, marked[s]); err != nil {
			return err
		}
	}
	return errors.Join(disabled...)
}

// spans returns the families of a range, as spans, and which of them are DISTINCT ones.
func (r *remover) spans(ctx context.Context, cr *store.CounterRange) (spans []span, distinct []bool, err error) {
	d, err := r.tables.descriptor(ctx, cr.Table)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range cr.Families {
		switch f := d.Family(name); {
		case f == nil:
			return nil, nil, fmt.Errorf("table %s: %w: %q", d.Name, store.ErrFamilyNotFound, name)
		case !f.InPlace():
			return nil, nil, fmt.Errorf("%w: table %s: family %s is no COUNTER or DISTINCT family; its cells are deleted as any", store.ErrInvalidSchema, d.Name, name)
		}
	}
	for i := range d.Families {
		f := &d.Families[i]
		switch {
		case !f.InPlace():
		case strings.Contains(f.Name, mark):
			return nil, nil, fmt.Errorf("%w: table %s has family %s of a rebuild that is not finished: finish it with --switch or --discard of \"ingest replay rebuild\"", store.ErrRefused, d.Name, f.Name)
		case len(cr.Families) == 0 || slices.Contains(cr.Families, f.Name):
			spans = append(spans, span{d.Name, f.Name, string(cr.Rows.Start), string(cr.Rows.Stop), string(cr.Columns.Start), string(cr.Columns.Stop)})
			distinct = append(distinct, f.Distinct)
		}
	}
	if len(spans) == 0 {
		return nil, nil, fmt.Errorf("%w: table %s has no COUNTER or DISTINCT family", store.ErrInvalidSchema, d.Name)
	}
	return spans, distinct, nil
}

// CountCounters implements store.CounterRemover.
func (s *Store) CountCounters(ctx context.Context, cr *store.CounterRange) (int64, error) {
	return s.removing(ctx, "count", cr, func(r *remover, ctx context.Context, sp span, distinct bool) (int64, error) {
		_, n, err := r.look(ctx, sp, distinct)
		return n, err
	}, nil)
}

// RemoveCounters implements store.CounterRemover, as type remover says.
func (s *Store) RemoveCounters(ctx context.Context, cr *store.CounterRange) (int64, error) {
	return s.removing(ctx, "remove", cr, (*remover).remove, (*remover).finish)
}

// removing calls first, if it is not nil, then f for each span of a range.
func (s *Store) removing(ctx context.Context, what string, cr *store.CounterRange, f func(*remover, context.Context, span, bool) (int64, error), first func(*remover, context.Context) error) (sum int64, err error) {
	ctx, end, err := s.begin(ctx, false)
	if err != nil {
		return 0, fmt.Errorf("%s counters: %w", what, err)
	}
	defer end()
	r := &remover{x: s.exact, tables: s, wait: s.wait, patience: patience}
	spans, distinct, err := r.spans(ctx, cr)
	var errs []error
	if err == nil && first != nil {
		if err = first(r, ctx); errors.Is(err, store.ErrTableNotEnabled) {
			errs, err = append(errs, err), nil
		}
	}
	if err != nil {
		return 0, fmt.Errorf("%s counters: %w", what, err)
	}
	for i := range spans {
		n, err := f(r, ctx, spans[i], distinct[i])
		sum += n
		if err != nil {
			errs = append(errs, fmt.Errorf("%s counters of table %s, family %s: %w", what, spans[i].table, spans[i].family, err))
		}
	}
	return sum, errors.Join(errs...)
}
