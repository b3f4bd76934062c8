//go:build !unix

package serve

// diskFree is not known on this system.
func diskFree(string) int64 { return -1 }
