package mapping

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"

	"sluice/internal/spelling"
	"sluice/pipeline/decode"
)

// typ is what is known of an expression's value before there is a record.
type typ uint8

const (
	typAny    typ = iota + 1 // the document decides
	typNil                   // nil
	typText                  // bytes
	typInt                   // an integer
	typNumber                // an integer or a float
	typBool
)

func (t typ) String() string {
	return [...]string{"", "any value", "nil", "a text", "an integer", "a number", "true or false"}[t]
}

func (t typ) numeric() bool { return t == typInt || t == typNumber }

// sourceKind is where a source's value comes from.
type sourceKind uint8

const (
	sourceField sourceKind = iota // a field of the document
	sourceTime                    // the event time
	sourceTopic
	sourcePartition
	sourceOffset
	sourceKey
	sourceValue
	sourceTimestamp
	sourceHeader
	sourceElement // of an array that a rule goes through
	sourceIndex   // of that element, from 0
)

// reserved is the names that do not mean a field of the document.
var reserved = map[string]struct {
	kind sourceKind
	typ  typ
}{
	"time": {sourceTime, typInt}, "topic": {sourceTopic, typText}, "partition": {sourcePartition, typInt},
	"offset": {sourceOffset, typInt}, "key": {sourceKey, typText}, "value": {sourceValue, typText},
	"timestamp": {sourceTimestamp, typInt},
}

// source is something of a record that an expression reads.
type source struct {
	kind    sourceKind
	field   int    // sourceField: index in the document; sourceElement: in the element, -1 = all of it
	loop    int    // sourceElement, sourceIndex: index in Plan.loops
	header  []byte // sourceHeader: its key
	typ     typ
	missing *missingError // what is returned where it is absent, made once
}

// missingError says that a record lacks what an expression reads.
type missingError struct{ name string }

func (e *missingError) Error() string { return e.name + " is missing or null" }

// termOp is the shape of a term.
type termOp uint8

const (
	opOpaque  termOp = iota // only expr's machine runs it
	opLiteral               // literal: a text, number or bool
	opSource
	opConcat
	opCall
	opCompare // name is the operator; two args
	opAnd
	opOr
	opNot
	opAdd // a + that only the record's values can tell from a concatenation
)

// term is what this package understands of one node of an expression.
type term struct {
	op      termOp
	typ     typ
	name    string    // opCompare: the operator
	source  int       // opSource: index in compilation.sources
	text    string    // opLiteral: its text
	integer int64     // opLiteral of typInt
	fn      *function // opCall
	small   int       // opCall: its paramSmall
	date    int       // opCall of date: index in compilation.dates
	args    []*term   // opCall: without its literals of paramSmall, paramLayout and paramZone
}

// always returns the text that t is of every record; ok is false where the record, or
// more than literals and +, decides.
func (t *term) always() (text string, ok bool) {
	switch t.op {
	case opLiteral:
		return t.text, t.typ != typNil
	case opConcat:
		a, first := t.args[0].always()
		b, second := t.args[1].always()
		return a + b, first && second
	}
	return "", false
}

// maxExpression bounds an expression's text in bytes: expr's parser recurses.
const maxExpression = 16 << 10

// impure is the names of expr's functions that do not depend on the record
// alone, or whose result has no order: a replay must map a record as before.
var impure = []string{"now", "keys", "values", "toPairs"}

// callable is what can be called: our functions, and those of expr that depend on the record
// alone.
var callable = slices.DeleteFunc(slices.Concat(functionNames, builtin.Names), func(name string) bool { return slices.Contains(impure, name) })

// parserConfig returns expr's settings with our functions in the place of its
// own of the same names.
func parserConfig() *conf.Config {
	c := conf.CreateNew()
	for _, name := range impure {
		c.Disabled[name] = true
		delete(c.Builtins, name)
	}
	registerFunctions(c)
	return c
}

// resolver finds out what the names of one expression mean.
type resolver struct {
	c     *compilation
	path  string
	text  string
	scope []variable // let variables
	terms map[ast.Node]*term
	bad   bool
}

