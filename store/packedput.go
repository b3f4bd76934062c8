package store

import (
	"fmt"
	"slices"

	"sluice/cell"
)

// maxPackedPut is where the columns of a put are too many bytes to be packed beforehand:
// engines cut there, or further up.
const maxPackedPut = 64 << 10

// PackedPut is a mutation that puts two or more columns of one family, at one time of
// their own and with one TTL, with its columns as an engine may store them: most
// mutations of an ingest are such. Of six short columns it takes a third of the memory of
// the mutation, and the engine copies it as it is. The zero value is none; Batch.Pack
// makes one. Its slices are those of the arena that it was made in.
type PackedPut struct {
	Offset int64 // of its record
	Table  string
	Family string
	Row    []byte
	Time   cell.Timestamp

	value   []byte // cell.AppendPackedHeader, AppendPackedColumn
	size    uint32 // bytes of all qualifiers and values
	largest uint32 // bytes of the qualifier and value that have most
}

// Value returns the columns as cell.AppendPackedHeader, without sequences of their own,
// and cell.AppendPackedColumn make them.
func (p *PackedPut) Value() []byte { return p.value }

// Size returns the bytes of all qualifiers and values.
func (p *PackedPut) Size() int { return int(p.size) }

// PackedPutSize returns how many bytes of an arena Batch.Pack takes for m. ok is false of
// a mutation that is no packed put; whether a table takes what is one, this does not say.
func PackedPutSize(m *cell.Mutation) (n int, ok bool) {
	if len(m.Ops) < 2 || m.Durability != cell.UseDefault {
		return 0, false
	}
	s, ok := putShapeOf(m)
	n = len(m.Row) + s.packed
	return n, ok && n <= maxPackedPut
}

// Pack adds m, which was made from the record at offset, in the spare capacity of arena,
// and returns the arena that goes on behind it. Where m is no packed put, or has no room
// there, ok is false and neither b nor arena is another.
func (b *Batch) Pack(arena []byte, offset int64, m *cell.Mutation) (rest []byte, ok bool) {
	b.Puts, rest, ok = PackPut(b.Puts, arena, offset, m)
	return rest, ok
}

// PackPut is Batch.Pack to puts, which it returns with the put behind them.
func PackPut(puts []PackedPut, arena []byte, offset int64, m *cell.Mutation) (_ []PackedPut, rest []byte, ok bool) {
	if len(m.Ops) < 2 || m.Durability != cell.UseDefault || !mayBePlain(m) {
		return puts, arena, false
	}
	first := &m.Ops[0]
	start := len(arena)
	value := start + len(m.Row)
	if value+headerSize(first.TTL) > cap(arena) {
		return puts, arena, false
	}
	rest = cell.AppendPackedHeader(append(arena, m.Row...), first.TTL, false)
	size, largest := 0, 0
	for i := range m.Ops {
		o := &m.Ops[i]
		n := len(o.Qualifier) + len(o.Value)
		if !goesOn(m, i) || n+uvarint(len(o.Qualifier))+uvarint(len(o.Value)) > cap(rest)-len(rest) {
			return puts, arena, false
		}
		rest = cell.AppendPackedColumn(rest, o.Qualifier, o.Value)
		size += n
		largest = max(largest, n)
	}
	if len(rest)-start > maxPackedPut {
		return puts, arena, false
	}
	puts = append(puts, PackedPut{
		Offset: offset, Table: m.Table, Family: first.Family, Row: rest[start:value:value], Time: first.Time,
		value: rest[value:len(rest):len(rest)], size: uint32(size), largest: uint32(largest),
	})
	return puts, rest, true
}

// AppendOps appends the operations that p was made of to ops. Their slices are p's.
func (p *PackedPut) AppendOps(ops []cell.Op) []cell.Op {
	var columns cell.Packed
	if err := columns.Reset(p.value, 0); err != nil {
		panic(fmt.Sprintf("store: a packed put that Batch.Pack has not made: %v", err))
	}
	for columns.Next() {
		ops = append(ops, cell.Op{
			Type: cell.OpPut, Family: p.Family, Qualifier: columns.Qualifier, Value: columns.Value,
			Time: p.Time, TTL: columns.TTL,
		})
	}
	return ops
}

// Mutation returns the mutation that p was made of. Its slices but that of its
// operations are p's.
func (p *PackedPut) Mutation() Mutation {
	return Mutation{Offset: p.Offset, Mutation: cell.Mutation{Table: p.Table, Row: p.Row, Ops: p.AppendOps(nil)}}
}

// PlainPackedPut is PlainPut of a packed put.
func PlainPackedPut(t *TableDescriptor, p *PackedPut, now cell.Timestamp) (family int, ok bool) {
	return takesPut(t, p.Row, p.Family, p.Time, int(p.largest), now)
}

// Unpacked returns b with its packed puts among its mutations, and those of its records
// among theirs: b itself where there are none, else a copy that shares all else with b.
func (b *Batch) Unpacked() *Batch {
	packed := slices.ContainsFunc(b.Records, func(r Record) bool { return len(r.Puts) > 0 })
	if len(b.Puts) == 0 && !packed {
		return b
	}
	plain := *b
	plain.Mutations, plain.Puts = make([]Mutation, 0, len(b.Mutations)+len(b.Puts)), nil
	b.InOrder(func(p *PackedPut) { plain.Mutations = append(plain.Mutations, p.Mutation()) },
		func(m *Mutation) { plain.Mutations = append(plain.Mutations, *m) },
		func(*Record) {})
	if packed {
		plain.Records = make([]Record, len(b.Records))
		for i := range b.Records {
			plain.Records[i] = *b.Records[i].Unpacked()
		}
	}
	return &plain
}

// Unpacked returns r with its packed puts before its mutations: r itself where it has none,
// else a copy that shares all else with r.
func (r *Record) Unpacked() *Record {
	if len(r.Puts) == 0 {
		return r
	}
	plain := *r
	plain.Mutations, plain.Puts = make([]cell.Mutation, 0, len(r.Puts)+len(r.Mutations)), nil
	for i := range r.Puts {
		plain.Mutations = append(plain.Mutations, r.Puts[i].Mutation().Mutation)
	}
	plain.Mutations = append(plain.Mutations, r.Mutations...)
	if r.Checks != nil {
		plain.Checks = append(make([]*Cond, len(r.Puts)), r.Checks...)
	}
	if r.Asides != nil {
		plain.Asides = slices.Clone(r.Asides)
		for i := range plain.Asides {
			plain.Asides[i] += len(r.Puts)
		}
	}
	return &plain
}
