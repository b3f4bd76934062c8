package decode

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxProtoNesting is the bound on nested messages of Protobuf's own readers in C++
// and Java.
const maxProtoNesting = 100

// maxSpans bounds the occurrences of wanted fields that are noted at once: each takes
// 32 bytes here, and 2 in a payload.
const maxSpans = 1 << 20

// maxParts bounds the bytes of messages that come in parts, beyond as many as the payload
// has: parts of parts are put together once more at each level. Two messages of a payload's
// size and of 16 levels, one written behind the other, are within it where a payload has a
// MiB.
const maxParts = 16 << 20

// protoReader reads messages of Protobuf's binary encoding into a document: the
// fields that the paths name, as slices of the payload where their text is in it.
// Messages are objects with the names of proto3's JSON; paths may use those of the
// .proto file, too. A field that is absent is missing where the schema can tell
// (optional, oneof, messages), and else its default value, as for every reader of
// Protobuf. Messages that nobody wants are not looked into.
type protoReader struct {
	doc Document
	texts
	joined  []byte // messages that came in parts: the newest of them
	parts   int    // bytes that may still be put together
	b       []byte // what positions count in: the payload, or joined
	outside int    // position in the payload where b is joined; -1 = b is the payload
	spans   []protoSpan
	stands  []int        // of oneofs
	json    *jsonDecoder // of values that are JSON: Struct
	err     *Error
	plans   map[protoWant]*protoPlan
}

// protoSpan is an occurrence of a field: its value's bytes are b[start:end].
type protoSpan struct {
	field      int // index in the message
	wire       protowire.Type
	start, end int
}

type protoWant struct {
	m *protoMessage
	n *node
}

// protoPlan is what the paths want of a message.
type protoPlan struct {
	m *protoMessage
	// parts are by the message's fields, nil where nothing is wanted; noted says
	// that occurrences count: of what is wanted, and of all that share a oneof.
	parts []*protoPart
	noted []bool
}

// protoPart is what the paths want of a field. Both names may be in use.
type protoPart struct {
	nodes []*node
	// message is of one message, elements of those of a list or map, by node and
	// in it by its edges; nil where they are no messages.
	message  []*protoPlan
	elements [][]*protoPlan
}

func (r *protoReader) plan(m *protoMessage, n *node) *protoPlan {
	want := protoWant{m, n}
	if p := r.plans[want]; p != nil {
		return p
	}
	p := &protoPlan{m: m, parts: make([]*protoPart, len(m.fields)), noted: make([]bool, len(m.fields))}
	r.plans[want] = p
	for _, e := range n.names {
		k := m.field(e.name)
		if k < 0 {
			continue
		}
		f := &m.fields[k]
		part := p.parts[k]
		if part == nil {
			part = &protoPart{}
			p.parts[k] = part
		}
		part.nodes = append(part.nodes, e.to)
		var message *protoPlan
		var elements []*protoPlan
		of := f.message
		if f.isMap {
			of = f.message.fields[f.message.byNumber[2]].message
		}
		switch {
		case of == nil:
		case f.isMap:
			for _, inner := range e.to.names {
				elements = append(elements, r.plan(of, inner.to))
			}
		case f.list:
			for _, inner := range e.to.elems {
				elements = append(elements, r.plan(of, inner.to))
			}
		default:
			message = r.plan(of, e.to)
		}
		part.message, part.elements = append(part.message, message), append(part.elements, elements)
		for i := range m.fields {
			if i == k || f.oneof > 0 && m.fields[i].oneof == f.oneof {
				p.noted[i] = true
			}
		}
	}
	return p
}

// start begins with a payload.
func (r *protoReader) start(payload []byte) {
	r.b, r.outside, r.err = payload, -1, nil
	r.parts = len(payload) + maxParts
	r.texts.start()
	r.joined, r.json.scratch = kept(r.joined), kept(r.json.scratch)
	if cap(r.spans) > maxKeptBuffer/32 { // 32 bytes each
		r.spans = nil
	}
	r.spans = r.spans[:0]
	r.doc.clear()
}

