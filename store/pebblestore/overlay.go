package pebblestore

import (
	"bytes"
	"context"
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
	c.db.gate.reads.Add(1)
	if !it.SeekPrefixGE(key) || !bytes.Equal(it.Key(), key) {
		return nil, false, engineError(it.Error())
	}
	value, err = it.ValueAndErr()
	return value, err == nil, engineError(err)
}

// scanPrefix calls f for the committed key-values of one row and family.
func (c *commit) scanPrefix(prefix []byte, f func(key, value []byte) error) error {
	it, err := c.iterator()
	if err != nil {
		return err
	}
	c.db.gate.reads.Add(1)
	for ok := it.SeekPrefixGE(prefix); ok && bytes.HasPrefix(it.Key(), prefix); ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return engineError(err)
		}
		if err := f(it.Key(), value); err != nil {
			return err
		}
	}
	return engineError(it.Error())
}

// rowPrefix returns the row prefix of staged key-value i.
func (c *commit) rowPrefix(i int) []byte {
	key := c.stagedKey(i)
	return key[:cell.SplitKey(key)]
}

// index makes the staged key-values findable by row, in the order of their keys. Only
// commits with a member that reads pay for it.
func (c *commit) index() {
	if c.rows == nil {
		c.rows = map[string][]int32{}
	}
	for ; c.indexed < len(c.kvs); c.indexed++ {
		p := c.rowPrefix(c.indexed)
		list := c.rows[string(p)]
		// The newest version of a column sorts first: that of a hot cell is found
		// without a look at the others.
		c.rows[string(p)] = slices.Insert(list, c.position(list, c.stagedKey(c.indexed)), int32(c.indexed))
	}
}

// unindex forgets the key-values from n on.
func (c *commit) unindex(n int) {
	for c.indexed > n {
		c.indexed--
		p := c.rowPrefix(c.indexed)
		list := c.rows[string(p)]
		at := c.position(list, c.stagedKey(c.indexed)) // no two keys are equal: each has a sequence of its own
		c.rows[string(p)] = slices.Delete(list, at, at+1)
	}
}

// position returns the index in list, of staged key-values in the order of their keys,
// of the first that is not before key.
func (c *commit) position(list []int32, key []byte) int {
	if len(list) == 0 || bytes.Compare(c.stagedKey(int(list[0])), key) >= 0 {
		return 0
	}
	at, _ := slices.BinarySearchFunc(list, key, func(i int32, key []byte) int { return bytes.Compare(c.stagedKey(int(i)), key) })
	return at
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
	stored, err := s.c.iterator()
	if err != nil {
		return err
	}
	fresh := s.c.staged(f, prefix)
	s.c.db.gate.reads.Add(1)
	within := func(ok bool) bool { return ok && bytes.HasPrefix(stored.Key(), prefix) }
	for valid := within(stored.SeekPrefixGE(prefix)); valid || !fresh.done(); {
		var key, value []byte
		older := valid && (fresh.done() || bytes.Compare(stored.Key(), fresh.key()) < 0)
		if older {
			key = stored.Key()
			if f.tag == cell.TagCounter {
				if e := s.c.db.loop.counters.get(key); e != nil && e.dirty {
					valid = within(stored.Next()) // what it is now is among the fresh
					continue
				}
			}
			if value, err = stored.ValueAndErr(); err != nil {
				return engineError(err)
			}
		} else {
			key, value = fresh.keyValue()
		}
		if err := r.add(key[len(prefix):], value); err != nil {
			return err
		}
		if older {
			valid = within(stored.Next())
		} else {
			fresh.at++
		}
		if !r.res.done {
			r.passed = 0
			continue
		}
		seek, skip := r.skip(prefix, true)
		if skip && seek == nil {
			break
		}
		if skip {
			fresh.seek(seek)
			if valid && bytes.Compare(stored.Key(), seek) < 0 {
				valid = within(stored.SeekPrefixGE(seek))
			}
		}
	}
	if err := stored.Error(); err != nil {
		return engineError(err)
	}
	return r.end()
}

// stagedRow is a cursor over what a running commit has changed of one row and family,
// in the order of the keys.
type stagedRow struct {
	c    *commit
	list []int32 // of c.kvs; of a COUNTER family nil
	kvs  [][2][]byte
	at   int
}

// staged returns a cursor over what c has changed of the row and family with this
// prefix. It is valid until the next change.
func (c *commit) staged(f *family, prefix []byte) stagedRow {
	if f.tag != cell.TagCounter {
		return stagedRow{c: c, list: c.rows[string(prefix)]}
	}
	var kvs [][2][]byte
	for _, e := range c.dirty {
		if e.dirty && e.exists && len(e.key) > len(prefix) && e.key[:len(prefix)] == string(prefix) {
			kvs = append(kvs, [2][]byte{[]byte(e.key), e.append(nil)})
		}
	}
	slices.SortFunc(kvs, func(a, b [2][]byte) int { return bytes.Compare(a[0], b[0]) })
	return stagedRow{c: c, kvs: kvs}
}

func (s *stagedRow) done() bool { return s.at == len(s.list)+len(s.kvs) } // one of them is empty

// key returns the current key.
func (s *stagedRow) key() []byte {
	if s.list == nil {
		return s.kvs[s.at][0]
	}
	return s.c.stagedKey(int(s.list[s.at]))
}

// keyValue returns the current key and its value.
func (s *stagedRow) keyValue() (key, value []byte) {
	if s.list == nil {
		return s.kvs[s.at][0], s.kvs[s.at][1]
	}
	k := &s.c.kvs[s.list[s.at]]
	b := s.c.buf[k.start : k.start+k.key+k.value]
	return b[:k.key:k.key], b[k.key:]
}

// seek moves to the first key that is not before key, where that is behind.
func (s *stagedRow) seek(key []byte) {
	if s.list != nil {
		s.at += s.c.position(s.list[s.at:], key)
		return
	}
	for !s.done() && bytes.Compare(s.key(), key) < 0 {
		s.at++
	}
}
