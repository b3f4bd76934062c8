// Package cmemory has the C library give back what was freed. It allocates nothing.
//
// The embedded engine keeps its memtables and its block cache in memory of C's, where
// there is a C compiler (cgo). The GNU C library keeps freed memory for later: in up to
// eight arenas a core, and in each of them, once a chunk of 32 MiB was freed, up to 64 MiB
// at its end. What a process has so grows for as long as it runs, to several times what it
// uses, and counts for a container's limit.
package cmemory
