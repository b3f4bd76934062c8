package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/cmd/internal/cli"
	"sluice/jobs"
)

// TestPlannedParts: a plan says where regions are cut.
func TestPlannedParts(t *testing.T) {
	t.Parallel()
	for splits, want := range map[int]string{3: "3 regions", 8: "3 regions in 8 parts"} {
		if got := plannedParts(&jobs.RunPlan{Regions: 3, Splits: make([]jobs.SplitPlan, splits)}); got != want {
			t.Errorf("Got %s, want %s", got, want)
		}
	}
}

// TestNotEstimated: of an HBase nothing is in memory only, and Sluice's shell flushes none.
func TestNotEstimated(t *testing.T) {
	t.Parallel()
	if got := notEstimated(&jobs.RunPlan{}); !strings.Contains(got, "flush") {
		t.Errorf("Got %q of an instant, want how to have more estimated", got)
	}
	if got := notEstimated(&jobs.RunPlan{TimeBound: 1}); strings.Contains(got, "flush") || !strings.Contains(got, "HBase") || !strings.Contains(got, "--sample") {
		t.Errorf("Got %q of HBase, want why sizes are not known, and nothing that is not possible there", got)
	}
}

// TestRunWithOtherColumns: what schema_changes refuses, a plan says before and a run of the
// job; one by hand may be told otherwise, and the daemon runs by the file.
func TestRunWithOtherColumns(t *testing.T) {
	t.Parallel()
	file, _ := setup(t, "a")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write := func(rule, columns string) {
		t.Helper()
		text := strings.Replace(string(content), `      - {name: n, from: "e:n", type: int64}`, columns, 1)
		text = strings.Replace(text, "    keep: {runs: 1}\n", "    keep: {runs: 1}\n    schema_changes: "+rule+"\n", 1)
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	const was, is = `      - {name: n, from: "e:n", type: int64}`, `      - {name: n, from: "e:n", type: string}`
	ok := func(args ...string) {
		t.Helper()
		if stdout, stderr, status := export(t, args...); status != 0 {
			t.Errorf("%v: Got status %d, %s%s", args, status, stdout, stderr)
		}
	}
	write("compatible", was)
	ok("plan", "-c", file, "views")
	ok("run", "-c", file, "views")
	ok("plan", "-c", file, "views")
	write("compatible", is)
	const why = "column n was int64, nullable, and is string, nullable (it is of another type)"
	if stdout, stderr, status := export(t, "plan", "-c", file, "views"); status != cli.StatusFailed || !strings.Contains(stdout, "nothing was written") || !strings.Contains(stderr, "a run of views would be refused: its columns are not those of run ") || !strings.Contains(stderr, why) {
		t.Errorf("plan: Got status %d, %s%s", status, stdout, stderr)
	}
	if stdout, stderr, status := export(t, "plan", "-c", file, "--json", "views"); status != cli.StatusFailed || !strings.Contains(stdout, `"refused":"a run of views would be refused: `) {
		t.Errorf("plan --json: Got status %d, %s%s", status, stdout, stderr)
	}
	if _, stderr, status := export(t, "run", "-c", file, "views"); status != cli.StatusFailed || !strings.Contains(stderr, why) || !strings.Contains(stderr, "export run --schema-changes any") {
		t.Errorf("run: Got status %d, %s", status, stderr)
	}
	if stdout, _, _ := export(t, "history", "-c", file, "views"); !strings.Contains(stdout, "failed") || !strings.Contains(stdout, why) {
		t.Errorf("history: Got %s", stdout)
	}
	if _, stderr, status := export(t, "run", "-c", file, "--daemon", "--schema-changes", "any", "views"); status != cli.StatusUsage || !strings.Contains(stderr, "--daemon goes with") {
		t.Errorf("run --daemon: Got status %d, %s", status, stderr)
	}
	if _, _, status := export(t, "run", "-c", file, "--schema-changes", "some", "views"); status != cli.StatusUsage {
		t.Errorf("no rule: Got status %d", status)
	}
	ok("run", "-c", file, "--schema-changes", "any", "views")
	ok("run", "-c", file, "views")
	ok("join", "-c", file, "--schema-changes", "none", "pairs")
	write("any", was)
	ok("plan", "-c", file, "views")
	if _, stderr, status := export(t, "join", "-c", file, "--schema-changes", "none", "pairs"); status != cli.StatusFailed || !strings.Contains(stderr, "export join --schema-changes any") {
		t.Errorf("join: Got status %d, %s", status, stderr)
	}
}

// TestPlanSaysWhere: a plan says where a run would go, in a directory, in a bucket, or as a
// snapshot of an Iceberg table.
func TestPlanSaysWhere(t *testing.T) {
	t.Parallel()
	file, out := setup(t, "a")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	bucket := "s3: {endpoint: 'http://127.0.0.1:1', region: r, access_key: k, secret_key: s}\n"
	for _, c := range []struct{ old, new, text, json string }{
		{"", "", "\n  into " + filepath.Join(out, "views") + "\n", `"directory":"` + filepath.Join(out, "views") + `",`},
		{"    keep: {runs: 1}\n", "    iceberg: true\n", "\n  into " + filepath.Join(out, "views") + ", as a snapshot of the Iceberg table there\n", `"iceberg":true`},
		{"'" + out + "'", "s3://bucket/exports", "\n  into s3://bucket/exports/views\n", `"directory":"s3://bucket/exports/views",`},
		{"    out: '" + out + "'\n", "", "\n  into the directory that --out names: the job has no out\n", `"job":"views"`},
	} {
		text := strings.Replace(string(content), c.old, c.new, 1)
		if strings.Contains(text, "s3://") {
			text += bucket
		}
		if c.old != "" && c.new == "" {
			text = strings.Replace(text, "    schedule: {cron: \"30 2 * * *\"}\n", "", 1)
		}
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if stdout, stderr, status := export(t, "plan", "-c", file, "views"); status != 0 || !strings.Contains(stdout, c.text) {
			t.Errorf("Got status %d, %s%s. Want %q", status, stdout, stderr, c.text)
		}
		if stdout, stderr, status := export(t, "plan", "-c", file, "--json", "views"); status != 0 || !strings.Contains(stdout, c.json) || strings.Contains(stdout, `"iceberg"`) != strings.Contains(c.new, "iceberg") {
			t.Errorf("--json: Got status %d, %s%s. Want %q", status, stdout, stderr, c.json)
		}
	}
}
