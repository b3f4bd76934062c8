package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs/instant"
	"sluice/jobs/tables"
	"sluice/jobs/target"
	"sluice/serve/api"
	"sluice/store"
)

type copyTableCommand struct {
	cli.ConfigFlag
	Table string `arg:"" help:"Name of the table."`
	Into  string `arg:"" optional:"" help:"Name of the table that it is copied into, which is made where it is missing. Default: the same name, in --in."`
	In    string `placeholder:"DIR" help:"Data directory to copy into, or hbase://HOST:PORT[,HOST:PORT][?tls=true&framed=true&...], gateways of an HBase. Default: that of the file."`
	rowsFlags
	Family  []string `placeholder:"NAME" help:"Copy this family alone; may be given again."`
	Visible bool     `help:"Copy what a read can see, all versions. Default: delete markers and what they mask, too."`
	Resume  bool     `help:"Go on with a copy that was cut off."`
	Restart bool     `help:"Give up a copy that was cut off, and begin anew; the table must be empty again."`
	Verify  bool     `help:"Compare both tables afterwards."`
	JSON    bool     `name:"json" help:"Print JSON: one object; with --verify another of the comparison."`
	Quiet   bool     `short:"q" help:"Show no progress."`
}

// copied is what --json prints.
type copied struct {
	Table    string `json:"table"`
	Into     string `json:"into"`
	Sequence uint64 `json:"sequence"` // of the last commit that was copied
	Rows     int64  `json:"rows"`     // by this command
	Cells    int64  `json:"cells"`
}

// Run copies a table.
func (c *copyTableCommand) Run(ctx context.Context, p *cli.Program) (err error) {
	rows, err := c.rows()
	if err != nil {
		return err
	}
	switch {
	case c.Into == "" && c.In == "":
		return fmt.Errorf("%w: name a table to copy into, or a data directory with --in", cli.ErrUsage)
	case c.Resume && c.Restart:
		return fmt.Errorf("%w: --resume and --restart exclude each other", cli.ErrUsage)
	}
	if c.Into == "" {
		c.Into = c.Table
	}
	if c.In == "" && store.CanonicalName(c.Into) == store.CanonicalName(c.Table) {
		return fmt.Errorf("%w: %s into itself: name another table, or a data directory with --in", cli.ErrUsage, c.Table)
	}
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	log := p.Warnings()
	source, done, err := c.open(ctx, cfg, log)
	if done != nil {
		return c.complete(p, done)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	to := source.Engine
	if c.In != "" {
		in, badErr := storeAt("--in", c.In)
		if badErr != nil {
			return badErr
		}
		if to, _, err = config.MakeStore(ctx, in, log); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, to.Close()) }()
	}
	if c.Restart {
		if err := tables.ForgetCopy(ctx, to, c.Into); err != nil {
			return err
		}
	}
	if err := c.create(ctx, p, source, to); err != nil {
		return err
	}
	bar := newProgress(p, c.Quiet)
	n, err := tables.Copy(ctx, &tables.CopyOptions{
		Source: source, Table: c.Table, To: to, Into: c.Into, Rows: rows, Families: c.Family, Visible: c.Visible,
		Checkpoint: source.Checkpoint, Resume: c.Resume, Progress: bar.report,
	})
	bar.end()
	if err != nil {
		return c.cutOff(ctx, source, to, err)
	}
	if c.JSON {
		err = json.NewEncoder(p.Stdout).Encode(&copied{Table: c.Table, Into: c.Into, Sequence: n.Sequence, Rows: n.Rows, Cells: n.Cells})
	} else {
		left := ""
		if c.Resume {
			left = " were left to copy"
		}
		_, err = fmt.Fprintf(p.Stdout, "%s %s is in %s: %s rows, %s cells%s\n", c.Table, moment(n.Sequence, 0), c.Into, cli.Count(n.Rows), cli.Count(n.Cells), left)
	}
	if err != nil || !c.Verify {
		return err
	}
	return c.verify(ctx, p, source, to)
}

