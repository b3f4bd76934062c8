package jobs

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/schedule"
	"sluice/store"
)

// TimeSpan is the timestamps [From, To).
type TimeSpan struct {
	// From is the first timestamp: a time such as 2026-01-31T00:00:00Z, ms since 1970, or
	// one that goes by what the run is for: $time, that time, $interval_end, the job's
	// latest scheduled time that is not after it, and $interval_start, the one before;
	// with a duration behind it, such as $time-7d, that much earlier or later. Default: the
	// earliest.
	From string `yaml:"from,omitempty" json:",omitempty"`
	// To is the timestamp before which to stop, as From is. Default: there is none.
	To string `yaml:"to,omitempty" json:",omitempty"`
}

// TimeRange is which cells a job reads, by their timestamps.
type TimeRange struct {
	TimeSpan `yaml:",inline"`
	// Families are the ranges of families that have one of their own; {} = all times.
	Families map[string]TimeSpan `yaml:"families,omitempty" json:",omitempty"`
}

// IsZero reports whether cells of all times are read.
func (r TimeRange) IsZero() bool { return r.TimeSpan == TimeSpan{} && len(r.Families) == 0 }

// The times that bounds go by.
const (
	boundTime  = "$time"
	boundStart = "$interval_start"
	boundEnd   = "$interval_end"
)

// bound is a compiled bound of a TimeSpan.
type bound struct {
	base string // one of the constants above; empty = the epoch
	add  time.Duration
	ms   int64 // without base
}

// parseBound reads a bound, which is not empty.
func parseBound(text string) (b bound, err error) {
	if !strings.HasPrefix(text, "$") {
		if strings.Contains(text, "T") {
			t, err := time.Parse(time.RFC3339, text)
			if err != nil {
				return b, fmt.Errorf("%q is no time such as 2006-01-02T15:04:05Z", text)
			}
			b.ms = t.UnixMilli()
		} else if b.ms, err = strconv.ParseInt(text, 10, 64); err != nil {
			return b, fmt.Errorf("%q is neither a time such as 2006-01-02T15:04:05Z nor ms since 1970, and does not begin with %s, %s or %s", text, boundTime, boundStart, boundEnd)
		}
		if b.ms < 0 {
			return b, fmt.Errorf("%q is before 1970, and timestamps are not", text)
		}
		return b, nil
	}
	b.base = text
	if i := strings.IndexAny(text, "+-"); i >= 0 {
		b.base = text[:i]
		if b.add, err = parseSpan(text[i+1:]); err != nil {
			return b, fmt.Errorf("%q: %q is no duration such as 24h or 7d", text, text[i+1:])
		}
		if text[i] == '-' {
			b.add = -b.add
		}
	}
	if b.base != boundTime && b.base != boundStart && b.base != boundEnd {
		return b, fmt.Errorf("%q is no time; those that go by the run are %s, %s and %s", b.base, boundTime, boundStart, boundEnd)
	}
	return b, nil
}

// parseSpan reads a duration or whole days, 0 or more.
func parseSpan(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err == nil && (d < 0 || strings.HasPrefix(text, "+")) {
		err = strconv.ErrSyntax
	}
	return d, err
}

// at returns the bound of a run for a time, in ms since 1970.
func (b bound) at(logical time.Time, s *schedule.Schedule) (int64, error) {
	t := logical
	switch b.base {
	case "":
		return b.ms, nil
	case boundStart, boundEnd:
		t = s.Last(logical)
		if b.base == boundStart && !t.IsZero() {
			t = s.Last(t.Add(-time.Second)) // times are whole seconds
		}
		if t.IsZero() {
			return 0, fmt.Errorf("the schedule has no time for %s before %s", b.base, logical.Format(time.RFC3339))
		}
	}
	return max(t.Add(b.add).UnixMilli(), 0), nil
}

// readTimes returns the range of a run for a time.
func (s *TimeSpan) readTimes(logical time.Time, times *schedule.Schedule) (r cell.TimeRange, err error) {
	r = allTimes
	for text, v := range map[*string]*cell.Timestamp{&s.From: &r.Min, &s.To: &r.Max} {
		if *text == "" {
			continue
		}
		b, err := parseBound(*text)
		if err != nil {
			return r, err
		}
		ms, err := b.at(logical, times)
		if err != nil {
			return r, err
		}
		*v = cell.Timestamp(ms)
	}
	if r.Min >= r.Max {
		return r, fmt.Errorf("from %s to %s is no time", timeText(r.Min), timeText(r.Max))
	}
	return r, nil
}

var allTimes = cell.TimeRange{Max: math.MaxInt64}

// timeText returns a timestamp as people write it.
func timeText(t cell.Timestamp) string {
	if at := time.UnixMilli(int64(t)).UTC(); t > 0 && at.Year() < 10000 {
		return at.Format("2006-01-02T15:04:05.999Z07:00")
	}
	return strconv.FormatInt(int64(t), 10)
}

