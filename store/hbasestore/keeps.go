package hbasestore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sluice/cell"
	"sluice/store"
)

// CheckExact says why HBase does not keep exactly what pipelines write to a table, as
// its schema is now: whoever alters a table with HBase's own tools goes past
// CreateTable and AlterTable. Its error wraps store.ErrInvalidSchema and has the
// commands of HBase's shell that put the table right; store.ErrTableNotFound where
// there is no such table.
func (s *Store) CheckExact(ctx context.Context, table string) error {
	ctx, end, err := s.begin(ctx, false)
	if err != nil {
		return fmt.Errorf("check %s: %w", table, err)
	}
	defer end()
	// Of HBase, not of the cache, and nobody else's: nothing of it changes here.
	t, err := s.readTable(ctx, store.CanonicalName(table))
	if err != nil {
		return err
	}
	return inexact(t)
}

// inexact says why HBase does not keep exactly what is written to a table, or nil.
func inexact(t *store.TableDescriptor) error {
	var errs []error
	refuse := func(where, why, change string) {
		name := strings.TrimPrefix(t.Name, store.DefaultNamespace+":")
		errs = append(errs, fmt.Errorf("%w: table %s%s: %s; in HBase's shell: alter '%s', %s", store.ErrInvalidSchema, name, where, why, name, change))
	}
	if d := t.Durability(); d == cell.SkipWAL || d == cell.AsyncWAL {
		refuse("", fmt.Sprintf("its DURABILITY is %s, so that HBase acknowledges what the death of a server loses, and the offset would stand behind it", d), "DURABILITY => 'USE_DEFAULT'")
	}
	own := system(t.Name)
	for i := range t.Families {
		f := &t.Families[i]
		what := inPlace(f)
		if what == "" && !own {
			continue
		}
		if own {
			what = "a family of the store's own"
		}
		fix := func(why, attribute string) {
			refuse(", family "+f.Name, what+" has "+why, fmt.Sprintf("{NAME => '%s', %s}", f.Name, attribute))
		}
		if f.InPlace() && f.Versions != 1 {
			fix(fmt.Sprintf("VERSIONS 1, not %d: its cells are replaced by newer ones, and older ones must not be read", f.Versions), "VERSIONS => 1")
		}
		if f.TTL != store.Forever {
			fix("no TTL, as the timestamps of its cells are no dates", "TTL => 'FOREVER'")
		}
		if f.InPlace() && f.KeepDeleted != store.KeepDeletedFalse {
			fix("no KEEP_DELETED_CELLS", "KEEP_DELETED_CELLS => 'FALSE'")
		}
		if f.NewVersionBehavior {
			fix("no NEW_VERSION_BEHAVIOR: the cell with the newest timestamp must win, whenever it was written", "NEW_VERSION_BEHAVIOR => 'false'")
		}
	}
	return errors.Join(errs...)
}
