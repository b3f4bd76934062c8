package config

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of a file. Aliases make a small file a large one ("billion laughs");
// these end that, and recursion, long before memory does.
const (
	maxFileBytes = 4 << 20
	maxDepth     = 64
	maxNodes     = 200_000
)

// position is a place in the file.
type position struct {
	line, col int
	// source is the text of a scalar as the file spells it, without its quotes; ""
	// where columns of the text are not columns of the file.
	source string
	quote  byte // around source; 0 = none
}

// within returns the place of the byte at offset of a scalar's text, or the scalar's own
// where its columns are not columns of the file.
func (p position) within(offset int) position {
	if p.source == "" || offset == 0 {
		return p
	}
	if p.quote != 0 {
		p.col++
	}
	for rest := p.source; offset > 0 && rest != ""; {
		text, source := p.character(rest)
		p.col += utf8.RuneCountInString(rest[:source])
		offset, rest = offset-text, rest[source:]
	}
	return p
}

// character returns how many bytes of text the character is that source begins with, and
// how many of source spell it. Escapes with digits are none here.
func (p position) character(source string) (text, spelled int) {
	switch {
	case p.quote == '\'' && strings.HasPrefix(source, "''"):
		return 1, 2
	case p.quote == '"' && source[0] == '\\' && len(source) > 1:
		switch source[1] {
		case 'N', '_':
			return 2, 2
		case 'L', 'P':
			return 3, 2
		}
		return 1, 2
	}
	_, n := utf8.DecodeRuneInString(source)
	return n, n
}

// anchors are the values that aliases stand for.
type anchors map[string]ast.Node

// decoder fills Go values from a YAML tree by their yaml tags, and goes on after
// a mistake so that all of them are reported at once. The library's own decoder
// stops at the first.
//
// Tags: yaml:"name" (",inline" for an embedded struct), default:"text",
// required:"true", values:"a|b|c" for a closed set of texts,
// null:"text" where the word null is one of the texts.
type decoder struct {
	file     string
	text     string // of the file
	lookup   func(string) (string, bool)
	problems Problems
	warnings Problems
	places   map[string]position // by path
	unread   map[string]bool     // paths of values that could not be read, and of lists of such
	secrets  map[string]string   // of those that files have, by path, what the file says
	again    bool                // files are read once more
	anchors  anchors
	tables   []string // names of the tables of the file, for hints
	nodes    int
	depth    int
}

func (d *decoder) problem(at position, path, hint, format string, args ...any) {
	d.problems = append(d.problems, Problem{
		File: d.file, Line: at.line, Col: at.col, Path: path,
		Message: fmt.Sprintf(format, args...), Hint: hint,
	})
}

// warn notes what has no effect at the setting path.
func (d *decoder) warn(path, hint, format string, args ...any) {
	at := d.place(path)
	d.warnings = append(d.warnings, Problem{File: d.file, Line: at.line, Col: at.col, Path: path, Message: fmt.Sprintf(format, args...), Hint: hint})
}

// noteUnread remembers what could not be read: that it is missing then is no second
// mistake.
func (d *decoder) noteUnread() {
	d.unread = map[string]bool{}
	for i := range d.problems {
		path := d.problems[i].Path
		d.unread[path] = true
		if i := strings.LastIndexByte(path, '['); i >= 0 && strings.HasSuffix(path, "]") {
			d.unread[path[:i]] = true
		}
	}
	delete(d.unread, "") // the file
}

// place returns where path was written, or the nearest setting around it.
func (d *decoder) place(path string) position {
	for {
		if at, ok := d.places[path]; ok {
			return at
		}
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			return d.places[""]
		}
		path = path[:i]
	}
}

