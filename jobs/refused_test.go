package jobs

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/jobs/join"
	"sluice/jobs/target"
	"sluice/store"
)

// refusal is a run, always the same, that a target or a spill directory may refuse.
type refusal struct {
	name string
	// prepare publishes what the run goes on from.
	prepare func(t testing.TB, tg target.Target)
	run     func(t testing.TB, tg target.Target, spill string) error
}

// heldChanges is a store whose holds do not move on beyond a commit, so that one run from
// there can be made again.
type heldChanges struct {
	store.ChangeHolder
	from uint64
}

func (h heldChanges) HoldChanges(ctx context.Context, hold store.ChangeHold) (store.ChangeHold, error) {
	hold.Since = min(hold.Since, h.from)
	return h.ChangeHolder.HoldChanges(ctx, hold)
}

// refusals are the kinds of runs that there are: of rows, in partitions, sorted by what
// does not fit memory, joins by merging and by hashes that do not fit memory either, and
// increments.
func refusals(t *testing.T) []refusal {
	t.Helper()
	none := func(testing.TB, target.Target) {}
	plain := func(seed uint64) func(testing.TB, target.Target, string) error {
		job, src := resumeCase(t, seed)
		return func(t testing.TB, tg target.Target, _ string) error {
			_, err := Run(t.Context(), resumeOptions(job, src, tg, 1))
			return err
		}
	}
	table, sorted := sortable(rand.New(rand.NewPCG(4, 4)), 60)
	sorted.Sort, sorted.TargetFileBytes, sorted.MemoryBytes = []SortColumn{{Column: "text"}}, 1200, 1
	joining := func(method string, memory int64) func(testing.TB, target.Target, string) error {
		src := joinSource(600)
		return func(t testing.TB, tg target.Target, spill string) error {
			spec := joinSpec(join.Full, method)
			spec.MemoryBytes, spec.SpillDir = memory, spill
			_, err := RunJoin(t.Context(), &JoinOptions{
				Join: mustCompileJoin(t, spec), Source: src, Target: tg, LogicalTime: resumeTime, Checkpoint: "cp", Now: func() time.Time { return resumeTime },
			})
			return err
		}
	}
	before, increment := refusedIncrement(t)
	return []refusal{
		{"rows", none, plain(0)},
		{"partitions", none, plain(3)},
		{"sorted", none, func(t testing.TB, tg target.Target, spill string) error {
			spec := *sorted
			spec.SpillDir = spill
			_, err := Run(t.Context(), resumeOptions(mustCompile(t, "j", &spec, nil), table, tg, 1))
			return err
		}},
		{"merged", none, joining(join.Merge, 0)},
		{"hashed", none, joining(join.Hash, 1000)},
		{"increment", before, increment},
	}
}

// refusedIncrement returns a full run and the increment after it.
func refusedIncrement(t *testing.T) (full func(testing.TB, target.Target), increment func(testing.TB, target.Target, string) error) {
	t.Helper()
	s := newIncremental(t, t.TempDir(), 9)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	spec := s.job.spec
	spec.TargetFileBytes = 1
	schema, err := s.Table(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	s.job = mustCompile(t, "j", &spec, schema)
	snapshot := func() store.Snapshot {
		if err := HoldChanges(t.Context(), s.job, s, s.at); err != nil {
			t.Fatal(err)
		}
		snapshot, err := s.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := snapshot.Close(); err != nil {
				t.Error(err)
			}
		})
		return snapshot
	}
	s.put("a", "v", 1)
	s.put("d", "v", 1)
	first := snapshot()
	s.put("b", strings.Repeat("w", 2000), 1)
	gone := &cell.Mutation{Table: "t", Row: []byte("d")}
	gone.DeleteRow(cell.Latest)
	s.mutate(gone)
	second := snapshot()
	run := func(t testing.TB, tg target.Target, source store.Snapshot, at time.Time) (*Manifest, error) {
		return Run(t.Context(), &RunOptions{
			Job: s.job, Source: source, Target: tg, Holder: heldChanges{s, first.Sequence()}, StoreID: "s", LogicalTime: at, Now: func() time.Time { return at }, batchRows: 1, Parallelism: 1, Checkpoint: "cp",
		})
	}
	full = func(t testing.TB, tg target.Target) {
		t.Helper()
		if m, err := run(t, tg, first, resumeTime); err != nil || m.increment() {
			t.Fatalf("Got %v", err)
		}
	}
	return full, func(t testing.TB, tg target.Target, _ string) error {
		m, err := run(t, tg, second, resumeTime.Add(time.Hour))
		if err == nil && !m.increment() {
			t.Errorf("Got a full run: %+v", m.Incremental)
		}
		return err
	}
}

