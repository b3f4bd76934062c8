package structure

import (
	"bytes"
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
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

// flagsOf returns the flags that the fields of a command's structs are to kong, with their
// short forms.
func flagsOf(t *testing.T, source []byte, name string) (flags [][]string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), name, source, 0)
	if err != nil {
		t.Fatal(err)
	}
	words := regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)
	ast.Inspect(parsed, func(n ast.Node) bool {
		f, ok := n.(*ast.Field)
		if !ok || f.Tag == nil || len(f.Names) == 0 {
			return true
		}
		text, err := strconv.Unquote(f.Tag.Value)
		tag := reflect.StructTag(text)
		_, command := tag.Lookup("cmd")
		_, argument := tag.Lookup("arg")
		if err != nil || command || argument || tag.Get("help") == "" {
			return true
		}
		long := cmp.Or(tag.Get("name"), strings.ToLower(words.ReplaceAllString(f.Names[0].Name, "$1$3-$2$4")))
		forms := []string{"--" + long}
		if short := tag.Get("short"); short != "" {
			forms = append(forms, "-"+short)
		}
		flags = append(flags, forms)
		return true
	})
	return flags
}

// A flag that no page names is found by nobody who does not know it.
func TestDocumentsNameFlags(t *testing.T) {
	t.Parallel()
	root := os.DirFS("../..")
	pages, err := fs.Glob(root, "docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	for _, page := range append(pages, "README.md") {
		b, err := fs.ReadFile(root, page)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, b...)
	}
	found := 0
	for _, dir := range []string{"cmd/ingest", "cmd/export", "cmd/shell", "cmd/internal/cli"} {
		files, err := fs.Glob(root, dir+"/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			source, err := fs.ReadFile(root, name)
			if err != nil {
				t.Fatal(err)
			}
			for _, forms := range flagsOf(t, source, name) {
				found++
				if !slices.ContainsFunc(forms, func(f string) bool {
					return regexp.MustCompile(`(^|[^-\w])` + f + `\b`).Match(text)
				}) {
					t.Errorf("No page names %s of %s", strings.Join(forms, " or "), name)
				}
			}
		}
	}
	if found < 100 {
		t.Fatalf("Got %d flags: are they read right?", found)
	}
}

// The examples that docs/go.md names are in the packages of their rows.
func TestGoPageNamesExamples(t *testing.T) {
	t.Parallel()
	root := os.DirFS("../..")
	page, err := fs.ReadFile(root, "docs/go.md")
	if err != nil {
		t.Fatal(err)
	}
	quoted, found := regexp.MustCompile("`([^`]+)`"), 0
	for line := range strings.Lines(string(page)) {
		columns := strings.Split(line, "|")
		if len(columns) != 5 {
			continue
		}
		var source []byte
		for _, m := range quoted.FindAllStringSubmatch(columns[2], -1) {
			files, err := fs.Glob(root, strings.Split(m[1], ".")[0]+"/*_test.go")
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range files {
				b, err := fs.ReadFile(root, name)
				if err != nil {
					t.Fatal(err)
				}
				source = append(source, b...)
			}
		}
		for _, m := range quoted.FindAllStringSubmatch(columns[3], -1) {
			if !strings.HasPrefix(m[1], "Example") {
				continue
			}
			if found++; !bytes.Contains(source, []byte("\nfunc "+m[1]+"(")) {
				t.Errorf("docs/go.md names %s, which none of the packages%shas", m[1], columns[2])
			}
		}
	}
	if found < 15 {
		t.Fatalf("Got %d examples: are they read right?", found)
	}
}

// anchors are the fragments by which the headings of a document are linked to, as GitHub makes
// them: lower case, without punctuation, with - for blanks, and a number behind one that is
// there before.
func anchors(document string) map[string]bool {
	found, fenced, marks := map[string]bool{}, false, regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
	for line := range strings.Lines(document) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		m := regexp.MustCompile(`^#{1,6} +(.*\S)`).FindStringSubmatch(line)
		if fenced || m == nil {
			continue
		}
		name := strings.ReplaceAll(marks.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		anchor := name
		for n := 1; found[anchor]; n++ {
			anchor = name + "-" + strconv.Itoa(n)
		}
		found[anchor] = true
	}
	return found
}

// Every link of a document to another, or to a heading, leads somewhere.
func TestDocumentLinks(t *testing.T) {
	t.Parallel()
	root := os.DirFS("../..")
	var pages []string
	for _, pattern := range []string{"*.md", "*/*.md", "*/*/*.md"} {
		matches, err := fs.Glob(root, pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, matches...)
	}
	link, code, found := regexp.MustCompile(`\]\(([^)\s]+)\)`), regexp.MustCompile("(?s)```.*?```|`[^`\n]*`"), 0
	for _, page := range pages {
		text, err := fs.ReadFile(root, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			target, fragment, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, ":") {
				continue // of the web
			}
			found++
			at := page
			if target != "" {
				at = path.Join(path.Dir(page), target)
			}
			info, err := fs.Stat(root, at)
			if err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[1])
				continue
			}
			if fragment == "" || info.IsDir() {
				continue
			}
			document, err := fs.ReadFile(root, at)
			if err != nil {
				t.Fatal(err)
			}
			if !anchors(string(document))[fragment] {
				t.Errorf("%s links to %s, and there is no such heading", page, m[1])
			}
		}
	}
	if found < 100 {
		t.Fatalf("Got %d links: are they read right?", found)
	}
}
