package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"time"

	"sluice/jobs/instant"
	"sluice/jobs/target"
	"sluice/jobs/work"
	"sluice/store"
)

// BackupSource is a store at one instant as a directory of files that nobody
// changes: a checkpoint.
type BackupSource interface {
	instant.Source
	// Dir holds the files.
	Dir() string
	// StoreID names the store, and Format the version of its layout.
	StoreID() string
	Format() int
	// CheckFiles reads the files and compares them with the checksums in them;
	// its error wraps store.ErrCorrupt.
	CheckFiles(ctx context.Context) error
}

// BackupOptions is one backup. Source and Target must be set.
type BackupOptions struct {
	Source BackupSource
	// Target is where backups go: a place of their own. It is not closed.
	Target target.Target
	// Resume goes on with the newest backup of the same store that was cut off: it
	// keeps its id and its time, what it has copied of files that are as they were is
	// not copied again, and the rest is of the Source, whose instant the backup is of.
	// Where none was cut off, or one that began later is published, the error wraps
	// target.ErrNotFound; where one is at work, target.ErrBusy.
	Resume bool
	// Name and LogicalTime, of a schedule, make the backup the one of that name and store
	// for that time, of which there is one: where it is published the error wraps
	// target.ErrExists, and where it was cut off, Backup goes on with it as with Resume,
	// which is not to be set. Default: the backup is for when it begins.
	Name        string
	LogicalTime time.Time
	// Confirm is called right before the backup is published, as that of RunOptions.
	Confirm func(ctx context.Context) error
	// Parallelism is how many files are copied at a time. Default: GOMAXPROCS.
	Parallelism int
	// Engine and Version are stored in the manifest. Default: empty.
	Engine, Version string
	// Logger tells of the backup's end. nil discards.
	Logger *slog.Logger
	// Progress is called after every file, by one goroutine at a time; it must
	// return soon.
	Progress func(work.Progress)
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// Backup copies a store to a target and publishes it there, with a manifest: the
// directory backup=TIME-ID, which appears whole or not at all (invariant I6), and
// which _latest.json names from then on. Blocks that are corrupt already are found
// before anything is copied (invariant I7); then the error wraps store.ErrCorrupt.
// On an error nothing is visible. What is copied stays for Resume where it may go better
// another time, and then the error wraps ErrResumable; it is removed after a cancellation,
// where the disk is full, and where the source is at fault. What a process that was killed
// has left, Resume takes up, too. Where the
// backup was published and _latest.json could not be replaced: the manifest is
// returned as well.
func Backup(ctx context.Context, o *BackupOptions) (*BackupManifest, error) {
	b := &backup{BackupOptions: *o}
	if b.Source == nil || b.Target == nil {
		return nil, errors.New("jobs: BackupOptions need a Source and a Target")
	}
	if (b.Name == "") != b.LogicalTime.IsZero() || b.Name != "" && b.Resume {
		return nil, errors.New("jobs: the Name of a backup goes with a LogicalTime, and without Resume")
	}
	if b.Now == nil {
		b.Now = time.Now
	}
	if b.Logger == nil {
		b.Logger = slog.New(slog.DiscardHandler)
	}
	if b.Parallelism <= 0 {
		b.Parallelism = runtime.GOMAXPROCS(0)
	}
	m, err := b.run(ctx)
	if err != nil {
		if _, gone := os.Stat(b.Source.Dir()); errors.Is(gone, fs.ErrNotExist) {
			err = fmt.Errorf("the checkpoint is gone, as its lease was over before it was renewed; was this process stopped for minutes? Make the backup anew (%w)", err)
		}
		return m, fmt.Errorf("back up %s: %w", b.Source.Dir(), err)
	}
	b.Logger.Info("backup published", "backup", m.BackupID, "bytes", m.Bytes, "took", m.FinishedAt.Sub(m.StartedAt))
	return m, nil
}

// backup is one execution of Backup.
type backup struct {
	BackupOptions
	publication
	report work.Reporter
	root   *os.Root // of the source's files
}

func (b *backup) run(ctx context.Context) (*BackupManifest, error) {
	m, err := b.manifest(ctx)
	if err != nil {
		return nil, err
	}
	if b.Name != "" {
		if err := b.once(ctx, m); err != nil {
			return nil, err
		}
	}
	if err := b.Source.CheckFiles(ctx); err != nil {
		return nil, err
	}
	if b.root, err = os.OpenRoot(b.Source.Dir()); err != nil {
		return nil, err
	}
	defer b.root.Close()
	if err := b.beginOrGoOn(ctx, m); err != nil {
		return nil, err
	}
	data, err := b.publish(ctx, m)
	if err != nil {
		return nil, b.end(ctx, b.Source, err, false)
	}
	if err := pointBackup(context.WithoutCancel(ctx), b.Target, m, data); err != nil {
		return m, fmt.Errorf("backup %s is published, but %s was not replaced: %w", m.Dir(), LatestName, err)
	}
	return m, nil
}

// once makes m the backup for its logical time, unless there is that already.
func (b *backup) once(ctx context.Context, m *BackupManifest) error {
	m.BackupID = scheduledBackupID(b.Name, m.StoreID, b.LogicalTime)
	there, err := FindScheduledBackup(ctx, b.Target, b.Name, m.StoreID, b.LogicalTime)
	if err == nil {
		return fmt.Errorf("%s is of this time: %w", there.Dir(), target.ErrExists)
	}
	if !errors.Is(err, target.ErrNotFound) {
		return err
	}
	return nil
}

// manifest returns the manifest with the names of the files, which are not copied
// yet.
func (b *backup) manifest(ctx context.Context) (*BackupManifest, error) {
	started := b.Now().UTC()
	m := &BackupManifest{
		FormatVersion: BackupVersion, BackupID: runID("backup of "+b.Source.StoreID(), started), StartedAt: started,
		StoreID: b.Source.StoreID(), StoreFormat: b.Source.Format(), Engine: b.Engine, Sequence: b.Source.Sequence(), Offsets: []Offset{},
		Version: b.Version,
	}
	offsets, err := readOffsets(ctx, b.Source)
	if err != nil {
		return nil, err
	}
	m.Offsets = append(m.Offsets, offsets...)
	entries, err := os.ReadDir(b.Source.Dir()) // sorted
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case name == lockFile:
		case !e.Type().IsRegular() || !isStoreFile(name):
			return nil, fmt.Errorf("%w: %s is no file of a store", store.ErrUnsupported, name)
		default:
			m.Files = append(m.Files, BackupFile{Path: name})
		}
	}
	return m, nil
}

