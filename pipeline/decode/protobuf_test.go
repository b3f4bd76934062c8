package decode_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"sluice/pipeline/decode"
)

// The files of testdata/protobuf: event.binpb is event.proto by protoc 35.1 with
// --include_imports, event.bin an Event that Python's protobuf 7.36.2 wrote.
func protoFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "protobuf", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func protobufOptions(t testing.TB, message string) *decode.Options {
	t.Helper()
	return &decode.Options{Format: "protobuf", Schema: protoFile(t, "event.binpb"), Message: message}
}

func TestProtobufValues(t *testing.T) {
	t.Parallel()
	fields := []struct{ path, want string }{
		{"id", "number:1099511627776"},
		{"userName", "string:anné"},
		{"user_name", "string:anné"},
		{"nick", "missing:"},
		{"raw", "string:\x00\xff\""},
		{"colour", "string:GREEN"},
		{"ok", "bool:true"},
		{"price", "number:1234.5"},
		{"ratio", "number:0.1"},
		{"tags", `array:["a","b\"c"]`},
		{"tags[1]", `string:b"c`},
		{"tags[2]", "missing:"},
		{"numbers[2]", "number:300"},
		{"numbers", "array:[1,-2,300]"},
		{"loose[1]", "number:6"},
		{"labels.n", "number:5"},
		{"labels.m", "missing:"},
		{"labels", `object:{"n":5}`},
		{`places["-7"].country`, "string:DE"},
		{`places["-7"].at[1]`, "number:-2e-7"},
		{"places", `object:{"-7":{"country":"DE","at":[1.5,-2e-7]}}`},
		{"geo", `object:{"country":"FR","at":[]}`},
		{"geo.country", "string:FR"},
		{"geo.country.x", "missing:"},
		{"geo.outer.country", "missing:"},
		{"text", "missing:"},
		{"where.country", "string:IT"},
		{"number", "missing:"},
		{"at", "number:1431857103123.456"},
		{"took", "number:-1500"},
		{"maybe", "string:"},
		{"count", "number:-9"},
		{"meta", `object:{"k":"v\n","l":[1,null,true,{"x":0.5}]}`},
		{"meta.k", "string:v\n"},
		{"meta.l[3].x", "number:0.5"},
		{"meta.l[1]", "null:"},
		{"blob", "string:ab"},
		{"times", "array:[1000,-0.000001]"},
		{"times[1]", "number:-0.000001"},
		{"u32", "number:4294967295"},
		{"u64", "number:18446744073709551615"},
		{"s32", "number:-3"},
		{"f32", "number:7"},
		{"f64", "number:8"},
		{"sf32", "number:-9"},
		{"sf64", "number:-10"},
		{"tree.next.next.v", "number:3"},
		{"tree.next.next.next.v", "missing:"},
		{`tree.named["a.b"].v`, "number:4"},
		{"tree.value", "number:2.5"},
		{"tree", `object:{"v":1,"next":{"v":2,"next":{"v":3,"more":[],"named":{}},"more":[],"named":{}},"more":[],"named":{"a.b":{"v":4,"more":[],"named":{}}},"value":2.5}`},
		{"list[1].at[0]", "number:3"},
		{"any.typeUrl", "string:type.googleapis.com/shop.v1.Geo"},
		{"inner.x", "string:deep"},
		{"nothing", "missing:"},
	}
	var paths, want []string
	for _, f := range fields {
		paths, want = append(paths, f.path), append(want, f.want)
	}
	d := decoder(t, protobufOptions(t, "shop.v1.Event"), paths...)
	for range 2 {
		got, err := render(d, protoFile(t, "event.bin"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([][]string{want}, got); diff != "" {
			t.Errorf("values (-want +got):\n%s", diff)
		}
	}
}

// A message without any bytes has the default values of what cannot be absent.
func TestProtobufDefaults(t *testing.T) {
	t.Parallel()
	d := decoder(t, protobufOptions(t, "shop.v1.Event"), "id", "userName", "raw", "colour", "ok", "price", "tags", "labels", "nick", "geo", "at", "text", "geo.country", "f64", "ratio")
	want := []string{"number:0", "string:", "string:", "string:COLOUR_UNSPECIFIED", "bool:false", "number:0", "array:[]", "object:{}", "missing:", "missing:", "missing:", "missing:", "missing:", "number:0", "number:0"}
	got, err := render(d, []byte{})
	if diff := cmp.Diff([][]string{want}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := render(d, nil); err == nil || err.Error() != "byte 0: the record has no payload" {
		t.Errorf("a tombstone: got %v", err)
	}
}

// pb writes fields: number, then a varint, a text or the bytes of a message.
func pb(parts ...any) []byte {
	var b []byte
	for i := 0; i < len(parts); i += 2 {
		n := protowire.Number(parts[i].(int))
		switch v := parts[i+1].(type) {
		case int:
			b = protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), uint64(v))
		case string:
			b = protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), v)
		case []byte:
			b = protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
		}
	}
	return b
}

