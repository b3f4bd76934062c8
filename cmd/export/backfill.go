package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/schedule"
	"sluice/jobs/target"
)

type backfillCommand struct {
	cli.ConfigFlag
	Job  string    `arg:"" help:"Name of a job with a schedule; with --daemon, also of a join or a backup."`
	From time.Time `required:"" placeholder:"TIME" help:"First time of the schedule to run, such as 2026-01-01T00:00:00Z."`
	To   time.Time `placeholder:"TIME" help:"Time before which to stop. Default: now; later times are the schedule's."`
	Out  string    `placeholder:"DIR" help:"Directory below which the job has its own. Default: the job's out."`
	orderFlags
	DryRun bool `help:"Say which times would run, and run none."`
	JSON   bool `name:"json" help:"Print JSON: an object a time; with --daemon, the order, and with --wait the entries of its runs in the history."`
	Quiet  bool `short:"q" help:"Show no progress."`
}

// backfilled is one line of --json, and of the list.
type backfilled struct {
	Job   string    `json:"job"`
	Time  time.Time `json:"logical_time"`
	State string    `json:"state"` // published (before), missing (of a dry run), exported
	RunID string    `json:"run_id,omitempty"`
	Rows  int64     `json:"rows"`
}

// Run runs a job for the times of its schedule that have no published run, the oldest
// first and one after the other.
func (c *backfillCommand) Run(ctx context.Context, p *cli.Program) (err error) {
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	if d, ok := cfg.Declared(c.Job); ok && d.Kind != config.KindJob {
		return c.orderOther(ctx, p, cfg, d.Kind)
	}
	spec, err := jobSpec(cfg, c.Job)
	if err != nil {
		return err
	}
	job, err := jobs.Compile(c.Job, spec, nil)
	if err != nil {
		return err
	}
	if job.Schedule() == nil {
		return fmt.Errorf("%w: job %s has no schedule, whose times could be filled: export run --time is for one time", cli.ErrUsage, c.Job)
	}
	times, err := c.times(job.Schedule(), time.Now())
	if err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	if c.Daemon {
		return c.orderTimes(ctx, p, cfg)
	}
	out := c.Out
	if out == "" {
		out = spec.Out
	}
	t, err := cfg.OpenTarget(out, !c.DryRun, p.Warnings())
	if c.DryRun && errors.Is(err, target.ErrNotFound) {
		t, err = nil, nil
	}
	if err != nil {
		return err
	}
	if t != nil {
		defer func() { err = errors.Join(err, t.Close()) }()
	}
	hand := &byHand{p: p, cfg: cfg, job: c.Job, cause: schedule.Backfill}
	var found []schedule.Entry // by one call: each opens the store
	defer func() { err = errors.Join(err, hand.record(ctx, found...)) }()
	list := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	for _, at := range times {
		done, m, err := c.fill(ctx, p, cfg, t, out, at)
		if err != nil {
			return fmt.Errorf("backfill %s for %s: %w", c.Job, at.Format(time.RFC3339), err)
		}
		if done.State == "published" && !c.DryRun {
			found = append(found, jobs.RunEntry(m, schedule.Backfill, true))
		}
		if c.JSON {
			err = writeJSON(p.Stdout, []backfilled{done})
		} else {
			fmt.Fprintf(list, "%s\t%s\t%s\t%s rows\n", at.Format(time.RFC3339), done.State, done.RunID, cli.Count(done.Rows))
			err = list.Flush()
		}
		if err != nil {
			return err
		}
	}
	if len(times) == 0 && !c.JSON {
		_, err = fmt.Fprintln(p.Stdout, "the schedule names no time from --from until --to and now")
	}
	return err
}

// orderTimes has the daemon fill the times.
func (c *backfillCommand) orderTimes(ctx context.Context, p *cli.Program, cfg *config.Config) error {
	if c.Out != "" || c.DryRun {
		return fmt.Errorf("%w: --daemon goes with --from, --to and --wait alone: the daemon runs the job as its schedule does", cli.ErrUsage)
	}
	return c.order(ctx, p, cfg, c.Job, schedule.OrderRequest{From: c.From, To: c.To}, c.JSON, c.Quiet)
}

// orderOther is orderTimes of a join or a backup, whose times this command does not fill by
// itself.
func (c *backfillCommand) orderOther(ctx context.Context, p *cli.Program, cfg *config.Config, kind string) error {
	if kind == config.KindGC {
		return fmt.Errorf("%w: %s is a %s, which has no past times to fill: run --daemon has the daemon make one now", cli.ErrUsage, c.Job, kind)
	}
	if !c.Daemon {
		other := "export join --time is for one time"
		if kind == config.KindBackup {
			other = "export backup makes one by hand"
		}
		return fmt.Errorf("%w: %s is a %s: its times are filled by the daemon, with --daemon; %s", cli.ErrUsage, c.Job, kind, other)
	}
	if err := c.check(); err != nil {
		return err
	}
	return c.orderTimes(ctx, p, cfg)
}

// times returns the schedule's times from --from until --to, and not after now.
func (c *backfillCommand) times(s *schedule.Schedule, now time.Time) (times []time.Time, err error) {
	to := now
	if !c.To.IsZero() && c.To.Before(now) {
		to = c.To
	}
	if !c.To.IsZero() && !c.From.Before(c.To) {
		return nil, fmt.Errorf("%w: --from is not before --to", cli.ErrUsage)
	}
	for at := s.Next(c.From.Add(-time.Nanosecond)); !at.IsZero() && at.Before(to); at = s.Next(at) {
		if len(times) == schedule.MaxBackfill {
			return nil, fmt.Errorf("%w: more than %d times; take them in parts with --to", cli.ErrUsage, schedule.MaxBackfill)
		}
		times = append(times, at)
	}
	return times, nil
}

// fill runs the job for one time, unless a run for it is published; one that was cut
// off is gone on with. t is nil where nothing was ever published. The manifest is nil
// where a dry run finds no run.
func (c *backfillCommand) fill(ctx context.Context, p *cli.Program, cfg *config.Config, t target.Target, out string, at time.Time) (done backfilled, m *jobs.Manifest, err error) {
	done = backfilled{Job: c.Job, Time: at, State: "published"}
	err = target.ErrNotFound
	if t != nil {
		m, err = jobs.ReadPublished(ctx, t, c.Job, at)
	}
	switch {
	case errors.Is(err, target.ErrNotFound) && c.DryRun:
		done.State = "missing"
		return done, nil, nil
	case errors.Is(err, target.ErrNotFound):
		done.State = "exported"
		run := runCommand{ConfigFlag: c.ConfigFlag, Job: c.Job, Out: c.Out, Time: at, Quiet: c.Quiet}
		_, err = unfinished(ctx, c.Job, t, out, at)
		if err != nil && !errors.Is(err, target.ErrNotFound) {
			return done, nil, err
		}
		run.Resume = err == nil
		if m, err = run.run(ctx, p, cfg, schedule.Backfill); errors.Is(err, target.ErrExists) {
			done.State = "published" // by another, meanwhile
			m, err = jobs.ReadPublished(ctx, t, c.Job, at)
		}
	}
	if err != nil {
		return done, nil, err
	}
	o := m.Outcome()
	done.RunID, done.Rows = o.RunID, o.Rows
	return done, m, nil
}
