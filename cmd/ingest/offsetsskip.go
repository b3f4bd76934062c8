package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/pipeline"
	"sluice/store"
)

type offsetsSkipCommand struct {
	cli.ConfigFlag
	Pipeline  string `required:"" placeholder:"NAME" help:"Name of the pipeline."`
	Topic     string `required:"" placeholder:"NAME" help:"Name of the topic."`
	Partition int32  `required:"" placeholder:"N" help:"Number of the partition."`
	From      int64  `required:"" placeholder:"OFFSET" help:"The first offset to give up: the stored one, as offsets shows it."`
	To        int64  `required:"" placeholder:"OFFSET" help:"The first offset to apply again."`
	Reason    string `required:"" placeholder:"REASON" enum:"corrupt,too_large,other" help:"Why: corrupt, too_large or other. It is stored."`
	Yes       bool   `help:"Do it. Without it the range is checked only."`
}

// Run counts a range of offsets as lost: through the daemon's API where one has the
// store open.
func (c *offsetsSkipCommand) Run(ctx context.Context, p *cli.Program) error {
	reason, err := store.ParseSkipReason(c.Reason)
	if err != nil {
		return fmt.Errorf("%w: --reason: %w", cli.ErrUsage, err)
	}
	return withStore(ctx, &c.ConfigFlag, p, func(cfg *config.Config, s config.Engine) error {
		if names := cfg.PipelineNames(); !slices.Contains(names, c.Pipeline) {
			return fmt.Errorf("%w: %s has no pipeline %q; it has %v", cli.ErrUsage, c.Config, c.Pipeline, names)
		}
		client, err := openKafka(cfg, newLogger(p.Stderr, &cfg.Log))
		if err != nil {
			return err
		}
		defer client.Close()
		progress, err := pipeline.SkipOffsets(ctx, &pipeline.SkipOptions{
			Engine: s, Client: client, Pipeline: c.Pipeline, Topic: c.Topic, Partition: c.Partition,
			From: c.From, To: c.To, Reason: reason, DryRun: !c.Yes,
		})
		switch {
		case errors.Is(err, store.ErrInvalidArgument):
			return fmt.Errorf("%w: %w", cli.ErrUsage, err)
		case errors.Is(err, store.ErrStale):
			return fmt.Errorf("%w; ingest offsets shows what is stored", err)
		case err != nil:
			return err
		case !c.Yes:
			return fmt.Errorf("%w: nothing was skipped: --yes gives up offsets %d to %d of %s/%d (%d records or fewer) for good", cli.ErrUsage, c.From, c.To-1, c.Topic, c.Partition, c.To-c.From)
		}
		_, err = fmt.Fprintf(p.Stdout, "pipeline %s: offsets %d to %d of %s/%d are given up (%v) and count as lost; it goes on at %d\n",
			c.Pipeline, c.From, c.To-1, c.Topic, c.Partition, reason, progress.Next)
		return err
	})
}
