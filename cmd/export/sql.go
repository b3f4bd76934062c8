package main

import (
	"context"
	"errors"
	"fmt"

	"sluice/cmd/internal/cli"
	"sluice/jobs"
	"sluice/store"
)

type sqlCommand struct {
	Dir string `arg:"" help:"Directory of a run, of a job (its latest run), or a manifest."`
	For string `placeholder:"READER" help:"Print the code for one reader alone, ready to be piped into it: duckdb, polars, pandas or spark."`
}

// Run prints code that reads a published run.
func (c *sqlCommand) Run(ctx context.Context, p *cli.Program) error {
	m, dir, err := jobs.ReadRun(ctx, c.Dir)
	if err != nil {
		return err
	}
	if c.For != "" {
		code, err := jobs.Snippet(c.For, m, dir)
		if errors.Is(err, store.ErrInvalidArgument) {
			return fmt.Errorf("%w: %w", cli.ErrUsage, err)
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(p.Stdout, code)
		return err
	}
	for _, reader := range jobs.Readers() {
		code, err := jobs.Snippet(reader, m, dir)
		switch {
		case errors.Is(err, store.ErrUnsupported):
			code = err.Error() + "\n"
		case err != nil:
			return err
		}
		if _, err := fmt.Fprintf(p.Stdout, "==== %s ====\n%s\n", reader, code); err != nil {
			return err
		}
	}
	return nil
}