// variable is what let names.
type variable struct {
	name string
	term *term // of its value
}

// variable returns the let variable with this name, or nil.
func (r *resolver) variable(name string) *variable {
	i := slices.IndexFunc(r.scope, func(v variable) bool { return v.name == name })
	if i < 0 {
		return nil
	}
	return &r.scope[i]
}

// parseExpression returns the tree of text and what its nodes mean; ok is false
// where mistakes were reported.
func (c *compilation) parseExpression(path, text string) (tree *parser.Tree, terms map[ast.Node]*term, ok bool) {
	if strings.TrimSpace(text) == "" {
		c.report(path, 0, errors.New("the expression is empty"), "")
		return nil, nil, false
	}
	if len(text) > maxExpression {
		c.report(path, 0, fmt.Errorf("the expression has %d bytes, at most %d", len(text), maxExpression), "")
		return nil, nil, false
	}
	tree, err := parser.ParseWithConfig(text, parserConfig())
	if err != nil {
		at, message := fileError(text, err)
		c.report(path, at, errors.New(message), operatorHint(text, at))
		return nil, nil, false
	}
	r := &resolver{c: c, path: path, text: text, terms: map[ast.Node]*term{}}
	r.resolve(tree.Node)
	return tree, r.terms, !r.bad
}

// operators are what other languages write, and what expr's is.
var operators = []struct{ theirs, ours string }{
	{"=", "=="},
	{"AND", "and"},
	{"OR", "or"},
	{"NOT", "not"},
	{"IN", "in"},
	{"IS", "== nil or != nil"},
	{"is", "== nil or != nil"},
	{"LIKE", "contains, startsWith, endsWith or matches"},
	{"like", "contains, startsWith, endsWith or matches"},
}

// operatorHint says what to write in the place of an operator at a byte of text, where
// expr's parser has stopped.
func operatorHint(text string, at int) string {
	rest := text[at:]
	if strings.HasPrefix(rest, ">") && strings.HasSuffix(text[:at], "<") {
		return "write !="
	}
	for _, o := range operators {
		behind, ok := strings.CutPrefix(rest, o.theirs)
		if ok && (behind == "" || !isWord(o.theirs[0]) || !isWord(behind[0])) {
			return "write " + o.ours
		}
	}
	return ""
}

// isWord reports whether c can be of a name.
func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

// treeText returns all of a tree where expr prints it as it prints another one, "" where
// it does not: it leaves out the parentheses of (a + b)[0:2], and the point of 1.0.
func treeText(tree *parser.Tree) string {
	exact := appendTree(nil, reflect.ValueOf(tree.Node))
	again, err := parser.ParseWithConfig(tree.Node.String(), parserConfig())
	if err == nil && bytes.Equal(exact, appendTree(nil, reflect.ValueOf(again.Node))) {
		return ""
	}
	return string(exact)
}

// appendTree appends the nodes below v with their types and exported fields, which are
// what the parser says of them but for their places.
func appendTree(dst []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Invalid:
		return append(dst, "nil"...)
	case reflect.Pointer, reflect.Interface:
		return appendTree(dst, v.Elem())
	case reflect.Struct:
		dst = append(append(dst, v.Type().Name()...), '(')
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				dst = append(appendTree(dst, v.Field(i)), ' ')
			}
		}
		return append(dst, ')')
	case reflect.Slice:
		dst = append(dst, '[')
		for i := range v.Len() {
			dst = append(appendTree(dst, v.Index(i)), ' ')
		}
		return append(dst, ']')
	case reflect.String:
		return strconv.AppendQuote(dst, v.String())
	}
	return fmt.Append(dst, v)
}

// fileError takes an error of expr apart: the byte it is about and its message
// without expr's drawing of the place.
func fileError(text string, err error) (at int, message string) {
	var e *file.Error
	if !errors.As(err, &e) {
		return 0, err.Error()
	}
	return byteOffset(text, e.From), strings.ReplaceAll(e.Message, "%!s(<nil>)", "nil") // expr prints types that are none
}

