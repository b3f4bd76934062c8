package target

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

var _ Target = (*Local)(nil)

// tmpDir is where uploads lie until they are committed. What a killed process
// leaves in it is never visible. Each entry is locked by the process that works on
// it, so that Leftovers knows what nobody works on any more.
const tmpDir = "_tmp"

// Local is a directory of the local file system. Nothing outside of it can be
// reached, by symbolic links either (os.Root).
type Local struct {
	dir  string
	url  string // of dir, without a slash at its end
	root *os.Root
	did  steps
}

// steps is told of what a directory's durability depends on, after each: create, write,
// sync or rename, and the name of what it was done to. Of a test; nil = nobody is told.
type steps func(op, name string)

func (s steps) tell(op, name string) {
	if s != nil {
		s(op, name)
	}
}

// OpenLocal opens an existing directory. Its error wraps ErrNotFound.
func OpenLocal(dir string) (*Local, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open target directory: %w", notFound(err))
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open target directory: %w", err), root.Close())
	}
	return &Local{dir: dir, url: fileURL(abs), root: root}, nil
}

// fileURL returns the URL of an absolute path, without escapes.
func fileURL(abs string) string {
	slashed := filepath.ToSlash(abs)
	if !strings.HasPrefix(slashed, "/") { // C:/
		slashed = "/" + slashed
	}
	return "file://" + strings.TrimSuffix(slashed, "/")
}

// URL returns file:///DIR/NAME, of the path that dir was when the target was opened.
func (l *Local) URL(name string) string {
	if name == "." {
		return l.url
	}
	return l.url + "/" + name
}

// CreateLocal opens dir and creates it, with its parents, durably, where it is missing.
func CreateLocal(dir string) (*Local, error) { return createLocal(dir, nil) }

func createLocal(dir string, did steps) (*Local, error) {
	if err := makeDurable(dir, did); err != nil {
		return nil, fmt.Errorf("create target directory: %w", err)
	}
	l, err := OpenLocal(dir)
	if err == nil {
		l.did = did
	}
	return l, err
}

// makeDurable makes dir and those of its parents that are missing, and then makes the
// names of all of these durable: a run that is published in a directory whose own name
// is lost is lost.
func makeDurable(dir string, did steps) error {
	var in []string // where names were made, the innermost first
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); err == nil || filepath.Dir(at) == at {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		in = append(in, filepath.Dir(at))
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for _, parent := range in {
		d, err := os.Open(parent)
		if err == nil {
			err = errors.Join(d.Sync(), d.Close())
		}
		if err != nil {
			return fmt.Errorf("sync directory %s: %w", parent, err)
		}
		did.tell("sync", parent)
	}
	return nil
}

// notFound adds ErrNotFound to what the file system says.
func notFound(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}

// Begin makes a new directory under _tmp, with one in it for the files, which
// Commit renames, and one for notes.
func (l *Local) Begin(ctx context.Context, dir, id string) (Upload, error) {
	if err := errors.Join(ctx.Err(), checkName(dir), checkName(id)); err != nil {
		return nil, err
	}
	// A symbolic link, of whatever, has the name, too.
	if _, err := l.root.Lstat(dir); err == nil {
		return nil, fmt.Errorf("begin %s in %s: %w", dir, l.dir, ErrExists)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("begin %s in %s: %w", dir, l.dir, err)
	}
	var held *os.File
	tmp, err := l.temporary(id, func(name string) (err error) {
		if err = l.root.Mkdir(name, 0o777); err == nil {
			held, err = l.hold(name)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("begin %s in %s: %w", dir, l.dir, err)
	}
	u := newLocalUpload(l, dir, tmp, held)
	for _, sub := range []string{u.files(), u.notes()} {
		if err := l.root.Mkdir(sub, 0o777); err != nil {
			return nil, fmt.Errorf("begin %s in %s: %w", dir, l.dir, errors.Join(err, u.Abort()))
		}
	}
	return u, nil
}

// hold opens and locks name, which was just made; closing what it returns lets
// go. Its error wraps fs.ErrExist where a collector was faster: then another name
// is to be taken. It returns nil where this system or file system has no locks;
// then nothing is ever collected (see Leftovers).
func (l *Local) hold(name string) (*os.File, error) {
	f, err := l.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fs.ErrExist
	}
	if err != nil {
		return nil, err
	}
	err = lock(f)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return nil, f.Close()
	case errors.Is(err, ErrBusy):
		err = fs.ErrExist
	case err == nil:
		// The lock is on what was opened, which may have been removed since.
		if err = l.names(name, f); err == nil {
			return f, nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = fs.ErrExist
		}
	}
	return nil, errors.Join(err, f.Close())
}

