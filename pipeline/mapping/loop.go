package mapping

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"sluice/internal/spelling"
	"sluice/pipeline/decode"
)

// maxMutations bounds what one record becomes. Arrays inside arrays are as many
// elements as the record has bytes for; two arrays gone through crosswise are
// their product, which no record may choose to be millions.
const maxMutations = 100_000

// loop is an array that a rule goes through.
type loop struct {
	id     int // index in Plan.loops
	name   string
	index  string // name of the element's index; "" = none
	source *source
	path   string        // of the entry in the Spec
	steps  []decode.Step // from the document to an element
	paths  []string      // of the element's fields that are read
	fields *decode.Fields
}

// loopState is where a Mapper is in a loop.
type loopState struct {
	elements *decode.Elements
	element  decode.Value
	doc      *decode.Document
	index    int
}

var loopForm = regexp.MustCompile(`^\s*([A-Za-z_][A-Za-z0-9_]*)\s*(?:,\s*([A-Za-z_][A-Za-z0-9_]*)\s*)?\sin\s+(.*\S)\s*$`)

// forEach compiles an entry of for_each and makes its names known to what follows
// in the rule. It returns nil after a mistake.
func (c *compilation) forEach(path, text string) *loop {
	m := loopForm.FindStringSubmatchIndex(text)
	if m == nil {
		c.report(path, 0, fmt.Errorf("%q does not say what to go through", text), "NAME in PATH, or NAME, INDEX in PATH: item in order.items")
		return nil
	}
	l := &loop{id: len(c.loops), name: text[m[2]:m[3]], path: path}
	if m[4] >= 0 {
		l.index = text[m[4]:m[5]]
	}
	for _, name := range []string{l.name, l.index} {
		at := max(strings.Index(text, name), 0)
		_, taken := reserved[name]
		switch {
		case taken || name == "doc" || slices.Contains(reservedWords, name):
			c.report(path, at, fmt.Errorf("%s has a meaning already", name), "choose another name")
			return nil
		case name != "" && slices.ContainsFunc(c.inside, func(o *loop) bool { return o.name == name || o.index == name }), l.name == l.index:
			c.report(path, at, fmt.Errorf("%s is given twice", name), "choose another name")
			return nil
		}
	}
	spelled := text[m[6]:m[7]]
	if !isPath(spelled) {
		c.report(path, m[6], fmt.Errorf("%s is not the path of a field", spelled), pathHint)
		return nil
	}
	field, ofDocument := c.inDocument(spelled)
	steps, err := decode.ParsePath(field)
	if err != nil {
		c.report(path, m[6], err, "")
		return nil
	}
	c.note("for each %q %q %q", l.name, l.index, spelled)
	r := resolver{c: c, path: path, text: spelled}
	var t *term
	if !ofDocument {
		var hint string
		if t, hint, err = c.loopSource(steps); err != nil {
			c.report(path, m[6], err, hint)
			return nil
		}
		if _, ok := reserved[steps[0].Name]; ok && t == nil {
			c.report(path, m[6], fmt.Errorf("%s is no array", steps[0].Name), "write doc."+spelled+" for the document's field")
			return nil
		}
	}
	if t == nil {
		field, hint, err := c.field(decode.FormatPath(steps))
		if err != nil {
			c.report(path, m[6], err, hint)
			return nil
		}
		t = r.source(source{kind: sourceField, field: field, typ: typAny, missing: &missingError{"field " + spelled}})
		l.steps = steps
	}
	if t.typ == typInt {
		c.report(path, m[6], fmt.Errorf("%s is an index, not an array", spelled), "")
		return nil
	}
	l.source = c.sources[t.source]
	if l.source.kind == sourceElement {
		l.steps = append(slices.Clone(c.loops[l.source.loop].steps), steps[1:]...)
	}
	l.steps = append(l.steps, decode.Step{Index: 0})
	if c.shape != nil {
		if _, _, lacks := c.shape.Lacks(l.steps); lacks {
			c.report(path, m[6], fmt.Errorf("%s is no array", spelled), "")
			return nil
		}
	}
	c.loops = append(c.loops, l)
	c.inside = append(c.inside, l)
	return l
}

// quotedName is a name of any characters within a path, and signs are what the names of
// fields hardly have beside those, and expressions do. Blanks, -, @, $, # and / are in names.
var (
	quotedName = regexp.MustCompile(`\["(?:[^"\\]|\\.)*"\]`)
	signs      = regexp.MustCompile("[()?*+|<>={},'`]| [-/%] ")
)

// isPath reports whether text can be meant as the path of a field. An expression in place of
// one would be a field that no document has: a loop that goes through nothing, or a time that
// is always the record's.
func isPath(text string) bool {
	return text != "doc" && !signs.MatchString(quotedName.ReplaceAllString(text, ""))
}

// pathHint is for what is none.
const pathHint = `name a field, such as order.items; one of other characters as doc["a+b"]`

