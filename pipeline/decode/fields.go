package decode

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Limits of a set of paths. A path of 64 steps is already beyond any event seen;
// the bound keeps the decoder's recursion shallow.
const (
	maxPathSteps = 64
	maxIndex     = 1 << 20
)

// Fields is the compiled set of field paths that a decoder picks out. The index
// of a field is its place in the paths given to NewFields.
type Fields struct {
	paths []string
	root  *node
}

// node is one step of the paths, joined into a tree.
type node struct {
	field int // index of the path that ends here, or -1
	names []nameEdge
	elems []elemEdge
	below []int // fields of the nodes below this one
}

type nameEdge struct {
	name string
	to   *node
}

type elemEdge struct {
	index int
	to    *node
}

// Step is one step of a path: a member of an object, or an element of an array.
type Step struct {
	Name  string
	Index int // of the element; -1 = the step is a member
}

// NewFields compiles paths such as user, geo.country, tags[0] and
// labels["a.b"]: names separated by dots, elements counted from 0 in brackets,
// and names of any characters as quoted Go strings in brackets. A path may be
// given once.
func NewFields(paths []string) (*Fields, error) {
	f := &Fields{paths: append([]string(nil), paths...), root: &node{field: -1}}
	for i, path := range f.paths {
		steps, err := ParsePath(path)
		if err != nil {
			return nil, err
		}
		if err := f.add(i, steps); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *Fields) add(field int, steps []Step) error {
	n := f.root
	for _, s := range steps {
		n.below = append(n.below, field)
		n = n.child(s)
	}
	if n.field >= 0 {
		return fmt.Errorf("decode: field %q is given twice", f.paths[field])
	}
	n.field = field
	return nil
}

// child returns the node that s leads to, made where it is new.
func (n *node) child(s Step) *node {
	to := &node{field: -1}
	if s.Index < 0 {
		for _, e := range n.names {
			if e.name == s.Name {
				return e.to
			}
		}
		n.names = append(n.names, nameEdge{s.Name, to})
		return to
	}
	for _, e := range n.elems {
		if e.index == s.Index {
			return e.to
		}
	}
	n.elems = append(n.elems, elemEdge{s.Index, to})
	return to
}

// AddJSONNames makes the names of fields as .proto files have them also stand for those of
// proto3's JSON, where no schema tells which they are: user_name for userName, too. Its error
// says that the paths name one field in both ways.
func (f *Fields) AddJSONNames() error { return f.root.addJSONNames() }

func (n *node) addJSONNames() error {
	for _, e := range n.names {
		if err := e.to.addJSONNames(); err != nil {
			return err
		}
		name := jsonName(e.name)
		if name == e.name {
			continue
		}
		if slices.ContainsFunc(n.names, func(o nameEdge) bool { return o.name == name }) {
			return fmt.Errorf("decode: %s and %s may be one field: spell it in one way", e.name, name)
		}
		n.names = append(n.names, nameEdge{name, e.to})
	}
	for _, e := range n.elems {
		if err := e.to.addJSONNames(); err != nil {
			return err
		}
	}
	return nil
}

// jsonName returns the name that a field of Protobuf has in JSON by default: without _, and
// what follows one in upper case.
func jsonName(name string) string {
	b := make([]byte, 0, len(name))
	upper := false
	for _, c := range []byte(name) {
		if c == '_' {
			upper = true
			continue
		}
		if upper && 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		b, upper = append(b, c), false
	}
	return string(b)
}

// Len returns the number of fields.
func (f *Fields) Len() int { return len(f.paths) }

// Path returns the path of the field with this index.
func (f *Fields) Path(i int) string { return f.paths[i] }

// Index returns the index of path, spelled as it was given, or -1.
func (f *Fields) Index(path string) int {
	for i, p := range f.paths {
		if p == path {
			return i
		}
	}
	return -1
}

// ParsePath returns the 1..64 steps of a path.
func ParsePath(path string) ([]Step, error) {
	bad := func(at int, why string) ([]Step, error) {
		return nil, fmt.Errorf("decode: field path %q: byte %d: %s", path, at, why)
	}
	var steps []Step
	for i := 0; i < len(path) || len(steps) == 0; {
		switch {
		case i < len(path) && path[i] == '[':
			s, n, err := parseBracket(path[i:])
			if err != nil {
				return bad(i, err.Error())
			}
			steps = append(steps, s)
			i += n
		default:
			if len(steps) > 0 {
				if path[i] != '.' {
					return bad(i, "expected a dot or a bracket")
				}
				i++
			}
			n := strings.IndexAny(path[i:], ".[]\"")
			if n < 0 {
				n = len(path) - i
			}
			if n == 0 {
				return bad(i, "expected a name")
			}
			steps = append(steps, Step{Name: path[i : i+n], Index: -1})
			i += n
		}
		if len(steps) > maxPathSteps {
			return bad(i, fmt.Sprintf("more than %d steps", maxPathSteps))
		}
	}
	return steps, nil
}

// parseBracket reads [n] or ["name"] at the head of s and returns its length.
func parseBracket(s string) (Step, int, error) {
	if strings.HasPrefix(s, `["`) {
		q, err := strconv.QuotedPrefix(s[1:])
		if err != nil || len(s) < len(q)+2 || s[len(q)+1] != ']' {
			return Step{}, 0, errors.New("expected a name in double quotes and ]")
		}
		name, err := strconv.Unquote(q)
		return Step{Name: name, Index: -1}, len(q) + 2, err
	}
	end := strings.IndexByte(s, ']')
	if end < 0 {
		return Step{}, 0, errors.New("no closing ]")
	}
	index, err := strconv.ParseUint(s[1:end], 10, 32)
	if err != nil || index > maxIndex {
		return Step{}, 0, fmt.Errorf("expected an element 0..%d or a name in double quotes", maxIndex)
	}
	return Step{Index: int(index)}, end + 1, nil
}

// FormatPath returns the spelling of steps that ParsePath reads back.
func FormatPath(steps []Step) string {
	var b strings.Builder
	for i, s := range steps {
		switch {
		case s.Index >= 0:
			fmt.Fprintf(&b, "[%d]", s.Index)
		case s.Name == "" || strings.ContainsAny(s.Name, ".[]\""):
			fmt.Fprintf(&b, "[%s]", strconv.Quote(s.Name))
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s.Name)
		}
	}
	return b.String()
}
