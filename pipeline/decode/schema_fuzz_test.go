package decode_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"sluice/pipeline/decode"
)

// slowest bounds what a schema and a payload of a fuzz target may take, on a machine
// that does other things, too.
const slowest = 5 * time.Second

// decodeBy decodes payload twice by a schema that a registry gave, with a reference.
// Whatever the three are, there are the same values both times or an *Error.
func decodeBy(t *testing.T, format, typ string, text, reference, payload []byte) {
	s := &decode.Schema{ID: 1, Type: typ, Text: text}
	if len(reference) > 0 {
		s.References = []decode.Reference{{Name: "r", Text: reference}}
	}
	r := &schemas{fetched: map[int]bool{1: true}, known: map[int]*decode.Schema{1: s}}
	d := decoder(t, &decode.Options{Format: format, Framing: "confluent", Schemas: r}, "a", "a.b", "a[0]", "m.x", "name")
	begun := time.Now()
	framed := framedBy(1, payload)
	got, err := render(d, framed)
	again, againErr := render(d, framed)
	if fmt.Sprint(got, err) != fmt.Sprint(again, againErr) {
		t.Errorf("got %v, %v, then %v, %v", got, err, again, againErr)
	}
	var e *decode.Error
	if err != nil && (!errors.As(err, &e) || e.Position < 0 || e.Position > len(framed)) {
		t.Errorf("%#v of %d bytes", err, len(framed))
	}
	if took := time.Since(begun); took > slowest {
		t.Errorf("took %v for a schema of %d bytes, a reference of %d and a payload of %d", took, len(text), len(reference), len(payload))
	}
}

// No text that a registry gives as an Avro schema makes the decoder panic, or take long.
func FuzzAvroSchema(f *testing.F) {
	for _, s := range [][3]string{
		{avroFuzzSchema, "", "\x00\x00\x00\x00"},
		{`{"type":"record","name":"R","fields":[{"name":"a","type":"U"}]}`, `{"type":"record","name":"U","fields":[{"name":"b","type":"string"}]}`, "\x02x"},
		{`{"type":"record","name":"R","fields":[{"name":"a","type":"R"}]}`, "", ""},
		{`{"type":"map","values":{"type":"array","items":"null"}}`, "", "\x02\x02a\xfe\xff\xff\xff\x0f"},
		{`["null",{"type":"fixed","name":"F","size":1073741824}]`, `"int"`, "\x02"},
		{`{"type":{"type":{"type":"string"}}}`, "[]", ""},
		{strings.Repeat("[", 2000), "", ""},
	} {
		f.Add([]byte(s[0]), []byte(s[1]), []byte(s[2]))
	}
	f.Fuzz(func(t *testing.T, text, reference, payload []byte) {
		decodeBy(t, "avro", decode.SchemaAvro, text, reference, payload)
	})
}

// Nor does one that it gives as a Protobuf descriptor.
func FuzzProtobufSchema(f *testing.F) {
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(protoFile(f, "event.binpb"), &set); err != nil {
		f.Fatal(err)
	}
	for _, d := range set.File {
		b, err := proto.Marshal(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, []byte{}, append([]byte{0}, protoFile(f, "event.bin")...))
		f.Add(b, b, []byte{2, 2, 10, 1, 'x'})
	}
	f.Add([]byte(`syntax = "proto3"; message M {}`), []byte{}, []byte{0})
	f.Fuzz(func(t *testing.T, text, reference, payload []byte) {
		decodeBy(t, "protobuf", decode.SchemaProtobuf, text, reference, payload)
	})
}
