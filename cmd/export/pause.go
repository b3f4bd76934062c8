package main

import (
	"context"
	"errors"

	"sluice/cmd/internal/cli"
	"sluice/jobs/schedule"
)

type pauseCommand struct {
	cli.ConfigFlag
	Job string `arg:"" help:"Name of the job, join or backup in the configuration file, or gc."`
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
	if _, err := scheduled(cfg, c.Job); err != nil {
		return err
	}
	if cfg.Store.Engine == "hbase" {
		w := schedule.Wish{For: schedule.WishResume}
		if paused {
			w.For = schedule.WishPause
		}
		_, err := leaveWord(ctx, p, cfg, c.Job, w)
		return err
	}
	d, err := dialDaemon(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return d.PauseExport(ctx, c.Job, paused)
}
