package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sluice/cell"
	"sluice/internal/thinned"
	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/jobs/jobstest"
	"sluice/jobs/target"
	"sluice/store"
)

// largeRegion returns the snapshot of an embedded engine with one region of 3,000 rows of
// a kilobyte, which are on the disk.
func largeRegion(t *testing.T) store.Snapshot {
	t.Helper()
	db := jobstest.OpenPebble(t, t.TempDir())
	jobstest.CreateTable(t, db, "t")
	random := rand.NewChaCha8([32]byte{7})
	for i := range 3000 {
		value := make([]byte, 1000)
		_, _ = random.Read(value) // never fails
		jobstest.Mutate(t, db, "t", fmt.Sprintf("row%05d", i), jobstest.PutOp("f", "n", 1, fmt.Sprint(i)), jobstest.PutOp("f", "v", 1, string(value)))
	}
	if err := db.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return jobstest.SnapshotOf(t, db)
}

// largeSpec is a job of largeRegion.
func largeSpec() *Spec {
	return &Spec{Table: "t", Formats: []string{Parquet, Arrow}, Columns: []columnar.ColumnSpec{
		{Name: "key", From: "$row", Type: "string"}, {Name: "n", From: "f:n", Type: "int64"}, {Name: "v", From: "f:v", Type: "bytes"},
	}}
}

// TestCutLargeRegion: a table of one region is exported, and planned, in parts of about
// equal size; they hold what it holds, in order, whatever sorts or divides it.
func TestCutLargeRegion(t *testing.T) {
	t.Parallel()
	src := largeRegion(t)
	whole, dir := published(t, src, largeSpec(), RunOptions{})
	if len(whole.Files) != 2 {
		t.Fatalf("Got %d files of a table that is not large", len(whole.Files))
	}
	want := readFormat(t, dir, whole, Parquet)
	const cutBytes = 400 << 10
	for name, change := range map[string]func(*Spec){
		"by key":    func(*Spec) {},
		"small":     func(s *Spec) { s.TargetFileBytes = 100 << 10 },
		"some rows": func(s *Spec) { s.StartRow, s.StopRow = "row00500", "row02500" },
		"sorted":    func(s *Spec) { s.Sort = []SortColumn{{Column: "n"}} },
		"partitions": func(s *Spec) {
			s.PartitionBy = []string{"n"}
			s.Where = []columnar.Predicate{{Column: "n", Op: "<", Value: "3"}}
		},
	} {
		if testing.Short() && name != "by key" && name != "partitions" {
			continue
		}
		spec := largeSpec()
		change(spec)
		m, dir := published(t, src, spec, RunOptions{Parallelism: 4, cutBytes: cutBytes})
		rows := want
		switch name {
		case "some rows":
			rows = want[500:2500]
		case "partitions":
			rows = want[:3]
		}
		for _, format := range spec.Formats {
			if d := jobstest.Diff(rows, readFormat(t, dir, m, format)); d != "" {
				t.Errorf("%s: %s", name, d)
			}
		}
		var parts []int64 // rows
		for i := range m.Files {
			f := &m.Files[i]
			if f.Format != Parquet {
				continue
			}
			if region := regionOf(t, f.Path); region == len(parts) {
				parts = append(parts, 0)
			} else if region != len(parts)-1 {
				t.Errorf("%s: %s is behind part %d", name, f.Path, len(parts)-1)
			}
			parts[len(parts)-1] += f.Rows
			if f.RegionStart != "" || f.RegionStop != "" {
				t.Errorf("%s: %s is of region [%s, %s)", name, f.Path, f.RegionStart, f.RegionStop)
			}
		}
		if name == "sorted" || name == "partitions" {
			if len(parts) != 1 {
				t.Errorf("%s: Got parts of %d rows", name, parts)
			}
			continue
		}
		mean := int64(len(rows) / len(parts))
		if len(parts) < 4 || len(parts) > 10 || slices.Min(parts) < mean/2 || slices.Max(parts) > 2*mean {
			t.Errorf("%s: Got parts of %d rows", name, parts)
		}
		plan, err := Plan(t.Context(), &PlanOptions{Job: mustCompile(t, "j", spec, nil), Source: src, cutBytes: cutBytes})
		if err != nil {
			t.Fatal(err)
		}
		// The engine may have merged files meanwhile, and is cut elsewhere then.
		sum := int64(0)
		for i := range plan.Splits {
			n := plan.Splits[i].Count
			if sum += n; n < mean/2 || n > 2*mean {
				t.Errorf("%s: Got %d rows planned of part %d, %d of each", name, n, i, mean)
			}
		}
		if plan.Regions != 1 || len(plan.Splits) < 4 || sum != int64(len(rows)) {
			t.Errorf("%s: Got %d rows planned in %d parts of %d regions", name, sum, len(plan.Splits), plan.Regions)
		}
	}
}

// TestCutIncrement: an increment, whose rows are few, is not cut; a full run is.
func TestCutIncrement(t *testing.T) {
	t.Parallel()
	s := newIncremental(t, t.TempDir(), 10)
	for i := range 4 {
		s.put(fmt.Sprint("r", i), "v", 1)
	}
	cuts := [][]byte{[]byte("r1"), []byte("r3")}
	run := func() *run {
		r, err := newRun(&RunOptions{Job: s.job, Source: &cutting{Source: jobstest.SnapshotOf(t, s), cuts: cuts}, Out: "."})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r
	}
	full, increment := run(), run()
	increment.changes = &instant.Unfrozen{}
	whole := len(full.splits)
	if err := errors.Join(full.cut(t.Context()), increment.cut(t.Context())); err != nil {
		t.Fatal(err)
	}
	if len(full.splits) <= whole || len(increment.splits) != whole {
		t.Errorf("Got %d parts in full, %d in an increment of %d regions", len(full.splits), len(increment.splits), whole)
	}
}

