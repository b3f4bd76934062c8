package tables

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/target"
	"sluice/store"
)

// CopyStep is a part of a store that one Copy copies into the table of the same name.
type CopyStep struct {
	Table    string   `json:"table"`
	Families []string `json:"families"`
	Visible  bool     `json:"visible"`
	StartRow string   `json:"start_row"` // escaped; empty = the first
	StopRow  string   `json:"stop_row"`
}

// String says what is copied.
func (s CopyStep) String() string {
	switch {
	case s.Table == store.OutboxTable:
		return "dead letters"
	case s.Visible:
		return s.Table + ", counters"
	}
	return s.Table
}

func (s *CopyStep) rows() (r cell.Range, err error) {
	if r.Start, err = columnar.UnescapeKey(s.StartRow); err == nil {
		r.Stop, err = columnar.UnescapeKey(s.StopRow)
	}
	if err != nil {
		err = fmt.Errorf("%w: the copy of the store: %w", store.ErrCorrupt, err)
	}
	return r, err
}

// is reports whether a copy is that of s.
func (s *CopyStep) is(c *CopyState) bool {
	return c.Table == s.Table && c.StartRow == s.StartRow && c.StopRow == s.StopRow && c.Visible == s.Visible && slices.Equal(c.Families, slices.Sorted(slices.Values(s.Families)))
}

// storeCopyVersion is the only version of StoreCopyState that this package reads.
const storeCopyVersion = 1

// StoreCopyState is what a store remembers of a whole store that is copied into it.
type StoreCopyState struct {
	Version    int        `json:"version"`
	ID         string     `json:"id"`         // of the copy, random
	Checkpoint string     `json:"checkpoint"` // that is read; empty = it cannot be found again
	Sequence   uint64     `json:"sequence"`   // of its last commit
	Mark       string     `json:"mark"`       // of a source that cannot freeze: it stands still as long as that is the same
	Whole      bool       `json:"whole"`      // all tables, with offsets and dead letters
	Tables     []string   `json:"tables"`
	Steps      []CopyStep `json:"steps"`
	Done       int        `json:"done"` // of the steps

	owner string
}

// storeCopyRow is that of no table's copy: a table has a name.
func storeCopyRow() []byte { return append(cell.AppendPart(nil, nil), 'm') }

// ReadStoreCopy returns what is remembered of a copy of a whole store into r that has
// not ended. As long as it has not, no pipeline must begin there. Its error wraps
// target.ErrNotFound where there is none, store.ErrCorrupt and store.ErrUnsupported.
func ReadStoreCopy(ctx context.Context, r store.Reader) (*StoreCopyState, error) {
	cells, err := jobsRow(ctx, r, storeCopyRow())
	if err != nil {
		return nil, err
	}
	var text, owner, done string
	for _, c := range cells {
		switch string(c.Qualifier) {
		case copyColumn:
			text = string(c.Value)
		case ownerColumn:
			owner = string(c.Value)
		case doneColumn:
			done = string(c.Value)
		}
	}
	if text == "" || text == noCopy {
		err := fmt.Errorf("%w: no copy of a store was cut off here", target.ErrNotFound)
		if done != "" && done != noCopy { // killed after its end, it may not have said so
			err = fmt.Errorf("%w: the last has ended, and --verify-only compares both", err)
		}
		return nil, err
	}
	s := &StoreCopyState{}
	if err := json.Unmarshal([]byte(text), s); err != nil {
		return nil, fmt.Errorf("%w: the copy of a store: %w", store.ErrCorrupt, err)
	}
	if s.Version != storeCopyVersion || owner == "" || s.Done < 0 || s.Done > len(s.Steps) {
		return nil, fmt.Errorf("%w: a copy of a store of version %d, this program knows %d", store.ErrUnsupported, s.Version, storeCopyVersion)
	}
	s.owner = owner
	return s, nil
}

// ForgetStoreCopy forgets a copy of a store that has not ended, whose process must not
// be at work any more, so that another can begin. What it has copied stays; its tables
// must be dropped before.
func ForgetStoreCopy(ctx context.Context, e store.Engine) error {
	s, err := ReadStoreCopy(ctx, e)
	if errors.Is(err, target.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, step := range s.Steps {
		if err := ForgetCopy(ctx, e, step.Table); err != nil {
			return err
		}
	}
	m := cell.Mutation{Table: store.JobsTable, Row: storeCopyRow()}
	m.Put(store.JobsFamily, []byte(copyColumn), cell.Latest, []byte(noCopy))
	r, err := e.MutateRow(ctx, ownedBy(s.owner), &m)
	if err == nil && !r.Applied {
		err = fmt.Errorf("%w: another process goes on with it", target.ErrBusy)
	}
	if err != nil {
		return fmt.Errorf("forget the copy of a store: %w", err)
	}
	return nil
}

// begin writes that the copy has begun, or takes it over.
func (c *storeCopy) begin(ctx context.Context) error {
	if c.Resume {
		return c.takeOver(ctx)
	}
	if err := c.vacant(ctx); err != nil {
		return err
	}
	c.state.owner = rand.Text()
	text, err := json.Marshal(c.state)
	if err != nil {
		return err
	}
	m := cell.Mutation{Table: store.JobsTable, Row: storeCopyRow()}
	m.Put(store.JobsFamily, []byte(copyColumn), cell.Latest, text)
	m.Put(store.JobsFamily, []byte(ownerColumn), cell.Latest, []byte(c.state.owner))
	m.Put(store.JobsFamily, []byte(doneColumn), cell.Latest, []byte(noCopy))
	for _, before := range [][]byte{nil, []byte(noCopy)} {
		r, err := c.To.MutateRow(ctx, &store.Cond{Family: store.JobsFamily, Qualifier: []byte(copyColumn), Op: store.Equal, Value: before}, &m)
		if err != nil {
			return err
		}
		if r.Applied {
			return nil
		}
	}
	return fmt.Errorf("%w: a copy of a store into this one was begun and has not ended: go on with it (--resume), or give it up and begin anew (--restart), for which its tables must be dropped", store.ErrRefused)
}

// takeOver makes this the only call that goes on with the copy.
func (c *storeCopy) takeOver(ctx context.Context) error {
	begun, err := ReadStoreCopy(ctx, c.To)
	if err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	switch {
	case begun.Checkpoint == "":
		return fmt.Errorf("resume: %w: the instant has no name", store.ErrUnsupported)
	case begun.Checkpoint != c.Checkpoint || begun.Sequence != c.state.Sequence || begun.Whole != c.state.Whole ||
		!begun.Whole && !slices.Equal(begun.Tables, c.state.Tables):
		return fmt.Errorf("resume: %w: what was begun is of checkpoint %s at %d, tables %v", store.ErrInvalidArgument, begun.Checkpoint, begun.Sequence, begun.Tables)
	case begun.Mark != c.state.Mark:
		return fmt.Errorf("resume: %w: pipelines have written to the store since the copy was begun; stop them, drop the tables of the copy, and begin anew", store.ErrRefused)
	}
	owner := rand.Text()
	m := cell.Mutation{Table: store.JobsTable, Row: storeCopyRow()}
	m.Put(store.JobsFamily, []byte(ownerColumn), cell.Latest, []byte(owner))
	r, err := c.To.MutateRow(ctx, ownedBy(begun.owner), &m)
	if err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	if !r.Applied {
		return fmt.Errorf("resume: %w: another process goes on with it", target.ErrBusy)
	}
	c.state = begun
	c.state.owner = owner
	return nil
}
