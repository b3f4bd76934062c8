package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/pipeline"
)

type dlqRedriveCommand struct {
	cli.ConfigFlag
	letterFlags
	Limit  int      `default:"0" help:"Try so many of each pipeline; 0 = all."`
	DryRun bool     `help:"Map the letters and write nothing."`
	Letter []string `arg:"" optional:"" help:"Only these: TOPIC/PARTITION/OFFSET, as ls prints them."`
}

// errStillDead marks a redrive that left letters dead.
var errStillDead = errors.New("records are still dead letters")

// Run redrives the letters of every pipeline of the file that the flags choose.
func (c *dlqRedriveCommand) Run(ctx context.Context, p *cli.Program) error {
	f, err := c.filter(time.Now())
	if err != nil {
		return err
	}
	if c.Limit < 0 {
		return fmt.Errorf("%w: --limit is %d", cli.ErrUsage, c.Limit)
	}
	if f.Places, err = parsePlaces(c.Letter); err != nil {
		return err
	}
	return withStore(ctx, &c.ConfigFlag, p, func(cfg *config.Config, s config.Engine) error {
		names := c.pipelines(cfg)
		f.State = pipeline.DeadLetters
		over, err := c.passedOver(ctx, s, cfg, f)
		if err != nil {
			return err
		}
		var sum pipeline.RedriveCounts
		for _, name := range names {
			o, err := cfg.PipelineOptions(name)
			if err != nil {
				return err
			}
			f.Pipeline = name
			log := newLogger(p.Stderr, &cfg.Log)
			n, err := pipeline.Redrive(ctx, &pipeline.RedriveOptions{
				Engine: s, Plan: o.Plan, Filter: f, Limit: c.Limit, DryRun: c.DryRun, CreateTable: cfg.TableCreator(s, log), Logger: log,
			})
			sum.Applied += n.Applied
			sum.Filtered += n.Filtered
			sum.Refused += n.Refused
			sum.Overtaken += n.Overtaken
			if err != nil {
				return errors.Join(printRedrive(p.Stdout, &sum, c.DryRun), againError(err))
			}
		}
		if err := printRedrive(p.Stdout, &sum, c.DryRun); err != nil {
			return err
		}
		left := []error{over.tell(p.Stdout, len(f.Places) > 0, "put its rules back, or give them up by dlq purge")}
		if sum.Refused > 0 && !c.DryRun {
			left = append(left, fmt.Errorf("%s %w; dlq ls shows why", cli.Count(sum.Refused), errStillDead))
		}
		return errors.Join(left...)
	})
}

// againError says of a redrive or a purge that was cut off how to go on.
func againError(err error) error {
	return fmt.Errorf("%w; what is done stays done: run it again for the rest", err)
}

func printRedrive(w io.Writer, n *pipeline.RedriveCounts, dry bool) error {
	verb := ""
	if dry {
		verb = "would be "
	}
	_, err := fmt.Fprintf(w, "%s %sapplied, %s %sleft out by the rules, %s %srefused again\n",
		cli.Count(n.Applied), verb, cli.Count(n.Filtered), verb, cli.Count(n.Refused), verb)
	if err == nil && n.Overtaken > 0 {
		_, err = fmt.Fprintf(w, "%s were redriven by another or purged at the same time\n", cli.Count(n.Overtaken))
	}
	return err
}
