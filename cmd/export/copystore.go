package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs/tables"
	"sluice/jobs/target"
	"sluice/jobs/work"
	"sluice/serve/api"
	"sluice/store"
)

type copyCommand struct {
	From       string   `required:"" placeholder:"STORE" help:"Store to copy: pebble:DIR, or hbase://HOST:PORT[,HOST:PORT][?tls=true&framed=true&...]."`
	To         string   `required:"" placeholder:"STORE" help:"Store to copy into, which knows none of its pipelines. The other engine."`
	Table      []string `placeholder:"PATTERN" help:"Copy the tables of this name, or pattern with * and ?, alone, without offsets and dead letters; may be given again."`
	Resume     bool     `help:"Go on with a copy that was cut off."`
	Restart    bool     `help:"Give up a copy that was cut off, and begin anew; its tables must be dropped."`
	VerifyOnly bool     `help:"Copy nothing: compare both stores, tables, dead letters and offsets."`
	JSON       bool     `name:"json" help:"Print JSON: an object a comparison, and one of the copy."`
	Quiet      bool     `short:"q" help:"Show no progress."`
}

// copiedStore is what --json prints.
type copiedStore struct {
	From       string `json:"from"`
	To         string `json:"to"`
	Sequence   uint64 `json:"sequence"` // of the last commit that was copied
	Tables     int    `json:"tables"`
	Rows       int64  `json:"rows"` // with those of a command that was cut off
	Cells      int64  `json:"cells"`
	Letters    int64  `json:"letters"`
	Partitions int    `json:"partitions"`
	Schedules  int    `json:"schedules"`
}

