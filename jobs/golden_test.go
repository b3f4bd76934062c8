package jobs

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/cell"
	"sluice/counters"
	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/jobs/jobstest"
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
			{Name: "fixed", From: "c:fixed", Type: "string", Coding: "fixed"},
			{Name: "reverse", From: "c:reverse", Type: "string", Coding: "reverse"},
			{Name: "int_u8", From: "c:u8", Type: "int64", Coding: "u8"},
			{Name: "int_u16", From: "c:u16", Type: "int64", Coding: "u16"},
			{Name: "int_u32", From: "c:u32", Type: "int64", Coding: "u32"},
			{Name: "int_u64", From: "c:u64", Type: "int64", Coding: "u64"},
			{Name: "int_i64", From: "c:i64", Type: "int64", Coding: "i64"},
			{Name: "int_reverse_ts", From: "c:reversets", Type: "int64", Coding: "reverse_ts"},
			{Name: "int_hex", From: "c:hex", Type: "int64", Coding: "hex"},
			{Name: "int_varint", From: "c:varint", Type: "int64", Coding: "varint"},
			{Name: "int_zigzag", From: "c:zigzag", Type: "int64", Coding: "zigzag"},
			{Name: "time_i64", From: "c:i64", Type: "timestamp", Coding: "i64"},
			{Name: "time_reverse_ts", From: "c:reversets", Type: "timestamp", Coding: "reverse_ts"},
			{Name: "bytes_hex", From: "c:hex", Type: "bytes", Coding: "hex"},
			{Name: "doc", From: "c:doc", Type: "json"},
			{Name: "price", From: "c:price", Type: "decimal(9,2)"},
			{Name: "huge", From: "c:huge", Type: "decimal(18,0)"},
			{Name: "map_bytes", From: "$unmatched.m", Type: "map"},
			{Name: "map_string", From: "$unmatched.m", Type: "map(string)", OnError: "null"},
			{Name: "map_float64", From: "$unmatched.x", Type: "map(float64)"},
			{Name: "map_counts", From: "$unmatched.n", Type: "map(int64)"},
			{Name: "map_json", From: "$unmatched.n", Type: "json"},
			{Name: "estimate", From: "d:users", Type: "int64"},
			{Name: "map_estimates", From: "$unmatched.d", Type: "map(int64)"},
		},
		Formats: []string{Parquet, Arrow},
	}
}

func be(v uint64) string { return string(binary.BigEndian.AppendUint64(nil, v)) }

