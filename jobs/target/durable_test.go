package target

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// journal is what was done to a directory, in order.
type journal struct {
	mu    sync.Mutex
	steps []string
}

func (j *journal) tell(op, name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.steps = append(j.steps, op+" "+name)
}

// last returns where a step was done for the last time before the step at end; -1 = not.
func (j *journal) last(step string, end int) int {
	for i := end - 1; i >= 0; i-- {
		if j.steps[i] == step {
			return i
		}
	}
	return -1
}

// durable checks that, of what was created below dir before the step at end, the content
// is on the disk, and then the names are, up to dir's own.
func (j *journal) durable(t *testing.T, dir string, end int) (files int) {
	t.Helper()
	for created, step := range j.steps[:end] {
		name, ok := strings.CutPrefix(step, "create ")
		if !ok || !strings.HasPrefix(name, dir+"/") {
			continue
		}
		files++
		synced := j.last("sync "+name, end)
		if synced < created || synced < j.last("write "+name, end) {
			t.Errorf("%s: the content of %s is not synced", j.steps[end], name)
		}
		for at := path.Dir(name); at != path.Dir(dir); at = path.Dir(at) {
			if j.last("sync "+at, end) < created {
				t.Errorf("%s: the names in %s are not synced since %s was made", j.steps[end], at, name)
			}
		}
	}
	return files
}

// after checks that directories were synced behind the step at begin.
func (j *journal) after(t *testing.T, begin int, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		if j.last("sync "+dir, len(j.steps)) < begin {
			t.Errorf("%s: the names in %s are not synced afterwards", j.steps[begin], dir)
		}
	}
}

// find returns where a step was done.
func (j *journal) find(t *testing.T, step string) int {
	t.Helper()
	i := j.last(step, len(j.steps))
	if i < 0 {
		t.Fatalf("%s was not done: %q", step, j.steps)
	}
	return i
}

// TestLocalSyncs follows what a directory's durability depends on: the target's own name
// and those of its parents; of a note, the files that were closed before; of a run, every
// file, then every directory, before the one step that makes it visible; and then the
// names of the run.
func TestLocalSyncs(t *testing.T) {
	t.Parallel()
	var j journal
	base := t.TempDir()
	dir := filepath.Join(base, "a", "b", "c")
	l, err := createLocal(dir, j.tell)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	want := []string{"sync " + filepath.Join(base, "a", "b"), "sync " + filepath.Join(base, "a"), "sync " + base}
	if !slices.Equal(j.steps, want) {
		t.Errorf("Got %q, want %q", j.steps, want)
	}
	j.steps = nil
	again, err := createLocal(dir, j.tell)
	if err = errors.Join(err, again.Close()); err != nil || len(j.steps) > 0 {
		t.Errorf("Got %v and %q of a directory that is there", err, j.steps)
	}
	u, err := l.Begin(t.Context(), "job/run=1", "id")
	if err != nil {
		t.Fatal(err)
	}
	create := func(name string) {
		t.Helper()
		w, err := u.Create(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := io.WriteString(w, name); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	create("part-0")
	create("x=1/y=2/part-1")
	for i, name := range []string{"first", "second"} {
		if err := u.(Resumable).Note(t.Context(), name, []byte("n")); err != nil {
			t.Fatal(err)
		}
		noted := j.find(t, "rename _tmp/id/notes/"+name)
		if n := j.durable(t, "_tmp/id/files", noted); n != 2+i {
			t.Errorf("Got %d files before note %s", n, name)
		}
		if j.last("sync _tmp/id/note", noted) < j.last("create _tmp/id/note", noted) {
			t.Errorf("the content of note %s is not synced", name)
		}
		j.after(t, noted, "_tmp/id/notes")
		j.after(t, 0, "_tmp/id", "_tmp", ".") // where the notes and files are
		create("x=1/" + name)
	}
	if err := u.Commit(t.Context(), "_manifest", []byte("all")); err != nil {
		t.Fatal(err)
	}
	committed := j.find(t, "rename job/run=1")
	if n := j.durable(t, "_tmp/id/files", committed); n != 5 {
		t.Errorf("Got %d files before the run is visible, want 4 and the manifest", n)
	}
	j.after(t, committed, "job", ".")
	j.steps = nil
	if err := l.Update(t.Context(), "job/_latest", func([]byte) ([]byte, error) { return []byte("1"), nil }); err != nil {
		t.Fatal(err)
	}
	renamed := j.find(t, "rename job/_latest")
	if created := j.last("create _tmp/replace-job-_latest", renamed); created < 0 || j.last("sync _tmp/replace-job-_latest", renamed) < created {
		t.Errorf("Got %q of an update", j.steps)
	}
	j.after(t, renamed, "job", ".")
}

// beginLocal begins an upload into a new directory, whose steps did is told of.
func beginLocal(t *testing.T, did steps) (*Local, Upload) {
	t.Helper()
	l, err := createLocal(t.TempDir(), did)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	u, err := l.Begin(t.Context(), "job/run=1", "id")
	if err != nil {
		t.Fatal(err)
	}
	return l, u
}

// TestLocalNotDurable has the disk refuse a file after its Close has returned: nothing that
// relies on the file succeeds from then on, and nothing becomes visible.
func TestLocalNotDurable(t *testing.T) {
	t.Parallel()
	l, u := beginLocal(t, nil)
	w, err := u.Create(t.Context(), "part-0")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.(*localFile).f.Close(); err != nil { // so that it cannot be synced
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := u.(Resumable).Note(t.Context(), "part-0", nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Note: got %v, want what the sync said", err)
	}
	if notes, err := u.(Resumable).Notes(t.Context()); err != nil || len(notes) > 0 {
		t.Errorf("Got notes %v, %v", notes, err)
	}
	if _, err := u.Create(t.Context(), "part-1"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Create: got %v, want what the sync said", err)
	}
	if err := u.Commit(t.Context(), "_manifest", nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Commit: got %v, want what the sync said", err)
	}
	if err := u.Abort(); err != nil {
		t.Error(err)
	}
	if all, err := l.List(t.Context(), "."); err != nil || len(all) > 0 {
		t.Errorf("Got %v, %v, want nothing", all, err)
	}
}

// TestLocalManyFiles closes more files than are made durable at once.
func TestLocalManyFiles(t *testing.T) {
	t.Parallel()
	var j journal
	_, u := beginLocal(t, j.tell)
	const files = 5 * maxAtOnce
	for i := range files {
		w, err := u.Create(t.Context(), fmt.Sprintf("x=%d/part-%d", i%7, i))
		if err == nil {
			_, err = io.WriteString(w, "content")
		}
		if err = errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.Commit(t.Context(), "_manifest", nil); err != nil {
		t.Fatal(err)
	}
	if n := j.durable(t, "_tmp/id/files", j.find(t, "rename job/run=1")); n != files+1 {
		t.Errorf("Got %d files before the run is visible. Want %d", n, files+1)
	}
}
