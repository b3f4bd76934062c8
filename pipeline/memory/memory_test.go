package memory

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

func newBudget(t interface {
	Helper()
	Fatal(...any)
}, limit int64,
) *Budget {
	t.Helper()
	b, err := New(limit)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// mustTry takes n bytes that are free.
func mustTry(t *testing.T, s *Share, n int64) Grant {
	t.Helper()
	g, ok := s.Try(n)
	if !ok {
		t.Fatalf("Got no %d bytes with %d of %d used", n, s.Used(), s.Limit())
	}
	return g
}

func TestShares(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{64, 67, 1000, 1 << 30} {
		b, sum := newBudget(t, limit), int64(0)
		for _, s := range b.Shares() {
			sum += s.Limit()
		}
		if b.Unpacked() != nil {
			t.Error("Got a share that was not asked for")
		}
		if sum != limit || b.Fetched().Limit() != (limit+5)/6 || b.Decoded().Limit() != (limit+5)/6 || b.Buffered().Limit() < limit/5*3 {
			t.Errorf("Got shares of %d, %d and %d of %d", b.Fetched().Limit(), b.Decoded().Limit(), b.Buffered().Limit(), limit)
		}
	}
	for _, limit := range []int64{64, 67, 1000, 1 << 30} {
		b, err := NewUnpacking(limit)
		if err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for _, s := range b.Shares() {
			sum += s.Limit()
		}
		if u := b.Unpacked(); sum != limit || u.Limit() != (limit+5)/6 || u.Most(0) != u.Limit() || b.Buffered().Limit() < limit/5*2 {
			t.Errorf("Got shares of %d unpacked and %d buffered of %d, in all %d", u.Limit(), b.Buffered().Limit(), limit, sum)
		}
		mustTry(t, b.Unpacked(), 7)
		if b.Used() != 7 {
			t.Errorf("Got %d bytes used, want 7", b.Used())
		}
	}
	if _, err := New(MinBytes - 1); err == nil {
		t.Error("Got a budget of next to nothing")
	}
	if _, err := NewShare("s", 0); err == nil {
		t.Error("Got a share of nothing")
	}
}

func TestWaitersAreServedInOrder(t *testing.T) {
	t.Parallel()
	s, err := NewShare("test", 100)
	if err != nil {
		t.Fatal(err)
	}
	first := mustTry(t, s, 80)
	var order []int64
	ask := func(n int64) *Ticket {
		ticket, err := s.Ask(n, 0, func() { order = append(order, n) })
		if err != nil {
			t.Fatal(err)
		}
		return ticket
	}
	large, small, last := ask(90), ask(10), ask(60)
	if large.Granted() || small.Granted() {
		t.Fatal("Got bytes that are not free, or ahead of those who wait")
	}
	if _, ok := s.Try(1); ok {
		t.Error("Got bytes ahead of those who wait")
	}
	if first.Grow(1) {
		t.Error("Got a grant to grow ahead of those who wait")
	}
	first.Shrink(30)
	if len(order) != 0 {
		t.Errorf("Got %v served, want the first to wait for all", order)
	}
	first.Release()
	if len(order) != 2 || order[0] != 90 || order[1] != 10 {
		t.Errorf("Got %v served, want 90 and 10", order)
	}
	g := large.Take()
	g.Release()
	if len(order) != 3 || !last.Granted() {
		t.Errorf("Got %v served, want 60, too", order)
	}
	small.Cancel()
	last.Cancel()
	if s.Used() != 0 {
		t.Errorf("Got %d bytes used after all was given back", s.Used())
	}
}

func TestAcquireGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := NewShare("test", 100)
		if err != nil {
			t.Fatal(err)
		}
		held := mustTry(t, s, 60)
		ctx, cancel := context.WithCancel(t.Context())
		large, small := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := s.Acquire(ctx, 100, 0, nil)
			large <- err
		}()
		synctest.Wait()
		var behind Grant
		go func() {
			var err error
			behind, err = s.Acquire(t.Context(), 40, 0, nil)
			small <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-large; !errors.Is(err, context.Canceled) {
			t.Errorf("Got %v, want canceled", err)
		}
		if err := <-small; err != nil { // no longer behind the large one
			t.Error(err)
		}
		gone := make(chan struct{})
		go func() {
			_, err := s.Acquire(t.Context(), 1, 0, gone)
			large <- err
		}()
		synctest.Wait()
		close(gone)
		if err := <-large; !errors.Is(err, ErrGone) {
			t.Errorf("Got %v, want ErrGone", err)
		}
		held.Release()
		behind.Release()
		if s.Used() != 0 {
			t.Errorf("Got %d bytes used after all was given back", s.Used())
		}
	})
}

