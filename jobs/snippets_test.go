package jobs

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/store"
)

// snippetManifest has a name in it for every quote.
func snippetManifest() *Manifest {
	return &Manifest{
		Job: "it-s.1", RunID: "abc", Table: "t", Rows: "row",
		Columns: []Column{{Name: "user", Type: "string"}, {Name: `a "b" 'c' \n`, Type: "int64"}},
		Files: []File{
			{Path: "part-000000-0000.arrow", Format: Arrow}, {Path: "part-000000-0000.parquet", Format: Parquet}, {Path: "part-000001-0000.parquet", Format: Parquet},
		},
		Totals: []Total{{Format: Arrow}, {Format: Parquet}},
	}
}

func TestSnippet(t *testing.T) {
	t.Parallel()
	m := snippetManifest()
	for reader, want := range map[string]string{
		DuckDB: `CREATE OR REPLACE VIEW "it-s.1" AS SELECT
  "user",
  "a ""b"" 'c' \n"
FROM read_parquet([
  '/o''ut/[[]x][*][?]{"y"}/run=1/part-000000-0000.parquet',
  '/o''ut/[[]x][*][?]{"y"}/run=1/part-000001-0000.parquet'
], hive_partitioning = false);

SELECT count(*) FROM "it-s.1";
`,
		Polars: `import polars as pl

files = [
  "/o'ut/[x]*?{\"y\\\"}/run=1/part-000000-0000.parquet",
  "/o'ut/[x]*?{\"y\\\"}/run=1/part-000001-0000.parquet",
]
lf = pl.scan_parquet(files, glob=False, hive_partitioning=False)
print(lf.collect())
`,
		Pandas: `import pandas as pd

files = [
  "/o'ut/[x]*?{\"y\\\"}/run=1/part-000000-0000.parquet",
  "/o'ut/[x]*?{\"y\\\"}/run=1/part-000001-0000.parquet",
]
df = pd.concat([pd.read_parquet(f, engine="pyarrow", partitioning=None, dtype_backend="pyarrow") for f in files], ignore_index=True)
print(df)
`,
		Spark: `from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
df = spark.read.option("pathGlobFilter", "*.parquet").parquet("file:///o'ut/\\[x\\]\\*\\?\\{\"y\\\\\"\\}/run=1")
df.createOrReplaceTempView("t_it_s_1")
spark.sql("SELECT count(*) FROM t_it_s_1").show()
`,
	} {
		dir := `/o'ut/[x]*?{"y\"}/run=1`
		if reader == DuckDB {
			if _, err := Snippet(reader, m, dir); !errors.Is(err, store.ErrInvalidArgument) {
				t.Errorf("%s: got %v for a backslash in a pattern, want ErrInvalidArgument", reader, err)
			}
			dir = strings.ReplaceAll(dir, `\`, "")
		}
		got, err := Snippet(reader, m, dir)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", reader, d)
		}
	}
}

// TestSnippetOfJSON: Polars is told to make text of JSON, the last thing of all.
func TestSnippetOfJSON(t *testing.T) {
	t.Parallel()
	m := snippetManifest()
	m.Columns[1].Type = "json"
	for _, by := range [][]string{nil, {"user"}} {
		m.PartitionBy = by
		got, err := Snippet(Polars, m, "/x")
		if want := `.cast({"a \"b\" 'c' \\n": pl.String})` + "\nprint(lf.collect())\n"; err != nil || !strings.HasSuffix(got, want) {
			t.Errorf("by %v: got %v\n%s\nwant at its end\n%s", by, err, got, want)
		}
		arrow := *m
		arrow.Totals, arrow.Files = []Total{{Format: Arrow}}, m.Files[:1]
		if got, err = Snippet(Polars, &arrow, "/x"); err != nil || strings.Contains(got, "cast") {
			t.Errorf("by %v: got %v\n%s\nwant no cast of Arrow's extension", by, err, got)
		}
	}
}

// TestSnippetInBucket: readers are told of the endpoint, and never of credentials.
func TestSnippetInBucket(t *testing.T) {
	t.Parallel()
	m := snippetManifest()
	bucket := &Bucket{Endpoint: "http://127.0.0.1:9000/", Region: "eu-north-1"}
	for reader, want := range map[string][]string{
		DuckDB: {
			"CREATE OR REPLACE SECRET sluice (TYPE s3, PROVIDER credential_chain, SCOPE 's3://b/p/run=1', ENDPOINT '127.0.0.1:9000', REGION 'eu-north-1', URL_STYLE 'path', USE_SSL false);\n",
			"FROM read_parquet([\n  's3://b/p/run=1/part-000000-0000.parquet',\n  's3://b/p/run=1/part-000001-0000.parquet'\n], hive_partitioning = false);",
		},
		Polars: {
			`  "s3://b/p/run=1/part-000000-0000.parquet",`,
			`glob=False, hive_partitioning=False, storage_options={"aws_endpoint_url": "http://127.0.0.1:9000", "aws_region": "eu-north-1", "aws_allow_http": "true", "aws_virtual_hosted_style_request": "false"})`,
		},
		Pandas: {
			`s3 = pyarrow.fs.S3FileSystem(endpoint_override="127.0.0.1:9000", scheme="http", region="eu-north-1")`,
			`  "b/p/run=1/part-000000-0000.parquet",`, `pd.read_parquet(f, engine="pyarrow", partitioning=None, filesystem=s3, dtype_backend="pyarrow") for f in files`,
		},
		Spark: {
			`.config("spark.hadoop.fs.s3a.endpoint", "http://127.0.0.1:9000").config("spark.hadoop.fs.s3a.endpoint.region", "eu-north-1").config("spark.hadoop.fs.s3a.path.style.access", "true").config("spark.hadoop.fs.s3a.connection.ssl.enabled", "false").getOrCreate()`,
			`.parquet("s3a://b/p/run=1")`,
		},
	} {
		got, err := SnippetInBucket(reader, m, "s3://b/p/run=1", bucket)
		for _, part := range want {
			if err != nil || !strings.Contains(got, part) {
				t.Errorf("%s: got %v\n%s\nwant\n%s", reader, err, got, part)
			}
		}
	}
	m.PartitionBy, m.Columns = []string{"user"}, m.Columns[:1]
	for reader, want := range map[string]string{
		Polars: `hive_schema={"user": pl.String, "run": pl.String}, storage_options={`,
		Pandas: `partition_base_dir="b/p/run=1", filesystem=s3).to_table`,
		Spark:  `.config("spark.hadoop.fs.s3a.path.style.access", "true")`,
		DuckDB: "TYPE s3",
	} {
		if got, err := SnippetInBucket(reader, m, "s3://b/p/run=1/", bucket); err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: got %v\n%s\nwant\n%s", reader, err, got, want)
		}
	}
	m = snippetManifest()
	m.Files, m.Totals = m.Files[:1], m.Totals[:1]
	if got, err := SnippetInBucket(Pandas, m, "s3://b/p", bucket); err != nil || !strings.Contains(got, "pd.read_feather(s3.open_input_file(f), dtype_backend=\"pyarrow\") for f in files") {
		t.Errorf("Got %v\n%s", err, got)
	}
	for at, endpoint := range map[string]string{
		"s3://b/p": "127.0.0.1:9000", "s3://": bucket.Endpoint, "/dir": bucket.Endpoint, "s3://b/a?s3_region=x": bucket.Endpoint,
		"s3://b/a*": bucket.Endpoint, "s3://b/100%": bucket.Endpoint, "s3://b/x": "https://host/path",
	} {
		if got, err := SnippetInBucket(DuckDB, m, at, &Bucket{Endpoint: endpoint}); !errors.Is(err, store.ErrInvalidArgument) {
			t.Errorf("%s at %s: Got %v\n%s", at, endpoint, err, got)
		}
	}
}

// TestSnippetPartitions: readers are told which columns are in the directories, and
// their types; TestPartitionReaders of internal/integration runs what they are told.
func TestSnippetPartitions(t *testing.T) {
	t.Parallel()
	m := snippetManifest()
	m.Columns = append(m.Columns, Column{Name: "ok", Type: "bool"})
	m.PartitionBy = []string{"user", "ok"}
	for reader, want := range map[string]string{
		DuckDB: "], hive_partitioning = true, hive_types = {'user': VARCHAR, 'ok': BOOLEAN});",
		Polars: `hive_partitioning=True, hive_schema={"user": pl.String, "ok": pl.Boolean, "run": pl.String}).select(["user", "a \"b\" 'c' \\n", "ok"])`,
		Pandas: `hive = ds.partitioning(pa.schema([("user", pa.string()), ("ok", pa.bool_())]), flavor="hive")`,
		Spark:  `select(F.col("` + "`user`" + `").cast("string"), F.col("` + "`a \\\"b\\\" 'c' \\\\n`" + `"), F.col("` + "`ok`" + `").cast("boolean"))`,
	} {
		got, err := Snippet(reader, m, "/out/run=1")
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: got %v\n%s\nwant\n%s", reader, err, got, want)
		}
		if _, err := Snippet(reader, m, "/out/USER=x/run=1"); !errors.Is(err, store.ErrInvalidArgument) {
			t.Errorf("%s: got %v for a directory that names a column", reader, err)
		}
	}
}

func TestSnippetArrow(t *testing.T) {
	t.Parallel()
	m := snippetManifest()
	m.Files, m.Totals = m.Files[:1], m.Totals[:1]
	for reader, want := range map[string]string{Polars: "pl.scan_ipc(", Pandas: "pd.read_feather(f, dtype_backend=\"pyarrow\")"} {
		got, err := Snippet(reader, m, "/out")
		if err != nil || !strings.Contains(got, want) || !strings.Contains(got, "/out/part-000000-0000.arrow") {
			t.Errorf("%s: got %q, %v", reader, got, err)
		}
	}
	for _, reader := range []string{DuckDB, Spark} {
		if _, err := Snippet(reader, m, "/out"); !errors.Is(err, store.ErrUnsupported) {
			t.Errorf("%s: got %v, want ErrUnsupported", reader, err)
		}
	}
	if _, err := Snippet("hive", m, "/out"); !errors.Is(err, store.ErrInvalidArgument) {
		t.Errorf("Got %v for another reader, want ErrInvalidArgument", err)
	}
	if _, err := Snippet(Pandas, m, "/out\xff"); !errors.Is(err, store.ErrInvalidArgument) {
		t.Errorf("Got %v for a directory that is not UTF-8, want ErrInvalidArgument", err)
	}
}

// TestSnippetQuoting reads quoted texts back: SQL's by its one rule, patterns with
// an implementation that has the same syntax, and Python's, where it can, as JSON.
func TestSnippetQuoting(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`[a-z'"\\\[\]{}*? \nä]{0,12}`).Draw(t, "s")
		for _, q := range []struct{ quoted, mark string }{{sqlText(s), "'"}, {sqlName(s), `"`}} {
			inner := q.quoted[1 : len(q.quoted)-1]
			if strings.Contains(strings.ReplaceAll(inner, q.mark+q.mark, ""), q.mark) || strings.ReplaceAll(inner, q.mark+q.mark, q.mark) != s {
				t.Errorf("%q becomes %s", s, q.quoted)
			}
		}
		var back string
		if err := json.Unmarshal([]byte(pythonText(s)), &back); err != nil || back != s {
			t.Errorf("%q becomes %s, which is %q, %v", s, pythonText(s), back, err)
		}
		if ok, err := filepath.Match(escapeGlob(s), s); err != nil || !ok {
			t.Errorf("%q becomes the pattern %q, which does not match it: %v", s, escapeGlob(s), err)
		}
		// path.Match takes a backslash for an escape, DuckDB does not.
		if plain := strings.ReplaceAll(s, `\`, "/"); plain == s {
			if ok, err := filepath.Match(bracketGlob(s), s); err != nil || !ok {
				t.Errorf("%q becomes the pattern %q, which does not match it: %v", s, bracketGlob(s), err)
			}
		}
	})
}

func TestReadRun(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	want, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, "j", accessLog(), nil), Source: accessLogSource(5), Out: out})
	if err != nil {
		t.Fatal(err)
	}
	runs, err := List(t.Context(), out)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(out, filepath.FromSlash(runs[0].Dir))
	for _, at := range []string{dir, filepath.Join(out, "j"), filepath.Join(dir, ManifestName), filepath.Join(out, "j", LatestName)} {
		m, got, err := ReadRun(t.Context(), at)
		if err != nil || got != dir || m.RunID != want.RunID {
			t.Errorf("ReadRun(%s): %v, %v", at, got, err)
		}
	}
	if _, _, err := ReadRun(t.Context(), out); err == nil {
		t.Error("Got no error for a directory without a run")
	}
}
