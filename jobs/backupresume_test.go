package jobs

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/jobs/target"
)

// backupKilled backs a checkpoint up into dir, in a process that dies at a step.
func backupKilled(t *testing.T, cp BackupSource, dir string, die int, resume bool) (*killing, *BackupManifest, error) {
	t.Helper()
	local, err := target.CreateLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	k := &killing{Local: local, die: die}
	m, err := Backup(t.Context(), &BackupOptions{Source: cp, Target: k, Parallelism: 1, Resume: resume})
	return k, m, err
}

// TestBackupResumeKilled kills a backup at every step, and goes on with it twice, the
// first time killed again: with the same instant no finished file is copied again, with
// a later one the backup is of that, as a whole. Where it was killed before it noted
// anything, there is nothing to go on with, and where it was published, nothing to do.
func TestBackupResumeKilled(t *testing.T) {
	t.Parallel()
	db, cp := backupStore(t)
	if err := visits(t, db, 100, 150); err != nil {
		t.Fatal(err)
	}
	later := checkpointOf(t, db)
	whole, wholeManifest, err := backupKilled(t, cp, t.TempDir(), 0, false)
	if err != nil {
		t.Fatal(err)
	}
	_, laterManifest, err := backupKilled(t, later, t.TempDir(), 0, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(whole.steps) < 20 || len(whole.noted) < 5 {
		t.Fatalf("Got steps %v, notes %v", whole.steps, whole.noted)
	}
	resumed, finished, nothing := 0, 0, 0
	for die := 1; die <= len(whole.steps); die++ {
		at := whole.steps[die-1]
		source, want := BackupSource(cp), wholeManifest
		if die%2 == 0 {
			source, want = later, laterManifest
		}
		dir := t.TempDir()
		first, _, err := backupKilled(t, cp, dir, die, false)
		if !errors.Is(err, errKilled) {
			t.Fatalf("killed at %s: %v", at, err)
		}
		between, _, err := backupKilled(t, source, dir, 3+die%7, true)
		if err == nil {
			t.Fatalf("killed at %s: the second was not killed", at)
		}
		last, m, err := backupKilled(t, source, dir, 0, true)
		switch {
		case errors.Is(err, target.ErrNotFound):
			if m, err = finishOrBackup(t, source, dir, &finished, &nothing); err != nil {
				t.Fatalf("killed at %s: %v", at, err)
			}
		case err != nil:
			t.Fatalf("killed at %s: %v", at, err)
		default:
			resumed++
			if d := cmp.Diff(want.Files, m.Files); d != "" || m.Sequence != want.Sequence {
				t.Errorf("killed at %s: Got commit %d, want %d: %s", at, m.Sequence, want.Sequence, d)
			}
			for _, name := range last.created {
				noted := slices.Contains(first.noted, backupFileNote+name) || slices.Contains(between.noted, backupFileNote+name)
				if noted && (die%2 == 1 || strings.HasSuffix(name, ".sst")) {
					t.Errorf("killed at %s: %s was finished, and copied again", at, name)
				}
			}
		}
		r, err := VerifyBackup(t.Context(), dir)
		if err != nil || !r.OK() || r.Manifest.BackupID != m.BackupID {
			t.Fatalf("killed at %s: Verify: %+v, %v", at, r, err)
		}
		left, err := mustLocal(t, dir).Unfinished(t.Context())
		if err != nil || len(left) > 0 {
			t.Errorf("killed at %s: %v is left, %v", at, left, err)
		}
	}
	if resumed < 10 || finished == 0 || nothing == 0 {
		t.Errorf("Got %d backups that went on, %d that were published, %d that had not begun", resumed, finished, nothing)
	}
}

// finishOrBackup does what is done where there is nothing to go on with.
func finishOrBackup(t *testing.T, source BackupSource, dir string, finished, nothing *int) (*BackupManifest, error) {
	t.Helper()
	local := mustLocal(t, dir)
	m, err := FinishPublishedBackup(t.Context(), local)
	if err == nil {
		*finished++
		return m, nil
	}
	if !errors.Is(err, target.ErrNotFound) {
		return nil, err
	}
	if f, err := findBackup(t.Context(), local, ""); err == nil {
		*finished++ // _latest.json names it already
		return f.manifest, nil
	}
	*nothing++
	return Backup(t.Context(), &BackupOptions{Source: source, Target: local, Now: func() time.Time { return time.Now().Add(time.Hour) }})
}

// TestBackupResumeRefused: a backup of another store is left alone, and so is one that
// is at work; a target without resumable uploads is refused.
func TestBackupResumeRefused(t *testing.T) {
	t.Parallel()
	_, cp := backupStore(t)
	_, other := backupStore(t)
	dir := t.TempDir()
	if _, _, err := backupKilled(t, cp, dir, 12, false); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	resume := func(source BackupSource, to target.Target) error {
		_, err := Backup(t.Context(), &BackupOptions{Source: source, Target: to, Resume: true})
		return err
	}
	local := mustLocal(t, dir)
	if err := resume(other, local); !errors.Is(err, target.ErrNotFound) {
		t.Errorf("of another store: Got %v", err)
	}
	uploads, err := local.Unfinished(t.Context())
	if err != nil || len(uploads) != 1 {
		t.Fatalf("Got %v, %v", uploads, err)
	}
	state, _, err := unfinishedBackup(t.Context(), local, cp.StoreID())
	if err != nil {
		t.Fatal(err)
	}
	held, err := local.Resume(t.Context(), (&BackupManifest{BackupID: state.BackupID, StartedAt: state.StartedAt}).Dir(), backupUpload(state.BackupID))
	if err != nil {
		t.Fatal(err)
	}
	if err := resume(cp, mustLocal(t, dir)); !errors.Is(err, target.ErrBusy) {
		t.Errorf("at work: Got %v", err)
	}
	if err := held.Leave(); err != nil {
		t.Fatal(err)
	}
	if err := resume(cp, struct{ target.Target }{local}); err == nil || !strings.Contains(err.Error(), "cannot be resumed") {
		t.Errorf("without resumable uploads: Got %v", err)
	}
	if err := resume(cp, local); err != nil {
		t.Error(err)
	}
	if err := resume(cp, local); !errors.Is(err, target.ErrNotFound) {
		t.Errorf("whole: Got %v", err)
	}
	if _, err := FinishPublishedBackup(context.Background(), local); !errors.Is(err, target.ErrNotFound) {
		t.Errorf("whole: Got %v", err)
	}
}
