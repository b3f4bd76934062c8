package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"sluice/internal/integration"
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
	w.run(t, "shell", "-c", w.config, "-n", "-e", "incr 'path_counts', 'by-hand', 'day:20260101', 7")
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
			found = found || d.Row == "by-hand" && f.Missing == 1 && d.Served != nil && *d.Served == seven && d.Rebuilt == nil
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
