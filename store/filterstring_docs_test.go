package store

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
)

// TestFilterDocs reads every example of docs/filters.md: line by line a block of
// filter strings or of JSON says the same as the block of Go that follows it. All
// filters of the language must be among them.
func TestFilterDocs(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../docs/filters.md")
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{"SKIP": true, "WHILE": true}
	for _, f := range filterForms {
		missing[f.name] = true
	}
	var lang string // of the examples that wait for their Go form
	var examples []string
	for i, block := range strings.Split(string(b), "```") {
		if i%2 == 0 {
			continue // text between blocks
		}
		info, body, _ := strings.Cut(block, "\n")
		lines := strings.Split(strings.TrimSpace(body), "\n")
		switch info {
		case "filter", "json":
			if examples != nil {
				t.Errorf("no Go form of %s", examples)
			}
			lang, examples = info, lines
		case "go":
			if len(lines) != len(examples) {
				t.Fatalf("%d examples and %d Go forms after\n%s", len(examples), len(lines), examples[0])
			}
			for i, s := range examples {
				checkFilterExample(t, lang, s, lines[i])
				if name, _, _ := strings.Cut(s, "("); lang == "filter" {
					word, _, _ := strings.Cut(name, " ")
					delete(missing, word)
				}
			}
			examples = nil
		}
	}
	if len(missing) > 0 {
		t.Errorf("without an example: %v", missing)
	}
	for _, f := range comparatorForms {
		if !strings.Contains(string(b), "`'"+f.prefix) {
			t.Errorf("comparator %s is not in the table", f.prefix)
		}
	}
}

func checkFilterExample(t *testing.T, lang, s, goForm string) {
	t.Helper()
	parse := ParseFilterString
	if lang == "json" {
		parse = func(s string) (Filter, error) { return ParseFilterJSON([]byte(s)) }
	}
	f, err := parse(s)
	if err != nil {
		t.Errorf("%s: %v", s, err)
		return
	}
	if d := cmp.Diff(goForm, goSyntax(reflect.ValueOf(f), true)); d != "" {
		t.Errorf("%s (-documented +got):\n%s", s, d)
	}
	if _, err := f.Start(&Scan{}); err != nil {
		t.Errorf("%s: %v", s, err)
	}
	written, err := FormatFilterString(f)
	switch {
	case lang == "filter" && (err != nil || written != s):
		t.Errorf("%s is written %s, %v", s, written, err)
	case lang == "json" && err == nil:
		t.Errorf("%s has a string form: %s", s, written)
	}
}

// goSyntax writes v as the Go code of another package, without empty fields. The
// type is named unless it goes without saying in a slice.
func goSyntax(v reflect.Value, named bool) string {
	typ := "store." + v.Type().Name()
	switch x := v.Interface().(type) {
	case []byte:
		return fmt.Sprintf("[]byte(%+q)", x)
	case CompareOp:
		return "store." + [...]string{Less: "Less", LessOrEqual: "LessOrEqual", Equal: "Equal", NotEqual: "NotEqual", GreaterOrEqual: "GreaterOrEqual", Greater: "Greater", NoOp: "NoOp"}[x]
	case ComparatorType:
		return "store." + map[ComparatorType]string{
			CompareBinaryPrefix: "CompareBinaryPrefix", CompareBinaryComponent: "CompareBinaryComponent", CompareRegex: "CompareRegex", CompareSubstring: "CompareSubstring",
			CompareBit: "CompareBit", CompareLong: "CompareLong", CompareBigDecimal: "CompareBigDecimal", CompareNull: "CompareNull",
		}[x]
	case Comparator:
		if x.Type == CompareBinary {
			return "store.Binary(" + goSyntax(reflect.ValueOf(x.Value), true) + ")"
		}
	case cell.Timestamp:
		return fmt.Sprint(int64(x))
	}
	switch v.Kind() {
	case reflect.Interface:
		return goSyntax(v.Elem(), true)
	case reflect.Pointer:
		return "&" + goSyntax(v.Elem(), true)
	case reflect.Struct:
		var fields []string
		for i := range v.NumField() {
			f := v.Field(i)
			if f.IsZero() || f.Kind() == reflect.Slice && f.Len() == 0 {
				continue
			}
			fields = append(fields, v.Type().Field(i).Name+": "+goSyntax(f, true))
		}
		if !named {
			typ = ""
		}
		return typ + "{" + strings.Join(fields, ", ") + "}"
	case reflect.Slice:
		elem := v.Type().Elem()
		var elems []string
		for i := range v.Len() {
			elems = append(elems, goSyntax(v.Index(i), false))
		}
		name := strings.ReplaceAll(elem.String(), "uint8", "byte")
		return "[]" + name + "{" + strings.Join(elems, ", ") + "}"
	case reflect.String:
		return fmt.Sprintf("%q", v.String())
	}
	return fmt.Sprint(v.Interface())
}
