package decode_test

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/decode"
)

const logLine = `83.149.9.216 - frank [17/May/2015:10:05:03 +0000] "GET /a/b.png?x=1&y=%20 HTTP/1.1" 200 203023 "http://example.com/" "Mozilla/5.0 (Macintosh)"`

var logFields = []string{"client", "ident", "user", "time", "time_local", "request", "method", "path", "protocol", "status", "bytes", "referrer", "agent"}

func TestCombined(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, line string
		want       []string
	}{
		{"plain", logLine, []string{
			"string:83.149.9.216", "null:", "string:frank", "number:1431857103000", "string:17/May/2015:10:05:03 +0000",
			"string:GET /a/b.png?x=1&y=%20 HTTP/1.1", "string:GET", "string:/a/b.png?x=1&y=%20", "string:HTTP/1.1",
			"number:200", "number:203023", "string:http://example.com/", "string:Mozilla/5.0 (Macintosh)",
		}},
		{"dashes, an escaped quote, a zone", `::1 - - [29/Feb/2016:23:59:60 -0130] "-" 408 - "-" "a \"b\" \\ \x41\q"` + "\r\n", []string{
			"string:::1", "null:", "null:", "number:1456795800000", "string:29/Feb/2016:23:59:60 -0130",
			"null:", "null:", "null:", "null:", "number:408", "null:", "null:", `string:a \"b\" \\ \x41\q`,
		}},
		{"a request that is none", `h i john doe [01/Jan/1970:00:00:00 +0000] "\x16\x03\x01 x" 400 0 "" ""`, []string{
			"string:h", "string:i", "string:john doe", "number:0", "string:01/Jan/1970:00:00:00 +0000",
			`string:\x16\x03\x01 x`, "null:", "null:", "null:", "number:400", "number:0", "string:", "string:",
		}},
		{"no protocol, spaces in the target", `h - - [01/Jan/1970:00:00:00 +0000] "GET /a b" 200 1 "-" "-"`, []string{
			"string:h", "null:", "null:", "number:0", "string:01/Jan/1970:00:00:00 +0000",
			"string:GET /a b", "string:GET", "string:/a b", "null:", "number:200", "number:1", "null:", "null:",
		}},
	}
	d := newDecoder(t, "combined", logFields...)
	for _, tt := range tests {
		got, err := render(d, []byte(tt.line))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if diff := cmp.Diff([][]string{tt.want}, got); diff != "" {
			t.Errorf("%s: values (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestCombinedErrors(t *testing.T) {
	t.Parallel()
	replace := func(old, new string) string {
		return string(bytes.Replace([]byte(logLine), []byte(old), []byte(new), 1))
	}
	tests := []struct {
		line   string
		at     int
		reason string
	}{
		{"", 0, "expected the client and a space"},
		{"host", 0, "expected the client and a space"},
		{"host - ", 7, "expected the user and the time in brackets"},
		{"host - - [17/May", 10, "no ] after the time"},
		{replace("May", "Mai"), 25, "no such month"},
		{replace("17/May", "31/Feb"), 22, "no such day of the month"},
		{replace("10:05:03", "24:05:03"), 34, "no such time of the day"},
		{replace("+0000", " 0000"), 43, "expected + or - of the time zone"},
		{replace(`"GET`, `GET`), 49, "expected a space and the request in quotes"},
		{replace(`HTTP/1.1" 200`, `HTTP/1.1" 20x`), 84, "the status is not a number"},
		{replace(`203023 `, `203k `), 91, "expected a space and the referrer in quotes"},
		{logLine[:len(logLine)-1], 117, "the quote of the agent is not closed"},
		{logLine[:len(logLine)-1] + `\"`, 117, "the quote of the agent is not closed"},
		{logLine + ` 0.25`, 142, "unexpected text after the agent"},
	}
	d := newDecoder(t, "combined", "client")
	for _, tt := range tests {
		_, err := render(d, []byte(tt.line))
		var e *decode.Error
		if !errors.As(err, &e) {
			t.Errorf("%q: got %v, want an *Error", tt.line, err)
			continue
		}
		want := &decode.Error{Format: "combined", Position: tt.at, Reason: tt.reason}
		if diff := cmp.Diff(want, e); diff != "" {
			t.Errorf("%q: error (-want +got):\n%s", tt.line, diff)
		}
	}
}

// A real log of 10,000 lines, of which one has an unclosed quote.
func TestCombinedRealLog(t *testing.T) {
	t.Parallel()
	const name = "../../../shared/data/apache_combined_10k.log"
	log, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("the real log is absent: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	d := newDecoder(t, "combined", logFields...)
	decoded, failed := 0, 0
	for i, line := range bytes.Split(bytes.TrimSuffix(log, []byte("\n")), []byte("\n")) {
		docs, err := render(d, line)
		if err == nil {
			decoded += len(docs)
			continue
		}
		failed++
		var e *decode.Error
		if !errors.As(err, &e) || e.Reason != "the quote of the agent is not closed" || line[e.Position] != '"' || i+1 != 8899 {
			t.Errorf("line %d: got error %v", i+1, err)
		}
	}
	if decoded != 9999 || failed != 1 {
		t.Errorf("got %d documents and %d errors, want 9999 and 1", decoded, failed)
	}
}

func TestCombinedAllocates(t *testing.T) {
	d := newDecoder(t, "combined", logFields...)
	payload := []byte(logLine[:len(logLine)-1] + `\\"`)
	emit := func(*decode.Document) error { return nil }
	if n := testing.AllocsPerRun(100, func() {
		if err := d.Decode(payload, emit); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("got %v allocations a line, want 0", n)
	}
}

// A line that decodes can be put together again from its fields.
func FuzzCombined(f *testing.F) {
	f.Add([]byte(logLine))
	f.Add([]byte(`::1 - - [29/Feb/2016:23:59:60 -0130] "-" 408 - "-" "a \"b\" \\ \x41\q"`))
	f.Add([]byte(`h i j k [01/Jan/1970:00:00:00 +0000] "GET /" 400 0 "" ""` + "\n"))
	d := newDecoder(f, "combined", logFields...)
	f.Fuzz(func(t *testing.T, line []byte) {
		err := d.Decode(line, func(doc *decode.Document) error {
			text := func(i int) string {
				if doc.Value(i).Absent() {
					return "-"
				}
				return string(doc.Value(i).Bytes)
			}
			head := text(0) + " " + text(1) + " " + text(2) + " [" + text(4) + `] "` + text(5) + `" ` + text(9) + " " + text(10) + ` "`
			if !bytes.HasPrefix(line, []byte(head)) {
				t.Errorf("%q does not begin with %q", line, head)
			}
			if !doc.Value(6).Absent() {
				want := text(6) + " " + text(7)
				if !doc.Value(8).Absent() {
					want += " " + text(8)
				}
				if got := text(5); got != want {
					t.Errorf("request %q, its parts make %q", got, want)
				}
			}
			return nil
		})
		var e *decode.Error
		if err != nil && (!errors.As(err, &e) || e.Position < 0 || e.Position > len(line)) {
			t.Errorf("%q: error %v has no position inside", line, err)
		}
	})
}

func BenchmarkCombined(b *testing.B) {
	payload := []byte(logLine)
	d := newDecoder(b, "combined", logFields...)
	emit := func(*decode.Document) error { return nil }
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Decode(payload, emit); err != nil {
			b.Fatal(err)
		}
	}
}
