package config_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/config.md")

// structs are the types of the file, with the packages that they live in.
type structs map[string]*ast.StructType // by "package.Type"

func readStructs(t *testing.T, dirs map[string]string) structs {
	t.Helper()
	all := structs{}
	for pkg, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if spec, ok := n.(*ast.TypeSpec); ok {
					if st, ok := spec.Type.(*ast.StructType); ok {
						all[pkg+"."+spec.Name.Name] = st
					}
				}
				return true
			})
		}
	}
	return all
}

// typeName resolves an expression to "package.Type" and how it is written in the
// file: "" plain, "<name>." map, "[]" list.
func typeName(pkg string, e ast.Expr) (name, shape string) {
	switch x := e.(type) {
	case *ast.Ident:
		return pkg + "." + x.Name, ""
	case *ast.SelectorExpr:
		return x.X.(*ast.Ident).Name + "." + x.Sel.Name, ""
	case *ast.StarExpr:
		return typeName(pkg, x.X)
	case *ast.ArrayType:
		name, _ = typeName(pkg, x.Elt)
		return name, "[]"
	case *ast.MapType:
		name, inner := typeName(pkg, x.Value)
		return name, ".*" + inner
	}
	return fmt.Sprintf("%T", e), ""
}

var kinds = map[string]string{
	"string": "text", "bool": "true or false", "int": "number", "int64": "number", "Duration": "duration", "Size": "size",
	"Secret": "secret", "Start": "earliest, latest, committed or a time", "Family": "attributes",
}

func (all structs) write(t *testing.T, w *bytes.Buffer, pkg string, st *ast.StructType, path string) {
	t.Helper()
	for _, f := range st.Fields.List {
		if f.Tag == nil {
			continue
		}
		raw, err := strconv.Unquote(f.Tag.Value)
		if err != nil {
			t.Fatal(err)
		}
		tag := reflect.StructTag(raw)
		key, options, _ := strings.Cut(tag.Get("yaml"), ",")
		if key == "-" {
			continue
		}
		name, shape := typeName(pkg, f.Type)
		inner := all[name]
		innerPkg, base, _ := strings.Cut(name, ".")
		if strings.Contains(options, "inline") {
			all.write(t, w, innerPkg, inner, path)
			continue
		}
		doc := f.Doc.Text()
		if doc == "" {
			doc = f.Comment.Text()
		}
		doc = strings.TrimSpace(strings.Join(strings.Fields(doc), " "))
		if doc == "" {
			t.Errorf("%s%s has no comment", path, key)
		}
		full := path + key + shape
		if inner != nil && base != "Start" {
			fmt.Fprintf(w, "| `%s` | | | %s |\n", full, tableCell(f, doc))
			all.write(t, w, innerPkg, inner, full+".")
			continue
		}
		kind := kinds[base]
		if kind == "number" && shape == "" && strings.HasSuffix(key, "_bytes") {
			kind = "size"
		}
		if kind == "" {
			t.Errorf("%s%s: no name for a %s", path, key, name)
		}
		switch {
		case strings.HasPrefix(shape, ".*"):
			kind = strings.TrimSuffix("map of "+kind, "s") + "s"
		case shape == "[]":
			kind = "list of " + kind + "s"
		}
		if v := tag.Get("values"); v != "" {
			kind = strings.ReplaceAll(v, "|", ", ")
		}
		fallback := tag.Get("default")
		if fallback != "" {
			fallback = "`" + fallback + "`"
		}
		if tag.Get("required") == "true" {
			fallback = "required"
		}
		fmt.Fprintf(w, "| `%s` | %s | %s | %s |\n", full, kind, fallback, tableCell(f, doc))
	}
}

// tableCell makes a comment fit a table: its field's name at the start says nothing
// there.
func tableCell(f *ast.Field, doc string) string {
	name := f.Names[0].Name
	for _, verb := range []string{" is ", " are "} {
		if rest, ok := strings.CutPrefix(doc, name+verb); ok {
			doc = strings.ToUpper(rest[:1]) + rest[1:]
		}
	}
	return strings.ReplaceAll(doc, "|", `\|`)
}

const docHead = `# Configuration

<!-- Generated from the types of package config by "go test ./config -update". Change those. -->

One YAML file configures everything: ` + "`ingest`, `export` and `shell`" + ` read the same one.
The examples are in [examples](../examples). ` + "`ingest lint -c FILE`" + ` names every
mistake at once, with line, column and what was probably meant; an unknown key
is a mistake.

Durations are written ` + "`250ms`, `10s`, `1h30m`, `7d`" + `; sizes ` + "`64KiB`, `16MiB`, `1GiB`" + ` (powers
of 1024), ` + "`10MB`" + ` (powers of 1000) or a number of bytes.

In every value, but not in keys:

| written | becomes |
|---|---|
| ` + "`${VAR}`" + ` | the environment variable; a mistake where it is not set |
| ` + "`${VAR:-default}`" + ` | or the default where it is not set or empty |
| ` + "`${VAR:?message}`" + ` | or a mistake with this message |
| ` + "`${file:/path}`" + ` | the content of a file of one line; a relative path starts at the configuration file |
| ` + "`$$`" + ` | a dollar sign; a single one that no brace follows stands for itself |

A value can never add keys, as it is put in after the file was parsed; one with
line breaks is refused. Passwords and tokens are never printed.

YAML anchors and aliases work; merge keys (` + "`<<`" + `) and tags do not. ` + "`*`" + ` in a key
below stands for a name that you choose, ` + "`[]`" + ` for the elements of a list.

Families take HBase's attributes: `

const docMiddle = `.

## Keys

| key | value | default | |
|---|---|---|---|
`

// TestDocs fails where docs/config.md is not what the types say.
func TestDocs(t *testing.T) {
	t.Parallel()
	all := readStructs(t, map[string]string{"config": ".", "mapping": "../pipeline/mapping", "jobs": "../jobs", "columnar": "../jobs/columnar", "schedule": "../jobs/schedule", "join": "../jobs/join"})
	var w bytes.Buffer
	w.WriteString(docHead)
	for i, name := range attributeNames() {
		if i > 0 {
			w.WriteString(", ")
		}
		w.WriteString("`" + name + "`")
	}
	w.WriteString(docMiddle)
	all.write(t, &w, "config", all["config.Config"], "")
	const path = "../docs/config.md"
	if *update {
		if err := os.WriteFile(path, w.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(have), w.String()); diff != "" {
		t.Errorf("docs/config.md is stale; run go test ./config -update (-have +want):\n%s", diff)
	}
}
