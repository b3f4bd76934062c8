package jobs

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"sluice/jobs/target"
)

// RunSummary is one published run in a List.
type RunSummary struct {
	Job         string
	RunID       string
	Dir         string // below the listed directory
	LogicalTime time.Time
	FinishedAt  time.Time
	Table       string // of a join: what was joined
	Sequence    uint64
	Rows        int64
	Files       int
	Bytes       int64
	Formats     []string
	Latest      bool // the job's _latest.json names it
	Iceberg     bool // it was made a snapshot of the job's Iceberg table
	// Base is the directory, below the listed one, of the run that an increment
	// goes on from; empty = it is full.
	Base string
	// Err says why the run's manifest cannot be read; then only Job and Dir
	// are set besides.
	Err error
}

// List returns the published runs below the local directory out, by job and
// logical time, the newest first. Its error wraps target.ErrNotFound where there
// is no such directory.
func List(ctx context.Context, out string) ([]RunSummary, error) {
	t, err := target.OpenLocal(out)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	return ListTarget(ctx, t)
}

// ListTarget is List of any target.
func ListTarget(ctx context.Context, t target.Target) ([]RunSummary, error) {
	jobs, err := t.List(ctx, ".")
	if err != nil {
		return nil, err
	}
	var runs []RunSummary
	for _, job := range jobs {
		if !job.Dir || !jobName.MatchString(job.Name) {
			continue
		}
		of, err := listJob(ctx, t, job.Name)
		if err != nil {
			return nil, err
		}
		runs = append(runs, of...)
	}
	slices.SortStableFunc(runs, func(a, b RunSummary) int { return strings.Compare(a.Job, b.Job) })
	return runs, nil
}

// listJob returns the published runs of a job, the newest first.
func listJob(ctx context.Context, t target.Target, job string) ([]RunSummary, error) {
	dirs, err := t.List(ctx, job)
	if err != nil {
		return nil, err
	}
	latest := ""
	if l, err := readLatest(ctx, t, job); err == nil {
		latest = path.Join(job, path.Dir(l.Manifest))
	} else if !errors.Is(err, target.ErrNotFound) && !errors.Is(err, ErrManifest) {
		return nil, err
	}
	var runs []RunSummary
	for _, d := range dirs {
		if !d.Dir || !strings.HasPrefix(d.Name, "run=") {
			continue
		}
		s, err := summarize(ctx, t, job, path.Join(job, d.Name))
		if err != nil {
			return nil, err
		}
		s.Latest = s.Dir == latest
		runs = append(runs, s)
	}
	slices.SortStableFunc(runs, func(a, b RunSummary) int { return b.LogicalTime.Compare(a.LogicalTime) })
	return runs, nil
}

func summarize(ctx context.Context, t target.Target, job, dir string) (RunSummary, error) {
	s := RunSummary{Job: job, Dir: dir}
	m, _, err := readManifest(ctx, t, path.Join(dir, ManifestName))
	if ctx.Err() != nil {
		return s, ctx.Err()
	}
	if err != nil {
		s.Err = err
		return s, nil
	}
	if m.increment() {
		s.Base = path.Join(job, m.Incremental.Base)
	}
	s.Iceberg = m.Iceberg
	s.RunID, s.LogicalTime, s.FinishedAt, s.Table, s.Sequence = m.RunID, m.LogicalTime, m.FinishedAt, m.Table, m.Sequence
	if m.Join != nil {
		s.Table = m.Join.Left.Job + " " + m.Join.Kind + " join " + m.Join.Right.Job
	}
	for _, total := range m.Totals {
		s.Rows = total.Rows
		s.Files += total.Files
		s.Bytes += total.Bytes
		s.Formats = append(s.Formats, total.Format)
	}
	return s, nil
}

// readManifest reads the manifest at name and returns its bytes as well.
func readManifest(ctx context.Context, t target.Target, name string) (*Manifest, []byte, error) {
	data, err := target.ReadFile(ctx, t, name, maxManifestBytes)
	if err != nil {
		return nil, nil, err
	}
	m, err := DecodeManifest(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, data, nil
}