// An item that is larger than its share waits until that is empty, takes half of the
// next one at most, and is refused beyond.
func TestLargerThanTheShare(t *testing.T) {
	t.Parallel()
	b := newBudget(t, 600)
	f, d, w := b.Fetched(), b.Decoded(), b.Buffered()
	if f.Most(0) != 150 || d.Most(0) != 300 || d.Most(30) != 270 || w.Most(0) != 400 || w.Most(50) != 350 {
		t.Errorf("Got at most %d, %d, %d, %d and %d", f.Most(0), d.Most(0), d.Most(30), w.Most(0), w.Most(50))
	}
	_, err := f.Ask(151, 0, nil)
	if large, ok := errors.AsType[*TooLargeError](err); !ok || large.Bytes != 151 || large.Most != 150 || large.Share != "fetched" || !errors.Is(err, ErrTooLarge) {
		t.Errorf("Got %v", err)
	}
	small, next := mustTry(t, f, 1), mustTry(t, d, 60)
	calls := 0
	ticket, err := f.Ask(150, 0, func() { calls++ })
	if err != nil || ticket.Granted() {
		t.Fatalf("Got %v, or more than the share beside another", err)
	}
	small.Release()
	if ticket.Granted() || f.Used() != 100 {
		t.Error("Got what the next share does not have")
	}
	if d.free(1) {
		t.Error("Got bytes of the next share ahead of who waits for it")
	}
	next.Release()
	if calls != 1 || !ticket.Granted() || f.Used() != 100 || d.Used() != 50 {
		t.Fatalf("Got %d calls, %d and %d bytes used", calls, f.Used(), d.Used())
	}
	g := ticket.Take()
	if g.Bytes() != 150 || g.Borrowed() != 50 || g.Grow(1) {
		t.Errorf("Got a grant of %d, %d of them borrowed, or one that grows", g.Bytes(), g.Borrowed())
	}
	// Who has borrowed of a share can have the rest of it, and of the next.
	more, err := d.Acquire(t.Context(), 150, g.Borrowed(), nil)
	if err != nil || more.Borrowed() != 100 || b.Used() != 300 {
		t.Errorf("Got %v, %d borrowed, %d used", err, more.Borrowed(), b.Used())
	}
	more.Shrink(120)
	if more.Borrowed() != 70 || w.Used() != 70 {
		t.Errorf("Got %d borrowed and %d used, want what was borrowed back first", more.Borrowed(), w.Used())
	}
	more.Shrink(20)
	if more.Borrowed() != 0 || more.Bytes() != 20 || d.Used() != 70 || w.Used() != 0 {
		t.Errorf("Got %d bytes, %d and %d used", more.Bytes(), d.Used(), w.Used())
	}
	more.Release()
	g.Release()
	if b.Used() != 0 {
		t.Errorf("Got %d bytes used after all was given back", b.Used())
	}
	// Given up in either queue, it leaves nothing behind.
	for _, s := range []*Share{f, d} {
		held := mustTry(t, s, s.Limit())
		ticket, err := f.Ask(150, 0, func() { t.Error("Got called for what was given up") })
		if err != nil || ticket.Granted() {
			t.Fatalf("Got %v, or what is not there", err)
		}
		ticket.Cancel()
		held.Release()
		if b.Used() != 0 {
			t.Errorf("Got %d bytes used by a ticket that waited for %s", b.Used(), s.Name())
		}
	}
}

