// Package work is what the jobs have in common that do something in parts, regions or
// files, side by side: they begin them a few at a time, and tell how far they are. It
// knows nothing of what is done.
package work

import (
	"sync"
	"time"
)

// Progress is how far a job is.
type Progress struct {
	Regions     int   // to work on
	RegionsDone int   //
	Rows        int64 // output rows appended; each counts once, however many formats
	Files       int   // finished
	Bytes       int64 // of the finished files
	Elapsed     time.Duration
	// Done is about what part is done, 0 to 1: by the bytes of the store where
	// what is read tells them, otherwise by regions. Of a join, what part of its
	// sides was read: where a hash join writes them to a disk, half of what is left
	// then is for joining what was written.
	Done float64
	// Paused is for how long it has paused so that ingest can catch up, and PausedFor why
	// it does now; empty = it is at work.
	Paused    time.Duration
	PausedFor string
	// ResumedRows and ResumedDone are what a run that was cut off had done.
	ResumedRows int64
	ResumedDone float64
}

// Reporter tells the Progress of a job whose parts are worked on side by side. After
// Start it is safe for concurrent use.
type Reporter struct {
	tell    func(Progress) // nil = nobody wants to know
	now     func() time.Time
	started time.Time
	parts   int

	mu       sync.Mutex
	done     int // parts
	progress Progress
}

// Start begins a job of so many parts, files or regions, by the clock now. Tell is
// called after each change, by one goroutine at a time; nil = nobody wants to know.
func (r *Reporter) Start(tell func(Progress), now func() time.Time, parts int) {
	r.tell, r.now, r.started, r.parts = tell, now, now(), parts
}

// Regions says that the parts are regions.
func (r *Reporter) Regions() { r.progress.Regions = r.parts }

// File counts a file that was copied.
func (r *Reporter) File(bytes int64) {
	r.change(func(p *Progress) {
		p.Files++
		p.Bytes += bytes
	}, 1)
}

// Rows counts rows.
func (r *Reporter) Rows(n int64) { r.change(func(p *Progress) { p.Rows += n }, 0) }

// RegionDone counts the last rows of a region.
func (r *Reporter) RegionDone(rows int64) {
	r.change(func(p *Progress) {
		p.Rows += rows
		p.RegionsDone++
	}, 1)
}

// change changes the progress, of which so many parts more are done, and tells it.
func (r *Reporter) change(change func(*Progress), parts int) {
	if r.tell == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.progress
	change(p)
	r.done += parts
	p.Done = float64(r.done) / float64(r.parts)
	p.Elapsed = r.now().Sub(r.started)
	r.tell(*p)
}
