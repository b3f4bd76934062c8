package pebblestore

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"sluice/store"
)

// pebbleLog is Pebble's logger and event listener: it speaks slog, counts what
// Metrics reports, and turns a fatal error into a failed DB instead of the end
// of the process.
type pebbleLog struct {
	log   *slog.Logger
	start time.Time // what the times below count from, whatever becomes of the clock

	corruptions atomic.Int64
	writeStalls atomic.Int64
	flushes     atomic.Int64
	compactions atomic.Int64
	silent      atomic.Int64 // ns until which errors are not logged
	troubled    atomic.Int64 // ns until which no flush begins a table and no compaction begins, after one failed

	flushFail atomic.Pointer[error] // why the last flush failed; nil = it did not

	mu       sync.Mutex
	troubles chan struct{} // closed at the next flush that fails

	opening atomic.Bool // Pebble is being opened

	failOnce sync.Once
	failed   chan struct{} // closed at the first fatal error
	err      error         // why; written before failed is closed
}

func newPebbleLog(l *slog.Logger) *pebbleLog {
	return &pebbleLog{log: l, start: time.Now(), failed: make(chan struct{}), troubles: make(chan struct{})}
}

// Infof drops what Pebble tells of its every flush and compaction.
func (*pebbleLog) Infof(string, ...any) {}

// Errorf logs at most one error a second: Pebble repeats a failing flush without
// a pause.
func (l *pebbleLog) Errorf(format string, args ...any) {
	now := time.Since(l.start)
	if until := l.silent.Load(); int64(now) < until || !l.silent.CompareAndSwap(until, int64(now+time.Second)) {
		return
	}
	l.log.Error("storage engine error", "err", fmt.Sprintf(format, args...))
}

// flushPause is how long flushes and compactions wait after work in the background has failed:
// Pebble repeats it without a pause, hundreds and thousands of times a second, for as long as the
// disk is full.
const flushPause = time.Second

// emptyFlush is the text of the error that Pebble tells of a flush which had nothing to write,
// as all of it was deleted. It exports none.
const emptyFlush = "pebble: empty table"

// isCancelled reports whether err ended a flush that Pebble has given up, and repeats at once,
// as a rewrite replaced keys from among those that it writes: nothing is wrong then.
func isCancelled(err error) bool { return errors.Is(err, pebble.ErrCancelledCompaction) }

// pause returns what is left of that, 0 or less where nothing is.
func (l *pebbleLog) pause() time.Duration {
	return time.Duration(l.troubled.Load()) - time.Since(l.start)
}

// pauseFlush returns when a flush may begin a table. A flush holds no lock then.
func (l *pebbleLog) pauseFlush() {
	wait := l.pause()
	if wait <= 0 {
		return
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.failed:
	}
}

// flushError says why commits are refused after a flush that failed: each would fill the
// memtables further, until one waits in Pebble, and all behind it, for as long as the disk is
// bad. Pebble repeats the flush by itself.
func (l *pebbleLog) flushError(dir string) error {
	err := l.flushFail.Load()
	if err == nil {
		return nil
	}
	if e := diskError(*err); errors.Is(e, store.ErrDiskFull) {
		return e
	}
	return fmt.Errorf("%w: what is in memory cannot be written to %s: %w: look at the disk; ingest that is running goes on by itself",
		store.ErrTransient, dir, *err)
}

// trouble returns a channel that is closed when a flush fails.
func (l *pebbleLog) trouble() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.troubles
}

func (l *pebbleLog) tellTrouble() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.troubles)
	l.troubles = make(chan struct{})
}

// Fatalf marks the DB as failed and never returns: Pebble expects that the
// process ends here, and would go on as if nothing had happened. Callers that
// wait for the commit loop get the error; the process has to be restarted. The
// error is an ErrClosed, as waiting in this process does not help, and an
// ErrTransient for clients in others.
func (l *pebbleLog) Fatalf(format string, args ...any) {
	l.fail(fmt.Errorf("%w: the storage engine stopped: %s; restart the process, nothing acknowledged is lost (%w)",
		store.ErrClosed, fmt.Sprintf(format, args...), store.ErrTransient))
	select {}
}

func (l *pebbleLog) fail(err error) {
	l.failOnce.Do(func() {
		l.err = err
		l.log.Error("storage engine stopped", "err", err)
		close(l.failed)
	})
}

// begin opens Pebble by open, unless that ends with a fatal error, or with a flush that fails:
// Pebble would repeat it, and not return, for as long as the disk is bad.
func (l *pebbleLog) begin(open func() (*pebble.DB, error)) (db *pebble.DB, err error) {
	done := make(chan struct{})
	l.opening.Store(true)
	defer l.opening.Store(false)
	go func() { // which Fatalf keeps, or the next flush in logFiles
		defer close(done)
		defer catchDisk(&err)
		db, err = open()
	}()
	select {
	case <-done:
		return db, err
	case <-l.failed:
		return nil, l.err
	}
}

// catchDisk makes of an error of the disk at which Pebble panics, where it cannot sync a
// directory, one that is returned.
func catchDisk(err *error) {
	switch p := recover().(type) {
	case nil:
	case runtime.Error:
		panic(p)
	case error:
		*err = p
	default:
		panic(p)
	}
}

// Stopped returns a channel that is closed when the store can do nothing any more until its
// directory is opened by another process, as the disk failed where Pebble cannot go on.
// Every call fails then, and Close says why.
func (db *DB) Stopped() <-chan struct{} { return db.log.failed }

// failure returns the fatal error, or nil.
func (l *pebbleLog) failure() error {
	select {
	case <-l.failed:
		return l.err
	default:
		return nil
	}
}

func (l *pebbleLog) events() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			if isCancelled(err) {
				return
			}
			l.troubled.Store(int64(time.Since(l.start) + flushPause))
			l.Errorf("background work: %v", err)
		},
		// Pebble's default ends the process. The read that found the damage
		// fails with the same error; everything else goes on (invariant I7).
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			l.corruptions.Add(1)
			// The text alone: a handler may print Pebble's errors with their stacks.
			l.log.Error("data corruption", "file", i.Path, "err", i.Details.Error())
		},
		WriteStallBegin: func(i pebble.WriteStallBeginInfo) {
			l.writeStalls.Add(1)
			l.log.Warn("writes stall until flushes and compactions catch up", "reason", i.Reason)
		},
		FlushEnd: func(i pebble.FlushInfo) {
			switch {
			case i.Err == nil:
				l.flushes.Add(1)
				l.flushFail.Store(nil)
			case isCancelled(i.Err): // it says nothing of the disk
			case i.Err.Error() == emptyFlush:
				l.flushFail.Store(nil)
			default: // it stays from one to the next: a commit between them would fill the memtables further
				l.flushFail.Store(&i.Err)
				l.tellTrouble()
				if l.opening.Load() {
					l.fail(fmt.Errorf("write what is in the log to tables: %w: nothing acknowledged is lost; start again once the disk is well", i.Err))
				}
			}
		},
		CompactionEnd: func(i pebble.CompactionInfo) {
			if i.Err == nil {
				l.compactions.Add(1)
			}
		},
	}
}
