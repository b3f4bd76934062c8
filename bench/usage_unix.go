//go:build unix

package main

import (
	"fmt"
	"syscall"
	"time"
)

// processCPU returns the user and system time of this process so far.
func processCPU() (time.Duration, error) { return usedBy(syscall.RUSAGE_SELF) }

// childrenCPU is processCPU of the child processes that have been waited for, and theirs.
func childrenCPU() (time.Duration, error) { return usedBy(syscall.RUSAGE_CHILDREN) }

// syncDisks has the disks write what is still in memory for them.
func syncDisks() { syscall.Sync() }

func usedBy(who int) (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
