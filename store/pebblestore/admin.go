package pebblestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/region"
	"sluice/store"
)

// Tables returns the names of all user tables, sorted.
func (db *DB) Tables(context.Context) ([]string, error) {
	if err := db.enter(); err != nil {
		return nil, err
	}
	defer db.leave()
	var names []string
	for name, t := range db.catalog.Load().tables {
		if !t.system {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// CreateTable makes a table with len(splits)+1 regions.
func (db *DB) CreateTable(ctx context.Context, d *store.TableDescriptor, splits [][]byte) error {
	d = d.Clone()
	if err := d.Validate(); err != nil {
		return fmt.Errorf("create table: %w", err)
	}
	if isSystem(d.Name) {
		return fmt.Errorf("create table: %w: namespace %s is the store's own", store.ErrInvalidSchema, store.SystemNamespace)
	}
	keys := make([][]byte, len(splits))
	for i, s := range splits {
		keys[i] = bytes.Clone(s)
	}
	keys, err := region.SplitKeys(keys)
	if err != nil {
		return fmt.Errorf("create table %s: %w: %w", d.Name, store.ErrInvalidArgument, err)
	}
	return db.change(ctx, "create table "+d.Name, func(c *catalog) (*catalog, *pebble.Batch, error) {
		if err := c.spaces.Check(d.Name); err != nil {
			return nil, nil, err
		}
		if _, ok := c.tables[d.Name]; ok {
			return nil, nil, fmt.Errorf("%w: %s", store.ErrTableExists, d.Name)
		}
		b := db.pebble.NewBatch()
		n, err := db.addTable(b, c, d, keys, int64(db.opts.Now()))
		return n, b, err
	})
}

// addTable returns c with a new, empty table, and puts it into b. id is that of
// its regions.
func (db *DB) addTable(b *pebble.Batch, c *catalog, d *store.TableDescriptor, splits [][]byte, id int64) (*catalog, error) {
	m, err := region.Create(d.Name, splits, id)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrInvalidArgument, err)
	}
	t := &table{id: c.nextTable, desc: d, regions: m, load: region.NewLoad(m), tag: cell.TagData, altered: db.sequence.Load() + 1}
	if t.fams, t.removed, err = assignFamilies(d, nil); err != nil {
		return nil, err
	}
	n := c.with(d.Name, t)
	n.nextTable++
	return n, errors.Join(
		b.Set(catalogKey(rowStore, qualNextTable), db.systemValue(binary.BigEndian.AppendUint32(nil, n.nextTable)), nil),
		db.putTable(b, t), db.putRegions(b, t))
}

// AlterTable replaces the schema of a table. A family that is left out loses its
// cells.
func (db *DB) AlterTable(ctx context.Context, d *store.TableDescriptor) error {
	d = d.Clone()
	if err := d.Validate(); err != nil {
		return fmt.Errorf("alter table: %w", err)
	}
	return db.change(ctx, "alter table "+d.Name, func(c *catalog) (*catalog, *pebble.Batch, error) {
		old, err := c.userTable(d.Name)
		if err != nil {
			return nil, nil, err
		}
		t := &table{id: old.id, desc: d, regions: old.regions, load: old.load, tag: old.tag, disabled: old.disabled, altered: db.sequence.Load() + 1}
		if t.fams, t.removed, err = assignFamilies(d, old); err != nil {
			return nil, nil, err
		}
		b := db.pebble.NewBatch()
		err = db.putTable(b, t)
		for i := range old.fams {
			if f := &old.fams[i]; d.Family(f.desc.Name) == nil {
				err = errors.Join(err, dropFamily(b, old, f))
			}
		}
		return c.with(d.Name, t), b, err
	})
}

// DropTable removes a disabled table and its cells.
func (db *DB) DropTable(ctx context.Context, name string) error {
	return db.changeTable(ctx, "drop table", name, func(b *pebble.Batch, c *catalog, t *table) (*catalog, error) {
		if err := t.idle(); err != nil {
			return nil, err
		}
		row := rowTable + t.desc.Name
		return c.with(t.desc.Name, nil), errors.Join(
			b.Delete(catalogKey(row, qualDescriptor), nil), b.Delete(catalogKey(row, qualRegions), nil), dropCells(b, t))
	})
}

// dropCells removes all cells of a table.
func dropCells(b *pebble.Batch, t *table) (err error) {
	for i := range t.fams {
		err = errors.Join(err, dropFamily(b, t, &t.fams[i]))
	}
	return err
}

// SplitRegion cuts the region that holds at in two. No data moves.
func (db *DB) SplitRegion(ctx context.Context, name string, at []byte) error {
	at = bytes.Clone(at)
	return db.reshape(ctx, fmt.Sprintf("split at %q a region of", at), name, func(t *table) (*region.Map, error) {
		if err := t.desc.CheckSplit(); err != nil {
			return nil, err
		}
		n, err := t.regions.Split(at, int64(db.opts.Now()))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", store.ErrInvalidArgument, err)
		}
		return n, nil
	})
}

