package pebblestore

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/store"
)

// Event ids that are remembered for a while lie in periods of that length
// (docs/format/offsets.md). An id is looked for in the period of the clock, in the
// one before and, as clocks go back a little, in the one after. What is older goes
// with one range delete a period, so that ids take the room of about two periods
// and cost nothing to forget.

// onceKey is the stored key of an event id that is never forgotten.
func onceKey(id []byte) string {
	key := cell.AppendRowPrefix(nil, cell.TagSystem, onceID, systemFamily, id)
	return string(cell.AppendPart(key, nil))
}

// recentPrefix is the head of the keys of a period's event ids, and sorts before
// all of them.
func recentPrefix(ttl, period int64) []byte {
	row := binary.BigEndian.AppendUint64(make([]byte, 0, 16), uint64(ttl))
	row = binary.BigEndian.AppendUint64(row, uint64(period))
	return cell.AppendEscaped(cell.AppendFamilyPrefix(nil, cell.TagSystem, recentID, systemFamily), row)
}

// recentKey is the stored key of an event id in a period of its time to live.
func recentKey(id []byte, ttl, period int64) string {
	return string(cell.AppendPart(cell.AppendPart(recentPrefix(ttl, period), id), nil))
}

// once stages that an event id is used, or reports that it already is. ttl is for
// how many ms; 0 = for ever.
func (c *commit) once(id []byte, ttl int64) (seen bool, err error) {
	if ttl == 0 {
		key := onceKey(id)
		if seen, _, err = c.used(key); err == nil && !seen {
			c.use(key)
		}
		return seen, err
	}
	period := max(int64(c.now), 0) / ttl
	for _, p := range [...]int64{period, period - 1, period + 1} {
		if p < 0 {
			continue
		}
		seen, at, err := c.used(recentKey(id, ttl, p))
		if err != nil || seen && int64(c.now-at) <= ttl {
			return seen, err
		}
	}
	c.use(recentKey(id, ttl, period))
	if before := max(period-1, 0); c.swept[ttl] != before {
		if c.sweeps == nil {
			c.sweeps = map[int64]int64{}
		}
		c.sweeps[ttl] = before
	}
	return false, nil
}

// used reports whether the event id of this key was used, and when.
func (c *commit) used(key string) (seen bool, at cell.Timestamp, err error) {
	if _, seen := c.onceSet[key]; seen {
		return true, c.now, nil
	}
	value, seen, err := c.lookup([]byte(key))
	if err != nil || !seen {
		return false, 0, err
	}
	at, _, _, err = decodeSystemValue(value)
	return err == nil, at, err
}

// use stages that the event id of this key is used.
func (c *commit) use(key string) {
	if c.onceSet == nil {
		c.onceSet = map[string]struct{}{}
	}
	c.onceSet[key] = struct{}{}
	c.onces = append(c.onces, key)
}

// writeSweeps has the commit's batch forget old event ids.
func (c *commit) writeSweeps(b *pebble.Batch) error {
	for ttl, before := range c.sweeps {
		if err := b.DeleteRange(recentPrefix(ttl, 0), recentPrefix(ttl, before), nil); err != nil {
			return err
		}
	}
	return nil
}

// forgetOnces forgets the event ids that are over, of times to live, too, that
// nobody uses any more. Open calls it.
func (db *DB) forgetOnces() error {
	low := cell.AppendFamilyPrefix(nil, cell.TagSystem, recentID, systemFamily)
	it, err := db.pebble.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: cell.PrefixEnd(low)})
	if err != nil {
		return engineError(err)
	}
	defer it.Close()
	b := db.pebble.NewBatch()
	defer b.Close()
	now := max(int64(db.opts.Now()), 0)
	for ok := it.First(); ok; {
		row, _, _, err := cell.DecodePart(it.Key()[len(low):], nil)
		ttl := int64(0)
		if err == nil && len(row) >= 16 {
			ttl = int64(binary.BigEndian.Uint64(row))
		}
		if ttl <= 0 {
			return fmt.Errorf("%w: event id's key %x", store.ErrCorrupt, it.Key())
		}
		if err := b.DeleteRange(recentPrefix(ttl, 0), recentPrefix(ttl, max(now/ttl-1, 0)), nil); err != nil {
			return err
		}
		ok = ttl < math.MaxInt64 && it.SeekGE(recentPrefix(ttl+1, 0))
	}
	if err := it.Error(); err != nil || b.Empty() {
		return engineError(err)
	}
	return engineError(b.Commit(pebble.NoSync))
}
