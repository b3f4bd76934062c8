package store

import (
	"context"
	"fmt"
	"iter"
	"unicode/utf8"

	"sluice/cell"
)

// ChangeHold keeps it known which rows of a table were changed by commits after
// Since, for one reader who comes back for them: without a hold an engine forgets
// that a row was there once it has removed the last trace of it.
type ChangeHold struct {
	Name  string // of the reader; one hold a name
	Table string
	Since uint64         // a sequence, as Snapshot.Sequence
	Until cell.Timestamp // when the engine may drop the hold by itself
	// Expired asks that a row is also known as changed when the engine removes
	// cells of it whose time to live is over. Until it removes them they are in
	// raw scans: who looks through these, too, misses no row of which cells have
	// expired while the hold was there.
	Expired bool
}

// Check makes the table's name canonical, and reports with ErrInvalidArgument what no
// engine takes: a hold without a name, or with one that is not UTF-8.
func (h *ChangeHold) Check() error {
	h.Table = CanonicalName(h.Table)
	switch {
	case h.Name == "":
		return fmt.Errorf("hold changes of %s: %w: the hold has no name", h.Table, ErrInvalidArgument)
	case !utf8.ValidString(h.Name):
		return fmt.Errorf("hold changes of %s: %w: the name %q is not UTF-8", h.Table, ErrInvalidArgument, h.Name)
	}
	return nil
}

// ChangeHolder is an Engine that can be told for how long to know its changes.
type ChangeHolder interface {
	// HoldChanges makes the hold h.Name, and returns it with the Since from
	// which on changes are known: that of the commit that made it, whatever
	// h.Since says. Where the table has a hold of that name, it is renewed:
	// Until becomes h.Until, and Since h.Since where that is later, so that
	// what was read can be forgotten; its Since never goes back. A hold whose
	// Until has passed may be gone and is then made anew, which the Since that
	// is returned shows. Its error wraps ErrTableNotFound, or
	// ErrInvalidArgument where Check does.
	HoldChanges(ctx context.Context, h ChangeHold) (ChangeHold, error)
	// ReleaseChanges removes a hold, if there is one of this name.
	ReleaseChanges(ctx context.Context, name string) error
	// ChangeHolds returns all holds, by name.
	ChangeHolds(ctx context.Context) ([]ChangeHold, error)
}

// ChangeReader is a Snapshot that can name the rows that were changed.
type ChangeReader interface {
	// ChangedRows yields the rows, ascending by key and each once, of
	// rows that commits after since have changed in one of the named families
	// (none = in any). It may name others, too: a reader looks at what the
	// snapshot has of a row now, and takes that, or that there is nothing,
	// for the row's new state. That a cell expires is no change; that it is
	// removed then is one, where a hold asks for it (Expired). Memory does
	// not grow with the rows. A key is valid until the loop goes on; the
	// snapshot stays open until the loop ends, which an error does.
	//
	// The error wraps ErrChangesUnknown where the table has no hold that
	// reaches back to since or was created, truncated or altered after it,
	// ErrTableNotFound, ErrFamilyNotFound, ErrInvalidArgument where since is
	// after the snapshot, or ErrUnsupported for system tables.
	ChangedRows(ctx context.Context, table string, families []string, rows cell.Range, since uint64) iter.Seq2[ChangedRow, error]
}

// ChangedRow is a row that was changed.
type ChangedRow struct {
	Key []byte
	// Columns tells of a row that was written anew how many columns were put, and Time
	// the earliest timestamp of these; 0 = that is not known. Who wants the newest
	// versions of no other columns is likely to find all of them in a scan of the times
	// from Time on, which need not look at what was there before (Scan.Time). It is a
	// hint: the row may have markers or later versions, or want a column even so.
	Columns int
	Time    cell.Timestamp
}
