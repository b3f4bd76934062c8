package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/region"
	"sluice/store"
)

// runScript runs lines and returns the places of what failed.
func runScript(s *session, lines string, stopAtError bool) (failed []string, err error) {
	err = s.script(newScriptInput(strings.NewReader(lines)), "x.txt", stopAtError, func(e *scriptError) {
		failed = append(failed, e.Error())
	})
	return failed, err
}

func TestScriptPlaces(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := newTestSession(t, "mem", &out)
	failed, err := runScript(s, `create 't', 'f' # one
scan 'nope'; list; get 'nope', 'r'

put 't', 'r', 'f:q',
  'v' 5
put('t',
    'r', 'f:q', {A
nothing => 3})
 t.scan
put 't', 'r`, false)
	want := []string{
		"x.txt:2:1: Unknown table nope!",
		"x.txt:2:20: Unknown table nope!",
		"x.txt:5:7: syntax error: unexpected \"5\"",
		"x.txt:8:1: syntax error: expected =>",
		"x.txt:9:2: unknown command \"t.scan\" (did you mean \"scan\"?); 'help' lists the commands",
		"x.txt:10:10: syntax error: the string that begins here has no end",
	}
	if d := cmp.Diff(want, failed); d != "" {
		t.Errorf("(-want +got)\n%s\n%s", d, out.String())
	}
	if err == nil || err.Error() != want[0] {
		t.Errorf("Got %v, want the first failure", err)
	}
}

// gatewayStore is a store that says it is a real HBase, and can do nothing with regions.
type gatewayStore struct{ Store }

func (gatewayStore) Traits() store.Traits {
	return store.Traits{Name: "hbase", Atomic: store.AtomicRow}
}

// serversStore is one that knows on which server a region is.
type serversStore struct{ gatewayStore }

func (s serversStore) LocateRegion(ctx context.Context, table string, row []byte) (region.Info, string, error) {
	m, err := s.Regions(ctx, table)
	if err != nil {
		return region.Info{}, "", err
	}
	return *m.At(m.Locate(row)), "rs1:16020", nil
}

// TestHBaseRegions: of a real HBase no name of a region is made up, and no server but its own.
func TestHBaseRegions(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := newTestSession(t, "mem", &out)
	if _, err := runScript(s, "create 't', 'f', SPLITS => ['g', 'm']", true); err != nil {
		t.Fatal(err)
	}
	plain := gatewayStore{s.store}
	for _, test := range []struct {
		store Store
		json  bool
		want  string
	}{
		{plain, false, "REGION\n {STARTKEY => 'g', ENDKEY => 'm'}\n1 row(s)\n"},
		{serversStore{plain}, false, "HOST  REGION\n rs1:16020 {STARTKEY => 'g', ENDKEY => 'm'}\n1 row(s)\n"},
		{plain, true, `{"start":"g","stop":"m"}` + "\n"},
		{serversStore{plain}, true, `{"server":"rs1:16020","start":"g","stop":"m"}` + "\n"},
	} {
		out.Reset()
		s.store, s.print.json = test.store, test.json
		failed, err := runScript(s, "locate_region 't', 'h'", true)
		got, _, _ := strings.Cut(out.String(), "Took ")
		if err != nil || got != test.want {
			t.Errorf("Got %q, %q, %v, want %q", got, failed, err, test.want)
		}
		if _, err := runScript(s, "locate_region 'none', 'h'", true); err == nil || err.Error() != "x.txt:1:1: Unknown table none!" {
			t.Errorf("Got %v of no table", err)
		}
	}
}

