package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/integration"
)

// A rebuild counts records that write tables which are not there: those of new rules,
// before a daemon has created them, and those of a template that were dropped.
func TestReplayRebuildCreatesTables(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	log := integration.GeneratedLog(8, 300)
	if _, err := integration.Run(t, w.env, append(bytes.Join(log.Lines, []byte("\n")), '\n'), "ingest", "produce", "-c", w.config, "--topic", "access-log", "-"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(w.config)
	if err != nil {
		t.Fatal(err)
	}
	edit := func(name, tables, rules string) string {
		t.Helper()
		if bytes.Count(text, []byte("tables:\n")) != 1 || bytes.Count(text, []byte("    tests:")) != 1 {
			t.Fatal("the configuration has other tables and tests")
		}
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(strings.NewReplacer("tables:\n", "tables:\n"+tables, "    tests:", rules+"    tests:").Replace(string(text))), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	const templates, days = "  days_*:\n    families:\n      e: {}\n", "      - table: days_{date(time, \"yyyyMM\")}\n        row: client\n        put: {e: {path: path}}\n"
	before := edit("before.yaml", templates, days)
	now := edit("now.yaml", templates+"  clients:\n    families:\n      n: {COUNTER: true}\n  months_*:\n    families:\n      n: {COUNTER: true}\n",
		days+"      - table: clients\n        row: client\n        increment:\n          - {family: n, qualifier: '\"requests\"'}\n"+
			"      - table: months_{date(time, \"yyyyMM\")}\n        row: client\n        increment:\n          - {family: n, qualifier: '\"requests\"'}\n")

	d := integration.StartDaemon(t, before, w.env)
	integration.WaitCaughtUp(t, d, before, w.env, 300, time.Minute)
	if err := d.Stop(time.Minute); err != nil {
		t.Fatal(err)
	}
	shell := func(command string) string {
		t.Helper()
		return w.run(t, "shell", "-c", now, "-n", "-e", command)
	}
	rows := func(table string) string {
		t.Helper()
		out, _, _ := strings.Cut(shell("scan '"+table+"'"), "row(s)")
		return out
	}
	counts := rows("path_counts")
	shell("disable 'days_201505'\ndrop 'days_201505'")

	out := w.run(t, "ingest", "replay", "rebuild", "-c", before, "access-log")
	if !strings.Contains(out, "299 records applied") || !strings.Contains(out, "all are equal") {
		t.Errorf("by the same rules:\n%s", out)
	}
	if out := shell("list 'days_.*'"); !strings.Contains(out, "0 row(s)") {
		t.Errorf("tables of puts alone were created:\n%s", out)
	}
	out = w.run(t, "ingest", "replay", "rebuild", "-c", now, "access-log", "--switch")
	if !strings.Contains(out, "299 records applied") || !strings.Contains(out, "the rebuilt counters are served") {
		t.Errorf("with new rules:\n%s", out)
	}
	if after := rows("path_counts"); after != counts {
		t.Errorf("served after the switch:\n%s\nbefore:\n%s", after, counts)
	}
	if out := rows("clients"); !strings.Contains(out, "n:requests") {
		t.Errorf("Got clients\n%s", out)
	}
	if out := shell("list 'months_.*'"); !strings.Contains(out, "months_2") {
		t.Errorf("Got months\n%s", out)
	}
}

// An unfinished rebuild of a pipeline that was renamed, or is in the file no more, is
// discarded by the command that the daemon names, which does not start before.
func TestReplayDiscardOfFormerPipeline(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ingest(t, w.config, integration.GeneratedLog(9, 50), 50)
	w.run(t, "shell", "-c", w.config, "-n", "-e", "incr 'path_counts', 'by-hand', 'day:20260101', 7")
	if out, err := integration.Run(t, w.env, nil, "ingest", "replay", "rebuild", "-c", w.config, "access-log"); err == nil {
		t.Fatalf("the counters differ, and:\n%s", out)
	}
	text, err := os.ReadFile(w.config)
	if err != nil {
		t.Fatal(err)
	}
	renamed := filepath.Join(t.TempDir(), "renamed.yaml")
	if err := os.WriteFile(renamed, bytes.Replace(text, []byte("\n  access-log:\n"), []byte("\n  access:\n"), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	const command = `"ingest replay rebuild access-log"`
	if _, err := integration.Run(t, w.env, nil, "ingest", "run", "-c", renamed); err == nil || !strings.Contains(err.Error(), command) {
		t.Fatalf("Got %v, want %s", err, command)
	}
	if _, err := integration.Run(t, w.env, nil, "ingest", "replay", "rebuild", "-c", renamed, "--discard", "acces-log"); err == nil || !strings.Contains(err.Error(), `no pipeline "acces-log"`) {
		t.Errorf("Got %v of a pipeline that neither file nor store has", err)
	}
	w.run(t, "ingest", "replay", "rebuild", "-c", renamed, "--discard", "access-log")
	if out := w.run(t, "shell", "-c", renamed, "-n", "-e", "describe 'path_counts'"); strings.Contains(out, "access-log~") {
		t.Errorf("after --discard:\n%s", out)
	}
}

// A renamed pipeline is counted again from where its new name began: that is not served in
// the place of what the former name has counted, too, unless that is asked for.
func TestReplayRebuildOfRenamedPipeline(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	log := integration.GeneratedLog(10, 50)
	text, err := os.ReadFile(w.config)
	if err != nil {
		t.Fatal(err)
	}
	renamed := filepath.Join(t.TempDir(), "renamed.yaml")
	changed := strings.NewReplacer("\n  access-log:\n", "\n  access:\n", "start: earliest", "start: committed").Replace(string(text))
	if err := os.WriteFile(renamed, []byte(changed), 0o644); err != nil {
		t.Fatal(err)
	}
	for i, config := range []string{w.config, renamed} {
		w.ingest(t, config, log, int64(50*(i+1)))
	}
	counts := func() string {
		rows, _, _ := strings.Cut(w.run(t, "shell", "-c", renamed, "-n", "-e", "scan 'path_counts', {COLUMNS => ['day']}"), "row(s)")
		return rows
	}
	before := counts()
	const why = "pipeline access-log, which the file does not have, has applied topic access-log, too"
	for _, args := range [][]string{nil, {"--switch"}} {
		out, err := integration.Run(t, w.env, nil, "ingest", append([]string{"replay", "rebuild", "-c", renamed, "access"}, args...)...)
		if err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(out, "REBUILT ONLY") {
			t.Errorf("%v: got %v, want that %s\n%s", args, err, why, out)
		}
	}
	if after := counts(); after != before {
		t.Errorf("Got\n%s\nwant\n%s", after, before)
	}
	if out := w.run(t, "ingest", "replay", "rebuild", "-c", renamed, "access", "--switch", "--accept-loss"); !strings.Contains(out, "the rebuilt counters are served") {
		t.Errorf("with --accept-loss:\n%s", out)
	}
}
