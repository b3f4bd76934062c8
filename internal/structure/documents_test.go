package structure

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// named are the packages of the first column of the table in ARCHITECTURE.md.
func named(document string) []string {
	_, table, _ := strings.Cut(document, "\n## Packages\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var packages []string
	quoted := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(table) {
		columns := strings.Split(line, "|")
		if len(columns) < 5 {
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(columns[1], -1) {
			packages = append(packages, m[1])
		}
	}
	return packages
}

// TestArchitectureNamesPackages compares the table of packages in ARCHITECTURE.md
// with the packages that there are. What is below an "internal" directory of a
// package belongs to that package.
func TestArchitectureNamesPackages(t *testing.T) {
	t.Parallel()
	root := os.DirFS("../..")
	document, err := fs.ReadFile(root, "ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	table := named(string(document))
	there := map[string]bool{}
	for _, f := range files {
		if parent, _, inner := strings.Cut(f.pkg, "/internal/"); inner && slices.Contains(table, parent) {
			continue
		}
		there[f.pkg] = true
	}
	for pkg := range there {
		if !slices.Contains(table, pkg) {
			t.Errorf("ARCHITECTURE.md does not say what %s is", pkg)
		}
	}
	for _, pkg := range table {
		if !there[pkg] {
			t.Errorf("ARCHITECTURE.md names %s, and there is no such package", pkg)
		}
	}
}

// marks are the lines that a merge leaves where it could not decide.
var marks = regexp.MustCompile(`(?m)^(<{7} |={7}\r?$|>{7} )`)

// TestNoMarksOfMerges looks at every text of the tree, whatever its language.
func TestNoMarksOfMerges(t *testing.T) {
	t.Parallel()
	if !marks.MatchString("a\n<<<<<<< HEAD\nb\n") || marks.MatchString("a\n========\n") {
		t.Fatal("the expression does not find what it should")
	}
	root := os.DirFS("../..")
	seen := 0
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(path.Base(name), ".") && name != ".ci" || name == "bin" || path.Base(name) == "testdata"):
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		if bytes.IndexByte(text[:min(len(text), 512)], 0) >= 0 {
			return nil // no text
		}
		seen++
		if at := marks.FindIndex(text); at != nil {
			t.Errorf("%s:%d: a mark of a merge", name, bytes.Count(text[:at[0]], []byte("\n"))+1)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 500 {
		t.Errorf("the walk found %d texts", seen)
	}
}
