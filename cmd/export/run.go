package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"sluice/cell"
	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/schedule"
	"sluice/jobs/target"
	"sluice/serve/api"
)

type runCommand struct {
	cli.ConfigFlag
	Job    string    `arg:"" help:"Name of the job in the configuration file; with --daemon, also of a join or a backup."`
	Out    string    `placeholder:"DIR" help:"Directory below which the job has its own. Default: the job's out."`
	Time   time.Time `placeholder:"TIME" help:"What the run is for, such as 2026-01-31T00:00:00Z; there is one run for a time, which is not to come. Default: now."`
	Resume bool      `help:"Go on with the run of the job that was cut off, the one for --time or else the newest."`
	Full   bool      `help:"Export the whole table, also where the job is incremental."`
	schemaFlag
	orderFlags
	JSON  bool `name:"json" help:"Print JSON: the manifest of the run; with --daemon, the order, and with --wait the entries of its runs in the history."`
	Quiet bool `short:"q" help:"Show no progress."`
}

// schemaFlag lets one run by hand have other columns than those before.
type schemaFlag struct {
	SchemaChanges string `enum:",any,compatible,none" default:"" placeholder:"RULE" help:"What may have become of the columns since the run before: any, compatible or none, instead of what schema_changes says."`
}

// Run exports one job.
func (c *runCommand) Run(ctx context.Context, p *cli.Program) (err error) {
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	if c.Daemon {
		if c.Out != "" || c.Resume || c.Full || c.SchemaChanges != "" {
			return fmt.Errorf("%w: --daemon goes with --time and --wait alone: the daemon runs the job as its schedule does", cli.ErrUsage)
		}
		return c.order(ctx, p, cfg, c.Job, schedule.OrderRequest{Time: c.Time}, c.JSON, c.Quiet)
	}
	if err := begun(c.Time, c.Resume); err != nil {
		return err
	}
	m, err := c.run(ctx, p, cfg, schedule.Manual)
	if err != nil {
		return err
	}
	out := c.Out
	if out == "" {
		out = cfg.Jobs[c.Job].Out
	}
	return printManifest(p.Stdout, out, m, c.JSON)
}

// begun refuses a new run for a time to come, as the daemon does: it would stay the
// latest one, and the last that gc keeps, until then, whatever is published meanwhile. So
// it does a time that no run can be for.
func begun(at time.Time, resumed bool) error {
	if err := schedule.CheckLogical(at); err != nil {
		return fmt.Errorf("%w: --time: %w", cli.ErrUsage, err)
	}
	if now := time.Now(); !resumed && at.After(now) {
		return fmt.Errorf("%w: --time %s is to come, it is %s: until then every later run would count as older than this one",
			cli.ErrUsage, at.UTC().Format(time.RFC3339Nano), now.UTC().Format(time.RFC3339))
	}
	return nil
}

// run exports the job, for a cause, and returns what it has published. The history of
// the job has it then.
func (c *runCommand) run(ctx context.Context, p *cli.Program, cfg *config.Config, cause string) (m *jobs.Manifest, err error) {
	spec, err := jobSpec(cfg, c.Job)
	if err != nil {
		return nil, err
	}
	out := c.Out
	if out == "" {
		out = spec.Out
	}
	log := p.Warnings()
	o := &jobs.RunOptions{Out: out, LogicalTime: c.Time, SchemaChanges: c.SchemaChanges, Engine: cfg.Store.Engine, Version: cli.Version().Version, Logger: log}
	if out == "" {
		return nil, fmt.Errorf("%w: no directory to write to: set the job's out, or --out", cli.ErrUsage)
	}
	if o.Target, err = cfg.OpenTarget(out, true, log); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.Target.Close()) }()
	hand := &byHand{p: p, cfg: cfg, job: c.Job, cause: cause, to: o.Target}
	var left *jobs.Unfinished
	if c.Resume {
		if left, m, err = hand.resume(ctx, out, c.Time); err != nil || m != nil {
			return m, err
		}
		o.LogicalTime = left.LogicalTime
	}
	source, err := c.open(ctx, p, cfg, left, log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	hand.in = source
	schema, err := source.Table(ctx, spec.Table)
	if err != nil {
		return nil, err
	}
	if o.Job, err = jobs.Compile(c.Job, spec, schema); err != nil {
		return nil, err
	}
	o.Source, o.Checkpoint, o.Full = source, source.Checkpoint, c.Full
	if o.Holder, o.StoreID, err = jobs.HolderOf(ctx, o.Job, source.Engine); err != nil {
		return nil, err
	}
	started := time.Now().UTC()
	if o.LogicalTime.IsZero() {
		o.LogicalTime = started
	}
	o.Published = func(ctx context.Context, m *jobs.Manifest) error {
		return hand.record(ctx, jobs.RunEntry(m, cause, false))
	}
	o.Lag, o.Yielding = lagOf(p, source, c.Job, o.Job.Yields()), hand.yielding
	bar := newProgress(p, c.Quiet)
	o.Progress = bar.report
	m, err = jobs.Run(ctx, o)
	bar.end()
	if errors.Is(err, jobs.ErrResumable) {
		source.Keep()
		return nil, fmt.Errorf("%w; what is finished was kept: go on with export run --resume", err)
	}
	return hand.ended(ctx, left, o.LogicalTime, started, m, err)
}

// open opens the instant to export: that of the run to go on with, where there is one
// and its instant is not gone, or a new one.
func (c *runCommand) open(ctx context.Context, p *cli.Program, cfg *config.Config, left *jobs.Unfinished, log *slog.Logger) (*config.Instant, error) {
	cfg = cfg.ForScans()
	if left != nil {
		source, err := reopen(ctx, p, cfg, left, log)
		if source != nil || err != nil {
			return source, err
		}
	}
	return config.OpenJobInstant(ctx, cfg, c.Job, log)
}

