package schedule

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests must not depend on the machine's zones

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func compile(t testing.TB, s *Spec) *Schedule {
	t.Helper()
	c, err := Compile("job", s)
	if err != nil {
		t.Fatalf("Compile(%+v): %v", s, err)
	}
	return c
}

func at(t testing.TB, text string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestNext(t *testing.T) {
	t.Parallel()
	const berlin, lordHowe, apia, havana = "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "America/Havana"
	for _, tt := range []struct {
		cron, zone, dst, after string
		want                   []string // in the zone
	}{
		{"30 2 * * *", "", "", "2026-01-01T00:00:00Z", []string{"2026-01-01T02:30:00Z", "2026-01-02T02:30:00Z"}},
		{"30 2 * * *", "", "", "2026-01-01T02:30:00Z", []string{"2026-01-02T02:30:00Z"}}, // after, not at
		{"15 30 2 * * *", "", "", "2026-01-01T00:00:00.5Z", []string{"2026-01-01T02:30:15Z"}},
		{"0 0 29 2 *", "", "", "2026-01-01T00:00:00Z", []string{"2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"}},
		{"0 0 29 2 *", "", "", "2096-03-01T00:00:00Z", []string{"2104-02-29T00:00:00Z"}},                                                                                                                            // 2100 has none
		{"0 12 13 * fri", "", "", "2026-02-01T00:00:00Z", []string{"2026-02-06T12:00:00Z", "2026-02-13T12:00:00Z", "2026-02-20T12:00:00Z", "2026-02-27T12:00:00Z", "2026-03-06T12:00:00Z", "2026-03-13T12:00:00Z"}}, // either
		{"@monthly", "", "", "2026-01-31T00:00:00Z", []string{"2026-02-01T00:00:00Z"}},
		{"@every 6h", "", "", "2026-01-01T01:00:00Z", []string{"2026-01-01T06:00:00Z", "2026-01-01T12:00:00Z"}},
		{"@every 6h", "", "", "1969-12-31T23:00:00Z", []string{"1970-01-01T00:00:00Z"}},
		// The clocks go from 02:00 to 03:00 on 29 March, from 03:00 back to 02:00 on 25 October.
		{"30 2 * * *", berlin, "", "2026-03-27T12:00:00Z", []string{"2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"}},
		{"30 2 * * *", berlin, Skip, "2026-03-27T12:00:00Z", []string{"2026-03-28T02:30:00+01:00", "2026-03-30T02:30:00+02:00"}},
		{"30 2 * * *", berlin, Literal, "2026-03-27T12:00:00Z", []string{"2026-03-28T02:30:00+01:00", "2026-03-30T02:30:00+02:00"}},
		{"30 2 * * *", berlin, After, "2026-03-29T00:59:59Z", []string{"2026-03-29T03:00:00+02:00"}},
		{"30 2 * * *", berlin, After, "2026-03-29T01:00:00Z", []string{"2026-03-30T02:30:00+02:00"}},
		{"0,30 2,3 * * *", berlin, After, "2026-03-29T00:00:00Z", []string{"2026-03-29T03:00:00+02:00", "2026-03-29T03:30:00+02:00", "2026-03-30T02:00:00+02:00"}}, // 02:00, 02:30 and 03:00 are one
		{"30 2 * * *", berlin, "", "2026-10-24T12:00:00Z", []string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"}},
		{"30 2 * * *", berlin, Skip, "2026-10-24T12:00:00Z", []string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"}},
		{"30 2 * * *", berlin, Literal, "2026-10-24T12:00:00Z", []string{"2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-26T02:30:00+01:00"}},
		// Every hour goes on through both.
		{"30 * * * *", berlin, "", "2026-03-29T00:00:00Z", []string{"2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00"}},
		{"30 * * * *", berlin, "", "2026-10-24T23:45:00Z", []string{"2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:30:00+01:00"}},
		// Half an hour; a midnight that is not; a day that is not.
		{"15 2 * * *", lordHowe, "", "2026-10-03T00:00:00Z", []string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"}},
		{"45 1 * * *", lordHowe, Literal, "2026-04-04T00:00:00Z", []string{"2026-04-05T01:45:00+11:00", "2026-04-05T01:45:00+10:30"}},
		{"0 0 * * *", havana, "", "2026-03-07T12:00:00Z", []string{"2026-03-08T01:00:00-04:00", "2026-03-09T00:00:00-04:00"}},
		{"0 12 * * *", apia, "", "2011-12-29T12:00:00Z", []string{"2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T12:00:00+14:00"}},
		{"0 12 * * *", apia, Skip, "2011-12-29T12:00:00Z", []string{"2011-12-29T12:00:00-10:00", "2011-12-31T12:00:00+14:00"}},
	} {
		s := compile(t, &Spec{Cron: tt.cron, Zone: tt.zone, DST: tt.dst})
		zone, err := time.LoadLocation(tt.zone)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for now := at(t, tt.after); len(got) < len(tt.want); {
			now = s.Next(now)
			got = append(got, now.In(zone).Format(time.RFC3339))
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s %s %s after %s (-want +got):\n%s", tt.cron, tt.zone, tt.dst, tt.after, d)
		}
	}
}

func TestCompileErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		spec Spec
		want string
	}{
		{Spec{Zone: "Europe/Berlin"}, "cron: it is missing"},
		{Spec{Cron: "* * * *"}, "cron: "},
		{Spec{Cron: "61 * * * *"}, "cron: "},
		{Spec{Cron: "0 0 30 2 *"}, "no day is ever like that"},
		{Spec{Cron: ", * * * *"}, "no day is ever like that"},
		{Spec{Cron: "TZ=UTC"}, "give the time zone as zone"}, // the parser panics on it
		{Spec{Cron: "CRON_TZ=Europe/Berlin 0 0 * * *"}, "give the time zone as zone"},
		{Spec{Cron: "@every 1ms"}, "whole seconds"},
		{Spec{Cron: "@every -1h"}, "whole seconds"},
		{Spec{Cron: "@reboot"}, "cron: "},
		{Spec{Cron: "@daily", Zone: "Mars/Olympus"}, `zone: "Mars/Olympus" is not the IANA name`},
		{Spec{Cron: "@daily", Zone: "Local"}, `zone: "Local" is not the IANA name`},
		{Spec{Cron: "@daily", DST: "never"}, `dst: "never" is none of after, skip, literal`},
		{Spec{Cron: "@daily", Overlap: "x"}, `overlap: "x" is none of`},
		{Spec{Cron: "@daily", CatchUp: "x"}, `catch_up: "x" is none of`},
		{Spec{Cron: "@daily", Jitter: -1}, "jitter: it is negative"},
		{Spec{Cron: "@daily", Retries: -1, PauseAfter: -1}, "retries: it is negative"},
	} {
		_, err := Compile("job", &tt.spec)
		var spec *SpecError
		if err == nil || !strings.Contains(err.Error(), tt.want) || !errors.As(err, &spec) {
			t.Errorf("%+v: got %v, want %q", tt.spec, err, tt.want)
		}
	}
}

func TestJitter(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for i := range 100 {
		s, err := Compile(fmt.Sprint("job", i), &Spec{Cron: "@daily", Jitter: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		midnight := at(t, "2026-01-01T00:00:00Z")
		d := s.Start(midnight).Sub(midnight)
		again, err := Compile(fmt.Sprint("job", i), &Spec{Cron: "@daily", Jitter: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if d < 0 || d >= time.Hour || again.Start(midnight) != s.Start(midnight) {
			t.Errorf("job %d: got a delay of %v, then %v", i, d, again.Start(midnight).Sub(midnight))
		}
		seen[d.Truncate(10*time.Minute)] = true
	}
	if len(seen) != 6 {
		t.Errorf("Got delays in %d of six parts of the hour", len(seen))
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	s := compile(t, &Spec{Cron: "@daily", Backoff: 10 * time.Minute})
	var got []time.Duration
	for n := 1; n <= 5; n++ {
		got = append(got, s.Backoff(n))
	}
	want := []time.Duration{10 * time.Minute, 20 * time.Minute, 40 * time.Minute, time.Hour, time.Hour}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got := compile(t, &Spec{Cron: "@daily", Backoff: 3 * time.Hour}).Backoff(1000); got != 3*time.Hour {
		t.Errorf("Got %v, want what was asked for", got)
	}
}

// TestNextIsFirstMatch compares Next with a walk over all minutes, which asks the
// zone what each looks like.
func TestNextIsFirstMatch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom(zones).Draw(t, "zone")
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		hour := rapid.IntRange(0, 23).Draw(t, "hour")
		minute := rapid.IntRange(0, 59).Draw(t, "minute")
		s, err := Compile("job", &Spec{Cron: fmt.Sprintf("%d %d * * *", minute, hour), Zone: zone, DST: Literal})
		if err != nil {
			t.Fatal(err)
		}
		// Near a change of the clocks, where there is one in that year.
		from := time.Unix(rapid.Int64Range(1e9, 2e9).Draw(t, "from"), 0)
		if _, end := from.In(loc).ZoneBounds(); !end.IsZero() && rapid.Bool().Draw(t, "near") {
			from = end.Add(-time.Duration(rapid.IntRange(0, 90_000).Draw(t, "before")) * time.Second)
		}
		want := from.Truncate(time.Minute).Add(time.Minute)
		for ; ; want = want.Add(time.Minute) {
			if l := want.In(loc); l.Hour() == hour && l.Minute() == minute {
				break
			}
		}
		if got := s.Next(from); !got.Equal(want) {
			t.Errorf("%s after %s in %s: got %s, want %s", s.spec.Cron, from.In(loc), zone, got.In(loc), want.In(loc))
		}
	})
}

func FuzzCompile(f *testing.F) {
	for _, seed := range []string{"* * * * *", "*/5 0-6 1,15 jan-mar mon", "@every 90s", "TZ=UTC", "0 0 31 2 *", "?", "1/9223372036854775807 * * * *"} {
		f.Add(seed, "Europe/Berlin")
	}
	f.Fuzz(func(t *testing.T, cron, zone string) {
		s, err := Compile("job", &Spec{Cron: cron, Zone: zone})
		if err != nil {
			return
		}
		now := time.Unix(1774742399, 0) // before the clocks change in Europe
		for range 3 {
			next := s.Next(now)
			if next.IsZero() {
				t.Fatalf("%q in %q ends after %s", cron, zone, now)
			}
			if !next.After(now) || next.Nanosecond() != 0 || next.Location() != time.UTC {
				t.Fatalf("%q in %q: %s after %s", cron, zone, next, now)
			}
			now = next
		}
	})
}

// TestNextBehindTheTable: a schedule goes on over the end of a leap year that is behind
// the zone's table, where time.Time.ZoneBounds ends a stretch before its own time.
func TestNextBehindTheTable(t *testing.T) {
	t.Parallel()
	s, err := Compile("j", &Spec{Cron: "0 0 1 3 *", Zone: "Europe/Berlin"})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2040, 12, 1, 0, 0, 0, 0, time.UTC)
	if got, want := s.Next(at), time.Date(2041, 2, 28, 23, 0, 0, 0, time.UTC); !got.Equal(want) {
		t.Errorf("Got %v, want %v", got, want)
	}
}

// TestLast: the last time that is not after another is the one that the next ones after it
// go on from.
func TestLast(t *testing.T) {
	t.Parallel()
	crons := []string{"30 2 * * *", "* * * 1 *", "0 0 29 2 *", "@every 6h", "@every 7s", "15 30 2 * * *", "0,30 2,3 * * *", "30 * * * *", "0 12 13 * fri"}
	rapid.Check(t, func(rt *rapid.T) {
		s := compile(t, &Spec{
			Cron: rapid.SampledFrom(crons).Draw(rt, "cron"), Zone: rapid.SampledFrom([]string{"", "Europe/Berlin", "Australia/Lord_Howe", "America/Havana"}).Draw(rt, "zone"),
			DST: rapid.SampledFrom([]string{After, Skip, Literal}).Draw(rt, "dst"),
		})
		now := time.UnixMilli(rapid.Int64Range(1_000_000_000_000, 2_000_000_000_000).Draw(rt, "now")).UTC()
		if rapid.Bool().Draw(rt, "at one") {
			now = s.Next(now)
		}
		last := s.Last(now)
		if last.IsZero() || last.After(now) || !s.Next(last).After(now) || !s.Next(last.Add(-time.Second)).Equal(last) {
			rt.Fatalf("Got %s, and %s next, for %s", last, s.Next(last), now)
		}
	})
}