// Run copies a store, or compares two.
func (c *copyCommand) Run(ctx context.Context, p *cli.Program) (err error) {
	if n := len(slices.DeleteFunc([]bool{c.Resume, c.Restart, c.VerifyOnly}, func(b bool) bool { return !b })); n > 1 {
		return fmt.Errorf("%w: --resume, --restart and --verify-only exclude each other", cli.ErrUsage)
	}
	from, err := storeAt("--from", c.From)
	if err != nil {
		return err
	}
	into, err := storeAt("--to", c.To)
	if err != nil {
		return err
	}
	if from.Store.Engine == "pebble" && into.Store.Engine == "pebble" {
		return fmt.Errorf("%w: from one data directory to another there are export backup and export restore, which take event ids and schedules along", cli.ErrUsage)
	}
	log := p.Warnings()
	open := config.MakeStore
	if c.VerifyOnly || c.Resume {
		open = config.OpenStore
	}
	to, remote, err := open(ctx, into, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	if remote {
		return fmt.Errorf("%w: a daemon has %s open: stop it until the copy is whole", store.ErrRefused, c.To)
	}
	if c.Restart {
		if err := tables.ForgetStoreCopy(ctx, to); err != nil {
			return err
		}
	}
	source, err := c.open(ctx, from, to, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	named, err := c.tables(ctx, source.Engine)
	if err != nil {
		return err
	}
	var bar *progress
	end := func() {
		if bar != nil {
			bar.end()
		}
	}
	o := &tables.CopyStoreOptions{
		Source: source, From: source.Engine, To: to, Tables: named, Checkpoint: source.Checkpoint, Resume: c.Resume,
		Step: func(tables.CopyStep, bool) {
			end()
			bar = newProgress(p, c.Quiet)
		},
		Progress: func(r work.Progress) { bar.report(r) },
		Compared: func(r *tables.Comparison) {
			end()
			bar = nil
			err = errors.Join(err, c.compared(p, r))
		},
	}
	if c.VerifyOnly {
		if verifyErr := tables.CompareStores(ctx, o); verifyErr != nil || err != nil {
			return errors.Join(verifyErr, err)
		}
		if !c.JSON {
			_, err = fmt.Fprintln(p.Stdout, "the stores are the same")
		}
		return err
	}
	n, copyErr := tables.CopyStore(ctx, o)
	end()
	if copyErr = errors.Join(copyErr, err); copyErr != nil {
		return c.cutOff(ctx, source, to, copyErr)
	}
	if c.JSON {
		return json.NewEncoder(p.Stdout).Encode(&copiedStore{
			From: c.From, To: c.To, Sequence: n.Sequence, Tables: n.Tables, Rows: n.Rows, Cells: n.Cells, Letters: n.Letters, Partitions: n.Partitions, Schedules: n.Schedules,
		})
	}
	_, err = fmt.Fprintf(p.Stdout, "%s %s is in %s, and the same: %d tables, %s rows, %s cells, %s dead letters, the offsets of %d partitions, the schedules of %d jobs\n",
		c.From, moment(n.Sequence, 0), c.To, n.Tables, cli.Count(n.Rows), cli.Count(n.Cells), cli.Count(n.Letters), n.Partitions, n.Schedules)
	return err
}

// open opens the instant to copy: that of the copy to go on with, or a new one.
func (c *copyCommand) open(ctx context.Context, from *config.Config, to config.Engine, log *slog.Logger) (*config.Instant, error) {
	from = from.ForScans()
	if !c.Resume {
		return config.OpenLastingInstant(ctx, from, log)
	}
	begun, err := tables.ReadStoreCopy(ctx, to)
	if err != nil {
		return nil, err
	}
	source, err := config.ReopenInstant(ctx, from, begun.Checkpoint, log)
	if errors.Is(err, api.ErrNotFound) {
		return nil, fmt.Errorf("resume: the instant is gone; drop the tables in %s and use --restart: %w", c.To, err)
	}
	return source, err
}

// tables returns those that the patterns name; nil = all.
func (c *copyCommand) tables(ctx context.Context, e config.Engine) (tables []string, err error) {
	if len(c.Table) == 0 {
		return nil, nil
	}
	all, err := e.Tables(ctx)
	if err != nil {
		return nil, err
	}
	for _, pattern := range c.Table {
		found := false
		for _, name := range all {
			ok, err := path.Match(pattern, name)
			if err != nil {
				return nil, fmt.Errorf("%w: --table %s: %w", cli.ErrUsage, pattern, err)
			}
			if ok {
				found = true
				tables = append(tables, name)
			}
		}
		if !found {
			return nil, fmt.Errorf("%w: --table %s; there are %s", store.ErrTableNotFound, pattern, strings.Join(all, ", "))
		}
	}
	return tables, nil
}

// compared prints a comparison: in whole as JSON, else where it found something.
func (c *copyCommand) compared(p *cli.Program, r *tables.Comparison) error {
	switch {
	case c.JSON:
		return writeJSON(p.Stdout, []*compared{comparedJSON(r)})
	case r.Equal():
		_, err := fmt.Fprintf(p.Stdout, "%s: %s rows are the same, in %d ranges\n", r.LeftTable, cli.Count(r.Same), len(r.Ranges))
		return err
	}
	return printComparison(p.Stdout, r)
}

// cutOff keeps the instant of a copy that can go on, and says how.
func (c *copyCommand) cutOff(ctx context.Context, source *config.Instant, to config.Engine, err error) error {
	left, leftErr := tables.ReadStoreCopy(context.WithoutCancel(ctx), to)
	if leftErr != nil || source.Checkpoint == "" || left.Checkpoint != source.Checkpoint || errors.Is(err, target.ErrBusy) || errors.Is(err, store.ErrRefused) && !passes(err) {
		return err
	}
	if errors.Is(err, store.ErrInvalidSchema) { // the instant has that schema for good
		return fmt.Errorf("%w; alter the table where it is copied from, drop what is copied and begin anew with export copy --restart", err)
	}
	source.Keep()
	return staysCopied(err, "export copy --resume")
}

// passes reports whether what a store has refused may be taken once somebody has altered, or
// enabled, a table: a copy can go on then.
func passes(err error) bool {
	return errors.As(err, new(*store.BatchError)) || errors.As(err, new(*store.PartialError)) || errors.Is(err, store.ErrTableNotEnabled)
}
