//go:build amd64 || arm64

package prefetch

import "unsafe"

// lines asks for 1 or more lines, of the address p on. It reads nothing, so that any
// address will do.
//
//go:noescape
func lines(p unsafe.Pointer, n int)
