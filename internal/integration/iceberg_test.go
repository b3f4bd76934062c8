//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/jobs"
	"sluice/jobs/columnar"
	"sluice/jobs/target"
	"sluice/serve/client"
)

// icebergTable is what iceberg.py prints.
type icebergTable struct {
	Current, Filtered     []map[string]any
	Planned, Count, Files int
	History               int
	Order                 []string
	Snapshots             []struct {
		Run, Operation string
		Rows           []map[string]any
		Entries        [][]string
	}
}

// readIceberg reads a table by PyIceberg.
func readIceberg(t *testing.T, metadata string, properties ...string) *icebergTable {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python(t), append([]string{filepath.Join(ModuleRoot(t), "internal", "integration", "iceberg.py"), metadata}, properties...)...)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("iceberg.py: %v\n%s", err, out)
	}
	table := new(icebergTable)
	if err := json.Unmarshal(out, table); err != nil {
		t.Fatalf("iceberg.py: %v\n%s", err, out)
	}
	return table
}

// icebergRows are rows of every type, and what PyIceberg is to make of them.
func icebergRows(n, version int) (ms []cell.Mutation, want []map[string]any) {
	for i := range n {
		m := cell.Mutation{Row: fmt.Appendf(nil, "r%d-%d", i, version)}
		row := map[string]any{"key": string(m.Row)}
		put := func(column, cell string, value any) {
			if (i+len(column))%3 == 0 {
				row[column] = nil
				return
			}
			m.Put("f", []byte(column), 7, []byte(cell))
			row[column] = value
		}
		put("day", fmt.Sprintf("2026/01/0%d", i%3), fmt.Sprintf("2026/01/0%d", i%3))
		put("number", fmt.Sprint(-i), fmt.Sprint(-i))
		put("float", fmt.Sprintf("%d.5", i), fmt.Sprintf("%d.5", i))
		put("truth", fmt.Sprint(i%2 == 0), i%2 == 0)
		put("time", fmt.Sprint(time.Date(2026, 1, i%9+1, 3, 4, 5, 6e6, time.UTC).UnixMilli()), fmt.Sprintf("2026-01-0%dT03:04:05.006000+00:00", i%9+1))
		put("raw", "\xff\x00", "base64:/wA=")
		put("json", `{"a": 1}`, `{"a": 1}`)
		put("price", fmt.Sprintf("%d.25", i), fmt.Sprintf("%d.25", i))
		m.Put("f", []byte("more"), 7, []byte("x"))
		row["rest"] = map[string]any{"more": "x"}
		ms, want = append(ms, m), append(want, row)
	}
	return ms, want
}

// sortRows sorts rows as iceberg.py does.
func sortRows(rows []map[string]any) []map[string]any {
	rows = append([]map[string]any{}, rows...)
	slices.SortFunc(rows, func(a, b map[string]any) int { return strings.Compare(fmt.Sprint(a["key"]), fmt.Sprint(b["key"])) })
	return rows
}

// exportIceberg exports rows of a version as a snapshot of the job's table in tg, for a day.
func exportIceberg(t *testing.T, tg target.Target, spec *jobs.Spec, day, rows int) (*jobs.Manifest, []map[string]any) {
	t.Helper()
	ms, want := icebergRows(rows, day)
	snapshot, schema := plainTable(t, "r4", ms...)
	job, err := jobs.Compile("views", spec, schema)
	if err != nil {
		t.Fatal(err)
	}
	m, err := jobs.Run(t.Context(), &jobs.RunOptions{Job: job, Source: snapshot, Target: tg, LogicalTime: time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC)})
	if err != nil {
		t.Fatal(err)
	}
	return m, want
}

