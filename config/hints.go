package config

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"sluice/internal/spelling"
	"sluice/store"
)

// lineOf returns a line of the file, counted from 1, without its end; "" where there is none.
func (d *decoder) lineOf(n int) string {
	lines := strings.Split(d.text, "\n")
	if n < 1 || n > len(lines) {
		return ""
	}
	return strings.TrimSuffix(lines[n-1], "\r")
}

var (
	indentedByTab = regexp.MustCompile(`^[ ]*\t`)
	// A value that goes on behind its quotes, as expressions do.
	goesOn = regexp.MustCompile(`(?:^|[:,\[{-])\s+("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')\s*[^\s,\]}#:]`)
	// A value without quotes with what ends a key in it.
	secondColon = regexp.MustCompile(`^\s*(?:- )*[\w$*.-]+:\s+[^\s"'{\[|>].*:\s`)
	// A value that begins with what YAML has another use for.
	noBlank       = regexp.MustCompile(`^\s*(?:-[^\s-]|(?:- )*[\w-]+:[^\s/:])`)
	reservedStart = regexp.MustCompile("(?:^|[:,\\[{-])\\s+[@`%]")
)

// syntaxHint says what may be meant by a line that is no YAML, of which the library says
// message.
func syntaxHint(line, message string) string {
	switch {
	case indentedByTab.MatchString(line):
		return "indent with spaces: YAML takes no tabs for it"
	case goesOn.MatchString(line):
		return `put all of the value in other quotes, such as '"a" + b'`
	case secondColon.MatchString(line), reservedStart.MatchString(line):
		return "put the value in quotes"
	case noBlank.MatchString(line):
		return "write a blank behind the dash or the colon"
	case strings.Contains(message, "pre-defined"):
		return "are the quotes before it closed?"
	case strings.Contains(message, "must be specified"):
		return "close the bracket or the brace before it"
	case strings.Contains(message, "not allowed in this context"):
		return "indent it as the keys beside it"
	}
	return ""
}

// notUTF8 says where a file is no text of UTF-8, and what it seems to be; "" where it is one.
func notUTF8(data []byte) (at position, encoding string) {
	if utf8.Valid(data) {
		return position{}, ""
	}
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return position{line: 1, col: 1}, "in UTF-16"
	}
	at = position{line: 1, col: 1}
	for {
		r, n := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && n == 1:
			return at, fmt.Sprintf("not in UTF-8: byte 0x%02x", data[0])
		case r == '\n':
			at = position{line: at.line + 1, col: 1}
		default:
			at.col++
		}
		data = data[n:]
	}
}

// cutHint says that the text at a place ends where a comment begins, if it does: what stands
// behind a blank and # is none of a text without quotes.
func (d *decoder) cutHint(at position) string {
	line := []rune(d.lineOf(at.line))
	if at.quote != 0 || at.source == "" || at.col < 1 || at.col > len(line) {
		return ""
	}
	rest, ok := strings.CutPrefix(string(line[at.col-1:]), at.source)
	if !ok || !strings.HasPrefix(strings.TrimLeft(rest, " \t"), "#") {
		return ""
	}
	return "what follows # is a comment: put the expression in quotes"
}

// shapeHint says what a value that is no mapping may be meant for, where one of the type t
// is wanted.
func shapeHint(n ast.Node, t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Map:
		list, ok := n.(*ast.SequenceNode)
		if elem := t.Elem().Kind(); !ok || len(list.Values) == 0 || elem != reflect.Struct && elem != reflect.Map {
			return ""
		}
		var names []string
		for _, value := range list.Values {
			name, ok := value.(*ast.StringNode)
			if !ok {
				return ""
			}
			names = append(names, name.Value+": {}")
		}
		return "write {" + strings.Join(names, ", ") + "}"
	case kindOf(n) == "true or false" && slices.ContainsFunc(fieldsOf(t), func(f fieldInfo) bool { return f.name == "enable" }):
		return "write {enable: " + n.GetToken().Value + "}"
	}
	return ""
}

// textHint says what is meant by a value that YAML has taken for something else than the
// text that it begins like.
func textHint(first string) string {
	return "a text that begins with " + first + " needs quotes"
}

// keyHint says where a key belongs that the struct with these fields does not have.
func keyHint(key string, fields []string) string {
	if hint := spelling.Hint(key, fields); hint != "" {
		return hint
	}
	places := keyPlaces(reflect.TypeFor[Config](), "", key, 0)
	if len(places) == 0 || len(places) > 3 {
		return didYouMean(key, fields)
	}
	return fmt.Sprintf("%s is a key of %s", key, strings.Join(places, ", "))
}

// keyPlaces returns the paths below path of the structs that have a key, with NAME for the
// names that a file gives.
func keyPlaces(t reflect.Type, path, key string, depth int) (places []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if depth > 8 {
		return nil
	}
	switch t.Kind() {
	case reflect.Map:
		return keyPlaces(t.Elem(), join(path, "NAME"), key, depth+1)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			switch {
			case !f.IsExported() || name == "-":
			case strings.Contains(options, "inline"):
				places = append(places, keyPlaces(f.Type, path, key, depth+1)...)
			case name == key && path != "":
				places = append(places, path)
			default:
				places = append(places, keyPlaces(f.Type, join(path, name), key, depth+1)...)
			}
		}
	}
	return places
}

// hasUnnamed reports whether a mapping of names has the settings of one of them in their
// place: a text or a list where the settings of a name belong.
func hasUnnamed(n ast.Node, path string, t reflect.Type) bool {
	var pairs []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		pairs = m.Values
	case *ast.MappingValueNode:
		pairs = append(pairs, m)
	}
	return slices.ContainsFunc(pairs, func(pair *ast.MappingValueNode) bool {
		if pair.Value == nil {
			return false
		}
		_, scalar := pair.Value.(ast.ScalarNode)
		key, ok := keyText(pair.Key)
		return ok && (scalar && kindOf(pair.Value) != "nothing" || kindOf(pair.Value) == "a list") && nameHint(path, key, t) != ""
	})
}

// nameHint says that key, below path, is no name that a file gives but a key of what it
// names; "" where it is none. t is the type of what is named.
func nameHint(path, key string, t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[Family]() && slices.Contains(store.FamilyAttributeNames(), strings.ToUpper(key)):
	case t.Kind() == reflect.Struct && slices.ContainsFunc(fieldsOf(t), func(f fieldInfo) bool { return f.name == key }):
	default:
		return ""
	}
	return fmt.Sprintf("%s belongs below a name: write %s: {NAME: {%s: …}}, or indent it further", key, path, key)
}
