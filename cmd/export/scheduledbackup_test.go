package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
)

// TestScheduledBackup: a backup with a schedule is listed, paused and ordered as a job is,
// with what is in its place; by hand its times are filled by the daemon alone.
func TestScheduledBackup(t *testing.T) {
	t.Parallel()
	file, _ := setup(t, "a")
	out := filepath.Join(t.TempDir(), "backups")
	addToFile(t, file, "backups:\n  nightly: {out: '"+out+"', schedule: {cron: \"45 3 * * *\"}, keep: {runs: 7}}\n")
	if stdout, stderr, status := export(t, "list", "-c", file); status != 0 || !strings.Contains(stdout, "never") || len(fields(t, stdout, "nightly")) != 4 {
		t.Errorf("before there is one: Got status %d, %s%s", status, stdout, stderr)
	}
	if _, stderr, status := export(t, "backup", "-c", file, out); status != 0 {
		t.Fatal(stderr)
	}
	c, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	source, err := config.OpenBackup(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	to, err := c.OpenTarget(out, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("not now")
	_, err = jobs.Backup(t.Context(), &jobs.BackupOptions{
		Source: source, Target: to, Name: "nightly", LogicalTime: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Confirm: func(context.Context) error { return refused },
	})
	if !errors.Is(err, refused) || !errors.Is(err, jobs.ErrResumable) {
		t.Fatalf("Got %v", err)
	}
	if err := errors.Join(to.Close(), source.Close()); err != nil {
		t.Fatal(err)
	}
	backfill := "backfill --from 2026-01-01T00:00:00Z --to 2026-01-04T00:00:00Z "
	scheduledCommands(t, file, "nightly", []commandStep{
		{"list -n 2", 0, "T03:45:00Z"},
		{"list", 0, "(cut off)"},
		{"list", 0, out + "/backup="},
		{"list", 0, out + "/_tmp/backup-"},
		{"pause nightly", 0, ""},
		{"history nightly", 0, "backup nightly has no history"},
		{"run --daemon nightly", 0, "order abc is accepted"},
		{backfill + "--daemon nightly", 0, "order abc is accepted"},
		{backfill + "nightly", cli.StatusUsage, "nightly is a backup"},
		{"run nightly", cli.StatusUsage, `has no job "nightly"; it has idle, views; nightly is a backup: export backup makes one, and run --daemon has the daemon make one`},
	})
	if stdout, _, _ := export(t, "list", "-c", file, "--out", filepath.Dir(out)); strings.Contains(stdout, "nightly") {
		t.Errorf("of another directory: Got %s", stdout)
	}
}

// TestScheduledGC: a garbage collection with a schedule is listed, paused and ordered as a
// job is; it has no past times.
func TestScheduledGC(t *testing.T) {
	t.Parallel()
	file, out := setup(t, "a")
	if _, stderr, status := export(t, "run", "-c", file, "--daemon", "gc"); status != cli.StatusUsage || !strings.Contains(stderr, "the file has no gc: {schedule: …} either") {
		t.Errorf("Got status %d, %s", status, stderr)
	}
	addToFile(t, file, "gc: {schedule: {cron: \"45 3 * * *\"}}\n")
	backfill := "backfill --from 2026-01-01T00:00:00Z --to 2026-01-04T00:00:00Z "
	scheduledCommands(t, file, "gc", []commandStep{
		{"list -n 2", 0, "gc runs next for"},
		{"list", 0, "publishes nothing"},
		{"list --json", 0, `{"job":"gc","state":"publishes nothing","rows":0,"files":0,"bytes":0,"latest":false,"directory":"","next":"`},
		{"pause gc", 0, ""},
		{"history gc", 0, "garbage collection gc has no history"},
		{"run --daemon gc", 0, "order abc is accepted"},
		{"run --daemon --time 2026-01-01T00:00:00Z gc", 0, "order abc is accepted"},
		{backfill + "--daemon gc", cli.StatusUsage, "gc is a garbage collection, which has no past times to fill"},
		{backfill + "gc", cli.StatusUsage, "which has no past times to fill"},
		{"run gc", cli.StatusUsage, "gc is a garbage collection: export gc makes one, and run --daemon has the daemon make one"},
		{"gc", 0, "0 removed"},
	})
	if stdout, _, _ := export(t, "list", "-c", file, "--out", out); strings.Contains(stdout, "gc") {
		t.Errorf("of another directory: Got %s", stdout)
	}
}