// byteOffset returns where the rune with this index begins.
func byteOffset(text string, runes int) int {
	for i := range text {
		if runes == 0 {
			return i
		}
		runes--
	}
	return len(text)
}

func (r *resolver) report(n ast.Node, err error, hint string) *term {
	r.bad = true
	r.c.report(r.path, byteOffset(r.text, n.Location().From), err, hint)
	return &term{typ: typAny}
}

// resolve returns the term of n, and notes it and those of all nodes below.
func (r *resolver) resolve(n ast.Node) *term {
	t := r.term(n)
	r.terms[n] = t
	return t
}

func (r *resolver) all(nodes []ast.Node) []*term {
	terms := make([]*term, len(nodes))
	for i, n := range nodes {
		terms[i] = r.resolve(n)
	}
	return terms
}

func (r *resolver) term(n ast.Node) *term {
	opaque := &term{typ: typAny}
	switch n := n.(type) {
	case *ast.NilNode:
		return &term{op: opLiteral, typ: typNil}
	case *ast.IntegerNode:
		return &term{op: opLiteral, typ: typInt, integer: int64(n.Value), text: fmt.Sprint(n.Value)}
	case *ast.FloatNode:
		text, err := appendFloat(nil, n.Value)
		if err != nil {
			return r.report(n, err, "")
		}
		return &term{op: opLiteral, typ: typNumber, text: string(text)}
	case *ast.BoolNode:
		return &term{op: opLiteral, typ: typBool, text: fmt.Sprint(n.Value)}
	case *ast.StringNode:
		return &term{op: opLiteral, typ: typText, text: n.Value}
	case *ast.BytesNode:
		r.c.note("bytes 2") // expr's machine had no text of it before
		return &term{op: opLiteral, typ: typText, text: string(n.Value)}
	case *ast.IdentifierNode, *ast.MemberNode, *ast.ChainNode:
		return r.read(n)
	case *ast.UnaryNode:
		return r.unary(n)
	case *ast.BinaryNode:
		return r.binary(n)
	case *ast.CallNode:
		return r.call(n)
	case *ast.BuiltinNode:
		if slices.Contains(impure, n.Name) {
			return r.report(n, fmt.Errorf("%s() is not allowed: a record must map the same way every time", n.Name), "")
		}
		r.all(n.Arguments)
		switch n.Name {
		case "get":
			r.c.note("keys 2")
		case "string":
			r.c.note("string 2") // it was Go's text of numbers, arrays and objects before
		case "groupBy", "concat":
			r.c.note("lists 2") // what is not there, or is empty, was null before
		case "split":
			if len(n.Arguments) == 3 {
				r.c.note("lists 2")
			}
		}
		if n.Name == "any" || n.Name == "all" || n.Name == "none" || n.Name == "one" {
			opaque.typ = typBool
		}
	case *ast.PredicateNode:
		r.resolve(n.Node)
	case *ast.SliceNode:
		r.resolve(n.Node)
		for _, bound := range []ast.Node{n.From, n.To} {
			if bound != nil {
				r.resolve(bound)
			}
		}
	case *ast.ConditionalNode:
		if cond := r.resolve(n.Cond); cond.typ != typBool && cond.typ != typAny {
			return r.report(n.Cond, fmt.Errorf("the condition is %s, not true or false", cond.typ), "")
		}
		a, b := r.resolve(n.Exp1), r.resolve(n.Exp2)
		if a.typ == b.typ {
			opaque.typ = a.typ
		} else if a.typ.numeric() && b.typ.numeric() {
			opaque.typ = typNumber
		}
	case *ast.VariableDeclaratorNode:
		value := r.resolve(n.Value)
		r.scope = append(r.scope, variable{n.Name, value})
		opaque.typ = r.resolve(n.Expr).typ
		r.scope = r.scope[:len(r.scope)-1]
	case *ast.SequenceNode:
		terms := r.all(n.Nodes)
		opaque.typ = terms[len(terms)-1].typ
	case *ast.ArrayNode:
		r.all(n.Nodes)
	case *ast.MapNode:
		for _, p := range n.Pairs {
			pair := p.(*ast.PairNode)
			r.resolve(pair.Key)
			r.resolve(pair.Value)
		}
	case *ast.PointerNode: // the element that a predicate looks at
	default:
		return r.report(n, fmt.Errorf("%T is not supported", n), "")
	}
	return opaque
}

