package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
)

var _ Resumable = (*localUpload)(nil)

// localUpload is a directory under _tmp: "files" in it is what Commit renames, and
// "notes" beside that is never published.
type localUpload struct {
	target *Local
	dir    string   // where it becomes visible
	tmp    string   // where it lies
	held   *os.File // tmp, open and locked until the upload ends

	// noting is held by what writes a note, and by what ends the upload; before mu.
	noting sync.Mutex
	// syncs has a token for each file that is being made durable.
	syncs chan struct{}

	mu   sync.Mutex
	open map[*localFile]struct{}
	// closed are the files that were closed, until they are durable.
	closed map[*localFile]struct{}
	// failed is why a file that was closed is not durable: it never will be.
	failed error
	// named are the directories that have got names since a Note made those before
	// durable.
	named map[string]struct{}
	done  bool // committed, aborted or left
}

func newLocalUpload(l *Local, dir, tmp string, held *os.File) *localUpload {
	u := &localUpload{
		target: l, dir: dir, tmp: tmp, held: held, syncs: make(chan struct{}, maxAtOnce),
		open: make(map[*localFile]struct{}), closed: make(map[*localFile]struct{}), named: make(map[string]struct{}),
	}
	for at := tmp; ; at = path.Dir(at) { // the upload's own name, and those in it
		u.named[at] = struct{}{}
		if at == "." {
			return u
		}
	}
}

func (u *localUpload) files() string { return path.Join(u.tmp, filesDir) }
func (u *localUpload) notes() string { return path.Join(u.tmp, notesDir) }

// Path is the directory that becomes the run's: the files lie in it until Commit, and
// what else is put there, durably, becomes visible with them.
func (u *localUpload) Path() string {
	return filepath.Join(u.target.dir, filepath.FromSlash(u.files()))
}

var errEnded = errors.New("target: the upload has ended")

// Create opens a new file of the run.
func (u *localUpload) Create(ctx context.Context, name string) (io.WriteCloser, error) {
	if err := errors.Join(ctx.Err(), checkName(name)); err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.done {
		return nil, errEnded
	}
	if u.failed != nil {
		return nil, u.failed
	}
	full := path.Join(u.files(), name)
	if err := u.target.root.MkdirAll(path.Dir(full), 0o777); err != nil {
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	f, err := u.target.root.OpenFile(full, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	u.target.did.tell("create", full)
	for dir := path.Dir(full); ; dir = path.Dir(dir) {
		u.named[dir] = struct{}{}
		if dir == u.files() {
			break
		}
	}
	lf := &localFile{upload: u, name: name, f: f, synced: make(chan struct{})}
	u.open[lf] = struct{}{}
	return lf, nil
}

// Commit makes the directory durable and renames it to its place: the one step
// by which all its files become visible.
func (u *localUpload) Commit(ctx context.Context, name string, data []byte) error {
	u.mu.Lock()
	unclosed, done := len(u.open), u.done
	u.mu.Unlock()
	switch {
	case done:
		return errEnded
	case unclosed > 0:
		return fmt.Errorf("commit %s: %d files are not closed", u.dir, unclosed)
	}
	f, err := u.Create(ctx, name)
	if err != nil {
		return fmt.Errorf("commit %s: %w", u.dir, err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = u.syncTree()
	}
	if err != nil {
		return fmt.Errorf("commit %s: %w", u.dir, err)
	}
	l := u.target
	parent := path.Dir(u.dir)
	if err := l.root.MkdirAll(parent, 0o777); err != nil {
		return fmt.Errorf("commit %s: %w", u.dir, err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("commit %s: %w", u.dir, err)
	}
	// A directory replaces an empty one only, so a published run stays.
	if err := l.root.Rename(u.files(), u.dir); err != nil {
		if _, e := l.root.Stat(u.dir); e == nil {
			err = fmt.Errorf("%w: %w", ErrExists, err)
		}
		return fmt.Errorf("commit %s: %w", u.dir, err)
	}
	l.did.tell("rename", u.dir)
	u.mu.Lock()
	u.done = true
	u.mu.Unlock()
	return together(func() error { return l.syncDirs(parent) }, func() error {
		_ = l.root.RemoveAll(u.tmp) // what stays, Discard removes
		_ = u.held.Close()          // opened for its lock only
		_ = l.root.Remove(tmpDir)   // succeeds where it is empty
		return nil
	})
}

// syncTree makes durable all files of the upload that were closed, and the names of all,
// those that were put below Path by others included.
func (u *localUpload) syncTree() error {
	var dirs []string
	err := fs.WalkDir(u.target.root.FS(), u.files(), func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, name)
		}
		return err
	})
	return errors.Join(err, together(u.awaitClosed, func() error { return u.target.syncAll(dirs) }))
}

// awaitClosed waits until the files that were closed are durable.
func (u *localUpload) awaitClosed() error {
	u.mu.Lock()
	closed := slices.Collect(maps.Keys(u.closed))
	u.mu.Unlock()
	for _, f := range closed {
		<-f.synced
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.failed
}

// together calls both functions at once and waits for them.
func together(f, g func() error) error {
	return atOnce(2, func(i int) error {
		if i == 0 {
			return f()
		}
		return g()
	})
}

// end ends the upload, unless it has ended, and reports whether it has done so: the files
// that were open are closed, and nothing is being written any more.
func (u *localUpload) end() bool {
	u.noting.Lock()
	defer u.noting.Unlock()
	u.mu.Lock()
	was := u.done
	u.done = true
	for lf := range u.open {
		_ = lf.f.Close() // its content is not relied on
	}
	clear(u.open)
	u.mu.Unlock()
	if !was {
		_ = u.awaitClosed() // who relies on them has a Note that says so
	}
	return !was
}

// Abort closes and removes the files.
func (u *localUpload) Abort() error {
	if !u.end() {
		return nil
	}
	err := u.target.root.RemoveAll(u.tmp)
	_ = u.held.Close() // opened for its lock only
	if err != nil {
		return fmt.Errorf("abort %s: %w", u.dir, err)
	}
	_ = u.target.root.Remove(tmpDir) // succeeds where it is empty
	return nil
}

// localFile is a file of an upload.
type localFile struct {
	upload *localUpload
	name   string
	f      *os.File
	synced chan struct{} // closed when it was closed and is durable, or cannot be made so
}

// Write writes to the file.
func (f *localFile) Write(b []byte) (int, error) {
	n, err := f.f.Write(b)
	if err != nil {
		err = fmt.Errorf("write %s: %w", f.name, err)
	}
	f.upload.target.did.tell("write", path.Join(f.upload.files(), f.name))
	return n, err
}

// Close begins to make the content durable, and waits where that is being done for many
// files already.
func (f *localFile) Close() error {
	u := f.upload
	u.syncs <- struct{}{}
	u.mu.Lock()
	_, open := u.open[f]
	if open {
		delete(u.open, f)
		u.closed[f] = struct{}{}
	}
	u.mu.Unlock()
	if !open {
		<-u.syncs
		return fmt.Errorf("close %s: %w", f.name, os.ErrClosed)
	}
	go f.sync()
	return nil
}

// sync makes the content of a file durable that was closed.
func (f *localFile) sync() {
	u := f.upload
	err := errors.Join(f.f.Sync(), f.f.Close())
	if err == nil {
		u.target.did.tell("sync", path.Join(u.files(), f.name))
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if err != nil && u.failed == nil {
		u.failed = fmt.Errorf("close %s: %w", f.name, err)
	}
	delete(u.closed, f)
	close(f.synced)
	<-u.syncs
}
