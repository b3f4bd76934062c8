//go:build !unix

package main

import (
	"errors"
	"time"
)

// processCPU is not known here.
func processCPU() (time.Duration, error) { return 0, errNoCPU }

func childrenCPU() (time.Duration, error) { return 0, errNoCPU }

// syncDisks does nothing here: what one stage has left to be written is written during another.
func syncDisks() {}

var errNoCPU = errors.New("bench: CPU time is measured on Unix only")
