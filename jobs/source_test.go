package jobs

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sort"
	"testing"

	"sluice/cell"
	"sluice/region"
	"sluice/store"
)

// memory is a Source of rows that a test made: the newest version of every cell,
// in key order.
type memory struct {
	tables   map[string]*memoryTable
	sequence uint64
	scanned  func(row []byte) error // called before each row; its error ends the scan
}

type memoryTable struct {
	schema  *store.TableDescriptor
	regions *region.Map
	rows    []cell.Row
}

func newMemory() *memory {
	m := &memory{tables: make(map[string]*memoryTable), sequence: 42}
	for _, t := range store.SystemTables() {
		m.tables[t.Name] = &memoryTable{schema: t, regions: regionsOf(t.Name)}
	}
	return m
}

func regionsOf(table string, splits ...string) *region.Map {
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

// add makes a table with families, regions cut at splits, and rows in any order.
func (m *memory) add(table string, families []store.FamilyDescriptor, splits []string, rows []cell.Row) {
	rows = slices.Clone(rows)
	sort.Slice(rows, func(i, j int) bool { return bytes.Compare(rows[i].Key, rows[j].Key) < 0 })
	m.tables[table] = &memoryTable{schema: &store.TableDescriptor{Name: table, Families: families}, regions: regionsOf(table, splits...), rows: rows}
}

// progress stores an offset.
func (m *memory) progress(s *store.Source, partition int32, p *store.Progress) {
	t := m.tables[store.OffsetsTable]
	t.rows = append(t.rows, cell.Row{Key: store.AppendSourceRow(nil, s, partition), Cells: []cell.Cell{
		{Family: store.ProgressFamily, Qualifier: []byte(store.ProgressQualifier), Kind: cell.KindPut, Value: store.AppendProgress(nil, p)},
	}})
}

func (m *memory) Sequence() uint64 { return m.sequence }

func (m *memory) Table(_ context.Context, name string) (*store.TableDescriptor, error) {
	t, ok := m.tables[name]
	if !ok {
		return nil, fmt.Errorf("%w: %s", store.ErrTableNotFound, name)
	}
	return t.schema, nil
}

func (m *memory) Regions(_ context.Context, name string) (*region.Map, error) {
	t, ok := m.tables[name]
	if !ok {
		return nil, fmt.Errorf("%w: %s", store.ErrTableNotFound, name)
	}
	return t.regions, nil
}

func (m *memory) Scan(ctx context.Context, s *store.Scan) store.Scanner {
	t, ok := m.tables[s.Table]
	if !ok {
		return &memoryScanner{err: fmt.Errorf("%w: %s", store.ErrTableNotFound, s.Table)}
	}
	return &memoryScanner{ctx: ctx, source: m, scan: *s, rows: t.rows}
}

// memoryScanner hands out copies that it overwrites at the next step, so that a
// test finds whoever keeps a row too long.
type memoryScanner struct {
	ctx    context.Context
	source *memory
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
		if s.source.scanned != nil {
			if s.err = s.source.scanned(row.Key); s.err != nil {
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

// put returns a cell of value at t.
func put(family, qualifier string, t cell.Timestamp, value string) cell.Cell {
	return cell.Cell{Family: family, Qualifier: []byte(qualifier), Time: t, Kind: cell.KindPut, Value: []byte(value)}
}

// rowOf returns a row of cells, which must be in order.
func rowOf(key string, cells ...cell.Cell) cell.Row {
	return cell.Row{Key: []byte(key), Cells: cells}
}

func mustCompile(t testing.TB, name string, s *Spec, schema *store.TableDescriptor) *Job {
	t.Helper()
	j, err := Compile(name, s, schema)
	if err != nil {
		t.Fatalf("Compile: %v", err)
	}
	return j
}
