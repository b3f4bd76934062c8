package main

import (
	"context"
	"time"

	"sluice/cmd/internal/cli"
)

type runCommand struct {
	cli.ConfigFlag
}

// Run runs the daemon until a signal.
func (c *runCommand) Run(ctx context.Context, p *cli.Program) error {
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	log := newLogger(p.Stderr, &cfg.Log)
	d, err := openDaemon(ctx, cfg, log)
	if err != nil {
		if ctx.Err() != nil {
			return nil // told to stop while starting
		}
		return err
	}
	log.Info("started", "engine", cfg.Store.Engine, "store", cfg.Store.Place(), "address", d.listener.Addr().String(), "brokers", cfg.Kafka.Brokers)
	return d.runAndClose(ctx)
}

// runAndClose runs d until ctx ends or its store has stopped, and closes it.
func (d *daemon) runAndClose(ctx context.Context) error {
	start := time.Now()
	ctx, end := d.untilStopped(ctx)
	defer end()
	return stopped(ctx, d.cfg.ShutdownTimeout, func() error {
		err := d.run(ctx)
		if closeErr := d.close(); err == nil {
			err = closeErr
		}
		if err == nil {
			d.log.Info("stopped", "took", time.Since(start).Round(time.Millisecond))
		}
		return err
	})
}
