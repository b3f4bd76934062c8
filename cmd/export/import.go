package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
)

type importCommand struct {
	cli.ConfigFlag
	From   string `arg:"" name:"run" help:"Directory of a run, or of a job (its latest run); or s3://BUCKET/PREFIX of one of these."`
	Into   string `arg:"" name:"table" help:"Name of the table, which must be there with the families."`
	In     string `placeholder:"DIR" help:"Data directory of the table. Default: that of the file."`
	Format string `enum:"parquet,arrow,any" default:"any" help:"Files to read: parquet, arrow. Default: the first of the run's formats."`
	JSON   bool   `name:"json" help:"One JSON object."`
	Quiet  bool   `short:"q" help:"No progress."`
}

// imported is what --json prints.
type imported struct {
	Job   string `json:"job"`
	RunID string `json:"run_id"`
	Into  string `json:"into"`
	Rows  int64  `json:"rows"` // of the files
	Cells int64  `json:"cells"`
}

// Run imports a published run.
func (c *importCommand) Run(ctx context.Context, p *cli.Program) (err error) {
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	from, err := cfg.OpenTarget(c.From, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	if c.In != "" {
		cfg = config.ForDirectory(c.In)
	}
	log := warnings(p)
	to, _, err := config.OpenStore(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	o := &jobs.ImportOptions{From: from, To: to, Into: c.Into}
	if c.Format != "any" {
		o.Format = c.Format
	}
	bar := newProgress(p, c.Quiet)
	o.Progress = bar.report
	done, err := jobs.Import(ctx, o)
	bar.end()
	if err != nil {
		return err
	}
	m := done.Manifest
	if c.JSON {
		return json.NewEncoder(p.Stdout).Encode(&imported{Job: m.Job, RunID: m.RunID, Into: c.Into, Rows: done.Rows, Cells: done.Cells})
	}
	_, err = fmt.Fprintf(p.Stdout, "run %s of %s is in %s: %s rows, %s cells\n", m.RunID, m.Job, c.Into, cli.Count(done.Rows), cli.Count(done.Cells))
	return err
}
