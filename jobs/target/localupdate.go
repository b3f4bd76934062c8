package target

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"time"
)

// updateWait bounds how long an Update waits for others, each of which takes a
// few fsyncs: who has the lock for longer is stopped, or the disk is.
const updateWait = time.Minute

// Update reads, changes and renames under a lock that other Updates of name wait
// for; the system takes it from a process that ends. Where the system or the file
// system has no locks, two Updates at one moment are not told apart: the content is
// that of one of them.
func (l *Local) Update(ctx context.Context, name string, change func(old []byte) ([]byte, error)) error {
	if err := errors.Join(ctx.Err(), checkName(name)); err != nil {
		return err
	}
	if err := l.update(ctx, name, change); err != nil {
		return fmt.Errorf("update %s in %s: %w", name, l.dir, err)
	}
	return nil
}

func (l *Local) update(ctx context.Context, name string, change func(old []byte) ([]byte, error)) (err error) {
	unlock, err := l.lockName(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	old, err := ReadFile(ctx, l, name, maxUpdateBytes)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	data, err := change(old)
	if err != nil || data == nil {
		return err
	}
	return l.replace(name, data)
}

// lockName waits for the lock of name, a file below _tmp, and returns what ends it.
func (l *Local) lockName(ctx context.Context, name string) (unlock func(), err error) {
	at := path.Join(tmpDir, temporaryName("update-"+name))
	wait := time.Millisecond
	for until := time.Now().Add(updateWait); ; {
		held, err := l.tryLock(at)
		switch {
		case err == nil:
			return func() {
				// Removed while it is locked: who has it open already sees, in
				// hold, that it is gone.
				_ = l.root.Remove(at)
				_ = held.Close()          // opened for its lock only
				_ = l.root.Remove(tmpDir) // succeeds where it is empty
			}, nil
		case !errors.Is(err, fs.ErrExist):
			return nil, err
		case time.Now().After(until):
			return nil, fmt.Errorf("%w: somebody has had %s locked for %v", ErrBusy, at, updateWait)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		wait = min(2*wait, 50*time.Millisecond)
	}
}

// tryLock makes the file at and locks it; nil where there are no locks. Its error
// wraps fs.ErrExist where another has it, or was faster to remove it.
func (l *Local) tryLock(at string) (*os.File, error) {
	open := func() (*os.File, error) { return l.root.OpenFile(at, os.O_WRONLY|os.O_CREATE, 0o666) }
	f, err := open()
	if errors.Is(err, fs.ErrNotExist) { // _tmp is missing
		if err := l.root.Mkdir(tmpDir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if f, err = open(); errors.Is(err, fs.ErrNotExist) { // another was faster to remove it
			return nil, fs.ErrExist
		}
	}
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	return l.hold(at)
}

// replace writes a new file and renames it over name, durably.
func (l *Local) replace(name string, data []byte) (err error) {
	var f, held *os.File
	tmp, err := l.temporary("replace-"+name, func(n string) (err error) {
		if f, err = l.root.OpenFile(n, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666); err != nil {
			return err
		}
		if held, err = l.hold(n); err != nil {
			err = errors.Join(err, f.Close())
		}
		return err
	})
	if err != nil {
		return err
	}
	defer held.Close() // opened for its lock only
	l.did.tell("create", tmp)
	if err = writeSync(f, data); err == nil {
		l.did.tell("sync", tmp)
		if err = l.root.MkdirAll(path.Dir(name), 0o777); err == nil {
			err = l.root.Rename(tmp, name)
		}
	}
	if err != nil {
		return errors.Join(err, l.root.Remove(tmp))
	}
	l.did.tell("rename", name)
	return l.syncDirs(path.Dir(name))
}

// writeSync writes data to f durably and closes it.
func writeSync(f *os.File, data []byte) error {
	_, err := f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
