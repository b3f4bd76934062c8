package target

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"sluice/internal/filelock"
)

var _ Collector = (*Local)(nil)

// Leftovers reads _tmp. Who works on an entry has it locked, and the system lets
// go of the locks of a process that has ended; so an entry whose lock is free is
// abandoned, however young it is, and one that is locked is not, however old. On
// file systems of other machines that holds as far as flock(2) reaches there.
func (l *Local) Leftovers(ctx context.Context) ([]Leftover, error) {
	list, err := fs.ReadDir(l.root.FS(), tmpDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("list leftovers in %s: %w", l.dir, err)
	}
	var all []Leftover
	for _, e := range list {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		left, err := l.leftover(e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // ended meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("list leftovers in %s: %w", l.dir, err)
		}
		all = append(all, left)
	}
	slices.SortFunc(all, func(a, b Leftover) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// leftover looks at one entry of _tmp.
func (l *Local) leftover(name string) (Leftover, error) {
	left := Leftover{Name: name}
	held, err := l.abandoned(name)
	switch {
	case err == nil:
		defer held.Close() // opened for its lock only
	case errors.Is(err, ErrBusy), errors.Is(err, errors.ErrUnsupported):
		left.Busy = true
	default:
		return left, err
	}
	top := path.Join(tmpDir, name)
	err = fs.WalkDir(l.root.FS(), top, func(full string, d fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		if errors.Is(err, fs.ErrNotExist) && full != top {
			return nil // a note that was just given its name
		}
		if err != nil {
			return err
		}
		note := path.Dir(full) == path.Join(top, notesDir)
		left.Resumable = left.Resumable || note
		if info.Mode().IsRegular() && !note {
			left.Bytes += info.Size()
		}
		if info.ModTime().After(left.Modified) {
			left.Modified = info.ModTime()
		}
		return nil
	})
	return left, err
}

// abandoned opens and locks an entry of _tmp that nobody works on. Its error
// wraps ErrBusy, errors.ErrUnsupported or fs.ErrNotExist.
func (l *Local) abandoned(name string) (*os.File, error) {
	at := path.Join(tmpDir, name)
	f, err := l.root.Open(at)
	if err != nil {
		return nil, err
	}
	if err = lock(f); err == nil {
		if err = l.names(at, f); err == nil {
			return f, nil
		}
	}
	return nil, errors.Join(err, f.Close())
}

// OfRemoval reports whether the Leftover of this name is what is left of a run of a job that
// was removed: by a removal that was cut off, or in a bucket the record of one that was not.
func OfRemoval(name, job string) bool {
	runs := temporaryName(job + "/run=")
	return strings.HasPrefix(name, removed+runs) || strings.HasPrefix(name, ended+runs)
}

// How the names of Leftovers begin that are no uploads.
const (
	removed = "removed-" // a published run, whose removal was cut off or is at work
	ended   = "ended-"   // a bucket's record of a run that is not there
)

// Removal reports whether l is a published run whose removal was cut off, or is at work.
func (l *Leftover) Removal() bool { return isKind(l.Name, removed) }

// Record reports whether l is a bucket's record of a run that is not there, and no more.
func (l *Leftover) Record() bool { return isKind(l.Name, ended) }

// isKind reports whether a Leftover's name begins so and is no multi-part upload's, whose
// name begins with that of a job.
func isKind(name, kind string) bool {
	return strings.HasPrefix(name, kind) && !strings.Contains(name, "/")
}

// lock takes f for this process, or fails with ErrBusy where another open file has it:
// whoever gets the lock of an upload knows that nobody writes it any more. Its error wraps
// errors.ErrUnsupported where there are no locks.
func lock(f *os.File) error {
	err := filelock.Take(f)
	if errors.Is(err, filelock.ErrHeld) {
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return err
}

// Discard removes an entry of _tmp while it has the entry's lock, so that nobody
// begins to work on it.
func (l *Local) Discard(ctx context.Context, name string) error {
	if err := errors.Join(ctx.Err(), checkName(name)); err != nil {
		return err
	}
	if strings.Contains(name, "/") || name == "." {
		return fmt.Errorf("target: %q is not the name of a leftover", name)
	}
	held, err := l.abandoned(name)
	if err == nil {
		defer held.Close() // opened for its lock only
		err = l.root.RemoveAll(path.Join(tmpDir, name))
	}
	if err != nil {
		return fmt.Errorf("discard %s in %s: %w", name, l.dir, notFound(err))
	}
	_ = l.root.Remove(tmpDir) // succeeds where it is empty
	return nil
}

// Remove moves dir into a new entry of _tmp, which it then discards.
func (l *Local) Remove(ctx context.Context, dir string) error {
	if err := errors.Join(ctx.Err(), checkName(dir)); err != nil {
		return err
	}
	if path.Dir(dir) == "." && !strings.Contains(dir, "=") { // a job's, or all of it
		return fmt.Errorf("target: %q is not the directory of a run", dir)
	}
	if err := l.remove(dir); err != nil {
		return fmt.Errorf("remove %s in %s: %w", dir, l.dir, notFound(err))
	}
	_ = l.root.Remove(tmpDir) // succeeds where it is empty
	return nil
}

func (l *Local) remove(dir string) error {
	if _, err := l.root.Stat(dir); err != nil {
		return err
	}
	var held *os.File
	tmp, err := l.temporary(removed+dir, func(name string) (err error) {
		if err = l.root.Mkdir(name, 0o777); err == nil {
			held, err = l.hold(name)
		}
		return err
	})
	if err != nil {
		return err
	}
	defer held.Close() // opened for its lock only
	err = l.root.Rename(dir, path.Join(tmp, path.Base(dir)))
	if err == nil {
		err = l.syncDirs(path.Dir(dir))
	}
	return errors.Join(err, l.root.RemoveAll(tmp))
}

// RemoveFile unlinks the file.
func (l *Local) RemoveFile(ctx context.Context, name string) error {
	if err := errors.Join(ctx.Err(), checkName(name)); err != nil {
		return err
	}
	if err := l.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s in %s: %w", name, l.dir, err)
	}
	return nil
}
