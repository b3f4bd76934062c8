package decode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// avroReader reads values of Avro's binary encoding into a document: those that
// the paths name, as slices of the payload where their text is in it. The others
// are skipped, whole blocks of arrays and maps at once where the writer gave
// their sizes. Nothing is allocated from a length of the payload.
//
// A union is its branch's value, a record and a map are objects. What is an object
// or array as a whole becomes JSON, with bytes as base64 in it.
type avroReader struct {
	format string
	doc    Document
	texts
	b    []byte
	base int // position of b[0] in the payload, as errors count
	// left is how many values may still be visited: some take no bytes, and an
	// array of them has any length.
	left int
	err  *Error
	// plans are those of the schema read last.
	plans map[avroWant]*avroPlan
}

// avroWant is a type with the paths that lead into it.
type avroWant struct {
	t *avroType
	n *node
}

// avroPlan is what to do with a value of a type.
type avroPlan struct {
	avroWant
	// parts are, in their order, the fields of a record (nil = nothing is wanted
	// of it), the branches of a union, n.names of a map, n.elems of an array.
	parts []*avroPlan
}

// MaxDecimalBytes bounds the bytes of a decimal: making its text takes time that grows faster
// than it. 4096 bytes are 9,800 digits.
const MaxDecimalBytes = 4096

// words are the texts of the booleans.
const words = "truefalse"

// plan returns what the fields want of values of t, which is refused where its
// values are no documents.
func (r *avroReader) plan(t *avroType, f *Fields) (*avroPlan, error) {
	if err := t.checkDocument(); err != nil {
		return nil, err
	}
	clear(r.plans)
	return r.planOf(t, f.root), nil
}

// checkDocument returns an error where no value of t is a document.
func (t *avroType) checkDocument() error {
	if t.document() || slices.ContainsFunc(t.branches, (*avroType).document) {
		return nil
	}
	return errors.New("the schema is no record and no map, nor a union with one")
}

// document reports whether values of t have fields.
func (t *avroType) document() bool { return t.kind == avroRecord || t.kind == avroMap }

// planOf is remembered by its arguments: schemas may use a type many times over,
// which must not multiply.
func (r *avroReader) planOf(t *avroType, n *node) *avroPlan {
	want := avroWant{t, n}
	if p := r.plans[want]; p != nil {
		return p
	}
	p := &avroPlan{avroWant: want}
	r.plans[want] = p
	switch t.kind {
	case avroUnion:
		for _, b := range t.branches {
			p.parts = append(p.parts, r.planOf(b, n))
		}
	case avroRecord:
		p.parts = make([]*avroPlan, len(t.fields))
		for _, e := range n.names {
			for i := range t.fields {
				if t.fields[i].name == e.name {
					p.parts[i] = r.planOf(t.fields[i].typ, e.to)
				}
			}
		}
	case avroMap:
		for _, e := range n.names {
			p.parts = append(p.parts, r.planOf(t.items, e.to))
		}
	case avroArray:
		for _, e := range n.elems {
			p.parts = append(p.parts, r.planOf(t.items, e.to))
		}
	}
	return p
}

// start begins with a payload.
func (r *avroReader) start(payload []byte) {
	r.window(payload, 0)
	r.texts.start()
	r.err = nil
	// Every value that takes a byte may be visited once a step of a path.
	r.left = 1<<20 + maxPathSteps*len(payload)
}

// window makes b, which begins at base of the payload, what is read.
func (r *avroReader) window(b []byte, base int) { r.b, r.base = b, base }

// document reads the one at i and returns the index after it.
func (r *avroReader) document(i int, p *avroPlan) int {
	r.doc.clear()
	start := i
	if p.t.kind == avroUnion {
		k, next := r.branch(i, p.t)
		if next < 0 {
			return -1
		}
		i, p = next, p.parts[k]
	}
	if !p.t.document() {
		return r.fail(start, "the value is no record and no map")
	}
	return r.value(i, p, 1)
}

// fail notes the first error and returns -1, which every reading function passes
// up.
func (r *avroReader) fail(at int, reason string) int {
	if r.err == nil {
		r.err = &Error{Format: r.format, Position: r.base + at, Reason: reason}
	}
	return -1
}

// visit counts n values.
func (r *avroReader) visit(i, n int) bool {
	if r.left -= n; r.left < 0 {
		r.fail(i, "more values than the payload has room for")
		return false
	}
	return true
}

// deep reports whether depth, which a value at i has, is within its bound.
func (r *avroReader) deep(i, depth int) bool {
	if depth > maxNesting {
		r.fail(i, fmt.Sprintf("nested deeper than %d levels", maxNesting))
		return false
	}
	return true
}

