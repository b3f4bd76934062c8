package pebblestore

import (
	"errors"
	"io/fs"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// keptFiles is the file system of a Pebble that is being opened, which removes the files
// that its manifest does not name. Until the catalog is read, none of them is removed: where
// there is none, it is the manifest that is wrong, not these.
type keptFiles struct {
	vfs.FS
	mu    sync.Mutex
	sure  bool     // the catalog was read
	names []string // to be removed then
}

// Remove implements vfs.FS.
func (k *keptFiles) Remove(name string) error {
	if k.keep(name) {
		return nil
	}
	return k.FS.Remove(name)
}

func (k *keptFiles) keep(name string) bool {
	if base := k.PathBase(name); !isTable(base) && !isNumbered(base, ".log") && !strings.HasPrefix(base, "MANIFEST-") {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.sure {
		k.names = append(k.names, name)
	}
	return !k.sure
}

// remove removes what was kept, and from then on what it is asked to.
func (k *keptFiles) remove() error {
	k.mu.Lock()
	k.sure = true
	names := k.names
	k.names = nil
	k.mu.Unlock()
	for _, name := range names {
		if err := k.FS.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
