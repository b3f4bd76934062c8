package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/history"
	"sluice/jobs/schedule"
	"sluice/jobs/target"
	"sluice/serve/api"
	"sluice/store"
)

// openSchedules makes the runner of what has a schedule, or nothing where nothing has.
func (d *daemon) openSchedules(ctx context.Context) error {
	var all []*schedule.Schedule
	add := func(name string, s *schedule.Schedule) {
		if s != nil {
			all = append(all, s)
			d.log.Info("schedule", "job", name, "cron", s.Spec().Cron, "zone", s.Spec().Zone)
		}
	}
	for _, name := range d.cfg.JobNames() {
		job, err := d.compileJob(ctx, name)
		if err != nil {
			return err
		}
		add(name, job.Schedule())
	}
	for _, name := range d.cfg.JoinNames() {
		j, err := d.compileJoin(ctx, name)
		if err != nil {
			return err
		}
		add(name, j.Schedule())
	}
	for _, name := range d.cfg.BackupNames() {
		spec := d.cfg.Backups[name]
		s, err := jobs.CompileBackup(name, &spec)
		if err != nil {
			return fmt.Errorf("backup %s: %w", name, err)
		}
		add(name, s)
	}
	if spec := d.cfg.GC.Schedule; spec != (schedule.Spec{}) {
		s, err := schedule.Compile(config.GCName, &spec)
		if err != nil {
			return fmt.Errorf("gc: %w", err)
		}
		add(config.GCName, s)
	}
	if len(all) == 0 {
		return nil
	}
	history, err := scheduleStore(d.engine)
	if err != nil {
		return err
	}
	d.schedules, err = schedule.New(&schedule.Options{Schedules: all, Store: history, Run: d.runExport, Logger: d.log})
	return err
}

// scheduleStore returns what schedules remember in an engine. A data directory has one
// daemon; on HBase there may be several, of which one at a time runs a schedule.
func scheduleStore(e store.Engine) (schedule.Store, error) {
	if e.Traits().Atomic == store.AtomicBatch {
		return history.New(e)
	}
	return history.NewShared(e, nil), nil
}

// pauseExport returns what pauses and resumes schedules, or nil where no job has
// one.
func (d *daemon) pauseExport() func(ctx context.Context, job string, paused bool) error {
	if d.schedules == nil {
		return nil
	}
	return func(ctx context.Context, job string, paused bool) error {
		change := d.schedules.Resume
		if paused {
			change = d.schedules.Pause
		}
		return scheduleError(change(ctx, job))
	}
}

// orderExport returns what accepts manual runs and backfills, or nil where no job has a
// schedule.
func (d *daemon) orderExport() func(ctx context.Context, job string, q api.OrderRequest) (api.Order, error) {
	if d.schedules == nil {
		return nil
	}
	return func(ctx context.Context, job string, q api.OrderRequest) (api.Order, error) {
		if of, _ := d.cfg.Declared(job); of.Kind == config.KindGC && !q.From.IsZero() {
			return api.Order{}, fmt.Errorf("%w: %s is a %s, which has no past times to fill", store.ErrInvalidArgument, job, of.Kind)
		}
		o, err := d.schedules.Order(ctx, job, schedule.OrderRequest(q))
		return api.Order(o), scheduleError(err)
	}
}

// recordExport adds the entry of a run that another process has made by hand to the
// history of its job, once.
func (d *daemon) recordExport(ctx context.Context, job string, run api.ExportRun) error {
	d.records.Lock() // of two that say the same, one is recorded
	defer d.records.Unlock()
	e := schedule.Entry(run)
	if err := history.CheckEntry(&e); err != nil {
		return err
	}
	if d.schedules != nil && d.engine.Traits().Atomic == store.AtomicBatch {
		if there, err := history.Recorded(ctx, d.engine, job, &e); there || err != nil {
			return err
		}
		if err := d.schedules.Record(ctx, job, e); !errors.Is(err, schedule.ErrNoSchedule) {
			return scheduleError(err)
		}
	}
	_, err := history.Record(ctx, d.engine, job, e)
	return err
}

// cancelOrder returns what ends an order, or nil where no job has a schedule.
func (d *daemon) cancelOrder() func(ctx context.Context, job, order string) error {
	if d.schedules == nil {
		return nil
	}
	return func(ctx context.Context, job, order string) error {
		return scheduleError(d.schedules.CancelOrder(ctx, job, order))
	}
}

