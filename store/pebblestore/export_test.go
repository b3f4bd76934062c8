package pebblestore

import (
	"math/rand/v2"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// InPieces makes rewrites take rows of more than n bytes in pieces.
func (o *Options) InPieces(n int) { o.maxRewrittenRow = n }

// CrashFS is a file system in memory whose power can fail beside anything.
type CrashFS = crashFS

// NewCrashFS returns an empty one, or one that holds what a crash has left.
func NewCrashFS(left *vfs.MemFS) CrashFS {
	c := newCrashFS()
	if left != nil {
		c.MemFS = left
	}
	return c
}

// Crash returns what is left where power fails now.
func Crash(c CrashFS, percent int, rng *rand.Rand) *vfs.MemFS { return c.crash(percent, rng) }