// long reads the zigzag integer at i.
func (r *avroReader) long(i int) (int64, int) {
	if i < len(r.b) && r.b[i] < 0x80 {
		c := r.b[i]
		return int64(c>>1) ^ -int64(c&1), i + 1
	}
	u, n := binary.Uvarint(r.b[i:])
	switch {
	case n == 0:
		return 0, r.fail(len(r.b), "the payload ends inside an integer")
	case n < 0:
		return 0, r.fail(i, "an integer of more than 64 bits")
	}
	return int64(u>>1) ^ -int64(u&1), i + n
}

// length reads a length of bytes at i and returns where they begin and end.
func (r *avroReader) length(i int) (start, end int) {
	n, start := r.long(i)
	switch {
	case start < 0:
		return -1, -1
	case n < 0:
		return -1, r.fail(i, fmt.Sprintf("a length of %d bytes", n))
	case n > int64(len(r.b)-start):
		return -1, r.fail(i, fmt.Sprintf("a length of %d bytes, and %d are left", n, len(r.b)-start))
	}
	return start, start + int(n)
}

// fixed returns the index after the size bytes at i.
func (r *avroReader) fixed(i, size int) int {
	if size > len(r.b)-i {
		return r.fail(len(r.b), "the payload ends inside a value")
	}
	return i + size
}

// branch reads the number of a branch of t at i.
func (r *avroReader) branch(i int, t *avroType) (k, next int) {
	n, next := r.long(i)
	if next >= 0 && (n < 0 || n >= int64(len(t.branches))) {
		return 0, r.fail(i, fmt.Sprintf("branch %d of a union of %d", n, len(t.branches)))
	}
	return int(n), next
}

// block reads the head of a block of an array or map at i: how many values it has,
// 0 at the end, and where it ends, or -1 where the writer did not say.
func (r *avroReader) block(i int) (count int64, end, next int) {
	count, next = r.long(i)
	if next < 0 || count >= 0 {
		return count, -1, next
	}
	if count == math.MinInt64 {
		return 0, -1, r.fail(i, "a block of more than 2⁶³-1 values")
	}
	start, end := r.length(next)
	return -count, end, start
}

// ends reports whether the block at start, whose values end at i, ends where its writer
// said, so that those who read it and those who skip it go on at the same place.
func (r *avroReader) ends(start, i, end int) bool {
	if end < 0 || i == end {
		return true
	}
	r.fail(start, fmt.Sprintf("a block of which the writer says that it ends at byte %d, and its values end at byte %d", end, i))
	return false
}

// value reads the value at i into the document and returns the index after it.
func (r *avroReader) value(i int, p *avroPlan, depth int) int {
	t, n := p.t, p.n
	if t.kind == avroUnion {
		k, next := r.branch(i, t)
		if next < 0 {
			return -1
		}
		return r.value(next, p.parts[k], depth)
	}
	if n.field >= 0 {
		switch t.kind {
		case avroRecord, avroMap, avroArray:
			r.begin(textRoom)
		default:
			r.begin(scalarRoom)
		}
		v, next := r.read(i, t, depth)
		if next < 0 {
			return -1
		}
		r.doc.values[n.field] = v
		if len(n.below) == 0 {
			return next
		}
	}
	if !r.deep(i, depth) {
		return -1
	}
	switch t.kind {
	case avroRecord:
		if !r.visit(i, 1+len(p.parts)) {
			return -1
		}
		for k, part := range p.parts {
			if part == nil {
				i = r.skip(i, t.fields[k].typ, depth+1)
			} else {
				i = r.value(i, part, depth+1)
			}
			if i < 0 {
				return -1
			}
		}
		return i
	case avroMap, avroArray:
		if len(p.parts) > 0 {
			return r.elements(i, p, depth+1)
		}
	}
	return r.skip(i, t, depth)
}

// elements reads the values of a map or an array that the paths want.
func (r *avroReader) elements(i int, p *avroPlan, depth int) int {
	for index := 0; ; {
		at := i
		count, blockEnd, next := r.block(i)
		if i = next; i < 0 || count == 0 {
			return i
		}
		for ; count > 0; count-- {
			if !r.visit(i, 1) {
				return -1
			}
			var part *avroPlan
			if p.t.kind == avroMap {
				start, end := r.length(i)
				if end < 0 {
					return -1
				}
				for k := range p.n.names {
					if p.n.names[k].name == string(r.b[start:end]) {
						part = p.parts[k]
						r.forget(part.n) // the last of one name wins
						break
					}
				}
				i = end
			} else {
				for k := range p.n.elems {
					if p.n.elems[k].index == index {
						part = p.parts[k]
						break
					}
				}
				index++
			}
			if part == nil {
				i = r.skip(i, p.t.items, depth)
			} else {
				i = r.value(i, part, depth)
			}
			if i < 0 {
				return -1
			}
		}
		if !r.ends(at, i, blockEnd) {
			return -1
		}
	}
}

