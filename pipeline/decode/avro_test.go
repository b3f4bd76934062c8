package decode_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/decode"
)

// The files of testdata/avro were written by fastavro 1.13.1: event.bin is the
// first of the three events, as a bare value, that the containers hold.
func testFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "avro", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var avroFields = []struct{ path, want string }{
	{"id", "number:1099511627776"},
	{"user", "string:anné"},
	{"count", "number:0"},
	{"ok", "bool:true"},
	{"ratio", "number:0.1"},
	{"price", "number:1234.5"},
	{"raw", "string:\x00\xff\""},
	{"hash", "string:\xde\xad\xbe\xef"},
	{"colour", "string:RED"},
	{"tags", `array:["a","b\"c"]`},
	{"tags[1]", `string:b"c`},
	{"tags[2]", "missing:"},
	{"labels", `object:{"n":5,"s":"x","z":null}`},
	{"labels.n", "number:5"},
	{"labels.z", "null:"},
	{"labels.y", "missing:"},
	{"geo", `object:{"country":"DE","at":[1.5,-2e-7]}`},
	{"geo.country", "string:DE"},
	{"geo.at[0]", "number:1.5"},
	{"geo.country.x", "missing:"},
	{"tree.next.next.v", "number:3"},
	{"tree.next.next.next", "null:"},
	{"tree", `object:{"v":1,"next":{"v":2,"next":{"v":3,"next":null}}}`},
	{"amount", "number:-12345678901234567890.12"},
	{"fee", "number:-1.2345"},
	{"key", "string:12345678-9abc-def0-1234-56789abcdef0"},
	{"day", "number:1431820800000"},
	{"tod", "number:3723004"},
	{"todu", "number:3723004.005"},
	{"ms", "number:1431857103123"},
	{"us", "number:1431857103123.456"},
	{"hash2", "string:1234"},
	{"last", "string:end"},
	{"nothing", "missing:"},
}

func avroPaths() (paths, want []string) {
	for _, f := range avroFields {
		paths, want = append(paths, f.path), append(want, f.want)
	}
	return paths, want
}

