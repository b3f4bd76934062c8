package query_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/counters"
	"sluice/counters/query"
	"sluice/pipeline/mapping"
	"sluice/region"
	"sluice/store"
	"sluice/store/memstore"
)

// stats returns a store with a table "stats" that has a family for every bucket, of
// counts and of distinct counts.
func stats(t testing.TB) *memstore.Store {
	t.Helper()
	s, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	d := &store.TableDescriptor{Name: "stats"}
	for _, name := range counters.BucketNames() {
		b, _ := counters.ParseBucket(name)
		count, distinct := store.NewFamily(b.Family(false)), store.NewFamily(b.Family(true))
		count.Counter, distinct.Distinct = true, true
		d.Families = append(d.Families, count, distinct)
	}
	if err := s.CreateTable(t.Context(), d, [][]byte{[]byte("views/country,page\x00e")}); err != nil {
		t.Fatal(err)
	}
	return s
}

// view is an event, at a time in RFC 3339.
type view struct{ at, country, page, user string }

// rollUp applies what the declared rollups make of events to s.
func rollUp(t testing.TB, s *memstore.Store, zone string, views ...view) {
	t.Helper()
	buckets := []string{"minute", "hour", "day", "week", "month", "total"}
	dimensions := map[string]string{"country": "country", "page": "page"}
	sets := [][]string{{}, {"country"}, {"country", "page"}}
	plan, err := mapping.Compile(&mapping.Spec{
		Decode:    mapping.DecodeSpec{Format: "csv", Columns: []string{"at", "country", "page", "user"}},
		EventTime: mapping.EventTimeSpec{Field: "at", Format: "rfc3339"},
		Rollups: []mapping.RollupSpec{
			{Name: "views", Table: "stats", Dimensions: dimensions, Sets: sets, Buckets: buckets, Zone: zone},
			{Name: "users", Table: "stats", Dimensions: dimensions, Sets: sets, Buckets: buckets, Zone: zone, Distinct: "user"},
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := plan.NewMapper()
	for _, v := range views {
		out, err := m.Map(&mapping.Record{Value: []byte(strings.Join([]string{v.at, v.country, v.page, v.user}, ","))})
		if err != nil {
			t.Fatal(err)
		}
		var b store.Batch
		for _, m := range out.Mutations {
			b.Add(0, m)
		}
		if err := s.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
}

func at(t testing.TB, text string) cell.Timestamp {
	t.Helper()
	when, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return cell.Timestamp(when.UnixMilli())
}

func values(texts ...string) [][]byte {
	var all [][]byte
	for _, text := range texts {
		all = append(all, []byte(text))
	}
	return all
}

var aWeekend = []view{
	{"2026-11-21T10:05:00Z", "de", "/a", "u1"},
	{"2026-11-21T10:55:00Z", "de", "/b", "u1"},
	{"2026-11-21T12:00:00Z", "de", "/a", "u2"},
	{"2026-11-21T23:30:00Z", "fr", "/a", "u3"}, // the 22nd in Berlin
	{"2026-11-22T10:00:00Z", "de", "/a", "u1"},
	{"2026-11-22T23:30:00Z", "de", "/c", "u4"}, // Monday the 23rd in Berlin
	{"2026-11-21T10:06:00Z", "de", "/b", "u5"}, // late
}

// From the declaration to the series: gaps are filled, late events are in their
// buckets, days are the zone's.
func TestRollupSeries(t *testing.T) {
	t.Parallel()
	s := stats(t)
	rollUp(t, s, "Europe/Berlin", aWeekend...)
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		set      string
		values   [][]byte
		bucket   counters.Bucket
		from, to string
		want     string // counts
		first    string // start of the first bucket
		distinct string
		sum      int64 // of the distinct count
	}{
		{"hours", "country", values("de"), counters.Hour, "2026-11-21T09:30:00Z", "2026-11-21T13:00:00Z", "0 3 0 1", "2026-11-21T09:00:00Z", "0 2 0 1", 3},
		{"hours of a page", "country,page", values("de", "/b"), counters.Hour, "2026-11-21T10:00:00Z", "2026-11-21T12:00:00Z", "2 0", "2026-11-21T10:00:00Z", "2 0", 2},
		{"days in Berlin", "", nil, counters.Day, "2026-11-19T23:00:00Z", "2026-11-23T23:00:00Z", "0 4 2 1", "2026-11-19T23:00:00Z", "0 3 2 1", 5},
		{"weeks in Berlin", "", nil, counters.Week, "2026-11-16T00:00:00Z", "2026-11-24T00:00:00Z", "6 1", "2026-11-15T23:00:00Z", "4 1", 5},
		{"months", "", nil, counters.Month, "2026-10-15T00:00:00Z", "2026-12-15T00:00:00Z", "0 7 0", "2026-09-30T22:00:00Z", "0 5 0", 5},
		{"minutes", "country", values("fr"), counters.Minute, "2026-11-21T23:29:00Z", "2026-11-21T23:31:01Z", "0 1 0", "2026-11-21T23:29:00Z", "0 1 0", 1},
		{"total", "country", values("de"), counters.Total, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "6", "1970-01-01T00:00:00Z", "4", 4},
		{"nobody", "country", values("at"), counters.Day, "2026-11-20T12:00:00Z", "2026-11-21T12:00:00Z", "0 0", "2026-11-19T23:00:00Z", "0 0", 0},
	} {
		var dimensions []string
		if c.set != "" {
			dimensions = strings.Split(c.set, ",")
		}
		for _, distinct := range []bool{false, true} {
			r := query.Rollup{Table: "stats", Rollup: counters.Rollup{Name: "views", Dimensions: dimensions}, Zone: berlin}
			want := c.want
			if distinct {
				r.Name, r.Distinct, want = "users", true, c.distinct
			}
			points, err := r.Series(t.Context(), s, c.bucket, c.values, at(t, c.from), at(t, c.to))
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			var got []string
			var total int64
			for i, p := range points {
				got = append(got, fmt.Sprint(p.Count))
				total += p.Count
				if i > 0 && p.Start != points[i-1].Stop || (p.Count > 0) != (p.Time > 0) || p.Time > 0 && (p.Time < p.Start || p.Time >= p.Stop) {
					t.Errorf("%s: point %d is %+v after %+v", c.name, i, p, points[max(i, 1)-1])
				}
			}
			if diff := gocmp.Diff(want, strings.Join(got, " ")); diff != "" || points[0].Start != at(t, c.first) {
				t.Errorf("%s, distinct %v: first %d (-want +got)\n%s", c.name, distinct, points[0].Start, diff)
			}
			sum, err := r.Sum(t.Context(), s, c.bucket, c.values, at(t, c.from), at(t, c.to))
			if distinct {
				total = c.sum // users of several buckets count once
			}
			if err != nil || sum.Count != total || sum.Estimate != distinct {
				t.Errorf("%s, distinct %v: sum %+v, %v; want %d", c.name, distinct, sum, err, total)
			}
		}
	}
}

func TestRollupTop(t *testing.T) {
	t.Parallel()
	s := stats(t)
	rollUp(t, s, "", aWeekend...)
	for _, c := range []struct {
		name, set string
		values    [][]byte
		bucket    counters.Bucket
		from, to  string
		n         int
		want      string
		distinct  string
	}{
		{"countries of a day", "country", nil, counters.Day, "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z", 5, "de=4 fr=1", "de=3 fr=1"},
		{"pages of a country", "country,page", values("de"), counters.Day, "2026-11-21T00:00:00Z", "2026-11-23T00:00:00Z", 5, "de,/a=3 de,/b=2 de,/c=1", "de,/a=2 de,/b=2 de,/c=1"},
		{"the first", "country,page", values("de"), counters.Total, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z", 1, "de,/a=3", "de,/a=2"},
		{"an hour", "country,page", nil, counters.Hour, "2026-11-21T10:00:00Z", "2026-11-21T11:00:00Z", 5, "de,/b=2 de,/a=1", "de,/b=2 de,/a=1"},
		{"one page", "country,page", values("de", "/a"), counters.Day, "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z", 5, "de,/a=2", "de,/a=2"},
		{"everything", "", nil, counters.Day, "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z", 5, "=5", "=4"},
		{"nothing", "country", nil, counters.Day, "2026-11-11T00:00:00Z", "2026-11-12T00:00:00Z", 5, "", ""},
	} {
		var dimensions []string
		if c.set != "" {
			dimensions = strings.Split(c.set, ",")
		}
		for _, distinct := range []bool{false, true} {
			r := query.Rollup{Table: "stats", Rollup: counters.Rollup{Name: "views", Dimensions: dimensions}}
			want := c.want
			if distinct {
				r.Name, r.Distinct, want = "users", true, c.distinct
			}
			groups, err := r.Top(t.Context(), s, c.bucket, c.values, at(t, c.from), at(t, c.to), c.n)
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			var got []string
			for _, g := range groups {
				got = append(got, fmt.Sprintf("%s=%d", bytes.Join(g.Values, []byte(",")), g.Count))
			}
			if diff := gocmp.Diff(want, strings.Join(got, " ")); diff != "" {
				t.Errorf("%s, distinct %v (-want +got)\n%s", c.name, distinct, diff)
			}
		}
	}
}

// Series and Top agree with counting the events one by one, whatever they are.
func TestRollupAgainstCounting(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 10, 24, 20, 0, 0, 0, time.UTC) // the clocks go back on the 25th
	rapid.Check(t, func(rt *rapid.T) {
		s := stats(t)
		var views []view
		var times []cell.Timestamp
		for range rapid.IntRange(0, 12).Draw(rt, "events") {
			when := start.Add(time.Duration(rapid.IntRange(0, 60*60).Draw(rt, "minute")) * time.Minute)
			views = append(views, view{
				when.Format(time.RFC3339), rapid.SampledFrom([]string{"de", "fr", "d"}).Draw(rt, "country"), rapid.SampledFrom([]string{"/a", "/b"}).Draw(rt, "page"), "u",
			})
			times = append(times, cell.Timestamp(when.UnixMilli()))
		}
		rollUp(t, s, "Europe/Berlin", views...)
		b := counters.Bucket(rapid.IntRange(int(counters.Hour), int(counters.Month)).Draw(rt, "bucket"))
		from := cell.Timestamp(start.UnixMilli())
		to := from + 61*3_600_000
		r := query.Rollup{Table: "stats", Rollup: counters.Rollup{Name: "views", Dimensions: []string{"country"}}, Zone: berlin}
		all := map[string]int64{}
		for _, country := range []string{"de", "fr", "d"} {
			points, err := r.Series(t.Context(), s, b, values(country), from, to)
			if err != nil {
				rt.Fatal(err)
			}
			for _, p := range points {
				want := int64(0)
				for i, v := range views {
					if v.country == country && times[i] >= p.Start && times[i] < p.Stop {
						want++
					}
				}
				if p.Count != want {
					rt.Fatalf("%s: %s [%d, %d) is %d, want %d", country, b, p.Start, p.Stop, p.Count, want)
				}
				all[country] += want
			}
		}
		groups, err := r.Top(t.Context(), s, b, nil, from, to, 3)
		if err != nil {
			rt.Fatal(err)
		}
		total := 0
		for i, g := range groups {
			if g.Count != all[string(g.Values[0])] || g.Count == 0 || i > 0 && g.Count > groups[i-1].Count {
				rt.Fatalf("groups %+v, want the counts %v", groups, all)
			}
			total += int(g.Count)
		}
		if total != len(views) {
			rt.Fatalf("the top has %d of %d events", total, len(views))
		}
	})
}

// The first bucket of 1970 may begin before: it is read by its own start, and by all times that
// touch it. Before it there is none, as there are no events.
func TestRollupAround1970(t *testing.T) {
	t.Parallel()
	s := stats(t)
	rollUp(t, s, "America/New_York", view{"1970-01-01T00:00:00Z", "us", "/a", "u1"}, view{"1970-01-01T04:59:00Z", "us", "/a", "u2"}, view{"1970-01-01T05:00:00Z", "us", "/a", "u3"})
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	r := query.Rollup{Table: "stats", Rollup: counters.Rollup{Name: "views"}, Zone: zone}
	for _, c := range []struct {
		bucket   counters.Bucket
		from, to string
		want     string // first start and counts; "" = refused
	}{
		{counters.Day, "1969-12-31T05:00:00Z", "1970-01-02T05:00:00Z", "1969-12-31T05:00:00Z 2 1"},
		{counters.Day, "0001-01-01T00:00:00Z", "1970-01-01T05:00:00Z", "1969-12-31T05:00:00Z 2"},
		{counters.Day, "1969-12-31T23:00:00Z", "1969-12-31T23:59:00Z", "1969-12-31T05:00:00Z 2"},
		{counters.Day, "1969-12-30T05:00:00Z", "1969-12-31T05:00:00Z", ""},
		{counters.Month, "1969-12-01T05:00:00Z", "1970-01-02T00:00:00Z", "1969-12-01T05:00:00Z 2 1"},
		{counters.Week, "1969-12-29T05:00:00Z", "1969-12-30T00:00:00Z", "1969-12-29T05:00:00Z 3"},
		{counters.Hour, "1969-12-31T22:00:00Z", "1970-01-01T01:00:00Z", "1970-01-01T00:00:00Z 1"},
		{counters.Hour, "1969-12-31T22:00:00Z", "1970-01-01T00:00:00Z", ""},
	} {
		points, sum, err := r.SeriesAndSum(t.Context(), s, c.bucket, nil, at(t, c.from), at(t, c.to))
		if (c.want == "") != (err != nil) || err != nil && !errors.Is(err, store.ErrInvalidArgument) {
			t.Errorf("%s from %s to %s: %v", c.bucket, c.from, c.to, err)
		}
		if err != nil {
			continue
		}
		got, total := time.UnixMilli(int64(points[0].Start)).UTC().Format(time.RFC3339), int64(0)
		for _, p := range points {
			got += fmt.Sprint(" ", p.Count)
			total += p.Count
		}
		if got != c.want || sum.Count != total {
			t.Errorf("%s from %s to %s: got %s, sum %d; want %s", c.bucket, c.from, c.to, got, sum.Count, c.want)
		}
		if alone, err := r.Sum(t.Context(), s, c.bucket, nil, at(t, c.from), at(t, c.to)); err != nil || alone.Count != sum.Count {
			t.Errorf("%s from %s to %s: sum %+v, %v; want %+v", c.bucket, c.from, c.to, alone, err, sum)
		}
		if top, err := r.Top(t.Context(), s, c.bucket, nil, at(t, c.from), at(t, c.to), 1); err != nil || len(top) != 1 || top[0].Count != total {
			t.Errorf("%s from %s to %s: top %+v, %v", c.bucket, c.from, c.to, top, err)
		}
	}
}

func TestRollupErrors(t *testing.T) {
	t.Parallel()
	s := stats(t)
	ctx := t.Context()
	r := query.Rollup{Table: "stats", Rollup: counters.Rollup{Name: "views", Dimensions: []string{"country"}}}
	day := cell.Timestamp(86_400_000)
	for _, c := range []struct {
		name     string
		change   func(*query.Rollup)
		values   [][]byte
		from, to cell.Timestamp
		want     error
	}{
		{"values", nil, values("a", "b"), 0, day, store.ErrInvalidArgument},
		{"no time", nil, values("a"), day, day, store.ErrInvalidArgument},
		{"before 1970", nil, values("a"), -day, 0, store.ErrInvalidArgument},
		{"after 9999", nil, values("a"), 0, math.MaxInt64, store.ErrInvalidArgument},
		{"too many", nil, values("a"), 0, 60_000 * (query.MaxPoints + 1), store.ErrInvalidArgument},
		{"name", func(r *query.Rollup) { r.Name = "a/b" }, values("a"), 0, day, store.ErrInvalidArgument},
		{"dimension", func(r *query.Rollup) { r.Dimensions = []string{"a,b"} }, values("a"), 0, day, store.ErrInvalidArgument},
		{"table", func(r *query.Rollup) { r.Table = "nope" }, values("a"), 0, day, store.ErrTableNotFound},
	} {
		x := r
		if c.change != nil {
			c.change(&x)
		}
		points, err := x.Series(ctx, s, counters.Minute, c.values, c.from, c.to)
		if !errors.Is(err, c.want) || points != nil {
			t.Errorf("%s: Series = %d points, %v; want %v", c.name, len(points), err, c.want)
		}
		if _, err := x.Sum(ctx, s, counters.Minute, c.values, c.from, c.to); !errors.Is(err, c.want) && c.name != "too many" {
			t.Errorf("%s: Sum: %v; want %v", c.name, err, c.want)
		}
		if groups, err := x.Top(ctx, s, counters.Minute, c.values, c.from, c.to, 5); (!errors.Is(err, c.want) || groups != nil) && c.name != "too many" {
			t.Errorf("%s: Top = %v, %v; want %v", c.name, groups, err, c.want)
		}
	}
	for _, b := range []counters.Bucket{0, counters.Total + 1} {
		if points, err := r.Series(ctx, s, b, values("a"), 0, day); !errors.Is(err, store.ErrInvalidArgument) || points != nil {
			t.Errorf("Series of %s = %v, %v; want ErrInvalidArgument", b, points, err)
		}
		if _, err := r.Sum(ctx, s, b, values("a"), 0, day); !errors.Is(err, store.ErrInvalidArgument) {
			t.Errorf("Sum of %s: %v; want ErrInvalidArgument", b, err)
		}
		if groups, err := r.Top(ctx, s, b, nil, 0, day, 5); !errors.Is(err, store.ErrInvalidArgument) || groups != nil {
			t.Errorf("Top of %s = %v, %v; want ErrInvalidArgument", b, groups, err)
		}
	}
	if _, err := r.Top(ctx, s, counters.Day, nil, 0, day, 0); !errors.Is(err, store.ErrInvalidArgument) {
		t.Errorf("top 0: %v", err)
	}
	// A day by the clocks of another zone is no day of this one's.
	rollUp(t, s, "Pacific/Apia", view{"2011-12-31T00:30:00Z", "de", "/a", "u"})
	m := &cell.Mutation{Table: "stats", Row: []byte("views/country\x00de")}
	m.Increment("day", []byte("20111230"), 1)
	if _, err := s.MutateRow(ctx, nil, m); err != nil {
		t.Fatal(err)
	}
	apia, err := time.LoadLocation("Pacific/Apia")
	if err != nil {
		t.Fatal(err)
	}
	r.Zone = apia
	if _, err := r.Series(ctx, s, counters.Day, values("de"), at(t, "2011-12-29T00:00:00Z"), at(t, "2012-01-02T00:00:00Z")); !errors.Is(err, counters.ErrNotRollup) {
		t.Errorf("a day that never was: %v, want ErrNotRollup", err)
	}
}

// corruptReader is a Reader of one cell.
type corruptReader struct{ value []byte }

func (corruptReader) Regions(context.Context, string) (*region.Map, error) {
	return nil, store.ErrUnsupported
}

func (r corruptReader) Scan(context.Context, *store.Scan) store.Scanner {
	return &corruptScanner{row: cell.Row{Key: []byte("r"), Cells: []cell.Cell{{Family: "f", Qualifier: []byte("q"), Kind: cell.KindPut, Value: r.value}}}}
}

type corruptScanner struct {
	row  cell.Row
	done bool
}

func (s *corruptScanner) Next() bool     { first := !s.done; s.done = true; return first }
func (s *corruptScanner) Row() *cell.Row { return &s.row }
func (s *corruptScanner) Err() error     { return nil }
func (s *corruptScanner) Close() error   { return nil }

// A sketch that is broken is an error that names table, row and qualifier.
func TestCorruptSketch(t *testing.T) {
	t.Parallel()
	var sketch counters.Sketch
	sketch.Add([]byte("a"))
	good := sketch.Append(nil)
	_, _, err := query.Get(t.Context(), corruptReader{append(good, 0)}, "t", []byte("r"), "f", []byte("q"))
	if !errors.Is(err, store.ErrCorrupt) || !errors.Is(err, counters.ErrCorrupt) || !strings.Contains(err.Error(), `t:f: row "r", qualifier "q"`) {
		t.Errorf("Get: %v; want ErrCorrupt with its place", err)
	}
	c, ok, err := query.Get(t.Context(), corruptReader{good}, "t", []byte("r"), "f", []byte("q"))
	if err != nil || !ok || c.Count != 1 || !c.Estimate {
		t.Errorf("Get of a good one = %+v, %v, %v", c, ok, err)
	}
}
