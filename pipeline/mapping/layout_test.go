package mapping

import (
	"math"
	"testing"
	"time"
)

// Of a time that clocks show twice the first is taken, one that they never show is read as
// before they were put forward, east and west of Greenwich.
func TestChangesOfTheClocks(t *testing.T) {
	t.Parallel()
	l, err := parseLayout("yyyy-MM-dd HH:mm")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ zone, local, want string }{
		{"America/New_York", "2026-03-08 01:59", "2026-03-08T01:59:00-05:00"},
		{"America/New_York", "2026-03-08 02:30", "2026-03-08T03:30:00-04:00"},
		{"America/New_York", "2026-03-08 03:00", "2026-03-08T03:00:00-04:00"},
		{"America/New_York", "2026-11-01 00:59", "2026-11-01T00:59:00-04:00"},
		{"America/New_York", "2026-11-01 01:30", "2026-11-01T01:30:00-04:00"},
		{"America/New_York", "2026-11-01 02:00", "2026-11-01T02:00:00-05:00"},
		{"Europe/Berlin", "2026-03-29 02:30", "2026-03-29T03:30:00+02:00"},
		{"Europe/Berlin", "2026-03-29 03:00", "2026-03-29T03:00:00+02:00"},
		{"Europe/Berlin", "2026-10-25 01:59", "2026-10-25T01:59:00+02:00"},
		{"Europe/Berlin", "2026-10-25 02:00", "2026-10-25T02:00:00+02:00"},
		{"Europe/Berlin", "2026-10-25 02:59", "2026-10-25T02:59:00+02:00"},
		{"Europe/Berlin", "2026-10-25 03:00", "2026-10-25T03:00:00+01:00"},
		{"Europe/Berlin", "2026-07-01 12:00", "2026-07-01T12:00:00+02:00"},
		{"Australia/Lord_Howe", "2026-04-05 01:45", "2026-04-05T01:45:00+11:00"},
		{"Australia/Lord_Howe", "2026-10-04 02:15", "2026-10-04T02:45:00+11:00"},
		{"Pacific/Apia", "2011-12-30 12:00", "2011-12-31T12:00:00+14:00"},
		{"Asia/Kolkata", "2026-01-01 00:00", "2026-01-01T00:00:00+05:30"},
		{"UTC", "2026-03-29 02:30", "2026-03-29T02:30:00Z"},
	} {
		zone, err := time.LoadLocation(tt.zone)
		if err != nil {
			t.Fatal(err)
		}
		ms, err := l.parse([]byte(tt.local), zone)
		if got := time.UnixMilli(ms).In(zone).Format(time.RFC3339); err != nil || got != tt.want {
			t.Errorf("%s in %s: got %s, %v, want %s", tt.local, tt.zone, got, err, tt.want)
		}
	}
}

// Every time has a date whose year has four digits where it is told: 9999-12-31, which stands
// for "without an end" in many a source, is one.
func TestFirstAndLastDates(t *testing.T) {
	t.Parallel()
	l, err := parseLayout("yyyy-MM-dd'T'HH:mm:ss.SSSXXX")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		zone, at, want string
	}{
		{"UTC", "9999-12-31T00:00:00Z", "9999-12-31T00:00:00.000Z"},
		{"UTC", "9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"},
		{"America/New_York", "9999-12-31T23:59:59-05:00", "9999-12-31T23:59:59.000-05:00"},
		{"Asia/Tokyo", "9999-12-31T23:59:59+09:00", "9999-12-31T23:59:59.000+09:00"},
		{"Asia/Tokyo", "9999-12-31T23:59:59Z", ""},
		{"UTC", "0000-01-01T00:00:00Z", "0000-01-01T00:00:00.000Z"},
		{"UTC", "0000-01-01T00:00:00+00:01", ""},
	} {
		zone, err := time.LoadLocation(tt.zone)
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339, tt.at)
		if err != nil {
			t.Fatal(err)
		}
		f, c := newDateFormat(l, zone), dateCache{}
		got, err := c.append(nil, &f, at.UnixMilli())
		if string(got) != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s in %s: got %q, %v, want %q", tt.at, tt.zone, got, err, tt.want)
		}
	}
	f, c := newDateFormat(l, time.UTC), dateCache{}
	for _, at := range []int64{math.MinInt64, math.MaxInt64} {
		if got, err := c.append(nil, &f, at); err == nil {
			t.Errorf("%d: got %q", at, got)
		}
	}
}
