package iceberg

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// avroRead reads an object container file by the schema that it has, as the specification
// says: records are maps, null is nil.
func avroRead(t *testing.T, data []byte) (metadata map[string]string, records []map[string]any) {
	t.Helper()
	r := &avroReader{t: t, Reader: bytes.NewReader(data)}
	if magic := string(r.take(4)); magic != "Obj\x01" {
		t.Fatalf("it begins with %q", magic)
	}
	metadata = map[string]string{}
	for n := r.long(); n != 0; n = r.long() {
		for range n {
			key := string(r.take(r.long()))
			metadata[key] = string(r.take(r.long()))
		}
	}
	sync := r.take(16)
	var schema any
	if err := json.Unmarshal([]byte(metadata["avro.schema"]), &schema); err != nil {
		t.Fatalf("%v: %s", err, metadata["avro.schema"])
	}
	for r.Len() > 0 {
		n := r.long()
		block, err := io.ReadAll(flate.NewReader(bytes.NewReader(r.take(r.long()))))
		if err != nil {
			t.Fatal(err)
		}
		b := &avroReader{t: t, Reader: bytes.NewReader(block)}
		for range n {
			records = append(records, b.value(schema).(map[string]any))
		}
		if b.Len() > 0 {
			t.Fatalf("a block has %d bytes more than its %d records", b.Len(), n)
		}
		if !bytes.Equal(r.take(16), sync) {
			t.Fatal("a block ends without the mark")
		}
	}
	return metadata, records
}

type avroReader struct {
	t *testing.T
	*bytes.Reader
}

func (r *avroReader) long() int64 {
	n, err := binary.ReadVarint(r)
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

func (r *avroReader) take(n int64) []byte {
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		r.t.Fatal(err)
	}
	return b
}

func (r *avroReader) value(schema any) any {
	switch s := schema.(type) {
	case []any:
		return r.value(s[r.long()])
	case map[string]any:
		switch s["type"] {
		case "record":
			record := map[string]any{}
			for _, f := range s["fields"].([]any) {
				field := f.(map[string]any)
				if _, ok := field["field-id"].(float64); !ok {
					r.t.Fatalf("%v has no id", field["name"])
				}
				record[field["name"].(string)] = r.value(field["type"])
			}
			return record
		case "array":
			list := []any{}
			for n := r.long(); n != 0; n = r.long() {
				for range n {
					list = append(list, r.value(s["items"]))
				}
			}
			return list
		}
		r.t.Fatalf("a schema of type %v", s["type"])
	case string:
		switch s {
		case "null":
			return nil
		case "int", "long":
			return r.long()
		case "string":
			return string(r.take(r.long()))
		case "bytes":
			return r.take(r.long())
		case "boolean":
			return r.take(1)[0] == 1
		}
	}
	r.t.Fatalf("schema %v", schema)
	return nil
}

// TestAvroFile: values of every kind come back, over several blocks.
func TestAvroFile(t *testing.T) {
	const schema = `{"type":"record","name":"r","fields":[{"name":"n","type":"long","field-id":1},` +
		`{"name":"s","type":["null","string"],"field-id":2},{"name":"l","type":["null","long"],"field-id":3},{"name":"b","type":["null","boolean"],"field-id":4}]}`
	f := newAvroFile(schema, map[string]string{"k": "v", "": "empty"})
	var want []map[string]any
	for i, n := range []int64{0, -1, 1, 63, -64, 64, math.MaxInt64, math.MinInt64} {
		long := strings.Repeat("ä", i*5_000)
		f.block.long(n)
		f.block.optional(long)
		f.block.optional(nil)
		f.block.optional(i%2 == 0)
		if err := f.added(); err != nil {
			t.Fatal(err)
		}
		f.block.long(-n)
		f.block.optional(nil)
		f.block.optional(n)
		f.block.optional(nil)
		if err := f.added(); err != nil {
			t.Fatal(err)
		}
		want = append(want, map[string]any{"n": n, "s": long, "l": nil, "b": i%2 == 0}, map[string]any{"n": -n, "s": nil, "l": n, "b": nil})
	}
	data, err := f.close()
	if err != nil {
		t.Fatal(err)
	}
	metadata, got := avroRead(t, data)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]string{"k": "v", "": "empty", "avro.codec": "deflate", "avro.schema": schema}, metadata); d != "" {
		t.Error(d)
	}
}

// TestAvroFileEmpty: a file without records is one.
func TestAvroFileEmpty(t *testing.T) {
	data, err := newAvroFile(listSchema, nil).close()
	if err != nil {
		t.Fatal(err)
	}
	if _, records := avroRead(t, data); records != nil {
		t.Errorf("Got %v", records)
	}
}

func TestAvroName(t *testing.T) {
	for name, want := range map[string]string{"day": "day", "Day_2": "Day_2", "2day": "_2day", "a-b": "a_x2Db", "-": "_x2D"} {
		if got := avroName(name); got != want {
			t.Errorf("avroName(%q) = %q, want %q", name, got, want)
		}
	}
}

// ExampleCheckLocation shows which places readers cannot be sent to.
func ExampleCheckLocation() {
	fmt.Println(CheckLocation("s3://lake/sluice/pageviews"))
	fmt.Println(CheckLocation("file:///srv/why?/pageviews"))
	// Output:
	// <nil>
	// iceberg: the location file:///srv/why?/pageviews has '?', which readers take for more than itself: write to another directory
}
