package counters

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
)

func TestBucketNames(t *testing.T) {
	t.Parallel()
	at := cell.Timestamp(time.Date(2026, 11, 21, 23, 30, 45, 0, time.UTC).UnixMilli())
	tokyo := zone(t, "Asia/Tokyo")
	for _, c := range []struct {
		bucket      Bucket
		loc         *time.Location
		name        string
		start, next string
	}{
		{Minute, nil, "202611212330", "2026-11-21T23:30:00Z", "2026-11-21T23:31:00Z"},
		{Hour, nil, "2026112123", "2026-11-21T23:00:00Z", "2026-11-22T00:00:00Z"},
		{Day, nil, "20261121", "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"},
		{Week, nil, "20261116", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"},
		{Month, nil, "202611", "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"},
		// Minutes and hours are UTC's in every zone.
		{Minute, tokyo, "202611212330", "2026-11-21T23:30:00Z", "2026-11-21T23:31:00Z"},
		{Hour, tokyo, "2026112123", "2026-11-21T23:00:00Z", "2026-11-22T00:00:00Z"},
		{Day, tokyo, "20261122", "2026-11-22T00:00:00+09:00", "2026-11-23T00:00:00+09:00"},
		{Week, tokyo, "20261116", "2026-11-16T00:00:00+09:00", "2026-11-23T00:00:00+09:00"},
		{Month, tokyo, "202611", "2026-11-01T00:00:00+09:00", "2026-12-01T00:00:00+09:00"},
	} {
		name, err := c.bucket.AppendName(nil, at, c.loc)
		if err != nil || string(name) != c.name {
			t.Errorf("%s in %v = %s, %v; want %s", c.bucket, c.loc, name, err, c.name)
		}
		start, err := c.bucket.ParseName(name, c.loc)
		if err != nil {
			t.Errorf("%s %s: %v", c.bucket, name, err)
		}
		zone := c.bucket.Zone(c.loc)
		show := func(at cell.Timestamp) string { return time.UnixMilli(int64(at)).In(zone).Format(time.RFC3339) }
		if got := show(start); got != c.start {
			t.Errorf("%s in %v begins at %s, want %s", c.bucket, c.loc, got, c.start)
		}
		if got := show(c.bucket.Next(start, zone)); got != c.next {
			t.Errorf("%s in %v is followed by %s, want %s", c.bucket, c.loc, got, c.next)
		}
	}
	for _, name := range BucketNames() {
		if b, ok := ParseBucket(name); !ok || b.String() != name {
			t.Errorf("ParseBucket(%s) = %s, %v", name, b, ok)
		}
	}
	if b, ok := ParseBucket("year"); ok {
		t.Errorf("ParseBucket(year) = %s", b)
	}
}

func TestBucketsOfChangingClocks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bucket   Bucket
		zone     string
		from, to string // names
		want     string // starts, in the zone
	}{
		{Day, "Europe/Berlin", "20241026", "20241028", "2024-10-26T00:00:00+02:00 2024-10-27T00:00:00+02:00 2024-10-28T00:00:00+01:00"},
		{Day, "America/Sao_Paulo", "20181103", "20181105", "2018-11-03T00:00:00-03:00 2018-11-04T01:00:00-02:00 2018-11-05T00:00:00-02:00"},
		{Day, "Pacific/Apia", "20111229", "20111231", "2011-12-29T00:00:00-10:00 2011-12-31T00:00:00+14:00"}, // there was no 30th
		{Week, "Europe/Berlin", "20241021", "20241104", "2024-10-21T00:00:00+02:00 2024-10-28T00:00:00+01:00 2024-11-04T00:00:00+01:00"},
		{Month, "Europe/Berlin", "202401", "202404", "2024-01-01T00:00:00+01:00 2024-02-01T00:00:00+01:00 2024-03-01T00:00:00+01:00 2024-04-01T00:00:00+02:00"},
		{Month, "UTC", "202311", "202403", "2023-11-01T00:00:00Z 2023-12-01T00:00:00Z 2024-01-01T00:00:00Z 2024-02-01T00:00:00Z 2024-03-01T00:00:00Z"},
	} {
		loc := zone(t, c.zone)
		from, err := c.bucket.ParseName([]byte(c.from), loc)
		if err != nil {
			t.Fatal(err)
		}
		to, err := c.bucket.ParseName([]byte(c.to), loc)
		if err != nil {
			t.Fatal(err)
		}
		var starts []string
		for at := from; at <= to; at = c.bucket.Next(at, loc) {
			starts = append(starts, time.UnixMilli(int64(at)).In(loc).Format(time.RFC3339))
		}
		if diff := cmp.Diff(c.want, strings.Join(starts, " ")); diff != "" {
			t.Errorf("%s in %s (-want +got)\n%s", c.bucket, c.zone, diff)
		}
	}
}

