package pebblestore

import "syscall"

// freeFiles returns how many files more dir's file system takes; false where it does not know,
// or has no bound.
func freeFiles(dir string) (n uint64, ok bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil || st.Files == 0 {
		return 0, false
	}
	return st.Ffree, true
}
