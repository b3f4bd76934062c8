package pebblestore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"sluice/cell"
	"sluice/store"
)

// delta is one coalesced increment of a batch.
type delta struct {
	head, next uint64 // the first sixteen bytes of the counter's key that not all share
	start, end int    // of the key in commit.deltaKeys
	i          int32  // index in store.Batch.Counters
}

// checkDeltas takes the coalesced increments of a batch down for addDeltas, and
// calls refuse for those that cannot be.
func (c *commit) checkDeltas(all []store.CounterDelta, refuse func(*store.CounterDelta, error) error) error {
	c.deltas, c.deltaKeys = c.deltas[:0], c.deltaKeys[:0]
	for i := range all {
		d := &all[i]
		t, f, err := c.checkDelta(d)
		if err != nil {
			if err = refuse(d, err); err != nil {
				return err
			}
			continue
		}
		start := len(c.deltaKeys)
		c.deltaKeys = cell.AppendRowPrefix(c.deltaKeys, f.tag, t.id, f.id, d.Row)
		c.deltaKeys = cell.AppendPart(c.deltaKeys, d.Qualifier)
		c.deltas = append(c.deltas, delta{start: start, end: len(c.deltaKeys), i: int32(i)})
	}
	return nil
}

// addDeltas stages what checkDeltas has taken down, in the order of the keys. The
// order does not matter to the sums; in key order the counters that are not
// cached are found by one walk over the store, at a third of the cost of seeks
// here and there, and Pebble inserts them a third faster.
func (c *commit) addDeltas(all []store.CounterDelta, refuse func(int64, string, []byte, error) error) error {
	key := func(i int) []byte { return c.deltaKeys[c.deltas[i].start:c.deltas[i].end] }
	shared := sharedPrefix(len(c.deltas), key)
	for i := range c.deltas {
		c.deltas[i].head, c.deltas[i].next = keyHead(key(i)[shared:])
	}
	slices.SortFunc(c.deltas, func(x, y delta) int {
		switch {
		case x.head != y.head:
			return sign(x.head < y.head)
		case x.next != y.next:
			return sign(x.next < y.next)
		}
		if d := bytes.Compare(c.deltaKeys[x.start:x.end], c.deltaKeys[y.start:y.end]); d != 0 {
			return d
		}
		return int(x.i - y.i)
	})
	for _, x := range c.deltas {
		d := &all[x.i]
		t, err := c.table(d.Table)
		if err == nil {
			f, _ := t.family(d.Family)
			_, _, err = c.incrementKey(t, f, c.deltaKeys[x.start:x.end], d.Delta, d.Time)
			t.load.Wrote(d.Row, int64(c.now))
		}
		if err != nil {
			if err = refuse(d.Offset, d.Table, d.Row, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// sharedPrefix returns how many bytes n keys have in common at their beginning: the
// table and the family, and often much of the row. What comes behind tells keys apart
// sooner.
func sharedPrefix(n int, key func(i int) []byte) int {
	if n == 0 {
		return 0
	}
	shared := key(0)
	for i := 1; i < n; i++ {
		k := key(i)
		if bytes.HasPrefix(k, shared) {
			continue
		}
		at := 0
		for at < len(k) && k[at] == shared[at] {
			at++
		}
		shared = shared[:at]
	}
	return len(shared)
}

// keyHead returns the first sixteen bytes of a key, as if it went on with zeros.
func keyHead(key []byte) (head, next uint64) {
	if len(key) >= 16 {
		return binary.BigEndian.Uint64(key), binary.BigEndian.Uint64(key[8:])
	}
	var b [16]byte
	copy(b[:], key)
	return binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:])
}

func (c *commit) checkDelta(d *store.CounterDelta) (*table, *family, error) {
	t, err := c.table(d.Table)
	if err != nil {
		return nil, nil, err
	}
	m := &c.deltaMutation
	m.Table, m.Row = d.Table, d.Row
	m.Ops = append(m.Ops[:0], cell.Op{Type: cell.OpIncrement, Family: d.Family, Qualifier: d.Qualifier, Time: d.Time, Delta: d.Delta})
	if err := store.ValidateMutation(t.desc, m, c.now); err != nil {
		return nil, nil, err
	}
	f, _ := t.family(d.Family)
	if !f.desc.Counter {
		return nil, nil, fmt.Errorf("%w: table %s: family %s is no COUNTER family", store.ErrRefused, d.Table, d.Family)
	}
	return t, f, nil
}
