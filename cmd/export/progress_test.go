package main

import (
	"strings"
	"testing"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/jobs"
)

// TestProgressLog: where there is no terminal, a line now and then says how many rows a
// second there are, without those of the run that was cut off, and what time is left.
func TestProgressLog(t *testing.T) {
	t.Parallel()
	var errs strings.Builder
	g := newProgress(&cli.Program{Stderr: &errs}, false)
	g.report(jobs.Progress{Rows: 100, Elapsed: time.Second})
	if errs.Len() > 0 {
		t.Errorf("Got %s at once", errs.String())
	}
	g.report(jobs.Progress{Rows: 4000, ResumedRows: 1000, Bytes: 7, Files: 2, RegionsDone: 1, Regions: 4, Elapsed: 30 * time.Second, Done: 0.5, ResumedDone: 0.25})
	g.report(jobs.Progress{Rows: 4001, Elapsed: 31 * time.Second})
	for _, want := range []string{"rows=4000 ", "rows_per_second=100 ", "files=2 ", "bytes=7 ", "regions_done=1 ", "regions=4 ", "eta=1m0s"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("Got %s, want %s", errs.String(), want)
		}
	}
	if n := strings.Count(errs.String(), "\n"); n != 1 {
		t.Errorf("Got %d lines: %s", n, errs.String())
	}
}
