package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/cmd/internal/cli"
)

// What is never resumed from HBase says so, and not only that nothing was cut off: it may
// have been killed a moment ago.
func TestNeverResumedFromHBase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`
store: {engine: hbase, hbase: {gateways: ["127.0.0.1:1"]}}
jobs:
  views: {table: views, columns: &c [{name: k, from: $row, type: string}], out: %[1]q}
  sorted: {table: views, columns: *c, sort: [{column: k, order: descending}], out: %[1]q}
joins:
  tables: {left: {job: views}, right: {job: views}, on: [{left: k}], kind: semi, out: %[1]q}
  runs: {left: {run: %[1]q}, right: {run: %[1]q}, on: [{left: k}], kind: semi, out: %[1]q}
`, out)
	file := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ command, name, why string }{
		{"run", "views", ""},
		{"run", "sorted", "a sorted run of a table on HBase is never resumed"},
		{"join", "tables", "a join of tables on HBase is never resumed"},
		{"join", "runs", ""},
	} {
		_, stderr, status := export(t, c.command, "-c", file, "--resume", c.name)
		switch {
		case status != cli.StatusFailed || !strings.Contains(stderr, "no run in "+out+" was cut off"):
			t.Errorf("%s: Got status %d, %s", c.name, status, stderr)
		case c.why == "" && strings.Contains(stderr, "never resumed"), !strings.Contains(stderr, c.why), c.why != "" && !strings.Contains(stderr, "without --resume"):
			t.Errorf("%s: Got %s, want %q", c.name, stderr, c.why)
		}
	}
}
