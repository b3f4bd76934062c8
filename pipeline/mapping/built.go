package mapping

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/vm/runtime"
)

// maxBuilt bounds the texts and arrays that one run of expr's machine makes, in bytes, as it
// may hold all of them. A text of the record that is joined with each element of an array, both
// 500 KB, is 50 GB. It is as much as four records may become.
const maxBuilt = 4 * maxMade

// compareCost is what it takes to compare two values of the machine, in bytes that are read.
const compareCost = 32

// jsonSize is how many bytes of values a byte of JSON text counts as that fromJSON reads.
const jsonSize = 4

// sourceCopy is a source as the machine has it.
type sourceCopy struct {
	run   uint64 // of the machine, that has made it
	text  string // empty = not yet
	value any    // of an object or an array; nil = not yet
}

// beginRun begins a run of the machine, which has made nothing.
func (m *Mapper) beginRun() {
	m.runs++
	m.building = 0
}

// copyOf returns where the machine's copy of source i is or goes: one in a run, however often
// it is read, as all may be held.
func (m *Mapper) copyOf(i int) *sourceCopy {
	if m.copies == nil {
		m.copies = make([]sourceCopy, len(m.plan.sources))
	}
	c := &m.copies[i]
	if c.run != m.runs {
		*c = sourceCopy{run: m.runs}
	}
	return c
}

// copied returns b, the text of source i, as the machine has it.
func (m *Mapper) copied(i int, b []byte) string {
	c := m.copyOf(i)
	if c.text == "" {
		c.text = string(b)
	}
	return c.text
}

// parsed returns the value of b, the JSON text of source i, which is an object or an array.
// Nothing that an expression calls changes one.
func (m *Mapper) parsed(i int, b []byte) (any, error) {
	c := m.copyOf(i)
	if c.value != nil {
		return c.value, nil
	}
	if err := m.spend(jsonCost * len(b)); err != nil {
		return nil, err
	}
	v, err := jsonValue(b)
	if err == nil {
		c.value = v
	}
	return v, err
}

// hold notes that the machine makes n bytes of values, and returns a *tooMuchError where it
// makes too much.
func (m *Mapper) hold(n int) error {
	if m.building += int64(n); m.building > m.plan.maxBuilt {
		return &tooMuchError{fmt.Sprintf("more than %d bytes of texts and arrays are made in an expression", m.plan.maxBuilt)}
	}
	return nil
}

// build is hold of a text, which takes as long to make as to read.
func (m *Mapper) build(n int) error {
	if err := m.hold(n); err != nil {
		return err
	}
	return m.spend(n)
}

// split holds the parts of a text of the arguments of expr's functions.
func (m *Mapper) split(args []any) error {
	text, ok := args[0].(string)
	sep, isText := args[1].(string)
	if !ok || !isText {
		return nil
	}
	n := atMost(strings.Count(text, sep)+1, args, 2)
	if err := m.spend(len(text)); err != nil {
		return err
	}
	return m.hold(n * int(unsafe.Sizeof("")))
}

// atMost returns n, bounded by the argument at i where there is one; negative = no bound.
func atMost(n int, args []any, i int) int {
	if len(args) > i {
		if most := runtime.ToInt(args[i]); most >= 0 {
			return min(n, most)
		}
	}
	return n
}

// built is build of a value that was made, if that is a text.
func (m *Mapper) built(v any, err error) (any, error) {
	if text, ok := v.(string); ok && err == nil {
		err = m.build(len(text))
	}
	return v, err
}

// bounded is expr's functions whose results are longer than what they are given, which each
// says first, and int, whose result would depend on the processor where it does not fit. What
// is of another type than it should be is left to expr, to be refused.
var bounded = map[string]func(m *Mapper, args []any) error{
	"concat": func(m *Mapper, args []any) error {
		n := 0
		for _, list := range args {
			if v := reflect.ValueOf(list); isList(v) {
				n += v.Len()
			}
		}
		if n > maxRepeated {
			return errors.New("memory budget exceeded")
		}
		return m.build(n * int(unsafe.Sizeof(any(nil))))
	},
	"int": func(_ *Mapper, args []any) error {
		f, _ := args[0].(float64)
		_, err := integerOfFloat(math.Trunc(f))
		return err
	},
	"join": func(m *Mapper, args []any) error {
		glue := ""
		if len(args) == 2 {
			glue, _ = args[1].(string)
		}
		elements, size := 0, 0
		switch all := args[0].(type) {
		case []string:
			elements = len(all)
			for _, text := range all {
				size += len(text)
			}
		case []any:
			elements = len(all)
			for _, v := range all {
				text, _ := v.(string)
				size += len(text)
			}
		}
		return m.build(size + max(elements-1, 0)*len(glue))
	},
	"replace": func(m *Mapper, args []any) error {
		text, ok := args[0].(string)
		old, isText := args[1].(string)
		by, isAlso := args[2].(string)
		if !ok || !isText || !isAlso {
			return nil
		}
		n := atMost(strings.Count(text, old), args, 3)
		return m.build(len(text) + n*max(len(by)-len(old), 0))
	},
	"split":      (*Mapper).split,
	"splitAfter": (*Mapper).split,
	"toBase64": func(m *Mapper, args []any) error {
		text, _ := args[0].(string)
		return m.build(base64.StdEncoding.EncodedLen(len(text)))
	},
	"fromBase64": func(m *Mapper, args []any) error {
		text, _ := args[0].(string)
		return m.build(base64.StdEncoding.DecodedLen(len(text)))
	},
	"toJSON": func(m *Mapper, args []any) error {
		text, err := json.Marshal(args[0])
		if err != nil {
			return nil // as expr finds
		}
		return m.build(indentedBytes(text))
	},
	"repeat": func(m *Mapper, args []any) error {
		text, ok := args[0].(string)
		n := runtime.ToInt(args[1])
		if !ok || n < 0 {
			return nil
		}
		if n > maxRepeated || len(text)*n > maxRepeated {
			return errors.New("memory budget exceeded")
		}
		return m.build(len(text) * n)
	},
}

