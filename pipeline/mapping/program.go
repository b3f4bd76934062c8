package mapping

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/compiler"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/optimizer"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/vm"
	"github.com/expr-lang/expr/vm/runtime"

	"sluice/pipeline/decode"
)

// What runs in expr's machine is the same tree with its names replaced by calls:
// a source becomes $value, or $text where its text is wanted (a number keeps the
// payload's spelling), a concatenation $cat, a + that the record decides $add.
// All of them get the Mapper as $env. A missing source is nil and makes every
// function of ours nil.
const (
	callValue = "$value"
	callText  = "$text"
	callBoth  = "$both"
	callLen   = "$len"
	callCat   = "$cat"
	callAdd   = "$add"
	callIn    = "$in"
	callTexts = "$texts" // in, of texts that are written out
	callKey   = "$key"   // an index, or a key
	callJSON  = "$json"  // fromJSON, whose numbers are floats in expr
	callBool  = "$bool"  // the right side of and and or, which expr gives as it is
)

// mode is what a node's parent wants of it.
type mode uint8

const (
	wantValue mode = iota
	wantText
	wantBoth // an operand of $add: value and text
)

// both is a source's value with its text.
type both struct {
	value any
	text  string
}

// program is an expression for expr's machine.
type program struct {
	exact   *vm.Program
	careful *vm.Program // for records that lack what it reads
}

// compileProgram makes a program of a resolved tree, which it changes.
func compileProgram(tree *parser.Tree, terms map[ast.Node]*term, want mode) (p *program, err error) {
	defer func() {
		// expr's compiler panics on some trees that its checker lets through.
		if r := recover(); r != nil {
			err = fmt.Errorf("expression cannot be compiled: %v", r)
		}
	}()
	tree.Node = rewrite(tree.Node, terms, want)
	other := &parser.Tree{Node: (&careful{of: map[string]bool{}}).copy(tree.Node), Source: tree.Source}
	p = &program{}
	if p.exact, err = compileTree(tree); err != nil {
		return nil, err
	}
	p.careful, err = compileTree(other)
	return p, err
}

func compileTree(tree *parser.Tree) (*vm.Program, error) {
	config := parserConfig()
	if _, err := checkTree(tree, config); err != nil {
		return nil, err
	}
	if err := optimizer.Optimize(&tree.Node, config); err != nil {
		return nil, err
	}
	return compiler.Compile(tree, config)
}

