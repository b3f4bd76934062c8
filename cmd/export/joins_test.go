package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/internal/fenced"
	"sluice/jobs"
	"sluice/jobs/parquetfile"
	"sluice/jobs/schedule"
	"sluice/serve"
	"sluice/serve/api"
)

// load makes a table of a CSV whose first column is the row key.
func load(t *testing.T, e config.Engine, table, text string) {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows[1:] {
		m := cell.Mutation{Table: table, Row: []byte(row[0])}
		for i := 1; i < len(row); i++ {
			m.Put("e", []byte(rows[0][i]), 1, []byte(row[i]))
		}
		if _, err := e.MutateRow(t.Context(), nil, &m); err != nil {
			t.Fatal(err)
		}
	}
}

// readCSV returns the rows of a run, whose columns are text, as CSV.
func readCSV(t *testing.T, dir string) string {
	t.Helper()
	m, dir, err := jobs.ReadRun(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	w := csv.NewWriter(&out)
	var header []string
	for _, c := range m.Columns {
		header = append(header, c.Name)
	}
	if err := w.Write(header); err != nil {
		t.Fatal(err)
	}
	for _, f := range m.Files {
		data, err := os.ReadFile(filepath.Join(dir, f.Path))
		if err != nil {
			t.Fatal(err)
		}
		r, err := parquetfile.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for b, err := r.Next(); err != io.EOF; b, err = r.Next() {
			if err != nil {
				t.Fatal(err)
			}
			for i := range b.Rows() {
				var line []string
				for c := range header { // all are text; a null is empty
					line = append(line, string(b.Vector(c).Bytes(i)))
				}
				if err := w.Write(line); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	w.Flush()
	return out.String()
}

// TestJoinCookBook runs the recipes of docs/joins.md and compares what they give.
func TestJoinCookBook(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	all := fenced.Blocks(t, "../../docs/joins.md")
	tables := map[string]string{}
	text := "store: {dir: '" + filepath.Join(dir, "data") + "', cache: 1MiB, mem_table: 1MiB, min_free: 0}\n" +
		"tables: {views: {families: {e: {}}}, users: {families: {e: {}}}}\n"
	joins, name := "", "views_of_users"
	recipes := map[string]string{} // by name: the CSV
	for _, b := range all {
		switch {
		case b.Heading == "A join" && b.Language == "yaml": // a whole file, whose last part are joins
			text += b.Text
		case b.Heading == "Recipes" && b.Language == "csv":
			tables[strings.TrimSuffix(b.Before, ":")] = b.Text
		case b.Heading == "With other programs": // is for the integration suite
		case b.Language == "yaml":
			name = strings.ToLower(strings.ReplaceAll(b.Heading, " ", "-"))
			joins += "  " + name + ":\n    out: ./sluice-export\n"
			for l := range strings.Lines(b.Text) {
				joins += "    " + l
			}
		case b.Language == "csv":
			recipes[name] = b.Text
		}
	}
	if len(recipes) < 7 || len(tables) != 2 {
		t.Fatalf("Got %d recipes and %d tables in the document", len(recipes), len(tables))
	}
	out := filepath.Join(dir, "out")
	file := filepath.Join(dir, "sluice.yaml")
	text = strings.ReplaceAll(text+joins, "./sluice-export", out)
	c := withTables(t, file, text, func(e config.Engine) {
		for table, rows := range tables {
			load(t, e, table, rows)
		}
	})
	for _, job := range c.JobNames() {
		if _, stderr, status := export(t, "run", "-c", file, job); status != 0 {
			t.Fatalf("run %s: Got status %d, %s", job, status, stderr)
		}
		if d := cmp.Diff(tables[job], readCSV(t, filepath.Join(out, job))); d != "" {
			t.Errorf("table %s: %s", job, d)
		}
	}
	for _, join := range c.JoinNames() {
		if _, stderr, status := export(t, "join", "-c", file, join); status != 0 {
			t.Errorf("join %s: Got status %d, %s", join, status, stderr)
			continue
		}
		if want, ok := recipes[join]; ok {
			if d := cmp.Diff(want, readCSV(t, filepath.Join(out, join))); d != "" {
				t.Errorf("%s: %s", join, d)
			}
		}
		if stdout, stderr, status := export(t, "verify", filepath.Join(out, join)); status != cli.Status(nil) {
			t.Errorf("verify %s: Got %s%s", join, stdout, stderr)
		}
	}
}

// TestJoinResume goes on with a join that was cut off, with its checkpoint and without.
func TestJoinResume(t *testing.T) {
	t.Parallel()
	for _, gone := range []bool{false, true} {
		file, out := setup(t, "a", "b", "c", "d")
		c, err := config.Load(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, stderr, status := export(t, "join", "-c", file, "--resume", "pairs"); status != cli.StatusFailed || !strings.Contains(stderr, "was cut off") {
			t.Errorf("nothing was cut off: Got status %d, %s", status, stderr)
		}
		joinRun(t, c, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), false)
		withEngine(t, c, func(e config.Engine) {
			m := cell.Mutation{Table: "views", Row: []byte("e")}
			m.Put("e", []byte("n"), 1, []byte("9"))
			if _, err := e.MutateRow(t.Context(), nil, &m); err != nil {
				t.Fatal(err)
			}
		})
		if gone {
			if err := os.RemoveAll(filepath.Join(c.Store.Dir, "checkpoints")); err != nil {
				t.Fatal(err)
			}
		}
		stdout, stderr, status := export(t, "join", "-c", file, "--resume", "pairs")
		want := "4 rows"
		if gone {
			want = "5 rows"
		}
		if status != 0 || !strings.Contains(stdout, want) || strings.Contains(stderr, "begins anew") != gone {
			t.Errorf("checkpoint gone %t: Got status %d, %s%s", gone, status, stdout, stderr)
		}
		if _, stderr, status := export(t, "verify", filepath.Join(out, "pairs")); status != 0 {
			t.Errorf("verify: Got status %d, %s", status, stderr)
		}
		if entries, _ := os.ReadDir(filepath.Join(c.Store.Dir, "checkpoints")); len(entries) != 0 {
			t.Errorf("the checkpoint is still there: %v", entries)
		}
	}
}

// commandStep is a command, and some of what it says.
type commandStep struct {
	args   string
	status int
	text   string
}

// scheduledCommands gives commands beside a daemon, which pause name and nothing else, and
// order two of its runs.
func scheduledCommands(t *testing.T, file, name string, steps []commandStep) {
	t.Helper()
	ordered := make(chan string, 10)
	paused := daemon(t, file, func(o *serve.Options) {
		o.OrderExport = func(_ context.Context, job string, q api.OrderRequest) (api.Order, error) {
			ordered <- job
			return api.Order(schedule.Order{ID: "abc", Cause: schedule.Backfill, From: q.From, To: q.To, Next: q.From, Times: 3}), nil
		}
	})
	for _, step := range steps {
		command, rest, _ := strings.Cut(step.args, " ")
		stdout, stderr, status := export(t, append([]string{command, "-c", file}, strings.Fields(rest)...)...)
		if status != step.status || !strings.Contains(stdout+stderr, step.text) {
			t.Errorf("%s: Got status %d, %s%s. Want %d, %q", step.args, status, stdout, stderr, step.status, step.text)
		}
	}
	if p := paused(); !p[name] || len(p) != 1 || len(ordered) != 2 {
		t.Errorf("Got %v paused and %d orders, want %s, twice", p, len(ordered), name)
	}
}

// TestScheduledJoin: a join with a schedule is listed, paused and ordered as a job is; by
// hand its times are filled by the daemon alone.
func TestScheduledJoin(t *testing.T) {
	t.Parallel()
	file, out := setup(t, "a")
	addToFile(t, file, "  daily:\n    left: {job: views}\n    right: {job: idle}\n    on: [{left: key}]\n    out: '"+out+"'\n    schedule: {cron: \"45 3 * * *\"}\n")
	backfill := "backfill --from 2026-01-01T00:00:00Z --to 2026-01-04T00:00:00Z "
	scheduledCommands(t, file, "daily", []commandStep{
		{"list -n 2", 0, "T03:45:00Z"},
		{"pause daily", 0, ""},
		{"pause pairs", cli.StatusUsage, "join pairs has no schedule"},
		{"plan pairs", cli.StatusUsage, `has no job "pairs"; it has idle, views; pairs is a join: export join makes it`},
		{"pause none", cli.StatusUsage, `has no job "none"`},
		{"history daily", 0, "join daily has no history"},
		{backfill + "--daemon daily", 0, "order abc is accepted"},
		{backfill + "--daemon pairs", cli.StatusUsage, "join pairs has no schedule"},
		{backfill + "daily", cli.StatusUsage, "daily is a join"},
		{backfill + "--daemon --dry-run daily", cli.StatusUsage, "--daemon goes with"},
		{"run --daemon daily", 0, "order abc is accepted"},
	})
}
