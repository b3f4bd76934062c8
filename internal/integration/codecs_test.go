//go:build integration

package integration

import (
	"fmt"
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
	"sluice/jobs/join"
	"sluice/store"
	"sluice/store/memstore"
)

// codecs are all that a job may name, and what pyarrow calls them in Parquet's footers.
var codecs = map[string]string{"zstd": "ZSTD", "snappy": "SNAPPY", "lz4": "LZ4", "none": "UNCOMPRESSED"}

// codecColumns have values that are coded by dictionaries, by differences and plainly,
// and nulls.
var codecColumns = []columnar.ColumnSpec{
	{Name: "key", From: "$row", Type: "string"},
	{Name: "page", From: "f:page", Type: "string"},
	{Name: "text", From: "f:text", Type: "string"},
	{Name: "n", From: "f:n", Type: "int64"},
	{Name: "ratio", From: "f:ratio", Type: "float64"},
	{Name: "good", From: "f:good", Type: "bool"},
	{Name: "at", From: "f:at", Type: "timestamp"},
	{Name: "raw", From: "f:text", Type: "bytes"},
	{Name: "doc", From: "f:doc", Type: "json"},
	{Name: "price", From: "f:price", Type: "decimal(9,2)"},
	{Name: "amount", From: "f:amount", Type: "decimal(38,10)"},
	{Name: "hits", From: "c:hits", Type: "int64"},
	{Name: "tags", From: "$unmatched.m", Type: "map(string)"},
}

// cellColumns are those of one row a cell.
var cellColumns = []columnar.ColumnSpec{
	{Name: "key", From: "$row", Type: "bytes"},
	{Name: "family", From: "$family", Type: "string"},
	{Name: "qualifier", From: "$qualifier", Type: "string"},
	{Name: "time", From: "$timestamp", Type: "timestamp"},
	{Name: "value", From: "$value", Type: "bytes"},
}

// codecStore is a store with table t, of versions and delete markers, in two regions.
func codecStore(t *testing.T) *memstore.Store {
	t.Helper()
	e, err := memstore.New(&memstore.Options{Now: func() cell.Timestamp { return 1.8e12 }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	f, m, c := store.NewFamily("f"), store.NewFamily("m"), store.NewFamily("c")
	f.Versions, c.Counter = 3, true
	if err := e.CreateTable(t.Context(), &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{c, f, m}}, [][]byte{[]byte("r0200")}); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		for version := range 1 + i%2 {
			writeCodecRow(t, e, i, version)
		}
	}
	for i := 7; i < 300; i += 40 {
		m := &cell.Mutation{Table: "t", Row: fmt.Appendf(nil, "r%04d", i)}
		m.DeleteColumn("f", []byte("page"), 1_700_000_000_000)
		m.DeleteFamily("m", 1_700_000_000_000)
		mutateCodecRow(t, e, m)
	}
	return e
}

func mutateCodecRow(t *testing.T, e store.Engine, m *cell.Mutation) {
	t.Helper()
	if _, err := e.MutateRow(t.Context(), nil, m); err != nil {
		t.Fatal(err)
	}
}

func writeCodecRow(t *testing.T, e store.Engine, i, version int) {
	t.Helper()
	m := &cell.Mutation{Table: "t", Row: fmt.Appendf(nil, "r%04d", i)}
	for q, value := range map[string]string{
		"page":   fmt.Sprintf("/page/%d", i%5),
		"text":   fmt.Sprintf("%s é %d of %d", strings.Repeat("x", i%60), i, version),
		"n":      fmt.Sprint(i*i - 5000),
		"ratio":  fmt.Sprint(float64(i-150) / 7),
		"good":   fmt.Sprint(i%3 == 0),
		"at":     fmt.Sprint(1_700_000_000_000 + i*1000),
		"doc":    fmt.Sprintf(`{"i": %d, "v": [%d]}`, i, version),
		"price":  fmt.Sprintf("%d.%02d", i-150, i%100),
		"amount": fmt.Sprintf("%d%018d.%010d", i-150, i, i*7919),
	} {
		if (i+len(q))%6 > 0 {
			m.Put("f", []byte(q), cell.Timestamp(1_600_000_000_000+i*10+version), []byte(value))
		}
	}
	for tag := range i % 4 {
		m.Put("m", fmt.Appendf(nil, "tag%d", tag), 1_600_000_000_000, []byte([...]string{"low", "high"}[i%2]))
	}
	m.Increment("c", []byte("hits"), int64(i))
	mutateCodecRow(t, e, m)
}