// rewrite returns n with its names replaced.
func rewrite(n ast.Node, terms map[ast.Node]*term, want mode) ast.Node {
	t := terms[n]
	if t != nil && t.op == opSource {
		name := callValue
		switch want {
		case wantText:
			name = callText
		case wantBoth:
			name = callBoth
		}
		return makeCall(n, name, &ast.IntegerNode{Value: t.source})
	}
	sub := func(n ast.Node, want mode) ast.Node { return rewrite(n, terms, want) }
	switch n := n.(type) {
	case *ast.UnaryNode:
		n.Node = sub(n.Node, wantValue)
	case *ast.BinaryNode:
		switch {
		case t.op == opConcat:
			return makeCall(n, callCat, sub(n.Left, wantText), sub(n.Right, wantText))
		case t.op == opAdd:
			return makeCall(n, callAdd, sub(n.Left, wantBoth), sub(n.Right, wantBoth))
		case t.op == opAnd || t.op == opOr:
			n.Left, n.Right = sub(n.Left, wantValue), sub(n.Right, wantValue)
			if t.args[1].typ != typBool {
				n.Right = makeCall(n.Right, callBool, n.Right)
			}
		case n.Operator == "??":
			n.Left, n.Right = sub(n.Left, want), sub(n.Right, want)
		case n.Operator == "in" && texts(n.Right) != nil:
			return makeCall(n, callTexts, sub(n.Left, wantValue), &ast.ConstantNode{Value: texts(n.Right)})
		case n.Operator == "in" && !isWritten(n.Right):
			return makeCall(n, callIn, sub(n.Left, wantValue), sub(n.Right, wantValue))
		default:
			n.Left, n.Right = sub(n.Left, wantValue), sub(n.Right, wantValue)
		}
	case *ast.CallNode:
		return rewriteCall(n, t, terms, want)
	case *ast.BytesNode: // texts are strings in the machine
		text := &ast.StringNode{Value: string(n.Value)}
		text.SetLocation(n.Location())
		return text
	case *ast.BuiltinNode:
		for i := range n.Arguments {
			want := wantValue
			if n.Name == "string" {
				want = wantText
			}
			n.Arguments[i] = sub(n.Arguments[i], want)
		}
		if n.Name == "get" && len(n.Arguments) == 2 {
			n.Arguments[1] = key(n.Arguments[1])
		}
		if n.Name == "fromJSON" && len(n.Arguments) == 1 { // else expr says what is wrong
			return makeCall(n, callJSON, n.Arguments...)
		}
		if isBounded(n.Name) {
			return makeCall(n, "$"+n.Name, n.Arguments...)
		}
	case *ast.PredicateNode:
		n.Node = sub(n.Node, wantValue)
	case *ast.ConditionalNode:
		n.Cond, n.Exp1, n.Exp2 = sub(n.Cond, wantValue), sub(n.Exp1, want), sub(n.Exp2, want)
	case *ast.VariableDeclaratorNode:
		n.Value, n.Expr = sub(n.Value, wantValue), sub(n.Expr, want)
	case *ast.SequenceNode:
		for i := range n.Nodes {
			n.Nodes[i] = sub(n.Nodes[i], want)
		}
	case *ast.ArrayNode:
		for i := range n.Nodes {
			n.Nodes[i] = sub(n.Nodes[i], wantValue)
		}
	case *ast.MapNode:
		for _, p := range n.Pairs {
			pair := p.(*ast.PairNode)
			pair.Key, pair.Value = sub(pair.Key, wantValue), sub(pair.Value, wantValue)
		}
	case *ast.SliceNode:
		n.Node = sub(n.Node, wantValue)
		if n.From != nil {
			n.From = sub(n.From, wantValue)
		}
		if n.To != nil {
			n.To = sub(n.To, wantValue)
		}
	case *ast.MemberNode:
		n.Node, n.Property = sub(n.Node, wantValue), key(sub(n.Property, wantValue))
	case *ast.ChainNode:
		n.Node = sub(n.Node, wantValue)
	}
	return n
}

// key returns what checks an index or a key, which expr takes for the zero value of keys where
// it is nil.
func key(n ast.Node) ast.Node {
	if isConstant(n) {
		return n
	}
	return makeCall(n, callKey, n)
}

// isConstant reports whether an index or a key is written out.
func isConstant(key ast.Node) bool {
	switch key.(type) {
	case *ast.StringNode, *ast.IntegerNode:
		return true
	}
	return false
}

// rewriteCall replaces a call of one of our functions.
func rewriteCall(n *ast.CallNode, t *term, terms map[ast.Node]*term, want mode) ast.Node {
	switch fn := t.fn; {
	case fn.name == "coalesce":
		// The operator evaluates its right side only where it must.
		x := rewrite(n.Arguments[0], terms, want)
		for _, arg := range n.Arguments[1:] {
			y := rewrite(arg, terms, want)
			next := &ast.BinaryNode{Operator: "??", Left: x, Right: y}
			next.SetLocation(n.Location())
			x = next
		}
		return x
	case fn.name == "date":
		return makeCall(n, fn.name, rewrite(n.Arguments[0], terms, wantValue), &ast.IntegerNode{Value: t.date})
	case fn.length != nil:
		if a := terms[n.Arguments[0]]; a.op == opSource {
			return makeCall(n, callLen, &ast.IntegerNode{Value: a.source})
		}
		return makeCall(n, fn.name, rewrite(n.Arguments[0], terms, wantValue))
	}
	args := make([]ast.Node, len(n.Arguments))
	for i, a := range n.Arguments {
		want := wantValue
		if t.fn.params[i] == paramText {
			want = wantText
		}
		args[i] = rewrite(a, terms, want)
	}
	return makeCall(n, t.fn.name, args...)
}

