package store

import (
	"bytes"

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
	if t.ReadOnly || len(m.Ops) == 0 || m.Durability > cell.FsyncWAL || m.Read != nil || cell.CheckRow(m.Row) != nil {
		return 0, 0, false
	}
	first := &m.Ops[0]
	for family = range t.Families {
		if t.Families[family].Name == first.Family {
			ok = !t.Families[family].InPlace()
			break
		}
	}
	if !ok || first.Time < 0 || first.Time == cell.Latest || first.TTL < 0 && first.TTL != cell.NoLife {
		return 0, 0, false
	}
	if tooFar(t, first.Time, now) {
		return 0, 0, false
	}
	limit := maxCell(t) - (cellOverhead + len(m.Row) + len(first.Family))
	for i := range m.Ops {
		o := &m.Ops[i]
		cellBytes := len(o.Qualifier) + len(o.Value)
		if o.Type != cell.OpPut || o.Time != first.Time || o.TTL != first.TTL || o.Family != first.Family || cellBytes > limit {
			return 0, 0, false
		}
		if i > 0 && bytes.Compare(m.Ops[i-1].Qualifier, o.Qualifier) >= 0 {
			return 0, 0, false
		}
		size += cellBytes
	}
	return family, size, true
}

// PlainIncrement reports that ValidateMutation would pass an increment of a column of
// family, an index in t, by an event at time at, which has neither a TTL nor a time
// range. Of what is wrong with one it says nothing.
func PlainIncrement(t *TableDescriptor, family int, row, qualifier []byte, at cell.Timestamp) bool {
	f := &t.Families[family]
	return f.Counter && !t.ReadOnly && at >= 0 && cell.CheckRow(row) == nil && checkCellSize(t, row, f.Name, qualifier, 8) == nil
}