func TestPoolSizes(t *testing.T) {
	t.Parallel()
	s, err := NewShare("test", 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	bytes, words := NewPool[byte](s), NewPool[[2]int64](s)
	for n := 1; n < 1<<20; n += 1 + n/7 {
		if got := bytes.Bytes(n); got < int64(n) || got > max(int64(n)+int64(n)/4, 4096) {
			t.Errorf("Got %d bytes for %d", got, n)
		}
		if got := words.Bytes(n); got < 16*int64(n) || got > max(20*int64(n), 16*64) {
			t.Errorf("Got %d bytes for %d of 16", got, n)
		}
		class, room := bytes.class(n)
		if again, same := bytes.class(room); again != class || same != room {
			t.Errorf("Got class %d of %d bytes and %d of the %d they have", class, n, again, room)
		}
		if c, r := bytes.class(room + 1); c != class+1 || r <= room {
			t.Errorf("Got class %d behind %d, of %d and %d bytes", c, class, r, room)
		}
	}
}

// What is lent and what is idle fit the limit together, in both ways to give it back.
func TestPoolKeepsWithinTheLimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newBudget(t, 1<<20).Decoded()
		s.eager = rapid.Bool().Draw(t, "eager")
		first, second := NewPool[byte](s), NewPool[uint64](s)
		shelf := NewShelf[int](s)
		type lent struct {
			g Grant
			b []byte
			w []uint64
			n int64 // of a thing
		}
		var all []lent
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			n := rapid.IntRange(1, 60<<10).Draw(t, "n")
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				if s.eager && rapid.Bool().Draw(t, "take") {
					g, had := s.Empty(), s.Used()
					if b, ok := first.Take(&g, n); ok {
						all = append(all, lent{g: g, b: b})
					}
					if want := had + g.Bytes(); s.Used() != want {
						t.Fatalf("Got %d bytes granted, want %d", s.Used(), want)
					}
				} else if g, ok := s.Try(first.Bytes(n)); ok {
					all = append(all, lent{g: g, b: first.Get(n)})
				}
			case 1:
				if g, ok := s.Try(second.Bytes(n / 8)); ok {
					all = append(all, lent{g: g, w: second.Get(n / 8)})
				}
			case 2:
				g := s.Empty()
				if _, bytes, ok := shelf.Get(&g, int64(n)); ok {
					all = append(all, lent{g: g, n: bytes})
				}
			default:
				if len(all) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
				l := &all[i]
				switch {
				case s.eager && l.n > 0:
					shelf.Return(&l.g, 1, l.n)
				case s.eager:
					first.Return(&l.g, l.b)
					second.Return(&l.g, l.w)
					if l.b == nil && rapid.Bool().Draw(t, "thing") {
						if g, ok := s.Try(int64(n)); ok {
							s.live += int64(n)
							shelf.Return(&g, 1, int64(n))
						}
					}
				default:
					first.Put(l.b)
					second.Put(l.w)
				}
				l.g.Release()
				all = append(all[:i], all[i+1:]...)
			}
			granted, live, idle := s.Held()
			if !s.eager && live > granted || live+idle > s.Limit() || s.eager && s.Used()+idle > s.Limit() {
				t.Fatalf("Got %d bytes lent and %d idle, %d granted of %d", live, idle, s.Used(), s.Limit())
			}
		}
		for i := range all {
			first.Put(all[i].b)
			second.Put(all[i].w)
			all[i].g.Release()
		}
		if s.Used() != 0 {
			t.Fatalf("Got %d bytes granted after all was given back", s.Used())
		}
	})
}

// A slice that waits is taken with nothing let go of for it, however full the share is,
// and one that is made anew only where the memory is free.
func TestTake(t *testing.T) {
	t.Parallel()
	s, err := NewShare("test", 5*4096)
	if err != nil {
		t.Fatal(err)
	}
	small, other := NewPool[byte](s), NewPool[uint64](s)
	g, h := s.Empty(), s.Empty()
	take := func(want bool) []byte {
		t.Helper()
		b, ok := small.Take(&g, 4096)
		if ok != want || ok && (len(b) != 0 || cap(b) != 4096) {
			t.Fatalf("Got %t, a slice of %d of %d, want %t", ok, len(b), cap(b), want)
		}
		return b
	}
	words, ok := other.Take(&h, 512)
	if !ok || h.Bytes() != 4096 {
		t.Fatalf("Got %t, %d bytes granted", ok, h.Bytes())
	}
	bs := [][]byte{take(true), take(true), take(true), take(true)}
	take(false)
	small.Return(&g, bs[3])
	other.Return(&h, words)
	if _, _, idle := s.Held(); idle != 2*4096 {
		t.Fatalf("Got %d bytes idle, want 8192", idle)
	}
	if b := take(true); &b[:1][0] != &bs[3][:1][0] {
		t.Error("Got another slice than the one that waited")
	}
	if used, _, idle := s.Held(); used != 4*4096 || idle != 4096 {
		t.Errorf("Got %d bytes granted and %d idle, want 16384 and 4096: one taken, one left alone", used, idle)
	}
	take(true) // for this one the words go
	if used, _, idle := s.Held(); used != 5*4096 || idle != 0 {
		t.Errorf("Got %d bytes granted and %d idle, want all and none", used, idle)
	}
	small.Return(&g, bs[0])
	waits, err := s.Ask(2*4096, 0, func() {})
	if err != nil {
		t.Fatal(err)
	}
	take(false) // ahead of who waits
	waits.Cancel()
	take(true)
}

