package target_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"sluice/jobs/target"
	"sluice/jobs/target/targettest"
)

func TestLocalContract(t *testing.T) {
	t.Parallel()
	targettest.Run(t, func(t *testing.T) target.Target {
		l, err := target.CreateLocal(filepath.Join(t.TempDir(), "new", "dir"))
		if err != nil {
			t.Fatal(err)
		}
		return l
	})
}

func TestOpenLocal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := target.OpenLocal(filepath.Join(dir, "missing")); !errors.Is(err, target.ErrNotFound) {
		t.Errorf("Got %v, want ErrNotFound", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := target.CreateLocal(filepath.Join(file, "below")); err == nil {
		t.Error("Got no error for a directory below a file")
	}
}

// TestLocalLinks checks that a symbolic link does not lead out of the directory.
func TestLocalLinks(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	l, err := target.OpenLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if f, err := l.Open(t.Context(), "link/secret"); err == nil {
		f.Close()
		t.Error("a link led out of the directory")
	}
	if err := set(t.Context(), l, "link/new", "x"); err == nil {
		t.Error("Update wrote through a link")
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "dangling"} {
		if _, err := l.Begin(t.Context(), name, "x"); !errors.Is(err, target.ErrExists) {
			t.Errorf("%s: Got %v, want ErrExists", name, err)
		}
	}
}

// TestLocalLeftover has a killed process's files in _tmp: a new upload of the same
// run does not stumble over them, and nobody sees them.
func TestLocalLeftover(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := target.OpenLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	killed, err := l.Begin(t.Context(), "job/run=1", "id")
	if err != nil {
		t.Fatal(err)
	}
	w, err := killed.Create(t.Context(), "part")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	again, err := l.Begin(t.Context(), "job/run=1", "id")
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Commit(t.Context(), "_manifest", nil); err != nil {
		t.Fatal(err)
	}
	entries, err := l.List(t.Context(), ".")
	if err != nil || len(entries) != 1 || entries[0].Name != "job" {
		t.Errorf("Got %v, %v, want job alone", entries, err)
	}
}

// TestLocalUpdateWaitsForNobody updates a file where no other update is, and none was before.
func TestLocalUpdateWaitsForNobody(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l, err := target.OpenLocal(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		begun := time.Now()
		for _, content := range []string{"1", "2"} {
			if err := set(t.Context(), l, "job/_latest", content); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(begun); d != 0 {
			t.Errorf("Got a wait of %v", d)
		}
	})
}
