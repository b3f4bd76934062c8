// Package api is what travels over Sluice's HTTP interface: the JSON forms of
// scans, rows, mutations, batches and schemas, the names of errors, and the file
// that tells where a running daemon listens.
//
// Bytes are base64 (RFC 4648, padded) and null is nil, so that a nil and an empty
// value stay apart; times are milliseconds since the Unix epoch; 64-bit numbers
// are JSON numbers. Conversions share slices with what they convert.
//
// Types are plain data without locks. The package opens no connection: package
// serve is the server, serve/client the client, and both speak this.
package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"sluice/cell"
	"sluice/store"
)

// Prefix is the path under which the interface lives.
const Prefix = "/api/v1"

// Cell is one cell. Kind is empty for puts.
type Cell struct {
	Family    string `json:"family"`
	Qualifier []byte `json:"qualifier"`
	Time      int64  `json:"time"`
	Kind      uint8  `json:"kind,omitempty"` // HBase's KeyValue type code; 0 = put
	Value     []byte `json:"value"`
	TTL       int64  `json:"ttl,omitempty"`
}

// Row is one row.
type Row struct {
	Key   []byte `json:"key"`
	Cells []Cell `json:"cells"`
	More  bool   `json:"more,omitempty"` // a part of a row; see cell.Row
}

// ScanLine is one line of a scan's answer (application/x-ndjson). The last line
// has End or Error; a stream without it was cut off.
type ScanLine struct {
	Row   *Row   `json:"row,omitempty"`
	End   bool   `json:"end,omitempty"`
	Error *Error `json:"error,omitempty"`
	// Cursor is the place after the row, or after all rows of the answer: with
	// Scan.NeedCursor of every line, with Cursor or PageRows of the last one.
	Cursor string `json:"cursor,omitempty"`
	// More says, with End, that the scan goes on from Cursor.
	More bool `json:"more,omitempty"`
}

// FromCells converts cells.
func FromCells(cells []cell.Cell) []Cell {
	out := make([]Cell, len(cells))
	for i := range cells {
		c := &cells[i]
		out[i] = Cell{Family: c.Family, Qualifier: notNil(c.Qualifier), Time: int64(c.Time), Kind: uint8(c.Kind), Value: notNil(c.Value), TTL: c.TTL}
		if c.Kind == cell.KindPut {
			out[i].Kind = 0
		}
	}
	return out
}

// notNil returns b, or no bytes in place of nil, which would be null.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// AppendCells appends cells to dst.
func AppendCells(dst []cell.Cell, cells []Cell) []cell.Cell {
	for i := range cells {
		c := &cells[i]
		k := cell.Kind(c.Kind)
		if k == 0 {
			k = cell.KindPut
		}
		dst = append(dst, cell.Cell{Family: c.Family, Qualifier: c.Qualifier, Time: cell.Timestamp(c.Time), Kind: k, Value: c.Value, TTL: c.TTL})
	}
	return dst
}

// TimeRange is [Min, Max).
type TimeRange struct {
	Min int64 `json:"min"`
	Max int64 `json:"max"`
}

func fromTimeRange(r *cell.TimeRange) *TimeRange {
	if r == nil {
		return nil
	}
	return &TimeRange{Min: int64(r.Min), Max: int64(r.Max)}
}

func (r *TimeRange) cell() *cell.TimeRange {
	if r == nil {
		return nil
	}
	return &cell.TimeRange{Min: cell.Timestamp(r.Min), Max: cell.Timestamp(r.Max)}
}

// Column selects one column, or with All a family.
type Column struct {
	Family    string `json:"family"`
	Qualifier []byte `json:"qualifier,omitempty"`
	All       bool   `json:"all,omitempty"`
}

