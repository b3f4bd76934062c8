package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPeerPage: a page has medians and ratios of all rounds, and is not written where
// others took much of the machine, unless that is asked for.
func TestPeerPage(t *testing.T) {
	t.Parallel()
	r := &peerReport{title: "Title", about: "About.", rows: 1000, notes: []string{"A note."}, machine: machine{CPU: "a core", Command: "a command"}}
	for round, seconds := range []float64{2, 1, 4} {
		r.add(io.Discard, round, "ours", &sample{Seconds: seconds, CPU: seconds / 1000}, 2000)
		r.add(io.Discard, round, "theirs", &sample{Seconds: 4, CPU: 0.004, Foreign: -1}, 0)
		r.ratio("theirs / ours", "≥ 1.00", 4/seconds)
	}
	name := filepath.Join(t.TempDir(), "PAGE.md")
	if err := r.publish(io.Discard, name, false); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# Title\n\nAbout.", "* a core, ", "* `a command`", "| ours | 0.5 | 0.2..1.0 | 2000 | 2.0 |", "| theirs | 0.2 | 0.2..0.2 | 4000 |  |",
		"| theirs / ours | 2.00 | 1.00..4.00 | ≥ 1.00 |", "* A note.", "* Of some runs it is not known what other processes took meanwhile.",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("There is no %q in\n%s", want, page)
		}
	}
	r.add(io.Discard, 3, "ours", &sample{Seconds: 1, Foreign: 0.5}, 0)
	if err := r.publish(io.Discard, name, false); !errors.Is(err, errBusy) {
		t.Errorf("Got %v where others took half of the machine", err)
	}
	if err := r.publish(io.Discard, name, true); err != nil {
		t.Error(err)
	}
}
