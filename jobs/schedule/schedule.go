// Package schedule says when jobs run: a Schedule is the times that a cron
// expression names in a time zone, a Machine decides at each moment what starts,
// waits, is skipped or was missed, and a Runner does so for all jobs of a process.
//
// Every run is for a logical time: the instant that its schedule names. What a run
// is called follows from its job and its logical time alone, so whoever starts a
// run twice makes the same run, and the place that it is published in refuses the
// second. Clocks that jump and processes that are killed can make a run late, or be
// repeated until it is published; they cannot make two.
//
// Schedules are immutable and safe for concurrent use. A Machine is pure: it reads
// no clock, starts nothing and belongs to one goroutine. What it remembers, its
// State, is plain data that a Store keeps. The package knows nothing of what a job
// does, of tables or of files.
package schedule

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"
)

// What becomes of local times that a change of the clocks skips or repeats. They
// apply to schedules that name hours; one for every hour (*) and @every go on
// through the change hour by hour.
const (
	After   = "after"   // a skipped time runs at the change, a repeated one once, the first time
	Skip    = "skip"    // a skipped time does not run, a repeated one once
	Literal = "literal" // a skipped time does not run, a repeated one twice
)

// What happens when a time comes while the run before is at work. OverlapSkip
// leaves it out, QueueOne lets the newest wait for the end, Cancel ends the run
// before and starts then.
const (
	OverlapSkip = "skip"
	QueueOne    = "queue-one"
	Cancel      = "cancel"
)

// Which of the times that were missed, because nobody was there to start them, run
// late.
const (
	None = "none"
	Last = "last" // the newest
	All  = "all"  // one after the other
)

// Defaults of a Spec.
const (
	DefaultWindow  = 24 * time.Hour
	DefaultBackoff = time.Minute
)

// MaxBackoff bounds the wait between two attempts, however often it was doubled.
const MaxBackoff = time.Hour

// onTime is how late a run may start and still be on time: longer than a Runner
// sleeps, shorter than anybody schedules exports.
const onTime = 90 * time.Second

// Spec is a schedule as it is declared.
type Spec struct {
	// Cron is when to run: minute, hour, day of month, month and day of week, with
	// seconds before them if there are six fields; @hourly, @daily, @weekly,
	// @monthly, @yearly; or @every 6h, counted from 1970-01-01 UTC. Empty = only
	// when somebody runs the job.
	Cron string `yaml:"cron,omitempty"`
	// Zone is the IANA name of the zone of these times. Default: UTC.
	Zone string `yaml:"zone,omitempty"`
	// DST says what becomes of local times that a change of the clocks skips or
	// repeats: after (default) runs a skipped one at the change and a repeated
	// one once; skip leaves a skipped one out; literal does, too, and runs a
	// repeated one twice.
	DST string `yaml:"dst,omitempty"`
	// Jitter delays the starts of the job by an amount below it that follows
	// from the job's name, so that jobs of one time do not start together.
	Jitter time.Duration `yaml:"jitter,omitempty"`
	// Overlap says what happens at a time when the run before is at work: skip
	// (default) leaves it out, queue-one starts the newest such time afterwards
	// (with catch_up all, every one), cancel ends the run before.
	Overlap string `yaml:"overlap,omitempty"`
	// CatchUp says which times run late that were missed: none, last (default)
	// or all.
	CatchUp string `yaml:"catch_up,omitempty"`
	// Window is how late a missed time may run. Default (0) 24h; less than 90s counts
	// as that, for so long a start is on time.
	Window time.Duration `yaml:"window,omitempty"`
	// Retries is how often a failed run is tried again.
	Retries int `yaml:"retries,omitempty"`
	// Backoff is the wait before the first retry; it doubles, up to 1h. Default
	// 1m.
	Backoff time.Duration `yaml:"backoff,omitempty"`
	// PauseAfter stops the schedule after so many failed runs in a row, until
	// somebody resumes it. Default: never.
	PauseAfter int `yaml:"pause_after,omitempty"`
}

// SpecError is a mistake in a Spec.
type SpecError struct {
	Path    string // of the key, such as "cron"
	Problem string
}

func (e *SpecError) Error() string { return e.Path + ": " + e.Problem }

// times is the logical times of a schedule.
type times interface {
	// next returns the first time after t, or zero where there is none.
	next(t time.Time) time.Time
}

// Schedule is a compiled Spec of one job.
type Schedule struct {
	job    string
	spec   Spec
	times  times
	offset time.Duration
}

