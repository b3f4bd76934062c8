package memory

import (
	"math/bits"
	"slices"
	"unsafe"
)

// Sizes of what a pool lends, in elements: four to each power of two, so that a slice
// is at most a quarter larger than what was asked for.
const (
	minBytesExp = 12 // of bytes: smaller ones are not worth a pool
	minExp      = 6  // of anything else

	// maxIdle is the largest slice, in bytes, that waits for another use: larger
	// ones are rare, and would keep memory from the others.
	maxIdle = 32 << 20
)

// Pool lends slices of T out of a Share. Who gets one holds a grant of its size, which
// Bytes tells before. It is safe for concurrent use.
type Pool[T any] struct {
	share *Share
	size  int64 // of T
	min   int   // exponent of the smallest

	// guarded by the share's mu
	free [][][]T // by class
}

// NewPool returns an empty pool, which lives as long as the share.
func NewPool[T any](s *Share) *Pool[T] {
	var t T
	p := &Pool[T]{share: s, size: int64(unsafe.Sizeof(t)), min: minExp}
	if p.size == 1 {
		p.min = minBytesExp
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pools = append(s.pools, p)
	return p
}

// class returns the class of a slice of n elements, and how many it has room for.
func (p *Pool[T]) class(n int) (class, room int) {
	if n <= 1<<p.min {
		return 0, 1 << p.min
	}
	e := bits.Len(uint(n-1)) - 1 // 2^e < n ≤ 2^(e+1)
	q := (n - 1) >> (e - 2)      // 4..7: in which quarter
	return (e-p.min)*4 + q - 3, (q + 1) << (e - 2)
}

// Bytes returns what a slice takes that Get returns for n elements.
func (p *Pool[T]) Bytes(n int) int64 {
	_, room := p.class(n)
	return int64(room) * p.size
}

// Get returns an empty slice with room for n elements at least. Its capacity times the
// size of T is Bytes(n), which the caller's grant covers.
func (p *Pool[T]) Get(n int) []T {
	class, room := p.class(n)
	bytes := int64(room) * p.size
	s := p.share
	s.mu.Lock()
	b, ok := p.pop(class)
	if !ok {
		s.room(bytes)
	}
	s.live += bytes
	s.mu.Unlock()
	if !ok {
		b = make([]T, 0, room)
	}
	return b
}

// pop takes a slice of the class that is idle, where there is one. The share's mu is held.
func (p *Pool[T]) pop(class int) (b []T, ok bool) {
	if class >= len(p.free) || len(p.free[class]) == 0 {
		return nil, false
	}
	waiting := p.free[class]
	last := len(waiting) - 1
	b, waiting[last] = waiting[last], nil
	p.free[class] = waiting[:last]
	p.share.idle -= int64(cap(b)) * p.size
	return b, true
}

// Take is Get for a share whose memory is not all a pool's: g, a grant of the share, comes
// to cover the slice, in one step, so that a slice that was idle makes no other one be let
// go of. It reports false, and takes nothing, where the memory is not free.
func (p *Pool[T]) Take(g *Grant, n int) ([]T, bool) {
	class, room := p.class(n)
	bytes := int64(room) * p.size
	s := p.share
	s.mu.Lock()
	if g.over > 0 || !s.free(bytes) {
		s.mu.Unlock()
		return nil, false
	}
	b, ok := p.pop(class)
	s.grant(bytes)
	s.live += bytes
	s.mu.Unlock()
	if !ok {
		b = make([]T, 0, room)
	}
	g.share = s
	g.here += bytes
	return b, true
}

// owned returns the class of a slice that Get has returned, and its bytes.
func (p *Pool[T]) owned(b []T) (class int, bytes int64) {
	class, room := p.class(cap(b))
	if room != cap(b) {
		panic("memory: a slice comes back that is not the pool's")
	}
	return class, int64(cap(b)) * p.size
}

// wait keeps a slice for another use. The share's mu is held.
func (p *Pool[T]) wait(class int, b []T) {
	for len(p.free) <= class {
		p.free = append(p.free, nil)
	}
	p.free[class] = append(p.free[class], b[:0])
}

// Put takes a slice back that Get has returned; nothing may refer to it any more. It
// precedes the release of its grant. nil is nothing.
func (p *Pool[T]) Put(b []T) {
	if cap(b) == 0 {
		return
	}
	class, bytes := p.owned(b)
	s := p.share
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live -= bytes
	if bytes > maxIdle || s.live+s.idle+bytes > s.limit {
		return
	}
	p.wait(class, b)
	s.idle += bytes
}

// Return is Put of a share whose memory is not all a pool's: it takes the slice off the
// grant g, in one step, so that it is counted at every moment, and once.
func (p *Pool[T]) Return(g *Grant, b []T) {
	if cap(b) == 0 {
		return
	}
	class, bytes := p.owned(b)
	s := p.share
	s.mu.Lock()
	p.wait(class, b)
	ready := s.shelve(g, bytes)
	s.mu.Unlock()
	call(ready)
}

// shelve turns bytes of g into idle ones. mu is held, until what it returns is to be
// called.
func (s *Share) shelve(g *Grant, bytes int64) []func() {
	if g.here -= bytes; g.here < 0 {
		panic("memory: a slice comes back that its grant did not cover")
	}
	s.live -= bytes
	s.idle += bytes
	return s.release(bytes, nil)
}

// drop lets go of one of the largest slices.
func (p *Pool[T]) drop() int64 {
	for class := len(p.free) - 1; class >= 0; class-- {
		if b, ok := p.pop(class); ok {
			return int64(cap(b)) * p.size
		}
	}
	return 0
}

// Shelf keeps things of a share that hold memory of their own until somebody needs one.
// It is safe for concurrent use.
type Shelf[T any] struct {
	share *Share

	// guarded by the share's mu
	things []T
	bytes  []int64
}

// NewShelf returns an empty shelf.
func NewShelf[T any](s *Share) *Shelf[T] {
	f := &Shelf[T]{share: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pools = append(s.pools, f)
	return f
}

// Get takes the smallest thing of want bytes or more, else the largest, whose memory g
// comes to cover; ok is false where there is none.
func (f *Shelf[T]) Get(g *Grant, want int64) (thing T, bytes int64, ok bool) {
	s := f.share
	s.mu.Lock()
	defer s.mu.Unlock()
	best := len(f.things) - 1
	if best < 0 {
		return thing, 0, false
	}
	for i, n := range f.bytes {
		if have := f.bytes[best]; have < want && n > have || n >= want && n < have {
			best = i
		}
	}
	thing, bytes = f.take(best)
	s.used += bytes // it was idle: nothing grows
	s.live += bytes
	g.share = s
	g.here += bytes
	return thing, bytes, true
}

// take takes thing i off the shelf. The share's mu is held.
func (f *Shelf[T]) take(i int) (thing T, bytes int64) {
	thing, bytes = f.things[i], f.bytes[i]
	f.things, f.bytes = slices.Delete(f.things, i, i+1), slices.Delete(f.bytes, i, i+1)
	f.share.idle -= bytes
	return thing, bytes
}

// Return puts a thing on the shelf, which holds as many bytes, and takes them off g.
func (f *Shelf[T]) Return(g *Grant, thing T, bytes int64) {
	s := f.share
	s.mu.Lock()
	f.things, f.bytes = append(f.things, thing), append(f.bytes, bytes)
	ready := s.shelve(g, bytes)
	s.mu.Unlock()
	call(ready)
}

// drop lets go of a thing.
func (f *Shelf[T]) drop() int64 {
	if len(f.things) == 0 {
		return 0
	}
	_, bytes := f.take(len(f.things) - 1)
	return bytes
}
