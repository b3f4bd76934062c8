// Package roomy lets tests use the memory of the machine that runs them, for the files
// that they sync and before garbage is collected. It is no part of a program.
package roomy

import (
	"flag"
	"os"
	"runtime/debug"
)

const (
	// least is what must be free where temporary files go in memory, in bytes. The tests
	// of one package take a tenth of it at most.
	least = 4 << 30
	// garbage is how many percent of what is in use may be garbage, most how many bytes
	// both may be before more of it is collected.
	garbage, most = 400, 2 << 30
)

// Use is called by TestMain before all else. What the environment says itself, in TMPDIR,
// GOTMPDIR, GOGC and GOMEMLIMIT, it leaves; where the machine has no such room, the
// temporary directory is the usual one. Runs of benchmarks have all as usual.
//
// Tests sync hundreds of files, which takes several times as long on a disk, and shows
// nothing: what a killed process has written is there in either, and power that fails is
// simulated by package crashfs.
func Use() {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() != "" {
		return
	}
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(garbage)
		debug.SetMemoryLimit(most)
	}
	if os.Getenv("TMPDIR") != "" || os.Getenv("GOTMPDIR") != "" || free(memory) < least {
		return
	}
	if err := os.Setenv("TMPDIR", memory); err != nil {
		panic(err)
	}
}
