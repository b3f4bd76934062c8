package pebblestore

import (
	"context"
	"fmt"

	"sluice/store"
)

type unflushed struct{}

func (db *DB) noteWritten(c *commit) {}

// Flush writes what is in memory to disk.
func (db *DB) Flush(ctx context.Context) error {
	return db.exclusive(ctx, func() error { return engineError(db.pebble.Flush()) })
}

// MajorCompact rewrites table.
func (db *DB) MajorCompact(ctx context.Context, name string) error {
	return fmt.Errorf("%w: major compaction", store.ErrUnsupported)
}
