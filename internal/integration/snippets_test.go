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

// TestSnippetsOfJSON: what `export sql` prints gives columns of JSON as text in every
// reader, also in runs that are divided into partitions.
func TestSnippetsOfJSON(t *testing.T) {
	python := python(t)
	var ms []cell.Mutation
	for i := range 4 {
		m := cell.Mutation{Row: fmt.Appendf(nil, "r%d", i)}
		m.Put("f", []byte("part"), cell.Timestamp(1700000000000+i), fmt.Append(nil, i%2))
		if i > 0 {
			m.Put("f", []byte("doc"), cell.Timestamp(1700000000000+i), fmt.Appendf(nil, `{"n": %d, "t": "ü\"x"}`, i))
		}
		if i < 3 {
			m.Put("f", []byte("more"), cell.Timestamp(1700000000000+i), []byte("7"))
		}
		ms = append(ms, m)
	}
	snapshot, schema := plainTable(t, "r2", ms...)
	for _, format := range []string{jobs.Parquet, jobs.Arrow} {
		for _, parts := range [][]string{nil, {"part"}} {
			job, err := jobs.Compile("j", &jobs.Spec{
				Table: "t", Formats: []string{format}, Out: t.TempDir(), PartitionBy: parts,
				Columns: []columnar.ColumnSpec{
					{Name: "key", From: "$row", Type: "string"},
					{Name: `d"'oc`, From: "f:doc", Type: "json"},
					{Name: "part", From: "f:part", Type: "int64"},
					{Name: "rest", From: "$unmatched.f", Type: "json"},
				},
			}, schema)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := jobs.Run(t.Context(), &jobs.RunOptions{Job: job, Source: snapshot}); err != nil {
				t.Fatal(err)
			}
			m, dir, err := jobs.ReadRun(t.Context(), filepath.Join(job.Out(), "j"))
			if err != nil {
				t.Fatal(err)
			}
			const result = "\nimport json\nprint('RESULT', json.dumps(sorted([None if v is None or v != v else v for v in r] for r in rows), ensure_ascii=False))\n"
			for reader, then := range map[string]string{
				jobs.DuckDB: "", jobs.Pandas: "\nrows = df.astype(object).where(df.notna(), None).values.tolist()" + result, jobs.Polars: "\nassert lf.collect_schema() == lf.collect().schema\nrows = lf.collect().rows()" + result,
			} {
				if reader == jobs.DuckDB && format == jobs.Arrow {
					continue // Snippet refuses it
				}
				code, err := jobs.Snippet(reader, m, dir)
				if err != nil {
					t.Fatal(err)
				}
				if reader == jobs.DuckDB {
					code = fmt.Sprintf("import duckdb\nc = duckdb.connect()\nc.execute(%q)\nrows = c.execute('SELECT * FROM j').fetchall()\n", code) + result
				}
				out, err := exec.CommandContext(t.Context(), python, "-c", code+then).CombinedOutput()
				if err != nil {
					t.Errorf("%s, %s, by %v: %v\n%s\n%s", reader, format, parts, err, code, out)
					continue
				}
				const want = `RESULT [["r0", null, 0, "{\"more\":\"7\"}"], ["r1", "{\"n\": 1, \"t\": \"ü\\\"x\"}", 1, "{\"more\":\"7\"}"], ` +
					`["r2", "{\"n\": 2, \"t\": \"ü\\\"x\"}", 0, "{\"more\":\"7\"}"], ["r3", "{\"n\": 3, \"t\": \"ü\\\"x\"}", 1, null]]`
				if !strings.Contains(string(out), want) {
					t.Errorf("%s, %s, by %v: got\n%s\nwant a line\n%s", reader, format, parts, out, want)
				}
			}
		}
	}
}

// TestSnippetsOfNumbers: what `export sql` prints gives numbers as they are in every
// reader, beside nulls and NaN, too, which pandas has one of by itself.
func TestSnippetsOfNumbers(t *testing.T) {
	python := python(t)
	var ms []cell.Mutation
	for i, v := range []struct{ n, x string }{{"9223372036854775807", "0.1"}, {"", ""}, {"-9007199254740993", "NaN"}, {"7", "+Inf"}} {
		m := cell.Mutation{Row: fmt.Appendf(nil, "r%d", i)}
		m.Put("f", []byte("part"), 1700000000000, fmt.Append(nil, i%2))
		if v.n != "" {
			m.Put("f", []byte("n"), 1700000000000, []byte(v.n))
			m.Put("f", []byte("x"), 1700000000000, []byte(v.x))
		}
		ms = append(ms, m)
	}
	snapshot, schema := plainTable(t, "r2", ms...)
	for _, format := range []string{jobs.Parquet, jobs.Arrow} {
		for _, parts := range [][]string{nil, {"part"}} {
			job, err := jobs.Compile("j", &jobs.Spec{
				Table: "t", Formats: []string{format}, Out: t.TempDir(), PartitionBy: parts,
				Columns: []columnar.ColumnSpec{
					{Name: "key", From: "$row", Type: "string"},
					{Name: "n", From: "f:n", Type: "int64"},
					{Name: "part", From: "f:part", Type: "int64"},
					{Name: "x", From: "f:x", Type: "float64"},
				},
			}, schema)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := jobs.Run(t.Context(), &jobs.RunOptions{Job: job, Source: snapshot}); err != nil {
				t.Fatal(err)
			}
			m, dir, err := jobs.ReadRun(t.Context(), filepath.Join(job.Out(), "j"))
			if err != nil {
				t.Fatal(err)
			}
			const result = "\nprint('RESULT', sorted(['null' if v is None else str(v) for v in r] for r in rows))\n"
			for reader, then := range map[string]string{
				jobs.DuckDB: "", jobs.Pandas: "\nrows = [[None if v is pd.NA else v for v in r] for r in zip(*(df[c] for c in df))]" + result,
				jobs.Polars: "\nrows = lf.collect().rows()" + result,
			} {
				if reader == jobs.DuckDB && format == jobs.Arrow {
					continue // Snippet refuses it
				}
				code, err := jobs.Snippet(reader, m, dir)
				if err != nil {
					t.Fatal(err)
				}
				if reader == jobs.DuckDB {
					code = fmt.Sprintf("import duckdb\nc = duckdb.connect()\nc.execute(%q)\nrows = c.execute('SELECT * FROM j').fetchall()\n", code) + result
				}
				out, err := exec.CommandContext(t.Context(), python, "-c", code+then).CombinedOutput()
				const want = "RESULT [['r0', '9223372036854775807', '0', '0.1'], ['r1', 'null', '1', 'null'], ['r2', '-9007199254740993', '0', 'nan'], ['r3', '7', '1', 'inf']]"
				if err != nil || !strings.Contains(string(out), want) {
					t.Errorf("%s, %s, by %v: %v\n%s\n%s\nwant a line\n%s", reader, format, parts, err, code, out, want)
				}
			}
		}
	}
}
