package jobs

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
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
	m, err := FinishPublishedBackup(t.Context(), local, source.StoreID())
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
	state, _, err := unfinishedBackup(t.Context(), local, cp.StoreID(), "")
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
	if _, err := FinishPublishedBackup(context.Background(), local, cp.StoreID()); !errors.Is(err, target.ErrNotFound) {
		t.Errorf("whole: Got %v", err)
	}
}

// failing is a target that takes so many files, and then fails.
type failing struct {
	*target.Local
	left    int
	err     error
	created []string
	failed  func()
}

func (f *failing) Begin(ctx context.Context, dir, id string) (target.Upload, error) {
	u, err := f.Local.Begin(ctx, dir, id)
	if err != nil {
		return nil, err
	}
	return &failingUpload{u.(target.Resumable), f}, nil
}

type failingUpload struct {
	target.Resumable
	f *failing
}

func (u *failingUpload) Create(ctx context.Context, name string) (io.WriteCloser, error) {
	if u.f.left == 0 {
		u.f.failed()
		return nil, u.f.err
	}
	u.f.left--
	u.f.created = append(u.f.created, name)
	return u.Resumable.Create(ctx, name)
}

// TestBackupResumeFailed: a backup that fails keeps what it has copied, of which nothing
// is visible, and is gone on with; one that somebody has cancelled, or for which there is
// no room, keeps nothing.
func TestBackupResumeFailed(t *testing.T) {
	t.Parallel()
	_, cp := backupStore(t)
	for _, test := range []struct {
		name   string
		err    error
		cancel bool
		kept   bool
	}{
		{"network", errors.New("network"), false, true},
		{"cancelled", context.Canceled, true, false},
		{"disk full", &os.PathError{Op: "write", Err: syscall.ENOSPC}, false, false},
		{"quota full", &os.PathError{Op: "write", Err: syscall.EDQUOT}, false, false},
	} {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f := &failing{Local: mustLocal(t, dir), left: 2, err: test.err, failed: func() {
			if test.cancel {
				cancel()
			}
		}}
		_, err := Backup(ctx, &BackupOptions{Source: cp, Target: f, Parallelism: 1})
		if !errors.Is(err, test.err) || errors.Is(err, ErrResumable) != test.kept {
			t.Fatalf("%s: Got %v, kept %t", test.name, err, test.kept)
		}
		if _, err := findBackup(t.Context(), f.Local, ""); !errors.Is(err, target.ErrNotFound) {
			t.Errorf("%s: something is visible: %v", test.name, err)
		}
		left, err := f.Unfinished(t.Context())
		if err != nil || len(left) == 1 != test.kept {
			t.Errorf("%s: Got %v left, %v", test.name, left, err)
		}
		k, m, err := backupKilled(t, cp, dir, 0, true)
		if !test.kept {
			if !errors.Is(err, target.ErrNotFound) {
				t.Errorf("%s: Got %v, want nothing to resume", test.name, err)
			}
			continue
		}
		if err != nil || len(f.created) != 2 || len(k.created) != len(m.Files)-2 {
			t.Fatalf("%s: Got %v and then %v copied, %v", test.name, f.created, k.created, err)
		}
		if r, err := VerifyBackup(t.Context(), dir); err != nil || !r.OK() {
			t.Errorf("%s: Got %+v, %v", test.name, r, err)
		}
	}
}

// TestBackupResumeOutdated: a backup that was cut off keeps its time, so that it would be
// behind one that is published and began later, with more in it than that.
func TestBackupResumeOutdated(t *testing.T) {
	t.Parallel()
	db, cp := backupStore(t)
	_, other := backupStore(t)
	dir := t.TempDir()
	local := mustLocal(t, dir)
	if _, _, err := backupKilled(t, cp, dir, 12, false); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	if _, err := Backup(t.Context(), &BackupOptions{Source: other, Target: local, Now: func() time.Time { return later }}); err != nil {
		t.Fatal(err)
	}
	newer, err := Backup(t.Context(), &BackupOptions{Source: cp, Target: local})
	if err != nil {
		t.Fatal(err)
	}
	if err := visits(t, db, 100, 110); err != nil {
		t.Fatal(err)
	}
	newest := checkpointOf(t, db)
	_, err = Backup(t.Context(), &BackupOptions{Source: newest, Target: local, Resume: true})
	if !errors.Is(err, target.ErrNotFound) || !strings.Contains(err.Error(), newer.Dir()) {
		t.Errorf("Got %v, want that %s began later", err, newer.Dir())
	}
	// Of another store's there is none that is newer than it.
	if err := local.Remove(t.Context(), newer.Dir()); err != nil {
		t.Fatal(err)
	}
	if _, err := Backup(t.Context(), &BackupOptions{Source: newest, Target: local, Resume: true}); err != nil {
		t.Error(err)
	}
}

// TestFinishPublishedBackup: what one store's backup was cut off before is not done for
// another's, which has none then.
func TestFinishPublishedBackup(t *testing.T) {
	t.Parallel()
	_, cp := backupStore(t)
	_, other := backupStore(t)
	dir := t.TempDir()
	local := mustLocal(t, dir)
	m, err := Backup(t.Context(), &BackupOptions{Source: cp, Target: local})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, LatestName)); err != nil {
		t.Fatal(err)
	}
	if _, err := FinishPublishedBackup(t.Context(), local, other.StoreID()); !errors.Is(err, target.ErrNotFound) {
		t.Errorf("for another store: Got %v, want ErrNotFound", err)
	}
	if got, err := FinishPublishedBackup(t.Context(), local, cp.StoreID()); err != nil || got.BackupID != m.BackupID {
		t.Errorf("Got %+v, %v", got, err)
	}
}
