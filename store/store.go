// Package store is what callers of a Sluice table use and what storage engines
// must do: the client API (Table), the engine contract (Engine), schemas, scans,
// filters, conditions, batches and their errors, with HBase's semantics.
//
// Reads are scans; a get is a scan of one row. Writes are mutations of one row,
// sent alone (Engine.MutateRow) or many at once (Engine.Apply). A Batch may carry
// the progress of a source of records, which advances by compare-and-set in the
// same atomic unit: the root of exactly-once (design D4).
//
// An engine is safe for concurrent use; a Scanner, a Batch and a Mutation belong
// to one goroutine at a time. Slices passed in are not kept after the call
// returns; slices handed out live as long as their holder's comment says.
//
// The package stores nothing itself. Engines are in store/memstore (the model),
// store/pebblestore (embedded) and, for a cluster, store/hbasestore; the
// contract that all of them pass is store/storetest.
package store

import (
	"context"

	"sluice/cell"
	"sluice/region"
)

// Reader reads tables.
type Reader interface {
	// Regions returns the region map of table. Its error wraps
	// ErrTableNotFound.
	Regions(ctx context.Context, table string) (*region.Map, error)
	// Scan starts s. It cannot fail: Scanner.Err reports. s is not kept or
	// changed.
	Scan(ctx context.Context, s *Scan) Scanner
}

// Scanner is the rows of a scan, in order. Always Close it.
type Scanner interface {
	// Next moves to the next row and reports whether there is one. After
	// false, Err tells an error from the end.
	Next() bool
	// Row is the current row, valid until the next Next or Close.
	Row() *cell.Row
	// Err returns the first error.
	Err() error
	// Close releases the scanner; it may be called twice.
	Close() error
}

// Engine is the seam between Sluice and a storage system (design D9).
type Engine interface {
	Reader
	// Table returns the schema of a table; its error wraps ErrTableNotFound.
	// The descriptor is shared: it must not be changed.
	Table(ctx context.Context, name string) (*TableDescriptor, error)
	// Apply applies all of b, or none of it with an error: a *BatchError
	// where single records were refused, an error wrapping ErrStale where an
	// Advance found another offset than it expected. It returns when the
	// batch is as durable as Traits says. b may be reused afterwards.
	Apply(ctx context.Context, b *Batch) error
	// MutateRow applies m to its row if cond is nil or holds, atomically.
	// Result.Applied says whether it held.
	MutateRow(ctx context.Context, cond *Cond, m *cell.Mutation) (Result, error)
	// Traits says what the engine guarantees.
	Traits() Traits
	// Close waits for running calls; every later one fails with ErrClosed.
	Close() error
}

// Atomicity is what an engine applies whole or not at all.
type Atomicity uint8

// The atomicities.
const (
	AtomicRow   Atomicity = iota + 1 // one row mutation
	AtomicBatch                      // all of a Batch, its progress included
)

// Traits says what an engine guarantees beyond the contract.
type Traits struct {
	Name    string // "pebble", "mem", "hbase"
	Atomic  Atomicity
	Durable bool // an applied batch survives power loss
}

// Snapshotter is an Engine that can freeze an instant.
type Snapshotter interface {
	// Snapshot returns the store as it is between two commits. Close it: it
	// holds disk space.
	Snapshot(ctx context.Context) (Snapshot, error)
}

// Snapshot is every table at one commit.
type Snapshot interface {
	Reader
	// Table returns the schema at the instant of the snapshot.
	Table(ctx context.Context, name string) (*TableDescriptor, error)
	// Sequence is the sequence of the last commit it contains.
	Sequence() uint64
	// Close releases the snapshot and fails its running scans with ErrClosed.
	Close() error
}

// Checkpointer is an Engine that can write an instant of itself into a directory
// that another process opens read-only.
type Checkpointer interface {
	// Checkpoint makes dir, which must not exist, hold the store between two
	// commits, and returns the sequence of the last one it contains.
	Checkpoint(ctx context.Context, dir string) (sequence uint64, err error)
}

// Admin is an Engine whose tables can be created and changed.
type Admin interface {
	// Tables returns the names of all user tables, sorted. Names of system
	// tables begin with "sluice:".
	Tables(ctx context.Context) ([]string, error)
	// CreateTable makes a table with len(splits)+1 regions, cut at splits,
	// which may come in any order. Its error wraps ErrTableExists,
	// ErrInvalidSchema or, for a split key that is empty, too long or given
	// twice, ErrInvalidArgument.
	CreateTable(ctx context.Context, t *TableDescriptor, splits [][]byte) error
	// AlterTable replaces the schema: families may be added, removed (with
	// their cells) and changed, except for COUNTER. Its error wraps
	// ErrTableNotFound or ErrInvalidSchema.
	AlterTable(ctx context.Context, t *TableDescriptor) error
	// DropTable removes a table and its cells.
	DropTable(ctx context.Context, name string) error
	// SplitRegion cuts the region that holds at in two; at becomes the first
	// row of the right one. Its error wraps ErrInvalidArgument where at is the
	// first row of its region already.
	SplitRegion(ctx context.Context, table string, at []byte) error
	// MergeRegions makes one region of the adjacent ones that hold the rows
	// from and to, and of all between them. Its error wraps ErrMergeRegion
	// where from is not in a region before to's.
	MergeRegions(ctx context.Context, table string, from, to []byte) error
}

// Compactor is an Engine whose storage can be asked to tidy itself.
type Compactor interface {
	// Flush writes what is in memory to disk.
	Flush(ctx context.Context) error
	// MajorCompact rewrites table so that only what a read can see remains.
	MajorCompact(ctx context.Context, table string) error
}

// RowMutator is an Engine that applies several independent row mutations in one
// commit, each with its own outcome.
type RowMutator interface {
	// MutateRows applies ms in order; each is atomic, none depends on
	// another's success. Both slices have len(ms).
	MutateRows(ctx context.Context, ms []*cell.Mutation) ([]Result, []error)
}

// Result is what a mutation did.
type Result struct {
	Applied bool        // the condition held, or there was none
	Cells   []cell.Cell // the new cells of increments and appends, in key order
}
