package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/schedule"
	"sluice/jobs/target"
)

type gcCommand struct {
	cli.ConfigFlag
	Out    string `placeholder:"DIR" help:"Tidy DIR instead of the jobs' own directories."`
	DryRun bool   `help:"Only say what would be removed."`
	JSON   bool   `name:"json" help:"Print JSON: an object a line."`
}

// collected is one thing that gc has looked at.
type collected struct {
	What   string `json:"what"` // removed, would remove, kept, failed
	Path   string `json:"path"`
	Job    string `json:"job,omitempty"` // of a published run
	Bytes  int64  `json:"bytes"`
	Reason string `json:"reason"`
	Error  string `json:"error,omitempty"`
}

// Run removes what killed exports have left and runs beyond their retention.
func (c *gcCommand) Run(ctx context.Context, p *cli.Program) error {
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	outs := cfg.KeepByOut(c.Out)
	all := []collected{}
	var freed int64
	removed := 0
	var errs []error
	for _, out := range slices.Sorted(maps.Keys(outs)) {
		found, err := collect(ctx, p, cfg, out, outs[out], c.DryRun)
		if errors.Is(err, target.ErrNotFound) && c.Out == "" { // nothing was exported yet
			continue
		}
		if errors.Is(err, target.ErrNotFound) {
			err = noDirectory(out)
		}
		errs = append(errs, err)
		for i := range found {
			g := &found[i]
			what := "removed"
			switch {
			case g.Err != nil:
				what = "failed"
			case g.Stays:
				what = "kept"
			case c.DryRun:
				what = "would remove"
			}
			name := g.Name
			if g.Job == "" && !config.InBucket(out) {
				name = filepath.Join("_tmp", name)
			}
			l := collected{What: what, Path: below(out, filepath.FromSlash(name)), Job: g.Job, Bytes: g.Bytes, Reason: g.Reason}
			if g.Err != nil {
				l.Error = g.Err.Error()
			}
			all = append(all, l)
			if g.Err == nil && !g.Stays {
				removed++
				freed += g.Bytes
			}
		}
	}
	if c.JSON {
		return errors.Join(append(errs, writeJSON(p.Stdout, all))...)
	}
	t := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	for i := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", all[i].What, all[i].Path, cli.Bytes(all[i].Bytes), all[i].Reason)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	verb := "removed"
	if c.DryRun {
		verb = "would be removed"
	}
	fmt.Fprintf(p.Stdout, "%d %s, %s\n", removed, verb, cli.Bytes(freed))
	return errors.Join(errs...)
}

func collect(ctx context.Context, p *cli.Program, cfg *config.Config, out string, keep map[string]jobs.Keep, dry bool) (_ []jobs.Garbage, err error) {
	t, err := cfg.OpenTarget(out, false, p.Warnings())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	awaited := func(ctx context.Context) (map[string][]time.Time, error) {
		states, err := scheduleStates(ctx, p, cfg)
		return schedule.Awaited(states), err
	}
	return jobs.Collect(ctx, &jobs.CollectOptions{Target: t, Keep: keep, Awaited: awaited, DryRun: dry})
}

// noDirectory is the error of a command whose --out is not there: nothing to list
// in it or to remove is what a mistyped one must not be taken for.
func noDirectory(out string) error {
	return fmt.Errorf("there is no directory %s (--out)", out)
}