// Every instant is in one bucket, its name leads back to the bucket's start, and
// names sort as times do.
func TestBucketProperties(t *testing.T) {
	t.Parallel()
	zones := []*time.Location{
		nil, zone(t, "Europe/Berlin"), zone(t, "America/Havana"), zone(t, "Australia/Lord_Howe"), zone(t, "Pacific/Apia"),
		zone(t, "Asia/Kolkata"), zone(t, "America/Sao_Paulo"), zone(t, "Africa/Monrovia"),
	}
	rapid.Check(t, func(t *rapid.T) {
		b := Bucket(rapid.IntRange(int(Minute), int(Total)).Draw(t, "bucket"))
		loc := rapid.SampledFrom(zones).Draw(t, "zone")
		at := cell.Timestamp(rapid.Int64Range(0, int64(MaxNamed)-1).Draw(t, "time"))
		start := b.Truncate(at, b.Zone(loc))
		next := b.Next(start, b.Zone(loc))
		if start > at || next <= at || b != Total && b.Truncate(next, b.Zone(loc)) != next {
			t.Fatalf("%s of %d in %v = [%d, %d)", b, at, loc, start, next)
		}
		name, err := b.AppendName(nil, at, loc)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := b.ParseName(name, loc); err != nil || again != start {
			t.Fatalf("%s %s in %v = %d, %v; want %d", b, name, loc, again, err, start)
		}
		if next < MaxNamed {
			if after, err := b.AppendName(nil, next, loc); err != nil || bytes.Compare(name, after) >= 0 {
				t.Fatalf("%s %s in %v is followed by %s, %v", b, name, loc, after, err)
			}
		}
	})
}

// Where clocks go back over midnight, a name is that of two stretches of time. It begins with
// the first of them.
func TestNamesOverMidnight(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bucket Bucket
		name   string
		want   string
	}{
		{Day, "20051029", "2005-10-29T02:30:00Z"},
		{Day, "20051030", "2005-10-30T02:30:00Z"}, // for a minute, then from 03:30 on
		{Day, "20051031", "2005-10-31T03:30:00Z"},
		{Month, "200910", "2009-10-01T02:30:00Z"},
		{Month, "200911", "2009-11-01T02:30:00Z"}, // for a minute, then from 03:30 on
		{Week, "20051024", "2005-10-24T02:30:00Z"},
	} {
		got, err := c.bucket.ParseName([]byte(c.name), zone(t, "America/St_Johns"))
		if err != nil || time.UnixMilli(int64(got)).UTC().Format(time.RFC3339) != c.want {
			t.Errorf("%s %s begins at %v, %v; want %s", c.bucket, c.name, time.UnixMilli(int64(got)).UTC(), err, c.want)
		}
	}
}

func TestNoBucketName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bucket Bucket
		name   string
	}{
		{Day, ""},
		{Day, "2026112"},
		{Day, "20260230"},
		{Day, "20261301"},
		{Day, "2026-1-1"},
		{Day, "+2026111"},
		{Day, "19691231"},
		{Week, "20261121"},
		{Month, "202600"},
		{Month, "20261121"},
		{Hour, "2026112124"},
		{Minute, "202611212360"},
		{Total, "totals"},
	} {
		if at, err := c.bucket.ParseName([]byte(c.name), nil); !errors.Is(err, ErrNotRollup) {
			t.Errorf("%s %q = %d, %v; want ErrNotRollup", c.bucket, c.name, at, err)
		}
	}
	if _, err := Day.ParseName([]byte("20111230"), zone(t, "Pacific/Apia")); !errors.Is(err, ErrNotRollup) {
		t.Errorf("a day that never was: %v", err)
	}
	if name, err := Hour.AppendName(nil, MaxNamed, nil); !errors.Is(err, ErrNotRollup) || len(name) > 0 {
		t.Errorf("after the year 9999: %s, %v", name, err)
	}
	for _, b := range []Bucket{0, Total + 1} {
		if name, err := b.AppendName(nil, 0, nil); !errors.Is(err, ErrNotRollup) || len(name) > 0 {
			t.Errorf("name of %s: %s, %v", b, name, err)
		}
		for _, name := range []string{"", "19700101"} {
			if _, err := b.ParseName([]byte(name), nil); !errors.Is(err, ErrNotRollup) {
				t.Errorf("%s of the name %q: %v", b, name, err)
			}
		}
	}
}