// typesSource has rows with extreme values, and ordinary ones between.
func typesSource() *jobstest.Memory {
	m := jobstest.NewMemory()
	counter := store.NewFamily("n")
	counter.Counter = true
	distinct := store.NewFamily("d")
	distinct.Distinct = true
	var sketch counters.Sketch
	for i := range 40 {
		sketch.Add(fmt.Append(nil, "user", i))
	}
	users := string(sketch.Append(nil))
	rows := []cell.Row{
		jobstest.Row("\x00first", jobstest.Put("c", "doc", 1, ` {"a": [1, 2.50, "grün\n"], "b": null}`), jobstest.Put("c", "fixed", 1, "ab\x00\x00"), jobstest.Put("c", "hex", 1, "0123abCD"), jobstest.Put("c", "huge", 1, "-999999999999999999"),
			jobstest.Put("c", "i64", 1, be(1<<63-5)), jobstest.Put("c", "price", 1, "-0.5"), jobstest.Put("c", "reverse", 1, "dcbé"), jobstest.Put("c", "reversets", 1, be(math.MaxInt64-1700000000123)),
			jobstest.Put("c", "u16", 1, "\xff\xfe"), jobstest.Put("c", "u32", 1, "\xff\xff\xff\xfe"), jobstest.Put("c", "u64", 1, be(1<<63-1)), jobstest.Put("c", "u8", 1, "\xff"),
			jobstest.Put("c", "varint", 1, "\xac\x02"), jobstest.Put("c", "zigzag", 1, "\x03"), jobstest.Put("d", "pages", 1, users), jobstest.Put("d", "users", 1, users), jobstest.Put("f", "", 1, ""), jobstest.Put("f", "bool", 1, "true"), jobstest.Put("f", "boolraw", 1, "\x00"), jobstest.Put("f", "float", 1, "-0.5"),
			jobstest.Put("f", "floatbe", 1, be(math.Float64bits(math.MaxFloat64))), jobstest.Put("f", "int", 1, "-9223372036854775808"), jobstest.Put("f", "intbe", 1, be(math.MaxInt64)),
			jobstest.Put("f", "raw", 1, "\x00\xff\xfe"), jobstest.Put("f", "text", 1, "grüße, 世界"), jobstest.Put("f", "time", 1, "1700000000123"),
			jobstest.Put("f", "time3339", 1, "2024-02-29T23:59:59.999999+02:00"), jobstest.Put("f", "timebe", 1, be(0)), jobstest.Put("m", "", 1, ""), jobstest.Put("m", "grün", 1, "\xff\x00"), jobstest.Put("m", "z", 1, "x"),
			jobstest.Put("n", "count", 9, be(12345)), jobstest.Put("n", "hits", 9, be(math.MaxUint64)), jobstest.Put("n", "misses", 9, be(1<<53+1)), jobstest.Put("x", "pi", 1, "3.25"), jobstest.Put("x", "tiny", 1, "-5e-324")),
		jobstest.Row("nothing", jobstest.Put("f", "other", 3, "x")),
	}
	for i := range 300 {
		cells := []cell.Cell{jobstest.Put("c", "doc", 1, fmt.Sprintf(`{"n": %d}`, i%4)), jobstest.Put("c", "price", 1, fmt.Sprintf("%d.%02d", i-150, i%100))}
		cells = append(cells,
			jobstest.Put("f", "bool", cell.Timestamp(i), [...]string{"false", "1", "t"}[i%3]), jobstest.Put("f", "int", cell.Timestamp(i), fmt.Sprint(i-150)),
			jobstest.Put("f", "text", cell.Timestamp(i), [...]string{"red", "green", "12"}[i%3]))
		for e := range i % 4 {
			cells = append(cells, jobstest.Put("m", fmt.Sprintf("tag%d", e), 1, [...]string{"low", "high"}[i%2]))
		}
		if i%5 == 0 {
			cells = append(cells, jobstest.Put("n", fmt.Sprint("day", i%7), 1, be(uint64(i))), jobstest.Put("x", "ratio", 1, fmt.Sprint(float64(i)/8)))
		}
		rows = append(rows, jobstest.Row(fmt.Sprintf("row%04d", i), cells...))
	}
	m.Add("types", []store.FamilyDescriptor{store.NewFamily("c"), distinct, store.NewFamily("f"), store.NewFamily("m"), counter, store.NewFamily("x")}, []string{"row0200"}, rows)
	m.Progress(&store.Source{Pipeline: "types", Topic: "t", ClusterID: "c"}, 0, &store.Progress{Next: 302})
	return m
}

// amountsSource has decimals of up to 38 digits, of both signs, some of them missing.
func amountsSource() *jobstest.Memory {
	m := jobstest.NewMemory()
	nines := strings.Repeat("9", 38)
	amounts := []string{
		"0", "-" + nines[:28] + "." + nines[:10], nines[:28] + "." + nines[:10], "-0.0000000001", "9223372036.8547758080", "-18446744073.7095516160",
		"170141183460469231731687303.7158841057", "1e", "-1.5", "1.5", "1.50000000001",
	}
	var rows []cell.Row
	for i := range 400 {
		cells := []cell.Cell{jobstest.Put("f", "currency", 1, [...]string{"EUR", "CHF", "\u00fcbrig"}[i%3])}
		if i%11 > 0 {
			cells = append([]cell.Cell{jobstest.Put("f", "amount", 1, amounts[i%len(amounts)])}, cells...)
		}
		cells = append(cells,
			jobstest.Put("f", "rate", 1, fmt.Sprintf("%s0.%s%08d", [...]string{"", "-"}[i%2], nines[:30], i*7919)),
			jobstest.Put("f", "total", 1, fmt.Sprintf("%d%014d", i-200, i)), jobstest.Put("f", "weight", 1, fmt.Sprint(float64(i%7)-3.5)))
		rows = append(rows, jobstest.Row(fmt.Sprintf("row%04d", i), cells...))
	}
	m.Add("amounts", []store.FamilyDescriptor{store.NewFamily("f")}, []string{"row0150"}, rows)
	return m
}

// sortedSpec sorts decimals, and other types after them, into several files.
func sortedSpec() *Spec {
	return &Spec{
		Table: "amounts", TargetFileBytes: 8000,
		Sort: []SortColumn{{Column: "amount", Order: Descending, Nulls: NullsFirst}, {Column: "currency", Order: Descending}, {Column: "weight"}},
		Columns: []columnar.ColumnSpec{
			{Name: "currency", From: "f:currency", Type: "string"},
			{Name: "amount", From: "f:amount", Type: "decimal(38,10)", OnError: "null"},
			{Name: "key", From: "$row", Type: "bytes"},
			{Name: "rate", From: "f:rate", Type: "decimal(38,38)"},
			{Name: "total", From: "f:total", Type: "decimal(19,0)"},
			{Name: "total2", From: "f:total", Type: "decimal(27,6)"},
			{Name: "weight", From: "f:weight", Type: "float64"},
		},
	}
}

