package jobs

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/internal/thinned"
	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/jobs/jobstest"
	"sluice/jobs/join"
	"sluice/jobs/target"
	"sluice/jobs/target/targettest"
	"sluice/store"
)

// hostile are values that a careless writer would make a path of.
var hostile = []string{
	"../../up", "..", ".", "a/b", "/", "%2e%2e%2f", "%", "%zz", "x=y", "nul\x00nul", "tab\tline\n", "ü–日本", " ", "a b+c", "*?[x]{y}", `back\slash`, `"'#:^`, "007", "true", "null", "NaN", "-", "_x",
	strings.Repeat("l", 240), "\x7f", "2026-01-02",
}

// partitioned is a table whose rows have a hostile text, a number and a truth, or
// none, and a job that divides it by them.
func partitioned(rows int) (*jobstest.Memory, *Spec) {
	src := jobstest.NewMemory()
	var all []cell.Row
	for i := range rows {
		row := jobstest.Row(fmt.Sprintf("r%05d", i))
		if i%5 > 0 {
			row.Cells = append(row.Cells, jobstest.Put("f", "n", 7, []string{"1", "-7", fmt.Sprint(math.MinInt64)}[i%3]))
		}
		if i%7 > 0 {
			row.Cells = append(row.Cells, jobstest.Put("f", "text", 7, hostile[i%len(hostile)]))
		}
		row.Cells = append(row.Cells, jobstest.Put("f", "truth", 7, strconv.FormatBool(i%2 == 0)), jobstest.Put("f", "v", 7, fmt.Sprint("v", i)))
		all = append(all, row)
	}
	src.Add("t", []store.FamilyDescriptor{store.NewFamily("f")}, []string{"r00100", "r00200", "z"}, all)
	return src, &Spec{
		Table: "t", Formats: []string{Parquet, Arrow}, PartitionBy: []string{"text", "n"}, MaxPartitions: 300,
		Columns: []columnar.ColumnSpec{
			{Name: "n", From: "f:n", Type: "int64"},
			{Name: "key", From: "$row", Type: "string"},
			{Name: "text", From: "f:text", Type: "string"},
			{Name: "v", From: "f:v", Type: "string"},
			{Name: "truth", From: "f:truth", Type: "bool"},
		},
	}
}

