//go:build integration

package integration

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sluice/cell"
	"sluice/jobs"
	"sluice/jobs/columnar"
)

// TestSnippets runs what `export sql` prints for DuckDB, pandas and Polars on a run
// whose directory and columns have every character in their names that one of the
// readers may take for something else.
func TestSnippets(t *testing.T) {
	python := python(t)
	var ms []cell.Mutation
	for i := range 7 {
		m := cell.Mutation{Row: fmt.Appendf(nil, "r%d", i)}
		m.Put("f", []byte("n"), cell.Timestamp(1700000000000+i), fmt.Append(nil, i*10))
		ms = append(ms, m)
	}
	snapshot, schema := plainTable(t, "r3", ms...)
	const column = `a "b" 'c' [d]* \n`
	for _, format := range []string{jobs.Parquet, jobs.Arrow} {
		job, err := jobs.Compile("the-job.1", &jobs.Spec{
			Table: "t", Formats: []string{format}, Out: filepath.Join(t.TempDir(), `it's [x] {y} "z" *? ü`),
			Columns: []columnar.ColumnSpec{{Name: "key", From: "$row", Type: "string"}, {Name: column, From: "f:n", Type: "int64"}},
		}, schema)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := jobs.Run(t.Context(), &jobs.RunOptions{Job: job, Source: snapshot}); err != nil {
			t.Fatal(err)
		}
		m, dir, err := jobs.ReadRun(t.Context(), filepath.Join(job.Out(), "the-job.1"))
		if err != nil {
			t.Fatal(err)
		}
		const result = "\nimport json\nprint('RESULT', json.dumps([list(d.columns), [list(r) for r in d.rows()] if hasattr(d, 'rows') else d.values.tolist()]))\n"
		for reader, then := range map[string]string{
			jobs.DuckDB: "", jobs.Pandas: "\nd = df" + result, jobs.Polars: "\nd = lf.collect()" + result,
		} {
			code, err := jobs.Snippet(reader, m, dir)
			if reader == jobs.DuckDB {
				if format == jobs.Arrow {
					continue // Snippet refuses it; tested beside it
				}
				code = fmt.Sprintf("import duckdb, json\nc = duckdb.connect()\nprint(c.execute(%q).fetchall())\nd = c.execute('SELECT * FROM \"the-job.1\"')\nprint('RESULT', json.dumps([[x[0] for x in d.description], [list(r) for r in d.fetchall()]]))\n", code)
			}
			if err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), python, "-c", code+then).CombinedOutput()
			if err != nil {
				t.Errorf("%s, %s: %v\n%s\n%s", reader, format, err, code, out)
				continue
			}
			const want = `RESULT [["key", "a \"b\" 'c' [d]* \\n"], [["r0", 0], ["r1", 10], ["r2", 20], ["r3", 30], ["r4", 40], ["r5", 50], ["r6", 60]]]`
			if !strings.Contains(string(out), want) {
				t.Errorf("%s, %s: got\n%s\nwant a line\n%s", reader, format, out, want)
			}
		}
	}
}
