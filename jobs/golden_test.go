package jobs

import (
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/store"
)

// update makes the golden files anew: go test ./jobs -run TestGolden -update
var update = flag.Bool("update", false, "write the golden files")

// typesSpec has every type and coding.
func typesSpec() *Spec {
	return &Spec{
		Table: "types",
		Columns: []columnar.ColumnSpec{
			{Name: "key", From: "$row", Type: "bytes"},
			{Name: "text", From: "f:text", Type: "string"},
			{Name: "empty_qualifier", From: "f:", Type: "string"},
			{Name: "int_text", From: "f:int", Type: "int64"},
			{Name: "int_be", From: "f:intbe", Type: "int64", Coding: "int64be"},
			{Name: "float_text", From: "f:float", Type: "float64"},
			{Name: "float_be", From: "f:floatbe", Type: "float64", Coding: "float64be"},
			{Name: "bool_text", From: "f:bool", Type: "bool"},
			{Name: "bool_raw", From: "f:boolraw", Type: "bool", Coding: "raw"},
			{Name: "time_text", From: "f:time", Type: "timestamp"},
			{Name: "time_be", From: "f:timebe", Type: "timestamp", Coding: "int64be"},
			{Name: "time_rfc3339", From: "f:time3339", Type: "timestamp", Coding: "rfc3339"},
			{Name: "raw", From: "f:raw", Type: "bytes"},
			{Name: "written", From: "$timestamp", Type: "timestamp"},
			{Name: "written_ms", From: "$timestamp", Type: "int64"},
			{Name: "int_or_null", From: "f:text", Type: "int64", OnError: "null"},
			{Name: "count", From: "n:count", Type: "int64"},
		},
		Formats: []string{Parquet, Arrow},
	}
}

func be(v uint64) string { return string(binary.BigEndian.AppendUint64(nil, v)) }

// typesSource has rows with extreme values, and ordinary ones between.
func typesSource() *memory {
	m := newMemory()
	counter := store.NewFamily("n")
	counter.Counter = true
	rows := []cell.Row{
		rowOf("\x00first", put("f", "", 1, ""), put("f", "bool", 1, "true"), put("f", "boolraw", 1, "\x00"), put("f", "float", 1, "-0.5"),
			put("f", "floatbe", 1, be(math.Float64bits(math.MaxFloat64))), put("f", "int", 1, "-9223372036854775808"), put("f", "intbe", 1, be(math.MaxInt64)),
			put("f", "raw", 1, "\x00\xff\xfe"), put("f", "text", 1, "grüße, 世界"), put("f", "time", 1, "1700000000123"),
			put("f", "time3339", 1, "2024-02-29T23:59:59.999999+02:00"), put("f", "timebe", 1, be(0)), put("n", "count", 9, be(12345))),
		rowOf("nothing", put("f", "other", 3, "x")),
	}
	for i := range 300 {
		rows = append(rows, rowOf(fmt.Sprintf("row%04d", i),
			put("f", "bool", cell.Timestamp(i), [...]string{"false", "1", "t"}[i%3]), put("f", "int", cell.Timestamp(i), fmt.Sprint(i-150)),
			put("f", "text", cell.Timestamp(i), [...]string{"red", "green", "12"}[i%3])))
	}
	m.add("types", []store.FamilyDescriptor{store.NewFamily("f"), counter}, []string{"row0200"}, rows)
	m.progress(&store.Source{Pipeline: "types", Topic: "t", ClusterID: "c"}, 0, &store.Progress{Next: 302})
	return m
}

