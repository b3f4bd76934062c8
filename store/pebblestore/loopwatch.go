package pebblestore

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"sluice/store"
)

// HoldKind is what the commit loop is held for.
type HoldKind uint8

// The kinds.
const (
	HoldCommit     HoldKind = iota // a commit
	HoldSchema                     // a change of the catalog
	HoldSnapshot                   // the beginning of a snapshot
	HoldCheckpoint                 // a checkpoint
	HoldRewrite                    // the beginning of a rewrite, or the replacement of its span
	HoldFlush                      // the end of a flush that was asked for
	HoldFilter                     // a piece of a filter that is filled at the start
	HoldIdentity                   // a new identity of the store
	holdKinds
)

// String returns the kind in one word.
func (k HoldKind) String() string {
	return [holdKinds]string{"commit", "schema", "snapshot", "checkpoint", "rewrite", "flush", "filter", "identity"}[k]
}

// HoldKinds returns all kinds.
func HoldKinds() []HoldKind {
	all := make([]HoldKind, holdKinds)
	for k := range all {
		all[k] = HoldKind(k)
	}
	return all
}

const (
	// stallAfter is how long the loop may be held before what waits behind it is refused:
	// ten times what the largest commit and the slowest checkpoint take on a disk that is
	// busy. A disk that answers later than that is as good as none for a while.
	stallAfter = 10 * time.Second
	// stallRepeat is how often the log says again that it still is.
	stallRepeat = time.Minute
	// longHold is how long anything but a commit may hold the loop before the log says so.
	longHold = 2 * time.Second
)

// loopWatch watches what the commit loop is held for. A disk may take seconds for a write, or
// for ever, and says nothing meanwhile: what the loop has begun has to wait for it, but
// whoever waits behind that, and whoever looks at the store, is told. Only the loop calls
// begin and end.
type loopWatch struct {
	log *slog.Logger

	mu      sync.Mutex
	kind    HoldKind
	since   time.Time   // zero = the loop is idle
	timer   *time.Timer // of a look at it; nil = none is to come
	closed  bool        // no further look
	refusal *refusal    // of what waits
}

// refusal is what requests wait for besides their turn.
type refusal struct {
	begun chan struct{} // closed once they are refused
	kind  HoldKind      // why; written before begun is closed
	since time.Time
}

func newLoopWatch(log *slog.Logger) *loopWatch {
	return &loopWatch{log: log, refusal: &refusal{begun: make(chan struct{})}}
}

// begin notes that the loop is held from now on.
func (w *loopWatch) begin(kind HoldKind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kind, w.since = kind, time.Now()
	if w.timer == nil && !w.closed { // else it looks again by itself: commits are many
		w.timer = time.AfterFunc(stallAfter, w.look)
	}
}

// end notes that it no longer is, and returns for how long it was.
func (w *loopWatch) end() time.Duration {
	w.mu.Lock()
	if w.since.IsZero() {
		w.mu.Unlock()
		return 0
	}
	kind, took, stalled := w.kind, time.Since(w.since), w.stalled()
	w.since = time.Time{}
	if stalled {
		w.refusal = &refusal{begun: make(chan struct{})}
	}
	w.mu.Unlock()
	switch {
	case stalled:
		w.log.Warn("the store takes writes again", "reason", kind.String(), "took", took)
	case kind != HoldCommit && took > longHold:
		w.log.Warn("commits waited", "reason", kind.String(), "took", took)
	}
	return took
}

// stalled reports whether what waits is refused. The caller has w.mu.
func (w *loopWatch) stalled() bool {
	select {
	case <-w.refusal.begun:
		return true
	default:
		return false
	}
}

// look refuses what waits where the loop is held for too long, and comes again while it
// is held.
func (w *loopWatch) look() {
	w.mu.Lock()
	if w.closed || w.since.IsZero() {
		w.timer = nil
		w.mu.Unlock()
		return
	}
	kind, age := w.kind, time.Since(w.since)
	if age < stallAfter {
		w.timer.Reset(stallAfter - age)
		w.mu.Unlock()
		return
	}
	if !w.stalled() {
		w.refusal.kind, w.refusal.since = kind, w.since
		close(w.refusal.begun)
	}
	w.timer.Reset(stallRepeat)
	w.mu.Unlock()
	w.log.Warn("the store takes no writes until the disk answers", "reason", kind.String(), "took", age)
}

// waiting returns what a request waits for besides its turn.
func (w *loopWatch) waiting() *refusal {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refusal
}

// now returns what the loop is held for, and for how long; 0 = it is idle.
func (w *loopWatch) now() (kind HoldKind, age time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() {
		return w.kind, 0
	}
	return w.kind, time.Since(w.since)
}

// close ends the looks.
func (w *loopWatch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

// err is why a request is refused that the loop has not begun.
func (r *refusal) err() error {
	return fmt.Errorf("this was not applied: %w", r.why())
}

// why is why everything is.
func (r *refusal) why() error {
	return fmt.Errorf("%w: the store is at a %s for %s, as the disk does not answer: look at the disk; ingest that is running goes on by itself",
		store.ErrTransient, r.kind, time.Since(r.since).Round(time.Second))
}

// Stalled says why the store takes no writes for now, as the disk has not answered for
// some seconds; nil where it does. The error wraps store.ErrTransient.
func (db *DB) Stalled() error {
	r := db.watch.waiting()
	select {
	case <-r.begun:
		return r.why()
	default:
		return nil
	}
}
