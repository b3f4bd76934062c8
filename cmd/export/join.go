package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/join"
	"sluice/jobs/schedule"
	"sluice/jobs/target"
	"sluice/store"
)

type joinCommand struct {
	cli.ConfigFlag
	Join   string    `arg:"" help:"Name of the join in the configuration file."`
	Out    string    `placeholder:"DIR" help:"Directory below which the join has its own. Default: the join's out."`
	Time   time.Time `placeholder:"TIME" help:"What the run is for, such as 2026-01-31T00:00:00Z; there is one run for a time, which is not to come. Default: now."`
	Resume bool      `help:"Go on with the run of the join that was cut off, the one for --time or else the newest."`
	schemaFlag
	JSON  bool `name:"json" help:"Print JSON: the manifest of the run."`
	Quiet bool `short:"q" help:"Show no progress."`
}

// Run joins what two jobs would export, at one instant, or two published exports.
func (c *joinCommand) Run(ctx context.Context, p *cli.Program) (err error) {
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	spec, ok := cfg.Joins[c.Join]
	if !ok {
		return fmt.Errorf("%w: %s has no join %q; it has %s%s", cli.ErrUsage, cfg.File(), c.Join, listOf(cfg.JoinNames()), whatElse(cfg, c.Join))
	}
	if err := begun(c.Time, c.Resume); err != nil {
		return err
	}
	out := c.Out
	if out == "" {
		out = spec.Out
	}
	log := p.Warnings()
	bucket := func(at string) (target.Target, error) { return cfg.OpenTarget(at, false, log) }
	o := &jobs.JoinOptions{OpenBucket: bucket, Out: out, LogicalTime: c.Time, SchemaChanges: c.SchemaChanges, Engine: cfg.Store.Engine, Version: cli.Version().Version, Logger: log}
	if out == "" {
		return fmt.Errorf("%w: no directory to write to: set the join's out, or --out", cli.ErrUsage)
	}
	if o.Target, err = cfg.OpenTarget(out, true, log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Target.Close()) }()
	m, err := c.run(ctx, p, cfg, o)
	if err != nil {
		return err
	}
	return printManifest(p.Stdout, out, m, c.JSON)
}

// run joins, and returns what it has published. The history of the join has it then.
func (c *joinCommand) run(ctx context.Context, p *cli.Program, cfg *config.Config, o *jobs.JoinOptions) (m *jobs.Manifest, err error) {
	live := cfg.Joins[c.Join].Left.Job != ""
	hand := &byHand{p: p, cfg: cfg, job: c.Join, cause: schedule.Manual, storeless: !live, to: o.Target}
	var left *jobs.Unfinished
	if c.Resume {
		if left, m, err = hand.resume(ctx, o.Out, c.Time); err != nil || m != nil {
			return m, err
		}
		o.LogicalTime = left.LogicalTime
	}
	find := func(string) *store.TableDescriptor { return nil }
	keep := func() {}
	if live {
		if hand.in, err = c.open(ctx, p, cfg, left, o.Logger); err != nil {
			return nil, err
		}
		source := hand.in
		defer func() { err = errors.Join(err, source.Close()) }()
		o.Source, o.Checkpoint, keep = source, source.Checkpoint, source.Keep
		find = config.SchemasOf(ctx, source.Table)
	}
	if o.Join, err = cfg.CompileJoin(c.Join, find); err != nil {
		return nil, err
	}
	started := time.Now().UTC()
	if o.LogicalTime.IsZero() {
		o.LogicalTime = started
	}
	o.Published = func(ctx context.Context, m *jobs.Manifest) error {
		return hand.record(ctx, jobs.RunEntry(m, schedule.Manual, false))
	}
	if live {
		o.Lag, o.Yielding = lagOf(p, hand.in, c.Join, o.Join.Yields()), hand.yielding
	}
	bar := newProgress(p, c.Quiet)
	o.Progress = bar.report
	m, err = jobs.RunJoin(ctx, o)
	bar.end()
	if errors.Is(err, jobs.ErrResumable) {
		keep()
		return nil, fmt.Errorf("%w; what is finished was kept: go on with export join --resume", err)
	}
	return hand.ended(ctx, left, o.LogicalTime, started, m, err)
}

// open opens the instant to join at: that of the run to go on with, or a new one.
func (c *joinCommand) open(ctx context.Context, p *cli.Program, cfg *config.Config, left *jobs.Unfinished, log *slog.Logger) (*config.Instant, error) {
	if cfg.Joins[c.Join].Method != join.Lookup {
		cfg = cfg.ForScans()
	}
	if left != nil {
		source, err := reopen(ctx, p, cfg, left, log)
		if source != nil || err != nil {
			return source, err
		}
	}
	return config.OpenLastingInstant(ctx, cfg, log)
}