// published runs a job and returns its manifest and the run's directory, verified.
func published(t *testing.T, src instant.Source, spec *Spec, o RunOptions) (*Manifest, string) {
	t.Helper()
	o.Job, o.Source, o.Out = mustCompile(t, "j", spec, nil), src, t.TempDir()
	m, err := Run(t.Context(), &o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Verify(t.Context(), filepath.Join(o.Out, "j"))
	if err != nil || !r.OK() {
		t.Fatal(err, r.Err())
	}
	return m, r.Dir
}

// TestPartitions: whatever the values are, the files of a partition are in one
// directory and hold, with what that says, the rows of the table, sorted; nothing is
// anywhere else.
func TestPartitions(t *testing.T) {
	t.Parallel()
	src, spec := partitioned(thinned.Of(400, 200))
	whole := *spec
	whole.PartitionBy, whole.MaxPartitions = nil, 0
	m, dir := published(t, src, &whole, RunOptions{})
	want := readFormat(t, dir, m, Parquet)
	for _, c := range []struct {
		by       []string
		options  RunOptions
		smallest int64
	}{
		{[]string{"text", "n"}, RunOptions{}, 0},
		{[]string{"text", "n"}, RunOptions{Parallelism: 3, batchRows: 7}, 1},
		{[]string{"truth"}, RunOptions{Parallelism: 2, batchRows: 5}, 1},
	} {
		spec := *spec
		spec.PartitionBy, spec.TargetFileBytes = c.by, c.smallest
		m, dir := published(t, src, &spec, c.options)
		for _, format := range spec.Formats {
			got := readFormat(t, dir, m, format)
			slices.SortStableFunc(got, func(a, b []string) int { return strings.Compare(a[1], b[1]) })
			if d := jobstest.Diff(want, got); d != "" {
				t.Errorf("%v, %s: %s", c.by, format, d)
			}
		}
		key := 1
		if slices.Contains(c.by, "n") {
			key = 0 // the column before it is not in the files
		}
		dirs := map[string]bool{}
		for i := range m.Files {
			f := &m.Files[i]
			dirs[filepath.Dir(f.Path)] = true
			rows := readAll(t, dir, f)
			if len(rows[0]) != len(spec.Columns)-len(c.by) || !slices.IsSortedFunc(rows, func(a, b []string) int { return strings.Compare(a[key], b[key]) }) {
				t.Errorf("%s: Got rows like %q", f.Path, rows[0])
			}
			if strings.Count(f.Path, "/") != len(c.by) || !filepath.IsLocal(f.Path) {
				t.Errorf("Got file %q", f.Path)
			}
		}
		if len(c.by) == 1 && len(m.Files) <= 6*len(dirs) || len(c.by) == 2 && len(dirs) < 90 {
			t.Errorf("%v: Got %d files in %d directories", c.by, len(m.Files), len(dirs))
		}
	}
}

// TestPartitionNames: what a directory says is read back as it was, and is one element
// of a path.
func TestPartitionNames(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.SampledFrom(hostile)).Draw(rt, "value")
		name := "c=" + escapePartition(s)
		if strings.ContainsAny(name, "/\x00") || filepath.Base(name) != name {
			rt.Errorf("%q becomes %q", s, name)
		}
		if got := unescapePartition(strings.TrimPrefix(name, "c=")); got != s {
			rt.Errorf("%q becomes %q, which is %q", s, name, got)
		}
	})
	// As Hive and Spark write them (FileUtils.escapePathName, ExternalCatalogUtilsSuite).
	for value, want := range map[string]string{"a/b": "a%2Fb", "x=y": "x%3Dy", "1%": "1%25", "a b": "a b", "12:30": "12%3A30", "ü": "ü", "\n": "%0A", "{}": "%7B}"} {
		if got := escapePartition(value); got != want {
			t.Errorf("%q: Got %q, want %q", value, got, want)
		}
	}
}

// TestPartitionsOfNothing: a table without rows has one file of each format, in which
// readers find all columns.
func TestPartitionsOfNothing(t *testing.T) {
	t.Parallel()
	src, spec := partitioned(0)
	m, _ := published(t, src, spec, RunOptions{})
	if len(m.Files) != 2 || filepath.Dir(m.Files[0].Path) != "text=__HIVE_DEFAULT_PARTITION__/n=__HIVE_DEFAULT_PARTITION__" {
		t.Errorf("Got %+v", m.Files)
	}
}

// TestPartitionRefused: values that no directory can say end the run, by name, or are
// null where the column says so.
func TestPartitionRefused(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"", nullPartition, strings.Repeat("l", 251), strings.Repeat("/", 84)} {
		src := jobstest.NewMemory()
		src.Add("t", []store.FamilyDescriptor{store.NewFamily("f")}, nil, []cell.Row{
			jobstest.Row("r1"), jobstest.Row("r2", jobstest.Put("f", "text", 7, value), jobstest.Put("f", "v", 7, "2")), jobstest.Row("r3", jobstest.Put("f", "v", 7, "3")),
		})
		_, spec := partitioned(0)
		spec.PartitionBy = []string{"text"}
		_, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, "j", spec, nil), Source: src, Out: t.TempDir()})
		if refused := (*columnar.ConvertError)(nil); !errors.As(err, &refused) || refused.Column != "text" || string(refused.Row) != "r2" {
			t.Errorf("%.20q: Got %v", value, err)
		}
		spec.Columns[2].OnError = columnar.OnErrorNull
		m, _ := published(t, src, spec, RunOptions{})
		if len(m.Files) != 2 || m.Files[0].Partition[0] != nil || m.Files[0].Rows != 2 {
			t.Errorf("%.20q: Got %+v", value, m.Files)
		}
	}
	src, spec := partitioned(400)
	spec.MaxPartitions = 10
	out := t.TempDir()
	_, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, "j", spec, nil), Source: src, Out: out})
	if many := (*PartitionsError)(nil); !errors.As(err, &many) || many.Max != 10 || !strings.Contains(err.Error(), "max_partitions of job j") {
		t.Errorf("Got %v for more than 10 partitions", err)
	}
	if got := visible(t, out); len(got) > 0 {
		t.Errorf("Got %v", got)
	}
}

