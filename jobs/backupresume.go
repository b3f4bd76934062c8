package jobs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"sluice/jobs/target"
	"sluice/store"
)

// noteBackup is the note with the backupState; the other notes are backupNotes, named
// after their files.
const (
	noteBackup     = "backup"
	backupFileNote = "file-"
)

// backupState is what a backup must share with one that was cut off. It is written
// before the first file.
type backupState struct {
	FormatVersion int       `json:"format_version"` // BackupVersion
	StoreID       string    `json:"store_id"`
	BackupID      string    `json:"backup_id"`
	StartedAt     time.Time `json:"started_at"`
}

// backupFileState is the note of a file that is copied.
type backupFileState struct {
	FormatVersion int        `json:"format_version"` // BackupVersion
	File          BackupFile `json:"file"`
}

// beginOrGoOn begins the upload of m, or takes up what a backup of the same store has left.
func (b *backup) beginOrGoOn(ctx context.Context, m *BackupManifest) error {
	if b.Resume {
		return b.takeUp(ctx, m, "")
	}
	if _, ok := b.Target.(target.Resumer); ok && b.Name != "" {
		if err := b.takeUp(ctx, m, m.BackupID); !errors.Is(err, target.ErrNotFound) {
			return err
		}
	}
	b.dir, b.id = m.Dir(), backupUpload(m.BackupID)
	return b.begin(ctx, b.Target, noteBackup, &backupState{FormatVersion: BackupVersion, StoreID: m.StoreID, BackupID: m.BackupID, StartedAt: m.StartedAt})
}

// backupUpload is the id of a backup's upload.
func backupUpload(id string) string { return "backup-" + id }

// takeUp makes m the backup with this id, or, without one, the newest, of the store that
// was cut off, and marks the files that need not be copied again: those of which it has a
// copy of what the store's file holds now. Most files of a store never change; those that
// have are copied anew, so that the backup is of the source's instant as a whole.
func (b *backup) takeUp(ctx context.Context, m *BackupManifest, id string) error {
	t, ok := b.Target.(target.Resumer)
	if !ok {
		return fmt.Errorf("%w: a backup in a target of type %T cannot be resumed", store.ErrUnsupported, b.Target)
	}
	left, notes, err := unfinishedBackup(ctx, t, m.StoreID, id)
	if err != nil {
		return err
	}
	if id == "" {
		if err := checkNewest(ctx, t, left); err != nil {
			return err
		}
	}
	m.BackupID, m.StartedAt = left.BackupID, left.StartedAt
	b.dir, b.id = m.Dir(), backupUpload(m.BackupID)
	u, err := b.left(ctx, t)
	if err != nil {
		return err
	}
	b.goOn(u)
	keep := map[string]int64{}
	for i := range m.Files {
		f := &m.Files[i]
		had, ok := notes[f.Path]
		if !ok {
			continue
		}
		bytes, sum, err := sumFile(ctx, b.root, f.Path)
		if err != nil {
			return errors.Join(err, u.Leave())
		}
		if bytes == had.Bytes && sum == had.SHA256 {
			f.Bytes, f.SHA256, keep[f.Path] = bytes, sum, bytes
		}
	}
	if err := u.Retain(ctx, keep); err != nil {
		return errors.Join(err, u.Leave())
	}
	b.Logger.Info("backup resumed", "backup", m.BackupID, "files", len(m.Files), "copied", len(keep))
	return nil
}

// unfinishedBackup returns the backup of a store with this id, or, without one, the
// newest, that was cut off, or is at work, and its finished files by path. Its error wraps
// target.ErrNotFound.
func unfinishedBackup(ctx context.Context, t target.Resumer, storeID, id string) (*backupState, map[string]BackupFile, error) {
	uploads, err := t.Unfinished(ctx)
	if err != nil {
		return nil, nil, err
	}
	var newest *backupState
	var notes map[string][]byte
	for _, u := range uploads {
		var s backupState
		if err := decodeVersion(u.Notes[noteBackup], BackupVersion, &s); err != nil || s.StoreID != storeID || !isHex(s.BackupID, 12) || id != "" && s.BackupID != id {
			continue // another one, of another store, or an export's
		}
		if newest == nil || cmp.Or(s.StartedAt.Compare(newest.StartedAt), strings.Compare(s.BackupID, newest.BackupID)) > 0 {
			newest, notes = &s, u.Notes
		}
	}
	if newest == nil {
		return nil, nil, fmt.Errorf("%w: no backup of store %s was cut off there: begin one without --resume", target.ErrNotFound, storeID)
	}
	files, err := backupFiles(newest.BackupID, notes)
	if err != nil {
		return nil, nil, err
	}
	return newest, files, nil
}

