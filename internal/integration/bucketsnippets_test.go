//go:build integration

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"sluice/cell"
	"sluice/jobs"
	"sluice/jobs/columnar"
	"sluice/jobs/target"
	"sluice/jobs/target/targettest"
)

// TestBucketSnippets runs what `export sql` prints for pandas and Polars on runs in a
// bucket, plain, sorted, and divided by values that have to be escaped. DuckDB and Spark
// would have to load an extension first.
func TestBucketSnippets(t *testing.T) {
	python := python(t)
	var ms []cell.Mutation
	values := []string{"a/b", "100%", "x y", "\u00fc?", "007"}
	for i, value := range values {
		m := cell.Mutation{Row: fmt.Appendf(nil, "r%d", i)}
		m.Put("f", []byte("text"), cell.Timestamp(1700000000000+i), []byte(value))
		ms = append(ms, m)
	}
	snapshot, schema := plainTable(t, "r3", ms...)
	service := targettest.NewFakeS3(t)
	bucket, err := target.NewS3(&target.S3Options{Endpoint: service.URL(), Bucket: "bucket", Prefix: "exports", AccessKey: "access", SecretKey: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer bucket.Close()
	for i, spec := range []jobs.Spec{
		{Formats: []string{jobs.Parquet}},
		{Formats: []string{jobs.Arrow}, Sort: []jobs.SortColumn{{Column: "key", Order: jobs.Descending}}},
		{Formats: []string{jobs.Parquet}, PartitionBy: []string{"text"}},
		{Formats: []string{jobs.Arrow}, PartitionBy: []string{"text"}},
	} {
		name := fmt.Sprint("job", i)
		spec.Table = "t"
		spec.Columns = []columnar.ColumnSpec{{Name: "key", From: "$row", Type: "string"}, {Name: "text", From: "f:text", Type: "string"}}
		job, err := jobs.Compile(name, &spec, schema)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := jobs.Run(t.Context(), &jobs.RunOptions{Job: job, Source: snapshot, Target: bucket, LogicalTime: time.UnixMilli(7)}); err != nil {
			t.Fatal(err)
		}
		of, err := target.NewS3(&target.S3Options{Endpoint: service.URL(), Bucket: "bucket", Prefix: "exports/" + name, AccessKey: "access", SecretKey: "secret"})
		if err != nil {
			t.Fatal(err)
		}
		m, dir, err := jobs.ReadRunTarget(t.Context(), of)
		if err := of.Close(); err != nil {
			t.Error(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		for reader, then := range map[string]string{
			jobs.Pandas: "\nrows = df[['key', 'text']].values.tolist()", jobs.Polars: "\nrows = lf.select('key', 'text').collect().rows()",
		} {
			code, err := jobs.SnippetInBucket(reader, m, "s3://bucket/exports/"+name+"/"+dir, &jobs.Bucket{Endpoint: service.URL(), Region: "us-east-1"})
			if err != nil {
				t.Fatal(err)
			}
			then += "\nimport json\nprint('RESULT', json.dumps(sorted(list(r) for r in rows), ensure_ascii=False), rows[0][0])\n"
			c := exec.CommandContext(t.Context(), python, "-c", code+then)
			c.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID=access", "AWS_SECRET_ACCESS_KEY=secret", "AWS_EC2_METADATA_DISABLED=true", "PYTHONIOENCODING=utf-8")
			out, err := c.CombinedOutput()
			want := "RESULT [[\"r0\", \"a/b\"], [\"r1\", \"100%\"], [\"r2\", \"x y\"], [\"r3\", \"\u00fc?\"], [\"r4\", \"007\"]] "
			switch {
			case len(spec.Sort) > 0:
				want += "r4"
			case len(spec.PartitionBy) == 0:
				want += "r0"
			}
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("%s, %+v: %v\n%s\n%s\nwant a line\n%s", reader, spec, err, code, out, want)
			}
		}
	}
}
