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
	free   [][][]T // by class
	closed bool
}

// NewPool returns an empty pool. Close ends it.
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
	if class < len(p.free) {
		if waiting := p.free[class]; len(waiting) > 0 {
			last := len(waiting) - 1
			b := waiting[last]
			waiting[last] = nil
			p.free[class] = waiting[:last]
			s.idle -= bytes
			s.live += bytes
			s.mu.Unlock()
			return b
		}
	}
	s.room(bytes)
	s.live += bytes
	s.mu.Unlock()
	return make([]T, 0, room)
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
	if p.closed || bytes > maxIdle || s.live+s.idle+bytes > s.limit {
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

// Close lets go of what is idle. What is lent may still come back.
func (p *Pool[T]) Close() {
	s := p.share
	s.mu.Lock()
	defer s.mu.Unlock()
	for p.drop() > 0 {
	}
	p.closed = true
	s.pools = slices.DeleteFunc(s.pools, func(other idler) bool { return other == idler(p) })
}

// drop lets go of one of the largest slices.
func (p *Pool[T]) drop() int64 {
	for class := len(p.free) - 1; class >= 0; class-- {
		waiting := p.free[class]
		if len(waiting) == 0 {
			continue
		}
		last := len(waiting) - 1
		bytes := int64(cap(waiting[last])) * p.size
		waiting[last] = nil
		p.free[class] = waiting[:last]
		p.share.idle -= bytes
		return bytes
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

// Get takes a thing whose memory g comes to cover; ok is false where there is none.
func (f *Shelf[T]) Get(g *Grant) (thing T, bytes int64, ok bool) {
	s := f.share
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(f.things) - 1
	if last < 0 {
		return thing, 0, false
	}
	thing, bytes = f.pop(last)
	s.used += bytes // it was idle: nothing grows
	s.live += bytes
	g.share = s
	g.here += bytes
	return thing, bytes, true
}

func (f *Shelf[T]) pop(i int) (thing T, bytes int64) {
	var none T
	thing, bytes = f.things[i], f.bytes[i]
	f.things[i] = none
	f.things, f.bytes = f.things[:i], f.bytes[:i]
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
	_, bytes := f.pop(len(f.things) - 1)
	return bytes
}
