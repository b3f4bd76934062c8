package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/target"
	"sluice/store"
)

type backupCommand struct {
	cli.ConfigFlag
	Out   string `arg:"" name:"dir" help:"Directory of backups, which has one more afterwards; or s3://BUCKET/PREFIX."`
	JSON  bool   `name:"json" help:"Print JSON: the manifest of the backup."`
	Quiet bool   `short:"q" help:"Show no progress."`

	Resume bool `help:"Go on with the newest backup of this store that was cut off: what it has copied of files that are as they were is not copied again."`

	KeepRuns int           `placeholder:"N" help:"Afterwards remove all but the newest N backups of this store, and what killed ones have left."`
	KeepAge  time.Duration `placeholder:"D" help:"Afterwards remove backups that are older, such as 720h; with --keep-runs, those that both let go."`
}

// Run copies the store at one instant, and removes the backups beyond retention.
func (c *backupCommand) Run(ctx context.Context, p *cli.Program) (err error) {
	keep := jobs.Keep{Runs: c.KeepRuns, Age: c.KeepAge}
	if keep.Runs < 0 || keep.Age < 0 {
		return fmt.Errorf("%w: --keep-runs and --keep-age must not be negative", cli.ErrUsage)
	}
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	log := p.Warnings()
	t, err := cfg.OpenTarget(c.Out, true, p.Warnings())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	source, err := config.OpenBackup(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	bar := newProgress(p, c.Quiet)
	m, err := jobs.Backup(ctx, &jobs.BackupOptions{
		Source: source, Target: t, Resume: c.Resume, Engine: cfg.Store.Engine, Version: cli.Version().Version, Logger: log, Progress: bar.report,
	})
	bar.end()
	if c.Resume && errors.Is(err, target.ErrNotFound) {
		var finishErr error
		if m, finishErr = jobs.FinishPublishedBackup(ctx, t, source.StoreID()); finishErr == nil {
			p.Note("export", "backup %s was published before it was cut off: nothing was left to do but to point to it", m.BackupID)
			err = nil
		} else if !errors.Is(finishErr, target.ErrNotFound) {
			err = finishErr
		}
	}
	if err != nil {
		return err
	}
	if keep != (jobs.Keep{}) {
		// The backup is there, whatever becomes of the older ones.
		defer func() { err = errors.Join(err, c.collect(ctx, p, t, keep)) }()
	}
	if c.JSON {
		data, err := m.Encode()
		if err != nil {
			return err
		}
		_, err = p.Stdout.Write(data)
		return err
	}
	fmt.Fprintf(p.Stdout, "backup %s of store %s at commit %d, %.2f s\n", m.BackupID, m.StoreID, m.Sequence, m.FinishedAt.Sub(m.StartedAt).Seconds())
	w := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "  %d files\t%s\n", len(m.Files), cli.Bytes(m.Bytes))
	printOffsets(w, m.Offsets)
	fmt.Fprintf(w, "  in\t%s\n", below(c.Out, m.Dir()))
	return w.Flush()
}

// collect removes the backups beyond retention and says so.
func (c *backupCommand) collect(ctx context.Context, p *cli.Program, t target.Target, keep jobs.Keep) error {
	found, err := jobs.CollectBackups(ctx, &jobs.CollectBackupsOptions{Target: t, Keep: keep, Logger: p.Warnings()})
	if c.JSON {
		return err
	}
	for i := range found {
		g, what := &found[i], "removed"
		switch {
		case g.Stays:
			what = "kept"
		case g.Err != nil:
			what = "not removed"
		}
		fmt.Fprintf(p.Stdout, "  %s %s: %s\n", what, g.Name, g.Reason)
	}
	return err
}

// printOffsets says to which records data is complete. Of a backup, all has what rebuilds
// of counters have read, too.
func printOffsets(w io.Writer, all []jobs.Offset) {
	for _, o := range all {
		if from := (store.Source{Pipeline: o.Pipeline}); !from.OfPipeline() {
			continue
		}
		fmt.Fprintf(w, "  complete to\t%s/%d\toffset %d\t(pipeline %s)\n", o.Topic, o.Partition, o.Next, o.Pipeline)
	}
}

type restoreCommand struct {
	From   string `arg:"" help:"Directory of a backup, or of several, of which the latest is taken; or s3://BUCKET/PREFIX."`
	Dir    string `arg:"" help:"Data directory to make; it must not exist."`
	Config string `short:"c" placeholder:"FILE" help:"Configuration file; for a bucket, and for its store.min_free."`
	JSON   bool   `name:"json" help:"Print JSON: one object."`
	Quiet  bool   `short:"q" help:"Show no progress."`
}

// restored is what --json prints.
type restored struct {
	BackupID  string        `json:"backup_id"`
	StoreID   string        `json:"store_id"` // of the new store
	Directory string        `json:"directory"`
	Sequence  uint64        `json:"sequence"`
	Offsets   []jobs.Offset `json:"offsets"`
	Bytes     int64         `json:"bytes"`
}

// Run makes a data directory of a backup.
func (c *restoreCommand) Run(ctx context.Context, p *cli.Program) (err error) {
	var cfg *config.Config
	if c.Config != "" {
		if cfg, err = config.Load(c.Config, p.LookupEnv); err != nil {
			return err
		}
	}
	t, err := openTarget(p, c.Config, c.From)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	log := p.Warnings()
	bar := newProgress(p, c.Quiet)
	r, err := jobs.Restore(ctx, &jobs.RestoreOptions{
		Backup: t, Dir: c.Dir, Logger: log, Progress: bar.report,
		Open: func(dir string) (jobs.RestoredStore, error) { return config.OpenRestored(dir, cfg, log) },
	})
	bar.end()
	if err != nil {
		return err
	}
	m := r.Manifest
	if c.JSON {
		return json.NewEncoder(p.Stdout).Encode(&restored{
			BackupID: m.BackupID, StoreID: r.StoreID, Directory: c.Dir, Sequence: m.Sequence, Offsets: m.Offsets, Bytes: m.Bytes,
		})
	}
	fmt.Fprintf(p.Stdout, "%s is store %s: backup %s, commit %d, %s\n", c.Dir, r.StoreID, m.BackupID, m.Sequence, cli.Bytes(m.Bytes))
	w := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	printOffsets(w, m.Offsets)
	return w.Flush()
}

// openTarget opens a directory, or a bucket, whose keys are in the configuration
// file.
func openTarget(p *cli.Program, file, at string) (target.Target, error) {
	if !config.InBucket(at) {
		return config.Default().OpenTarget(at, false, p.Warnings())
	}
	if file == "" {
		return nil, fmt.Errorf("%w: the keys of a bucket are in the configuration file: -c FILE", cli.ErrUsage)
	}
	cfg, err := config.Load(file, p.LookupEnv)
	if err != nil {
		return nil, err
	}
	return cfg.OpenTarget(at, false, p.Warnings())
}