// What encoders may do and few of them do.
func TestProtobufOddities(t *testing.T) {
	t.Parallel()
	paths := []string{"userName", "geo.country", "geo.at[1]", "geo", "numbers", "text", "where.country", "labels.a", "labels", "colour", "id", "tree.next.next.v", "tree.value"}
	tests := []struct {
		name    string
		payload []byte
		want    map[string]string
	}{
		{"the last of several", pb(2, "a", 1, 5, 2, "b", 1, 6), map[string]string{"userName": "string:b", "id": "number:6"}},
		{"a message in parts", pb(14, pb(1, "x", 2, []byte("\x00\x00\x00\x00\x00\x00\xf0\x3f")), 2, "u", 14, pb(2, []byte("\x00\x00\x00\x00\x00\x00\x00\x40"))), map[string]string{"userName": "string:u", "geo.country": "string:x", "geo.at[1]": "number:2", "geo": `object:{"country":"x","at":[1,2]}`}},
		{"parts in parts", pb(32, pb(2, pb(2, pb(1, 5))), 32, pb(2, pb(2, pb(3, pb())))), map[string]string{"tree.next.next.v": "number:5"}},
		{"a list in two ways", pb(10, []byte{1, 2}, 10, 3, 1, 1, 10, []byte{4}), map[string]string{"numbers": "array:[1,2,3,4]", "id": "number:1"}},
		{"oneof, the text last", pb(16, pb(1, "x"), 15, "t"), map[string]string{"text": "string:t"}},
		{"oneof, the message last", pb(16, pb(2, []byte{}), 15, "t", 16, pb(1, "y")), map[string]string{"where.country": "string:y"}},
		{"oneof, one that nobody wants last", pb(15, "t", 17, 1), nil},
		{"a map's key twice", pb(12, pb(1, "a", 2, 1), 12, pb(2, 2, 1, "a")), map[string]string{"labels.a": "number:2", "labels": `object:{"a":1,"a":2}`}},
		{"a map's entry of nothing", pb(12, pb(), 12, pb(1, "a")), map[string]string{"labels.a": "number:0", "labels": `object:{"":0,"a":0}`}},
		{"an unknown symbol", pb(5, 77), map[string]string{"colour": "number:77"}},
		{"unknown fields", append(pb(999, 1, 998, "x", 2, "u"), 0x83, 0x3f, 0x08, 0x01, 0x84, 0x3f), map[string]string{"userName": "string:u"}},
		{"another wire type", pb(2, 7, 14, 1, 1, "x"), nil},
		{"not UTF-8", pb(2, "a\xffb"), map[string]string{"userName": "string:a\uFFFDb"}},
		{"infinity", pb(32, pb(5, append(protowire.AppendTag(nil, 2, protowire.Fixed64Type), 0, 0, 0, 0, 0, 0, 0xf0, 0x7f))), map[string]string{"tree.value": "string:Infinity"}},
		{"null", pb(32, pb(5, pb(1, 0))), map[string]string{"tree.value": "null:"}},
	}
	defaults := map[string]string{"userName": "string:", "numbers": "array:[]", "labels": "object:{}", "colour": "string:COLOUR_UNSPECIFIED", "id": "number:0"}
	d := decoder(t, protobufOptions(t, "shop.v1.Event"), paths...)
	for _, tt := range tests {
		var want []string
		for _, p := range paths {
			w := tt.want[p]
			if w == "" {
				w = defaults[p]
			}
			if w == "" {
				w = "missing:"
			}
			want = append(want, w)
		}
		got, err := render(d, tt.payload)
		if diff := cmp.Diff([][]string{want}, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", tt.name, err, diff)
		}
	}
}

