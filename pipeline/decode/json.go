package decode

import (
	"bytes"
	"fmt"
)

// maxDepth is encoding/json's bound on nested objects and arrays.
const maxDepth = 10000

// jsonDecoder reads one JSON object (json), or one a line (ndjson). It accepts
// what encoding/json accepts: RFC 8259, with invalid UTF-8 in strings and lone
// surrogates replaced by U+FFFD; of two members with one name the last wins.
type jsonDecoder struct {
	format  string
	lines   bool
	root    *node
	doc     Document
	scratch []byte
	made    int    // bytes that unescape has made and that are in use, of Elements
	b       []byte // what is scanned: all of the payload, or up to the end of a line
	from    int    // where the scanned document begins in b
	err     *Error
	// goEscapes takes those of strconv.Quote in strings, too, for logfmt.
	goEscapes bool
	// nested has a bit for each level of what skip is inside of: 1 = object.
	nested [(maxDepth + 64) / 64]uint64
}

func newJSON(f *Fields, lines bool) *jsonDecoder {
	d := &jsonDecoder{format: formatJSON, lines: lines, root: f.root}
	if lines {
		d.format = formatNDJSON
	}
	d.doc.values = make([]Value, f.Len())
	return d
}

// Decode implements Decoder.
func (d *jsonDecoder) Decode(payload []byte, emit func(*Document) error) error {
	d.scratch = kept(d.scratch)
	if !d.lines {
		d.b, d.from = payload, 0
		return d.one(emit)
	}
	emitted := false
	for from := 0; from < len(payload); {
		end := len(payload)
		if n := bytes.IndexByte(payload[from:], '\n'); n >= 0 {
			end = from + n
		}
		d.b, d.from = payload[:end], from
		if d.space(from) < end {
			if err := d.one(emit); err != nil {
				return err
			}
			emitted = true
		}
		from = end + 1
	}
	if !emitted {
		return &Error{Format: d.format, Reason: "the payload holds no document"}
	}
	return nil
}

// one decodes the document d.b[d.from:].
func (d *jsonDecoder) one(emit func(*Document) error) error {
	d.doc.clear()
	d.err = nil
	if i := d.document(d.from); i < 0 {
		return d.err
	}
	return emit(&d.doc)
}

// fail notes the first error and returns -1, which every scanning function
// passes up.
func (d *jsonDecoder) fail(at int, reason string) int {
	if d.err == nil {
		d.err = &Error{Format: d.format, Position: at, Reason: reason}
	}
	return -1
}

// unexpected fails at b[at], or at the end of the text.
func (d *jsonDecoder) unexpected(at int, want string) int {
	if at >= len(d.b) {
		return d.fail(at, "the text ends, expected "+want)
	}
	return d.fail(at, fmt.Sprintf("unexpected %q, expected %s", d.b[at], want))
}

// space returns the index of the first byte at or after i that is not white
// space, or len(b).
func (d *jsonDecoder) space(i int) int {
	for i < len(d.b) && d.b[i] <= ' ' {
		if c := d.b[i]; c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			break
		}
		i++
	}
	return i
}

func (d *jsonDecoder) document(i int) int {
	i = d.space(i)
	if i >= len(d.b) {
		return d.fail(i, "the payload is empty")
	}
	if d.b[i] != '{' {
		return d.unexpected(i, "an object")
	}
	if i = d.object(i+1, d.root, 1); i < 0 {
		return i
	}
	if i = d.space(i); i < len(d.b) {
		return d.unexpected(i, "the end of the document")
	}
	return i
}

// object reads the members after a {, n's among them, and returns the index
// after the }.
func (d *jsonDecoder) object(i int, n *node, depth int) int {
	b := d.b
	guess := 0 // members of one stream come in one order: try the edge after the last one first
	i = d.space(i)
	if i < len(b) && b[i] == '}' {
		return i + 1
	}
	for {
		if i >= len(b) || b[i] != '"' {
			return d.unexpected(i, "a member name")
		}
		start := i + 1
		end, odd := d.str(start)
		if end < 0 {
			return -1
		}
		if i = d.colon(end + 1); i < 0 {
			return -1
		}
		name := b[start:end]
		if odd {
			name = d.unescape(name)
			d.scratch = d.scratch[:len(d.scratch)-len(name)] // only compared
			d.made -= len(name)
		}
		var to *node
		if guess < len(n.names) && n.names[guess].name == string(name) {
			to = n.names[guess].to
			guess++
		} else {
			for k := range n.names {
				if n.names[k].name == string(name) {
					to, guess = n.names[k].to, k+1
					break
				}
			}
		}
		if to == nil {
			i = d.skip(i, depth)
		} else {
			i = d.value(i, to, depth)
		}
		if i < 0 {
			return -1
		}
		i = d.space(i)
		switch {
		case i < len(b) && b[i] == ',':
			i = d.space(i + 1)
		case i < len(b) && b[i] == '}':
			return i + 1
		default:
			return d.unexpected(i, "a comma or }")
		}
	}
}

