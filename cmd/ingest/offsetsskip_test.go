package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/pipeline/kafka"
	"sluice/store"
)

// Offsets are given up by command, through a daemon and without one, and are counted: what
// offsets, offsets verify and the metrics show is the same range.
func TestOffsetsSkip(t *testing.T) {
	t.Parallel()
	broker := startBroker(t, map[string]int{"visits": 1})
	dir := t.TempDir()
	file := filepath.Join(dir, "sluice.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, breakerConfig, filepath.Join(dir, "data"), broker.Addr()), 0o600); err != nil {
		t.Fatal(err)
	}
	d, end := runDaemon(t, file)
	producer := d.client.NewProducer(nil)
	for _, v := range []string{"no", "no", "no", "no", `{"page":"/"}`, `{"page":"/"}`} {
		if err := producer.Produce(t.Context(), "visits", kafka.Message{Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := producer.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for all := d.pipelineStatus()[0].Partitions; len(all) == 0 || all[0].Tripped == "" || all[0].Floor < 2; all = d.pipelineStatus()[0].Partitions {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("Got %+v, want an open breaker", d.pipelineStatus())
		}
	}
	skip := func(more ...string) (string, error) {
		return command(t, append([]string{"offsets", "skip", "-c", file, "--topic", "visits", "--partition", "0"}, more...)...)
	}
	for _, tc := range []struct {
		args []string
		want error
		text string
	}{
		{[]string{"--pipeline", "visits", "--from", "2", "--to", "4", "--reason", "other"}, cli.ErrUsage, "offsets 2 to 3 of visits/0 (2 records or fewer)"},
		{[]string{"--pipeline", "other", "--from", "2", "--to", "4", "--reason", "other", "--yes"}, cli.ErrUsage, "[visits]"},
		{[]string{"--pipeline", "visits", "--from", "1", "--to", "4", "--reason", "other", "--yes"}, store.ErrStale, "the stored offset is 2, not 1"},
		{[]string{"--pipeline", "visits", "--from", "2", "--to", "7", "--reason", "other", "--yes"}, cli.ErrUsage, "the log ends at offset 6"},
	} {
		if out, err := skip(tc.args...); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("Got %v, %q of %v, want %v with %q", err, out, tc.args, tc.want, tc.text)
		}
	}
	out, err := skip("--pipeline", "visits", "--from", "2", "--to", "4", "--reason", "corrupt", "--yes")
	if err != nil || out != "pipeline visits: offsets 2 to 3 of visits/0 are given up (corrupt) and count as lost; it goes on at 4\n" {
		t.Fatalf("Got %v, %q", err, out)
	}
	if _, err := command(t, "breaker", "close", "-c", file); err != nil {
		t.Fatal(err)
	}
	if err := d.pipelines[0].WaitStored(ctx, map[string]map[int32]int64{"visits": {0: 6}}); err != nil {
		t.Fatal(err)
	}
	if lost := d.pipelineStatus()[0].Partitions[0].Lost; lost["skipped"] != 2 || lost["retention"] != 0 {
		t.Errorf("Got %v lost", lost)
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	out, err = command(t, "offsets", "-c", file, "--json")
	var lines []offsetLine
	if err := errors.Join(err, json.Unmarshal([]byte(out), &lines)); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if l := lines[0]; l.Applied != 2 || l.Dead != 2 || l.Lost != 2 || l.Skipped != 2 || l.Skips.String() != "2-3 corrupt" || !l.Balanced {
		t.Errorf("Got %+v", l)
	}
	if out, err := command(t, "offsets", "-c", file); err != nil || !strings.Contains(out, "offsets of visits visits/0 that were given up: 2-3 corrupt\n") {
		t.Errorf("Got %v\n%s", err, out)
	}
	if out, err := command(t, "offsets", "verify", "-c", file, "--deep"); err != nil || !strings.Contains(out, "given up: 2-3 corrupt") {
		t.Errorf("Got %v\n%s", err, out)
	}
	// Without a daemon the store is opened.
	if _, err := skip("--pipeline", "visits", "--from", "6", "--to", "7", "--reason", "other", "--yes"); !errors.Is(err, cli.ErrUsage) {
		t.Errorf("Got %v, want ErrUsage at the end of the log", err)
	}
}
