package memstore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	"sluice/cell"
	"sluice/store"
)

var (
	_ store.ChangeHolder = (*Store)(nil)
	_ store.ChangeReader = (*snapshot)(nil)
)

// HoldChanges makes or renews a hold. The model knows every change anyway; holds
// only decide who may ask.
func (s *Store) HoldChanges(ctx context.Context, h store.ChangeHold) (store.ChangeHold, error) {
	if err := h.Check(); err != nil {
		return h, err
	}
	err := s.change(ctx, "hold changes of", h.Table, func(*table) error {
		s.dropHolds()
		asked := h.Since
		s.sequence++
		h.Since = s.sequence
		if old, ok := s.holds[h.Name]; ok && old.Table == h.Table {
			h.Since = max(old.Since, min(asked, s.sequence))
		}
		s.holds[h.Name] = h
		return nil
	})
	return h, err
}

// ReleaseChanges removes a hold.
func (s *Store) ReleaseChanges(ctx context.Context, name string) error {
	if err := s.begin(ctx); err != nil {
		return fmt.Errorf("release changes held by %s: %w", name, err)
	}
	defer s.mu.Unlock()
	s.dropHolds()
	delete(s.holds, name)
	return nil
}

// dropHolds drops the holds that are over.
func (s *Store) dropHolds() {
	now := s.now()
	maps.DeleteFunc(s.holds, func(_ string, h store.ChangeHold) bool { return h.Until < now })
}

// ChangeHolds returns all holds, by name.
func (s *Store) ChangeHolds(context.Context) ([]store.ChangeHold, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.closed.err(); err != nil {
		return nil, fmt.Errorf("list holds: %w", err)
	}
	return slices.SortedFunc(maps.Values(s.holds), func(a, b store.ChangeHold) int { return cmp.Compare(a.Name, b.Name) }), nil
}

// ChangedRows yields the rows that were changed after since, in any family: the
// families are checked only.
func (n *snapshot) ChangedRows(ctx context.Context, name string, families []string, rows cell.Range, since uint64) iter.Seq2[store.ChangedRow, error] {
	return func(yield func(store.ChangedRow, error) bool) {
		t, err := n.changes(name, families, since)
		if err != nil {
			yield(store.ChangedRow{}, fmt.Errorf("rows of %s changed since %d: %w", name, since, err))
			return
		}
		var keys [][]byte
		for key, sequence := range t.changed {
			if sequence > since && rows.Contains([]byte(key)) {
				keys = append(keys, []byte(key))
			}
		}
		slices.SortFunc(keys, bytes.Compare)
		for _, key := range keys {
			if err := cmp.Or(ctx.Err(), n.closed.err()); err != nil {
				yield(store.ChangedRow{}, fmt.Errorf("rows of %s changed since %d: %w", name, since, err))
				return
			}
			if !yield(store.ChangedRow{Key: key}, nil) {
				return
			}
		}
	}
}

// changes returns a table of which it is known what was changed after since.
func (n *snapshot) changes(name string, families []string, since uint64) (*table, error) {
	if err := n.closed.err(); err != nil {
		return nil, err
	}
	t := lookup(n.tables, name)
	switch {
	case t == nil:
		return nil, store.ErrTableNotFound
	case isSystem(t.desc.Name):
		return nil, fmt.Errorf("%w: a system table", store.ErrUnsupported)
	case since > n.sequence:
		return nil, fmt.Errorf("%w: the snapshot is of %d", store.ErrInvalidArgument, n.sequence)
	case since < t.altered:
		return nil, fmt.Errorf("%w: the table was created, truncated or altered by commit %d", store.ErrChangesUnknown, t.altered)
	}
	for _, f := range families {
		if t.desc.Family(f) == nil {
			return nil, fmt.Errorf("%w: %s", store.ErrFamilyNotFound, f)
		}
	}
	for _, h := range n.holds {
		if h.Table == t.desc.Name && h.Since <= since {
			return t, nil
		}
	}
	return nil, fmt.Errorf("%w: nobody holds them", store.ErrChangesUnknown)
}
