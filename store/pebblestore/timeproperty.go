package pebblestore

import (
	"math"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"sluice/cell"
)

// timeProperty is the name, stored for ever, of the block property that says which
// timestamps the cells of a block have: a scan of a time range leaves out the blocks
// that are older, as HBase leaves out store files. docs/format/key.md.
const timeProperty = "sluice.time"

func newTimeCollector() pebble.BlockPropertyCollector {
	return sstable.NewBlockIntervalCollector(timeProperty, timeMapper{}, nil)
}

// newTimeFilter returns a filter of the blocks with a cell of a versioned family that is
// as young as oldest, 0 or later. What it leaves out masks and hides nothing that it does
// not: a marker reaches back from its time, versions are counted from the newest, and
// what removes a key has that key's time.
func newTimeFilter(oldest cell.Timestamp) pebble.BlockPropertyFilter {
	return sstable.NewBlockIntervalFilter(timeProperty, uint64(oldest), math.MaxUint64, nil)
}

// timeMapper gives keys of versioned families the interval of their timestamp, and all
// others every one: what is overwritten in place has a time in its value that may go
// back, so that the older value would be seen where the newer is left out.
type timeMapper struct{ noRangeKeys }

func (timeMapper) MapPointKey(key pebble.InternalKey, _ []byte) (sstable.BlockInterval, error) {
	k := key.UserKey
	if len(k) < prefixBytes+2+versionBytes || k[0] != cell.TagData {
		return anything, nil
	}
	t, _, _ := cell.DecodeVersion(k[len(k)-versionBytes:])
	if t < 0 {
		return anything, nil
	}
	return sstable.BlockInterval{Lower: uint64(t), Upper: uint64(t) + 1}, nil
}
