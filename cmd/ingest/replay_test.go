package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/integration"
	"sluice/store"
)

// Counters that were changed by hand are found, and put right from the log; the
// daemon goes on from there.
func TestReplayRebuild(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	log := integration.GeneratedLog(5, 600)
	produce := func() {
		t.Helper()
		if _, err := integration.Run(t, w.env, append(bytes.Join(log.Lines, []byte("\n")), '\n'), "ingest", "produce", "-c", w.config, "--topic", "access-log", "-"); err != nil {
			t.Fatal(err)
		}
	}
	daemon := func(records int64) {
		t.Helper()
		d := integration.StartDaemon(t, w.config, w.env)
		integration.WaitCaughtUp(t, d, w.config, w.env, records, time.Minute)
		if _, err := integration.Run(t, w.env, nil, "ingest", "replay", "rebuild", "-c", w.config, "access-log"); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("a rebuild beside the daemon: %v", err)
		}
		if err := d.Stop(time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	counts := func() string {
		t.Helper()
		rows, _, _ := strings.Cut(w.run(t, "shell", "-c", w.config, "-n", "-e", "scan 'path_counts'"), "row(s)")
		return rows
	}
	produce()
	daemon(600)
	before := counts()

	out := w.run(t, "ingest", "replay", "rebuild", "-c", w.config, "access-log")
	if !strings.Contains(out, "all are equal") {
		t.Errorf("nothing was changed, and:\n%s", out)
	}
	w.run(t, "shell", "-c", w.config, "-n", "-e", `incr 'path_counts', "by-hand\xFF", 'day:20260101', 7`)
	out, err := integration.Run(t, w.env, nil, "ingest", "replay", "rebuild", "-c", w.config, "access-log", "--json")
	if err == nil {
		t.Errorf("the counters differ, and:\n%s", out)
	}
	var got struct{ Families []comparisonLine }
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&got); err != nil {
		t.Fatalf("%v in:\n%s", err, out)
	}
	seven, found := int64(7), false
	for _, f := range got.Families {
		for _, d := range f.Differences {
			found = found || d.Row == `by-hand\xFF` && d.Qualifier == "20260101" && f.Missing == 1 && d.Served != nil && *d.Served == seven && d.Rebuilt == nil
		}
	}
	if !found {
		t.Errorf("compared:\n%s", out)
	}
	out = w.run(t, "ingest", "replay", "rebuild", "-c", w.config, "access-log", "--switch")
	if !strings.Contains(out, "the rebuilt counters are served") {
		t.Errorf("switch:\n%s", out)
	}
	if after := counts(); after != before {
		t.Errorf("served after the switch:\n%s\nbefore:\n%s", after, before)
	}
	produce()
	daemon(1200)
	if out := w.run(t, "ingest", "replay", "rebuild", "-c", w.config, "access-log"); !strings.Contains(out, "all are equal") {
		t.Errorf("after the daemon went on:\n%s", out)
	}
}

// Who rebuilds is named by its machine, process and beginning, and takes over only where it
// is told to (TestHBaseRebuild of internal/integration runs it).
func TestRebuildHolder(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Date(2026, 5, 1, 12, 30, 0, 0, time.FixedZone("CEST", 2*60*60))
	for _, over := range []bool{false, true} {
		want := store.RebuildHolder{Name: fmt.Sprintf("a command on %s, process %d, begun 2026-05-01T10:30:00Z,", host, os.Getpid()), TakeOver: over}
		if got := (&rebuildCommand{TakeOver: over}).holder(begun); *got != want {
			t.Errorf("Got %+v, want %+v", *got, want)
		}
	}
}

