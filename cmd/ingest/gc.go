package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"sluice/jobs"
	"sluice/jobs/history"
	"sluice/jobs/schedule"
	"sluice/jobs/target"
)

// runGC makes one attempt of a scheduled garbage collection, of all places of jobs and joins,
// as export gc does. A place that fails keeps none of the others from it. What an attempt
// before has removed the next one does not find: it may end anywhere and be made again.
func (d *daemon) runGC(ctx context.Context, r schedule.Request) (out schedule.Outcome, err error) {
	outs := d.cfg.KeepByOut("")
	var errs []error
	for _, place := range slices.Sorted(maps.Keys(outs)) {
		if err := r.Confirm(ctx); err != nil {
			return out, errors.Join(append(errs, err)...)
		}
		freed, err := d.collect(ctx, place, outs[place])
		out.Bytes += freed
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", place, err))
		}
	}
	return out, errors.Join(errs...)
}

// collect tidies up one place, unless nothing was ever published there, and returns the
// bytes of what it has removed.
func (d *daemon) collect(ctx context.Context, place string, keep map[string]jobs.Keep) (freed int64, err error) {
	t, err := d.cfg.OpenTarget(place, false, d.log)
	if errors.Is(err, target.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	found, err := jobs.Collect(ctx, &jobs.CollectOptions{Target: t, Keep: keep, Awaited: d.awaitedRuns, Logger: d.log})
	for i := range found {
		if g := &found[i]; !g.Stays && g.Err == nil {
			freed += g.Bytes
		}
	}
	return freed, err
}

// awaitedRuns returns the runs that schedules have begun and will go on with, as they are
// stored: on HBase also those of other daemons.
func (d *daemon) awaitedRuns(ctx context.Context) (map[string][]time.Time, error) {
	all, err := d.cfg.Schedules()
	if err != nil {
		return nil, err
	}
	states := make(map[string]schedule.State, len(all))
	for name := range all {
		if states[name], err = history.State(ctx, d.engine, name); err != nil {
			return nil, err
		}
	}
	return schedule.Awaited(states), nil
}
