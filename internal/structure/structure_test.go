package structure

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// file is what the rules look at of one Go file.
type file struct {
	path    string // slash-separated, from the module's root
	pkg     string // directory
	name    string // of the package clause, without _test
	doc     string // the package comment; "" = none
	test    bool
	imports []string
	lines   int
	leaps   []string // "line: word" of words that no file of its sort may have
}

// load reads every Go file below the root, except in directories that the go
// command skips, too: other modules among them.
func load(root fs.FS) ([]file, error) {
	var files []file
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			base := path.Base(name)
			if name != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" || base == "vendor") {
				return fs.SkipDir
			}
			if _, err := fs.Stat(root, path.Join(name, "go.mod")); name != "." && err == nil {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		f, err := read(name, source)
		if err != nil {
			return err
		}
		files = append(files, f)
		return nil
	})
	return files, err
}

func read(name string, source []byte) (file, error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, name, source, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		return file{}, err
	}
	f := file{
		path: name, pkg: path.Dir(name), doc: parsed.Doc.Text(), test: strings.HasSuffix(name, "_test.go"),
		lines: bytes.Count(source, []byte("\n")),
	}
	if ast.IsGenerated(parsed) {
		f.lines = 0 // nobody reads them
	}
	f.name = parsed.Name.Name
	if f.test {
		f.name = strings.TrimSuffix(f.name, "_test")
	}
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return file{}, fmt.Errorf("%s: %w", name, err)
		}
		f.imports = append(f.imports, imported)
	}
	f.leaps = leaps(source, f.test, parsed.Imports)
	return f, nil
}

// leaps finds unfinished work outside tests, and sleeping in tests: a test that
// waits for a time is slow on a fast machine and flaky on a slow one. A file that
// imports testing/synctest may sleep, as the clock of a bubble is not real.
func leaps(source []byte, test bool, imports []*ast.ImportSpec) []string {
	bubble := slices.ContainsFunc(imports, func(s *ast.ImportSpec) bool { return s.Path.Value == `"testing/synctest"` })
	var found []string
	set := token.NewFileSet()
	at := set.AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(at, source, nil, scanner.ScanComments)
	var before [2]string // the two tokens before
	for {
		pos, kind, text := s.Scan()
		if kind == token.EOF {
			return found
		}
		line := at.Position(pos).Line
		switch {
		case test && !bubble && before == [2]string{"time", "."} && text == "Sleep":
			found = append(found, fmt.Sprintf("%d: time.Sleep in a test; use testing/synctest, a channel or a ticker with a deadline", line))
		case !test && (kind == token.COMMENT || kind == token.IDENT):
			for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r < 'A' || r > 'Z' }) {
				if word == "TODO" || word == "FIXME" {
					found = append(found, fmt.Sprintf("%d: %s; finish it, or say in an error what is not supported", line, word))
				}
			}
		}
		switch kind {
		case token.COMMENT: // stands between the others, and changes nothing
		case token.PERIOD:
			before = [2]string{before[1], "."}
		default:
			before = [2]string{before[1], text}
		}
	}
}

// matches reports whether a pattern of names covers name.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		below, ok := strings.CutSuffix(p, "/*")
		return p == name || p == everything || ok && strings.HasPrefix(name, below+"/")
	})
}

// owners returns the library that imported belongs to, and who may import it.
func owners(imported string) (library string, pkgs []string, ok bool) {
	for library, pkgs := range libraries {
		if imported == library || strings.HasPrefix(imported, library+"/") {
			return library, pkgs, true
		}
	}
	return "", nil, false
}

// importers returns who may import a restricted package.
func importers(imported string) (pkgs []string, ok bool) {
	for pattern, pkgs := range restricted {
		if matches([]string{pattern}, imported) {
			return pkgs, true
		}
	}
	return nil, false
}

