package main

import (
	"os"
	"strings"
	"testing"

	"sluice/cmd/internal/cli"
)

// Every command shows examples in its help, and each of them is a command line.
func TestExamples(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("access.log", nil, 0o600); err != nil { // flags name files that are there
		t.Fatal(err)
	}
	p := &cli.Program{}
	for line := range strings.Lines(strings.TrimSpace((*commands)(nil).Examples())) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " | ")
		words := strings.Fields(line)
		if words[0] != "export" {
			t.Errorf("%s: it is not export", line)
		}
		if _, err := cli.Parser(p, "export", "", new(commands)).Parse(words[1:]); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	for _, leaf := range cli.Parser(p, "export", "", new(commands)).Model.Leaves(true) {
		if !strings.Contains(leaf.Detail, "\n    "+leaf.FullPath()) && !strings.Contains(leaf.Detail, "\n    "+leaf.Parent.FullPath()) {
			t.Errorf("%s --help shows no example: %q", leaf.FullPath(), leaf.Detail)
		}
	}
}
