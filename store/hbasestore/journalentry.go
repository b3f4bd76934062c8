package hbasestore

import (
	"encoding/binary"
	"fmt"

	"sluice/cell"
	"sluice/store"
)

// journalState is where a journal stands: one column of its row, which changes by
// check-and-put alone. docs/format/hbase.md has its layout.
type journalState struct {
	source   uint32 // of the counters' cells; 0 = the row is absent
	revision uint64 // counts the changes: odd while the entry is on its way
	nonce    uint64 // of whoever has written the newest entry: tells it from another's
	floors   string // of counters that are being removed (type remover), as encode has them; "" = none are
	// switches says that it is a journal of switches, which has no floors; owner is who
	// holds the rebuilds of the pipeline, "" = nobody does.
	switches bool
	owner    string
}

const (
	journalVersion    = 1
	journalStateBytes = 1 + 4 + 8 + 8
	// journalRemovingVersion is that of a state with floors, behind nonce. Programs that do
	// not know it refuse it.
	journalRemovingVersion = 2
	// journalSwitchesVersion is that of a journal of switches, with the owner behind nonce.
	// Programs that do not know it refuse it: they would not ask who the owner is.
	journalSwitchesVersion = 3
)

// pending reports whether the newest entry may be applied in part.
func (s *journalState) pending() bool { return s.revision%2 == 1 }

// encode returns the stored form: a version byte, source (4 bytes big-endian),
// revision and nonce (8 each), and the floors where there are any, or the owner.
func (s *journalState) encode() []byte {
	b := append(make([]byte, 0, journalStateBytes+len(s.floors)+len(s.owner)), journalVersion)
	switch {
	case s.switches:
		b[0] = journalSwitchesVersion
	case s.floors != "":
		b[0] = journalRemovingVersion
	}
	b = binary.BigEndian.AppendUint32(b, s.source)
	b = binary.BigEndian.AppendUint64(b, s.revision)
	return append(append(binary.BigEndian.AppendUint64(b, s.nonce), s.floors...), s.owner...)
}

// decodeJournalState is the reverse of encode. Its error wraps store.ErrCorrupt, or
// store.ErrUnsupported for a version that a newer program wrote.
func decodeJournalState(b []byte) (journalState, error) {
	switch {
	case len(b) > 0 && b[0] > journalSwitchesVersion:
		return journalState{}, fmt.Errorf("%w: journal in version %d; this program knows up to %d", store.ErrUnsupported, b[0], journalSwitchesVersion)
	case len(b) < journalStateBytes || b[0] < journalVersion || b[0] != journalSwitchesVersion && (len(b) > journalStateBytes) != (b[0] == journalRemovingVersion):
		return journalState{}, fmt.Errorf("%w: state of a journal: %.100x", store.ErrCorrupt, b)
	}
	s := journalState{source: binary.BigEndian.Uint32(b[1:]), revision: binary.BigEndian.Uint64(b[5:]), nonce: binary.BigEndian.Uint64(b[13:])}
	if rest := string(b[journalStateBytes:]); b[0] == journalSwitchesVersion {
		s.switches, s.owner = true, rest
	} else {
		s.floors = rest
	}
	if _, err := decodeFloors(s.floors); err != nil {
		return journalState{}, fmt.Errorf("state of a journal: %w", err)
	}
	if s.source == apiSource || s.revision == 0 || s.revision > 1<<62 {
		return journalState{}, fmt.Errorf("%w: state of a journal: %+v", store.ErrCorrupt, s)
	}
	return s, nil
}

// entryOps are the operations of an entry by their stored codes: those that are
// kinds of cells have HBase's (KeyValue.Type).
var entryOps = [...]struct {
	code byte
	op   cell.OpType
}{
	{4, cell.OpPut},
	{8, cell.OpDelete},
	{10, cell.OpDeleteFamilyVersion},
	{12, cell.OpDeleteColumn},
	{14, cell.OpDeleteFamily},
	{15, cell.OpDeleteRow},
	{1, cell.OpIncrement},
	{2, cell.OpAppend}, // an element of a DISTINCT family
}

// appendEntry appends the stored form of what an entry writes: for each mutation
// table, row, the number of its operations (4 bytes) and these: code (1), family,
// qualifier, value, time (8), delta (8), time to live (8). Texts have their length
// (4) in front.
func appendEntry(dst []byte, ms []cell.Mutation) []byte {
	text := func(b []byte) { dst = append(binary.BigEndian.AppendUint32(dst, uint32(len(b))), b...) }
	for i := range ms {
		m := &ms[i]
		text([]byte(m.Table))
		text(m.Row)
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(m.Ops)))
		for j := range m.Ops {
			o := &m.Ops[j]
			for _, k := range entryOps {
				if k.op == o.Type {
					dst = append(dst, k.code)
				}
			}
			text([]byte(o.Family))
			text(o.Qualifier)
			text(o.Value)
			for _, v := range [...]int64{int64(o.Time), o.Delta, o.TTL} {
				dst = binary.BigEndian.AppendUint64(dst, uint64(v))
			}
		}
	}
	return dst
}

// decodeEntry is the reverse of appendEntry. What it returns points into b. Its
// error wraps store.ErrCorrupt.
func decodeEntry(b []byte) ([]cell.Mutation, error) {
	r := entryReader{rest: b}
	var ms []cell.Mutation
	for len(r.rest) > 0 && !r.bad {
		m := cell.Mutation{Table: string(r.text()), Row: r.text()}
		for n := r.number(4); n > 0 && !r.bad; n-- {
			o := cell.Op{}
			code := byte(r.number(1))
			for _, k := range entryOps {
				if k.code == code {
					o.Type = k.op
				}
			}
			r.bad = r.bad || o.Type == 0
			o.Family, o.Qualifier, o.Value = string(r.text()), r.text(), r.text()
			o.Time, o.Delta, o.TTL = cell.Timestamp(r.number(8)), int64(r.number(8)), int64(r.number(8))
			m.Ops = append(m.Ops, o)
		}
		ms = append(ms, m)
	}
	if r.bad {
		return nil, fmt.Errorf("%w: entry of a journal, %d bytes from the end: %.100x", store.ErrCorrupt, len(r.rest), b)
	}
	return ms, nil
}

// entryReader reads an entry's fields; bad = it has ended early.
type entryReader struct {
	rest []byte
	bad  bool
}

// number reads n bytes.
func (r *entryReader) number(n int) (v uint64) {
	for _, c := range r.take(uint64(n)) {
		v = v<<8 | uint64(c)
	}
	return v
}

func (r *entryReader) text() []byte { return r.take(r.number(4)) }

func (r *entryReader) take(n uint64) []byte {
	if r.bad = r.bad || n > uint64(len(r.rest)); r.bad {
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}
