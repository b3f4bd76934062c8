package mapping

import (
	"fmt"
	"slices"

	"github.com/expr-lang/expr/ast"
)

// inference finds out what is known of the values of one expression.
type inference struct {
	c     *compilation
	terms map[ast.Node]*term
	scope []inferred         // let variables
	done  map[ast.Node]Value // of nodes that were looked at: some are asked for twice, and so is all below them
}

// inferred is what is known of the value that let names.
type inferred struct {
	name  string
	value Value
}

// value returns what is known of the text of n, which has no mistakes; the zero Value of
// nil.
func (f *inference) value(n ast.Node) Value {
	v, ok := f.done[n]
	if !ok {
		v = f.infer(n)
		f.done[n] = v
	}
	return v
}

// infer is value of a node that was not looked at.
func (f *inference) infer(n ast.Node) Value {
	t := f.terms[n]
	if t == nil {
		t = &term{}
	}
	switch t.op {
	case opSource:
		return f.c.sourceValue(t.source)
	case opLiteral:
		switch t.typ {
		case typNil:
			return Value{}
		case typInt:
			return Value{Kind: KindInt, alphabet: setOf(t.text)}
		case typNumber:
			return floatValue("")
		case typBool:
			return Value{Kind: KindBool, alphabet: boolLetters}
		}
		return literal(t.text)
	}
	switch n := n.(type) {
	case *ast.IdentifierNode:
		for i := len(f.scope) - 1; i >= 0; i-- {
			if f.scope[i].name == n.Value {
				return f.scope[i].value
			}
		}
	case *ast.ChainNode:
		return f.value(n.Node)
	case *ast.CallNode:
		return f.call(n, t)
	case *ast.BuiltinNode:
		return f.builtin(n)
	case *ast.UnaryNode:
		switch x := f.value(n.Node); {
		case n.Operator == "+": // a text stays one
			return x
		case t.typ == typBool:
			return Value{Kind: KindBool, alphabet: boolLetters}
		case x.Kind.isWhole():
			return Value{Kind: KindInt, Name: x.Name, alphabet: wholeSigns}
		}
		return floatValue(noteDouble)
	case *ast.BinaryNode:
		return f.binary(n, t)
	case *ast.ConditionalNode:
		return Either(f.value(n.Exp1), f.value(n.Exp2))
	case *ast.VariableDeclaratorNode:
		f.scope = append(f.scope, inferred{n.Name, f.value(n.Value)})
		v := f.value(n.Expr)
		f.scope = f.scope[:len(f.scope)-1]
		return v
	case *ast.SequenceNode:
		return f.value(n.Nodes[len(n.Nodes)-1])
	case *ast.ArrayNode, *ast.MapNode:
		return Value{Kind: KindJSON}
	case *ast.SliceNode:
		if v := f.value(n.Node); v.alphabet.isASCII() {
			return Value{Kind: KindText, Name: v.Name, alphabet: v.alphabet}
		}
		return Value{Kind: KindBytes, Note: noteSlice}
	case *ast.MemberNode:
		return f.any(n.Node)
	case *ast.PredicateNode:
		return f.value(n.Node)
	}
	return Value{Kind: KindText, Note: noteAny}
}

// any returns what is known of a value that is made of parts of the nodes' values: text,
// unless there are bytes among them.
func (f *inference) any(nodes ...ast.Node) Value {
	v := Value{Kind: KindText, Note: noteAny}
	for _, n := range nodes {
		if x := f.value(n); x.Kind != 0 && !x.Kind.isText() {
			v = Value{Kind: KindBytes, Note: "made of " + x.Kind.String()}
		}
	}
	return v
}

// text is any of what is known to be a text.
func (f *inference) text(nodes ...ast.Node) Value {
	v := f.any(nodes...)
	if v.Kind == KindText {
		v.Note = ""
		v.Name = f.value(nodes[0]).Name
	}
	return v
}

