package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/cell"
	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/history"
	"sluice/jobs/schedule"
	"sluice/jobs/target/targettest"
	"sluice/serve"
	"sluice/serve/api"
	"sluice/store"
)

// export runs the program and returns what it printed and its exit status.
func export(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	return exportContext(t.Context(), t, args...)
}

func exportContext(ctx context.Context, t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs strings.Builder
	p := &cli.Program{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, LookupEnv: func(string) (string, bool) { return "", false }}
	status = cli.Run(ctx, p, "export", "", new(commands), args)
	return out.String(), errs.String(), status
}

const tablesAndJobs = `
tables:
  views: {families: {e: {}}, split: {keys: [c]}}
jobs:
  views:
    table: views
    formats: [parquet, arrow]
    columns:
      - {name: key, from: $row, type: string}
      - {name: n, from: "e:n", type: int64}
    out: OUT
    keep: {runs: 1}
    schedule: {cron: "30 2 * * *"}
  idle:
    table: views
    columns: [{name: key, from: $row, type: string}]
    out: OUT
joins:
  pairs:
    left: {job: views}
    right: {job: idle}
    on: [{left: key}]
    out: OUT
`

// setup writes a configuration and a store with rows, and returns the file and the
// directory of exports.
func setup(t *testing.T, rows ...string) (file, out string) {
	t.Helper()
	dir := t.TempDir()
	file, out = filepath.Join(dir, "sluice.yaml"), filepath.Join(dir, "out")
	content := "store: {dir: '" + filepath.Join(dir, "data") + "', cache: 1MiB, mem_table: 1MiB, min_free: 0}\n" + strings.ReplaceAll(tablesAndJobs, "OUT", "'"+out+"'")
	withTables(t, file, content, func(e config.Engine) {
		for _, row := range rows {
			m := cell.Mutation{Table: "views", Row: []byte(row)}
			m.Put("e", []byte("n"), 1, []byte("7"))
			if _, err := e.MutateRow(t.Context(), nil, &m); err != nil {
				t.Fatal(err)
			}
		}
	})
	return file, out
}

// withTables writes a configuration, makes its tables, and calls fill, which may be nil,
// with their store.
func withTables(t *testing.T, file, content string, fill func(e config.Engine)) *config.Config {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	withEngine(t, c, func(e config.Engine) {
		if _, err := c.EnsureTables(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if fill != nil {
			fill(e)
		}
	})
	return c
}

// addToFile adds text to a file.
func addToFile(t *testing.T, name, text string) {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, append(content, text...), 0o666); err != nil {
		t.Fatal(err)
	}
}