// open opens the instant to copy: that of the copy to go on with, or a new one. Where
// the copy is whole already it returns what is remembered of it.
func (c *copyTableCommand) open(ctx context.Context, cfg *config.Config, log *slog.Logger) (_ *config.Instant, done *tables.CopyState, err error) {
	cfg = cfg.ForScans()
	if !c.Resume {
		source, err := config.OpenLastingInstant(ctx, cfg, log)
		return source, nil, err
	}
	begun, done, err := c.begun(ctx, cfg, log)
	if err != nil || done != nil {
		return nil, done, err
	}
	source, err := config.ReopenInstant(ctx, cfg, begun.Checkpoint, log)
	if errors.Is(err, api.ErrNotFound) {
		return nil, nil, fmt.Errorf("resume the copy into %s: its instant is gone; truncate %s and use --restart: %w", c.Into, c.Into, err)
	}
	return source, nil, err
}

// begun returns what is remembered of the copy, or, where that is whole, of the one
// that is done.
func (c *copyTableCommand) begun(ctx context.Context, cfg *config.Config, log *slog.Logger) (begun, done *tables.CopyState, err error) {
	if c.In != "" {
		if cfg, err = storeAt("--in", c.In); err != nil {
			return nil, nil, err
		}
	}
	e, _, err := config.OpenStore(ctx, cfg, log)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	begun, err = tables.ReadCopy(ctx, e, c.Into)
	if !errors.Is(err, target.ErrNotFound) {
		return begun, nil, err
	}
	if done, doneErr := tables.ReadCopied(ctx, e, c.Into); doneErr == nil && done.Table == c.Table {
		if _, err := e.Table(ctx, c.Into); err != nil {
			return nil, nil, err // the copy is gone with it
		}
		return nil, done, nil
	}
	return nil, nil, err
}

// storeAt returns the configuration of the store that a flag names; its error wraps
// cli.ErrUsage.
func storeAt(flag, at string) (*config.Config, error) {
	c, err := config.ForStore(at)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", cli.ErrUsage, flag, err)
	}
	return c, nil
}

// complete says that there is nothing left to go on with.
func (c *copyTableCommand) complete(p *cli.Program, done *tables.CopyState) error {
	if c.Verify {
		return fmt.Errorf("%w: the copy of %s at commit %d into %s is already complete, and its instant is gone: compare the tables with verify-table", store.ErrRefused, done.Table, done.Sequence, c.Into)
	}
	if c.JSON {
		return json.NewEncoder(p.Stdout).Encode(&copied{Table: done.Table, Into: c.Into, Sequence: done.Sequence})
	}
	_, err := fmt.Fprintf(p.Stdout, "%s at commit %d is in %s: already complete, nothing was copied\n", done.Table, done.Sequence, c.Into)
	return err
}

// leaveRebuilds leaves out what an unfinished rebuild has counted so far, unless it was asked
// for: the rebuild counts the rest for the table alone that is copied, and would take what is
// in the copy for a part of its own.
func (c *copyTableCommand) leaveRebuilds(from *store.TableDescriptor) {
	if served := c.families(from); len(served) < len(from.Families) {
		c.Family = served
	}
}

// families returns the names of those that are copied.
func (c *copyTableCommand) families(from *store.TableDescriptor) []string {
	if len(c.Family) > 0 {
		return c.Family
	}
	return store.ServedFamilies(from, nil)
}

// create chooses the families to copy, and makes the table to copy into where it is missing:
// with the schema and the regions of the other. Of one that is there it says which families keep
// less than is copied.
func (c *copyTableCommand) create(ctx context.Context, p *cli.Program, source *config.Instant, to config.Engine) error {
	from, err := source.Table(ctx, c.Table)
	if err != nil {
		return err
	}
	c.leaveRebuilds(from)
	into, err := to.Table(ctx, c.Into)
	if err == nil {
		for _, less := range keepsLess(from, into, c.families(from)) {
			p.Note("export", "%s keeps less than %s: %s", c.Into, c.Table, less)
		}
	}
	if !errors.Is(err, store.ErrTableNotFound) {
		return err
	}
	regions, err := source.Regions(ctx, c.Table)
	if err != nil {
		return err
	}
	for _, f := range c.Family {
		if from.Family(f) == nil {
			return fmt.Errorf("%w: %s in table %s", store.ErrFamilyNotFound, f, c.Table)
		}
	}
	d := from.Clone()
	d.Name, d.ReadOnly = c.Into, false
	served := store.ServedFamilies(from, c.Family)
	d.Families = slices.DeleteFunc(d.Families, func(f store.FamilyDescriptor) bool { return !slices.Contains(served, f.Name) })
	return to.CreateTable(ctx, d, regions.Splits())
}