// check returns every violation in files, sorted.
func check(files []file) []string {
	var found []string
	report := func(f *file, format string, args ...any) {
		found = append(found, f.path+": "+fmt.Sprintf(format, args...))
	}
	comments := map[string][]string{} // package → its comments
	firsts := map[string]*file{}      // package → one of its files
	long := map[string]bool{}
	for i := range files {
		f := &files[i]
		if firsts[f.pkg] == nil || firsts[f.pkg].test && !f.test {
			firsts[f.pkg] = f
		}
		if f.doc != "" {
			comments[f.pkg] = append(comments[f.pkg], f.doc)
		}
		for _, imported := range f.imports {
			if why := checkImport(f, imported); why != "" {
				report(f, "%s", why)
			}
		}
		limit := maxLines - 1
		if f.test {
			limit = maxTestLines
		}
		if f.lines > limit {
			long[f.path] = true
			if longFiles[f.path] == "" {
				report(f, "%d lines, at most %d: split it", f.lines, limit)
			}
		}
		for _, l := range f.leaps {
			report(f, "line %s", l)
		}
	}
	for pkg, f := range firsts {
		if _, ok := packages[pkg]; !ok {
			report(f, "package %s is not in the table of packages", pkg)
		}
		if len(comments[pkg]) == 0 {
			report(f, "package %s has no comment", pkg)
		}
		for _, c := range comments[pkg] {
			if f.name != "main" && !strings.HasPrefix(c, "Package "+f.name+" ") {
				report(f, "comment of package %s begins with %.30q, want \"Package %s …\"", pkg, c, f.name)
			}
		}
	}
	for name := range longFiles {
		if !long[name] {
			found = append(found, name+": is in the list of long files and is not long")
		}
	}
	slices.Sort(found)
	return found
}

// checkImport says what is wrong with f importing imported, or "".
func checkImport(f *file, imported string) string {
	if imported == module || strings.HasPrefix(imported, module+"/") {
		return checkOwnImport(f, strings.TrimPrefix(strings.TrimPrefix(imported, module), "/"))
	}
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		return "" // the standard library
	}
	library, pkgs, ok := owners(imported)
	switch {
	case !ok:
		return "imports " + imported + ", which has no owner in the table of libraries"
	case f.test || f.pkg == "bench" || slices.Contains(testPackages, f.pkg) || matches(pkgs, f.pkg):
		return ""
	case len(pkgs) == 0:
		return "imports " + library + ", which is for tests only"
	}
	return "imports " + library + ", which belongs to " + strings.Join(pkgs, ", ")
}

func checkOwnImport(f *file, imported string) string {
	if imported == f.pkg {
		return "" // a package's external test
	}
	flow := func(pkg string) string {
		first, _, _ := strings.Cut(pkg, "/")
		if slices.Contains(flows, first) {
			return first
		}
		return ""
	}
	if a, b := flow(f.pkg), flow(imported); a != "" && b != "" && a != b {
		return "imports " + imported + ": the flows of " + a + " and " + b + " meet in store only"
	}
	if f.test {
		if matches([]string{"cmd/*"}, imported) && !matches([]string{"cmd/*"}, f.pkg) {
			return "imports " + imported + ": nothing imports a command"
		}
		return ""
	}
	if pkgs, ok := importers(imported); ok && !matches(pkgs, f.pkg) && !slices.Contains(testPackages, f.pkg) {
		return "imports " + imported + ", which is for " + strings.Join(append(slices.Clone(pkgs), "tests"), ", ") + " only"
	}
	if !matches(packages[f.pkg], imported) {
		return "imports " + imported + "; the table of packages allows it " + fmt.Sprint(packages[f.pkg])
	}
	return ""
}

func TestStructure(t *testing.T) {
	t.Parallel()
	root := os.DirFS("../..")
	mod, err := fs.ReadFile(root, "go.mod")
	if err != nil || !strings.HasPrefix(string(mod), "module "+module+"\n") {
		t.Fatalf("../.. is not module %s: %v", module, err)
	}
	files, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	// This very file is among them, or the walk has not seen the tree.
	if !slices.ContainsFunc(files, func(f file) bool { return f.path == "internal/structure/structure_test.go" }) {
		t.Fatalf("the walk found %d files, this one not among them", len(files))
	}
	for _, v := range check(files) {
		t.Error(v)
	}
}

// TestTables keeps the tables themselves honest: what they name must be named
// rightly, or a rule would hold for nothing.
func TestTables(t *testing.T) {
	t.Parallel()
	known := func(where string, patterns []string) {
		for _, p := range patterns {
			below, all := strings.CutSuffix(p, "*")
			ok := p == everything
			for pkg := range packages {
				ok = ok || pkg == p || all && strings.HasPrefix(pkg, below)
			}
			if !ok {
				t.Errorf("%s names %s, which is no package", where, p)
			}
		}
	}
	for pkg, imports := range packages {
		known("packages: "+pkg, imports)
	}
	for pkg, importers := range restricted {
		known("restricted", []string{pkg})
		known("restricted: "+pkg, importers)
	}
	for library, owners := range libraries {
		known("libraries: "+library, owners)
	}
	known("flows", flows)
	known("testPackages", testPackages)
}

