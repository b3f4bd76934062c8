package decode

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// protoMessage is a message of a schema. One that refers to itself is a circle of
// pointers.
type protoMessage struct {
	fields   []protoField // by number
	byNumber map[protowire.Number]int
	oneofs   int // highest protoField.oneof
	known    protoKnown
}

type protoField struct {
	number   protowire.Number
	name     string // in JSON
	original string // in the .proto file
	kind     protoreflect.Kind
	list     bool
	isMap    bool          // message is the entry: key 1, value 2
	presence bool          // absent is not the default value
	oneof    int           // 1, 2, … of the message; 0 = in none
	message  *protoMessage // of kinds message and group
	symbols  map[int32]string
}

// protoKnown is a message that has a form of its own in JSON.
type protoKnown uint8

const (
	protoPlain    protoKnown = iota
	protoTime                // Timestamp and Duration: seconds 1, nanoseconds 2
	protoWrapper             // StringValue and the others: value 1
	protoStruct              // Struct: a map, 1
	protoAnyValue            // Value: one of null 1, number 2, text 3, boolean 4, Struct 5, ListValue 6
	protoList                // ListValue: Values, 1
)

var protoKnowns = map[protoreflect.FullName]protoKnown{
	"google.protobuf.Timestamp": protoTime, "google.protobuf.Duration": protoTime,
	"google.protobuf.DoubleValue": protoWrapper, "google.protobuf.FloatValue": protoWrapper,
	"google.protobuf.Int64Value": protoWrapper, "google.protobuf.UInt64Value": protoWrapper,
	"google.protobuf.Int32Value": protoWrapper, "google.protobuf.UInt32Value": protoWrapper,
	"google.protobuf.BoolValue": protoWrapper, "google.protobuf.StringValue": protoWrapper,
	"google.protobuf.BytesValue": protoWrapper,
	"google.protobuf.Struct":     protoStruct, "google.protobuf.Value": protoAnyValue, "google.protobuf.ListValue": protoList,
}

// protoTypes makes protoMessages of descriptors, each once.
type protoTypes map[protoreflect.FullName]*protoMessage

func (t protoTypes) of(d protoreflect.MessageDescriptor) *protoMessage {
	if m := t[d.FullName()]; m != nil {
		return m
	}
	m := &protoMessage{byNumber: map[protowire.Number]int{}, known: protoKnowns[d.FullName()]}
	t[d.FullName()] = m
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		f := protoField{
			number: fd.Number(), name: fd.JSONName(), original: string(fd.Name()), kind: fd.Kind(),
			list: fd.IsList(), isMap: fd.IsMap(), presence: fd.HasPresence(),
		}
		if o := fd.ContainingOneof(); o != nil && !o.IsSynthetic() {
			f.oneof = o.Index() + 1
			m.oneofs = max(m.oneofs, f.oneof)
		}
		if inner := fd.Message(); inner != nil {
			f.message = t.of(inner)
		}
		if e := fd.Enum(); e != nil {
			f.symbols = map[int32]string{}
			for k := range e.Values().Len() {
				v := e.Values().Get(k)
				if _, alias := f.symbols[int32(v.Number())]; !alias {
					f.symbols[int32(v.Number())] = string(v.Name())
				}
			}
		}
		m.fields = append(m.fields, f)
	}
	slices.SortFunc(m.fields, func(a, b protoField) int { return cmp.Compare(a.number, b.number) })
	for i := range m.fields {
		m.byNumber[m.fields[i].number] = i
	}
	if !m.asKnown() {
		m.known = protoPlain // somebody's own of that name
	}
	return m
}

// asKnown reports whether m has the fields that its form in JSON is made of.
func (m *protoMessage) asKnown() bool {
	numbers := 1
	switch m.known {
	case protoTime:
		numbers = 2
	case protoAnyValue:
		numbers = 6
	}
	for i := range m.fields {
		if m.fields[i].number != protowire.Number(i+1) {
			return false
		}
	}
	if len(m.fields) != numbers {
		return false
	}
	f := &m.fields[0]
	switch m.known {
	case protoTime:
		return f.kind == protoreflect.Int64Kind && !f.list && m.fields[1].kind == protoreflect.Int32Kind && !m.fields[1].list
	case protoWrapper:
		return f.message == nil && !f.list
	case protoStruct:
		return f.isMap
	case protoAnyValue:
		return !slices.ContainsFunc(m.fields, func(f protoField) bool { return f.oneof != 1 })
	case protoList:
		return f.list && f.message != nil
	}
	return true
}