// clean makes the run where nothing is refused, and returns what it has published.
func (r *refusal) clean(t *testing.T, spill string) (files map[string]string, steps int) {
	t.Helper()
	out := t.TempDir()
	k := &killing{Local: mustLocal(t, out), err: syscall.ENOSPC} // never
	r.prepare(t, k.Local)
	if err := r.run(t, k, spill); err != nil {
		t.Fatalf("%s: %v", r.name, err)
	}
	return sums(contents(t, out)), len(k.steps)
}

// refused checks what a refused run has left in out, where before lay, and makes it again
// with space: it is what it would have been. before is what was visible. The run may have
// been published, where _latest.json could not be written afterwards.
func (r *refusal) refused(t *testing.T, how string, before []string, want map[string]string, out, spill string, leaves bool) {
	t.Helper()
	runs, err := List(t.Context(), out)
	if err != nil {
		t.Fatalf("%s: %v", how, err)
	}
	manifests := 0
	for _, name := range before {
		if filepath.Base(name) == ManifestName {
			manifests++
		}
	}
	if d := cmp.Diff(before, visible(t, out)); len(runs) == manifests && d != "" {
		t.Errorf("%s: something is visible: %s", how, d)
	}
	for _, run := range runs {
		if v, err := Verify(t.Context(), filepath.Join(out, filepath.FromSlash(run.Dir))); err != nil || !v.OK() {
			t.Errorf("%s: %v, %v", how, err, v.Err())
		}
	}
	if left, err := os.ReadDir(filepath.Join(out, "_tmp")); !leaves && !errors.Is(err, os.ErrNotExist) && len(left) > 0 {
		t.Errorf("%s: %v is left", how, left)
	}
	local := mustLocal(t, out)
	err = r.run(t, local, spill)
	if errors.Is(err, target.ErrExists) {
		if _, err = FinishPublished(t.Context(), local, "j", time.Time{}); errors.Is(err, target.ErrNotFound) {
			err = nil // it is named
		}
	}
	if err != nil {
		t.Fatalf("%s: with space: %v", how, err)
	}
	if d := cmp.Diff(want, sums(contents(t, out))); d != "" {
		t.Fatalf("%s: with space: %s", how, d)
	}
	if left, err := os.ReadDir(spill); err != nil || len(left) > 0 {
		t.Errorf("%s: %v (%v) is left in the directory for what does not fit memory", how, left, err)
	}
}

// TestTargetRefusesRuns: a target that is full, or read-only, from some step of a run on
// gets nothing visible but a whole run. A full one has nothing left of what was not
// published; a run is made again, or gone on with, as if nothing had been.
func TestTargetRefusesRuns(t *testing.T) {
	t.Parallel()
	for _, r := range refusals(t) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			spill := t.TempDir()
			want, steps := r.clean(t, spill)
			if len(want) < 4 || steps < 10 {
				t.Fatalf("Got %d files in %d steps, want a run with more", len(want), steps)
			}
			for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EROFS} {
				for die := 1; die <= steps; die += max(1, steps/15) {
					out := t.TempDir()
					k := &killing{Local: mustLocal(t, out), die: die, err: &os.PathError{Op: "write", Path: "file", Err: errno}}
					r.prepare(t, k.Local)
					before := visible(t, out)
					err := r.run(t, k, spill)
					how := errno.Error() + " at " + k.steps[len(k.steps)-1]
					if !errors.Is(err, errno) || errno == syscall.ENOSPC && errors.Is(err, ErrResumable) {
						t.Fatalf("%s: Got %v", how, err)
					}
					r.refused(t, how, before, want, out, spill, errors.Is(err, ErrResumable))
				}
			}
		})
	}
}