// inDocument takes doc off a path that is spelled as in expressions, doc.NAME or doc["NAME"],
// and reports whether it was there.
func (c *compilation) inDocument(spelled string) (path string, ok bool) {
	if strings.HasPrefix(spelled, `doc["`) {
		c.note("doc 2") // it was of a field doc before
		return spelled[len("doc"):], true
	}
	return strings.CutPrefix(spelled, "doc.")
}

// reservedWords are words of the expression language that could be names of
// elements by their form.
var reservedWords = []string{"in", "not", "and", "or", "let", "if", "else", "nil", "true", "false", "matches", "contains", "startsWith", "endsWith"}

// loopSource returns what steps mean inside the loops of the rule, or nil. Its error has a
// hint.
func (c *compilation) loopSource(steps []decode.Step) (t *term, hint string, err error) {
	first := steps[0]
	if first.Index >= 0 || first.Name == "" {
		return nil, "", nil
	}
	for _, l := range c.inside {
		switch first.Name {
		case l.index:
			if len(steps) > 1 {
				return nil, "", fmt.Errorf("%s has no parts", l.index)
			}
			i := c.source(source{kind: sourceIndex, loop: l.id, typ: typInt})
			return &term{op: opSource, typ: typInt, source: i}, "", nil
		case l.name:
			field, name := -1, l.name
			if len(steps) > 1 {
				inner, hint, err := c.elementPath(l, steps[1:])
				if err != nil {
					return nil, hint, err
				}
				if c.format == "protobuf" && slices.ContainsFunc(steps, func(s decode.Step) bool { return strings.Contains(s.Name, "_") }) {
					c.note("element names 2") // those of the .proto file were missing before
				}
				path := decode.FormatPath(inner)
				if _, err := decode.ParsePath(path); err != nil {
					return nil, "", err
				}
				if field = slices.Index(l.paths, path); field < 0 {
					field = len(l.paths)
					l.paths = append(l.paths, path)
				}
				name = decode.FormatPath(steps)
			}
			i := c.source(source{kind: sourceElement, loop: l.id, field: field, typ: typAny, missing: &missingError{"element's " + name}})
			return &term{op: opSource, typ: typAny, source: i}, "", nil
		}
	}
	return nil, "", nil
}

// elementPath returns the path of a field of l's elements as their JSON has it. Its error,
// which has a hint, says that the schema has no such field.
func (c *compilation) elementPath(l *loop, steps []decode.Step) (path []decode.Step, hint string, err error) {
	if c.shape == nil {
		return steps, "", nil
	}
	all := append(slices.Clone(l.steps), steps...)
	n, next, lacks := c.shape.Lacks(all)
	if !lacks {
		return c.shape.InJSON(all)[len(l.steps):], "", nil
	}
	// As the rule has them: by the element's name.
	head := decode.FormatPath(l.steps)
	named := func(path string) string { return l.name + strings.TrimPrefix(path, head) }
	for i := range next {
		next[i] = named(next[i])
	}
	spelled := named(decode.FormatPath(all))
	return nil, spelling.Hint(named(decode.FormatPath(all[:n+1])), next), fmt.Errorf("the schema has no field %s", spelled)
}

// loopName resolves a name of the rule's loops, or returns nil.
func (r *resolver) loopName(n ast.Node, steps []decode.Step, doc bool) *term {
	if doc {
		return nil
	}
	t, hint, err := r.c.loopSource(steps)
	if err != nil {
		return r.report(n, err, hint)
	}
	return t
}

// each calls rule for every combination of the elements of rule i's loops from the
// k-th on.
func (m *Mapper) each(i, k int) error {
	r := &m.plan.rules[i]
	if k == len(r.loops) {
		return m.apply(i)
	}
	l := m.plan.loops[r.loops[k]]
	kind, array := m.read(l.source)
	switch {
	case array == nil:
		return nil
	case kind != decode.Array:
		return m.fail(i, fmt.Sprintf("for_each[%d]", k), valueErrorf("%s is %s, not an array", l.source.missing.name, named(kind)))
	}
	s := &m.loops[l.id]
	if s.elements.Made() > m.plan.maxMade {
		return m.fail(i, fmt.Sprintf("for_each[%d]", k), m.plan.tooMuchMade())
	}
	if k > 0 {
		if err := m.spend(len(array)); err != nil {
			return m.fail(i, fmt.Sprintf("for_each[%d]", k), err)
		}
	}
	n, made, before := 0, s.elements.Made(), len(m.out.Mutations)
	err := s.elements.Each(array, func(element decode.Value, doc *decode.Document) error {
		if k > 0 {
			if m.crossed++; m.crossed > m.plan.maxCrossed {
				return m.fail(i, fmt.Sprintf("for_each[%d]", k), m.plan.tooManyCrossed())
			}
		}
		s.element, s.doc, s.index = element, doc, n
		n++
		return m.each(i, k+1)
	})
	if len(m.out.Mutations) == before { // nothing refers to the elements
		s.elements.Unmade(made)
	}
	if bad, ok := err.(*decode.Error); ok {
		return m.fail(i, fmt.Sprintf("for_each[%d]", k), valueErrorf("%s: %v", l.source.missing.name, bad))
	}
	return err
}
