// Package cell is Sluice's data model: cells, rows and mutations as HBase
// defines them, and the order-preserving code that turns a cell's coordinates
// into a key of an ordered key-value store.
//
// A cell is (row, family, qualifier, timestamp, kind, value). Cells of a row
// sort by family ascending, qualifier ascending, timestamp descending, kind
// descending (deletes before puts), and of two equal ones the later write comes
// first. Row keys and qualifiers are byte strings that compare unsigned;
// families are names of a table's schema.
//
// Slices are never copied by this package: whoever fills a Mutation or an
// encoder's buffer says how long its bytes live. Values of these types are safe
// for concurrent reading only.
//
// The package does no I/O, knows no storage engine and no schema: whether a
// family exists and what it keeps is package store's business.
package cell

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Timestamp is milliseconds since the Unix epoch. Valid cell timestamps are
// 0..2⁶³-1 (HBase HConstants); the largest value means "the store fills it in".
type Timestamp int64

// Latest asks the store to fill in its own clock (HBase LATEST_TIMESTAMP).
const Latest Timestamp = math.MaxInt64

// MaxRowLength is the longest row key in bytes (HBase MAX_ROW_LENGTH,
// Short.MAX_VALUE). Row keys have 1..MaxRowLength bytes.
const MaxRowLength = math.MaxInt16

// Kind is a cell's type. The codes are HBase's KeyValue.Type codes, so that at
// equal timestamps a higher code sorts first: every delete before the put that
// it may mask.
type Kind uint8

// The kinds a cell can have.
const (
	KindPacked              Kind = 2  // storage only: several puts of one row, family and timestamp in one key; never seen by a reader
	KindPut                 Kind = 4  // a value
	KindDelete              Kind = 8  // masks the put with exactly this timestamp
	KindDeleteFamilyVersion Kind = 10 // masks every put of the family with exactly this timestamp
	KindDeleteColumn        Kind = 12 // masks the column's puts up to and including this timestamp
	KindDeleteFamily        Kind = 14 // masks the family's puts up to and including this timestamp
)