// fail notes the first error and returns false.
func (r *protoReader) fail(at int, reason string) bool {
	if r.outside >= 0 {
		at = r.outside
	}
	if r.err == nil {
		r.err = &Error{Format: formatProtobuf, Position: at, Reason: reason}
	}
	return false
}

// index notes the occurrences of the fields of the message b[lo:hi], all or those
// noted, in order of the fields, and returns where they begin in r.spans.
func (r *protoReader) index(lo, hi int, m *protoMessage, noted []bool, depth int) (first int, ok bool) {
	first = len(r.spans)
	if depth > maxProtoNesting {
		return first, r.fail(lo, "nested deeper than "+strconv.Itoa(maxProtoNesting)+" messages")
	}
	sorted, last := true, 0
	for i := lo; i < hi; {
		number, wire, n := protowire.ConsumeTag(r.b[i:hi])
		if n < 0 {
			return first, r.fail(i, "no tag of a field: "+wireFault(n))
		}
		start := i + n
		n = protowire.ConsumeFieldValue(number, wire, r.b[start:hi])
		if n < 0 {
			return first, r.fail(start, "the value of field "+strconv.Itoa(int(number))+": "+wireFault(n))
		}
		i = start + n
		k, known := m.byNumber[number]
		if !known || noted != nil && !noted[k] {
			continue
		}
		s := protoSpan{field: k, wire: wire, start: start, end: i}
		switch wire {
		case protowire.BytesType:
			_, n := protowire.ConsumeVarint(r.b[start:i])
			s.start += n
		case protowire.StartGroupType:
			inner, _ := protowire.ConsumeGroup(number, r.b[start:i])
			s.end = start + len(inner)
		}
		if !m.fields[k].fits(wire) {
			continue // as if it were unknown, as every reader of Protobuf does
		}
		if len(r.spans) == maxSpans {
			return first, r.fail(i, "more than "+strconv.Itoa(maxSpans)+" values of fields")
		}
		sorted, last = sorted && k >= last, k
		r.spans = append(r.spans, s)
	}
	r.oneofs(first, m)
	if !sorted {
		slices.SortStableFunc(r.spans[first:], func(a, b protoSpan) int { return a.field - b.field })
	}
	return first, true
}

// oneofs forgets the occurrences that a later one of the same oneof replaces.
func (r *protoReader) oneofs(first int, m *protoMessage) {
	spans := r.spans[first:]
	members := 0
	for i := range spans {
		if m.fields[spans[i].field].oneof > 0 {
			members++
		}
	}
	if members < 2 {
		return
	}
	// By oneof: the field that stands, from 1, or -1 where others were before it.
	r.stands = append(r.stands[:0], make([]int, m.oneofs+1)...)
	for i := len(spans) - 1; i >= 0; i-- {
		k := spans[i].field
		switch o := m.fields[k].oneof; {
		case o == 0 || r.stands[o] == k+1:
		case r.stands[o] == 0:
			r.stands[o] = k + 1
		default:
			r.stands[o], spans[i].field = -1, -1
		}
	}
	kept := slices.DeleteFunc(spans, func(s protoSpan) bool { return s.field < 0 })
	r.spans = r.spans[:first+len(kept)]
}

// wireFault says why protowire gave n. Its own errors begin with "proto:" and a space that
// differs from build to build, so that the reasons of one fault would differ, too.
func wireFault(n int) string {
	reason := strings.TrimPrefix(protowire.ParseError(n).Error(), "proto:")
	return strings.TrimLeft(reason, " \u00a0")
}

// fits reports whether a value of this wire type can be one of f.
func (f *protoField) fits(wire protowire.Type) bool {
	want := protoWire(f.kind)
	return wire == want || f.list && wire == protowire.BytesType && want != protowire.StartGroupType
}

func protoWire(k protoreflect.Kind) protowire.Type {
	switch k {
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return protowire.Fixed32Type
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return protowire.Fixed64Type
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
		return protowire.BytesType
	case protoreflect.GroupKind:
		return protowire.StartGroupType
	}
	return protowire.VarintType
}

