package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs/columnar"
	"sluice/jobs/tables"
	"sluice/store"
)

type countCommand struct {
	cli.ConfigFlag
	Table string `arg:"" help:"Name of the table."`
	rowsFlags
	Family   []string `placeholder:"NAME" help:"Count the cells of this family alone; may be given again."`
	Versions *int     `placeholder:"N" help:"Versions of a column that count. Default: all that a read can see."`
	JSON     bool     `name:"json" help:"Print JSON: one object."`
	Quiet    bool     `short:"q" help:"Show no progress."`
}

// Run counts the rows and cells of a table, by region and family.
func (c *countCommand) Run(ctx context.Context, p *cli.Program) (err error) {
	rows, err := c.rows()
	if err != nil {
		return err
	}
	versions := store.AllVersions
	if c.Versions != nil {
		if versions = *c.Versions; versions < 1 {
			return fmt.Errorf("%w: --versions is %d, must be at least 1", cli.ErrUsage, versions)
		}
	}
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	log := p.Warnings()
	source, err := config.OpenInstant(ctx, cfg.ForScans(), log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	bar := newProgress(p, c.Quiet)
	n, err := tables.Count(ctx, &tables.CountOptions{
		Source: source, Table: c.Table, Rows: rows, Families: c.Family, Versions: versions, Progress: bar.report,
	})
	bar.end()
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(p.Stdout, []*counted{countJSON(n)})
	}
	return printCount(p.Stdout, n)
}

func printCount(w io.Writer, n *tables.TableCounts) error {
	fmt.Fprintf(w, "%s %s, %d regions\n", n.Table, moment(n.Sequence, 0), len(n.Regions))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := range n.Regions {
		r := &n.Regions[i]
		countLine(t, fmt.Sprintf("[%q, %q)", r.Rows.Start, r.Rows.Stop), &r.Counts)
	}
	for i := range n.Families {
		countLine(t, "family "+n.Families[i].Family, &n.Families[i].Counts)
	}
	countLine(t, "all", &n.Counts)
	return t.Flush()
}

func countLine(t *tabwriter.Writer, name string, n *tables.Counts) {
	fmt.Fprintf(t, "  %s\t%s rows\t%s cells\t%s\n", name, cli.Count(n.Rows), cli.Count(n.Cells), cli.Bytes(n.Bytes))
}

// counted is a count as --json prints it; keys of rows are escaped as HBase's shell
// does.
type counted struct {
	Table    string `json:"table"`
	Sequence uint64 `json:"sequence"`
	countedCells
	Families []countedFamily `json:"families"`
	Regions  []countedRegion `json:"regions"`
}

type countedCells struct {
	Rows  int64 `json:"rows"`
	Cells int64 `json:"cells"`
	Bytes int64 `json:"bytes"`
}

type countedFamily struct {
	Family string `json:"family"`
	countedCells
}

type countedRegion struct {
	Start string `json:"start_row"`
	Stop  string `json:"stop_row"`
	countedCells
	Stored   int64           `json:"stored_bytes"` // -1 = not known
	Families []countedFamily `json:"families"`
}

func countJSON(n *tables.TableCounts) *counted {
	families := func(all []tables.FamilyCounts) []countedFamily {
		out := make([]countedFamily, len(all))
		for i := range all {
			out[i] = countedFamily{Family: all[i].Family, countedCells: countedCells(all[i].Counts)}
		}
		return out
	}
	out := &counted{Table: n.Table, Sequence: n.Sequence, countedCells: countedCells(n.Counts), Families: families(n.Families), Regions: []countedRegion{}}
	for i := range n.Regions {
		r := &n.Regions[i]
		out.Regions = append(out.Regions, countedRegion{
			Start: columnar.EscapeKey(r.Rows.Start), Stop: columnar.EscapeKey(r.Rows.Stop), countedCells: countedCells(r.Counts),
			Stored: r.Stored, Families: families(r.Families),
		})
	}
	return out
}