// goldenJobs are the jobs of testdata/golden: types has every type and coding but decimals
// of more than 18 digits, which sorted has; the others have the modes of one row a cell,
// and partitions.
var goldenJobs = []string{"types", "latest", "versions", "history", "partitions", "sorted"}

// cellsSource has versions and deletes.
func cellsSource(t *testing.T) store.Snapshot {
	t.Helper()
	e := jobstest.OpenMemory(t, "c")
	jobstest.Mutate(t, e, "t", "a", jobstest.PutOp("f", "q", 1, "old"), jobstest.PutOp("f", "q", 2, "\x00\xff"), jobstest.PutOp("f", "gone", 1, "1"), jobstest.PutOp("g", "", 5, ""))
	jobstest.Mutate(t, e, "t", "a", cell.Op{Type: cell.OpDeleteColumn, Family: "f", Qualifier: []byte("gone"), Time: 1})
	jobstest.Mutate(t, e, "t", "b", jobstest.PutOp("f", "q", 1, "1"), jobstest.PutOp("f", "q", 2, "2"), jobstest.PutOp("f", "q", 3, "3"))
	jobstest.Mutate(t, e, "t", "b", cell.Op{Type: cell.OpDelete, Family: "f", Qualifier: []byte("q"), Time: 2})
	jobstest.Mutate(t, e, "t", "c", jobstest.PutOp("f", "q", 1, "1"), jobstest.PutOp("g", "q", 1700000000123, "2"))
	jobstest.Mutate(t, e, "t", "c", cell.Op{Type: cell.OpDeleteFamily, Family: "f", Time: 9})
	jobstest.Mutate(t, e, "t", "d", cell.Op{Type: cell.OpDeleteFamilyVersion, Family: "g", Time: 3})
	return jobstest.SnapshotOf(t, e)
}

