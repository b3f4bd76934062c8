package pebblestore

import (
	"bytes"
	"fmt"
	"hash/maphash"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
)

// maxChangeBytes bounds the changes that a rewrite has in memory.
const maxChangeBytes = 1 << 20

// note remembers what commits and readers of changes must know of a row, or a piece of one,
// that the rewrite has made o of.
func (r *rewrite) note(o rowOutcome) error {
	if !o.dropped {
		return nil
	}
	prefix := r.rows.prefix()
	r.changed = append(r.changed, r.hash(prefix))
	if o.expired || o.unsure {
		r.unsure = append(r.unsure, bytes.Clone(prefix))
		return nil
	}
	return r.noteChange(o.newest, o.left)
}

func (r *rewrite) hash(prefix []byte) uint64 { return maphash.Bytes(r.seed, prefix) }

// noteChange remembers that the row was changed by the operation of sequence newest,
// where somebody wants to know and the latest that is left of the row is of an
// earlier one.
func (r *rewrite) noteChange(newest, left uint64) error {
	if !r.held || newest <= left || newest <= r.since {
		return nil
	}
	if r.changes == nil {
		r.changes = r.db.pebble.NewBatch()
	}
	return r.changes.Set(cell.AppendChange(nil, r.rows.prefix(), newest), nil, nil)
}

// storeChanges puts the changes on disk; what they tell of may go then.
func (r *rewrite) storeChanges() error {
	switch {
	case r.changes == nil:
		return nil
	case r.changes.Empty(): // the others are in the log
		return engineError(r.db.pebble.LogData(nil, pebble.Sync))
	}
	return engineError(r.db.pebble.Apply(r.changes, pebble.Sync))
}

// touch adds to b, which is to be applied with the rewrite, that it changes the rows
// that it is not sure of. That is an operation with a sequence of its own: a snapshot
// from before shows these rows as they were. It runs in the commit loop.
func (r *rewrite) touch(b *pebble.Batch) error {
	if len(r.unsure) == 0 {
		return nil
	}
	db := r.db
	sequence := db.sequence.Load() + 1
	for _, prefix := range r.unsure {
		if err := b.Set(cell.AppendChange(nil, prefix, sequence), nil, nil); err != nil {
			return engineError(err)
		}
	}
	if err := b.Set(sequenceKey(), db.sequenceValue(db.opts.Now(), sequence), nil); err != nil {
		return engineError(err)
	}
	if len(b.Repr()) > 2*maxLateBytes {
		return fmt.Errorf("%w: %d rows were changed", errOvertaken, len(r.unsure))
	}
	db.sequence.Store(sequence)
	return nil
}
