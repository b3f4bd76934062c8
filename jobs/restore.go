package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sluice/jobs/target"
	"sluice/jobs/work"
	"sluice/store"
)

// RestoredStore is a store whose files were copied from a backup, open for writing.
type RestoredStore interface {
	store.Snapshotter
	// ID names the store.
	ID() string
	// NewID makes the store another one, durably, and returns its name.
	NewID(ctx context.Context) (string, error)
	Close() error
}

// RestoreOptions is one restore. Backup, Dir and Open must be set.
type RestoreOptions struct {
	// Backup is the directory of a backup, or of several, of which the latest is
	// taken. It is not closed.
	Backup target.Target
	// Dir is the data directory to make. It must not exist; the directory that
	// it lies in must.
	Dir string
	// Open opens the store in a directory for writing.
	Open func(dir string) (RestoredStore, error)
	// Parallelism is how many files are copied at a time. Default: GOMAXPROCS.
	Parallelism int
	// Logger tells of the restore's end. nil discards.
	Logger *slog.Logger
	// Progress is called after every file, by one goroutine at a time; it must
	// return soon.
	Progress func(work.Progress)
	// Now is the clock. Default: time.Now.
	Now func() time.Time

	into target.Target // tests; nil = the directory that Dir lies in
}

// Restored is what Restore has made.
type Restored struct {
	Manifest *BackupManifest
	StoreID  string // of the new store
}

// stagedUpload is an Upload whose files lie in a local directory before they are
// published.
type stagedUpload interface {
	target.Upload
	Path() string
}

// Restore makes a data directory of a backup. Every file is compared with the
// manifest, the store is opened and compared with its sequence and offsets, and gets
// an identity of its own, all of it out of sight; then the directory appears, whole
// and on disk. A restore that is killed leaves nothing but files in _tmp beside the
// directory, which hinder no other, and which the next one there removes.
//
// The new store is another one than that which was backed up, as both may be at
// work: members of a consumer group that write to different stores are refused, so
// that records are never divided among the two (design D4). The offsets are in the
// data, and so each record counts once in it, whichever group reads on.
//
// The error wraps target.ErrExists where Dir exists, target.ErrNotFound where there
// is no backup or nothing that Dir could lie in, and store.ErrCorrupt where the
// backup is not what its manifest says.
func Restore(ctx context.Context, o *RestoreOptions) (*Restored, error) {
	r := &restore{RestoreOptions: *o}
	if r.Backup == nil || r.Dir == "" || r.Open == nil {
		return nil, errors.New("jobs: RestoreOptions need a Backup, a Dir and Open")
	}
	if r.Now == nil {
		r.Now = time.Now
	}
	if r.Logger == nil {
		r.Logger = slog.New(slog.DiscardHandler)
	}
	started := r.Now()
	done, err := r.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("restore %s: %w", r.Dir, err)
	}
	r.Logger.Info("backup restored", "backup", done.Manifest.BackupID, "bytes", done.Manifest.Bytes, "took", r.Now().Sub(started))
	return done, nil
}

// restore is one execution of Restore.
type restore struct {
	RestoreOptions
	found  *foundBackup
	report work.Reporter
}

func (r *restore) run(ctx context.Context) (_ *Restored, err error) {
	if r.found, err = findBackup(ctx, r.Backup, ""); err != nil {
		return nil, err
	}
	if len(r.found.problems) > 0 {
		return nil, fmt.Errorf("%w: %s", store.ErrCorrupt, strings.Join(r.found.problems, "; "))
	}
	dir, err := filepath.Abs(r.Dir)
	if err != nil {
		return nil, err
	}
	if r.into == nil {
		into, err := target.OpenLocal(filepath.Dir(dir))
		if err != nil {
			return nil, err
		}
		defer into.Close()
		r.into = into
	}
	m := r.found.manifest
	u, err := r.into.Begin(ctx, filepath.Base(dir), restoreUpload(m.BackupID))
	if errors.Is(err, target.ErrExists) {
		return nil, fmt.Errorf("%s is there already, and a restore makes a new directory: %w", r.Dir, err)
	}
	if err != nil {
		return nil, err
	}
	r.discardKilled(ctx)
	id, err := r.make(ctx, u)
	if err != nil {
		return nil, errors.Join(err, u.Abort())
	}
	return &Restored{Manifest: m, StoreID: id}, nil
}

