//go:build unix

package openfiles

import "syscall"

// Limit returns how many files the process may have open; false where that is not known.
func Limit() (n uint64, ok bool) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, false
	}
	return uint64(l.Cur), true
}
