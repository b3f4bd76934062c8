// Package memory is the bound of what the pipelines of a process hold of Kafka's
// records: one Budget of bytes in three shares, through which every record goes in
// this order.
//
//	fetched   1/6  record batches as the broker sent them, and what is asked for
//	decoded   1/6  what they unfold to, and the records and headers that lie in it
//	buffered  2/3  what records became, until the store has it
//
// Where payloads are packed inside their records, or have blocks that are, there is a
// fourth, before the last, which is half then:
//
//	unpacked  1/6  what the payload unfolds to of a record that is being mapped
//
// # What is counted
//
// A Grant is taken before memory is allocated and shrunk to what was allocated; a
// Pool lends slices and counts their capacity, not their length. Slices that nobody
// uses wait in their pool for the next one who does, and are let go of when memory is
// allocated, or granted, that would not fit beside them. So two sums are never above the limit:
// the grants, and the slices, used and idle. What does not grow with the records is
// not counted: the scratch of decompressors (one a core), what a fetch answer says
// beside its records, a mapper's document, payloads that unfold to little.
//
// # One item larger than its share
//
// It is admitted alone: it waits until its share is empty, and takes the rest of what
// it needs from the next share, at most half of that. The last share has no next.
// What is larger still is refused at once with a TooLargeError, as no waiting would
// help.
//
// # No deadlock
//
// Who waits is served in order, per share. Nobody waits for a share while holding one
// behind it that would only come free by what is waited for:
//
//   - Who waits for fetched memory is a partition that is not asked for. Nothing
//     else stops: its records that were fetched are decoded, its group's heartbeats
//     go on, and a request under way holds its grant for as long as the broker takes
//     at most.
//   - Who waits for decoded memory holds fetched memory and no batch that is being
//     decoded: what was decoded before is handed out first. Batches that were handed
//     out come back once they are mapped, which waits for buffered memory only.
//   - Who waits for unpacked memory holds decoded memory, and neither unpacked memory nor
//     a buffer, which is handed to the store first.
//   - Who waits for buffered memory holds decoded and unpacked memory and has an empty
//     buffer: what was buffered before is handed to the store first. What the store has comes back
//     when it is applied, or has failed, and a buffer that is filled no further is
//     handed over at its age. Neither waits for memory. A partition that finds no memory
//     while the store has batches of it waits for one of these, with its buffer, and hands
//     that over where the store has none.
//   - Who relays dead letters waits for buffered memory with none of any share, and holds it
//     for as long as a producer tries and the store marks them, while it waits for none.
//
// So the last share always empties by itself, then the one before it, and so on:
// the oldest waiter of each is served in the end, whatever fits its share. An item
// that is larger waits for its own share first, and for the next one second, which is
// the same order. It cannot block what it waits for: with all of the fetched memory
// it is the only chunk there is, so that nobody else waits for decoded memory; with
// all of the decoded memory it is the only batch, so that nobody else waits for
// buffered memory. What it has borrowed from the share it waits for next is taken off
// what it may ask for there (the own of Ask). The unpacked share lends and borrows nothing.
package memory

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
)

// MinBytes is the smallest limit of a Budget. It is for tests; a process is to have
// some megabytes.
const MinBytes = 64

// Budget is the limit of a process. It is safe for concurrent use.
type Budget struct {
	limit                      int64
	fetched, decoded, buffered *Share
	unpacked                   *Share // nil = none
	partitions                 atomic.Int64
}

// New returns a budget of limit bytes, for payloads that are not packed: what such unfold
// to is not counted. Its error says that limit is below MinBytes.
func New(limit int64) (*Budget, error) { return makeBudget(limit, false) }

// NewUnpacking returns a budget of limit bytes with a share for what payloads unfold to.
// Its error is New's.
func NewUnpacking(limit int64) (*Budget, error) { return makeBudget(limit, true) }

