package pebblestore

import (
	"bytes"
	"fmt"

	"sluice/cell"
	"sluice/store"
)

var _ store.PackedSource = (*rowSource)(nil)

// NextPacked appends the next rows to rows, as long as they are each one packed put that
// is seen whole, or with rows.Fold plain puts of which one can be made. It reads them
// without a resolver, which would find that nothing masks any of them.
func (s *rowSource) NextPacked(rows *cell.PackedRows, most, bytes int, skip func(row []byte) bool) error {
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
	fold := rows.Fold && r.res.sel.Versions == 1 && !r.res.nvb
	oldest := r.res.oldestSeen()
	rows.Family = r.res.sel.Family.Name
	for c.valid && rows.Len() < most && rows.Bytes() < bytes {
		if skip != nil {
			s.name = cell.AppendUnescaped(s.name[:0], c.row()[:c.split-prefixBytes-2])
			if skip(s.name) {
				if s.sel.Stopped() {
					return nil
				}
				if err := s.pass(s.sel.SeekRow(s.name)); err != nil {
					return err
				}
				continue
			}
		}
		t, kind, sequence, isPut := decodePut(c.key[c.split:])
		if !isPut || t < oldest || t >= r.res.high || kind == cell.KindPut && !fold {
			break
		}
		value, err := c.it.ValueAndErr()
		if err != nil {
			return engineError(err)
		}
		lasting, sequences := cell.Lasting(value)
		if !lasting || sequences && !fold || len(value) > bytes {
			break
		}
		c.prefix = append(c.prefix[:0], c.key[:c.split]...)
		if sequences || kind == cell.KindPut {
			c.within = true
			whole, err := s.fold(rows, nil, oldest, bytes)
			if err != nil || !whole {
				return err
			}
			continue
		}
		rows.Append(c.row()[:c.split-prefixBytes-2], value, t)
		if err := c.moved(c.it.Next()); err != nil {
			return err
		}
		if !c.valid || !c.within {
			continue
		}
		first := fragment{time: t, sequence: sequence, value: rows.Value(rows.Len() - 1)}
		if !fold {
			return s.takeBack(rows, &first, nil)
		}
		if whole, err := s.fold(rows, &first, oldest, bytes); err != nil || !whole {
			return err
		}
	}
	return nil
}

// unnamed is the empty qualifier in a key.
const unnamed = "\x00\x01"

// decodePut decodes the version of a key, given from its qualifier on. isPut is false where
// it is neither that of a single cell that was put, nor of a packed put.
func decodePut(suffix []byte) (t cell.Timestamp, kind cell.Kind, sequence uint64, isPut bool) {
	at := len(suffix) - versionBytes
	if at < len(unnamed) {
		return 0, 0, 0, false
	}
	t, kind, sequence = cell.DecodeVersion(suffix[at:])
	return t, kind, sequence, kind == cell.KindPut || kind == cell.KindPacked && string(suffix[:at]) == unnamed
}

// takeBack begins the row of first, which was appended to rows, and of read, which came
// after it: its rest is read by the next NextRow. One of both may be missing.
func (s *rowSource) takeBack(rows *cell.PackedRows, first *fragment, read []foldedKey) error {
	c := &s.cursors[0]
	s.name = cell.AppendUnescaped(s.name[:0], c.prefix[prefixBytes:len(c.prefix)-2])
	s.begin()
	r := &c.reader
	r.begin()
	var err error
	if first != nil {
		err = r.addUnnamed(first.time, cell.KindPacked, first.sequence, first.value)
		rows.DropLast()
	}
	for i := 0; i < len(read) && err == nil; i++ {
		err = r.add(read[i].suffix, read[i].value)
	}
	if err != nil {
		return fmt.Errorf("table %s, row %q: %w", s.table, s.name, err)
	}
	s.begun = true
	return nil
}

// folding is a row of several puts on its way to one packed value.
type folding struct {
	read   []foldedKey // of the row, in key order
	puts   []foldedPut
	hold   arena // of read
	merged []byte
}

// foldedKey is a key-value of the row at hand; suffix is its key from the qualifier on.
type foldedKey struct{ suffix, value []byte }

// foldedPut is a packed put, or single cells in key order, of which the columns are
// taken one after the other.
type foldedPut struct {
	fragment
	columns   cell.Packed
	cells     []foldedKey // nil = it is packed
	scratch   []byte      // of unescaped qualifiers
	qualifier []byte      // of the column at hand; nil = there is none
	column    []byte      // its value
}