// MergeRegions makes one region of those that hold rows. No data moves.
func (db *DB) MergeRegions(ctx context.Context, name string, rows ...[]byte) error {
	own := make([][]byte, len(rows)) // the loop may look at them after ctx has ended the call
	for i, row := range rows {
		own[i] = bytes.Clone(row)
	}
	return db.reshape(ctx, "merge regions of", name, func(t *table) (*region.Map, error) {
		if err := t.desc.CheckMerge(); err != nil {
			return nil, err
		}
		first, last, err := t.regions.Adjacent(own)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", store.ErrMergeRegion, err)
		}
		n, err := t.regions.Merge(first, last)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", store.ErrMergeRegion, err)
		}
		return n, nil
	})
}

func (db *DB) reshape(ctx context.Context, what, name string, f func(*table) (*region.Map, error)) error {
	return db.changeTable(ctx, what, name, func(b *pebble.Batch, c *catalog, old *table) (*catalog, error) {
		if err := old.served(); err != nil {
			return nil, err
		}
		m, err := f(old)
		if err != nil {
			return nil, err
		}
		t := old.reshaped(m)
		return c.with(t.desc.Name, t), db.putRegions(b, t)
	})
}

// changeTable is change for one user table, which f is given.
func (db *DB) changeTable(ctx context.Context, what, name string, f func(b *pebble.Batch, c *catalog, t *table) (*catalog, error)) error {
	return db.change(ctx, what+" "+name, func(c *catalog) (*catalog, *pebble.Batch, error) {
		t, err := c.userTable(name)
		if err != nil {
			return nil, nil, err
		}
		b := db.pebble.NewBatch()
		n, err := f(b, c, t)
		return n, b, err
	})
}

// change replaces the catalog: f, in the commit loop, returns the new one and
// the batch that stores it.
func (db *DB) change(ctx context.Context, what string, f func(c *catalog) (*catalog, *pebble.Batch, error)) error {
	if db.opts.ReadOnly {
		return fmt.Errorf("%s: %w", what, store.ErrReadOnly)
	}
	err := db.exclusive(ctx, HoldSchema, func() error {
		if err := db.checkSpace(); err != nil {
			return err
		}
		c, b, err := f(db.catalog.Load())
		if b != nil {
			defer b.Close()
		}
		if err != nil {
			return err
		}
		if err := db.raiseFormat(b, c); err != nil {
			return err
		}
		sequence := db.sequence.Load() + 1
		if err := b.Set(sequenceKey(), db.sequenceValue(db.opts.Now(), sequence), nil); err != nil {
			return engineError(err)
		}
		if err := db.exchange(c, b); err != nil {
			return err
		}
		db.sequence.Store(sequence)
		db.loop.counters.clear() // of families that are gone, and of those with another TTL
		return engineError(db.pebble.LogData(nil, pebble.Sync))
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// exchange makes c the catalog, and what b has of it and of the cells. There is no
// iterator of the one and catalog of the other that Scan would take for a pair: it asks
// for the catalog before and after it has made its iterators.
func (db *DB) exchange(c *catalog, b *pebble.Batch) error {
	db.swap.Lock()
	defer db.swap.Unlock()
	if err := db.pebble.Apply(b, pebble.NoSync); err != nil { // the caller syncs, without the lock
		return engineError(err)
	}
	db.publish(c)
	return nil
}

// raiseFormat makes the directory one of this program's format, where it is older.
func (db *DB) raiseFormat(b *pebble.Batch, c *catalog) error {
	if c.format == catalogFormat {
		return nil
	}
	c.format = catalogFormat
	return errors.Join(b.Set(catalogKey(rowStore, qualFormat), db.systemValue([]byte{catalogFormat}), nil), db.putNamespaces(b, c.spaces))
}

func (db *DB) putNamespaces(b *pebble.Batch, set store.NamespaceSet) error {
	v, err := encodeNamespaces(set)
	if err != nil {
		return err
	}
	return b.Set(catalogKey(rowStore, qualNamespaces), db.systemValue(v), nil)
}

func (db *DB) systemValue(payload []byte) []byte {
	return appendSystemValue(nil, db.opts.Now(), db.sequence.Load()+1, payload)
}

func (db *DB) putTable(b *pebble.Batch, t *table) error {
	v, err := encodeTable(t)
	if err != nil {
		return err
	}
	return b.Set(catalogKey(rowTable+t.desc.Name, qualDescriptor), db.systemValue(v), nil)
}

func (db *DB) putRegions(b *pebble.Batch, t *table) error {
	v, err := encodeRegions(t.regions)
	if err != nil {
		return err
	}
	return b.Set(catalogKey(rowTable+t.desc.Name, qualRegions), db.systemValue(v), nil)
}

// dropFamily removes the one run of keys that holds a family, and that of its
// changes.
func dropFamily(b *pebble.Batch, t *table, f *family) error {
	low := cell.AppendFamilyPrefix(nil, f.tag, t.id, f.id)
	changes := cell.AppendFamilyPrefix(nil, cell.TagChange, t.id, f.id)
	return errors.Join(b.DeleteRange(low, cell.PrefixEnd(low), nil), b.DeleteRange(changes, cell.PrefixEnd(changes), nil))
}

// userTable returns a table that users may change.
func (c *catalog) userTable(name string) (*table, error) {
	if isSystem(name) {
		return nil, fmt.Errorf("%w: %s is the store's own", store.ErrRefused, name)
	}
	return c.lookup(name)
}

func isSystem(name string) bool { return strings.HasPrefix(name, store.SystemNamespace+":") }
