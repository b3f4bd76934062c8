package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"sluice/cell"
)

// ReadRow reads the row of a mutation at the instant at which it is applied:
// what was committed before and what earlier members of the same commit have
// written, nothing of the mutation itself. The scan names table and row. The
// cells, in key order, are valid until its next call.
type ReadRow func(s *Scan) ([]cell.Cell, error)

// CellExpired reports whether a cell written for t with its own time to live of
// ttl ms (0 = none, cell.NoLife = 0 ms) is over at now; at t+ttl it is still alive (HBase
// ScanQueryMatcher.isCellTTLExpired).
func CellExpired(t cell.Timestamp, ttl int64, now cell.Timestamp) bool {
	return ttl != 0 && t < now && int64(now-t) > max(ttl, 0)
}

// Expired reports whether the family's TTL is over at now for a cell of time t;
// exactly TTL seconds old it is still alive (HBase ScanInfo).
func (f *FamilyDescriptor) Expired(t, now cell.Timestamp) bool {
	return f.TTL != Forever && t < now-cell.Timestamp(f.TTL)*1000
}

// ValidateMutation checks all of m that needs no read, now being the store's
// clock. Its error wraps ErrInvalidArgument (row key, no operations, negative
// timestamps, a TTL on a delete), ErrFamilyNotFound, ErrRefused (a read-only
// table, an operation that a COUNTER family does not take), ErrCellTooLarge or
// ErrTimestampTooFar; where the row has a key, it is a *RowError.
func ValidateMutation(t *TableDescriptor, m *cell.Mutation, now cell.Timestamp) error {
	if err := checkRow(m.Row); err != nil {
		return fmt.Errorf("table %s: %w", t.Name, err)
	}
	if err := validateMutation(t, m, now); err != nil {
		return atRow(t.Name, m.Row, err)
	}
	return nil
}

func checkRow(row []byte) error {
	if err := cell.CheckRow(row); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidArgument, err)
	}
	return nil
}

func validateMutation(t *TableDescriptor, m *cell.Mutation, now cell.Timestamp) error {
	if t.ReadOnly {
		return ErrTableReadOnly
	}
	if len(m.Ops) == 0 {
		return fmt.Errorf("%w: no columns to write", ErrInvalidArgument)
	}
	if m.Durability > cell.FsyncWAL {
		return fmt.Errorf("%w: unknown durability %d", ErrInvalidArgument, m.Durability)
	}
	if err := checkTimeRange(m.Read); err != nil {
		return err
	}
	// A mutation names one family many times over: look it up when it changes.
	var f *FamilyDescriptor
	for i := range m.Ops {
		o := &m.Ops[i]
		if o.Time < 0 {
			return fmt.Errorf("%w: negative timestamp %d", ErrInvalidArgument, o.Time)
		}
		if o.Type == cell.OpDeleteRow {
			if o.TTL != 0 {
				return fmt.Errorf("%w: a delete has no time to live", ErrInvalidArgument)
			}
			continue
		}
		if f == nil || f.Name != o.Family {
			if f = t.Family(o.Family); f == nil {
				return fmt.Errorf("%w: %q", ErrFamilyNotFound, o.Family)
			}
		}
		if err := validateOp(t, f, m, o, now); err != nil {
			return fmt.Errorf("%s %s:%.100q: %w", o.Type, o.Family, o.Qualifier, err)
		}
	}
	return nil
}

func validateOp(t *TableDescriptor, f *FamilyDescriptor, m *cell.Mutation, o *cell.Op, now cell.Timestamp) error {
	if f.InPlace() {
		if err := validateInPlaceOp(f, m, o); err != nil {
			return err
		}
	}
	switch o.Type {
	case cell.OpPut, cell.OpIncrement, cell.OpAppend:
		if o.TTL < 0 && o.TTL != cell.NoLife {
			return fmt.Errorf("%w: negative time to live %d", ErrInvalidArgument, o.TTL)
		}
		size := len(o.Value)
		if o.Type == cell.OpIncrement {
			size = 8
		}
		if err := checkCellSize(t, m.Row, o.Family, o.Qualifier, size); err != nil {
			return err
		}
		// HBase HRegion.checkTimestamps: puts only.
		if o.Type == cell.OpPut && o.Time != cell.Latest && tooFar(t, o.Time, now) {
			return fmt.Errorf("%w: %d is more than %d ms after %d", ErrTimestampTooFar, o.Time, t.MaxTimestampSlop, now)
		}
	case cell.OpDelete, cell.OpDeleteColumn, cell.OpDeleteFamily, cell.OpDeleteFamilyVersion:
		if o.TTL != 0 {
			return fmt.Errorf("%w: a delete has no time to live", ErrInvalidArgument)
		}
	default:
		return fmt.Errorf("%w: unknown operation %d", ErrInvalidArgument, uint8(o.Type))
	}
	return nil
}

