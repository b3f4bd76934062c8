package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"iter"

	"sluice/cell"
)

// Table is one table of an engine, as callers use it. It is safe for concurrent
// use, holds nothing open and needs no closing.
type Table struct {
	engine Engine
	name   string
}

// OpenTable returns the table with this name. Its error wraps ErrTableNotFound.
func OpenTable(ctx context.Context, e Engine, name string) (*Table, error) {
	if _, err := e.Table(ctx, name); err != nil {
		return nil, fmt.Errorf("open table: %w", err)
	}
	return &Table{engine: e, name: name}, nil
}

// Name returns the table's name.
func (t *Table) Name() string { return t.name }

// Descriptor returns the schema as it is now. It must not be changed.
func (t *Table) Descriptor(ctx context.Context) (*TableDescriptor, error) {
	return t.engine.Table(ctx, t.name)
}

// NewMutation returns an empty mutation of row, which is kept.
func (t *Table) NewMutation(row []byte) *cell.Mutation {
	return &cell.Mutation{Table: t.name, Row: row}
}

// Get returns a row, the caller's own, or nil where it has none of the selected
// cells. s says which cells, as for a scan; nil = the newest version of every
// column. Its Table, row bounds, direction, Limit, Batch, MaxResultBytes and cursors
// are not used, and there is no raw get. The error wraps ErrInvalidArgument or ErrFamilyNotFound.
func (t *Table) Get(ctx context.Context, row []byte, s *Scan) (*cell.Row, error) {
	get, err := t.get(row, s)
	if err != nil {
		return nil, err
	}
	return FirstRow(ctx, t.engine, &get)
}

// get returns the scan that is a Get.
func (t *Table) get(row []byte, s *Scan) (get Scan, err error) {
	if err := checkRow(row); err != nil {
		return get, fmt.Errorf("get from %s: %w", t.name, err)
	}
	if get, err = t.getScan(s); err != nil {
		return get, err
	}
	get.Start, get.Stop, get.StopInclusive, get.Limit = row, row, true, 1
	return get, nil
}

// getScan returns what s, which may be nil, says of cells, for rows that the caller
// names.
func (t *Table) getScan(s *Scan) (get Scan, err error) {
	if s != nil {
		get = *s
	}
	if get.Raw {
		return get, fmt.Errorf("get from %s: %w: there is no raw get", t.name, ErrInvalidArgument)
	}
	get.Table, get.Start, get.Stop, get.StartExclusive, get.StopInclusive = t.name, nil, nil, false, false
	get.Prefix, get.Reversed, get.Limit, get.Batch, get.MaxResultBytes = nil, false, 0, 0, 0
	get.Cursor, get.PageRows, get.NeedCursor = "", 0, false
	return get, nil
}

// GetRows returns rows in their order, each as Get returns it: nil where a row has
// none of the selected cells (HBase get of a list). Without a filter they are read
// by one scan, and so are of one instant where the engine reads at one, on HBase by
// its gets of many rows; with a filter, which judges each row by itself, they are read
// one after the other. The error is the first one's, as Get's.
func (t *Table) GetRows(ctx context.Context, rows [][]byte, s *Scan) ([]*cell.Row, error) {
	got := make([]*cell.Row, len(rows))
	if len(rows) < 2 || s != nil && s.Filter != nil {
		for i, row := range rows {
			var err error
			if got[i], err = t.Get(ctx, row, s); err != nil {
				return nil, err
			}
		}
		return got, nil
	}
	at := make(map[string][]int, len(rows)) // where a row is to go: it may be asked for twice
	f := &MultiRowRangeFilter{Ranges: make([]RowRange, 0, len(rows))}
	for i, row := range rows {
		if err := checkRow(row); err != nil {
			return nil, fmt.Errorf("get %d of %d from %s: %w", i, len(rows), t.name, err)
		}
		if at[string(row)] == nil {
			f.Ranges = append(f.Ranges, RowRange{Start: row, Stop: row, StopInclusive: true})
		}
		at[string(row)] = append(at[string(row)], i)
	}
	get, err := t.getScan(s)
	if err != nil {
		return nil, err
	}
	get.Filter = f
	sc := t.engine.Scan(ctx, &get)
	defer sc.Close()
	for sc.Next() {
		row := sc.Row()
		for _, i := range at[string(row.Key)] {
			got[i] = row.Clone()
		}
	}
	return got, sc.Err()
}

