package main

import (
	"context"
	"errors"
	"fmt"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
	"sluice/serve/client"
	"sluice/store"
)

type pauseCommand struct {
	cli.ConfigFlag
	Job string `arg:"" help:"Name of the job in the configuration file."`
}

type resumeCommand pauseCommand

// Run keeps the daemon from starting runs of a job by its schedule.
func (c *pauseCommand) Run(ctx context.Context, p *cli.Program) error { return c.set(ctx, p, true) }

// Run lets a paused schedule go on with the first time from now.
func (c *resumeCommand) Run(ctx context.Context, p *cli.Program) error {
	return (*pauseCommand)(c).set(ctx, p, false)
}

func (c *pauseCommand) set(ctx context.Context, p *cli.Program, paused bool) (err error) {
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	spec, err := jobSpec(cfg, c.Job)
	if err != nil {
		return err
	}
	if spec.Schedule.Cron == "" {
		return fmt.Errorf("%w: job %s has no schedule", cli.ErrUsage, c.Job)
	}
	if cfg.Store.Engine == "hbase" {
		return askHolder(ctx, p, cfg, c.Job, paused)
	}
	d, err := client.DialDir(ctx, cfg.Store.Dir)
	if errors.Is(err, client.ErrNoDaemon) {
		return fmt.Errorf("%w: schedules are paused and resumed in the daemon, and none has %s open: %w", store.ErrUnsupported, cfg.Store.Dir, err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return d.PauseExport(ctx, c.Job, paused)
}

// askHolder leaves word in HBase for whichever daemon runs the schedule, or will.
func askHolder(ctx context.Context, p *cli.Program, cfg *config.Config, job string, paused bool) (err error) {
	e, _, err := config.OpenStore(ctx, cfg, p.Warnings())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	return jobs.NewSharedHistory(e, nil).Ask(ctx, job, paused)
}
