package decode

import (
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Shape is what a schema says of the fields of documents.
type Shape struct {
	avro  *avroType
	proto *protoMessage
}

// Shape returns the shape of documents of options that are valid and have a Schema,
// or nil where payloads bring their own schema or have none.
func (o *Options) Shape() *Shape {
	if len(o.Schema) == 0 {
		return nil
	}
	var s Shape
	var err error
	switch o.Format {
	case formatAvro:
		s.avro, err = parseAvro(o.Schema)
	case formatProtobuf:
		s.proto, err = protoFromSet(o.Schema, o.Message)
	default:
		return nil
	}
	if err != nil {
		return nil
	}
	return &s
}

// Lacks returns how many steps of a path documents can have at most, and where
// those are not all, the paths that lead on from there; maps and
// google.protobuf.Struct have any. A path that every document has is as good as one
// that some can have.
func (s *Shape) Lacks(path []Step) (steps int, next []string, lacks bool) {
	if s.proto != nil {
		return s.protoLacks(path)
	}
	return s.avroLacks(path)
}

func (s *Shape) avroLacks(path []Step) (int, []string, bool) {
	at := []*avroType{s.avro}
	for i, step := range path {
		var reached []*avroType
		var names []string
		for k := 0; k < len(at); k++ {
			switch t := at[k]; {
			case t.kind == avroUnion:
				at = append(at, t.branches...)
			case t.kind == avroMap && step.Index < 0, t.kind == avroArray && step.Index >= 0:
				reached = append(reached, t.items)
			case t.kind == avroRecord && step.Index < 0:
				for f := range t.fields {
					names = append(names, FormatPath(append(path[:i:i], Step{Name: t.fields[f].name, Index: -1})))
					if t.fields[f].name == step.Name {
						reached = append(reached, t.fields[f].typ)
					}
				}
			}
		}
		if len(reached) == 0 {
			return i, names, true
		}
		at = reached
	}
	return len(path), nil, false
}

func (s *Shape) protoLacks(path []Step) (int, []string, bool) {
	m := s.proto
	for i := 0; i < len(path); i++ {
		switch {
		case m == nil, m.known == protoTime, m.known == protoWrapper:
			return i, nil, true
		case m.known != protoPlain: // JSON of any shape
			return len(path), nil, false
		case path[i].Index >= 0:
			return i, nil, true
		}
		k := m.field(path[i].Name)
		if k < 0 {
			var names []string
			for f := range m.fields {
				names = append(names, FormatPath(append(path[:i:i], Step{Name: m.fields[f].name, Index: -1})))
			}
			return i, names, true
		}
		f := &m.fields[k]
		of := f.message
		if f.isMap {
			of = mapValue(f)
		}
		m = of
		if !f.isMap && !f.list || i+1 == len(path) {
			continue
		}
		i++ // the key or the index
		if f.list != (path[i].Index >= 0) {
			return i, nil, true
		}
	}
	return len(path), nil, false
}

// InJSON returns a path, which the shape does not lack, by the names that the JSON of objects
// and arrays has: of Protobuf a path may have those of the .proto file.
func (s *Shape) InJSON(path []Step) []Step {
	path = slices.Clone(path)
	m := s.proto
	for i := 0; i < len(path) && m != nil && m.known == protoPlain; i++ {
		k := m.field(path[i].Name)
		if k < 0 {
			break
		}
		f := &m.fields[k]
		path[i].Name = f.name
		if m = f.message; f.isMap {
			m = mapValue(f)
		}
		if f.isMap || f.list {
			i++ // the key or the index
		}
	}
	return path
}

// mapValue returns the message that a map's values are, or nil.
func mapValue(f *protoField) *protoMessage {
	v := &f.message.fields[f.message.byNumber[2]]
	if v.kind != protoreflect.MessageKind {
		return nil
	}
	return v.message
}
