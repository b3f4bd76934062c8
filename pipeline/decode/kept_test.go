package decode_test

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	"sluice/pipeline/decode"
)

// escapedFormats are the formats whose texts may have to be made, each with a payload of
// texts of x with an escape at the end, and a payload without.
var escapedFormats = map[string]struct {
	o       *decode.Options
	payload func(texts, size int) string
	small   string
}{
	"csv": {&decode.Options{Format: "csv", Columns: []string{"a"}}, func(texts, size int) string {
		return strings.Repeat(`"`+strings.Repeat("x", size)+`"""`+"\n", texts)
	}, "a"},
	"tsv": {&decode.Options{Format: "tsv", Columns: []string{"a"}}, func(texts, size int) string {
		return strings.Repeat(strings.Repeat("x", size)+`\t`+"\n", texts)
	}, "a"},
	"json": {&decode.Options{Format: "json"}, func(texts, size int) string {
		return `{"a":"` + strings.Repeat("x", texts*size) + `\n"}` // it has one text of a name
	}, "{}"},
	"ndjson": {&decode.Options{Format: "ndjson"}, func(texts, size int) string {
		return strings.Repeat(`{"a":"`+strings.Repeat("x", size)+`\n"}`+"\n", texts)
	}, "{}"},
	"logfmt": {&decode.Options{Format: "logfmt"}, func(texts, size int) string {
		return `a="` + strings.Repeat("x", texts*size) + `\n"`
	}, "a"},
}

// Memory that one large payload took is let go of with the next one, in every format.
func TestLargePayloadsAreLetGo(t *testing.T) {
	for name, tt := range escapedFormats {
		t.Run(name, func(t *testing.T) {
			d := decoder(t, tt.o, "a")
			var took weak.Pointer[byte]
			large := func(doc *decode.Document) error {
				took = weak.Make(&doc.Value(0).Bytes[0])
				return nil
			}
			if err := d.Decode([]byte(tt.payload(1, 5<<20)), large); err != nil {
				t.Fatal(err)
			}
			if err := d.Decode([]byte(tt.small), func(*decode.Document) error { return nil }); err != nil {
				t.Fatal(err)
			}
			runtime.GC()
			if took.Value() != nil {
				t.Error("Got what a large payload took held on to after the next one")
			}
			runtime.KeepAlive(d)
		})
	}
}