// read reads the message b[lo:hi] into the document.
func (r *protoReader) read(lo, hi int, p *protoPlan, depth int) bool {
	first, ok := r.index(lo, hi, p.m, p.noted, depth)
	at := first
	for k := range p.parts {
		from := at
		for at < len(r.spans) && r.spans[at].field == k {
			at++
		}
		if part := p.parts[k]; part != nil && ok {
			for i, n := range part.nodes {
				ok = ok && r.field(&p.m.fields[k], from, at, n, part.message[i], part.elements[i], depth)
			}
		}
	}
	r.spans = r.spans[:first]
	return ok
}

// field sets what n wants of the field f, whose occurrences are spans[from:to].
func (r *protoReader) field(f *protoField, from, to int, n *node, message *protoPlan, elements []*protoPlan, depth int) bool {
	switch {
	case f.isMap:
		if n.field >= 0 {
			r.begin(textRoom)
			mark := len(r.scratch)
			if !r.textOfMap(f, from, to, depth) {
				return false
			}
			r.doc.values[n.field] = r.made(Object, mark)
		}
		for i := from; i < to && len(n.names) > 0; i++ {
			if !r.entry(f, r.spans[i], n, elements, depth) {
				return false
			}
		}
		return true
	case f.list:
		if n.field >= 0 {
			r.begin(textRoom)
			mark := len(r.scratch)
			if !r.textOfList(f, from, to, depth) {
				return false
			}
			r.doc.values[n.field] = r.made(Array, mark)
		}
		if len(n.elems) == 0 {
			return true
		}
		index := 0
		return r.each(f, from, to, func(s protoSpan) bool {
			for k := range n.elems {
				if n.elems[k].index == index {
					var inner *protoPlan
					if elements != nil {
						inner = elements[k]
					}
					if !r.value(f, s, n.elems[k].to, inner, depth) {
						return false
					}
				}
			}
			index++
			return true
		})
	case from == to && f.presence:
		return true
	case from == to:
		return r.value(f, protoSpan{wire: -1}, n, message, depth)
	case f.message == nil || to-from == 1:
		return r.value(f, r.spans[to-1], n, message, depth)
	}
	return r.join(from, to, func(s protoSpan) bool { return r.value(f, s, n, message, depth) })
}

// join calls then with the message that came in the parts spans[from:to]: together
// they are one.
func (r *protoReader) join(from, to int, then func(protoSpan) bool) bool {
	size := 0
	for i := from; i < to; i++ {
		size += r.spans[i].end - r.spans[i].start
	}
	if r.parts -= size; r.parts < 0 {
		return r.fail(r.spans[from].start, "messages in parts whose parts are in parts: they are more than "+strconv.Itoa(maxParts)+" bytes beyond the payload's")
	}
	r.joined = room(r.joined, size)
	mark := len(r.joined)
	for i := from; i < to; i++ {
		r.joined = append(r.joined, r.b[r.spans[i].start:r.spans[i].end]...)
	}
	s := protoSpan{wire: r.spans[from].wire, start: mark, end: len(r.joined)}
	b, outside := r.b, r.outside
	if outside < 0 {
		r.outside = r.spans[from].start
	}
	// Inner messages may be joined in other memory: this window stays.
	r.b = r.joined[:s.end:s.end]
	ok := then(s)
	r.b, r.outside = b, outside
	return ok
}

// each calls visit with every element of a list, packed or not.
func (r *protoReader) each(f *protoField, from, to int, visit func(protoSpan) bool) bool {
	wire := protoWire(f.kind)
	for k := from; k < to; k++ {
		s := r.spans[k]
		if s.wire == wire {
			if !visit(s) {
				return false
			}
			continue
		}
		for i := s.start; i < s.end; {
			n := protowire.ConsumeFieldValue(1, wire, r.b[i:s.end])
			if n < 0 {
				return r.fail(i, "a packed list: "+wireFault(n))
			}
			if !visit(protoSpan{field: s.field, wire: wire, start: i, end: i + n}) {
				return false
			}
			i += n
		}
	}
	return true
}

// pair finds key and value of a map's entry: a message of them, the last of each,
// or their default values.
func (r *protoReader) pair(f *protoField, s protoSpan, depth int) (key, value protoSpan, ok bool) {
	first, ok := r.index(s.start, s.end, f.message, nil, depth+1)
	key.wire, value.wire = -1, -1
	for _, x := range r.spans[first:] {
		if f.message.fields[x.field].number == 1 {
			key = x
		} else {
			value = x
		}
	}
	r.spans = r.spans[:first]
	return key, value, ok
}