func TestProtobufErrors(t *testing.T) {
	t.Parallel()
	deep := pb(1, 1)
	for range 200 {
		deep = pb(2, deep)
	}
	tests := []struct {
		name    string
		payload []byte
		want    string
	}{
		{"cut", protoFile(t, "event.bin")[:100], "byte 72: the value of field 13: unexpected EOF"},
		{"no tag", []byte{0x80}, "byte 0: no tag of a field: unexpected EOF"},
		{"field 0", []byte{0x00}, "byte 0: no tag of a field: invalid field number"},
		{"a length beyond the end", []byte{0x12, 0x05, 'a'}, "byte 1: the value of field 2: unexpected EOF"},
		{"a length of 2⁶⁴-1", []byte{0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, "byte 1: the value of field 2: unexpected EOF"},
		{"an endless integer", append([]byte{0x08}, bytes.Repeat([]byte{0xff}, 11)...), "byte 1: the value of field 1: variable length integer overflow"},
		{"an end without a begin", []byte{0x84, 0x3f}, "byte 2: the value of field 1008: mismatching end group marker"},
		{"deep", pb(32, deep), "nested deeper than 100 messages"},
		{"inside a wanted message", pb(14, []byte{0x0a, 0x09}), "byte 3: the value of field 1: unexpected EOF"},
		{"inside a packed list", pb(10, []byte{0x80}), "byte 2: a packed list: unexpected EOF"},
		{"many", bytes.Repeat(pb(10, 1), 1<<20+1), "byte 2097154: more than 1048576 values of fields"},
		{"a time far away", pb(18, pb(1, 1<<60)), "byte 3: a time of 1152921504606846976 s and 0 ns"},
	}
	d := decoder(t, protobufOptions(t, "shop.v1.Event"), "geo", "tree", "numbers[0]", "at", "labels.n")
	for _, tt := range tests {
		_, err := render(d, tt.payload)
		var e *decode.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
	}
}

func TestProtobufOptions(t *testing.T) {
	t.Parallel()
	set := protoFile(t, "event.binpb")
	var alone descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(set, &alone); err != nil {
		t.Fatal(err)
	}
	alone.File = alone.File[len(alone.File)-1:]
	without, err := proto.Marshal(&alone)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		o    decode.Options
		want string
	}{
		{decode.Options{}, "framing: format protobuf needs a schema_file and a message, or the framing confluent"},
		{decode.Options{Schema: set}, "message: format protobuf needs the full name of the message in schema_file"},
		{decode.Options{Schema: set, Message: "Event"}, `message: no message "Event"; the file has [google.protobuf.Any shop.v1.Event shop.v1.Geo shop.v1.Node shop.v1.View]`},
		{decode.Options{Schema: set, Message: "shop.v1.Colour"}, `message: no message "shop.v1.Colour"`},
		{decode.Options{Schema: []byte("syntax"), Message: "M"}, "schema_file: it is no descriptor set"},
		{decode.Options{Schema: without, Message: "shop.v1.Event"}, "was it written with protoc --include_imports?"},
		{decode.Options{Framing: "container"}, "framing: format protobuf has no framing container"},
		{decode.Options{Framing: "confluent", Schema: set}, "schema_file: the schema is the registry's"},
		{decode.Options{Framing: "confluent", Message: "M"}, "message: only protobuf without framing has one"},
	} {
		tt.o.Format = "protobuf"
		err := tt.o.Validate()
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
}

func TestConfluentProtobuf(t *testing.T) {
	t.Parallel()
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(protoFile(t, "event.binpb"), &set); err != nil {
		t.Fatal(err)
	}
	main, err := proto.Marshal(set.File[len(set.File)-1]) // it imports Google's own, which registries do not give
	if err != nil {
		t.Fatal(err)
	}
	file := func(d *descriptorpb.FileDescriptorProto) []byte {
		b, err := proto.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	text := descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum()
	user := &descriptorpb.FileDescriptorProto{Name: proto.String("default"), Syntax: proto.String("proto3"), MessageType: []*descriptorpb.DescriptorProto{{
		Name: proto.String("User"), Field: []*descriptorpb.FieldDescriptorProto{{Name: proto.String("name"), Number: proto.Int32(1), Type: text, JsonName: proto.String("name")}},
	}}}
	login := &descriptorpb.FileDescriptorProto{
		Name: proto.String("default"), Syntax: proto.String("proto3"), Dependency: []string{"user.proto"},
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("Login"), Field: []*descriptorpb.FieldDescriptorProto{
			{Name: proto.String("user"), Number: proto.Int32(1), Type: descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), TypeName: proto.String(".User"), JsonName: proto.String("user")},
		}}},
	}
	// What Confluent's registry takes without a reference.
	imports := []string{"confluent/meta.proto", "confluent/type/decimal.proto", "google/protobuf/type.proto", "google/type/datetime.proto", "google/type/dayofweek.proto", "google/type/money.proto"}
	order := &descriptorpb.FileDescriptorProto{Name: proto.String("default"), Syntax: proto.String("proto3"), Dependency: imports, MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("Order")}}}
	for i, f := range [][2]string{
		{"price", ".google.type.Money"}, {"day", ".google.type.DayOfWeek"}, {"rate", ".confluent.type.Decimal"}, {"at", ".google.type.DateTime"}, {"of", ".google.protobuf.Type"},
	} {
		typ := descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
		if f[0] == "day" {
			typ = descriptorpb.FieldDescriptorProto_TYPE_ENUM
		}
		order.MessageType[0].Field = append(order.MessageType[0].Field, &descriptorpb.FieldDescriptorProto{
			Name: proto.String(f[0]), JsonName: proto.String(f[0]), Number: proto.Int32(int32(i + 1)), Type: typ.Enum(), TypeName: proto.String(f[1]),
		})
	}
	r := &schemas{fetched: map[int]bool{1: true, 2: true, 3: true, 4: true, 5: true, 6: true}, known: map[int]*decode.Schema{
		1: {ID: 1, Type: decode.SchemaProtobuf, Text: main},
		2: {ID: 2, Type: decode.SchemaProtobuf, Text: file(login), References: []decode.Reference{{Name: "user.proto", Text: file(user)}}},
		3: {ID: 3, Type: decode.SchemaProtobuf, Text: []byte(`syntax = "proto3"; message M {}`)},
		4: {ID: 4, Type: decode.SchemaProtobuf, Text: file(login)},
		6: {ID: 6, Type: decode.SchemaProtobuf, Text: file(order)},
		5: {ID: 5, Type: decode.SchemaProtobuf, Text: main, References: []decode.Reference{{Name: "large", Text: make([]byte, decode.MaxSchemaBytes-len(main))}}},
	}}
	bought := decoder(t, &decode.Options{Format: "protobuf", Framing: "confluent", Schemas: r}, "price", "price.units", "day", "rate.scale", "at.utcOffset", "of.name")
	got, err := render(bought, framedBy(6, append([]byte{0}, pb(1, pb(1, "EUR", 2, 3, 3, 500_000_000), 2, 5, 3, pb(1, "\x01\x00", 3, 2), 4, pb(1, 2026, 8, pb(1, 3600)), 5, pb(1, "T"))...)))
	want := []string{`object:{"currencyCode":"EUR","units":3,"nanos":500000000}`, "number:3", "string:FRIDAY", "number:2", "number:3600000", "string:T"}
	if diff := cmp.Diff([][]string{want}, got); diff != "" || err != nil {
		t.Errorf("what every registry has: %v (-want +got):\n%s", err, diff)
	}
	d := decoder(t, &decode.Options{Format: "protobuf", Framing: "confluent", Schemas: r}, "country", "userName", "x", "user.name", "y")
	for range 2 {
		for _, tt := range []struct {
			payload []byte
			want    []string
			err     string
		}{
			{framedBy(1, append([]byte{0}, protoFile(t, "event.bin")...)), []string{"missing:", "string:anné", "missing:", "missing:", "missing:"}, ""},
			{framedBy(1, append([]byte{2, 2}, pb(1, "DE")...)), []string{"string:DE", "missing:", "missing:", "missing:", "missing:"}, ""},
			{framedBy(1, append([]byte{4, 0, 0}, pb(1, "q")...)), []string{"missing:", "missing:", "string:q", "missing:", "missing:"}, ""},
			{framedBy(1, []byte{6, 0, 0, 0}), []string{"missing:", "missing:", "missing:", "missing:", "string:"}, ""},
			{framedBy(2, append([]byte{0}, pb(1, pb(1, "ann"))...)), []string{"missing:", "missing:", "missing:", "string:ann", "missing:"}, ""},
			{framedBy(1, []byte{2, 20}), nil, "byte 5: the payload names a message that its schema does not have"},
			{framedBy(1, nil), nil, "byte 5: the payload does not say which message it is"},
			{framedBy(1, []byte{1}), nil, "byte 5: the payload does not say which message it is"},
			{framedBy(3, []byte{0}), nil, "byte 1: schema 3: what the registry gives is no descriptor of a file"},
			{framedBy(4, []byte{0}), nil, "byte 1: schema 4: Login.user is of the type User, which is in no file that the registry gives"},
			{framedBy(5, []byte{0}), nil, "byte 1: schema 5 has 4194309 bytes with what it references, of at most 4194304"},
			{[]byte{1}, nil, "byte 0: the payload begins with 0x01, not with the 0 before a schema's id"},
		} {
			got, err := render(d, tt.payload)
			if tt.err != "" {
				var e *decode.Error
				if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), tt.err) {
					t.Errorf("%q: got %v, want %s", tt.payload, err, tt.err)
				}
			} else if diff := cmp.Diff([][]string{tt.want}, got); diff != "" || err != nil {
				t.Errorf("%q: %v (-want +got):\n%s", tt.payload, err, diff)
			}
		}
	}
}

