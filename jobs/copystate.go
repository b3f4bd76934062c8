package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"sluice/cell"
	"sluice/jobs/target"
	"sluice/store"
)

// Columns of the row of a copy in store.JobsTable, which is the name of the table
// that is written, escaped and terminated, and "c". The cursors are one a part.
const (
	copyColumn   = "copy"    // JSON of CopyState
	ownerColumn  = "owner"   // who may go on with it
	cursorColumn = "cursor/" // and the number of the part: "r" and the last row that is whole, or "d": all are
)

// copyStateVersion is the only version of CopyState that this package reads.
const copyStateVersion = 1

// CopyState is what the store that is copied into remembers of a copy that was begun
// and has not ended.
type CopyState struct {
	Version    int      `json:"version"`
	Table      string   `json:"table"`      // that is copied
	Checkpoint string   `json:"checkpoint"` // that is read; empty = it cannot be found again
	Sequence   uint64   `json:"sequence"`   // of its last commit
	StartRow   string   `json:"start_row"`
	StopRow    string   `json:"stop_row"`
	Families   []string `json:"families"` // empty = all
	Visible    bool     `json:"visible"`
	Parts      []string `json:"parts"` // where the second and each later part begins; rows are escaped

	owner   string
	cursors map[int]string
}

func copyRow(into string) []byte { return append(cell.AppendPart(nil, []byte(into)), 'c') }

// ReadCopy returns what is remembered of a copy into a table that has not ended. Its
// error wraps target.ErrNotFound where there is none, and store.ErrCorrupt.
func ReadCopy(ctx context.Context, r store.Reader, into string) (*CopyState, error) {
	row := copyRow(into)
	sc := r.Scan(ctx, &store.Scan{Table: store.JobsTable, Start: row, Stop: row, StopInclusive: true})
	defer sc.Close()
	if !sc.Next() {
		if err := sc.Err(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w: no copy into %s was cut off", target.ErrNotFound, into)
	}
	s := &CopyState{cursors: map[int]string{}}
	for _, c := range sc.Row().Cells {
		name, value := string(c.Qualifier), string(c.Value)
		switch part, isCursor := strings.CutPrefix(name, cursorColumn); {
		case isCursor:
			n, err := strconv.Atoi(part)
			if err != nil || value == "" {
				return nil, fmt.Errorf("%w: the copy into %s has %s = %q", store.ErrCorrupt, into, name, value)
			}
			s.cursors[n] = value
		case name == ownerColumn:
			s.owner = value
		case name == copyColumn:
			d := json.NewDecoder(bytes.NewReader(c.Value))
			if err := d.Decode(s); err != nil {
				return nil, fmt.Errorf("%w: the copy into %s: %w", store.ErrCorrupt, into, err)
			}
		}
	}
	if s.Version != copyStateVersion || s.owner == "" {
		return nil, fmt.Errorf("%w: a copy into %s of version %d, this program knows %d", store.ErrUnsupported, into, s.Version, copyStateVersion)
	}
	return s, nil
}

// ForgetCopy forgets a copy that has not ended, whose process must not be at work any
// more: it cannot go on then. What it has copied stays.
func ForgetCopy(ctx context.Context, e store.Engine, into string) error {
	m := cell.Mutation{Table: store.JobsTable, Row: copyRow(into)}
	m.DeleteRow(cell.Latest)
	if _, err := e.MutateRow(ctx, nil, &m); err != nil {
		return fmt.Errorf("forget the copy into %s: %w", into, err)
	}
	return nil
}

// same says how the copy that s is of differs from another.
func (s *CopyState) same(o *CopyState) error {
	a, b := *s, *o
	a.Parts, b.Parts = nil, nil // regions may have been split since
	one, err := json.Marshal(&a)
	if err != nil {
		return err
	}
	other, err := json.Marshal(&b)
	if err != nil {
		return err
	}
	if !bytes.Equal(one, other) {
		return fmt.Errorf("%w: what was begun is %s, not %s", store.ErrInvalidArgument, one, other)
	}
	return nil
}
