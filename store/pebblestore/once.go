package pebblestore

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
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

// oncePeriod is where an event id is remembered: for ttl ms, in this period of that length.
// The zero value is for ever.
type oncePeriod struct{ ttl, period int64 }

// key is the stored key of an event id.
func (p oncePeriod) key(id []byte) string {
	if p.ttl == 0 {
		return onceKey(id)
	}
	return recentKey(id, p.ttl, p.period)
}

// decodeRecent returns what is in the key of an event id behind the head of all periods.
func decodeRecent(rest []byte) (at oncePeriod, id []byte, err error) {
	row, _, _, err := cell.DecodePart(rest, nil)
	if err == nil && len(row) >= 16 {
		at = oncePeriod{int64(binary.BigEndian.Uint64(row)), int64(binary.BigEndian.Uint64(row[8:]))}
		id = row[16:]
	}
	if at.ttl <= 0 {
		return oncePeriod{}, nil, fmt.Errorf("%w: event id's key %x", store.ErrCorrupt, rest)
	}
	return at, id, nil
}

// onceFilters knows which event ids are certainly not used, those for ever and those of each
// period, whose filter goes with it. Only the commit loop touches it.
type onceFilters struct {
	seed             maphash.Seed
	limit            int64 // keys that may still be added to all
	off              bool
	complete, recent bool // it has every id for ever, and of the periods
	periods          map[oncePeriod]*keyFilter
}

// newOnceFilters returns empty filters of at most maxBytes, roughly.
func newOnceFilters(maxBytes int64) *onceFilters {
	limit := filterLimit(maxBytes)
	return &onceFilters{seed: maphash.MakeSeed(), limit: limit, off: limit < firstFilterKeys, periods: map[oncePeriod]*keyFilter{}}
}

func (o *onceFilters) hash(id []byte) uint64 { return maphash.Bytes(o.seed, id) }

// absent reports that no event id with this hash was used.
func (o *onceFilters) absent(at oncePeriod, hash uint64) bool {
	if o.off || at.ttl == 0 && !o.complete || at.ttl > 0 && !o.recent {
		return false
	}
	f := o.periods[at]
	return f == nil || f.absent(hash)
}

// add notes that an event id is used, or will be.
func (o *onceFilters) add(at oncePeriod, hash uint64) {
	if o.off {
		return
	}
	f := o.periods[at]
	if f == nil {
		f = &keyFilter{limit: &o.limit, complete: true}
		o.periods[at] = f
	}
	f.add(hash)
}

// forget drops the periods before one, whose ids are stored no more.
func (o *onceFilters) forget(ttl, before int64) {
	for at, f := range o.periods {
		if at.ttl == ttl && at.period < before {
			f.drop()
			delete(o.periods, at)
		}
	}
}

// once stages that an event id is used, or reports that it already is. ttl is for
// how many ms; 0 = for ever.
func (c *commit) once(id []byte, ttl int64) (seen bool, err error) {
	filters := c.db.onces
	hash := filters.hash(id)
	near := [...]int64{0, -1, 1} // from the period of the clock
	at, looked := oncePeriod{}, near[:1]
	if ttl > 0 {
		at, looked = oncePeriod{ttl, max(int64(c.now), 0) / ttl}, near[:]
	}
	for _, by := range looked {
		p := oncePeriod{ttl, at.period + by}
		if p.period < 0 || filters.absent(p, hash) {
			continue
		}
		seen, used, err := c.used(p.key(id))
		if err != nil || seen && (ttl == 0 || int64(c.now-used) <= ttl) {
			return seen, err
		}
	}
	c.use(at.key(id))
	filters.add(at, hash)
	if ttl == 0 {
		return false, nil
	}
	if before := max(at.period-1, 0); c.swept[ttl] != before {
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
		at, _, err := decodeRecent(it.Key()[len(low):])
		if err != nil {
			return err
		}
		ttl := at.ttl
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