// fold appends the row that the cursor is in to rows as one packed value: of each column
// the newest. first, where it is not nil, is its first key-value, a packed put that was
// appended. Where there is more to the row than plain puts, or it is larger than most bytes,
// it is begun for NextRow, and whole is false.
func (s *rowSource) fold(rows *cell.PackedRows, first *fragment, oldest cell.Timestamp, most int) (whole bool, err error) {
	c, f := &s.cursors[0], &s.folding
	f.read = f.read[:0]
	f.hold.reset()
	size := 0
	if first != nil {
		size = len(first.value)
	}
	high := c.reader.res.high
	for c.valid && c.within {
		suffix := c.key[c.split:]
		value, err := c.it.ValueAndErr()
		if err != nil {
			return false, engineError(err)
		}
		size += len(suffix) + len(value)
		t, _, _, isPut := decodePut(suffix)
		if lasting, _ := cell.Lasting(value); !isPut || t >= high || !lasting || size > most {
			return false, s.takeBack(rows, first, f.read)
		}
		suffix, value = f.hold.copyTwo(suffix, value)
		f.read = append(f.read, foldedKey{suffix, value})
		if err := c.moved(c.it.Next()); err != nil {
			return false, err
		}
	}
	t, err := f.merge(first, oldest)
	if err != nil {
		s.name = cell.AppendUnescaped(s.name[:0], c.prefix[prefixBytes:len(c.prefix)-2])
		return false, fmt.Errorf("table %s, row %q: %w: %w", s.table, s.name, store.ErrCorrupt, err)
	}
	if first != nil {
		rows.DropLast()
	}
	rows.Append(c.prefix[prefixBytes:len(c.prefix)-2], f.merged, t)
	return true, nil
}

// merge makes merged of first and what was read, as far as it is not older than oldest,
// of which there is something, and returns the time of the newest.
func (f *folding) merge(first *fragment, oldest cell.Timestamp) (newest cell.Timestamp, err error) {
	f.puts = f.puts[:0]
	if first != nil {
		f.put().fragment = *first
		newest = first.time
	}
	at := -1 // of the single cells among the puts
	kept := f.read[:0]
	for _, kv := range f.read {
		t, kind, sequence := cell.DecodeVersion(kv.suffix[len(kv.suffix)-versionBytes:])
		if t < oldest {
			continue
		}
		newest = max(newest, t)
		if kind == cell.KindPacked {
			f.put().fragment = fragment{time: t, sequence: sequence, value: kv.value}
			continue
		}
		if at < 0 {
			at = len(f.puts)
			f.put()
		}
		kept = append(kept, kv)
	}
	if at >= 0 {
		f.puts[at].cells = kept
	}
	for i := range f.puts {
		if err := f.puts[i].begin(); err != nil {
			return 0, err
		}
	}
	f.merged = cell.AppendPackedHeader(f.merged[:0], 0, false)
	for {
		var best *foldedPut
		for i := range f.puts {
			p := &f.puts[i]
			if p.qualifier == nil {
				continue
			}
			order := -1
			if best != nil {
				order = bytes.Compare(p.qualifier, best.qualifier)
			}
			if order < 0 || order == 0 && p.newer(best) {
				best = p
			}
		}
		if best == nil {
			return newest, nil
		}
		f.merged = cell.AppendPackedColumn(f.merged, best.qualifier, best.column)
		for i := range f.puts {
			if p := &f.puts[i]; p != best && p.qualifier != nil && bytes.Equal(p.qualifier, best.qualifier) {
				if err := p.next(); err != nil {
					return 0, err
				}
			}
		}
		if err := best.next(); err != nil {
			return 0, err
		}
	}
}

// put adds a put, whose memory is that of one before.
func (f *folding) put() *foldedPut {
	if len(f.puts) == cap(f.puts) {
		f.puts = append(f.puts, foldedPut{})
	} else {
		f.puts = f.puts[:len(f.puts)+1]
	}
	p := &f.puts[len(f.puts)-1]
	*p = foldedPut{scratch: p.scratch[:0]}
	return p
}

// newer reports whether p's column comes before o's of the same qualifier.
func (p *foldedPut) newer(o *foldedPut) bool {
	return p.time > o.time || p.time == o.time && p.sequence > o.sequence
}

// begin moves to the first column.
func (p *foldedPut) begin() error {
	if p.cells == nil {
		if err := p.columns.Reset(p.value, p.sequence); err != nil {
			return err
		}
	}
	return p.next()
}

// next moves to the next column. Of single cells with the same qualifier the first is the
// newest, and the others are passed.
func (p *foldedPut) next() error {
	if p.cells == nil {
		if !p.columns.Next() {
			p.qualifier = nil
			return p.columns.Err()
		}
		p.qualifier, p.column, p.sequence = p.columns.Qualifier, p.columns.Value, p.columns.Sequence
		return nil
	}
	for len(p.cells) > 0 {
		kv := &p.cells[0]
		p.cells = p.cells[1:]
		qualifier, _, scratch, err := cell.DecodePart(kv.suffix, p.scratch)
		if err != nil {
			return err
		}
		if p.qualifier != nil && bytes.Equal(p.qualifier, qualifier) {
			continue
		}
		p.scratch = scratch
		p.time, _, p.sequence = cell.DecodeVersion(kv.suffix[len(kv.suffix)-versionBytes:])
		if _, p.column, err = cell.DecodeValue(kv.value); err != nil {
			return err
		}
		p.qualifier = qualifier
		return nil
	}
	p.qualifier = nil
	return nil
}