// parse reads the file's one document.
func (d *decoder) parse(data []byte) (body ast.Node, ok bool) {
	if len(data) > maxFileBytes {
		d.problem(position{}, "", "", "the file is larger than %d bytes", maxFileBytes)
		return nil, false
	}
	if at, encoding := notUTF8(data); encoding != "" {
		d.problem(at, "", "save it as UTF-8", "the file is %s", encoding)
		return nil, false
	}
	// The library's scanner has panicked on odd input before; a mistake in a
	// file must never end the process.
	defer func() {
		if r := recover(); r != nil {
			d.problem(position{}, "", "", "not valid YAML: %v", r)
			body, ok = nil, false
		}
	}()
	f, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		at := position{}
		message := err.Error()
		if e, ok := err.(interface {
			GetToken() *token.Token
			GetMessage() string
		}); ok {
			at, message = tokenPlace(e.GetToken()), e.GetMessage()
		}
		d.problem(at, "", syntaxHint(d.lineOf(at.line), message), "not valid YAML: %s", message)
		return nil, false
	}
	for _, doc := range f.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			d.problem(nodePlace(doc.Body), "", "", "the file has several documents; write one")
			return nil, false
		}
		body = doc.Body
	}
	return body, true
}

func tokenPlace(t *token.Token) position {
	if t == nil || t.Position == nil {
		return position{}
	}
	return position{line: t.Position.Line, col: t.Position.Column}
}

func nodePlace(n ast.Node) position {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return nodePlace(m.Values[0].Key) // its own token is the first colon
	}
	at := tokenPlace(n.GetToken())
	if t, ok := n.(*ast.StringNode); ok && !strings.Contains(t.Value, "$") {
		at.source = strings.TrimSpace(t.Token.Origin) // what follows a plain text is of it
		quoted := t.Token.Type == token.SingleQuoteType || t.Token.Type == token.DoubleQuoteType
		if quoted && len(at.source) > 1 {
			at.quote, at.source = at.source[0], at.source[1:len(at.source)-1]
		}
		// Of \x, \u and \U the library keeps the backslash alone.
		bytes := 0
		for rest := at.source; rest != ""; {
			text, source := at.character(rest)
			bytes, rest = bytes+text, rest[source:]
		}
		if bytes != len(t.Value) || strings.Contains(at.source, "\n") {
			at.source = ""
		}
	}
	return at
}

// resolve follows anchors and aliases.
func (d *decoder) resolve(n ast.Node, path string) (ast.Node, bool) {
	for range maxDepth {
		switch t := n.(type) {
		case *ast.AnchorNode:
			d.anchors[t.Name.String()] = t.Value
			n = t.Value
		case *ast.AliasNode:
			target, ok := d.anchors[t.Value.String()]
			if !ok {
				d.problem(nodePlace(n), path, textHint("*"), "alias *%s has no anchor before it", t.Value)
				return nil, false
			}
			n = target
		case *ast.TagNode:
			hint := "remove it"
			if !strings.HasPrefix(t.Start.Value, "!!") {
				hint = textHint("!")
			}
			d.problem(nodePlace(n), path, hint, "YAML tags such as %s are not used here", t.Start.Value)
			return nil, false
		default:
			return n, n != nil
		}
	}
	d.problem(nodePlace(n), path, "", "aliases go round in a circle")
	return nil, false
}

// decode fills v, which must be settable, from n.
func (d *decoder) decode(n ast.Node, v reflect.Value, path string, field fieldInfo) {
	if d.nodes++; d.nodes > maxNodes {
		if d.nodes == maxNodes+1 {
			d.problem(nodePlace(n), path, "", "the file has more than %d values, aliases counted as what they stand for", maxNodes)
		}
		return
	}
	if d.depth++; d.depth > maxDepth {
		d.problem(nodePlace(n), path, "", "nested deeper than %d levels", maxDepth)
		d.depth--
		return
	}
	defer func() { d.depth-- }()
	at := nodePlace(n)
	if _, scalar := n.(ast.ScalarNode); scalar || d.places[path] == (position{}) {
		d.places[path] = at // for a mapping or list, its key is the better place
	}
	n, ok := d.resolve(n, path)
	if !ok {
		return
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		d.decode(n, v.Elem(), path, field)
		return
	}
	if d.custom(n, v, path, at) {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.decodeStruct(n, v, path)
	case reflect.Map:
		d.decodeMap(n, v, path, field)
	case reflect.Slice:
		d.decodeSlice(n, v, path, field)
	case reflect.Interface:
		if value := d.decodeAny(n, path); value != nil {
			v.Set(reflect.ValueOf(value))
		}
	default:
		d.decodeScalar(n, v, path, field)
	}
}