// scheduleError gives an error of a schedule the class that the API knows.
func scheduleError(err error) error {
	for class, all := range map[error][]error{
		api.ErrNotFound:          {schedule.ErrNoSchedule, schedule.ErrNoOrder},
		store.ErrInvalidArgument: {schedule.ErrInvalidOrder},
		store.ErrRefused:         {schedule.ErrTooManyOrders, schedule.ErrOrderEnding},
		store.ErrTransient:       {schedule.ErrNotRunning},
	} {
		if slices.ContainsFunc(all, func(e error) bool { return errors.Is(err, e) }) {
			return fmt.Errorf("%w: %w", class, err)
		}
	}
	return err
}

// compileJob compiles a job against its table, which may not be there yet.
func (d *daemon) compileJob(ctx context.Context, name string) (*jobs.Job, error) {
	spec := d.cfg.Jobs[name]
	schema, err := d.engine.Table(ctx, spec.Table)
	if err != nil && !errors.Is(err, store.ErrTableNotFound) {
		return nil, err
	}
	job, err := jobs.Compile(name, &spec, schema)
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", name, err)
	}
	return job, nil
}

// compileJoin compiles a join against its tables, which may not be there yet.
func (d *daemon) compileJoin(ctx context.Context, name string) (*jobs.Join, error) {
	j, err := d.cfg.CompileJoin(name, config.SchemasOf(ctx, d.engine.Table))
	if err != nil {
		return nil, fmt.Errorf("join %s: %w", name, err)
	}
	return j, nil
}

// errStopping is why a run ends with its daemon; the next daemon goes on with it.
var errStopping = fmt.Errorf("%w: the daemon stops", jobs.ErrResumable)

// runExport makes one attempt of a scheduled run, and removes then those of the same job
// that are beyond its keep, unless the run is of a backfill: that fills times which keep may
// have let go already.
func (d *daemon) runExport(ctx context.Context, r schedule.Request) (out schedule.Outcome, err error) {
	if spec, ok := d.cfg.Backups[r.Job]; ok {
		return d.runBackup(ctx, r, &spec)
	}
	if of, _ := d.cfg.Declared(r.Job); of.Kind == config.KindGC {
		return d.runGC(ctx, r)
	}
	run, dir, keep := d.runJob, d.cfg.Jobs[r.Job].Out, d.cfg.Jobs[r.Job].Keep
	if spec, ok := d.cfg.Joins[r.Job]; ok {
		run, dir, keep = d.runJoin, spec.Out, spec.Keep
	}
	if out, err = run(ctx, r); err != nil || keep == (jobs.Keep{}) || r.Cause == schedule.Backfill {
		return out, err
	}
	t, err := d.cfg.OpenTarget(dir, false, d.log)
	if err == nil {
		_, err = jobs.Collect(ctx, &jobs.CollectOptions{Target: t, Job: r.Job, Made: out.RunID, Keep: map[string]jobs.Keep{r.Job: keep}, Logger: d.log})
		err = errors.Join(err, t.Close())
	}
	if err != nil && ctx.Err() == nil {
		// The run is there all the same: who may write and not remove, say, is not to have
		// the schedule paused for that. The next run tries again, as after a stop.
		d.log.Error("runs beyond keep were not removed", "job", r.Job, "err", err)
	}
	return out, nil
}

// runJob makes one attempt of a job's scheduled run: of a checkpoint of the store, by
// one goroutine, so that ingest keeps the other cores. It goes on with what an
// attempt before has left of it, of this daemon or one that has ended. What was
// published for the same logical time is not exported again.
func (d *daemon) runJob(ctx context.Context, r schedule.Request) (out schedule.Outcome, err error) {
	job, err := d.compileJob(ctx, r.Job)
	if err != nil {
		return out, err
	}
	holder, id, err := jobs.HolderOf(ctx, job, d.engine)
	if err != nil {
		return out, err
	}
	t, err := d.cfg.OpenTarget(job.Out(), true, d.log)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	if out, done, err := publishedBefore(ctx, t, r); done || err != nil {
		return out, err
	}
	if err := jobs.HoldChanges(ctx, job, holder, time.Now()); err != nil {
		return out, err
	}
	source, err := d.openSource(ctx, t, r)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	run, cancel := resumable(ctx)
	defer cancel()
	yielding, end := d.exports.yields.begin(r.Job)
	defer func() { paused(&out, err, end()) }()
	m, err := jobs.Run(run, &jobs.RunOptions{
		Job: job, Source: source, Checkpoint: source.Checkpoint, Target: t, LogicalTime: r.Logical, Parallelism: 1, Holder: holder, StoreID: id, Confirm: r.Confirm,
		Engine: d.cfg.Store.Engine, Version: cli.Version().Version, Logger: d.log, Lag: d.lag, Yielding: yielding,
	})
	if errors.Is(err, jobs.ErrResumable) {
		source.Keep()
	}
	return outcome(m, err)
}

