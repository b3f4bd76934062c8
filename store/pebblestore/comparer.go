package pebblestore

import (
	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
)

// comparer orders keys by their bytes, as cell's code intends, and tells Pebble
// where a row ends, so that one bloom filter probe answers for a whole row.
func comparer() *pebble.Comparer {
	c := *pebble.DefaultComparer
	c.Name = comparerName
	c.Split = cell.SplitKey
	c.ImmediateSuccessor = immediateSuccessor
	return &c
}

// immediateSuccessor appends the smallest prefix behind prefix. A row's keys begin
// with its prefix, so that the prefix and a zero byte, Pebble's default, is before
// them: NextPrefix would stay on the row for ever.
func immediateSuccessor(dst, prefix []byte) []byte {
	start := len(dst)
	dst = append(append(dst, prefix...), 0)
	if cell.SplitKey(dst[start:]) == len(prefix) {
		dst = dst[:len(dst)-1]
		dst[len(dst)-1]++ // the terminator 00 01: no row goes on with 00 02
	}
	return dst
}