// exportGolden runs the golden jobs.
func exportGolden(t *testing.T, out string) {
	t.Helper()
	tables, cells := map[string]*jobstest.Memory{"types": typesSource(), "amounts": amountsSource()}, cellsSource(t)
	specs := map[string]*Spec{
		"types":    typesSpec(),
		"latest":   {Table: "t", Rows: "cell", Families: []string{"f", "g"}, Columns: versionColumns()},
		"versions": {Table: "t", Rows: "cell", Mode: ModeVersions, Versions: 2, Families: []string{"f", "g"}, Columns: versionColumns()},
		"history":  {Table: "t", Rows: "cell", Mode: ModeHistory, Families: []string{"f", "g"}, Columns: historyColumns},
		"sorted":   sortedSpec(),
		"partitions": {Table: "types", PartitionBy: []string{"text", "bool_text", "int_varint"}, Columns: []columnar.ColumnSpec{
			{Name: "key", From: "$row", Type: "bytes"},
			{Name: "text", From: "f:text", Type: "string"},
			{Name: "bool_text", From: "f:bool", Type: "bool"},
			{Name: "int_varint", From: "c:varint", Type: "int64", Coding: "varint"},
			{Name: "map", From: "$unmatched.m", Type: "map"},
		}},
	}
	for _, name := range goldenJobs {
		spec := specs[name]
		spec.Formats = []string{Parquet, Arrow}
		var src instant.Source = cells
		if m := tables[spec.Table]; m != nil {
			src = m
		}
		schema, err := src.Table(t.Context(), spec.Table)
		if err != nil {
			t.Fatal(err)
		}
		batchRows := 0
		if len(spec.Sort) > 0 {
			batchRows = 100 // for several files
		}
		_, err = Run(t.Context(), &RunOptions{
			Job: mustCompile(t, name, spec, schema), Source: src, Out: out, batchRows: batchRows,
			LogicalTime: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Now: clock(), Engine: "mem", Version: "golden", Parallelism: 1,
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

// TestGolden exports the same tables as ever and compares the files with those in
// testdata/golden, which readers in other languages check as well.
func TestGolden(t *testing.T) {
	t.Parallel()
	golden := filepath.Join("testdata", "golden")
	out := t.TempDir()
	if *update {
		if err := os.RemoveAll(golden); err != nil {
			t.Fatal(err)
		}
		out = golden
	}
	exportGolden(t, out)
	want, got := tree(t, golden), tree(t, out)
	if d := jobstest.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); d != "" {
		t.Errorf("other files than in %s; if that is meant, run with -update: %s", golden, d)
	}
	for name := range want {
		if !bytes.Equal(want[name], got[name]) {
			t.Errorf("%s is not as in %s; if that is meant, run with -update", name, golden)
		}
	}
	for _, name := range goldenJobs {
		if r, err := Verify(t.Context(), filepath.Join(golden, name)); err != nil || !r.OK() {
			t.Fatalf("verify %s: %v, %v", name, err, r.Err())
		}
	}
	r, err := Verify(t.Context(), filepath.Join(golden, "types"))
	if err != nil || !r.OK() {
		t.Fatalf("Verify: %v, %v", err, r.Err())
	}
	first := []string{
		"\x00first", "grüße, 世界", "", "-9223372036854775808", "9223372036854775807", "-0.5", "1.7976931348623157e+308", "true", "false",
		"1700000000123000", "0", "1709243999999999", "\x00\xff\xfe", "9000", "9", "-", "12345",
		"ab", "ébcd", "255", "65534", "4294967294", "9223372036854775807", "-5", "1700000000123", "19114957", "300", "-2", "-5000", "1700000000123000", "\x01#\xab\xcd",
		` {"a": [1, 2.50, "grün\n"], "b": null}`, "-0.50", "-999999999999999999", "=,grün=\xff\x00,z=x", "-", "pi=3.25,tiny=-5e-324", "hits=-1,misses=9007199254740993",
		`{"hits":-1,"misses":9007199254740993}`, "40", "pages=40",
	}
	nothing := append([]string{"nothing"}, slices.Repeat([]string{"-"}, len(first)-1)...)
	nothing[13], nothing[14] = "3000", "3"
	for _, format := range []string{Parquet, Arrow} {
		rows := readFormat(t, r.Dir, r.Manifest, format)
		if d := jobstest.Diff([][]string{first, nothing}, rows[:2]); d != "" {
			t.Errorf("%s: %s", format, d)
		}
		if d := jobstest.Diff([]string{"row0002", "12", "-", "-148"}, rows[4][:4]); d != "" || len(rows) != 302 || rows[4][15] != "12" {
			t.Errorf("%s: %d rows: %s", format, len(rows), d)
		}
	}
}

// TestGoldenReaders compares what our readers find in the golden files with what
// pyarrow, pandas, DuckDB, Polars and Spark found in them: testdata/readers.json has, by
// job, the output of internal/integration/readers.py with --spark.
func TestGoldenReaders(t *testing.T) {
	t.Parallel()
	if *update {
		t.Skip("TestGolden is writing the files; run readers.py --spark on each job of them and keep what it prints, by job, as testdata/readers.json")
	}
	data, err := os.ReadFile(filepath.Join("testdata", "readers.json"))
	if err != nil {
		t.Fatal(err)
	}
	type reader struct {
		Rows    int64
		Columns []struct{ Name, Type, SHA256 string }
	}
	var all map[string]map[string]json.RawMessage // by job and reader
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	for _, job := range []string{"types", "latest", "versions", "history", "sorted"} {
		r, err := Verify(t.Context(), filepath.Join("testdata", "golden", job))
		if err != nil || !r.OK() {
			t.Fatalf("Verify: %v, %v", err, r.Err())
		}
		for name, format := range map[string]string{
			"pyarrow_parquet": Parquet, "pandas_parquet": Parquet, "duckdb_parquet": Parquet, "polars_parquet": Parquet, "spark_parquet": Parquet,
			"pyarrow_arrow": Arrow, "polars_arrow": Arrow,
		} {
			var got reader
			if err := json.Unmarshal(all[job][name], &got); err != nil {
				t.Fatalf("%s: %s: %v", job, name, err)
			}
			if got.Rows != r.Manifest.Totals[0].Rows || len(got.Columns) != len(r.Manifest.Columns) {
				t.Errorf("%s: %s: %d rows, %d columns", job, name, got.Rows, len(got.Columns))
				continue
			}
			for i, c := range got.Columns {
				// Not every reader tells JSON from other texts, or from bytes.
				w := r.Manifest.Columns[i]
				texts := w.Type == "json" && (c.Type == "string" || c.Type == "bytes")
				if c.Name != w.Name || c.Type != w.Type && !texts || c.SHA256 != r.Checksums[format][i] {
					t.Errorf("%s: %s: got %+v, want %s %s %s", job, name, c, w.Name, w.Type, r.Checksums[format][i])
				}
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