func TestRollupRows(t *testing.T) {
	t.Parallel()
	all := Rollup{Name: "views"}
	if row, err := all.Row(); err != nil || string(row) != "views/" {
		t.Errorf("of everything: %q, %v", row, err)
	}
	r := Rollup{Name: "views", Dimensions: []string{"country", "page"}}
	row, err := r.Row([]byte("de"), []byte("/a\x00b\x01"))
	if want := "views/country,page\x00de\x00/a\x01\x01b\x01\x02"; err != nil || string(row) != want {
		t.Errorf("row %q, %v; want %q", row, err, want)
	}
	for _, c := range []struct {
		values []string
		want   cell.Range
	}{
		{nil, cell.Range{Start: []byte("views/country,page\x00"), Stop: []byte("views/country,page\x01")}},
		{[]string{"de"}, cell.Range{Start: []byte("views/country,page\x00de\x00"), Stop: []byte("views/country,page\x00de\x01")}},
		{[]string{"de", ""}, cell.Range{Start: []byte("views/country,page\x00de\x00"), Stop: []byte("views/country,page\x00de\x00\x00")}},
	} {
		var values [][]byte
		for _, v := range c.values {
			values = append(values, []byte(v))
		}
		got, err := r.Rows(values...)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("rows of %q: %v (-want +got)\n%s", c.values, err, diff)
		}
	}
	for _, values := range [][][]byte{{}, {{}}, {{}, {}, {}}} {
		if row, err := r.Row(values...); !errors.Is(err, ErrNotRollup) {
			t.Errorf("row of %d values: %q, %v", len(values), row, err)
		}
	}
	if _, err := r.Rows(nil, nil, nil); !errors.Is(err, ErrNotRollup) {
		t.Errorf("rows of too many values: %v", err)
	}
	for _, row := range []string{
		"", "views", "views/country", "views/country,page", "views/country,pages\x00a\x00b", "views/country,page\x00a", "views/country,page\x00a\x00b\x00c",
		"views/country,page\x00a\x00b\x01", "views/country,page\x00a\x00b\x01\x03", "views/country,page\x00a\x01\x00b",
	} {
		if values, err := r.Values([]byte(row)); !errors.Is(err, ErrNotRollup) {
			t.Errorf("values of %q: %q, %v; want ErrNotRollup", row, values, err)
		}
	}
	for _, bad := range []Rollup{
		{},
		{Name: "a b"},
		{Name: "a/b"},
		{Name: "a,b"},
		{Name: "é"},
		{Name: strings.Repeat("x", 65)},
		{Name: "a", Dimensions: []string{""}},
		{Name: "a", Dimensions: []string{"b", "c", "b"}},
		{Name: "a", Dimensions: []string{"b\x00"}},
	} {
		if err := bad.Validate(); !errors.Is(err, ErrNotRollup) {
			t.Errorf("%+v: %v; want ErrNotRollup", bad, err)
		}
	}
}

// Rows give their values back, sort as their values do, and lie in the ranges of
// their first values and in no others.
func TestRollupRowProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := Rollup{Name: "n", Dimensions: []string{"a", "b", "c"}[:rapid.IntRange(0, 3).Draw(t, "dimensions")]}
		value := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2, 'a', 0xFF}), 0, 3)
		draw := func(label string) [][]byte {
			return rapid.SliceOfN(value, len(r.Dimensions), len(r.Dimensions)).Draw(t, label)
		}
		x, y := draw("x"), draw("y")
		rowX, err := r.Row(x...)
		if err != nil {
			t.Fatal(err)
		}
		rowY, err := r.Row(y...)
		if err != nil {
			t.Fatal(err)
		}
		values, err := r.Values(rowX)
		if err != nil || !slices.EqualFunc(values, x, bytes.Equal) {
			t.Fatalf("%q gives %q, %v; want %q", rowX, values, err, x)
		}
		if got, want := bytes.Compare(rowX, rowY), slices.CompareFunc(x, y, bytes.Compare); got != want {
			t.Fatalf("%q and %q compare as %d, their values as %d", rowX, rowY, got, want)
		}
		n := rapid.IntRange(0, len(r.Dimensions)).Draw(t, "n")
		rows, err := r.Rows(x[:n]...)
		if err != nil {
			t.Fatal(err)
		}
		in := bytes.Compare(rowY, rows.Start) >= 0 && (rows.Stop == nil || bytes.Compare(rowY, rows.Stop) < 0)
		if want := slices.EqualFunc(x[:n], y[:n], bytes.Equal); in != want {
			t.Fatalf("%q in the rows of %q: %v, want %v", rowY, x[:n], in, want)
		}
	})
}

func FuzzRollupValues(f *testing.F) {
	f.Add([]byte("views/a,b\x00x\x00y"))
	f.Add([]byte("views/a,b\x00\x01\x01\x00\x01\x02"))
	f.Fuzz(func(t *testing.T, row []byte) {
		r := Rollup{Name: "views", Dimensions: []string{"a", "b"}}
		values, err := r.Values(row)
		if err != nil {
			if !errors.Is(err, ErrNotRollup) {
				t.Fatalf("%q: %v does not wrap ErrNotRollup", row, err)
			}
			return
		}
		if again, err := r.Row(values...); err != nil || !bytes.Equal(again, row) {
			t.Fatalf("%q has the values %q, which make %q, %v", row, values, again, err)
		}
	})
}