// makeCall returns a call with the Mapper as its first argument, in the place of
// n.
func makeCall(n ast.Node, name string, args ...ast.Node) ast.Node {
	call := &ast.CallNode{
		Callee:    &ast.IdentifierNode{Value: name},
		Arguments: append([]ast.Node{&ast.IdentifierNode{Value: "$env"}}, args...),
	}
	for _, x := range append([]ast.Node{call, call.Callee}, call.Arguments...) {
		if x.Location().To == 0 {
			x.SetLocation(n.Location())
		}
	}
	return call
}

// registerFunctions makes our functions known to expr.
func registerFunctions(c *conf.Config) {
	add := func(name string, fn func(m *Mapper, args []any) (any, error)) {
		c.Functions[name] = &builtin.Function{Name: name, Func: func(args ...any) (any, error) {
			return fn(args[0].(*Mapper), args[1:])
		}}
	}
	for name, fn := range functions {
		add(name, func(m *Mapper, args []any) (any, error) { return fn.callFromMachine(m, args) })
	}
	add("header", func(*Mapper, []any) (any, error) { return nil, errors.New("header was not replaced") })
	add(callValue, func(m *Mapper, args []any) (any, error) { return m.sourceValue(args[0].(int)) })
	add(callText, func(m *Mapper, args []any) (any, error) {
		i := args[0].(int)
		_, b := m.sourceText(i)
		if b == nil {
			return nil, nil
		}
		return m.copied(i, b), m.spend(len(b))
	})
	add(callBoth, func(m *Mapper, args []any) (any, error) {
		v, err := m.sourceValue(args[0].(int))
		if v == nil || err != nil {
			return nil, err
		}
		i := args[0].(int)
		_, b := m.sourceText(i)
		return both{v, m.copied(i, b)}, nil
	})
	add(callLen, func(m *Mapper, args []any) (any, error) {
		k, b := m.sourceText(args[0].(int))
		if b == nil {
			return nil, nil
		}
		if err := m.spend(jsonCost * len(b)); err != nil {
			return nil, err
		}
		n, err := lengthOf(k, b)
		return int(n), err
	})
	add(callJSON, func(m *Mapper, args []any) (any, error) {
		text, ok := args[0].(string)
		if !ok {
			return nil, fmt.Errorf("fromJSON of %s", shapeOf(args[0]))
		}
		if err := errors.Join(m.spend(jsonCost*len(text)), m.hold(jsonSize*len(text))); err != nil {
			return nil, err
		}
		v, err := jsonValue([]byte(text))
		if err != nil {
			return nil, errors.New(err.Error()) // the expression's, as of expr's own functions
		}
		return v, nil
	})
	text := c.Functions[callJSON] // the checker refuses what can be none, by expr's name of the function
	text.Name, text.Types = "fromJSON", []reflect.Type{reflect.TypeFor[func(env any, text string) any]()}
	add(callBool, func(_ *Mapper, args []any) (any, error) {
		if _, ok := args[0].(bool); !ok && args[0] != nil {
			return nil, fmt.Errorf("the value is %s, not true or false", shapeOf(args[0]))
		}
		return args[0], nil
	})
	add(callCat, func(m *Mapper, args []any) (any, error) { return m.built(concat(args[0], args[1])) })
	add(callAdd, func(m *Mapper, args []any) (any, error) { return m.built(addOrConcat(args[0], args[1])) })
	registerBounded(c, add)
	registerCareful(add)
}

// callFromMachine calls f with values of expr's machine.
func (f *function) callFromMachine(m *Mapper, args []any) (any, error) {
	small := 0
	var x any
	for i, a := range args {
		if runtime.IsNil(a) {
			return nil, nil
		}
		if i < len(f.params) && f.params[i] == paramSmall {
			small = a.(int)
		} else if i == 0 || f.params[0] == paramSmall {
			x = a
		}
	}
	switch {
	case f.text != nil:
		b, err := appendAny(nil, x)
		if err != nil {
			return nil, err
		}
		out, err := f.text(nil, b, small)
		return m.built(string(out), err)
	case f.length != nil:
		switch v := reflect.ValueOf(x); v.Kind() {
		case reflect.Slice, reflect.Array, reflect.Map: // split makes a []string, groupBy a map[any][]any
			return v.Len(), nil
		}
		b, err := appendAny(nil, x)
		return len(b), err
	}
	v, err := integerOfAny(x)
	if err != nil {
		return nil, err
	}
	switch {
	case f.number != nil:
		out, err := f.number(nil, v)
		return string(out), err
	case f.integer != nil:
		return int(f.integer(v)), nil
	}
	date := args[1].(int)
	out, err := m.dates[date].append(nil, &m.plan.dates[date], v)
	return string(out), err
}

