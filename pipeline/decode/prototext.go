package decode

import (
	"strconv"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// text appends the message s as JSON: its fields that are there, and those without
// presence, in the order of their numbers.
func (r *protoReader) text(s protoSpan, m *protoMessage, depth int) bool {
	if r.full() {
		return r.fail(s.start, "its messages make more than "+strconv.Itoa(maxText)+" bytes of JSON")
	}
	switch m.known {
	case protoTime, protoWrapper:
		mark := len(r.scratch)
		v, ok := r.known(s, m, depth)
		if ok && m.known == protoWrapper {
			r.quote(v, mark, m.fields[0].kind)
		}
		return ok
	}
	first, ok := r.index(s.start, s.end, m, nil, depth)
	if ok {
		ok = r.textOf(m, first, depth)
	}
	r.spans = r.spans[:first]
	return ok
}

func (r *protoReader) textOf(m *protoMessage, first, depth int) bool {
	end := len(r.spans)
	switch m.known {
	case protoStruct:
		return r.textOfMap(&m.fields[0], first, end, depth)
	case protoList:
		return r.textOfList(&m.fields[0], first, end, depth)
	case protoAnyValue:
		if first == end || m.fields[r.spans[end-1].field].number == 1 {
			r.scratch = append(r.scratch, "null"...)
			return true
		}
		return r.textOfField(&m.fields[r.spans[end-1].field], first, end, depth)
	}
	r.scratch = append(r.scratch, '{')
	comma := false
	at := first
	for k := range m.fields {
		f := &m.fields[k]
		from := at
		for at < end && r.spans[at].field == k {
			at++
		}
		if from == at && f.presence {
			continue
		}
		if comma {
			r.scratch = append(r.scratch, ',')
		}
		comma = true
		r.scratch = append(appendQuoted(r.scratch, []byte(f.name)), ':')
		if !r.textOfField(f, from, at, depth) {
			return false
		}
	}
	r.scratch = append(r.scratch, '}')
	return true
}

// textOfField appends the field f, whose occurrences are spans[from:to].
func (r *protoReader) textOfField(f *protoField, from, to, depth int) bool {
	switch {
	case f.isMap:
		return r.textOfMap(f, from, to, depth)
	case f.list:
		return r.textOfList(f, from, to, depth)
	case from == to:
		return r.textOfValue(f, protoSpan{wire: -1}, depth)
	case f.message != nil && to-from > 1:
		return r.join(from, to, func(s protoSpan) bool { return r.textOfValue(f, s, depth) })
	}
	return r.textOfValue(f, r.spans[to-1], depth)
}

// textOfValue appends one value of f.
func (r *protoReader) textOfValue(f *protoField, s protoSpan, depth int) bool {
	if f.message != nil {
		return r.text(s, f.message, depth+1)
	}
	mark := len(r.scratch)
	r.quote(r.scalar(f, s), mark, f.kind)
	return true
}

// quote puts v into the scratch memory as JSON: a text was not yet, or is what
// follows mark there; anything else is.
func (r *protoReader) quote(v Value, mark int, kind protoreflect.Kind) {
	if v.Kind != String {
		return
	}
	text := v.Bytes
	if len(r.scratch) > mark {
		text = append([]byte(nil), text...)
	}
	r.scratch = r.scratch[:mark]
	if kind == protoreflect.BytesKind {
		r.scratch = appendBase64(r.scratch, text)
	} else {
		r.scratch = appendQuoted(r.scratch, text)
	}
}

func (r *protoReader) textOfList(f *protoField, from, to, depth int) bool {
	r.scratch = append(r.scratch, '[')
	comma := false
	ok := r.each(f, from, to, func(s protoSpan) bool {
		if comma {
			r.scratch = append(r.scratch, ',')
		}
		comma = true
		return r.textOfValue(f, s, depth)
	})
	r.scratch = append(r.scratch, ']')
	return ok
}

func (r *protoReader) textOfMap(f *protoField, from, to, depth int) bool {
	r.scratch = append(r.scratch, '{')
	for i := from; i < to; i++ {
		key, value, ok := r.pair(f, r.spans[i], depth)
		if !ok {
			return false
		}
		if i > from {
			r.scratch = append(r.scratch, ',')
		}
		mark := len(r.scratch)
		k := r.scalar(&f.message.fields[f.message.byNumber[1]], key)
		if k.Kind != String {
			k.Kind = String // every key of an object is a text
		}
		r.quote(k, mark, protoreflect.StringKind)
		r.scratch = append(r.scratch, ':')
		if !r.textOfValue(&f.message.fields[f.message.byNumber[2]], value, depth+1) {
			return false
		}
	}
	r.scratch = append(r.scratch, '}')
	return true
}