// TestPartitionsWhere: for conditions, what no directory can say is null where the column has
// on_error: null, as it is in the files.
func TestPartitionsWhere(t *testing.T) {
	t.Parallel()
	src := jobstest.NewMemory()
	var rows []cell.Row
	for i, value := range []string{"", "a", nullPartition, strings.Repeat("l", 251), "-"} {
		row := jobstest.Row(fmt.Sprint("r", i), jobstest.Put("f", "text", 7, value), jobstest.Put("f", "v", 7, "x"))
		if value == "-" {
			row.Cells = row.Cells[1:]
		}
		rows = append(rows, row)
	}
	src.Add("t", []store.FamilyDescriptor{store.NewFamily("f")}, nil, rows)
	for _, c := range []struct {
		where columnar.Predicate
		want  string
	}{
		{columnar.Predicate{Column: "text", Op: columnar.OpPresent}, "r1"},
		{columnar.Predicate{Column: "text", Op: columnar.OpAbsent}, "r0 r2 r3 r4"},
		{columnar.Predicate{Column: "text", Op: "<=", Value: "zzz"}, "r1"},
		{columnar.Predicate{Column: "text", Op: "==", Value: ""}, ""},
		{columnar.Predicate{Column: "text", Op: "!=", Value: "other"}, "r1"},
		{columnar.Predicate{Column: "same", Op: "==", Value: ""}, "r0"},
	} {
		_, spec := partitioned(0)
		spec.PartitionBy, spec.Columns[2].OnError = []string{"text"}, columnar.OnErrorNull
		spec.Columns = append(spec.Columns, columnar.ColumnSpec{Name: "same", From: "f:text", Type: "string"})
		spec.Where = []columnar.Predicate{c.where}
		for _, sort := range [][]SortColumn{nil, {{Column: "v"}}} {
			spec.Sort = sort
			m, dir := published(t, src, spec, RunOptions{Parallelism: 2})
			var got []string
			for _, row := range readFormat(t, dir, m, Parquet) {
				got = append(got, row[1])
			}
			if slices.Sort(got); strings.Join(got, " ") != c.want {
				t.Errorf("%+v, sorted %v: Got %q, want %q", c.where, sort != nil, got, c.want)
			}
			p, err := Plan(t.Context(), &PlanOptions{Job: mustCompile(t, "j", spec, nil), Source: src})
			if err != nil || p.Count != int64(len(got)) {
				t.Errorf("%+v: Got %+v, %v", c.where, p, err)
			}
		}
	}
}

// TestPartitionsDeep: directories whose path is too long end the run, whatever on_error says.
func TestPartitionsDeep(t *testing.T) {
	t.Parallel()
	src := jobstest.NewMemory()
	long := strings.Repeat("l", 240)
	src.Add("t", []store.FamilyDescriptor{store.NewFamily("f")}, nil, []cell.Row{
		jobstest.Row("r1", jobstest.Put("f", "a", 7, long), jobstest.Put("f", "b", 7, long), jobstest.Put("f", "c", 7, long)),
	})
	spec := &Spec{Table: "t", PartitionBy: []string{"a", "b", "c"}, Columns: []columnar.ColumnSpec{{Name: "key", From: "$row", Type: "string"}}}
	for _, name := range spec.PartitionBy {
		spec.Columns = append(spec.Columns, columnar.ColumnSpec{Name: name, From: "f:" + name, Type: "string", OnError: columnar.OnErrorNull})
	}
	_, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, "j", spec, nil), Source: src, Out: t.TempDir()})
	if refused := (*columnar.ConvertError)(nil); !errors.As(err, &refused) || string(refused.Row) != "r1" || strings.Contains(err.Error(), "would export null") {
		t.Errorf("Got %v", err)
	}
}

