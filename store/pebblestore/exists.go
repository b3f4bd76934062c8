package pebblestore

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Exists reports whether dir holds a store, which another process may have open. It
// changes nothing, and a directory that is missing holds none.
func Exists(dir string) (bool, error) {
	d, err := pebble.Peek(dir, vfs.Default)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for a store in %s: %w", dir, err)
	}
	return d.Exists, nil
}