// maxRepeated is expr's bound of what repeat makes, in bytes, and concat and flatten, in
// elements. It makes that first.
const maxRepeated = 1_000_000

// indentedBytes returns how long a JSON text becomes, at most, with a line for each element,
// indented by two spaces a level: of one that nests deep, many times as long.
func indentedBytes(text []byte) int {
	n, depth, quoted := len(text), 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			n += 1 + 2*depth
		case c == '}' || c == ']':
			depth--
			n += 1 + 2*depth
		case c == ',':
			n += 1 + 2*depth
		case c == ':':
			n++
		}
	}
	return n
}

// missingTexts is the functions of which expr's make a text of nil, too, "<nil>" and "null":
// what reads a missing field is missing here.
var missingTexts = []string{"string", "toJSON"}

// notNilList returns a list as it is, an empty one where it is nil, as concat and split make
// it: nil is missing.
func notNilList(v any) any {
	if r := reflect.ValueOf(v); isList(r) && runtime.IsNil(v) {
		return reflect.MakeSlice(r.Type(), 0, 0).Interface()
	}
	return v
}

// registerBounded makes what bounded is known to expr, and its uniq, by the names that rewrite
// puts in their place. The checker goes by expr's names and types, with the Mapper in front.
func registerBounded(c *conf.Config, add func(name string, fn func(m *Mapper, args []any) (any, error))) {
	ours := func(name string, fn func(m *Mapper, args []any) (any, error)) {
		add("$"+name, fn)
		behindMapper(c.Functions["$"+name], c.Builtins[name])
	}
	for name, bound := range bounded {
		own := c.Builtins[name]
		ours(name, func(m *Mapper, args []any) (any, error) {
			if err := bound(m, args); err != nil {
				return nil, err
			}
			switch {
			case own.Fast != nil:
				return own.Fast(args[0]), nil
			case own.Func != nil:
				v, err := own.Func(args...)
				return notNilList(v), err
			}
			v, _, err := own.Safe(args...)
			return notNilList(v), err
		})
	}
	ours("string", func(m *Mapper, args []any) (any, error) {
		if runtime.IsNil(args[0]) {
			return nil, nil
		}
		text, err := appendAny(nil, args[0])
		return m.built(string(text), err)
	})
	for _, name := range missingTexts {
		f := c.Functions["$"+name]
		call := f.Func
		f.Func = func(args ...any) (any, error) {
			if len(args) == 2 && args[1] == nil {
				return nil, nil
			}
			return call(args...)
		}
		f.Types = []reflect.Type{reflect.TypeFor[func(env, v any) any]()} // no text, for the checker, as it may be nil
	}
	add(callIn, func(m *Mapper, args []any) (any, error) { return m.in(args[0], args[1]) })
	c.Functions[callIn].Validate = checkIn
	add(callTexts, inTexts)
	c.Functions[callTexts].Validate = func(args []reflect.Type) (reflect.Type, error) {
		return checkIn([]reflect.Type{args[0], args[1], reflect.TypeFor[[]string]()})
	}
	add(callKey, notNil)
	c.Functions[callKey].Validate = func(args []reflect.Type) (reflect.Type, error) { return args[1], nil }
	ours("uniq", func(m *Mapper, args []any) (any, error) { return m.uniq(args[0]) })
	ours("flatten", func(m *Mapper, args []any) (any, error) { return m.flatten(args[0]) })
}

// isBounded reports whether a function of expr's has one of ours in its place.
func isBounded(name string) bool {
	return bounded[name] != nil || name == "string" || name == "uniq" || name == "flatten"
}

