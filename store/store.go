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
	// Row is the current row, valid until the next Next or Close; nil before
	// the first Next and where that has returned false.
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
	// Result.Applied says whether it held. Its error wraps ErrInvalidArgument
	// where m is nil.
	MutateRow(ctx context.Context, cond *Cond, m *cell.Mutation) (Result, error)
	// Traits says what the engine guarantees.
	Traits() Traits
	// Close waits for running calls; every later one fails with ErrClosed, but
	// another Close, which does nothing.
	Close() error
}

// Atomicity is what an engine applies whole or not at all.
type Atomicity uint8

// The atomicities.
const (
	// AtomicRow: one row mutation. A batch with one Advance is exact all the
	// same, but may be seen in part, and its increments must not be summed over
	// records (CounterDelta), its mutations be Idempotent, nothing in it be
	// conditional: else Apply fails with ErrUnsupported.
	AtomicRow   Atomicity = iota + 1
	AtomicBatch           // all of a Batch, its progress included
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

// Admin is an Engine whose tables can be created and changed. Every change is one
// commit: after a crash it is whole or absent (invariant I4).
type Admin interface {
	// Tables returns the names of all user tables, sorted. Names of system
	// tables begin with "sluice:".
	Tables(ctx context.Context) ([]string, error)
	// CreateTable makes an enabled table with len(splits)+1 regions, cut at
	// splits, which may come in any order. Its error wraps ErrTableExists,
	// ErrNamespaceNotFound, ErrInvalidSchema or, for a split key that is empty,
	// too long or given twice, ErrInvalidArgument.
	CreateTable(ctx context.Context, t *TableDescriptor, splits [][]byte) error
	// AlterTable replaces the schema, while the table is read and written:
	// families may be added, removed (with their cells) and changed, except
	// for COUNTER and DISTINCT. Its error wraps ErrTableNotFound or ErrInvalidSchema.
	AlterTable(ctx context.Context, t *TableDescriptor) error
	// DropTable removes a table and its cells. Its error wraps
	// ErrTableNotFound, or ErrTableNotDisabled where the engine is a
	// TableSwitcher and the table is enabled.
	DropTable(ctx context.Context, name string) error
	// SplitRegion cuts the region that holds at in two; at becomes the first
	// row of the right one. Its error wraps ErrInvalidArgument where at is the
	// first row of its region already, ErrRefused where SPLIT_ENABLED is false
	// and ErrTableNotEnabled.
	SplitRegion(ctx context.Context, table string, at []byte) error
	// MergeRegions makes one region of those that hold rows, which name two
	// regions or more in any order. Its error wraps ErrMergeRegion where they
	// are not adjacent, one is named twice or MERGE_ENABLED is false, and
	// ErrTableNotEnabled. There is no force: HBase's leaves regions that overlap.
	MergeRegions(ctx context.Context, table string, rows ...[]byte) error
}

// TableSwitcher is an Admin whose tables can be taken out of service. A disabled
// table keeps its schema, regions and cells; reads and writes of it fail with
// ErrTableNotEnabled, which fails a Batch as a whole: its records are refused by
// nobody, they wait. Scans that run go on, and snapshots show it as it is.
type TableSwitcher interface {
	// EnableTable puts a disabled table back into service. Its error wraps
	// ErrTableNotFound, or ErrTableNotDisabled where it is enabled.
	EnableTable(ctx context.Context, name string) error
	// DisableTable takes a table out of service. Its error wraps
	// ErrTableNotFound, or ErrTableNotEnabled where it is disabled.
	DisableTable(ctx context.Context, name string) error
	// TableEnabled reports whether a table is in service. Its error wraps
	// ErrTableNotFound.
	TableEnabled(ctx context.Context, name string) (bool, error)
	// TruncateTable removes all cells of a disabled table and enables it (HBase
	// TruncateTableProcedure). It has one region then, or, with preserveSplits,
	// regions with the bounds of the old ones. Its error wraps ErrTableNotFound
	// or ErrTableNotDisabled.
	TruncateTable(ctx context.Context, name string, preserveSplits bool) error
}

// Namespacer is an Admin whose tables lie in namespaces: that of "ns:t" is ns,
// that of a name without a colon DefaultNamespace. DefaultNamespace and
// HBaseNamespace are always there; they and SystemNamespace cannot be made,
// changed or dropped.
type Namespacer interface {
	// CreateNamespace makes a namespace. Its error wraps ErrNamespaceExists,
	// ErrConstraint for SystemNamespace or ErrInvalidArgument for a name that
	// CheckNamespace refuses.
	CreateNamespace(ctx context.Context, n *Namespace) error
	// AlterNamespace replaces the properties. Its error wraps
	// ErrNamespaceNotFound or ErrConstraint.
	AlterNamespace(ctx context.Context, n *Namespace) error
	// DropNamespace removes an empty namespace. Its error wraps
	// ErrNamespaceNotFound, or ErrConstraint where it has tables or is
	// predefined.
	DropNamespace(ctx context.Context, name string) error
	// Namespaces returns all namespaces but SystemNamespace by name, the
	// caller's own. FindNamespace and NamespaceTables look into one.
	Namespaces(ctx context.Context) ([]Namespace, error)
}

// RegionMeter is an Engine that knows what its regions hold and serve.
type RegionMeter interface {
	// RegionStats returns one entry a region of table, in key order. It reads
	// no cells. Its error wraps ErrTableNotFound.
	RegionStats(ctx context.Context, table string) ([]RegionStats, error)
	// SplitPoint returns the row that cuts the region which holds row into
	// halves of about equal size, for SplitRegion. Like HBase it may flush.
	// Its error wraps ErrTableNotFound, ErrTableNotEnabled, or ErrRefused where
	// the region has fewer than two rows.
	SplitPoint(ctx context.Context, table string, row []byte) ([]byte, error)
}

// RegionStats is what one region holds and serves, approximately. Requests are
// counted since the engine was opened or the region came to be, whichever was
// later: a mutation of a row, and a scan for every region that it is to read, a
// get among them, is one.
type RegionStats struct {
	Region    region.Info
	Bytes     int64   // in files; what was not flushed is missing (HBase storeFileSize)
	Reads     int64   // requests
	Writes    int64   // requests
	ReadRate  float64 // requests a second, over the last minute
	WriteRate float64 // requests a second, over the last minute
	// Hot says that the region takes far more requests than the table's
	// others (region.HotSpots): its keys want a salt, or it wants a split.
	Hot bool
}

// Compactor is an Engine whose storage can be asked to tidy itself.
type Compactor interface {
	// Flush writes what is in memory to disk.
	Flush(ctx context.Context) error
	// MajorCompact rewrites table so that only what a read can see remains.
	// Its error wraps ErrTableNotFound, or ErrRefused where
	// COMPACTION_ENABLED is false.
	MajorCompact(ctx context.Context, table string) error
}

// RowMutator is an Engine that applies several independent row mutations in one
// commit, each with its own outcome.
type RowMutator interface {
	// MutateRows applies ms in order; each is atomic, none depends on
	// another's success, and one that is nil fails with ErrInvalidArgument. Both
	// slices have len(ms).
	MutateRows(ctx context.Context, ms []*cell.Mutation) ([]Result, []error)
}

// Result is what a mutation did.
type Result struct {
	Applied bool        // the condition held, or there was none
	Cells   []cell.Cell // the new cells of increments and appends, in key order
}