// custom decodes types that read themselves: UnmarshalYAML(func(any) error), as
// the YAML libraries of Go agree on, and encoding.TextUnmarshaler.
func (d *decoder) custom(n ast.Node, v reflect.Value, path string, at position) bool {
	if !v.CanAddr() {
		return false
	}
	switch t := v.Addr().Interface().(type) {
	case interface{ UnmarshalYAML(func(any) error) error }:
		before := len(d.problems)
		err := t.UnmarshalYAML(func(target any) error {
			start := len(d.problems)
			rv := reflect.ValueOf(target)
			if rv.Kind() != reflect.Pointer || rv.IsNil() {
				return fmt.Errorf("cannot decode into %T", target)
			}
			d.decode(n, rv.Elem(), path, fieldInfo{})
			if len(d.problems) > start {
				// The caller may try another shape; then this one's
				// problems do not count.
				err := d.problems[start:].Error()
				d.problems = d.problems[:start]
				return fmt.Errorf("%s", err)
			}
			return nil
		})
		if err != nil && len(d.problems) == before {
			d.problem(at, path, "", "%s", d.unprefixed(err.Error()))
		}
	case encoding.TextUnmarshaler:
		text, ok := d.scalar(n, path, "a text")
		if !ok {
			return true
		}
		if err := t.UnmarshalText([]byte(text.value)); err != nil {
			d.problem(at, path, "", "%s", text.hide(err.Error()))
		}
	default:
		return false
	}
	return true
}

// unprefixed takes the place off a nested problem that became the message of
// another.
func (d *decoder) unprefixed(message string) string {
	rest, ok := strings.CutPrefix(message, d.file+":")
	if !ok {
		return message
	}
	if _, m, ok := strings.Cut(rest, ": "); ok {
		return m
	}
	return rest
}

type fieldInfo struct {
	name     string
	index    []int
	fallback string // default tag
	required bool
	values   []string
	null     bool // null is one of its texts
}

// fieldsOf returns the yaml fields of a struct type, those of inlined structs
// included, in order.
func fieldsOf(t reflect.Type) []fieldInfo {
	var fields []fieldInfo
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		if strings.Contains(options, "inline") || f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct {
			for _, inner := range fieldsOf(f.Type) {
				inner.index = append([]int{i}, inner.index...)
				fields = append(fields, inner)
			}
			continue
		}
		if name == "" {
			name = strings.ToLower(f.Name)
		}
		info := fieldInfo{name: name, index: []int{i}, fallback: f.Tag.Get("default"), required: f.Tag.Get("required") == "true", null: f.Tag.Get("null") == "text"}
		if values := f.Tag.Get("values"); values != "" {
			info.values = strings.Split(values, "|")
		}
		fields = append(fields, info)
	}
	return fields
}

// setDefaults fills in the default tags of a struct and of the structs in it.
func (d *decoder) setDefaults(v reflect.Value) {
	for _, f := range fieldsOf(v.Type()) {
		fv := v.FieldByIndex(f.index)
		switch {
		case f.fallback != "":
			d.setText(fv, f.fallback)
		case fv.Kind() == reflect.Struct && !isText(fv):
			d.setDefaults(fv)
		}
	}
}