// Who takes a thing off a shelf gets the one that fits best.
func TestShelfFits(t *testing.T) {
	t.Parallel()
	s, err := NewShare("test", 1000)
	if err != nil {
		t.Fatal(err)
	}
	f := NewShelf[string](s)
	for _, thing := range []struct {
		name  string
		bytes int64
	}{{"b", 20}, {"d", 40}, {"a", 10}, {"c", 30}} {
		g := mustTry(t, s, thing.bytes)
		f.Return(&g, thing.name, thing.bytes)
	}
	got, held := "", s.Empty()
	for _, want := range []int64{25, 0, 100, 5} {
		thing, _, _ := f.Get(&held, want)
		got += thing
	}
	if got != "cadb" || held.Bytes() != 100 || s.Used() != 100 {
		t.Errorf("Got %s, %d bytes held and %d used, want cadb, 100 and 100", got, held.Bytes(), s.Used())
	}
	if _, _, ok := f.Get(&held, 0); ok {
		t.Error("Got a thing off an empty shelf")
	}
}

func TestOnly(t *testing.T) {
	t.Parallel()
	b := newBudget(t, 600)
	made := 0
	pool := func(s *Share) *Pool[byte] {
		made++
		return NewPool[byte](s)
	}
	first := Only(b.Buffered(), pool)
	if Only(b.Buffered(), pool) != first || Only(b.Decoded(), pool) == first || made != 2 {
		t.Errorf("Got %d pools of two shares, want one of each, the same one each time", made)
	}
	if Only(b.Buffered(), func(*Share) string { return "another type" }) == "" {
		t.Error("Got nothing of another type")
	}
}

// Partitions that fetch, decode and buffer items of any size never wait for each other
// for ever, and never hold more than the limit.
func TestNoDeadlock(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			b, err := makeBudget(4000, seed%2 == 1)
			if err != nil {
				t.Fatal(err)
			}
			var most atomic.Int64
			look := func() { most.Store(max(most.Load(), b.Used())) }
			var partitions sync.WaitGroup
			for p := range 6 {
				rnd := rand.New(rand.NewPCG(seed, uint64(p)))
				size := func(most int64) int64 {
					if rnd.IntN(4) == 0 {
						return 1 + rnd.Int64N(most)
					}
					return 1 + rnd.Int64N(most/10)
				}
				type batch struct{ chunk, decoded Grant }
				batches := make(chan batch, 1)
				partitions.Go(func() {
					defer close(batches)
					for range 60 {
						chunk, err := b.Fetched().Acquire(t.Context(), size(b.Fetched().Most(0)), 0, nil)
						if err != nil {
							t.Error(err)
							return
						}
						look()
						decoded, err := b.Decoded().Acquire(t.Context(), size(b.Decoded().Most(chunk.Borrowed())), chunk.Borrowed(), nil)
						if err != nil {
							t.Error(err)
							return
						}
						look()
						decoded.Shrink(1 + rnd.Int64N(decoded.Bytes()))
						if rnd.IntN(2) == 0 {
							chunk.Release() // it was compressed
						}
						batches <- batch{chunk, decoded}
					}
				})
				applied := make(chan Grant, 2)
				partitions.Go(func() {
					defer close(applied)
					rnd := rand.New(rand.NewPCG(seed, 100+uint64(p)))
					for f := range batches {
						for range 3 {
							var unpacked Grant
							if u := b.Unpacked(); u != nil && rnd.IntN(2) == 0 {
								// What was buffered is the store's by now.
								var err error
								if unpacked, err = u.Acquire(t.Context(), 1+rnd.Int64N(u.Most(0)), 0, nil); err != nil {
									t.Error(err)
									return
								}
								look()
							}
							n := 1 + rnd.Int64N(b.Buffered().Most(f.decoded.Borrowed()))
							g, ok := b.Buffered().Try(n / 10)
							if !ok {
								var err error
								if g, err = b.Buffered().Acquire(t.Context(), n, f.decoded.Borrowed(), nil); err != nil {
									t.Error(err)
									return
								}
							}
							look()
							unpacked.Release()
							applied <- g
						}
						f.decoded.Release()
						f.chunk.Release()
					}
				})
				partitions.Go(func() {
					for g := range applied {
						g.Release()
					}
				})
			}
			partitions.Wait() // synctest panics where all are blocked
			if b.Used() != 0 || most.Load() > b.Limit() {
				t.Errorf("Seed %d: Got %d bytes used at the end and %d at most, of %d", seed, b.Used(), most.Load(), b.Limit())
			}
		})
	}
}