// restoreUpload is the id of a restore's upload.
func restoreUpload(id string) string { return "restore-" + id }

// ofRestore reports whether a target.Leftover of this name is a restore's upload, which the
// target may have given a number.
func ofRestore(name string) bool {
	id, ok := strings.CutPrefix(name, restoreUpload(""))
	id, _, _ = strings.Cut(id, ".")
	return ok && isHex(id, 12)
}

// discardKilled removes what restores that were killed have left beside Dir: nobody goes on
// with them, and each may be a whole copy of a store.
func (r *restore) discardKilled(ctx context.Context) {
	t, ok := r.into.(target.Collector)
	if !ok {
		return
	}
	left, err := t.Leftovers(ctx)
	if err != nil {
		r.Logger.Warn("what killed restores have left is not known", "dir", r.Dir, "err", err)
		return
	}
	for _, l := range left {
		if l.Busy || !ofRestore(l.Name) {
			continue
		}
		switch err := t.Discard(ctx, l.Name); {
		case err == nil:
			r.Logger.Info("removed what a killed restore has left", "name", l.Name, "bytes", l.Bytes)
		case !errors.Is(err, target.ErrNotFound) && !errors.Is(err, target.ErrBusy):
			r.Logger.Warn("what a killed restore has left cannot be removed", "name", l.Name, "bytes", l.Bytes, "err", err)
		}
	}
}

// make fills an upload and publishes it; it returns the id of the store.
func (r *restore) make(ctx context.Context, u target.Upload) (id string, err error) {
	staged, ok := u.(stagedUpload)
	if !ok {
		return "", fmt.Errorf("%w: a target of type %T is no local directory", store.ErrUnsupported, r.into)
	}
	// As a store makes its own: what is in it is for its owner.
	if err := os.Chmod(staged.Path(), 0o700); err != nil {
		return "", err
	}
	m := r.found.manifest
	r.report.Start(r.Progress, r.Now, len(m.Files))
	err = work.Parallel(ctx, r.Parallelism, len(m.Files), func(ctx context.Context, i int) error {
		return r.file(ctx, u, &m.Files[i])
	})
	if err != nil {
		return "", err
	}
	if id, err = r.adopt(ctx, staged.Path()); err != nil {
		return "", err
	}
	data, err := m.Encode()
	if err != nil {
		return "", err
	}
	return id, u.Commit(ctx, restoredName, data)
}

// restoredName is the file in a restored data directory that says what it was made
// of. The store does not look at it.
const restoredName = "sluice.restored"

// file copies and checks one file.
func (r *restore) file(ctx context.Context, u target.Upload, f *BackupFile) error {
	return r.found.read(ctx, r.Backup, f, func(in io.Reader) error {
		n, sum, err := copyFile(ctx, u, f.Path, in)
		if err != nil {
			return fmt.Errorf("copy %s: %w", f.Path, err)
		}
		if problems := f.differences(n, sum); len(problems) > 0 {
			return fmt.Errorf("%w: %s: %s", store.ErrCorrupt, f.Path, strings.Join(problems, "; "))
		}
		r.report.File(n)
		return nil
	})
}

// adopt compares the store in dir with the manifest and gives it a name of its own.
func (r *restore) adopt(ctx context.Context, dir string) (id string, err error) {
	s, err := r.Open(dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := r.compare(ctx, s); err != nil {
		return "", err
	}
	return s.NewID(ctx)
}

func (r *restore) compare(ctx context.Context, s RestoredStore) (err error) {
	m := r.found.manifest
	snapshot, err := s.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, snapshot.Close()) }()
	if s.ID() != m.StoreID || snapshot.Sequence() != m.Sequence {
		return fmt.Errorf("%w: the files hold store %s at commit %d, the manifest says %s at %d", store.ErrCorrupt, s.ID(), snapshot.Sequence(), m.StoreID, m.Sequence)
	}
	offsets, err := readOffsets(ctx, snapshot)
	if err != nil {
		return err
	}
	if !slices.Equal(offsets, m.Offsets) {
		return fmt.Errorf("%w: the files hold offsets %v, the manifest says %v", store.ErrCorrupt, offsets, m.Offsets)
	}
	return nil
}
