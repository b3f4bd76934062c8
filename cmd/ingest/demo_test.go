package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/cmd/internal/cli"
	"sluice/serve/client"
	"sluice/store"
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

// TestDemoBesideOne: a demo that is told to keep running keeps its directory when another
// is started.
func TestDemoBesideOne(t *testing.T) {
	t.Parallel()
	data, out := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "out")
	ctx, cancel := context.WithCancel(t.Context())
	shown, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		c := &demoCommand{Events: 1000, Seed: 1, Format: "json", Data: data, Out: out, Keep: true}
		ended <- c.Run(ctx, &cli.Program{Stdout: w, Stderr: io.Discard})
		w.Close()
	}()
	lines := bufio.NewScanner(shown)
	for lines.Scan() && !strings.Contains(lines.Text(), "Running until Ctrl-C") {
	}
	go func() { _, _ = io.Copy(io.Discard, shown) }() // until w is closed
	if _, err := command(t, "demo", "--events", "1000", "--data", data, "--out", out); !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), data) {
		t.Errorf("Got %v, want ErrLocked", err)
	}
	if e, err := client.ReadEndpoint(data); err != nil || e.Address == "" {
		t.Errorf("Got the endpoint %v, %v", e.Address, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