func messageType(t testing.TB, name string) protoreflect.MessageDescriptor {
	t.Helper()
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(protoFile(t, "event.binpb"), &set); err != nil {
		t.Fatal(err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		t.Fatal(err)
	}
	d, err := files.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		t.Fatal(err)
	}
	return d.(protoreflect.MessageDescriptor)
}

// What Go's Protobuf reads we read, with the same values; and what a path leads to
// is what encoding/json finds in the JSON of the message that it is in.
func FuzzProtobuf(f *testing.F) {
	f.Add(protoFile(f, "event.bin"))
	for _, s := range [][]byte{
		pb(14, pb(1, "x"), 14, pb(3, pb(1, "y"))), pb(16, pb(1, "x"), 15, "t"), pb(10, []byte{1, 2}, 10, 3), pb(12, pb(2, 2, 1, "a"), 12, pb()),
		pb(32, pb(2, pb(5, pb(3, "s")), 4, pb(1, "k", 2, pb(1, 3)))), pb(18, pb(1, 5, 2, 6)), pb(22, pb(1, pb(1, "k", 2, pb(6, pb(1, pb(4, 1)))))),
	} {
		f.Add(s)
	}
	paths := []string{
		"id", "userName", "colour", "geo", "geo.country", "geo.outer.country", "geo.at[0]", "numbers", "numbers[1]", "labels", "labels.a", "text", "where", "where.country",
		"tree", "tree.v", "tree.next.v", "tree.named.k.v", "tree.more[1].v", "tree.value", "meta", "meta.k", "at", "times", "times[0]", "u64", "maybe", "list", "list[0].country",
	}
	d := decoder(f, protobufOptions(f, "shop.v1.Event"), paths...)
	event := messageType(f, "shop.v1.Event")
	f.Fuzz(func(t *testing.T, payload []byte) {
		if payload == nil {
			t.Skip("a tombstone")
		}
		got, err := render(d, payload)
		again, againErr := render(d, payload)
		if diff := cmp.Diff(got, again); diff != "" || fmt.Sprint(err) != fmt.Sprint(againErr) {
			t.Errorf("the second time: %v, then %v\n%s", err, againErr, diff)
		}
		m := dynamicpb.NewMessage(event)
		theirs := unmarshal(payload, m)
		var e *decode.Error
		switch {
		case err != nil && (!errors.As(err, &e) || e.Position < 0 || e.Position > len(payload)):
			t.Errorf("%#v of %d bytes", err, len(payload))
		case err != nil && theirs == nil && !strings.Contains(err.Error(), "a time of ") && !strings.Contains(err.Error(), "nested deeper"):
			t.Errorf("got %v, Go's protobuf nothing", err)
		}
		if err != nil {
			return
		}
		checkNested(t, paths, got[0])
		if theirs != nil {
			return // in what nobody wants
		}
		for i, path := range paths {
			if want, ok := scalarAt(m, path); ok && got[0][i] != want {
				t.Errorf("%s is %s, to Go's protobuf %s", path, got[0][i], want)
			}
		}
	})
}