// uniq is expr's, which compares each element with all different ones before it.
func (m *Mapper) uniq(list any) (any, error) {
	v := reflect.ValueOf(list)
	if !isList(v) {
		return nil, fmt.Errorf("cannot uniq %s", v.Kind())
	}
	out := []any{}
	for i := range v.Len() {
		if err := m.spend(compareCost * len(out)); err != nil {
			return nil, err
		}
		x := v.Index(i).Interface()
		if !slices.ContainsFunc(out, func(y any) bool { return runtime.Equal(x, y) }) {
			out = append(out, x)
		}
	}
	return out, nil
}

// flatten is expr's, which copies what is in an array for each one around it.
func (m *Mapper) flatten(list any) (any, error) {
	v := reflect.ValueOf(list)
	if !isList(v) {
		return nil, fmt.Errorf("cannot flatten %s", v.Kind())
	}
	out, err := appendFlat([]any{}, v, 0)
	if err == nil {
		err = m.build(len(out) * int(unsafe.Sizeof(any(nil))))
	}
	return out, err
}

// isWritten reports whether a list is written out in the expression, or a range.
func isWritten(list ast.Node) bool {
	switch n := list.(type) {
	case *ast.ArrayNode:
		return true
	case *ast.BinaryNode:
		return n.Operator == ".."
	}
	return false
}

// texts returns the elements of a list of nothing but texts that is written out in the
// expression, else nil.
func texts(list ast.Node) map[string]struct{} {
	array, ok := list.(*ast.ArrayNode)
	if !ok || len(array.Nodes) == 0 {
		return nil
	}
	set := make(map[string]struct{}, len(array.Nodes))
	for _, n := range array.Nodes {
		switch text := n.(type) {
		case *ast.StringNode:
			set[text.Value] = struct{}{}
		case *ast.BytesNode:
			set[string(text.Value)] = struct{}{}
		default:
			return nil
		}
	}
	return set
}

// inTexts is the operator for texts that are written out. expr takes nil for "", and fails for
// what is no text.
func inTexts(_ *Mapper, args []any) (any, error) {
	text, ok := args[0].(string)
	_, in := args[1].(map[string]struct{})[text]
	return ok && in, nil
}

// in is the operator, which compares x with each element of an array, or looks for it among
// the keys of an object as inTexts does.
func (m *Mapper) in(x, list any) (any, error) {
	switch v := reflect.ValueOf(list); {
	case isList(v):
		if err := m.spend(compareCost * v.Len()); err != nil {
			return nil, err
		}
	case v.Kind() == reflect.Map && v.Type().Key().Kind() == reflect.String:
		if _, ok := x.(string); !ok {
			return false, nil
		}
	}
	return runtime.In(x, list), nil
}

// notNil returns an index or a key, and fails where it is nil: what lacks it is missing, if
// that is.
func notNil(_ *Mapper, args []any) (any, error) {
	if args[0] == nil {
		return nil, errors.New("the index is nil")
	}
	return args[0], nil
}

// checkIn finds out about types that expr's checker would refuse of the operator. The first
// is the Mapper's.
func checkIn(args []reflect.Type) (reflect.Type, error) {
	x, list := args[1], args[2]
	known := func(t reflect.Type) bool { return t != nil && t.Kind() != reflect.Interface }
	if known(list) {
		switch list.Kind() {
		case reflect.Array, reflect.Slice:
			if of := list.Elem(); known(x) && known(of) && !x.AssignableTo(of) {
				return nil, fmt.Errorf("cannot use %s as type %s in array", x, of)
			}
		case reflect.Map:
		default:
			return nil, fmt.Errorf("invalid operation: in (mismatched types %s and %s)", x, list)
		}
	}
	return reflect.TypeFor[bool](), nil
}

func isList(v reflect.Value) bool { return v.Kind() == reflect.Array || v.Kind() == reflect.Slice }

func appendFlat(out []any, v reflect.Value, depth int) (_ []any, err error) {
	if depth > builtin.MaxDepth {
		return nil, builtin.ErrorMaxDepth
	}
	for i := range v.Len() {
		x := v.Index(i)
		if x.Kind() == reflect.Interface {
			x = x.Elem()
		}
		switch {
		case isList(x):
			if out, err = appendFlat(out, x, depth+1); err != nil {
				return nil, err
			}
		case len(out) == maxRepeated:
			return nil, errors.New("memory budget exceeded")
		case !x.IsValid():
			out = append(out, nil)
		default:
			out = append(out, x.Interface())
		}
	}
	return out, nil
}

// behindMapper gives f what the checker knows of own, with one more parameter in front.
func behindMapper(f, own *builtin.Function) {
	f.Name = own.Name
	for _, t := range own.Types {
		in, out := []reflect.Type{reflect.TypeFor[any]()}, []reflect.Type{}
		for i := range t.NumIn() {
			in = append(in, t.In(i))
		}
		for i := range t.NumOut() {
			out = append(out, t.Out(i))
		}
		f.Types = append(f.Types, reflect.FuncOf(in, out, t.IsVariadic()))
	}
	if own.Validate != nil {
		f.Validate = func(args []reflect.Type) (reflect.Type, error) { return own.Validate(args[1:]) }
	}
}