// TestHBaseShell: what cannot be done through the gateway of a real HBase is one line with
// the command of HBase's own shell, and what is wrong with a command is said first.
func TestHBaseShell(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := newTestSession(t, "mem", &out)
	s.store = gatewayStore{s.store}
	if _, err := runScript(s, "create 't', 'f'", true); err != nil {
		t.Fatal(err)
	}
	only := func(name, line string) string {
		return name + ": not supported through HBase's Thrift2 gateway; in HBase's shell: " + line
	}
	for _, test := range []struct{ line, want string }{
		{"flush 't'", only("flush", `flush "t"`)},
		{"compact 't', 'f'", only("compact", `compact "t", "f"`)},
		{"major_compact 't'", only("major_compact", `major_compact "t"`)},
		{"split 't', \"a\\x00\"", only("split", `split "t", "a\x00"`)},
		{"split 't'", only("split", `split "t"`)},
		{"status", only("status", "status")},
		{"status 'detailed'", only("status", `status "detailed"`)},
		{"snapshot 't', 's', {SKIP_FLUSH => true}", only("snapshot", `snapshot "t", "s", {"SKIP_FLUSH"=>true}`)},
		{"balancer", only("balancer", "balancer")},
		{"merge_region '0703470c2afdd2a8d64a43f53f7b7168', '120880de8a61eb4c01da437c759a6b50', true", only("merge_region", `merge_region "0703470c2afdd2a8d64a43f53f7b7168", "120880de8a61eb4c01da437c759a6b50", true`)},
		{"merge_region ['a1', 'b2']", only("merge_region", `merge_region ["a1", "b2"]`)},
		{"split '0703470c2afdd2a8d64a43f53f7b7168'", only("split", `split "0703470c2afdd2a8d64a43f53f7b7168"`)},
		{"flush 't,g,1700000000000.0703470c2afdd2a8d64a43f53f7b7168.'", only("flush", `flush "t,g,1700000000000.0703470c2afdd2a8d64a43f53f7b7168."`)},
		{"flush 'none'", only("flush", `flush "none"`)},
		{"flush 't', 'none'", only("flush", `flush "t", "none"`)},
		{"compact '0703470c2afdd2a8d64a43f53f7b7168'", only("compact", `compact "0703470c2afdd2a8d64a43f53f7b7168"`)},
		{"major_compact 'none'", only("major_compact", `major_compact "none"`)},
		{"move '0703470c2afdd2a8d64a43f53f7b7168', 'rs1,16020,1'", only("move", `move "0703470c2afdd2a8d64a43f53f7b7168", "rs1,16020,1"`)},
		{"split 't', 'a', 'b'", "wrong number of arguments (given 3, expected 1..2)"},
		{"status 'all'", `status takes 'summary', 'simple' or 'detailed', not "all"`},
	} {
		if _, err := runScript(s, test.line, true); err == nil || err.Error() != "x.txt:1:1: "+test.want {
			t.Errorf("%s\n Got %v\nwant x.txt:1:1: %s", test.line, err, test.want)
		}
	}
}

func TestStopsWhereTold(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := newTestSession(t, "mem", &out)
	failed, err := runScript(s, "scan 'nope'\ncreate 't', 'f'\n", true)
	if err == nil || len(failed) != 1 || strings.Contains(out.String(), "Created") {
		t.Errorf("error %v, output:\n%s\nwant it to stop at the first error", err, out.String())
	}
	if failed, err := runScript(s, "list\nexit\nscan 'nope'", true); err != nil || failed != nil {
		t.Errorf("after exit: %v, %v", failed, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.ctx = ctx
	if _, err := runScript(s, "list\nlist\n", false); err == nil {
		t.Error("a cancelled session went on")
	}
}

// TestInterrupt: what ends a command leaves the session alive.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := newTestSession(t, "mem", &out)
	s.interruptible = func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx, cancel
	}
	if failed, _ := runScript(s, "create 't', 'f'", false); len(failed) != 1 || failed[0] != "x.txt:1:1: interrupted" {
		t.Errorf("Got %q", failed)
	}
	s.interruptible = nil
	if failed, err := runScript(s, "create 't', 'f'", false); err != nil {
		t.Errorf("the next command: %v, %v", failed, err)
	}
}

// What was interrupted is not said to be undone where nobody knows.
func TestInterruptedUnknown(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("daemon: %w: %w", store.ErrUnknownOutcome, context.Canceled)
	if got, want := message(err), "interrupted: it is not known whether it was applied"; got != want {
		t.Errorf("Got %q, want %q", got, want)
	}
}

