package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"sluice/cell"
	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/columnar"
	"sluice/jobs/target"
)

type planCommand struct {
	cli.ConfigFlag
	Job    string `arg:"" help:"Name of the job in the configuration file."`
	JSON   bool   `name:"json" help:"Print JSON: one object."`
	Sample int64  `default:"100000" help:"Rows of each region to read and encode; a region with more is extrapolated."`
}

// Run says what a run of a job would do, and writes nothing.
func (c *planCommand) Run(ctx context.Context, p *cli.Program) (err error) {
	if c.Sample < 1 {
		return fmt.Errorf("%w: --sample is %d, must be at least 1", cli.ErrUsage, c.Sample)
	}
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	spec, err := jobSpec(cfg, c.Job)
	if err != nil {
		return err
	}
	log := p.Warnings()
	source, err := config.OpenInstant(ctx, cfg.ForScans(), log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	schema, err := source.Table(ctx, spec.Table)
	if err != nil {
		return err
	}
	job, err := jobs.Compile(c.Job, spec, schema)
	if err != nil {
		return err
	}
	refused, err := checkColumns(ctx, p, cfg, job)
	if err != nil {
		return err
	}
	plan, err := jobs.Plan(ctx, &jobs.PlanOptions{Job: job, Source: source, SampleRows: c.Sample})
	if err != nil {
		return err
	}
	if c.JSON {
		out := planJSON(plan)
		if out.Iceberg = spec.Iceberg; spec.Out != "" {
			out.Directory = below(spec.Out, c.Job)
		}
		if refused != nil {
			out.Refused = refused.Error()
		}
		return errors.Join(writeJSON(p.Stdout, []any{out}), refused)
	}
	fmt.Fprintf(p.Stdout, "%s: table %s %s, %s; nothing was written\n", plan.Job, plan.Table, moment(plan.Sequence, plan.TimeBound), plannedParts(plan))
	fmt.Fprintf(p.Stdout, "  into %s\n", whereTo(spec, c.Job))
	if plan.TimeRange != nil {
		fmt.Fprintf(p.Stdout, "  cells with timestamps: %s\n", plan.TimeRange)
	}
	t := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	for i := range plan.Splits {
		s := &plan.Splits[i]
		planLine(t, fmt.Sprintf("[%q, %q)", s.Rows.Start, s.Rows.Stop), s.Basis, s.Count, s.Formats)
	}
	planLine(t, "all", plan.Basis, plan.Count, plan.Formats)
	if err := t.Flush(); err != nil {
		return err
	}
	if plan.Basis != jobs.Counted {
		if _, err := fmt.Fprintln(p.Stdout, notEstimated(plan)); err != nil {
			return err
		}
	}
	return refused
}

// whereTo says where a run of a job would go.
func whereTo(spec *jobs.Spec, job string) string {
	switch {
	case spec.Out == "":
		return "the directory that --out names: the job has no out"
	case spec.Iceberg:
		return below(spec.Out, job) + ", as a snapshot of the Iceberg table there"
	}
	return below(spec.Out, job)
}

// checkColumns returns why a run of a job would be refused for its columns, nil where it
// would not, or nothing was published yet.
func checkColumns(ctx context.Context, p *cli.Program, cfg *config.Config, job *jobs.Job) (refused, err error) {
	if job.Out() == "" || !job.ComparesColumns() {
		return nil, nil
	}
	t, err := cfg.OpenTarget(job.Out(), false, p.Warnings())
	if errors.Is(err, target.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	err = job.CheckColumns(ctx, t)
	if errors.As(err, new(*jobs.SchemaChangeError)) {
		return fmt.Errorf("a run of %s would be refused: %w", job.Name(), err), nil
	}
	return nil, err
}

// plannedParts says how many regions there are, and, where some are cut, into how many
// parts.
func plannedParts(p *jobs.RunPlan) string {
	if len(p.Splits) > p.Regions {
		return fmt.Sprintf("%d regions in %d parts", p.Regions, len(p.Splits))
	}
	return fmt.Sprintf("%d regions", p.Regions)
}

// notEstimated returns what is said of a plan that did not count every row.
func notEstimated(p *jobs.RunPlan) string {
	if p.TimeBound != 0 {
		return "HBase's gateway does not tell the sizes of regions: of those larger than the sample only that is counted; take a larger --sample, or export count"
	}
	return "what the store has in memory only is not in the estimates: flush in the shell writes it to files, or count with a larger --sample"
}

func planLine(t *tabwriter.Writer, name, basis string, rows int64, formats []jobs.FormatPlan) {
	fmt.Fprintf(t, "  %s\t%s %s rows", name, basis, cli.Count(rows))
	for _, f := range formats {
		if f.Files == 0 && f.Bytes > 0 { // of a region: the files are sorted over all of them
			fmt.Fprintf(t, "\t%s: %s", f.Format, cli.Bytes(f.Bytes))
			continue
		}
		fmt.Fprintf(t, "\t%s: %d files, %s", f.Format, f.Files, cli.Bytes(f.Bytes))
	}
	fmt.Fprintln(t)
}

// planned is a plan as --json prints it; keys of rows are escaped as HBase's shell
// does.
type planned struct {
	Job   string `json:"job"`
	Table string `json:"table"`
	// Directory is where the run would have its own, a path or s3://BUCKET/PREFIX/JOB; empty
	// where the job has no out.
	Directory string         `json:"directory,omitempty"`
	Iceberg   bool           `json:"iceberg,omitempty"` // it would be a snapshot of the table there
	Sequence  uint64         `json:"sequence"`
	Before    cell.Timestamp `json:"time_bound,omitempty"` // of timestamps, where the engine cannot freeze an instant
	// TimeRange is of the cells, as in a manifest.
	TimeRange *jobs.ReadTimes `json:"time_range,omitempty"`
	Basis     string          `json:"basis"` // counted, estimated, at least
	Rows      int64           `json:"rows"`
	Note      string          `json:"note,omitempty"`    // what estimates leave out
	Refused   string          `json:"refused,omitempty"` // why a run would be, by schema_changes
	Formats   []plannedFiles  `json:"formats"`
	Regions   []plannedSplit  `json:"regions"` // each, or the parts of a large one
}

type plannedSplit struct {
	Start   string         `json:"start_row"`
	Stop    string         `json:"stop_row"`
	Basis   string         `json:"basis"`
	Rows    int64          `json:"rows"`
	Formats []plannedFiles `json:"formats"`
}

type plannedFiles struct {
	Format string `json:"format"`
	Files  int    `json:"files"`
	Bytes  int64  `json:"bytes"`
}

func planJSON(p *jobs.RunPlan) *planned {
	files := func(all []jobs.FormatPlan) []plannedFiles {
		var out []plannedFiles
		for _, f := range all {
			out = append(out, plannedFiles(f))
		}
		return out
	}
	out := &planned{Job: p.Job, Table: p.Table, Sequence: p.Sequence, Before: p.TimeBound, TimeRange: p.TimeRange, Basis: p.Basis, Rows: p.Count, Formats: files(p.Formats)}
	if p.Basis != jobs.Counted {
		out.Note = notEstimated(p)
	}
	for i := range p.Splits {
		s := &p.Splits[i]
		out.Regions = append(out.Regions, plannedSplit{
			Start: columnar.EscapeKey(s.Rows.Start), Stop: columnar.EscapeKey(s.Rows.Stop), Basis: s.Basis, Rows: s.Count, Formats: files(s.Formats),
		})
	}
	return out
}
