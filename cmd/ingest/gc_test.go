package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
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

// scheduledGC are three places, of which one is a file, and a schedule by which they are
// tidied up.
const scheduledGC = `
store: {dir: %[1]q}
serve: {listen: "127.0.0.1:0"}
tables: {t: {families: {f: {}}}}
jobs:
  hand:
    table: t
    columns: [{name: key, from: $row, type: string}]
    out: %[2]q
    keep: {runs: 2}
  waits:
    table: t
    columns: [{name: key, from: $row, type: string}]
    out: %[2]q
    schedule: {cron: "@yearly", catch_up: none}
  never:
    table: t
    columns: [{name: key, from: $row, type: string}]
    out: %[3]q
  wrong:
    table: t
    columns: [{name: key, from: $row, type: string}]
    out: %[4]q
gc: {schedule: {cron: "@every 1s", catch_up: none, retries: 1000, backoff: 10ms}}
`

// TestDaemonRunsScheduledGC: by its schedule the daemon removes what was never published and
// what is beyond keep, of jobs that are run by hand, too; not what an export is writing, nor
// what a run has left that waits for its next attempt. A place that fails keeps none of the
// others from it, and the run is tried again. It is ordered, paused and reported as jobs are.
func TestDaemonRunsScheduledGC(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out, wrong := filepath.Join(dir, "out"), filepath.Join(dir, "wrong")
	cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, scheduledGC, filepath.Join(dir, "data"), out, filepath.Join(dir, "never"), wrong), nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := openDaemon(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	at := func(day int) time.Time { return time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC) }
	confirm := func(context.Context) error { return nil }
	publish := func(job string, day int) schedule.Outcome {
		t.Helper()
		o, err := d.runExport(t.Context(), schedule.Request{Job: job, Logical: at(day), Cause: schedule.Backfill, Attempt: 1, Confirm: confirm})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	for day := 1; day <= 4; day++ {
		publish("hand", day)
	}
	// What an attempt of waits has left is named by the id that its run will have.
	id := publish("waits", 9).RunID
	to, err := cfg.OpenTarget(out, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	busy, err := to.Begin(t.Context(), "hand/run=1", "busy")
	if err != nil {
		t.Fatal(err)
	}
	leave := func(name string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(out, "_tmp", name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(out, "_tmp", name, "part"), []byte("0123456789"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	left := func() string {
		all, err := os.ReadDir(filepath.Join(out, "_tmp"))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range all {
			switch name := e.Name(); {
			case strings.Contains(name, id):
				names = append(names, "waits")
			case strings.Contains(name, "busy"):
				names = append(names, "busy")
			default:
				names = append(names, name)
			}
		}
		return strings.Join(names, " ")
	}
	leave("dead")
	leave("z-" + id)
	h, err := history.New(d.engine)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Save(t.Context(), "waits", schedule.State{Decided: at(9), Pending: []schedule.Run{{Logical: at(9), Cause: schedule.Scheduled}}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(wrong, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	o, err := d.runExport(t.Context(), schedule.Request{Job: "gc", Logical: at(9), Cause: schedule.Scheduled, Attempt: 1, Confirm: confirm})
	if err == nil || !strings.Contains(err.Error(), wrong) || strings.Contains(err.Error(), out) || o.Bytes < 10 || o.RunID != "" {
		t.Errorf("Got %+v, %v, want an error of %s alone", o, err, wrong)
	}
	if got := left(); got != "busy waits" {
		t.Errorf("Got %q left", got)
	}
	runs, err := jobs.List(t.Context(), out)
	if err != nil || len(runs) != 3 || runs[0].Job != "hand" || !runs[0].LogicalTime.Equal(at(4)) || !runs[1].LogicalTime.Equal(at(3)) || runs[2].Job != "waits" {
		t.Errorf("Got %+v, %v", runs, err)
	}
	lost := errors.New("another daemon runs it")
	if _, err := d.runGC(t.Context(), schedule.Request{Job: "gc", Logical: at(9), Confirm: func(context.Context) error { return lost }}); !errors.Is(err, lost) {
		t.Errorf("Got %v", err)
	}

	// Given up, what waits has left goes by the schedule, once wrong is there to be read.
	if err := h.Save(t.Context(), "waits", schedule.State{Decided: at(9)}, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	done := make(chan error, 1)
	go func() { done <- d.run(ctx) }()
	status := func() *serve.ExportStatus {
		for _, s := range d.exports.status() {
			if s.Name == "gc" {
				return &s
			}
		}
		t.Fatal("gc is not among the exports")
		return nil
	}
	awaitExports(ctx, t, d, "a retry", func() bool { return status().Schedule.Attempt > 1 })
	if err := os.Remove(wrong); err != nil {
		t.Fatal(err)
	}
	awaitExports(ctx, t, d, "a garbage collection", func() bool { return status().Schedule.Results[schedule.OK] > 0 })
	if got := left(); got != "busy" {
		t.Errorf("Got %q left", got)
	}
	if err := busy.Abort(); err != nil {
		t.Error(err)
	}
	leave("later")
	awaitExports(ctx, t, d, "the next one", func() bool {
		_, err := os.Stat(filepath.Join(out, "_tmp", "later"))
		return errors.Is(err, fs.ErrNotExist)
	})
	c, err := client.DialDir(ctx, cfg.Store.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.PauseExport(ctx, "gc", true); err != nil {
		t.Error(err)
	}
	if _, err := c.OrderExport(ctx, "gc", api.OrderRequest{Time: at(10)}); err != nil {
		t.Error(err)
	}
	awaitExports(ctx, t, d, "an order", func() bool { return status().Schedule.Ordered[schedule.Manual][schedule.OK] == 1 })
	if _, err := c.OrderExport(ctx, "gc", api.OrderRequest{From: at(1), To: at(20)}); !errors.Is(err, store.ErrInvalidArgument) {
		t.Errorf("Got %v for past times, want ErrInvalidArgument", err)
	}
	s := status()
	if n := s.Schedule.Results[schedule.OK]; s.Runs["ok"] != uint64(n)+1 || s.LastSuccess.IsZero() || !s.Schedule.Paused || s.Bytes > 0 {
		t.Errorf("Got %+v, %+v", s, s.Schedule)
	}
	entries, err := history.Entries(ctx, c, "gc", 100)
	retried, freed := false, false
	for _, e := range entries {
		retried = retried || e.Attempts > 1 && e.Result == schedule.OK
		freed = freed || e.Bytes >= 10
	}
	if err != nil || !retried || !freed {
		t.Errorf("Got %+v, %v, want one that was tried again, and one that has removed something", entries, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	cancel()
	if err := errors.Join(<-done, d.close()); err != nil {
		t.Error(err)
	}
}
