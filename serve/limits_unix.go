//go:build unix

package serve

import "syscall"

// diskFree returns the space that is free for this user on dir's file system, in bytes; -1 =
// it is not known.
func diskFree(dir string) int64 {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return -1
	}
	return int64(st.Bavail) * int64(st.Bsize)
}
