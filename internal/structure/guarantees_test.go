package structure

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A promise whose test was renamed away is no promise.
func TestGuaranteesNameTests(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range declaration.FindAllSubmatch(source, -1) {
			declared[string(m[1])] = true
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	// A name that ends in … stands for all that begin so.
	named := regexp.MustCompile("`(Test\\w+)(…?)`").FindAllSubmatch(page, -1)
	if len(named) < 50 {
		t.Fatalf("Got %d tests named in docs/guarantees.md: is it read right?", len(named))
	}
	for _, m := range named {
		found := declared[string(m[1])]
		for name := range declared {
			found = found || len(m[2]) > 0 && strings.HasPrefix(name, string(m[1]))
		}
		if !found {
			t.Errorf("docs/guarantees.md names %s, and no test file declares it", m[1])
		}
	}
}