func (f *inference) binary(n *ast.BinaryNode, t *term) Value {
	if t.typ == typBool {
		return Value{Kind: KindBool, alphabet: boolLetters}
	}
	a, b := f.value(n.Left), f.value(n.Right)
	whole := a.Kind.isWhole() && b.Kind.isWhole()
	number := (a.Kind.isWhole() || a.Kind == KindFloat) && (b.Kind.isWhole() || b.Kind == KindFloat)
	switch n.Operator {
	case "+":
		switch {
		case t.op == opConcat:
			return Joined(a, b)
		case whole:
			return wholeValue()
		case number:
			return floatValue(noteDouble)
		}
		v := f.any(n.Left, n.Right)
		v.Name = Joined(a, b).Name
		return v
	case "-", "*":
		if whole {
			return wholeValue()
		}
		return floatValue(noteDouble)
	case "/", "**", "^":
		return floatValue("")
	case "%":
		return wholeValue()
	case "..":
		return Value{Kind: KindJSON}
	case "??":
		return Either(a, b)
	case "==", "!=", "<", "<=", ">", ">=", "and", "&&", "or", "||", "contains", "startsWith", "endsWith", "matches", "in", "not in":
		return Value{Kind: KindBool, alphabet: boolLetters}
	}
	return f.any(n.Left, n.Right)
}

// numberKinds are what the functions of numbers make.
var numberKinds = map[string]Kind{"u16": KindU16, "u32": KindU32, "u64": KindU64, "i64": KindI64, "int64": KindInt64}

// widths are how many bytes the functions make that always make as many.
var widths = map[string]int{
	"u16": 2, "u32": 4, "u64": 8, "i64": 8, "int64": 8, "reverse_ts": 8, "salt": 1,
	"hash16": 2, "hash32": 4, "hash64": 8, "hash16_hex": 4, "hash32_hex": 8, "hash64_hex": 16,
}

// call returns what is known of what one of our functions makes.
func (f *inference) call(n *ast.CallNode, t *term) Value {
	name := t.fn.name
	if name == "coalesce" {
		var v Value
		for _, a := range n.Arguments {
			v = Either(v, f.value(a))
		}
		return v
	}
	at := 0
	if t.fn.params[0] == paramSmall {
		at = 1
	}
	x := f.value(n.Arguments[at])
	v := Value{Name: x.Name, Width: widths[name]}
	switch name {
	case "u16", "u32", "u64", "i64", "int64":
		v.Kind, v.Time = numberKinds[name], x.Kind == KindMillis
	case "reverse_ts":
		if v.Kind = KindReverseTime; x.Kind != KindMillis {
			v.Kind, v.Note = KindReverseInt, "where it is ms since 1970: type timestamp"
		}
	case "salt", "hash16", "hash32", "hash64":
		v.Kind, v.Name = KindBytes, suffixed(x.Name, name)
	case "hash16_hex", "hash32_hex", "hash64_hex":
		v.Kind, v.Name, v.alphabet = KindText, suffixed(x.Name, "hash"), hexDigits
	case "reverse":
		if v.Kind = KindReversed; !x.Kind.isText() {
			v.Kind, v.Note = KindBytes, x.Note
		}
		v.Width, v.alphabet = x.Width, x.alphabet
	case "fixed":
		v.Width = t.small
		if v.Kind = KindFixed; !x.Kind.isText() {
			v.Kind, v.Note = KindBytes, x.Note
		}
		v.alphabet = x.alphabet.with(setOf("\x00"))
	case "pad":
		v.Width = t.small
		switch {
		case x.Kind.isWhole():
			v.Kind, v.alphabet = x.Kind, digits
			return v
		case x.Kind.isText():
			v.Kind, v.Note = KindText, "where all are whole numbers: type int64"
		default:
			v.Kind, v.Note = KindBytes, x.Note
		}
		v.alphabet = x.alphabet.with(setOf("0"))
	case "decimal":
		v.Kind, v.alphabet = KindText, decimalSigns
		v.Note = fmt.Sprintf("a decimal: type decimal(P,%d), where P digits are enough", t.small)
	case "lower", "upper":
		if v.Kind = KindText; !x.Kind.isText() {
			v.Kind, v.Note = KindBytes, x.Note
		}
	case "date":
		l := f.c.dates[t.date].layout
		v.Kind, v.Name = KindText, "date"
		v.Width, v.alphabet = l.shape()
	default: // of integers: ms_of_day, minute_of_day, len
		v.Kind, v.Name, v.alphabet = KindInt, suffixed("", name), wholeSigns
	}
	return v
}