// runJoin makes one attempt of a scheduled join, as runJob of a job: both sides at
// one instant, or published runs as they are now.
func (d *daemon) runJoin(ctx context.Context, r schedule.Request) (out schedule.Outcome, err error) {
	j, err := d.compileJoin(ctx, r.Job)
	if err != nil {
		return out, err
	}
	t, err := d.cfg.OpenTarget(j.Out(), true, d.log)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	if out, done, err := publishedBefore(ctx, t, r); done || err != nil {
		return out, err
	}
	yielding, end := d.exports.yields.begin(r.Job)
	defer func() { paused(&out, err, end()) }()
	o := &jobs.JoinOptions{
		Lag: d.lag, Yielding: yielding,
		Join: j, Target: t, Out: j.Out(), LogicalTime: r.Logical, Confirm: r.Confirm, Engine: d.cfg.Store.Engine, Version: cli.Version().Version, Logger: d.log,
		OpenBucket: func(at string) (target.Target, error) { return d.cfg.OpenTarget(at, false, d.log) },
	}
	keep := func() {}
	if j.Live() {
		source, err := d.openSource(ctx, t, r)
		if err != nil {
			return out, err
		}
		defer func() { err = errors.Join(err, source.Close()) }()
		o.Source, o.Checkpoint, keep = source, source.Checkpoint, source.Keep
	}
	run, cancel := resumable(ctx)
	defer cancel()
	m, err := jobs.RunJoin(run, o)
	if errors.Is(err, jobs.ErrResumable) {
		keep()
	}
	return outcome(m, err)
}

// resumable returns a context that ends with ctx, but so that what is finished of a run
// stays for the next daemon, unless it was ended for another run or by an order.
func resumable(ctx context.Context) (_ context.Context, end func()) {
	run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		if !errors.Is(cause, schedule.ErrReplaced) && !errors.Is(cause, schedule.ErrOrderCancelled) {
			cause = errStopping
		}
		cancel(cause)
	})
	return run, func() { stop(); cancel(nil) }
}

// paused says in the outcome of an attempt that has failed for how long it has paused for
// ingest: of one that is published the manifest does.
func paused(out *schedule.Outcome, err error, after time.Duration) {
	if err != nil {
		out.PausedSeconds = after.Round(time.Millisecond).Seconds()
	}
}

// outcome is what became of a run.
func outcome(m *jobs.Manifest, err error) (schedule.Outcome, error) {
	switch {
	case errors.Is(err, target.ErrExists):
		return schedule.Outcome{Published: true}, nil
	case errors.As(err, new(*jobs.SchemaChangeError)):
		return schedule.Outcome{}, schedule.Lasting(err)
	case err != nil:
		return schedule.Outcome{}, err
	}
	return m.Outcome(), nil
}

// publishedBefore reports whether a run is published already, and its outcome, so that a
// backfill makes no checkpoint for it. What a process that was killed has left to do after
// it, it does.
func publishedBefore(ctx context.Context, t target.Target, r schedule.Request) (out schedule.Outcome, done bool, err error) {
	m, err := jobs.ReadPublished(ctx, t, r.Job, r.Logical)
	if errors.Is(err, target.ErrNotFound) {
		return out, false, nil
	}
	if err != nil {
		return out, false, err
	}
	if _, err := jobs.FinishPublished(ctx, t, r.Job, r.Logical); err != nil && !errors.Is(err, target.ErrNotFound) {
		return out, false, err
	}
	out = m.Outcome()
	out.Published = true
	return out, true, nil
}

// openSource opens the instant of a scheduled run: the checkpoint of what was left of
// the run, or a new one. A target that cannot keep what is left gets a snapshot.
func (d *daemon) openSource(ctx context.Context, t target.Target, r schedule.Request) (*config.Instant, error) {
	checkpoints := d.server.Checkpoints()
	if _, ok := t.(target.Resumer); !ok {
		checkpoints = nil
	}
	left, err := jobs.ListUnfinishedTarget(ctx, t)
	if err != nil {
		return nil, err
	}
	id := ""
	for i := range left {
		// In a bucket the run of a process that was killed is Busy for a while;
		// Run waits then, and refuses one that is.
		if left[i].Job == r.Job && left[i].LogicalTime.Equal(r.Logical) {
			id = left[i].Checkpoint
		}
	}
	return config.OpenRunInstant(ctx, d.cfg, d.engine, checkpoints, id, d.log)
}
