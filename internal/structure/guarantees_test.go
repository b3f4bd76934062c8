package structure

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// declaredTests returns the packages that declare each test, below root.
func declaredTests(t *testing.T, root string) map[string][]string {
	t.Helper()
	declared := map[string][]string{}
	declaration := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		for _, m := range declaration.FindAllSubmatch(source, -1) {
			declared[string(m[1])] = append(declared[string(m[1])], filepath.ToSlash(dir))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return declared
}

// A page that shows something by a test names one that there is.
func TestDocumentsNameTests(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	declared, names, found := declaredTests(t, root), regexp.MustCompile("`(Test\\w+)`"), 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range names.FindAllSubmatch(text, -1) {
			if found++; declared[string(m[1])] == nil {
				t.Errorf("%s names %s, and no test file declares it", filepath.Base(page), m[1])
			}
		}
	}
	if len(pages) < 10 || found < 200 {
		t.Fatalf("Got %d names of tests in %d pages: are they read right?", found, len(pages))
	}
}

// A promise whose test was renamed away is no promise, and one whose test is in another
// package than the page says is one that `go test -run NAME ./PACKAGE` does not check.
func TestGuaranteesNameTests(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	file, err := os.ReadFile(filepath.Join(root, "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(file)
	declared := declaredTests(t, root)
	in := func(prefix string, begins bool) (dirs []string) {
		for name, there := range declared {
			if name == prefix || begins && strings.HasPrefix(name, prefix) {
				dirs = append(dirs, there...)
			}
		}
		return dirs
	}
	// Tests are named one after the other, and behind them their packages: `TestA`,
	// `TestB` in `x` and `y`. A name that ends in … stands for all that begin so.
	names := regexp.MustCompile("`(Test\\w+)(…?)`")
	packages := regexp.MustCompile("^[^`.;|]{0,40}?\\s(?:in|of)\\s((?:`[a-z0-9/]+`(?:, | and (?:in )?)?)+)")
	listed := regexp.MustCompile("^(?:,| and|, with [^`;.|]*)?\\s*`Test")
	quoted := regexp.MustCompile("`([^`]+)`")
	found, placed := 0, 0
	type test struct {
		prefix string
		begins bool
	}
	var pending []test // whose packages are to come
	for _, m := range names.FindAllStringSubmatchIndex(page, -1) {
		found++
		named := test{page[m[2]:m[3]], m[4] < m[5]}
		if len(in(named.prefix, named.begins)) == 0 {
			t.Errorf("docs/guarantees.md names %s, and no test file declares it", named.prefix)
		}
		pending = append(pending, named)
		rest := strings.ReplaceAll(page[m[1]:min(m[1]+200, len(page))], "\n", " ")
		if behind := packages.FindStringSubmatch(rest); behind != nil {
			for _, p := range quoted.FindAllStringSubmatch(behind[1], -1) {
				for _, named := range pending {
					placed++
					if there := in(named.prefix, named.begins); !slices.Contains(there, p[1]) {
						t.Errorf("docs/guarantees.md says that %s is in %s; it is in %v", named.prefix, p[1], there)
					}
				}
			}
			pending = pending[:0]
		} else if !listed.MatchString(rest) {
			pending = pending[:0]
		}
	}
	if found < 50 || placed < 50 {
		t.Fatalf("Got %d tests named in docs/guarantees.md, %d with their packages: is it read right?", found, placed)
	}
}