// resolve returns r of a run for a time, with bounds in ms since 1970.
func (r *TimeRange) resolve(logical time.Time, times *schedule.Schedule) (TimeRange, *ReadTimes, error) {
	spans := map[string]TimeSpan{"": r.TimeSpan}
	maps.Copy(spans, r.Families)
	out, read := TimeRange{}, &ReadTimes{}
	for _, family := range slices.Sorted(maps.Keys(spans)) {
		s := spans[family]
		times, err := s.readTimes(logical, times)
		if err != nil {
			if family != "" {
				err = fmt.Errorf("families.%s: %w", family, err)
			}
			return out, nil, fmt.Errorf("time_range: %w", err)
		}
		span := ReadSpan{From: times.Min}
		plain := TimeSpan{}
		if times.Min > 0 {
			plain.From = strconv.FormatInt(int64(times.Min), 10)
		}
		if times.Max < math.MaxInt64 {
			span.To, plain.To = times.Max, strconv.FormatInt(int64(times.Max), 10)
		}
		if family == "" {
			read.ReadSpan, out.TimeSpan = span, plain
			continue
		}
		if read.Families == nil {
			read.Families, out.Families = map[string]ReadSpan{}, map[string]TimeSpan{}
		}
		read.Families[family], out.Families[family] = span, plain
	}
	return out, read, nil
}

// ReadSpan is timestamps [From, To) in ms since 1970; To 0 = all from From on.
type ReadSpan struct {
	From cell.Timestamp `json:"from,omitempty"`
	To   cell.Timestamp `json:"to,omitempty"`
}

// ReadTimes is which cells a run has read, by their timestamps: those of the range, and of
// Families those of their own instead.
type ReadTimes struct {
	ReadSpan
	Families map[string]ReadSpan `json:"families,omitempty"`
}

// cells returns the range as the store takes it.
func (s ReadSpan) cells() cell.TimeRange {
	r := cell.TimeRange{Min: s.From, Max: s.To}
	if r.Max == 0 {
		r.Max = math.MaxInt64
	}
	return r
}

// String returns the range as people write it.
func (s ReadSpan) String() string {
	switch {
	case s == ReadSpan{}:
		return "all times"
	case s.To == 0:
		return "from " + timeText(s.From) + " on"
	case s.From == 0:
		return "before " + timeText(s.To)
	}
	return "from " + timeText(s.From) + " to before " + timeText(s.To)
}

// String returns the ranges in words.
func (r *ReadTimes) String() string {
	text := r.ReadSpan.String()
	for _, family := range slices.Sorted(maps.Keys(r.Families)) {
		text += fmt.Sprintf(", of %s %s", family, r.Families[family])
	}
	return text
}

// of returns the range of a family.
func (r *ReadTimes) of(family string) cell.TimeRange {
	if s, own := r.Families[family]; own {
		return s.cells()
	}
	return r.cells()
}

// restrict makes s read these times.
func (r *ReadTimes) restrict(s *store.Scan) {
	if r.ReadSpan != (ReadSpan{}) {
		all := r.cells()
		s.Time = &all
	}
	for family, span := range r.Families {
		if len(s.Columns) > 0 && !slices.ContainsFunc(s.Columns, func(c store.Column) bool { return c.Family == family }) {
			continue
		}
		if s.FamilyTime == nil {
			s.FamilyTime = map[string]cell.TimeRange{}
		}
		s.FamilyTime[family] = span.cells()
	}
}

func (r *ReadTimes) validate() error {
	for _, s := range append(slices.Collect(maps.Values(r.Families)), r.ReadSpan) {
		if c := s.cells(); s.From < 0 || s.To < 0 || c.Min >= c.Max {
			return fmt.Errorf("time_range: %d to %d", s.From, s.To)
		}
	}
	return nil
}

// compileTimes checks the job's time range, after its families and its schedule.
func (j *Job) compileTimes(schema *store.TableDescriptor, bad func(path, format string, args ...any)) {
	r := &j.spec.TimeRange
	if r.IsZero() {
		j.spec.TimeRange = TimeRange{}
		return
	}
	r.Families = maps.Clone(r.Families)
	good := true
	check := func(path string, s TimeSpan) {
		fixed := true
		for key, text := range map[string]string{"from": s.From, "to": s.To} {
			if text == "" {
				continue
			}
			b, err := parseBound(text)
			switch {
			case err != nil:
				bad(path+"."+key, "%v", err)
			case b.base == "":
				continue
			case j.spec.Incremental.FullEvery != 0:
				bad(path+"."+key, "%s is another time in each run, and with incremental rows would leave the range that nobody has changed; name a time, or make every run full", b.base)
			case b.base != boundTime && j.schedule == nil:
				bad(path+"."+key, "%s goes by the job's schedule, and it has none that is right; %s-24h goes by the time that a run is for", b.base, boundTime)
			default:
				fixed = false
				continue
			}
			fixed, good = false, false
		}
		if fixed {
			if _, err := s.readTimes(time.Time{}, nil); err != nil {
				bad(path, "%v", err)
				good = false
			}
		}
	}
	check("time_range", r.TimeSpan)
	for _, family := range slices.Sorted(maps.Keys(r.Families)) {
		path := "time_range.families." + family
		check(path, r.Families[family])
		switch {
		case schema != nil && schema.Family(family) == nil:
			bad(path, "table %s has no family %q", schema.Name, family)
		case j.families != nil && !slices.Contains(j.families, family):
			bad(path, "family %q is not among families", family)
		}
	}
	if schema != nil {
		if why := j.noTimes(schema, false); why != "" {
			bad("time_range", "%s", why)
		}
	}
	if good && j.fixedTimes() {
		_, j.times, _ = r.resolve(time.Time{}, nil)
	}
}

