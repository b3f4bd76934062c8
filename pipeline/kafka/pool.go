package kafka

import (
	"math/bits"
	"sync"
)

// Sizes of pooled buffers: powers of two from 4 KiB to 32 MiB. Smaller ones are
// not worth a pool; larger ones are rare and would keep memory from the rest of
// the process.
const (
	minPooled = 12
	maxPooled = 25
)

// bufferPool lends byte slices by size.
type bufferPool struct {
	classes [maxPooled - minPooled + 1]sync.Pool // of *[]byte with capacity 1<<(minPooled+i)
}

// get returns an empty slice with room for at least size bytes.
func (p *bufferPool) get(size int) []byte {
	class := max(bits.Len(uint(max(size, 1)-1)), minPooled)
	if class > maxPooled {
		return make([]byte, 0, size)
	}
	if b, ok := p.classes[class-minPooled].Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return make([]byte, 0, 1<<class)
}

// put takes a slice back; nothing may refer to it any more.
func (p *bufferPool) put(b []byte) {
	class := bits.Len(uint(cap(b))) - 1 // largest power of two that fits
	if class < minPooled || class > maxPooled {
		return
	}
	b = b[:0]
	p.classes[class-minPooled].Put(&b)
}
