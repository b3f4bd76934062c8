package jobs

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"sluice/jobs/columnar"
	"sluice/store"
)

// The types of partitions as readers call them, by ours.
var (
	duckDBTypes = map[string]string{columnar.String.String(): "VARCHAR", columnar.Int64.String(): "BIGINT", columnar.Bool.String(): "BOOLEAN"}
	polarsTypes = map[string]string{columnar.String.String(): "pl.String", columnar.Int64.String(): "pl.Int64", columnar.Bool.String(): "pl.Boolean"}
	arrowTypes  = map[string]string{columnar.String.String(): "pa.string()", columnar.Int64.String(): "pa.int64()", columnar.Bool.String(): "pa.bool_()"}
	sparkTypes  = map[string]string{columnar.String.String(): "string", columnar.Int64.String(): "bigint", columnar.Bool.String(): "boolean"}
)

// partitionTypes lists the columns that directories say, each as write has its name and
// type: readers would guess the types otherwise, 007 being a number to them.
func (m *Manifest) partitionTypes(write func(name, typ string) string) string {
	types := make([]string, len(m.PartitionBy))
	for i, name := range m.PartitionBy {
		c := slices.IndexFunc(m.Columns, func(c Column) bool { return c.Name == name })
		types[i] = write(name, m.Columns[c].Type)
	}
	return strings.Join(types, ", ")
}

// pandasPartitions is the line that tells pyarrow of them.
func pandasPartitions(m *Manifest) string {
	return fmt.Sprintf("hive = ds.partitioning(pa.schema([%s]), flavor=\"hive\")\n",
		m.partitionTypes(func(name, typ string) string { return "(" + pythonText(name) + ", " + arrowTypes[typ] + ")" }))
}

// above returns the names that readers take for partitions in dir itself, run=… being
// one. Its error wraps store.ErrInvalidArgument where one of them is a column.
func (m *Manifest) above(dir string) ([]string, error) {
	var names []string
	for _, element := range strings.Split(filepath.ToSlash(dir), "/") {
		name, _, ok := strings.Cut(element, "=")
		if !ok || slices.Contains(names, name) {
			continue
		}
		if slices.ContainsFunc(m.Columns, func(c Column) bool { return strings.EqualFold(c.Name, name) }) {
			return nil, fmt.Errorf("%w: readers take %s in %s for column %s; give the directory another name", store.ErrInvalidArgument, element, dir, name)
		}
		names = append(names, name)
	}
	return names, nil
}
