// Package clitest has what the tests of the three binaries share.
package clitest

import (
	"os"
	"strings"
	"testing"

	"sluice/cmd/internal/cli"
)

// Examples checks that every command of a binary shows examples in its help, and that each
// of these is a command line. commands returns a command set anew. It changes the directory.
func Examples(t *testing.T, binary string, commands func() interface{ Examples() string }) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("access.log", nil, 0o600); err != nil { // flags name files that are there
		t.Fatal(err)
	}
	p := &cli.Program{}
	for line := range strings.Lines(strings.TrimSpace(commands().Examples())) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " | ")
		words := strings.Fields(line)
		if words[0] != binary {
			t.Errorf("%s: it is not %s", line, binary)
		}
		if _, err := cli.Parser(p, binary, "", commands()).Parse(words[1:]); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	for _, leaf := range cli.Parser(p, binary, "", commands()).Model.Leaves(true) {
		if !strings.Contains(leaf.Detail, "\n    "+leaf.FullPath()) && !strings.Contains(leaf.Detail, "\n    "+leaf.Parent.FullPath()) {
			t.Errorf("%s --help shows no example: %q", leaf.FullPath(), leaf.Detail)
		}
	}
}
