//go:build unix

package embedded

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// lockDir takes the directory for this process until the file is closed. The
// kernel frees the lock when the process dies, however it dies.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "LOCK"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrDirInUse
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
