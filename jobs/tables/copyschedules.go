package tables

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"sluice/jobs/history"
	"sluice/jobs/schedule"
	"sluice/store"
)

// planSchedules looks which schedules there are to copy, and refuses what would be lost.
func (c *storeCopy) planSchedules(ctx context.Context) error {
	c.schedules = map[string]*history.Kept{}
	return history.Each(ctx, c.Source, func(job string, s *history.Kept) error {
		for _, w := range s.Asked.Wishes {
			if w.N > s.Answered {
				return fmt.Errorf("%w: somebody has asked for something of the schedule of job %s (%s) that no daemon has done yet; start one until it has", store.ErrRefused, job, w.For)
			}
		}
		c.schedules[job] = s
		return nil
	}, nil)
}

// vacantSchedules refuses a To whose schedules have gone on further than those that are
// copied, or go on.
func (c *storeCopy) vacantSchedules(ctx context.Context) error {
	return history.Each(ctx, c.To, func(job string, there *history.Kept) error {
		from, ours := c.schedules[job]
		if ours && there.Decided.After(from.Decided) {
			return fmt.Errorf("%w: the store that is copied into has decided about runs of job %s until %s, and the one that is copied until %s: copy into an empty store",
				store.ErrRefused, job, there.Decided, from.Decided)
		}
		return nil
	}, nil)
}

// copySchedules writes what is remembered of schedules, so that the times that were
// decided about are not decided about again, and those after them are. It may be
// repeated.
func (c *storeCopy) copySchedules(ctx context.Context) error {
	if err := c.note(ctx); err != nil { // it still owns the copy
		return err
	}
	states := map[string]schedule.State{}
	for job, kept := range c.schedules {
		s := kept.State
		s.Answered = 0 // wishes are counted anew there, see planSchedules
		states[job] = s
	}
	if err := history.Copy(ctx, c.Source, c.To, states); err != nil {
		return err
	}
	c.done.Schedules = len(c.schedules)
	return c.sameSchedules(ctx)
}

// sameSchedules compares what the schedules of both have decided.
func (c *storeCopy) sameSchedules(ctx context.Context) error {
	left := map[string]bool{}
	for job := range c.schedules {
		left[job] = true
	}
	err := history.Each(ctx, c.To, func(job string, there *history.Kept) error {
		from := c.schedules[job]
		if from == nil {
			return nil
		}
		one, other := from.State, there.State
		one.Answered, other.Answered = 0, 0
		a, err := json.Marshal(one)
		if err != nil {
			return err
		}
		b, err := json.Marshal(other)
		if err == nil && bytes.Equal(a, b) {
			delete(left, job)
		}
		return err
	}, nil)
	if err != nil {
		return err
	}
	var differ []string
	for job := range left {
		differ = append(differ, job)
	}
	if len(differ) > 0 {
		slices.Sort(differ)
		return fmt.Errorf("%w: %w in the schedules of jobs %v", store.ErrRefused, ErrStoresDiffer, differ)
	}
	return nil
}
