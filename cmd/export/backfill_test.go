package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/cell"
	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
)

// lines returns the states of the lines that backfill --json has printed, by time.
func lines(t *testing.T, stdout string) (states []string) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(stdout))
	for d.More() {
		var l backfilled
		if err := d.Decode(&l); err != nil {
			t.Fatal(err)
		}
		if (l.RunID == "") != (l.State == "missing") || l.State != "missing" && l.Rows != 3 {
			t.Errorf("Got %+v", l)
		}
		states = append(states, l.Time.Format("01-02 15:04 ")+l.State)
	}
	return states
}

// TestBackfill runs the times of a schedule that have no run, each once, and leaves
// _latest.json to the newest run.
func TestBackfill(t *testing.T) {
	t.Parallel()
	file, out := setup(t, "a", "b", "d")
	args := []string{"backfill", "-c", file, "--json", "--from", "2026-01-01T02:30:00Z", "--to", "2026-01-04T02:30:00Z", "views"}
	check := func(what string, want []string, more ...string) {
		t.Helper()
		stdout, stderr, status := export(t, append(args, more...)...)
		if got := lines(t, stdout); status != 0 || strings.Join(got, ", ") != strings.Join(want, ", ") {
			t.Errorf("%s: Got %q, want %q; status %d, %s", what, got, want, status, stderr)
		}
	}
	missing := []string{"01-01 02:30 missing", "01-02 02:30 missing", "01-03 02:30 missing"}
	check("at first", missing, "--dry-run")
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("a dry run has made %s: %v", out, err)
	}
	if _, stderr, status := export(t, "run", "-c", file, "--time", "2026-01-02T02:30:00Z", "views"); status != 0 {
		t.Fatalf("Got status %d, %s", status, stderr)
	}
	if _, stderr, status := export(t, "run", "-c", file, "--time", "2026-02-01T00:00:00Z", "views"); status != 0 {
		t.Fatalf("Got status %d, %s", status, stderr)
	}
	latest := filepath.Join(out, "views", jobs.LatestName)
	before, err := os.ReadFile(latest)
	if err != nil {
		t.Fatal(err)
	}
	check("two are missing", []string{"01-01 02:30 missing", "01-02 02:30 published", "01-03 02:30 missing"}, "--dry-run")
	check("the first time", []string{"01-01 02:30 exported", "01-02 02:30 published", "01-03 02:30 exported"})
	check("again", []string{"01-01 02:30 published", "01-02 02:30 published", "01-03 02:30 published"})
	if after, err := os.ReadFile(latest); err != nil || string(after) != string(before) {
		t.Errorf("Got %s, %v, want the newest run as before", after, err)
	}
	if runs, err := jobs.List(t.Context(), out); err != nil || len(runs) != 4 {
		t.Errorf("Got %d runs, %v, want 4", len(runs), err)
	}

	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--from", "2026-01-02T00:00:00Z", "--to", "2026-01-01T00:00:00Z", "views"}, "--from is not before --to"},
		{[]string{"--from", "1990-01-01T00:00:00Z", "views"}, "more than 10080 times"},
		{[]string{"--from", "0001-01-01T00:00:00Z", "--daemon", "views"}, "means that there is no time"},
		{[]string{"--from", "2026-01-01T00:00:00Z", "idle"}, "has no schedule"},
		{[]string{"--from", "2026-01-01T00:00:00Z", "other"}, "has no job"},
		{[]string{"views"}, "missing flags: --from"},
	} {
		if _, stderr, status := export(t, append([]string{"backfill", "-c", file}, c.args...)...); status != cli.StatusUsage || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: Got status %d, %s, want %s", c.args, status, stderr, c.want)
		}
	}
	stdout, stderr, status := export(t, "backfill", "-c", file, "--from", time.Now().Add(time.Hour).UTC().Format(time.RFC3339), "views")
	if status != 0 || !strings.Contains(stdout, "no time from --from") {
		t.Errorf("of times to come: Got status %d, %s%s", status, stdout, stderr)
	}
}

// TestBackfillResumes: a run that was cut off is gone on with, at its instant.
func TestBackfillResumes(t *testing.T) {
	t.Parallel()
	file, _ := setup(t, "a", "b", "c", "d")
	c, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	cutOff(t, c, time.Date(2026, 1, 2, 2, 30, 0, 0, time.UTC))
	withEngine(t, c, func(e config.Engine) {
		m := cell.Mutation{Table: "views", Row: []byte("e")}
		m.Put("e", []byte("n"), 1, []byte("9"))
		if _, err := e.MutateRow(t.Context(), nil, &m); err != nil {
			t.Fatal(err)
		}
	})
	stdout, stderr, status := export(t, "backfill", "-c", file, "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-03T00:00:00Z", "views")
	if status != 0 || !strings.Contains(stdout, "2026-01-01T02:30:00Z  exported") || strings.Count(stdout, "5 rows") != 1 || strings.Count(stdout, "4 rows") != 1 {
		t.Errorf("Got status %d, %s%s", status, stdout, stderr)
	}
}
