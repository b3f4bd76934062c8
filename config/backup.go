package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"sluice/jobs"
	"sluice/store"
	"sluice/store/pebblestore"
)

var (
	_ jobs.BackupSource  = (*Backup)(nil)
	_ jobs.RestoredStore = (*pebblestore.DB)(nil)
)

// Backup is an Instant with the files that it is read from.
type Backup struct{ *Instant }

// OpenBackup makes a checkpoint of the configured store, through the daemon that has
// the directory open or in this process, to be copied. Its error wraps
// store.ErrUnsupported where the engine keeps no files. log may be nil. Close it.
func OpenBackup(ctx context.Context, c *Config, log *slog.Logger) (*Backup, error) {
	if c.Store.Engine == "hbase" {
		return nil, fmt.Errorf("back up: %w: HBase keeps its files itself; use \"snapshot 'TABLE', 'NAME'\" in its shell and ExportSnapshot, or move the store with export copy", store.ErrUnsupported)
	}
	i, err := OpenLastingInstant(ctx, c, log)
	if err != nil {
		return nil, err
	}
	if i.files == nil {
		return nil, errors.Join(fmt.Errorf("%w: engine %s has no checkpoint to copy, or no room for one", store.ErrUnsupported, c.Store.Engine), i.Close())
	}
	return &Backup{i}, nil
}

// Dir holds the files.
func (b *Backup) Dir() string { return b.files.Dir() }

// StoreID names the store.
func (b *Backup) StoreID() string { return b.files.ID() }

// Format is the version of its layout.
func (b *Backup) Format() int { return b.files.Format() }

// CheckFiles compares the files with the checksums in them.
func (b *Backup) CheckFiles(ctx context.Context) error { return b.files.CheckFiles(ctx) }

// OpenRestored opens a store that was copied into dir, for jobs.Restore. log may be
// nil.
func OpenRestored(dir string, log *slog.Logger) (jobs.RestoredStore, error) {
	o := ForDirectory(dir).PebbleOptions(log)
	o.RewriteInterval = -1 // it is closed soon
	db, err := pebblestore.Open(dir, o)
	if err != nil {
		return nil, err // not a nil *DB in an interface
	}
	return db, nil
}
