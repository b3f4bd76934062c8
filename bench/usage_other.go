//go:build !unix

package main

import (
	"errors"
	"time"
)

// processCPU is not known here.
func processCPU() (time.Duration, error) {
	return 0, errors.New("bench: CPU time is measured on Unix only")
}
