package structure

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// shares says what in the source of a file may run, or be used, beside others; "" = nothing.
func shares(t *testing.T, name string, source []byte) (what string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), name, source, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range parsed.Imports {
		p := strings.Trim(spec.Path.Value, `"`)
		if p == "sync" || strings.HasPrefix(p, "sync/") || strings.HasPrefix(p, "golang.org/x/sync/") {
			return "imports " + p
		}
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.GoStmt:
			what = "starts a goroutine"
		case *ast.ChanType:
			what = "has a channel"
		}
		return what == ""
	})
	return what
}

// TestRaceLeaves: what make race leaves out is there under its name, and what is left out
// because it shares nothing does not.
func TestRaceLeaves(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"package p; import \"sync\"; var m sync.Mutex": "imports sync",
		"package p; func f() { go f() }":               "starts a goroutine",
		"package p; func f(c chan int) {}":             "has a channel",
		"package p; func f() {}":                       "",
	} {
		if got := shares(t, "p.go", []byte(source)); got != want {
			t.Errorf("%s: Got %q, want %q", source, got, want)
		}
	}
	root := filepath.Join("..", "..")
	leaves, err := os.ReadFile(filepath.Join(root, ".ci", "race.leaves"))
	if err != nil {
		t.Fatal(err)
	}
	declared, seen := declaredTests(t, root), 0
	for line := range strings.Lines(string(leaves)) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		seen++
		switch {
		case words[0] == "test" && len(words) == 3:
			// The go command skips a test of any package by its name.
			if in := declared[words[2]]; !slices.Equal(in, words[1:2]) {
				t.Errorf("%s: %s is a test of %v", strings.TrimSpace(line), words[2], in)
			}
		case (words[0] == "package" || words[0] == "unused") && len(words) == 2:
			files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(words[1]), "*.go"))
			if err != nil || len(files) == 0 {
				t.Errorf("%s: there is no such package: %v", strings.TrimSpace(line), err)
			}
			for _, name := range files {
				if words[0] == "unused" || strings.HasSuffix(name, "_test.go") {
					continue
				}
				source, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				if what := shares(t, name, source); what != "" {
					t.Errorf("%s: %s %s", strings.TrimSpace(line), name, what)
				}
			}
		default:
			t.Errorf("%q is none of: package PATH, unused PATH, test PATH NAME", strings.TrimSpace(line))
		}
	}
	if seen < 10 {
		t.Errorf("Got %d lines of what is left out", seen)
	}
}
