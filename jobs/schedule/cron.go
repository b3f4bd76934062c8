package schedule

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// parse reads a cron expression. Only the parser is robfig's: its own Next leaves
// out what a change of the clocks skips, and panics on "TZ=" without a space.
func parse(expr string, zone *time.Location, dst string) (times, error) {
	expr = strings.TrimSpace(expr)
	if expr == "" {
		return nil, errors.New(`it is missing: write when to run, such as "30 2 * * *" or @every 6h`)
	}
	if d, ok := strings.CutPrefix(expr, "@every "); ok {
		step, err := time.ParseDuration(strings.TrimSpace(d))
		if err != nil || step < time.Second || step%time.Second != 0 {
			return nil, fmt.Errorf("%q: write a duration of whole seconds, such as @every 6h", expr)
		}
		return every(step / time.Second), nil
	}
	if strings.Contains(expr, "=") {
		return nil, fmt.Errorf("%q: give the time zone as zone", expr)
	}
	p := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)
	parsed, err := p.Parse(expr)
	if err != nil {
		return nil, fmt.Errorf(`%q: %w; write such as "30 2 * * *", or @daily`, expr, err)
	}
	s, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("%q is no cron expression", expr)
	}
	c := &calendar{
		second: s.Second, minute: s.Minute, hour: s.Hour, dom: s.Dom, month: s.Month, dow: s.Dow,
		zone: zone, dst: dst,
	}
	if c.hour&star != 0 {
		c.dst = Literal // hour by hour, whatever the clocks show
	}
	if c.next(time.Unix(0, 0)).IsZero() {
		return nil, errors.New("no day is ever like that")
	}
	return c, nil
}

// every is a step in seconds from the Unix epoch.
type every int64

func (e every) next(t time.Time) time.Time {
	s, step := t.Unix(), int64(e)
	n := s / step
	if s%step < 0 {
		n-- // before 1970
	}
	return time.Unix((n+1)*step, 0).UTC()
}

// star is the bit by which the parser marks a field that names everything.
const star = 1 << 63

// calendar is a cron expression in a zone: a bit for each value that a field names.
type calendar struct {
	second, minute, hour, dom, month, dow uint64
	zone                                  *time.Location
	dst                                   string
}

// horizon is how far a time can be from the one before: from one 29 February to the
// next where a century has none between, and some days.
const horizon = (8*366 + 31) * 24 * 3600

// next walks over the stretches of time in which the zone's offset stays as it is.
// In each the wall clock runs as a clock without a zone does; between two it skips
// or repeats some of its times.
func (c *calendar) next(after time.Time) time.Time {
	t := after.Unix() + 1
	for end := t + horizon; t < end; {
		at := time.Unix(t, 0).In(c.zone)
		from, to := at.ZoneBounds()
		_, offset := at.Zone()
		stop := end
		if !to.IsZero() {
			stop = min(end, to.Unix())
			if stop <= t {
				// On the last day of a leap year behind the zone's table, ZoneBounds
				// ends a stretch before the time that it was asked about.
				stop = t + 60
			}
		}
		low := t + int64(offset)
		if !from.IsZero() {
			_, before := from.Add(-time.Second).In(c.zone).Zone()
			start := from.Unix()
			if c.dst == After && t == start && offset > before && c.matches(start+int64(before), start+int64(offset)) {
				return time.Unix(start, 0).UTC()
			}
			if c.dst != Literal {
				low = max(low, start+int64(before)) // up to there the clock repeats itself
			}
		}
		if wall, ok := c.wall(low, stop+int64(offset)); ok {
			return time.Unix(wall-int64(offset), 0).UTC()
		}
		t = stop
	}
	return time.Time{}
}

// matches reports whether a time in [low, high) of the wall clock is named.
func (c *calendar) matches(low, high int64) bool {
	_, ok := c.wall(low, high)
	return ok
}

// wall returns the first time of the wall clock in [low, high) that the fields
// name. Times are seconds since 1970 of a clock without a zone.
func (c *calendar) wall(low, high int64) (int64, bool) {
	const day = 24 * 3600
	for low < high {
		midnight := low - (low%day+day)%day
		t := time.Unix(midnight, 0).UTC()
		y, m, d := t.Date()
		if c.month&(1<<uint(m)) == 0 {
			low = time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC).Unix()
			continue
		}
		if c.day(d, t.Weekday()) {
			if s, ok := c.inDay(low - midnight); ok {
				return midnight + s, midnight+s < high
			}
		}
		low = midnight + day
	}
	return 0, false
}

// inDay returns the first second of the day from the given one on that the fields
// name.
func (c *calendar) inDay(from int64) (int64, bool) {
	hour, minute, second := int(from/3600), int(from/60%60), int(from%60)
	for {
		h := nextBit(c.hour, hour)
		if h < 0 {
			return 0, false
		}
		if h > hour {
			minute, second = 0, 0
		}
		m := nextBit(c.minute, minute)
		if m < 0 {
			hour, minute, second = h+1, 0, 0
			continue
		}
		if m > minute {
			second = 0
		}
		s := nextBit(c.second, second)
		if s < 0 {
			hour, minute, second = h, m+1, 0
			continue
		}
		return int64(h*3600 + m*60 + s), true
	}
}

// nextBit returns the lowest bit of field from the given one on, or -1.
func nextBit(field uint64, from int) int {
	if field = (field &^ star) >> uint(from); field == 0 {
		return -1
	}
	return from + bits.TrailingZeros64(field)
}

// day applies cron's rule: where both fields name days, one of them is enough.
func (c *calendar) day(d int, w time.Weekday) bool {
	dom, dow := c.dom&(1<<uint(d)) != 0, c.dow&(1<<uint(w)) != 0
	if c.dom&star != 0 || c.dow&star != 0 {
		return dom && dow
	}
	return dom || dow
}
