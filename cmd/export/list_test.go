package main

import (
	"strings"
	"testing"

	"sluice/cmd/internal/cli"
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
