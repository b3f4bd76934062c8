package decode_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/decode"
)

// newDecoder returns a decoder of format for paths.
func newDecoder(t testing.TB, format string, paths ...string) decode.Decoder {
	t.Helper()
	f, err := decode.NewFields(paths)
	if err != nil {
		t.Fatal(err)
	}
	d, err := decode.New(&decode.Options{Format: format}, f)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// render decodes payload and prints each document's values as kind:bytes.
func render(d decode.Decoder, payload []byte) (docs [][]string, err error) {
	err = d.Decode(payload, func(doc *decode.Document) error {
		var vs []string
		for i := range doc.Len() {
			v := doc.Value(i)
			vs = append(vs, v.Kind.String()+":"+string(v.Bytes))
		}
		docs = append(docs, vs)
		return nil
	})
	return docs, err
}

func TestJSONValues(t *testing.T) {
	t.Parallel()
	paths := []string{"user", "geo.country", "tags[1]", "geo", `labels["a.b"]`, "deep[0].x[1]"}
	tests := []struct {
		name, payload string
		want          []string
	}{
		{"none", `{}`, []string{"missing:", "missing:", "missing:", "missing:", "missing:", "missing:"}},
		{
			"all", ` { "user" : "u1", "geo":{"country":"DE","x":[1,{}]}, "tags":["a", 2.50 ,true], "labels":{"a.b":null}, "deep":[{"x":[[],{"k":1}]}] } `,
			[]string{"string:u1", "string:DE", "number:2.50", `object:{"country":"DE","x":[1,{}]}`, "null:", `object:{"k":1}`},
		},
		{
			"escapes", `{"us\u0065r":"a\"b\\\/\b\f\n\r\t\u00e9\ud83d\ude00\ud83dx\ude00\ud83d\u0041"}`,
			[]string{"string:a\"b\\/\b\f\n\r\té😀\uFFFDx\uFFFD\uFFFDA", "missing:", "missing:", "missing:", "missing:", "missing:"},
		},
		{
			"last wins", `{"user":1,"geo":{"country":"DE"},"user":false,"geo":{"city":"x"}}`,
			[]string{"bool:false", "missing:", "missing:", `object:{"city":"x"}`, "missing:", "missing:"},
		},
		{
			"other shapes", `{"user":{"a":1},"geo":"flat","tags":{"1":2},"deep":[[]],"labels":[]}`,
			[]string{`object:{"a":1}`, "missing:", "missing:", "string:flat", "missing:", "missing:"},
		},
		{
			"invalid UTF-8", "{\"user\":\"a\xffb\xc3\"}",
			[]string{"string:a\uFFFDb\uFFFD", "missing:", "missing:", "missing:", "missing:", "missing:"},
		},
		{
			"a string that ends in an escaped backslash", `{"x":"\\","user":"\\"}`,
			[]string{`string:\`, "missing:", "missing:", "missing:", "missing:", "missing:"},
		},
	}
	d := newDecoder(t, "json", paths...)
	for _, tt := range tests {
		got, err := render(d, []byte(tt.payload))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if diff := cmp.Diff([][]string{tt.want}, got); diff != "" {
			t.Errorf("%s: values (-want +got):\n%s", tt.name, diff)
		}
	}
}

// A line of nginx's log_format with escape=json, as it writes one.
func TestNginxJSON(t *testing.T) {
	t.Parallel()
	d := newDecoder(t, "json", "remote_addr", "request", "status", "request_time", "http_referer", "upstream")
	got, err := render(d, []byte(`{"remote_addr":"203.0.113.9","request":"GET /?q=\"a\"\u0001 HTTP/1.1","status":200,"request_time":0.003,"http_referer":"","http_user_agent":"caf\\xE9 é"}`+"\n"))
	want := [][]string{{"string:203.0.113.9", "string:GET /?q=\"a\"\x01 HTTP/1.1", "number:200", "number:0.003", "string:", "missing:"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestJSONErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		format, payload string
		at              int
		reason          string
	}{
		{"json", ``, 0, "the payload is empty"},
		{"json", `  `, 2, "the payload is empty"},
		{"json", `[1]`, 0, "unexpected '[', expected an object"},
		{"json", `{"a":1`, 6, "the text ends, expected a comma or }"},
		{"json", `{"a":1,}`, 7, "unexpected '}', expected a member name"},
		{"json", `{"a" 1}`, 5, "unexpected '1', expected a colon"},
		{"json", `{"a":01}`, 6, "unexpected '1', expected a comma or }"},
		{"json", `{"a":-}`, 6, "unexpected '}', expected a digit"},
		{"json", `{"a":1.}`, 7, "unexpected '}', expected a digit"},
		{"json", `{"a":tru}`, 8, "unexpected '}', expected true"},
		{"json", `{"a":"\x"}`, 7, "unexpected 'x', expected an escape"},
		{"json", `{"a":"\u12g4"}`, 10, "unexpected 'g', expected a hexadecimal digit"},
		{"json", "{\"a\":\"tab\there and more\"}", 9, "control character in a string"},
		{"json", `{"a":"open`, 10, "the text ends inside a string"},
		{"json", `{"b":[1,{"c":[]}}`, 16, "unexpected '}', expected a comma or ]"},
		{"json", `{} {}`, 3, "unexpected '{', expected the end of the document"},
		{"ndjson", "{}\n\n{]\n", 5, "unexpected ']', expected a member name"},
		{"ndjson", " \n\n", 0, "the payload holds no document"},
	}
	for _, tt := range tests {
		_, err := render(newDecoder(t, tt.format, "a"), []byte(tt.payload))
		var e *decode.Error
		if !errors.As(err, &e) {
			t.Errorf("%s %q: got %v, want an *Error", tt.format, tt.payload, err)
			continue
		}
		want := &decode.Error{Format: tt.format, Position: tt.at, Reason: tt.reason}
		if diff := cmp.Diff(want, e); diff != "" {
			t.Errorf("%s %q: error (-want +got):\n%s", tt.format, tt.payload, diff)
		}
	}
}

func TestNDJSON(t *testing.T) {
	t.Parallel()
	d := newDecoder(t, "ndjson", "a", "b")
	got, err := render(d, []byte("{\"a\":1}\r\n\n{\"b\":\"x\\ny\"}\n{\"a\":null,\"b\":[]}"))
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"number:1", "missing:"}, {"missing:", "string:x\ny"}, {"null:", "array:[]"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("documents (-want +got):\n%s", diff)
	}
}

// Values of earlier documents of a payload stay until the next Decode.
func TestNDJSONValuesOutliveTheirDocument(t *testing.T) {
	t.Parallel()
	var payload bytes.Buffer
	const n = 500
	for i := range n {
		payload.WriteString(`{"a":"\u00e9` + strconv.Itoa(i) + "\"}\n")
	}
	d := newDecoder(t, "ndjson", "a")
	for range 2 {
		var got [][]byte
		if err := d.Decode(payload.Bytes(), func(doc *decode.Document) error {
			got = append(got, doc.Value(0).Bytes)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if want := "é" + strconv.Itoa(i); string(got[i]) != want {
				t.Fatalf("document %d: got %q, want %q", i, got[i], want)
			}
		}
	}
}

func TestDepth(t *testing.T) {
	t.Parallel()
	d := newDecoder(t, "json", "b")
	for _, tt := range []struct {
		depth int
		ok    bool
	}{{9999, true}, {10000, false}} { // inside the outer object
		for _, pair := range []string{"[]", "{}"} {
			payload := `{"a":` + strings.Repeat(map[string]string{"[]": "[", "{}": `{"k":`}[pair], tt.depth) + "1" + strings.Repeat(pair[1:], tt.depth) + "}"
			_, err := render(d, []byte(payload))
			if (err == nil) != tt.ok || json.Valid([]byte(payload)) != tt.ok {
				t.Errorf("depth %d of %s: got %v, want ok=%v as encoding/json", tt.depth, pair, err, tt.ok)
			}
		}
	}
}

// emit's error comes back unchanged and ends the payload.
func TestEmitError(t *testing.T) {
	t.Parallel()
	calls := 0
	err := newDecoder(t, "ndjson", "a").Decode([]byte("{}\n{}\n{"), func(*decode.Document) error { calls++; return io.ErrClosedPipe })
	if err != io.ErrClosedPipe || calls != 1 {
		t.Errorf("got %v after %d documents, want %v after 1", err, calls, io.ErrClosedPipe)
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"a", "a.b", "a[0]", "a[0][12].c", `a["x.y"].z`, `["a b"]`, `a["\"[\u00e9"]`, "a-b.c d"} {
		steps, err := decode.ParsePath(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		again, err := decode.ParsePath(decode.FormatPath(steps))
		if err != nil {
			t.Errorf("%s: spelled %s: %v", path, decode.FormatPath(steps), err)
		}
		if diff := cmp.Diff(steps, again); diff != "" {
			t.Errorf("%s: steps after a round trip (-want +got):\n%s", path, diff)
		}
	}
	for _, path := range []string{"", ".", "a.", ".a", "a..b", "a[", "a[-1]", "a[x]", "a[99999999]", `a["x]`, `a["x"`, `a["x"]b`, "a]", strings.Repeat("a.", 64) + "a"} {
		if _, err := decode.ParsePath(path); err == nil {
			t.Errorf("%q: no error", path)
		}
	}
	if _, err := decode.NewFields([]string{"a.b", `a["b"]`}); err == nil {
		t.Error("a field given twice: no error")
	}
}

// fuzzPaths and lookup are the reference: the fields as encoding/json sees them.
var fuzzPaths = []string{"a", "b.c", "t[1]", "b", "é", "\uFFFD", "t[0].a"}

func lookup(v any, path string) (any, bool) {
	steps, err := decode.ParsePath(path)
	if err != nil {
		panic(err)
	}
	for _, s := range steps {
		if s.Index < 0 {
			m, ok := v.(map[string]any)
			if !ok {
				return nil, false
			}
			if v, ok = m[s.Name]; !ok {
				return nil, false
			}
			continue
		}
		l, ok := v.([]any)
		if !ok || s.Index >= len(l) {
			return nil, false
		}
		v = l[s.Index]
	}
	return v, true
}

func parseAny(b []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("more than one value")
	}
	return v, nil
}

func checkAgainstStd(t *testing.T, d decode.Decoder, paths []string, payload []byte) {
	t.Helper()
	want, stdErr := parseAny(payload)
	if _, ok := want.(map[string]any); stdErr == nil && !ok {
		stdErr = errors.New("not an object")
	}
	err := d.Decode(payload, func(doc *decode.Document) error {
		if stdErr != nil {
			return nil
		}
		for i, path := range paths {
			v := doc.Value(i)
			w, ok := lookup(want, path)
			var got any
			switch v.Kind {
			case decode.Missing:
				if ok {
					t.Errorf("%q: %s is missing, want %v", payload, path, w)
				}
				continue
			case decode.Null:
				got = nil
			case decode.String:
				got = string(v.Bytes)
			case decode.Number:
				got = json.Number(v.Bytes)
			case decode.Bool:
				got = string(v.Bytes) == "true"
			case decode.Object, decode.Array:
				var err error
				if got, err = parseAny(v.Bytes); err != nil {
					t.Errorf("%q: %s is %q: %v", payload, path, v.Bytes, err)
				}
			}
			if !ok {
				t.Errorf("%q: %s is %v, want it missing", payload, path, got)
			} else if !reflect.DeepEqual(w, got) { // cmp.Diff takes a second over all of it
				t.Errorf("%q: %s (-want +got):\n%s", payload, path, cmp.Diff(w, got))
			}
		}
		return nil
	})
	if (err == nil) != (stdErr == nil) {
		t.Errorf("%q: got %v, encoding/json %v", payload, err, stdErr)
	}
	if len(payload) > 0 && err != nil {
		var e *decode.Error
		if !errors.As(err, &e) || e.Position < 0 || e.Position > len(payload) {
			t.Errorf("%q: error %v has no position inside", payload, err)
		}
	}
}

func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`{"a":1,"b":{"c":"x"},"t":[{"a":-0.5e+7},null,true]}`, `{"a":"\ud83d\ude00\udc00","é":"\u00e9"}`, `{"b":{"c":1},"b":{},"b":[]}`,
		"{\"a\":\"\xff\",\"\xff\":1}", ` {"t" : [ [ ] , { } ] , "x" : [[],{"y":[1,2,{"z":{}}]}] } `, `{"a":1e999,"b":-0,"t":[01]}`, `{"a":truefalse}`,
		`{"\u0061":"\\","b":"\\\""}`, `{"a":"a long string that passes eight bytes \n and more","b":2}`, "{\"a\":\"\x1f\"}", "\ufeff{}", `{"a":1}}`, `{"a":[1,2}`,
	} {
		f.Add([]byte(s))
	}
	d := newDecoder(f, "json", fuzzPaths...)
	f.Fuzz(func(t *testing.T, payload []byte) { checkAgainstStd(t, d, fuzzPaths, payload) })
}

// Real events: every document and every field as encoding/json sees them, also
// where the text is cut short.
func TestRealEvents(t *testing.T) {
	t.Parallel()
	events, err := os.ReadFile("../../../shared/data/github_events_2021-07-21.ndjson")
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("the real events are absent: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	paths := []string{"id", "actor.login", "repo.id", "payload", "payload.commits[0].message", "payload.commits[0].author.name", "payload.pull_request.user.login", "public", "org"}
	d := newDecoder(t, "json", paths...)
	lines := bytes.Split(bytes.TrimSuffix(events, []byte("\n")), []byte("\n"))
	if len(lines) != 800 {
		t.Errorf("got %d lines, want 800", len(lines))
	}
	for i, line := range lines {
		checkAgainstStd(t, d, paths, line)
		checkAgainstStd(t, d, paths, line[:len(line)*(i%100)/100])
	}
}

// event is the 200-byte page view of the goals in the reference.
const event = `{"ts":1715000000123,"user":"user-0012345","page":"/products/item-00421","country":"DE","referrer":"https://www.example.com/search?q=item","agent":"Mozilla/5.0 (X11; Linux x86_64)","duration_ms":5321}`

func TestJSONAllocates(t *testing.T) {
	d := newDecoder(t, "json", "user", "page", "country", "referrer", "agent", "duration_ms", "ts")
	payload := []byte(strings.Replace(event, "Linux", `\u004cinux\n`, 1))
	emit := func(*decode.Document) error { return nil }
	if n := testing.AllocsPerRun(100, func() {
		if err := d.Decode(payload, emit); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("got %v allocations a document, want 0", n)
	}
}

func BenchmarkJSON(b *testing.B) {
	payload := []byte(event)
	d := newDecoder(b, "json", "user", "page", "country", "referrer", "agent", "duration_ms", "ts")
	emit := func(*decode.Document) error { return nil }
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Decode(payload, emit); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkJSONNested(b *testing.B) {
	payload := []byte(`{"id":"17244207336","type":"DeleteEvent","actor":{"id":71354125,"login":"aws-connector[bot]","url":"https://api.github.com/users/aws-connector"},"repo":{"id":318651349,"name":"team/python-public"},"payload":{"ref":"cicd-e2e-g1szrn","ref_type":"branch"},"public":true,"created_at":"2021-07-21T06:00:00Z"}`)
	d := newDecoder(b, "json", "id", "type", "actor.login", "repo.name", "payload.ref_type", "created_at")
	emit := func(*decode.Document) error { return nil }
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Decode(payload, emit); err != nil {
			b.Fatal(err)
		}
	}
}
