// Package filelock takes files for one process, as flock(2) does: the system lets go of
// them when the process ends, however it ends. It says nothing to processes that do not
// ask, nor on file systems that have no such locks.
package filelock

import "errors"

// ErrHeld says that another open file has the lock.
var ErrHeld = errors.New("held by another open file")
