package jobs

import "syscall"

// lowerThread gives the calling thread the lowest share of the processor (nice 19).
func lowerThread() error {
	return syscall.Setpriority(syscall.PRIO_PROCESS, syscall.Gettid(), 19)
}