// A mapping that counts less than the one before: what only that one counted is named,
// kept, and removed in the switch where that is asked for.
func TestReplayRebuildUnused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	log := integration.GeneratedLog(6, 300)
	if _, err := integration.Run(t, w.env, append(bytes.Join(log.Lines, []byte("\n")), '\n'), "ingest", "produce", "-c", w.config, "--topic", "access-log", "-"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(w.config)
	if err != nil {
		t.Fatal(err)
	}
	edit := func(name string, pairs ...string) string {
		t.Helper()
		for i := 0; i < len(pairs); i += 2 {
			if !strings.Contains(string(text), pairs[i]) {
				t.Fatalf("no %q in the configuration", pairs[i])
			}
		}
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(strings.NewReplacer(pairs...).Replace(string(text))), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	former := edit("former.yaml",
		"tables:\n", "tables:\n  clients:\n    families:\n      n: {COUNTER: true}\n",
		"    tests:", "      - table: clients\n        row: client\n        increment:\n          - {family: n, qualifier: '\"requests\"'}\n    tests:")
	now := edit("now.yaml", `          - {family: minute, qualifier: 'date(time, "yyyyMMddHHmm")'}`+"\n", "")

	d := integration.StartDaemon(t, former, w.env)
	integration.WaitCaughtUp(t, d, former, w.env, 300, time.Minute)
	if err := d.Stop(time.Minute); err != nil {
		t.Fatal(err)
	}
	rebuild := func(args ...string) (string, error) {
		t.Helper()
		return integration.Run(t, w.env, nil, "ingest", append([]string{"replay", "rebuild", "-c", now, "access-log"}, args...)...)
	}
	const inMinute, inClients = "nothing is counted any more in family minute of table path_counts", "nothing is counted any more in family n of table clients"
	before := w.run(t, "shell", "-c", now, "-n", "-e", "scan 'clients'")
	out, err := rebuild()
	if err != nil || !strings.Contains(out, inMinute) || !strings.Contains(out, "they are kept") || !strings.Contains(out, "all are equal") || strings.Contains(out, inClients) {
		t.Errorf("with the present rules: %v\n%s", err, out)
	}
	out, err = rebuild("--previous", former, "--switch")
	if err != nil || !strings.Contains(out, inMinute) || !strings.Contains(out, inClients) || !strings.Contains(out, "all are equal") {
		t.Errorf("with the former rules: %v\n%s", err, out)
	}
	if after := w.run(t, "shell", "-c", now, "-n", "-e", "scan 'clients'"); after[:strings.LastIndex(after, "row(s)")] != before[:strings.LastIndex(before, "row(s)")] {
		t.Errorf("Got clients\n%s\nwhere nothing was to be removed, want\n%s", after, before)
	}
	out, err = rebuild("--previous", former, "--unused", "remove", "--json")
	var got struct{ Families []comparisonLine }
	if jerr := json.NewDecoder(strings.NewReader(out)).Decode(&got); jerr != nil {
		t.Fatalf("%v in:\n%s", jerr, out)
	}
	unused := 0
	for _, f := range got.Families {
		if f.Unused && f.Missing > 0 {
			unused++
		}
	}
	if err == nil || !strings.Contains(err.Error(), "--switch") || unused != 2 {
		t.Errorf("without --switch: %v, %d families unused, want 2:\n%s", err, unused, out)
	}
	out, err = rebuild("--previous", former, "--unused", "remove", "--switch")
	if err != nil || !strings.Contains(out, "--switch takes them away") || !strings.Contains(out, "the rebuilt counters are served") {
		t.Errorf("with --switch: %v\n%s", err, out)
	}
	if out := w.run(t, "shell", "-c", now, "-n", "-e", "scan 'clients'"); !strings.Contains("\n"+out, "\n0 row(s)") {
		t.Errorf("Got clients\n%s", out)
	}
	if out := w.run(t, "shell", "-c", now, "-n", "-e", "scan 'path_counts', {COLUMNS => ['minute']}"); !strings.Contains("\n"+out, "\n0 row(s)") {
		t.Errorf("Got minutes\n%s", out)
	}
	if out, err := rebuild("--previous", former); err != nil || strings.Contains(out, "any more") || !strings.Contains(out, "all are equal") {
		t.Errorf("after the removal: %v\n%s", err, out)
	}
}

// Where another pipeline writes the table, nothing is switched to, and nothing asks for it.
func TestReplayRebuildBesideOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ingest(t, w.config, integration.GeneratedLog(6, 50), 50)
	text, err := os.ReadFile(w.config)
	if err != nil {
		t.Fatal(err)
	}
	head, tail, ok := strings.Cut(string(text), "    tests:")
	_, jobs, also := strings.Cut(tail, "\njobs:\n")
	if !ok || !also {
		t.Fatal("the configuration has no tests, or no jobs behind them")
	}
	head = strings.Replace(head, `'date(time, "yyyyMMdd")'}`, `'date(time, "yyyyMMdd")', by: "2"}`, 1)
	now := filepath.Join(t.TempDir(), "now.yaml")
	if err := os.WriteFile(now, []byte(head+`  another:
    topics: [another]
    group: another
    decode: {format: combined}
    map:
      - {table: path_counts, row: path, increment: [{family: day, qualifier: method}]}

jobs:
`+jobs), 0o644); err != nil {
		t.Fatal(err)
	}
	before := w.run(t, "shell", "-c", now, "-n", "-e", "scan 'path_counts', {COLUMNS => ['day']}")
	const why = "pipeline another writes table path_counts, too"
	for _, args := range [][]string{nil, {"--switch"}} {
		out, err := integration.Run(t, w.env, nil, "ingest", append([]string{"replay", "rebuild", "-c", now, "access-log"}, args...)...)
		if err == nil || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "run it again with --switch") {
			t.Errorf("%v: got %v, want that %s\n%s", args, err, why, out)
		}
	}
	after := w.run(t, "shell", "-c", now, "-n", "-e", "scan 'path_counts', {COLUMNS => ['day']}")
	if before[:strings.LastIndex(before, "row(s)")] != after[:strings.LastIndex(after, "row(s)")] {
		t.Errorf("Got days\n%s\nwant\n%s", after, before)
	}
}

