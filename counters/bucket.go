package counters

import (
	"fmt"
	"time"

	"sluice/cell"
)

// Bucket is a span of time that events are counted by.
type Bucket uint8

// The buckets.
const (
	Minute Bucket = iota + 1
	Hour
	Day
)

// String returns "minute", "hour" or "day".
func (b Bucket) String() string {
	switch b {
	case Minute:
		return "minute"
	case Hour:
		return "hour"
	case Day:
		return "day"
	}
	return fmt.Sprintf("Bucket(%d)", uint8(b))
}

// width returns the bucket's length in ms, where no clock is set back or forth.
func (b Bucket) width() int64 {
	switch b {
	case Minute:
		return time.Minute.Milliseconds()
	case Hour:
		return time.Hour.Milliseconds()
	case Day:
		return 24 * time.Hour.Milliseconds()
	}
	panic("counters: no such bucket: " + b.String())
}

// Truncate returns the first instant of the minute, hour or day of t by the clocks
// of loc; nil is UTC. A bucket is an unbroken stretch of time over which the clocks
// show the same minute, hour or day: where a change skips its start it begins at
// the change, and where they go back within it, it is longer. t is 0 or later; the
// result may be below 0, in zones of 1970. An unknown bucket panics.
func (b Bucket) Truncate(t cell.Timestamp, loc *time.Location) cell.Timestamp {
	width := b.width()
	if loc == nil || loc == time.UTC {
		return floor(t, 0, width)
	}
	local := time.UnixMilli(int64(t)).In(loc)
	for {
		_, offset := local.Zone()
		start := floor(t, int64(offset)*1000, width)
		change, _ := local.ZoneBounds()
		if change.IsZero() || int64(start) > change.UnixMilli() {
			return start
		}
		// The clocks changed since then. If they showed this same bucket just
		// before, it goes on there; otherwise the change is where it began.
		before := change.Add(-time.Millisecond)
		_, offsetBefore := before.Zone()
		now := cell.Timestamp(change.UnixMilli())
		if wall(floor(now-1, int64(offsetBefore)*1000, width), offsetBefore) != wall(start, offset) {
			return now
		}
		t, local = now-1, before
	}
}

// wall returns what a clock that is offset seconds ahead of UTC shows at t.
func wall(t cell.Timestamp, offset int) int64 { return int64(t) + int64(offset)*1000 }

// floor returns the largest t' <= t at which a clock that is offset ms ahead of
// UTC shows a multiple of width. It does not overflow for t >= 0.
func floor(t cell.Timestamp, offset, width int64) cell.Timestamp {
	past := (mod(int64(t), width) + mod(offset, width)) % width
	return t - cell.Timestamp(past)
}

// mod returns the remainder of a by n that is not negative.
func mod(a, n int64) int64 { return ((a % n) + n) % n }
