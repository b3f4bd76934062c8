package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/pipeline"
)

type dlqPurgeCommand struct {
	cli.ConfigFlag
	letterFlags
	All       bool     `help:"Remove those, too, that were redriven."`
	Unrelayed bool     `help:"Remove those, too, that the dead-letter topic of their pipeline does not have yet."`
	Yes       bool     `help:"Do it. Without it the letters are counted only."`
	Letter    []string `arg:"" optional:"" help:"Only these: TOPIC/PARTITION/OFFSET, as ls prints them."`
}

// Run removes what ls lists by the same flags: of every pipeline of the file, or of
// the one that is named, which may be in the file no more.
func (c *dlqPurgeCommand) Run(ctx context.Context, p *cli.Program) error {
	f, err := c.filter(time.Now())
	if err != nil {
		return err
	}
	if f.Places, err = parsePlaces(c.Letter); err != nil {
		return err
	}
	f.State, f.Brief = pipeline.DeadLetters, true
	if c.All {
		f.State = pipeline.AnyLetter
	}
	return withStore(ctx, &c.ConfigFlag, p, func(cfg *config.Config, s config.Engine) error {
		over, err := c.passedOver(ctx, s, cfg, f)
		if err != nil {
			return err
		}
		var sum pipeline.PurgeCounts
		for _, name := range c.pipelines(cfg) {
			f.Pipeline = name
			relayed := cfg.Pipelines[name].DeadLetters.Topic != "" // not of one that is in the file no more
			if err := c.purge(ctx, p, s, &f, relayed && !c.Unrelayed, &sum); err != nil {
				return err
			}
		}
		tell := func() error { return over.tell(p.Stdout, len(f.Places) > 0, "choose them by") }
		if !c.Yes {
			return errors.Join(fmt.Errorf("%w: nothing was removed: --yes removes these letters for good", cli.ErrUsage), tell())
		}
		return errors.Join(c.print(p, &sum), tell())
	})
}

// purge removes the letters of a pipeline, or prints how many there are.
func (c *dlqPurgeCommand) purge(ctx context.Context, p *cli.Program, s config.Engine, f *pipeline.LetterFilter, keep bool, sum *pipeline.PurgeCounts) error {
	if !c.Yes {
		unrelayed := int64(0)
		sums, err := countLetters(ctx, s, f, func(l letterLine) {
			if !l.Relayed {
				unrelayed++
			}
		})
		if err != nil {
			return err
		}
		if len(sums) == 0 {
			_, err := fmt.Fprintf(p.Stdout, "no such letters of pipeline %s\n", f.Pipeline)
			return err
		}
		if _, err := printSums(p.Stdout, sums); err != nil || unrelayed == 0 || !keep {
			return err
		}
		return printUnrelayed(p, unrelayed)
	}
	n, err := pipeline.Purge(ctx, &pipeline.PurgeOptions{Engine: s, Filter: *f, KeepUnrelayed: keep})
	sum.Purged += n.Purged
	sum.Unrelayed += n.Unrelayed
	sum.Overtaken += n.Overtaken
	if err != nil {
		return errors.Join(c.print(p, sum), againError(err))
	}
	return nil
}

func (c *dlqPurgeCommand) print(p *cli.Program, n *pipeline.PurgeCounts) error {
	_, err := fmt.Fprintf(p.Stdout, "%s purged\n", cli.Count(n.Purged))
	if err == nil && n.Overtaken > 0 {
		_, err = fmt.Fprintf(p.Stdout, "%s were redriven or purged by another at the same time\n", cli.Count(n.Overtaken))
	}
	if err == nil && n.Unrelayed > 0 {
		err = printUnrelayed(p, n.Unrelayed)
	}
	return err
}

func printUnrelayed(p *cli.Program, n int64) error {
	_, err := fmt.Fprintf(p.Stdout, "%s wait for the dead-letter topic and stay; --unrelayed removes them, too\n", cli.Count(n))
	return err
}
