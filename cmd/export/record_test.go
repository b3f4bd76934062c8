package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/cell"
	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/history"
	"sluice/jobs/schedule"
	"sluice/serve"
	"sluice/serve/api"
	"sluice/store"
)

// recorded returns the history of a job that is made by hand, the oldest logical time
// first, and checks that the counts agree with it.
func recorded(t *testing.T, file, job string) []string {
	t.Helper()
	stdout, stderr, status := export(t, "history", "-c", file, "--json", "-n", "100", job)
	if status != 0 {
		t.Fatalf("Got status %d, %s", status, stderr)
	}
	var all []string
	counts := map[string]map[string]int64{}
	for d := json.NewDecoder(strings.NewReader(stdout)); d.More(); {
		var e schedule.Entry
		if err := d.Decode(&e); err != nil {
			t.Fatal(err)
		}
		published := e.Result == schedule.OK || e.Result == schedule.Published
		if e.Count != 1 || e.Attempts != 1 || e.Order != "" || published != (e.RunID != "") || published != (e.Error == "") || e.Ended.Before(e.Started) {
			t.Errorf("Got %+v", e)
		}
		if counts[e.Cause] == nil {
			counts[e.Cause] = map[string]int64{}
		}
		counts[e.Cause][e.Result]++
		all = append(all, fmt.Sprintf("%s %s %s %d", e.Logical.Format("01-02 15:04"), e.Cause, e.Result, e.Rows))
	}
	slices.Sort(all)
	c, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	e, _, err := config.OpenStore(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	st, err := history.State(t.Context(), e, job)
	if err != nil || fmt.Sprint(st.Ordered) != fmt.Sprint(counts) || len(st.Results) > 0 {
		t.Errorf("Got counts %v and %v, %v, want %v", st.Ordered, st.Results, err, counts)
	}
	return all
}

// historyStep is a command, and what the history of a job or join has more behind it.
type historyStep struct {
	args   string
	of     string
	status int
	want   []string
}

// follow takes the steps one after the other.
func follow(t *testing.T, file string, steps []historyStep) {
	t.Helper()
	for i, step := range steps {
		before := recorded(t, file, step.of)
		args := strings.Fields(step.args)
		if stdout, stderr, status := export(t, append([]string{args[0], "-c", file}, args[1:]...)...); status != step.status {
			t.Fatalf("%d, %s: Got status %d, %s%s", i, step.args, status, stdout, stderr)
		}
		want := slices.Sorted(slices.Values(slices.Concat(before, step.want)))
		if got := recorded(t, file, step.of); !slices.Equal(got, want) {
			t.Errorf("%d, %s: Got %q, want %q", i, step.args, got, want)
		}
	}
}

// failsTwice has a command fail twice by a value that is no number, each of which must be
// in the history of name.
func failsTwice(t *testing.T, command, name string) {
	t.Helper()
	file, _ := setup(t, "a", "b", "d")
	c, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	withEngine(t, c, func(e config.Engine) {
		m := cell.Mutation{Table: "views", Row: []byte("e")}
		m.Put("e", []byte("n"), 1, []byte("nine"))
		if _, err := e.MutateRow(t.Context(), nil, &m); err != nil {
			t.Fatal(err)
		}
	})
	for range 2 {
		if _, stderr, status := export(t, command, "-c", file, "--time", "2026-01-02T02:30:00Z", name); status != cli.StatusFailed || !strings.Contains(stderr, "nine") {
			t.Fatalf("Got status %d, %s", status, stderr)
		}
	}
	want := []string{"01-02 02:30 manual failed 0", "01-02 02:30 manual failed 0"}
	if got := recorded(t, file, name); !slices.Equal(got, want) {
		t.Errorf("Got %q, want %q", got, want)
	}
}

// finishes goes on with a run that was cut off, twice: the second finds nothing to do. The
// history of name must have want alone.
func finishes(t *testing.T, file, command, name, want string) {
	t.Helper()
	for range 2 {
		args := strings.Fields(command)
		export(t, append([]string{args[0], "-c", file}, args[1:]...)...)
		if got := recorded(t, file, name); !slices.Equal(got, []string{want}) {
			t.Errorf("Got %q, want %q", got, want)
		}
	}
}

// TestHandRunsAreRecorded: what becomes of runs and backfills of this process is in the
// history of their job, once, with and without a daemon.
func TestHandRunsAreRecorded(t *testing.T) {
	t.Parallel()
	for _, with := range []string{"no daemon", "a daemon"} {
		t.Run(with, func(t *testing.T) {
			t.Parallel()
			file, _ := setup(t, "a", "b", "d")
			if with == "a daemon" {
				daemon(t, file)
			}
			follow(t, file, []historyStep{
				{"run --time 1899-12-31T23:00:00Z views", "views", 0, []string{"12-31 23:00 manual ok 3"}}, // before 1970
				{"run --time 2026-01-02T02:30:00Z views", "views", 0, []string{"01-02 02:30 manual ok 3"}},
				{"run --time 2026-01-02T02:30:00Z views", "views", cli.StatusFailed, nil},
				{"run --resume --time 2026-01-02T02:30:00Z views", "views", cli.StatusFailed, nil},
				{"backfill --dry-run --from 2026-01-01T00:00:00Z --to 2026-01-04T00:00:00Z views", "views", 0, nil},
				{
					"backfill --from 2026-01-01T00:00:00Z --to 2026-01-04T00:00:00Z views", "views", 0,
					[]string{"01-01 02:30 backfill ok 3", "01-03 02:30 backfill ok 3"},
				},
				{"backfill --from 2026-01-01T00:00:00Z --to 2026-01-04T00:00:00Z views", "views", 0, nil},
				{"run --time 2026-02-01T00:00:00Z views", "views", 0, []string{"02-01 00:00 manual ok 3"}},
				{"plan views", "views", 0, nil},
			})
			if _, stderr, status := export(t, "run", "-c", file, "--time", "2026-01-02T02:30:00Z", "idle"); status != 0 {
				t.Fatalf("Got status %d, %s", status, stderr)
			}
			if got := recorded(t, file, "idle"); !slices.Equal(got, []string{"01-02 02:30 manual ok 3"}) {
				t.Errorf("Got %q of a job without a schedule", got)
			}
		})
	}
}

// TestFailedHandRunIsRecorded: a run that fails has failed in the history, each time; one
// that somebody cancels was cancelled.
func TestFailedHandRunIsRecorded(t *testing.T) {
	t.Parallel()
	failsTwice(t, "run", "views")
}

// TestKilledHandRunIsRecorded: a run that was cut off, by a kill before it was published
// or right after it, is in the history once, when somebody has gone on with it.
func TestKilledHandRunIsRecorded(t *testing.T) {
	t.Parallel()
	for _, resume := range []string{
		"run --resume views", "run --resume --time 2026-01-02T02:30:00Z views", "run --time 2026-01-02T02:30:00Z views",
		"backfill --from 2026-01-02T00:00:00Z --to 2026-01-03T00:00:00Z views",
	} {
		for _, published := range []bool{false, true} {
			if !published && !strings.Contains(resume, "resume") && !strings.Contains(resume, "backfill") {
				continue // it would begin anew
			}
			t.Run(fmt.Sprintf("%s/%t", resume, published), func(t *testing.T) {
				t.Parallel()
				file, _ := setup(t, "a", "b", "d")
				c, err := config.Load(file, nil)
				if err != nil {
					t.Fatal(err)
				}
				at := time.Date(2026, 1, 2, 2, 30, 0, 0, time.UTC)
				if published {
					killedAfter(t, c, at)
				} else {
					cutOff(t, c, at)
				}
				if got := recorded(t, file, "views"); len(got) > 0 {
					t.Fatalf("Got %q", got)
				}
				result, cause := schedule.OK, schedule.Manual
				if published {
					result = schedule.Published
				}
				if strings.Contains(resume, "backfill") {
					cause = schedule.Backfill
				}
				finishes(t, file, resume, "views", fmt.Sprintf("01-02 02:30 %s %s 3", cause, result))
			})
		}
	}
}

// killedAfter publishes a run and ends before the history has it.
func killedAfter(t *testing.T, c *config.Config, at time.Time) {
	t.Helper()
	in, err := config.OpenInstant(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	spec := c.Jobs["views"]
	job, err := jobs.Compile("views", &spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	killed := errors.New("killed")
	_, err = jobs.Run(t.Context(), &jobs.RunOptions{
		Job: job, Source: in, LogicalTime: at, Published: func(context.Context, *jobs.Manifest) error { return killed },
	})
	if !errors.Is(err, killed) {
		t.Fatalf("Got %v", err)
	}
}

// TestHandRunOfOldDaemon: a daemon that stops as a run ends is asked again, and one
// that knows no such history is no error.
func TestHandRunOfOldDaemon(t *testing.T) {
	t.Parallel()
	file, out := setup(t, "a", "b", "d")
	answers := []error{fmt.Errorf("%w: it stops", store.ErrTransient), fmt.Errorf("%w: POST", api.ErrNotFound)}
	daemon(t, file, func(o *serve.Options) {
		o.RecordExport = func(context.Context, string, api.ExportRun) error {
			err := answers[0]
			answers = answers[1:]
			return err
		}
	})
	_, stderr, status := export(t, "run", "-c", file, "views")
	if status != 0 || !strings.Contains(stderr, "records its own runs alone") || len(answers) > 0 {
		t.Errorf("Got status %d, %s, answers left: %v", status, stderr, answers)
	}
	if _, stderr, status := export(t, "verify", filepath.Join(out, "views")); status != 0 {
		t.Errorf("verify: Got status %d, %s", status, stderr)
	}
}
