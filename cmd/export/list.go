package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/target"
	"sluice/serve/api"
)

type listCommand struct {
	cli.ConfigFlag
	Out  string `placeholder:"DIR" help:"List the runs below DIR instead of the jobs' own directories."`
	Next int    `short:"n" default:"1" help:"How many of the next times of each schedule to show."`
	JSON bool   `name:"json" help:"Print JSON: an object a line."`
}

// listed is one line of a list: a published run, one that was cut off, or a job that
// has neither.
type listed struct {
	Job       string     `json:"job"`
	Table     string     `json:"table,omitempty"` // of a join: what was joined
	State     string     `json:"state"`           // published, cut off, at work, unreadable, never, ordered, publishes nothing
	RunID     string     `json:"run_id,omitempty"`
	Time      *time.Time `json:"logical_time,omitempty"`
	Sequence  uint64     `json:"sequence,omitempty"`
	Rows      int64      `json:"rows"`
	Files     int        `json:"files"`
	Bytes     int64      `json:"bytes"`
	Latest    bool       `json:"latest"`
	Directory string     `json:"directory"`
	Next      string     `json:"next,omitempty"`     // of the schedule, on a job's first line
	Upcoming  []string   `json:"upcoming,omitempty"` // that and those after it, as many as were asked for
	Paused    bool       `json:"paused,omitempty"`   // the schedule, on a job's first line, which has no next then
	Error     string     `json:"error,omitempty"`
	Order     *api.Order `json:"order,omitempty"` // of a line that is ordered; its time is the next run's
}

// Run lists the jobs, joins and backups of the file and their runs, and when it is tidied up.
func (c *listCommand) Run(ctx context.Context, p *cli.Program) error {
	if c.Next < 1 || c.Next > maxUpcoming {
		return fmt.Errorf("%w: --next is %d, must be from 1 to %d", cli.ErrUsage, c.Next, maxUpcoming)
	}
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	var all []listed
	var errs []error
	outs := map[string]*directory{}
	states, err := scheduleStates(ctx, p, cfg)
	if err != nil {
		p.Note("export", "what schedules have begun, orders, and what is paused are not known: %v", err)
	}
	for _, name := range cfg.DeclaredNames() {
		declared, _ := cfg.Declared(name)
		out, table, backup, at, none := declared.Out, declared.Table, "", name, "never"
		switch {
		case (declared.Kind == config.KindBackup || declared.Kind == config.KindGC) && c.Out != "":
			continue // it has runs of jobs and joins
		case declared.Kind == config.KindBackup:
			backup, at = name, "" // a place of its own
		case declared.Kind == config.KindGC:
			at, none = "", "publishes nothing"
		case c.Out != "":
			out = c.Out
		}
		if outs[out] == nil {
			outs[out] = readDirectory(ctx, p, cfg, out, backup)
			if ctx.Err() != nil {
				return outs[out].err
			}
			errs = append(errs, outs[out].err)
			if outs[out].missing && c.Out != "" {
				return noDirectory(out)
			}
		}
		lines := append(ordered(states[name].Orders, name, table, below(out, at)), outs[out].of(name, table, out)...)
		if len(lines) == 0 {
			lines = []listed{{Job: name, Table: table, State: none, Directory: below(out, at)}}
		}
		times, err := upcoming(cfg, name, states[name].Decided, c.Next)
		if err != nil {
			return err
		}
		if states[name].Paused {
			lines[0].Paused, times = true, nil // nothing comes until export resume
		}
		if len(times) > 0 {
			lines[0].Next = times[0]
		}
		if c.Next > 1 {
			lines[0].Upcoming = times
		}
		all = append(all, lines...)
	}
	if c.JSON {
		return errors.Join(append(errs, writeJSON(p.Stdout, all))...)
	}
	return errors.Join(append(errs, printList(p.Stdout, all))...)
}

// directory is the runs in one directory.
type directory struct {
	runs       []jobs.RunSummary
	unfinished []jobs.Unfinished
	backups    bool  // of a backup
	missing    bool  // it is not there
	err        error // why it cannot be read
}

// readDirectory reads a directory, which may not be there yet, or a bucket: the place of
// this backup, or, without a name, of runs.
func readDirectory(ctx context.Context, p *cli.Program, cfg *config.Config, out, backup string) *directory {
	d := &directory{backups: backup != ""}
	if out == "" {
		return d
	}
	t, err := cfg.OpenTarget(out, false, p.Warnings())
	if errors.Is(err, target.ErrNotFound) {
		d.missing = true
		return d
	}
	if err != nil {
		d.err = err
		return d
	}
	if d.backups {
		if d.runs, err = jobs.ListBackups(ctx, t, backup); err == nil {
			d.unfinished, err = jobs.ListUnfinishedBackups(ctx, t, backup)
		}
	} else if d.runs, err = jobs.ListTarget(ctx, t); err == nil {
		d.unfinished, err = jobs.ListUnfinishedTarget(ctx, t)
	}
	d.err = errors.Join(err, t.Close())
	return d
}

