package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
)

type importCommand struct {
	cli.ConfigFlag
	From    string    `arg:"" name:"run" help:"Directory of a run, or of a job (its latest run); or s3://BUCKET/PREFIX of one of these. With --as, a file of others or a directory of such."`
	Into    string    `arg:"" name:"table" help:"Name of the table, which must be there with the families."`
	In      string    `placeholder:"DIR" help:"Data directory of the table. Default: that of the file."`
	Format  string    `enum:"parquet,arrow,any" default:"any" help:"Files to read: parquet, arrow. Default: the first of the run's formats; with --as, both."`
	As      string    `placeholder:"JOB" help:"Import files of others: their columns go where those of this job come from."`
	Row     []string  `placeholder:"COLUMN" help:"With --as: a column of the row key, NAME or NAME:CODING; may be given again for the next part."`
	Between string    `placeholder:"TEXT" help:"With --row: what stands between the parts of the row key."`
	Time    time.Time `placeholder:"TIME" help:"With --as: the time of the cells, where no column is from $timestamp."`
	JSON    bool      `name:"json" help:"Print JSON: one object."`
	Quiet   bool      `short:"q" help:"Show no progress."`
}

// imported is what --json prints. Job and RunID are empty for files of others.
type imported struct {
	Job   string `json:"job,omitempty"`
	RunID string `json:"run_id,omitempty"`
	Into  string `json:"into"`
	Rows  int64  `json:"rows"` // of the files
	Cells int64  `json:"cells"`
}

// Run imports a published run, or files of others.
func (c *importCommand) Run(ctx context.Context, p *cli.Program) (err error) {
	if c.As == "" && (len(c.Row) > 0 || c.Between != "" || !c.Time.IsZero()) {
		return fmt.Errorf("%w: --row, --between and --time are of files of others: name the job that says what their columns are with --as", cli.ErrUsage)
	}
	if c.Between != "" && len(c.Row) < 2 {
		return fmt.Errorf("%w: --between stands between the parts of the row key: name two or more by --row", cli.ErrUsage)
	}
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	spec := &jobs.Spec{}
	dir, files := c.From, []string(nil)
	if c.As != "" {
		if spec, err = jobSpec(cfg, c.As); err != nil {
			return err
		}
		info, err := os.Stat(dir)
		local := err == nil && !config.InBucket(dir)
		switch ext := path.Ext(dir); {
		case local && info.IsDir(): // some programs, such as Spark, name theirs like a file
		case ext == ".parquet" || ext == ".arrow":
			dir, files = splitFile(dir)
		case local:
			return fmt.Errorf("%w: %s ends in neither .parquet nor .arrow, which says what a file is", cli.ErrUsage, dir)
		}
	}
	from, err := cfg.OpenTarget(dir, false, p.Warnings())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	if c.In != "" {
		cfg = config.ForDirectory(c.In)
	}
	log := p.Warnings()
	to, _, err := config.OpenStore(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	format := c.Format
	if format == "any" {
		format = ""
	}
	bar := newProgress(p, c.Quiet)
	var done *jobs.Imported
	if c.As != "" {
		done, err = jobs.ImportFiles(ctx, &jobs.ImportFilesOptions{
			From: from, Files: files, Format: format, Columns: spec.Columns, Rows: spec.Rows, RowKey: spec.RowKey, Key: c.Row, Between: c.Between, Time: c.Time, To: to, Into: c.Into, Progress: bar.report,
		})
	} else {
		done, err = jobs.Import(ctx, &jobs.ImportOptions{From: from, To: to, Into: c.Into, Format: format, Progress: bar.report})
	}
	bar.end()
	if err != nil {
		return err
	}
	if c.As != "" {
		if c.JSON {
			return json.NewEncoder(p.Stdout).Encode(&imported{Into: c.Into, Rows: done.Rows, Cells: done.Cells})
		}
		_, err = fmt.Fprintf(p.Stdout, "%s is in %s: %s rows, %s cells\n", c.From, c.Into, cli.Count(done.Rows), cli.Count(done.Cells))
		return err
	}
	m := done.Manifest
	if c.JSON {
		return json.NewEncoder(p.Stdout).Encode(&imported{Job: m.Job, RunID: m.RunID, Into: c.Into, Rows: done.Rows, Cells: done.Cells})
	}
	_, err = fmt.Fprintf(p.Stdout, "run %s of %s is in %s: %s rows, %s cells\n", m.RunID, m.Job, c.Into, cli.Count(done.Rows), cli.Count(done.Cells))
	return err
}

// splitFile returns the directory, or what stands for one in a bucket, of a file, and
// its name there.
func splitFile(name string) (dir string, files []string) {
	if at := strings.LastIndexByte(name, '/'); config.InBucket(name) {
		return name[:at], []string{name[at+1:]}
	}
	return filepath.Dir(name), []string{filepath.Base(name)}
}