// fixedTimes reports whether the range is the same in all runs.
func (j *Job) fixedTimes() bool {
	relative := func(s TimeSpan) bool { return strings.HasPrefix(s.From, "$") || strings.HasPrefix(s.To, "$") }
	r := &j.spec.TimeRange
	for _, s := range r.Families {
		if relative(s) {
			return false
		}
	}
	return !relative(r.TimeSpan)
}

// NoTimeRange says which family of t the time range can mean nothing for, or nothing.
// offsets says that cells of COUNTER and DISTINCT families have offsets for timestamps.
func (s *Spec) NoTimeRange(t *store.TableDescriptor, families []string, offsets bool) string {
	if s.TimeRange.IsZero() {
		return ""
	}
	for i := range t.Families {
		f := &t.Families[i]
		if !f.InPlace() || len(families) > 0 && !slices.Contains(families, f.Name) {
			continue
		}
		own, given := s.TimeRange.Families[f.Name]
		switch {
		case given && (own == TimeSpan{} || !offsets), !given && s.TimeRange.TimeSpan == (TimeSpan{}):
		case offsets:
			return fmt.Sprintf("the timestamps of the cells of COUNTER and DISTINCT families, such as %s, are offsets here: name the job's other families, or say families: {%s: {}}, all of it", f.Name, f.Name)
		default:
			return fmt.Sprintf("family %s is COUNTER or DISTINCT: a count has one timestamp, that of its newest event, and a range leaves it out or has all of it, whatever it has counted when; "+
				"name the job's other families, or give it a range of its own, families: {%s: {}} for all times", f.Name, f.Name)
		}
	}
	return ""
}

// noTimes is NoTimeRange of the families that the job reads.
func (j *Job) noTimes(t *store.TableDescriptor, offsets bool) string {
	return j.spec.NoTimeRange(t, j.families, offsets)
}

// checkTimes refuses a time range of families that have none, as compileTimes does where
// the schema is known.
func (j *Job) checkTimes(t *store.TableDescriptor, offsets bool) error {
	if why := j.noTimes(t, offsets); why != "" {
		return fmt.Errorf("%w: time_range of table %s: %s", store.ErrUnsupported, t.Name, why)
	}
	return nil
}

// at returns the job as it is for a run for a time: its time range is of that.
func (j *Job) at(logical time.Time) (*Job, error) {
	if j.spec.TimeRange.IsZero() {
		return j, nil
	}
	c := *j
	var err error
	c.spec.TimeRange, c.times, err = j.spec.TimeRange.resolve(logical, j.schedule)
	if err != nil {
		return nil, fmt.Errorf("%w: a run for %s: %w", store.ErrInvalidArgument, logical.UTC().Format(time.RFC3339Nano), err)
	}
	return &c, nil
}

// timeChecker finds timestamps in the rows of a run that its time range does not have.
type timeChecker struct {
	column int // -1 = none holds them
	family int // that holds the family, or -1
	times  *ReadTimes
	hull   cell.TimeRange // of all families
}

func (m *Manifest) newTimeChecker() *timeChecker {
	c := &timeChecker{column: -1, family: -1, times: m.TimeRange}
	if m.TimeRange == nil {
		return c
	}
	c.column = slices.IndexFunc(m.Columns, func(c Column) bool { return c.From == columnar.FromTimestamp })
	c.family = slices.IndexFunc(m.Columns, func(c Column) bool {
		return c.From == columnar.FromFamily && c.OnError != columnar.OnErrorNull && verbatim(c.Type, c.Coding)
	})
	c.hull = m.TimeRange.cells()
	for _, s := range m.TimeRange.Families {
		r := s.cells()
		c.hull = cell.TimeRange{Min: min(c.hull.Min, r.Min), Max: max(c.hull.Max, r.Max)}
	}
	return c
}

func (c *timeChecker) check(b *columnar.Batch) error {
	if c.column < 0 {
		return nil
	}
	v := b.Vector(c.column)
	micros := v.Type() == columnar.Timestamp
	for i := range v.Len() {
		if v.IsNull(i) {
			continue
		}
		t, r := cell.Timestamp(v.Int64s()[i]), c.hull
		if micros {
			t /= 1000
		}
		if c.family >= 0 && !b.Vector(c.family).IsNull(i) {
			r = c.times.of(string(b.Vector(c.family).Bytes(i)))
		}
		if !r.Contains(t) {
			return fmt.Errorf("row %d of it has timestamp %s, which is not in time_range (%s)", i, timeText(t), c.times)
		}
	}
	return nil
}
