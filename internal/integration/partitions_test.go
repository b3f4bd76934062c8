//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/jobs"
	"sluice/jobs/columnar"
)

// I6: a run that is divided into partitions holds the same rows for DuckDB, Polars,
// pyarrow (pandas) and Spark, read as `export sql` says, as for us: null, and values
// that look like paths, like numbers and like escapes.
func TestPartitionReaders(t *testing.T) {
	python := python(t)
	texts := []string{
		"../../up", "..", ".", "a/b", "%2e%2f", "%", "x=y", "nul\x00nul", "line\n\t", "ü–日本", " ", "a b+c", "*?[x]{y}", `back\slash`, `"'#:^`,
		"007", "1e3", "true", "null", "NaN", "2026-01-02", strings.Repeat("l", 240),
	}
	var ms []cell.Mutation
	var want [][]any
	for i := range 60 {
		m := cell.Mutation{Row: fmt.Appendf(nil, "r%02d", i)}
		row := []any{nil, string(m.Row), nil, i%2 == 0}
		if i%5 > 0 {
			n := []int64{1, -7, math.MinInt64}[i%3]
			row[0] = fmt.Sprint(n) // JSON's numbers may be rounded
			m.Put("f", []byte("n"), 7, strconv.AppendInt(nil, n, 10))
		}
		if i%7 > 0 {
			row[2] = texts[i%len(texts)]
			m.Put("f", []byte("text"), 7, []byte(texts[i%len(texts)]))
		}
		m.Put("f", []byte("truth"), 7, strconv.AppendBool(nil, i%2 == 0))
		want = append(want, row)
		ms = append(ms, m)
	}
	snapshot, schema := plainTable(t, "r30", ms...)
	for _, format := range []string{jobs.Parquet, jobs.Arrow} {
		job, err := jobs.Compile("j", &jobs.Spec{
			Table: "t", Formats: []string{format}, Out: t.TempDir(), PartitionBy: []string{"text", "n", "truth"}, MaxPartitions: 100,
			Columns: []columnar.ColumnSpec{
				{Name: "n", From: "f:n", Type: "int64"},
				{Name: "key", From: "$row", Type: "string"},
				{Name: "text", From: "f:text", Type: "string"},
				{Name: "truth", From: "f:truth", Type: "bool"},
			},
		}, schema)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := jobs.Run(t.Context(), &jobs.RunOptions{Job: job, Source: snapshot}); err != nil {
			t.Fatal(err)
		}
		report := verified(t, filepath.Join(job.Out(), "j"))
		const print = "\nprint('RESULT', json.dumps(sorted([[None if r[0] is None or r[0] != r[0] else str(r[0]), *r[1:]] for r in rows], key=lambda r: r[1])))\n"
		readers := map[string]string{
			jobs.DuckDB: "",
			jobs.Polars: "\nimport json\nrows = lf.collect().rows()" + print,
			jobs.Pandas: "\nimport json\nrows = df[['n', 'key', 'text', 'truth']].astype(object).where(df.notna(), None).values.tolist()" + print,
		}
		if soaking && exec.CommandContext(t.Context(), python, "-c", "import pyspark").Run() == nil {
			readers[jobs.Spark] = "\nimport json\nrows = [list(r) for r in df.collect()]" + print
		}
		for reader, then := range readers {
			if format == jobs.Arrow && (reader == jobs.DuckDB || reader == jobs.Spark) {
				continue // Snippet refuses it; tested beside it
			}
			code, err := jobs.Snippet(reader, report.Manifest, report.Dir)
			if err != nil {
				t.Fatal(err)
			}
			if reader == jobs.DuckDB {
				code = fmt.Sprintf("import duckdb, json\nc = duckdb.connect()\nc.execute(%q)\nrows = c.execute('SELECT * FROM j').fetchall()\n", code) + print
			}
			out, err := exec.CommandContext(t.Context(), python, "-c", code+then).CombinedOutput()
			if err != nil {
				t.Errorf("%s, %s: %v\n%s\n%s", reader, format, err, code, out)
				continue
			}
			_, result, _ := strings.Cut(string(out), "RESULT ")
			var got [][]any
			if err := json.Unmarshal([]byte(result), &got); err != nil {
				t.Errorf("%s, %s: %v\n%s", reader, format, err, out)
				continue
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s, %s (-want +got):\n%s", reader, format, d)
			}
		}
	}
}