// suffixed returns a name of what a function makes of what name is.
func suffixed(name, function string) string {
	if name == "" {
		return function
	}
	return name + "_" + function
}

// Functions of expr, by what they make.
var (
	makeBool  = []string{"all", "none", "any", "one", "hasPrefix", "hasSuffix"}
	makeWhole = []string{"int", "count", "indexOf", "lastIndexOf", "findIndex", "findLastIndex", "bitand", "bitor", "bitxor", "bitnand", "bitshl", "bitshr", "bitushr", "bitnot"}
	makeFloat = []string{"float", "ceil", "floor", "round", "mean", "median"}
	makeJSON  = []string{"filter", "map", "sortBy", "groupBy", "split", "splitAfter", "take", "fromPairs", "uniq", "concat", "flatten", "sort", "toJSON"}
	makeText  = []string{"trim", "trimPrefix", "trimSuffix", "replace", "repeat", "join"}
)

func (f *inference) builtin(n *ast.BuiltinNode) Value {
	switch {
	case slices.Contains(makeBool, n.Name):
		return Value{Kind: KindBool, alphabet: boolLetters}
	case slices.Contains(makeWhole, n.Name):
		v := wholeValue()
		if n.Name == "int" {
			v.Name = f.value(n.Arguments[0]).Name
		}
		return v
	case slices.Contains(makeFloat, n.Name):
		v := floatValue("")
		if n.Name == "float" {
			v.Name = f.value(n.Arguments[0]).Name
		}
		return v
	case slices.Contains(makeJSON, n.Name):
		return Value{Kind: KindJSON}
	case slices.Contains(makeText, n.Name):
		return f.text(n.Arguments...)
	}
	switch n.Name {
	case "string":
		return f.value(n.Arguments[0])
	case "toBase64", "type":
		return Value{Kind: KindText}
	case "fromBase64":
		return Value{Kind: KindBytes, Note: "any bytes: what base64 holds"}
	case "abs", "max", "min":
		v := f.value(n.Arguments[0])
		for _, a := range n.Arguments[1:] {
			v = Either(v, f.value(a))
		}
		switch {
		case v.Kind.isWhole():
			return wholeValue()
		case v.Kind == KindFloat || n.Name == "abs":
			return floatValue(noteDouble)
		}
	}
	return f.any(n.Arguments...)
}

// shape returns how many bytes the texts of l have, 0 where they differ, and of which they
// are.
func (l *layout) shape() (width int, alphabet byteSet) {
	alphabet = digits
	same := true
	for i := range l.parts {
		switch p := &l.parts[i]; {
		case p.letter == 0:
			width += len(p.text)
			alphabet = alphabet.with(setOf(p.text))
		case p.letter == 'M' && p.n == 3:
			width += 3
			alphabet = alphabet.with(setOf(monthNames))
		case p.letter == 'Z':
			width += 5
			alphabet = alphabet.with(setOf("+-"))
		case p.letter == 'X': // Z, or +01:00
			same = false
			alphabet = alphabet.with(setOf("+-:Z"))
		default:
			width += p.n
		}
	}
	if !same {
		return 0, alphabet
	}
	return width, alphabet
}
