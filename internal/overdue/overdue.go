// Package overdue tells of calls to the operating system that have not returned: a disk or a
// network file system may not answer for hours, gives no error meanwhile, and cannot be told
// to stop. It ends nothing.
package overdue

import (
	"log/slog"
	"sync"
	"time"
)

const (
	// After is how long a call may take before the log says so.
	After = 10 * time.Second
	// Repeat is how often it says again that it still is under way.
	Repeat = time.Minute
)

// Tell has log say that what is begun now has not ended, with args as slog takes them, until
// done is called; and then that it has, where it said so before.
func Tell(log *slog.Logger, what string, args ...any) (done func()) {
	begun := time.Now()
	w := &watch{log: log.With(args...).With("what", what), begun: begun}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(After, w.tell)
	return w.end
}

type watch struct {
	log   *slog.Logger
	begun time.Time

	mu    sync.Mutex // guards below
	timer *time.Timer
	told  bool
	ended bool
}

func (w *watch) tell() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	w.told = true
	w.log.Warn("this takes long: does the disk answer?", "took", time.Since(w.begun).Round(time.Second))
	w.timer.Reset(Repeat)
}

func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	w.ended = true
	w.timer.Stop()
	if w.told {
		w.log.Warn("this has ended", "took", time.Since(w.begun).Round(time.Second))
	}
}