func isText(v reflect.Value) bool {
	_, ok := v.Addr().Interface().(encoding.TextUnmarshaler)
	return ok
}

// setText sets v from a default tag. A default that does not fit its field is a
// broken invariant of this program, not a mistake of its user.
func (d *decoder) setText(v reflect.Value, text string) {
	var err error
	if v.Kind() == reflect.Slice {
		v.Set(reflect.ValueOf(strings.Split(text, ",")))
	} else if t, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		err = t.UnmarshalText([]byte(text))
	} else {
		err = setScalar(v, text)
	}
	if err != nil {
		panic(fmt.Sprintf("config: default %q of a %s: %v", text, v.Type(), err))
	}
}

func (d *decoder) decodeStruct(n ast.Node, v reflect.Value, path string) {
	fields := fieldsOf(v.Type())
	d.setDefaults(v)
	if _, null := n.(*ast.NullNode); null && path == "" {
		n = &ast.MappingNode{}
	}
	given := map[string]bool{}
	d.eachPair(n, path, v.Type(), func(key string, at position, value ast.Node) {
		i := slices.IndexFunc(fields, func(f fieldInfo) bool { return f.name == key })
		if i < 0 {
			names := make([]string, len(fields))
			for i := range fields {
				names[i] = fields[i].name
			}
			d.problem(at, join(path, key), keyHint(key, names), "unknown key %q%s", key, in(path))
			return
		}
		given[key] = true
		if null, ok := value.(*ast.NullNode); ok {
			// on_error: null is the word, not nothing.
			if t := null.GetToken(); fields[i].null && t.Type == token.NullType && t.Value == "null" {
				v.FieldByIndex(fields[i].index).SetString(t.Value)
				d.places[join(path, key)] = nodePlace(value)
				return
			}
			d.problem(at, join(path, key), "remove the key to leave it at its default", "%s has no value", key)
			return
		}
		d.decode(value, v.FieldByIndex(fields[i].index), join(path, key), fields[i])
	})
	for _, f := range fields {
		if f.required && !given[f.name] {
			d.problem(d.place(path), join(path, f.name), "", "%s is missing%s", f.name, in(path))
		}
	}
}

func in(path string) string {
	if path == "" {
		return ""
	}
	return " in " + path
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// eachPair calls visit for the pairs of a mapping, which is to be one of the type t, and
// reports keys that are given twice or are no text.
func (d *decoder) eachPair(n ast.Node, path string, t reflect.Type, visit func(key string, at position, value ast.Node)) {
	var pairs []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		pairs = m.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{m}
	default:
		d.problem(nodePlace(n), path, shapeHint(n, t), "%s must be a mapping of keys to values, not %s", d.subject(path), kindOf(n))
		return
	}
	first := map[string]position{}
	for _, pair := range pairs {
		at := nodePlace(pair.Key)
		if pair.Key.IsMergeKey() {
			d.problem(at, path, "repeat the settings, or use an alias for the whole value", "merge keys (<<) are not supported")
			continue
		}
		key, ok := keyText(pair.Key)
		if !ok {
			d.problem(at, path, "", "a key must be a text, not %s", kindOf(pair.Key))
			continue
		}
		if before, dup := first[key]; dup {
			d.problem(at, join(path, key), "remove one of them, or give it another name", "key %q is given twice%s; the first is in line %d", key, in(path), before.line)
			continue
		}
		first[key] = at
		d.places[join(path, key)] = at
		if pair.Value == nil {
			d.problem(at, join(path, key), "", "%s has no value", key)
			continue
		}
		visit(key, at, pair.Value)
	}
}

func keyText(k ast.MapKeyNode) (string, bool) {
	switch t := k.(type) {
	case *ast.StringNode:
		return t.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		return k.GetToken().Value, true
	}
	return "", false
}

func (d *decoder) subject(path string) string {
	if path == "" {
		return "the file"
	}
	return path
}

