//go:build unix

package serve

import "syscall"

// diskFree returns the space that is free for this user on dir's file system.
func diskFree(dir string) (bytes uint64, ok bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, false
	}
	return uint64(st.Bavail) * uint64(st.Bsize), true
}

// openFiles returns how many files the process may have open.
func openFiles() (n uint64, ok bool) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, false
	}
	return uint64(l.Cur), true
}
