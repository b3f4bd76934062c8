package store

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
)

// Errors of every engine. Engines wrap them with the table, row or file that
// they are about; test with errors.Is.
var (
	// ErrTableNotFound: no such table (HBase TableNotFoundException).
	ErrTableNotFound = errors.New("store: no such table")
	// ErrTableExists: CreateTable of a name that is taken.
	ErrTableExists = errors.New("store: table exists")
	// ErrTableNotEnabled: the table is disabled (HBase
	// TableNotEnabledException). Wraps ErrRefused.
	ErrTableNotEnabled error = &subError{"store: table is disabled", ErrRefused}
	// ErrTableReadOnly: the table takes no writes (READONLY). Wraps ErrRefused.
	ErrTableReadOnly error = &subError{"store: refused: the table is read-only", ErrRefused}
	// ErrTableNotDisabled: what asks for a disabled table found it enabled
	// (HBase TableNotDisabledException). Wraps ErrRefused.
	ErrTableNotDisabled error = &subError{"store: table is enabled, disable it first", ErrRefused}
	// ErrNamespaceNotFound: no such namespace.
	ErrNamespaceNotFound = errors.New("store: no such namespace")
	// ErrNamespaceExists: CreateNamespace of a name that is taken.
	ErrNamespaceExists = errors.New("store: namespace exists")
	// ErrConstraint: a namespace that has tables or is predefined cannot be
	// changed so (HBase ConstraintException). Wraps ErrRefused.
	ErrConstraint error = &subError{"store: constraint violated", ErrRefused}
	// ErrFamilyNotFound: no such family (HBase NoSuchColumnFamilyException).
	ErrFamilyNotFound = errors.New("store: no such column family")
	// ErrInvalidSchema: a table or family descriptor breaks a rule.
	ErrInvalidSchema = errors.New("store: invalid schema")
	// ErrInvalidArgument: a request that no store could take (HBase's
	// IllegalArgumentException): empty row key, no columns, versions < 0, …
	ErrInvalidArgument = errors.New("store: invalid argument")
	// ErrWrongRow: mutations of one atomic unit name different rows.
	ErrWrongRow = errors.New("store: mutations of different rows in one atomic unit")
	// ErrRefused: the store will never take it, retrying is useless (HBase
	// DoNotRetryIOException).
	ErrRefused = errors.New("store: refused")
	// ErrHeld: another process has what one at a time may have. Wraps ErrRefused.
	ErrHeld error = &subError{"store: held by another process", ErrRefused}
	// ErrCellTooLarge: a cell above the size limit. Wraps ErrRefused.
	ErrCellTooLarge error = &subError{"store: cell too large", ErrRefused}
	// ErrNotANumber: an increment of a value that is not 8 bytes wide. Wraps
	// ErrRefused.
	ErrNotANumber error = &subError{"store: value is not an 8-byte number", ErrRefused}
	// ErrTimestampTooFar: a put beyond the timestamp slop (HBase
	// FailedSanityCheckException).
	ErrTimestampTooFar = errors.New("store: timestamp too far in the future")
	// ErrIncompatibleFilter: the filter cannot be combined with the scan.
	ErrIncompatibleFilter = errors.New("store: filter is incompatible with the scan")
	// ErrMergeRegion: regions that cannot be merged as asked (HBase
	// MergeRegionException).
	ErrMergeRegion = errors.New("store: regions cannot be merged so")
	// ErrStale: an Advance expected another offset than is stored. The batch
	// was not applied; read the stored offset and start from there.
	ErrStale = errors.New("store: stored offset is not the expected one")
	// ErrChangesUnknown: the store cannot say any more which rows of a table were
	// changed since a commit, or never could: read the table whole.
	ErrChangesUnknown = errors.New("store: changes are not known that far back")
	// ErrClosed: the engine, snapshot or scanner was closed.
	ErrClosed = errors.New("store: closed")
	// ErrLocked: another process has the data directory.
	ErrLocked = errors.New("store: data directory is in use by another process")
	// ErrReadOnly: a write to an engine that was opened read-only.
	ErrReadOnly = errors.New("store: read-only")
	// ErrUnsupported: the engine does not offer this.
	ErrUnsupported = errors.New("store: not supported")
	// ErrTransient marks what may succeed when tried again. Beside
	// ErrUnknownOutcome it only says why nothing is known.
	ErrTransient = errors.New("store: temporary failure")
	// ErrUnknownOutcome: the reply of a mutation that must not be made twice was
	// lost. It may or may not have been applied; look before trying again.
	ErrUnknownOutcome = errors.New("store: it is not known whether the mutation was applied")
	// ErrDiskFull: no space left; nothing was applied. Wraps ErrTransient:
	// writers pause and try again (invariant I8).
	ErrDiskFull error = &subError{"store: disk full", ErrTransient}
	// ErrReported: buffered mutations were not applied, and another call of
	// their BufferedMutator has returned which.
	ErrReported = errors.New("store: buffered mutations failed, as another call was told")
	// ErrCorrupt: stored bytes fail their checksum or cannot be decoded
	// (invariant I7).
	ErrCorrupt = errors.New("store: corrupt data")
)

// subError is a sentinel that belongs to a class.
type subError struct {
	text  string
	class error
}

func (e *subError) Error() string { return e.text }
func (e *subError) Unwrap() error { return e.class }

// DisabledError says which table is disabled. It is an ErrTableNotEnabled.
type DisabledError struct {
	Table string
}

// Error names the table.
func (e *DisabledError) Error() string { return ErrTableNotEnabled.Error() + ": " + e.Table }

// Unwrap returns ErrTableNotEnabled.
func (e *DisabledError) Unwrap() error { return ErrTableNotEnabled }

// ReadOnlyError says which table takes no writes. It is an ErrTableReadOnly.
type ReadOnlyError struct {
	Table string
}

// Error leaves the table to what is around it, which names the row, too.
func (e *ReadOnlyError) Error() string { return ErrTableReadOnly.Error() }

// Unwrap returns ErrTableReadOnly.
func (e *ReadOnlyError) Unwrap() error { return ErrTableReadOnly }

// RowError says which row of a table an error is about.
type RowError struct {
	Table string
	Row   []byte
	Err   error
}

// Error names the row, and says what is wrong with it.
func (e *RowError) Error() string {
	return fmt.Sprintf("table %s, row %.100q: %v", e.Table, e.Row, e.Err)
}

// Unwrap returns what is wrong.
func (e *RowError) Unwrap() error { return e.Err }

// atRow returns err, of a row that may be written to again, as a *RowError.
func atRow(table string, row []byte, err error) error {
	return &RowError{Table: table, Row: bytes.Clone(row), Err: err}
}

// retryable reports whether what failed with err may be tried again by this
// process. An engine that has stopped is ErrTransient for clients of its process
// only, and what may have been applied may be applied twice.
func retryable(err error) bool {
	return errors.Is(err, ErrTransient) && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrUnknownOutcome)
}

// NoSpace reports whether err is a file system's that has no space left, or none within a
// quota: what an engine tells as ErrDiskFull.
func NoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
