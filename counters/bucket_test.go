package counters

import (
	"math"
	"testing"
	"time"
	_ "time/tzdata" // the zones must not depend on the machine

	"pgregory.net/rapid"

	"sluice/cell"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func TestTruncate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		bucket   Bucket
		zone     string
		at, want string // RFC 3339
	}{
		{"minute", Minute, "UTC", "2023-11-14T22:13:20.999Z", "2023-11-14T22:13:00Z"},
		{"hour", Hour, "UTC", "2023-11-14T22:13:20Z", "2023-11-14T22:00:00Z"},
		{"day", Day, "UTC", "2023-11-14T22:13:20Z", "2023-11-14T00:00:00Z"},
		{"a start is its own", Day, "UTC", "2023-11-14T00:00:00Z", "2023-11-14T00:00:00Z"},
		{"east", Day, "Asia/Tokyo", "2023-11-14T22:13:20Z", "2023-11-15T00:00:00+09:00"},
		{"west", Day, "America/New_York", "2023-11-14T03:13:20Z", "2023-11-13T00:00:00-05:00"},
		{"half-hour zone", Hour, "Asia/Kolkata", "2023-11-14T22:13:20Z", "2023-11-14T21:30:00Z"},
		{"half-hour zone 2", Hour, "Asia/Kolkata", "2023-11-14T22:33:20Z", "2023-11-14T22:30:00Z"},
		{"1970 east", Day, "Asia/Tokyo", "1970-01-01T00:00:00Z", "1970-01-01T00:00:00+09:00"},

		{"day of 23 hours", Day, "Europe/Berlin", "2024-03-31T20:00:00+02:00", "2024-03-31T00:00:00+01:00"},
		{"day of 25 hours", Day, "Europe/Berlin", "2024-10-27T20:00:00+01:00", "2024-10-27T00:00:00+02:00"},
		{"hour after the skipped one", Hour, "Europe/Berlin", "2024-03-31T03:10:00+02:00", "2024-03-31T03:00:00+02:00"},
		{"repeated hour is one", Hour, "Europe/Berlin", "2024-10-27T02:10:00+01:00", "2024-10-27T02:00:00+02:00"},
		{"repeated minute is not", Minute, "Europe/Berlin", "2024-10-27T02:10:30+01:00", "2024-10-27T02:10:00+01:00"},
		{"midnight skipped", Day, "America/Sao_Paulo", "2018-11-04T12:00:00-02:00", "2018-11-04T01:00:00-02:00"},
		{"midnight put off", Day, "America/Sao_Paulo", "2018-02-18T12:00:00-03:00", "2018-02-18T00:00:00-03:00"},
		{"the day before it", Day, "America/Sao_Paulo", "2018-02-17T23:30:00-03:00", "2018-02-17T00:00:00-02:00"},
		{"midnight twice", Day, "America/Havana", "2023-11-05T12:00:00-05:00", "2023-11-05T00:00:00-04:00"},
		{"midnight twice, between", Day, "America/Havana", "2023-11-05T00:30:00-05:00", "2023-11-05T00:00:00-04:00"},
		{"half an hour back", Hour, "Australia/Lord_Howe", "2023-04-02T01:45:00+10:30", "2023-04-02T01:00:00+11:00"},
		{"half an hour forth", Hour, "Australia/Lord_Howe", "2023-10-01T02:45:00+11:00", "2023-10-01T02:30:00+11:00"},
		{"a day that never was", Day, "Pacific/Apia", "2011-12-31T12:00:00+14:00", "2011-12-31T00:00:00+14:00"},
	} {
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}
		want, err := time.Parse(time.RFC3339, c.want)
		if err != nil {
			t.Fatal(err)
		}
		loc := zone(t, c.zone)
		got := time.UnixMilli(int64(c.bucket.Truncate(cell.Timestamp(at.UnixMilli()), loc))).In(loc)
		if !got.Equal(want) {
			t.Errorf("%s: %s of %s in %s = %s, want %s", c.name, c.bucket, c.at, c.zone, got.Format(time.RFC3339), c.want)
		}
	}
	for _, b := range []Bucket{Minute, Hour, Day} {
		if got := b.Truncate(59_999, nil); got != 0 {
			t.Errorf("%s of 59.999 s in UTC = %d", b, got)
		}
		if got := b.Truncate(math.MaxInt64, zone(t, "Asia/Tokyo")); got < math.MaxInt64-86_400_000 {
			t.Errorf("%s of the last timestamp = %d", b, got)
		}
	}
	if got := Bucket(9).String(); got != "Bucket(9)" {
		t.Errorf("an unknown bucket prints as %s", got)
	}
}

// label is what a clock shows for the bucket of t: the naive definition.
func label(b Bucket, t cell.Timestamp, loc *time.Location) string {
	layout := map[Bucket]string{Minute: "2006-01-02 15:04", Hour: "2006-01-02 15", Day: "2006-01-02"}[b]
	return time.UnixMilli(int64(t)).In(loc).Format(layout)
}

func TestTruncateProperties(t *testing.T) {
	t.Parallel()
	var zones []*time.Location
	for _, name := range []string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "America/Havana", "Australia/Lord_Howe", "Pacific/Apia", "America/St_Johns", "Asia/Kathmandu", "Africa/Monrovia"} {
		zones = append(zones, zone(t, name))
	}
	rapid.Check(t, func(t *rapid.T) {
		loc := rapid.SampledFrom(zones).Draw(t, "zone")
		b := rapid.SampledFrom([]Bucket{Minute, Hour, Day}).Draw(t, "bucket")
		at := cell.Timestamp(rapid.Int64Range(0, 2_000_000_000_000).Draw(t, "time"))
		if change, _ := time.UnixMilli(int64(at)).In(loc).ZoneBounds(); !change.IsZero() && change.UnixMilli() > 0 && rapid.Bool().Draw(t, "near a change") {
			at = max(0, cell.Timestamp(change.UnixMilli()+rapid.Int64Range(-7_200_000, 7_200_000).Draw(t, "distance")))
		}
		start := b.Truncate(at, loc)
		if start > at {
			t.Fatalf("%s of %d starts after it, at %d", b, at, start)
		}
		if label(b, start, loc) != label(b, at, loc) {
			t.Fatalf("%s of %d is %s, its start's %s", b, at, label(b, at, loc), label(b, start, loc))
		}
		if label(b, start-1, loc) == label(b, at, loc) {
			t.Fatalf("%s of %d: the clocks show %s before its start %d, too", b, at, label(b, at, loc), start)
		}
		between := start + cell.Timestamp(rapid.Int64Range(0, int64(at-start)).Draw(t, "between"))
		if between >= 0 && b.Truncate(between, loc) != start {
			t.Fatalf("%s of %d starts at %d, that of %d between them at %d", b, at, start, between, b.Truncate(between, loc))
		}
	})
}

func BenchmarkTruncate(b *testing.B) {
	for _, name := range []string{"UTC", "Europe/Berlin"} {
		b.Run(name, func(b *testing.B) {
			loc := zone(b, name)
			b.ReportAllocs()
			at := cell.Timestamp(1_700_000_000_000)
			for b.Loop() {
				at += 1 + Day.Truncate(at, loc)&1
			}
		})
	}
}
