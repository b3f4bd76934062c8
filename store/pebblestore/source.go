package pebblestore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/internal/turns"
	"sluice/store"
)

// prefixBytes is the length of tag, table and family at the head of a key.
const prefixBytes = 1 + 4 + 1

// partSlack is room for the terminator of a row and some escaped bytes.
const partSlack = 8

// probeRows is how many rows without a visible cell a scan passes before it
// looks whether its context is done, and lets other goroutines go first.
const probeRows = 1024

// stepKeys is how many unneeded keys a scan steps over before it seeks: a seek
// costs about as much as a dozen steps.
const stepKeys = 12

// iterators makes the pebble iterators of one read, all of one instant.
type iterators func(o *pebble.IterOptions) (*pebble.Iterator, error)

// liveIterators returns the iterators of the DB as it is when the first is made.
func (db *DB) liveIterators(ctx context.Context) iterators {
	var base *pebble.Iterator
	return func(o *pebble.IterOptions) (*pebble.Iterator, error) {
		if base != nil {
			return base.CloneWithContext(ctx, pebble.CloneOptions{IterOptions: o})
		}
		it, err := db.newIterator(ctx, o)
		base = it
		return it, err
	}
}

func (db *DB) newIterator(ctx context.Context, o *pebble.IterOptions) (*pebble.Iterator, error) {
	db.swap.RLock()
	defer db.swap.RUnlock()
	return db.pebble.NewIterWithContext(ctx, o)
}

// cursor is the position of a scan in one family.
type cursor struct {
	it     *pebble.Iterator
	reader familyReader
	valid  bool
	key    []byte // of the current key-value; the iterator's
	split  int    // where its row ends
	prefix []byte // of the current row: the iterator moves within it
	within bool   // the key has the prefix
	seek   []byte
}

// rowSource yields the rows of a selection. It implements store.RowSource.
type rowSource struct {
	ctx     context.Context // of the scan, whose calls have none of their own
	table   string
	sel     *store.Selection
	cursors []cursor
	row     cell.Row
	cells   []cell.Cell
	arena   arena
	mu      sync.Mutex // orders the scan's calls with an engine or snapshot that closes
	closed  error      // why the source ended early
	key     []byte     // the current row, escaped, with its terminator; of several cursors
	next    []byte     // a row to seek, in the same form
	name    []byte     // the current row
	single  bool       // one row: prefix seeks, bloom filters
	found   *foundRow  // what the first iterator belongs to; nil = the source

	pieceBytes, pieceCells int   // where a row may be cut; 0 bytes = nowhere
	bytes                  int   // of cells, as far as cells[:counted]
	counted                int   // of cells
	held                   int   // cells after row.Cells, for the row's next part
	cut                    int   // the cursor within whose part the row was cut; -1 = none
	spare                  arena // takes turns with arena

	begun   bool // the current row is: puts were read of it, and more follows
	folding folding
	started bool
	turn    turns.Turn
	closing func(*pebble.Iterator) error
	release func() // called by Close; nil = none
}

var _ store.RowSource = (*rowSource)(nil)

// newRowSource opens the iterators of sel over t. Where found is not nil, it is the
// row to read, and the source's from here on. closing closes the iterators.
func newRowSource(ctx context.Context, t *table, sel *store.Selection, now cell.Timestamp, found *foundRow, open iterators, closing func(*pebble.Iterator) error) (*rowSource, error) {
	s := &rowSource{ctx: ctx, table: t.desc.Name, sel: sel, cut: -1, found: found, closing: closing}
	s.pieceBytes, s.pieceCells = sel.Pieces()
	rows := sel.Rows()
	s.single = found != nil || rows.OneRow()
	fams := sel.Families()
	s.cursors = make([]cursor, len(fams))
	for i := range fams {
		c := &s.cursors[i]
		f := &t.fams[fams[i].Index]
		c.reader.fam = f
		c.reader.res = newResolver(&fams[i], sel.Raw(), now, &s.cells, &s.arena)
		var o pebble.IterOptions
		switch {
		case sel.Empty():
			continue
		case s.single:
			c.prefix = cell.AppendRowPrefix(make([]byte, 0, prefixBytes+len(rows.Start)+partSlack), f.tag, t.id, f.id, rows.Start)
			if i > 0 {
				c.it = s.cursors[0].it // the families are read one after the other
				continue
			}
			if found != nil {
				c.it = found.it
				continue
			}
			o.UseL6Filters = true
		default:
			o.LowerBound, o.UpperBound = rowBounds(f.tag, t.id, f.id, rows)
			if oldest := c.reader.res.oldestSeen(); oldest > 0 && f.tag == cell.TagData && !c.reader.res.nvb {
				o.PointKeyFilters = []pebble.BlockPropertyFilter{newTimeFilter(oldest)}
			}
		}
		it, err := open(&o)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("scan %s: %w", t.desc.Name, engineError(err))
		}
		c.it = it
	}
	return s, nil
}