// TestPartitionsTooMany: a run with more partitions than it may have has them the next time,
// too, and leaves nothing to go on with.
func TestPartitionsTooMany(t *testing.T) {
	t.Parallel()
	src, spec := partitioned(100)
	spec.PartitionBy, spec.MaxPartitions = []string{"n"}, 2
	for _, sort := range [][]SortColumn{nil, {{Column: "v"}}} {
		spec.Sort = sort
		out := t.TempDir()
		_, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, "j", spec, nil), Source: src, Out: out, Checkpoint: "cp"})
		if many := (*PartitionsError)(nil); !errors.As(err, &many) || errors.Is(err, ErrResumable) {
			t.Errorf("Got %v", err)
		}
		if _, err := os.Stat(filepath.Join(out, "_tmp")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Something is left: %v", err)
		}
	}
}

func TestPartitionSpec(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change func(*Spec)
		want   string
	}{
		{func(s *Spec) { s.PartitionBy = []string{"nix"} }, `partition_by[0]: "nix" is no column of the job`},
		{func(s *Spec) { s.PartitionBy = []string{"n", "n"} }, "partition_by[1]: n is given twice"},
		{func(s *Spec) { s.PartitionBy = []string{"key"} }, "partition_by[0]: key is the row key: each row would be a partition"},
		{func(s *Spec) { s.Columns[3].Type = "float64"; s.PartitionBy = []string{"v"} }, "partition_by[0]: v is of type float64; partitions are of string, int64 or bool"},
		{func(s *Spec) { s.Columns[3].Name, s.PartitionBy = "_v", []string{"_v"} }, `partition_by[0]: "_v" becomes the name of a directory, which begins with a letter or a digit and has letters, digits, _ and - alone`},
		{func(s *Spec) { s.Columns[3].Name = "Run" }, "columns[3].name: with partition_by it is not run: readers would take the run's directory, run=…, for it"},
		{func(s *Spec) { s.Columns = s.Columns[2:3]; s.PartitionBy = []string{"text"} }, "partition_by: it has every column, and the files would have none"},
		{func(s *Spec) { s.MaxPartitions = 1025 }, "max_partitions: 1025 is not from 1 to 1024"},
		{func(s *Spec) { s.PartitionBy = nil }, "max_partitions: there is no partition_by"},
	} {
		_, spec := partitioned(0)
		c.change(spec)
		if _, err := Compile("j", spec, nil); err == nil || err.Error() != c.want {
			t.Errorf("Got %v, want %s", err, c.want)
		}
	}
	_, spec := partitioned(0)
	spec.MaxPartitions = 0
	spec.RowGroupBytes = 64 << 20
	if j := mustCompile(t, "j", spec, nil); j.layout.rowGroupBytes != 4<<20 || j.spec.MaxPartitions != DefaultMaxPartitions {
		t.Errorf("Got row groups of %d bytes, %d partitions", j.layout.rowGroupBytes, j.spec.MaxPartitions)
	}
}

// TestPartitionManifest: a manifest whose partitions are not where its files are, or
// not what they can be, is none.
func TestPartitionManifest(t *testing.T) {
	t.Parallel()
	src, spec := partitioned(40)
	spec.Formats = nil
	good, _ := published(t, src, spec, RunOptions{})
	bad := "nix"
	for name, change := range map[string]func(*Manifest){
		"another value":   func(m *Manifest) { m.Files[0].Partition[0] = &bad },
		"no number":       func(m *Manifest) { m.Files[0].Partition[1] = &bad },
		"a value less":    func(m *Manifest) { m.Files[0].Partition = m.Files[0].Partition[:1] },
		"no partitions":   func(m *Manifest) { m.PartitionBy = nil },
		"another column":  func(m *Manifest) { m.PartitionBy[0] = bad },
		"sorted by it":    func(m *Manifest) { m.SortedBy = []string{"text"} },
		"sorted by other": func(m *Manifest) { m.SortedBy = []string{"v"} },
		"sorted by none":  func(m *Manifest) { m.SortedBy = []string{bad} },
	} {
		if err := decodeChanged(t, good, change); !errors.Is(err, ErrManifest) {
			t.Errorf("%s: Got %v", name, err)
		}
	}
}

