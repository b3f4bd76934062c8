package history

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/jobs/schedule"
	"sluice/store"
)

// CheckEntry returns an error, which wraps store.ErrInvalidArgument, for what is no
// entry of a run that somebody has made by hand.
func CheckEntry(e *schedule.Entry) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: an entry of a run by hand: "+format, append([]any{store.ErrInvalidArgument}, args...)...)
	}
	switch {
	case e.Cause != schedule.Manual && e.Cause != schedule.Backfill:
		return bad("its cause is %q, must be %s or %s", e.Cause, schedule.Manual, schedule.Backfill)
	case e.Result != schedule.OK && e.Result != schedule.Published && e.Result != schedule.Failed && e.Result != schedule.Cancelled:
		return bad("its result is %q, must be %s, %s, %s or %s", e.Result, schedule.OK, schedule.Published, schedule.Failed, schedule.Cancelled)
	case e.Count != 1:
		return bad("it is about %d runs, must be about 1", e.Count)
	case e.Order != "":
		return bad("it belongs to order %q, and orders are the daemon's", e.Order)
	case e.Logical.IsZero() || e.Ended.Before(time.Unix(0, 0)):
		return bad("it has no time")
	}
	for _, at := range []time.Time{e.Logical, e.Started, e.Ended} {
		if err := schedule.CheckLogical(at); err != nil {
			return bad("%w", err)
		}
	}
	return nil
}

// Record adds the entry of a run that somebody has made by hand to the history of its
// job and counts it, unless the history has it. e is the engine itself, not a daemon's.
// Where several processes share the store and another one holds the schedule, word is
// left there for that, and Record returns true. Its error wraps
// store.ErrInvalidArgument for what CheckEntry refuses.
func Record(ctx context.Context, e store.Engine, job string, entry schedule.Entry) (left bool, err error) {
	if err := CheckEntry(&entry); err != nil {
		return false, err
	}
	if e.Traits().Atomic == store.AtomicBatch {
		h, err := New(e)
		if err != nil {
			return false, err
		}
		st, err := h.Load(ctx, job)
		if err != nil {
			return false, err
		}
		return false, addRecord(ctx, e, h, job, st, entry)
	}
	h := NewShared(e, nil)
	c, err := h.Take(ctx, job)
	if err != nil {
		return false, err
	}
	if c.Held {
		err := addRecord(ctx, e, h, job, c.State, entry)
		if err := errors.Join(err, h.Release(ctx, job)); !errors.Is(err, schedule.ErrLost) {
			return false, err
		}
	}
	if there, err := Recorded(ctx, e, job, &entry); there || err != nil {
		return false, err
	}
	_, err = h.Ask(ctx, job, schedule.Wish{For: schedule.WishRecord, Entry: &entry})
	return true, err
}

// addRecord adds an entry to the history and to the state, which nobody else changes.
func addRecord(ctx context.Context, r store.Reader, h schedule.Store, job string, st schedule.State, entry schedule.Entry) error {
	if there, err := Recorded(ctx, r, job, &entry); there || err != nil {
		return err
	}
	st.Add(&entry)
	return h.Save(ctx, job, st, []schedule.Entry{entry})
}

// Recorded reports whether a job's history has an entry of the same run and end, or had
// it: what ended before all that is kept is not told of again.
func Recorded(ctx context.Context, r store.Reader, job string, e *schedule.Entry) (bool, error) {
	if time.Since(e.Ended) > historyTTL {
		return true, nil
	}
	row, err := store.GetRow(ctx, r, store.JobsTable, entryRow(job, e))
	return row != nil, err
}
