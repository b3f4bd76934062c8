// Package targettest is the contract of target.Target: the same tests for every
// kind of place.
//
// It is for tests only; nothing but them imports it.
package targettest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/jobs/target"
)

// Run runs the contract; open returns a new, empty target.
func Run(t *testing.T, open func(t *testing.T) target.Target) {
	for name, test := range map[string]func(t *testing.T, tg target.Target){
		"commit": commit, "abort": abort, "first wins": firstWins, "update": update, "update together": updateTogether, "names": names,
		"open files": openFiles, "cancelled": cancelled, "parallel": parallel, "same id": sameID,
		"leftovers": leftovers, "remove": remove, "remove file": removeFile, "urls": urls, "resume": resume, "resume states": resumeStates,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tg := open(t)
			test(t, tg)
			if err := tg.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

func begin(t *testing.T, tg target.Target, dir, id string) target.Upload {
	t.Helper()
	u, err := tg.Begin(t.Context(), dir, id)
	if err != nil {
		t.Fatalf("Begin: %v", err)
	}
	return u
}

func write(t *testing.T, u target.Upload, name, content string) {
	t.Helper()
	w, err := u.Create(t.Context(), name)
	if err != nil {
		t.Fatalf("Create: %v", err)
	}
	if _, err := io.WriteString(w, content); err != nil {
		t.Fatalf("Write: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
}

// all returns every visible file with its content.
func all(t *testing.T, tg target.Target) map[string]string {
	t.Helper()
	files := make(map[string]string)
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := tg.List(t.Context(), dir)
		if err != nil {
			t.Fatalf("List: %v", err)
		}
		if !slices.IsSortedFunc(entries, func(a, b target.Entry) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("List(%s) is not sorted by name: %+v", dir, entries)
		}
		for _, e := range entries {
			name := strings.TrimPrefix(dir+"/"+e.Name, "./")
			if e.Dir {
				walk(name)
				continue
			}
			data, err := target.ReadFile(t.Context(), tg, name, 1<<20)
			if err != nil {
				t.Fatalf("ReadFile: %v", err)
			}
			if int64(len(data)) != e.Size {
				t.Errorf("Got %d bytes of %s, listed with %d", len(data), name, e.Size)
			}
			files[name] = string(data)
		}
	}
	walk(".")
	return files
}

// readAt reads pieces of a file, also beyond its end, as io.ReaderAt has it, and several at a
// time.
func readAt(t *testing.T, tg target.Target, name, content string) {
	t.Helper()
	f, err := tg.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if f.Size() != int64(len(content)) {
		t.Errorf("Got size %d, want %d", f.Size(), len(content))
	}
	var wg sync.WaitGroup
	for from := range len(content) + 2 {
		for n := range len(content) + 3 {
			wg.Go(func() {
				b := make([]byte, n)
				want := content[min(from, len(content)):min(from+n, len(content))]
				got, err := f.ReadAt(b, int64(from))
				// Of a piece that ends with the file, and of none, io.ReaderAt leaves it open.
				if string(b[:got]) != want || got < n && err != io.EOF || got == n && n > 0 && err != nil && (err != io.EOF || from+n < len(content)) {
					t.Errorf("ReadAt of %d bytes from %d: got %q, %v, want %q", n, from, b[:got], err, want)
				}
			})
		}
	}
	wg.Wait()
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func same(t *testing.T, tg target.Target, want map[string]string) {
	t.Helper()
	if d := cmp.Diff(want, all(t, tg)); d != "" {
		t.Errorf("visible files: %s", d)
	}
}

func commit(t *testing.T, tg target.Target) {
	u := begin(t, tg, "job/run=1", "a")
	write(t, u, "part-0", "zero")
	write(t, u, "sub/part-1", "")
	same(t, tg, map[string]string{})
	if err := u.Commit(t.Context(), "_manifest", []byte("all")); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"job/run=1/part-0": "zero", "job/run=1/sub/part-1": "", "job/run=1/_manifest": "all"}
	same(t, tg, want)
	readAt(t, tg, "job/run=1/part-0", "zero")
	if err := u.Abort(); err != nil {
		t.Errorf("Abort after Commit: %v", err)
	}
	same(t, tg, want)
	if err := u.Commit(t.Context(), "_manifest", nil); err == nil {
		t.Error("Got no error for the second Commit")
	}
	if _, err := u.Create(t.Context(), "late"); err == nil {
		t.Error("Got no error for Create after Commit")
	}
	if _, err := tg.Begin(t.Context(), "job/run=1", "b"); !errors.Is(err, target.ErrExists) {
		t.Errorf("Got %v for a published run, want ErrExists", err)
	}
}

func abort(t *testing.T, tg target.Target) {
	u := begin(t, tg, "job/run=1", "a")
	write(t, u, "part-0", "zero")
	if _, err := u.Create(t.Context(), "open"); err != nil {
		t.Fatal(err)
	}
	if err := u.Abort(); err != nil {
		t.Fatal(err)
	}
	same(t, tg, map[string]string{})
	if err := u.Commit(t.Context(), "_manifest", nil); err == nil {
		t.Error("Got no error for Commit after Abort")
	}
	u = begin(t, tg, "job/run=1", "a")
	if err := u.Commit(t.Context(), "_manifest", []byte("x")); err != nil {
		t.Fatal(err)
	}
	same(t, tg, map[string]string{"job/run=1/_manifest": "x"})
}

func firstWins(t *testing.T, tg target.Target) {
	a, b := begin(t, tg, "job/run=1", "a"), begin(t, tg, "job/run=1", "b")
	write(t, a, "part", "of a")
	write(t, b, "part", "of b")
	if err := b.Commit(t.Context(), "_manifest", []byte("b")); err != nil {
		t.Fatal(err)
	}
	if err := a.Commit(t.Context(), "_manifest", []byte("a")); !errors.Is(err, target.ErrExists) {
		t.Errorf("Got %v, want ErrExists", err)
	}
	if err := a.Abort(); err != nil {
		t.Error(err)
	}
	same(t, tg, map[string]string{"job/run=1/part": "of b", "job/run=1/_manifest": "b"})
}

// sameID has two uploads of one id at work: neither sees the other's files.
func sameID(t *testing.T, tg target.Target) {
	a, b := begin(t, tg, "job/run=1", "id"), begin(t, tg, "job/run=2", "id")
	write(t, a, "part", "of a")
	write(t, b, "part", "of b")
	if err := a.Abort(); err != nil {
		t.Fatal(err)
	}
	if err := b.Commit(t.Context(), "_manifest", nil); err != nil {
		t.Fatal(err)
	}
	same(t, tg, map[string]string{"job/run=2/part": "of b", "job/run=2/_manifest": ""})
}

// set makes name hold content, whatever it held.
func set(ctx context.Context, tg target.Target, name, content string) error {
	return tg.Update(ctx, name, func([]byte) ([]byte, error) { return []byte(content), nil })
}

// update changes a file: each time it sees what it held, it can leave that, and
// refuse.
func update(t *testing.T, tg target.Target) {
	was, first := "", true
	for _, content := range []string{"one", "two", "two", ""} {
		err := tg.Update(t.Context(), "job/_latest", func(old []byte) ([]byte, error) {
			if got := string(old); got != was || (old == nil) != first {
				t.Errorf("Got %q (nil: %t), want %q", got, old == nil, was)
			}
			return []byte(content), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		was, first = content, false
		same(t, tg, map[string]string{"job/_latest": content})
	}
	if err := set(t.Context(), tg, "job/_latest", "kept"); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	for _, want := range []error{nil, refused} {
		for _, name := range []string{"job/_latest", "job/none"} {
			err := tg.Update(t.Context(), name, func([]byte) ([]byte, error) { return nil, want })
			if !errors.Is(err, want) {
				t.Errorf("Got %v, want %v", err, want)
			}
		}
	}
	same(t, tg, map[string]string{"job/_latest": "kept"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := set(ctx, tg, "job/_latest", "late"); !errors.Is(err, context.Canceled) {
		t.Errorf("Got %v, want Canceled", err)
	}
	same(t, tg, map[string]string{"job/_latest": "kept"})
}

// updateTogether has several writers change one file: what each has written is in it.
func updateTogether(t *testing.T, tg target.Target) {
	const writers, each = 4, 5
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				word := fmt.Sprintf("%d.%d;", w, i)
				err := tg.Update(t.Context(), "job/_latest", func(old []byte) ([]byte, error) {
					if strings.Contains(string(old), word) {
						return nil, nil
					}
					return append(old, word...), nil
				})
				if err != nil {
					t.Errorf("%s: %v", word, err)
				}
			}
		})
	}
	wg.Wait()
	data, err := target.ReadFile(t.Context(), tg, "job/_latest", 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), ";"); n != writers*each {
		t.Errorf("Got %d of %d words: %s", n, writers*each, data)
	}
	for w := range writers {
		for i := range each {
			if word := fmt.Sprintf("%d.%d;", w, i); strings.Count(string(data), word) != 1 {
				t.Errorf("Got %s, want %s once", data, word)
			}
		}
	}
	if c, ok := tg.(target.Collector); ok {
		if l, err := c.Leftovers(t.Context()); err != nil || len(l) > 0 {
			t.Errorf("Got %+v, %v, want no leftovers", l, err)
		}
	}
}

func names(t *testing.T, tg target.Target) {
	for _, name := range []string{"", "/x", "../x", "a/../../x", "a//b"} {
		if _, err := tg.Begin(t.Context(), name, "a"); err == nil {
			t.Errorf("Begin(%q): got no error", name)
		}
		if _, err := tg.Open(t.Context(), name); err == nil {
			t.Errorf("Open(%q): got no error", name)
		}
		if err := set(t.Context(), tg, name, "x"); err == nil {
			t.Errorf("Update(%q): got no error", name)
		}
	}
	u := begin(t, tg, "run", "a")
	defer u.Abort()
	for _, name := range []string{"", "/x", "../x"} {
		if _, err := u.Create(t.Context(), name); err == nil {
			t.Errorf("Create(%q): got no error", name)
		}
	}
	write(t, u, "x", "")
	if _, err := u.Create(t.Context(), "x"); err == nil {
		t.Error("Got no error for the second Create of a name")
	}
	if _, err := tg.Open(t.Context(), "nowhere"); !errors.Is(err, target.ErrNotFound) {
		t.Errorf("Got %v, want ErrNotFound", err)
	}
	if _, err := tg.List(t.Context(), "nowhere"); !errors.Is(err, target.ErrNotFound) {
		t.Errorf("Got %v, want ErrNotFound", err)
	}
}

func openFiles(t *testing.T, tg target.Target) {
	u := begin(t, tg, "run", "a")
	w, err := u.Create(t.Context(), "part")
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Commit(t.Context(), "_manifest", nil); err == nil {
		t.Error("Got no error for Commit with an open file")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err == nil {
		t.Error("Got no error for the second Close")
	}
	if err := u.Commit(t.Context(), "_manifest", nil); err != nil {
		t.Fatal(err)
	}
}

func cancelled(t *testing.T, tg target.Target) {
	u := begin(t, tg, "run", "a")
	write(t, u, "part", "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := u.Commit(ctx, "_manifest", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Got %v, want Canceled", err)
	}
	if err := u.Abort(); err != nil {
		t.Error(err)
	}
	if _, err := tg.Begin(ctx, "run", "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("Got %v, want Canceled", err)
	}
	same(t, tg, map[string]string{})
}

// parallel has several uploads with several writers each.
func parallel(t *testing.T, tg target.Target) {
	var wg sync.WaitGroup
	errs := make(chan error, 100)
	want := make(map[string]string)
	for i := range 4 {
		dir := fmt.Sprintf("job/run=%d", i)
		want[dir+"/_manifest"] = dir
		for j := range 4 {
			want[fmt.Sprintf("%s/part-%d", dir, j)] = strings.Repeat("x", j)
		}
		wg.Go(func() {
			u, err := tg.Begin(t.Context(), dir, fmt.Sprint(i))
			if err != nil {
				errs <- err
				return
			}
			var files sync.WaitGroup
			for j := range 4 {
				files.Go(func() {
					w, err := u.Create(t.Context(), fmt.Sprintf("part-%d", j))
					if err != nil {
						errs <- err
						return
					}
					_, err = io.WriteString(w, strings.Repeat("x", j))
					errs <- errors.Join(err, w.Close())
				})
			}
			files.Wait()
			errs <- u.Commit(t.Context(), "_manifest", []byte(dir))
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	same(t, tg, want)
}

// leftovers has an upload at work, which a Collector must leave alone, and ends
// it. What a killed process leaves is tested per target.
func leftovers(t *testing.T, tg target.Target) {
	c, ok := tg.(target.Collector)
	if !ok {
		t.Skip("the target is no Collector")
	}
	none := func(when string) {
		t.Helper()
		if l, err := c.Leftovers(t.Context()); err != nil || len(l) > 0 {
			t.Errorf("%s: got %+v, %v, want no leftovers", when, l, err)
		}
	}
	none("at first")
	u := begin(t, tg, "job/run=1", "a")
	write(t, u, "part-0", "zero")
	l, err := c.Leftovers(t.Context())
	if err != nil || len(l) != 1 || !l[0].Busy || l[0].Bytes != 4 || l[0].Modified.IsZero() {
		t.Fatalf("Got %+v, %v, want one upload at work", l, err)
	}
	if err := c.Discard(t.Context(), l[0].Name); !errors.Is(err, target.ErrBusy) && !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Got %v for an upload at work, want ErrBusy", err)
	}
	if err := u.Commit(t.Context(), "_manifest", []byte("all")); err != nil {
		t.Fatal(err)
	}
	none("after Commit")
	u = begin(t, tg, "job/run=2", "b")
	if err := u.Abort(); err != nil {
		t.Fatal(err)
	}
	if err := set(t.Context(), tg, "job/_latest", "1"); err != nil {
		t.Fatal(err)
	}
	none("after Abort and Update")
	for _, name := range []string{"gone", "../job", "job/run=1", ".", ""} {
		if err := c.Discard(t.Context(), name); err == nil {
			t.Errorf("Got no error for Discard(%q)", name)
		}
	}
	if err := c.Discard(t.Context(), "gone"); !errors.Is(err, target.ErrNotFound) {
		t.Errorf("Got %v for what is not there, want ErrNotFound", err)
	}
	same(t, tg, map[string]string{"job/run=1/part-0": "zero", "job/run=1/_manifest": "all", "job/_latest": "1"})
}

// remove removes one of two runs.
func remove(t *testing.T, tg target.Target) {
	c, ok := tg.(target.Collector)
	if !ok {
		t.Skip("the target is no Collector")
	}
	for _, run := range []string{"1", "2"} {
		u := begin(t, tg, "job/run="+run, "a")
		write(t, u, "sub/part-0", run)
		if err := u.Commit(t.Context(), "_manifest", []byte("all")); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Remove(t.Context(), "job/run=1"); err != nil {
		t.Fatal(err)
	}
	same(t, tg, map[string]string{"job/run=2/sub/part-0": "2", "job/run=2/_manifest": "all"})
	if err := c.Remove(t.Context(), "job/run=1"); !errors.Is(err, target.ErrNotFound) {
		t.Errorf("Got %v for a run that is gone, want ErrNotFound", err)
	}
	for _, name := range []string{".", "job", "../x", ""} {
		if err := c.Remove(t.Context(), name); err == nil {
			t.Errorf("Got no error for Remove(%q)", name)
		}
	}
	if l, err := c.Leftovers(t.Context()); err != nil || len(l) > 0 {
		t.Errorf("Got %+v, %v, want no leftovers", l, err)
	}
	// Its directory is free for the same run again.
	u := begin(t, tg, "job/run=1", "a")
	if err := u.Commit(t.Context(), "_manifest", []byte("new")); err != nil {
		t.Fatal(err)
	}
	same(t, tg, map[string]string{"job/run=1/_manifest": "new", "job/run=2/sub/part-0": "2", "job/run=2/_manifest": "all"})
}

// removeFile: a file that Update has made is gone, and nothing else; one that is not there
// is no error, nor a reason to touch what lies around it.
func removeFile(t *testing.T, tg target.Target) {
	c, ok := tg.(target.Collector)
	if !ok {
		t.Skip("the target is no Collector")
	}
	for _, name := range []string{"job/metadata/a", "job/metadata/b", "job/c"} {
		if err := set(t.Context(), tg, name, "content of "+name); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := c.RemoveFile(t.Context(), "job/metadata/a"); err != nil {
			t.Fatal(err)
		}
	}
	same(t, tg, map[string]string{"job/metadata/b": "content of job/metadata/b", "job/c": "content of job/c"})
	for _, name := range []string{"../x", "", "/x"} {
		if err := c.RemoveFile(t.Context(), name); err == nil {
			t.Errorf("Got no error for RemoveFile(%q)", name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.RemoveFile(ctx, "job/c"); !errors.Is(err, context.Canceled) {
		t.Errorf("Got %v with a context that has ended", err)
	}
	same(t, tg, map[string]string{"job/metadata/b": "content of job/metadata/b", "job/c": "content of job/c"})
}

// urls: names follow the URL of the root.
func urls(t *testing.T, tg target.Target) {
	root := tg.URL(".")
	scheme, rest, ok := strings.Cut(root, "://")
	if !ok || scheme != "file" && scheme != "s3" || rest == "" || strings.HasSuffix(rest, "/") {
		t.Errorf("Got %q for the root", root)
	}
	if got, want := tg.URL("job/run=1/a b%"), root+"/job/run=1/a b%"; got != want {
		t.Errorf("Got %q, want %q", got, want)
	}
}