// of returns the lines of one job, those of runs that were cut off first.
func (d *directory) of(job, table, out string) []listed {
	var lines []listed
	if d.err != nil {
		lines = append(lines, listed{Job: job, Table: table, State: "unreadable", Directory: below(out, job), Error: d.err.Error()})
	}
	for i := range d.unfinished {
		u := &d.unfinished[i]
		if u.Job != job {
			continue
		}
		state := "cut off"
		if u.Busy {
			state = "at work"
		}
		at := below(out, "_tmp", u.RunID)
		switch {
		case d.backups && config.InBucket(out):
			at = out // nobody sees it yet
		case d.backups:
			at = below(out, "_tmp", "backup-"+u.RunID)
		case config.InBucket(out):
			at = below(out, job) // nobody sees it yet
		}
		lines = append(lines, listed{
			Job: job, Table: table, State: state, RunID: u.RunID, Time: &u.LogicalTime, Sequence: u.Sequence, Files: u.Files, Bytes: u.Bytes,
			Directory: at,
		})
	}
	for i := range d.runs {
		r := &d.runs[i]
		if r.Job != job {
			continue
		}
		l := listed{Job: job, Table: r.Table, State: "published", RunID: r.RunID, Sequence: r.Sequence, Rows: r.Rows, Files: r.Files, Bytes: r.Bytes, Latest: r.Latest, Directory: below(out, filepath.FromSlash(r.Dir))}
		if r.Err != nil {
			l.State, l.Error = "unreadable", r.Err.Error()
		} else {
			l.Time = &r.LogicalTime
		}
		lines = append(lines, l)
	}
	return lines
}

func printList(w io.Writer, all []listed) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "JOB\tTABLE\tRUN\tTIME\tROWS\tFILES\tBYTES\tLATEST\tDIRECTORY\tNEXT")
	for i := range all {
		l := &all[i]
		at, run, latest, next := "", l.RunID, "", l.Next
		if l.Paused {
			next = "paused"
		}
		if l.Time != nil {
			at = l.Time.UTC().Format(time.RFC3339)
		}
		switch l.State {
		case "never", "publishes nothing":
			run = l.State
		case "unreadable":
			run = l.Error
		case "ordered":
			fmt.Fprintf(t, "%s\t%s\torder %s (%s, %d of %d ended)\t%s\t\t\t\t\t%s\t%s\n", l.Job, l.Table, l.Order.ID, l.Order.Cause, l.Order.Ended, l.Order.Times, at, l.Directory, next)
			continue
		case "cut off", "at work":
			run += " (" + l.State + ")"
		}
		if l.Latest {
			latest = "yes"
		}
		rows := cli.Count(l.Rows)
		if l.State != "published" {
			rows = "" // not known
		}
		if at == "" {
			fmt.Fprintf(t, "%s\t%s\t%s\t\t\t\t\t\t%s\t%s\n", l.Job, l.Table, run, l.Directory, next)
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", l.Job, l.Table, run, at, rows, l.Files, cli.Bytes(l.Bytes), latest, l.Directory, next)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range all {
		if l := &all[i]; len(l.Upcoming) > 0 {
			fmt.Fprintf(w, "\n%s runs next for\n  %s\n", l.Job, strings.Join(l.Upcoming, "\n  "))
		}
	}
	return nil
}

// writeJSON writes one object a line.
func writeJSON[T any](w io.Writer, all []T) error {
	out := json.NewEncoder(w)
	for i := range all {
		if err := out.Encode(all[i]); err != nil {
			return err
		}
	}
	return nil
}

// maxUpcoming bounds the times of a schedule that are listed: a day of minutes.
const maxUpcoming = 1440

// upcoming returns the next n times of a job's schedule after decided, in its zone, or
// nothing where it has none.
func upcoming(cfg *config.Config, name string, decided time.Time, n int) (times []string, err error) {
	all, err := cfg.Schedules()
	if err != nil {
		return nil, err
	}
	s := all[name]
	if s == nil {
		return nil, nil
	}
	zone, err := time.LoadLocation(s.Spec().Zone)
	if err != nil {
		return nil, err
	}
	for _, at := range s.Upcoming(time.Now(), decided, n) {
		times = append(times, at.In(zone).Format(time.RFC3339))
	}
	return times, nil
}