func makeBudget(limit int64, unpacking bool) (*Budget, error) {
	if limit < MinBytes {
		return nil, fmt.Errorf("memory: a budget of %d bytes, must be %d at least", limit, MinBytes)
	}
	mu := new(sync.Mutex)
	b := &Budget{limit: limit}
	sixth := (limit + 5) / 6
	rest := limit - 2*sixth
	if unpacking {
		b.unpacked = &Share{mu: mu, name: "unpacked", limit: sixth, eager: true}
		rest -= sixth
	}
	b.buffered = &Share{mu: mu, name: "buffered", limit: rest, eager: true}
	b.decoded = &Share{mu: mu, name: "decoded", limit: sixth, next: b.buffered}
	b.fetched = &Share{mu: mu, name: "fetched", limit: sixth, next: b.decoded}
	return b, nil
}

// Limit returns the limit in bytes, which is the sum of the shares'.
func (b *Budget) Limit() int64 { return b.limit }

// Used returns the bytes that are granted of all shares.
func (b *Budget) Used() int64 {
	b.fetched.mu.Lock()
	defer b.fetched.mu.Unlock()
	n := b.fetched.used + b.decoded.used + b.buffered.used
	if b.unpacked != nil {
		n += b.unpacked.used
	}
	return n
}

// Fetched returns the share of what brokers were asked for and have sent.
func (b *Budget) Fetched() *Share { return b.fetched }

// Decoded returns the share of decoded records.
func (b *Budget) Decoded() *Share { return b.decoded }

// Unpacked returns the share of what payloads unfold to; nil where that is not counted.
func (b *Budget) Unpacked() *Share { return b.unpacked }

// Buffered returns the share of what the store is to have.
func (b *Budget) Buffered() *Share { return b.buffered }

// Shares returns the three or four shares in order.
func (b *Budget) Shares() []*Share {
	if b.unpacked == nil {
		return []*Share{b.fetched, b.decoded, b.buffered}
	}
	return []*Share{b.fetched, b.decoded, b.unpacked, b.buffered}
}

// Join notes that one more partition lives on the budget; Leave that it does no more.
func (b *Budget) Join() { b.partitions.Add(1) }

// Leave is Join's end.
func (b *Budget) Leave() { b.partitions.Add(-1) }

// Fair returns a partition's equal part of a share, in bytes: 1 at least.
func (b *Budget) Fair(s *Share) int64 { return max(s.limit/max(b.partitions.Load(), 1), 1) }

// Share is one part of a Budget, or a limit of its own. It is safe for concurrent use.
type Share struct {
	mu    *sync.Mutex // of the whole budget; guards below
	name  string
	limit int64
	next  *Share // that lends where one item is larger; nil = none
	// eager lets go of idle slices when memory is granted, and not only when it is
	// allocated: where grants are not for what may never come, and not all that is
	// allocated is a pool's.
	eager bool

	used    int64     // granted
	live    int64     // of slices that are lent
	idle    int64     // of slices that wait in pools
	pools   []idler   // that have them
	waiting list.List // of *Ticket

	making sync.Mutex           // guards made
	made   map[reflect.Type]any // by Only
}

// Only returns the T of the share, which the first call for it has made: what all
// pipelines of a process are to have in common.
func Only[T any](s *Share, make func(*Share) T) T {
	s.making.Lock()
	defer s.making.Unlock()
	key := reflect.TypeFor[T]()
	t, ok := s.made[key].(T)
	if !ok {
		t = make(s)
		if s.made == nil {
			s.made = map[reflect.Type]any{}
		}
		s.made[key] = t
	}
	return t
}

// idler is a Pool.
type idler interface {
	// drop lets go of the idle slice that is most of use to let go of and returns
	// its bytes, 0 where there is none. The share's mu is held.
	drop() int64
}

// NewShare returns a limit of its own, of limit bytes. Its error says that limit is
// not positive.
func NewShare(name string, limit int64) (*Share, error) {
	if limit <= 0 {
		return nil, fmt.Errorf("memory: %d bytes of %s memory, must be positive", limit, name)
	}
	return &Share{mu: new(sync.Mutex), name: name, limit: limit, eager: true}, nil
}

// Name is fetched, decoded, unpacked or buffered, or what NewShare was given.
func (s *Share) Name() string { return s.name }

// Limit returns the limit in bytes.
func (s *Share) Limit() int64 { return s.limit }

// Used returns the bytes that are granted.
func (s *Share) Used() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// Held returns the bytes that are granted, and those of slices that pools have made and
// not let go of, at one moment: slices in use, and slices that wait for a use.
func (s *Share) Held() (granted, used, idle int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used, s.live, s.idle
}