// Exists reports whether row has a visible cell in one of the columns; none
// given = in any.
func (t *Table) Exists(ctx context.Context, row []byte, columns ...Column) (bool, error) {
	get, err := t.get(row, &Scan{Columns: columns})
	if err != nil {
		return false, err
	}
	sc := t.engine.Scan(ctx, &get)
	defer sc.Close()
	return sc.Next(), sc.Err()
}

// Scan starts a scan of this table, whatever s.Table says; nil = all. Close it.
func (t *Table) Scan(ctx context.Context, s *Scan) Scanner {
	var scan Scan
	if s != nil {
		scan = *s
	}
	scan.Table = t.name
	return t.engine.Scan(ctx, &scan)
}

// Rows returns the rows of a scan of this table, whatever s.Table says; nil = all.
// A row is valid during its step of the loop. An error comes last, with a nil row.
func (t *Table) Rows(ctx context.Context, s *Scan) iter.Seq2[*cell.Row, error] {
	var scan Scan
	if s != nil {
		scan = *s
	}
	return func(yield func(*cell.Row, error) bool) {
		sc := t.Scan(ctx, &scan)
		defer sc.Close()
		for sc.Next() {
			if !yield(sc.Row(), nil) {
				return
			}
		}
		if err := sc.Err(); err != nil {
			yield(nil, err)
		}
	}
}

// Put writes one cell at the store's clock.
func (t *Table) Put(ctx context.Context, row []byte, family string, qualifier, value []byte) error {
	m := t.NewMutation(row)
	m.Put(family, qualifier, cell.Latest, value)
	_, err := t.engine.MutateRow(ctx, nil, m)
	return err
}

// Delete deletes all versions up to now of the columns; of the whole row where
// none is given.
func (t *Table) Delete(ctx context.Context, row []byte, columns ...Column) error {
	m := t.NewMutation(row)
	if len(columns) == 0 {
		m.DeleteRow(cell.Latest)
	}
	for _, c := range columns {
		if c.All {
			m.DeleteFamily(c.Family, cell.Latest)
		} else {
			m.DeleteColumn(c.Family, c.Qualifier, cell.Latest)
		}
	}
	_, err := t.engine.MutateRow(ctx, nil, m)
	return err
}

// Increment adds delta to an 8-byte big-endian number, an absent one being 0, and
// returns the sum. Overflow wraps around. Its error wraps ErrNotANumber where
// something else is stored.
func (t *Table) Increment(ctx context.Context, row []byte, family string, qualifier []byte, delta int64) (int64, error) {
	m := t.NewMutation(row)
	m.Increment(family, qualifier, delta)
	r, err := t.engine.MutateRow(ctx, nil, m)
	if err != nil {
		return 0, err
	}
	if len(r.Cells) != 1 || len(r.Cells[0].Value) != 8 {
		return 0, fmt.Errorf("increment %s %s:%q: %w: the engine returned %d cells", t.name, family, qualifier, ErrCorrupt, len(r.Cells))
	}
	return int64(binary.BigEndian.Uint64(r.Cells[0].Value)), nil
}

// Append appends value to what the column holds, an absent column being empty,
// and returns the new value, the caller's own. To a column of a DISTINCT family it
// adds value as an element, and returns nil.
func (t *Table) Append(ctx context.Context, row []byte, family string, qualifier, value []byte) ([]byte, error) {
	m := t.NewMutation(row)
	m.Append(family, qualifier, value)
	r, err := t.engine.MutateRow(ctx, nil, m)
	if err != nil {
		return nil, err
	}
	if len(r.Cells) == 0 {
		return nil, nil
	}
	if len(r.Cells) != 1 {
		return nil, fmt.Errorf("append to %s %s:%q: %w: the engine returned %d cells", t.name, family, qualifier, ErrCorrupt, len(r.Cells))
	}
	return bytes.Clone(r.Cells[0].Value), nil
}

// CheckAndPut applies puts to row where cond holds, and reports whether it did.
// Its error wraps ErrInvalidArgument where m has anything but puts, or another
// row.
func (t *Table) CheckAndPut(ctx context.Context, row []byte, cond *Cond, m *cell.Mutation) (bool, error) {
	if err := CheckNil(m); err != nil {
		return false, err
	}
	for i := range m.Ops {
		if o := &m.Ops[i]; o.Type != cell.OpPut {
			return false, fmt.Errorf("check and put on %s: %w: %s is not a put", t.name, ErrInvalidArgument, o.Type)
		}
	}
	r, err := t.CheckAndMutate(ctx, row, cond, m)
	return r.Applied, err
}

