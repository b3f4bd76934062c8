package memstore

import (
	"context"
	"fmt"

	"sluice/cell"
	"sluice/store"
)

// idle reports with store.ErrTableNotDisabled that the table is enabled.
func (t *table) idle() error {
	if !t.disabled {
		return fmt.Errorf("%w: %s", store.ErrTableNotDisabled, t.desc.Name)
	}
	return nil
}

// EnableTable puts a disabled table back into service.
func (s *Store) EnableTable(ctx context.Context, name string) error {
	return s.change(ctx, "enable table", name, func(t *table) error {
		if err := t.idle(); err != nil {
			return err
		}
		t.disabled = false
		return nil
	})
}

// DisableTable takes a table out of service.
func (s *Store) DisableTable(ctx context.Context, name string) error {
	return s.change(ctx, "disable table", name, func(t *table) error {
		if err := t.served(); err != nil {
			return err
		}
		t.disabled = true
		return nil
	})
}

// TableEnabled reports whether a table is in service.
func (s *Store) TableEnabled(_ context.Context, name string) (bool, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.closed.err(); err != nil {
		return false, err
	}
	t := lookup(s.tables, name)
	if t == nil {
		return false, fmt.Errorf("%w: %s", store.ErrTableNotFound, name)
	}
	return !t.disabled, nil
}

// TruncateTable removes all cells of a disabled table and enables it.
func (s *Store) TruncateTable(ctx context.Context, name string, preserveSplits bool) error {
	return s.change(ctx, "truncate table", name, func(t *table) error {
		if err := t.idle(); err != nil {
			return err
		}
		var splits [][]byte
		if preserveSplits {
			splits = t.regions.Splits()
		}
		empty, err := newTable(t.desc, splits, cell.Timestamp(t.regions.NextID(int64(s.now()))))
		if err == nil {
			s.tables[t.desc.Name] = empty
			s.altered(empty)
		}
		return err
	})
}

// namespaces replaces the set of namespaces.
func (s *Store) namespaces(ctx context.Context, what, name string, f func(store.NamespaceSet) (store.NamespaceSet, error)) error {
	err := s.begin(ctx)
	if err == nil {
		defer s.mu.Unlock()
		var set store.NamespaceSet
		if set, err = f(s.spaces); err == nil {
			s.spaces = set
			return nil
		}
	}
	return fmt.Errorf("%s namespace %s: %w", what, name, err)
}

// CreateNamespace makes a namespace.
func (s *Store) CreateNamespace(ctx context.Context, n *store.Namespace) error {
	return s.namespaces(ctx, "create", n.Name, func(set store.NamespaceSet) (store.NamespaceSet, error) { return set.Create(n) })
}

// AlterNamespace replaces the properties of a namespace.
func (s *Store) AlterNamespace(ctx context.Context, n *store.Namespace) error {
	return s.namespaces(ctx, "alter", n.Name, func(set store.NamespaceSet) (store.NamespaceSet, error) { return set.Alter(n) })
}

// DropNamespace removes an empty namespace.
func (s *Store) DropNamespace(ctx context.Context, name string) error {
	return s.namespaces(ctx, "drop", name, func(set store.NamespaceSet) (store.NamespaceSet, error) {
		tables := 0
		for t := range s.tables {
			if store.NamespaceOf(t) == name {
				tables++
			}
		}
		return set.Drop(name, tables)
	})
}

// Namespaces returns all namespaces but the store's own, by name.
func (s *Store) Namespaces(context.Context) ([]store.Namespace, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.closed.err(); err != nil {
		return nil, err
	}
	return s.spaces.All(), nil
}
