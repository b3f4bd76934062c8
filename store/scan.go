package store

import (
	"math"

	"sluice/cell"
)

// AllVersions asks for every version that a family keeps.
const AllVersions = math.MaxInt32

// Column selects cells of a scan: one column, or a whole family.
type Column struct {
	Family    string
	Qualifier []byte
	All       bool // the whole family; Qualifier is not used
}

// Scan says which cells to read. The zero value, with a Table, is all rows and
// the newest version of every column. docs/data-model.md has the rules.
type Scan struct {
	Table          string
	Start          []byte // first row; empty = the table's first (reversed: its last)
	Stop           []byte // row before which to stop; empty = the table's end (reversed: its start)
	StartExclusive bool
	StopInclusive  bool
	Prefix         []byte // rows with this prefix only, besides Start and Stop
	Reversed       bool   // rows descending, from Start (the larger key) to Stop; cells of a row still ascending
	Raw            bool   // delete markers and what they mask, too; no qualifier may be named

	Columns    []Column // nil = all families
	Versions   int      // versions a column; 0 = 1, AllVersions = what the family keeps; negative is an error
	Time       *cell.TimeRange
	FamilyTime map[string]cell.TimeRange // replaces Time for its family

	Filter Filter // nil = none

	Limit int // rows; 0 = all
	Batch int // cells a Row: a wide row comes as several Rows; 0 = whole rows
	// MaxResultBytes is the most bytes of keys and values of cells a Row: a
	// wide row comes as several Rows, all but the last with More set, each of at
	// least one cell, and is never in memory as a whole (HBase
	// setMaxResultSize with setAllowPartialResults). 0 = whole rows. With
	// Batch a Row ends where either bound is reached. A filter that judges
	// whole rows is refused with ErrIncompatibleFilter.
	MaxResultBytes int

	LimitPerFamily  int // cells a family and row; 0 = all
	OffsetPerFamily int // cells to skip a family and row

	// Cursor is where the scan goes on; "" = it begins. All else must be as it
	// was in the scan that the cursor is of, but PageRows, Batch and
	// MaxResultBytes; Limit is of all parts together. A row that was returned
	// in part is read again, unseen, up to that part's end.
	Cursor Cursor
	// PageRows ends this part of the scan after so many rows; 0 = never. The
	// next page goes on from its cursor (HBase's caching, seen by the caller).
	PageRows int
	// NeedCursor lets CursorOf say where the scan is (HBase
	// setNeedCursorResult); Cursor and PageRows imply it.
	NeedCursor bool
}

// Cond is the condition of a conditional mutation. Either Filter is set, and the
// condition holds where it lets a cell of the row pass; or the newest version of
// Family:Qualifier inside Time is compared as HBase does it: Value Op stored.
type Cond struct {
	Family    string
	Qualifier []byte
	Op        CompareOp
	Value     []byte // nil = "no value": see docs/data-model.md
	Filter    Filter
	Time      *cell.TimeRange
}

// CompareOp is a comparison (HBase CompareOperator).
type CompareOp uint8

// The comparisons. NoOp keeps nothing.
const (
	Less CompareOp = iota + 1
	LessOrEqual
	Equal
	NotEqual
	GreaterOrEqual
	Greater
	NoOp
)

// Holds reports whether op accepts an ordering: c < 0, 0 or > 0 as from
// bytes.Compare(left, right).
func (op CompareOp) Holds(c int) bool {
	switch op {
	case Less:
		return c < 0
	case LessOrEqual:
		return c <= 0
	case Equal:
		return c == 0
	case NotEqual:
		return c != 0
	case GreaterOrEqual:
		return c >= 0
	case Greater:
		return c > 0
	}
	return false
}