// CheckAndDelete applies deletes to row where cond holds, and reports whether it
// did. Its error wraps ErrInvalidArgument where m has anything but deletes, or
// another row.
func (t *Table) CheckAndDelete(ctx context.Context, row []byte, cond *Cond, m *cell.Mutation) (bool, error) {
	if err := CheckNil(m); err != nil {
		return false, err
	}
	for i := range m.Ops {
		switch o := &m.Ops[i]; o.Type {
		case cell.OpPut, cell.OpIncrement, cell.OpAppend:
			return false, fmt.Errorf("check and delete on %s: %w: %s is not a delete", t.name, ErrInvalidArgument, o.Type)
		}
	}
	r, err := t.CheckAndMutate(ctx, row, cond, m)
	return r.Applied, err
}

// CheckAndMutate applies ms, in order and as one, to row where cond holds.
// Result.Applied says whether it did. Its error wraps ErrInvalidArgument where
// one of ms names another row.
func (t *Table) CheckAndMutate(ctx context.Context, row []byte, cond *Cond, ms ...*cell.Mutation) (Result, error) {
	for _, m := range ms {
		if m != nil && !bytes.Equal(m.Row, row) {
			return Result{}, fmt.Errorf("check and mutate row %.100q of %s: %w: a mutation names row %.100q", row, t.name, ErrInvalidArgument, m.Row)
		}
	}
	m, err := t.join(ms)
	if err != nil {
		return Result{}, err
	}
	return t.engine.MutateRow(ctx, cond, m)
}

// MutateRow applies ms, which are of one row, in order and as one (HBase
// RowMutations), as durable as the safest of them. All increments, appends and deletes
// of a newest version read the row as it was before. The error wraps ErrWrongRow where
// they name several rows.
func (t *Table) MutateRow(ctx context.Context, ms ...*cell.Mutation) (Result, error) {
	m, err := t.join(ms)
	if err != nil {
		return Result{}, err
	}
	return t.engine.MutateRow(ctx, nil, m)
}

// join makes one mutation of this table of ms, which it does not change.
func (t *Table) join(ms []*cell.Mutation) (*cell.Mutation, error) {
	if len(ms) == 0 {
		return nil, fmt.Errorf("mutate row of %s: %w: no mutations", t.name, ErrInvalidArgument)
	}
	for _, m := range ms {
		if err := CheckNil(m); err != nil {
			return nil, err
		}
	}
	j := *ms[0]
	j.Table = t.name
	if len(ms) == 1 {
		return &j, nil
	}
	j.Ops = nil
	for _, m := range ms {
		switch {
		case !bytes.Equal(m.Row, j.Row):
			return nil, fmt.Errorf("mutate row %.100q of %s: %w: %.100q", j.Row, t.name, ErrWrongRow, m.Row)
		case m.Read != nil && j.Read != nil && *m.Read != *j.Read:
			return nil, fmt.Errorf("mutate row %.100q of %s: %w: mutations read different time ranges", j.Row, t.name, ErrInvalidArgument)
		case len(m.Ops) == 0:
			return nil, fmt.Errorf("mutate row %.100q of %s: %w: no columns to write", j.Row, t.name, ErrInvalidArgument)
		}
		if m.Read != nil {
			j.Read = m.Read
		}
		j.Durability = safest(j.Durability, m.Durability)
		j.Ops = append(j.Ops, m.Ops...)
	}
	return &j, nil
}

// safest returns the durability of what is as safe as a and as b say. The table's, of
// which it is not known, is safer than one that does not wait for the disk.
func safest(a, b cell.Durability) cell.Durability {
	if most := max(a, b); most >= cell.SyncWAL || min(a, b) != cell.UseDefault {
		return most
	}
	return cell.UseDefault
}

// CheckNil refuses a mutation that is nil. It is for engines. Its error wraps
// ErrInvalidArgument.
func CheckNil(m *cell.Mutation) error {
	if m == nil {
		return fmt.Errorf("mutate row: %w: the mutation is nil", ErrInvalidArgument)
	}
	return nil
}

// MutateRows applies ms in order, in one commit where the engine can. Each is
// atomic and has its own outcome: both slices have len(ms).
func (t *Table) MutateRows(ctx context.Context, ms ...*cell.Mutation) ([]Result, []error) {
	own := make([]*cell.Mutation, len(ms))
	for i, m := range ms {
		if m == nil {
			continue // the engine refuses it
		}
		c := *m
		c.Table = t.name
		own[i] = &c
	}
	if e, ok := t.engine.(RowMutator); ok {
		return e.MutateRows(ctx, own)
	}
	results, errs := make([]Result, len(ms)), make([]error, len(ms))
	for i, m := range own {
		results[i], errs[i] = t.engine.MutateRow(ctx, nil, m)
	}
	return results, errs
}