// rowBounds returns the keys of a family's rows as [low, high).
func rowBounds(tag byte, table uint32, family uint8, rows cell.Range) (low, high []byte) {
	low = cell.AppendFamilyPrefix(nil, tag, table, family)
	high = cell.PrefixEnd(low)
	if len(rows.Stop) > 0 {
		high = cell.AppendRowPrefix(nil, tag, table, family, rows.Stop)
	}
	if len(rows.Start) > 0 {
		low = cell.AppendPart(low, rows.Start)
	}
	return low, high
}

// Close releases the iterators.
func (s *rowSource) Close() error {
	if s.release != nil {
		s.release()
	}
	return s.abort(store.ErrClosed)
}

// abort closes the iterators; later calls fail with why. It may be called
// beside the scan's own.
func (s *rowSource) abort(why error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = why
	var first error
	for i := range s.cursors {
		it := s.cursors[i].it
		s.cursors[i].it = nil
		if it == nil || i > 0 && s.single {
			continue
		}
		told := it.Error() != nil // by the reading, which looks after each move
		var err error
		if s.found != nil {
			err = engineError(s.found.close())
		} else {
			err = s.closing(it)
		}
		if !told {
			first = cmp.Or(first, err)
		}
	}
	return first
}

// start positions the cursors on their first rows.
func (s *rowSource) start() error {
	s.started = true
	for i := range s.cursors {
		c := &s.cursors[i]
		var ok bool
		switch {
		case s.sel.Reversed():
			ok = c.it.Last()
		default:
			ok = c.it.First()
		}
		if err := c.moved(ok); err != nil {
			return err
		}
	}
	return nil
}

// NextRow returns the next row with a visible cell.
func (s *rowSource) NextRow(skip func(row []byte) bool) (*cell.Row, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		return nil, fmt.Errorf("scan: %w", s.closed)
	}
	if s.sel.Empty() {
		return nil, nil
	}
	if s.cut >= 0 {
		if row, err := s.nextPart(); row != nil || err != nil {
			return row, err
		}
	}
	if s.single {
		return s.onlyRow(skip)
	}
	if !s.started {
		if err := s.start(); err != nil {
			return nil, err
		}
	}
	if s.begun {
		s.begun = false
		if err := s.resume(0); err != nil {
			return nil, err
		}
		if row := s.part(); row != nil {
			return row, nil
		}
	}
	for passed := 0; ; passed++ {
		if passed == probeRows {
			passed = 0
			if err := s.ctx.Err(); err != nil {
				return nil, fmt.Errorf("scan: %w", err)
			}
			s.turn.Give() // as store's scanner does after some rows
		}
		if !s.nextKey() {
			return nil, nil
		}
		if skip != nil && skip(s.name) {
			if s.sel.Stopped() {
				return nil, nil
			}
			if err := s.pass(s.sel.SeekRow(s.name)); err != nil {
				return nil, err
			}
			continue
		}
		s.begin()
		if err := s.read(0); err != nil {
			return nil, err
		}
		if row := s.part(); row != nil {
			return row, nil
		}
	}
}

// begin begins a row.
func (s *rowSource) begin() {
	s.cells, s.bytes, s.counted, s.cut = s.cells[:0], 0, 0, -1
	s.arena.reset()
}

// read reads the current row from this cursor on, until it ends or is cut.
func (s *rowSource) read(from int) error {
	for i := from; i < len(s.cursors) && s.cut < 0; i++ {
		c := &s.cursors[i]
		if s.single {
			if err := c.moved(c.it.SeekPrefixGE(c.prefix)); err != nil {
				return err
			}
		}
		if !c.valid || len(s.cursors) > 1 && !s.single && !bytes.Equal(c.row(), s.key) {
			continue
		}
		if err := s.readCursor(i); err != nil {
			return err
		}
	}
	return nil
}