// entry sets what n wants of an entry of a map.
func (r *protoReader) entry(f *protoField, s protoSpan, n *node, elements []*protoPlan, depth int) bool {
	key, value, ok := r.pair(f, s, depth)
	if !ok {
		return false
	}
	mark := len(r.scratch)
	v := r.scalar(&f.message.fields[f.message.byNumber[1]], key)
	of := &f.message.fields[f.message.byNumber[2]]
	for k := range n.names {
		if n.names[k].name != string(v.Bytes) {
			continue
		}
		r.scratch = r.scratch[:mark]
		to := n.names[k].to
		if to.field >= 0 { // the last of one key wins
			r.doc.values[to.field] = Value{}
		}
		for _, i := range to.below {
			r.doc.values[i] = Value{}
		}
		var inner *protoPlan
		if elements != nil {
			inner = elements[k]
		}
		return r.value(of, value, to, inner, depth+1)
	}
	r.scratch = r.scratch[:mark]
	return true
}

// made returns the value whose text was appended to the scratch memory behind mark.
func (r *protoReader) made(k Kind, mark int) Value {
	return Value{Kind: k, Bytes: r.scratch[mark:len(r.scratch):len(r.scratch)]}
}

// value sets what n wants of one value of f; wire -1 is the default value.
func (r *protoReader) value(f *protoField, s protoSpan, n *node, inner *protoPlan, depth int) bool {
	if f.message == nil {
		if n.field >= 0 {
			r.begin(scalarRoom)
			r.doc.values[n.field] = r.scalar(f, s)
		}
		return true
	}
	switch f.message.known {
	case protoTime, protoWrapper:
		r.begin(scalarRoom)
		mark := len(r.scratch)
		v, ok := r.known(s, f.message, depth+1)
		if n.field >= 0 {
			r.doc.values[n.field] = v
		} else {
			r.scratch = r.scratch[:mark]
		}
		return ok
	case protoStruct, protoAnyValue, protoList:
		// Their JSON is what paths lead into.
		r.begin(textRoom)
		mark := len(r.scratch)
		if !r.text(s, f.message, depth+1) {
			return false
		}
		j := r.json
		j.b, j.err, j.doc = r.scratch[mark:len(r.scratch):len(r.scratch)], nil, r.doc
		if j.value(0, n, 1) < 0 {
			return r.fail(s.start, "a google.protobuf.Struct whose JSON breaks its rules: "+j.err.Reason)
		}
		return true
	}
	if n.field >= 0 {
		r.begin(textRoom)
		mark := len(r.scratch)
		if !r.text(s, f.message, depth+1) {
			return false
		}
		r.doc.values[n.field] = r.made(Object, mark)
	}
	if len(n.names) == 0 || inner == nil {
		return true
	}
	return r.read(s.start, s.end, inner, depth+1)
}

// known returns the value of a Timestamp, a Duration (both in ms) or a wrapper.
func (r *protoReader) known(s protoSpan, m *protoMessage, depth int) (Value, bool) {
	first, ok := r.index(s.start, s.end, m, nil, depth)
	if !ok {
		return Value{}, false
	}
	spans := r.spans[first:]
	r.spans = r.spans[:first]
	if m.known == protoWrapper {
		value := protoSpan{wire: -1}
		if len(spans) > 0 {
			value = spans[len(spans)-1]
		}
		return r.scalar(&m.fields[0], value), true
	}
	var parts [2]int64 // seconds and nanoseconds
	for _, x := range spans {
		v, _ := protowire.ConsumeVarint(r.b[x.start:x.end])
		parts[x.field] = int64(v)
	}
	// Both of one sign, and within ten thousand years, which is more than
	// Protobuf allows either.
	const maxSeconds, second = 315_576_000_000, 1_000_000_000
	nanos := int64(int32(parts[1]))
	if seconds := parts[0]; seconds > maxSeconds || seconds < -maxSeconds || nanos >= second || nanos <= -second {
		return Value{}, r.fail(s.start, "a time of "+strconv.FormatInt(seconds, 10)+" s and "+strconv.FormatInt(nanos, 10)+" ns")
	}
	// ms and what is left of them in ns, of one sign: a Timestamp before 1970
	// counts its nanoseconds upwards.
	ms, rest := parts[0]*1000+nanos/1_000_000, nanos%1_000_000
	switch {
	case ms < 0 && rest > 0:
		ms, rest = ms+1, rest-1_000_000
	case ms > 0 && rest < 0:
		ms, rest = ms-1, rest+1_000_000
	}
	mark := len(r.scratch)
	if ms == 0 && rest < 0 {
		r.scratch = append(r.scratch, "-0"...)
	} else {
		r.scratch = strconv.AppendInt(r.scratch, ms, 10)
	}
	if rest != 0 {
		r.scratch = appendFraction(append(r.scratch, '.'), max(rest, -rest), 1_000_000)
	}
	return r.made(Number, mark), true
}

