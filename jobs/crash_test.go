package jobs

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"sluice/jobs/target"
)

var errCrash = errors.New("crash")

// crashing is a target that works for some steps and then does nothing any more,
// as if the process had been killed: every later call fails, Abort too.
type crashing struct {
	target.Target
	left atomic.Int64 // steps until the crash
	err  error        // of the target, whose process lives: Abort still works; nil = a crash
}

func (c *crashing) step() error {
	if c.left.Add(-1) < 0 {
		return cmp.Or(c.err, errCrash)
	}
	return nil
}

func (c *crashing) Begin(ctx context.Context, dir, id string) (target.Upload, error) {
	if err := c.step(); err != nil {
		return nil, err
	}
	u, err := c.Target.Begin(ctx, dir, id)
	return &crashingUpload{Upload: u, c: c}, err
}

func (c *crashing) Update(ctx context.Context, name string, change func([]byte) ([]byte, error)) error {
	if err := c.step(); err != nil {
		return err
	}
	return c.Target.Update(ctx, name, change)
}

func (c *crashing) Open(ctx context.Context, name string) (target.File, error) {
	if err := c.step(); err != nil {
		return nil, err
	}
	return c.Target.Open(ctx, name)
}

type crashingUpload struct {
	target.Upload
	c *crashing
}

func (u *crashingUpload) Create(ctx context.Context, name string) (io.WriteCloser, error) {
	if err := u.c.step(); err != nil {
		return nil, err
	}
	w, err := u.Upload.Create(ctx, name)
	return &crashingFile{WriteCloser: w, c: u.c}, err
}

func (u *crashingUpload) Commit(ctx context.Context, name string, data []byte) error {
	if err := u.c.step(); err != nil {
		return err
	}
	if err := u.Upload.Commit(ctx, name, data); err != nil {
		return err
	}
	return u.c.step() // the answer is lost: committed, and the caller cannot know
}

func (u *crashingUpload) Abort() error {
	if err := u.c.step(); err != nil && u.c.err == nil {
		return err
	}
	return u.Upload.Abort()
}

type crashingFile struct {
	io.WriteCloser
	c *crashing
}

func (f *crashingFile) Write(b []byte) (int, error) {
	if err := f.c.step(); err != nil {
		return 0, err
	}
	return f.WriteCloser.Write(b)
}

func (f *crashingFile) Close() error {
	if err := f.c.step(); err != nil {
		return err
	}
	return f.WriteCloser.Close()
}

// TestCrash kills an export at every step. Whatever lies in the directory
// afterwards, List shows no run, or one that verifies; and a later export works.
func TestCrash(t *testing.T) {
	t.Parallel()
	src := accessLogSource(300)
	job := mustCompile(t, "access_log", accessLog(), nil)
	published, hidden := 0, 0
	for steps := int64(0); ; steps++ {
		out := t.TempDir()
		local, err := target.OpenLocal(out)
		if err != nil {
			t.Fatal(err)
		}
		c := &crashing{Target: local}
		c.left.Store(steps)
		m, err := Run(t.Context(), &RunOptions{Job: job, Source: src, Target: c, Parallelism: 1})
		if err == nil {
			break
		}
		if !errors.Is(err, errCrash) {
			t.Fatalf("after %d steps: %v", steps, err)
		}
		runs, err := ListTarget(t.Context(), local)
		if err != nil {
			t.Fatalf("after %d steps: %v", steps, err)
		}
		switch len(runs) {
		case 0:
			hidden++
			if got := visible(t, out); len(got) > 0 || m != nil {
				t.Errorf("after %d steps: got %v and manifest %v, want nothing", steps, got, m)
			}
		case 1:
			published++
			r, err := Verify(t.Context(), filepath.Join(out, filepath.FromSlash(runs[0].Dir)))
			if err != nil || !r.OK() {
				t.Errorf("after %d steps: %v, %v", steps, err, r.Err())
			}
		default:
			t.Errorf("after %d steps: got %d runs", steps, len(runs))
		}
		if _, err := Run(t.Context(), &RunOptions{Job: job, Source: src, Out: out}); err != nil {
			t.Errorf("after %d steps: the next export: %v", steps, err)
		}
		if err := local.Close(); err != nil {
			t.Error(err)
		}
	}
	// Begin, a read of _latest.json, and for each of four files at least
	// Create, Write and Close, come before the commit.
	if hidden < 15 || published < 2 {
		t.Errorf("Got %d crashes with nothing visible and %d with a run", hidden, published)
	}
}

// TestTargetRefuses: a target that is full, or read-only, from any step on gets nothing
// visible but a whole run, and nothing is left of what was not published.
func TestTargetRefuses(t *testing.T) {
	t.Parallel()
	src := accessLogSource(100)
	job := mustCompile(t, "access_log", accessLog(), nil)
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EROFS} {
		t.Run(errno.Error(), func(t *testing.T) {
			t.Parallel()
			refused := 0
			for steps := int64(0); ; steps++ {
				out := t.TempDir()
				local := mustLocal(t, out)
				c := &crashing{Target: local, err: &os.PathError{Op: "write", Path: "file", Err: errno}}
				c.left.Store(steps)
				m, err := Run(t.Context(), &RunOptions{Job: job, Source: src, Target: c, Parallelism: 1})
				if err == nil {
					break
				}
				if !errors.Is(err, errno) {
					t.Fatalf("after %d steps: Got %v", steps, err)
				}
				runs, err := ListTarget(t.Context(), local)
				if err != nil || len(runs) > 1 || len(runs) == 0 && m != nil {
					t.Fatalf("after %d steps: Got %+v, %v", steps, runs, err)
				}
				for _, r := range runs {
					if v, err := Verify(t.Context(), filepath.Join(out, filepath.FromSlash(r.Dir))); err != nil || !v.OK() {
						t.Errorf("after %d steps: %v, %v", steps, err, v.Err())
					}
				}
				if len(runs) == 0 {
					refused++
				}
				if left, err := os.ReadDir(filepath.Join(out, "_tmp")); !errors.Is(err, os.ErrNotExist) && len(left) > 0 {
					t.Errorf("after %d steps: %v is left", steps, left)
				}
			}
			if refused < 15 {
				t.Errorf("%d steps were refused", refused)
			}
		})
	}
}