func withEngine(t *testing.T, c *config.Config, do func(e config.Engine)) {
	t.Helper()
	e, err := config.OpenEngine(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	do(e)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// fields are the words of the line that begins with prefix.
func fields(t *testing.T, text, prefix string) []string {
	t.Helper()
	for l := range strings.Lines(text) {
		if strings.HasPrefix(l, prefix) {
			return strings.Fields(l)
		}
	}
	t.Fatalf("no line begins with %q in:\n%s", prefix, text)
	return nil
}

// TestRunListVerify is what a user does first.
func TestRunListVerify(t *testing.T) {
	t.Parallel()
	file, out := setup(t, "a", "b", "c", "d")
	stdout, _, status := export(t, "list", "-c", file)
	if f := fields(t, stdout, "views"); status != 0 || f[2] != "never" {
		t.Errorf("Got status %d and %s", status, stdout)
	}
	stdout, stderr, status := export(t, "plan", "-c", file, "views")
	if status != 0 || !strings.Contains(stdout, "counted 4 rows") {
		t.Errorf("plan: Got status %d, %s%s", status, stdout, stderr)
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("plan wrote something: %v", err)
	}
	stdout, stderr, status = export(t, "run", "-c", file, "--time", "2026-01-02T03:04:05Z", "views")
	if status != 0 || !strings.Contains(stdout, "arrow    4 rows  2 files") || stderr != "" {
		t.Errorf("run: Got status %d, %s%s", status, stdout, stderr)
	}
	_, stderr, status = export(t, "run", "-c", file, "--time", "2026-01-02T03:04:05Z", "views")
	if status != cli.StatusFailed || !strings.Contains(stderr, "the run for 2026-01-02T03:04:05Z was published before") {
		t.Errorf("the same time: Got status %d, %s", status, stderr)
	}
	var m *jobs.Manifest
	stdout, stderr, status = export(t, "run", "-c", file, "--json", "--time", "2026-01-03T00:00:00Z", "views")
	if err := json.Unmarshal([]byte(stdout), &m); status != 0 || err != nil || len(m.Files) != 4 {
		t.Errorf("--json: Got status %d, %v, %s%s", status, err, stdout, stderr)
	}
	stdout, _, status = export(t, "list", "-c", file)
	if f := fields(t, stdout, "views"); status != 0 || f[2] != m.RunID || f[3] != "2026-01-03T00:00:00Z" || f[4] != "4" || f[8] != "yes" {
		t.Errorf("list: Got status %d, %q", status, f)
	}
	stdout, _, status = export(t, "list", "-c", file, "--json")
	states := map[string]int{}
	for l := range strings.Lines(stdout) {
		var line listed
		if err := json.Unmarshal([]byte(l), &line); err != nil {
			t.Errorf("list --json: %v in %s", err, l)
		}
		states[line.Job+" "+line.State]++
	}
	if status != 0 || states["views published"] != 2 || states["idle never"] != 1 || states["pairs never"] != 1 {
		t.Errorf("list --json: Got status %d, %v", status, states)
	}
	stdout, _, status = export(t, "verify", filepath.Join(out, "views"))
	if status != 0 || !strings.Contains(stdout, "run "+m.RunID+" of views: complete") {
		t.Errorf("verify: Got status %d, %s", status, stdout)
	}
	stdout, _, status = export(t, "sql", "--for", "duckdb", filepath.Join(out, "views"))
	if status != 0 || !strings.Contains(stdout, "read_parquet") || strings.Contains(stdout, "polars") {
		t.Errorf("sql: Got status %d, %s", status, stdout)
	}
	stdout, _, status = export(t, "join", "-c", file, "pairs")
	if status != 0 || !strings.Contains(stdout, "parquet  4 rows  1 files") {
		t.Errorf("join: Got status %d, %s", status, stdout)
	}
	// keep: {runs: 1}
	stdout, _, status = export(t, "gc", "-c", file, "--dry-run", "--json")
	var g collected
	if err := json.Unmarshal([]byte(stdout), &g); err != nil || status != 0 || g.What != "would remove" || g.Job != "views" || g.Bytes == 0 {
		t.Errorf("gc --dry-run: Got status %d, %v, %s", status, err, stdout)
	}
	stdout, _, status = export(t, "gc", "-c", file)
	if status != 0 || !strings.Contains(stdout, "1 removed") {
		t.Errorf("gc: Got status %d, %s", status, stdout)
	}
	if _, err := os.Stat(g.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old run is still there: %v", err)
	}
	damaged := filepath.Join(out, filepath.FromSlash("views/run=20260103T000000Z-"+m.RunID), m.Files[0].Path)
	if err := os.WriteFile(damaged, []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, status = export(t, "verify", "--json", filepath.Join(out, "views"))
	var v verified
	if err := json.Unmarshal([]byte(stdout), &v); err != nil || status != cli.StatusFailed || v.OK || len(v.Files) != 4 || len(v.Files[0].Problems) == 0 || len(v.Files[1].Problems) != 0 {
		t.Errorf("verify of a damaged file: Got status %d, %v, %s%s", status, err, stdout, stderr)
	}
}

// TestPlanJSON is a plan by region.
func TestPlanJSON(t *testing.T) {
	t.Parallel()
	file, _ := setup(t, "a", "b", "d")
	for sample, want := range map[string]bool{"1": true, "100": false} {
		stdout, stderr, status := export(t, "plan", "-c", file, "--sample", sample, "idle")
		if status != 0 || strings.Contains(stdout, "in memory only is not in the estimates") != want {
			t.Errorf("a sample of %s: Got status %d, %s%s, want a word on what is not counted: %t", sample, status, stdout, stderr, want)
		}
	}
	stdout, stderr, status := export(t, "plan", "-c", file, "--json", "--sample", "1", "idle")
	var p planned
	if err := json.Unmarshal([]byte(stdout), &p); err != nil || status != 0 || len(p.Regions) != 2 || p.Regions[0].Stop != "c" || len(p.Formats) != 1 || p.Formats[0].Format != "parquet" || !strings.Contains(p.Note, "in memory only") {
		t.Errorf("Got status %d, %v, %s%s", status, err, stdout, stderr)
	}
}

// TestErrors: each mistake has its exit status and says what to do.
func TestErrors(t *testing.T) {
	t.Parallel()
	file, out := setup(t, "a")
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	if err := os.WriteFile(broken, []byte("jobs: {v: {tabel: x}}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	wrong := filepath.Join(t.TempDir(), "wrong.yaml")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(wrong, []byte(strings.Replace(string(content), "right: {job: idle}", "right: {job: idel}", 1)), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"run"}, cli.StatusUsage, "--config=FILE; see export run --help"},
		{[]string{"walk"}, cli.StatusUsage, "walk; see export --help"},
		{[]string{"copy-table", "-c", file, "views", "default:views"}, cli.StatusUsage, "views into itself"},
		{[]string{"gc", "-c", file, "--out", out + "-mistyped"}, cli.StatusFailed, "there is no directory " + out + "-mistyped"},
		{[]string{"list", "-c", file, "--out", out + "-mistyped"}, cli.StatusFailed, "there is no directory " + out + "-mistyped"},
		{[]string{"history", "-c", file, "idle"}, 0, "job idle has no history: nothing of it has ended"},
		{[]string{"run", "-c", broken, "v"}, cli.StatusConfig, "tabel"},
		{[]string{"join", "-c", wrong, "pairs"}, cli.StatusConfig, `there is no job "idel"`},
		{[]string{"run", "-c", file, "vews"}, cli.StatusUsage, `has no job "vews"; it has idle, views`},
		{[]string{"join", "-c", file, "views"}, cli.StatusUsage, `has no join "views"; it has pairs; views is a job: export run makes it`},
		{[]string{"plan", "-c", file, "nothing"}, cli.StatusUsage, `has no job "nothing"`},
		{[]string{"plan", "-c", file, "--sample", "0", "views"}, cli.StatusUsage, "--sample is 0"},
		{[]string{"history", "-c", file, "-n", "0", "views"}, cli.StatusUsage, "--limit is 0"},
		{[]string{"history", "-c", file, "nothing"}, cli.StatusUsage, `has no job "nothing"`},
		{[]string{"pause", "-c", file, "idle"}, cli.StatusUsage, "job idle has no schedule"},
		{[]string{"pause", "-c", file, "views"}, cli.StatusFailed, "schedules and orders are the daemon's, and none has"},
		{[]string{"resume", "-c", file, "views"}, cli.StatusFailed, "schedules and orders are the daemon's"},
		{[]string{"cancel", "-c", file, "views", "x"}, cli.StatusFailed, "schedules and orders are the daemon's"},
		{[]string{"run", "-c", file, "--daemon", "views"}, cli.StatusFailed, "schedules and orders are the daemon's"},
		{[]string{"run", "-c", file, "--daemon", "idle"}, cli.StatusUsage, "job idle has no schedule"},
		{[]string{"run", "-c", file, "--daemon", "--full", "views"}, cli.StatusUsage, "--daemon goes with --time and --wait alone"},
		{[]string{"run", "-c", file, "--daemon", "--time", "2999-01-01T00:00:00Z", "views"}, cli.StatusUsage, "a run for 2999-01-01"},
		{[]string{"backfill", "-c", file, "--daemon", "--from", "2999-01-01T00:00:00Z", "views"}, cli.StatusUsage, "names no time"},
		{[]string{"backfill", "-c", file, "--daemon", "--dry-run", "--from", "2026-01-01T00:00:00Z", "views"}, cli.StatusUsage, "--daemon goes with --from, --to and --wait alone"},
		{[]string{"run", "-c", file, "--resume", "views"}, cli.StatusFailed, "no run in " + out + " was cut off"},
		{[]string{"verify", out}, cli.StatusFailed, "no such file"},
		{[]string{"sql", out}, cli.StatusFailed, "no such file"},
		{[]string{"run", "-c", file, "--time", "yesterday", "views"}, cli.StatusUsage, "yesterday"},
		{[]string{"run", "-c", file, "--time", "2999-01-01T00:00:00Z", "views"}, cli.StatusUsage, "2999-01-01T00:00:00Z is to come"},
		{[]string{"join", "-c", file, "--time", "2999-01-01T00:00:00Z", "pairs"}, cli.StatusUsage, "2999-01-01T00:00:00Z is to come"},
		{[]string{"run", "-c", file, "--time", "0000-01-01T00:00:00+01:00", "views"}, cli.StatusUsage, "--time: a time of the year -1 in UTC"},
	} {
		if _, stderr, status := export(t, test.args...); status != test.status || !strings.Contains(stderr, test.want) {
			t.Errorf("%v: Got status %d and %s, want %d and %q", test.args, status, stderr, test.status, test.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, stderr, status := exportContext(ctx, t, "run", "-c", file, "views"); status != cli.StatusInterrupted || stderr != "export: interrupted\n" {
		t.Errorf("cancelled: Got status %d, %s", status, stderr)
	}
}

// TestHistory prints what a schedule has stored.
func TestHistory(t *testing.T) {
	t.Parallel()
	file, _ := setup(t)
	stdout, _, status := export(t, "history", "-c", file, "views")
	if status != 0 || strings.Count(stdout, "\n") != 1 {
		t.Errorf("Got status %d, %s", status, stdout)
	}
	stdout, _, status = export(t, "history", "-c", file, "--json", "views")
	if status != 0 || stdout != "" {
		t.Errorf("--json: Got status %d, %s", status, stdout)
	}
	if _, stderr, status := export(t, "join", "-c", file, "pairs"); status != 0 {
		t.Fatalf("Got status %d, %s", status, stderr)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	renamed := filepath.Join(filepath.Dir(file), "renamed.yaml")
	if err := os.WriteFile(renamed, bytes.Replace(content, []byte("  pairs:"), []byte("  others:"), 1), 0o666); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, status := export(t, "history", "-c", renamed, "pairs")
	if status != 0 || strings.Count(stdout, "\n") != 2 {
		t.Errorf("of a join that the file does not have any more: Got status %d, %s%s", status, stdout, stderr)
	}
}

// daemon serves the store of a configuration file, as ingest run does, with options
// that change may alter, and returns what the requests to pause jobs were.
func daemon(t *testing.T, file string, change ...func(o *serve.Options)) (paused func() map[string]bool) {
	t.Helper()
	c, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	e, err := config.OpenEngine(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan map[string]bool, 1)
	asked <- map[string]bool{}
	o := &serve.Options{Engine: e, Dir: c.Store.Dir, PauseExport: func(_ context.Context, job string, paused bool) error {
		m := <-asked
		m[job] = paused
		asked <- m
		return nil
	}, RecordExport: func(ctx context.Context, job string, run api.ExportRun) error {
		_, err := history.Record(ctx, e, job, schedule.Entry(run))
		return err
	}}
	for _, f := range change {
		f(o)
	}
	s, err := serve.New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	remove, err := serve.WriteEndpoint(c.Store.Dir, s.Endpoint(l.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, remove(), e.Close()); err != nil {
			t.Error(err)
		}
	})
	return func() map[string]bool {
		m := <-asked
		asked <- m
		return m
	}
}

// TestWithDaemon: the same commands while a daemon has the directory, and those that
// need one.
func TestWithDaemon(t *testing.T) {
	t.Parallel()
	file, out := setup(t, "a", "b")
	paused := daemon(t, file)
	if stdout, stderr, status := export(t, "run", "-c", file, "views"); status != 0 || !strings.Contains(stdout, "2 rows") {
		t.Errorf("run: Got status %d, %s%s", status, stdout, stderr)
	}
	if stdout, stderr, status := export(t, "join", "-c", file, "--quiet", "pairs"); status != 0 || !strings.Contains(stdout, "2 rows") {
		t.Errorf("join: Got status %d, %s%s", status, stdout, stderr)
	}
	if _, stderr, status := export(t, "verify", filepath.Join(out, "pairs")); status != 0 {
		t.Errorf("verify: Got status %d, %s", status, stderr)
	}
	for command, want := range map[string]bool{"pause": true, "resume": false} {
		_, stderr, status := export(t, command, "-c", file, "views")
		if got, asked := paused()["views"]; status != 0 || !asked || got != want {
			t.Errorf("%s: Got status %d, %s; the daemon heard %v", command, status, stderr, paused())
		}
	}
}

// TestResume goes on with a run that was cut off, with its checkpoint and without.
func TestResume(t *testing.T) {
	t.Parallel()
	for _, gone := range []bool{false, true} {
		file, out := setup(t, "a", "b", "c", "d")
		c, err := config.Load(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		cutOff(t, c, at)
		withEngine(t, c, func(e config.Engine) {
			m := cell.Mutation{Table: "views", Row: []byte("e")}
			m.Put("e", []byte("n"), 1, []byte("9"))
			if _, err := e.MutateRow(t.Context(), nil, &m); err != nil {
				t.Fatal(err)
			}
		})
		stdout, _, _ := export(t, "list", "-c", file)
		if !strings.Contains(stdout, "(cut off)") || !strings.Contains(stdout, "\nviews  views  ") {
			t.Errorf("list does not show the run and its table: %s", stdout)
		}
		if gone {
			if err := os.RemoveAll(filepath.Join(c.Store.Dir, "checkpoints")); err != nil {
				t.Fatal(err)
			}
		}
		if _, stderr, status := export(t, "run", "-c", file, "--resume", "--time", "2026-02-02T00:00:00Z", "views"); status == 0 || !strings.Contains(stderr, "for 2026-02-02T00:00:00Z") {
			t.Errorf("another time: Got status %d, %s", status, stderr)
		}
		stdout, stderr, status := export(t, "run", "-c", file, "--resume", "views")
		want := "4 rows"
		if gone {
			want = "5 rows"
		}
		if status != 0 || !strings.Contains(stdout, want) || strings.Contains(stderr, "begins anew") != gone {
			t.Errorf("checkpoint gone %t: Got status %d, %s%s", gone, status, stdout, stderr)
		}
		if _, stderr, status := export(t, "verify", filepath.Join(out, "views")); status != 0 {
			t.Errorf("verify: Got status %d, %s", status, stderr)
		}
		if entries, _ := os.ReadDir(filepath.Join(c.Store.Dir, "checkpoints")); len(entries) != 0 {
			t.Errorf("the checkpoint is still there: %v", entries)
		}
		if _, err := os.Stat(filepath.Join(out, "_tmp")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("something is left in _tmp: %v", err)
		}
	}
}

// TestBucket publishes in a bucket of a service in the process.
func TestBucket(t *testing.T) {
	t.Parallel()
	file, out := setup(t, "a", "b", "c")
	s3 := targettest.NewFakeS3(t)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(content), "'"+out+"'", "s3://bucket/exports")
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, stderr, status := export(t, "run", "-c", file, "views"); status != cli.StatusConfig || !strings.Contains(stderr, "s3.endpoint") {
		t.Errorf("without a service: Got status %d, %s", status, stderr)
	}
	text += "s3: {endpoint: '" + s3.URL() + "', access_key: access, secret_key: hidden}\n"
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, status := export(t, "run", "-c", file, "views")
	if status != 0 || !strings.Contains(stdout, "arrow    3 rows") || !strings.Contains(stdout, "s3://bucket/exports/views") {
		t.Fatalf("run: Got status %d, %s%s", status, stdout, stderr)
	}
	if stdout, stderr, status = export(t, "join", "-c", file, "pairs"); status != 0 {
		t.Errorf("join: Got status %d, %s%s", status, stdout, stderr)
	}
	stdout, stderr, status = export(t, "list", "-c", file)
	if f := fields(t, stdout, "views"); status != 0 || f[4] != "3" || f[8] != "yes" || !strings.HasPrefix(f[9], "s3://bucket/exports/views/run=") {
		t.Errorf("list: Got status %d, %s%s", status, stdout, stderr)
	}
	for _, at := range []string{"s3://bucket/exports/views", fields(t, stdout, "views")[9]} {
		stdout, stderr, status := export(t, "sql", "-c", file, "--for", "polars", at)
		if status != 0 || !strings.Contains(stdout, `"s3://bucket/exports/views/run=`) || !strings.Contains(stdout, s3.URL()) || strings.Contains(stdout, "hidden") {
			t.Errorf("sql %s: Got status %d, %s%s", at, status, stdout, stderr)
		}
	}
	if _, stderr, status = export(t, "sql", "s3://bucket/exports/views"); status != cli.StatusUsage || !strings.Contains(stderr, "-c FILE") {
		t.Errorf("sql without a file: Got status %d, %s", status, stderr)
	}
	if stdout, stderr, status = export(t, "verify", "-c", file, "s3://bucket/exports/views"); status != 0 || !strings.Contains(stdout, "complete and as the manifest says") {
		t.Errorf("verify: Got status %d, %s%s", status, stdout, stderr)
	}
	if _, stderr, status = export(t, "verify", "s3://bucket/exports/views"); status != cli.StatusUsage || !strings.Contains(stderr, "-c FILE") {
		t.Errorf("verify without a file: Got status %d, %s", status, stderr)
	}
	if _, stderr, status = export(t, "run", "-c", file, "--resume", "views"); status == 0 || !strings.Contains(stderr, "was cut off") {
		t.Errorf("resume: Got status %d, %s", status, stderr)
	}
	c, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	cutOff(t, c, time.Now().Add(time.Hour).UTC().Truncate(time.Second))
	stdout, stderr, status = export(t, "list", "-c", file)
	if status != 0 || !strings.Contains(stdout, "(cut off)") {
		t.Errorf("list of a run that was cut off: Got status %d, %s%s", status, stdout, stderr)
	}
	if stdout, stderr, status = export(t, "run", "-c", file, "--resume", "views"); status != 0 || !strings.Contains(stdout, "arrow    3 rows") {
		t.Errorf("resume: Got status %d, %s%s", status, stdout, stderr)
	}
	cutOff(t, c, time.Now().Add(2*time.Hour).UTC().Truncate(time.Second))
	for _, dry := range []string{"--dry-run=true", "--dry-run=false"} {
		stdout, stderr, status = export(t, "gc", "-c", file, dry)
		if status != 0 || !strings.Contains(stdout, "never published, and nobody is writing it") || !strings.Contains(stdout, "beyond the newest 1 runs") || !strings.Contains(stdout, "\n2 ") {
			t.Errorf("gc %s: Got status %d, %s%s", dry, status, stdout, stderr)
		}
	}
	if stdout, stderr, status = export(t, "gc", "-c", file); status != 0 || !strings.HasPrefix(stdout, "0 removed") || s3.Uploads() != 0 {
		t.Errorf("the next gc: Got status %d, %s%s, %d uploads", status, stdout, stderr, s3.Uploads())
	}
}

// TestCollectAwaited: what a run has finished that waits for its next attempt in the daemon
// stays, and goes when that has given it up.
func TestCollectAwaited(t *testing.T) {
	t.Parallel()
	file, _ := setup(t, "a", "b", "d")
	c, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 2, 30, 0, 0, time.UTC)
	cutOff(t, c, at)
	daemon(t, file, func(o *serve.Options) {
		h, err := history.New(o.Engine)
		if err != nil {
			t.Fatal(err)
		}
		save := func(st schedule.State) error { return h.Save(t.Context(), "views", st, nil) }
		if err := save(schedule.State{Pending: []schedule.Run{{Logical: at, Cause: schedule.Scheduled}}}); err != nil {
			t.Fatal(err)
		}
		o.PauseExport = func(context.Context, string, bool) error { return save(schedule.State{}) }
	})
	if stdout, stderr, status := export(t, "gc", "-c", file); status != 0 || !strings.HasPrefix(stdout, "kept ") || !strings.Contains(stdout, "its schedule has begun it") {
		t.Errorf("Got status %d, %s%s", status, stdout, stderr)
	}
	if _, stderr, status := export(t, "pause", "-c", file, "views"); status != 0 {
		t.Fatalf("Got status %d, %s", status, stderr)
	}
	if stdout, stderr, status := export(t, "gc", "-c", file); status != 0 || !strings.HasPrefix(stdout, "removed ") {
		t.Errorf("given up: Got status %d, %s%s", status, stdout, stderr)
	}
}

// TestCollectUnanswered: a daemon that is there and does not say what its schedules have begun
// has nothing removed that it may go on with.
func TestCollectUnanswered(t *testing.T) {
	t.Parallel()
	file, out := setup(t, "a", "b", "d")
	c, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	cutOff(t, c, time.Date(2026, 1, 2, 2, 30, 0, 0, time.UTC))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close() // as one that is being stopped, or has no memory, does
		}
	}()
	endpoint := fmt.Sprintf(`{"address": %q, "instance": "i", "pid": 1}`, l.Addr())
	if err := os.WriteFile(filepath.Join(c.Store.Dir, api.EndpointFile), []byte(endpoint), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, status := export(t, "gc", "-c", file)
	if status != cli.StatusFailed || strings.Contains(stdout, "removed  ") || !strings.Contains(stderr, "runs that schedules go on with: the daemon at") {
		t.Errorf("Got status %d, %s%s", status, stdout, stderr)
	}
	if left, err := os.ReadDir(filepath.Join(out, "_tmp")); err != nil || len(left) != 1 {
		t.Errorf("Got %v, %v left, want what the run has left", left, err)
	}
}

// cutOff begins a run that fails after its first region, as when a disk hangs.
func cutOff(t *testing.T, c *config.Config, at time.Time) {
	t.Helper()
	in, err := config.OpenLastingInstant(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec := c.Jobs["views"]
	job, err := jobs.Compile("views", &spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	holder, id, err := jobs.HolderOf(t.Context(), job, in.Engine)
	if err != nil {
		t.Fatal(err)
	}
	tg, err := c.OpenTarget(spec.Out, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tg.Close()
	_, err = jobs.Run(t.Context(), &jobs.RunOptions{
		Holder: holder, StoreID: id, Full: true, Job: job, Source: &failing{Instant: in}, Target: tg, Checkpoint: in.Checkpoint, LogicalTime: at, Parallelism: 1, Version: cli.Version().Version,
	})
	if !errors.Is(err, jobs.ErrResumable) {
		t.Fatalf("Got %v, want ErrResumable", err)
	}
	in.Keep()
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
}

// failing is an instant whose second region cannot be read.
type failing struct{ *config.Instant }

func (f *failing) Scan(ctx context.Context, s *store.Scan) store.Scanner {
	if s.Table == "views" && string(s.Start) == "c" {
		return store.FailedScanner(store.ErrTransient)
	}
	return f.Instant.Scan(ctx, s)
}

// TestResumePublished: of a run that was killed between its publication and its
// _latest.json, --resume does what is left.
func TestResumePublished(t *testing.T) {
	t.Parallel()
	file, out := setup(t, "a", "b", "d")
	for command, name := range map[string]string{"run": "views", "join": "pairs"} {
		stdout, stderr, status := export(t, command, "-c", file, "--json", name)
		if status != 0 {
			t.Fatalf("%s: Got status %d, %s", command, status, stderr)
		}
		latest := filepath.Join(out, name, jobs.LatestName)
		want, err := os.ReadFile(latest)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(latest); err != nil {
			t.Fatal(err)
		}
		again, stderr, status := export(t, command, "-c", file, "--json", "--resume", name)
		if status != 0 || again != stdout || !strings.Contains(stderr, "published before it was cut off") {
			t.Errorf("%s: Got status %d, %s%s", command, status, again, stderr)
		}
		if got, err := os.ReadFile(latest); err != nil || string(got) != string(want) {
			t.Errorf("%s: Got %s, %v, want %s", command, got, err, want)
		}
		if _, stderr, status = export(t, command, "-c", file, "--resume", name); status != cli.StatusFailed || !strings.Contains(stderr, "no run in "+out+" was cut off") {
			t.Errorf("%s: again: Got status %d, %s", command, status, stderr)
		}
	}
}

// TestVersionFlag: --version prints what the command version does.
func TestVersionFlag(t *testing.T) {
	t.Parallel()
	want, _, _ := export(t, "version")
	for _, args := range [][]string{{"--version"}, {"run", "--version"}} {
		if stdout, stderr, status := export(t, args...); status != 0 || stdout != want || stderr != "" || !strings.HasPrefix(want, "sluice ") {
			t.Errorf("%v: Got status %d, %s%s, want %s", args, status, stdout, stderr, want)
		}
	}
}