// checkNewest refuses a backup that was cut off where one of the same store is published
// that began later: it keeps its time, by which that one would go on being the latest, and
// retention would remove what was copied last. The error wraps target.ErrNotFound.
func checkNewest(ctx context.Context, t target.Target, left *backupState) error {
	dirs, err := backupDirs(ctx, t)
	if err != nil {
		return err
	}
	from := (&BackupManifest{StartedAt: left.StartedAt}).Dir() // without an id; to the second
	for _, dir := range dirs {
		if dir < from {
			continue
		}
		f, err := findBackup(ctx, t, path.Join(dir, BackupManifestName))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && f.manifest.StoreID == left.StoreID && f.manifest.StartedAt.After(left.StartedAt) {
			return fmt.Errorf("%w: backup %s was cut off, and %s, which began later, is published: begin one without --resume", target.ErrNotFound, left.BackupID, dir)
		}
	}
	return nil
}

// backupFiles returns the finished files, by path, that the notes of a backup name.
func backupFiles(id string, notes map[string][]byte) (map[string]BackupFile, error) {
	files := map[string]BackupFile{}
	for name, data := range notes {
		if name == noteBackup {
			continue
		}
		var n backupFileState
		if err := decodeVersion(data, BackupVersion, &n); err != nil {
			return nil, fmt.Errorf("note %s of backup %s: %w", name, id, err)
		}
		f := n.File
		if name != backupFileNote+f.Path || !isStoreFile(f.Path) || f.Bytes < 0 || !isHex(f.SHA256, 64) {
			return nil, fmt.Errorf("%w: note %s of backup %s is of file %q", ErrManifest, name, id, f.Path)
		}
		files[f.Path] = f
	}
	return files, nil
}

// sumFile returns the size and the hex of the SHA-256 of a file.
func sumFile(ctx context.Context, root *os.Root, name string) (int64, string, error) {
	in, err := root.Open(name)
	if err != nil {
		return 0, "", err
	}
	defer in.Close()
	h := sha256.New()
	n, err := io.Copy(h, &contextReader{ctx: ctx, r: in})
	return n, hex.EncodeToString(h.Sum(nil)), err
}

// pointBackup makes _latest.json name a backup, whose encoded manifest is data, unless it names
// one that began later and, where that is of the same store, has all of its commits: a clock
// that was set back does not leave the newest backups behind those of before.
func pointBackup(ctx context.Context, t target.Target, m *BackupManifest, data []byte) error {
	return point(ctx, t, ".", &Latest{
		FormatVersion: ManifestVersion, RunID: m.BackupID, LogicalTime: m.StartedAt,
		Manifest: path.Join(m.Dir(), BackupManifestName), ManifestSHA256: hexSHA256(data),
	}, func(was *Latest) bool {
		f, err := findBackup(ctx, t, was.Manifest)
		return err == nil && f.manifest.StoreID == m.StoreID && f.manifest.Sequence < m.Sequence
	})
}

// FinishPublishedBackup does what is left of a backup of a store that was cut off after it
// was published: it makes _latest.json name the newest of the store, and returns its
// manifest. Its error wraps target.ErrNotFound where _latest.json names that already, or one
// that began later, or there is none.
func FinishPublishedBackup(ctx context.Context, t target.Target, storeID string) (*BackupManifest, error) {
	latest, err := readLatest(ctx, t, ".")
	if err != nil && !errors.Is(err, target.ErrNotFound) {
		return nil, err
	}
	dirs, err := backupDirs(ctx, t)
	if err != nil {
		return nil, err
	}
	for _, dir := range slices.Backward(dirs) {
		f, err := findBackup(ctx, t, path.Join(dir, BackupManifestName))
		if err != nil {
			return nil, err
		}
		if latest != nil && !f.manifest.StartedAt.After(latest.LogicalTime) {
			break
		}
		if f.manifest.StoreID != storeID {
			continue
		}
		data, err := target.ReadFile(ctx, t, f.name, maxManifestBytes)
		if err != nil {
			return nil, err
		}
		return f.manifest, pointBackup(ctx, t, f.manifest, data)
	}
	return nil, fmt.Errorf("a backup of store %s that %s does not name: %w", storeID, LatestName, target.ErrNotFound)
}
