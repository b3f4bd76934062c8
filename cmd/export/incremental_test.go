package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sluice/cell"
	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/target/targettest"
)

// The second run by hand is an increment, and a verified one, without a daemon, beside
// one, and from the one state to the other.
func TestIncrementalRuns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		daemon int // the run before which one starts; -1 = none
	}{{"without a daemon", -1}, {"beside a daemon", 0}, {"a daemon starts", 1}, {"a daemon starts between increments", 3}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			incrementalRuns(t, c.daemon)
		})
	}
}

// setupIncremental is setup with increments of the job views.
func setupIncremental(t *testing.T, rows ...string) (file, out string) {
	t.Helper()
	file, out = setup(t, rows...)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(content), "      - {name: n, from", "      - {name: op, from: $op, type: string}\n      - {name: n, from", 1)
	text = strings.Replace(text, "    keep: {runs: 1}\n", "    incremental: {full_every: 4}\n", 1)
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return file, out
}

// TestResumeFull: a full run of an incremental job that was cut off stays full.
func TestResumeFull(t *testing.T) {
	t.Parallel()
	file, out := setupIncremental(t, "a", "b", "c")
	c, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, errs, status := export(t, "run", "-c", file, "-q", "views"); status != 0 {
		t.Fatal(errs)
	}
	cutOff(t, c, time.Now().UTC())
	if _, errs, status := export(t, "run", "-c", file, "-q", "--resume", "views"); status != 0 {
		t.Fatal(errs)
	}
	m, _, err := jobs.ReadRun(t.Context(), filepath.Join(out, "views"))
	if err != nil || m.Incremental == nil || m.Incremental.Number != 0 || m.Totals[0].Rows != 3 {
		t.Errorf("Got %+v with %+v, %v", m.Incremental, m.Totals, err)
	}
	if _, err := os.Stat(filepath.Join(out, "_tmp")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Something is left in _tmp: %v", err)
	}
}

func incrementalRuns(t *testing.T, daemonBefore int) {
	file, out := setupIncremental(t, "a", "b", "c")
	c, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	remove := func(row string) {
		t.Helper()
		e, _, err := config.OpenStore(t.Context(), c, nil)
		if err != nil {
			t.Fatal(err)
		}
		m := cell.Mutation{Table: "views", Row: []byte(row)}
		m.DeleteRow(cell.Latest)
		_, err = e.MutateRow(t.Context(), nil, &m)
		if err := errors.Join(err, e.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []struct {
		remove string
		number int
		rows   int64
	}{{"", 0, 3}, {"b", 1, 1}, {"", 2, 0}, {"a", 3, 1}, {"", 0, 1}} {
		if i == daemonBefore {
			daemon(t, file)
		}
		if want.remove != "" {
			remove(want.remove)
		}
		if _, errs, status := export(t, "run", "-c", file, "-q", "views"); status != 0 {
			t.Fatalf("run %d: %s", i, errs)
		}
		m, _, err := jobs.ReadRun(t.Context(), filepath.Join(out, "views"))
		if err != nil || m.Incremental == nil || m.Incremental.Number != want.number || m.Totals[0].Rows != want.rows {
			t.Fatalf("run %d: got %+v with %+v, %v. Want number %d with %d rows", i, m.Incremental, m.Totals, err, want.number, want.rows)
		}
		// Readers get the table of all runs of the chain.
		runs := map[string]bool{}
		stdout, errs, status := export(t, "sql", filepath.Join(out, "views"))
		for _, run := range regexp.MustCompile(`/views/run=[^/"]*`).FindAllString(stdout, -1) {
			runs[run] = true
		}
		if status != 0 || strings.Count(stdout, "====") != 8 || len(runs) != want.number+1 {
			t.Errorf("run %d: sql: Got status %d, %s%s", i, status, stdout, errs)
		}
	}
	if _, errs, status := export(t, "verify", filepath.Join(out, "views")); status != 0 {
		t.Errorf("verify: %s", errs)
	}
}

// TestIncrementsInBucket: of increments in a bucket, too, readers get all runs of the chain,
// whichever way the run is named.
func TestIncrementsInBucket(t *testing.T) {
	t.Parallel()
	file, out := setupIncremental(t, "a", "b", "c")
	s3 := targettest.NewFakeS3(t)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(content), "'"+out+"'", "s3://bucket/exports") + "s3: {endpoint: '" + s3.URL() + "', access_key: access, secret_key: hidden}\n"
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, errs, status := export(t, "run", "-c", file, "-q", "views"); status != 0 {
			t.Fatal(errs)
		}
	}
	stdout, stderr, status := export(t, "list", "-c", file)
	if status != 0 {
		t.Fatalf("list: Got status %d, %s", status, stderr)
	}
	dirs := regexp.MustCompile(`s3://bucket/exports/views/run=\S*`).FindAllString(stdout, -1)
	if len(dirs) != 2 {
		t.Fatalf("Got\n%s\nwant two runs", stdout)
	}
	all := 0
	for _, at := range []string{"s3://bucket/exports/views", dirs[0], dirs[1]} {
		stdout, stderr, status := export(t, "sql", "-c", file, "--for", "duckdb", at)
		got := 0
		for _, dir := range dirs {
			if strings.Contains(stdout, dir+"/part-") {
				got++
			}
		}
		if all += got; status != 0 || at == "s3://bucket/exports/views" && got != 2 {
			t.Errorf("sql %s: Got status %d, %d runs, %s%s", at, status, got, stdout, stderr)
		}
	}
	if all != 2+2+1 { // the latest, by its job and by itself, and the full run
		t.Errorf("Got %d runs in all three", all)
	}
}
