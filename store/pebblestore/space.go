package pebblestore

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"sluice/store"
)

// checkSpace fails with store.ErrDiskFull below the free-space limit, with
// store.ErrClosed where the directory is another one by now, and with store.ErrTransient
// or store.ErrDiskFull while flushes fail.
func (db *DB) checkSpace() error {
	if db.home != nil {
		if err := db.home.check(); err != nil {
			return err
		}
	}
	if err := db.log.flushError(db.dir); err != nil {
		return err
	}
	if err := db.checkRoom(0); err != nil || db.opts.MinFreeBytes < 0 {
		return err
	}
	return checkFreeFiles(db.dir, freeFiles)
}

// checkRoom fails with store.ErrDiskFull where less than the free-space limit would be left
// after a write of so many bytes.
func (db *DB) checkRoom(bytes int) error {
	if db.opts.MinFreeBytes < 0 {
		return nil
	}
	need := uint64(db.opts.MinFreeBytes) + uint64(bytes)
	u, err := db.opts.FS.GetDiskUsage(db.dir)
	switch {
	case errors.Is(err, vfs.ErrUnsupported):
		return nil // a file system in memory
	case err != nil:
		return fmt.Errorf("free space of %s: %w", db.dir, err)
	case u.AvailBytes < need:
		// One is rounded down and the other up, so that they differ.
		return fmt.Errorf("%w: %s has %d MiB left, writes need %d MiB: free some; ingest that is running then goes on by itself",
			store.ErrDiskFull, db.dir, u.AvailBytes>>20, (need+1<<20-1)>>20)
	}
	return nil
}

// minFreeFiles is how many files the file system must still take: a log, the tables of a flush
// and of what is ingested or rewritten, leases of checkpoints, with room to spare.
const minFreeFiles = 128

// checkFreeFiles fails with store.ErrDiskFull where dir's file system takes few files more, as
// free tells: a log that cannot be begun stops the engine for good.
func checkFreeFiles(dir string, free func(dir string) (n uint64, ok bool)) error {
	n, ok := free(dir)
	if !ok || n >= minFreeFiles {
		return nil
	}
	return fmt.Errorf("%w: the file system of %s takes %d more files (inodes), writes need %d: remove some; ingest that is running then goes on by itself", store.ErrDiskFull, dir, n, minFreeFiles)
}