// read resolves a name, or a path that begins with one.
func (r *resolver) read(n ast.Node) *term {
	steps, doc, ok := r.steps(n)
	if !ok {
		switch n := n.(type) {
		case *ast.ChainNode:
			return &term{typ: r.resolve(n.Node).typ}
		case *ast.MemberNode:
			r.resolve(n.Node)
			r.resolve(n.Property)
			if !isConstant(n.Property) {
				r.c.note("keys 2")
			}
		case *ast.IdentifierNode: // a let variable, or $env
			if strings.HasPrefix(n.Value, "$") {
				return r.report(n, fmt.Errorf("%s is not available", n.Value), "")
			}
			if v := r.variable(n.Value); v != nil && v.term.op == opSource {
				return v.term // with the payload's spelling
			}
		}
		return &term{typ: typAny}
	}
	if doc && len(steps) == 0 {
		return r.report(n, errors.New("doc is the whole document, not a field of it"), "write doc.NAME")
	}
	if t := r.loopName(n, steps, doc); t != nil {
		return t
	}
	if res, ok := reserved[steps[0].Name]; ok && !doc {
		if len(steps) > 1 {
			return r.report(n, fmt.Errorf("%s has no parts", steps[0].Name), "write doc."+steps[0].Name+" for the document's field")
		}
		if slices.Contains(r.c.known, steps[0].Name) {
			r.c.hidden = append(r.c.hidden, Hidden{Name: steps[0].Name, Path: r.path})
		}
		return r.source(source{kind: res.kind, typ: res.typ, missing: &missingError{steps[0].Name}})
	}
	path := decode.FormatPath(steps)
	field, hint, err := r.c.field(path)
	if err != nil {
		return r.report(n, err, hint)
	}
	return r.source(source{kind: sourceField, field: field, typ: typAny, missing: &missingError{"field " + path}})
}

func (r *resolver) source(s source) *term {
	return &term{op: opSource, typ: s.typ, source: r.c.source(s)}
}

// steps returns the path that n spells with constant steps. doc says that it
// began with doc, which is not among the steps.
func (r *resolver) steps(n ast.Node) (steps []decode.Step, doc, ok bool) {
	switch n := n.(type) {
	case *ast.ChainNode:
		return r.steps(n.Node)
	case *ast.IdentifierNode:
		switch {
		case r.variable(n.Value) != nil || strings.HasPrefix(n.Value, "$"):
			return nil, false, false
		case n.Value == "doc":
			return nil, true, true
		}
		return []decode.Step{{Name: n.Value, Index: -1}}, false, true
	case *ast.MemberNode:
		if n.Method {
			return nil, false, false
		}
		if steps, doc, ok = r.steps(n.Node); !ok {
			return nil, false, false
		}
		switch p := n.Property.(type) {
		case *ast.StringNode:
			return append(steps, decode.Step{Name: p.Value, Index: -1}), doc, true
		case *ast.IntegerNode:
			if len(steps) > 0 && p.Value >= 0 {
				return append(steps, decode.Step{Index: p.Value}), doc, true
			}
		}
	}
	return nil, false, false
}

func (r *resolver) unary(n *ast.UnaryNode) *term {
	x := r.resolve(n.Node)
	switch n.Operator {
	case "not", "!":
		if x.typ != typBool && x.typ != typAny {
			return r.report(n, fmt.Errorf("%s needs true or false, not %s", n.Operator, x.typ), "")
		}
		return &term{op: opNot, typ: typBool, args: []*term{x}}
	}
	if !x.typ.numeric() && x.typ != typAny {
		return r.report(n, fmt.Errorf("%s needs a number, not %s", n.Operator, x.typ), "")
	}
	if n.Operator == "-" && x.op == opLiteral && x.typ == typInt {
		return &term{op: opLiteral, typ: typInt, integer: -x.integer, text: fmt.Sprint(-x.integer)}
	}
	t := &term{typ: x.typ}
	if x.typ == typAny && n.Operator == "-" { // expr gives what + stands before as it is
		t.typ = typNumber
	}
	return t
}