func TestAvroValues(t *testing.T) {
	t.Parallel()
	paths, want := avroPaths()
	d := decoder(t, &decode.Options{Format: "avro", Schema: testFile(t, "event.avsc")}, paths...)
	for range 2 {
		got, err := render(d, testFile(t, "event.bin"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([][]string{want}, got); diff != "" {
			t.Errorf("values (-want +got):\n%s", diff)
		}
	}
}

func TestAvroContainers(t *testing.T) {
	t.Parallel()
	paths, first := avroPaths()
	for _, codec := range []string{"null", "deflate", "snappy", "zstandard", "bzip2"} {
		d := decoder(t, &decode.Options{Format: "avro", Framing: "container"}, paths...)
		for range 2 {
			// The values are looked at when all documents are there: they stay.
			var docs [][]decode.Value
			if err := d.Decode(testFile(t, codec+".avro"), func(doc *decode.Document) error {
				var vs []decode.Value
				for i := range doc.Len() {
					vs = append(vs, doc.Value(i))
				}
				docs = append(docs, vs)
				return nil
			}); err != nil {
				t.Errorf("%s: %v", codec, err)
			}
			var got []string
			for _, v := range docs[0] {
				got = append(got, v.Kind.String()+":"+string(v.Bytes))
			}
			if diff := cmp.Diff(first, got); diff != "" || len(docs) != 3 {
				t.Errorf("%s: %d documents, the first (-want +got):\n%s", codec, len(docs), diff)
			}
			for i, doc := range docs {
				if got := string(doc[0].Bytes); got != fmt.Sprint(1<<40+i) {
					t.Errorf("%s: document %d has id %s", codec, i, got)
				}
			}
		}
	}
}

// A container unfolds to no more than is allowed, a block's claims notwithstanding.
func TestAvroContainerLimit(t *testing.T) {
	t.Parallel()
	for _, codec := range []string{"deflate", "snappy", "zstandard", "bzip2"} {
		_, err := render(decoder(t, &decode.Options{Format: "avro", Framing: "container", MaxBytes: 100}, "id"), testFile(t, codec+".avro"))
		if err == nil || !strings.Contains(err.Error(), "unfolds to more than 100 bytes") {
			t.Errorf("%s: got %v", codec, err)
		}
	}
}

func TestAvroContainerErrors(t *testing.T) {
	t.Parallel()
	good := testFile(t, "snappy.avro")
	change := func(find, with string) []byte {
		s := strings.Replace(string(good), find, with, 1)
		if s == string(good) {
			t.Fatalf("%q is not there", find)
		}
		return []byte(s)
	}
	flip := func(at int) []byte {
		b := slices.Clone(good)
		b[at] ^= 1
		return b
	}
	tests := []struct {
		name    string
		payload []byte
		want    string
	}{
		{"empty", nil, "byte 0: the payload is empty"},
		{"json", []byte("{}"), "byte 0: the payload is no object container file"},
		{"cut in the head", good[:100], "are left"},
		{"codec", change("snappy", "xz1234"), `the container's codec "xz1234"`},
		{"no schema", change("avro.schema", "avro.schemx"), "the container's schema: the schema is no JSON"},
		{"sync", flip(len(good) - 1), "the block does not end with the head's sync marker"},
		{"checksum", flip(len(good) - 17), "the block's checksum is wrong"},
		{"cut", good[:len(good)-1], "the payload ends inside a value"},
		{"no block", []byte("Obj\x01\x02\x16avro.schema\x10{\"type\":\"record\",\"name\":\"r\",\"fields\":[]}"), "byte"},
	}
	for _, tt := range tests {
		_, err := render(decoder(t, &decode.Options{Format: "avro", Framing: "container"}, "id"), tt.payload)
		var e *decode.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
	}
}

func TestAvroErrors(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"record","name":"R","fields":[{"name":"a","type":%s},{"name":"b","type":["null","R"]}]}`
	end := "\x00" // b is null
	tests := []struct{ typ, payload, want string }{
		{`"int"`, "", "byte 0: the payload is empty"},
		{`"int"`, "\x02", "byte 1: the payload ends inside an integer"},
		{`"int"`, "\x80", "byte 1: the payload ends inside an integer"},
		{`"int"`, "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", "byte 0: an integer of more than 64 bits"},
		{`"int"`, "\xfe\xff\xff\xff\x1f" + end, "byte 0: an int of 4294967295"},
		{`"int"`, "\x02\x04", "byte 1: branch 2 of a union of 2"},
		{`"int"`, "\x02\x00\x00", "byte 2: the payload goes on after its value"},
		{`"boolean"`, "\x02" + end, "byte 0: a boolean of 2"},
		{`"string"`, "\x01", "byte 0: a length of -1 bytes"},
		{`"string"`, "\x0aabc", "byte 0: a length of 5 bytes, and 3 are left"},
		{`"double"`, "\x00\x00", "byte 2: the payload ends inside a value"},
		{`{"type":"enum","name":"E","symbols":["X"]}`, "\x02" + end, "byte 0: symbol 1 of an enum of 1"},
		{`{"type":"fixed","name":"F","size":3}`, "ab", "byte 2: the payload ends inside a value"},
		{`{"type":"array","items":"null"}`, "\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "byte 10: more values than the payload has room for"},
		{`{"type":"array","items":"int"}`, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "byte 0: a block of more than 2⁶³-1 values"},
		{`{"type":"bytes","logicalType":"decimal","precision":4}`, "\x82\x40" + strings.Repeat("x", 4097) + end, "byte 2: a decimal of 4097 bytes, at most 4096"},
		{`"null"`, strings.Repeat("\x02", 1000), "byte 500: nested deeper than 1000 levels"},
	}
	for _, tt := range tests {
		for _, path := range []string{"a", "a[0]", "a.x", "c"} {
			d := decoder(t, &decode.Options{Format: "avro", Schema: fmt.Appendf(nil, schema, tt.typ)}, path, "b")
			_, err := render(d, []byte(tt.payload))
			if path != "a" && strings.Contains(tt.want, "decimal") {
				continue // what nobody wants is not looked at
			}
			if err == nil || err.Error() != tt.want {
				t.Errorf("%s, %q, field %s: got %v, want %s", tt.typ, tt.payload[:min(20, len(tt.payload))], path, err, tt.want)
			}
		}
	}
}

// A block whose values end elsewhere than its writer says is refused where it is read: who
// skips it goes on at another byte.
func TestAvroBlockSize(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ typ, block, path string }{
		{`{"type":"array","items":"int"}`, "\x03%c\x02\x02\x00", "a"},
		{`{"type":"array","items":"int"}`, "\x03%c\x02\x02\x00", "a[0]"},
		{`{"type":"map","values":"null"}`, "\x01%c\x02x\x00", "a"},
		{`{"type":"map","values":"null"}`, "\x01%c\x02x\x00", "a.x"},
	} {
		schema := fmt.Appendf(nil, `{"type":"record","name":"R","fields":[{"name":"a","type":%s}]}`, tt.typ)
		d := decoder(t, &decode.Options{Format: "avro", Schema: schema}, tt.path)
		if _, err := render(d, fmt.Appendf(nil, tt.block, 2<<1)); err != nil {
			t.Errorf("%s, field %s: %v", tt.typ, tt.path, err)
		}
		for says, ends := range map[int]int{1: 3, 3: 5} {
			want := fmt.Sprintf("byte 0: a block of which the writer says that it ends at byte %d, and its values end at byte 4", ends)
			if _, err := render(d, fmt.Appendf(nil, tt.block, says<<1)); err == nil || err.Error() != want {
				t.Errorf("%s, field %s, a size of %d: got %v, want %s", tt.typ, tt.path, says, err, want)
			}
		}
	}
}

func TestAvroSchemas(t *testing.T) {
	t.Parallel()
	tests := []struct{ schema, want string }{
		{`{`, "the schema is no JSON: unexpected end of JSON input"},
		{`"string"`, "the schema is no record and no map, nor a union with one"},
		{`["null","int"]`, "the schema is no record and no map, nor a union with one"},
		{`[]`, "a union of nothing"},
		{`["null",["int"]]`, "branch 1: a union inside a union"},
		{`{"type":"record"}`, "the record has no name"},
		{`{"type":"record","name":"R"}`, "record R has no fields"},
		{`{"type":"record","name":"R","fields":[{}]}`, "field 0 of record R has no name"},
		{`{"type":"record","name":"R","fields":[{"name":"a"}]}`, "field a of record R: neither a name nor an object nor a list"},
		{`{"type":"record","name":"a.R","fields":[{"name":"x","type":"S"}]}`, `field x of record a.R: no type "S"`},
		{`{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}`, `record R has two fields "a"`},
		{`{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"fixed","name":"F"}}]}`, "field a of record R: fixed F has no size of 0..1073741824 bytes"},
		{`{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"enum","name":"E","symbols":[]}}]}`, "field a of record R: enum E has no symbols"},
		{`{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"enum","name":"R","symbols":["x"]}}]}`, `field a of record R: type "R" is declared twice`},
		{`{"type":"array","items":3}`, "items: neither a name nor an object nor a list"},
		{strings.Repeat("[", 2000) + strings.Repeat("]", 2000), "the schema nests deeper than 1000 levels"},
	}
	for _, tt := range tests {
		err := (&decode.Options{Format: "avro", Schema: []byte(tt.schema)}).Validate()
		var mistake *decode.OptionError
		if !errors.As(err, &mistake) || mistake.Option != "schema_file" || !strings.HasSuffix(mistake.Reason, tt.want) {
			t.Errorf("%.80s: got %v, want %s", tt.schema, err, tt.want)
		}
	}
	for _, schema := range []string{
		`{"type":"map","values":"int"}`, // a document of any fields
		`["null",{"type":"record","name":"R","fields":[]}]`,
		`{"type":{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":"R"},{"name":"b","type":".n.R"}]}}`,
		`{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"bytes","logicalType":"decimal","precision":2,"scale":3}}]}`, // no decimal
		// as Avro's Java writes a type without a namespace that is named again
		`{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":{"type":"enum","name":"E","namespace":"","symbols":["x"]}},{"name":"b","type":["null","E"]}]}`,
	} {
		if err := (&decode.Options{Format: "avro", Schema: []byte(schema)}).Validate(); err != nil {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

// Of a union at the root each record counts; a map's fields are its keys, the last
// of one name.
func TestAvroRoots(t *testing.T) {
	t.Parallel()
	const records = `["null",{"type":"record","name":"A","fields":[{"name":"x","type":"string"}]},{"type":"record","name":"B","fields":[{"name":"y","type":"int"},{"name":"x","type":"int"}]}]`
	d := decoder(t, &decode.Options{Format: "avro", Schema: []byte(records)}, "x")
	for payload, want := range map[string]string{"\x02\x02u": "string:u", "\x04\x02\x06": "number:3"} {
		if got, err := render(d, []byte(payload)); err != nil || got[0][0] != want {
			t.Errorf("%q: got %v, %v, want %s", payload, got, err, want)
		}
	}
	if _, err := render(d, []byte("\x00")); err == nil || err.Error() != "byte 0: the value is no record and no map" {
		t.Errorf("null: got %v", err)
	}
	m := decoder(t, &decode.Options{Format: "avro", Schema: []byte(`{"type":"map","values":["int",{"type":"map","values":"int"}]}`)}, "a", "a.b")
	// a: {b: 1}, then a: 2 in a block with its size
	got, err := render(m, []byte("\x02\x02a\x02\x02\x02b\x02\x00\x01\x08\x02a\x00\x04\x00"))
	if diff := cmp.Diff([][]string{{"number:2", "missing:"}}, got); diff != "" || err != nil {
		t.Errorf("a map: %v (-want +got):\n%s", err, diff)
	}
}

// schemas is a registry in memory.
type schemas struct {
	known   map[int]*decode.Schema
	fetched map[int]bool
	err     error
}

func (s *schemas) Schema(id int) (*decode.Schema, error) {
	switch {
	case !s.fetched[id]:
		return nil, nil
	case s.known[id] == nil:
		return nil, fmt.Errorf("there is no schema %d", id)
	}
	return s.known[id], nil
}

func (s *schemas) Fetch(_ context.Context, id int) error {
	if s.err == nil {
		s.fetched[id] = true
	}
	return s.err
}

// framedBy puts Confluent's framing before b.
func framedBy(id uint32, b []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, id), b...)
}

func TestConfluentAvro(t *testing.T) {
	t.Parallel()
	r := &schemas{fetched: map[int]bool{}, known: map[int]*decode.Schema{
		1: {ID: 1, Type: decode.SchemaAvro, Text: testFile(t, "event.avsc")},
		2: {
			ID: 2, Type: decode.SchemaAvro, Text: []byte(`{"type":"record","name":"R","namespace":"n","fields":[{"name":"user","type":"U"}]}`),
			References: []decode.Reference{{Name: "n.S", Text: []byte(`{"type":"fixed","name":"n.S","size":2}`)}, {Name: "n.U", Text: []byte(`{"type":"record","name":"n.U","fields":[{"name":"name","type":"S"}]}`)}},
		},
		3: {ID: 3, Type: decode.SchemaJSON, Text: []byte(`{}`)},
		4: {ID: 4, Type: decode.SchemaAvro, Text: []byte(`"int"`)},
		6: { // U has no namespace, as schemas by hand often have none
			ID: 6, Type: decode.SchemaAvro, Text: []byte(`{"type":"record","name":"n.R","fields":[{"name":"user","type":"U"}]}`),
			References: []decode.Reference{{Name: "U", Text: []byte(`{"type":"record","name":"U","fields":[{"name":"name","type":"string"}]}`)}},
		},
	}}
	d := decoder(t, &decode.Options{Format: "avro", Framing: "confluent", Schemas: r}, "user", "user.name")
	fetching := func(payload []byte) ([][]string, error) {
		for {
			got, err := render(d, payload)
			var pending *decode.Pending
			if !errors.As(err, &pending) {
				return got, err
			}
			if err := pending.Fetch(t.Context()); err != nil {
				return nil, err
			}
		}
	}
	if _, err := render(d, framedBy(1, nil)); err == nil || err.Error() != "schema 1 has to be fetched" {
		t.Errorf("the first of a schema: got %v", err)
	}
	for range 2 {
		for _, tt := range []struct {
			payload []byte
			want    []string
			err     string
		}{
			{framedBy(1, testFile(t, "event.bin")), []string{"string:anné", "missing:"}, ""},
			{framedBy(2, []byte("ab")), []string{`object:{"name":"YWI="}`, "string:ab"}, ""},
			{framedBy(2, []byte("a")), nil, "byte 6: the payload ends inside a value"},
			{framedBy(6, []byte("\x04ab")), []string{`object:{"name":"ab"}`, "string:ab"}, ""},
			{framedBy(3, nil), nil, "byte 1: schema 3 is of type JSON, not AVRO"},
			{framedBy(4, nil), nil, "byte 1: schema 4: the schema is no record and no map, nor a union with one"},
			{framedBy(5, nil), nil, "byte 1: there is no schema 5"},
			{framedBy(1<<31-1, nil), nil, "byte 1: there is no schema 2147483647"},
			{nil, nil, "byte 0: the payload is empty"},
			{[]byte("{}"), nil, "byte 0: the payload begins with 0x7b, not with the 0 before a schema's id"},
			{[]byte("\x00\x00\x00"), nil, "byte 0: the payload ends inside the schema's id"},
		} {
			got, err := fetching(tt.payload)
			if tt.err != "" {
				var e *decode.Error
				if !errors.As(err, &e) || err.Error() != tt.err {
					t.Errorf("%q: got %v, want %s", tt.payload, err, tt.err)
				}
			} else if diff := cmp.Diff([][]string{tt.want}, got); diff != "" || err != nil {
				t.Errorf("%q: %v (-want +got):\n%s", tt.payload, err, diff)
			}
		}
	}
	r.err = decode.ErrUnavailable
	if _, err := fetching(framedBy(9, nil)); !errors.Is(err, decode.ErrUnavailable) {
		t.Errorf("an outage: got %v", err)
	}
	// What is no id of any registry is not asked for: Confluent's answers it as a wrong
	// address, which would be an outage without an end.
	for _, id := range []uint32{1 << 31, 1<<32 - 1} {
		want := fmt.Sprintf("byte 1: schema %d, and the ids of registries end at 2147483647", id)
		var e *decode.Error
		if _, err := fetching(framedBy(id, nil)); !errors.As(err, &e) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	f, err := decode.NewFields(nil)
	if err != nil {
		t.Fatal(err)
	}
	o := &decode.Options{Format: "avro", Framing: "confluent"}
	if _, err := decode.New(o, f); err == nil || o.Check(f) != nil {
		t.Errorf("without a registry: got %v and %v", err, o.Check(f))
	}
}

func TestConfluentJSON(t *testing.T) {
	t.Parallel()
	runFormat(t, decoder(t, &decode.Options{Format: "json", Framing: "confluent"}, "a"), "json", []formatTest{
		{"\x00\x00\x00\x00\x07{\"a\":1}", [][]string{{"number:1"}}, ""},
		{"\x00\x00\x00\x00\x07{\"a\":1", nil, "byte 11: the text ends, expected a comma or }"},
		{"\x00\x00\x00\x00\x07", nil, "byte 5: the payload is empty"},
		{"{}", nil, "byte 0: the payload begins with 0x7b, not with the 0 before a schema's id"},
	})
}

// avroFuzzSchema has every way to nest and every value that takes no bytes.
const avroFuzzSchema = `{"type":"record","name":"R","fields":[
 {"name":"m","type":{"type":"map","values":["null","R","long","double",{"type":"array","items":["null","string","bytes","R"]}]}},
 {"name":"n","type":{"type":"array","items":"null"}},
 {"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":3}},
 {"name":"u","type":["null","float",{"type":"fixed","name":"U","size":16,"logicalType":"uuid"},{"type":"enum","name":"E","symbols":["A","B"]},{"type":"long","logicalType":"timestamp-micros"}]}]}`

// What a path leads to is what encoding/json finds in the JSON of the object that
// it is in; no payload makes the decoder panic or take long.
func FuzzAvro(f *testing.F) {
	paths := []string{"m", "m.a", "m.a.m.b", "m.a.u", "m.a.d", "m.a.n[1]", "m.b[0]", "m.b[1]", "n", "n[0]", "u", "d"}
	for _, s := range []string{
		"\x00\x00\x00\x00", "\x02\x02a\x02\x00\x00\x02\x05\x02\x00\x00\x00\x00\x00\x00", "\x04\x02a\x04\x08\x02b\x08\x04\x00\x02\x02x\x00\x00\x06\x00\x02\x00\x00",
		"\x00\x00\x04\xff\x00\x04aaaabbbbccccdddd", "\x00\x01\x00\x00\x00", "\x00\x00\x00\x08\x02", "\x00\x00\x00\x02\x00\x00\xc0\x7f",
	} {
		f.Add([]byte(s))
	}
	d := decoder(f, &decode.Options{Format: "avro", Schema: []byte(avroFuzzSchema)}, paths...)
	skipping := decoder(f, &decode.Options{Format: "avro", Schema: []byte(avroFuzzSchema)}, "nothing")
	f.Fuzz(func(t *testing.T, payload []byte) {
		got, err := render(d, payload)
		again, againErr := render(d, payload)
		if diff := cmp.Diff(got, again); diff != "" || fmt.Sprint(err) != fmt.Sprint(againErr) {
			t.Errorf("the second time: %v, then %v\n%s", err, againErr, diff)
		}
		// What is not wanted is not read in the whole.
		if _, skipErr := render(skipping, payload); err == nil && skipErr != nil {
			t.Errorf("got no error, and %v where no field is wanted", skipErr)
		}
		if err != nil {
			var e *decode.Error
			if !errors.As(err, &e) || e.Position < 0 || e.Position > len(payload) {
				t.Errorf("%#v of %d bytes", err, len(payload))
			}
			return
		}
		checkNested(t, paths, got[0])
	})
}

// checkNested compares what paths lead to with the JSON of the roots among them;
// bytes and fractions of time are apart, and texts are compared as such.
func checkNested(t *testing.T, paths, values []string) {
	t.Helper()
	roots := map[string]any{}
	for i, path := range paths {
		kind, text, _ := strings.Cut(values[i], ":")
		if strings.ContainsAny(path, ".[") || kind != "object" && kind != "array" {
			continue
		}
		v, err := parseAny([]byte(text))
		if err != nil {
			t.Fatalf("%s is %s: %v", path, text, err)
		}
		roots[path] = v
	}
	for i, path := range paths {
		if !strings.ContainsAny(path, ".[") {
			continue
		}
		kind, text, _ := strings.Cut(values[i], ":")
		want, ok := lookup(roots, path)
		if !ok {
			if kind != "missing" {
				t.Errorf("%s is %s, want it missing", path, values[i])
			}
			continue
		}
		var got any
		switch kind {
		case "missing":
			t.Errorf("%s is missing, want %v", path, want)
			continue
		case "string":
			if s, _ := want.(string); s == text {
				continue
			}
			quoted, err := json.Marshal([]byte(text)) // bytes
			if err != nil {
				t.Fatal(err)
			}
			if s, _ := want.(string); string(quoted) != `"`+s+`"` {
				t.Errorf("%s is %q, want %v", path, text, want)
			}
			continue
		case "null":
		default:
			var err error
			if got, err = parseAny([]byte(text)); err != nil {
				t.Fatalf("%s is %s: %v", path, text, err)
			}
		}
		if !reflect.DeepEqual(want, got) {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
}

func FuzzAvroContainer(f *testing.F) {
	for _, codec := range []string{"null", "deflate", "snappy", "zstandard", "bzip2"} {
		f.Add(testFile(f, codec+".avro"))
	}
	d := decoder(f, &decode.Options{Format: "avro", Framing: "container", MaxBytes: 1 << 16}, "id", "labels.s", "geo", "tree.next.v")
	f.Fuzz(func(t *testing.T, payload []byte) {
		got, err := render(d, payload)
		again, againErr := render(d, payload)
		if diff := cmp.Diff(got, again); diff != "" || fmt.Sprint(err) != fmt.Sprint(againErr) {
			t.Errorf("the second time: %v, then %v\n%s", err, againErr, diff)
		}
		var e *decode.Error
		if err != nil && !errors.As(err, &e) {
			t.Errorf("%#v", err)
		}
	})
}

// avroPageView is the page view of the goals in the reference as Avro.
const avroPageView = `{"type":"record","name":"View","fields":[{"name":"ts","type":{"type":"long","logicalType":"timestamp-millis"}},{"name":"user","type":"string"},{"name":"page","type":"string"},
 {"name":"country","type":"string"},{"name":"referrer","type":["null","string"]},{"name":"agent","type":"string"},{"name":"duration_ms","type":"int"}]}`

func avroEvent() []byte {
	b := binary.AppendVarint(nil, 1715000000123)
	for i, s := range []string{"user-0012345", "/products/item-00421", "DE", "https://www.example.com/search?q=item", "Mozilla/5.0 (X11; Linux x86_64)"} {
		if i == 3 {
			b = append(b, 2)
		}
		b = append(binary.AppendVarint(b, int64(len(s))), s...)
	}
	return binary.AppendVarint(b, 5321)
}

func TestAvroAllocates(t *testing.T) {
	d := decoder(t, &decode.Options{Format: "avro", Schema: []byte(avroPageView)}, "user", "page", "country", "referrer", "agent", "duration_ms", "ts")
	payload := avroEvent()
	emit := func(*decode.Document) error { return nil }
	if n := testing.AllocsPerRun(100, func() {
		if err := d.Decode(payload, emit); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("got %v allocations a document, want 0", n)
	}
}

func BenchmarkAvro(b *testing.B) {
	payload := avroEvent()
	d := decoder(b, &decode.Options{Format: "avro", Schema: []byte(avroPageView)}, "user", "page", "country", "referrer", "agent", "duration_ms", "ts")
	emit := func(*decode.Document) error { return nil }
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Decode(payload, emit); err != nil {
			b.Fatal(err)
		}
	}
}

// A container brings its schema along, which is held until one with another comes: that of
// one payload must not be hundreds of megabytes.
func TestAvroSchemaIsBounded(t *testing.T) {
	with := func(branches int) []byte {
		schema := `{"type":"record","name":"r","fields":[{"name":"payload","type":["bytes"` + strings.Repeat(`,"int"`, branches) + `]}]}`
		b := binary.AppendVarint([]byte("Obj\x01\x02\x16avro.schema"), int64(len(schema)))
		b = append(append(b, schema...), "\x00ssssssssssssssss\x02\x06\x00\x02xssssssssssssssss"...)
		return b
	}
	for branches, want := range map[int]string{600_000: "the container's schema: it has more than 131072 values", 100_000: ""} {
		d := decoder(t, &decode.Options{Format: "avro", Framing: "container"}, "payload")
		before := heap()
		got, err := render(d, with(branches))
		held := heap() - before
		runtime.KeepAlive(d)
		switch {
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("Got %v for a schema of %d branches, want %s", err, branches, want)
		case want == "" && (err != nil || got[0][0] != "string:x"):
			t.Errorf("Got %v, %v for a schema of %d branches", got, err, branches)
		}
		if held > 32<<20 {
			t.Errorf("Got %d bytes held for a schema of %d branches", held, branches)
		}
		t.Logf("%d bytes held for %d branches", held, branches)
	}
}
