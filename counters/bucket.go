package counters

import (
	"fmt"
	"math"
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
	Week  // Monday to Sunday, as ISO 8601 has it
	Month // of the calendar
	Total // all of time: one bucket
)

var bucketNames = [...]string{Minute: "minute", Hour: "hour", Day: "day", Week: "week", Month: "month", Total: "total"}

// String returns "minute", "hour", "day", "week", "month" or "total".
func (b Bucket) String() string {
	if b >= Minute && b <= Total {
		return bucketNames[b]
	}
	return fmt.Sprintf("Bucket(%d)", uint8(b))
}

// BucketNames returns what String gives for every bucket, the shortest first.
func BucketNames() []string { return append([]string(nil), bucketNames[Minute:]...) }

// ParseBucket returns the bucket that String spells so.
func ParseBucket(name string) (b Bucket, ok bool) {
	for b = Minute; b <= Total; b++ {
		if bucketNames[b] == name {
			return b, true
		}
	}
	return 0, false
}

const day = int64(24 * time.Hour / time.Millisecond)

// width returns the bucket's length in ms, where no clock is set back or forth; of
// a month, the shortest.
func (b Bucket) width() int64 {
	switch b {
	case Minute:
		return time.Minute.Milliseconds()
	case Hour:
		return time.Hour.Milliseconds()
	case Day:
		return day
	case Week:
		return 7 * day
	case Month:
		return 28 * day
	}
	panic("counters: no such bucket: " + b.String())
}

// start returns where the bucket of t begins by a clock that is always offset ms
// ahead of UTC.
func (b Bucket) start(t cell.Timestamp, offset int64) cell.Timestamp {
	switch b {
	case Week:
		return floor(t, offset+3*day, 7*day) // 1970 began on a Thursday
	case Month:
		zone := time.FixedZone("", int(offset/1000))
		year, month, _ := time.UnixMilli(int64(t)).In(zone).Date()
		return cell.Timestamp(time.Date(year, month, 1, 0, 0, 0, 0, zone).UnixMilli())
	}
	return floor(t, offset, b.width())
}

// Truncate returns the first instant of the minute, hour, day, week or month of t
// by the clocks of loc; nil is UTC. A bucket is an unbroken stretch of time over
// which the clocks show the same minute, hour, day, week or month: where a change
// skips its start it begins at the change, and where they go back within it, it is
// longer. Total begins at 0. t is 0 or later; the result may be below 0, in zones of
// 1970 and for the week and month that 1970 began in. An unknown bucket panics.
func (b Bucket) Truncate(t cell.Timestamp, loc *time.Location) cell.Timestamp {
	if b == Total {
		return 0
	}
	if loc == nil || loc == time.UTC {
		return b.start(t, 0)
	}
	local := time.UnixMilli(int64(t)).In(loc)
	for {
		_, offset := local.Zone()
		start := b.start(t, int64(offset)*1000)
		change, _ := local.ZoneBounds()
		if change.IsZero() || int64(start) > change.UnixMilli() {
			return start
		}
		// The clocks changed since then. If they showed this same bucket just
		// before, it goes on there; otherwise the change is where it began.
		before := change.Add(-time.Millisecond)
		_, offsetBefore := before.Zone()
		now := cell.Timestamp(change.UnixMilli())
		if wall(b.start(now-1, int64(offsetBefore)*1000), offsetBefore) != wall(start, offset) {
			return now
		}
		t, local = now-1, before
	}
}

// Next returns the first instant of the bucket after the one that begins at start,
// as Truncate returns it; after Total, math.MaxInt64.
func (b Bucket) Next(start cell.Timestamp, loc *time.Location) cell.Timestamp {
	if b == Total {
		return math.MaxInt64
	}
	// Changes of clocks make buckets longer and shorter: probe beyond this one, and
	// go back to the first that follows it.
	step := cell.Timestamp(b.width())
	for probe := start + step; ; probe += step / 2 {
		if probe < start {
			return math.MaxInt64 // beyond the last timestamp
		}
		next := b.Truncate(probe, loc)
		// The probe may have jumped over a bucket that a change made short.
		for next > start {
			before := b.Truncate(next-1, loc)
			if before <= start {
				return next
			}
			next = before
		}
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
