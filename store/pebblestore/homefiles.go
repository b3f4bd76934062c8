package pebblestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"

	"sluice/store"
)

// lockFile is the name of the file that Pebble locks in the directory.
const lockFile = "LOCK"

// homeFiles is the operating system's files of an open store. Pebble locks a file in the
// directory and goes by the directory's name ever after: where that was moved and another is in
// its place, as a backup that was restored there, Pebble would write into that one, whoever has
// it open, remove its files, which have the same names, and read them as its own. Where the lock
// was removed, another process may have the directory, too. Here the DB fails instead, before it
// touches a file.
type homeFiles struct {
	vfs.FS
	lock string      // its path
	was  os.FileInfo // what it was when it was taken
	log  *pebbleLog
}

// newHomeFiles returns the files of dir, which is locked.
func newHomeFiles(fsys vfs.FS, dir string, log *pebbleLog) (*homeFiles, error) {
	lock := fsys.PathJoin(dir, lockFile)
	was, err := os.Stat(lock)
	if err != nil {
		return nil, err
	}
	return &homeFiles{FS: fsys, lock: lock, was: was, log: log}, nil
}

// check fails where the lock is another file, and so the directory another one, or nobody's.
func (h *homeFiles) check() error {
	now, err := os.Stat(h.lock)
	why := "is another file now"
	switch {
	case err == nil && os.SameFile(h.was, now):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		why = "is gone"
	case err != nil:
		return err
	}
	h.log.fail(fmt.Errorf("%w: the storage engine stopped: %s %s: the data directory was moved, removed or replaced, or its lock removed, while it was open; "+
		"nothing is written there any more. See that the right directory is there, and that no other process has it, and restart this one (%w)",
		store.ErrClosed, h.lock, why, store.ErrTransient))
	return h.log.err
}

// flushCategory is of the tables that Pebble's flushes write.
const flushCategory vfs.DiskWriteCategory = "pebble-memtable-flush"

// Create implements vfs.FS. A flush waits here after one that has failed.
func (h *homeFiles) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if c == flushCategory {
		h.log.pauseFlush()
	}
	if err := h.check(); err != nil {
		return nil, err
	}
	return h.FS.Create(name, c)
}

// Link implements vfs.FS.
func (h *homeFiles) Link(old, name string) error {
	if err := h.check(); err != nil {
		return err
	}
	return h.FS.Link(old, name)
}

// Open implements vfs.FS.
func (h *homeFiles) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if err := h.check(); err != nil {
		return nil, err
	}
	return h.FS.Open(name, opts...)
}

// OpenReadWrite implements vfs.FS.
func (h *homeFiles) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if err := h.check(); err != nil {
		return nil, err
	}
	return h.FS.OpenReadWrite(name, c, opts...)
}

// Remove implements vfs.FS.
func (h *homeFiles) Remove(name string) error {
	if err := h.check(); err != nil {
		return err
	}
	return h.FS.Remove(name)
}

// RemoveAll implements vfs.FS.
func (h *homeFiles) RemoveAll(name string) error {
	if err := h.check(); err != nil {
		return err
	}
	return h.FS.RemoveAll(name)
}

// Rename implements vfs.FS.
func (h *homeFiles) Rename(old, name string) error {
	if err := h.check(); err != nil {
		return err
	}
	return h.FS.Rename(old, name)
}

// ReuseForWrite implements vfs.FS.
func (h *homeFiles) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := h.check(); err != nil {
		return nil, err
	}
	return h.FS.ReuseForWrite(old, name, c)
}

// MkdirAll implements vfs.FS.
func (h *homeFiles) MkdirAll(dir string, perm os.FileMode) error {
	if err := h.check(); err != nil {
		return err
	}
	return h.FS.MkdirAll(dir, perm)
}
