package pebblestore

import (
	"context"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/store"
)

var _ store.FamilyReplacer = (*DB)(nil)

// ReplaceFamilies puts families' cells into others' places: the families change
// their ids, and no cell moves.
func (db *DB) ReplaceFamilies(ctx context.Context, replacements []store.FamilyReplacement) error {
	replacements = slices.Clone(replacements)
	return db.change(ctx, "replace families", func(c *catalog) (*catalog, *pebble.Batch, error) {
		if err := store.CheckReplacements(replacements); err != nil {
			return nil, nil, err
		}
		b := db.pebble.NewBatch()
		for i := range replacements {
			var err error
			if c, err = db.replaceFamily(b, c, &replacements[i]); err != nil {
				return nil, b, err
			}
		}
		return c, b, nil
	})
}

func (db *DB) replaceFamily(b *pebble.Batch, c *catalog, r *store.FamilyReplacement) (*catalog, error) {
	old, err := c.userTable(r.Table)
	if err != nil {
		return nil, err
	}
	d, err := r.Replaced(old.desc)
	if err != nil {
		return nil, err
	}
	dropped, _ := old.family(r.Family)
	t := *old
	t.desc, t.altered = d, db.sequence.Load()+1
	if r.By == "" {
		if err := t.empty(dropped); err != nil {
			return nil, err
		}
		return c.with(d.Name, &t), errors.Join(db.putTable(b, &t), dropFamily(b, old, dropped))
	}
	by, _ := old.family(r.By)
	t.removed = append(slices.Clone(old.removed), dropped.id)
	t.fams = make([]family, len(d.Families))
	for i := range d.Families {
		f, _ := old.family(d.Families[i].Name)
		t.fams[i] = family{id: f.id, tag: f.tag, desc: &d.Families[i]}
		if f == dropped {
			t.fams[i].id = by.id
		}
	}
	return c.with(d.Name, &t), errors.Join(db.putTable(b, &t), dropFamily(b, old, dropped))
}

// empty gives a family another id, under which there is nothing. t.desc is its own.
func (t *table) empty(f *family) error {
	name := f.desc.Name
	without := t.desc.Clone()
	without.Families = slices.DeleteFunc(without.Families, func(d store.FamilyDescriptor) bool { return d.Name == name })
	rest := *t
	rest.desc = without
	var err error
	if rest.fams, rest.removed, err = assignFamilies(without, t); err != nil {
		return err
	}
	t.fams, t.removed, err = assignFamilies(t.desc, &rest)
	return err
}

// freeFamilies forgets the numbers of removed families of which no key is left, so that
// other families may have them. It is for a store that is being opened: later there may be
// readers, prepared batches and rewrites that know a family by its number alone.
func (db *DB) freeFamilies(t *table) error {
	var kept []uint8
	for _, id := range t.removed {
		used, err := db.familyHasKeys(t.id, id)
		if err != nil {
			return err
		}
		if used {
			kept = append(kept, id)
		}
	}
	t.removed = kept
	return nil
}

// familyHasKeys reports whether there is a key of a family, under whatever tag.
func (db *DB) familyHasKeys(table uint32, family uint8) (bool, error) {
	for _, tag := range [...]byte{cell.TagCounter, cell.TagData, cell.TagChange} {
		low := cell.AppendFamilyPrefix(nil, tag, table, family)
		it, err := db.pebble.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: cell.PrefixEnd(low)})
		if err != nil {
			return false, engineError(err)
		}
		found := it.First()
		if err := errors.Join(it.Error(), it.Close()); err != nil {
			return false, engineError(err)
		}
		if found {
			return true, nil
		}
	}
	return false, nil
}
