package main

import (
	"context"
	"time"
)

type runCommand struct {
	configFlag
}

// Run runs the daemon until a signal.
func (c *runCommand) Run(ctx context.Context, p *program) error {
	cfg, err := c.load(p)
	if err != nil {
		return err
	}
	log := newLogger(p.stderr, &cfg.Log)
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
