package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/store"
)

var _ store.ChangeReader = (*Snapshot)(nil)

// ChangedRows yields the rows that commits after since have changed. It reads the
// blocks that have later keys, and of those the keys.
func (s *Snapshot) ChangedRows(ctx context.Context, name string, families []string, rows cell.Range, since uint64) iter.Seq2[store.ChangedRow, error] {
	return func(yield func(store.ChangedRow, error) bool) {
		if err := s.changedRows(ctx, name, families, rows, since, yield); err != nil {
			yield(store.ChangedRow{}, fmt.Errorf("rows of %s changed since %d: %w", name, since, err))
		}
	}
}

func (s *Snapshot) changedRows(ctx context.Context, name string, families []string, rows cell.Range, since uint64, yield func(store.ChangedRow, error) bool) (err error) {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.db.leave()
	t, err := s.catalog.lookup(name)
	if err != nil {
		return err
	}
	if since > s.sequence {
		return fmt.Errorf("%w: the snapshot is of %d", store.ErrInvalidArgument, s.sequence)
	}
	if err := s.catalog.knowsChanges(t, since); err != nil {
		return err
	}
	w := changeWalk{since: since, closing: s.db.closeIterator}
	defer func() { err = errors.Join(err, w.close()) }()
	for i := range t.fams {
		if len(families) == 0 {
			err = w.add(s.clone(ctx), t, &t.fams[i], rows)
		} else if i < len(families) {
			f, _ := t.family(families[i])
			if f == nil {
				return fmt.Errorf("%w: %s", store.ErrFamilyNotFound, families[i])
			}
			err = w.add(s.clone(ctx), t, f, rows)
		}
		if err != nil {
			return err
		}
	}
	for passed := 0; ; passed++ {
		if passed%probeRows == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		row, err := w.next()
		if err != nil || row.Key == nil || !yield(row, nil) {
			return err
		}
	}
}

// changeWalk finds, over some families of a table, the rows with a key of a later
// sequence than since.
type changeWalk struct {
	since   uint64
	runs    []changeRun
	closing func(*pebble.Iterator) error
	row     []byte // the last one, escaped, with its terminator
	name    []byte // the same, as it is
}

// changeRun is the keys of one family under one tag.
type changeRun struct {
	it      *pebble.Iterator
	row     []byte // of the key that it is on, escaped, with its terminator; nil = it is at its end
	columns int    // that this key puts
	time    cell.Timestamp
}

// add adds the cells and the changes of a family.
func (w *changeWalk) add(open iterators, t *table, f *family, rows cell.Range) error {
	for _, tag := range [...]byte{f.tag, cell.TagChange} {
		o := &pebble.IterOptions{PointKeyFilters: make([]pebble.BlockPropertyFilter, 1, 2)}
		o.PointKeyFilters[0] = newSequenceFilter(w.since)
		o.LowerBound, o.UpperBound = rowBounds(tag, t.id, f.id, rows)
		it, err := open(o)
		if err != nil {
			return engineError(err)
		}
		w.runs = append(w.runs, changeRun{it: it})
		r := &w.runs[len(w.runs)-1]
		if err := r.find(it.First(), w.since); err != nil {
			return err
		}
	}
	return nil
}

// find goes on from where the iterator is, ok, to a key that is later than since.
func (r *changeRun) find(ok bool, since uint64) error {
	for ; ok; ok = r.it.Next() {
		key := r.it.Key()
		var value []byte
		if key[0] == cell.TagCounter {
			var err error
			if value, err = r.it.ValueAndErr(); err != nil {
				return engineError(err)
			}
		}
		sequence, known := keySequence(key, value)
		if known && sequence <= since {
			continue
		}
		split := cell.SplitKey(key)
		if !known || split < prefixBytes+2 {
			return fmt.Errorf("%w: key %x", store.ErrCorrupt, key)
		}
		r.row = key[prefixBytes:split]
		return r.count(key[split:])
	}
	r.row = nil
	return engineError(r.it.Error())
}

// count finds how many columns the key puts that the iterator is on, of which suffix is what
// follows the row.
func (r *changeRun) count(suffix []byte) error {
	r.columns = 0
	if r.it.Key()[0] != cell.TagData { // others end in no version
		return nil
	}
	t, kind, _, isPut := decodePut(suffix)
	if !isPut {
		return nil
	}
	r.columns, r.time = 1, t
	if kind != cell.KindPacked {
		return nil
	}
	value, err := r.it.ValueAndErr()
	if err != nil {
		return engineError(err)
	}
	if r.columns, err = cell.PackedColumns(value); err != nil {
		return fmt.Errorf("%w: key %x: %w", store.ErrCorrupt, r.it.Key(), err)
	}
	return nil
}

// next returns the next row, valid until it is called again, or none at the end.
func (w *changeWalk) next() (row store.ChangedRow, err error) {
	var first []byte
	for i := range w.runs {
		if row := w.runs[i].row; row != nil && (first == nil || bytes.Compare(row, first) < 0) {
			first = row
		}
	}
	if first == nil {
		return row, nil
	}
	w.row = append(w.row[:0], first...)
	for i := range w.runs {
		r := &w.runs[i]
		if r.row == nil || !bytes.Equal(r.row, w.row) {
			continue
		}
		if r.columns > 0 {
			if row.Columns == 0 || r.time < row.Time {
				row.Time = r.time
			}
			row.Columns += r.columns
		}
		if err := r.find(r.it.NextPrefix(), w.since); err != nil {
			return row, err
		}
	}
	w.name = cell.AppendUnescaped(w.name[:0], w.row[:len(w.row)-2])
	row.Key = w.name
	return row, nil
}

func (w *changeWalk) close() error {
	var errs []error
	for i := range w.runs {
		errs = append(errs, w.closing(w.runs[i].it))
	}
	return errors.Join(errs...)
}