func (r *resolver) binary(n *ast.BinaryNode) *term {
	a, b := r.resolve(n.Left), r.resolve(n.Right)
	need := func(what string, fits func(typ) bool) bool {
		for _, t := range []typ{a.typ, b.typ} {
			if t != typAny && !fits(t) {
				r.report(n, fmt.Errorf("%s needs %s, not %s", n.Operator, what, t), "")
				return false
			}
		}
		return true
	}
	boolean := func(t typ) bool { return t == typBool }
	text := func(t typ) bool { return t == typText }
	switch n.Operator {
	case "+":
		switch {
		case a.typ == typNil || b.typ == typNil:
			return r.report(n, errors.New("+ of nil"), "")
		case a.typ == typText || b.typ == typText:
			return &term{op: opConcat, typ: typText, args: []*term{a, b}}
		case a.typ.numeric() && b.typ.numeric():
			if a.typ == typInt && b.typ == typInt {
				return &term{typ: typInt}
			}
			return &term{typ: typNumber}
		case a.typ == typBool || b.typ == typBool:
			return r.report(n, errors.New("+ of true or false and what may be no text"), `join with "": a + "" + b`)
		}
		return &term{op: opAdd, typ: typAny}
	case "and", "&&", "or", "||":
		if !need("true or false", boolean) {
			return &term{typ: typBool}
		}
		op := opAnd
		if n.Operator == "or" || n.Operator == "||" {
			op = opOr
		}
		return &term{op: op, typ: typBool, args: []*term{a, b}}
	case "==", "!=":
		known := func(t typ) bool { return t != typAny && t != typNil }
		if known(a.typ) && known(b.typ) && a.typ != b.typ && !(a.typ.numeric() && b.typ.numeric()) {
			return r.report(n, fmt.Errorf("%s of %s and %s is never decided by the record", n.Operator, a.typ, b.typ), "")
		}
		r.unlike(n.Operator, a, b)
		return &term{op: opCompare, typ: typBool, name: n.Operator, args: []*term{a, b}}
	case "<", "<=", ">", ">=":
		switch text := a.typ == typText || b.typ == typText; {
		case text && a.typ != b.typ && a.typ != typAny && b.typ != typAny:
			r.report(n, fmt.Errorf("%s needs two texts or two numbers, not %s and %s", n.Operator, a.typ, b.typ), "")
			return &term{typ: typBool}
		case !text && !need("two texts or two numbers", typ.numeric):
			return &term{typ: typBool}
		}
		return &term{op: opCompare, typ: typBool, name: n.Operator, args: []*term{a, b}}
	case "-", "*", "/", "%", "**", "^":
		need("numbers", typ.numeric)
		if n.Operator == "%" || a.typ == typInt && b.typ == typInt && (n.Operator == "-" || n.Operator == "*") {
			return &term{typ: typInt}
		}
		return &term{typ: typNumber}
	case "contains", "startsWith", "endsWith", "matches":
		need("texts", text)
		return &term{typ: typBool}
	case "in", "not in":
		if texts(n.Right) != nil || !isWritten(n.Right) {
			r.c.note("keys 2") // nil was the empty one before
		}
		return &term{typ: typBool}
	case "??":
		if a.typ == b.typ {
			return &term{typ: a.typ}
		}
	}
	return &term{typ: typAny}
}

