package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/config"
	"sluice/internal/integration"
	"sluice/jobs"
	"sluice/jobs/schedule"
	"sluice/serve/api"
	"sluice/store"
)

// TestBackfillGoesOn kills a daemon in the midst of a backfill that it has accepted: the
// next daemon goes on with it, without being asked, and what was ordered is published
// once.
func TestBackfillGoesOn(t *testing.T) {
	t.Parallel()
	j := newScheduledJob(t)
	const yearly = `cron: "@yearly"`
	c := j.load(yearly, 1)
	j.put(c, manyRows()...)
	run := func(args ...string) string {
		t.Helper()
		stdout, err := integration.Run(t, os.Environ(), nil, "export", args...)
		if err != nil {
			t.Fatal(err)
		}
		return stdout
	}
	first := integration.StartDaemon(t, j.file, os.Environ())
	await(t, first, "the daemon", func() bool {
		_, err := os.Stat(filepath.Join(c.Store.Dir, api.EndpointFile))
		return err == nil
	})
	var order api.Order
	stdout := run("backfill", "-c", j.file, "--daemon", "--json", "--from", "2020-01-01T00:00:00Z", "--to", "2024-01-01T00:00:00Z", "j")
	if err := json.Unmarshal([]byte(stdout), &order); err != nil || order.Times != 4 || order.Next.Year() != 2020 {
		t.Fatalf("Got %s, %v", stdout, err)
	}
	await(t, first, "the first run", func() bool {
		left, err := jobs.ListUnfinished(t.Context(), j.out)
		return err == nil && len(left) == 1 && left[0].LogicalTime.Year() == 2020
	})
	if stdout := run("list", "-c", j.file); !strings.Contains(stdout, "order "+order.ID+" (backfill, 0 of 4 ended)") {
		t.Errorf("Got %s, want the order", stdout)
	}
	first.Kill()
	j.load(yearly, 1_000_000_000)
	second := integration.StartDaemon(t, j.file, os.Environ())
	await(t, second, "the runs", func() bool {
		runs, err := jobs.List(t.Context(), j.out)
		if err != nil {
			t.Fatal(err)
		}
		return len(runs) >= 4
	})
	var entries []schedule.Entry
	await(t, second, "the history", func() bool {
		entries = nil
		for d := json.NewDecoder(strings.NewReader(run("history", "-c", j.file, "--json", "j"))); d.More(); {
			var e schedule.Entry
			if err := d.Decode(&e); err != nil {
				t.Fatal(err)
			}
			entries = append(entries, e)
		}
		return len(entries) >= 4
	})
	for i, e := range entries {
		if e.Logical.Year() != 2023-i || e.Result != schedule.OK || e.Cause != schedule.Backfill || e.Order != order.ID || e.Rows != 1000 || len(entries) != 4 {
			t.Errorf("Got %+v", e)
		}
	}
	// It is settled: the same again finds what is published.
	again := run("backfill", "-c", j.file, "--daemon", "--wait", "--from", "2021-01-01T00:00:00Z", "--to", "2022-01-01T00:00:00Z", "j")
	if want := "j for 2021-01-01T00:00:00Z: published, run "; !strings.Contains(again, want) {
		t.Errorf("Got %s, want %s", again, want)
	}
	if stdout := run("list", "-c", j.file); strings.Contains(stdout, "order ") {
		t.Errorf("Got %s, want no order", stdout)
	}
	if err := second.Stop(2 * time.Minute); err != nil {
		t.Fatal(err)
	}
	if runs, err := jobs.List(t.Context(), j.out); err != nil || len(runs) != 4 {
		t.Errorf("Got %d runs, %v, want 4", len(runs), err)
	}
}

// TestDaemonTakesOrders: what the API's functions accept, refuse and show.
func TestDaemonTakesOrders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
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
`, filepath.Join(dir, "data"), out), nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := openDaemon(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.run(ctx) }()
	defer func() {
		stop()
		if err := errors.Join(<-done, d.close()); err != nil {
			t.Error(err)
		}
	}()
	order, cancel := d.orderExport(), d.cancelOrder()
	if err := d.pauseExport()(ctx, "yearly", true); err != nil {
		t.Fatal(err)
	}
	year := func(y int) time.Time { return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC) }
	waits, err := order(ctx, "yearly", api.OrderRequest{From: year(2020), To: year(2022)})
	if err != nil || waits.Times != 2 {
		t.Fatalf("Got %+v, %v", waits, err)
	}
	now, err := order(ctx, "yearly", api.OrderRequest{})
	if err != nil || now.Cause != schedule.Manual || now.Times != 1 {
		t.Fatalf("Got %+v, %v", now, err)
	}
	for name, want := range map[string]struct {
		err error
		q   api.OrderRequest
		job string
	}{
		"another job": {api.ErrNotFound, api.OrderRequest{}, "nothing"},
		"backwards":   {store.ErrInvalidArgument, api.OrderRequest{From: year(2022), To: year(2020)}, "yearly"},
		"to come":     {store.ErrInvalidArgument, api.OrderRequest{Time: time.Now().Add(time.Hour)}, "yearly"},
	} {
		if _, err := order(ctx, want.job, want.q); !errors.Is(err, want.err) {
			t.Errorf("%s: Got %v, want %v", name, err, want.err)
		}
	}
	bound := time.NewTimer(5 * time.Minute)
	defer bound.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for d.exports.status()[0].Schedule.Ordered[schedule.Manual][schedule.OK] == 0 {
		select {
		case <-tick.C:
		case <-bound.C:
			t.Fatalf("Got %+v, want the manual run", d.exports.status()[0].Schedule)
		}
	}
	// The backfill waits for the end of the pause.
	s := d.exports.status()[0].Schedule
	if len(s.Orders) != 1 || s.Orders[0] != waits || len(s.History) != 1 || s.History[0].Cause != schedule.Manual || s.History[0].Order != now.ID {
		t.Errorf("Got %+v", s)
	}
	if err := cancel(ctx, "yearly", waits.ID); err != nil {
		t.Error(err)
	}
	if err := cancel(ctx, "yearly", waits.ID); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("Got %v, want ErrNotFound", err)
	}
	if s := d.exports.status()[0].Schedule; len(s.Orders) != 0 || s.Ordered[schedule.Backfill][schedule.Cancelled] != 2 || !s.Paused {
		t.Errorf("Got %+v", s)
	}
	if runs, err := jobs.List(ctx, out); err != nil || len(runs) != 1 || !runs[0].LogicalTime.Equal(now.From) {
		t.Errorf("Got %+v, %v, want the manual run", runs, err)
	}
}