// Most returns the largest grant there can be, in bytes, for one who holds own bytes
// of the share already: what is left of it, and half of the next one.
func (s *Share) Most(own int64) int64 {
	n := s.limit - own
	if s.next != nil {
		n += s.next.limit / 2
	}
	return n
}

// ErrTooLarge is what every TooLargeError wraps.
var ErrTooLarge = errors.New("memory: too large")

// TooLargeError: one item is larger than the memory that it could ever be granted.
type TooLargeError struct {
	Share string // its name
	Bytes int64  // asked for
	Most  int64  // that there can be
}

// Error says how much is missing, and what to do.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("it takes %d bytes of %s memory, and %d are all that one may have: raise memory in the configuration", e.Bytes, e.Share, e.Most)
}

// Unwrap returns ErrTooLarge.
func (e *TooLargeError) Unwrap() error { return ErrTooLarge }

// Check returns a *TooLargeError where n bytes will never be granted to one who holds
// own bytes of the share.
func (s *Share) Check(n, own int64) error {
	if most := s.Most(own); n > most {
		return &TooLargeError{Share: s.name, Bytes: n, Most: most}
	}
	return nil
}

// Grant is memory that somebody holds. The zero Grant is none of any share. It belongs
// to one goroutine at a time.
type Grant struct {
	share *Share
	here  int64 // of share
	over  int64 // of the next one
}

// Bytes returns how much is held.
func (g *Grant) Bytes() int64 { return g.here + g.over }

// Borrowed returns how much of it the next share has lent.
func (g *Grant) Borrowed() int64 { return g.over }

// Grow takes n bytes more, if they are free and nobody waits for some. A grant that
// has borrowed grows no more.
func (g *Grant) Grow(n int64) bool {
	if n <= 0 {
		return true
	}
	if g.share == nil || g.over > 0 {
		return false
	}
	s := g.share
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.free(n) {
		return false
	}
	s.grant(n)
	g.here += n
	return true
}

// Shrink gives back what is above n bytes, what was borrowed first.
func (g *Grant) Shrink(n int64) {
	if g.share == nil || n >= g.Bytes() {
		return
	}
	over := max(0, min(g.over, n-g.here))
	here := min(g.here, n)
	s := g.share
	s.mu.Lock()
	var ready []func()
	if lent := g.over - over; lent > 0 {
		s.next.live -= lent
		ready = s.next.release(lent, ready)
	}
	ready = s.release(g.here-here, ready)
	s.mu.Unlock()
	g.here, g.over = here, over
	call(ready)
}

// Release gives everything back.
func (g *Grant) Release() {
	g.Shrink(0)
	*g = Grant{}
}

// Try grants n bytes if they are free and nobody waits for some.
func (s *Share) Try(n int64) (Grant, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.free(n) {
		return Grant{}, false
	}
	s.grant(n)
	return Grant{share: s, here: n}, true
}

// Empty returns a grant of no bytes that can Grow.
func (s *Share) Empty() Grant { return Grant{share: s} }

// grant notes that n bytes are somebody's. s.mu is held.
func (s *Share) grant(n int64) {
	s.used += n
	for s.eager && s.idle > 0 && s.used+s.idle > s.limit {
		s.drop()
	}
}

// free reports whether n bytes may be granted out of turn. s.mu is held.
func (s *Share) free(n int64) bool { return s.waiting.Len() == 0 && s.used+n <= s.limit }

// Acquire waits for n bytes. own is what the caller holds of the share, as one that
// was lent. It gives up, with an error that wraps ctx's, where ctx ends, or with
// ErrGone where gone is closed; its error is a *TooLargeError where waiting would not
// help.
func (s *Share) Acquire(ctx context.Context, n, own int64, gone <-chan struct{}) (Grant, error) {
	ready := make(chan struct{})
	t, err := s.Ask(n, own, func() { close(ready) })
	if err != nil {
		return Grant{}, err
	}
	if t.Granted() {
		return t.Take(), nil
	}
	select {
	case <-ready:
		return t.Take(), nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-gone:
		err = ErrGone
	}
	t.Cancel()
	return Grant{}, fmt.Errorf("wait for %d of %d bytes of %s memory: %w", n, s.limit, s.name, err)
}

