//go:build !unix

package embedded

import (
	"os"
	"path/filepath"
)

// lockDir opens the lock file only: without flock the broker's port, which is
// kept in the directory, is what a second broker of it fails on.
func lockDir(dir string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, "LOCK"), os.O_CREATE|os.O_RDWR, 0o644)
}
