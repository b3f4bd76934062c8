package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"sluice/jobs"
	"sluice/serve/api"
	"sluice/serve/checkpoint"
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
	// What was killed goes on with a checkpoint of its own, and needs none of before.
	i, err := openInstant(ctx, c, log, leased(ctx, c, api.DefaultLease, log))
	if err != nil {
		return nil, err
	}
	if i.files == nil {
		return nil, errors.Join(fmt.Errorf("%w: engine %s has no checkpoint to copy, or no room for one", store.ErrUnsupported, c.Store.Engine), i.Close())
	}
	return &Backup{i}, nil
}

// OpenRunBackup is OpenBackup of a store that this process has open, by its checkpoints.
// Its error wraps store.ErrDiskFull where there is no room for one. e and d are borrowed.
func OpenRunBackup(ctx context.Context, c *Config, e Engine, d *checkpoint.Directory, log *slog.Logger) (*Backup, error) {
	if d == nil || !freezes(e) {
		return nil, fmt.Errorf("back up: %w: engine %s has no checkpoint to copy", store.ErrUnsupported, e.Traits().Name)
	}
	i, err := openRunInstant(ctx, c, e, d, "", api.DefaultLease, log)
	if err != nil {
		return nil, err
	}
	if i.files == nil {
		return nil, errors.Join(fmt.Errorf("back up: %w: there is no room for a checkpoint", store.ErrDiskFull), i.Close())
	}
	return &Backup{i}, nil
}

func (c *Config) lintBackups(d *decoder, report reporter) {
	outs := map[string]string{}
	at := func(out string) string {
		if InBucket(out) {
			return strings.TrimSuffix(out, "/")
		}
		return filepath.Clean(out)
	}
	for _, name := range slices.Concat(c.JobNames(), c.JoinNames()) {
		if other, _ := c.Declared(name); other.Out != "" {
			outs[at(other.Out)] = other.Kind + " " + name
		}
	}
	for _, name := range c.BackupNames() {
		path, spec := join("backups", name), c.Backups[name]
		if c.Store.Engine != "pebble" {
			report(path, "", "store.engine is %s, which keeps no files of its own that could be copied", c.Store.Engine)
		}
		if other, _ := c.Declared(name); other.Kind != KindBackup {
			report(path, "one history would have the runs of both", "there is a %s of this name", other.Kind)
		}
		if _, err := jobs.CompileBackup(name, &spec); err != nil {
			d.specErrors(path, err)
		}
		if spec.Out == "" {
			continue // reported
		}
		if other, ok := outs[at(spec.Out)]; ok {
			report(join(path, "out"), "a place of backups is of one alone", "%s publishes there", other)
		}
		outs[at(spec.Out)] = "backup " + name
	}
}

// Dir holds the files.
func (b *Backup) Dir() string { return b.files.Dir() }

// StoreID names the store.
func (b *Backup) StoreID() string { return b.files.ID() }

// Format is the version of its layout.
func (b *Backup) Format() int { return b.files.Format() }

// CheckFiles compares the files with the checksums in them.
func (b *Backup) CheckFiles(ctx context.Context) error { return b.files.CheckFiles(ctx) }

// OpenRestored opens a store that was copied into dir, for jobs.Restore, with c's
// store.min_free; nil = the default. log may be nil.
func OpenRestored(dir string, c *Config, log *slog.Logger) (jobs.RestoredStore, error) {
	at := ForDirectory(dir)
	if c != nil {
		at.Store.MinFree = c.Store.MinFree
	}
	o := at.PebbleOptions(log)
	o.RewriteInterval = -1 // it is closed soon
	db, err := pebblestore.Open(dir, o)
	if err != nil {
		return nil, err // not a nil *DB in an interface
	}
	return db, nil
}
