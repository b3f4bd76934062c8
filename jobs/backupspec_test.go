package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/jobs/columnar"
	"sluice/jobs/schedule"
	"sluice/jobs/target"
	"sluice/jobs/work"
)

// backupTime is what the scheduled backups of tests are for.
var backupTime = time.Date(2026, 2, 1, 3, 0, 0, 0, time.UTC)

// scheduledBackup makes the backup for a time, in a process that dies at a step.
func scheduledBackup(t *testing.T, cp BackupSource, dir string, die int, at time.Time) (*killing, *BackupManifest, error) {
	t.Helper()
	k := &killing{Local: mustLocal(t, dir), die: die}
	m, err := Backup(t.Context(), &BackupOptions{Source: cp, Target: k, Parallelism: 1, Name: "nightly", LogicalTime: at})
	return k, m, err
}

// TestScheduledBackupKilled kills the backup for a time at every step: the next attempt
// copies nothing again that was finished, and there is one backup for the time.
func TestScheduledBackupKilled(t *testing.T) {
	t.Parallel()
	_, cp := backupStore(t)
	whole, first, err := scheduledBackup(t, cp, t.TempDir(), 0, backupTime)
	if err != nil {
		t.Fatal(err)
	}
	if o := first.Outcome(); o.RunID != first.BackupID || o.Bytes != first.Bytes || o.Bytes == 0 {
		t.Errorf("Got %+v of %s, %d bytes", o, first.BackupID, first.Bytes)
	}
	resumed, published := 0, 0
	for die := 1; die <= len(whole.steps); die++ {
		at, dir := whole.steps[die-1], t.TempDir()
		killed, _, err := scheduledBackup(t, cp, dir, die, backupTime)
		if !errors.Is(err, errKilled) {
			t.Fatalf("killed at %s: %v", at, err)
		}
		left, err := ListUnfinishedBackups(t.Context(), mustLocal(t, dir), "nightly")
		if err != nil || len(left) > 1 || len(left) == 1 && (left[0].Job != "nightly" || left[0].RunID != first.BackupID || left[0].Busy) {
			t.Errorf("killed at %s: Got %+v, %v", at, left, err)
		}
		again, m, err := scheduledBackup(t, cp, dir, 0, backupTime)
		switch {
		case errors.Is(err, target.ErrExists):
			published++
			if _, err := FinishPublishedBackup(t.Context(), mustLocal(t, dir), cp.StoreID()); err != nil && !errors.Is(err, target.ErrNotFound) {
				t.Errorf("killed at %s: %v", at, err)
			}
		case err != nil:
			t.Fatalf("killed at %s: %v", at, err)
		case m.BackupID != first.BackupID || cmp.Diff(first.Files, m.Files) != "":
			t.Errorf("killed at %s: Got backup %s of %d files", at, m.BackupID, len(m.Files))
		case len(left) == 1:
			resumed++
		}
		for _, name := range again.created {
			if slices.Contains(killed.noted, backupFileNote+name) {
				t.Errorf("killed at %s: %s was finished, and copied again", at, name)
			}
		}
		if r, err := VerifyBackup(t.Context(), dir); err != nil || !r.OK() {
			t.Errorf("killed at %s: Got %+v, %v", at, r, err)
		}
		if all, err := ListBackups(t.Context(), mustLocal(t, dir), "nightly"); err != nil || len(all) != 1 || !all[0].Latest || all[0].RunID != first.BackupID || all[0].Job != "nightly" || all[0].Bytes != first.Bytes {
			t.Errorf("killed at %s: Got %+v, %v", at, all, err)
		}
	}
	if resumed < 10 || published == 0 {
		t.Errorf("%d were resumed, %d found published", resumed, published)
	}
}