// decodeChanged returns the error of reading good with a change. good stays as it is.
func decodeChanged(t *testing.T, good *Manifest, change func(*Manifest)) error {
	t.Helper()
	data, err := good.Encode()
	if err != nil {
		t.Fatal(err)
	}
	m, err := DecodeManifest(data)
	if err != nil {
		t.Fatal(err)
	}
	change(m)
	if data, err = m.Encode(); err != nil {
		t.Fatal(err)
	}
	_, err = DecodeManifest(data)
	return err
}

// TestPartitionsInBucket: the keys of objects take what directories do, and the rows are
// the same.
func TestPartitionsInBucket(t *testing.T) {
	t.Parallel()
	src, spec := partitioned(100)
	spec.Formats = nil
	want, dir := published(t, src, spec, RunOptions{})
	bucket, err := target.NewS3(&target.S3Options{
		Endpoint: targettest.NewFakeS3(t).URL(), Bucket: "bucket", Prefix: "p", AccessKey: "access", SecretKey: "secret", Backoff: time.Microsecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer bucket.Close()
	got, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, "j", spec, nil), Source: src, Target: bucket, LogicalTime: want.LogicalTime})
	if err != nil {
		t.Fatal(err)
	}
	if d := jobstest.Diff(want.Files, got.Files); d != "" {
		t.Errorf("(-directory +bucket):\n%s", d)
	}
	directory, err := Verify(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	name := runDir("j", want.LogicalTime)
	r, err := verify(t.Context(), bucket, name+"/"+ManifestName)
	if err != nil || !r.OK() || len(r.Files) < 50 {
		t.Fatal(err, r.Err())
	}
	if d := jobstest.Diff(directory.Checksums, r.Checksums); d != "" {
		t.Error(d)
	}
}

// TestPartitionsMoved: verify finds a file that was moved into another partition.
func TestPartitionsMoved(t *testing.T) {
	t.Parallel()
	src, spec := partitioned(40)
	m, dir := published(t, src, spec, RunOptions{})
	from, to := m.Files[0].Path, filepath.Join("text=other", filepath.Dir(m.Files[0].Path), "part-000000-0000.arrow")
	if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, to)), 0o777), os.Rename(filepath.Join(dir, from), filepath.Join(dir, to))); err != nil {
		t.Fatal(err)
	}
	r, err := Verify(t.Context(), dir)
	if err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "is not in the manifest") || len(r.Files[0].Problems) != 1 {
		t.Errorf("Got %v, %v", err, r.Err())
	}
}

// TestImportPartitions: a run that is divided makes the table that it was read from,
// taken as a run and as anybody's files.
func TestImportPartitions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		spec Spec
	}{
		{"rows", Spec{Columns: perRow, PartitionBy: []string{"b", "i"}, Formats: []string{Parquet, Arrow}}},
		{"cells", Spec{Columns: perCell, Rows: "cell", PartitionBy: []string{"family"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			source, at := exportedTable(t, &c.spec, typed(t))
			to := jobstest.OpenMemory(t)
			if _, err := Import(t.Context(), &ImportOptions{From: mustLocal(t, at), To: to, Into: "t"}); err != nil {
				t.Fatal(err)
			}
			jobstest.EqualTables(t, source, to, false, "t", "t")
			to = jobstest.OpenMemory(t)
			done, err := ImportFiles(t.Context(), &ImportFilesOptions{
				From: mustLocal(t, runOf(t, at)), Format: Parquet, Columns: c.spec.Columns, Rows: c.spec.Rows, Time: time.UnixMilli(1234), To: to, Into: "t",
			})
			if err != nil || done.Rows < 12 {
				t.Fatal(done, err)
			}
			jobstest.EqualTables(t, source, to, false, "t", "t")
		})
	}
}

