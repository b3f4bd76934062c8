package roomy

import "syscall"

// memory is where Linux has files in memory.
const memory = "/dev/shm"

// free returns how many bytes can be written below dir, 0 where nothing can, or where no
// program can be run, as in /dev/shm of a container: tests build some.
func free(dir string) uint64 {
	const (
		writable = 2 // W_OK
		noExec   = 8 // ST_NOEXEC
	)
	var s syscall.Statfs_t
	if syscall.Access(dir, writable) != nil || syscall.Statfs(dir, &s) != nil || s.Flags&noExec != 0 {
		return 0
	}
	return s.Bavail * uint64(s.Bsize)
}
