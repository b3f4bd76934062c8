package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/internal/integration"
	"sluice/jobs"
)

// TestScheduledRunGoesOn kills a daemon, and stops one, in the midst of a scheduled
// run: the next daemon goes on with the files that are finished, at the same instant.
func TestScheduledRunGoesOn(t *testing.T) {
	t.Parallel()
	for _, signal := range []os.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			scheduledRunGoesOn(t, signal)
		})
	}
}

func scheduledRunGoesOn(t *testing.T, signal os.Signal) {
	j := newScheduledJob(t)
	const everySecond = `cron: "@every 1s", catch_up: all, overlap: skip`
	rows := manyRows("a")
	j.put(j.load(everySecond, 1), rows...)

	first := integration.StartDaemon(t, j.file, os.Environ())
	finished := ""
	await(t, first, "a finished region", func() bool {
		notes, err := filepath.Glob(filepath.Join(j.out, "_tmp", "*", "notes", "split-000000"))
		if err != nil {
			t.Fatal(err)
		}
		if len(notes) == 1 {
			finished = filepath.Join(filepath.Dir(filepath.Dir(notes[0])), "files")
		}
		return finished != ""
	})
	if err := first.Signal(signal); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(2 * time.Minute); (err == nil) != (signal == syscall.SIGTERM) {
		t.Fatalf("%v: Got %v", signal, err)
	}
	left, err := jobs.ListUnfinished(t.Context(), j.out)
	if err != nil || len(left) != 1 || left[0].Files == 0 || left[0].Checkpoint == "" || left[0].Busy {
		t.Fatalf("Got %+v, %v left, want the run with its files", left, err)
	}
	files, err := filepath.Glob(filepath.Join(finished, "*000000*.parquet"))
	if err != nil || len(files) != 1 {
		t.Fatalf("Got %q, %v, want the file of the first region", files, err)
	}
	before, err := os.Stat(files[0])
	if err != nil {
		t.Fatal(err)
	}

	c := j.load(everySecond, 1_000_000_000)
	j.put(c, "later")
	second := integration.StartDaemon(t, j.file, os.Environ())
	var published jobs.RunSummary
	await(t, second, "the run", func() bool {
		runs, err := jobs.List(t.Context(), j.out)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runs {
			if r.RunID == left[0].RunID && r.Err == nil {
				published = r
			}
		}
		return published.RunID != ""
	})
	if err := second.Stop(2 * time.Minute); err != nil {
		t.Fatal(err)
	}
	if published.Rows != int64(len(rows)) || !published.LogicalTime.Equal(left[0].LogicalTime) {
		t.Errorf("Got %+v, want the %d rows of %v", published, len(rows), left[0].LogicalTime)
	}
	run := filepath.Join(j.out, filepath.FromSlash(published.Dir))
	m, _, err := jobs.ReadRun(t.Context(), run)
	if err != nil || m.Sequence != left[0].Sequence || !m.StartedAt.Equal(left[0].StartedAt) {
		t.Errorf("Got %+v, %v, want what was begun: %+v", m, err, left[0])
	}
	after, err := os.Stat(filepath.Join(run, before.Name()))
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("Got %v, %v: the finished file was written again", after, err)
	}
	if r, err := jobs.Verify(t.Context(), run); err != nil || !r.OK() {
		t.Errorf("verify: %v, %v", err, r)
	}
	if !strings.Contains(second.Log(), "export resumed") {
		t.Error("the daemon does not say that it goes on with the run")
	}
	// The checkpoint goes with the run; one of a later run may have been kept.
	if _, err := os.Stat(filepath.Join(c.Store.Dir, "checkpoints", left[0].Checkpoint)); !os.IsNotExist(err) {
		t.Errorf("Got %v of the checkpoint, want it gone", err)
	}
}

// await looks again and again until done, for at most five minutes.
func await(t *testing.T, d *integration.Daemon, what string, done func() bool) {
	t.Helper()
	deadline := time.After(5 * time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s did not come; log of the daemon:\n%s", what, d.Log())
		}
	}
}
