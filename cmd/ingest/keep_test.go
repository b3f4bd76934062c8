package main

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/schedule"
)

// TestDaemonKeeps: what keep lets go of a job, or a join, goes after each of its runs, but
// not what somebody has just had filled in; what others have published stays.
func TestDaemonKeeps(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, `
store: {dir: %[1]q}
serve: {listen: "127.0.0.1:0"}
tables: {t: {families: {f: {}}}}
jobs:
  two: {table: t, columns: [{name: key, from: $row, type: string}], out: %[2]q, keep: {runs: 2}}
  all: {table: t, columns: [{name: key, from: $row, type: string}], out: %[2]q}
joins:
  one: {left: {job: two}, right: {job: all}, on: [{left: key}], out: %[2]q, keep: {runs: 1}}
`, filepath.Join(dir, "data"), out), nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := openDaemon(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}()
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
		{"two", 4, schedule.Manual, map[string][]int{"all": {2, 1}, "two": {4, 2}}}, // published before
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