// TestGolden exports the same table as ever and compares the files with those in
// testdata/golden, which readers in other languages check as well.
func TestGolden(t *testing.T) {
	t.Parallel()
	src := typesSource()
	golden := filepath.Join("testdata", "golden")
	out := t.TempDir()
	if *update {
		if err := os.RemoveAll(golden); err != nil {
			t.Fatal(err)
		}
		out = golden
	}
	_, err := Run(t.Context(), &RunOptions{
		Job: mustCompile(t, "types", typesSpec(), src.tables["types"].schema), Source: src, Out: out,
		LogicalTime: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Now: clock(), Engine: "mem", Version: "golden", Parallelism: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	want, got := tree(t, golden), tree(t, out)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the files differ from %s; if that is meant, run with -update: %s", golden, d)
	}
	r, err := Verify(t.Context(), filepath.Join(golden, "types"))
	if err != nil || !r.OK() {
		t.Fatalf("Verify: %v, %v", err, r.Err())
	}
	first := []string{
		"\x00first", "grüße, 世界", "", "-9223372036854775808", "9223372036854775807", "-0.5", "1.7976931348623157e+308", "true", "false",
		"1700000000123000", "0", "1709243999999999", "\x00\xff\xfe", "9000", "9", "-", "12345",
	}
	nothing := []string{"nothing", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "3000", "3", "-", "-"}
	for _, format := range []string{Parquet, Arrow} {
		rows := readFormat(t, r.Dir, r.Manifest, format)
		if d := cmp.Diff([][]string{first, nothing}, rows[:2]); d != "" {
			t.Errorf("%s: %s", format, d)
		}
		if d := cmp.Diff([]string{"row0002", "12", "-", "-148"}, rows[4][:4]); d != "" || len(rows) != 302 || rows[4][15] != "12" {
			t.Errorf("%s: %d rows: %s", format, len(rows), d)
		}
	}
}

// TestGoldenReaders compares what our readers find in the golden files with what
// pyarrow, DuckDB, Polars and Spark found in them: testdata/readers.json is the output
// of internal/integration/readers.py with --spark.
func TestGoldenReaders(t *testing.T) {
	t.Parallel()
	if *update {
		t.Skip("TestGolden is writing the files; run readers.py --spark on them and keep its output as testdata/readers.json")
	}
	data, err := os.ReadFile(filepath.Join("testdata", "readers.json"))
	if err != nil {
		t.Fatal(err)
	}
	type reader struct {
		Rows    int64
		Columns []struct{ Name, Type, SHA256 string }
	}
	var readers struct {
		PyarrowParquet reader `json:"pyarrow_parquet"`
		DuckdbParquet  reader `json:"duckdb_parquet"`
		PolarsParquet  reader `json:"polars_parquet"`
		SparkParquet   reader `json:"spark_parquet"`
		PyarrowArrow   reader `json:"pyarrow_arrow"`
		PolarsArrow    reader `json:"polars_arrow"`
	}
	if err := json.Unmarshal(data, &readers); err != nil {
		t.Fatal(err)
	}
	r, err := Verify(t.Context(), filepath.Join("testdata", "golden", "types"))
	if err != nil || !r.OK() {
		t.Fatalf("Verify: %v, %v", err, r.Err())
	}
	for _, tt := range []struct {
		name, format string
		got          reader
	}{
		{"pyarrow", Parquet, readers.PyarrowParquet},
		{"duckdb", Parquet, readers.DuckdbParquet},
		{"polars", Parquet, readers.PolarsParquet},
		{"spark", Parquet, readers.SparkParquet},
		{"pyarrow", Arrow, readers.PyarrowArrow},
		{"polars", Arrow, readers.PolarsArrow},
	} {
		if tt.got.Rows != r.Manifest.Totals[0].Rows || len(tt.got.Columns) != len(r.Manifest.Columns) {
			t.Errorf("%s on %s: %d rows, %d columns", tt.name, tt.format, tt.got.Rows, len(tt.got.Columns))
			continue
		}
		for i, c := range tt.got.Columns {
			if w := r.Manifest.Columns[i]; c.Name != w.Name || c.Type != w.Type || c.SHA256 != r.Checksums[tt.format][i] {
				t.Errorf("%s on %s: got %+v, want %s %s %s", tt.name, tt.format, c, w.Name, w.Type, r.Checksums[tt.format][i])
			}
		}
	}
}

// tree returns the files below dir by their paths.
func tree(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := make(map[string][]byte)
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		files[name], err = os.ReadFile(p)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
