package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
)

type verifyCommand struct {
	Dir    string `arg:"" help:"Directory of a run, of a job (its latest run), or a manifest; or s3://BUCKET/PREFIX of a run or a job."`
	Config string `short:"c" placeholder:"FILE" help:"Configuration file; for a bucket."`
	JSON   bool   `name:"json" help:"One JSON object."`
}

// verified is what a verification has found.
type verified struct {
	Job       string         `json:"job"`
	RunID     string         `json:"run_id"`
	Directory string         `json:"directory"`
	OK        bool           `json:"ok"`
	Problems  []string       `json:"problems"` // of the run as a whole
	Files     []verifiedFile `json:"files"`
}

type verifiedFile struct {
	Path     string   `json:"path"`
	Rows     int64    `json:"rows"`
	Bytes    int64    `json:"bytes"`
	Problems []string `json:"problems"`
}

// Run verifies one run.
func (c *verifyCommand) Run(ctx context.Context, p *cli.Program) error {
	r, err := c.verify(ctx, p)
	if err != nil {
		return err
	}
	if c.JSON {
		out := verified{Job: r.Manifest.Job, RunID: r.Manifest.RunID, Directory: r.Dir, OK: r.OK(), Problems: append([]string{}, r.Problems...)}
		for _, f := range r.Files {
			out.Files = append(out.Files, verifiedFile{Path: f.Path, Rows: f.Rows, Bytes: f.Bytes, Problems: append([]string{}, f.Problems...)})
		}
		if err := writeJSON(p.Stdout, []verified{out}); err != nil {
			return err
		}
		return r.Err()
	}
	t := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	for _, f := range r.Files {
		verdict := "ok"
		if len(f.Problems) > 0 {
			verdict = strings.Join(f.Problems, "; ")
		}
		fmt.Fprintf(t, "%s\t%s rows\t%s\t%s\n", f.Path, cli.Count(f.Rows), cli.Bytes(f.Bytes), verdict)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := r.Err(); err != nil {
		return fmt.Errorf("%s: %w", r.Dir, err)
	}
	_, err = fmt.Fprintf(p.Stdout, "run %s of %s: complete and as the manifest says\n", r.Manifest.RunID, r.Manifest.Job)
	return err
}

func (c *verifyCommand) verify(ctx context.Context, p *cli.Program) (r *jobs.Report, err error) {
	if !config.InBucket(c.Dir) {
		return jobs.Verify(ctx, c.Dir)
	}
	if c.Config == "" {
		return nil, fmt.Errorf("%w: the keys of a bucket are in the configuration file: -c FILE", cli.ErrUsage)
	}
	cfg, err := config.Load(c.Config, p.LookupEnv)
	if err != nil {
		return nil, err
	}
	t, err := cfg.OpenTarget(c.Dir, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	if r, err = jobs.VerifyTarget(ctx, t); err == nil {
		r.Dir = below(c.Dir, r.Dir)
	}
	return r, err
}
