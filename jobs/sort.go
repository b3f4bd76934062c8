package jobs

import (
	"errors"
	"fmt"
	"slices"

	"sluice/jobs/columnar"
	"sluice/jobs/join"
	"sluice/jobs/rowsort"
)

// The words of a SortColumn.
const (
	Ascending  = "ascending"
	Descending = "descending"
	NullsFirst = "first"
	NullsLast  = "last"
)

// SortColumn is one of the columns by which a run is sorted.
type SortColumn struct {
	// Column is the name of an output column, of any type but json and map.
	Column string `yaml:"column" json:"column"`
	// Order is ascending (default) or descending.
	Order string `yaml:"order,omitempty" json:"order"`
	// Nulls is first or last (default), whatever Order says.
	Nulls string `yaml:"nulls,omitempty" json:"nulls"`
}

// order returns s as files are told of it.
func (s *SortColumn) order() columnar.Order {
	return columnar.Order{Column: s.Column, Descending: s.Order == Descending, NullsFirst: s.Nulls == NullsFirst}
}

// check fills in the defaults and says what is wrong.
func (s *SortColumn) check(bad func(path, format string, args ...any)) {
	for _, word := range []struct {
		path, first, second string
		value               *string
	}{{"order", Ascending, Descending, &s.Order}, {"nulls", NullsLast, NullsFirst, &s.Nulls}} {
		switch *word.value {
		case "":
			*word.value = word.first
		case word.first, word.second:
		default:
			bad(word.path, "%q is neither %s nor %s", *word.value, word.first, word.second)
		}
	}
}

// compileSort checks the job's sort, after its columns, layout and partitions. What
// files are sorted by is the declared columns and then, where they have it, the row key.
func (j *Job) compileSort(bad func(path, format string, args ...any)) {
	s := &j.spec
	for _, n := range []struct {
		path  string
		value *int64
		def   int64
	}{{"memory_bytes", &s.MemoryBytes, rowsort.DefaultMemoryBytes}, {"spill_bytes", &s.SpillBytes, join.DefaultSpillBytes}} {
		switch {
		case *n.value < 0:
			bad(n.path, "%d is negative", *n.value)
		case *n.value != 0 && len(s.Sort) == 0:
			bad(n.path, "there is no sort, which it is for")
		case *n.value == 0 && len(s.Sort) > 0:
			*n.value = n.def
		}
	}
	if s.SpillDir != "" && len(s.Sort) == 0 {
		bad("spill_dir", "there is no sort, which it is for")
	}
	if len(s.Sort) == 0 || j.schema == nil {
		return
	}
	specs := j.schema.Specs()
	var order []columnar.Order
	for i := range s.Sort {
		by, at := &s.Sort[i], fmt.Sprintf("sort[%d]", i)
		by.check(func(path, format string, args ...any) { bad(at+"."+path, format, args...) })
		n := slices.IndexFunc(specs, func(c columnar.ColumnSpec) bool { return c.Name == by.Column })
		if n < 0 {
			bad(at+".column", "%q is no column of the job", by.Column)
			continue
		}
		switch {
		case slices.Contains(j.sort, n):
			bad(at+".column", "%s is given twice", by.Column)
		case slices.Contains(s.PartitionBy, by.Column):
			bad(at+".column", "%s is in partition_by: all rows of a directory have the same", by.Column)
		case !j.schema.Columns()[n].Type.Sortable():
			bad(at+".column", "%s is of type %s, which has no order", by.Column, specs[n].Type)
		}
		j.sort, order = append(j.sort, n), append(order, by.order())
	}
	for _, o := range j.layout.order {
		if !slices.ContainsFunc(order, func(have columnar.Order) bool { return have.Column == o.Column }) {
			order = append(order, o)
		}
	}
	j.layout.order = order
}

// names returns the columns of an order.
func names(order []columnar.Order) []string {
	all := make([]string, len(order))
	for i, o := range order {
		all[i] = o.Column
	}
	return all
}

// order returns by what rows follow each other in the files: Sort and what SortedBy has
// behind it.
func (m *Manifest) order() []columnar.Order {
	order := columnar.Ascending(m.SortedBy...)
	for i := range m.Sort {
		order[i] = m.Sort[i].order()
	}
	return order
}

// validateSort checks what the manifest says of the order of the rows.
func (m *Manifest) validateSort() error {
	if m.Join != nil && len(m.Sort) > 0 || len(m.SortedBy) < len(m.Sort) {
		return fmt.Errorf("sort by %d columns, sorted_by has %d", len(m.Sort), len(m.SortedBy))
	}
	for i, name := range m.SortedBy {
		n := slices.IndexFunc(m.Columns, func(c Column) bool { return c.Name == name })
		if n < 0 || slices.Contains(m.SortedBy[:i], name) || slices.Contains(m.PartitionBy, name) {
			return fmt.Errorf("sorted_by[%d]: %q", i, name)
		}
		if t, _ := columnar.ParseType(m.Columns[n].Type); !t.Sortable() {
			return fmt.Errorf("sorted_by[%d]: %q is of type %s", i, name, m.Columns[n].Type)
		}
	}
	for i := range m.Sort {
		s := m.Sort[i]
		var err error
		s.check(func(path, format string, args ...any) { err = fmt.Errorf(path+": "+format, args...) })
		if err != nil || s != m.Sort[i] || s.Column != m.SortedBy[i] {
			return errors.Join(fmt.Errorf("sort[%d]: %+v", i, m.Sort[i]), err)
		}
	}
	return nil
}

// keyed reports whether the files are in the order of row keys, a region's after the
// other's.
func (m *Manifest) keyed() bool { return m.Join == nil && len(m.Sort) == 0 }

// checkMerge returns why a merge join by these columns cannot read the run, or nil. A run
// in the order of its row keys is judged by its rows.
func (m *Manifest) checkMerge(on []string) error {
	if len(m.Sort) == 0 {
		return nil
	}
	fits := len(m.PartitionBy) == 0 && len(on) <= len(m.SortedBy)
	for i := 0; fits && i < len(on); i++ {
		fits = m.order()[i].Column == on[i] && !m.order()[i].Descending
	}
	if fits {
		return nil
	}
	within := ""
	if len(m.PartitionBy) > 0 {
		within = " within each of its partitions"
	}
	return fmt.Errorf("%w: run %s is sorted by %s%s, not by row key; use method hash, or join a run of a job without sort",
		join.ErrNotSorted, m.RunID, sortedText(m.order()), within)
}