func concat(a, b any) (any, error) {
	if a == nil || b == nil {
		return nil, nil
	}
	out, err := appendAny(nil, a)
	if err != nil {
		return nil, err
	}
	out, err = appendAny(out, b)
	return string(out), err
}

// addOrConcat adds two numbers and joins where one side is a text.
func addOrConcat(a, b any) (any, error) {
	if a == nil || b == nil {
		return nil, nil
	}
	value := func(x any) any {
		if s, ok := x.(both); ok {
			return s.value
		}
		return x
	}
	x, y := value(a), value(b)
	_, xText := x.(string)
	_, yText := y.(string)
	if xText || yText {
		return concat(a, b)
	}
	i, iok := x.(int)
	j, jok := y.(int)
	if iok && jok {
		return i + j, nil
	}
	f, fok := x.(float64)
	g, gok := y.(float64)
	if iok {
		f, fok = float64(i), true
	}
	if jok {
		g, gok = float64(j), true
	}
	if !fok || !gok {
		return nil, valueErrorf("+ of %s and %s", shapeOf(x), shapeOf(y))
	}
	return f + g, nil
}

// integerOfAny returns the integer of a value of the machine.
func integerOfAny(v any) (int64, error) {
	switch v := v.(type) {
	case int:
		return int64(v), nil
	case int64:
		return v, nil
	case float64:
		return integerOfFloat(v)
	case string:
		return integerOfText([]byte(v))
	}
	return 0, valueErrorf("%s, where an integer is needed", shapeOf(v))
}

// appendAny appends the text of a value of the machine, which is not nil.
func appendAny(dst []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case string:
		return append(dst, v...), nil
	case []byte:
		return append(dst, v...), nil
	case both:
		return append(dst, v.text...), nil
	case int:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(dst, v, 10), nil
	case float64:
		return appendFloat(dst, v)
	case bool:
		return strconv.AppendBool(dst, v), nil
	}
	b, err := json.Marshal(v)
	if err != nil { // keys of groupBy may be numbers
		return dst, valueErrorf("%s has no text", shapeOf(v))
	}
	return append(dst, b...), nil
}

// shapeOf names what a value of the machine is, as the guide does.
func shapeOf(v any) string {
	switch v.(type) {
	case nil:
		return "nil"
	case bool:
		return "true or false"
	case string, []byte:
		return "a text"
	}
	switch k := reflect.TypeOf(v).Kind(); k {
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Map:
		return "an object"
	default:
		if reflect.Int <= k && k <= reflect.Float64 {
			return "a number"
		}
	}
	return fmt.Sprintf("a %T", v)
}

// sourceText reads a source for the machine and notes that it is missing.
func (m *Mapper) sourceText(i int) (decode.Kind, []byte) {
	s := m.plan.sources[i]
	if s.typ == typInt {
		v, _ := m.sourceValue(i)
		return decode.Number, strconv.AppendInt(nil, int64(v.(int)), 10)
	}
	k, b := m.read(s)
	if b == nil {
		m.missing = s.missing
	}
	return k, b
}

