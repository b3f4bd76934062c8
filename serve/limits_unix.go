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
