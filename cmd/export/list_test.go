package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
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

// TestListUnreadable: a directory that cannot be read, such as that of one job whose
// bucket does not answer, hides nothing of the others'.
func TestListUnreadable(t *testing.T) {
	t.Parallel()
	file, out := setup(t, "a")
	if _, stderr, status := export(t, "run", "-c", file, "views"); status != 0 {
		t.Fatal(stderr)
	}
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	job := "jobs:\n  broken: {table: views, columns: [{name: k, from: $row, type: string}], out: '" + broken + "'}\n"
	if err := os.WriteFile(file, []byte(strings.Replace(string(content), "jobs:\n", job, 1)), 0o666); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, status := export(t, "list", "-c", file)
	if f := fields(t, stdout, "views"); status != cli.StatusFailed || f[4] != "1" || f[8] != "yes" || !strings.Contains(stdout, out) {
		t.Errorf("Got status %d, %s%s", status, stdout, stderr)
	}
	if strings.Count(stdout, broken+": not a directory") != 1 || strings.Count(stderr, broken+": not a directory") != 1 {
		t.Errorf("Got %s%s", stdout, stderr)
	}
	stdout, _, _ = export(t, "list", "-c", file, "--json")
	found := false
	for d := json.NewDecoder(strings.NewReader(stdout)); d.More(); {
		var l listed
		if err := d.Decode(&l); err != nil {
			t.Fatal(err)
		}
		found = found || l.Job == "broken" && l.State == "unreadable" && strings.Contains(l.Error, broken)
	}
	if !found {
		t.Errorf("Got %s", stdout)
	}
}
