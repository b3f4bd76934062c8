package jobs

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"sluice/jobs/columnar"
	"sluice/jobs/schedule"
	"sluice/jobs/target"
)

// BackupSpec is a backup as it is declared: of the whole store, by the daemon.
type BackupSpec struct {
	// Out is the directory of its backups, of no other's and no job's, or
	// s3://BUCKET/PREFIX.
	Out string `yaml:"out,omitempty"`
	// Schedule is when the daemon makes one.
	Schedule schedule.Spec `yaml:"schedule,omitempty"`
	// Keep is how long backups are kept. What lets them go is applied after each.
	Keep Keep `yaml:"keep,omitempty"`
}

// CompileBackup checks s and returns its schedule. Its error joins a
// *columnar.SpecError for every mistake, whose path is relative to the backup.
func CompileBackup(name string, s *BackupSpec) (*schedule.Schedule, error) {
	var errs []error
	bad := func(path, format string, args ...any) {
		errs = append(errs, &columnar.SpecError{Path: path, Problem: fmt.Sprintf(format, args...)})
	}
	if !jobName.MatchString(name) {
		bad("name", "%q is not the name of a backup: letters, digits, _, - and ., starting with a letter or digit, at most 100", name)
	}
	s.Keep.check(bad)
	compiled := compileSchedule(name, s.Out, &s.Schedule, bad)
	if s.Schedule == (schedule.Spec{}) {
		bad("schedule", "a backup that is declared needs a schedule; export backup makes one by hand")
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return compiled, nil
}

// Outcome is what the history of a schedule has of a backup.
func (m *BackupManifest) Outcome() schedule.Outcome {
	return schedule.Outcome{RunID: m.BackupID, Bytes: m.Bytes}
}

// scheduledBackupID is the id of the backup of a store that a schedule makes for a time:
// whoever makes it, and however often.
func scheduledBackupID(name, storeID string, logical time.Time) string {
	return runID("backup "+name+" of "+storeID, logical.UTC())
}

// FindScheduledBackup returns the manifest of the backup of a store that a schedule has
// made for a time. Its error wraps target.ErrNotFound where there is none.
func FindScheduledBackup(ctx context.Context, t target.Target, name, storeID string, logical time.Time) (*BackupManifest, error) {
	id := scheduledBackupID(name, storeID, logical)
	dirs, err := backupDirs(ctx, t)
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		if !strings.HasSuffix(dir, "-"+id) {
			continue
		}
		f, err := findBackup(ctx, t, path.Join(dir, BackupManifestName))
		if err != nil {
			return nil, err
		}
		return f.manifest, nil
	}
	return nil, fmt.Errorf("backup %s of store %s for %s: %w", name, storeID, logical.UTC().Format(time.RFC3339Nano), target.ErrNotFound)
}

// ListBackups returns the backups in a place of them, the newest first, as runs of a job
// of this name. The logical time of one is when it began; it has no rows and no formats.
func ListBackups(ctx context.Context, t target.Target, name string) ([]RunSummary, error) {
	dirs, err := backupDirs(ctx, t)
	if err != nil {
		return nil, err
	}
	latest := ""
	if l, err := readLatest(ctx, t, "."); err == nil {
		latest = path.Dir(l.Manifest)
	} else if !errors.Is(err, target.ErrNotFound) && !errors.Is(err, ErrManifest) {
		return nil, err
	}
	var all []RunSummary
	for _, dir := range slices.Backward(dirs) {
		s := RunSummary{Job: name, Dir: dir, Latest: dir == latest}
		f, err := findBackup(ctx, t, path.Join(dir, BackupManifestName))
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if s.Err = err; err == nil {
			m := f.manifest
			s.RunID, s.LogicalTime, s.FinishedAt, s.Sequence, s.Files, s.Bytes = m.BackupID, m.StartedAt, m.FinishedAt, m.Sequence, len(m.Files), m.Bytes
		}
		all = append(all, s)
	}
	return all, nil
}

// ListUnfinishedBackups is ListUnfinishedTarget of a place of backups, as runs of a job
// of this name. What cannot be read as a backup is left out.
func ListUnfinishedBackups(ctx context.Context, t target.Target, name string) ([]Unfinished, error) {
	uploads, err := unfinishedUploads(ctx, t)
	if err != nil {
		return nil, err
	}
	var all []Unfinished
	for _, u := range uploads {
		var s backupState
		err := decodeVersion(u.Notes[noteBackup], BackupVersion, &s)
		files, filesErr := backupFiles(s.BackupID, u.Notes)
		if err != nil || filesErr != nil {
			continue
		}
		left := Unfinished{Job: name, RunID: s.BackupID, LogicalTime: s.StartedAt, StartedAt: s.StartedAt, Busy: u.Busy}
		for _, f := range files {
			left.Files++
			left.Bytes += f.Bytes
		}
		all = append(all, left)
	}
	slices.SortFunc(all, func(a, b Unfinished) int { return b.LogicalTime.Compare(a.LogicalTime) })
	return all, nil
}
