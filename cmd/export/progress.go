package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/jobs/work"
)

// progress shows how far a run is: a line that is written over on a terminal, a log
// line now and then elsewhere, and events where programs read them.
type progress struct {
	out      io.Writer
	terminal bool
	events   *slog.Logger // nil = for people
	every    time.Duration
	next     time.Duration // of the run's time, when to show again
	last     work.Progress
	shown    bool
}

// How often progress is shown: a terminal's line so that it seems to move, a log's so
// that a long run leaves some pages, events so that what shows them moves.
const (
	terminalEvery = 200 * time.Millisecond
	logEvery      = 30 * time.Second
	eventEvery    = time.Second
)

// newProgress shows nothing where quiet is set.
func newProgress(p *cli.Program, quiet bool) *progress {
	g := &progress{out: p.Stderr, terminal: cli.IsTerminal(p.Stderr), every: logEvery, next: logEvery}
	if g.terminal {
		g.every, g.next = terminalEvery, 0
	}
	if quiet {
		g.out = io.Discard
	}
	if p.JSON {
		g.terminal, g.every, g.next, g.events = false, eventEvery, 0, cli.EventLog(g.out)
	}
	return g
}

// report is for RunOptions.Progress.
func (g *progress) report(p work.Progress) {
	turned := (p.PausedFor == "") != (g.last.PausedFor == "") // that a run pauses, or goes on, is said at once
	g.last = p
	if p.Elapsed < g.next && !turned {
		return
	}
	g.next = p.Elapsed + g.every
	g.shown = true
	if g.terminal {
		fmt.Fprintf(g.out, "\r"+noWrap+"%s\x1b[K"+wrap, line(p))
		return
	}
	if g.events != nil {
		g.event(p)
		return
	}
	attrs := []any{"rows", p.Rows, "files", p.Files, "bytes", p.Bytes, "took", p.Elapsed.Round(time.Second)}
	if n, ok := rowsPerSecond(p); ok {
		attrs = append(attrs, "rows_per_second", n)
	}
	if p.Regions > 0 {
		attrs = append(attrs, "regions_done", p.RegionsDone, "regions", p.Regions)
	}
	if left := remaining(p); left > 0 {
		attrs = append(attrs, "eta", left)
	}
	if p.Paused > 0 {
		attrs = append(attrs, "paused", p.Paused.Round(time.Second))
	}
	if p.PausedFor != "" {
		attrs = append(attrs, "paused_for", p.PausedFor)
	}
	slog.New(slog.NewTextHandler(g.out, nil)).Info("exporting", attrs...)
}

// event writes how far a run is as an event.
func (g *progress) event(p work.Progress) {
	n, _ := rowsPerSecond(p)
	g.events.Info("progress", "rows", p.Rows, "files", p.Files, "bytes", p.Bytes, "done", p.Done,
		"regions_done", p.RegionsDone, "regions", p.Regions, "rows_per_second", n,
		"elapsed_seconds", p.Elapsed.Seconds(), "eta_seconds", remaining(p).Seconds(),
		"paused_seconds", p.Paused.Seconds(), "paused_for", p.PausedFor)
}

// end leaves the last line on a terminal, and the last event.
func (g *progress) end() {
	if g.events != nil && g.shown {
		g.event(g.last)
	}
	if g.terminal && g.shown {
		fmt.Fprintf(g.out, "\r\x1b[K%s\n", line(g.last))
	}
}

// barWidth is narrow enough for what mostly stands beside it on 80 columns.
const barWidth = 16

// What keeps a terminal from going on in its next line where a line is wider than it is
// (DECAWM, of VT100): "\r" would lead back to the beginning of the last of them alone, and
// all others would stay, a screen of them in seconds. The last line, which is not written
// over, may go on.
const noWrap, wrap = "\x1b[?7l", "\x1b[?7h"

// line is one line of progress.
func line(p work.Progress) string {
	var b strings.Builder
	if p.Done > 0 {
		full := int(p.Done * barWidth)
		fmt.Fprintf(&b, "[%s%s] %3.0f%%  ", strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), p.Done*100)
	}
	if p.Regions > 0 {
		fmt.Fprintf(&b, "%d/%d regions  ", p.RegionsDone, p.Regions)
	}
	if p.Regions == 0 && p.Rows == 0 && p.Files > 0 {
		fmt.Fprintf(&b, "%d files", p.Files)
	} else {
		fmt.Fprintf(&b, "%s rows", cli.Count(p.Rows))
	}
	if n, ok := rowsPerSecond(p); ok {
		fmt.Fprintf(&b, " (%s/s)", cli.Count(n))
	}
	fmt.Fprintf(&b, "  %s", cli.Bytes(p.Bytes))
	switch left := remaining(p); {
	case p.PausedFor != "":
		fmt.Fprintf(&b, "  paused: %s", p.PausedFor)
	case left > 0:
		fmt.Fprintf(&b, "  %s left", left)
	}
	return b.String()
}

// rowsPerSecond is how many rows a second this process has done, where there are some.
func rowsPerSecond(p work.Progress) (n int64, ok bool) {
	s := (p.Elapsed - p.Paused).Seconds()
	if s <= 0 || p.Rows == 0 {
		return 0, false
	}
	return int64(float64(p.Rows-p.ResumedRows) / s), true
}

// remaining is the time that is left if the rest goes on like what was done here, or
// 0 where nothing tells.
func remaining(p work.Progress) time.Duration {
	done := p.Done - p.ResumedDone
	if done <= 0 || p.Done >= 1 {
		return 0
	}
	return max(time.Duration(float64(p.Elapsed-p.Paused)*(1-p.Done)/done).Round(time.Second), time.Second)
}
