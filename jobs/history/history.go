// Package history is what schedules remember, in the system table of jobs of a store: the
// state of each job's schedule, and what has become of its runs (schedule.Entry). It
// decides nothing: package schedule does.
package history

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"sluice/cell"
	"sluice/jobs/schedule"
	"sluice/store"
)

var _ schedule.Store = (*History)(nil)

// historyTTL is how long an entry of the history is kept: a year of nights and a
// month more, so that one can compare.
const historyTTL = 400 * 24 * time.Hour

// Columns of store.JobsTable.
const (
	stateColumn = "state" // in the row of a job's state: JSON of schedule.State
	entryColumn = "entry" // in a row of its history: JSON of schedule.Entry
)

// History keeps what schedules remember in store.JobsTable: for each job a row with
// its schedule.State, and one for each schedule.Entry, which a cell's TTL ends.
// docs/format/jobs.md has the layout. It is safe for concurrent use and borrows
// the engine, which one process has: Shared is for several.
type History struct {
	engine store.Engine
}

// New returns the history in an engine. Its error wraps
// store.ErrUnsupported where a batch is not atomic.
func New(e store.Engine) (*History, error) {
	if t := e.Traits(); t.Atomic != store.AtomicBatch {
		return nil, fmt.Errorf("%w: schedules on engine %s, whose batches are not atomic", store.ErrUnsupported, t.Name)
	}
	return &History{engine: e}, nil
}

// Load returns the state of a job's schedule, the zero State where there is none.
// Its error wraps store.ErrCorrupt where it cannot be read.
func (h *History) Load(ctx context.Context, job string) (schedule.State, error) {
	return State(ctx, h.engine, job)
}

// State returns the state of a job's schedule, whoever runs it, as History.Load
// does.
func State(ctx context.Context, r store.Reader, job string) (schedule.State, error) {
	var st schedule.State
	row, err := store.GetRow(ctx, r, store.JobsTable, stateRow(job))
	if row == nil {
		return st, err
	}
	value := []byte("{}")
	for _, c := range row.Cells {
		if string(c.Qualifier) == stateColumn {
			value = c.Value
		}
	}
	if err := json.Unmarshal(value, &st); err != nil {
		return st, fmt.Errorf("%w: schedule of job %s: %w", store.ErrCorrupt, job, err)
	}
	return st, nil
}

// Save replaces the state of a job's schedule and adds entries to its history, in
// one commit.
func (h *History) Save(ctx context.Context, job string, s schedule.State, entries []schedule.Entry) error {
	var b store.Batch
	if err := addJSON(&b, stateRow(job), stateColumn, cell.Latest, 0, s); err != nil {
		return err
	}
	for i := range entries {
		if err := addJSON(&b, entryRow(job, &entries[i]), entryColumn, cell.Latest, historyTTL, &entries[i]); err != nil {
			return err
		}
	}
	if err := h.engine.Apply(ctx, &b); err != nil {
		return fmt.Errorf("save the schedule of job %s: %w", job, err)
	}
	return nil
}

func addJSON(b *store.Batch, row []byte, column string, at cell.Timestamp, ttl time.Duration, v any) error {
	value, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode a %s: %w", column, err)
	}
	m := cell.Mutation{Table: store.JobsTable, Row: row}
	m.Put(store.JobsFamily, []byte(column), at, value)
	m.Ops[0].TTL = ttl.Milliseconds()
	b.Add(0, m)
	return nil
}

// History returns up to n entries of a job, the newest first.
func (h *History) History(ctx context.Context, job string, n int) ([]schedule.Entry, error) {
	return Entries(ctx, h.engine, job, n)
}

// Entries returns up to n entries of a job's history, the newest first.
func Entries(ctx context.Context, r store.Reader, job string, n int) ([]schedule.Entry, error) {
	if n <= 0 {
		return nil, nil
	}
	sc := r.Scan(ctx, &store.Scan{Table: store.JobsTable, Prefix: append(cell.AppendPart(nil, []byte(job)), 'h'), Limit: n})
	defer sc.Close()
	var all []schedule.Entry
	for sc.Next() {
		var e schedule.Entry
		if err := json.Unmarshal(sc.Row().Cells[0].Value, &e); err != nil {
			return nil, fmt.Errorf("%w: history of job %s: %w", store.ErrCorrupt, job, err)
		}
		all = append(all, e)
	}
	return all, sc.Err()
}

// stateRow is the job's name, escaped and terminated, and "s".
func stateRow(job string) []byte { return append(cell.AppendPart(nil, []byte(job)), 's') }

// entryRow is the job's name, escaped and terminated, "h", and, so that the newest
// comes first, the complements of the entry's end and logical time, each 8 bytes
// big-endian in ns since 1970, and the id of its order, if it is of one.
func entryRow(job string, e *schedule.Entry) []byte {
	row := append(cell.AppendPart(nil, []byte(job)), 'h')
	row = binary.BigEndian.AppendUint64(row, ^uint64(e.Ended.UnixNano()))
	row = binary.BigEndian.AppendUint64(row, ^uint64(e.Logical.UnixNano()))
	return append(row, e.Order...)
}
