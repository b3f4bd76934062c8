package decode_test

import (
	"runtime"
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
