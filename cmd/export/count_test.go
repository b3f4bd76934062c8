package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cmd/internal/cli"
)

// TestCount counts a table without a daemon and beside one.
func TestCount(t *testing.T) {
	t.Parallel()
	file, _ := setup(t, "a", "b", "d")
	for _, with := range []bool{false, true} {
		if with {
			daemon(t, file)
		}
		stdout, stderr, status := export(t, "count", "-c", file, "views")
		if status != 0 || !strings.Contains(stdout, "2 regions") || !strings.Contains(stdout, "all        3 rows  3 cells  72 B") {
			t.Errorf("daemon %t: Got status %d, %s%s", with, status, stdout, stderr)
		}
		stdout, stderr, status = export(t, "count", "-c", file, "--json", "--start-row", "b", "--stop-row", `c\x00`, "views")
		var n counted
		if err := json.Unmarshal([]byte(stdout), &n); err != nil || status != 0 {
			t.Fatalf("daemon %t: Got status %d, %v, %s%s", with, status, err, stdout, stderr)
		}
		one := countedCells{Rows: 1, Cells: 1, Bytes: 24}
		family := func(c countedCells) []countedFamily { return []countedFamily{{Family: "e", countedCells: c}} }
		want := counted{
			Table: "views", Sequence: n.Sequence, countedCells: one, Families: family(one),
			Regions: []countedRegion{
				{Start: "b", Stop: "c", countedCells: one, Stored: n.Regions[0].Stored, Families: family(one)},
				{Start: "c", Stop: `c\x00`, Stored: n.Regions[1].Stored, Families: family(countedCells{})},
			},
		}
		if d := cmp.Diff(want, n, cmp.AllowUnexported(counted{}, countedFamily{}, countedRegion{})); d != "" {
			t.Errorf("daemon %t: (-want +got)\n%s", with, d)
		}
	}
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"nothing"}, cli.StatusFailed, "no such table"},
		{[]string{"--family", "g", "views"}, cli.StatusFailed, "no such column family"},
		{[]string{"--versions=-1", "views"}, cli.StatusUsage, "--versions is -1"},
		{[]string{"--versions", "0", "views"}, cli.StatusUsage, "--versions is 0"},
		{[]string{"--start-row", `\x0`, "views"}, cli.StatusUsage, "--start-row"},
		{[]string{"--start-row", "b", "--stop-row", "a", "views"}, cli.StatusUsage, "not after"},
	} {
		args := append([]string{"count", "-c", file}, c.args...)
		if _, stderr, status := export(t, args...); status != c.status || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: Got status %d and %s, want %d and %q", c.args, status, stderr, c.status, c.want)
		}
	}
}
