package pebblestore

import (
	"context"

	"github.com/cockroachdb/pebble/v2"

	"sluice/store"
)

// EnableTable puts a disabled table back into service.
func (db *DB) EnableTable(ctx context.Context, name string) error {
	return db.switchTable(ctx, "enable table", name, (*table).idle, false)
}

// DisableTable takes a table out of service.
func (db *DB) DisableTable(ctx context.Context, name string) error {
	return db.switchTable(ctx, "disable table", name, (*table).served, true)
}

func (db *DB) switchTable(ctx context.Context, what, name string, check func(*table) error, disabled bool) error {
	return db.changeTable(ctx, what, name, func(b *pebble.Batch, c *catalog, old *table) (*catalog, error) {
		if err := check(old); err != nil {
			return nil, err
		}
		t := *old
		t.disabled = disabled
		return c.with(t.desc.Name, &t), db.putTable(b, &t)
	})
}

// TableEnabled reports whether a table is in service.
func (db *DB) TableEnabled(_ context.Context, name string) (bool, error) {
	if err := db.enter(); err != nil {
		return false, err
	}
	defer db.leave()
	t, err := db.catalog.Load().lookup(name)
	if err != nil {
		return false, err
	}
	return !t.disabled, nil
}

// TruncateTable removes all cells of a disabled table and enables it. It becomes
// a new table of the same schema, with a number of its own, so that no key of the
// old one can come back.
func (db *DB) TruncateTable(ctx context.Context, name string, preserveSplits bool) error {
	return db.changeTable(ctx, "truncate table", name, func(b *pebble.Batch, c *catalog, old *table) (*catalog, error) {
		if err := old.idle(); err != nil {
			return nil, err
		}
		var splits [][]byte
		if preserveSplits {
			splits = old.regions.Splits()
		}
		if err := dropCells(b, old); err != nil {
			return nil, err
		}
		return db.addTable(b, c, old.desc, splits, old.regions.NextID(int64(db.opts.Now())))
	})
}

// CreateNamespace makes a namespace.
func (db *DB) CreateNamespace(ctx context.Context, n *store.Namespace) error {
	n = n.Clone()
	return db.changeNamespaces(ctx, "create", n.Name, func(c *catalog) (store.NamespaceSet, error) { return c.spaces.Create(n) })
}

// AlterNamespace replaces the properties of a namespace.
func (db *DB) AlterNamespace(ctx context.Context, n *store.Namespace) error {
	n = n.Clone()
	return db.changeNamespaces(ctx, "alter", n.Name, func(c *catalog) (store.NamespaceSet, error) { return c.spaces.Alter(n) })
}

// DropNamespace removes an empty namespace.
func (db *DB) DropNamespace(ctx context.Context, name string) error {
	return db.changeNamespaces(ctx, "drop", name, func(c *catalog) (store.NamespaceSet, error) {
		tables := 0
		for t := range c.tables {
			if store.NamespaceOf(t) == name {
				tables++
			}
		}
		return c.spaces.Drop(name, tables)
	})
}

func (db *DB) changeNamespaces(ctx context.Context, what, name string, f func(c *catalog) (store.NamespaceSet, error)) error {
	return db.change(ctx, what+" namespace "+name, func(c *catalog) (*catalog, *pebble.Batch, error) {
		set, err := f(c)
		if err != nil {
			return nil, nil, err
		}
		n := *c
		n.spaces = set
		b := db.pebble.NewBatch()
		return &n, b, db.putNamespaces(b, set)
	})
}

// Namespaces returns all namespaces but the store's own, by name.
func (db *DB) Namespaces(context.Context) ([]store.Namespace, error) {
	if err := db.enter(); err != nil {
		return nil, err
	}
	defer db.leave()
	return db.catalog.Load().spaces.All(), nil
}
