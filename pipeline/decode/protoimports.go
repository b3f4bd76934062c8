package decode

import (
	"fmt"
	"path"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	// What schemas may import without bringing it along.
	_ "google.golang.org/protobuf/types/known/anypb"
	_ "google.golang.org/protobuf/types/known/apipb"
	_ "google.golang.org/protobuf/types/known/durationpb"
	_ "google.golang.org/protobuf/types/known/emptypb"
	_ "google.golang.org/protobuf/types/known/fieldmaskpb"
	_ "google.golang.org/protobuf/types/known/sourcecontextpb"
	_ "google.golang.org/protobuf/types/known/structpb"
	_ "google.golang.org/protobuf/types/known/timestamppb"
	_ "google.golang.org/protobuf/types/known/typepb"
	_ "google.golang.org/protobuf/types/known/wrapperspb"
)

// resolver finds imports among the files of a schema, and those that every registry has.
type resolver struct {
	files  *protoregistry.Files
	common *protoregistry.Files // nil = not needed yet
}

// in returns the files to look in, one after the other; i counts from 0, nil is the end.
func (r *resolver) in(i int) *protoregistry.Files {
	switch i {
	case 0:
		return r.files
	case 1:
		return protoregistry.GlobalFiles
	case 2:
		if r.common == nil {
			r.common = commonFiles()
		}
		return r.common
	}
	return nil
}

// FindFileByPath implements protodesc.Resolver.
func (r *resolver) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	for i := 0; r.in(i) != nil; i++ {
		if f, err := r.in(i).FindFileByPath(path); err == nil {
			return f, nil
		}
	}
	return nil, protoregistry.NotFound
}

// FindDescriptorByName implements protodesc.Resolver.
func (r *resolver) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	for i := 0; r.in(i) != nil; i++ {
		if d, err := r.in(i).FindDescriptorByName(name); err == nil {
			return d, nil
		}
	}
	return nil, protoregistry.NotFound
}

// checkResolved returns an error where a field of the messages is of a type that is in none
// of the files.
func checkResolved(messages protoreflect.MessageDescriptors) error {
	for i := range messages.Len() {
		m := messages.Get(i)
		for k := range m.Fields().Len() {
			f := m.Fields().Get(k)
			var of protoreflect.Descriptor
			if inner := f.Message(); inner != nil {
				of = inner
			} else if e := f.Enum(); e != nil {
				of = e
			}
			if of != nil && of.IsPlaceholder() {
				return fmt.Errorf("%s is of the type %s, which is in no file that the registry gives", f.FullName(), of.FullName())
			}
		}
		if err := checkResolved(m.Messages()); err != nil {
			return err
		}
	}
	return nil
}

