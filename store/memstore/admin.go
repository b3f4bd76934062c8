package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"sluice/region"
	"sluice/store"
)

func isSystem(table string) bool { return strings.HasPrefix(table, store.SystemNamespace+":") }

// Tables returns the names of all user tables, sorted.
func (s *Store) Tables(context.Context) ([]string, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.closed.err(); err != nil {
		return nil, err
	}
	var names []string
	for name := range s.tables {
		if !isSystem(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// CreateTable makes an empty table with len(splits)+1 regions.
func (s *Store) CreateTable(ctx context.Context, d *store.TableDescriptor, splits [][]byte) error {
	if err := s.begin(ctx); err != nil {
		return fmt.Errorf("create table %s: %w", d.Name, err)
	}
	defer s.mu.Unlock()
	d = d.Clone()
	if err := d.Validate(); err != nil {
		return fmt.Errorf("create table: %w", err)
	}
	if isSystem(d.Name) {
		return fmt.Errorf("create table: %w: namespace %s is the store's own", store.ErrInvalidSchema, store.SystemNamespace)
	}
	if err := s.spaces.Check(d.Name); err != nil {
		return fmt.Errorf("create table %s: %w", d.Name, err)
	}
	if s.tables[d.Name] != nil {
		return fmt.Errorf("create table: %w: %s", store.ErrTableExists, d.Name)
	}
	sorted, err := region.SplitKeys(cloneKeys(splits))
	if err != nil {
		return fmt.Errorf("create table %s: %w: %w", d.Name, store.ErrInvalidArgument, err)
	}
	t, err := newTable(d, sorted, s.now())
	if err != nil {
		return fmt.Errorf("create table %s: %w: %w", d.Name, store.ErrInvalidArgument, err)
	}
	s.tables[d.Name] = t
	s.altered(t)
	return nil
}

func cloneKeys(keys [][]byte) [][]byte {
	c := make([][]byte, len(keys))
	for i, k := range keys {
		c[i] = slices.Clone(k)
	}
	return c
}

// userTable returns a table that callers may change.
func (s *Store) userTable(name string) (*table, error) {
	t := lookup(s.tables, name)
	switch {
	case isSystem(name):
		return nil, fmt.Errorf("%w: %s is the store's own", store.ErrRefused, name)
	case t == nil:
		return nil, fmt.Errorf("%w: %s", store.ErrTableNotFound, name)
	}
	return t, nil
}

// change runs f on a user table, with the store locked.
func (s *Store) change(ctx context.Context, what, name string, f func(t *table) error) error {
	if err := s.begin(ctx); err != nil {
		return fmt.Errorf("%s %s: %w", what, name, err)
	}
	defer s.mu.Unlock()
	t, err := s.userTable(name)
	if err == nil {
		err = f(t)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, name, err)
	}
	return nil
}

// AlterTable replaces the schema of a table. Families that are gone lose their
// cells; a family cannot become a COUNTER family or cease to be one.
func (s *Store) AlterTable(ctx context.Context, d *store.TableDescriptor) error {
	if err := s.begin(ctx); err != nil {
		return fmt.Errorf("alter table %s: %w", d.Name, err)
	}
	defer s.mu.Unlock()
	d = d.Clone()
	if err := d.Validate(); err != nil {
		return fmt.Errorf("alter table: %w", err)
	}
	t, err := s.userTable(d.Name)
	if err != nil {
		return fmt.Errorf("alter table: %w", err)
	}
	for i := range t.desc.Families {
		old := &t.desc.Families[i]
		f := d.Family(old.Name)
		if f != nil && f.Counter != old.Counter {
			return fmt.Errorf("alter table %s: %w: family %s: COUNTER cannot change", d.Name, store.ErrInvalidSchema, f.Name)
		}
		if f != nil && f.Distinct != old.Distinct {
			return fmt.Errorf("alter table %s: %w: family %s: DISTINCT cannot change", d.Name, store.ErrInvalidSchema, f.Name)
		}
	}
	for i := range t.desc.Families {
		name := t.desc.Families[i].Name
		if d.Family(name) != nil {
			continue
		}
		for key, r := range t.rows {
			if r = r.with(name, versions{}); r == nil {
				delete(t.rows, key)
			} else {
				t.rows[key] = r
			}
		}
	}
	t.desc = d
	s.altered(t)
	return nil
}

// altered makes nobody know what was changed in t before.
func (s *Store) altered(t *table) {
	s.sequence++
	t.altered = s.sequence
}

// DropTable removes a disabled table and its cells.
func (s *Store) DropTable(ctx context.Context, name string) error {
	return s.change(ctx, "drop table", name, func(t *table) error {
		if err := t.idle(); err != nil {
			return err
		}
		delete(s.tables, t.desc.Name)
		return nil
	})
}

// SplitRegion cuts the region that holds at in two.
func (s *Store) SplitRegion(ctx context.Context, name string, at []byte) error {
	return s.change(ctx, "split a region of", name, func(t *table) error {
		if err := cmp.Or(t.served(), t.desc.CheckSplit()); err != nil {
			return err
		}
		m, err := t.regions.Split(slices.Clone(at), int64(s.now()))
		if err != nil {
			return fmt.Errorf("%w: %w", store.ErrInvalidArgument, err)
		}
		t.reshape(m)
		return nil
	})
}

// MergeRegions makes one region of those that hold rows.
func (s *Store) MergeRegions(ctx context.Context, name string, rows ...[]byte) error {
	return s.change(ctx, "merge regions of", name, func(t *table) error {
		if err := cmp.Or(t.served(), t.desc.CheckMerge()); err != nil {
			return err
		}
		first, last, err := t.regions.Adjacent(rows)
		if err != nil {
			return fmt.Errorf("%w: %w", store.ErrMergeRegion, err)
		}
		m, err := t.regions.Merge(first, last)
		if err != nil {
			return fmt.Errorf("%w: %w", store.ErrMergeRegion, err)
		}
		t.reshape(m)
		return nil
	})
}
