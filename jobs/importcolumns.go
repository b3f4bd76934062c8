package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice/jobs/columnar"
	"sluice/store"
)

// keyColumn is a column whose values are a part of the row keys.
type keyColumn struct {
	column int
	coding columnar.Coding
}

// importColumn is where a column of the files goes.
type importColumn struct {
	family    string // empty = the column is not a cell's
	qualifier []byte
	coding    columnar.Coding
	required  bool // null is an error
	// rivals are columns of the same cell, of which one that is not null is written instead.
	rivals []int
	// Of a map of what no column of the family names: those that are named.
	isMap bool
	named map[string]bool
}

// compile finds out what the columns of the run are.
func (m *tableImport) compile() error {
	unsupported := func(format string, args ...any) error {
		return fmt.Errorf("%w: run %s: %s", store.ErrUnsupported, m.manifest.RunID, fmt.Sprintf(format, args...))
	}
	if m.manifest.Join != nil {
		return unsupported("it is of a join")
	}
	if len(m.manifest.Totals) == 0 {
		return unsupported("it has no files")
	}
	if err := m.findColumns(unsupported, nil); err != nil {
		return err
	}
	if row := m.keys[0].column; !m.exact(row) {
		c := &m.manifest.Columns[row]
		return unsupported("its row keys are in column %s alone, %s as %s, in which two keys may be one: export them as string or bytes", c.Name, c.Type, c.Coding)
	}
	return nil
}

// findTable finds the table that rows go into, which must have the families. Where there is
// none, the error says how to make it.
func (m *tableImport) findTable(ctx context.Context, families []string) (err error) {
	m.schema, err = m.To.Table(ctx, m.Into)
	if !errors.Is(err, store.ErrTableNotFound) {
		return err
	}
	if len(families) == 0 {
		return fmt.Errorf("%w: create it first, with the families that the rows name", err)
	}
	return fmt.Errorf("%w: create it first, with its families; in the shell: create '%s', '%s'", err, m.Into, strings.Join(families, "', '"))
}

// importFamilies returns the families of the cells that the rows of a run are made of; none
// where the rows alone say them.
func importFamilies(m *Manifest) []string {
	if m.Rows == string(columnar.PerCell) {
		return m.Families
	}
	var families []string
	for i := range m.Columns {
		families = appendFamily(families, m.Columns[i].From)
	}
	return families
}

// appendFamily appends the family that a column is from, where there is one and it is new.
func appendFamily(families []string, from string) []string {
	family, ok := strings.CutPrefix(from, columnar.FromUnmatched)
	if !ok {
		if family, _, ok = strings.Cut(from, ":"); !ok {
			return families // of no cell
		}
	}
	if slices.Contains(families, family) {
		return families
	}
	return append(families, family)
}

// findColumns finds out what the columns of m.manifest are for; keys are those of the
// row key where none is from $row.
func (m *tableImport) findColumns(unsupported func(format string, args ...any) error, keys []keyColumn) error {
	m.keys, m.time, m.family, m.qual, m.value, m.op = keys, -1, -1, -1, -1, -1
	m.columns = make([]importColumn, len(m.manifest.Columns))
	cells, row := 0, -1
	for i := range m.manifest.Columns {
		c := &m.manifest.Columns[i]
		coding, _ := columnar.ParseCoding(c.Coding)
		m.columns[i].coding = coding
		switch c.From {
		case "": // of a file of others, and not asked for as a cell
		case columnar.FromRow:
			if row < 0 || m.tells(i) >= m.tells(row) {
				row, m.keys = i, []keyColumn{{i, coding}}
			}
		case columnar.FromTimestamp:
			m.time = i
		case columnar.FromFamily:
			m.family = i
		case columnar.FromQualifier:
			m.qual = i
		case columnar.FromValue:
			m.value = i
		case columnar.FromOp:
			m.op = i
		default:
			if columnar.IsRowField(c.From) {
				break // the row key has it
			}
			family, qualifier, _ := strings.Cut(c.From, ":")
			if rest, ok := strings.CutPrefix(c.From, columnar.FromUnmatched); ok {
				typ, _ := columnar.ParseType(c.Type)
				if _, ok := typ.Map(); !ok {
					return unsupported("column %s has columns of a family as a JSON object (%s), not as a map", c.Name, c.From)
				}
				family = rest
				m.columns[i].isMap, m.columns[i].named = true, m.named(rest)
			}
			if err := m.takes(family); err != nil {
				return fmt.Errorf("column %s: %w", c.Name, err)
			}
			m.columns[i].family, m.columns[i].qualifier = family, []byte(qualifier)
			cells++
		}
		if coding == columnar.Distinct {
			return unsupported("column %s has the estimates of sketches", c.Name)
		}
	}
	m.findRivals()
	switch perCell := m.manifest.Rows == string(columnar.PerCell); {
	case len(m.keys) == 0:
		return unsupported("it has no column from $row")
	case perCell && (m.family < 0 || m.qual < 0 || m.value < 0 || m.time < 0):
		return unsupported("it has one row a cell, and not all of $family, $qualifier, $timestamp and $value")
	case m.manifest.Mode == ModeHistory && m.op < 0:
		return unsupported("it is a history, and has no column from $op")
	case !perCell && cells == 0:
		return unsupported("it has no column from a cell")
	}
	return nil
}