// field returns the index of the field with this name, of JSON or of the file, or
// -1.
func (m *protoMessage) field(name string) int {
	return slices.IndexFunc(m.fields, func(f protoField) bool { return f.name == name || f.original == name })
}

// protoFromSet returns the message of a FileDescriptorSet as protoc writes it.
func protoFromSet(set []byte, name string) (*protoMessage, error) {
	var s descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(set, &s); err != nil || len(s.File) == 0 {
		return nil, errors.New("it is no descriptor set: write it with protoc --include_imports --descriptor_set_out=FILE")
	}
	files, err := protodesc.NewFiles(&s)
	if err != nil {
		return nil, fmt.Errorf("%w; was it written with protoc --include_imports?", err)
	}
	d, err := files.FindDescriptorByName(protoreflect.FullName(name))
	if m, ok := d.(protoreflect.MessageDescriptor); ok && err == nil {
		return protoTypes{}.of(m), nil
	}
	var names []string
	files.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for i := range f.Messages().Len() {
			if full := f.Messages().Get(i).FullName(); protoKnowns[full] == protoPlain {
				names = append(names, string(full))
			}
		}
		return true
	})
	slices.Sort(names)
	return nil, &noMessageError{name, names}
}

// noMessageError says which messages a descriptor set has.
type noMessageError struct {
	name  string
	names []string
}

func (e *noMessageError) Error() string {
	return fmt.Sprintf("no message %q; the file has %.300v", e.name, e.names)
}

// protoFile is a schema of a registry: a file, one of whose messages a payload
// names by its place.
type protoFile struct {
	file  protoreflect.FileDescriptor
	types protoTypes
	plans map[string]*protoPlan // by the bytes that name the message
}

// newProtoFile links the descriptor of a file with those that it imports and the schema
// references, and with those that every registry has.
func newProtoFile(s *Schema) (*protoFile, error) {
	files := &protoregistry.Files{}
	imports := &resolver{files: files}
	link := func(text []byte, name string) (protoreflect.FileDescriptor, error) {
		var d descriptorpb.FileDescriptorProto
		if err := proto.Unmarshal(text, &d); err != nil {
			return nil, errors.New("what the registry gives is no descriptor of a file")
		}
		if name != "" {
			d.Name = proto.String(name) // as importers spell it
		}
		// Files that nobody has may be imported for their options alone, which are not read.
		f, err := protodesc.FileOptions{AllowUnresolvable: true}.New(&d, imports)
		if err == nil {
			err = checkResolved(f.Messages())
		}
		if err == nil {
			err = files.RegisterFile(f)
		}
		return f, err
	}
	for i := range s.References {
		if _, err := link(s.References[i].Text, s.References[i].Name); err != nil {
			return nil, fmt.Errorf("reference %s: %w", s.References[i].Name, err)
		}
	}
	f, err := link(s.Text, "")
	if err != nil {
		return nil, err
	}
	return &protoFile{file: f, types: protoTypes{}, plans: map[string]*protoPlan{}}, nil
}

// message returns the one that b begins with the place of: a count and the index in
// the file, the index in that message, and so on, all zigzag; a single zero is the
// first of the file. n is how many bytes that takes.
func (f *protoFile) message(b []byte) (m protoreflect.MessageDescriptor, n int, reason string) {
	next := func() (int, bool) {
		u, k := protowire.ConsumeVarint(b[n:])
		if k < 0 {
			return 0, false
		}
		n += k
		v := protowire.DecodeZigZag(u)
		return int(v), v >= 0 && v <= 1<<20
	}
	count, ok := next()
	switch {
	case !ok || count > maxNesting:
		return nil, n, "the payload does not say which message it is"
	case count == 0:
		if f.file.Messages().Len() == 0 {
			return nil, n, "the schema has no message"
		}
		return f.file.Messages().Get(0), n, ""
	}
	in := f.file.Messages()
	for range count {
		i, ok := next()
		if m = nil; ok {
			m = nthMessage(in, i)
		}
		if m == nil {
			return nil, n, "the payload names a message that its schema does not have"
		}
		in = m.Messages()
	}
	return m, n, ""
}

// nthMessage returns the one with index i among those that the .proto file has:
// entries of maps, which the compiler adds, do not count, as in Confluent's Java.
func nthMessage(in protoreflect.MessageDescriptors, i int) protoreflect.MessageDescriptor {
	for k := range in.Len() {
		if m := in.Get(k); !m.IsMapEntry() {
			if i == 0 {
				return m
			}
			i--
		}
	}
	return nil
}