// A rebuild that counts nothing has found nothing equal, and says so.
func TestReplayRebuildOfNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	log := integration.GeneratedLog(7, 20)
	if _, err := integration.Run(t, w.env, append(bytes.Join(log.Lines, []byte("\n")), '\n'), "ingest", "produce", "-c", w.config, "--topic", "access-log", "-"); err != nil {
		t.Fatal(err)
	}
	w.run(t, "shell", "-c", w.config, "--create", "-n", "-e", "list") // makes the store, and no daemon has applied a record
	out := w.run(t, "ingest", "replay", "rebuild", "-c", w.config, "access-log")
	if !strings.Contains(out, "0 records applied") || strings.Contains(out, "all are equal") || !strings.Contains(out, "no counters were counted again, so that nothing was compared") {
		t.Errorf("of nothing:\n%s", out)
	}
	// What is served is no more equal to nothing.
	w.run(t, "shell", "-c", w.config, "-n", "-e", "incr 'path_counts', 'by-hand', 'day:20260101', 7")
	out = w.run(t, "ingest", "replay", "rebuild", "-c", w.config, "access-log")
	if strings.Contains(out, "all are equal") || !strings.Contains(out, "nothing was compared") || !strings.Contains(out, "which has 1 counters: they are kept") {
		t.Errorf("beside what is served:\n%s", out)
	}
}

// The families of a rebuild are dropped where nothing else is stored of its pipeline, as in a
// copy of some tables.
func TestDiscardWithoutOffsets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(t, "shell", "-c", w.config, "--create", "-n", "-e", "create 'copied', {NAME => 'c', COUNTER => true}, {NAME => 'c~gone~3', COUNTER => true}")
	w.run(t, "ingest", "replay", "rebuild", "-c", w.config, "gone", "--discard")
	if out := w.run(t, "shell", "-c", w.config, "-n", "-e", "describe 'copied'"); strings.Contains(out, "gone") {
		t.Errorf("after the discard:\n%s", out)
	}
	if _, err := integration.Run(t, w.env, nil, "ingest", "replay", "rebuild", "-c", w.config, "gone", "--discard"); err == nil || !strings.Contains(err.Error(), `no pipeline "gone"`) {
		t.Errorf("Got %v, want that there is no such pipeline", err)
	}
}