func kindOf(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.NullNode:
		return "nothing"
	case *ast.BoolNode:
		return "true or false"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.StringNode, *ast.LiteralNode:
		return "a text"
	}
	return n.Type().String()
}

func (d *decoder) decodeMap(n ast.Node, v reflect.Value, path string, field fieldInfo) {
	if v.Type().Key().Kind() != reflect.String {
		d.problem(nodePlace(n), path, "", "%s cannot be read into a %s", d.subject(path), v.Type())
		return
	}
	m := reflect.MakeMap(v.Type())
	unnamed := hasUnnamed(n, path, v.Type().Elem())
	d.eachPair(n, path, v.Type(), func(key string, at position, value ast.Node) {
		elem := reflect.New(v.Type().Elem()).Elem()
		if hint := nameHint(path, key, elem.Type()); unnamed && hint != "" {
			d.problem(at, join(path, key), hint, "%s is a setting of each of %s, and no name of one", key, path)
			return
		}
		if _, null := value.(*ast.NullNode); null {
			// "events:" with nothing behind it: an entry with defaults, where
			// that can be.
			if elem.Kind() != reflect.Struct && elem.Kind() != reflect.Map {
				d.problem(at, join(path, key), "", "%s has no value", key)
				return
			}
			value = &ast.MappingNode{BaseNode: &ast.BaseNode{}, Start: value.GetToken()}
		}
		d.decode(value, elem, join(path, key), fieldInfo{values: field.values})
		m.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), elem)
	})
	v.Set(m)
}

func (d *decoder) decodeSlice(n ast.Node, v reflect.Value, path string, field fieldInfo) {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		hint := ""
		if text, scalar := n.(ast.ScalarNode); scalar {
			hint = fmt.Sprintf("write [%s]", text.GetToken().Value)
		}
		d.problem(nodePlace(n), path, hint, "%s must be a list, not %s", d.subject(path), kindOf(n))
		return
	}
	out := reflect.MakeSlice(v.Type(), len(s.Values), len(s.Values))
	for i, value := range s.Values {
		d.decode(value, out.Index(i), path+"["+strconv.Itoa(i)+"]", fieldInfo{values: field.values})
	}
	v.Set(out)
}

// decodeAny makes the plain Go value of a node, for fields that take anything.
func (d *decoder) decodeAny(n ast.Node, path string) any {
	switch t := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		m := map[string]any{}
		d.decodeMap(n, reflect.ValueOf(&m).Elem(), path, fieldInfo{})
		return m
	case *ast.SequenceNode:
		var s []any
		d.decodeSlice(n, reflect.ValueOf(&s).Elem(), path, fieldInfo{})
		return s
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return t.(ast.ScalarNode).GetValue()
	case *ast.NullNode:
		return nil
	}
	if text, ok := d.scalar(n, path, "a value"); ok {
		return text.value
	}
	return nil
}

// scalarText is a scalar's value and what the file says.
type scalarText struct{ value, source string }

// hide replaces the value in a message by what the file says, so that a
// message never shows what a variable or a secret file holds.
func (s scalarText) hide(message string) string {
	if s.value == s.source || s.value == "" {
		return message
	}
	message = strings.ReplaceAll(message, strconv.Quote(s.value), strconv.Quote(s.source))
	return strings.ReplaceAll(message, s.value, s.source)
}

// scalar returns the text of a scalar node with its references replaced.
func (d *decoder) scalar(n ast.Node, path, want string) (scalarText, bool) {
	var source string
	switch t := n.(type) {
	case *ast.StringNode:
		source = t.Value
	case *ast.LiteralNode:
		source = t.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		source = t.GetToken().Value
	default:
		hint := ""
		if kindOf(n) == "a mapping" {
			hint = "a text that begins with a brace, or has a colon within braces, needs quotes"
		}
		d.problem(nodePlace(n), path, hint, "%s must be %s, not %s", d.subject(path), want, kindOf(n))
		return scalarText{}, false
	}
	value, err := d.interpolate(source)
	if err != nil {
		d.problem(nodePlace(n), path, "", "%s", err)
		return scalarText{}, false
	}
	return scalarText{value, source}, true
}

