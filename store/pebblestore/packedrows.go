package pebblestore

import (
	"fmt"

	"sluice/cell"
	"sluice/store"
)

var _ store.PackedSource = (*rowSource)(nil)

// NextPacked appends the next rows to rows, as long as they are each one packed put that
// is seen whole. It reads them without a resolver, which would find that each of them is
// what emitFragment is for.
func (s *rowSource) NextPacked(rows *cell.PackedRows, most, bytes int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		return fmt.Errorf("scan: %w", s.closed)
	}
	c := &s.cursors[0]
	r := &c.reader
	if s.begun || s.cut >= 0 || s.single || s.sel.Reversed() || r.fam.tag != cell.TagData {
		return nil
	}
	if !s.started {
		if err := s.start(); err != nil {
			return err
		}
	}
	oldest := r.res.oldest
	if r.res.sel.Family.MinVersions == 0 {
		oldest = max(oldest, r.res.expiredUntil)
	}
	rows.Family = r.res.sel.Family.Name
	for c.valid && rows.Len() < most && rows.Bytes() < bytes {
		at := len(c.key) - versionBytes
		if at != c.split+2 || string(c.key[c.split:at]) != unnamed {
			break
		}
		t, kind, sequence := cell.DecodeVersion(c.key[at:])
		if kind != cell.KindPacked || t < oldest || t >= r.res.high {
			break
		}
		value, err := c.it.ValueAndErr()
		if err != nil {
			return engineError(err)
		}
		if len(value) == 0 || value[0] != 0 || len(value) > bytes { // a TTL, or sequences
			break
		}
		rows.Append(c.row()[:c.split-prefixBytes-2], value, t)
		c.prefix = append(c.prefix[:0], c.key[:c.split]...)
		if err := c.moved(c.it.Next()); err != nil {
			return err
		}
		if c.valid && c.within {
			return s.takeBack(rows, t, sequence)
		}
	}
	return nil
}

// unnamed is the empty qualifier in a key.
const unnamed = "\x00\x01"

// takeBack begins the row that was appended last, which is more than one packed put: its
// rest is read by the next NextRow.
func (s *rowSource) takeBack(rows *cell.PackedRows, t cell.Timestamp, sequence uint64) error {
	last := rows.Len() - 1
	s.name = append(s.name[:0], rows.Key(last)...)
	s.begin()
	r := &s.cursors[0].reader
	r.begin()
	if err := r.addUnnamed(t, cell.KindPacked, sequence, rows.Value(last)); err != nil {
		return fmt.Errorf("table %s, row %q: %w", s.table, s.name, err)
	}
	rows.DropLast()
	s.begun = true
	return nil
}
