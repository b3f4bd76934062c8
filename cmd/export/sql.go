package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/target"
	"sluice/store"
)

type sqlCommand struct {
	Dir    string `arg:"" help:"Directory of a run, of a job (its latest run), or a manifest; or s3://BUCKET/PREFIX of a run or a job."`
	Config string `short:"c" placeholder:"FILE" help:"Configuration file; for a bucket."`
	For    string `placeholder:"READER" help:"Print the code for one reader alone, ready to be piped into it: duckdb, polars, pandas or spark."`
}

// find finds the run, and returns what prints the code for a reader.
func (c *sqlCommand) find(ctx context.Context, p *cli.Program) (snippet func(reader string) (string, error), err error) {
	if !config.InBucket(c.Dir) {
		m, dir, err := jobs.ReadRun(ctx, c.Dir)
		if err != nil {
			return nil, err
		}
		before, err := jobs.ReadChainBeside(ctx, m, dir, nil)
		if err != nil {
			return nil, err
		}
		return func(reader string) (string, error) { return jobs.Snippet(reader, m, dir, before...) }, nil
	}
	if c.Config == "" {
		return nil, fmt.Errorf("%w: the endpoint and the keys of a bucket are in the configuration file: -c FILE", cli.ErrUsage)
	}
	cfg, err := config.Load(c.Config, p.LookupEnv)
	if err != nil {
		return nil, err
	}
	t, err := cfg.OpenTarget(c.Dir, false, p.Warnings())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	m, dir, err := jobs.ReadRunTarget(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Dir, err)
	}
	at := "s3://" + path.Join(strings.TrimPrefix(c.Dir, "s3://"), dir) // of a run's directory, dir is "."
	before, err := jobs.ReadChainBeside(ctx, m, at, func(at string) (target.Target, error) { return cfg.OpenTarget(at, false, p.Warnings()) })
	if err != nil {
		return nil, err
	}
	b := &jobs.Bucket{Endpoint: cfg.S3.Endpoint, Region: cfg.S3.Region}
	return func(reader string) (string, error) { return jobs.SnippetInBucket(reader, m, at, b, before...) }, nil
}

// Run prints code that reads a published run.
func (c *sqlCommand) Run(ctx context.Context, p *cli.Program) error {
	snippet, err := c.find(ctx, p)
	if err != nil {
		return err
	}
	if c.For != "" {
		code, err := snippet(c.For)
		if errors.Is(err, store.ErrInvalidArgument) {
			return fmt.Errorf("%w: %w", cli.ErrUsage, err)
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(p.Stdout, code)
		return err
	}
	var all strings.Builder
	readable := false
	var refused error
	for _, reader := range jobs.Readers() {
		code, err := snippet(reader)
		switch {
		case errors.Is(err, store.ErrUnsupported):
			code, refused = err.Error()+"\n", err
		case errors.Is(err, store.ErrInvalidArgument):
			return fmt.Errorf("%w: %w", cli.ErrUsage, err)
		case err != nil:
			return err
		default:
			readable = true
		}
		fmt.Fprintf(&all, "==== %s ====\n%s\n", reader, code)
	}
	if !readable {
		return refused
	}
	_, err = fmt.Fprint(p.Stdout, all.String())
	return err
}
