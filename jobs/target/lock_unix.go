//go:build unix

package target

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lock takes f for this process, or fails with ErrBusy at once where another open
// file has it. The system lets go when f is closed, and so when the process that
// has it open ends in whatever way (flock(2)): whoever gets the lock of an upload
// knows that nobody writes it any more. Its error wraps errors.ErrUnsupported on a
// file system without locks.
func lock(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	var flockErr error
	err = c.Control(func(fd uintptr) {
		for {
			if flockErr = syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB); flockErr != syscall.EINTR {
				return
			}
		}
	})
	if err == nil {
		err = flockErr
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		return fmt.Errorf("lock %s: %w", f.Name(), ErrBusy)
	}
	return fmt.Errorf("lock %s: %w", f.Name(), err)
}