// sourceValue returns a source as a value of the machine: nil, string, int,
// float64, bool, []any or map[string]any.
func (m *Mapper) sourceValue(i int) (any, error) {
	s := m.plan.sources[i]
	switch s.kind {
	case sourceTime:
		return int(m.time), nil
	case sourceTimestamp:
		return int(m.record.Timestamp), nil
	case sourcePartition:
		return int(m.record.Partition), nil
	case sourceOffset:
		return int(m.record.Offset), nil
	case sourceIndex:
		return m.loops[s.loop].index, nil
	}
	k, b := m.sourceText(i)
	switch k {
	case decode.String:
		if b == nil {
			return nil, nil
		}
		return m.copied(i, b), m.spend(len(b))
	case decode.Number:
		if i, f, ok := parseNumber(b); !ok {
			return f, nil
		} else if i >= math.MinInt && i <= math.MaxInt {
			return int(i), nil
		}
		return nil, valueErrorf("%s does not fit an integer of this machine", b)
	case decode.Bool:
		return b[0] == 't', nil
	case decode.Object, decode.Array:
		return m.parsed(i, b)
	}
	return nil, nil
}

// jsonValue returns the value of a JSON text.
func jsonValue(b []byte) (any, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber() // a float64 has not all digits of an id of 8 bytes
	err := d.Decode(&v)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("text after the value")
		}
	}
	if err != nil {
		return nil, valueErrorf("%q: %v", clip(b), err)
	}
	return numbers(v), nil
}

// numbers turns the numbers in v into ints, as the fields of a document are, and into
// floats where they are not whole or have no 8 bytes: ±Inf beyond those, as of a field.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		i, f, ok := parseNumber([]byte(v))
		switch {
		case ok && i >= math.MinInt && i <= math.MaxInt:
			return int(i)
		case ok:
			return float64(i)
		case f == math.Trunc(f) && math.Abs(f) < 1<<53:
			return int(f)
		}
		return f
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = numbers(v[k])
		}
	}
	return v
}

// run runs p on the current document. It returns nil where the value is nil.
func (m *Mapper) run(p *program) (any, error) {
	v, err := m.runOnce(p.exact)
	if _, failed := err.(*expressionError); failed && m.missing != nil {
		return m.runOnce(p.careful)
	}
	return v, err
}

func (m *Mapper) runOnce(p *vm.Program) (any, error) {
	m.missing = nil
	m.beginRun()
	v, err := m.machine.Run(p, m)
	switch {
	case err == nil && runtime.IsNil(v): // a list, too, such as of a group that groupBy has not made
		return nil, nil
	case err == nil:
		return v, nil
	}
	var wrong *valueError
	var much *tooMuchError
	var missing *missingError
	switch {
	case errors.As(err, &wrong):
		return nil, wrong
	case errors.As(err, &much):
		return nil, much
	case errors.As(err, &missing):
		return nil, missing
	}
	_, message := fileError("", err)
	return nil, &expressionError{shapes.Replace(message)}
}

// shapes spells what expr's messages say of Go.
var shapes = strings.NewReplacer(
	"interface conversion: interface {} is ", "the value is ", "map[string]interface {}", "object", "[]interface {}", "array", "<nil>", "nil")

// nilError says why an expression that must have a value has none.
func (m *Mapper) nilError() error {
	if m.missing != nil {
		return m.missing
	}
	return errNil
}

var errNil = &missingError{"the expression's value"}

// expressionError is an error of expr's machine.
type expressionError struct{ text string }

func (e *expressionError) Error() string { return e.text }

func programText(p *program) textFunc {
	return func(m *Mapper, dst []byte) ([]byte, error) {
		v, err := m.run(p)
		if err != nil {
			return dst, err
		}
		if v == nil {
			return dst, m.nilError()
		}
		return appendAny(dst, v)
	}
}

func programInt(p *program) intFunc {
	return func(m *Mapper) (int64, error) {
		v, err := m.run(p)
		if err != nil {
			return 0, err
		}
		if v == nil {
			return 0, m.nilError()
		}
		return integerOfAny(v)
	}
}

func programBool(p *program) boolFunc {
	return func(m *Mapper) (bool, error) {
		v, err := m.run(p)
		if err != nil {
			return false, err
		}
		if v == nil {
			return false, m.nilError()
		}
		b, ok := v.(bool)
		if !ok {
			return false, &expressionError{fmt.Sprintf("the condition is %s, not true or false", shapeOf(v))}
		}
		return b, nil
	}
}
