package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/schedule"
	"sluice/store"
)

// joinRun makes the run of the join for a time, which ends when it is published, or
// before that where its rows cannot be read.
func joinRun(t *testing.T, c *config.Config, at time.Time, published bool) {
	t.Helper()
	in, err := config.OpenLastingInstant(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	j, err := c.CompileJoin("pairs", func(string) *store.TableDescriptor { return nil })
	if err != nil {
		t.Fatal(err)
	}
	killed := errors.New("killed")
	o := &jobs.JoinOptions{Join: j, Source: in, Checkpoint: in.Checkpoint, Version: cli.Version().Version, LogicalTime: at}
	o.Published = func(context.Context, *jobs.Manifest) error { return killed }
	want := killed
	if !published {
		o.Source, want = &failing{Instant: in}, jobs.ErrResumable
	}
	if _, err := jobs.RunJoin(t.Context(), o); !errors.Is(err, want) {
		t.Fatalf("Got %v, want %v", err, want)
	}
	in.Keep()
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestHandJoinsAreRecorded: what becomes of joins of this process is in their history,
// once, with and without a daemon; those of published runs, too.
func TestHandJoinsAreRecorded(t *testing.T) {
	t.Parallel()
	for _, with := range []string{"no daemon", "a daemon"} {
		t.Run(with, func(t *testing.T) {
			t.Parallel()
			file, out := setup(t, "a", "b", "d")
			addToFile(t, file, "  runs:\n    left: {run: '"+filepath.Join(out, "views")+"'}\n    right: {run: '"+filepath.Join(out, "idle")+"'}\n    on: [{left: key}]\n    out: '"+out+"'\n")
			if with == "a daemon" {
				daemon(t, file)
			}
			follow(t, file, []historyStep{
				{"join --time 2026-01-02T02:30:00Z pairs", "pairs", 0, []string{"01-02 02:30 manual ok 3"}},
				{"join --time 2026-01-02T02:30:00Z pairs", "pairs", cli.StatusFailed, nil},
				{"join --resume --time 2026-01-02T02:30:00Z pairs", "pairs", cli.StatusFailed, nil},
				{"join --time 2026-01-03T02:30:00Z pairs", "pairs", 0, []string{"01-03 02:30 manual ok 3"}},
				{"join --time 2026-01-02T02:30:00Z runs", "runs", cli.StatusFailed, []string{"01-02 02:30 manual failed 0"}}, // there are none
				{"run --time 2026-01-02T02:30:00Z views", "runs", 0, nil},
				{"run --time 2026-01-02T02:30:00Z idle", "runs", 0, nil},
				{"join --time 2026-01-02T02:30:00Z runs", "runs", 0, []string{"01-02 02:30 manual ok 3"}},
			})
		})
	}
}

// TestFailedHandJoinIsRecorded: a join that fails has failed in the history, each time.
func TestFailedHandJoinIsRecorded(t *testing.T) {
	t.Parallel()
	failsTwice(t, "join", "pairs")
}

// TestKilledHandJoinIsRecorded is TestKilledHandRunIsRecorded of a join.
func TestKilledHandJoinIsRecorded(t *testing.T) {
	t.Parallel()
	for _, resume := range []string{"join --resume pairs", "join --resume --time 2026-01-02T02:30:00Z pairs", "join --time 2026-01-02T02:30:00Z pairs"} {
		for _, published := range []bool{false, true} {
			if !published && !strings.Contains(resume, "resume") {
				continue // it would begin anew
			}
			t.Run(fmt.Sprintf("%s/%t", resume, published), func(t *testing.T) {
				t.Parallel()
				file, _ := setup(t, "a", "b", "d")
				c, err := config.Load(file, nil)
				if err != nil {
					t.Fatal(err)
				}
				joinRun(t, c, time.Date(2026, 1, 2, 2, 30, 0, 0, time.UTC), published)
				if got := recorded(t, file, "pairs"); len(got) > 0 {
					t.Fatalf("Got %q", got)
				}
				result := schedule.OK
				if published {
					result = schedule.Published
				}
				finishes(t, file, resume, "pairs", "01-02 02:30 manual "+result+" 3")
			})
		}
	}
}

// TestJoinOfRunsWithoutStore: a join of published runs needs no store, and says that its
// history has not been written where there is none.
func TestJoinOfRunsWithoutStore(t *testing.T) {
	t.Parallel()
	file, out := setup(t, "a", "b")
	for _, job := range []string{"views", "idle"} {
		if _, stderr, status := export(t, "run", "-c", file, job); status != 0 {
			t.Fatal(stderr)
		}
	}
	dir := t.TempDir()
	elsewhere := filepath.Join(dir, "c.yaml")
	text := "store: {dir: '" + filepath.Join(dir, "data") + "'}\njoins:\n  runs:\n    left: {run: '" + filepath.Join(out, "views") + "'}\n    right: {run: '" + filepath.Join(out, "idle") + "'}\n    on: [{left: key}]\n    out: '" + out + "'\n"
	if err := os.WriteFile(elsewhere, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, status := export(t, "join", "-c", elsewhere, "runs")
	if status != 0 || !strings.Contains(stdout, "2 rows") || !strings.Contains(stderr, "the history of runs has not this run: config: no store in") {
		t.Errorf("Got status %d, %s%s", status, stdout, stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); err == nil {
		t.Error("a store was made")
	}
	if _, stderr, status := export(t, "verify", filepath.Join(out, "runs")); status != 0 {
		t.Errorf("verify: Got status %d, %s", status, stderr)
	}
}
