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
	"sluice/serve"
	"sluice/serve/api"
	"sluice/serve/client"
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
