package jobs

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/thinned"
	"sluice/jobs/instant"
	"sluice/jobs/join"
	"sluice/jobs/target"
	"sluice/jobs/work"
)

// joinKilled joins once in dir, killed at a step, and returns the target.
func joinKilled(t *testing.T, src instant.Source, dir, checkpoint string, die int) (*killing, error) {
	t.Helper()
	l, err := target.OpenLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	k := &killing{Local: l, die: die}
	_, err = RunJoin(t.Context(), &JoinOptions{
		Join: mustCompileJoin(t, joinSpec(join.Left, "")), Source: src, Target: k, LogicalTime: resumeTime, Checkpoint: checkpoint,
		Now: func() time.Time { return resumeTime },
	})
	if e := l.Close(); e != nil {
		t.Fatal(e)
	}
	return k, err
}

// TestJoinResumeKilled: a join that is killed and goes on publishes what it would
// have published, byte for byte, and writes no finished file again.
func TestJoinResumeKilled(t *testing.T) {
	t.Parallel()
	src := joinSource(18_000)
	clean := t.TempDir()
	all, err := joinKilled(t, src, clean, "cp", 0)
	if err != nil {
		t.Fatal(err)
	}
	want := sums(contents(t, clean))
	if len(all.steps) < 30 || len(want) < 6 {
		t.Fatalf("Got %d steps and %d files, want a join with more", len(all.steps), len(want))
	}
	step := thinned.Of(3, 11)
	for die := 1; die <= len(all.steps); die += step {
		dir := t.TempDir()
		first, err := joinKilled(t, src, dir, "cp", die)
		if !errors.Is(err, errKilled) {
			t.Fatalf("killed at %s: Got %v", all.steps[die-1], err)
		}
		second, err := joinKilled(t, src, dir, "cp", 0)
		if err != nil && !errors.Is(err, target.ErrExists) {
			t.Fatalf("killed at %s: %v", all.steps[die-1], err)
		}
		for _, name := range second.created {
			for _, noted := range first.noted {
				if name == noted {
					t.Errorf("killed at %s: %s was finished, and written again", all.steps[die-1], name)
				}
			}
		}
		if d := cmp.Diff(want, sums(contents(t, dir))); d != "" {
			t.Fatalf("killed at %s: %s", all.steps[die-1], d)
		}
	}
}

// TestJoinResumeOtherRows: files of other rows are never mixed. Those of another
// checkpoint are left aside; where the same one gives other rows, as when cells have
// expired meanwhile, the run fails and leaves nothing.
func TestJoinResumeOtherRows(t *testing.T) {
	t.Parallel()
	cut := func() string {
		dir := t.TempDir()
		// In the last file, when one of each format is finished.
		all, err := joinKilled(t, joinSource(18_000), t.TempDir(), "cp", 0)
		if err != nil {
			t.Fatal(err)
		}
		first, err := joinKilled(t, joinSource(18_000), dir, "cp", len(all.steps)-8)
		if !errors.Is(err, errKilled) || len(first.noted) < 3 {
			t.Fatalf("Got %v and notes %v", err, first.noted)
		}
		return dir
	}
	other := joinSource(18_000)
	views := other.Tables["views"]
	views.Rows = views.Rows[1:] // one has expired

	dir := cut()
	if _, err := joinKilled(t, other, dir, "cp", 0); !errors.Is(err, errOtherRows) {
		t.Errorf("Got %v, want that the rows differ", err)
	}
	if left := contents(t, dir); len(left) > 0 {
		t.Errorf("Got %v after a run that failed for good", left)
	}

	clean := t.TempDir()
	if _, err := joinKilled(t, other, clean, "cp2", 0); err != nil {
		t.Fatal(err)
	}
	dir = cut()
	if _, err := joinKilled(t, other, dir, "cp2", 0); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sums(contents(t, clean)), sums(contents(t, dir))); d != "" {
		t.Errorf("resumed at another checkpoint: %s", d)
	}
}

// TestJoinResumeAfterInterruption is TestResumeAfterInterruption of a join.
func TestJoinResumeAfterInterruption(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{true, false} {
		ctx, cancel := context.WithCancelCause(t.Context())
		o := &JoinOptions{Join: mustCompileJoin(t, joinSpec(join.Left, "")), Source: joinSource(18_000), Out: t.TempDir(), LogicalTime: resumeTime, Checkpoint: "cp"}
		o.Progress = func(p work.Progress) {
			switch {
			case p.Files == 0:
			case keep:
				cancel(fmt.Errorf("the process ends: %w", ErrResumable))
			default:
				cancel(nil)
			}
		}
		if _, err := RunJoin(ctx, o); err == nil || errors.Is(err, ErrResumable) != keep {
			t.Fatalf("Got %v, want one that can be resumed: %t", err, keep)
		}
		left, err := ListUnfinished(t.Context(), o.Out)
		if err != nil && !errors.Is(err, target.ErrNotFound) || (len(left) == 1) != keep {
			t.Fatalf("Got %+v, %v left, want something: %t", left, err, keep)
		}
	}
}

// TestJoinResumeListed: what is left of a join is found by ListUnfinished, and one
// that cannot be resumed leaves nothing.
func TestJoinResumeListed(t *testing.T) {
	t.Parallel()
	src := joinSource(100)
	for checkpoint, want := range map[string]int{"cp": 1, "": 0} {
		dir := t.TempDir()
		all, err := joinKilled(t, src, t.TempDir(), checkpoint, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := joinKilled(t, src, dir, checkpoint, len(all.steps)-3); !errors.Is(err, errKilled) {
			t.Fatalf("Got %v", err)
		}
		left, err := ListUnfinished(t.Context(), dir)
		if err != nil || len(left) != want {
			t.Fatalf("Got %+v, %v, want %d", left, err, want)
		}
		if want == 1 && (left[0].Job != "j" || left[0].Files != 2 || left[0].Checkpoint != "cp" || left[0].Busy) {
			t.Errorf("Got %+v", left[0])
		}
	}
}
