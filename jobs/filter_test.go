package jobs

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/store"
	"sluice/store/memstore"
)

// TestRunFilter exports two regions through a filter string, and what the filter
// drops is in no file, of no row and of no cell.
func TestRunFilter(t *testing.T) {
	t.Parallel()
	s, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	schema := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f"), store.NewFamily("c")}}
	schema.Families[1].Counter = true
	if err := s.CreateTable(t.Context(), schema, [][]byte{[]byte("c")}); err != nil {
		t.Fatal(err)
	}
	for i, row := range [][3]string{{"a", "500", "x"}, {"b", "200", "x"}, {"c", "404", "x"}, {"d", "503", "y"}, {"e", "", "x"}} {
		m := cell.Mutation{Table: "t", Row: []byte(row[0])}
		if row[1] != "" {
			m.Put("f", []byte("status"), 1, []byte(row[1]))
			m.Increment("c", []byte("n"), int64(i-2)*500)
		}
		m.Put("f", []byte("page"), 1, []byte(row[2]))
		if _, err := s.MutateRow(t.Context(), nil, &m); err != nil {
			t.Fatal(err)
		}
	}
	snapshot, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = snapshot.Close() })
	perRow := []columnar.ColumnSpec{{Name: "key", From: "$row", Type: "string"}, {Name: "status", From: "f:status", Type: "int64"}, {Name: "page", From: "f:page", Type: "string"}}
	perCell := []columnar.ColumnSpec{{Name: "key", From: "$row", Type: "string"}, {Name: "column", From: "$qualifier", Type: "string"}, {Name: "value", From: "$value", Type: "string"}}
	for name, tt := range map[string]struct {
		rows, filter string
		columns      []columnar.ColumnSpec
		want         [][]string
	}{
		"rows":     {"row", "SingleColumnValueFilter('f', 'status', >=, 'binary:404', true, true)", perRow, [][]string{{"a", "500", "x"}, {"c", "404", "x"}, {"d", "503", "y"}}},
		"cells":    {"cell", "QualifierFilter(=, 'binary:page') AND ValueFilter(=, 'binary:y')", perCell, [][]string{{"d", "page", "y"}}},
		"columns":  {"row", "QualifierFilter(!=, 'binary:page') AND RowFilter(>, 'binary:b')", perRow, [][]string{{"c", "404", "-"}, {"d", "503", "-"}}},
		"stop row": {"row", "InclusiveStopFilter('c') AND SKIP ValueFilter(!=, 'binary:500')", perRow, [][]string{{"b", "200", "x"}, {"c", "404", "x"}}},
		"numbers": {
			"row", `{"type": "SingleColumnValueFilter", "family": "c", "qualifier": "n", "op": "LESS", "comparator": {"type": "long", "value": "500"}, "filterIfMissing": true}`, perRow,
			[][]string{{"a", "500", "x"}, {"b", "200", "x"}, {"c", "404", "x"}},
		},
		"list": {
			"row", ` {"type": "FilterList", "op": "MUST_PASS_ALL", "filters": [{"type": "MultiRowRangeFilter", "ranges": [["b", true, "d", true]]}, "QualifierFilter(=, 'binary:status')"]}`, perRow,
			[][]string{{"b", "200", "-"}, {"c", "404", "-"}, {"d", "503", "-"}},
		},
		"nothing": {"row", "PrefixFilter('z')", perRow, nil},
	} {
		job := mustCompile(t, "j", &Spec{Table: "t", Rows: tt.rows, Filter: tt.filter, Columns: tt.columns, Formats: []string{Parquet, Arrow}}, schema)
		out := t.TempDir()
		m, err := Run(t.Context(), &RunOptions{Job: job, Source: snapshot, Out: out})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		r, err := Verify(t.Context(), filepath.Join(out, "j"))
		if err != nil || !r.OK() || r.Manifest.Filter != tt.filter {
			t.Errorf("%s: Verify: %v, %v, filter %q", name, err, r.Err(), r.Manifest.Filter)
		}
		for _, format := range job.Formats() {
			if d := cmp.Diff(tt.want, readFormat(t, r.Dir, m, format)); d != "" {
				t.Errorf("%s, %s: %s", name, format, d)
			}
		}
	}
}
