// Package pebblestore is Sluice's embedded storage engine: tables with HBase's
// data model in one Pebble key space, in one directory, in this process.
//
// One goroutine, the commit loop, decides everything: it takes batches, row
// mutations, schema changes, snapshots and checkpoints from a channel, checks
// conditions, resolves increments, and commits all that waits as one Pebble
// batch with one fsync (design D6). The loop alone owns the caches of counters
// and offsets, so no row is ever locked. Reads run beside it on iterators.
//
// A region is a range of rows: a catalog row, not a file of its own (D1). Keys
// are cell.AppendKey's; DESIGN.md in this directory has the rest of the layout.
//
// A DB is safe for concurrent use. A Scanner belongs to one goroutine. Slices
// passed in are not kept after a call returns; a scanned row is valid until its
// scanner moves. A reader holds the cells of one row in memory, not of a scan.
//
// The package does not replicate, does not speak a network protocol, and knows
// nothing of Kafka beyond the opaque progress that shares its commits.
package pebblestore