// TestScheduledBackupOnce: a time has one backup, of each name and store; what was cut
// off of another time stays for that.
func TestScheduledBackupOnce(t *testing.T) {
	t.Parallel()
	_, cp := backupStore(t)
	dir := t.TempDir()
	to := mustLocal(t, dir)
	other := backupTime.Add(time.Hour)
	if _, _, err := scheduledBackup(t, cp, dir, 12, other); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	_, m, err := scheduledBackup(t, cp, dir, 0, backupTime.In(time.FixedZone("", 3600)))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := scheduledBackup(t, cp, dir, 0, backupTime); !errors.Is(err, target.ErrExists) {
		t.Errorf("a second time: Got %v", err)
	}
	if found, err := FindScheduledBackup(t.Context(), to, "nightly", cp.StoreID(), backupTime); err != nil || cmp.Diff(m, found) != "" {
		t.Errorf("Got %+v, %v", found, err)
	}
	for _, c := range []struct {
		name, store string
		at          time.Time
	}{{"weekly", cp.StoreID(), backupTime}, {"nightly", "another", backupTime}, {"nightly", cp.StoreID(), other}} {
		if found, err := FindScheduledBackup(t.Context(), to, c.name, c.store, c.at); !errors.Is(err, target.ErrNotFound) {
			t.Errorf("%+v: Got %+v, %v", c, found, err)
		}
	}
	if left, err := ListUnfinishedBackups(t.Context(), to, "nightly"); err != nil || len(left) != 1 || left[0].RunID == m.BackupID {
		t.Errorf("Got %+v, %v left", left, err)
	}
	for _, o := range []*BackupOptions{{Name: "n"}, {LogicalTime: backupTime}, {Name: "n", LogicalTime: backupTime, Resume: true}} {
		o.Source, o.Target = cp, to
		if _, err := Backup(t.Context(), o); err == nil {
			t.Errorf("Got a backup of %+v", o)
		}
	}
}

// TestBackupConfirm is TestRunConfirm of a backup.
func TestBackupConfirm(t *testing.T) {
	t.Parallel()
	_, cp := backupStore(t)
	to := mustLocal(t, t.TempDir())
	for _, want := range []error{schedule.ErrLost, nil} {
		_, err := Backup(t.Context(), &BackupOptions{Source: cp, Target: to, Confirm: func(context.Context) error { return want }})
		if !errors.Is(err, want) {
			t.Errorf("Got %v, want %v", err, want)
		}
		if all, err := ListBackups(t.Context(), to, "b"); err != nil || (len(all) == 1) != (want == nil) {
			t.Errorf("Got %+v, %v after %v", all, err, want)
		}
	}
}

// TestBackupAfterInterruption is TestResumeAfterInterruption of a backup.
func TestBackupAfterInterruption(t *testing.T) {
	t.Parallel()
	_, cp := backupStore(t)
	for _, keep := range []bool{true, false} {
		to := mustLocal(t, t.TempDir())
		ctx, cancel := context.WithCancelCause(t.Context())
		o := &BackupOptions{Source: cp, Target: to, Parallelism: 1, Name: "nightly", LogicalTime: backupTime}
		o.Progress = func(p work.Progress) {
			switch {
			case p.Files < 3: // those before are noted
			case keep:
				cancel(fmt.Errorf("the process ends: %w", ErrResumable))
			default:
				cancel(nil)
			}
		}
		if _, err := Backup(ctx, o); err == nil || errors.Is(err, ErrResumable) != keep {
			t.Fatalf("Got %v, want one that can be resumed: %t", err, keep)
		}
		left, err := ListUnfinishedBackups(t.Context(), to, "nightly")
		if err != nil || (len(left) == 1) != keep || keep && (left[0].Files == 0 || left[0].Bytes == 0) {
			t.Fatalf("Got %+v, %v left, want something: %t", left, err, keep)
		}
	}
}

func TestCompileBackup(t *testing.T) {
	t.Parallel()
	good := BackupSpec{Out: "b", Schedule: schedule.Spec{Cron: "@daily"}, Keep: Keep{Runs: 3}}
	if s, err := CompileBackup("nightly", &good); err != nil || s.Job() != "nightly" {
		t.Errorf("Got %v, %v", s, err)
	}
	for want, change := range map[string]func(s *BackupSpec){
		"out: a schedule needs a directory to write to":       func(s *BackupSpec) { s.Out = "" },
		"schedule: a backup that is declared needs":           func(s *BackupSpec) { s.Schedule = schedule.Spec{} },
		"keep.runs: -1 is negative":                           func(s *BackupSpec) { s.Keep.Runs = -1 },
		`schedule.zone: "Berlin" is not the IANA name of a`:   func(s *BackupSpec) { s.Schedule.Zone = "Berlin" },
		`name: "a/b" is not the name of a backup: letters, d`: nil,
	} {
		s, name := good, "nightly"
		if change == nil {
			name = "a/b"
		} else {
			change(&s)
		}
		_, err := CompileBackup(name, &s)
		var at *columnar.SpecError
		if !errors.As(err, &at) || !strings.Contains(at.Path+": "+at.Problem, want) {
			t.Errorf("Got %v, want %s", err, want)
		}
	}
}
