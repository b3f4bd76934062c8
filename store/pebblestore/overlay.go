package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/store"
)

// iterator returns the iterator over the store as it was before the commit.
func (c *commit) iterator() (*pebble.Iterator, error) {
	if c.it == nil {
		it, err := c.db.pebble.NewIter(&pebble.IterOptions{UseL6Filters: true})
		if err != nil {
			return nil, engineError(err)
		}
		c.it = it
	}
	return c.it, nil
}

// lookup returns the committed value of a key that is overwritten in place. The
// value is valid until the next read.
func (c *commit) lookup(key []byte) (value []byte, ok bool, err error) {
	it, err := c.iterator()
	if err != nil {
		return nil, false, err
	}
	if !it.SeekPrefixGE(key) || !bytes.Equal(it.Key(), key) {
		return nil, false, engineError(it.Error())
	}
	value, err = it.ValueAndErr()
	return value, err == nil, engineError(err)
}

// errRowDone ends scanPrefix: the key-values that are left are not needed.
var errRowDone = errors.New("the row is done")

// scanPrefix calls f for the committed key-values of one row and family, but for those
// before a key that f returns, of the same row and family; nil = it wants the next.
func (c *commit) scanPrefix(prefix []byte, f func(key, value []byte) (seek []byte, err error)) error {
	it, err := c.iterator()
	if err != nil {
		return err
	}
	for ok := it.SeekPrefixGE(prefix); ok && bytes.HasPrefix(it.Key(), prefix); {
		value, err := it.ValueAndErr()
		if err != nil {
			return engineError(err)
		}
		switch seek, err := f(it.Key(), value); {
		case errors.Is(err, errRowDone):
			return nil
		case err != nil:
			return err
		case seek != nil:
			ok = it.SeekPrefixGE(seek)
		default:
			ok = it.Next()
		}
	}
	return engineError(it.Error())
}

// rowPrefix returns the row prefix of staged key-value i.
func (c *commit) rowPrefix(i int) []byte {
	s := &c.kvs[i]
	key := c.buf[s.start : s.start+s.key]
	return key[:cell.SplitKey(key)]
}

// index makes the staged key-values findable by row. Only commits with a member
// that reads pay for it.
func (c *commit) index() {
	if c.rows == nil {
		c.rows = map[string][]int32{}
	}
	for ; c.indexed < len(c.kvs); c.indexed++ {
		p := c.rowPrefix(c.indexed)
		c.rows[string(p)] = append(c.rows[string(p)], int32(c.indexed))
	}
}

// read reads one row as the next member of the commit sees it. It is a
// store.ReadRow.
func (c *commit) read(s *store.Scan) ([]cell.Cell, error) {
	t, err := c.cat.lookup(s.Table)
	if err != nil {
		return nil, err
	}
	sel, err := store.NewSelection(s, t.desc)
	if err != nil {
		return nil, err
	}
	c.index()
	src := &overlaySource{c: c, t: t, sel: sel, row: cell.Row{Key: s.Start}}
	sc := store.NewScanner(context.Background(), sel, src)
	defer sc.Close()
	if !sc.Next() {
		return nil, sc.Err()
	}
	return sc.Row().Cells, nil
}

// overlaySource is one row as a running commit sees it: the store before the
// commit with what was staged since on top. It implements store.RowSource.
type overlaySource struct {
	c     *commit
	t     *table
	sel   *store.Selection
	row   cell.Row
	arena arena
	done  bool
}

var _ store.RowSource = (*overlaySource)(nil)

// Close does nothing: the iterator is the commit's.
func (*overlaySource) Close() error { return nil }

// NextRow returns the row, once.
func (s *overlaySource) NextRow(skip func(row []byte) bool) (*cell.Row, error) {
	if s.done || s.sel.Empty() {
		return nil, nil
	}
	s.done = true
	if skip != nil && skip(s.row.Key) {
		return nil, nil
	}
	fams := s.sel.Families()
	for i := range fams {
		if err := s.family(&fams[i]); err != nil {
			return nil, fmt.Errorf("table %s, row %q: %w", s.t.desc.Name, s.row.Key, err)
		}
	}
	if len(s.row.Cells) == 0 {
		return nil, nil
	}
	return &s.row, nil
}

func (s *overlaySource) family(sf *store.SelectedFamily) error {
	f := &s.t.fams[sf.Index]
	r := familyReader{fam: f, res: newResolver(sf, s.sel.Raw(), s.c.now, &s.row.Cells, &s.arena)}
	r.begin()
	prefix := cell.AppendRowPrefix(nil, f.tag, s.t.id, f.id, s.row.Key)
	type kv struct{ key, value []byte }
	var fresh []kv // staged, in key order
	stale := func([]byte) bool { return false }
	if f.tag == cell.TagCounter {
		for _, e := range s.c.dirty {
			if e.dirty && e.exists && len(e.key) > len(prefix) && e.key[:len(prefix)] == string(prefix) {
				fresh = append(fresh, kv{[]byte(e.key), e.append(nil)})
			}
		}
		stale = func(key []byte) bool {
			e := s.c.db.counters.get(key)
			return e != nil && e.dirty
		}
	}
	for _, i := range s.c.rows[string(prefix)] {
		k := &s.c.kvs[i]
		b := s.c.buf[k.start : k.start+k.key+k.value]
		fresh = append(fresh, kv{b[:k.key:k.key], b[k.key:]})
	}
	slices.SortFunc(fresh, func(a, b kv) int { return bytes.Compare(a.key, b.key) })
	next := 0
	err := s.c.scanPrefix(prefix, func(key, value []byte) (seek []byte, err error) {
		if stale(key) {
			return nil, nil
		}
		for ; next < len(fresh) && bytes.Compare(fresh[next].key, key) < 0; next++ {
			if err := r.add(fresh[next].key[len(prefix):], fresh[next].value); err != nil {
				return nil, err
			}
		}
		if err := r.add(key[len(prefix):], value); err != nil {
			return nil, err
		}
		// What was staged since is added in its place, whatever is passed here.
		if !r.res.done {
			r.passed = 0
			return nil, nil
		}
		seek, skip := r.skip(prefix, true)
		if skip && seek == nil {
			return nil, errRowDone
		}
		return seek, nil
	})
	if err != nil {
		return err
	}
	for ; next < len(fresh); next++ {
		if err := r.add(fresh[next].key[len(prefix):], fresh[next].value); err != nil {
			return err
		}
	}
	return r.end()
}