// Compile checks s, which must have a Cron. Its error joins a *SpecError for every
// mistake. s is not kept.
func Compile(job string, s *Spec) (*Schedule, error) {
	var errs []error
	bad := func(path, format string, args ...any) {
		errs = append(errs, &SpecError{Path: path, Problem: fmt.Sprintf(format, args...)})
	}
	c := &Schedule{job: job, spec: *s}
	choose := func(path string, v *string, values ...string) {
		if *v == "" {
			*v = values[0]
		}
		if !slices.Contains(values, *v) {
			bad(path, "%q is none of %s", *v, strings.Join(values, ", "))
		}
	}
	choose("dst", &c.spec.DST, After, Skip, Literal)
	choose("overlap", &c.spec.Overlap, OverlapSkip, QueueOne, Cancel)
	choose("catch_up", &c.spec.CatchUp, Last, None, All)
	if c.spec.Window == 0 {
		c.spec.Window = DefaultWindow
	}
	if c.spec.Backoff == 0 {
		c.spec.Backoff = DefaultBackoff
	}
	for path, v := range map[string]int64{
		"jitter": int64(c.spec.Jitter), "window": int64(c.spec.Window), "backoff": int64(c.spec.Backoff),
		"retries": int64(c.spec.Retries), "pause_after": int64(c.spec.PauseAfter),
	} {
		if v < 0 {
			bad(path, "it is negative")
		}
	}
	if c.spec.Zone == "" {
		c.spec.Zone = "UTC"
	}
	zone, err := time.LoadLocation(c.spec.Zone)
	if err != nil || c.spec.Zone == "Local" {
		bad("zone", "%q is not the IANA name of a time zone, such as Europe/Berlin", c.spec.Zone)
		zone = time.UTC
	}
	if c.times, err = parse(c.spec.Cron, zone, c.spec.DST); err != nil {
		bad("cron", "%v", err)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if c.spec.Jitter > 0 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(job)) // it cannot fail
		c.offset = time.Duration(h.Sum64() % uint64(c.spec.Jitter)).Truncate(time.Millisecond)
	}
	return c, nil
}

// Job returns the name of the job.
func (s *Schedule) Job() string { return s.job }

// Spec returns the schedule's declaration with its defaults filled in.
func (s *Schedule) Spec() Spec { return s.spec }

// Next returns the first logical time after t, in UTC, or the zero time where the
// schedule has ended.
func (s *Schedule) Next(t time.Time) time.Time { return s.times.next(t.UTC()) }

// earliest is how far back Last looks: a time is not further from the next one.
const earliest = horizon * time.Second

// Last returns the last logical time that is not after t, in UTC, or the zero time where
// there is none.
func (s *Schedule) Last(t time.Time) time.Time {
	there := func(from time.Time) bool { // a time in (from, t]
		at := s.Next(from)
		return !at.IsZero() && !at.After(t)
	}
	back := time.Minute
	for !there(t.Add(-back)) {
		if back > earliest {
			return time.Time{}
		}
		back *= 2
	}
	// Of two seconds, the times after the first are those after the second, and maybe others.
	low, high := t.Add(-back).Unix(), t.Unix()
	for high-low > 1 {
		if middle := low + (high-low)/2; there(time.Unix(middle, 0)) {
			low = middle
		} else {
			high = middle
		}
	}
	return s.Next(time.Unix(low, 0))
}

// Start returns when the run for a logical time is to start: the time itself and
// the job's jitter.
func (s *Schedule) Start(logical time.Time) time.Time { return logical.Add(s.offset) }

// Upcoming returns the first n logical times that are to start after t, of those after
// decided, the State's, which is beyond t where the clock has gone back.
func (s *Schedule) Upcoming(t, decided time.Time, n int) []time.Time {
	var all []time.Time
	from := t.Add(-s.offset)
	if decided.After(from) {
		from = decided
	}
	for at := s.Next(from); len(all) < n && !at.IsZero(); at = s.Next(at) {
		all = append(all, at)
	}
	return all
}

// Backoff returns the wait before the retry-th retry, from 1.
func (s *Schedule) Backoff(retry int) time.Duration {
	wait := s.spec.Backoff
	for ; retry > 1 && wait < MaxBackoff; retry-- {
		wait *= 2
	}
	return min(wait, max(MaxBackoff, s.spec.Backoff))
}

// window is how late a missed time may start.
func (s *Schedule) window() time.Duration {
	if s.spec.CatchUp == None {
		return onTime
	}
	return max(s.spec.Window, onTime)
}