// Scan is store.Scan without its table, which is in the path.
type Scan struct {
	Start           []byte               `json:"start,omitempty"`
	Stop            []byte               `json:"stop,omitempty"`
	StartExclusive  bool                 `json:"start_exclusive,omitempty"`
	StopInclusive   bool                 `json:"stop_inclusive,omitempty"`
	Prefix          []byte               `json:"prefix,omitempty"`
	Reversed        bool                 `json:"reversed,omitempty"`
	Raw             bool                 `json:"raw,omitempty"`
	Columns         []Column             `json:"columns,omitempty"`
	Versions        int                  `json:"versions,omitempty"`
	Time            *TimeRange           `json:"time,omitempty"`
	FamilyTime      map[string]TimeRange `json:"family_time,omitempty"`
	Limit           int                  `json:"limit,omitempty"`
	Batch           int                  `json:"batch,omitempty"`
	LimitPerFamily  int                  `json:"limit_per_family,omitempty"`
	OffsetPerFamily int                  `json:"offset_per_family,omitempty"`
	MaxResultBytes  int                  `json:"max_result_bytes,omitempty"`
	// Cursor is where the scan goes on, as a line of its answer has it.
	Cursor string `json:"cursor,omitempty"`
	// PageRows ends the answer after so many rows; its last line has the cursor
	// of the next page.
	PageRows int `json:"page_rows,omitempty"`
	// NeedCursor asks for the cursor of every row, too.
	NeedCursor bool `json:"need_cursor,omitempty"`
	// Filter is what store.ParseFilterJSON reads: a string in the filter
	// language, or an object as store.MarshalFilter writes it.
	Filter json.RawMessage `json:"filter,omitempty"`
}

// given reports whether there is a value, and not null, which some clients write for none.
func given(b json.RawMessage) bool { return len(b) > 0 && string(b) != "null" }

// fromFilter converts f, which may be nil.
func fromFilter(f store.Filter) (json.RawMessage, error) {
	if f == nil {
		return nil, nil
	}
	return store.MarshalFilter(f)
}

// FromScan converts s. Its error wraps store.ErrUnsupported where the filter is
// not one of package store.
func FromScan(s *store.Scan) (*Scan, error) {
	filter, err := fromFilter(s.Filter)
	if err != nil {
		return nil, fmt.Errorf("scan %s: %w", s.Table, err)
	}
	a := &Scan{
		Start: s.Start, Stop: s.Stop, StartExclusive: s.StartExclusive, StopInclusive: s.StopInclusive,
		Prefix: s.Prefix, Reversed: s.Reversed, Raw: s.Raw, Versions: s.Versions, Time: fromTimeRange(s.Time),
		Limit: s.Limit, Batch: s.Batch, LimitPerFamily: s.LimitPerFamily, OffsetPerFamily: s.OffsetPerFamily,
		MaxResultBytes: s.MaxResultBytes, Filter: filter,
		Cursor: string(s.Cursor), PageRows: s.PageRows, NeedCursor: s.NeedCursor,
	}
	for _, c := range s.Columns {
		a.Columns = append(a.Columns, Column(c))
	}
	for f, r := range s.FamilyTime {
		if a.FamilyTime == nil {
			a.FamilyTime = map[string]TimeRange{}
		}
		a.FamilyTime[f] = *fromTimeRange(&r)
	}
	return a, nil
}

// Store converts a. Its error wraps store.ErrInvalidArgument.
func (a *Scan) Store(table string) (*store.Scan, error) {
	s := &store.Scan{
		Table: table, Start: a.Start, Stop: a.Stop, StartExclusive: a.StartExclusive, StopInclusive: a.StopInclusive,
		Prefix: a.Prefix, Reversed: a.Reversed, Raw: a.Raw, Versions: a.Versions, Time: a.Time.cell(),
		Limit: a.Limit, Batch: a.Batch, LimitPerFamily: a.LimitPerFamily, OffsetPerFamily: a.OffsetPerFamily,
		MaxResultBytes: a.MaxResultBytes,
		Cursor:         store.Cursor(a.Cursor), PageRows: a.PageRows, NeedCursor: a.NeedCursor,
	}
	for _, c := range a.Columns {
		s.Columns = append(s.Columns, store.Column(c))
	}
	for f, r := range a.FamilyTime {
		if s.FamilyTime == nil {
			s.FamilyTime = map[string]cell.TimeRange{}
		}
		s.FamilyTime[f] = *r.cell()
	}
	var err error
	if given(a.Filter) {
		s.Filter, err = store.ParseFilterJSON(a.Filter)
	}
	return s, err
}