// scalar returns the value of a field that is no message.
func (r *protoReader) scalar(f *protoField, s protoSpan) Value {
	mark := len(r.scratch)
	switch f.kind {
	case protoreflect.StringKind, protoreflect.BytesKind:
		b := []byte{}
		if s.wire >= 0 {
			b = r.b[s.start:s.end:s.end]
		}
		if f.kind == protoreflect.StringKind && !utf8.Valid(b) {
			r.scratch = appendValid(r.scratch, b)
			return r.made(String, mark)
		}
		return Value{Kind: String, Bytes: b}
	case protoreflect.EnumKind:
		if name, ok := f.symbols[int32(r.varint(s))]; ok {
			r.scratch = append(r.scratch, name...)
			return r.made(String, mark)
		}
	}
	kind := r.number(f.kind, s)
	return r.made(kind, mark)
}

// varint returns the integer that s is.
func (r *protoReader) varint(s protoSpan) uint64 {
	if s.wire < 0 {
		return 0
	}
	v, _ := protowire.ConsumeVarint(r.b[s.start:s.end])
	return v
}

// number appends the text of a number or boolean, and returns what it is: NaN and
// the infinities are texts.
func (r *protoReader) number(k protoreflect.Kind, s protoSpan) Kind {
	fixed := func() uint64 {
		switch {
		case s.wire < 0:
			return 0
		case s.end-s.start == 4:
			return uint64(binary.LittleEndian.Uint32(r.b[s.start:]))
		}
		return binary.LittleEndian.Uint64(r.b[s.start:])
	}
	switch k {
	case protoreflect.BoolKind:
		r.scratch = strconv.AppendBool(r.scratch, r.varint(s) != 0)
		return Bool
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		f, bits := math.Float64frombits(fixed()), 64
		if k == protoreflect.FloatKind {
			f, bits = float64(math.Float32frombits(uint32(fixed()))), 32
		}
		var number bool
		if r.scratch, number = appendFloat(r.scratch, f, bits); !number {
			return String
		}
	case protoreflect.Uint32Kind:
		r.scratch = strconv.AppendUint(r.scratch, uint64(uint32(r.varint(s))), 10)
	case protoreflect.Uint64Kind:
		r.scratch = strconv.AppendUint(r.scratch, r.varint(s), 10)
	case protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		r.scratch = strconv.AppendUint(r.scratch, fixed(), 10)
	case protoreflect.Sfixed32Kind:
		r.scratch = strconv.AppendInt(r.scratch, int64(int32(fixed())), 10)
	case protoreflect.Sfixed64Kind:
		r.scratch = strconv.AppendInt(r.scratch, int64(fixed()), 10)
	case protoreflect.Sint32Kind:
		r.scratch = strconv.AppendInt(r.scratch, int64(int32(protowire.DecodeZigZag(r.varint(s)&math.MaxUint32))), 10)
	case protoreflect.Sint64Kind:
		r.scratch = strconv.AppendInt(r.scratch, protowire.DecodeZigZag(r.varint(s)), 10)
	case protoreflect.Int64Kind:
		r.scratch = strconv.AppendInt(r.scratch, int64(r.varint(s)), 10)
	default: // int32 and unknown symbols of enums
		r.scratch = strconv.AppendInt(r.scratch, int64(int32(r.varint(s))), 10)
	}
	return Number
}
