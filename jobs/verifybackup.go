package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"

	"sluice/jobs/target"
)

// BackupReport is what VerifyBackup found.
type BackupReport struct {
	Manifest *BackupManifest
	Dir      string       // of the backup
	Files    []FileReport // in the manifest's order; they have no rows
	Problems []string     // of the backup as a whole
}

// OK reports that everything is as the manifest says.
func (r *BackupReport) OK() bool { return r.Err() == nil }

// Err returns nil where the report is OK, and an error that names every problem
// otherwise.
func (r *BackupReport) Err() error { return problemsOf(r.Problems, r.Files) }

// VerifyBackup reads a backup back and compares it with its manifest: size and
// checksum of every file, and that no other file lies beside them. at is the
// backup's directory, that of several (the latest one), or the manifest itself.
// What does not match is in the Report; an error means that it could not be looked
// at, and wraps target.ErrNotFound where there is no backup.
func VerifyBackup(ctx context.Context, at string) (*BackupReport, error) {
	t, dir, name, err := openRun(at)
	if err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	defer t.Close()
	r, err := verifyBackup(ctx, t, name)
	if err != nil {
		return nil, fmt.Errorf("verify %s: %w", at, err)
	}
	r.Dir = filepath.Join(dir, filepath.FromSlash(r.Dir))
	return r, nil
}

// VerifyBackupTarget is VerifyBackup of the backup, or the latest of the backups,
// that t is the directory of. Dir of its BackupReport is below t.
func VerifyBackupTarget(ctx context.Context, t target.Target) (*BackupReport, error) {
	r, err := verifyBackup(ctx, t, "")
	if err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	return r, nil
}

func verifyBackup(ctx context.Context, t target.Target, name string) (*BackupReport, error) {
	found, err := findBackup(ctx, t, name)
	if err != nil {
		return nil, err
	}
	r := &BackupReport{Manifest: found.manifest, Dir: path.Dir(found.name), Problems: slices.Concat(found.problems, found.time)}
	listed := map[string]bool{BackupManifestName: true}
	for i := range found.manifest.Files {
		want := &found.manifest.Files[i]
		listed[want.Path] = true
		f, err := found.verifyFile(ctx, t, want)
		if err != nil {
			return nil, err
		}
		r.Files = append(r.Files, f)
	}
	entries, err := t.List(ctx, r.Dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !listed[e.Name] {
			r.Problems = append(r.Problems, fmt.Sprintf("%s is not in the manifest", e.Name))
		}
	}
	return r, nil
}

// foundBackup is the manifest of a backup and where it was.
type foundBackup struct {
	manifest *BackupManifest
	name     string   // below the target
	problems []string // between the manifest and what named it
	time     []string // what is wrong with the time for which it was named
}

// findBackup reads the manifest with this name, or, without one, that of the latest
// backup or of the backup that the target is. Its error wraps target.ErrNotFound
// where there is none.
func findBackup(ctx context.Context, t target.Target, name string) (*foundBackup, error) {
	f := &foundBackup{name: name}
	var latest *Latest
	if name == "" || name == LatestName {
		f.name = BackupManifestName
		l, err := readLatest(ctx, t, ".")
		switch {
		case err == nil:
			latest, f.name = l, l.Manifest
		case !errors.Is(err, target.ErrNotFound):
			return nil, err
		}
	}
	if path.Base(f.name) != BackupManifestName {
		return nil, fmt.Errorf("%s is the manifest of an export, not of a backup: %w", f.name, target.ErrNotFound)
	}
	data, err := target.ReadFile(ctx, t, f.name, maxManifestBytes)
	switch {
	case errors.Is(err, target.ErrNotFound) && latest != nil:
		return nil, latest.gone(err)
	case errors.Is(err, target.ErrNotFound):
		return nil, fmt.Errorf("there is no %s: name the directory of a backup, or of several: %w", f.name, err)
	case err != nil:
		return nil, err
	}
	if f.manifest, err = DecodeBackupManifest(data); err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	if latest != nil {
		f.problems = latest.differences("backup", f.manifest.BackupID, data)
		f.time = latest.wrongTime("backup", f.manifest.StartedAt)
	}
	return f, nil
}

// verifyFile checks one file. Its error is that of ctx only.
func (f *foundBackup) verifyFile(ctx context.Context, t target.Target, want *BackupFile) (FileReport, error) {
	r := FileReport{Path: want.Path}
	h := sha256.New()
	err := f.read(ctx, t, want, func(in io.Reader) (err error) {
		r.Bytes, err = io.Copy(h, in)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return r, ctx.Err()
	case errors.Is(err, target.ErrNotFound):
		r.Problems = append(r.Problems, "the file is missing")
	case err != nil:
		r.Problems = append(r.Problems, err.Error())
	default:
		r.Problems = want.differences(r.Bytes, hex.EncodeToString(h.Sum(nil)))
	}
	return r, nil
}

// differences says how a file that was read differs from what f says.
func (f *BackupFile) differences(bytes int64, sha256 string) (problems []string) {
	if bytes != f.Bytes {
		problems = append(problems, fmt.Sprintf("it has %d bytes, the manifest says %d", bytes, f.Bytes))
	}
	if sha256 != f.SHA256 {
		problems = append(problems, fmt.Sprintf("its sha256 is %s, the manifest says %s", sha256, f.SHA256))
	}
	return problems
}

// read hands a file of the backup to use.
func (f *foundBackup) read(ctx context.Context, t target.Target, file *BackupFile, use func(io.Reader) error) error {
	in, err := t.Open(ctx, path.Join(path.Dir(f.name), file.Path))
	if err != nil {
		return err
	}
	defer in.Close()
	return use(&contextReader{ctx: ctx, r: io.NewSectionReader(in, 0, in.Size())})
}