// forget makes everything that n leads to missing.
func (r *avroReader) forget(n *node) {
	if n.field >= 0 {
		r.doc.values[n.field] = Value{}
	}
	for _, f := range n.below {
		r.doc.values[f] = Value{}
	}
}

// skip returns the index after the value at i.
func (r *avroReader) skip(i int, t *avroType, depth int) int {
	switch t.kind {
	case avroNull:
		return i
	case avroBoolean:
		_, i = r.boolean(i)
		return i
	case avroInt, avroLong, avroEnum:
		_, i = r.integer(i, t)
		return i
	case avroFloat:
		return r.fixed(i, 4)
	case avroDouble:
		return r.fixed(i, 8)
	case avroFixed:
		return r.fixed(i, t.size)
	case avroBytes, avroString:
		_, i = r.length(i)
		return i
	}
	if !r.deep(i, depth) {
		return -1
	}
	switch t.kind {
	case avroUnion:
		k, next := r.branch(i, t)
		if next < 0 {
			return -1
		}
		return r.skip(next, t.branches[k], depth+1)
	case avroRecord:
		if !r.visit(i, 1+len(t.fields)) {
			return -1
		}
		for k := range t.fields {
			if i = r.skip(i, t.fields[k].typ, depth+1); i < 0 {
				return -1
			}
		}
		return i
	}
	for {
		count, end, next := r.block(i)
		if i = next; i < 0 || count == 0 {
			return i
		}
		if end >= 0 {
			i = end
			continue
		}
		for ; count > 0; count-- {
			if !r.visit(i, 1) {
				return -1
			}
			if t.kind == avroMap {
				if _, i = r.length(i); i < 0 {
					return -1
				}
			}
			if i = r.skip(i, t.items, depth+1); i < 0 {
				return -1
			}
		}
	}
}

func (r *avroReader) boolean(i int) (bool, int) {
	switch {
	case i >= len(r.b):
		return false, r.fail(i, "the payload ends inside a value")
	case r.b[i] > 1:
		return false, r.fail(i, fmt.Sprintf("a boolean of %d", r.b[i]))
	}
	return r.b[i] == 1, i + 1
}

// integer reads an int, a long or the number of a symbol within its bounds.
func (r *avroReader) integer(i int, t *avroType) (int64, int) {
	v, next := r.long(i)
	switch {
	case next < 0:
	case t.kind == avroInt && v != int64(int32(v)):
		return 0, r.fail(i, fmt.Sprintf("an int of %d", v))
	case t.kind == avroEnum && (v < 0 || v >= int64(len(t.symbols))):
		return 0, r.fail(i, fmt.Sprintf("symbol %d of an enum of %d", v, len(t.symbols)))
	}
	return v, next
}

// made returns the value whose text was appended to the scratch memory behind
// mark.
func (r *avroReader) made(k Kind, mark int) Value {
	return Value{Kind: k, Bytes: r.scratch[mark:len(r.scratch):len(r.scratch)]}
}

// read returns the value at i, which is no union, and the index after it.
func (r *avroReader) read(i int, t *avroType, depth int) (Value, int) {
	mark := len(r.scratch)
	switch t.kind {
	case avroNull:
		return Value{Kind: Null}, i
	case avroBoolean:
		v, next := r.boolean(i)
		mark = len(r.scratch)
		if v {
			r.scratch = append(r.scratch, words[:4]...)
		} else {
			r.scratch = append(r.scratch, words[4:]...)
		}
		return r.made(Bool, mark), next
	case avroBytes, avroString, avroFixed:
		start, end := i, 0
		if t.kind == avroFixed {
			end = r.fixed(i, t.size)
		} else {
			start, end = r.length(i)
		}
		if end < 0 {
			return Value{}, -1
		}
		s := r.b[start:end:end]
		switch {
		case t.logical == avroDecimal:
			if i = r.decimal(start, s, t); i < 0 {
				return Value{}, -1
			}
			return r.made(Number, mark), end
		case t.logical == avroUUID:
			r.scratch = appendUUID(r.scratch, s)
			return r.made(String, mark), end
		case t.kind == avroString && !utf8.Valid(s):
			r.scratch = appendValid(r.scratch, s)
			return r.made(String, mark), end
		}
		return Value{Kind: String, Bytes: s}, end
	case avroEnum:
		v, next := r.integer(i, t)
		if next < 0 {
			return Value{}, -1
		}
		r.scratch = append(r.scratch, t.symbols[v]...)
		return r.made(String, mark), next
	case avroRecord, avroMap:
		i = r.text(i, t, depth)
		return r.made(Object, mark), i
	case avroArray:
		i = r.text(i, t, depth)
		return r.made(Array, mark), i
	}
	i, number := r.number(i, t)
	if !number {
		return r.made(String, mark), i
	}
	return r.made(Number, mark), i
}

