package decode_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
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
		{" u ,\t,\rx", [][]string{{"string:\rx", "string: u "}}, ""},
		// A line of a CRLF file that came without its LF.
		{"u1,/a,hi\r", [][]string{{"string:hi", "string:u1"}}, ""},
		{"u1,/a,\r", [][]string{{"null:", "string:u1"}}, ""},
		{"u1,/a,\"hi\"\r", [][]string{{"string:hi", "string:u1"}}, ""},
		{"u1,/a,hi\n\r", [][]string{{"string:hi", "string:u1"}}, ""},
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
		// the rest of what PostgreSQL's COPY TO writes, and MySQL's --batch for a zero byte
		{`a\b\f\v\0b` + "\t\t\\N", [][]string{{"null:", "string:a\b\f\v\x00b"}}, ""},
		// as MySQL's INTO OUTFILE writes a tab and a line end
		{"a\\\tb\\\nc\t\\\\\t\\\n\nu2\t\t", [][]string{{"string:\n", "string:a\tb\nc"}, {"string:", "string:u2"}}, ""},
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
		// as log/slog and logrus write control characters, and what is not UTF-8 or not printable
		{`level="\x1b[31m\a\v\xff\U000e0001" a-b="\'"`, [][]string{{"string:\x1b[31m\a\v\xff\U000e0001", "missing:", "string:'"}}, ""},
		{`level="\x1"`, nil, "byte 10: unexpected '\"', expected a hexadecimal digit"},
		{`level="\U0001"`, nil, "byte 13: unexpected '\"', expected a hexadecimal digit"},
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
	// Both spellings are the same key.
	runFormat(t, decoder(t, &decode.Options{Format: "logfmt"}, "http.status", `["http.status"]`), "logfmt", []formatTest{
		{"http.status=200", [][]string{{"string:200", "string:200"}}, ""},
		{"http.status=200 http.status", [][]string{{"null:", "null:"}}, ""},
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

// Formats whose texts are UTF-8 by their rules replace what is not, byte by byte, so
// that ids which differ in such bytes only become one; the others keep all bytes.
func TestTextThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	const text = "a%sb"
	schema := []byte(`{"type":"record","name":"R","fields":[{"name":"id","type":"string"},{"name":"raw","type":"bytes"}]}`)
	for _, tt := range []struct {
		o       decode.Options
		path    string
		payload string // of one id, twice where the format has two fields
		kept    bool
	}{
		{decode.Options{Format: "json"}, "id", `{"id":"` + text + `"}`, false},
		{decode.Options{Format: "json"}, "o.id", `{"o":{"id":"` + text + `"}}`, false},
		{decode.Options{Format: "json"}, "o", `{"o":{"id":"` + text + `"}}`, true},
		{decode.Options{Format: "ndjson"}, "id", `{"id":"` + text + `"}`, false},
		{decode.Options{Format: "logfmt"}, "id", `id="` + text + `"`, false},
		{decode.Options{Format: "logfmt"}, "id", `id=` + text, true},
		{decode.Options{Format: "avro", Schema: schema}, "id", "\x06" + text + "\x00", false},
		{decode.Options{Format: "avro", Schema: schema}, "raw", "\x00\x06" + text, true},
		{*protobufOptions(t, "shop.v1.Geo"), "country", "\x0a\x03" + text, false},
		{*protobufOptions(t, "shop.v1.Event"), "raw", "\x22\x03" + text, true},
		{decode.Options{Format: "csv", Columns: []string{"id"}}, "id", text, true},
		{decode.Options{Format: "csv", Columns: []string{"id"}}, "id", `"` + text + `"`, true},
		{decode.Options{Format: "tsv", Columns: []string{"id"}}, "id", text, true},
		{decode.Options{Format: "raw"}, "payload", text, true},
		{decode.Options{Format: "common"}, "client", text + ` - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.0" 200 -`, true},
	} {
		d := decoder(t, &tt.o, tt.path)
		var got []string
		for _, odd := range []string{"\xff", "\xfe"} {
			docs, err := render(d, []byte(fmt.Sprintf(tt.payload, odd)))
			if err != nil {
				t.Errorf("%s, %q: %v", tt.o.Format, tt.payload, err)
				continue
			}
			_, value, _ := strings.Cut(docs[0][0], ":")
			got = append(got, value)
			if want := fmt.Sprintf(text, odd); tt.kept && !strings.Contains(value, want) || !tt.kept && value != "a\uFFFDb" {
				t.Errorf("%s, %q: got %q, kept %v", tt.o.Format, tt.payload, value, tt.kept)
			}
		}
		if same := len(got) == 2 && got[0] == got[1]; same == tt.kept {
			t.Errorf("%s, %q: got %q, kept %v", tt.o.Format, tt.payload, got, tt.kept)
		}
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

// Frames of zstd's own library, whose blocks are other ones than those of Go's, are unpacked
// where they do not tell their size and have much more than their length lets expect.
func TestCompressionOfTheReferenceEncoder(t *testing.T) {
	t.Parallel()
	// head -c 3000000 /dev/zero | tr '\0' x | zstd -q --no-check | base64
	frame, err := base64.StdEncoding.DecodeString("KLUv/QBYVAAAEHh4AQD7/znAAgIAEHgCABB4AgAQeAIAEHgCABB4AgAQeAIAEHgCABB4AgAQeAIAEHgCABB4AgAQeAIAEHgCABB4AgAQeAIAEHgCABB4AgAQeAIAEHgCABB4AgAQeAM2Dng=")
	if err != nil {
		t.Fatal(err)
	}
	d := decoder(t, &decode.Options{Format: "raw", Compression: "zstd", MaxBytes: 3_000_000}, "payload")
	if got, err := render(d, frame); err != nil || got[0][0] != "string:"+strings.Repeat("x", 3_000_000) {
		t.Errorf("Got %.50v, %v, want 3,000,000 letters", got, err)
	}
	d = decoder(t, &decode.Options{Format: "raw", Compression: "zstd", MaxBytes: 2_999_999}, "payload")
	if _, err := render(d, frame); err == nil || err.Error() != "byte 2999999: the payload unfolds to more than 2999999 bytes" {
		t.Errorf("Got %v, want the bound", err)
	}
}

// A payload that ends early is refused wherever it is cut, and members or frames
// one after the other are one payload, within one bound: as gzip and zstd read
// files.
func TestCompressionParts(t *testing.T) {
	t.Parallel()
	const limit = 1 << 10
	unsummed := func(t testing.TB, b []byte) []byte {
		t.Helper()
		w, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(false))
		if err != nil {
			t.Fatal(err)
		}
		return w.EncodeAll(b, nil)
	}
	streamed := func(t testing.TB, b []byte) []byte { // whose size is not known at its beginning
		t.Helper()
		var out bytes.Buffer
		w, err := zstd.NewWriter(&out, zstd.WithEncoderCRC(false))
		if err != nil {
			t.Fatal(err)
		}
		for part := range slices.Chunk(b, 100) {
			if _, err := w.Write(part); err != nil {
				t.Fatal(err)
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	for _, tt := range []struct {
		compression string
		pack        func(testing.TB, []byte) []byte
	}{{"gzip", gzipped}, {"zstd", zstandard}, {"zstd", unsummed}, {"zstd", streamed}} {
		d := decoder(t, &decode.Options{Format: "raw", Compression: tt.compression, MaxBytes: limit}, "payload")
		text := []byte(strings.Repeat("abcdefgh", limit/16))
		packed := tt.pack(t, text)
		for n := 1; n < len(packed); n++ {
			if got, err := render(d, packed[:n]); err == nil {
				t.Errorf("%s: %d of %d bytes: got %.40q", tt.compression, n, len(packed), got)
			}
		}
		twice := append(slices.Clone(packed), packed...)
		if got, err := render(d, twice); err != nil || got[0][0] != "string:"+string(text)+string(text) {
			t.Errorf("%s: twice: got %.40q, %v", tt.compression, got, err)
		}
		if _, err := render(d, append(twice, tt.pack(t, []byte("x"))...)); err == nil || !strings.Contains(err.Error(), "unfolds to more than 1024 bytes") {
			t.Errorf("%s: a byte beyond the bound in a third part: got %v", tt.compression, err)
		}
		for n := len(packed) + 1; n < len(twice); n++ {
			if got, err := render(d, twice[:n]); err == nil {
				t.Errorf("%s: %d of %d bytes of two parts: got %.40q", tt.compression, n, len(twice), got)
			}
		}
	}
	// What a frame demands before its first byte is bounded by itself.
	var long bytes.Buffer
	w, err := zstd.NewWriter(&long, zstd.WithWindowSize(16<<20))
	if err == nil {
		_, err = w.Write([]byte("a"))
	}
	if err == nil {
		err = errors.Join(w.Flush(), w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	small := decoder(t, &decode.Options{Format: "raw", Compression: "zstd", MaxBytes: limit}, "payload")
	if _, err := render(small, long.Bytes()); err == nil || !strings.Contains(err.Error(), "its zstd window has more than 8388608 bytes") {
		t.Errorf("a window of 16 MiB: got %v", err)
	}
	// Frames that are to be skipped may be cut, too.
	skipped := append([]byte{0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4}, zstandard(t, []byte("x"))...)
	d := decoder(t, &decode.Options{Format: "raw", Compression: "zstd"}, "payload")
	if got, err := render(d, skipped); err != nil || got[0][0] != "string:x" {
		t.Errorf("a skipped frame: got %q, %v", got, err)
	}
	for n := 1; n < 12; n++ {
		if got, err := render(d, skipped[:n]); err == nil {
			t.Errorf("%d bytes of a skipped frame: got %q", n, got)
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