// names checks that name is still what f has open; its error wraps
// fs.ErrNotExist where it is not.
func (l *Local) names(name string, f *os.File) error {
	now, err := l.root.Lstat(name)
	if err != nil {
		return err
	}
	opened, err := f.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(now, opened) {
		return fmt.Errorf("%s was replaced: %w", name, fs.ErrNotExist)
	}
	return nil
}

// temporary calls make with names below _tmp until one is free, and returns it.
func (l *Local) temporary(id string, make func(name string) error) (string, error) {
	taken := 0
	for range 1000 {
		name := path.Join(tmpDir, temporaryName(id))
		if taken > 0 {
			name += "." + strconv.Itoa(taken)
		}
		err := make(name)
		switch {
		case err == nil:
			return name, nil
		case errors.Is(err, fs.ErrNotExist):
			// The first use, or another upload that ended has just removed it.
			if err := l.root.Mkdir(tmpDir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
				return "", err
			}
		case errors.Is(err, fs.ErrExist):
			taken++
		default:
			return "", err
		}
	}
	return "", fmt.Errorf("no free name for %s below %s: %w", id, tmpDir, fs.ErrExist)
}

// temporaryName is the first name below _tmp for an id.
func temporaryName(id string) string { return strings.ReplaceAll(id, "/", "-") }

// syncDirs makes the names in dir, and dir's own up to the root, durable.
func (l *Local) syncDirs(dir string) error {
	dirs := []string{dir}
	for dir != "." {
		dir = path.Dir(dir)
		dirs = append(dirs, dir)
	}
	return l.syncAll(dirs)
}

// syncAll makes the names in directories durable, all at once: each waits for the disk,
// and the waits of several that it commits together are one.
func (l *Local) syncAll(dirs []string) error {
	return atOnce(len(dirs), func(i int) error {
		d, err := l.root.Open(dirs[i])
		if err == nil {
			err = errors.Join(d.Sync(), d.Close())
		}
		if err != nil {
			return fmt.Errorf("sync directory %s of %s: %w", dirs[i], l.dir, err)
		}
		l.did.tell("sync", dirs[i])
		return nil
	})
}

// maxAtOnce bounds the files that atOnce has open: partitions may be thousands.
const maxAtOnce = 16

// atOnce calls f with 0 to n-1, maxAtOnce at a time, and waits for all of them.
func atOnce(n int, f func(i int) error) error {
	errs := make([]error, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, maxAtOnce) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				errs[i] = f(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Open opens a file below the directory.
func (l *Local) Open(ctx context.Context, name string) (File, error) {
	if err := errors.Join(ctx.Err(), checkName(name)); err != nil {
		return nil, err
	}
	// Before it is opened: a pipe would wait for somebody who writes into it.
	info, err := l.root.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", name)
	}
	if err != nil {
		return nil, fmt.Errorf("open in %s: %w", l.dir, notFound(err))
	}
	f, err := l.root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open in %s: %w", l.dir, notFound(err))
	}
	if info, err = f.Stat(); err != nil {
		return nil, fmt.Errorf("open in %s: %w", l.dir, errors.Join(err, f.Close()))
	}
	return &readFile{File: f, size: info.Size()}, nil
}

type readFile struct {
	*os.File
	size int64
}

func (f *readFile) Size() int64 { return f.size }

// List reads a directory.
func (l *Local) List(ctx context.Context, dir string) ([]Entry, error) {
	if err := errors.Join(ctx.Err(), checkName(dir)); err != nil {
		return nil, err
	}
	list, err := fs.ReadDir(l.root.FS(), dir)
	if err != nil {
		return nil, fmt.Errorf("list in %s: %w", l.dir, notFound(err))
	}
	var entries []Entry
	for _, e := range list {
		if dir == "." && e.Name() == tmpDir {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("list in %s: %w", l.dir, err)
		}
		entries = append(entries, Entry{Name: e.Name(), Dir: e.IsDir(), Size: info.Size()})
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return entries, nil
}

// Close closes the directory.
func (l *Local) Close() error { return l.root.Close() }