// TestJoinPartitions: a join of runs that are divided is that of those that are not.
func TestJoinPartitions(t *testing.T) {
	t.Parallel()
	src := joinSource(3_000)
	whole, divided := t.TempDir(), t.TempDir()
	for name, by := range map[string]string{"views": "page", "users": "country"} {
		spec := joinJobs(t)[name].spec
		for out, by := range map[string][]string{whole: nil, divided: {by}} {
			spec.PartitionBy = by
			if _, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, name, &spec, nil), Source: src, Out: out}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, method := range []string{join.Merge, join.Hash} {
		var content [2][][]string
		for i, at := range []string{whole, divided} {
			spec := joinSpec(join.Full, method)
			spec.Left, spec.Right = JoinSide{Run: filepath.Join(at, "views")}, JoinSide{Run: filepath.Join(at, "users")}
			out := t.TempDir()
			m, err := RunJoin(t.Context(), &JoinOptions{Join: mustCompileJoin(t, spec), Out: out})
			if err != nil {
				t.Fatalf("%s: %v", method, err)
			}
			content[i] = readFormat(t, filepath.Join(out, runDir("j", m.LogicalTime)), m, Arrow)
		}
		if d := jobstest.Diff(content[0], content[1]); d != "" || len(content[0]) < 3_000 {
			t.Errorf("%s: %s", method, d)
		}
	}
}

// TestPlanPartitions: there are no fewer files than partitions.
func TestPlanPartitions(t *testing.T) {
	t.Parallel()
	src, spec := partitioned(400)
	spec.PartitionBy = []string{"truth"}
	p, err := Plan(t.Context(), &PlanOptions{Job: mustCompile(t, "j", spec, nil), Source: src})
	if err != nil || p.Count != 400 || p.Formats[0].Files != 6 {
		t.Errorf("Got %+v, %v", p, err)
	}
}

// TestPartitionRefusedInBucket: a service answers in XML, which has no U+FFFE and no U+FFFF,
// so that nobody would find again what has them in its name.
func TestPartitionRefusedInBucket(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"a\uFFFFb", "\uFFFE"} {
		for _, sort := range [][]SortColumn{nil, {{Column: "v"}}} {
			src := jobstest.NewMemory()
			src.Add("t", []store.FamilyDescriptor{store.NewFamily("f")}, nil, []cell.Row{
				jobstest.Row("r1", jobstest.Put("f", "text", 7, "plain")), jobstest.Row("r2", jobstest.Put("f", "text", 7, value)),
			})
			_, spec := partitioned(0)
			spec.PartitionBy, spec.Sort = []string{"text"}, sort
			f := targettest.NewFakeS3(t)
			bucket := openBucket(t, f)
			_, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, "j", spec, nil), Source: src, Target: bucket})
			if refused := (*columnar.ConvertError)(nil); !errors.As(err, &refused) || refused.Column != "text" || string(refused.Row) != "r2" {
				t.Errorf("%q: Got %v", value, err)
			}
			published(t, src, spec, RunOptions{}) // a directory may have it

			spec.Columns[2].OnError = columnar.OnErrorNull
			if _, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, "j", spec, nil), Source: src, Target: bucket}); err != nil {
				t.Fatal(err)
			}
			below, err := target.NewS3(&target.S3Options{Endpoint: f.URL(), Bucket: "bucket", Prefix: "p/j", AccessKey: "access", SecretKey: "secret"})
			if err != nil {
				t.Fatal(err)
			}
			if r, err := VerifyTarget(t.Context(), below); err != nil || !r.OK() {
				t.Errorf("%q: Got %v", value, err)
			}
		}
	}
}

// TestManyRowGroups: a file ends before it has more row groups than readers take, which
// many partitions of small ones come to long before its size.
func TestManyRowGroups(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: 16,384 row groups are one goroutine's work")
	}
	t.Parallel()
	const rows = 33_000
	src := jobstest.NewMemory()
	all := make([]cell.Row, rows)
	for i := range all {
		all[i] = jobstest.Row(fmt.Sprintf("r%05d", i), jobstest.Put("f", "c", 1, "CH"))
	}
	src.Add("t", []store.FamilyDescriptor{store.NewFamily("f")}, nil, all)
	m, _ := published(t, src, &Spec{ // verified
		Table: "t", PartitionBy: []string{"c"}, MaxPartitions: 1024, RowGroupBytes: 1000, Compression: "none",
		Columns: []columnar.ColumnSpec{{Name: "key", From: "$row", Type: "string"}, {Name: "c", From: "f:c", Type: "string"}},
	}, RunOptions{})
	if len(m.Files) != 3 || m.Files[0].Rows != 1<<14 || m.Files[0].Bytes >= DefaultTargetFileBytes/8 {
		t.Errorf("Got %+v", m.Files)
	}
}
