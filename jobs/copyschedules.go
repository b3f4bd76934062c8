package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/schedule"
	"sluice/store"
)

// entriesPerBatch is how many entries of histories are copied at a time.
const entriesPerBatch = 500

// readSchedules calls state for each job that r remembers a schedule of, and entry, if it
// is not nil, for each cell of its history. What they get is valid until they return.
func readSchedules(ctx context.Context, r store.Reader, state func(job string, s *sharedState) error, entry func(row []byte, c *cell.Cell) error) (err error) {
	sc := r.Scan(ctx, &store.Scan{Table: store.JobsTable})
	defer func() { err = errors.Join(err, sc.Close()) }()
	for sc.Next() {
		row := sc.Row()
		job, kind, _, err := cell.DecodePart(row.Key, nil)
		if err != nil {
			return fmt.Errorf("%w: row %s of %s: %w", store.ErrCorrupt, columnar.EscapeKey(row.Key), store.JobsTable, err)
		}
		for i := range row.Cells {
			c := &row.Cells[i]
			switch {
			case string(kind) == "s" && string(c.Qualifier) == stateColumn:
				s := new(sharedState)
				if err := json.Unmarshal(c.Value, s); err != nil {
					return fmt.Errorf("%w: schedule of job %s: %w", store.ErrCorrupt, job, err)
				}
				err = state(string(job), s)
			case entry != nil && len(kind) > 0 && kind[0] == 'h' && string(c.Qualifier) == entryColumn:
				err = entry(row.Key, c)
			}
			if err != nil {
				return err
			}
		}
	}
	return sc.Err()
}

// planSchedules looks which schedules there are to copy, and refuses what would be lost.
func (c *storeCopy) planSchedules(ctx context.Context) error {
	c.schedules = map[string]*sharedState{}
	return readSchedules(ctx, c.Source, func(job string, s *sharedState) error {
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
	return readSchedules(ctx, c.To, func(job string, there *sharedState) error {
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
	shared := NewSharedHistory(c.To, nil)
	var b store.Batch
	flush := func(least int) error {
		if len(b.Mutations) < least {
			return nil
		}
		err := c.To.Apply(ctx, &b)
		b = store.Batch{}
		return err
	}
	err := readSchedules(ctx, c.Source, func(job string, s *sharedState) error {
		// Of the newest decision, which may not be in the history yet.
		return shared.write(ctx, job, s.Entries)
	}, func(row []byte, entry *cell.Cell) error {
		var e schedule.Entry
		if err := json.Unmarshal(entry.Value, &e); err != nil {
			return fmt.Errorf("%w: history, row %s: %w", store.ErrCorrupt, columnar.EscapeKey(row), err)
		}
		m := cell.Mutation{Table: store.JobsTable, Row: bytes.Clone(row)}
		// The time of its end: it expires as it would have.
		m.Put(store.JobsFamily, []byte(entryColumn), cell.Timestamp(e.Ended.UnixMilli()), bytes.Clone(entry.Value))
		m.Ops[0].TTL = historyTTL.Milliseconds()
		b.Add(-1, m)
		return flush(entriesPerBatch)
	})
	if err == nil {
		err = flush(1)
	}
	if err != nil {
		return fmt.Errorf("copy the history of schedules: %w", err)
	}
	for job := range c.schedules {
		if err := c.copyState(ctx, shared, job); err != nil {
			return fmt.Errorf("copy the schedule of job %s: %w", job, err)
		}
	}
	c.done.Schedules = len(c.schedules)
	return c.sameSchedules(ctx)
}

// copyState writes the state of a schedule, as the engine of To keeps it.
func (c *storeCopy) copyState(ctx context.Context, shared *SharedHistory, job string) error {
	s := c.schedules[job].State
	s.Answered = 0 // wishes are counted anew there, see planSchedules
	if c.To.Traits().Atomic == store.AtomicBatch {
		var b store.Batch
		if err := addJSON(&b, stateRow(job), stateColumn, cell.Latest, 0, s); err != nil {
			return err
		}
		return c.To.Apply(ctx, &b)
	}
	old, err := shared.read(ctx, job)
	if err != nil {
		return err
	}
	_, ok, err := shared.swap(ctx, job, old, sharedState{State: s})
	if err == nil && !ok {
		err = fmt.Errorf("%w: another process has changed it there", store.ErrRefused)
	}
	return err
}

// sameSchedules compares what the schedules of both have decided.
func (c *storeCopy) sameSchedules(ctx context.Context) error {
	left := map[string]bool{}
	for job := range c.schedules {
		left[job] = true
	}
	err := readSchedules(ctx, c.To, func(job string, there *sharedState) error {
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
