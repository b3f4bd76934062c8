package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"text/tabwriter"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
)

type planCommand struct {
	cli.ConfigFlag
	Job    string `arg:"" help:"Name of the job in the configuration file."`
	Sample int64  `default:"100000" help:"Rows of each region to read and encode; a region with more is extrapolated."`
}

// Run says what a run of a job would do, and writes nothing.
func (c *planCommand) Run(ctx context.Context, p *cli.Program) (err error) {
	if c.Sample < 1 {
		return fmt.Errorf("%w: --sample is %d, must be at least 1", cli.ErrUsage, c.Sample)
	}
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	spec, err := jobSpec(cfg, c.Job)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(p.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	source, err := config.OpenInstant(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	schema, err := source.Table(ctx, spec.Table)
	if err != nil {
		return err
	}
	job, err := jobs.Compile(c.Job, spec, schema)
	if err != nil {
		return err
	}
	plan, err := jobs.Plan(ctx, &jobs.PlanOptions{Job: job, Source: source, SampleRows: c.Sample})
	if err != nil {
		return err
	}
	fmt.Fprintf(p.Stdout, "%s: table %s at commit %d, %d regions; nothing was written\n", plan.Job, plan.Table, plan.Sequence, len(plan.Splits))
	t := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	for i := range plan.Splits {
		s := &plan.Splits[i]
		planLine(t, fmt.Sprintf("[%q, %q)", s.Rows.Start, s.Rows.Stop), s.Basis, s.Count, s.Formats)
	}
	planLine(t, "all", plan.Basis, plan.Count, plan.Formats)
	return t.Flush()
}

func planLine(t *tabwriter.Writer, name, basis string, rows int64, formats []jobs.FormatPlan) {
	fmt.Fprintf(t, "  %s\t%s %s rows", name, basis, cli.Count(rows))
	for _, f := range formats {
		fmt.Fprintf(t, "\t%s: %d files, %s", f.Format, f.Files, cli.Bytes(f.Bytes))
	}
	fmt.Fprintln(t)
}
