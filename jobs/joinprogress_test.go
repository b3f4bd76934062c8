package jobs

import (
	"path/filepath"
	"testing"

	"sluice/jobs/instant"
	"sluice/jobs/join"
	"sluice/jobs/work"
)

// TestJoinProgress: a join tells what part of its sides was read, by their bytes where
// these are known, also before it has rows.
func TestJoinProgress(t *testing.T) {
	t.Parallel()
	src := joinSource(30_000)
	exports := t.TempDir()
	for _, job := range joinJobs(t) {
		spec := job.spec
		spec.TargetFileBytes = 0
		if _, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, job.name, &spec, nil), Source: src, Out: exports}); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		method string
		source instant.Source
		runs   bool
		memory int64 // 0 = enough
	}{
		"merge":            {method: join.Merge, source: src},
		"merge, by bytes":  {method: join.Merge, source: sized{Memory: src}},
		"hash, by bytes":   {method: join.Hash, source: sized{Memory: src}},
		"lookup, by bytes": {method: join.Lookup, source: sized{Memory: src}},
		"merge of runs":    {method: join.Merge, runs: true},
		"hash of runs":     {method: join.Hash, runs: true},
		"hash on disk":     {method: join.Hash, source: sized{Memory: src}, memory: 3_000},
		"twice on disk":    {method: join.Hash, runs: true, memory: 250},
	} {
		spec := joinSpec(join.Inner, c.method)
		spec.TargetFileBytes, spec.MemoryBytes = 0, c.memory
		if c.runs {
			spec.Left, spec.Right = JoinSide{Run: filepath.Join(exports, "views")}, JoinSide{Run: filepath.Join(exports, "users")}
		}
		var all []work.Progress
		o := &JoinOptions{
			Join: mustCompileJoin(t, spec), Source: c.source, Out: t.TempDir(), Now: clock(), // each look a second later
			Progress: func(p work.Progress) { all = append(all, p) },
		}
		if _, err := RunJoin(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		between, joining, before := 0, 0, work.Progress{}
		for _, p := range all {
			if p.Done < before.Done || p.Done > 1 || p.Elapsed <= before.Elapsed {
				t.Errorf("%s: Got %+v after %+v", name, p, before)
			}
			if p.Done > before.Done && p.Done < 1 {
				between++
				if p.Done > 0.55 { // the sides are read at half of it, and a bit
					joining++
				}
			}
			before = p
		}
		if before.Done != 1 || between < 2 || before.Rows == 0 || before.Files == 0 {
			t.Errorf("%s: Got %+v in the end, %d steps before", name, before, between)
		}
		if c.memory > 0 && joining < 20 { // of 32 parts
			t.Errorf("%s: Got %d steps while it joined what is on disk", name, joining)
		}
		if c.method == join.Hash && (all[0].Rows > 0 || all[0].Done == 0) {
			t.Errorf("%s: Got %+v when the right side was read", name, all[0])
		}
	}
}