// keepsLess returns which of the families of a table lose versions or cells in another, into
// which they are copied, by what its schema keeps of them.
func keepsLess(from, into *store.TableDescriptor, families []string) (all []string) {
	for _, name := range families {
		f, t := from.Family(name), into.Family(name)
		if f == nil || t == nil {
			continue // which the copy refuses
		}
		if t.Versions < f.Versions {
			all = append(all, fmt.Sprintf("of family %s %d of %d VERSIONS", name, t.Versions, f.Versions))
		}
		if t.TTL < f.TTL {
			all = append(all, fmt.Sprintf("of family %s cells for %d s (TTL)", name, t.TTL))
		}
	}
	return all
}

// cutOff keeps the instant of a copy that can go on, and says how.
func (c *copyTableCommand) cutOff(ctx context.Context, source *config.Instant, to config.Engine, err error) error {
	left, leftErr := tables.ReadCopy(context.WithoutCancel(ctx), to, c.Into)
	if leftErr != nil || source.Checkpoint == "" || left.Checkpoint != source.Checkpoint || errors.Is(err, target.ErrBusy) {
		return err
	}
	if errors.Is(err, tables.ErrCopyLost) {
		return fmt.Errorf("%w: truncate %s and use --restart", err, c.Into)
	}
	source.Keep()
	return staysCopied(err, "export copy-table --resume")
}

// staysCopied adds to why a copy was cut off that it can go on. That somebody has cancelled
// it is why most are.
func staysCopied(err error, how string) error {
	const stays = "what is copied stays: go on with "
	if errors.Is(err, context.Canceled) {
		return &cli.Interrupted{Done: stays + how}
	}
	return fmt.Errorf("%w; %s%s", err, stays, how)
}

// verify compares what was copied with what it was copied of: the families that were, as INTO
// may have others.
func (c *copyTableCommand) verify(ctx context.Context, p *cli.Program, source *config.Instant, to config.Engine) (err error) {
	rows, err := c.rows()
	if err != nil {
		return err
	}
	now, err := c.now(ctx, p, to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, now.Close()) }()
	from, err := source.Table(ctx, c.Table)
	if err != nil {
		return err
	}
	families := c.families(from)
	raw := !c.Visible
	if counted := countedTogether(now, from, families); raw && len(counted) > 0 {
		raw = false
		p.Note("export", "%s is compared by what a read can see, without delete markers, as HBase reads the cells of COUNTER and DISTINCT families together (%s); verify-table --raw --family compares the markers of others",
			c.Into, strings.Join(counted, ", "))
	}
	r, err := tables.Compare(ctx, &tables.CompareOptions{
		Left: source, Right: now, LeftTable: c.Table, RightTable: c.Into, Rows: rows, Families: families, Raw: raw,
	})
	if err != nil {
		return err
	}
	return reportComparison(p, r, c.JSON)
}

// countedTogether returns those of the families of a table whose delete markers, and what
// these mask, cannot be read from s: of COUNTER and DISTINCT ones HBase has several cells in
// the place of one.
func countedTogether(s instant.Source, t *store.TableDescriptor, families []string) (counted []string) {
	if instant.UnfrozenOf(s) == nil {
		return nil
	}
	for _, name := range families {
		if f := t.Family(name); f != nil && f.InPlace() {
			counted = append(counted, name)
		}
	}
	return counted
}

// now returns the store that was copied into as it is now.
func (c *copyTableCommand) now(ctx context.Context, p *cli.Program, to config.Engine) (store.Snapshot, error) {
	if s, ok := to.(store.Snapshotter); ok {
		return s.Snapshot(ctx)
	}
	load := func() (*config.Config, error) { return storeAt("--in", c.In) }
	if c.In == "" {
		load = func() (*config.Config, error) { return c.Load(p) }
	}
	cfg, err := load()
	if err != nil {
		return nil, err
	}
	i, err := config.OpenInstant(ctx, cfg.ForScans(), nil)
	if err != nil {
		return nil, err // not a nil *Instant in a Snapshot
	}
	return i, nil
}