func icebergSpec() *jobs.Spec {
	return &jobs.Spec{
		Table: "t", Formats: []string{jobs.Parquet, jobs.Arrow}, Iceberg: true, TargetFileBytes: 1, Keep: jobs.Keep{Runs: 2},
		Columns: []columnar.ColumnSpec{
			{Name: "key", From: "$row", Type: "string"},
			{Name: "day", From: "f:day", Type: "string"},
			{Name: "number", From: "f:number", Type: "int64"},
			{Name: "float", From: "f:float", Type: "float64"},
			{Name: "truth", From: "f:truth", Type: "bool"},
			{Name: "time", From: "f:time", Type: "timestamp"},
			{Name: "raw", From: "f:raw", Type: "bytes", Coding: "raw"},
			{Name: "json", From: "f:json", Type: "json"},
			{Name: "price", From: "f:price", Type: "decimal(12,2)"},
			{Name: "rest", From: "$unmatched.f", Type: "map(string)"},
		},
	}
}

// I6: the runs of a job are the snapshots of an Iceberg table, which a reader that is none
// of ours reads: each with its rows, of every type, whatever became of columns, order and
// partitions since; and what was removed is no snapshot.
func TestIcebergReaders(t *testing.T) {
	python(t)
	s3 := newS3(t)
	for name, open := range map[string]func(t *testing.T) (tg target.Target, properties []string){
		"directory": func(t *testing.T) (target.Target, []string) {
			tg, err := target.CreateLocal(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			return tg, nil
		},
		"bucket": func(t *testing.T) (target.Target, []string) {
			tg, err := target.NewS3(s3.options())
			if err != nil {
				t.Fatal(err)
			}
			return tg, []string{"s3.endpoint=" + s3.endpoint, "s3.access-key-id=" + s3.accessKey, "s3.secret-access-key=" + s3.secretKey, "s3.region=us-east-1"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			tg, properties := open(t)
			defer tg.Close()
			read := func(version int) *icebergTable {
				t.Helper()
				hint, err := target.ReadFile(t.Context(), tg, "views/metadata/version-hint.text", 10)
				if err != nil || string(hint) != fmt.Sprint(version) {
					t.Fatalf("the hint is %q, %v; want %d", hint, err, version)
				}
				return readIceberg(t, tg.URL(fmt.Sprintf("views/metadata/v%d.metadata.json", version)), properties...)
			}
			var want []map[string]any // of each snapshot
			check := func(table *icebergTable, runs ...[]map[string]any) {
				t.Helper()
				if d := cmp.Diff(sortRows(runs[len(runs)-1]), sortRows(table.Current)); d != "" {
					t.Errorf("rows: %s", d)
				}
				if len(table.Snapshots) != len(runs) {
					t.Fatalf("%d snapshots, want %d", len(table.Snapshots), len(runs))
				}
				for i := range runs {
					if d := cmp.Diff(sortRows(runs[i]), sortRows(table.Snapshots[i].Rows)); d != "" {
						t.Errorf("rows of snapshot %d: %s", i, d)
					}
				}
				var later []map[string]any
				for _, row := range runs[len(runs)-1] {
					if row["key"].(string) >= "r4" {
						later = append(later, row)
					}
				}
				if d := cmp.Diff(sortRows(later), sortRows(table.Filtered)); d != "" {
					t.Errorf("filtered: %s", d)
				}
				if table.Count != len(runs[len(runs)-1]) {
					t.Errorf("it counts %d rows of %d", table.Count, len(runs[len(runs)-1]))
				}
			}

			spec := icebergSpec()
			first, rows := exportIceberg(t, tg, spec, 1, 9)
			want = rows
			table := read(1)
			check(table, want)
			if d := cmp.Diff([]string{"ASC"}, table.Order); d != "" {
				t.Errorf("order: %s", d)
			}
			if files := len(first.Files) / 2; files < 2 || table.Planned >= files {
				t.Errorf("%d of %d files are read for half of the rows: the bounds do not help", table.Planned, files)
			}

			// Other columns, in another order, one of another type; divided, and sorted.
			spec.Columns = append(spec.Columns[1:2:2], spec.Columns[0], spec.Columns[2])
			spec.Columns[2].Type = "string"
			spec.PartitionBy = []string{"day"}
			spec.Sort = []jobs.SortColumn{{Column: "number", Order: jobs.Descending}}
			second, rows := exportIceberg(t, tg, spec, 2, 8)
			var narrow []map[string]any
			for _, row := range rows {
				narrow = append(narrow, map[string]any{"key": row["key"], "day": row["day"], "number": row["number"]})
			}
			table = read(2)
			check(table, want, narrow)
			if d := cmp.Diff([]string{"DESC", "ASC"}, table.Order); d != "" {
				t.Errorf("order: %s", d)
			}
			entries := map[string]int{}
			for _, e := range table.Snapshots[1].Entries {
				entries[e[0]]++
			}
			parquet := func(m *jobs.Manifest) (n int) {
				for _, f := range m.Files {
					if f.Format == jobs.Parquet {
						n++
					}
				}
				return n
			}
			if d := cmp.Diff(map[string]int{"ADDED": parquet(second), "DELETED": parquet(first)}, entries); d != "" {
				t.Errorf("entries: %s", d)
			}

			// No rows, and then the first columns again; what keep lets go is no snapshot.
			exportIceberg(t, tg, spec, 3, 0)
			_, last := exportIceberg(t, tg, icebergSpec(), 4, 5)
			check(read(4), want, narrow, nil, last)
			if _, err := jobs.Collect(t.Context(), &jobs.CollectOptions{Target: tg, Keep: map[string]jobs.Keep{"views": spec.Keep}}); err != nil {
				t.Fatal(err)
			}
			check(read(5), nil, last)
		})
	}
}

// The table of a run that was published and not made a snapshot, as its process was killed
// in between, is made up for by whoever points at the run.
func TestIcebergResumed(t *testing.T) {
	python(t)
	tg, err := target.CreateLocal(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer tg.Close()
	m, want := exportIceberg(t, tg, icebergSpec(), 1, 5)
	dir, _ := strings.CutPrefix(tg.URL("views"), "file://")
	for _, name := range []string{"metadata", "_latest.json"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := jobs.FinishPublished(t.Context(), tg, "views", m.LogicalTime); err != nil {
		t.Fatal(err)
	}
	table := readIceberg(t, tg.URL("views/metadata/v1.metadata.json"))
	if d := cmp.Diff(sortRows(want), sortRows(table.Current)); d != "" {
		t.Error(d)
	}
	if names := slices.Collect(maps.Keys(table.Current[0])); len(names) != 10 {
		t.Errorf("columns %v", names)
	}
}

// The same tables are read by DuckDB's extension and by Iceberg's own library, in Spark: each
// snapshot, by bounds, and what has changed between two, which Spark tells.
func TestIcebergEngines(t *testing.T) {
	python(t)
	tg, err := target.CreateLocal(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer tg.Close()
	spec := icebergSpec()
	var want struct {
		Current             []string
		Snapshots           [][]string
		Filtered, Ancestors int
		Changes             map[string]int
	}
	export := func(day, n int) {
		t.Helper()
		_, rows := exportIceberg(t, tg, spec, day, n)
		want.Current, want.Filtered = []string{}, 0
		for _, row := range rows {
			text, err := json.Marshal([]any{row["key"], row["number"]})
			if err != nil {
				t.Fatal(err)
			}
			want.Current = append(want.Current, strings.ReplaceAll(string(text), `",`, `", `))
			if row["key"].(string) >= "r4" {
				want.Filtered++
			}
		}
		slices.Sort(want.Current)
		want.Snapshots = append(want.Snapshots, want.Current)
		want.Ancestors++
	}
	export(1, 9)
	spec.Columns = append(spec.Columns[1:2:2], spec.Columns[0], spec.Columns[2])
	spec.Columns[2].Type = "string"
	spec.PartitionBy = []string{"day"}
	spec.Sort = []jobs.SortColumn{{Column: "number", Order: jobs.Descending}}
	export(2, 8)
	export(3, 0)
	export(4, 7)
	dir, _ := strings.CutPrefix(tg.URL("."), "file://")
	for name, script := range map[string][]string{
		"DuckDB": {"icebergduckdb.py", "--numbers", filepath.Clean(dir), "views"},
		"Spark":  {"icebergspark.py", tg.URL("."), "views", "key"},
	} {
		t.Run(name, func(t *testing.T) {
			want, got := want, want
			if name == "Spark" {
				want.Changes = map[string]int{"DELETE": 9, "INSERT": 8}
			} else {
				want.Ancestors = 0
			}
			got.Current, got.Snapshots, got.Filtered, got.Ancestors = nil, nil, 0, 0
			runReader(t, &got, script...)
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestIcebergCatalog: readers find the tables of a daemon's jobs by its catalog, and what they
// read is the table as of the latest run.
func TestIcebergCatalog(t *testing.T) {
	python(t)
	dir := t.TempDir()
	data, out := filepath.Join(dir, "sluice-data"), filepath.Join(dir, "out")
	config := filepath.Join(dir, "sluice.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `
store: {dir: %s}
serve: {listen: "127.0.0.1:0"}
tables: {t: {families: {f: {}}}}
jobs:
  events: {table: t, columns: [{name: key, from: $row, type: string}, {name: n, from: "f:n", type: int64}], iceberg: true, out: %s}
  never: {table: t, columns: [{name: key, from: $row, type: string}], iceberg: true, out: %s}
`, data, out, filepath.Join(dir, "none")), 0o644); err != nil {
		t.Fatal(err)
	}
	d := StartDaemon(t, config, os.Environ())
	c := dialDaemon(t, data)
	endpoint, err := client.ReadEndpoint(data)
	if err != nil {
		t.Fatal(err)
	}
	var want []any
	for i := range 3 {
		m := &cell.Mutation{Table: "t", Row: fmt.Append(nil, "r", i)}
		m.Put("f", []byte("n"), cell.Latest, fmt.Append(nil, i))
		if _, err := c.MutateRow(t.Context(), nil, m); err != nil {
			t.Fatal(err)
		}
		want = append(want, []any{fmt.Sprint("r", i), float64(i)})
		if i != 1 { // the table changes, and the daemon has not made the run itself
			if _, err := Run(t, os.Environ(), nil, "export", "run", "-q", "-c", config, "events"); err != nil {
				t.Fatal(err)
			}
		}
	}
	uri := "http://" + endpoint.Address + "/iceberg"
	for name, script := range map[string][]string{"PyIceberg": {"icebergcatalog.py"}, "DuckDB": {"icebergduckdb.py", "--catalog"}} {
		t.Run(name, func(t *testing.T) {
			var got []any
			runReader(t, &got, append(script, uri, endpoint.Token, "events")...)
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
	if err := d.Stop(time.Minute); err != nil {
		t.Errorf("%v\n%s", err, d.Log())
	}
}

// runReader runs a script of this directory in the Python that has its packages, or skips, and
// decodes what it prints behind RESULT.
func runReader(t *testing.T, result any, script ...string) {
	t.Helper()
	python := python(t)
	args := append([]string{filepath.Join(ModuleRoot(t), "internal", "integration", script[0])}, script[1:]...)
	cmd := exec.CommandContext(t.Context(), python, args...)
	cmd.Stderr = t.Output()
	switch script[0] {
	case "icebergspark.py":
		spark(t) // half a minute to start
	case "icebergduckdb.py":
		// .ci/run puts them there. The extension is for another version of DuckDB.
		packages := filepath.Join(filepath.Dir(filepath.Dir(python)), "duckdb-iceberg")
		if _, err := os.Stat(packages); err != nil {
			t.Skipf("the packages of requirements-duckdb.txt are not there: %v", err)
		}
		cmd.Env = append(os.Environ(), "PYTHONPATH="+packages)
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script[0], err, out)
	}
	_, text, _ := strings.Cut(string(out), "RESULT ")
	if err := json.Unmarshal([]byte(text), result); err != nil {
		t.Fatalf("%s: %v\n%s", script[0], err, out)
	}
}