// validateInPlaceOp keeps COUNTER families, and DISTINCT ones, to what design D7
// gives them.
func validateInPlaceOp(f *FamilyDescriptor, m *cell.Mutation, o *cell.Op) error {
	switch {
	case o.Type == cell.OpIncrement && f.Counter, o.Type == cell.OpAppend && f.Distinct:
		if o.TTL != 0 || m.Read != nil {
			return fmt.Errorf("%w: a counter has neither a time to live of its own nor a time range", ErrRefused)
		}
		return nil
	case o.Type == cell.OpDeleteColumn, o.Type == cell.OpDeleteFamily:
		return nil
	case f.Distinct:
		return fmt.Errorf("%w: a DISTINCT family takes appends and deletes of a column, family or row only", ErrRefused)
	}
	return fmt.Errorf("%w: a COUNTER family takes increments and deletes of a column, family or row only", ErrRefused)
}

// tooFar reports whether at, the time of a put, is further behind now than t allows.
func tooFar(t *TableDescriptor, at, now cell.Timestamp) bool {
	return t.MaxTimestampSlop > 0 && at > now && int64(at-now) > t.MaxTimestampSlop
}

// CellLimit returns how many bytes a cell of t may have, as CellSize counts them.
func (t *TableDescriptor) CellLimit() int {
	if t.MaxCellBytes == 0 {
		return DefaultMaxCellBytes
	}
	return t.MaxCellBytes
}

// CellSize returns how many bytes a cell has whose value has so many, key included, as
// HBase's KeyValue.
func CellSize(row []byte, family string, qualifier []byte, value int) int {
	return cell.KeyValueBytes + len(row) + len(family) + len(qualifier) + value
}

func checkCellSize(t *TableDescriptor, row []byte, family string, qualifier []byte, value int) error {
	limit := t.CellLimit()
	if size := CellSize(row, family, qualifier, value); size > limit {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrCellTooLarge, size, limit)
	}
	return nil
}

// ResolveMutation returns the cells that m, which ValidateMutation has passed,
// writes at now: times and kinds explicit, in order of application, deletes as
// markers. result is what the mutation's increments and appends made of their
// columns, in key order. Operations on COUNTER families are left out: the engine
// applies those.
//
// As in HBase, all increments, appends and deletes of a newest version read the
// row as it was before m, through read, which is not called where m has none of
// them. Cells share the slices of m except for the values of increments and
// appends. Its error wraps ErrNotANumber or ErrCellTooLarge, or is read's.
func ResolveMutation(t *TableDescriptor, m *cell.Mutation, now cell.Timestamp, read ReadRow) (write, result []cell.Cell, err error) {
	return AppendResolved(make([]cell.Cell, 0, len(m.Ops)), t, m, now, now, read)
}

// AppendResolved is ResolveMutation appending to dst, with the default time of
// puts apart: a conditional mutation's puts take max(now, tested) of
// CheckCondition. On an error what it appended is to be dropped.
func AppendResolved(dst []cell.Cell, t *TableDescriptor, m *cell.Mutation, now, putTime cell.Timestamp, read ReadRow) (write, result []cell.Cell, err error) {
	r := resolver{table: t, m: m, now: now, read: read, out: dst}
	first := len(dst)
	for i := range m.Ops {
		o := &m.Ops[i]
		if o.Type != cell.OpDeleteRow && r.inPlace(o.Family) {
			continue
		}
		switch o.Type {
		case cell.OpPut:
			r.out = append(r.out, cell.Cell{Family: o.Family, Qualifier: o.Qualifier, Time: fill(o.Time, putTime), Kind: cell.KindPut, Value: o.Value, TTL: o.TTL})
		case cell.OpDelete:
			at := o.Time
			if at == cell.Latest {
				if at, err = r.newest(o); err != nil {
					return dst[:first], nil, err
				}
			}
			r.marker(cell.KindDelete, o.Family, o.Qualifier, at)
		case cell.OpDeleteColumn:
			r.marker(cell.KindDeleteColumn, o.Family, o.Qualifier, o.Time)
		case cell.OpDeleteFamily:
			r.marker(cell.KindDeleteFamily, o.Family, nil, o.Time)
		case cell.OpDeleteFamilyVersion:
			r.marker(cell.KindDeleteFamilyVersion, o.Family, nil, o.Time)
		case cell.OpDeleteRow:
			for j := range t.Families {
				if f := &t.Families[j]; !f.InPlace() {
					r.marker(cell.KindDeleteFamily, f.Name, nil, o.Time)
				}
			}
		case cell.OpIncrement, cell.OpAppend:
			if err = r.modify(o); err != nil {
				return dst[:first], nil, atRow(t.Name, m.Row, fmt.Errorf("%s %s:%.100q: %w", o.Type, o.Family, o.Qualifier, err))
			}
		}
	}
	return r.out, inKeyOrder(r.result), nil
}

