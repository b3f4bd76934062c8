package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/cell"
	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/schedule"
	"sluice/serve/api"
	"sluice/serve/client"
)

// scheduledBackups are two backups of a store with one table, of which one keeps two.
const scheduledBackups = `
store: {dir: %[1]q}
serve: {listen: "127.0.0.1:0"}
tables: {t: {families: {f: {}}}}
backups:
  often:
    out: %[2]q
    schedule: {cron: "@every 1s", catch_up: none}
    keep: {runs: 2}
  ordered:
    out: %[3]q
    schedule: {cron: "@yearly", catch_up: none}
`

// TestDaemonRunsScheduledBackups: backups are made by their schedules and by order, once
// for a time, over a restart; older ones go, and they are reported as jobs are. What they
// hold is verified, and restored.
func TestDaemonRunsScheduledBackups(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	often, ordered := filepath.Join(dir, "often"), filepath.Join(dir, "ordered")
	cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, scheduledBackups, filepath.Join(dir, "data"), often, ordered), nil)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ok := int64(0)
	for life := range 2 {
		d, err := openDaemon(t.Context(), cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		m := &cell.Mutation{Table: "t", Row: fmt.Appendf(nil, "row %d", life)}
		m.Put("f", []byte("q"), cell.Latest, []byte("v"))
		if _, err := d.engine.MutateRow(ctx, nil, m); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- d.run(ctx) }()
		await := func(what string, holds func() bool) {
			t.Helper()
			awaitExports(ctx, t, d, what, holds)
		}
		await("scheduled backups", func() bool { return scheduleResults(t, d, "often")[schedule.OK] >= ok+3 })
		c, err := client.DialDir(ctx, cfg.Store.Dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.OrderExport(ctx, "ordered", api.OrderRequest{Time: at}); err != nil {
			t.Error(err)
		}
		what := []string{schedule.OK, schedule.Published}[life] // in the second life it is there
		await("an order", func() bool {
			for _, s := range d.exports.status() {
				if s.Name == "ordered" && s.Schedule.Ordered[schedule.Manual][what] == 1 {
					return true
				}
			}
			return false
		})
		if err := errors.Join(c.PauseExport(ctx, "often", true), c.PauseExport(ctx, "often", false), c.Close()); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		ok = scheduleResults(t, d, "often")[schedule.OK]
		for _, s := range newPublished(cfg, d.log).status() { // anew
			if s.Runs["ok"] == 0 || s.Bytes == 0 || s.LastSuccess.IsZero() {
				t.Errorf("Got %+v", s)
			}
		}
		if err := d.close(); err != nil {
			t.Fatal(err)
		}
	}
	for out, most := range map[string]int{often: 2, ordered: 1} {
		to, err := cfg.OpenTarget(out, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		all, err := jobs.ListBackups(t.Context(), to, "b")
		if err := errors.Join(err, to.Close()); err != nil || len(all) < 1 || len(all) > most || !all[0].Latest {
			t.Errorf("Got %d backups in %s, %v", len(all), out, err)
		}
		for i := range all {
			if r, err := jobs.VerifyBackup(t.Context(), filepath.Join(out, all[i].Dir)); err != nil || !r.OK() {
				t.Errorf("Got %+v, %v", r, err)
			}
		}
	}
	to, err := cfg.OpenTarget(often, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	restored := filepath.Join(dir, "restored")
	if _, err := jobs.Restore(t.Context(), &jobs.RestoreOptions{
		Backup: to, Dir: restored, Open: func(dir string) (jobs.RestoredStore, error) { return config.OpenRestored(dir, nil, nil) },
	}); err != nil {
		t.Fatal(err)
	}
	e, err := config.OpenEngine(t.Context(), config.ForDirectory(restored), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if tables, err := e.Tables(t.Context()); err != nil || !strings.Contains(strings.Join(tables, " "), "t") {
		t.Errorf("Got tables %v, %v", tables, err)
	}
}
