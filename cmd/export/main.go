// Command export runs the export jobs of a configuration file, lists their runs
// and verifies what they have published. While a daemon has the data directory it
// works on a checkpoint that the daemon makes for it, so that the load of an
// export stays out of the ingest process; otherwise it opens the directory itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
)

type commands struct {
	Run     runCommand         `cmd:"" help:"Run a job: a table at one instant, to files."`
	Plan    planCommand        `cmd:"" help:"Say what a run would do: regions, rows, bytes, files."`
	List    listCommand        `cmd:"" help:"List jobs and their published runs."`
	SQL     sqlCommand         `cmd:"" name:"sql" help:"Print code that reads a published run: DuckDB, Polars, pandas, Spark."`
	GC      gcCommand          `cmd:"" name:"gc" help:"Remove what killed exports have left, and runs beyond their retention."`
	History historyCommand     `cmd:"" help:"Show what the schedule of a job has done."`
	Pause   pauseCommand       `cmd:"" help:"Keep the daemon from running a job by its schedule."`
	Resume  resumeCommand      `cmd:"" help:"Let a paused schedule go on, with the first time from now."`
	Verify  verifyCommand      `cmd:"" help:"Recount and re-checksum a published run from its files alone."`
	Version cli.VersionCommand `cmd:"" help:"Show the version."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cli.Main(ctx, "export", "Tables to Parquet and Arrow files.", new(commands))
}

// jobSpec returns a job of the file; its error wraps cli.ErrUsage.
func jobSpec(cfg *config.Config, name string) (*jobs.Spec, error) {
	spec, ok := cfg.Jobs[name]
	if !ok {
		return nil, fmt.Errorf("%w: %s has no job %q; it has %s", cli.ErrUsage, cfg.File(), name, strings.Join(cfg.JobNames(), ", "))
	}
	return &spec, nil
}

type listCommand struct {
	cli.ConfigFlag
	Out string `placeholder:"DIR" help:"List the runs below DIR instead of the jobs' own directories."`
}

// Run lists the jobs of the file and the runs that they have published.
func (c *listCommand) Run(ctx context.Context, p *cli.Program) error {
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "JOB\tTABLE\tRUN\tTIME\tROWS\tFILES\tBYTES\tLATEST\tDIRECTORY\tNEXT")
	seen := map[string][]jobs.RunSummary{}
	for _, name := range cfg.JobNames() {
		out := cfg.Jobs[name].Out
		if c.Out != "" {
			out = c.Out
		}
		runs, ok := seen[out]
		if !ok {
			if runs, err = jobs.List(ctx, out); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			seen[out] = runs
		}
		next, err := nextTime(cfg, name)
		if err != nil {
			return err
		}
		found := false
		for i := range runs {
			r := &runs[i]
			if r.Job != name {
				continue
			}
			if found {
				next = ""
			}
			found = true
			if r.Err != nil {
				fmt.Fprintf(t, "%s\t\t%v\t\t\t\t\t\t%s\t%s\n", name, r.Err, filepath.Join(out, r.Dir), next)
				continue
			}
			latest := ""
			if r.Latest {
				latest = "yes"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", name, r.Table, r.RunID, r.LogicalTime.UTC().Format(time.RFC3339),
				cli.Count(r.Rows), r.Files, cli.Bytes(r.Bytes), latest, filepath.Join(out, r.Dir), next)
		}
		if !found {
			fmt.Fprintf(t, "%s\t%s\tnever\t\t\t\t\t\t%s\t%s\n", name, cfg.Jobs[name].Table, filepath.Join(out, name), next)
		}
	}
	return t.Flush()
}

// nextTime returns the next time of a job's schedule, in its zone, or nothing where
// it has none.
func nextTime(cfg *config.Config, name string) (string, error) {
	spec, err := jobSpec(cfg, name)
	if err != nil {
		return "", err
	}
	job, err := jobs.Compile(name, spec, nil)
	if err != nil {
		return "", err
	}
	s := job.Schedule()
	if s == nil {
		return "", nil
	}
	zone, err := time.LoadLocation(s.Spec().Zone)
	if err != nil {
		return "", err
	}
	for _, next := range s.Upcoming(time.Now(), 1) {
		return next.In(zone).Format(time.RFC3339), nil
	}
	return "", nil
}

type verifyCommand struct {
	Dir string `arg:"" help:"Directory of a run, of a job (its latest run), or a manifest."`
}

// Run verifies one run.
func (c *verifyCommand) Run(ctx context.Context, p *cli.Program) error {
	r, err := jobs.Verify(ctx, c.Dir)
	if err != nil {
		return err
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
