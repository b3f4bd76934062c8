// Package jobstest has the engines and sources that the tests of jobs are made with: ones
// that are killed, lose their lease or cannot freeze an instant, and a source of rows as
// they were written down.
package jobstest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sort"

	"sluice/cell"
	"sluice/region"
	"sluice/store"
)

// Memory is an instant.Source of rows that a test made: the newest version of every cell,
// in key order.
type Memory struct {
	Tables  map[string]*MemoryTable
	At      uint64
	Scanned func(row []byte) error // called before each row; its error ends the scan
}

// MemoryTable is a table of a Memory; its rows are in the order of their keys.
type MemoryTable struct {
	Schema  *store.TableDescriptor
	Regions *region.Map
	Rows    []cell.Row
}

// NewMemory returns a source with the system tables, empty.
func NewMemory() *Memory {
	m := &Memory{Tables: make(map[string]*MemoryTable), At: 42}
	for _, t := range store.SystemTables() {
		m.Tables[t.Name] = &MemoryTable{Schema: t, Regions: Regions(t.Name)}
	}
	return m
}

// Regions returns the map of a table that is cut at splits.
func Regions(table string, splits ...string) *region.Map {
	infos := []region.Info{{Table: table, ID: 1}}
	for _, s := range splits {
		infos[len(infos)-1].Stop = []byte(s)
		infos = append(infos, region.Info{Table: table, ID: 1, Start: []byte(s)})
	}
	m, err := region.NewMap(table, infos)
	if err != nil {
		panic(err)
	}
	return m
}

// Add makes a table with families, regions cut at splits, and rows in any order.
func (m *Memory) Add(table string, families []store.FamilyDescriptor, splits []string, rows []cell.Row) {
	rows = slices.Clone(rows)
	sort.Slice(rows, func(i, j int) bool { return bytes.Compare(rows[i].Key, rows[j].Key) < 0 })
	m.Tables[table] = &MemoryTable{Schema: &store.TableDescriptor{Name: table, Families: families}, Regions: Regions(table, splits...), Rows: rows}
}

// Progress stores an offset.
func (m *Memory) Progress(s *store.Source, partition int32, p *store.Progress) {
	t := m.Tables[store.OffsetsTable]
	t.Rows = append(t.Rows, cell.Row{Key: store.AppendSourceRow(nil, s, partition), Cells: []cell.Cell{
		{Family: store.ProgressFamily, Qualifier: []byte(store.ProgressQualifier), Kind: cell.KindPut, Value: store.AppendProgress(nil, p)},
	}})
}

// Sequence implements instant.Source: At.
func (m *Memory) Sequence() uint64 { return m.At }

// Table implements instant.Source.
func (m *Memory) Table(_ context.Context, name string) (*store.TableDescriptor, error) {
	t, ok := m.Tables[name]
	if !ok {
		return nil, fmt.Errorf("%w: %s", store.ErrTableNotFound, name)
	}
	return t.Schema, nil
}

// Regions implements store.Reader.
func (m *Memory) Regions(_ context.Context, name string) (*region.Map, error) {
	t, ok := m.Tables[name]
	if !ok {
		return nil, fmt.Errorf("%w: %s", store.ErrTableNotFound, name)
	}
	return t.Regions, nil
}

// Scan implements store.Reader.
func (m *Memory) Scan(ctx context.Context, s *store.Scan) store.Scanner {
	t, ok := m.Tables[s.Table]
	if !ok {
		return &memoryScanner{err: fmt.Errorf("%w: %s", store.ErrTableNotFound, s.Table)}
	}
	return &memoryScanner{ctx: ctx, source: m, scan: *s, rows: t.Rows}
}

// memoryScanner hands out copies that it overwrites at the next step, so that a
// test finds whoever keeps a row too long.
type memoryScanner struct {
	ctx    context.Context
	source *Memory
	scan   store.Scan
	rows   []cell.Row
	cells  []cell.Cell // of the current row, not handed out yet
	key    []byte
	out    cell.Row
	arena  []byte
	err    error
}

func (s *memoryScanner) Next() bool {
	for i := range s.arena {
		s.arena[i] = 0xEE
	}
	for len(s.cells) == 0 {
		if s.err != nil || len(s.rows) == 0 {
			return false
		}
		if s.err = s.ctx.Err(); s.err != nil {
			return false
		}
		row := s.rows[0]
		s.rows = s.rows[1:]
		r := cell.Range{Start: s.scan.Start, Stop: s.scan.Stop}
		if !r.Contains(row.Key) && !(s.scan.StopInclusive && bytes.Equal(row.Key, s.scan.Stop)) {
			continue
		}
		if s.source.Scanned != nil {
			if s.err = s.source.Scanned(row.Key); s.err != nil {
				return false
			}
		}
		s.key = row.Key
		for _, c := range row.Cells {
			if s.scan.Columns == nil || slices.ContainsFunc(s.scan.Columns, func(w store.Column) bool {
				return w.Family == c.Family && (w.All || bytes.Equal(w.Qualifier, c.Qualifier))
			}) {
				s.cells = append(s.cells, c)
			}
		}
	}
	n := len(s.cells)
	if s.scan.Batch > 0 {
		n = min(n, s.scan.Batch)
	}
	s.arena = s.arena[:0]
	s.out = cell.Row{Key: s.keep(s.key)}
	for _, c := range s.cells[:n] {
		c.Qualifier, c.Value = s.keep(c.Qualifier), s.keep(c.Value)
		s.out.Cells = append(s.out.Cells, c)
	}
	s.cells = s.cells[n:]
	return true
}

func (s *memoryScanner) keep(b []byte) []byte {
	n := len(s.arena)
	s.arena = append(s.arena, b...)
	return s.arena[n:]
}

func (s *memoryScanner) Row() *cell.Row { return &s.out }
func (s *memoryScanner) Err() error     { return s.err }
func (s *memoryScanner) Close() error   { return nil }

// Put returns a cell of value at t.
func Put(family, qualifier string, t cell.Timestamp, value string) cell.Cell {
	return cell.Cell{Family: family, Qualifier: []byte(qualifier), Time: t, Kind: cell.KindPut, Value: []byte(value)}
}

// Row returns a row of cells, which must be in order.
func Row(key string, cells ...cell.Cell) cell.Row {
	return cell.Row{Key: []byte(key), Cells: cells}
}
