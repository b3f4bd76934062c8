package jobs

import (
	"slices"
	"testing"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/store"
)

// TestRowKeyCodings: a column from $row whose coding makes something else of the key than
// its bytes says nothing of the order of rows, nor of the key ranges of files.
func TestRowKeyCodings(t *testing.T) {
	t.Parallel()
	yes := true
	for name, c := range map[string]struct {
		column columnar.ColumnSpec
		keys   []string
		sorted bool
	}{
		"reverse":  {columnar.ColumnSpec{Type: "string", Coding: "reverse"}, []string{"ab", "ba", "ca"}, false},
		"fixed":    {columnar.ColumnSpec{Type: "string", Coding: "fixed"}, []string{"a\x00\x00", "b\x00\x00", "ccc"}, false},
		"hex":      {columnar.ColumnSpec{Type: "bytes", Coding: "hex"}, []string{"0A", "0a", "0b"}, false},
		"raw":      {columnar.ColumnSpec{Type: "bytes", Coding: "raw"}, []string{"a\xff", "b", "c"}, true},
		"nullable": {columnar.ColumnSpec{Type: "string", Nullable: &yes}, []string{"a", "b", "c"}, true},
	} {
		src := jobstest.NewMemory()
		var rows []cell.Row
		for _, key := range c.keys {
			rows = append(rows, jobstest.Row(key, jobstest.Put("f", "v", 1, "x")))
		}
		src.Add("t", []store.FamilyDescriptor{store.NewFamily("f")}, nil, rows)
		c.column.Name, c.column.From = "key", "$row"
		var want []string
		if c.sorted {
			want = []string{"key"}
		}
		for _, by := range [][]string{nil, {"v"}} {
			t.Run(name, func(t *testing.T) {
				spec := &Spec{Table: "t", Formats: []string{Parquet, Arrow}, PartitionBy: by, Columns: []columnar.ColumnSpec{c.column, {Name: "v", From: "f:v", Type: "string"}}}
				if m, _ := published(t, src, spec, RunOptions{}); !slices.Equal(m.SortedBy, want) {
					t.Errorf("Got sorted by %q, want %q", m.SortedBy, want)
				}
			})
		}
	}
}

// TestRowKeyCodingsBefore: runs that versions before published, whose files of partitions are
// said to be sorted by a row key in another coding, can be read: retention and increments do.
func TestRowKeyCodingsBefore(t *testing.T) {
	t.Parallel()
	src, spec := partitioned(10)
	spec.Columns[1].Coding = "reverse"
	m, _ := published(t, src, spec, RunOptions{})
	if err := decodeChanged(t, m, func(m *Manifest) { m.SortedBy = []string{"key"} }); err != nil {
		t.Error(err)
	}
}
