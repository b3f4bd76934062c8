package store

import (
	"context"

	"sluice/cell"
)

// CounterRange is columns of a table's COUNTER and DISTINCT families. Its zero ranges
// are unbounded.
type CounterRange struct {
	Table    string
	Families []string // empty = all COUNTER and DISTINCT families of the table
	Rows     cell.Range
	Columns  cell.Range // of qualifiers: buckets of a rollup sort as their times do
}

// CounterRemover is an engine whose counters cannot be deleted by mutations, as
// pipelines go on from what they know of them, and that removes them all the same while
// pipelines run: of each partition of a source, what it has applied up to some offset
// counts no more, and everything behind it does. That offset is one that the partition
// reaches during the call.
type CounterRemover interface {
	// CountCounters returns how many columns there are that RemoveCounters would remove. Its errors are
	// those of RemoveCounters.
	CountCounters(ctx context.Context, r *CounterRange) (int64, error)
	// RemoveCounters removes counters, row by row, and returns of how many columns it has
	// removed something. One that is cut off is finished by the
	// next, whatever that removes. Its error wraps ErrTableNotFound or ErrFamilyNotFound;
	// ErrInvalidSchema where a family is neither COUNTER nor DISTINCT; ErrRefused where a
	// rebuild of counters of the table, or a redrive or purge of dead letters, is not
	// finished. Where a partition was begun and is not completed within half a minute, its
	// counters stay, those of the others are removed, and the error says which it is.
	RemoveCounters(ctx context.Context, r *CounterRange) (int64, error)
}