// The texts that are made of one payload, all of which are in use until the next one, are
// in memory once.
func TestTextsAreMadeOnce(t *testing.T) {
	for name, tt := range escapedFormats {
		t.Run(name, func(t *testing.T) {
			const texts, size = 600, 5000
			payload := []byte(tt.payload(texts, size))
			d := decoder(t, tt.o, "a")
			all := make([][]byte, 0, texts)
			before := heap()
			if err := d.Decode(payload, func(doc *decode.Document) error {
				all = append(all, doc.Value(0).Bytes)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			made := 0
			for _, text := range all {
				if n := len(text) - 1; n%size != 0 || strings.Trim(string(text[:n]), "x") != "" || strings.Contains(`x\`, string(text[n:])) {
					t.Fatalf("Got a text of %d bytes that ends with %q", len(text), text[max(0, n-3):])
				}
				made += len(text)
			}
			if held := heap() - before; made < texts*size || held > 2*int64(made) {
				t.Errorf("Got %d bytes held for %d that were made", held, made)
			}
			runtime.KeepAlive(all)
			runtime.KeepAlive(payload)
		})
	}
}

// So are the objects that are made of one payload of the formats that have no texts for them,
// in one document or in many.
func TestObjectsAreMadeOnce(t *testing.T) {
	const objects, size = 120, 50_000
	value := strings.Repeat("x", size)
	var paths []string
	schema, message, record := `{"type":"record","name":"r","fields":[`, []byte{}, []byte{}
	for k := range objects {
		if k > 0 {
			schema += ","
		}
		of := `"o"`
		if k == 0 {
			of = `{"type":"record","name":"o","fields":[{"name":"country","type":"string"}]}`
		}
		schema += fmt.Sprintf(`{"name":"places%d","type":%s}`, k, of)
		record = append(binary.AppendVarint(record, size), value...)
		message = append(message, pb(13, pb(1, k, 2, pb(1, value)))...)
		paths = append(paths, fmt.Sprintf("places.%d", k))
	}
	for name, tt := range map[string]struct {
		o       *decode.Options
		payload []byte
		paths   []string
	}{
		"avro":      {&decode.Options{Format: "avro", Schema: []byte(schema + "]}")}, record, strings.Split(strings.ReplaceAll(strings.Join(paths, " "), "places.", "places"), " ")},
		"container": {&decode.Options{Format: "avro", Framing: "container"}, objectContainer(objects, value), []string{"a"}},
		"protobuf":  {protobufOptions(t, "shop.v1.Event"), message, paths},
	} {
		t.Run(name, func(t *testing.T) {
			d := decoder(t, tt.o, tt.paths...)
			var all [][]byte
			before := heap()
			if err := d.Decode(tt.payload, func(doc *decode.Document) error {
				for i := range doc.Len() {
					all = append(all, doc.Value(i).Bytes)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			made := 0
			for _, text := range all {
				if !strings.HasPrefix(string(text), `{"country":"`+value+`"`) { // and lists without elements
					t.Fatalf("Got an object of %d bytes", len(text))
				}
				made += len(text)
			}
			if held := heap() - before; len(all) != objects || held > 2*int64(made) {
				t.Errorf("Got %d bytes held for %d that were made, of %d objects", held, made, len(all))
			}
			runtime.KeepAlive(all)
			runtime.KeepAlive(tt.payload)
			runtime.KeepAlive(d)
		})
	}
}

// objectContainer returns a container of so many documents {a: {country: value}}.
func objectContainer(n int, value string) []byte {
	text := func(out []byte, s string) []byte { return append(binary.AppendVarint(out, int64(len(s))), s...) }
	sync := strings.Repeat("s", 16)
	out := binary.AppendVarint([]byte("Obj\x01"), 1)
	out = text(text(out, "avro.schema"), `{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"record","name":"o","fields":[{"name":"country","type":"string"}]}}]}`)
	out = append(append(out, 0), sync...)
	var block []byte
	for range n {
		block = text(block, value)
	}
	return append(text(binary.AppendVarint(out, int64(n)), string(block)), sync...)
}

// A decoder that forgets refers to no byte of the payload.
func TestForget(t *testing.T) {
	for name, tt := range map[string]struct {
		o       *decode.Options
		payload []byte
		path    string
	}{
		"avro":     {&decode.Options{Format: "avro", Schema: testFile(t, "event.avsc")}, testFile(t, "event.bin"), "user"},
		"protobuf": {&decode.Options{Format: "protobuf", Schema: protoFile(t, "event.binpb"), Message: "shop.v1.Event"}, protoFile(t, "event.bin"), "user_name"},
	} {
		t.Run(name, func(t *testing.T) {
			d := decoder(t, tt.o, tt.path)
			f, ok := d.(decode.Forgetter)
			if !ok {
				t.Fatalf("%T is no Forgetter", d)
			}
			for range 2 {
				slab := func() weak.Pointer[byte] {
					slab := append(slices.Clone(tt.payload), make([]byte, 1<<20)...)
					had := ""
					if err := d.Decode(slab[:len(tt.payload)], func(doc *decode.Document) error {
						had = string(doc.Value(0).Bytes)
						return nil
					}); err != nil {
						t.Fatal(err)
					}
					if had == "" {
						t.Fatalf("Got no %s", tt.path)
					}
					f.Forget()
					return weak.Make(&slab[0])
				}()
				runtime.GC()
				if slab.Value() != nil {
					t.Error("Got the memory of a payload held on to")
				}
			}
			runtime.KeepAlive(d)
		})
	}
}
