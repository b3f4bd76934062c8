package jobs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/jobs/target"
	"sluice/jobs/target/targettest"
)

// TestFinishPublished: a run that is killed between its publication and its
// _latest.json is nothing to go on with, and found and pointed to.
func TestFinishPublished(t *testing.T) {
	t.Parallel()
	job, src := resumeCase(t, 0)
	clean := t.TempDir()
	all, _, err := runKilled(t, job, src, clean, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	want := sums(contents(t, clean))
	killed := 0
	for i, step := range all.steps {
		if step != "after commit" && step != "before update j/_latest.json" {
			continue
		}
		killed++
		dir := t.TempDir()
		if _, _, err := runKilled(t, job, src, dir, i+1, 1); !errors.Is(err, errKilled) {
			t.Fatalf("%s: Got %v", step, err)
		}
		local := mustLocal(t, dir)
		if left, err := ListUnfinishedTarget(t.Context(), local); err != nil || len(left) > 0 {
			t.Errorf("%s: Got %+v, %v, want nothing to go on with", step, left, err)
		}
		if _, err := FinishPublished(t.Context(), local, "j", resumeTime.Add(time.Hour)); !errors.Is(err, target.ErrNotFound) {
			t.Errorf("%s: another time: Got %v", step, err)
		}
		at := time.Time{}
		if killed == 2 {
			at = resumeTime
		}
		if m, err := FinishPublished(t.Context(), local, "j", at); err != nil || m.RunID != runID("j", resumeTime) {
			t.Errorf("%s: Got %v, %v", step, m, err)
		}
		if d := cmp.Diff(want, sums(contents(t, dir))); d != "" {
			t.Errorf("%s: %s", step, d)
		}
		if _, err := FinishPublished(t.Context(), local, "j", at); !errors.Is(err, target.ErrNotFound) {
			t.Errorf("%s: again: Got %v", step, err)
		}
	}
	if killed != 2 {
		t.Errorf("Got %d steps between publication and pointer in %v", killed, all.steps)
	}
}

// TestFinishPublishedInBucket is TestFinishPublished at the last requests of a run.
func TestFinishPublishedInBucket(t *testing.T) {
	t.Parallel()
	job, src := resumeCase(t, 0)
	clean := targettest.NewFakeS3(t)
	if _, err := Run(t.Context(), resumeOptions(job, src, openBucket(t, clean), 1)); err != nil {
		t.Fatal(err)
	}
	requests := clean.Requests()
	finished := 0
	for die := len(requests) - 8; die < len(requests); die++ {
		f := targettest.NewFakeS3(t)
		f.SetFaulty(func(n int, _ *http.Request) targettest.Fault {
			if n == die {
				return targettest.Dead
			}
			return targettest.Fine
		})
		if _, err := Run(t.Context(), resumeOptions(job, src, openBucket(t, f), 1)); err == nil {
			t.Fatalf("killed at %s: Got no error", requests[die])
		}
		f.SetFaulty(nil)
		f.Advance(3 * time.Minute)
		s := openBucket(t, f)
		left, err := ListUnfinishedTarget(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			finished++
			_, err = FinishPublished(t.Context(), s, "j", time.Time{})
		} else if _, err = Run(t.Context(), resumeOptions(job, src, s, 1)); errors.Is(err, target.ErrExists) {
			_, err = ReadPublished(t.Context(), s, "j", resumeTime)
		}
		if err != nil {
			t.Errorf("killed at %s: %v", requests[die], err)
		}
		if d := cmp.Diff(publishedObjects(clean), publishedObjects(f)); d != "" {
			t.Errorf("killed at %s: %s", requests[die], d)
		}
	}
	if finished < 2 {
		t.Errorf("Got %d runs that were published and not pointed to", finished)
	}
}

// TestPointTogether: of runs that are published at one moment, _latest.json names that
// for the latest time, however their steps fall.
func TestPointTogether(t *testing.T) {
	t.Parallel()
	src := accessLogSource(20)
	job := mustCompile(t, "access_log", accessLog(), nil)
	bucket := targettest.NewFakeS3(t)
	for name, tg := range map[string]target.Target{"local": mustLocal(t, t.TempDir()), "bucket": openBucket(t, bucket)} {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				at := resumeTime.Add(time.Duration(i) * time.Minute)
				if _, err := Run(t.Context(), &RunOptions{Job: job, Source: src, Target: tg, LogicalTime: at, Parallelism: 1}); err != nil {
					t.Errorf("%s: run %d: %v", name, i, err)
				}
			})
		}
		wg.Wait()
		latest, err := readLatest(t.Context(), tg, "access_log")
		if err != nil || !latest.LogicalTime.Equal(resumeTime.Add(7*time.Minute)) {
			t.Errorf("%s: Got %+v, %v", name, latest, err)
		}
	}
}

// TestPointAtDamaged: a _latest.json that cannot be read is not overwritten.
func TestPointAtDamaged(t *testing.T) {
	t.Parallel()
	src := accessLogSource(20)
	job := mustCompile(t, "access_log", accessLog(), nil)
	out := t.TempDir()
	at := func(i int) *RunOptions {
		return &RunOptions{Job: job, Source: src, Out: out, LogicalTime: resumeTime.Add(time.Duration(i) * time.Minute)}
	}
	if _, err := Run(t.Context(), at(0)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(out, "access_log", LatestName)
	if err := os.WriteFile(file, []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	for name, damaged := range map[string]func(context.Context) error{
		"run": func(ctx context.Context) error { _, err := Run(ctx, at(1)); return err },
		"resume": func(ctx context.Context) error {
			_, err := FinishPublished(ctx, mustLocal(t, out), "access_log", time.Time{})
			return err
		},
		"point": func(ctx context.Context) error {
			return pointAgain(ctx, mustLocal(t, out), runDir("access_log", resumeTime))
		},
	} {
		if err := damaged(t.Context()); !errors.Is(err, ErrManifest) || !strings.Contains(fmt.Sprint(err), "access_log/"+LatestName) || !strings.Contains(fmt.Sprint(err), "remove the file") {
			t.Errorf("%s: Got %v", name, err)
		}
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "{" {
		t.Errorf("Got %q, %v", data, err)
	}

	// One of another version says which: it is whole, and not to be removed.
	if err := os.WriteFile(file, []byte(`{"format_version": 99}`), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), at(1)); !errors.Is(err, ErrManifest) || strings.Contains(fmt.Sprint(err), "remove") {
		t.Errorf("Got %v", err)
	}

	// What the error says helps.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if m, err := FinishPublished(t.Context(), mustLocal(t, out), "access_log", time.Time{}); err != nil || !m.LogicalTime.Equal(resumeTime) {
		t.Errorf("Got %+v, %v", m, err)
	}
	if _, err := Run(t.Context(), at(1)); err != nil {
		t.Error(err)
	}
}
