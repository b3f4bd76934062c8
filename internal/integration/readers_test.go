//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/jobs"
)

// python returns a Python with the packages of requirements.txt, or skips.
func python(t *testing.T) string {
	t.Helper()
	p := os.Getenv("SLUICE_PYTHON")
	if p == "" {
		t.Skip("SLUICE_PYTHON names no Python with the packages of requirements.txt")
	}
	return p
}

// startScript starts a script of this directory, until ctx ends, with what it reads and prints.
func startScript(ctx context.Context, t *testing.T, script string, args ...string) (cmd *exec.Cmd, stdin io.WriteCloser, stdout io.ReadCloser) {
	t.Helper()
	cmd = exec.CommandContext(ctx, python(t), append([]string{filepath.Join(ModuleRoot(t), "internal", "integration", script)}, args...)...)
	cmd.Stderr = t.Output()
	var err error
	if stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if stdout, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, stdin, stdout
}

// readings is what readers.py prints, by reader.
type readings map[string]struct {
	Rows    int64 `json:"rows"`
	Columns []struct {
		Name   string `json:"name"`
		Type   string `json:"type"`
		SHA256 string `json:"sha256"`
	} `json:"columns"`
}

// footers is what the footers of Parquet files say, compared with the values.
type footers struct {
	RowGroups int     `json:"row_groups"`
	SortedBy  [][]any `json:"sorted_by"` // column, descending, nulls first
	Columns   map[string]struct {
		Bounds       int      `json:"bounds"`
		Dictionaries int      `json:"dictionaries"`
		Encodings    []string `json:"encodings"`
		Codecs       []string `json:"codecs"`
	} `json:"columns"`
}

// read reads the run of a report by readers.py and compares all that it found with
// what our readers found.
func read(t *testing.T, report *jobs.Report, args ...string) (readings, *footers) {
	t.Helper()
	dir, err := filepath.Abs(report.Dir)
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(ModuleRoot(t), "internal", "integration", "readers.py")
	cmd := exec.CommandContext(t.Context(), python(t), append([]string{script, filepath.Join(dir, jobs.ManifestName)}, args...)...)
	cmd.Stderr = t.Output()
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("readers.py: %v\n%s", err, b)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatalf("readers.py: %v\n%s", err, b)
	}
	f := &footers{}
	if err := json.Unmarshal(all["footers"], f); err != nil {
		t.Fatalf("readers.py: footers: %v\n%s", err, b)
	}
	delete(all, "footers")
	delete(all, "versions")
	rest, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	var rs readings
	if err := json.Unmarshal(rest, &rs); err != nil {
		t.Fatalf("readers.py: %v\n%s", err, b)
	}
	m := report.Manifest
	for name, r := range rs {
		if r.Rows != m.Totals[0].Rows || len(r.Columns) != len(m.Columns) {
			t.Errorf("%s: %s reads %d rows and %d columns, want %d and %d", m.Job, name, r.Rows, len(r.Columns), m.Totals[0].Rows, len(m.Columns))
			continue
		}
		var sums []string
		for i, c := range r.Columns {
			sums = append(sums, c.SHA256)
			// Not every reader tells JSON from other texts, or from bytes.
			json := m.Columns[i].Type == "json" && (c.Type == "string" || c.Type == "bytes")
			if w := &m.Columns[i]; c.Name != w.Name || c.Type != w.Type && !json {
				t.Errorf("%s: %s calls column %d %s, a %s, want %s, a %s", m.Job, name, i, c.Name, c.Type, w.Name, w.Type)
			}
		}
		for format, want := range report.Checksums {
			if !slices.Equal(sums, want) {
				t.Errorf("%s: %s reads other values than we do from %s:\n got %q\nwant %q", m.Job, name, format, sums, want)
			}
		}
	}
	return rs, f
}

