package pipeline

import (
	"fmt"
	"math"
	"time"

	"sluice/pipeline/buffer"
	"sluice/store"
)

// partitionState is one partition's part of the status, under its lock.
type partitionState struct {
	s *status
	PartitionStatus
	behind
	topicID   [16]byte
	owners    int
	rate      rate
	breaker   *breaker // of the worker that has the partition
	logged    trouble  // the last pause that was logged
	trippedAt time.Time
	closed    bool          // the breaker was closed by hand, and its worker does not know yet
	wake      chan struct{} // has an element then
	asked     time.Time     // when the store was asked what it has not answered yet; zero = it has answered all
}

// silence is how long the store may take for an answer before that is a pause, as
// operators see it: as long as the embedded engine waits for its disk before it says so.
const silence = 10 * time.Second

// paused returns why the partition waits, empty where it does not. The lock is held.
func (p *partitionState) paused(now time.Time) string {
	if d := now.Sub(p.asked); p.Paused == "" && !p.asked.IsZero() && d >= silence {
		return fmt.Sprintf("the store has not answered for %v", d.Round(time.Second))
	}
	return p.Paused
}

func (p *partitionState) assign(owned bool) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if owned {
		if p.owners == 0 {
			p.begun, p.even = false, time.Now()
		}
		p.owners++
	} else {
		p.owners--
		p.Paused = ""
	}
	p.Owned = p.owners > 0
}

// of notes which topic the partition is of now, while it has no worker.
func (p *partitionState) of(src *store.Source) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.topicID != src.TopicID { // nothing is known of its log, and its offsets are others
		p.breaker.close()
		p.topicID, p.starts, p.begun, p.LogStart, p.LogEnd = src.TopicID, nil, false, 0, 0
	}
}

// stored returns the stored offset, and whether this process has read it yet.
func (p *partitionState) stored() (next int64, known bool) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	return p.Progress.Next, p.begun || p.Progress != (store.Progress{})
}

// opened notes where the partition goes on, and returns up to where it was known
// to be stored, -1 where nothing was known, and how many offsets were given up since.
func (p *partitionState) opened(progress *store.Progress, log span) (known, skipped int64) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	known = -1
	if p.Progress != (store.Progress{}) {
		known = p.Progress.Next
		if skipped = progress.Skipped - p.Progress.Skipped; skipped > 0 {
			p.s.metrics.Lost += skipped
		}
	}
	if progress.Next > p.Progress.Next || progress.Next >= log.end {
		p.Paused = "" // somebody has applied it: perhaps this one, whose reply was lost
	}
	p.Progress, p.Position, p.LogStart, p.LogEnd = *progress, progress.Next, log.start, log.end
	p.begun = true
	p.look()
	p.s.broadcast()
	return known, skipped
}

func (p *partitionState) lag() int64 {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	return p.LogEnd - p.Progress.Next
}

func (p *partitionState) changeOver(bulk bool) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.Backfill = bulk
	if bulk {
		p.s.metrics.Backfills++
	}
}

func (p *partitionState) lost(n int64) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.s.metrics.Lost += n
}

func (p *partitionState) fetched(position int64) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.Position = position
	p.look()
}

// applied notes a batch that is stored, and reports whether it ends a pause.
func (p *partitionState) applied(b *buffer.Summary, took time.Duration) (resumed bool) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	m := &p.s.metrics
	m.Applied += b.Counts.Applied - b.Unapplied.Duplicate - b.Unapplied.Unmet
	m.Duplicate += b.Unapplied.Duplicate
	m.Unmet += b.Unapplied.Unmet
	m.Filtered += b.Counts.Filtered
	m.Dead += b.Counts.Dead
	m.Dropped += b.Counts.Dropped
	m.Control += b.Counts.Control
	m.Aborted += b.Counts.Aborted
	m.Late += b.Counts.Late
	m.Ops.Increments += b.Ops.Increments
	m.Ops.Puts += b.Ops.Puts
	m.Ops.Deletes += b.Ops.Deletes
	m.Ops.Appends += b.Ops.Appends
	m.Batches++
	m.Commits.add(took)
	for _, d := range b.Dead {
		m.DeadLetters[DeadLetterKey{d.Stage, d.Class}] += d.N
	}
	p.rate.add(time.Now(), float64(b.Records))
	p.Progress = b.Progress.Settle(store.Unapplied{
		Duplicate: p.Progress.Duplicate + b.Unapplied.Duplicate,
		Unmet:     p.Progress.Unmet + b.Unapplied.Unmet,
	})
	p.look()
	resumed = p.Paused != ""
	p.Paused = ""
	p.s.broadcast()
	return resumed
}

// stale notes a batch that another owner had overtaken.
func (p *partitionState) stale() {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.s.metrics.Stale++
}

// fenced notes a batch that was not sent, as the partition has another owner.
func (p *partitionState) fenced() {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.s.metrics.Fenced++
}

// held notes for how long the store or the memory kept the partition from reading.
func (p *partitionState) held(d time.Duration) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.s.metrics.Held += d
}

func (p *partitionState) refusals(n int) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.s.metrics.Refusals += int64(n)
}

// trip notes that the partition's breaker has opened.
func (p *partitionState) trip(why string) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.s.metrics.Trips++
	p.Paused, p.Tripped, p.trippedAt = why, why, time.Now()
	p.s.broadcast()
}

// tripped returns why the partition's breaker is open, or "", since when, and
// whether it was closed by hand since the last call.
func (p *partitionState) tripped() (why string, since time.Time, closed bool) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	closed, p.closed = p.closed, false
	return p.Tripped, p.trippedAt, closed
}

// try notes that the partition's breaker is half open.
func (p *partitionState) try() {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.Paused, p.Tripped = "", ""
	p.s.broadcast()
}

// pause notes why the partition waits and reports whether that is news: the
// cause is another than the last one that was logged, whatever offsets why names.
func (p *partitionState) pause(why, cause string) bool {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.Paused == "" {
		p.s.metrics.Pauses++
	}
	p.Paused = why
	return p.logged.news(cause)
}

// rateWindow is the time in which an event's weight falls to 1/e.
const rateWindow = 10 * time.Second

// rate is an exponentially weighted rate of events a second.
type rate struct {
	perSecond float64
	at        time.Time
}

func (r *rate) add(now time.Time, n float64) {
	r.perSecond = r.value(now) + n/rateWindow.Seconds()
	r.at = now
}

func (r *rate) value(now time.Time) float64 {
	if r.at.IsZero() {
		return 0
	}
	return r.perSecond * math.Exp(-now.Sub(r.at).Seconds()/rateWindow.Seconds())
}
