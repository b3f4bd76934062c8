package pebblestore

import (
	"encoding/binary"
	"math"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"sluice/cell"
	"sluice/counters"
)

// sequenceProperty is the name, stored for ever, of the block property that says
// which sequences the keys of a block have: a look for what has changed since a
// commit leaves out the blocks that are older. docs/format/key.md.
const sequenceProperty = "sluice.sequence"

// anything is the interval of what may have any sequence, or time.
var anything = sstable.BlockInterval{Upper: math.MaxUint64}

func newSequenceCollector() pebble.BlockPropertyCollector {
	return sstable.NewBlockIntervalCollector(sequenceProperty, sequenceMapper{}, nil)
}

// newSequenceFilter returns a filter of the blocks with a key of a later sequence
// than since.
func newSequenceFilter(since uint64) pebble.BlockPropertyFilter {
	return sstable.NewBlockIntervalFilter(sequenceProperty, since+1, math.MaxUint64, nil)
}

// sequenceMapper gives keys their interval of sequences.
//
// Under tag 2 the sequence is in the value, and Pebble may show a key that was
// overwritten or deleted where it leaves out the block of the newer one. It never
// does: the newer value has the later sequence, and a deletion has them all, so that
// who wants the older block wants the newer one, too.
type sequenceMapper struct{ noRangeKeys }

func (sequenceMapper) MapPointKey(key pebble.InternalKey, value []byte) (sstable.BlockInterval, error) {
	if len(key.UserKey) > 0 && key.UserKey[0] == cell.TagSystem {
		return sstable.BlockInterval{}, nil
	}
	sequence, ok := keySequence(key.UserKey, value)
	if !ok || sequence == math.MaxUint64 {
		return anything, nil
	}
	return sstable.BlockInterval{Lower: sequence, Upper: sequence + 1}, nil
}

// noRangeKeys is the part of a mapper that is never called: the store has no range keys.
type noRangeKeys struct{}

// MapRangeKeys implements sstable.IntervalMapper.
func (noRangeKeys) MapRangeKeys(sstable.Span) (sstable.BlockInterval, error) {
	return anything, nil
}

// keySequence returns the sequence of a key-value: of a packed one, or of a row's
// changes, the latest. ok is false where it has none, as a deletion of a counter.
func keySequence(key, value []byte) (sequence uint64, ok bool) {
	if len(key) < prefixBytes {
		return 0, false
	}
	switch key[0] {
	case cell.TagCounter:
		return counters.StoredSequence(value)
	case cell.TagData, cell.TagChange:
		if len(key) >= prefixBytes+2+8 {
			return ^binary.BigEndian.Uint64(key[len(key)-8:]), true
		}
	}
	return 0, false
}
