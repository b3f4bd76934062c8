package pebblestore

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// ID names the store: a random text that was made with it and that its
// checkpoints share. Only NewID changes it.
func (db *DB) ID() string {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.id
}

// Format is the version of the layout of the directory (docs/format/key.md); a
// newer one than this program knows is not opened.
func (db *DB) Format() int { return db.catalog.Load().format }

// Dir is the data directory.
func (db *DB) Dir() string { return db.dir }

// NewID makes the store another one than that whose copy it is, and returns its new
// name, which is on disk then. Whoever has handed out the old one must not be at
// work: call it before anything else is done with the copy. The error wraps
// store.ErrReadOnly where the store was opened so.
func (db *DB) NewID(ctx context.Context) (string, error) {
	id := rand.Text()
	err := db.exclusive(ctx, HoldIdentity, func() error {
		value := appendSystemValue(nil, db.opts.Now(), db.sequence.Load(), []byte(id))
		if err := db.pebble.Set(catalogKey(rowStore, qualIdentity), value, pebble.Sync); err != nil {
			return engineError(err)
		}
		db.mu.Lock()
		defer db.mu.Unlock()
		db.id = id
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("new identity of store %s: %w", db.dir, err)
	}
	return id, nil
}
