package mapping

import (
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// expr's operators and functions fail for nil, which a missing field is, and a failure ends
// the whole expression: int(n) ?? 0 would be missing where n is, as if there were no ?? behind
// it, and (n ?? "x") - 5 missing, though it is a text that - fails for. So an expression that
// has failed at a record that lacks a field it reads is run anew as a careful copy of its
// tree, in which what reads nil is nil, as our functions are. Other records never run it.
//
// What the elements of an array lack (#.n) is no field: the copy fails for that as the tree does.
type careful struct {
	names int             // of variables that hold operands
	of    map[string]bool // variables of let that hold what is of an element
}

// Names of our functions that only the careful copy calls.
const (
	callAny  = "$any"  // its argument, of a type that expr's checker knows nothing of
	callFail = "$fail" // ends the run: what it would have been is missing
)

// registerCareful makes the functions of careful copies known to expr.
func registerCareful(add func(name string, fn func(m *Mapper, args []any) (any, error))) {
	add(callAny, func(_ *Mapper, args []any) (any, error) { return args[0], nil })
	add(callFail, func(m *Mapper, _ []any) (any, error) { return nil, m.nilError() })
}

// strict is expr's operators that fail for nil.
var strict = map[string]bool{
	"+": true, "-": true, "*": true, "/": true, "%": true, "**": true, "^": true,
	"<": true, "<=": true, ">": true, ">=": true, "..": true, "not": true, "!": true,
}

// copy returns a careful copy of n, which rewrite has made.
func (c *careful) copy(n ast.Node) ast.Node {
	switch n := n.(type) {
	case *ast.UnaryNode:
		own := *n
		if !strict[n.Operator] {
			own.Node = c.copy(n.Node)
			return &own
		}
		return c.unless(n, []ast.Node{n.Node}, func(x []ast.Node) ast.Node { own.Node = x[0]; return &own })
	case *ast.BinaryNode:
		own := *n
		switch n.Operator {
		case "and", "&&", "or", "||":
			return c.unless(n, []ast.Node{n.Left}, func(x []ast.Node) ast.Node {
				own.Left, own.Right = x[0], c.copy(n.Right)
				return &own
			})
		}
		if !strict[n.Operator] {
			own.Left, own.Right = c.copy(n.Left), c.copy(n.Right)
			return &own
		}
		return c.unless(n, []ast.Node{n.Left, n.Right}, func(x []ast.Node) ast.Node {
			own.Left, own.Right = x[0], x[1]
			return &own
		})
	case *ast.ConditionalNode:
		own := *n
		return c.unless(n, []ast.Node{n.Cond}, func(x []ast.Node) ast.Node {
			own.Cond, own.Exp1, own.Exp2 = x[0], c.copy(n.Exp1), c.copy(n.Exp2)
			return &own
		})
	case *ast.CallNode:
		own := *n
		callee := n.Callee.(*ast.IdentifierNode).Value
		if name, ours := strings.CutPrefix(callee, "$"); callee != callJSON && !(ours && isBounded(name)) {
			own.Arguments = c.all(n.Arguments) // which the function takes nil in
			return &own
		}
		return c.unless(n, n.Arguments[1:], func(x []ast.Node) ast.Node {
			own.Arguments = append([]ast.Node{&ast.IdentifierNode{Value: "$env"}}, x...)
			return &own
		})
	case *ast.BuiltinNode:
		own := *n
		lists := n.Arguments // what is no predicate
		for i, a := range lists {
			if _, ok := a.(*ast.PredicateNode); ok {
				lists = lists[:i]
				break
			}
		}
		rest := c.all(n.Arguments[len(lists):])
		for _, p := range rest {
			if p, ok := p.(*ast.PredicateNode); ok && n.Name != "map" && n.Name != "reduce" {
				p.Node = orFail(p.Node)
			}
		}
		return c.unless(n, lists, func(x []ast.Node) ast.Node { own.Arguments = append(x, rest...); return &own })
	case *ast.PredicateNode:
		own := *n
		own.Node = c.copy(n.Node)
		return &own
	case *ast.VariableDeclaratorNode:
		own := *n
		if c.ofElement(n.Value) {
			c.of[n.Name] = true
			defer delete(c.of, n.Name)
		}
		own.Value, own.Expr = c.copy(n.Value), c.copy(n.Expr)
		return &own
	case *ast.SequenceNode:
		own := *n
		own.Nodes = c.all(n.Nodes)
		return &own
	case *ast.ArrayNode:
		own := *n
		own.Nodes = c.all(n.Nodes)
		return &own
	case *ast.MapNode:
		own := *n
		own.Pairs = c.all(n.Pairs)
		return &own
	case *ast.PairNode:
		own := *n
		own.Key, own.Value = c.copy(n.Key), c.copy(n.Value)
		return &own
	case *ast.SliceNode:
		own := *n
		parts := []ast.Node{n.Node}
		for _, bound := range []ast.Node{n.From, n.To} {
			if bound != nil {
				parts = append(parts, bound)
			}
		}
		return c.unless(n, parts, func(x []ast.Node) ast.Node {
			own.Node, x = x[0], x[1:]
			if n.From != nil {
				own.From, x = x[0], x[1:]
			}
			if n.To != nil {
				own.To = x[0]
			}
			return &own
		})
	case *ast.MemberNode:
		own := *n
		return c.unless(n, []ast.Node{n.Node, n.Property}, func(x []ast.Node) ast.Node { own.Node, own.Property = x[0], x[1]; return &own })
	case *ast.ChainNode:
		own := *n
		own.Node = c.copy(n.Node)
		return &own
	}
	return leaf(n)
}

// leaf returns a copy of a node that has none below it.
func leaf(n ast.Node) ast.Node {
	switch n := n.(type) {
	case *ast.NilNode:
		own := *n
		return &own
	case *ast.IdentifierNode:
		own := *n
		return &own
	case *ast.IntegerNode:
		own := *n
		return &own
	case *ast.FloatNode:
		own := *n
		return &own
	case *ast.BoolNode:
		own := *n
		return &own
	case *ast.StringNode:
		own := *n
		return &own
	case *ast.ConstantNode:
		own := *n
		return &own
	case *ast.PointerNode:
		own := *n
		return &own
	}
	return n // compiling fails with a node of expr's that is none of these
}

func (c *careful) all(nodes []ast.Node) []ast.Node {
	out := make([]ast.Node, len(nodes))
	for i, n := range nodes {
		out[i] = c.copy(n)
	}
	return out
}

// unless returns nil where one of operands is nil, from the left, and what with makes of them
// else; each is computed once. It stands in the place of n.
func (c *careful) unless(n ast.Node, operands []ast.Node, with func([]ast.Node) ast.Node) ast.Node {
	at := func(n, made ast.Node) ast.Node { made.SetLocation(n.Location()); return made }
	read := make([]ast.Node, len(operands))
	for i, x := range operands {
		if !c.mayBeNil(x) {
			read[i] = c.copy(x)
			continue
		}
		c.names++
		read[i] = at(x, &ast.IdentifierNode{Value: "$" + strconv.Itoa(c.names)})
	}
	out := with(read)
	for i := len(read) - 1; i >= 0; i-- {
		name, ok := read[i].(*ast.IdentifierNode)
		if !ok || !c.mayBeNil(operands[i]) {
			continue
		}
		isNil := at(n, &ast.BinaryNode{Operator: "==", Left: at(n, &ast.IdentifierNode{Value: name.Value}), Right: at(n, &ast.NilNode{})})
		out = at(n, &ast.ConditionalNode{Ternary: true, Cond: isNil, Exp1: at(n, &ast.NilNode{}), Exp2: makeCall(n, callAny, out)})
		value := operands[i]
		if key, ok := value.(*ast.CallNode); ok && key.Callee.(*ast.IdentifierNode).Value == callKey {
			value = key.Arguments[1] // which is not nil where it is read
		}
		out = at(n, &ast.VariableDeclaratorNode{Name: name.Value, Value: makeCall(n, callAny, c.copy(value)), Expr: out})
	}
	return out
}

// orFail returns what ends the run where x, a copy, is nil: a loop cannot go on that is told
// nothing of an element. What is of the element itself is left to it.
func orFail(x ast.Node) ast.Node {
	switch x.(type) {
	case *ast.MemberNode, *ast.PointerNode, *ast.ChainNode, *ast.IdentifierNode:
		return x
	}
	fail := &ast.BinaryNode{Operator: "??", Left: makeCall(x, callAny, x), Right: makeCall(x, callFail)}
	fail.SetLocation(x.Location())
	return fail
}

// mayBeNil reports whether n may be missing because a field is.
func (c *careful) mayBeNil(n ast.Node) bool {
	switch n.(type) {
	case *ast.NilNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.StringNode, *ast.ConstantNode:
		return false
	}
	return !c.ofElement(n)
}

// ofElement reports whether n reads an element of a loop around it.
func (c *careful) ofElement(n ast.Node) bool {
	read := map[ast.Node]bool{}
	ast.Find(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.PointerNode:
			read[n] = true
		case *ast.IdentifierNode:
			if c.of[n.Value] {
				read[n] = true
			}
		case *ast.PredicateNode: // elements of a loop within n
			ast.Find(n.Node, func(n ast.Node) bool {
				if _, ok := n.(*ast.PointerNode); ok {
					delete(read, n)
				}
				return false
			})
		}
		return false
	})
	return len(read) > 0
}
