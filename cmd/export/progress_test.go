package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/jobs/work"
)

// TestProgressLog: where there is no terminal, a line now and then says how many rows a
// second there are, without those of the run that was cut off, and what time is left.
func TestProgressLog(t *testing.T) {
	t.Parallel()
	var errs strings.Builder
	g := newProgress(&cli.Program{Stderr: &errs}, false)
	g.report(work.Progress{Rows: 100, Elapsed: time.Second})
	if errs.Len() > 0 {
		t.Errorf("Got %s at once", errs.String())
	}
	g.report(work.Progress{Rows: 4000, ResumedRows: 1000, Bytes: 7, Files: 2, RegionsDone: 1, Regions: 4, Elapsed: 30 * time.Second, Done: 0.5, ResumedDone: 0.25})
	g.report(work.Progress{Rows: 4001, Elapsed: 31 * time.Second})
	for _, want := range []string{"rows=4000 ", "rows_per_second=100 ", "files=2 ", "bytes=7 ", "regions_done=1 ", "regions=4 ", "eta=1m0s"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("Got %s, want %s", errs.String(), want)
		}
	}
	if n := strings.Count(errs.String(), "\n"); n != 1 {
		t.Errorf("Got %d lines: %s", n, errs.String())
	}
	// That it pauses is said at once, and once; what it did then does not count.
	g.report(work.Progress{Rows: 4002, Elapsed: 32 * time.Second, PausedFor: "pipeline p is 40s behind"})
	g.report(work.Progress{Rows: 4002, Elapsed: 33 * time.Second, Paused: time.Second, PausedFor: "pipeline p is 41s behind"})
	g.report(work.Progress{Rows: 4002, Elapsed: 43 * time.Second, Paused: 10 * time.Second})
	g.report(work.Progress{Rows: 4003, Elapsed: 44 * time.Second, Paused: 10 * time.Second})
	lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
	if len(lines) != 3 || !strings.HasSuffix(lines[1], ` paused_for="pipeline p is 40s behind"`) || !strings.HasSuffix(lines[2], " rows_per_second=121 paused=10s") {
		t.Errorf("Got %s", errs.String())
	}
}

// TestLine: what a terminal shows, which fits one line.
func TestLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		p    work.Progress
		want string
	}{
		{work.Progress{}, "0 rows  0 B"},
		{work.Progress{Regions: 4}, "0/4 regions  0 rows  0 B"},
		{
			work.Progress{Regions: 4, RegionsDone: 1, Rows: 12_000, Files: 2, Bytes: 3 << 20, Elapsed: 4 * time.Second, Done: 0.25},
			"[====            ]  25%  1/4 regions  12,000 rows (3,000/s)  3.0 MiB  12s left",
		},
		{ // a run that was resumed is judged by what was done since
			work.Progress{Regions: 4, RegionsDone: 2, Rows: 12_000, ResumedRows: 8_000, Elapsed: 4 * time.Second, Done: 0.5, ResumedDone: 0.4},
			"[========        ]  50%  2/4 regions  12,000 rows (1,000/s)  0 B  20s left",
		},
		{work.Progress{Rows: 10, Elapsed: 10 * time.Second, Done: 0.999}, "[=============== ] 100%  10 rows (1/s)  0 B  1s left"},
		{work.Progress{Rows: 10, Elapsed: 10 * time.Second, Done: 1}, "[================] 100%  10 rows (1/s)  0 B"},
		{work.Progress{Rows: 10, ResumedRows: 10, Elapsed: time.Second, Done: 0.5, ResumedDone: 0.5}, "[========        ]  50%  10 rows (0/s)  0 B"},
		{ // while it pauses, nobody knows what is left
			work.Progress{Rows: 7, Elapsed: 3 * time.Second, Paused: 2 * time.Second, PausedFor: "pipeline p is 40s behind", Done: 0.5},
			"[========        ]  50%  7 rows (7/s)  0 B  paused: pipeline p is 40s behind",
		},
		{work.Progress{Rows: 7, Elapsed: 3 * time.Second, Paused: 2 * time.Second, Done: 0.5}, "[========        ]  50%  7 rows (7/s)  0 B  1s left"},
		{work.Progress{Rows: 7, Elapsed: time.Second, Done: 0.5}, "[========        ]  50%  7 rows (7/s)  0 B  1s left"}, // a join, which has no regions
		{work.Progress{Files: 3, Bytes: 2048, Elapsed: time.Second, Done: 0.75}, "[============    ]  75%  3 files  2.0 KiB  1s left"},
		{work.Progress{Rows: 1 << 40, Bytes: 900 << 30, Regions: 9999, RegionsDone: 1000, Elapsed: time.Hour, Done: 0.1}, "[=               ]  10%  1000/9999 regions  1,099,511,627,776 rows (305,419,896/s)  900.0 GiB  9h0m0s left"},
	} {
		if got := line(c.p); got != c.want {
			t.Errorf("Got %s\nwant %s", got, c.want)
		}
	}
}