// commonFiles are those that Confluent's registry and serializers have of themselves, besides
// Google's in the library: nobody registers them, and no schema references them
// (ProtobufSchema.KNOWN_DEPENDENCIES). confluent/meta.proto is not among them, which
// declares options, as nothing here reads those.
func commonFiles() *protoregistry.Files {
	const (
		bytes  = descriptorpb.FieldDescriptorProto_TYPE_BYTES
		double = descriptorpb.FieldDescriptorProto_TYPE_DOUBLE
		float  = descriptorpb.FieldDescriptorProto_TYPE_FLOAT
		int32s = descriptorpb.FieldDescriptorProto_TYPE_INT32
		int64s = descriptorpb.FieldDescriptorProto_TYPE_INT64
		text   = descriptorpb.FieldDescriptorProto_TYPE_STRING
		uint32 = descriptorpb.FieldDescriptorProto_TYPE_UINT32
	)
	shortCode := commonMessage("ShortCode", field("region_code", text), field("number", text))
	phone := commonMessage("PhoneNumber", field("e164_number", text), fieldOf("short_code", ".google.type.PhoneNumber.ShortCode"), field("extension", text))
	phone.NestedType = []*descriptorpb.DescriptorProto{shortCode}
	either(phone, "kind", 0, 1)
	dateTime := commonMessage("DateTime", field("year", int32s), field("month", int32s), field("day", int32s), field("hours", int32s),
		field("minutes", int32s), field("seconds", int32s), field("nanos", int32s),
		fieldOf("utc_offset", ".google.protobuf.Duration"), fieldOf("time_zone", ".google.type.TimeZone"))
	either(dateTime, "time_offset", 7, 8)

	files := &protoregistry.Files{}
	for _, d := range []*descriptorpb.FileDescriptorProto{
		commonFile("confluent/type/decimal.proto", commonMessage("Decimal", field("value", bytes), field("precision", uint32), field("scale", int32s))),
		commonEnum("google/type/calendar_period.proto", "CalendarPeriod", "CALENDAR_PERIOD_UNSPECIFIED", "DAY", "WEEK", "FORTNIGHT", "MONTH", "QUARTER", "HALF", "YEAR"),
		commonFile("google/type/color.proto", commonMessage("Color", field("red", float), field("green", float), field("blue", float), fieldOf("alpha", ".google.protobuf.FloatValue"))),
		commonFile("google/type/date.proto", commonMessage("Date", field("year", int32s), field("month", int32s), field("day", int32s))),
		commonFile("google/type/datetime.proto", dateTime, commonMessage("TimeZone", field("id", text), field("version", text))),
		commonEnum("google/type/dayofweek.proto", "DayOfWeek", "DAY_OF_WEEK_UNSPECIFIED", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY"),
		commonFile("google/type/decimal.proto", commonMessage("Decimal", field("value", text))),
		commonFile("google/type/expr.proto", commonMessage("Expr", field("expression", text), field("title", text), field("description", text), field("location", text))),
		commonFile("google/type/fraction.proto", commonMessage("Fraction", field("numerator", int64s), field("denominator", int64s))),
		commonFile("google/type/interval.proto", commonMessage("Interval", fieldOf("start_time", ".google.protobuf.Timestamp"), fieldOf("end_time", ".google.protobuf.Timestamp"))),
		commonFile("google/type/latlng.proto", commonMessage("LatLng", field("latitude", double), field("longitude", double))),
		commonFile("google/type/localized_text.proto", commonMessage("LocalizedText", field("text", text), field("language_code", text))),
		commonFile("google/type/money.proto", commonMessage("Money", field("currency_code", text), field("units", int64s), field("nanos", int32s))),
		commonEnum("google/type/month.proto", "Month", "MONTH_UNSPECIFIED", "JANUARY", "FEBRUARY", "MARCH", "APRIL", "MAY", "JUNE", "JULY", "AUGUST", "SEPTEMBER", "OCTOBER", "NOVEMBER", "DECEMBER"),
		commonFile("google/type/phone_number.proto", phone),
		commonFile("google/type/postal_address.proto", commonMessage("PostalAddress", field("revision", int32s), field("region_code", text), field("language_code", text),
			field("postal_code", text), field("sorting_code", text), field("administrative_area", text), field("locality", text), field("sublocality", text),
			list("address_lines", text), list("recipients", text), field("organization", text))),
		commonFile("google/type/quaternion.proto", commonMessage("Quaternion", field("x", double), field("y", double), field("z", double), field("w", double))),
		commonFile("google/type/timeofday.proto", commonMessage("TimeOfDay", field("hours", int32s), field("minutes", int32s), field("seconds", int32s), field("nanos", int32s))),
	} {
		f, err := protodesc.NewFile(d, protoregistry.GlobalFiles)
		if err == nil {
			err = files.RegisterFile(f)
		}
		if err != nil {
			panic("decode: " + d.GetName() + ": " + err.Error()) // they are the ones above
		}
	}
	return files
}

// commonFile returns a file of proto3, whose package is its directory.
func commonFile(name string, messages ...*descriptorpb.DescriptorProto) *descriptorpb.FileDescriptorProto {
	return &descriptorpb.FileDescriptorProto{
		Name: proto.String(name), Syntax: proto.String("proto3"), MessageType: messages,
		Package:    proto.String(strings.ReplaceAll(path.Dir(name), "/", ".")),
		Dependency: []string{"google/protobuf/duration.proto", "google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"},
	}
}

// commonEnum returns a file with one enum, whose symbols count from 0.
func commonEnum(name, enum string, symbols ...string) *descriptorpb.FileDescriptorProto {
	d, e := commonFile(name), &descriptorpb.EnumDescriptorProto{Name: proto.String(enum)}
	for i, s := range symbols {
		e.Value = append(e.Value, &descriptorpb.EnumValueDescriptorProto{Name: proto.String(s), Number: proto.Int32(int32(i))})
	}
	d.EnumType = append(d.EnumType, e)
	return d
}

// commonMessage returns a message, whose fields count from 1.
func commonMessage(name string, fields ...*descriptorpb.FieldDescriptorProto) *descriptorpb.DescriptorProto {
	for i, f := range fields {
		f.Number = proto.Int32(int32(i + 1))
	}
	return &descriptorpb.DescriptorProto{Name: proto.String(name), Field: fields}
}

func field(name string, typ descriptorpb.FieldDescriptorProto_Type) *descriptorpb.FieldDescriptorProto {
	return &descriptorpb.FieldDescriptorProto{Name: proto.String(name), Type: typ.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
}

func fieldOf(name, message string) *descriptorpb.FieldDescriptorProto {
	f := field(name, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE)
	f.TypeName = proto.String(message)
	return f
}

func list(name string, typ descriptorpb.FieldDescriptorProto_Type) *descriptorpb.FieldDescriptorProto {
	f := field(name, typ)
	f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	return f
}

// either puts fields of m, by their indexes, into a oneof.
func either(m *descriptorpb.DescriptorProto, name string, fields ...int) {
	m.OneofDecl = append(m.OneofDecl, &descriptorpb.OneofDescriptorProto{Name: proto.String(name)})
	for _, i := range fields {
		m.Field[i].OneofIndex = proto.Int32(0)
	}
}
