//go:build !unix

package serve

// diskFree is not known on this system.
func diskFree(string) (bytes uint64, ok bool) { return 0, false }
