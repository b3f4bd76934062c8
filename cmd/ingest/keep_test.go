package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/schedule"
	"sluice/jobs/target/targettest"
)

// idleDaemon opens the daemon of a configuration, which runs nothing by itself; the end of
// the test closes it.
func idleDaemon(t *testing.T, log slog.Handler, text string) *daemon {
	t.Helper()
	cfg, err := config.Parse("test.yaml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := openDaemon(t.Context(), cfg, slog.New(log))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// TestDaemonKeeps: what keep lets go of a job, or a join, goes after each of its runs, but
// not what somebody has just had filled in; what others have published stays.
func TestDaemonKeeps(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	d := idleDaemon(t, slog.DiscardHandler, fmt.Sprintf(`
store: {dir: %[1]q}
serve: {listen: "127.0.0.1:0"}
tables: {t: {families: {f: {}}}}
jobs:
  two: {table: t, columns: [{name: key, from: $row, type: string}], out: %[2]q, keep: {runs: 2}}
  all: {table: t, columns: [{name: key, from: $row, type: string}], out: %[2]q}
joins:
  one: {left: {job: two}, right: {job: all}, on: [{left: key}], out: %[2]q, keep: {runs: 1}}
`, filepath.Join(dir, "data"), out))
	m := &cell.Mutation{Table: "t", Row: []byte("r")}
	m.Put("f", []byte("q"), cell.Latest, []byte("v"))
	if _, err := d.engine.MutateRow(t.Context(), nil, m); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name  string
		day   int
		cause string
		want  map[string][]int
	}{
		{"all", 1, schedule.Manual, map[string][]int{"all": {1}}},
		{"two", 1, schedule.Manual, map[string][]int{"all": {1}, "two": {1}}},
		{"two", 2, schedule.Manual, map[string][]int{"all": {1}, "two": {2, 1}}},
		{"all", 2, schedule.Manual, map[string][]int{"all": {2, 1}, "two": {2, 1}}},
		{"two", 4, schedule.Manual, map[string][]int{"all": {2, 1}, "two": {4, 2}}},
		{"two", 1, schedule.Backfill, map[string][]int{"all": {2, 1}, "two": {4, 2, 1}}},
		{"two", 4, schedule.Manual, map[string][]int{"all": {2, 1}, "two": {4, 2}}},    // published before
		{"two", 1, schedule.Manual, map[string][]int{"all": {2, 1}, "two": {4, 2, 1}}}, // what somebody has just ordered
		{"two", 4, schedule.Manual, map[string][]int{"all": {2, 1}, "two": {4, 2}}},
		{"one", 3, schedule.Manual, map[string][]int{"all": {2, 1}, "two": {4, 2}, "one": {3}}},
		{"one", 5, schedule.Manual, map[string][]int{"all": {2, 1}, "two": {4, 2}, "one": {5}}},
	} {
		r := schedule.Request{Job: step.name, Logical: time.Date(2026, 5, step.day, 0, 0, 0, 0, time.UTC), Cause: step.cause, Attempt: 1}
		if o, err := d.runExport(t.Context(), r); err != nil || o.RunID == "" {
			t.Fatalf("%+v: %+v, %v", step, o, err)
		}
		runs, err := jobs.List(t.Context(), out)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string][]int{}
		for i := range runs {
			got[runs[i].Job] = append(got[runs[i].Job], runs[i].LogicalTime.Day())
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("After %s of day %d, %s (-want +got):\n%s", step.name, step.day, step.cause, diff)
		}
	}
}

// TestDaemonMayNotRemove: a run whose predecessor cannot be removed is published all the
// same, and the log tells.
func TestDaemonMayNotRemove(t *testing.T) {
	t.Parallel()
	s3 := targettest.NewFakeS3(t)
	var log bytes.Buffer
	d := idleDaemon(t, slog.NewTextHandler(&log, nil), fmt.Sprintf(`
store: {dir: %q}
serve: {listen: "127.0.0.1:0"}
tables: {t: {families: {f: {}}}}
jobs:
  one: {table: t, columns: [{name: key, from: $row, type: string}], out: "s3://bucket/out", keep: {runs: 1}}
s3: {endpoint: %q, access_key: access, secret_key: hidden}
`, filepath.Join(t.TempDir(), "data"), s3.URL()))
	for day, want := range [][]int{1: {1}, 2: {2}, 3: {3}} {
		if day == 0 {
			continue
		}
		s3.SetFaulty(func(_ int, r *http.Request) targettest.Fault {
			if day == 2 && r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/one/run=20260501") {
				return targettest.Denied
			}
			return targettest.Fine
		})
		r := schedule.Request{Job: "one", Logical: time.Date(2026, 5, day, 0, 0, 0, 0, time.UTC), Cause: schedule.Manual, Attempt: 1}
		if _, err := d.runExport(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		to, err := d.cfg.OpenTarget("s3://bucket/out", false, nil)
		if err != nil {
			t.Fatal(err)
		}
		runs, err := jobs.ListTarget(t.Context(), to)
		if err := errors.Join(err, to.Close()); err != nil {
			t.Fatal(err)
		}
		var got []int
		for i := range runs {
			got = append(got, runs[i].LogicalTime.Day())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("After day %d (-want +got):\n%s", day, diff)
		}
		if told := strings.Contains(log.String(), "runs beyond keep were not removed"); told != (day >= 2) {
			t.Errorf("After day %d, the log: %s", day, log.String())
		}
	}
}