// Op is one operation of a mutation. Time is optional; absent is the store's
// clock.
type Op struct {
	Type      string `json:"type"` // "put", "delete", "delete_column", "delete_family", "delete_family_version", "delete_row", "increment", "append"
	Family    string `json:"family,omitempty"`
	Qualifier []byte `json:"qualifier,omitempty"`
	Time      *int64 `json:"time,omitempty"`
	Value     []byte `json:"value"`
	Delta     int64  `json:"delta,omitempty"`
	TTL       int64  `json:"ttl,omitempty"`
}

var opNames = map[cell.OpType]string{
	cell.OpPut: "put", cell.OpDelete: "delete", cell.OpDeleteColumn: "delete_column", cell.OpDeleteFamily: "delete_family",
	cell.OpDeleteFamilyVersion: "delete_family_version", cell.OpDeleteRow: "delete_row", cell.OpIncrement: "increment", cell.OpAppend: "append",
}

// opTypes is opNames turned round.
var opTypes = func() map[string]cell.OpType {
	m := make(map[string]cell.OpType, len(opNames))
	for t, name := range opNames {
		m[name] = t
	}
	return m
}()

// Mutation changes one row. Table may be absent where the path names it.
type Mutation struct {
	Table string     `json:"table,omitempty"`
	Row   []byte     `json:"row"`
	Ops   []Op       `json:"ops"`
	Read  *TimeRange `json:"read,omitempty"`
	// Durability is HBase's name of it, such as ASYNC_WAL; absent is the table's.
	Durability string `json:"durability,omitempty"`
}

// FromMutation converts m.
func FromMutation(m *cell.Mutation) Mutation {
	a := Mutation{Table: m.Table, Row: m.Row, Ops: make([]Op, len(m.Ops)), Read: fromTimeRange(m.Read)}
	if m.Durability != cell.UseDefault {
		a.Durability = m.Durability.String() // the server refuses an unknown one by its name
	}
	for i := range m.Ops {
		o := &m.Ops[i]
		op := Op{Type: opNames[o.Type], Family: o.Family, Qualifier: o.Qualifier, Value: o.Value, Delta: o.Delta, TTL: o.TTL}
		if op.Type == "" {
			op.Type = o.Type.String() // the server refuses it by this name
		}
		if o.Time != cell.Latest {
			t := int64(o.Time)
			op.Time = &t
		}
		a.Ops[i] = op
	}
	return a
}

// Cell converts a. Its error wraps store.ErrInvalidArgument.
func (a *Mutation) Cell() (cell.Mutation, error) {
	m := cell.Mutation{Table: a.Table, Row: a.Row, Ops: make([]cell.Op, len(a.Ops)), Read: a.Read.cell()}
	if a.Durability != "" {
		var err error
		if m.Durability, err = cell.ParseDurability(a.Durability); err != nil {
			return m, fmt.Errorf("%w: %w", store.ErrInvalidArgument, err)
		}
	}
	for i := range a.Ops {
		o := &a.Ops[i]
		t, ok := opTypes[o.Type]
		if !ok {
			return m, fmt.Errorf("%w: unknown operation %q", store.ErrInvalidArgument, o.Type)
		}
		m.Ops[i] = cell.Op{Type: t, Family: o.Family, Qualifier: o.Qualifier, Time: cell.Latest, Value: o.Value, Delta: o.Delta, TTL: o.TTL}
		if o.Time != nil {
			m.Ops[i].Time = cell.Timestamp(*o.Time)
		}
	}
	return m, nil
}

