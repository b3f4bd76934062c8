package decode

import "google.golang.org/protobuf/reflect/protoreflect"

// FieldKind is what the values of a field are, as far as a schema tells.
type FieldKind uint8

// The kinds of fields.
const (
	FieldAny     FieldKind = iota // the document decides
	FieldText                     // text in UTF-8
	FieldBytes                    // any bytes
	FieldInteger                  // a whole number of 64 bits
	FieldFloat                    // a double, or one of the texts NaN, Infinity and -Infinity
	FieldBool                     // true or false
	FieldDecimal                  // a number of FieldType's digits
	FieldMillis                   // a whole number: ms since 1970
	FieldJSON                     // an object or an array: its JSON
)

// FieldType is what a schema says of the values of a field.
type FieldType struct {
	Kind      FieldKind
	Precision int // of FieldDecimal: how many digits there are at most, of which
	Scale     int // so many are behind the point
}

// Type returns what the values at a path are, which the shape does not Lack. A union whose
// branches differ is FieldAny. inJSON says that the values are read out of the JSON of an
// object or array, as those of the elements of an array are: bytes are base64 there.
func (s *Shape) Type(path []Step, inJSON bool) FieldType {
	var t FieldType
	if s.proto != nil {
		t = s.protoType(path)
	} else {
		t = s.avroType(path)
	}
	if inJSON && t.Kind == FieldBytes {
		t.Kind = FieldText
	}
	return t
}

func (s *Shape) avroType(path []Step) FieldType {
	at := avroBranches([]*avroType{s.avro})
	for _, step := range path {
		var reached []*avroType
		for _, t := range at {
			switch {
			case t.kind == avroMap && step.Index < 0, t.kind == avroArray && step.Index >= 0:
				reached = append(reached, t.items)
			case t.kind == avroRecord && step.Index < 0:
				for f := range t.fields {
					if t.fields[f].name == step.Name {
						reached = append(reached, t.fields[f].typ)
					}
				}
			}
		}
		at = avroBranches(reached)
	}
	var all FieldType
	for i, t := range at {
		if one := t.fieldType(); i == 0 {
			all = one
		} else if one != all {
			return FieldType{}
		}
	}
	return all
}

// avroBranches returns types without null, with the branches of unions in their place.
func avroBranches(types []*avroType) (flat []*avroType) {
	for _, t := range types {
		switch t.kind {
		case avroUnion:
			flat = append(flat, avroBranches(t.branches)...)
		case avroNull:
		default:
			flat = append(flat, t)
		}
	}
	return flat
}

// fieldType returns what a value of t becomes in a document.
func (t *avroType) fieldType() FieldType {
	switch t.kind {
	case avroBoolean:
		return FieldType{Kind: FieldBool}
	case avroInt, avroLong:
		switch {
		case t.logical != avroTime:
			return FieldType{Kind: FieldInteger}
		case t.per > 1: // 19 digits of an int64, and those behind the point of a ms
			scale := 0
			for per := t.per; per > 1; per /= 10 {
				scale++
			}
			return FieldType{Kind: FieldDecimal, Precision: 19, Scale: scale}
		case t.moment:
			return FieldType{Kind: FieldMillis}
		}
		return FieldType{Kind: FieldInteger}
	case avroFloat, avroDouble:
		return FieldType{Kind: FieldFloat}
	case avroBytes, avroFixed:
		switch t.logical {
		case avroDecimal:
			return FieldType{Kind: FieldDecimal, Precision: t.precision, Scale: t.scale}
		case avroUUID:
			return FieldType{Kind: FieldText}
		}
		return FieldType{Kind: FieldBytes}
	case avroString, avroEnum:
		return FieldType{Kind: FieldText}
	case avroRecord, avroMap, avroArray:
		return FieldType{Kind: FieldJSON}
	}
	return FieldType{}
}

func (s *Shape) protoType(path []Step) FieldType {
	t := FieldType{Kind: FieldJSON} // of a message
	m := s.proto
	for i := 0; i < len(path); i++ {
		if m == nil || m.known != protoPlain || path[i].Index >= 0 {
			return FieldType{}
		}
		k := m.field(path[i].Name)
		if k < 0 {
			return FieldType{}
		}
		f := &m.fields[k]
		switch {
		case (f.isMap || f.list) && i+1 == len(path):
			return FieldType{Kind: FieldJSON}
		case f.isMap:
			f = &f.message.fields[f.message.byNumber[2]]
			i++
		case f.list:
			i++
		}
		t, m = f.fieldType(), f.message
	}
	return t
}

// fieldType returns what one value of f becomes in a document.
func (f *protoField) fieldType() FieldType {
	if m := f.message; m != nil {
		switch m.known {
		case protoWrapper:
			return m.fields[0].fieldType()
		case protoTime: // within ten thousand years, in ms and their nanoseconds
			return FieldType{Kind: FieldDecimal, Precision: 24, Scale: 6}
		case protoAnyValue:
			return FieldType{}
		}
		return FieldType{Kind: FieldJSON}
	}
	switch f.kind {
	case protoreflect.BoolKind:
		return FieldType{Kind: FieldBool}
	case protoreflect.StringKind, protoreflect.EnumKind:
		return FieldType{Kind: FieldText}
	case protoreflect.BytesKind:
		return FieldType{Kind: FieldBytes}
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return FieldType{Kind: FieldFloat}
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return FieldType{Kind: FieldDecimal, Precision: 20} // beyond 2⁶³
	}
	return FieldType{Kind: FieldInteger}
}