// String names the kind as HBase's shell prints it.
func (k Kind) String() string {
	switch k {
	case KindPacked:
		return "Packed"
	case KindPut:
		return "Put"
	case KindDelete:
		return "Delete"
	case KindDeleteFamilyVersion:
		return "DeleteFamilyVersion"
	case KindDeleteColumn:
		return "DeleteColumn"
	case KindDeleteFamily:
		return "DeleteFamily"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// IsDelete reports whether k is one of the four delete markers.
func (k Kind) IsDelete() bool {
	switch k {
	case KindDelete, KindDeleteFamilyVersion, KindDeleteColumn, KindDeleteFamily:
		return true
	}
	return false
}

// NoLife is the TTL of a cell that is gone as soon as the clock moves: 0 ms, as
// HBase's Mutation.setTTL(0). A TTL of 0 means none here.
const NoLife int64 = -1

// Cell is one version of one column of a row, without the row's key.
type Cell struct {
	Family    string
	Qualifier []byte // may be empty: a normal column
	Time      Timestamp
	Kind      Kind   // KindPut unless a raw scan returned a marker
	Value     []byte // nil for markers; may be empty for puts
	TTL       int64  // the cell's own time to live in ms; 0 = none, NoLife = 0 ms. It cannot extend its family's
}

// Row is one row's cells in key order. A Row that a scanner handed out, with all
// its slices, is valid until the scanner moves.
type Row struct {
	Key   []byte
	Cells []Cell
	// More says that this is a part of a row, and that another part with the
	// same key may follow (HBase Result.mayHaveMoreCellsInRow).
	More bool
}

// Clone returns a deep copy, in three allocations.
func (r *Row) Clone() *Row {
	n := len(r.Key)
	for i := range r.Cells {
		n += len(r.Cells[i].Qualifier) + len(r.Cells[i].Value)
	}
	all := make([]byte, 0, n) // all texts of the row
	clone := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		from := len(all)
		all = append(all, b...)
		return all[from:len(all):len(all)]
	}
	c := &Row{Key: clone(r.Key), Cells: make([]Cell, len(r.Cells)), More: r.More}
	copy(c.Cells, r.Cells)
	for i := range c.Cells {
		c.Cells[i].Qualifier, c.Cells[i].Value = clone(c.Cells[i].Qualifier), clone(c.Cells[i].Value)
	}
	return c
}

// Range is the row keys in [Start, Stop). An empty Start or Stop is unbounded.
type Range struct {
	Start, Stop []byte
}

// Contains reports whether row lies in r.
func (r Range) Contains(row []byte) bool {
	return string(row) >= string(r.Start) && (len(r.Stop) == 0 || string(row) < string(r.Stop))
}

// OneRow reports whether one row alone can lie in r, which is r.Start.
func (r Range) OneRow() bool {
	n := len(r.Start)
	return n > 0 && len(r.Stop) == n+1 && r.Stop[n] == 0 && string(r.Stop[:n]) == string(r.Start)
}

// TimeRange is the timestamps in [Min, Max).
type TimeRange struct {
	Min, Max Timestamp
}

// Contains reports whether t lies in r.
func (r TimeRange) Contains(t Timestamp) bool { return t >= r.Min && t < r.Max }

// OpType is what one Op of a mutation does.
type OpType uint8

// The operations of a mutation.
const (
	OpPut                 OpType = iota + 1 // write Value at Time
	OpDelete                                // delete one version: Time, or the newest visible one where Time is Latest
	OpDeleteColumn                          // delete the column's versions up to Time
	OpDeleteFamily                          // delete the family's cells up to Time
	OpDeleteFamilyVersion                   // delete the family's cells at exactly Time
	OpDeleteRow                             // delete every family's cells up to Time; Family and Qualifier are not used
	OpIncrement                             // add Delta to the 8-byte big-endian number
	OpAppend                                // append Value to the value
)

// String names the operation.
func (t OpType) String() string {
	switch t {
	case OpPut:
		return "Put"
	case OpDelete:
		return "Delete"
	case OpDeleteColumn:
		return "DeleteColumn"
	case OpDeleteFamily:
		return "DeleteFamily"
	case OpDeleteFamilyVersion:
		return "DeleteFamilyVersion"
	case OpDeleteRow:
		return "DeleteRow"
	case OpIncrement:
		return "Increment"
	case OpAppend:
		return "Append"
	}
	return fmt.Sprintf("OpType(%d)", uint8(t))
}

// isDelete reports whether t writes markers.
func (t OpType) isDelete() bool { return t >= OpDelete && t <= OpDeleteRow }

// Op is one operation of a Mutation.
type Op struct {
	Type      OpType
	Family    string
	Qualifier []byte
	Time      Timestamp // Latest = the store's clock; for increments of COUNTER families the event time
	Value     []byte    // OpPut, OpAppend
	Delta     int64     // OpIncrement
	TTL       int64     // ms; 0 = none, NoLife = 0 ms. Puts, increments and appends only
}

// Durability is how safe a mutation is when its call returns (HBase Durability).
type Durability uint8

// The durabilities, the weaker first. What is not waited for reaches the log in the
// same order, soon: it outlives the process where its memory reached the system,
// and may be lost with power. One call with a stronger one makes everything before
// it as safe.
const (
	UseDefault Durability = iota // the table's, SyncWAL where it names none
	SkipWAL                      // as AsyncWAL: every write goes through the log
	AsyncWAL                     // the call does not wait for the disk
	SyncWAL                      // it is on disk
	FsyncWAL                     // as SyncWAL
)

// String names the durability as HBase does, such as SYNC_WAL.
func (d Durability) String() string {
	if d > FsyncWAL {
		return fmt.Sprintf("Durability(%d)", uint8(d))
	}
	return [...]string{"USE_DEFAULT", "SKIP_WAL", "ASYNC_WAL", "SYNC_WAL", "FSYNC_WAL"}[d]
}

// ParseDurability reads what String writes.
func ParseDurability(s string) (Durability, error) {
	for d := UseDefault; d <= FsyncWAL; d++ {
		if d.String() == s {
			return d, nil
		}
	}
	return 0, fmt.Errorf("cell: no durability %q", s)
}

// Mutation changes one row: the unit of atomicity everywhere (invariant I1).
// Ops apply in order.
type Mutation struct {
	Table string
	Row   []byte
	Ops   []Op
	// Read is the time range in which increments and appends look for the
	// value they change; nil = all time (HBase Increment.setTimeRange).
	Read *TimeRange
	// Durability is how safe the mutation is when its call returns. A batch
	// with progress, coalesced counters or conditional records is always on
	// disk, and what one commit holds is as safe as its safest member.
	Durability Durability
}

// Put adds a write of value to family:qualifier at t. The slices are kept.
func (m *Mutation) Put(family string, qualifier []byte, t Timestamp, value []byte) {
	m.Ops = append(m.Ops, Op{Type: OpPut, Family: family, Qualifier: qualifier, Time: t, Value: value})
}

// Increment adds delta to the counter family:qualifier.
func (m *Mutation) Increment(family string, qualifier []byte, delta int64) {
	m.Ops = append(m.Ops, Op{Type: OpIncrement, Family: family, Qualifier: qualifier, Time: Latest, Delta: delta})
}

// Append appends value to the newest value of family:qualifier.
func (m *Mutation) Append(family string, qualifier, value []byte) {
	m.Ops = append(m.Ops, Op{Type: OpAppend, Family: family, Qualifier: qualifier, Time: Latest, Value: value})
}

// Delete adds a delete of one version of family:qualifier: the one at t, or the
// newest visible one where t is Latest (HBase Delete.addColumn).
func (m *Mutation) Delete(family string, qualifier []byte, t Timestamp) {
	m.Ops = append(m.Ops, Op{Type: OpDelete, Family: family, Qualifier: qualifier, Time: t})
}

// DeleteColumn adds a delete of all versions of family:qualifier up to t
// (HBase Delete.addColumns).
func (m *Mutation) DeleteColumn(family string, qualifier []byte, t Timestamp) {
	m.Ops = append(m.Ops, Op{Type: OpDeleteColumn, Family: family, Qualifier: qualifier, Time: t})
}

// DeleteFamily adds a delete of the family's cells up to t. As HBase's
// Delete.addFamily does, it drops the family's markers that were added before it:
// those since the last put, increment or append of m, which end what HBase would
// call one Delete.
func (m *Mutation) DeleteFamily(family string, t Timestamp) {
	n := len(m.Ops)
	for n > 0 && m.Ops[n-1].Type.isDelete() {
		n--
	}
	kept := m.Ops[:n]
	for _, o := range m.Ops[n:] {
		if o.Type == OpDeleteRow || o.Family != family {
			kept = append(kept, o)
		}
	}
	m.Ops = append(kept, Op{Type: OpDeleteFamily, Family: family, Time: t})
}

// DeleteFamilyVersion adds a delete of the family's cells at exactly t.
func (m *Mutation) DeleteFamilyVersion(family string, t Timestamp) {
	m.Ops = append(m.Ops, Op{Type: OpDeleteFamilyVersion, Family: family, Time: t})
}

// DeleteRow adds a delete of every family's cells up to t.
func (m *Mutation) DeleteRow(t Timestamp) {
	m.Ops = append(m.Ops, Op{Type: OpDeleteRow, Time: t})
}

// Idempotent reports whether applying m twice leaves what applying it once
// leaves: no increments or appends, and all times explicit. Such a mutation may
// be retried blindly.
func (m *Mutation) Idempotent() bool {
	for i := range m.Ops {
		switch o := &m.Ops[i]; o.Type {
		case OpIncrement, OpAppend:
			return false
		default:
			if o.Time == Latest {
				return false
			}
		}
	}
	return true
}

// Errors of a row key that no table takes (HBase Mutation.checkRow).
var (
	ErrRowEmpty   = errors.New("cell: row key is empty")
	ErrRowTooLong = fmt.Errorf("cell: row key is longer than %d bytes", MaxRowLength)
)

// CheckRow returns ErrRowEmpty, ErrRowTooLong or nil.
func CheckRow(row []byte) error {
	switch {
	case len(row) == 0:
		return ErrRowEmpty
	case len(row) > MaxRowLength:
		return ErrRowTooLong
	}
	return nil
}

// CompareColumns is the order of the columns of two cells of one row: by family, then by
// qualifier.
func CompareColumns(a, b Cell) int { return compareColumns(&a, &b) }

func compareColumns(a, b *Cell) int {
	if d := strings.Compare(a.Family, b.Family); d != 0 {
		return d
	}
	return bytes.Compare(a.Qualifier, b.Qualifier)
}

// CompareInRow is the order of two cells of one row: by column, the newest first, and of one
// time deletes before puts.
func CompareInRow(a, b *Cell) int {
	if d := compareColumns(a, b); d != 0 {
		return d
	}
	return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(b.Kind, a.Kind))
}

// KeyValueBytes is what HBase's KeyValue has besides row, family, qualifier and value:
// the lengths of key, value, row and family, a timestamp and a type.
const KeyValueBytes = 4 + 4 + 2 + 1 + 8 + 1
