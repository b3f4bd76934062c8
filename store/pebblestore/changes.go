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
func (s *Snapshot) ChangedRows(ctx context.Context, name string, families []string, rows cell.Range, since uint64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		if err := s.changedRows(ctx, name, families, rows, since, yield); err != nil {
			yield(nil, fmt.Errorf("rows of %s changed since %d: %w", name, since, err))
		}
	}
}

func (s *Snapshot) changedRows(ctx context.Context, name string, families []string, rows cell.Range, since uint64, yield func([]byte, error) bool) (err error) {
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
	w := changeWalk{since: since}
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
		if err != nil || row == nil || !yield(row, nil) {
			return err
		}
	}
}

// changeWalk finds, over some families of a table, the rows with a key of a later
// sequence than since.
type changeWalk struct {
	since uint64
	runs  []changeRun
	row   []byte // the last one, escaped, with its terminator
	name  []byte // the same, as it is
}

// changeRun is the keys of one family under one tag.
type changeRun struct {
	it  *pebble.Iterator
	row []byte // of the key that it is on, escaped, with its terminator; nil = it is at its end
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
		return nil
	}
	r.row = nil
	return engineError(r.it.Error())
}

// next returns the next row, valid until it is called again, or nil at the end.
func (w *changeWalk) next() ([]byte, error) {
	var first []byte
	for i := range w.runs {
		if row := w.runs[i].row; row != nil && (first == nil || bytes.Compare(row, first) < 0) {
			first = row
		}
	}
	if first == nil {
		return nil, nil
	}
	w.row = append(w.row[:0], first...)
	for i := range w.runs {
		if r := &w.runs[i]; r.row != nil && bytes.Equal(r.row, w.row) {
			if err := r.find(r.it.NextPrefix(), w.since); err != nil {
				return nil, err
			}
		}
	}
	w.name = cell.AppendUnescaped(w.name[:0], w.row[:len(w.row)-2])
	return w.name, nil
}

func (w *changeWalk) close() error {
	var errs []error
	for i := range w.runs {
		errs = append(errs, engineError(w.runs[i].it.Close()))
	}
	return errors.Join(errs...)
}
