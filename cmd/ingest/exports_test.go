package main

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice/config"
	"sluice/jobs"
)

// TestDirectoryThatHangs: a directory that does not answer holds up no other one, and shows.
func TestDirectoryThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg, err := config.Parse("sluice.yaml", []byte(`
tables:
  t: {families: {f: {}}}
jobs:
  near: {table: t, out: /near, columns: [{name: k, from: "f:q", type: string}]}
  far: {table: t, out: /far, columns: [{name: k, from: "f:q", type: string}]}
  farther: {table: t, out: /far, columns: [{name: k, from: "f:q", type: string}]}
`), nil)
		if err != nil {
			t.Fatal(err)
		}
		p := newPublished(cfg, slog.New(slog.DiscardHandler))
		answer, looks := make(chan struct{}), new(atomic.Int64)
		p.look = func(_ string, of *config.Declared) []jobs.RunSummary {
			if of.Out == "/far" {
				looks.Add(1)
				<-answer
			}
			return []jobs.RunSummary{{Job: "near", Rows: 7}, {Job: "far", Rows: 8}, {Job: "farther", Rows: 9}}
		}
		want := func(what string, rows map[string]uint64, held float64) {
			t.Helper()
			for _, s := range p.status() {
				h := held
				if s.Name == "near" {
					h = 0
				}
				if s.Rows != rows[s.Name] || s.DirectoryHeldSeconds != h {
					t.Errorf("%s: Got %d rows of %s, held for %v s, want %d and %v", what, s.Rows, s.Name, s.DirectoryHeldSeconds, rows[s.Name], h)
				}
			}
		}
		want("at first", map[string]uint64{"near": 7}, lookPatience.Seconds())
		time.Sleep(time.Hour)
		want("an hour later", map[string]uint64{"near": 7}, (time.Hour + 2*lookPatience).Seconds())
		if n := looks.Load(); n != 1 {
			t.Errorf("Got %d looks at one directory, want 1", n)
		}
		close(answer)
		synctest.Wait()
		want("when it answers", map[string]uint64{"near": 7, "far": 8, "farther": 9}, 0)
	})
}
