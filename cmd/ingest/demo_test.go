package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDemoOfAnotherFormat: the demo of a file whose lines are of another format ends, and
// says which option is for that, where breakers stop its partitions.
func TestDemoOfAnotherFormat(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	input := filepath.Join(dir, "access.log")
	// Half a window of the breaker in each partition, and a few.
	if err := os.WriteFile(input, []byte(strings.Repeat("no object\n", demoPartitions*6000)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := command(t, "demo", "--input", input, "--data", filepath.Join(dir, "data"), "--out", filepath.Join(dir, "out"))
	if err == nil || !strings.Contains(err.Error(), input) || !strings.Contains(err.Error(), "--format combined") {
		t.Errorf("Got %v, want an error that names the file and the other format", err)
	}
}