// Cond is store.Cond.
type Cond struct {
	Family    string     `json:"family"`
	Qualifier []byte     `json:"qualifier"`
	Op        string     `json:"op"` // "less", "less_or_equal", "equal", "not_equal", "greater_or_equal", "greater", "no_op"
	Value     []byte     `json:"value"`
	Time      *TimeRange `json:"time,omitempty"`
	// Filter replaces family, qualifier, op and value; it is written as in Scan.
	Filter json.RawMessage `json:"filter,omitempty"`
}

var compareNames = [...]string{
	store.Less: "less", store.LessOrEqual: "less_or_equal", store.Equal: "equal", store.NotEqual: "not_equal",
	store.GreaterOrEqual: "greater_or_equal", store.Greater: "greater", store.NoOp: "no_op",
}

// FromCond converts c, which may be nil. Its error wraps store.ErrUnsupported
// where the filter is not one of package store.
func FromCond(c *store.Cond) (*Cond, error) {
	if c == nil {
		return nil, nil
	}
	filter, err := fromFilter(c.Filter)
	if err != nil {
		return nil, fmt.Errorf("condition: %w", err)
	}
	if int(c.Op) >= len(compareNames) {
		return nil, fmt.Errorf("%w: comparison %d", store.ErrInvalidArgument, c.Op)
	}
	return &Cond{Family: c.Family, Qualifier: c.Qualifier, Op: compareNames[c.Op], Value: c.Value, Time: fromTimeRange(c.Time), Filter: filter}, nil
}

// Store converts a, which may be nil. Its error wraps store.ErrInvalidArgument.
func (a *Cond) Store() (*store.Cond, error) {
	if a == nil {
		return nil, nil
	}
	c := &store.Cond{Family: a.Family, Qualifier: a.Qualifier, Value: a.Value, Time: a.Time.cell()}
	if given(a.Filter) {
		var err error
		if c.Filter, err = store.ParseFilterJSON(a.Filter); err != nil {
			return nil, err
		}
	}
	op := slices.Index(compareNames[:], a.Op) // the zero value has no name: no comparison
	if op < 0 {
		return nil, fmt.Errorf("%w: unknown comparison %q", store.ErrInvalidArgument, a.Op)
	}
	c.Op = store.CompareOp(op)
	return c, nil
}

// MutateRequest is the body of …/tables/{table}/mutate.
type MutateRequest struct {
	Mutation
	Cond *Cond `json:"cond,omitempty"`
}

// MutateManyRequest is the body of …/mutate.
type MutateManyRequest struct {
	Mutations []Mutation `json:"mutations"`
}

// Result is what a mutation did, or why not.
type Result struct {
	Applied bool   `json:"applied"`
	Cells   []Cell `json:"cells,omitempty"`
	Error   *Error `json:"error,omitempty"`
}

// Store converts r; Error is left to the caller.
func (r *Result) Store() store.Result {
	res := store.Result{Applied: r.Applied}
	if len(r.Cells) > 0 {
		res.Cells = AppendCells(nil, r.Cells)
	}
	return res
}

// MutateManyResponse has one result a mutation.
type MutateManyResponse struct {
	Results []Result `json:"results"`
}

// Checkpoint is a directory with the store at one commit, and the lease that
// keeps it.
type Checkpoint struct {
	ID       string    `json:"id"`
	Path     string    `json:"path"` // absolute, on the daemon's machine
	Sequence uint64    `json:"sequence"`
	Owner    string    `json:"owner,omitempty"`
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires"`
}

// Leases of checkpoints. An owner renews its own; one that has died costs disk space for the
// rest of its lease only.
const (
	DefaultLease = 2 * time.Minute // where a request names none
	MaxLease     = time.Hour       // the longest that is granted
)

// CheckpointRequest asks for a checkpoint, or for more time.
type CheckpointRequest struct {
	Owner        string  `json:"owner,omitempty"`
	LeaseSeconds float64 `json:"lease_seconds,omitempty"` // 0 = DefaultLease; up to MaxLease
}

// Version is the answer of /version.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
}
