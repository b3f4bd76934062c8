package main

import (
	"context"
	"errors"
	"fmt"

	"sluice/cell"
	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs/columnar"
	"sluice/store"
)

type countersCommand struct {
	Remove countersRemoveCommand `cmd:"" help:"Remove counters and distinct counts from a table on HBase, while daemons count."`
}

type countersRemoveCommand struct {
	cli.ConfigFlag
	Table       string   `arg:"" help:"Name of the table."`
	StartRow    string   `placeholder:"KEY" help:"First row key; other bytes than printable ASCII as \\xNN. Default: the table's first."`
	StopRow     string   `placeholder:"KEY" help:"Row key before which to stop. Default: the table's end."`
	StartColumn string   `placeholder:"NAME" help:"First column, such as the name of a rollup's bucket, written as keys are. Default: the first."`
	StopColumn  string   `placeholder:"NAME" help:"Column before which to stop. Default: the last one's end."`
	Family      []string `placeholder:"NAME" help:"Only this COUNTER or DISTINCT family; may be given again. Default: all of the table's."`
	Yes         bool     `help:"Do it. Without it the counters are counted only."`
}

// Run removes counters, or counts them.
func (c *countersRemoveCommand) Run(ctx context.Context, p *cli.Program) error {
	r := store.CounterRange{Table: c.Table, Families: c.Family}
	var err error
	if r.Rows, err = between("row", c.StartRow, c.StopRow); err != nil {
		return err
	}
	if r.Columns, err = between("column", c.StartColumn, c.StopColumn); err != nil {
		return err
	}
	return withStore(ctx, &c.ConfigFlag, p, func(_ *config.Config, s config.Engine) error {
		e, ok := s.(store.CounterRemover)
		if !ok {
			return fmt.Errorf("%w: engine %s deletes counters as any cells: by a TTL of their family, or by delete and deleteall of the shell", store.ErrUnsupported, s.Traits().Name)
		}
		if !c.Yes {
			n, err := e.CountCounters(ctx, &r)
			if err == nil {
				_, err = fmt.Fprintf(p.Stdout, "%s counters\n", cli.Count(n))
			}
			if err != nil {
				return err
			}
			return fmt.Errorf("%w: nothing was removed: --yes removes these counters for good", cli.ErrUsage)
		}
		n, err := e.RemoveCounters(ctx, &r)
		_, perr := fmt.Fprintf(p.Stdout, "%s counters removed\n", cli.Count(n))
		return errors.Join(perr, err)
	})
}

// between reads the flags --start-WHAT and --stop-WHAT. Its error wraps cli.ErrUsage.
func between(what, start, stop string) (r cell.Range, err error) {
	if r.Start, err = columnar.UnescapeKey(start); err != nil {
		return r, fmt.Errorf("%w: --start-%s: %w", cli.ErrUsage, what, err)
	}
	if r.Stop, err = columnar.UnescapeKey(stop); err != nil {
		return r, fmt.Errorf("%w: --stop-%s: %w", cli.ErrUsage, what, err)
	}
	if len(r.Stop) > 0 && string(r.Stop) <= string(r.Start) {
		return r, fmt.Errorf("%w: --stop-%s %s is not after --start-%s %s", cli.ErrUsage, what, stop, what, start)
	}
	return r, nil
}