func (r *resolver) call(n *ast.CallNode) *term {
	callee, ok := n.Callee.(*ast.IdentifierNode)
	if !ok {
		return r.report(n, errors.New("only functions can be called"), "see docs/mapping.md for their names")
	}
	if callee.Value == "header" {
		return r.headerCall(n)
	}
	fn := functions[callee.Value]
	if fn == nil {
		hint := spelling.Hint(callee.Value, callable)
		if hint == "" {
			hint = "there are " + strings.Join(functionNames, ", ") + ", and those of expr-lang"
		}
		if slices.Contains(impure, callee.Value) {
			return r.report(n, fmt.Errorf("%s() is not allowed: a record must map the same way every time", callee.Value), "")
		}
		return r.report(n, fmt.Errorf("no function %s", callee.Value), hint)
	}
	if fn.name == "coalesce" {
		if len(n.Arguments) < fn.fewest {
			return r.report(n, errors.New("coalesce needs two or more arguments"), "")
		}
		t := &term{op: opCall, fn: fn, args: r.all(n.Arguments)}
		t.typ = t.args[0].typ
		for _, a := range t.args {
			if a.typ != t.typ {
				t.typ = typAny
			}
		}
		return t
	}
	if len(n.Arguments) < fn.fewest || len(n.Arguments) > len(fn.params) {
		return r.report(n, fmt.Errorf("%s needs %s, not %d", fn.name, fn.count(), len(n.Arguments)), "")
	}
	t := &term{op: opCall, typ: fn.result, fn: fn}
	var date struct{ layout, zone string }
	for i, arg := range n.Arguments {
		a := r.resolve(arg)
		wrong := func(want string) *term {
			return r.report(arg, fmt.Errorf("argument %d of %s must be %s", i+1, fn.name, want), "")
		}
		if a.typ == typNil {
			return wrong("a value, not nil")
		}
		switch fn.params[i] {
		case paramInt:
			if a.typ != typAny && !a.typ.numeric() && !(a.typ == typText && a.op != opLiteral) {
				return wrong("an integer, not " + a.typ.String())
			}
			t.args = append(t.args, a)
		case paramSmall:
			if a.op != opLiteral || a.typ != typInt || a.integer < int64(fn.least) || a.integer > int64(fn.most) {
				return wrong(fmt.Sprintf("a literal %d..%d", fn.least, fn.most))
			}
			t.small = int(a.integer)
		case paramLayout, paramZone:
			if a.op != opLiteral || a.typ != typText {
				return wrong("a text literal")
			}
			if fn.params[i] == paramLayout {
				date.layout = a.text
			} else {
				date.zone = a.text
			}
		default:
			t.args = append(t.args, a)
		}
	}
	if fn.length != nil && len(t.args) == 1 && t.args[0].op == opOpaque {
		r.c.note("len 2") // it was the bytes of what split makes, and of a range, before
	}
	if fn.name == "date" {
		l, err := parseLayout(date.layout)
		if err != nil {
			return r.report(n.Arguments[1], err, "")
		}
		r.c.noteLayout(l)
		zone, err := loadZone(date.zone)
		if err != nil {
			return r.report(n.Arguments[2], err, "")
		}
		t.date = r.c.date(newDateFormat(l, zone))
	}
	return t
}

// count says how many arguments f takes.
func (f *function) count() string {
	if f.fewest < len(f.params) {
		return fmt.Sprintf("%d or %d arguments", f.fewest, len(f.params))
	}
	if f.fewest == 1 {
		return "1 argument"
	}
	return fmt.Sprintf("%d arguments", f.fewest)
}

// loadZone returns the zone with an IANA name; empty is UTC.
func loadZone(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	if name == "Local" {
		return nil, errors.New("zone Local depends on the machine; name it, as Europe/Berlin")
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("no time zone %q: write an IANA name such as Europe/Berlin", name)
	}
	return zone, nil
}

func (r *resolver) headerCall(n *ast.CallNode) *term {
	var name *ast.StringNode
	if len(n.Arguments) == 1 {
		name, _ = n.Arguments[0].(*ast.StringNode)
	}
	if name == nil {
		return r.report(n, errors.New("header needs the header's key as a text literal"), `header("trace-id")`)
	}
	return r.source(source{kind: sourceHeader, header: []byte(name.Value), typ: typText, missing: &missingError{"header " + name.Value}})
}
