//go:build integration

package integration

import (
	"encoding/csv"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/internal/fenced"
	"sluice/jobs"
	"sluice/jobs/columnar"
	"sluice/store"
	"sluice/store/memstore"
)

// exportCSV makes a table of a CSV whose first column is the row key, exports it and
// returns the code by which reader reads it.
func exportCSV(t *testing.T, table, text, out string) func(reader string) string {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	s, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	schema := &store.TableDescriptor{Name: table, Families: []store.FamilyDescriptor{store.NewFamily("e")}}
	if err := s.CreateTable(t.Context(), schema, nil); err != nil {
		t.Fatal(err)
	}
	spec := &jobs.Spec{Table: table, Out: out, Columns: []columnar.ColumnSpec{{Name: rows[0][0], From: "$row", Type: "string"}}}
	for _, name := range rows[0][1:] {
		spec.Columns = append(spec.Columns, columnar.ColumnSpec{Name: name, From: "e:" + name, Type: "string"})
	}
	for _, row := range rows[1:] {
		m := cell.Mutation{Table: table, Row: []byte(row[0])}
		for i, value := range row[1:] {
			m.Put("e", []byte(rows[0][i+1]), 1, []byte(value))
		}
		if _, err := s.MutateRow(t.Context(), nil, &m); err != nil {
			t.Fatal(err)
		}
	}
	snapshot, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = snapshot.Close() })
	job, err := jobs.Compile(table, spec, schema)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.Run(t.Context(), &jobs.RunOptions{Job: job, Source: snapshot}); err != nil {
		t.Fatal(err)
	}
	m, dir, err := jobs.ReadRun(t.Context(), filepath.Join(out, table))
	if err != nil {
		t.Fatal(err)
	}
	return func(reader string) string {
		code, err := jobs.Snippet(reader, m, dir)
		if err != nil {
			t.Fatal(err)
		}
		return code
	}
}

// TestJoinsInOtherPrograms runs what docs/joins.md says of other programs on what
// export sql prints for them, and compares the result with the one that it gives.
// Spark is for make soak.
func TestJoinsInOtherPrograms(t *testing.T) {
	python := python(t)
	tables, code, want := map[string]string{}, map[string]string{}, ""
	for _, b := range fenced.Blocks(t, filepath.Join(ModuleRoot(t), "docs", "joins.md")) {
		switch {
		case b.Section == "Recipes" && b.Language == "csv" && tables[strings.TrimSuffix(b.Before, ":")] == "":
			tables[strings.TrimSuffix(b.Before, ":")] = b.Text
		case b.Section != "With other programs":
		case b.Language == "csv":
			want = b.Text
		default:
			for reader, word := range map[string]string{jobs.DuckDB: "DuckDB", jobs.Polars: "Polars", jobs.Pandas: "pandas", jobs.Spark: "Spark"} {
				if strings.Contains(b.Before, word) {
					code[reader] = b.Text
				}
			}
		}
	}
	if len(code) != len(jobs.Readers()) || want == "" {
		t.Fatalf("Got code for %d readers and the result %q in the document", len(code), want)
	}
	out := t.TempDir()
	views, users := exportCSV(t, "views", tables["views"], out), exportCSV(t, "users", tables["users"], out)
	const header = "import csv, sys\n"
	const print = "\nsys.stdout.write('RESULT\\n')\nw = csv.writer(sys.stdout, lineterminator='\\n')\nw.writerow(columns)\nw.writerows(rows)\n"
	const ofPandas = "\ncolumns, rows = list(joined.columns), joined.astype(object).where(joined.notna(), None).values.tolist()" + print
	frames := func(reader, name string) string {
		return views(reader) + "\nviews = " + name + "\n" + users(reader) + "\nusers = " + name + "\n" + code[reader]
	}
	programs := map[string]string{
		jobs.DuckDB: "import duckdb\nc = duckdb.connect()\nc.execute('''" + views(jobs.DuckDB) + "''')\nc.execute('''" + users(jobs.DuckDB) +
			"''')\nc.execute('''" + code[jobs.DuckDB] + "''')\ncolumns, rows = [d[0] for d in c.description], c.fetchall()" + print,
		jobs.Polars: frames(jobs.Polars, "lf") + "\ncolumns, rows = joined.columns, joined.rows()" + print,
		jobs.Pandas: frames(jobs.Pandas, "df") + ofPandas,
	}
	if soaking && exec.CommandContext(t.Context(), python, "-c", "import pyspark").Run() == nil {
		programs[jobs.Spark] = views(jobs.Spark) + users(jobs.Spark) + code[jobs.Spark] + ofPandas
	}
	for reader, program := range programs {
		cmd := exec.CommandContext(t.Context(), python, "-c", header+program)
		var problems strings.Builder
		cmd.Stderr = &problems
		b, err := cmd.Output()
		if err != nil {
			t.Errorf("%s: %v\n%s\n%s", reader, err, program, problems.String())
			continue
		}
		_, got, _ := strings.Cut(string(b), "RESULT\n")
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", reader, d)
		}
	}
}
