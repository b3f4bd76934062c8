package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/jobs"
	"sluice/serve"
)

// TestYield: a run beside a daemon pauses while a pipeline of that is behind, says so, and
// the history has it; without a daemon it says that there is nobody to yield to.
func TestYield(t *testing.T) {
	t.Parallel()
	file, _ := setup(t, "a", "d")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	yielding := strings.Replace(string(content), "    keep: {runs: 1}\n", "    keep: {runs: 1}\n    yield_to_lag: {time: 30s}\n", 1)
	if err := os.WriteFile(file, []byte(yielding), 0o666); err != nil {
		t.Fatal(err)
	}
	const alone = "does not yield to ingest: no daemon has the store open"
	for _, args := range [][]string{{"run", "-c", file, "views"}, {"join", "-c", file, "pairs"}} {
		if _, stderr, status := export(t, args...); status != 0 || strings.Count(stderr, args[3]+" "+alone) != 1 {
			t.Errorf("%s: Got status %d, %s", args, status, stderr)
		}
	}
	if _, stderr, status := export(t, "run", "-c", file, "idle"); status != 0 || strings.Contains(stderr, alone) {
		t.Errorf("Got status %d, %s", status, stderr)
	}

	var looks atomic.Int32
	long, cancel := context.WithCancel(t.Context())
	defer cancel()
	daemon(t, file, func(o *serve.Options) {
		o.Pipelines = func() []serve.PipelineStatus {
			since := time.Now().Add(-time.Minute).UnixMilli()
			switch n := looks.Add(1); {
			case n == -100: // after a pause, of a run that is to be cancelled
				cancel()
			case n > 1:
				since = 0
			}
			return []serve.PipelineStatus{{Name: "p", Partitions: []serve.PartitionStatus{{State: "running", Since: since}}}}
		}
	})
	stdout, stderr, status := export(t, "run", "-c", file, "--json", "views")
	var m jobs.Manifest
	if err := json.Unmarshal([]byte(stdout), &m); status != 0 || err != nil || m.PausedSeconds < 1 || m.PausedSeconds > 60 {
		t.Errorf("Got status %d, %v, %v s, %s", status, err, m.PausedSeconds, stderr)
	}
	if !strings.Contains(stderr, `"paused_seconds":0,"paused_for":"pipeline p is 1m0s behind"`) {
		t.Errorf("Got events %s", stderr)
	}
	if stdout, _, _ := export(t, "history", "-c", file, "--json", "-n", "1", "views"); !strings.Contains(stdout, `"paused_seconds":1`) {
		t.Errorf("Got history %s", stdout)
	}
	for name, command := range map[string]string{"views": "run"} {
		looks.Store(-102)
		if _, stderr, status := exportContext(long, t, command, "-c", file, name); status != cli.StatusInterrupted {
			t.Errorf("%s: Got status %d, %s", name, status, stderr)
		}
		stdout, _, _ := export(t, "history", "-c", file, "--json", "-n", "1", name)
		if !strings.Contains(stdout, `"result":"cancelled"`) || !strings.Contains(stdout, `"paused_seconds":1`) {
			t.Errorf("%s, cancelled: Got history %s", name, stdout)
		}
	}
}
