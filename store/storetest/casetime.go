package storetest

import (
	"bytes"
	"slices"
	"time"

	"sluice/cell"
	"sluice/store"
)

// caseTimes maps the times of a case whose clock stands still to those of an engine
// whose clock cannot be stopped. A ms of the case is scale ms there: n is all of
// (at(n-1), at(n)], and the case runs within its now. What the case compares, times
// with times and ages with lives, compares the same there.
type caseTimes struct {
	now   int64 // of the case
	real  int64 // where that ms ends, in ms since the Unix epoch
	scale int64
}

const (
	// A case has 1,000 s, or 100 where its clock is so far from its beginning that
	// times would be negative.
	largestCaseScale = 1_000_000
	// largestCaseTime bounds the times that are mapped; the others, as the latest,
	// are the same everywhere.
	largestCaseTime = 1 << 30
)

// timesOf returns the mapping of a case that begins now; nil where it is about no
// clock, or cannot be mapped.
func (c *testCase) timesOf(now time.Time) *caseTimes {
	if !c.timed() || c.moves() != "" {
		return nil
	}
	t := &caseTimes{now: 10_000_000, scale: largestCaseScale}
	if len(c.Ops) > 0 && c.Ops[0].Op == "clock" {
		t.now = *c.Ops[0].Now
	}
	for t.now*t.scale >= now.UnixMilli() {
		t.scale /= 10
	}
	t.real = now.UnixMilli() + t.scale*9/10 // a clock may be set back a little
	return t
}

// moves says why a case needs a clock that is set; "" = it does not.
func (c *testCase) moves() string {
	why := ""
	var look func(ops []op, top bool)
	look = func(ops []op, top bool) {
		for i := range ops {
			o := &ops[i]
			switch {
			case o.Op == "clock" && (!top || i > 0 || o.Now == nil):
				why = "its clock moves between two steps"
			case o.MaxTimestampSlop != 0:
				why = "it asks what is too far in the future by the clock"
			case bytes.Contains(bytes.ToLower(o.Filter), []byte("timestamps")):
				why = "its filter has times of its clock"
			}
			look(o.Mutations, false)
		}
	}
	if c.timed() {
		look(c.Ops, true)
	}
	return why
}

// at returns the real time of one of the case's; the same where t is nil.
func (t *caseTimes) at(ts int64) cell.Timestamp {
	if t == nil || ts < 0 || ts > largestCaseTime {
		return cell.Timestamp(ts)
	}
	return cell.Timestamp(t.real + (ts-t.now)*t.scale)
}

// span maps [min, max).
func (t *caseTimes) span(min, max int64) cell.TimeRange {
	bound := func(ts int64) cell.Timestamp {
		if t == nil || ts <= 0 || ts > largestCaseTime {
			return cell.Timestamp(ts)
		}
		return t.at(ts-1) + 1
	}
	return cell.TimeRange{Min: bound(min), Max: bound(max)}
}

// of is the reverse of at.
func (t *caseTimes) of(ts cell.Timestamp) cell.Timestamp {
	if t == nil || ts < 0 || ts > t.at(largestCaseTime) {
		return ts
	}
	ago := t.real - int64(ts)
	n := ago / t.scale
	if ago < 0 && ago%t.scale != 0 {
		n--
	}
	return cell.Timestamp(t.now - n)
}

// life maps how long a cell lives or a marker is kept, in any unit.
func (t *caseTimes) life(n int64) int64 {
	if t == nil {
		return n
	}
	return n * t.scale
}

// descriptor is the package's, with the lives of what is written mapped.
func (r *caseRun) descriptor(families map[string]map[string]any) (*store.TableDescriptor, error) {
	d, err := descriptor(caseTable, families)
	if err != nil || r.times == nil {
		return d, err
	}
	for i := range d.Families {
		f := &d.Families[i]
		if f.TTL != store.Forever {
			f.TTL = int(r.times.life(int64(f.TTL)))
		}
		f.TimeToPurgeDeletes = r.times.life(f.TimeToPurgeDeletes)
	}
	return d, nil
}

// cells prints cells for comparison, with the times of the case.
func (r *caseRun) cells(cs []cell.Cell, raw bool) []string {
	if r.times != nil {
		cs = slices.Clone(cs)
		for i := range cs {
			cs[i].Time = r.times.of(cs[i].Time)
		}
	}
	return cells(cs, raw)
}
