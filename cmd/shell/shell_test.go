package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"sluice/cell"
	"sluice/store/memstore"
)

// newTestSession returns a session on an empty model store whose clock moves one
// millisecond a command and whose time zone is UTC.
func newTestSession(t *testing.T, out *strings.Builder, width int) *session {
	t.Helper()
	clock := time.Date(2026, 1, 2, 3, 4, 5, 677e6, time.UTC)
	engine, err := memstore.New(&memstore.Options{Now: func() cell.Timestamp {
		clock = clock.Add(time.Millisecond)
		return cell.Timestamp(clock.UnixMilli())
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	return &session{
		ctx: t.Context(), store: engine, commands: commandTable(), echo: true,
		print: printer{out: out, width: width, loc: time.UTC},
		now:   func() time.Time { return time.Unix(0, 0) },
	}
}

// TestTranscripts runs testdata/transcripts: each "run" is a script, its output
// what the shell prints for it. Rewrite with -rewrite, then read the diff.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		var out strings.Builder
		s := newTestSession(t, &out, 0)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out.Reset()
			switch d.Cmd {
			case "run":
				s.print.width = 0
			case "terminal":
				s.print.width = 80
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			_ = s.script(&scriptInput{r: bufio.NewReader(strings.NewReader(d.Input))}, false)
			return strings.ReplaceAll(out.String(), " \n", "$\n") // trailing blanks, made visible
		})
	})
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{"list", "list []"},
		{"  # nothing", " []"},
		{"put 't', 'r', 'f:q', 'v', 5 # late", "put [t r f:q v 5]"},
		{`get "t", "\x00\xffA\n\"\u00e9"`, "get [t \x00\xffA\n\"é]"},
		{`put 't','it''s'`, "syntax error at column 13: unexpected \"'s'\""},
		{`get 't', 'a\'b\\c\d'`, `get [t a'b\c\d]`},
		{"scan 't', {LIMIT => 3, COLUMNS => ['a', 'b:c']}", "scan [t [{LIMIT 3} {COLUMNS [a b:c]}]]"},
		{"scan 't', LIMIT => -1, RAW => true", "scan [t [{LIMIT -1} {RAW true}]]"},
		{"incr('t', 'r', 'c:n', 1_000)", "incr [t r c:n 1000]"},
		{"put 't',", "syntax error at column 9: the line ends too early"},
		{"put 't", "syntax error at column 7: the line ends too early"},
		{"scan 't', {LIMIT 3}", "syntax error at column 18: expected =>"},
		{"put 't' 'r'", "syntax error at column 9: unexpected \"'r'\""},
		{"put 1x2", "syntax error at column 5: \"1x2\" is not a number"},
	} {
		got, err := parse(c.in)
		text := fmt.Sprintf("%s %v", got.name, got.args)
		if err != nil {
			text = err.Error()
		}
		if text != c.want {
			t.Errorf("parse(%q) = %s; want %s", c.in, text, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("scan 't', {COLUMNS => ['f:a', \"\\x00\"], LIMIT => 5}")
	f.Add("put 't','r','f:q','v', -1.5e3, {TTL=>1}")
	f.Fuzz(func(t *testing.T, line string) {
		c, err := parse(line)
		if err != nil {
			if e, ok := err.(*syntaxError); !ok || e.col < 1 || e.col > len(line)+1 {
				t.Fatalf("%q: %v", line, err)
			}
			return
		}
		if c.name == "" && len(c.args) > 0 {
			t.Fatalf("%q: arguments without a command", line)
		}
	})
}

func TestStopsWhereTold(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := newTestSession(t, &out, 0)
	err := s.script(&scriptInput{r: bufio.NewReader(strings.NewReader("scan 'nope'\ncreate 't', 'f'\n"))}, true)
	if err == nil || strings.Contains(out.String(), "Created") {
		t.Errorf("error %v, output:\n%s\nwant it to stop at the first error", err, out.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.ctx = ctx
	if err := s.script(&scriptInput{r: bufio.NewReader(strings.NewReader("list\nlist\n"))}, false); err == nil {
		t.Error("a cancelled session went on")
	}
}

func TestTranscriptsExist(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/transcripts/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, f := range files {
		if b, err := os.ReadFile(f); err != nil || len(b) == 0 {
			t.Errorf("%s: %d bytes, %v", f, len(b), err)
		}
	}
}