// number appends the text of the number at i. NaN and the infinities are none.
func (r *avroReader) number(i int, t *avroType) (next int, number bool) {
	switch t.kind {
	case avroFloat:
		if next = r.fixed(i, 4); next >= 0 {
			f := math.Float32frombits(binary.LittleEndian.Uint32(r.b[i:]))
			r.scratch, number = appendFloat(r.scratch, float64(f), 32)
		}
		return next, number
	case avroDouble:
		if next = r.fixed(i, 8); next >= 0 {
			f := math.Float64frombits(binary.LittleEndian.Uint64(r.b[i:]))
			r.scratch, number = appendFloat(r.scratch, f, 64)
		}
		return next, number
	}
	v, next := r.integer(i, t)
	if next >= 0 {
		times, per := int64(1), int64(1)
		if t.logical == avroTime {
			times, per = t.times, t.per
		}
		r.scratch = appendMillis(r.scratch, v*times, per)
	}
	return next, true
}

// decimal appends the text of the decimal s, which begins at i.
func (r *avroReader) decimal(i int, s []byte, t *avroType) int {
	if len(s) > MaxDecimalBytes {
		return r.fail(i, fmt.Sprintf("a decimal of %d bytes, at most %d", len(s), MaxDecimalBytes))
	}
	r.scratch = AppendDecimal(r.scratch, s, t.scale)
	return i
}

// text appends the value at i as JSON and returns the index after it.
func (r *avroReader) text(i int, t *avroType, depth int) int {
	if r.full() {
		return r.fail(i, fmt.Sprintf("its objects and arrays make more than %d bytes of JSON", maxText))
	}
	switch t.kind {
	case avroNull:
		r.scratch = append(r.scratch, "null"...)
		return i
	case avroBoolean:
		_, i = r.read(i, t, depth)
		return i
	case avroEnum:
		v, next := r.integer(i, t)
		if next >= 0 {
			r.scratch = appendQuoted(r.scratch, []byte(t.symbols[v]))
		}
		return next
	case avroInt, avroLong, avroFloat, avroDouble:
		mark := len(r.scratch)
		i, number := r.number(i, t)
		if i >= 0 && !number {
			word := string(r.scratch[mark:])
			r.scratch = appendQuoted(r.scratch[:mark], []byte(word))
		}
		return i
	case avroBytes, avroString, avroFixed:
		start, end := i, 0
		if t.kind == avroFixed {
			end = r.fixed(i, t.size)
		} else {
			start, end = r.length(i)
		}
		if end < 0 {
			return -1
		}
		s := r.b[start:end]
		switch {
		case t.logical == avroDecimal:
			if r.decimal(start, s, t) < 0 {
				return -1
			}
		case t.logical == avroUUID:
			r.scratch = append(appendUUID(append(r.scratch, '"'), s), '"')
		case t.kind == avroString:
			r.scratch = appendQuoted(r.scratch, s)
		default:
			r.scratch = appendBase64(r.scratch, s)
		}
		return end
	}
	if !r.deep(i, depth) {
		return -1
	}
	switch t.kind {
	case avroUnion:
		k, next := r.branch(i, t)
		if next < 0 {
			return -1
		}
		return r.text(next, t.branches[k], depth+1)
	case avroRecord:
		if !r.visit(i, 1+len(t.fields)) {
			return -1
		}
		r.scratch = append(r.scratch, '{')
		for k := range t.fields {
			if k > 0 {
				r.scratch = append(r.scratch, ',')
			}
			r.scratch = append(appendQuoted(r.scratch, []byte(t.fields[k].name)), ':')
			if i = r.text(i, t.fields[k].typ, depth+1); i < 0 {
				return -1
			}
		}
		r.scratch = append(r.scratch, '}')
		return i
	}
	return r.list(i, t, depth+1)
}

// list appends the map or array at i as JSON.
func (r *avroReader) list(i int, t *avroType, depth int) int {
	brackets := "[]"
	if t.kind == avroMap {
		brackets = "{}"
	}
	r.scratch = append(r.scratch, brackets[0])
	for first := true; ; {
		at := i
		count, blockEnd, next := r.block(i)
		if i = next; i < 0 {
			return -1
		}
		if count == 0 {
			r.scratch = append(r.scratch, brackets[1])
			return i
		}
		for ; count > 0; count-- {
			if !r.visit(i, 1) {
				return -1
			}
			if !first {
				r.scratch = append(r.scratch, ',')
			}
			first = false
			if t.kind == avroMap {
				start, end := r.length(i)
				if end < 0 {
					return -1
				}
				r.scratch = append(appendQuoted(r.scratch, r.b[start:end]), ':')
				i = end
			}
			if i = r.text(i, t.items, depth); i < 0 {
				return -1
			}
		}
		if !r.ends(at, i, blockEnd) {
			return -1
		}
	}
}
