package structure

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// longForms returns the tests in files of Go source that use the name longer, themselves,
// through other functions of these files, or through methods of their own file, which are
// known by their names alone.
func longForms(t *testing.T, files map[string]string, longer string) (tests []string) {
	t.Helper()
	uses := map[string]map[string]bool{} // what each function names
	for name, source := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			own := fn.Name.Name
			if fn.Recv != nil {
				own = name + "." + own
			}
			if uses[own] == nil {
				uses[own] = map[string]bool{}
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					uses[own][name+"."+n.Sel.Name] = true
				case *ast.Ident:
					uses[own][n.Name] = true
				}
				return true
			})
		}
	}
	seen := map[string]bool{}
	var reaches func(name string) bool
	reaches = func(name string) bool {
		if name == longer {
			return true
		}
		if seen[name] {
			return false
		}
		seen[name] = true
		for used := range uses[name] {
			if (used == longer || uses[used] != nil) && reaches(used) {
				return true
			}
		}
		return false
	}
	for name := range uses {
		if clear(seen); strings.HasPrefix(name, "Test") && reaches(name) {
			tests = append(tests, name)
		}
	}
	return tests
}

// TestSoakRunsLongForms: a test of the integration suite that has a long form is one that make
// soak runs.
func TestSoakRunsLongForms(t *testing.T) {
	dir := filepath.Join("..", "integration")
	script, err := os.ReadFile(filepath.Join(dir, "soak"))
	if err != nil {
		t.Fatal(err)
	}
	var patterns []*regexp.Regexp
	for _, m := range regexp.MustCompile(` -run '([^']+)'`).FindAllStringSubmatch(string(script), -1) {
		patterns = append(patterns, regexp.MustCompile(m[1]))
	}
	names, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, name := range names {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(source)
	}
	tests := longForms(t, files, "soaking")
	if len(tests) < 10 || len(patterns) < 2 {
		t.Fatalf("%d tests and %d patterns: the rule does not see them", len(tests), len(patterns))
	}
next:
	for _, test := range tests {
		for _, p := range patterns {
			if p.MatchString(test) {
				continue next
			}
		}
		t.Errorf("%s has a long form, and internal/integration/soak does not run it", test)
	}
}

// TestLongForms: the rule sees a long form behind a method, and none where there is none.
func TestLongForms(t *testing.T) {
	tests := longForms(t, map[string]string{"a_test.go": `package a
		func TestFunction(t *testing.T) { spark() }
		func TestNone(t *testing.T) { c.read(1) }
	`, "b_test.go": `package a
		func (c *chain) read(n int) { if n > 0 { c.read(n - 1) }; spark() }
		func TestMethod(t *testing.T) { c.read(1) }
		func TestAnother(t *testing.T) { c.other() }
		func (c *chain) other() { c.other() }
		func spark() { _ = soaking }
	`, "c_test.go": `package a
		func TestOther(t *testing.T) { c.read(1) }
		func (c *other) read(n int) {}
		func TestItself(t *testing.T) { if !soaking { t.Skip() } }
	`}, "soaking")
	if slices.Sort(tests); !slices.Equal(tests, []string{"TestFunction", "TestItself", "TestMethod"}) {
		t.Errorf("Got %v", tests)
	}
}