// TestProgressTerminal: a terminal's line is written over, five times a second at most,
// and stays at the end.
func TestProgressTerminal(t *testing.T) {
	t.Parallel()
	var errs strings.Builder
	g := &progress{out: &errs, terminal: true, every: terminalEvery}
	g.end()
	for i := range 10 {
		g.report(work.Progress{Rows: int64(i), Elapsed: time.Duration(i) * 100 * time.Millisecond})
	}
	g.end()
	want := ""
	for _, at := range []int{0, 2, 4, 6, 8} {
		want += "\r\x1b[?7l" + line(work.Progress{Rows: int64(at), Elapsed: time.Duration(at) * 100 * time.Millisecond}) + "\x1b[K\x1b[?7h"
	}
	want += "\r\x1b[K" + line(work.Progress{Rows: 9, Elapsed: 900 * time.Millisecond}) + "\n"
	if errs.String() != want {
		t.Errorf("Got %q\nwant %q", errs.String(), want)
	}
}

// events are the lines of standard error with --json.
func events(t *testing.T, stderr string) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(stderr) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if e["event"] == nil || e["time"] == nil {
			t.Errorf("%s is no event", line)
		}
		all = append(all, e)
	}
	return all
}

// TestEvents: with --json, standard error has nothing but events: how far a run is, and
// last of all why it failed, with the exit status.
func TestEvents(t *testing.T) {
	t.Parallel()
	file, _ := setup(t, "a", "b", "c")
	_, stderr, status := export(t, "run", "-c", file, "--json", "--time", "2026-01-01T00:00:00Z", "views")
	all := events(t, stderr)
	if status != 0 || len(all) == 0 {
		t.Fatalf("Got status %d and %s", status, stderr)
	}
	for _, e := range all {
		if e["event"] != "progress" {
			t.Errorf("Got %v of a run that goes well", e)
		}
	}
	last := all[len(all)-1]
	if last["rows"] != 3.0 || last["files"] == 0.0 || last["bytes"] == 0.0 || last["regions"] != 2.0 || last["regions_done"] != 2.0 {
		t.Errorf("Got %v in the end", last)
	}
	// The run is there already.
	for _, args := range [][]string{
		{"run", "-c", file, "--json", "--time", "2026-01-01T00:00:00Z", "views"},
		{"run", "-c", file, "--json", "-q", "nobody"},
	} {
		_, stderr, status = export(t, args...)
		all = events(t, stderr)
		if status == 0 || len(all) == 0 {
			t.Fatalf("%v: Got status %d and %s", args, status, stderr)
		}
		last := all[len(all)-1]
		if text, _ := last["text"].(string); last["event"] != "error" || last["status"] != float64(status) || text == "" || strings.HasPrefix(text, "export:") {
			t.Errorf("%v: Got %v in the end, status %d", args, last, status)
		}
	}
}

// TestProgressOnNarrowTerminals: a line that is wider than the terminal is written over
// like any other, and the last one is whole.
func TestProgressOnNarrowTerminals(t *testing.T) {
	t.Parallel()
	p := work.Progress{Rows: 150_000_000, Bytes: 8 << 30, Regions: 124, RegionsDone: 12, Done: 0.1}
	for _, width := range []int{2, 20, 90, 80, 200} {
		var out strings.Builder
		g := &progress{out: &out, terminal: true, every: terminalEvery}
		for range 5 {
			p.Elapsed += time.Second
			g.report(p)
		}
		if lines := screen(out.String(), width); len(lines) != 1 {
			t.Errorf("%d columns: got %d lines of one that is written over: %q", width, len(lines), lines)
		}
		g.end()
		if got := strings.Join(screen(out.String(), width), ""); got != line(p) {
			t.Errorf("%d columns: got %q at the end, want %q", width, got, line(p))
		}
	}
}

// screen returns the lines that a terminal of so many columns shows, without those that
// are empty.
func screen(out string, width int) []string {
	lines, row, column, wraps := []string{""}, 0, 0, true
	set := func(b byte) {
		l := []byte(lines[row])
		lines[row] = string(append(append(l[:column:column], b), l[min(column+1, len(l)):]...))
	}
	down := func() { lines, row, column = append(lines, ""), row+1, 0 }
	for len(out) > 0 {
		switch {
		case strings.HasPrefix(out, "\x1b[K"):
			lines[row], out = lines[row][:min(column, len(lines[row]), width-1)], out[3:]
			continue
		case strings.HasPrefix(out, "\x1b[?7l"), strings.HasPrefix(out, "\x1b[?7h"):
			wraps, out = out[4] == 'h', out[5:]
			continue
		case out[0] == '\r':
			column = 0
		case out[0] == '\n':
			down()
		default:
			if column == width && wraps {
				down()
			}
			column = min(column, width-1)
			set(out[0])
			column++
		}
		out = out[1:]
	}
	return slices.DeleteFunc(lines, func(l string) bool { return l == "" })
}