// unmarshal is Go's Protobuf, which panics at some maps that are no maps
// (testdata/fuzz has one).
func unmarshal(b []byte, m proto.Message) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return proto.Unmarshal(b, m)
}

// scalarAt renders the text or integer that path leads to by names only; ok is false
// for what is none.
func scalarAt(m protoreflect.Message, path string) (string, bool) {
	names := strings.Split(path, ".")
	for i, name := range names {
		fd := m.Descriptor().Fields().ByJSONName(name)
		if fd == nil || fd.IsList() || fd.IsMap() {
			return "", false
		}
		if fd.HasPresence() && !m.Has(fd) {
			return "missing:", true
		}
		switch v := m.Get(fd); {
		case fd.Message() != nil && i < len(names)-1 && strings.HasPrefix(string(fd.Message().FullName()), "shop."):
			m = v.Message()
			continue
		case i < len(names)-1:
			return "", false
		case fd.Kind() == protoreflect.StringKind:
			return "string:" + v.String(), true
		case fd.Kind() == protoreflect.Int64Kind || fd.Kind() == protoreflect.Int32Kind:
			return fmt.Sprint("number:", v.Int()), true
		case fd.Kind() == protoreflect.Uint64Kind:
			return fmt.Sprint("number:", v.Uint()), true
		}
	}
	return "", false
}