// cutting is a source that is cut before rows.
type cutting struct {
	instant.Source
	cuts [][]byte
}

// Cuts implements instant.Cutter.
func (c *cutting) Cuts(_ context.Context, _ string, _ []string, rows cell.Range, _ int64) (within [][]byte, err error) {
	for _, key := range c.cuts {
		if rows.Contains(key) && string(key) > string(rows.Start) {
			within = append(within, key)
		}
	}
	return within, nil
}

// TestCutResumeKilled kills a run of parts at each step. The run that resumes it would
// cut elsewhere, and publishes what the first would have published; where nothing was
// noted of that, what it would have published itself.
func TestCutResumeKilled(t *testing.T) {
	t.Parallel()
	job, src := resumeCase(t, 0)
	keys := func(all ...string) (cuts [][]byte) {
		for _, key := range all {
			cuts = append(cuts, []byte(key))
		}
		return cuts
	}
	first := &cutting{src, keys("a", "a005", "b", "d", "e0", "f")}
	second := &cutting{src, keys("a009", "c", "d015")}
	clean, again := t.TempDir(), t.TempDir()
	all, m, err := runKilled(t, job, first, clean, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if last := regionOf(t, m.Files[len(m.Files)-1].Path); last < 7 {
		t.Fatalf("Got the last file of part %d", last)
	}
	_, other, err := runKilled(t, job, second, again, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if d := jobstest.Diff(readFormat(t, filepath.Join(clean, runDir("j", resumeTime)), m, Arrow), readFormat(t, filepath.Join(again, runDir("j", resumeTime)), other, Arrow)); d != "" {
		t.Error(d)
	}
	want := map[bool]map[string]string{true: sums(contents(t, clean)), false: sums(contents(t, again))}
	resumed := 0
	every := thinned.Of(1, 3)
	for die := 1; die <= len(all.steps); die += every {
		dir := t.TempDir()
		k, _, err := runKilled(t, job, first, dir, die, 1+die%2)
		if !errors.Is(err, errKilled) {
			t.Fatalf("killed at %s: %v", all.steps[die-1], err)
		}
		noted := slices.Contains(k.noted, noteRun)
		if noted {
			resumed++
		}
		if _, _, err := runKilled(t, job, second, dir, 0, 2); err != nil && !errors.Is(err, target.ErrExists) {
			t.Fatalf("killed at %s: %v", all.steps[die-1], err)
		}
		if d := jobstest.Diff(want[noted], sums(contents(t, dir))); d != "" {
			t.Fatalf("killed at %s: %s", all.steps[die-1], d)
		}
	}
	if resumed < 80/every {
		t.Errorf("Got %d of %d runs resumed", resumed, len(all.steps))
	}
}

// TestCutNotesRefused: notes whose cuts are none begin the run anew, cut as it is now.
func TestCutNotesRefused(t *testing.T) {
	t.Parallel()
	job, src := resumeCase(t, 0)
	cut := &cutting{src, [][]byte{[]byte("b"), []byte("d")}}
	clean := t.TempDir()
	all, _, err := runKilled(t, job, cut, clean, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{`"d",`, `"\\x",`} {
		dir := t.TempDir()
		if _, _, err := runKilled(t, job, cut, dir, len(all.steps)/2, 1); !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		edit(t, filepath.Join(dir, "_tmp", runID("j", resumeTime), "notes", noteRun), func(b []byte) []byte {
			changed := bytes.Replace(b, []byte(`"b",`), []byte(bad), 1)
			if bytes.Equal(changed, b) {
				t.Fatalf("No cut in %s", b)
			}
			return changed
		})
		if _, _, err := runKilled(t, job, cut, dir, 0, 1); err != nil {
			t.Fatal(err)
		}
		if d := jobstest.Diff(sums(contents(t, clean)), sums(contents(t, dir))); d != "" {
			t.Errorf("%s: %s", bad, d)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("Got %v, %v", left, err)
		}
	}
}

func TestCutSplits(t *testing.T) {
	t.Parallel()
	m := jobstest.Regions("t", "b", "d")
	keys := func(all ...string) (keys [][]byte) {
		for _, k := range all {
			keys = append(keys, []byte(k))
		}
		return keys
	}
	for _, c := range []struct {
		rows cell.Range
		cuts [][]byte
		want []string
	}{
		{cuts: nil, want: []string{"0 [,b)", "1 [b,d)", "2 [d,)"}},
		{cuts: keys("a", "c", "e", "f"), want: []string{"0 [,a)", "1 [a,b)", "2 [b,c)", "3 [c,d)", "4 [d,e)", "5 [e,f)", "6 [f,)"}},
		{cuts: keys("b", "d"), want: []string{"0 [,b)", "1 [b,d)", "2 [d,)"}},
		{rows: cell.Range{Start: []byte("c"), Stop: []byte("e")}, cuts: keys("a", "c", "c5", "d5", "e"), want: []string{"1 [c,c5)", "2 [c5,d)", "3 [d,d5)", "4 [d5,e)"}},
	} {
		var got []string
		for _, s := range instant.Cut(instant.Splits(m, c.rows), c.cuts) {
			got = append(got, fmt.Sprintf("%d [%s,%s)", s.Index, s.Rows.Start, s.Rows.Stop))
		}
		if d := jobstest.Diff(c.want, got); d != "" {
			t.Errorf("%q: %s", c.cuts, d)
		}
	}
}
