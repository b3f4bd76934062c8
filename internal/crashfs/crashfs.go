// Package crashfs is a disk in memory whose power can fail at any instant, for tests of
// what survives that. It is Pebble's MemFS, less two places where MemFS waits for itself
// for ever if it is cloned meanwhile. It is not for anything but tests.
package crashfs

import (
	"math/rand/v2"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// FS is such a disk. Copies are the same disk.
type FS struct {
	*vfs.MemFS
	// mu keeps Crash out of what takes MemFS's lock for readers twice: between the two
	// a writer, the clone, would wait for the first and hold the second up.
	mu *sync.Mutex
}

// New returns an empty disk.
func New() FS { return FS{vfs.NewCrashableMem(), new(sync.Mutex)} }

// Link implements vfs.FS.
func (f FS) Link(oldName, newName string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.MemFS.Link(oldName, newName)
}

// ReuseForWrite implements vfs.FS.
func (f FS) ReuseForWrite(oldName, newName string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.MemFS.ReuseForWrite(oldName, newName, category)
}

// Crash returns what is left where power fails now: everything that was synced, and of
// the rest percent in a hundred, as rng has it. The disk itself goes on.
func (f FS) Crash(percent int, rng *rand.Rand) FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	return FS{f.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}), new(sync.Mutex)}
}

// OnWrite returns the disk as one that calls call before each of its writes, of which some
// may come at once.
func (f FS) OnWrite(call func()) vfs.FS {
	return errorfs.Wrap(f, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			call()
		}
		return nil
	}))
}
