package columnar

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"sluice/cell"
	"sluice/store"
)

// packedColumns is how packed rows of one family fill columns: first it is found where the
// values of all rows lie, and then they are taken column by column.
type packedColumns struct {
	family string
	fields []packedField // by qualifier
	uses   int           // how many columns one value fills at most; 0 = fit was not called
	empty  []int         // columns of other families' cells
	spans  []span        // of each field, of each row
}

// packedField is one qualifier that columns are filled from.
type packedField struct {
	qualifier string
	name      string // how a packed value begins a column of it; "" = too long for one byte of length
	head      uint64 // its first bytes, as a little-endian number,
	mask      uint64 // and which these are
	tail      uint64 // its last eight where it has more
	columns   []int
	absent    bool // in some row of those at hand
}

// span is where a value lies among PackedRows.Values; end 0 = there is none.
type span struct{ start, end uint32 }

// fit makes p of a schema's columns, for packed rows of this family.
func (p *packedColumns) fit(s *Schema, family string) {
	if p.uses > 0 && p.family == family {
		return
	}
	*p = packedColumns{family: family, uses: 1, spans: p.spans}
	for _, i := range s.cells {
		c := &s.columns[i]
		if c.family != family {
			p.empty = append(p.empty, i)
			continue
		}
		if n := len(p.fields); n > 0 && p.fields[n-1].qualifier == c.qualifier {
			last := &p.fields[n-1]
			last.columns = append(last.columns, i)
			p.uses = max(p.uses, len(last.columns))
			continue
		}
		f := packedField{qualifier: c.qualifier, columns: []int{i}}
		if len(c.qualifier) < oneByte {
			f.name = string(cell.AppendPackedColumn(nil, []byte(c.qualifier), nil)[:1+len(c.qualifier)])
			var word [8]byte
			n := copy(word[:], f.name)
			f.head, f.mask = binary.LittleEndian.Uint64(word[:]), 1<<(8*n)-1
			if len(f.name) > 8 {
				f.tail = binary.LittleEndian.Uint64([]byte(f.name[len(f.name)-8:]))
			}
		}
		p.fields = append(p.fields, f)
	}
}

// oneByte is the first length that takes two bytes (a uvarint).
const oneByte = 0x80

// find finds the values of all rows. Its error wraps store.ErrCorrupt.
func (p *packedColumns) find(rows *cell.PackedRows) error {
	n := rows.Len()
	p.spans = slices.Grow(p.spans[:0], n*len(p.fields))[:n*len(p.fields)]
	for f := range p.fields {
		p.fields[f].absent = false
	}
	values := rows.Values()
	for i := range n {
		start, end := rows.At(i)
		if !p.findAlike(values, i, n, start, end) {
			if err := p.findAny(rows, i, n, start, end); err != nil {
				return fmt.Errorf("%w: row %q: %w", store.ErrCorrupt, rows.Key(i), err)
			}
		}
	}
	return nil
}

// findAlike finds the values of row i of n, at [start, end), where it has the columns that
// the schema has and no other: rows are much alike.
func (p *packedColumns) findAlike(values []byte, i, n, start, end int) bool {
	if start == end || values[start] != 0 {
		return false
	}
	fields, spans := p.fields, p.spans // p is not read again for each
	at := start + 1
	for k := range fields {
		f := &fields[k]
		m := at + len(f.name) // of the value's length
		if f.name == "" || m >= end {
			return false
		}
		if at+8 > len(values) {
			if string(values[at:m]) != f.name {
				return false
			}
		} else if binary.LittleEndian.Uint64(values[at:])&f.mask != f.head {
			return false
		} else if len(f.name) > 8 && binary.LittleEndian.Uint64(values[m-8:]) != f.tail {
			return false
		} else if len(f.name) > 16 && string(values[at+8:m-8]) != f.name[8:len(f.name)-8] {
			return false
		}
		size := values[m]
		if size >= oneByte {
			return false
		}
		at = m + 1 + int(size)
		if at > end {
			return false
		}
		spans[i] = span{uint32(m + 1), uint32(at)}
		i += n
	}
	return at == end && len(fields) > 0
}

