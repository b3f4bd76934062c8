package pebblestore

import (
	"fmt"

	"sluice/cell"
	"sluice/store"
)

// delta is one coalesced increment of a batch.
type delta struct {
	start, end int   // of the counter's key in deltaList.keys
	i          int32 // index in store.Batch.Counters
	hash       uint64
}

// deltaList is the coalesced increments of one batch.
type deltaList struct {
	deltas   []delta   // as in the batch
	sorted   []ordered // deltas in the order in which they are to be added
	sorter   keyOrder
	keys     []byte
	mutation cell.Mutation // that is being checked: one for each would be garbage
}

// take takes down what can be added of all, the counters of a batch, for tables of s,
// and calls refuse for those that cannot be.
func (l *deltaList) take(s *staging, all []store.CounterDelta, refuse func(*store.CounterDelta, error) error) error {
	l.deltas, l.keys = l.deltas[:0], l.keys[:0]
	for i := range all {
		d := &all[i]
		t, f, err := l.check(s, d)
		if err != nil {
			if err = refuse(d, err); err != nil {
				return err
			}
			continue
		}
		start := len(l.keys)
		l.keys = cell.AppendRowPrefix(l.keys, f.tag, t.id, f.id, d.Row)
		l.keys = cell.AppendPart(l.keys, d.Qualifier)
		l.deltas = append(l.deltas, delta{start: start, end: len(l.keys), i: int32(i)})
	}
	return nil
}

func (l *deltaList) check(s *staging, d *store.CounterDelta) (*table, *family, error) {
	t, err := s.table(d.Table)
	if err != nil {
		return nil, nil, err
	}
	if f, i := t.family(d.Family); i >= 0 && store.PlainIncrement(t.desc, i, d.Row, d.Qualifier, d.Time) {
		return t, f, nil
	}
	m := &l.mutation
	m.Table, m.Row = d.Table, d.Row
	m.Ops = append(m.Ops[:0], cell.Op{Type: cell.OpIncrement, Family: d.Family, Qualifier: d.Qualifier, Time: d.Time, Delta: d.Delta})
	if err := store.ValidateMutation(t.desc, m, s.now); err != nil {
		return nil, nil, err
	}
	f, _ := t.family(d.Family)
	if !f.desc.Counter {
		return nil, nil, fmt.Errorf("%w: table %s: family %s is no COUNTER family", store.ErrRefused, d.Table, d.Family)
	}
	return t, f, nil
}

// order puts the list in the order of the keys, with their hashes of the cache. The
// order does not matter to the sums; in key order the counters that are not cached are
// found by one walk over the store, at a third of the cost of seeks here and there, and
// Pebble inserts them a third faster.
func (l *deltaList) order(cache *counterCache) {
	for i := range l.deltas {
		x := &l.deltas[i]
		x.hash = cache.hash(l.keys[x.start:x.end])
	}
	l.sorted = l.sorter.of(len(l.deltas), func(i int) []byte { return l.keys[l.deltas[i].start:l.deltas[i].end] })
}

// addDeltas stages what l has of all, the counters of a batch, in its order.
func (c *commit) addDeltas(l *deltaList, all []store.CounterDelta, refuse func(int64, string, []byte, error) error) error {
	defer func() { c.tally.Flush(int64(c.now)) }()
	for i := range l.sorted {
		c.prefetchCounters(l, all, i)
		x := &l.deltas[l.sorted[i].at]
		d := &all[x.i]
		t, err := c.table(d.Table)
		if err == nil {
			f, _ := t.family(d.Family)
			_, _, err = c.incrementKey(t, f, l.keys[x.start:x.end], x.hash, d.Delta, d.Time)
			c.tally.Wrote(t.load, d.Row)
		}
		if err != nil {
			if err = refuse(d.Offset, d.Table, d.Row, err); err != nil {
				return err
			}
		}
	}
	return nil
}
