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

// oncePrefix is the head of the keys of event ids that are never forgotten.
func oncePrefix() []byte {
	return cell.AppendFamilyPrefix(nil, cell.TagSystem, onceID, systemFamily)
}

// recentPrefix is the head of the keys of a period's event ids, and sorts before
// all of them.
func recentPrefix(ttl, period int64) []byte {
	row := binary.BigEndian.AppendUint64(make([]byte, 0, 16), uint64(ttl))
	row = binary.BigEndian.AppendUint64(row, uint64(period))
	return cell.AppendEscaped(cell.AppendFamilyPrefix(nil, cell.TagSystem, recentID, systemFamily), row)
}

// appendOnceID appends what follows in the key of an event id behind the head.
func appendOnceID(dst, id []byte) []byte {
	return append(cell.AppendPart(dst, id), 0, 1) // no qualifier
}

// oncePeriod is where an event id is remembered: for ttl ms, in this period of that length.
// The zero value is for ever.
type oncePeriod struct{ ttl, period int64 }

// prefix is the head of the keys of the event ids that are there.
func (p oncePeriod) prefix() []byte {
	if p.ttl == 0 {
		return oncePrefix()
	}
	return recentPrefix(p.ttl, p.period)
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

// add notes that an event id is used, or will be.
func (o *onceFilters) add(at oncePeriod, hash uint64) {
	if !o.off {
		o.of(at).add(hash)
	}
}

// of returns the filter of a period, a new one where it has none.
func (o *onceFilters) of(at oncePeriod) *keyFilter {
	f := o.periods[at]
	if f == nil {
		f = &keyFilter{limit: &o.limit, complete: true}
		o.periods[at] = f
	}
	return f
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

// onceWindow is where a commit looks for the event ids of one time to live.
type onceWindow struct {
	at   oncePeriod    // where those are remembered that it uses
	near []onceNearby  // at first
	add  *keyFilter    // of at; nil = there are none
	room [3]onceNearby // of near
}

// onceNearby is one period of a window.
type onceNearby struct {
	prefix []byte     // of its ids' keys
	known  bool       // that an id is not in filter says that it is not used
	filter *keyFilter // nil = no id is in it
}

// absent reports that no event id with this hash was used there.
func (n *onceNearby) absent(hash uint64) bool {
	return n.known && (n.filter == nil || n.filter.absent(hash))
}

// prefetch asks for what the filters read of an event id with this hash.
func (w *onceWindow) prefetch(hash uint64) {
	for i := range w.near {
		if f := w.near[i].filter; f != nil {
			f.prefetch(hash)
		}
	}
}

// window returns the window of event ids that are remembered for ttl ms; 0 = for ever. It
// is valid until the end of the commit.
func (c *commit) window(ttl int64) *onceWindow {
	if n := len(c.windows); n > 0 && c.windows[n-1].at.ttl == ttl {
		return c.windows[n-1]
	}
	for _, w := range c.windows {
		if w.at.ttl == ttl {
			return w
		}
	}
	filters := c.db.loop.onces
	w := &onceWindow{}
	by := [...]int64{0, -1, 1}
	looked := by[:1]
	if ttl > 0 {
		w.at, looked = oncePeriod{ttl, max(int64(c.now), 0) / ttl}, by[:]
	}
	if !filters.off {
		w.add = filters.of(w.at)
	}
	w.near = w.room[:0]
	for _, by := range looked {
		p := oncePeriod{ttl, w.at.period + by}
		if p.period < 0 {
			continue
		}
		known := !filters.off && (ttl == 0 && filters.complete || ttl > 0 && filters.recent)
		w.near = append(w.near, onceNearby{prefix: p.prefix(), known: known, filter: filters.periods[p]})
	}
	c.windows = append(c.windows, w)
	return w
}

// once stages that an event id is used, or reports that it already is. ttl is for
// how many ms; 0 = for ever.
func (c *commit) once(id []byte, ttl int64) (seen bool, err error) {
	c.key = appendOnceID(c.key[:0], id)
	return c.onceKey(c.key, c.db.loop.onces.hash(id), ttl)
}

// onceKey is once of the event id with this appendOnceID and hash.
func (c *commit) onceKey(id []byte, hash uint64, ttl int64) (seen bool, err error) {
	w := c.window(ttl)
	before := c.onces.len()
	if !c.onces.add(hash, w.near[0].prefix, id) {
		return true, nil
	}
	for i := range w.near {
		n := &w.near[i]
		if n.absent(hash) {
			continue
		}
		seen, used, err := c.used(n.prefix, id)
		if err != nil || seen && (ttl == 0 || int64(c.now-used) <= ttl) {
			c.onces.truncate(before)
			return seen, err
		}
	}
	if w.add != nil {
		w.add.add(hash)
	}
	if ttl == 0 {
		return false, nil
	}
	if before := max(w.at.period-1, 0); c.swept[ttl] != before {
		if c.sweeps == nil {
			c.sweeps = map[int64]int64{}
		}
		c.sweeps[ttl] = before
	}
	return false, nil
}

// used reports whether the event id was used before the commit, and when.
func (c *commit) used(prefix, id []byte) (seen bool, at cell.Timestamp, err error) {
	c.usedKey = append(append(c.usedKey[:0], prefix...), id...)
	value, seen, err := c.lookup(c.usedKey)
	if err != nil || !seen {
		return false, 0, err
	}
	at, _, _, err = decodeSystemValue(value)
	return err == nil, at, err
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