// findAny is findAlike for any row, which it reads to its end: that may be damaged.
func (p *packedColumns) findAny(rows *cell.PackedRows, i, n, start, end int) error {
	var columns cell.Packed
	if err := columns.Reset(rows.Value(i), 0); err != nil {
		return err
	}
	if rows.Values()[start] != 0 {
		return fmt.Errorf("%w: a packed row with a TTL, or sequences", cell.ErrCorruptValue)
	}
	k := 0
	none := func() {
		p.spans[k*n+i], p.fields[k].absent = span{}, true
		k++
	}
	for columns.Next() {
		for k < len(p.fields) && p.fields[k].qualifier < string(columns.Qualifier) {
			none()
		}
		if k < len(p.fields) && p.fields[k].qualifier == string(columns.Qualifier) {
			to := end - columns.Left()
			p.spans[k*n+i] = span{uint32(to - len(columns.Value)), uint32(to)}
			k++
		}
	}
	for k < len(p.fields) {
		none()
	}
	return columns.Err()
}

// AppendPacked appends all of rows for which the conditions of Schema.Where hold (see Kept),
// as Append does with each of them, or none: where ok is false, the caller is to append them
// by themselves, as the batch may be Full before the last, or a column must see cells. On an
// error, a *ConvertError or one that wraps store.ErrCorrupt, the batch must be Reset.
func (b *Builder) AppendPacked(rows *cell.PackedRows) (ok bool, err error) {
	s, n := b.schema, rows.Len()
	if !s.packs || b.batch.Rows()+n > DefaultBatchRows {
		return false, nil
	}
	p := &b.packed
	p.fit(s, rows.Family)
	values := len(rows.Values())
	if b.bytes+values*p.uses+(rows.Bytes()-values)*len(s.others) >= DefaultBatchBytes {
		return false, nil
	}
	if err := p.find(rows); err != nil {
		return false, err
	}
	for k := range p.fields {
		f := &p.fields[k]
		for _, i := range f.columns {
			if err := b.fill(i, p.spans[k*n:(k+1)*n], f.absent, rows); err != nil {
				return false, err
			}
		}
	}
	for _, i := range p.empty {
		for r := range n {
			if err := b.null(i, rows.Key(r)); err != nil {
				return false, err
			}
		}
	}
	if err := b.appendOthers(rows); err != nil {
		return false, err
	}
	if b.kept = nil; s.where != nil {
		b.kept = b.sift(b.batch.Rows() - n)
	}
	for r, kept := range b.kept {
		if !kept {
			b.bytes -= b.packedBytes(rows, r)
		}
	}
	return true, nil
}

// Kept returns which of the rows that AppendPacked has taken last are in the batch, by their
// index, until more is appended; nil = all.
func (b *Builder) Kept() []bool { return b.kept }

// packedBytes returns by how much row r of rows has made b.bytes more.
func (b *Builder) packedBytes(rows *cell.PackedRows, r int) (size int) {
	n := rows.Len()
	for k := range b.packed.fields {
		at := b.packed.spans[k*n+r]
		size += int(at.end-at.start) * len(b.packed.fields[k].columns)
	}
	split := false
	for _, i := range b.schema.others {
		switch c := &b.schema.columns[i]; c.source {
		case sourceRow:
			size += len(rows.Key(r))
		case sourceField:
			if !split {
				b.split(rows.Key(r))
				split = true
			}
			if b.unlike == "" {
				size += len(b.fields[c.field])
			}
		}
	}
	return size
}

// Conditional reports whether the schema has conditions (Where).
func (s *Schema) Conditional() bool { return s.where != nil }

// CellColumns returns how many columns of tables the schema's columns are filled from. ok
// is false where other cells decide, too, what becomes of a row: in mode cell, where there
// are unmatched ones, or conditions.
func (s *Schema) CellColumns() (n int, ok bool) {
	for _, i := range s.cells {
		if !s.columns[i].again {
			n++
		}
	}
	return n, s.packs && s.where == nil
}