// resume returns the run of a job or a join to go on with; or, where its process ended
// after it was published, the manifest of that, which _latest.json names then.
func resume(ctx context.Context, p *cli.Program, job string, t target.Target, out string, at time.Time) (left *jobs.Unfinished, done *jobs.Manifest, err error) {
	left, err = unfinished(ctx, job, t, out, at)
	if err == nil {
		sayBusy(p, left)
		return left, nil, nil
	}
	if !errors.Is(err, target.ErrNotFound) {
		return nil, nil, err
	}
	done, finishErr := jobs.FinishPublished(ctx, t, job, at)
	switch {
	case errors.Is(finishErr, target.ErrNotFound):
		return nil, nil, err
	case finishErr != nil:
		return nil, nil, finishErr
	}
	sayPublished(p, done)
	return nil, done, nil
}

// finishResumed returns the manifest of a run that turned out to be published when it
// was to go on.
func finishResumed(ctx context.Context, p *cli.Program, job string, t target.Target, at time.Time) (*jobs.Manifest, error) {
	m, err := jobs.FinishPublished(ctx, t, job, at)
	if errors.Is(err, target.ErrNotFound) { // it is the latest already, or an older one
		m, err = jobs.ReadPublished(ctx, t, job, at)
	}
	if err == nil {
		sayPublished(p, m)
	}
	return m, err
}

// sayPublished says why nothing was exported.
func sayPublished(p *cli.Program, m *jobs.Manifest) {
	p.Note("export", "run %s was published before it was cut off: nothing was left to do but to point to it", m.RunID)
}

// reopen opens the instant that a run which was cut off has read, or says that it is
// gone and returns nil.
func reopen(ctx context.Context, p *cli.Program, cfg *config.Config, left *jobs.Unfinished, log *slog.Logger) (*config.Instant, error) {
	source, err := config.ReopenInstant(ctx, cfg, left.Checkpoint, log)
	if !errors.Is(err, api.ErrNotFound) {
		return source, err
	}
	p.Note("export", "the checkpoint of run %s is gone: the run begins anew, with the table as it is now", left.RunID)
	return nil, nil
}

// sayBusy says why nothing happens for a while.
func sayBusy(p *cli.Program, left *jobs.Unfinished) {
	if left.Busy {
		p.Note("export", "run %s was at work a moment ago: waiting, up to two minutes, to see whether it has ended", left.RunID)
	}
}

// unfinished returns the run of a job or a join to go on with, the one for at or, where
// that is zero, the newest; in a bucket also one that is Busy. Its error wraps target.ErrNotFound or target.ErrBusy.
func unfinished(ctx context.Context, job string, t target.Target, out string, at time.Time) (*jobs.Unfinished, error) {
	all, err := jobs.ListUnfinishedTarget(ctx, t)
	if err != nil {
		return nil, err
	}
	var busy *jobs.Unfinished
	for i := range all {
		u := &all[i]
		if u.Job != job || (!at.IsZero() && !u.LogicalTime.Equal(at)) {
			continue
		}
		if !u.Busy {
			return u, nil
		}
		if busy == nil {
			busy = u
		}
	}
	which := ""
	if !at.IsZero() {
		which = " for " + at.UTC().Format(time.RFC3339Nano)
	}
	switch {
	case busy != nil && config.InBucket(out):
		return busy, nil // its process may have ended a moment ago: the run waits to see
	case busy != nil:
		return nil, fmt.Errorf("resume %s%s: %w: another process writes it", job, which, target.ErrBusy)
	}
	return nil, fmt.Errorf("resume %s%s: %w: no run in %s was cut off", job, which, target.ErrNotFound, out)
}

// below is what lies in out, a directory or a bucket, by its path there.
func below(out string, elem ...string) string {
	if config.InBucket(out) {
		return strings.TrimSuffix(out, "/") + "/" + path.Join(elem...)
	}
	return filepath.Join(append([]string{out}, elem...)...)
}

// moment says when what was read was so: at a commit, or, where the engine cannot
// freeze an instant, as each row was when it was read, below a bound of timestamps
// (0 = none).
func moment(sequence uint64, before cell.Timestamp) string {
	switch {
	case before > 0:
		return "row by row, of cells before " + time.UnixMilli(int64(before)).UTC().Format("2006-01-02T15:04:05.000Z")
	case sequence == 0:
		return "row by row"
	}
	return fmt.Sprintf("at commit %d", sequence)
}

// printManifest says what was published, or prints the manifest itself.
func printManifest(w io.Writer, out string, m *jobs.Manifest, asJSON bool) error {
	if asJSON {
		data, err := m.Encode()
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	}
	fmt.Fprintf(w, "%s run %s %s, %.2f s\n", m.Job, m.RunID, moment(m.Sequence, m.TimeBound), m.FinishedAt.Sub(m.StartedAt).Seconds())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range m.Totals {
		fmt.Fprintf(t, "  %s\t%s rows\t%d files\t%s\n", f.Format, cli.Count(f.Rows), f.Files, cli.Bytes(f.Bytes))
	}
	if m.PausedSeconds > 0 {
		fmt.Fprintf(t, "  paused\t%s, so that ingest could catch up\n", time.Duration(m.PausedSeconds*float64(time.Second)).Round(time.Millisecond))
	}
	printOffsets(t, m.Offsets)
	fmt.Fprintf(t, "  in\t%s\n", below(out, m.Job))
	return t.Flush()
}
