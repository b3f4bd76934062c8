//go:build unix

package filelock

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// forkWait is half of how long Take waits at most.
const forkWait = 64 * time.Millisecond

// Take takes f, or fails within a tenth of a second or so with an error that wraps ErrHeld
// where another open file has it, of this process or any other. The system lets go when f is
// closed, and so when the process ends (flock(2)). The error wraps errors.ErrUnsupported on
// a file system, or a system, without such locks.
func Take(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	take := func() (err error) {
		if controlErr := c.Control(func(fd uintptr) {
			for err = syscall.EINTR; err == syscall.EINTR; {
				err = syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB)
			}
		}); controlErr != nil {
			return controlErr
		}
		return err
	}
	err = take()
	// A process that this one has just forked has copies of all its open files, of those
	// closed since, too, until it has executed its program.
	for wait := time.Millisecond; errors.Is(err, syscall.EWOULDBLOCK) && wait < forkWait; wait *= 2 {
		time.Sleep(wait)
		err = take()
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		return fmt.Errorf("lock %s: %w", f.Name(), ErrHeld)
	}
	return fmt.Errorf("lock %s: %w", f.Name(), err)
}
