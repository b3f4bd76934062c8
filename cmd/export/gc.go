package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/target"
)

type gcCommand struct {
	cli.ConfigFlag
	Out    string `placeholder:"DIR" help:"Tidy DIR instead of the jobs' own directories."`
	DryRun bool   `help:"Only say what would be removed."`
}

// Run removes what killed exports have left and runs beyond their retention.
func (c *gcCommand) Run(ctx context.Context, p *cli.Program) error {
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	outs := keepByDirectory(cfg, c.Out)
	t := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	var freed int64
	removed := 0
	var errs []error
	for _, out := range slices.Sorted(maps.Keys(outs)) {
		found, err := collect(ctx, out, outs[out], c.DryRun)
		if errors.Is(err, target.ErrNotFound) {
			continue // nothing was exported yet
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
			if g.Job == "" {
				name = filepath.Join("_tmp", name)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", what, filepath.Join(out, filepath.FromSlash(name)), cli.Bytes(g.Bytes), g.Reason)
			if g.Err == nil && !g.Stays {
				removed++
				freed += g.Bytes
			}
		}
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

// keepByDirectory returns the retention of the jobs by the directory that they
// publish in, or all in out where it is set.
func keepByDirectory(cfg *config.Config, out string) map[string]map[string]jobs.Keep {
	outs := map[string]map[string]jobs.Keep{}
	for _, name := range cfg.JobNames() {
		dir := out
		if dir == "" {
			dir = cfg.Jobs[name].Out
		}
		if dir == "" {
			continue
		}
		dir = filepath.Clean(dir)
		if outs[dir] == nil {
			outs[dir] = map[string]jobs.Keep{}
		}
		outs[dir][name] = cfg.Jobs[name].Keep
	}
	return outs
}

func collect(ctx context.Context, out string, keep map[string]jobs.Keep, dry bool) (_ []jobs.Garbage, err error) {
	t, err := target.OpenLocal(out)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	return jobs.Collect(ctx, &jobs.CollectOptions{Target: t, Keep: keep, DryRun: dry})
}