// codecRuns exports the table with one codec: as rows, as cells of older versions and
// of a history, as an increment and as a join. It returns the directories by name.
func codecRuns(t *testing.T, codec string) map[string]string {
	t.Helper()
	ctx, e, out := t.Context(), codecStore(t), t.TempDir()
	table, err := e.Table(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	formats := []string{jobs.Parquet, jobs.Arrow}
	if codec == "snappy" {
		formats = formats[:1] // Arrow has no other than lz4 and zstd
	}
	op := columnar.ColumnSpec{Name: "op", From: "$op", Type: "string"}
	compiled := map[string]*jobs.Job{}
	for name, s := range map[string]jobs.Spec{
		"rows":      {Columns: codecColumns},
		"some":      {Columns: codecColumns, Where: []columnar.Predicate{{Column: "n", Op: ">", Value: "0"}}},
		"versions":  {Columns: cellColumns, Rows: "cell", Mode: jobs.ModeVersions, Versions: 2},
		"history":   {Columns: append(slices.Clone(cellColumns), op), Rows: "cell", Mode: jobs.ModeHistory},
		"increment": {Columns: append(slices.Clone(codecColumns), op), Incremental: jobs.Incremental{FullEvery: 3}},
	} {
		s.Table, s.Formats, s.Compression, s.TargetFileBytes, s.RowGroupBytes = "t", formats, codec, 16<<10, 32<<10
		if s.Rows != "" {
			s.Families = []string{"f", "m"}
		}
		if compiled[name], err = jobs.Compile(name, &s, table); err != nil {
			t.Fatal(err)
		}
	}
	at := time.UnixMilli(1.8e12)
	run := func(job *jobs.Job, from store.Snapshot) {
		t.Helper()
		at = at.Add(time.Minute)
		if _, err := jobs.Run(ctx, &jobs.RunOptions{Job: job, Source: from, Out: out, Holder: e, StoreID: "s", LogicalTime: at, Now: func() time.Time { return at }}); err != nil {
			t.Fatal(err)
		}
	}
	snapshot := func() store.Snapshot {
		t.Helper()
		s, err := e.Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	if err := jobs.HoldChanges(ctx, compiled["increment"], e, at); err != nil {
		t.Fatal(err)
	}
	whole := snapshot()
	dirs := map[string]string{}
	for name, job := range compiled {
		run(job, whole)
		dirs[name] = filepath.Join(out, name)
	}
	for i := 0; i < 300; i += 3 {
		if i%2 == 0 {
			writeCodecRow(t, e, i, 5)
			continue
		}
		m := &cell.Mutation{Table: "t", Row: fmt.Appendf(nil, "r%04d", i)}
		m.DeleteRow(cell.Latest)
		mutateCodecRow(t, e, m)
	}
	run(compiled["increment"], snapshot())
	on := join.Spec{Kind: join.Full, On: []join.On{{Left: "key", Right: "key"}}, Columns: []join.Column{
		{Name: "key", From: "key.key"},
		{Name: "page", From: "left.page"},
		{Name: "n", From: "left.n"},
		{Name: "tags", From: "left.tags"},
		{Name: "amount", From: "right.amount"},
		{Name: "at", From: "right.at"},
		{Name: "hits", From: "right.hits"},
	}}
	joined, err := jobs.CompileJoin("join", &jobs.JoinSpec{
		Left: jobs.JoinSide{Run: dirs["rows"]}, Right: jobs.JoinSide{Run: dirs["some"]}, Spec: on, Formats: formats, Compression: codec, TargetFileBytes: 16 << 10, RowGroupBytes: 32 << 10,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.RunJoin(ctx, &jobs.JoinOptions{Join: joined, Out: out, LogicalTime: at}); err != nil {
		t.Fatal(err)
	}
	delete(dirs, "some") // as rows
	dirs["join"] = filepath.Join(out, "join")
	return dirs
}

// I6: files of every codec, as rows, as cells of versions and of a history, of an
// increment and of a join are read equally by all readers, and are of that codec, with footers that are
// true.
func TestReadersOfEveryCodec(t *testing.T) {
	python(t)
	arrow := map[string]int64{} // bytes of files of rows, by codec
	for codec, name := range codecs {
		readers := 6
		if codec == "snappy" {
			readers = 4
		}
		for run, dir := range codecRuns(t, codec) {
			report := verified(t, dir)
			if n := report.Manifest.Totals[0]; n.Rows < 100 || n.Files < 2 && run != "join" {
				t.Errorf("%s %s: %+v show little", codec, run, n)
			}
			if i := report.Manifest.Incremental; run == "increment" && (i == nil || i.Number != 1) {
				t.Errorf("%s: Got %+v, want the first increment", codec, i)
			}
			rs, f := read(t, report)
			if len(rs) != readers {
				t.Errorf("%s %s: %d readers, want %d: %v", codec, run, len(rs), readers, rs)
			}
			dictionaries := 0
			for column, c := range f.Columns {
				dictionaries += c.Dictionaries
				if d := cmp.Diff([]string{name}, c.Codecs); d != "" {
					t.Errorf("%s %s: column %s: %s", codec, run, column, d)
				}
			}
			if dictionaries == 0 || len(f.SortedBy) == 0 && run != "join" {
				t.Errorf("%s %s: %d dictionaries, sorted by %v", codec, run, dictionaries, f.SortedBy)
			}
			for _, total := range report.Manifest.Totals {
				if run == "rows" && total.Format == jobs.Arrow {
					arrow[codec] = total.Bytes
				}
			}
		}
	}
	if arrow["zstd"] >= arrow["lz4"] || arrow["lz4"] >= arrow["none"] {
		t.Errorf("Got Arrow files of %v bytes", arrow)
	}
}

// I6: so does Spark, of Parquet files.
func TestSparkReadsEveryCodec(t *testing.T) {
	spark(t)
	for codec := range codecs {
		for run, dir := range codecRuns(t, codec) {
			if codec != "zstd" && run != "rows" || run == "versions" {
				continue // Spark takes half a minute to start
			}
			if rs, _ := read(t, verified(t, dir), "--spark"); rs["spark_parquet"].Rows == 0 {
				t.Errorf("%s %s: Spark has not read it: %v", codec, run, rs)
			}
		}
	}
}

// spark skips where Spark is not to read, or is not there: it takes half a minute to
// start, and 400 MB of packages (requirements-spark.txt), so this is for make soak.
func spark(t *testing.T) {
	t.Helper()
	if !soaking {
		t.Skip("SLUICE_SOAK is not set: Spark reads in make soak")
	}
	if out, err := exec.CommandContext(t.Context(), python(t), "-c", "import pyspark").CombinedOutput(); err != nil {
		t.Skipf("SLUICE_PYTHON has not the packages of requirements-spark.txt: %s", out)
	}
}
