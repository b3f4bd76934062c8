package store

import (
	"bytes"
	"math/bits"

	"sluice/cell"
)

// PlainPut reports that m, which ValidateMutation would pass at now, does nothing but
// put columns of one family, at one time of their own and with one TTL, in strictly
// ascending order of their qualifiers: what it writes (ResolveMutation) is its
// operations as they stand. It returns the family's index in t and the bytes of all
// qualifiers and values. Most mutations of an ingest are such, and to find that out
// costs a third of validating and resolving them. Of what is not, and of what is wrong
// with a mutation, it says nothing.
func PlainPut(t *TableDescriptor, m *cell.Mutation, now cell.Timestamp) (family, size int, ok bool) {
	if m.Durability > cell.FsyncWAL {
		return 0, 0, false
	}
	s, ok := putShapeOf(m)
	if !ok {
		return 0, 0, false
	}
	family, ok = takesPut(t, m.Row, m.Ops[0].Family, m.Ops[0].Time, s.largest, now)
	return family, s.size, ok
}

// putShape is what a put's columns take.
type putShape struct {
	size    int // bytes of all qualifiers and values
	largest int // bytes of the qualifier and value that have most
	packed  int // bytes of cell.AppendPackedHeader and AppendPackedColumn
}

// putShapeOf returns the shape of m. ok is false where m is no PlainPut, whatever the
// table is.
func putShapeOf(m *cell.Mutation) (s putShape, ok bool) {
	if !mayBePlain(m) {
		return s, false
	}
	s.packed = headerSize(m.Ops[0].TTL)
	for i := range m.Ops {
		if !goesOn(m, i) {
			return s, false
		}
		o := &m.Ops[i]
		n := len(o.Qualifier) + len(o.Value)
		s.size += n
		s.largest = max(s.largest, n)
		s.packed += n + uvarint(len(o.Qualifier)) + uvarint(len(o.Value))
	}
	return s, true
}

// mayBePlain reports whether m is a PlainPut by all but its other operations than the
// first, of which it has at least one.
func mayBePlain(m *cell.Mutation) bool {
	if len(m.Ops) == 0 || m.Read != nil || cell.CheckRow(m.Row) != nil {
		return false
	}
	first := &m.Ops[0]
	return first.Type == cell.OpPut && first.Time >= 0 && first.Time != cell.Latest && (first.TTL >= 0 || first.TTL == cell.NoLife)
}

// goesOn reports whether operation i of m puts a column behind the one before, as the
// first one does.
func goesOn(m *cell.Mutation, i int) bool {
	if i == 0 {
		return true
	}
	first, before, o := &m.Ops[0], &m.Ops[i-1], &m.Ops[i]
	return o.Type == cell.OpPut && o.Time == first.Time && o.TTL == first.TTL && o.Family == first.Family &&
		bytes.Compare(before.Qualifier, o.Qualifier) < 0
}

// headerSize returns the bytes of cell.AppendPackedHeader.
func headerSize(ttl int64) int {
	if ttl != 0 {
		return 9
	}
	return 1
}

// uvarint returns the length of n as encoding/binary's uvarint.
func uvarint(n int) int { return (bits.Len(uint(n)|1) + 6) / 7 }

// takesPut reports whether t takes a put of that shape, the largest of its qualifiers with
// their values of so many bytes, into row and family, whose index in t it returns.
func takesPut(t *TableDescriptor, row []byte, name string, at cell.Timestamp, largest int, now cell.Timestamp) (family int, ok bool) {
	if t.ReadOnly || tooFar(t, at, now) {
		return 0, false
	}
	for family = range t.Families {
		if t.Families[family].Name == name {
			return family, !t.Families[family].InPlace() && largest <= t.CellLimit()-(cell.KeyValueBytes+len(row)+len(name))
		}
	}
	return 0, false
}

// PlainIncrement reports that ValidateMutation would pass an increment of a column of
// family, an index in t, by an event at time at, which has neither a TTL nor a time
// range. Of what is wrong with one it says nothing.
func PlainIncrement(t *TableDescriptor, family int, row, qualifier []byte, at cell.Timestamp) bool {
	f := &t.Families[family]
	return f.Counter && !t.ReadOnly && at >= 0 && cell.CheckRow(row) == nil && checkCellSize(t, row, f.Name, qualifier, 8) == nil
}
