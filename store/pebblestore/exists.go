package pebblestore

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Exists reports whether dir holds a store, which another process may have open, and which
// Open may find to be damaged. It changes nothing, and a directory that is missing holds none.
func Exists(dir string) (bool, error) {
	d, err := pebble.Peek(dir, vfs.Default)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for a store in %s: %w", dir, err)
	}
	names, err := vfs.Default.List(dir)
	if err != nil {
		return false, fmt.Errorf("look for a store in %s: %w", dir, err)
	}
	return d.Exists || slices.ContainsFunc(names, ofStore), nil
}
