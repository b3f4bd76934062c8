package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/schedule"
	"sluice/store"
)

// entriesPerBatch is how many entries of histories are copied at a time.
const entriesPerBatch = 500

// Each calls state for each job that r remembers a schedule of, and entry, if it is not
// nil, for each cell of its history. What they get is valid until they return. Its error
// wraps store.ErrCorrupt for what cannot be read.
func Each(ctx context.Context, r store.Reader, state func(job string, k *Kept) error, entry func(row []byte, c *cell.Cell) error) (err error) {
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
				k := new(Kept)
				if err := json.Unmarshal(c.Value, k); err != nil {
					return fmt.Errorf("%w: schedule of job %s: %w", store.ErrCorrupt, job, err)
				}
				err = state(string(job), k)
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

// Copy copies the whole history in from into another store, and then writes the states,
// by job, as the engine of to keeps them. It may be repeated. Its error wraps
// store.ErrRefused where another process changes a schedule there.
func Copy(ctx context.Context, from store.Reader, to store.Engine, states map[string]schedule.State) error {
	shared := NewShared(to, nil)
	var b store.Batch
	flush := func(least int) error {
		if len(b.Mutations) < least {
			return nil
		}
		err := to.Apply(ctx, &b)
		b = store.Batch{}
		return err
	}
	err := Each(ctx, from, func(job string, k *Kept) error {
		// Of the newest decision, which may not be in the history yet.
		return shared.write(ctx, job, k.Entries)
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
	for job, s := range states {
		if err := shared.put(ctx, job, s); err != nil {
			return fmt.Errorf("copy the schedule of job %s: %w", job, err)
		}
	}
	return nil
}

// put replaces the state of a schedule that nobody holds, as the engine keeps it.
func (h *Shared) put(ctx context.Context, job string, s schedule.State) error {
	if h.engine.Traits().Atomic == store.AtomicBatch {
		var b store.Batch
		if err := addJSON(&b, stateRow(job), stateColumn, cell.Latest, 0, s); err != nil {
			return err
		}
		return h.engine.Apply(ctx, &b)
	}
	old, err := h.read(ctx, job)
	if err != nil {
		return err
	}
	_, ok, err := h.swap(ctx, job, old, Kept{State: s})
	if err == nil && !ok {
		err = fmt.Errorf("%w: another process has changed it there", store.ErrRefused)
	}
	return err
}
