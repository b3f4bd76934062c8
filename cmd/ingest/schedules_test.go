package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/history"
	"sluice/jobs/schedule"
	"sluice/serve"
	"sluice/serve/api"
	"sluice/serve/client"
	"sluice/store"
)

// TestDaemonRunsSchedules runs a daemon with a job for every second, twice on one
// directory: every logical time is published once, and the history is there after
// the restart.
func TestDaemonRunsSchedules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, `
store: {dir: %s}
serve: {listen: "127.0.0.1:0"}
tables: {t: {families: {f: {}}}}
jobs:
  second:
    table: t
    columns: [{name: key, from: $row, type: string}]
    out: %s
    schedule: {cron: "@every 1s", catch_up: none}
  manual:
    table: t
    columns: [{name: key, from: $row, type: string}]
    out: %s
`, filepath.Join(dir, "data"), out, out), nil)
	if err != nil {
		t.Fatal(err)
	}
	var stored int64 // runs
	var last *serve.ScheduleStatus
	for life := range 2 {
		d, err := openDaemon(t.Context(), cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if st := d.exports.status(); life == 1 {
			if s := st[1].Schedule; st[1].Name != "second" || len(s.History) == 0 {
				t.Errorf("Got %+v after the restart, want the history of before", s)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		done := make(chan error, 1)
		go func() { done <- d.run(ctx) }()
		for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
			// A result is stored after the run is published, and shown after that.
			if ok := d.exports.status()[1].Schedule.Results["ok"]; ok >= stored+2 {
				stored = ok
				break
			}
			if err := ctx.Err(); err != nil {
				t.Fatalf("Got %+v", d.exports.status()[1].Schedule)
			}
		}
		c, err := client.DialDir(ctx, cfg.Store.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, paused := range []bool{true, false} {
			if err := c.PauseExport(ctx, "second", paused); err != nil {
				t.Error(err)
			}
			if s := d.exports.status()[1].Schedule; s.Paused != paused || (len(s.Next) == 0) != paused {
				t.Errorf("Got %+v, want paused %t", s, paused)
			}
		}
		if err := c.PauseExport(ctx, "manual", true); !errors.Is(err, api.ErrNotFound) {
			t.Errorf("Got %v for a job without a schedule, want ErrNotFound", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		status := d.exports.status()
		if status[0].Name != "manual" || status[0].Schedule != nil {
			t.Errorf("Got %+v for a job without a schedule", status[0])
		}
		last = status[1].Schedule
		if err := d.close(); err != nil {
			t.Fatal(err)
		}
	}
	if last.Results["ok"] < stored || last.Results["failed"] > 0 || len(last.Next) != historyEntries || last.Reason != "" {
		t.Errorf("Got %+v, want %d runs and more", last, stored)
	}
	runs, err := jobs.List(t.Context(), out)
	if err != nil || int64(len(runs)) < stored {
		t.Fatalf("Got %d runs and %v, want %d", len(runs), err, stored)
	}
	seen := map[time.Time]bool{}
	for _, r := range runs {
		if r.Err != nil || r.Job != "second" || seen[r.LogicalTime] || r.LogicalTime.Nanosecond() != 0 {
			t.Errorf("Got %+v", r)
		}
		seen[r.LogicalTime] = true
	}
}

// TestDaemonRecordsHandRuns: a run that another process has made is in the history, the
// API and the counts of its job once, with a schedule and without, however often it is
// told of.
func TestDaemonRecordsHandRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, `
store: {dir: %s}
serve: {listen: "127.0.0.1:0"}
tables: {t: {families: {f: {}}}}
jobs:
  yearly:
    table: t
    columns: [{name: key, from: $row, type: string}]
    out: %s
    schedule: {cron: "@yearly"}
  manual:
    table: t
    columns: [{name: key, from: $row, type: string}]
    out: %s
`, filepath.Join(dir, "data"), dir, dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := openDaemon(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	done := make(chan error, 1)
	go func() { done <- d.run(ctx) }()
	c, err := client.DialDir(ctx, cfg.Store.Dir)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	run := api.ExportRun{Logical: at, Result: "ok", Count: 1, Cause: "manual", Started: at, Ended: at.Add(time.Second), Attempts: 1, RunID: "r", Rows: 7, Bytes: 8}
	for range 2 {
		for _, job := range []string{"yearly", "manual"} {
			if err := c.RecordExport(ctx, job, run); err != nil {
				t.Errorf("%s: %v", job, err)
			}
		}
	}
	wrong := run
	wrong.Cause = "schedule"
	if err := c.RecordExport(ctx, "yearly", wrong); !errors.Is(err, store.ErrInvalidArgument) {
		t.Errorf("Got %v, want ErrInvalidArgument", err)
	}
	s := d.exports.status()[1].Schedule
	if len(s.History) != 1 || s.History[0] != run || fmt.Sprint(s.Ordered) != "map[manual:map[ok:1]]" || len(s.Results) > 0 {
		t.Errorf("Got %+v", s)
	}
	for _, job := range []string{"yearly", "manual"} {
		all, err := history.Entries(ctx, c, job, 10)
		st, stErr := history.State(ctx, c, job)
		if err != nil || stErr != nil || len(all) != 1 || all[0] != schedule.Entry(run) || fmt.Sprint(st.Ordered) != "map[manual:map[ok:1]]" {
			t.Errorf("%s: Got %+v, %v, %+v, %v", job, all, err, st, stErr)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	cancel()
	if err := errors.Join(<-done, d.close()); err != nil {
		t.Error(err)
	}
}