func fill(t, now cell.Timestamp) cell.Timestamp {
	if t == cell.Latest {
		return now
	}
	return t
}

// inKeyOrder sorts the result of read-modify-writes; of a column that was named
// twice the later cell stays, as in the store.
func inKeyOrder(cells []cell.Cell) []cell.Cell {
	if len(cells) < 2 {
		return cells
	}
	slices.Reverse(cells)
	slices.SortStableFunc(cells, cell.CompareColumns)
	return slices.CompactFunc(cells, func(a, b cell.Cell) bool { return cell.CompareColumns(a, b) == 0 })
}

// resolver is one ResolveMutation.
type resolver struct {
	table  *TableDescriptor
	m      *cell.Mutation
	now    cell.Timestamp
	read   ReadRow
	out    []cell.Cell
	result []cell.Cell

	latest map[columnName]*latestVersions // of the columns whose newest version m deletes; nil = not read

	loaded bool
	base   []cell.Cell // the newest version of each column that m increments or appends to, in key order; our copy
}

func (r *resolver) inPlace(family string) bool {
	f := r.table.Family(family)
	return f != nil && f.InPlace()
}

func (r *resolver) marker(k cell.Kind, family string, qualifier []byte, t cell.Timestamp) {
	r.out = append(r.out, cell.Cell{Family: family, Qualifier: qualifier, Time: fill(t, r.now), Kind: k})
}

func (r *resolver) scan() *Scan {
	return &Scan{Table: r.table.Name, Start: r.m.Row, Stop: r.m.Row, StopInclusive: true}
}

// newest returns the time of the version that o deletes: where m names the
// column for the k-th time, its k-th newest visible version, or now where there
// are fewer (HBase HRegion.updateDeleteLatestVersionTimestamp).
func (r *resolver) newest(o *cell.Op) (cell.Timestamp, error) {
	if r.latest == nil {
		if err := r.loadLatest(); err != nil {
			return 0, err
		}
	}
	l := r.latest[columnName{o.Family, string(o.Qualifier)}]
	if len(l.times) == 0 {
		return r.now, nil
	}
	at := l.times[0]
	l.times = l.times[1:]
	return at, nil
}

// columnName names a column where it is the key of a map.
type columnName struct{ family, qualifier string }

// latestVersions are the newest versions of a column that m deletes so many of.
type latestVersions struct {
	deletes int
	times   []cell.Timestamp // descending, without those that are taken
}

// loadLatest reads the versions that all deletes of a newest one take: in one go those of
// columns that m names once, and of each other column all that m deletes.
func (r *resolver) loadLatest() error {
	r.latest = map[columnName]*latestVersions{}
	var order []Column
	for i := range r.m.Ops {
		o := &r.m.Ops[i]
		if o.Type != cell.OpDelete || o.Time != cell.Latest || r.inPlace(o.Family) {
			continue
		}
		name := columnName{o.Family, string(o.Qualifier)}
		l := r.latest[name]
		if l == nil {
			l = &latestVersions{}
			r.latest[name] = l
			order = append(order, Column{Family: o.Family, Qualifier: o.Qualifier})
		}
		l.deletes++
	}
	once := r.scan()
	for _, c := range order {
		n := r.latest[columnName{c.Family, string(c.Qualifier)}].deletes
		if n == 1 {
			once.Columns = append(once.Columns, c)
			continue
		}
		s := r.scan()
		s.Columns, s.Versions = []Column{c}, n
		if err := r.readLatest(s); err != nil {
			return err
		}
	}
	if len(once.Columns) == 0 {
		return nil
	}
	return r.readLatest(once)
}

func (r *resolver) readLatest(s *Scan) error {
	cells, err := r.read(s)
	if err != nil {
		return err
	}
	for i := range cells {
		if l := r.latest[columnName{cells[i].Family, string(cells[i].Qualifier)}]; l != nil {
			l.times = append(l.times, cells[i].Time)
		}
	}
	return nil
}

