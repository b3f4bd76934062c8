package target

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

var _ Resumer = (*Local)(nil)

// filesDir is where an upload has its files, and notesDir where it has its notes.
const (
	filesDir = "files"
	notesDir = "notes"
)

// maxNoteBytes bounds a note that is read back: notes are a few lines.
const maxNoteBytes = 1 << 20

// Resume locks the directory under _tmp that Begin made for id, which only
// succeeds where nobody works on it.
func (l *Local) Resume(ctx context.Context, dir, id string) (Resumable, error) {
	if err := errors.Join(ctx.Err(), checkName(dir), checkName(id)); err != nil {
		return nil, err
	}
	u, err := l.resume(dir, id)
	if err != nil {
		return nil, fmt.Errorf("resume %s in %s: %w", dir, l.dir, notFound(err))
	}
	return u, nil
}

func (l *Local) resume(dir, id string) (*localUpload, error) {
	if _, err := l.root.Lstat(dir); err == nil {
		return nil, ErrExists
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	name := temporaryName(id)
	held, err := l.abandoned(name)
	if err != nil {
		return nil, err
	}
	u := newLocalUpload(l, dir, path.Join(tmpDir, name), held)
	// A crash in Begin or after Commit's rename leaves less than an upload.
	for _, sub := range []string{u.files(), u.notes()} {
		if _, err := l.root.Stat(sub); err != nil {
			return nil, errors.Join(err, u.Leave())
		}
	}
	return u, nil
}

// Unfinished reads the notes of what lies in _tmp.
func (l *Local) Unfinished(ctx context.Context) ([]Unfinished, error) {
	left, err := l.Leftovers(ctx)
	if err != nil {
		return nil, err
	}
	var all []Unfinished
	for i := range left {
		if !left[i].Resumable {
			continue
		}
		at := path.Join(tmpDir, left[i].Name)
		if _, err := l.root.Stat(path.Join(at, filesDir)); errors.Is(err, fs.ErrNotExist) {
			continue // it ended when it was published, but for what lies here
		} else if err != nil {
			return nil, fmt.Errorf("read what uploads left in %s: %w", l.dir, err)
		}
		notes, err := l.readNotes(path.Join(at, notesDir))
		if errors.Is(err, fs.ErrNotExist) {
			continue // ended meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("read what uploads left in %s: %w", l.dir, err)
		}
		all = append(all, Unfinished{ID: left[i].Name, Busy: left[i].Busy, Notes: notes})
	}
	return all, nil
}

// readNotes reads every note in dir.
func (l *Local) readNotes(dir string) (map[string][]byte, error) {
	list, err := fs.ReadDir(l.root.FS(), dir)
	if err != nil {
		return nil, err
	}
	notes := make(map[string][]byte, len(list))
	for _, e := range list {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() || info.Size() > maxNoteBytes {
			return nil, fmt.Errorf("%s is no note: %s, %d bytes", path.Join(dir, e.Name()), info.Mode().Type(), info.Size())
		}
		if notes[e.Name()], err = l.root.ReadFile(path.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	return notes, nil
}

// Note makes the files that were closed durable, then the note, by a rename.
func (u *localUpload) Note(ctx context.Context, name string, data []byte) error {
	if err := errors.Join(ctx.Err(), checkName(name)); err != nil {
		return err
	}
	if strings.Contains(name, "/") || name == "." {
		return fmt.Errorf("target: %q is not the name of a note", name)
	}
	u.noting.Lock()
	defer u.noting.Unlock()
	u.mu.Lock()
	named, done := u.named, u.done
	u.named = make(map[string]struct{})
	u.mu.Unlock()
	if done {
		return errEnded
	}
	if err := u.note(name, data, slices.Collect(maps.Keys(named))); err != nil {
		u.mu.Lock()
		maps.Copy(u.named, named)
		u.mu.Unlock()
		return fmt.Errorf("note %s of %s: %w", name, u.dir, err)
	}
	return nil
}

// note writes a note once the files that were closed, and the names in directories, are
// durable.
func (u *localUpload) note(name string, data []byte, named []string) error {
	root := u.target.root
	tmp := path.Join(u.tmp, "note")
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	u.target.did.tell("create", tmp)
	if err := together(func() error { return writeSync(f, data) }, func() error {
		return together(u.awaitClosed, func() error { return u.target.syncAll(named) })
	}); err != nil {
		return err
	}
	u.target.did.tell("sync", tmp)
	if err := root.Rename(tmp, path.Join(u.notes(), name)); err != nil {
		return err
	}
	u.target.did.tell("rename", path.Join(u.notes(), name))
	return u.target.syncAll([]string{u.notes()})
}

// Notes reads the notes.
func (u *localUpload) Notes(ctx context.Context) (map[string][]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	notes, err := u.target.readNotes(u.notes())
	if err != nil {
		return nil, fmt.Errorf("notes of %s: %w", u.dir, err)
	}
	return notes, nil
}

// Retain walks through the files.
func (u *localUpload) Retain(ctx context.Context, keep map[string]int64) error {
	found := make(map[string]bool, len(keep))
	err := fs.WalkDir(u.target.root.FS(), u.files(), func(full string, d fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(full, u.files()+"/")
		size, ok := keep[name]
		switch {
		case !ok:
			return u.target.root.Remove(full)
		case size != info.Size():
			return fmt.Errorf("%w: %s with %d bytes; it has %d", ErrNotFound, name, size, info.Size())
		}
		found[name] = true
		return nil
	})
	if err != nil {
		return fmt.Errorf("retain files of %s: %w", u.dir, err)
	}
	var missing []string
	for name := range keep {
		if !found[name] {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("retain files of %s: %w: %s", u.dir, ErrNotFound, strings.Join(missing, ", "))
	}
	return nil
}

// Leave closes the files that are being written, which whoever resumes does not
// retain, and lets go of the lock.
func (u *localUpload) Leave() error {
	if u.end() {
		_ = u.held.Close() // opened for its lock only
	}
	return nil
}
