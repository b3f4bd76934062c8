package main

import (
	"context"
	"errors"
	"fmt"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/schedule"
	"sluice/jobs/target"
)

// runBackup makes one attempt of a scheduled backup, as runJob of a run, and removes
// then those beyond retention. An attempt goes on with what one before has copied; what
// was published for the same logical time is not copied again.
func (d *daemon) runBackup(ctx context.Context, r schedule.Request, spec *jobs.BackupSpec) (out schedule.Outcome, err error) {
	t, err := d.cfg.OpenTarget(spec.Out, true, d.log)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	m, before, err := d.backUp(ctx, t, r)
	if err != nil {
		return out, err
	}
	out = m.Outcome()
	out.Published = before
	if spec.Keep == (jobs.Keep{}) {
		return out, nil
	}
	// A retry finds the backup published, and removes the rest.
	if _, err := jobs.CollectBackups(ctx, &jobs.CollectBackupsOptions{Target: t, Keep: spec.Keep, Logger: d.log}); err != nil {
		return out, fmt.Errorf("backup %s is published, but not all that is beyond keep was removed: %w", m.Dir(), err)
	}
	return out, nil
}

// backUp makes the backup for a logical time, or finds that it was published before.
func (d *daemon) backUp(ctx context.Context, t target.Target, r schedule.Request) (m *jobs.BackupManifest, before bool, err error) {
	id, err := storeID(ctx, d.engine)
	if err != nil {
		return nil, false, err
	}
	switch m, err = jobs.FindScheduledBackup(ctx, t, r.Job, id, r.Logical); {
	case err == nil:
		// What a process that was killed has left to do after it.
		if _, err := jobs.FinishPublishedBackup(ctx, t, id); err != nil && !errors.Is(err, target.ErrNotFound) {
			return nil, true, err
		}
		return m, true, nil
	case !errors.Is(err, target.ErrNotFound):
		return nil, false, err
	}
	source, err := config.OpenRunBackup(ctx, d.cfg, d.engine, d.server.Checkpoints(), d.log)
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	run, cancel := resumable(ctx)
	defer cancel()
	m, err = jobs.Backup(run, &jobs.BackupOptions{
		Source: source, Target: t, Name: r.Job, LogicalTime: r.Logical, Parallelism: 1, Confirm: r.Confirm,
		Engine: d.cfg.Store.Engine, Version: cli.Version().Version, Logger: d.log,
	})
	return m, false, err
}
