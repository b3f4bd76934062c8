package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/target"
)

type verifyCommand struct {
	Dir    string `arg:"" help:"Directory of a run, of a job (its latest run), of a backup, of backups (the latest one), or a manifest; or s3://BUCKET/PREFIX of one of these."`
	Config string `short:"c" placeholder:"FILE" help:"Configuration file; for a bucket."`
	JSON   bool   `name:"json" help:"Print JSON: one object."`
}

// verified is what a verification has found.
type verified struct {
	Job       string         `json:"job,omitempty"` // of a run
	RunID     string         `json:"run_id,omitempty"`
	BackupID  string         `json:"backup_id,omitempty"`
	Directory string         `json:"directory"`
	OK        bool           `json:"ok"`
	Problems  []string       `json:"problems"` // of the run as a whole
	Files     []verifiedFile `json:"files"`
}

type verifiedFile struct {
	Path     string   `json:"path"`
	Rows     int64    `json:"rows"`
	Bytes    int64    `json:"bytes"`
	Problems []string `json:"problems"`
}

// Run verifies one run or backup.
func (c *verifyCommand) Run(ctx context.Context, p *cli.Program) error {
	b, err := c.verifyBackup(ctx, p)
	if err == nil {
		out := verified{BackupID: b.Manifest.BackupID, Directory: b.Dir, OK: b.OK(), Problems: append([]string{}, b.Problems...)}
		return c.print(p, &out, b.Files, b.Err(), fmt.Sprintf("backup %s of store %s", b.Manifest.BackupID, b.Manifest.StoreID))
	}
	if !errors.Is(err, target.ErrNotFound) {
		return err
	}
	r, err := c.verify(ctx, p)
	if err != nil {
		return err
	}
	out := verified{Job: r.Manifest.Job, RunID: r.Manifest.RunID, Directory: r.Dir, OK: r.OK(), Problems: append([]string{}, r.Problems...)}
	return c.print(p, &out, r.Files, r.Err(), fmt.Sprintf("run %s of %s", r.Manifest.RunID, r.Manifest.Job))
}

// print says what was found of what, file by file; problems is the error of all of
// it, or nil.
func (c *verifyCommand) print(p *cli.Program, out *verified, files []jobs.FileReport, problems error, what string) error {
	if c.JSON {
		for _, f := range files {
			out.Files = append(out.Files, verifiedFile{Path: f.Path, Rows: f.Rows, Bytes: f.Bytes, Problems: append([]string{}, f.Problems...)})
		}
		if err := writeJSON(p.Stdout, []*verified{out}); err != nil {
			return err
		}
		return problems
	}
	t := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	for _, f := range files {
		verdict := "ok"
		if len(f.Problems) > 0 {
			verdict = strings.Join(f.Problems, "; ")
		}
		rows := ""
		if out.BackupID == "" {
			rows = cli.Count(f.Rows) + " rows\t"
		}
		fmt.Fprintf(t, "%s\t%s%s\t%s\n", f.Path, rows, cli.Bytes(f.Bytes), verdict)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if problems != nil {
		return fmt.Errorf("%s: %w", out.Directory, problems)
	}
	_, err := fmt.Fprintf(p.Stdout, "%s: complete and as the manifest says\n", what)
	return err
}

// verifyBackup verifies a backup; its error wraps target.ErrNotFound where there is
// none.
func (c *verifyCommand) verifyBackup(ctx context.Context, p *cli.Program) (r *jobs.BackupReport, err error) {
	if !config.InBucket(c.Dir) {
		return jobs.VerifyBackup(ctx, c.Dir)
	}
	t, err := openTarget(p, c.Config, c.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	if r, err = jobs.VerifyBackupTarget(ctx, t); err == nil {
		r.Dir = below(c.Dir, r.Dir)
	}
	return r, err
}

func (c *verifyCommand) verify(ctx context.Context, p *cli.Program) (r *jobs.Report, err error) {
	if !config.InBucket(c.Dir) {
		return jobs.Verify(ctx, c.Dir)
	}
	t, err := openTarget(p, c.Config, c.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	if r, err = jobs.VerifyTarget(ctx, t); err == nil {
		r.Dir = below(c.Dir, r.Dir)
	}
	return r, err
}