// findRivals finds out which of several columns is written that were read from one cell:
// one whose value is the cell's bytes, whatever these were, and otherwise the first.
func (m *tableImport) findRivals() {
	for i := range m.columns {
		c := &m.columns[i]
		for k := range m.columns {
			o := &m.columns[k]
			if k == i || c.family == "" || c.isMap || o.isMap || c.family != o.family || !bytes.Equal(c.qualifier, o.qualifier) {
				continue
			}
			if m.exact(k) && !m.exact(i) || m.exact(k) == m.exact(i) && k < i {
				c.rivals = append(c.rivals, k)
			}
		}
	}
}

// exact reports whether the values of a column tell the bytes that they were read from.
func (m *tableImport) exact(i int) bool {
	typ, _ := columnar.ParseType(m.manifest.Columns[i].Type)
	return m.columns[i].coding.Exact(typ)
}

// tells is how well a column from $row tells the row keys: 2 = each of them, 1 = those that
// are not null, 0 = two of them may be one.
func (m *tableImport) tells(i int) int {
	switch {
	case !m.exact(i):
		return 0
	case m.manifest.Columns[i].OnError == columnar.OnErrorNull:
		return 1
	}
	return 2
}

// named returns the qualifiers of a family that are columns.
func (m *tableImport) named(family string) map[string]bool {
	named := map[string]bool{}
	for i := range m.manifest.Columns {
		if qualifier, ok := strings.CutPrefix(m.manifest.Columns[i].From, family+":"); ok {
			named[qualifier] = true
		}
	}
	return named
}

// takes says why cells cannot be written to a family.
func (m *tableImport) takes(family string) error {
	switch f := m.schema.Family(family); {
	case f == nil:
		return fmt.Errorf("%w: %s in table %s: add it first; in the shell: alter '%s', '%s'", store.ErrFamilyNotFound, family, m.Into, m.Into, family)
	case f.Distinct:
		return fmt.Errorf("%w: family %s is DISTINCT: a sketch cannot be written", store.ErrUnsupported, family)
	case f.Counter && m.To.Traits().Atomic != store.AtomicBatch:
		return fmt.Errorf("%w: family %s is COUNTER, and engine %s cannot set counters: export the run again without its columns, or count again from Kafka; copy-table --family copies counts from an embedded store", store.ErrUnsupported, family, m.To.Traits().Name)
	case m.manifest.Mode == ModeVersions && f.Counter && len(m.manifest.Sort) > 0:
		return fmt.Errorf("%w: family %s is COUNTER, and the run is sorted by other columns than the row key: which version of a count is the newest does not show", store.ErrUnsupported, family)
	case m.manifest.Mode == ModeHistory && noHistory(f) != "":
		return fmt.Errorf("%w: a history into family %s: %s", store.ErrUnsupported, family, noHistory(f))
	}
	return nil
}