// TestPlantedViolations plants each sort of violation into a small tree that is in
// order, and expects it, and nothing else, to be found.
func TestPlantedViolations(t *testing.T) {
	t.Parallel()
	source := func(clause string, imports ...string) string {
		var b strings.Builder
		name := clause[strings.LastIndex(clause, " ")+1:]
		fmt.Fprintf(&b, "// Package %s is here.\n%s\n", name, clause)
		for _, i := range imports {
			fmt.Fprintf(&b, "import _ %q\n", i)
		}
		return b.String()
	}
	test := func(name string, imports ...string) string {
		_, after, _ := strings.Cut(source("package "+name, imports...), "\n")
		return after
	}
	lines := func(n int) string { return strings.Repeat("\n", n) }
	base := map[string]string{
		"cell/cell.go":                     source("package cell", "errors"),
		"cell/made.go":                     "// Code generated by a program. DO NOT EDIT.\n\npackage cell" + lines(2000),
		"store/store.go":                   source("package store", module+"/cell"),
		"store/pebblestore/db.go":          source("package pebblestore", module+"/store", "github.com/cockroachdb/pebble/v2/bloom"),
		"store/storetest/run.go":           source("package storetest", module+"/store"),
		"pipeline/run.go":                  source("package pipeline", module+"/store", "golang.org/x/sync/errgroup"),
		"pipeline/kafka/kafka.go":          source("package kafka"),
		"pipeline/kafka/embedded/kfake.go": source("package embedded", "github.com/twmb/franz-go/pkg/kfake"),
		"jobs/jobs.go":                     source("package jobs", module+"/store", module+"/jobs/columnar"),
		"jobs/columnar/columnar.go":        source("package columnar", module+"/store", "github.com/apache/arrow/go/v15/arrow"),
		"config/config.go":                 source("package config", module+"/store/pebblestore", module+"/pipeline", "github.com/goccy/go-yaml"),
		"cmd/ingest/main.go":               source("package main", module+"/config", module+"/pipeline/kafka/embedded", "github.com/alecthomas/kong"),
		"bench/main.go":                    source("package main", module+"/store/pebblestore", "github.com/cockroachdb/pebble/v2"),
		"jobs/jobs_test.go":                test("jobs_test", module+"/jobs", module+"/store/pebblestore", module+"/store/storetest", "github.com/google/go-cmp/cmp"),
		"store/testdata/broken.go":         "this is not Go",
		".git/broken.go":                   "nor is this",
	}
	for _, c := range []struct {
		name, path, source string
		want               string // part of the one violation; "" = none
	}{
		{"nothing", "cell/other.go", "package cell\n", ""},
		{"upwards", "cell/up.go", "package cell\nimport _ \"sluice/store\"\n", "cell/up.go: imports store"},
		{"sideways", "pipeline/kafka/side.go", "package kafka\nimport _ \"sluice/store\"\n", "imports store"},
		{"child imports parent", "jobs/columnar/up.go", "package columnar\nimport _ \"sluice/jobs\"\n", "imports jobs"},
		{"pipeline imports jobs", "pipeline/jobs.go", "package pipeline\nimport _ \"sluice/jobs\"\n", "meet in store only"},
		{"jobs import a part of pipeline", "jobs/kafka.go", "package jobs\nimport _ \"sluice/pipeline/kafka\"\n", "meet in store only"},
		{"in a test, too", "jobs/kafka_test.go", "package jobs\nimport _ \"sluice/pipeline/kafka\"\n", "meet in store only"},
		{"engine outside the seam", "jobs/engine.go", "package jobs\nimport _ \"sluice/store/pebblestore\"\n", "pebblestore, which is for config, cmd/*, bench, tests only"},
		{"engine in a test", "pipeline/engine_test.go", "package pipeline\nimport _ \"sluice/store/pebblestore\"\n", ""},
		{"broker in config", "config/broker.go", "package config\nimport _ \"sluice/pipeline/kafka/embedded\"\n", "embedded, which is for"},
		{"contract outside tests", "cmd/ingest/contract.go", "package main\nimport _ \"sluice/store/storetest\"\n", "storetest, which is for tests only"},
		{"a command", "config/cmd.go", "package config\nimport _ \"sluice/cmd/ingest\"\n", "cmd/ingest, which is for"},
		{"a command in a test", "config/cmd_test.go", "package config\nimport _ \"sluice/cmd/ingest\"\n", "nothing imports a command"},
		{"new package", "util/util.go", source("package util"), "util is not in the table"},
		{"new package imports", "util/util.go", source("package util", module+"/cell"), "util"},

		{"library of another", "store/pebble.go", "package store\nimport _ \"github.com/cockroachdb/pebble/v2\"\n", "belongs to store/pebblestore"},
		{"library of another, below its root", "serve/api/yaml.go", source("package api", "github.com/goccy/go-yaml/ast"), "go-yaml, which belongs to config"},
		{"library of another in a command", "cmd/ingest/p.go", "package main\nimport _ \"github.com/parquet-go/parquet-go\"\n", "belongs to jobs/parquetfile"},
		{"library of another in a test", "cell/pebble_test.go", "package cell\nimport _ \"github.com/cockroachdb/pebble/v2\"\n", ""},
		{"library for tests in the contract", "store/storetest/diff.go", "package storetest\nimport _ \"github.com/google/go-cmp/cmp\"\n", ""},
		{"library for tests", "cell/rapid.go", "package cell\nimport _ \"pgregory.net/rapid\"\n", "for tests only"},
		{"unknown library", "cell/new.go", "package cell\nimport _ \"example.com/shiny\"\n", "has no owner"},
		{"unknown library in a test", "cell/new_test.go", "package cell\nimport _ \"github.com/stretchr/testify/require\"\n", "has no owner"},
		{"a longer name", "store/pebblestore/x.go", "package pebblestore\nimport _ \"github.com/cockroachdb/pebble/v22\"\n", "has no owner"},

		{"no comment", "region/region.go", "package region\n", "region has no comment"},
		{"a comment apart", "region/region.go", "// Package region is here.\n\npackage region\n", "region has no comment"},
		{"a comment of another sort", "region/region.go", "// Regions are here.\npackage region\n", "want \"Package region …\""},
		{"a command's comment", "cmd/export/main.go", "// Export exports.\npackage main\n", ""},
		{"a comment in a test", "region/region_test.go", "// Package region is here.\npackage region\n", ""},

		{"799 lines", "cell/long.go", "package cell" + lines(799), ""},
		{"800 lines", "cell/long.go", "package cell" + lines(800), "800 lines, at most 799"},
		{"1500 lines of test", "cell/long_test.go", "package cell" + lines(1500), ""},
		{"1501 lines of test", "cell/long_test.go", "package cell" + lines(1501), "1501 lines, at most 1500"},

		{"unfinished", "cell/later.go", "package cell\n\n// TODO: later\n", "line 3: TODO"},
		{"unfinished, with a name", "cell/later.go", "package cell\n\nfunc f() {\n\t/* x FIXME(me): later */\n}\n", "line 4: FIXME"},
		{"no context", "cell/later.go", "package cell\n\nimport \"context\"\n\nvar x = context.TODO()\n", "line 5: TODO"},
		{"words in a string or another word", "cell/later.go", "package cell\n\nvar x = \"TODO\" // TODOS\n", ""},
		{"unfinished test", "cell/later_test.go", "package cell\n\n// TODO: later\n", ""},
		{"a sleep in a test", "cell/sleep_test.go", "package cell\n\nimport \"time\"\n\nfunc f() {\n\ttime. /* a */ Sleep(1)\n}\n", "line 6: time.Sleep"},
		{"a sleep in a test, plain", "cell/sleep_test.go", "package cell\n\nimport \"time\"\n\nfunc f() {\n\ttime.Sleep(1)\n}\n", "line 6: time.Sleep"},
		{"a sleep in a bubble", "cell/sleep_test.go", "package cell\n\nimport (\n\t\"testing/synctest\"\n\t\"time\"\n)\n\nfunc f() {\n\ttime.Sleep(1)\n\tsynctest.Wait()\n}\n", ""},
		{"a sleep in a string", "cell/sleep_test.go", "package cell\n\nvar x = \"time.Sleep(1)\" // time.Sleep(1)\n", ""},
		{"a sleep outside tests", "cell/sleep.go", "package cell\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tree := fstest.MapFS{c.path: &fstest.MapFile{Data: []byte(c.source)}}
			for name, source := range base {
				tree[name] = &fstest.MapFile{Data: []byte(source)}
			}
			files, err := load(tree)
			if err != nil {
				t.Fatal(err)
			}
			found := check(files)
			if c.want == "" && len(found) != 0 {
				t.Errorf("found %q, want nothing", found)
			}
			if c.want != "" && (len(found) == 0 || !strings.Contains(strings.Join(found, "\n"), c.want)) {
				t.Errorf("found %q, want %q", found, c.want)
			}
			for _, v := range found {
				if !strings.HasPrefix(v, path.Dir(c.path)+"/") {
					t.Errorf("found %q in what is in order", v)
				}
			}
			if len(found) > 1 && c.name != "new package imports" {
				t.Errorf("found %q, want one violation", found)
			}
		})
	}
}

func TestUnreadableFiles(t *testing.T) {
	t.Parallel()
	if _, err := load(fstest.MapFS{"cell/cell.go": &fstest.MapFile{Data: []byte("this is not Go")}}); err == nil {
		t.Error("a file that does not parse is passed over")
	}
}
