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
	log.Info("started", "dir", cfg.Store.Dir, "address", d.listener.Addr().String(), "brokers", cfg.Kafka.Brokers)
	start := time.Now()
	return stopped(ctx, cfg.ShutdownTimeout, func() error {
		err := d.run(ctx)
		if closeErr := d.close(); err == nil {
			err = closeErr
		}
		if err == nil {
			log.Info("stopped", "took", time.Since(start).Round(time.Millisecond))
		}
		return err
	})
}
