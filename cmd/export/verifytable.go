package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"sluice/cell"
	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs/columnar"
	"sluice/jobs/tables"
)

type verifyTableCommand struct {
	cli.ConfigFlag
	Table string `arg:"" help:"Name of the table."`
	Other string `arg:"" optional:"" help:"Name of the table to compare it with. Default: the same name, in --in."`
	In    string `placeholder:"DIR" help:"Data directory of the other table, or hbase://HOST:PORT[,HOST:PORT][?tls=true&framed=true&...], gateways of an HBase. Default: that of the file."`
	rowsFlags
	Family      []string `placeholder:"NAME" help:"Compare the cells of this family alone; may be given again."`
	Raw         bool     `help:"Compare delete markers, and what they mask, too."`
	Differences int      `default:"10" placeholder:"N" help:"How many rows that differ are named. Default: 10."`
	JSON        bool     `name:"json" help:"Print JSON: one object."`
	Quiet       bool     `short:"q" help:"Show no progress."`
}

// errTablesDiffer is the error of a comparison that found differences.
var errTablesDiffer = errors.New("the tables differ")

// Run compares two tables.
func (c *verifyTableCommand) Run(ctx context.Context, p *cli.Program) (err error) {
	rows, err := c.rows()
	if err != nil {
		return err
	}
	switch {
	case c.Other == "" && c.In == "":
		return fmt.Errorf("%w: name another table, or a data directory with --in", cli.ErrUsage)
	case c.Differences < 1:
		return fmt.Errorf("%w: --differences is %d, must be at least 1", cli.ErrUsage, c.Differences)
	}
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	log := p.Warnings()
	left, err := config.OpenInstant(ctx, cfg.ForScans(), log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, left.Close()) }()
	right := left
	if c.In != "" {
		other, badErr := storeAt("--in", c.In)
		if badErr != nil {
			return badErr
		}
		if right, err = config.OpenInstant(ctx, other.ForScans(), log); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, right.Close()) }()
	}
	bar := newProgress(p, c.Quiet)
	r, err := tables.Compare(ctx, &tables.CompareOptions{
		Left: left, Right: right, LeftTable: c.Table, RightTable: c.Other, Rows: rows, Families: c.Family, Raw: c.Raw,
		Differences: c.Differences, Progress: bar.report,
	})
	bar.end()
	if err != nil {
		return err
	}
	return reportComparison(p, r, c.JSON)
}

// reportComparison prints a comparison; its error is errTablesDiffer where they do.
func reportComparison(p *cli.Program, r *tables.Comparison, asJSON bool) (err error) {
	if asJSON {
		err = writeJSON(p.Stdout, []*compared{comparedJSON(r)})
	} else {
		err = printComparison(p.Stdout, r)
	}
	if err == nil && !r.Equal() {
		err = fmt.Errorf("%w: %s and %s, in %s rows", errTablesDiffer, r.LeftTable, r.RightTable, cli.Count(r.Different+r.OnlyLeft+r.OnlyRight))
	}
	return err
}

func printComparison(w io.Writer, r *tables.Comparison) error {
	fmt.Fprintf(w, "%s %s and %s %s\n", r.LeftTable, moment(r.LeftSequence, 0), r.RightTable, moment(r.RightSequence, 0))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := range r.Ranges {
		g := &r.Ranges[i]
		comparedLine(t, fmt.Sprintf("[%q, %q)", g.Rows.Start, g.Rows.Stop), &g.ComparedRows)
	}
	comparedLine(t, "all", &r.ComparedRows)
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range r.Differences {
		fmt.Fprintf(w, "  row %s\n", &r.Differences[i])
	}
	return nil
}

func comparedLine(t *tabwriter.Writer, name string, n *tables.ComparedRows) {
	fmt.Fprintf(t, "  %s\t%s rows are the same\t%s different\t%s only left\t%s only right\n",
		name, cli.Count(n.Same), cli.Count(n.Different), cli.Count(n.OnlyLeft), cli.Count(n.OnlyRight))
}

// compared is a comparison as --json prints it; keys of rows and qualifiers are
// escaped as HBase's shell does.
type compared struct {
	Left          string `json:"left"`
	Right         string `json:"right"`
	LeftSequence  uint64 `json:"left_sequence"`
	RightSequence uint64 `json:"right_sequence"`
	Equal         bool   `json:"equal"`
	comparedRows
	Ranges      []comparedRange      `json:"ranges"`
	Differences []comparedDifference `json:"differences"`
}

type comparedRows struct {
	Same      int64 `json:"same"`
	Different int64 `json:"different"`
	OnlyLeft  int64 `json:"only_left"`
	OnlyRight int64 `json:"only_right"`
}

type comparedRange struct {
	Start string `json:"start_row"`
	Stop  string `json:"stop_row"`
	comparedRows
	LeftSHA256  string `json:"left_sha256"`
	RightSHA256 string `json:"right_sha256"`
}

type comparedDifference struct {
	Row   string        `json:"row"`
	Left  *comparedCell `json:"left"` // null = no such cell
	Right *comparedCell `json:"right"`
}

type comparedCell struct {
	Family    string         `json:"family"`
	Qualifier string         `json:"qualifier"`
	Time      cell.Timestamp `json:"time"`
	Kind      string         `json:"kind"`
	Value     string         `json:"value"` // the first 100 bytes, escaped as keys are
}

func comparedJSON(r *tables.Comparison) *compared {
	out := &compared{
		Left: r.LeftTable, Right: r.RightTable, LeftSequence: r.LeftSequence, RightSequence: r.RightSequence, Equal: r.Equal(),
		comparedRows: comparedRows(r.ComparedRows), Ranges: []comparedRange{}, Differences: []comparedDifference{},
	}
	for i := range r.Ranges {
		g := &r.Ranges[i]
		out.Ranges = append(out.Ranges, comparedRange{
			Start: columnar.EscapeKey(g.Rows.Start), Stop: columnar.EscapeKey(g.Rows.Stop), comparedRows: comparedRows(g.ComparedRows),
			LeftSHA256: g.LeftSHA256, RightSHA256: g.RightSHA256,
		})
	}
	one := func(c *cell.Cell) *comparedCell {
		if c == nil {
			return nil
		}
		return &comparedCell{Family: c.Family, Qualifier: columnar.EscapeKey(c.Qualifier), Time: c.Time, Kind: c.Kind.String(), Value: columnar.EscapeKey(c.Value)}
	}
	for i := range r.Differences {
		d := &r.Differences[i]
		out.Differences = append(out.Differences, comparedDifference{Row: columnar.EscapeKey(d.Row), Left: one(d.Left), Right: one(d.Right)})
	}
	return out
}