// load reads what all increments and appends of m build on, at once.
func (r *resolver) load() error {
	if r.loaded {
		return nil
	}
	s := r.scan()
	s.Time = r.m.Read
	for i := range r.m.Ops {
		if o := &r.m.Ops[i]; (o.Type == cell.OpIncrement || o.Type == cell.OpAppend) && !r.inPlace(o.Family) {
			s.Columns = append(s.Columns, Column{Family: o.Family, Qualifier: o.Qualifier})
		}
	}
	cells, err := r.read(s)
	if err != nil {
		return err
	}
	r.loaded, r.base = true, slices.Clone(cells)
	for i := range r.base {
		c := &r.base[i]
		c.Qualifier, c.Value = bytes.Clone(c.Qualifier), bytes.Clone(c.Value)
	}
	return nil
}

// modify resolves an increment or an append (HBase HRegion.reckonDelta).
func (r *resolver) modify(o *cell.Op) error {
	if err := r.load(); err != nil {
		return err
	}
	c := cell.Cell{Family: o.Family, Qualifier: o.Qualifier, Time: fill(o.Time, r.now), Kind: cell.KindPut, TTL: o.TTL}
	var base []byte
	at, found := slices.BinarySearchFunc(r.base, c, cell.CompareColumns)
	if found {
		old := &r.base[at]
		base = old.Value
		// Never ties with its base, and never becomes Latest.
		c.Time = max(r.now, min(old.Time+1, cell.Latest-1))
		if c.TTL == 0 {
			c.TTL = old.TTL
		}
	}
	switch {
	case o.Type == cell.OpAppend:
		c.Value = append(append(make([]byte, 0, len(base)+len(o.Value)), base...), o.Value...)
		if err := checkCellSize(r.table, r.m.Row, o.Family, o.Qualifier, len(c.Value)); err != nil {
			return err
		}
	case found && len(base) != 8:
		return fmt.Errorf("%w: it is %d bytes wide", ErrNotANumber, len(base))
	default:
		var n uint64
		if found {
			n = binary.BigEndian.Uint64(base)
		}
		c.Value = binary.BigEndian.AppendUint64(make([]byte, 0, 8), n+uint64(o.Delta))
	}
	r.out = append(r.out, c)
	r.result = append(r.result, c)
	return nil
}

// CheckCondition reports whether c holds for row, as HBase's checkAndMutate
// decides it: the newest version inside c.Time is tested as "Value op stored"; an
// absent cell equals an absent or empty Value for every operator but NotEqual,
// and nothing else. tested is the time of the cell that was tested, 0 where there
// was none: the default time of the mutation's puts becomes max(now, tested), so
// that they are not hidden by it. A nil c holds. The error wraps
// ErrFamilyNotFound or ErrInvalidArgument, or is read's.
func CheckCondition(t *TableDescriptor, row []byte, c *Cond, read ReadRow) (holds bool, tested cell.Timestamp, err error) {
	if c == nil {
		return true, 0, nil
	}
	fail := func(err error) (bool, cell.Timestamp, error) {
		return false, 0, fmt.Errorf("condition on table %s, row %.100q: %w", t.Name, row, err)
	}
	if err := checkRow(row); err != nil {
		return fail(err)
	}
	s := &Scan{Table: t.Name, Start: row, Stop: row, StopInclusive: true, Time: c.Time}
	if c.Filter != nil {
		s.Filter = c.Filter
		cells, err := read(s)
		if err != nil {
			return fail(err)
		}
		if len(cells) == 0 {
			return false, 0, nil
		}
		return true, cells[0].Time, nil
	}
	if t.Family(c.Family) == nil {
		return fail(fmt.Errorf("%w: %q", ErrFamilyNotFound, c.Family))
	}
	if c.Op < Less || c.Op > Greater {
		return fail(fmt.Errorf("%w: comparison %d", ErrInvalidArgument, c.Op))
	}
	s.Columns = []Column{{Family: c.Family, Qualifier: c.Qualifier}}
	cells, err := read(s)
	if err != nil {
		return fail(err)
	}
	switch {
	case len(cells) == 0:
		return len(c.Value) == 0 && c.Op != NotEqual, 0, nil
	case len(c.Value) == 0:
		return (len(cells[0].Value) == 0) == (c.Op != NotEqual), cells[0].Time, nil
	}
	return c.Op.Holds(bytes.Compare(c.Value, cells[0].Value)), cells[0].Time, nil
}
