package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/cmd/internal/cli"
)

// A directory without a store, as with a mistyped path or in another working
// directory, is refused by every command, and none is made in it: a backup would be one
// of nothing, and the latest.
func TestMistypedDataDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	file := filepath.Join(dir, "c.yaml")
	text := "store: {dir: '" + data + "'}\njobs:\n  j:\n    table: t\n    columns: [{name: k, from: $row, type: string}]\n    schedule: {cron: '0 3 * * *'}\n    out: '" + filepath.Join(dir, "out") + "'\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"backup", "-c", file, filepath.Join(dir, "backups")},
		{"run", "-c", file, "j"},
		{"plan", "-c", file, "j"},
		{"count", "-c", file, "t"},
		{"verify-table", "-c", file, "t", "u"},
		{"copy-table", "-c", file, "t", "u"},
		{"history", "-c", file, "j"},
	} {
		_, stderr, code := export(t, args...)
		if code != cli.StatusUnavailable || !strings.Contains(stderr, "no store in "+data) {
			t.Errorf("%q: status %d, want %d:\n%s", args, code, cli.StatusUnavailable, stderr)
		}
		if _, err := os.Stat(data); err == nil {
			t.Errorf("%q has made %s", args, data)
			_ = os.RemoveAll(data)
		}
	}
	if entries, _ := os.ReadDir(filepath.Join(dir, "backups")); len(entries) > 0 {
		t.Errorf("there is a backup of nothing: %v", entries)
	}
}
