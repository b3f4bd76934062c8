package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"sluice/cmd/internal/cli"
	"sluice/serve/api"
	"sluice/serve/client"
	"sluice/store"
)

type breakerCommands struct {
	Close breakerCloseCommand `cmd:"" help:"Let the partitions of a pipeline go on whose breaker is open."`
}

type breakerCloseCommand struct {
	cli.ConfigFlag
	Pipeline string `arg:"" optional:"" help:"Name of the pipeline; may be left out where there is one."`
}

// Run asks the daemon, in whose memory breakers are.
func (c *breakerCloseCommand) Run(ctx context.Context, p *cli.Program) (err error) {
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	names := cfg.PipelineNames()
	switch {
	case c.Pipeline == "" && len(names) == 1:
		c.Pipeline = names[0]
	case c.Pipeline == "" || !slices.Contains(names, c.Pipeline):
		return fmt.Errorf("%w: name one of the pipelines %v", cli.ErrUsage, names)
	}
	if cfg.Store.Engine == "hbase" { // its daemons leave no endpoint in a directory, and each has breakers of its own
		return fmt.Errorf("%w: with engine hbase this command finds no daemon, running or not: ask each for POST /api/v1/pipelines/%s/close_breakers at its serve.listen, with its serve.token", store.ErrUnsupported, url.PathEscape(c.Pipeline))
	}
	d, err := client.DialDir(ctx, cfg.Store.Dir)
	if errors.Is(err, client.ErrNoDaemon) {
		return fmt.Errorf("%w: breakers are closed in the daemon, and none has %s open; its next start closes them: %w", store.ErrUnsupported, cfg.Store.Dir, err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	n, err := d.CloseBreakers(ctx, c.Pipeline)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.Stdout, "pipeline %s: %d breakers were open and are closed\n", c.Pipeline, n)
	return err
}

// closeBreakers closes the open breakers of a pipeline.
func (d *daemon) closeBreakers(_ context.Context, name string) (int, error) {
	for _, p := range d.pipelines {
		if p.Status().Name == name {
			n := p.CloseBreakers()
			d.log.Info("breakers were closed by hand", "pipeline", name, "partitions", n)
			return n, nil
		}
	}
	return 0, fmt.Errorf("%w: pipeline %s", api.ErrNotFound, name)
}