func TestComplete(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := newTestSession(t, "mem", &out)
	if failed, err := runScript(s, "create 'scores', 'grade', 'course'; create 'été', 'f'; x = get_table 'scores'", true); err != nil {
		t.Fatal(failed)
	}
	for _, c := range []struct{ before, head, offers string }{
		{"", "", "alter"},
		{"sca", "", "scan"},
		{"list; get_c", "list; ", "get_counter"},
		{"x", "", "x"},
		{"scan '", "scan '", "scores'|été'"},
		{`scan "sc`, `scan "`, `scores"`},
		{"scan 'é", "scan '", "été'"},
		{"put 'scores', 'r', '", "put 'scores', 'r', '", "course:|grade:"},
		{"get 'scores', 'it\\'s', 'c", "get 'scores', 'it\\'s', '", "course:"},
		{"alter 'scores', NAME => 'gr", "alter 'scores', NAME => '", "grade'"},
		{"x.get 'r', 'gr", "x.get 'r', '", "grade:"},
		{"scan 'scores', {STO", "scan 'scores', {", "STOPROW => "},
		{"scan 'scores', LIMIT => 1, REV", "scan 'scores', LIMIT => 1, ", "REVERSED => "},
		{"help 'sca", "help '", "scan'"},
		{"nothing 'x", "nothing 'x", ""},
		{"put 'nope', 'r', '", "put 'nope', 'r', '", ""},
	} {
		head, offers := s.complete(c.before)
		if c.before == "" {
			offers = offers[:1]
		}
		if got := strings.Join(offers, "|"); head != c.head || got != c.offers {
			t.Errorf("complete(%q) = %q, %q, want %q, %q", c.before, head, got, c.head, c.offers)
		}
	}
}

// fullDisk takes n bytes.
type fullDisk struct{ n int }

func (d *fullDisk) Write(b []byte) (int, error) {
	if d.n -= len(b); d.n < 0 {
		return 0, syscall.ENOSPC
	}
	return len(b), nil
}

// TestOutputIsLost: output that is lost is an error, in both forms.
func TestOutputIsLost(t *testing.T) {
	t.Parallel()
	for _, json := range []bool{false, true} {
		var out strings.Builder
		s := newTestSession(t, "mem", &out)
		if failed, err := runScript(s, "create 't', 'f'; put 't', 'r', 'f:q', 'v'", true); err != nil {
			t.Fatal(failed)
		}
		s.print = newPrinter(&fullDisk{10}, time.UTC)
		s.print.json = json
		if _, err := runScript(s, "scan 't'", true); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("json %t: Got %v, want ENOSPC", json, err)
		}
	}
}

// TestDeleteOfCounts: a delete of a column takes a counter and a distinct count away, of
// which there is one version.
func TestDeleteOfCounts(t *testing.T) {
	t.Parallel()
	for kind := range testStores {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			s := newTestSession(t, kind, &out)
			if failed, err := runScript(s, `create 't', {NAME => 'c', COUNTER => true}, {NAME => 'u', DISTINCT => true}
incr 't', 'r', 'c:n'; append 't', 'r', 'u:n', 'x'
delete 't', 'r', 'c:n'; delete 't', 'r', 'u:n'`, true); err != nil {
				t.Fatal(failed)
			}
			out.Reset()
			if failed, err := runScript(s, "get_counter 't', 'r', 'c:n'; get_counter 't', 'r', 'u:n'", true); err != nil {
				t.Fatal(failed)
			}
			if got := strings.Count(out.String(), "No counter found"); got != 2 {
				t.Errorf("Got %s", out.String())
			}
		})
	}
}

// TestCountOfPieces: count counts rows, not the pieces in which BATCH has them come.
func TestCountOfPieces(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := newTestSession(t, "mem", &out)
	if failed, err := runScript(s, `create 't', 'f'
put 't', 'a', 'f:p', '1'; put 't', 'a', 'f:q', '1'; put 't', 'b', 'f:p', '1'
count 't', BATCH => 1, FILTER => "ColumnPrefixFilter('')"`, true); err != nil {
		t.Fatal(failed)
	}
	if !strings.Contains(out.String(), "\n2 row(s)\n") {
		t.Errorf("Got %s", out.String())
	}
}