// ErrGone: who waited for memory was told to stop.
var ErrGone = errors.New("memory: nobody needs it any more")

// Ticket is a place in the queue for memory.
type Ticket struct {
	share      *Share
	here, over int64
	ready      func()

	// guarded by the share's mu
	at      *Share        // whose queue it is in; nil = none
	element *list.Element // in that
	got     Grant
	granted bool
}

// Ask queues for n bytes, as Acquire does, and does not wait: where they are not there
// at once, ready is called when they are, by whoever gave memory back; so it must not
// block. Where they are, it is not called.
func (s *Share) Ask(n, own int64, ready func()) (*Ticket, error) {
	if err := s.Check(n, own); err != nil {
		return nil, err
	}
	t := &Ticket{share: s, here: min(n, s.limit-own), ready: ready, got: Grant{share: s}}
	t.over = n - t.here
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free(t.here) {
		t.take(s)
	} else {
		t.queue(s)
	}
	return t, nil
}

// Bytes returns how much was asked for.
func (t *Ticket) Bytes() int64 { return t.here + t.over }

// Granted reports whether it is there.
func (t *Ticket) Granted() bool {
	t.share.mu.Lock()
	defer t.share.mu.Unlock()
	return t.granted
}

// Take returns the grant, once, of a ticket that is granted.
func (t *Ticket) Take() Grant {
	t.share.mu.Lock()
	defer t.share.mu.Unlock()
	if !t.granted {
		panic("memory: a ticket is taken before it is granted")
	}
	g := t.got
	t.got = Grant{share: t.share}
	return g
}

// Cancel leaves the queue and gives back what was granted and not taken.
func (t *Ticket) Cancel() {
	t.share.mu.Lock()
	var ready []func()
	if s := t.at; s != nil {
		s.waiting.Remove(t.element)
		t.at, t.element = nil, nil
		ready = s.serve(ready) // it may have kept smaller ones waiting
	}
	g := t.got
	t.got = Grant{share: t.share}
	t.share.mu.Unlock()
	call(ready)
	g.Release()
}

// queue waits in the queue of s. mu is held.
func (t *Ticket) queue(s *Share) { t.at, t.element = s, s.waiting.PushBack(t) }

// take takes what t needs of s, which has it, and goes on. mu is held.
func (t *Ticket) take(s *Share) {
	t.at, t.element = nil, nil
	if s == t.share {
		s.grant(t.here)
		t.got.here = t.here
		if t.over > 0 {
			if !s.next.free(t.over) {
				t.queue(s.next)
				return
			}
			t.take(s.next)
			return
		}
	} else {
		s.grant(t.over)
		s.room(t.over) // it is memory here: the slice is counted in the share before
		s.live += t.over
		t.got.over = t.over
	}
	t.granted = true
}

// release gives n bytes back and returns ready with those who are to be called. mu is
// held.
func (s *Share) release(n int64, ready []func()) []func() {
	s.used -= n
	if s.used < 0 {
		panic("memory: more " + s.name + " memory released than granted")
	}
	return s.serve(ready)
}

// serve grants what the first in the queue waits for, as long as it fits. mu is held.
func (s *Share) serve(ready []func()) []func() {
	for e := s.waiting.Front(); e != nil; e = s.waiting.Front() {
		t := e.Value.(*Ticket)
		need := t.here
		if s != t.share {
			need = t.over
		}
		if s.used+need > s.limit {
			break
		}
		s.waiting.Remove(e)
		t.take(s)
		if t.granted {
			ready = append(ready, t.ready)
		}
	}
	return ready
}

func call(ready []func()) {
	for _, f := range ready {
		f()
	}
}

// room lets go of idle slices until n bytes more fit beside what is lent. mu is held.
func (s *Share) room(n int64) {
	for !s.eager && s.idle > 0 && s.live+s.idle+n > s.limit {
		s.drop()
	}
}

// drop lets go of an idle slice, of the pool that was made first and has one. mu is held.
func (s *Share) drop() {
	for _, p := range s.pools {
		if p.drop() > 0 {
			return
		}
	}
	panic("memory: idle " + s.name + " slices are missing")
}
