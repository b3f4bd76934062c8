package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"sluice/cell"
	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/schedule"
	"sluice/serve/api"
	"sluice/serve/client"
	"sluice/store"
)

// scheduledJoins are two tables, a join of them and one of what was published of them,
// for every second, and a join that nobody has a schedule for.
const scheduledJoins = `
store: {dir: %[1]q}
serve: {listen: "127.0.0.1:0"}
tables: {views: {families: {f: {}}}, users: {families: {f: {}}}}
jobs:
  views: {table: views, columns: [{name: key, from: $row, type: string}], out: %[2]q}
  users: {table: users, columns: [{name: key, from: $row, type: string}, {name: name, from: "f:name", type: string}], out: %[2]q}
joins:
  live:
    left: {job: views}
    right: {job: users}
    on: [{left: key}]
    out: %[2]q
    schedule: {cron: "@every 1s", catch_up: none}
  later:
    left: {run: %[3]q}
    right: {run: %[4]q}
    on: [{left: key}]
    out: %[2]q
    schedule: {cron: "@every 1s", catch_up: none, pause_after: 1}
  manual:
    left: {job: views}
    right: {job: users}
    on: [{left: key}]
    out: %[2]q
`

// scheduleResults returns the counts of what became of the runs of a schedule; nil = name
// has none.
func scheduleResults(t *testing.T, d *daemon, name string) map[string]int64 {
	t.Helper()
	for _, s := range d.exports.status() {
		if s.Name == name {
			if s.Schedule == nil {
				return nil
			}
			return s.Schedule.Results
		}
	}
	t.Fatalf("%s is not among the exports", name)
	return nil
}

// awaitExports waits until something holds of the exports of a daemon.
func awaitExports(ctx context.Context, t *testing.T, d *daemon, what string, holds func() bool) {
	t.Helper()
	for tick := time.NewTicker(20 * time.Millisecond); !holds(); <-tick.C {
		if ctx.Err() != nil {
			t.Fatalf("%s: Got %+v", what, d.exports.status())
		}
	}
}

// TestDaemonRunsScheduledJoins: joins of tables and of published runs run by their
// schedules, once for each time, over a restart; they are paused, ordered and reported
// as jobs are. One of runs that are not there fails, and says so.
func TestDaemonRunsScheduledJoins(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, scheduledJoins, filepath.Join(dir, "data"), out, filepath.Join(out, "views"), filepath.Join(out, "users")), nil)
	if err != nil {
		t.Fatal(err)
	}
	ok := int64(0)
	for life := range 2 {
		d, err := openDaemon(t.Context(), cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		if life == 0 {
			for _, table := range []string{"views", "users"} {
				m := &cell.Mutation{Table: table, Row: []byte("ann")}
				m.Put("f", []byte("name"), cell.Latest, []byte("Ann"))
				if _, err := d.engine.MutateRow(ctx, nil, m); err != nil {
					t.Fatal(err)
				}
			}
		} else {
			source, err := d.engine.(store.Snapshotter).Snapshot(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"views", "users"} {
				job, err := d.compileJob(ctx, name)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := jobs.Run(ctx, &jobs.RunOptions{Job: job, Source: source}); err != nil {
					t.Fatal(err)
				}
			}
			if err := source.Close(); err != nil {
				t.Fatal(err)
			}
		}
		done := make(chan error, 1)
		go func() { done <- d.run(ctx) }()
		await := func(what string, holds func() bool) {
			t.Helper()
			awaitExports(ctx, t, d, what, holds)
		}
		await("live joins", func() bool { return scheduleResults(t, d, "live")[schedule.OK] >= ok+2 })
		c, err := client.DialDir(ctx, cfg.Store.Dir)
		if err != nil {
			t.Fatal(err)
		}
		if life == 0 {
			await("joins of runs that are not there", func() bool { return scheduleResults(t, d, "later")[schedule.Failed] >= 1 })
		} else {
			if err := c.PauseExport(ctx, "later", false); err != nil {
				t.Error(err)
			}
			await("joins of runs", func() bool { return scheduleResults(t, d, "later")[schedule.OK] >= 1 })
		}
		if err := c.PauseExport(ctx, "live", true); err != nil {
			t.Error(err)
		}
		if err := c.PauseExport(ctx, "manual", true); !errors.Is(err, api.ErrNotFound) || scheduleResults(t, d, "manual") != nil {
			t.Errorf("Got %v and %v for a join without a schedule, want ErrNotFound", err, scheduleResults(t, d, "manual"))
		}
		ordered, err := c.OrderExport(ctx, "live", api.OrderRequest{Time: time.Date(2026, 1, 1+life, 0, 0, 0, 0, time.UTC)})
		if err != nil {
			t.Error(err)
		}
		await("an order", func() bool {
			m, err := jobs.List(ctx, out)
			for _, r := range m {
				if r.Job == "live" && r.LogicalTime.Equal(ordered.From) {
					return true
				}
			}
			return err != nil
		})
		if err := errors.Join(c.PauseExport(ctx, "live", false), c.Close()); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		ok = scheduleResults(t, d, "live")[schedule.OK]
		if err := d.close(); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := jobs.List(t.Context(), out)
	if err != nil || int64(len(runs)) < ok+2+1+2 {
		t.Errorf("Got %d runs and %v, want %d of the schedule, 2 orders, a join of runs and what that joins", len(runs), err, ok)
	}
	seen := map[string]bool{}
	for i := range runs {
		r := &runs[i]
		at := fmt.Sprint(r.Job, r.LogicalTime)
		if v, err := jobs.Verify(t.Context(), filepath.Join(out, filepath.FromSlash(r.Dir))); err != nil || !v.OK() || seen[at] || r.Rows != 1 {
			t.Errorf("Got %+v, a second time %t: %v", r, seen[at], err)
		}
		seen[at] = true
	}
}
