package tables

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice/cell"
	"sluice/jobs/target"
	"sluice/store"
)

// Columns of the row of a copy in store.JobsTable, which is the name of the table
// that is written, escaped and terminated, and "c". A copy that has ended leaves
// noCopy behind: a delete marker would hide what the next one writes within the same
// millisecond, and for longer where the clock is set back.
const (
	copyColumn   = "copy"    // JSON of CopyState, or noCopy
	ownerColumn  = "owner"   // who may go on with it, or noCopy
	doneColumn   = "done"    // JSON of the CopyState of the last one, where it is whole, or noCopy
	cursorColumn = "cursor/" // and the copy's id, "/" and the number of the part: "r" and the last row that is whole, or "d": all are

	noCopy = "-"
)

// copyStateVersion is the only version of CopyState that this package reads.
const copyStateVersion = 1

// CopyState is what the store that is copied into remembers of a copy that was begun
// and has not ended.
type CopyState struct {
	Version    int      `json:"version"`
	ID         string   `json:"id"`         // of the copy, random
	Table      string   `json:"table"`      // that is copied
	Checkpoint string   `json:"checkpoint"` // that is read; empty = it cannot be found again
	Sequence   uint64   `json:"sequence"`   // of its last commit
	StartRow   string   `json:"start_row"`
	StopRow    string   `json:"stop_row"`
	Families   []string `json:"families"` // empty = all
	Visible    bool     `json:"visible"`
	// Incarnation is, of a source that is Unfrozen, what the table was when the copy
	// began (Unfrozen.Incarnation), and Read the families that it had, or of them Families.
	Incarnation string   `json:"incarnation,omitempty"`
	Read        []string `json:"read,omitempty"`
	Parts       []string `json:"parts"` // where the second and each later part begins; rows are escaped

	owner   string
	cursors map[int]string
}

func copyRow(into string) []byte { return append(cell.AppendPart(nil, []byte(into)), 'c') }

// ReadCopy returns what is remembered of a copy into a table that has not ended. Its
// error wraps target.ErrNotFound where there is none, and store.ErrCorrupt.
func ReadCopy(ctx context.Context, r store.Reader, into string) (*CopyState, error) {
	return readCopy(ctx, r, into, copyColumn)
}

// ReadCopied returns what is remembered of the last copy into a table where that is
// whole. What has become of the table since it does not tell. Its error wraps
// target.ErrNotFound where there is none, and store.ErrCorrupt.
func ReadCopied(ctx context.Context, r store.Reader, into string) (*CopyState, error) {
	return readCopy(ctx, r, into, doneColumn)
}

// jobsRow returns the cells of a row of the table of jobs; none = there is no such row.
func jobsRow(ctx context.Context, r store.Reader, key []byte) ([]cell.Cell, error) {
	row, err := store.GetRow(ctx, r, store.JobsTable, key)
	if row == nil {
		return nil, err
	}
	return row.Cells, nil
}

// readCopy reads the state in a column of the row of a copy, and what belongs to it.
func readCopy(ctx context.Context, r store.Reader, into, column string) (*CopyState, error) {
	cells, err := jobsRow(ctx, r, copyRow(into))
	if err != nil {
		return nil, err
	}
	s := &CopyState{cursors: map[int]string{}}
	at := slices.IndexFunc(cells, func(c cell.Cell) bool { return string(c.Qualifier) == column })
	if at < 0 || string(cells[at].Value) == noCopy {
		return nil, fmt.Errorf("%w: no copy into %s was cut off; begin it without --resume", target.ErrNotFound, into)
	}
	if err := json.Unmarshal(cells[at].Value, s); err != nil {
		return nil, fmt.Errorf("%w: the copy into %s: %w", store.ErrCorrupt, into, err)
	}
	for i := range cells {
		name, value := string(cells[i].Qualifier), string(cells[i].Value)
		if name == ownerColumn {
			s.owner = value
			continue
		}
		part, ours := strings.CutPrefix(name, cursorColumn+s.ID+"/")
		if !ours {
			continue
		}
		n, err := strconv.Atoi(part)
		if err != nil || value == "" {
			return nil, fmt.Errorf("%w: the copy into %s has %s = %q", store.ErrCorrupt, into, name, value)
		}
		s.cursors[n] = value
	}
	if s.Version != copyStateVersion || s.owner == "" {
		return nil, fmt.Errorf("%w: a copy into %s of version %d, this program knows %d", store.ErrUnsupported, into, s.Version, copyStateVersion)
	}
	return s, nil
}

// cursor is the column of a part's cursor.
func (s *CopyState) cursor(part int) []byte {
	return []byte(cursorColumn + s.ID + "/" + strconv.Itoa(part))
}

// over appends to m, which is conditional on the owner and so never older than what
// it replaces, that the copy has ended.
func (s *CopyState) over(m *cell.Mutation) {
	for _, column := range []string{copyColumn, ownerColumn} {
		m.Put(store.JobsFamily, []byte(column), cell.Latest, []byte(noCopy))
	}
	for part := range len(s.Parts) + 1 {
		m.DeleteColumn(store.JobsFamily, s.cursor(part), cell.Latest)
	}
}

// ForgetCopy forgets a copy that has not ended, whose process must not be at work any
// more: it cannot go on then. What it has copied stays.
func ForgetCopy(ctx context.Context, e store.Engine, into string) error {
	s, err := ReadCopy(ctx, e, into)
	if errors.Is(err, target.ErrNotFound) {
		return nil
	}
	applied := false
	if err == nil {
		m := cell.Mutation{Table: store.JobsTable, Row: copyRow(into)}
		s.over(&m)
		var r store.Result
		r, err = e.MutateRow(ctx, ownedBy(s.owner), &m)
		applied = r.Applied
	}
	if err == nil && !applied {
		err = fmt.Errorf("%w: another process goes on with it", target.ErrBusy)
	}
	if err != nil {
		return fmt.Errorf("forget the copy into %s: %w", into, err)
	}
	return nil
}

// same says how the copy that s is of differs from another.
func (s *CopyState) same(o *CopyState) error {
	a, b := *s, *o
	a.Parts, b.Parts = nil, nil // regions may have been split since
	a.ID, b.ID = "", ""
	a.Incarnation, b.Incarnation, a.Read, b.Read = "", "", nil, nil // compared before
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
