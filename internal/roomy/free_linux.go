package roomy

import "syscall"

// memory is where Linux has files in memory.
const memory = "/dev/shm"

// free returns how many bytes can be written below dir, 0 where nothing can.
func free(dir string) uint64 {
	const writable = 2 // W_OK
	var s syscall.Statfs_t
	if syscall.Access(dir, writable) != nil || syscall.Statfs(dir, &s) != nil {
		return 0
	}
	return s.Bavail * uint64(s.Bsize)
}