// lockFile is what a process that has a data directory open locks: it holds
// nothing.
const lockFile = "LOCK"

// publish copies the files and then writes the manifest, whose bytes it returns.
func (b *backup) publish(ctx context.Context, m *BackupManifest) ([]byte, error) {
	b.report.Start(b.Progress, b.Now, len(m.Files))
	err := work.Parallel(ctx, b.Parallelism, len(m.Files), func(ctx context.Context, i int) error {
		f := &m.Files[i]
		if f.SHA256 != "" { // it was copied by the process that was killed
			b.report.File(f.Bytes)
			return nil
		}
		in, err := b.root.Open(f.Path)
		if err != nil {
			return err
		}
		defer in.Close()
		if f.Bytes, f.SHA256, err = copyFile(ctx, b.upload, f.Path, in); err != nil {
			return fmt.Errorf("copy %s: %w", f.Path, err)
		}
		b.report.File(f.Bytes)
		return b.note(ctx, backupFileNote+f.Path, &backupFileState{FormatVersion: BackupVersion, File: *f})
	})
	if err != nil {
		return nil, err
	}
	for i := range m.Files {
		m.Bytes += m.Files[i].Bytes
	}
	m.FinishedAt = b.Now().UTC()
	return b.commit(ctx, b.Source, BackupManifestName, m, len(m.Files), "compact the store, so that it has fewer files", b.Confirm)
}

// copyFile makes a durable file of an upload of what r holds, and returns its size
// and the hex of its SHA-256.
func copyFile(ctx context.Context, u target.Upload, name string, r io.Reader) (int64, string, error) {
	w, err := u.Create(ctx, name)
	if err != nil {
		return 0, "", err
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, h), &contextReader{ctx: ctx, r: r})
	if err := errors.Join(err, w.Close()); err != nil {
		return 0, "", err
	}
	return n, hex.EncodeToString(h.Sum(nil)), nil
}
