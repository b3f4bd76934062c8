package mapping

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"sluice/store"
)

// Written is what one rule or rollup writes, as its expressions alone tell: the rules read
// backwards.
type Written struct {
	Path    string // in the pipeline's keys: map[1], rollups[0]
	Table   string // as it is spelled: it may hold expressions in braces
	RowText string // the row's expression; "" of a rollup
	Row     []Part // what the row key is made of, in order; nil of a rollup
	Columns []WrittenColumn

	Rollup     *RollupSpec      // nil of a rule
	Dimensions map[string]Value // of the rollup, by name
}

// Part is a part of a row key: a text that stands in the rule, or a value.
type Part struct {
	Literal string // "" = a value
	Value   Value
	Text    string // the part's expression
	Salt    int    // the value is one byte of salt of so many buckets; 0 = it is none
	// Tells is the expressions whose text the value tells, its own among them. A hash tells
	// none.
	Tells []string
	// Of is the expression that the value is a hash or a salt of; "" = it is none.
	Of string
}

// WrittenColumn is a column that a rule writes, or one of those that an expression names.
type WrittenColumn struct {
	Path      string // in the pipeline's keys: map[1].put.e.user
	Family    string
	Qualifier string // where Named
	Named     bool   // the qualifier is of every record the same
	Name      Value  // what is known of the qualifier where not Named
	Text      string // the value's expression; "" of increments
	Value     Value  // the zero Value of increments
	Append    bool   // the value is added to what is stored
	Increment bool
}

// Written returns what s writes, but for what it deletes, in its order: rules, then rollups.
// Its error joins one *SpecError for each mistake, of which Compile finds more.
func (s *Spec) Written() ([]Written, error) {
	c := &compilation{}
	c.decode(&s.Decode)
	var all []Written
	for i := range s.Rules {
		if r := &s.Rules[i]; len(r.Put)+len(r.Append)+len(r.Increment) > 0 {
			all = append(all, c.written(fmt.Sprintf("map[%d]", i), r))
		}
	}
	for i := range s.Rollups {
		r := &s.Rollups[i]
		w := Written{Path: fmt.Sprintf("rollups[%d]", i), Table: r.Table, Rollup: r, Dimensions: map[string]Value{}}
		for name, text := range r.Dimensions {
			_, w.Dimensions[name] = c.tell(w.Path+".dimensions."+name, text)
		}
		all = append(all, w)
	}
	if len(c.errs) > 0 {
		return nil, errors.Join(c.errs...)
	}
	return all, nil
}

// MayWrite reports whether w is of a table, or makes names by an expression of which the
// table's could be one.
func (w *Written) MayWrite(table string) bool {
	r := rule{table: w.Table}
	if strings.Contains(w.Table, "{") {
		r.table, r.tableEnds = "", tableEnds(w.Table)
	}
	return r.mayWrite(store.CanonicalName(table))
}

// RowValue returns what is known of row keys as a whole.
func (w *Written) RowValue() Value {
	v := literal("")
	if w.Rollup != nil { // its dimensions are text where they are escaped, too
		for _, d := range w.Dimensions {
			v = Joined(v, Value{Kind: d.Kind})
		}
		v.Width = 0
	}
	for i := range w.Row {
		if p := &w.Row[i]; p.Literal != "" {
			v = Joined(v, literal(p.Literal))
		} else {
			v = Joined(v, p.Value)
		}
	}
	return v
}

// written is Written of a rule.
func (c *compilation) written(path string, r *RuleSpec) Written {
	w := Written{Path: path, Table: r.Table, RowText: r.Row}
	defer func() { c.inside = nil }()
	for i, text := range r.ForEach {
		c.forEach(fmt.Sprintf("%s.for_each[%d]", path, i), text)
	}
	w.Row, _ = c.tell(path+".row", r.Row)
	for _, columns := range []struct {
		key      string
		families map[string]map[string]string
	}{{"put", r.Put}, {"append", r.Append}} {
		for _, family := range slices.Sorted(maps.Keys(columns.families)) {
			for _, qualifier := range slices.Sorted(maps.Keys(columns.families[family])) {
				text := columns.families[family][qualifier]
				col := WrittenColumn{
					Path: fmt.Sprintf("%s.%s.%s.%s", path, columns.key, family, qualifier), Family: family, Qualifier: qualifier, Named: true,
					Text: text, Append: columns.key == "append",
				}
				_, col.Value = c.tell(col.Path, text)
				w.Columns = append(w.Columns, col)
			}
		}
	}
	for i := range r.Increment {
		s := &r.Increment[i]
		col := WrittenColumn{Path: fmt.Sprintf("%s.increment[%d]", path, i), Family: s.Family, Increment: true}
		var parts []Part
		parts, col.Name = c.tell(col.Path+".qualifier", s.Qualifier)
		switch {
		case len(parts) == 0: // the empty one
			col.Named = true
		case len(parts) == 1 && parts[0].Literal != "":
			col.Qualifier, col.Named = parts[0].Literal, true
		}
		w.Columns = append(w.Columns, col)
	}
	return w
}

// tell returns what is known of an expression's text, as a whole and of the parts that it
// joins.
func (c *compilation) tell(path, text string) ([]Part, Value) {
	tree, terms, ok := c.parseExpression(path, text)
	if !ok {
		return nil, Value{}
	}
	f := &inference{c: c, terms: terms, done: map[ast.Node]Value{}}
	return f.parts(nil, tree.Node), f.value(tree.Node)
}

// parts appends the parts that n joins.
func (f *inference) parts(parts []Part, n ast.Node) []Part {
	t := f.terms[n]
	if b, ok := n.(*ast.BinaryNode); ok && t.op == opConcat {
		return f.parts(f.parts(parts, b.Left), b.Right)
	}
	if t != nil && t.op == opLiteral && t.typ != typNil {
		if k := len(parts) - 1; k >= 0 && parts[k].Literal != "" {
			parts[k].Literal += t.text
		} else if t.text != "" {
			parts = append(parts, Part{Literal: t.text})
		}
		return parts
	}
	p := Part{Value: f.value(n), Text: n.String()}
	p.Tells = []string{p.Text}
	if call, ok := n.(*ast.CallNode); ok && t.op == opCall && len(t.args) == 1 {
		arg := call.Arguments[0]
		if t.fn.params[0] == paramSmall {
			arg = call.Arguments[1]
		}
		switch t.fn.name {
		case "salt", "hash16", "hash32", "hash64", "hash16_hex", "hash32_hex", "hash64_hex":
			p.Of, p.Tells = arg.String(), nil
			if t.fn.name == "salt" {
				p.Salt = t.small
			}
		case "fixed", "pad", "reverse", "reverse_ts", "u16", "u32", "u64", "i64", "int64":
			p.Tells = append(p.Tells, arg.String())
		}
	}
	return append(parts, p)
}