func (d *decoder) decodeScalar(n ast.Node, v reflect.Value, path string, field fieldInfo) {
	want := wantOf(v)
	text, ok := d.scalar(n, path, want)
	if !ok {
		return
	}
	if v.Type() == reflect.TypeFor[Secret]() && strings.Contains(text.source, "${file:") {
		d.secrets[path] = text.source
	}
	if _, isString := n.(*ast.StringNode); isString && text.value == text.source && v.Kind() != reflect.String && v.Type() != durationType {
		if quoted := n.GetToken().Type; quoted == token.SingleQuoteType || quoted == token.DoubleQuoteType {
			d.problem(nodePlace(n), path, "remove the quotes", "%s must be %s, not a text", d.subject(path), want)
			return
		}
	}
	if (v.Kind() == reflect.Int64 || v.Kind() == reflect.Int) && strings.HasSuffix(field.name, "_bytes") {
		var size Size
		if err := size.UnmarshalText([]byte(text.value)); err != nil {
			d.problem(nodePlace(n), path, "", "%s", text.hide(err.Error()))
			return
		}
		v.SetInt(int64(size))
		return
	}
	if err := setScalar(v, text.value); err != nil {
		d.problem(nodePlace(n), path, "", "%s must be %s, not %q", d.subject(path), want, text.source)
		return
	}
	if len(field.values) > 0 && !slices.Contains(field.values, text.value) {
		d.problem(nodePlace(n), path, didYouMean(text.source, field.values), "%s cannot be %q", d.subject(path), text.source)
	}
}

var durationType = reflect.TypeFor[time.Duration]()

func wantOf(v reflect.Value) string {
	switch {
	case v.Type() == durationType:
		return "a duration such as 250ms, 10s or 1h30m"
	case v.Kind() == reflect.Bool:
		return "true or false"
	case v.CanInt():
		return "a whole number"
	case v.CanUint():
		return "a whole number, 0 or more"
	case v.CanFloat():
		return "a number"
	}
	return "a text"
}

// setScalar sets v, a text, number, bool or duration, from its written form.
func setScalar(v reflect.Value, text string) error {
	switch {
	case v.Type() == durationType:
		t, err := parseDuration(text)
		if err != nil {
			return err
		}
		v.SetInt(int64(t))
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Bool:
		switch text {
		case "true", "True", "TRUE":
			v.SetBool(true)
		case "false", "False", "FALSE":
			v.SetBool(false)
		default:
			return fmt.Errorf("not a bool: %q", text)
		}
	case v.CanInt():
		i, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, v.Type().Bits())
		if err != nil {
			return err
		}
		v.SetInt(i)
	case v.CanUint():
		u, err := strconv.ParseUint(strings.ReplaceAll(text, "_", ""), 10, v.Type().Bits())
		if err != nil {
			return err
		}
		v.SetUint(u)
	case v.CanFloat():
		f, err := strconv.ParseFloat(text, v.Type().Bits())
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("not a number: %q", text)
		}
		v.SetFloat(f)
	default:
		return fmt.Errorf("config: cannot read a %s", v.Type())
	}
	return nil
}

// parseDuration reads Go's durations and whole days ("7d"), 0 or more.
func parseDuration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	t, err := time.ParseDuration(text)
	if err == nil && t < 0 {
		return 0, fmt.Errorf("negative duration %q", text)
	}
	return t, err
}

func parseTime(text string) (int64, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err == nil && t.UnixMilli() <= 0 {
		return 0, fmt.Errorf("%q is before 1970", text)
	}
	return t.UnixMilli(), err
}

func formatTime(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }
