package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/history"
	"sluice/jobs/schedule"
	"sluice/jobs/target"
	"sluice/serve/api"
	"sluice/serve/client"
	"sluice/store"
)

// byHand records what becomes of the runs that this process makes of a job or join in its
// history, as the daemon does of those that it makes.
type byHand struct {
	p     *cli.Program
	cfg   *config.Config
	job   string
	cause string // schedule.Manual or schedule.Backfill
	// storeless runs read no store: where there is none, or none that answers, they are
	// made all the same, and it is said that the history has them not.
	storeless bool

	to     target.Target   // where the runs go
	paused time.Duration   // for how long the run at work has, so that ingest could catch up
	in     *config.Instant // what this process has open; nil = nothing yet
}

const (
	// recordTimeout is for how long a daemon that stops or starts is waited for: what
	// would be recorded has happened.
	recordTimeout = 30 * time.Second
	recordRetry   = time.Second
)

// record adds entries to the history, unless it has them.
func (h *byHand) record(ctx context.Context, entries ...schedule.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	for {
		err := h.try(ctx, entries)
		if !errors.Is(err, store.ErrTransient) {
			return h.explain(err)
		}
		select {
		case <-time.After(recordRetry):
		case <-ctx.Done():
			return h.explain(err)
		}
	}
}

func (h *byHand) explain(err error) error {
	if err == nil {
		return nil
	}
	if h.storeless {
		h.p.Note("export", "the history of %s has not this run: %v", h.job, err)
		return nil
	}
	return fmt.Errorf("record the run in the history of %s: %w", h.job, err)
}

func (h *byHand) try(ctx context.Context, entries []schedule.Entry) (err error) {
	var to config.Engine
	if h.in != nil && !h.in.Remote {
		to = h.in.Engine
	} else { // not the daemon that there was when the run began: it may be another one now
		if to, _, err = config.OpenStore(ctx, h.cfg, h.p.Warnings()); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, to.Close()) }()
	}
	wait := false
	for _, e := range entries {
		if d, ok := to.(*client.Client); ok {
			err := d.RecordExport(ctx, h.job, api.ExportRun(e))
			if errors.Is(err, api.ErrNotFound) {
				h.p.Note("export", "the history of %s stays as it is: the daemon is of a version that records its own runs alone", h.job)
				return nil
			}
			if err != nil {
				return err
			}
			continue
		}
		left, err := history.Record(ctx, to, h.job, e)
		if err != nil {
			return err
		}
		wait = wait || left
	}
	if wait {
		h.p.Note("export", "the history of %s has this as soon as the daemon that runs its schedule has read of it", h.job)
	}
	return nil
}

// resume finds the run to go on with, or the manifest of one that was published, which
// has nothing left to do and is recorded.
func (h *byHand) resume(ctx context.Context, out string, at time.Time) (left *jobs.Unfinished, done *jobs.Manifest, err error) {
	if left, done, err = resume(ctx, h.p, h.job, h.to, out, at); err != nil {
		if what := h.neverResumed(); what != "" && errors.Is(err, target.ErrNotFound) {
			err = fmt.Errorf("%w, as %s is never resumed: HBase holds no instant, and what it would read again is not what it has read; run it again without --resume", err, what)
		}
		return nil, nil, h.published(ctx, at, err)
	}
	if done != nil {
		return nil, done, h.found(ctx, done)
	}
	return left, nil, nil
}

// neverResumed returns what the job or join is of which no run is left to go on with,
// however it ends; "" where one is.
func (h *byHand) neverResumed() string {
	switch join, ok := h.cfg.Joins[h.job]; {
	case h.cfg.Store.Engine != "hbase":
		return ""
	case ok && join.Left.Job != "":
		return "a join of tables on HBase"
	case !ok && len(h.cfg.Jobs[h.job].Sort) > 0:
		return "a sorted run of a table on HBase"
	}
	return ""
}

// ended records a run for a time that has ended with m and err, and returns the manifest
// of what is published. left is the run that was gone on with, if there was one.
func (h *byHand) ended(ctx context.Context, left *jobs.Unfinished, logical, started time.Time, m *jobs.Manifest, err error) (*jobs.Manifest, error) {
	if left != nil && errors.Is(err, target.ErrExists) {
		if m, err = finishResumed(ctx, h.p, h.job, h.to, left.LogicalTime); err == nil {
			err = h.found(ctx, m)
		}
	}
	switch {
	case err == nil:
		return m, nil
	case m == nil:
		err = h.failed(ctx, logical, started, err)
	}
	return nil, h.published(ctx, logical, err)
}

// found records a run that was found published: by a process that was killed before it
// could, or by another one.
func (h *byHand) found(ctx context.Context, m *jobs.Manifest) error {
	return h.record(ctx, jobs.RunEntry(m, h.cause, true))
}

// failed records a run that has ended with err, and returns err. One that can be gone on
// with has not ended, and one that another process makes or has made is that one's.
func (h *byHand) failed(ctx context.Context, logical, started time.Time, err error) error {
	if errors.Is(err, jobs.ErrResumable) || errors.Is(err, target.ErrExists) || errors.Is(err, target.ErrBusy) {
		return err
	}
	now := time.Now().UTC()
	e := schedule.Entry{Logical: logical.UTC(), Result: schedule.Failed, Count: 1, Cause: h.cause, Started: started.UTC(), Ended: now, Attempts: 1, Error: err.Error(), PausedSeconds: h.paused.Round(time.Millisecond).Seconds()}
	if ctx.Err() != nil {
		e.Result = schedule.Cancelled
	}
	return errors.Join(err, h.record(ctx, e))
}

// yielding keeps for how long the run pauses.
func (h *byHand) yielding(y jobs.Yielding) { h.paused = y.Paused }

// published records the run for a time, if there is one and err is that it was found, or
// nothing of it to go on with, and returns err.
func (h *byHand) published(ctx context.Context, at time.Time, err error) error {
	if at.IsZero() || !errors.Is(err, target.ErrExists) && !errors.Is(err, target.ErrNotFound) {
		return err
	}
	m, readErr := jobs.ReadPublished(ctx, h.to, h.job, at)
	if errors.Is(readErr, target.ErrNotFound) {
		return err
	}
	if readErr == nil {
		readErr = h.found(ctx, m)
	}
	return errors.Join(err, readErr)
}