func protobufEvent() []byte {
	b := binary.AppendUvarint([]byte{0x08}, 1715000000123)
	for i, s := range []string{"user-0012345", "/products/item-00421", "DE", "https://www.example.com/search?q=item", "Mozilla/5.0 (X11; Linux x86_64)"} {
		b = append(b, pb(i+2, s)...)
	}
	return append(b, pb(7, 5321)...)
}

var viewPaths = []string{"user", "page", "country", "referrer", "agent", "duration_ms", "ts"}

func TestProtobufAllocates(t *testing.T) {
	d := decoder(t, protobufOptions(t, "shop.v1.View"), viewPaths...)
	payload := protobufEvent()
	emit := func(*decode.Document) error { return nil }
	if n := testing.AllocsPerRun(100, func() {
		if err := d.Decode(payload, emit); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("got %v allocations a document, want 0", n)
	}
}

func BenchmarkProtobuf(b *testing.B) {
	payload := protobufEvent()
	d := decoder(b, protobufOptions(b, "shop.v1.View"), viewPaths...)
	emit := func(*decode.Document) error { return nil }
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Decode(payload, emit); err != nil {
			b.Fatal(err)
		}
	}
}

// Messages that come in parts are put together in memory, at each level of nesting anew:
// what that takes is bounded, whatever the payload says.
func TestProtobufPartsAreBounded(t *testing.T) {
	const levels, leaf = 90, 1 << 20
	nested := func(levels, leaf int) []byte {
		m := pb(999, strings.Repeat("x", leaf)) // a field that the schema does not know
		for range levels {
			m = append(pb(2, m), pb(2, "")...) // next, in two parts
		}
		return pb(32, m)
	}
	d := decoder(t, protobufOptions(t, "shop.v1.Event"), "tree")
	payload := nested(levels, leaf)
	before := heap()
	var e *decode.Error
	_, err := render(d, payload)
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "in parts") || e.Position <= 0 || e.Position > len(payload) {
		t.Errorf("Got %v for %d levels of parts", err, levels)
	}
	held := heap() - before
	if limit := int64(2*leaf + 16<<20); held > limit {
		t.Errorf("Got %d bytes held for a payload of %d, want %d at most", held, len(payload), limit)
	}
	runtime.KeepAlive(d)
	for _, few := range [][]byte{nested(10, leaf), nested(levels, 1<<10), nested(1, 20<<20)} {
		if got, err := render(d, few); err != nil || !strings.HasPrefix(got[0][0], `object:{"v":0,"next":{`) {
			t.Errorf("Got %v for %d bytes", err, len(few))
		}
	}
	runtime.KeepAlive(payload)
}
