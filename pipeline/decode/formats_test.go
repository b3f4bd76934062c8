package decode_test

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"sluice/pipeline/decode"
)

func decoder(t testing.TB, o *decode.Options, paths ...string) decode.Decoder {
	t.Helper()
	f, err := decode.NewFields(paths)
	if err != nil {
		t.Fatal(err)
	}
	d, err := decode.New(o, f)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// formatTest is a payload and what comes of it: documents, or an error.
type formatTest struct {
	payload string
	want    [][]string
	err     string
}

func runFormat(t *testing.T, d decode.Decoder, format string, tests []formatTest) {
	t.Helper()
	for _, tt := range tests {
		got, err := render(d, []byte(tt.payload))
		text := ""
		if err != nil {
			text = err.Error()
			var e *decode.Error
			if !errors.As(err, &e) || e.Format != format {
				t.Errorf("%q: got %#v, want an Error of %s", tt.payload, err, format)
			}
		}
		if text != tt.err {
			t.Errorf("%q: got error %q, want %q", tt.payload, text, tt.err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%q: documents (-want +got):\n%s", tt.payload, diff)
		}
	}
}

func TestCSV(t *testing.T) {
	t.Parallel()
	o := &decode.Options{Format: "csv", Columns: []string{"user", "page", "note"}}
	runFormat(t, decoder(t, o, "note", "user"), "csv", []formatTest{
		{"u1,/a,hi", [][]string{{"string:hi", "string:u1"}}, ""},
		{"u1,/a,hi\r\n\nu2,,\n", [][]string{{"string:hi", "string:u1"}, {"null:", "string:u2"}}, ""},
		{`"a ""b""","/x,y","line` + "\n" + `end"` + "\n", [][]string{{"string:line\nend", `string:a "b"`}}, ""},
		{`"","",""`, [][]string{{"string:", "string:"}}, ""},
		{`"""",,""""""`, [][]string{{`string:""`, `string:"`}}, ""},
		{" u ,\t,\r", [][]string{{"string:\r", "string: u "}}, ""},
		{"", nil, "byte 0: there is no row"},
		{"\n\r\n", nil, "byte 3: there is no row"},
		{"u1,/a", nil, "byte 5: the row has 2 values, want 3"},
		{"u1,/a,b,c", nil, "byte 8: the row has more than 3 values"},
		{"1,2,3\nu1", [][]string{{"string:3", "string:1"}}, "byte 8: the row has 1 values, want 3"},
		{`a,b"c,d`, nil, "byte 3: a quote inside a value without quotes"},
		{`a,"b"c,d`, nil, "byte 5: text after the closing quote"},
		{`a,"b,c`, nil, "byte 2: the quote is not closed"},
	})
	o = &decode.Options{Format: "csv", Columns: []string{"a", "b"}, Delimiter: ";"}
	runFormat(t, decoder(t, o, "a", "b"), "csv", []formatTest{
		{"1,5;x", [][]string{{"string:1,5", "string:x"}}, ""},
	})
}

func TestTSV(t *testing.T) {
	t.Parallel()
	o := &decode.Options{Format: "tsv", Columns: []string{"user", "page", "note"}}
	runFormat(t, decoder(t, o, "note", "user"), "tsv", []formatTest{
		{"u1\t/a\thi", [][]string{{"string:hi", "string:u1"}}, ""},
		{"u1\t/a\thi\r\n\nu2\t\t\\N\n", [][]string{{"string:hi", "string:u1"}, {"null:", "string:u2"}}, ""},
		{`\t\n\r\\` + "\t\\N\t\"q\"", [][]string{{`string:"q"`, "string:\t\n\r\\"}}, ""},
		{"\t\t", [][]string{{"string:", "string:"}}, ""},
		{"", nil, "byte 0: there is no row"},
		{"a\tb", nil, "byte 3: the row has 2 values, want 3"},
		{"a\tb\tc\t", nil, "byte 6: the row has more than 3 values"},
		{"a\tb\\x\tc", nil, "byte 3: unknown escape \"\\\\x\""},
		{"a\tb\tc\\", nil, "byte 5: a backslash at the end of a value"},
		{"1\t2\t3\na", [][]string{{"string:3", "string:1"}}, "byte 7: the row has 1 values, want 3"},
	})
	one := &decode.Options{Format: "tsv", Columns: []string{"a"}}
	runFormat(t, decoder(t, one, "a"), "tsv", []formatTest{
		{"x\n\ny", [][]string{{"string:x"}, {"string:"}, {"string:y"}}, ""},
	})
}

func TestLogfmt(t *testing.T) {
	t.Parallel()
	d := decoder(t, &decode.Options{Format: "logfmt"}, "level", "http.status", `["a-b"]`)
	runFormat(t, d, "logfmt", []formatTest{
		{"level=info http.status=200 a-b=x\n", [][]string{{"string:info", "string:200", "string:x"}}, ""},
		{"  level=warn\tlevel=error  ", [][]string{{"string:error", "missing:", "missing:"}}, ""},
		{`level= http.status a-b=""`, [][]string{{"string:", "null:", "string:"}}, ""},
		{`url=/a?b="c" level="a \"b\" \u00e9\n" x=1`, [][]string{{"string:a \"b\" é\n", "missing:", "missing:"}}, ""},
		{"é=ü level=ü", [][]string{{"string:ü", "missing:", "missing:"}}, ""},
		{"", nil, "byte 0: there is no key"},
		{" \r\n", nil, "byte 1: there is no key"},
		{"=x", nil, "byte 0: a value without a key"},
		{`"x"=1`, nil, "byte 0: a quote in a key"},
		{`a"x"=1`, nil, "byte 1: a quote in a key"},
		{`level="x"y`, nil, "byte 9: text after the closing quote"},
		{`level="x`, nil, "byte 8: the text ends inside a string"},
		{`level="\q"`, nil, "byte 8: unexpected 'q', expected an escape"},
		{"level=a\nlevel=b", nil, "byte 7: a control character; a payload is one line"},
		{"level\x00", nil, "byte 5: a control character; a payload is one line"},
		{"\x01", nil, "byte 0: a control character; a payload is one line"},
	})
	f, err := decode.NewFields([]string{"tags[0]"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decode.New(&decode.Options{Format: "logfmt"}, f); err == nil || err.Error() != `decode: format logfmt: field "tags[0]": it has no arrays` {
		t.Errorf("an array: got %v", err)
	}
}

func TestRaw(t *testing.T) {
	t.Parallel()
	runFormat(t, decoder(t, &decode.Options{Format: "raw"}, "payload"), "raw", []formatTest{
		{"\xff\x00\n", [][]string{{"string:\xff\x00\n"}}, ""},
		{"", [][]string{{"string:"}}, ""},
	})
	got, err := render(decoder(t, &decode.Options{Format: "raw"}, "payload"), nil)
	if diff := cmp.Diff([][]string{{"null:"}}, got); diff != "" || err != nil {
		t.Errorf("a tombstone: %v (-want +got):\n%s", err, diff)
	}
}

func TestCommon(t *testing.T) {
	t.Parallel()
	d := decoder(t, &decode.Options{Format: "common"}, "client", "path", "status", "bytes")
	runFormat(t, d, "common", []formatTest{
		{`h - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.0" 200 -` + "\n", [][]string{{"string:h", "string:/a", "number:200", "null:"}}, ""},
		{`h - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.0" 200 12 "-"`, nil, "byte 59: unexpected text after the bytes"},
	})
}

func TestCompressedTombstone(t *testing.T) {
	t.Parallel()
	d := decoder(t, &decode.Options{Format: "raw", Compression: "gzip"}, "payload")
	if got, err := render(d, nil); err != nil || !cmp.Equal(got, [][]string{{"null:"}}) {
		t.Errorf("got %v, %v", got, err)
	}
}

func gzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zstandard(t testing.TB, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(b, nil)
}

func TestCompression(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	fits := []byte(`{"a":"` + strings.Repeat("x", limit-8) + `"}`)
	for name, pack := range map[string]func(testing.TB, []byte) []byte{"gzip": gzipped, "zstd": zstandard} {
		d := decoder(t, &decode.Options{Format: "json", Compression: name, MaxBytes: limit}, "a")
		bomb := pack(t, make([]byte, 8<<20))
		for range 2 { // the second time with used buffers
			if got, err := render(d, pack(t, []byte(`{"a":1}`))); err != nil || got[0][0] != "number:1" {
				t.Errorf("%s: got %v, %v", name, got, err)
			}
			if got, err := render(d, pack(t, fits)); err != nil || len(got[0][0]) != len("string:")+limit-8 {
				t.Errorf("%s: a payload of the limit: %v", name, err)
			}
			if _, err := render(d, bomb); err == nil || err.Error() != "byte 1048576: the payload unfolds to more than 1048576 bytes" {
				t.Errorf("%s: a bomb of %d bytes: got %v", name, len(bomb), err)
			}
			packed := pack(t, fits)
			for _, bad := range [][]byte{{}, []byte("{}"), packed[:len(packed)-1], append(slices.Clone(packed), 'x')} {
				_, err := render(d, bad)
				var e *decode.Error
				if !errors.As(err, &e) || !strings.Contains(e.Reason, "cannot be decompressed: ") {
					t.Errorf("%s: %d bytes that are wrong: got %v", name, len(bad), err)
				}
			}
		}
	}
}

// What encoding/csv accepts we accept, and with the same values; it alone takes
// rows of any length, and turns CRLF inside quotes into LF.
func FuzzCSV(f *testing.F) {
	for _, s := range []string{"a,b\n", `"a""b",c`, "a,\"b\nc\"\r\n\r\nd,e", `a,b"c`, `a,"b"c`, `a,"b`, ",\n", "a,b,c"} {
		f.Add([]byte(s))
	}
	o := &decode.Options{Format: "csv", Columns: []string{"a", "b"}}
	f.Fuzz(func(t *testing.T, payload []byte) {
		if bytes.Contains(payload, []byte("\r")) {
			t.Skip("encoding/csv treats carriage returns in its own way")
		}
		r := csv.NewReader(bytes.NewReader(payload))
		r.FieldsPerRecord = 2
		want, wantErr := r.ReadAll()
		if wantErr == nil && len(want) == 0 {
			wantErr = io.EOF
		}
		var got [][]string
		err := decoder(t, o, "a", "b").Decode(payload, func(doc *decode.Document) error {
			got = append(got, []string{string(doc.Value(0).Bytes), string(doc.Value(1).Bytes)})
			return nil
		})
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("got %v, encoding/csv %v", err, wantErr)
		}
		if err == nil {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("rows (-encoding/csv +got):\n%s", diff)
			}
		}
	})
}

// FuzzFormats: no payload makes a decoder panic or report a place outside of it,
// and what it accepts it accepts again.
func FuzzFormats(f *testing.F) {
	options := []*decode.Options{
		{Format: "tsv", Columns: []string{"a", "b"}},
		{Format: "logfmt"},
		{Format: "common"},
		{Format: "csv", Columns: []string{"a", "b"}, Delimiter: "\t"},
		{Format: "ndjson", Compression: "gzip", MaxBytes: 1 << 16},
		{Format: "ndjson", Compression: "zstd", MaxBytes: 1 << 16},
	}
	for _, s := range [][]byte{
		[]byte("a\\t\tb\n"), []byte(`a=1 b="x\n" c`), []byte(`h - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.0" 200 -`),
		gzipped(f, []byte("{}\n{}")), zstandard(f, []byte(`{"a":1}`)),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		for _, o := range options {
			var paths []string
			if known := o.Known(); known != nil {
				paths = known
			} else {
				paths = []string{"a", "b"}
			}
			d := decoder(t, o, paths...)
			before, err := render(d, payload)
			again, againErr := render(d, payload)
			if diff := cmp.Diff(before, again); diff != "" || fmt.Sprint(err) != fmt.Sprint(againErr) {
				t.Errorf("%s: the second time: %v, then %v\n%s", o.Format, err, againErr, diff)
			}
			var e *decode.Error
			if err != nil && (!errors.As(err, &e) || o.Compression == "" && (e.Position < 0 || e.Position > len(payload))) {
				t.Errorf("%s: %#v of %d bytes", o.Format, err, len(payload))
			}
		}
	})
}

func BenchmarkFormats(b *testing.B) {
	for _, bb := range []struct {
		o       *decode.Options
		payload string
		paths   []string
	}{
		{&decode.Options{Format: "csv", Columns: []string{"ts", "user", "page", "agent"}}, `1700000000000,user-17,/docs/page-00000,"Mozilla/5.0 (X11; ""Linux"" x86_64)"`, []string{"ts", "user", "page", "agent"}},
		{&decode.Options{Format: "tsv", Columns: []string{"ts", "user", "page", "agent"}}, "1700000000000\tuser-17\t/docs/page-00000\tMozilla/5.0 (X11; Linux x86_64)", []string{"ts", "user", "page", "agent"}},
		{&decode.Options{Format: "logfmt"}, `ts=1700000000000 user=user-17 page=/docs/page-00000 agent="Mozilla/5.0 (X11; Linux x86_64)"`, []string{"ts", "user", "page", "agent"}},
	} {
		b.Run(bb.o.Format, func(b *testing.B) {
			d := decoder(b, bb.o, bb.paths...)
			payload := []byte(bb.payload)
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			for b.Loop() {
				if err := d.Decode(payload, func(*decode.Document) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
