package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs/history"
)

type historyCommand struct {
	cli.ConfigFlag
	Job   string `arg:"" help:"Name of the job, join or backup in the configuration file, or gc."`
	Limit int    `short:"n" default:"20" help:"How many entries, the newest first."`
	JSON  bool   `name:"json" help:"Print JSON: an object a line."`
}

// Run prints what has become of the runs of a job, of its schedule, of orders and by
// hand, from the store.
func (c *historyCommand) Run(ctx context.Context, p *cli.Program) (err error) {
	if c.Limit < 1 {
		return fmt.Errorf("%w: --limit is %d, must be at least 1", cli.ErrUsage, c.Limit)
	}
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	undeclared := isDeclared(cfg, c.Job) // what became of its runs is in the store all the same
	log := p.Warnings()
	e, _, err := config.OpenStore(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	entries, err := history.Entries(ctx, e, c.Job, c.Limit)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		if undeclared != nil {
			return undeclared
		}
		d, _ := cfg.Declared(c.Job)
		p.Note("export", "%s %s has no history: nothing of it has ended yet", d.Kind, c.Job)
	}
	if c.JSON {
		out := json.NewEncoder(p.Stdout)
		for i := range entries {
			if err := out.Encode(&entries[i]); err != nil {
				return err
			}
		}
		return nil
	}
	t := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TIME\tCAUSE\tRESULT\tTIMES\tATTEMPTS\tENDED\tTOOK\tPAUSED\tROWS\tBYTES\tRUN\tERROR")
	for i := range entries {
		h := &entries[i]
		paused := time.Duration(h.PausedSeconds * float64(time.Second)).Round(time.Millisecond)
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", h.Logical.Format(time.RFC3339), h.Cause, h.Result, h.Count, h.Attempts,
			h.Ended.Format(time.RFC3339), h.Ended.Sub(h.Started).Round(time.Millisecond), paused, cli.Count(h.Rows), cli.Bytes(h.Bytes), h.RunID, h.Error)
	}
	return t.Flush()
}
