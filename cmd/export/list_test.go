package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"sluice/cmd/internal/cli"
	"sluice/jobs/history"
	"sluice/jobs/schedule"
	"sluice/serve"
)

// TestListNext lists the next times of each schedule.
func TestListNext(t *testing.T) {
	t.Parallel()
	file, _ := setup(t, "a")
	stdout, stderr, status := export(t, "list", "-c", file, "-n", "10")
	_, times, ok := strings.Cut(stdout, "\nviews runs next for\n")
	if got := strings.Fields(times); status != 0 || !ok || len(got) != 10 || strings.Count(times, "T02:30:00Z") != 10 {
		t.Errorf("Got status %d, %s%s", status, stdout, stderr)
	}
	stdout, _, _ = export(t, "list", "-c", file, "--json", "--next", "3")
	if n := strings.Count(stdout, "T02:30:00Z"); n != 4 { // next, and three of upcoming
		t.Errorf("Got %d times in %s", n, stdout)
	}
	if _, stderr, status := export(t, "list", "-c", file, "-n", "0"); status != cli.StatusUsage || !strings.Contains(stderr, "--next is 0") {
		t.Errorf("Got status %d, %s", status, stderr)
	}
}

// TestListPaused: of a schedule that a daemon keeps paused no next time is told, for
// nothing runs then.
func TestListPaused(t *testing.T) {
	t.Parallel()
	file, _ := setup(t, "a")
	daemon(t, file, func(o *serve.Options) {
		history, err := history.New(o.Engine)
		if err != nil {
			t.Fatal(err)
		}
		o.PauseExport = func(ctx context.Context, job string, paused bool) error {
			return history.Save(ctx, job, schedule.State{Paused: paused}, nil)
		}
	})
	for _, command := range []string{"resume", "pause", "resume"} {
		if _, stderr, status := export(t, command, "-c", file, "views"); status != 0 {
			t.Fatalf("%s: Got status %d, %s", command, status, stderr)
		}
		paused := command == "pause"
		stdout, stderr, status := export(t, "list", "-c", file, "-n", "2")
		if f := fields(t, stdout, "views"); status != 0 || (f[len(f)-1] == "paused") != paused || strings.Contains(stdout, "T02:30:00Z") == paused {
			t.Errorf("after %s: Got status %d, %s%s", command, status, stdout, stderr)
		}
		stdout, stderr, status = export(t, "list", "-c", file, "--json")
		found := false
		for d := json.NewDecoder(strings.NewReader(stdout)); d.More(); {
			var l listed
			if err := d.Decode(&l); err != nil {
				t.Fatal(err)
			}
			if found = found || l.Job == "views"; l.Job == "views" && (l.Paused != paused || (l.Next == "") != paused) {
				t.Errorf("after %s: Got %+v", command, l)
			}
		}
		if !found || status != 0 {
			t.Errorf("after %s: Got status %d, %s%s", command, status, stdout, stderr)
		}
	}
}
