// Package turns lets work that keeps the cores busy give other goroutines their turn.
//
// Go preempts a goroutine after 10 ms. While there is one on every core, one that
// becomes ready, such as a commit whose fsync is over, waits that long, and again at its
// next step: commits beside an export took twenty milliseconds instead of three. To
// yield costs some microseconds where a core is idle, so that the clock decides when.
//
// It is not a priority: whoever is ready has a turn.
package turns

import (
	"runtime"
	"sync/atomic"
	"time"
)

// every is how long a goroutine has a core to itself, about: it is asked for at steps of
// the work that take less.
const every = 500 * time.Microsecond

var always atomic.Bool // each call of Give ends a turn, for During

// Turn is that of one goroutine. The zero value begins one.
type Turn struct{ begun time.Time }

// Give lets other goroutines go first, if the turn has lasted long enough. It costs a
// look at the clock, some 50 ns.
func (t *Turn) Give() {
	if time.Since(t.begun) < every && !always.Load() {
		return
	}
	if !t.begun.IsZero() {
		runtime.Gosched()
	}
	t.begun = time.Now()
}

// During is for tests of such work: it runs f on the only core, has each call of Give end
// a turn, and returns how many turns a goroutine had meanwhile that is always ready. No
// test may run in parallel, as all that is the process's.
func During(f func()) int {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	always.Store(true)
	defer always.Store(false)
	var over atomic.Bool
	had := make(chan int)
	go func() {
		n := 0
		for !over.Load() {
			n++
			runtime.Gosched()
		}
		had <- n
	}()
	runtime.Gosched() // it has begun
	f()
	over.Store(true)
	return <-had
}
