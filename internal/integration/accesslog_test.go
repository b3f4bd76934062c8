package integration

import (
	"strings"
	"testing"

	"sluice/cell"
	"sluice/store"
	"sluice/store/memstore"
)

func TestLogs(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]*Log{"shared": SharedLog(t), "generated": GeneratedLog(2, 10_000)} {
		for family, counts := range l.Counts {
			sum := 0
			for _, n := range counts {
				sum += n
			}
			if len(l.Lines) != 10_000 || l.Bad != 1 || sum != 9_999 {
				t.Errorf("%s log: %d lines, %d bad, %d requests by %s; want 10000, 1, 9999", name, len(l.Lines), l.Bad, sum, family)
			}
		}
		if m, h, d := len(l.Counts["minute"]), len(l.Counts["hour"]), len(l.Counts["day"]); m < h || h <= d || d < 100 {
			t.Errorf("%s log: %d counters by minute, %d by hour, %d by day; want some, and fewer by day", name, m, h, d)
		}
	}
}

// The check of counters notices one that is wrong, whatever the sum of its path is.
func TestCheckFindsWrongCounters(t *testing.T) {
	t.Parallel()
	l := GeneratedLog(3, 200)
	e, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	d := &store.TableDescriptor{Name: "path_counts"}
	for family := range buckets {
		f := store.NewFamily(family)
		f.Counter = true
		d.Families = append(d.Families, f)
	}
	if err := e.CreateTable(t.Context(), d, nil); err != nil {
		t.Fatal(err)
	}
	add := func(b Bucket, n int64) {
		t.Helper()
		m := cell.Mutation{Table: "path_counts", Row: []byte(b.Path)}
		m.Increment("day", []byte(b.Time), n)
		if _, err := e.MutateRow(t.Context(), nil, &m); err != nil {
			t.Fatal(err)
		}
	}
	var one Bucket
	for b, n := range l.Counts["day"] {
		add(b, int64(n))
		one = b
	}
	check := func(what, want string) {
		t.Helper()
		switch err := l.checkCounters(t.Context(), e, "day"); {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: Got %v, want %q", what, err, want)
		}
	}
	check("as counted", "")
	other := Bucket{one.Path, "19700101"}
	add(one, -1)
	add(other, 1)
	check("in another bucket", "counter day:")
	add(one, 1)
	check("one more", "counter day:19700101")
	add(other, -1)
	check("a counter of nothing", "counter day:19700101")
}