// array reads the elements after a [, n's among them, and returns the index
// after the ].
func (d *jsonDecoder) array(i int, n *node, depth int) int {
	b := d.b
	i = d.space(i)
	if i < len(b) && b[i] == ']' {
		return i + 1
	}
	for index := 0; ; index++ {
		var to *node
		for k := range n.elems {
			if n.elems[k].index == index {
				to = n.elems[k].to
				break
			}
		}
		if to == nil {
			i = d.skip(i, depth)
		} else {
			i = d.value(i, to, depth)
		}
		if i < 0 {
			return -1
		}
		i = d.space(i)
		switch {
		case i < len(b) && b[i] == ',':
			i = d.space(i + 1)
		case i < len(b) && b[i] == ']':
			return i + 1
		default:
			return d.unexpected(i, "a comma or ]")
		}
	}
}

// colon returns the index of the value after the name that ends before i.
func (d *jsonDecoder) colon(i int) int {
	i = d.space(i)
	if i >= len(d.b) || d.b[i] != ':' {
		return d.unexpected(i, "a colon")
	}
	return d.space(i + 1)
}

// value reads the value at i that n's path leads to and returns the index after
// it.
func (d *jsonDecoder) value(i int, n *node, depth int) int {
	b := d.b
	if i >= len(b) {
		return d.unexpected(i, "a value")
	}
	// A second member of this name replaces all of the first.
	for _, f := range n.below {
		d.doc.values[f] = Value{}
	}
	var v Value
	start := i
	switch c := b[i]; c {
	case '"':
		end, odd := d.str(i + 1)
		if end < 0 {
			return -1
		}
		v = Value{Kind: String, Bytes: b[i+1 : end : end]}
		if odd {
			v.Bytes = d.unescape(v.Bytes)
		}
		i = end + 1
	case '{':
		v.Kind = Object
		if len(n.names) == 0 {
			i = d.skip(i, depth)
		} else if depth >= maxDepth {
			return d.fail(i, "nested too deeply")
		} else {
			i = d.object(i+1, n, depth+1)
		}
		if i < 0 {
			return -1
		}
		v.Bytes = b[start:i:i]
	case '[':
		v.Kind = Array
		if len(n.elems) == 0 {
			i = d.skip(i, depth)
		} else if depth >= maxDepth {
			return d.fail(i, "nested too deeply")
		} else {
			i = d.array(i+1, n, depth+1)
		}
		if i < 0 {
			return -1
		}
		v.Bytes = b[start:i:i]
	default:
		if i = d.scalar(i); i < 0 {
			return -1
		}
		switch c {
		case 'n':
			v.Kind = Null
		case 't', 'f':
			v = Value{Kind: Bool, Bytes: b[start:i:i]}
		default:
			v = Value{Kind: Number, Bytes: b[start:i:i]}
		}
	}
	if n.field >= 0 {
		d.doc.values[n.field] = v
	}
	return i
}

// skip checks the value at i, inside depth levels, and returns the index after
// it. It does not recurse: a payload chooses how deep it nests.
func (d *jsonDecoder) skip(i, depth int) int {
	b := d.b
	outer := depth
	for {
		if i >= len(b) {
			return d.unexpected(i, "a value")
		}
		closed := false
		switch c := b[i]; c {
		case '"':
			end, _ := d.str(i + 1)
			if end < 0 {
				return -1
			}
			i = end + 1
		case '{', '[':
			if depth >= maxDepth {
				return d.fail(i, "nested too deeply")
			}
			d.nested[depth/64] &^= 1 << (depth % 64)
			if c == '{' {
				d.nested[depth/64] |= 1 << (depth % 64)
			}
			depth++
			i = d.space(i + 1)
			if i < len(b) && b[i] == c+2 { // } and ] follow their openers at this distance
				closed = true
				break
			}
			if c == '{' {
				if i = d.name(i); i < 0 {
					return -1
				}
			}
			continue
		default:
			if i = d.scalar(i); i < 0 {
				return -1
			}
		}
		// A value ended, or a container is about to: close what closes here.
		for next := false; !next; {
			if !closed && depth == outer {
				return i
			}
			object := d.nested[(depth-1)/64]>>((depth-1)%64)&1 == 1
			if !closed {
				i = d.space(i)
			}
			closed = false
			switch {
			case i < len(b) && b[i] == ',':
				i = d.space(i + 1)
				if object {
					if i = d.name(i); i < 0 {
						return -1
					}
				}
				next = true
			case i < len(b) && object && b[i] == '}', i < len(b) && !object && b[i] == ']':
				i++
				depth--
			case object:
				return d.unexpected(i, "a comma or }")
			default:
				return d.unexpected(i, "a comma or ]")
			}
		}
	}
}

// name checks the member name at i and returns the index of its value.
func (d *jsonDecoder) name(i int) int {
	if i >= len(d.b) || d.b[i] != '"' {
		return d.unexpected(i, "a member name")
	}
	end, _ := d.str(i + 1)
	if end < 0 {
		return -1
	}
	return d.colon(end + 1)
}
