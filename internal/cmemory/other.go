//go:build !cgo || !linux

package cmemory

// Bound does nothing: there is no GNU C library.
func Bound() error { return nil }