// readFrom is read where the cursor is on the row.
func (s *rowSource) readFrom(at int) error {
	if err := s.readCursor(at); err != nil || s.cut >= 0 {
		return err
	}
	return s.read(at + 1)
}

func (s *rowSource) readCursor(i int) error {
	if err := s.cursors[i].beginRow(s); err != nil {
		return err
	}
	return s.resume(i)
}

// resume reads on in the part of cursor i.
func (s *rowSource) resume(i int) error {
	s.cut = -1
	c := &s.cursors[i]
	cut, err := c.readRow(s)
	if cut {
		s.cut = i
	}
	return err
}

// part returns what was read of the current row, or nil where nothing was.
func (s *rowSource) part() *cell.Row {
	n := len(s.cells)
	if s.cut >= 0 {
		n -= n % s.pieceCells
	}
	s.row.Key, s.row.Cells, s.row.More, s.held = s.name, s.cells[:n:n], s.cut >= 0, len(s.cells)-n
	if n == 0 {
		return nil
	}
	return &s.row
}

// nextPart returns the next part of a row that was cut, or nil where it has no
// further cells.
func (s *rowSource) nextPart() (*cell.Row, error) {
	at, held := s.cut, s.cells[len(s.cells)-s.held:]
	s.spare.reset()
	for i := range held {
		c := &held[i]
		c.Qualifier, c.Value = s.spare.copy(c.Qualifier), s.spare.copy(c.Value)
	}
	s.cells = append(s.cells[:0], held...)
	s.arena, s.spare = s.spare, s.arena
	s.bytes, s.counted = 0, 0
	s.cursors[at].reader.res.cut()
	err := s.resume(at)
	if err == nil && s.cut < 0 {
		err = s.read(at + 1)
	}
	if err != nil {
		return nil, err
	}
	return s.part(), nil
}

// full reports whether the row is to be cut here: there are as many bytes of cells
// as a part may have, and as many cells as it must have.
func (s *rowSource) full() bool {
	for ; s.counted < len(s.cells); s.counted++ {
		c := &s.cells[s.counted]
		s.bytes += len(c.Family) + len(c.Qualifier) + len(c.Value)
	}
	return s.bytes >= s.pieceBytes && s.counted >= s.pieceCells
}

// onlyRow reads the row of a scan of one row: a prefix seek a family, on one
// iterator, which the bloom filters answer where there is nothing.
func (s *rowSource) onlyRow(skip func(row []byte) bool) (*cell.Row, error) {
	if s.started {
		return nil, nil
	}
	s.started = true
	s.name = append(s.name[:0], s.sel.Rows().Start...)
	at := 0
	if s.found != nil {
		at = s.found.family
		if err := s.cursors[at].moved(true); err != nil {
			return nil, err
		}
	}
	for ; s.found == nil && at < len(s.cursors); at++ {
		c := &s.cursors[at]
		if err := c.moved(c.it.SeekPrefixGE(c.prefix)); err != nil {
			return nil, err
		}
		if c.valid {
			break
		}
	}
	if at == len(s.cursors) || skip != nil && skip(s.name) {
		return nil, nil
	}
	s.begin()
	if err := s.readFrom(at); err != nil {
		return nil, err
	}
	return s.part(), nil
}

// nextKey finds the next row over all families, and reports whether there is one.
func (s *rowSource) nextKey() bool {
	var first []byte
	for i := range s.cursors {
		c := &s.cursors[i]
		if !c.valid {
			continue
		}
		row := c.row()
		if first == nil {
			first = row
			continue
		}
		if d := bytes.Compare(row, first); d < 0 != s.sel.Reversed() && d != 0 {
			first = row
		}
	}
	if first == nil {
		return false
	}
	if len(s.cursors) > 1 {
		s.key = append(s.key[:0], first...)
	}
	s.name = cell.AppendUnescaped(s.name[:0], first[:len(first)-2])
	return true
}