// verified returns the report of a run that is whole.
func verified(t *testing.T, dir string) *jobs.Report {
	t.Helper()
	report, err := jobs.Verify(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := report.Err(); err != nil {
		t.Fatal(err)
	}
	return report
}

// demo runs the demo on the shared access log and returns where it has exported to.
func demo(t *testing.T, log *Log) string {
	t.Helper()
	dir := t.TempDir()
	input := filepath.Join(dir, "access.log")
	var text []byte
	for _, l := range log.Lines {
		text = append(append(text, l...), '\n')
	}
	if err := os.WriteFile(input, text, 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	if _, err := Run(t, os.Environ(), nil, "ingest", "demo", "--input", input, "--format", "combined", "--data", filepath.Join(dir, "data"), "--out", out); err != nil {
		t.Fatal(err)
	}
	return out
}

// golden are the directories of exports that ours and others' readers agree about: one
// with every type and coding, one of each mode with a row a cell, and one that is sorted
// by a decimal of 38 digits.
func golden(t *testing.T) (dirs []string) {
	t.Helper()
	for _, job := range []string{"types", "latest", "versions", "history", "sorted"} {
		dirs = append(dirs, filepath.Join(ModuleRoot(t), "jobs", "testdata", "golden", job))
	}
	return dirs
}

// I6: the files of exports with every type and in every mode are read equally by
// parquet-go and arrow (export verify), pyarrow, pandas, DuckDB and Polars, and their
// footers are true.
func TestReadersOfEveryType(t *testing.T) {
	var f, sorted *footers
	for i, dir := range golden(t) {
		rs, found := read(t, verified(t, dir))
		if len(rs) != 6 {
			t.Errorf("%s: %d readers, want pyarrow and Polars twice, pandas and DuckDB: %v", dir, len(rs), rs)
		}
		if i == 0 {
			f = found
		}
		sorted = found
	}
	want := [][]any{{"amount", true, true}, {"currency", true, false}, {"weight", false, false}, {"key", false, false}}
	if d := cmp.Diff(want, sorted.SortedBy); d != "" || sorted.RowGroups < 3 {
		t.Errorf("%d row groups: %s", sorted.RowGroups, d)
	}
	for column, dictionaries := range map[string]int{"amount": sorted.RowGroups, "rate": 0} {
		if got := sorted.Columns[column]; got.Bounds < 3 || got.Dictionaries != dictionaries {
			t.Errorf("column %s in %d row groups: Got %+v", column, sorted.RowGroups, got)
		}
	}
	for column, want := range map[string]struct {
		bounds, dictionaries int
		encoding             string
	}{
		"key": {2, 0, "DELTA_BYTE_ARRAY"}, "text": {2, 2, "RLE_DICTIONARY"}, "int_text": {2, 0, "DELTA_BINARY_PACKED"},
		"float_be": {1, 0, "PLAIN"}, // in the second row group all are null
		"doc":      {2, 2, "RLE_DICTIONARY"}, "price": {2, 0, "DELTA_BINARY_PACKED"},
		"map_bytes.key_value.key": {2, 2, "RLE_DICTIONARY"}, "map_bytes.key_value.value": {2, 2, "RLE_DICTIONARY"},
		"map_counts.key_value.value": {2, 0, "DELTA_BINARY_PACKED"}, "map_estimates.key_value.key": {1, 2, "RLE_DICTIONARY"},
	} {
		got := f.Columns[column]
		if got.Bounds != want.bounds || got.Dictionaries != want.dictionaries || !slices.Contains(got.Encodings, want.encoding) {
			t.Errorf("column %s in %d row groups: Got %+v, want %+v", column, f.RowGroups, got, want)
		}
	}
}

// I6: the files of the demo on an access log are read equally by all readers.
func TestReadersInOtherLanguages(t *testing.T) {
	python(t)
	log := SharedLog(t)
	out := demo(t, log)
	for job, rows := range map[string]int64{"access_log": int64(len(log.Lines) - log.Bad), "path_counts": -1} {
		report := verified(t, filepath.Join(out, job))
		rs, _ := read(t, report)
		if len(rs) != 6 {
			t.Errorf("%s: %d readers, want pyarrow and Polars twice, pandas and DuckDB: %v", job, len(rs), rs)
		}
		for name, r := range rs {
			if rows >= 0 && r.Rows != rows {
				t.Errorf("%s: %s reads %d rows, want %d", job, name, r.Rows, rows)
			}
		}
	}
}

// I6: so does Spark.
func TestSparkReads(t *testing.T) {
	spark(t)
	out := demo(t, SharedLog(t))
	for _, dir := range append(golden(t), filepath.Join(out, "access_log"), filepath.Join(out, "path_counts")) {
		rs, _ := read(t, verified(t, dir), "--spark")
		if _, ok := rs["spark_parquet"]; !ok || len(rs) != 7 {
			t.Errorf("%s: %d readers, want Spark and the six others", dir, len(rs))
		}
	}
}