// HasAll reports whether row, with cells by family and qualifier, has one of each column
// that the schema's columns are filled from.
func (s *Schema) HasAll(row *cell.Row) bool {
	cells := row.Cells
	for _, i := range s.cells {
		c := &s.columns[i]
		for len(cells) > 0 && (cells[0].Family != c.family || string(cells[0].Qualifier) != c.qualifier) {
			cells = cells[1:]
		}
		if len(cells) == 0 {
			return false
		}
	}
	return true
}

// HasAll reports whether each of rows has all columns of tables that the schema's columns
// are filled from. Its error wraps store.ErrCorrupt.
func (b *Builder) HasAll(rows *cell.PackedRows) (bool, error) {
	p := &b.packed
	p.fit(b.schema, rows.Family)
	if len(p.empty) > 0 {
		return false, nil
	}
	if err := p.find(rows); err != nil {
		return false, err
	}
	return !slices.ContainsFunc(p.fields, func(f packedField) bool { return f.absent }), nil
}

// fill appends the values at spans to column i.
func (b *Builder) fill(i int, spans []span, absent bool, rows *cell.PackedRows) error {
	c, to := &b.schema.columns[i], &b.batch.vectors[i]
	if !absent && to.nulls == 0 && (c.coding == Text && to.typ == String || to.typ == Int64) {
		n, bytes := 0, 0
		if to.typ == Int64 {
			n, bytes = to.appendInts(c.coding, rows.Values(), spans)
		} else {
			n, bytes = to.appendTexts(rows.Values(), spans)
		}
		b.bytes += bytes
		if n == len(spans) {
			return nil
		}
		spans = spans[n:]
	}
	first := rows.Len() - len(spans)
	for r, at := range spans {
		var err error
		if at.end == 0 {
			err = b.null(i, rows.Key(first+r))
		} else {
			err = b.value(i, rows.Key(first+r), rows.Values()[at.start:at.end:at.end])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// appendTexts appends the texts at spans of values to a String vector without nulls, up to
// the first that is not UTF-8, and returns how many these are and their bytes. All together
// have less than 2 GiB.
func (v *Vector) appendTexts(values []byte, spans []span) (done, bytes int) {
	const (
		high  = 0x8080808080808080
		short = 16 // bytes that are copied as two words, whatever follows them
	)
	size := 0
	for _, at := range spans {
		size += int(at.end - at.start)
	}
	from := len(v.data)
	n := from
	data := slices.Grow(v.data, size+short)[:n+size+short]
	offsets := slices.Grow(v.offsets, len(spans))
	done = len(spans)
	for i, at := range spans {
		start, end := int(at.start), int(at.end)
		size := uint(end - start)
		if size <= short && start+short <= len(values) {
			text, into := values[start:start+short], data[n:n+short]
			lo, hi := binary.LittleEndian.Uint64(text), binary.LittleEndian.Uint64(text[8:])
			binary.LittleEndian.PutUint64(into, lo)
			binary.LittleEndian.PutUint64(into[8:], hi)
			if size < 8 {
				lo, hi = lo<<(64-8*size), 0 // a shift by 64 leaves nothing
			} else if size < short {
				hi <<= 128 - 8*size
			}
			if (lo|hi)&high != 0 && !utf8.Valid(values[start:end]) {
				done = i
				break
			}
		} else {
			text := values[start:end]
			if !copyASCII(data[n:n+len(text)], text) && !utf8.Valid(text) {
				done = i
				break
			}
		}
		n += int(size)
		offsets = append(offsets, int32(n))
	}
	v.data, v.offsets = data[:n], offsets
	v.n += done
	return done, n - from
}

// copyASCII copies b to dst, of the same length, and reports whether it is ASCII.
func copyASCII(dst, b []byte) bool {
	const (
		high = 0x8080808080808080
		few  = 128 // bytes that are copied word by word
	)
	n := len(b)
	if n < 8 || n > few {
		copy(dst, b)
		return isASCII(b)
	}
	dst = dst[:n]
	seen := binary.LittleEndian.Uint64(b[n-8:])
	binary.LittleEndian.PutUint64(dst[n-8:], seen)
	for len(b) > 8 && len(dst) > 8 {
		w := binary.LittleEndian.Uint64(b)
		binary.LittleEndian.PutUint64(dst, w)
		seen |= w
		b, dst = b[8:], dst[8:]
	}
	return seen&high == 0
}

// appendInts appends the numbers at spans of values to an Int64 vector without nulls, up to
// the first that is none, and returns how many these are and their bytes.
func (v *Vector) appendInts(c Coding, values []byte, spans []span) (done, bytes int) {
	const few = 18 // digits that cannot be out of range
	done = len(spans)
	ints := slices.Grow(v.int64s, done)
	for i, at := range spans {
		b := values[at.start:at.end]
		bytes += len(b)
		if c == Text && len(b) <= 8 && int(at.start)+8 <= len(values) {
			if n, ok := parseDigits(binary.LittleEndian.Uint64(values[at.start:]), len(b)); ok {
				ints = append(ints, n)
				continue
			}
		}
		if c == Text && len(b) > 0 && len(b) <= few {
			n := int64(0)
			for _, digit := range b {
				if digit -= '0'; digit > 9 {
					n = -1 // a sign, perhaps
					break
				}
				n = n*10 + int64(digit)
			}
			if n >= 0 {
				ints = append(ints, n)
				continue
			}
		}
		n, why := parseInt(c, b)
		if why != "" {
			done = i
			bytes -= len(b)
			break
		}
		ints = append(ints, n)
	}
	v.int64s = ints
	v.n += done
	return done, bytes
}

// parseDigits returns the number that the first n bytes of b, 1 to 8 as they lie in memory,
// are in decimal; ok is false where one is no digit, and where n is 0.
func parseDigits(b uint64, n int) (number int64, ok bool) {
	const (
		zeros = 0x3030303030303030
		high  = 0x8080808080808080
		nine  = 0x4646464646464646 // makes what is more than '9' 0x80 or more
		pairs = 0x000000FF000000FF
	)
	b = b<<(64-8*n) | zeros>>(8*n) // with zeros before them
	if n < 1 || ((b+nine)|(b-zeros))&high != 0 {
		return 0, false
	}
	b -= zeros
	b = b*10 + b>>8 // of two digits each
	return int64((b&pairs*(100+1000000<<32) + b>>16&pairs*(1+10000<<32)) >> 32), true
}

// appendTimes appends times to an Int64 or Timestamp vector without nulls, or none where
// one is out of range.
func (v *Vector) appendTimes(times []cell.Timestamp) bool {
	if v.nulls > 0 {
		return false
	}
	factor := int64(1)
	if v.typ == Timestamp {
		factor = 1000 // µs
	}
	n := len(v.int64s)
	ints := slices.Grow(v.int64s, len(times))
	for _, t := range times {
		if t > cell.Timestamp(math.MaxInt64/factor) || t < 0 {
			return false
		}
		ints = append(ints, int64(t)*factor)
	}
	v.int64s = ints
	v.n += len(ints) - n
	return true
}

// appendOthers appends, for packed rows, the columns that are no cell's.
func (b *Builder) appendOthers(rows *cell.PackedRows) error {
	fields := false
	for _, i := range b.schema.others {
		source := b.schema.columns[i].source
		switch {
		case source == sourceField:
			fields = true
			continue
		case source == sourceTimestamp && b.batch.vectors[i].appendTimes(rows.Times):
			continue
		}
		for r, t := range rows.Times {
			var err error
			switch source {
			case sourceRow:
				err = b.value(i, rows.Key(r), rows.Key(r))
			case sourceOp:
				b.op(i, OpUpsert)
			default:
				err = b.time(i, rows.Key(r), t)
			}
			if err != nil {
				return err
			}
		}
	}
	if !fields {
		return nil
	}
	for r := range rows.Times {
		b.split(rows.Key(r))
		for _, i := range b.schema.others {
			if b.schema.columns[i].source != sourceField {
				continue
			}
			if err := b.keyField(i, rows.Key(r)); err != nil {
				return err
			}
		}
	}
	return nil
}
