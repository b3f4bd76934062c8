package query_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/counters"
	"sluice/counters/query"
	"sluice/store"
)

// Where the clocks went back over midnight, as in Newfoundland at 00:01 until 2011, a day
// comes, its eve comes again, and then the day: each is one bucket of a series all the same,
// from the first instant that is of it to the last, and has all that was counted in it.
func TestRollupOverMidnight(t *testing.T) {
	t.Parallel()
	s := stats(t)
	const zone = "America/St_Johns"
	rollUp(
		t, s, zone,
		view{"2005-10-29T12:00:00Z", "de", "/a", "u1"}, // the 29th
		view{"2005-10-30T02:30:30Z", "de", "/a", "u2"}, // 00:00:30 of the 30th
		view{"2005-10-30T03:00:00Z", "de", "/a", "u1"}, // 23:30 of the 29th
		view{"2005-10-30T12:00:00Z", "de", "/a", "u2"}, // the 30th
		view{"2009-11-01T02:30:30Z", "de", "/a", "u1"}, // 00:00:30 of November
		view{"2009-11-01T03:00:00Z", "de", "/a", "u1"}, // 23:30 of October
	)
	location, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		bucket   counters.Bucket
		from, to string
		want     string // start, stop and count of each bucket
		sum      int64
	}{
		{"days", counters.Day, "2005-10-28T12:00:00Z", "2005-10-31T12:00:00Z", "28T02:30-29T02:30=0 29T02:30-30T03:30=2 30T02:30-31T03:30=2 31T03:30-01T03:30=0", 4},
		{"the eve, again", counters.Day, "2005-10-30T02:45:00Z", "2005-10-30T03:10:00Z", "29T02:30-30T03:30=2", 2},
		{"the eve and the day", counters.Day, "2005-10-30T02:45:00Z", "2005-10-30T12:00:00Z", "29T02:30-30T03:30=2 30T02:30-31T03:30=2", 4},
		{"the first minute", counters.Day, "2005-10-30T02:30:00Z", "2005-10-30T02:31:00Z", "30T02:30-31T03:30=2", 2},
		{"the first minute and the eve", counters.Day, "2005-10-30T02:30:10Z", "2005-10-30T03:10:00Z", "29T02:30-30T03:30=2 30T02:30-31T03:30=2", 4},
		{"until the first minute", counters.Day, "2005-10-29T12:00:00Z", "2005-10-30T02:30:10Z", "29T02:30-30T03:30=2 30T02:30-31T03:30=2", 4},
		{"until the eve", counters.Day, "2005-10-29T12:00:00Z", "2005-10-30T03:10:00Z", "29T02:30-30T03:30=2 30T02:30-31T03:30=2", 4},
		{"the day", counters.Day, "2005-10-30T03:30:00Z", "2005-10-30T12:00:00Z", "30T02:30-31T03:30=2", 2},
		{"months", counters.Month, "2009-10-15T00:00:00Z", "2009-11-15T00:00:00Z", "01T02:30-01T03:30=1 01T02:30-01T03:30=1", 2},
		{"October, again", counters.Month, "2009-11-01T02:45:00Z", "2009-11-01T02:46:00Z", "01T02:30-01T03:30=1", 1},
		{"weeks", counters.Week, "2005-10-30T02:45:00Z", "2005-10-30T02:46:00Z", "24T02:30-31T03:30=4", 4},
	} {
		r := query.Rollup{Table: "stats", Rollup: counters.Rollup{Name: "views"}, Zone: location}
		points, total, err := r.SeriesAndSum(t.Context(), s, c.bucket, nil, at(t, c.from), at(t, c.to))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var got []string
		for _, p := range points {
			got = append(got, fmt.Sprintf("%s-%s=%d", time.UnixMilli(int64(p.Start)).UTC().Format("02T15:04"), time.UnixMilli(int64(p.Stop)).UTC().Format("02T15:04"), p.Count))
		}
		if got := strings.Join(got, " "); got != c.want || total.Count != c.sum {
			t.Errorf("%s: got %s, sum %d, want %s, sum %d", c.name, got, total.Count, c.want, c.sum)
		}
		sum, err := r.Sum(t.Context(), s, c.bucket, nil, at(t, c.from), at(t, c.to))
		if err != nil || sum.Count != c.sum {
			t.Errorf("%s: Sum is %d, %v, want %d", c.name, sum.Count, err, c.sum)
		}
		groups, err := r.Top(t.Context(), s, c.bucket, nil, at(t, c.from), at(t, c.to), 1)
		if err != nil || len(groups) != 1 || groups[0].Count != c.sum {
			t.Errorf("%s: Top is %v, %v, want %d", c.name, groups, err, c.sum)
		}
	}
}

// countingReader counts an event after each scan that it opens.
type countingReader struct {
	store.Reader
	count func()
}

func (r countingReader) Scan(ctx context.Context, s *store.Scan) store.Scanner {
	sc := r.Reader.Scan(ctx, s)
	more := sc.Next()
	r.count()
	return &begunScanner{sc, more}
}

// begunScanner is a scanner that is at its first row already.
type begunScanner struct {
	store.Scanner
	first bool
}

func (s *begunScanner) Next() bool {
	if s.first {
		s.first = false
		return true
	}
	return s.Scanner.Next()
}

// A series and its sum are of one reading: what is counted meanwhile is in both or in none.
func TestSeriesAndSumAgree(t *testing.T) {
	t.Parallel()
	s := stats(t)
	event := view{"2026-11-21T10:05:00Z", "de", "/a", "u1"}
	rollUp(t, s, "UTC", event)
	rd := countingReader{s, func() { rollUp(t, s, "UTC", event) }}
	r := query.Rollup{Table: "stats", Rollup: counters.Rollup{Name: "views"}}
	points, sum, err := r.SeriesAndSum(t.Context(), rd, counters.Hour, nil, at(t, "2026-11-21T10:00:00Z"), at(t, "2026-11-21T11:00:00Z"))
	if err != nil || len(points) != 1 || points[0].Count != sum.Count || sum.Count != 1 {
		t.Errorf("got %+v with the sum %+v, %v, want 1", points, sum, err)
	}
}