// each calls f for every cursor that is on the current row.
func (s *rowSource) each(f func(c *cursor, s *rowSource) error) error {
	if len(s.cursors) == 1 {
		return f(&s.cursors[0], s)
	}
	for i := range s.cursors {
		if c := &s.cursors[i]; c.valid && bytes.Equal(c.row(), s.key) {
			if err := f(c, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// pass moves past the current row and, where next is not nil, to the rows from it
// on or, reversed, before it.
func (s *rowSource) pass(next []byte) error {
	if next == nil || !s.sel.Reversed() {
		// Often the next row is as far as a hint leads, and a step is cheaper.
		if err := s.each((*cursor).skipRow); err != nil || next == nil {
			return err
		}
	}
	s.next = cell.AppendPart(s.next[:0], next)
	for i := range s.cursors {
		c := &s.cursors[i]
		if !c.valid || bytes.Compare(c.row(), s.next) < 0 == s.sel.Reversed() {
			continue
		}
		c.seek = append(append(c.seek[:0], c.key[:prefixBytes]...), s.next...)
		ok := false
		if s.sel.Reversed() {
			ok = c.it.SeekLT(c.seek)
		} else {
			ok = c.it.SeekGE(c.seek)
		}
		if err := c.moved(ok); err != nil {
			return err
		}
	}
	return nil
}

// row is the current row, escaped, with its terminator.
func (c *cursor) row() []byte { return c.key[prefixBytes:c.split] }

// moved takes the position that the iterator has reached.
func (c *cursor) moved(ok bool) error {
	c.valid = ok
	if !ok {
		if err := c.it.Error(); err != nil {
			return engineError(err)
		}
		return nil
	}
	c.key = c.it.Key()
	if c.within = len(c.prefix) > 0 && bytes.HasPrefix(c.key, c.prefix); c.within {
		c.split = len(c.prefix) // a row's terminator ends no other row's prefix
		return nil
	}
	if n := len(c.key) - versionBytes; n >= prefixBytes+4 && string(c.key[n-4:n]) == "\x00\x01\x00\x01" && c.key[0] == cell.TagData {
		c.split = n - 2 // the qualifier is empty, and no part has a 00 01 in it
		return nil
	}
	c.split = cell.SplitKey(c.key)
	if c.split < prefixBytes+2 {
		return fmt.Errorf("%w: key %x", store.ErrCorrupt, c.key)
	}
	return nil
}

// skipRow moves past the current row without reading it.
func (c *cursor) skipRow(s *rowSource) error {
	if s.sel.Reversed() {
		c.seek = append(c.seek[:0], c.key[:c.split]...)
		return c.moved(c.it.SeekLT(c.seek))
	}
	return c.moved(c.it.NextPrefix())
}

// beginRow begins to read the current row of the family.
func (c *cursor) beginRow(s *rowSource) error {
	c.reader.begin()
	c.prefix, c.within = append(c.prefix[:0], c.key[:c.split]...), true
	if s.sel.Reversed() && !s.single {
		// The iterator is on the row's last cell; cells come ascending.
		return c.moved(c.it.SeekGE(c.prefix))
	}
	return nil
}

// readRow reads the current row of the family and moves past it, or cuts it.
func (c *cursor) readRow(s *rowSource) (cut bool, err error) {
	r := &c.reader
	for c.valid && c.within {
		if s.pieceBytes > 0 && s.full() {
			return true, nil
		}
		value, err := c.it.ValueAndErr()
		if err != nil {
			return false, engineError(err)
		}
		if err := r.add(c.key[c.split:], value); err != nil {
			return false, fmt.Errorf("table %s, row %q: %w", s.table, s.name, err)
		}
		ok := false
		if !r.res.done {
			r.passed, ok = 0, c.it.Next()
		} else if seek, skip := r.skip(c.prefix, s.single); !skip {
			ok = c.it.Next()
		} else if s.single {
			ok = seek != nil && c.it.SeekPrefixGE(seek)
		} else if seek != nil {
			ok = c.it.SeekGE(seek)
		} else {
			c.seek = append(c.seek[:0], c.prefix...)
			c.seek[len(c.seek)-1]++
			ok = c.it.SeekGE(c.seek)
		}
		if err := c.moved(ok); err != nil {
			return false, err
		}
	}
	if err := r.end(); err != nil {
		return false, fmt.Errorf("table %s, row %q: %w", s.table, s.name, err)
	}
	if s.sel.Reversed() && !s.single {
		return false, c.moved(c.it.SeekLT(c.prefix))
	}
	return false, nil
}
