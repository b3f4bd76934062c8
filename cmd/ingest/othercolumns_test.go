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

	"sluice/config"
	"sluice/jobs/history"
	"sluice/jobs/schedule"
	"sluice/serve/api"
	"sluice/serve/client"
)

// TestDaemonRefusesOtherColumns: a run that schema_changes refuses has failed at once, with all
// its retries: no attempt ends better before somebody changes the file.
func TestDaemonRefusesOtherColumns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for life, columns := range []string{"{name: key, from: $row, type: string}", "{name: key, from: $row, type: bytes}"} {
		cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, `
store: {dir: %q}
serve: {listen: "127.0.0.1:0"}
tables: {t: {families: {f: {}}}}
jobs:
  j:
    table: t
    columns: [%s]
    out: %q
    schema_changes: compatible
    schedule: {cron: "@yearly", catch_up: none, retries: 5, backoff: 1h}
`, filepath.Join(dir, "data"), columns, filepath.Join(dir, "out")), nil)
		if err != nil {
			t.Fatal(err)
		}
		d, err := openDaemon(t.Context(), cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		done := make(chan error, 1)
		go func() { done <- d.run(ctx) }()
		c, err := client.DialDir(ctx, cfg.Store.Dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.OrderExport(ctx, "j", api.OrderRequest{Time: at.AddDate(0, 0, life)}); err != nil {
			t.Error(err)
		}
		result := []string{schedule.OK, schedule.Failed}[life]
		awaitExports(ctx, t, d, result, func() bool { return d.exports.status()[0].Schedule.Ordered[schedule.Manual][result] == 1 })
		entries, err := history.Entries(ctx, c, "j", 1)
		if err != nil || len(entries) != 1 || entries[0].Attempts != 1 || life == 1 && !strings.Contains(entries[0].Error, "column key was string, not nullable, and is bytes, not nullable (it is of another type)") {
			t.Errorf("Got %+v, %v", entries, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		if err := errors.Join(<-done, d.close()); err != nil {
			t.Error(err)
		}
	}
}
