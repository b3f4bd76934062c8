package jobs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/jobs/target"
)

// TestBackupsOfAClockThatWasSet: the newest backup of a store is the one of its latest commit,
// whatever the clock said when the others were made: it is what _latest.json names and what is
// restored, and retention does not remove it.
func TestBackupsOfAClockThatWasSet(t *testing.T) {
	t.Parallel()
	db, before := backupStore(t)
	dir := filepath.Join(t.TempDir(), "backups")
	to := mustLocal(t, dir)
	wrong := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	now := wrong
	backup := func(of checkpointed) *BackupManifest {
		t.Helper()
		m, err := Backup(t.Context(), &BackupOptions{Source: of, Target: to, Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	newest := func() *BackupManifest {
		t.Helper()
		f, err := findBackup(t.Context(), to, "")
		if err != nil {
			t.Fatal(err)
		}
		return f.manifest
	}
	first := backup(before)
	now = wrong.Add(-24 * time.Hour) // it was set right
	if err := visits(t, db, 100, 110); err != nil {
		t.Fatal(err)
	}
	after := checkpointOf(t, db)
	second := backup(after)
	if second.Sequence <= first.Sequence {
		t.Fatalf("Got commits %d and %d, want the second to be later", first.Sequence, second.Sequence)
	}
	if got := newest(); got.BackupID != second.BackupID {
		t.Errorf("the latest is at commit %d, want %d", got.Sequence, second.Sequence)
	}
	if _, err := CollectBackups(t.Context(), &CollectBackupsOptions{Target: to, Keep: Keep{Runs: 1}, Now: func() time.Time { return now }}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, second.Dir())); err != nil {
		t.Errorf("retention has removed the newest backup: %v", err)
	}
	// Time passes: what was of the future goes as any other.
	now = wrong.Add(24 * time.Hour)
	if err := visits(t, db, 110, 120); err != nil {
		t.Fatal(err)
	}
	third := backup(checkpointOf(t, db))
	if _, err := CollectBackups(t.Context(), &CollectBackupsOptions{Target: to, Keep: Keep{Runs: 1}, Now: func() time.Time { return now }}); err != nil {
		t.Fatal(err)
	}
	dirs, err := backupDirs(t.Context(), to)
	if err != nil || len(dirs) != 1 || dirs[0] != third.Dir() {
		t.Errorf("Got %v, %v; want %s alone", dirs, err, third.Dir())
	}
	if r, err := VerifyBackupTarget(t.Context(), to); err != nil || !r.OK() {
		t.Errorf("the latest: %v, %v", err, r)
	}
}

// A data directory that is a symbolic link, wherever it points to, is there already.
func TestRestoreToLinkIsRefused(t *testing.T) {
	t.Parallel()
	_, cp := backupStore(t)
	to := mustLocal(t, filepath.Join(t.TempDir(), "backups"))
	if _, err := Backup(t.Context(), &BackupOptions{Source: cp, Target: to}); err != nil {
		t.Fatal(err)
	}
	base := t.TempDir()
	for name, points := range map[string]string{"dangling": filepath.Join(base, "none"), "link": t.TempDir()} {
		dir := filepath.Join(base, name)
		if err := os.Symlink(points, dir); err != nil {
			t.Fatal(err)
		}
		_, err := Restore(t.Context(), &RestoreOptions{Backup: to, Dir: dir, Open: openRestored})
		if !errors.Is(err, target.ErrExists) || !strings.Contains(err.Error(), "is there already") {
			t.Errorf("%s: Got %v, want that it is there", name, err)
		}
	}
	if left, err := os.ReadDir(base); err != nil || len(left) != 2 {
		t.Errorf("Got %v, %v beside the links, want nothing", left, err)
	}
}
