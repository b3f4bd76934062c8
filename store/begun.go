package store

import "context"

// BegunReader knows how far batches were begun, where an engine's batches are not atomic
// (AtomicRow): of what is behind the stored offset, a part may be there.
type BegunReader interface {
	// BegunTo returns the offset up to which batches of a partition of s were begun by now,
	// exclusive: the stored one or a later one. Absent = none was, or it is not known. version
	// is that of the mapping by which what is behind the stored one was begun.
	BegunTo(ctx context.Context, s *Source, partition int32) (until int64, version string, err error)
}
