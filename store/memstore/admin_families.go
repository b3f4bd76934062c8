package memstore

import (
	"context"
	"fmt"

	"sluice/store"
)

var _ store.FamilyReplacer = (*Store)(nil)

// ReplaceFamilies puts families' cells into others' places.
func (s *Store) ReplaceFamilies(ctx context.Context, replacements []store.FamilyReplacement) error {
	if err := s.begin(ctx); err != nil {
		return fmt.Errorf("replace families: %w", err)
	}
	defer s.mu.Unlock()
	if err := store.CheckReplacements(replacements); err != nil {
		return fmt.Errorf("replace families: %w", err)
	}
	descs := map[*table]*store.TableDescriptor{}
	for i := range replacements {
		r := &replacements[i]
		t, err := s.userTable(r.Table)
		if err != nil {
			return fmt.Errorf("replace families: %w", err)
		}
		if descs[t] == nil {
			descs[t] = t.desc
		}
		if descs[t], err = r.Replaced(descs[t]); err != nil {
			return fmt.Errorf("replace families: %w", err)
		}
	}
	for t, d := range descs {
		t.desc = d
		s.altered(t)
	}
	for i := range replacements {
		r := &replacements[i]
		t := lookup(s.tables, r.Table)
		for key, row := range t.rows {
			moved := row.with(r.Family, versions{})
			if r.By != "" && moved != nil {
				v := moved.family(r.By)
				moved = moved.with(r.By, versions{}).with(r.Family, versions{disk: renamed(v.disk, r.Family), mem: renamed(v.mem, r.Family)})
			}
			if moved == nil {
				delete(t.rows, key)
			} else {
				t.rows[key] = moved
			}
		}
	}
	return nil
}

// renamed returns cells as those of another family.
func renamed(cells []written, family string) []written {
	out := make([]written, len(cells))
	for i, c := range cells {
		c.Family = family
		out[i] = c
	}
	return out
}
