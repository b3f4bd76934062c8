// Package prefetch asks the processor for memory that is needed a little later.
//
// What is read all over the memory is waited for: some hundred instructions a cache
// line. A core goes on beyond a read whose value nobody needs only until it has no room
// for more instructions behind it; an instruction of its own asks for a line and is over
// at once. It pays where the addresses are known early, about as long before the read as
// the memory takes.
package prefetch

import "unsafe"

// line is the size of a cache line; where it is larger, some are asked for twice.
const line = 64

// Bytes asks for b, which is not empty.
func Bytes(b []byte) { lines(unsafe.Pointer(unsafe.SliceData(b)), (len(b)+line-1)/line) }

// String asks for the beginning of s.
func String(s string) { lines(unsafe.Pointer(unsafe.StringData(s)), 1) }

// Value asks for what p points to; nil asks for nothing.
func Value[T any](p *T) { lines(unsafe.Pointer(p), (int(unsafe.Sizeof(*p))+line-1)/line) }
