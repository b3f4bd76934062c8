package main

import (
	"path/filepath"
	"strings"
	"testing"

	"sluice/cmd/internal/cli"
)

// TestCopyRefuses: what is wrong with the command line is told before a store is opened
// or made.
func TestCopyRefuses(t *testing.T) {
	t.Parallel()
	a, b := "pebble:"+filepath.Join(t.TempDir(), "a"), "pebble:"+filepath.Join(t.TempDir(), "b")
	for _, test := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"--from", a}, cli.StatusUsage, "--to"},
		{[]string{"--from", a, "--to", b}, cli.StatusUsage, "export backup and export restore"},
		{[]string{"--from", a, "--to", "hbase://h"}, cli.StatusUsage, "--to: store: invalid argument: hbase://h: gateway"},
		{[]string{"--from", "hbase://h:1?fram=true", "--to", b}, cli.StatusUsage, `unknown "fram"`},
		{[]string{"--from", a, "--to", "hbase://h:1", "--resume", "--restart"}, cli.StatusUsage, "exclude each other"},
		{[]string{"--from", a, "--to", "hbase://h:1", "--resume", "--verify-only"}, cli.StatusUsage, "exclude each other"},
	} {
		_, stderr, status := export(t, append([]string{"copy"}, test.args...)...)
		if status != test.status || !strings.Contains(stderr, test.want) {
			t.Errorf("%v: Got status %d, %s, want %d, %s", test.args, status, stderr, test.status, test.want)
		}
	}
}
