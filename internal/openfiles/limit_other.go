//go:build !unix

package openfiles

// Limit says that it is not known on this system.
func Limit() (n uint64, ok bool) { return 0, false }
