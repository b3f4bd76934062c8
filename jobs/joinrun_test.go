package jobs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/jobs/join"
	"sluice/jobs/target"
	"sluice/jobs/target/targettest"
	"sluice/store"
)

// joinSource is a table of views and one of users, in several regions, with offsets.
func joinSource(views int) *jobstest.Memory {
	src := jobstest.NewMemory()
	var rows []cell.Row
	for i := range views {
		rows = append(rows, jobstest.Row(fmt.Sprintf("u%03d %d", i%97, i), jobstest.Put("e", "page", 1, fmt.Sprintf("/%d", i%7))))
	}
	src.Add("views", []store.FamilyDescriptor{store.NewFamily("e")}, []string{"u02", "u05"}, rows)
	rows = nil
	for i := range 80 {
		rows = append(rows, jobstest.Row(fmt.Sprintf("u%03d", i*2), jobstest.Put("e", "country", 1, fmt.Sprint("c", i%5))))
	}
	src.Add("users", []store.FamilyDescriptor{store.NewFamily("e")}, []string{"u05"}, rows)
	src.Progress(&store.Source{Pipeline: "p", Topic: "t"}, 3, &store.Progress{Next: 12})
	return src
}

func joinJobs(t testing.TB) map[string]*Job {
	t.Helper()
	return map[string]*Job{
		"views": mustCompile(t, "views", &Spec{Table: "views", Formats: []string{Arrow, Parquet}, TargetFileBytes: 1, Columns: []columnar.ColumnSpec{
			{Name: "key", From: "$row", Type: "string"}, {Name: "page", From: "e:page", Type: "string"},
		}}, nil),
		"users": mustCompile(t, "users", &Spec{Table: "users", TargetFileBytes: 1, Columns: []columnar.ColumnSpec{
			{Name: "name", From: "$row", Type: "string"}, {Name: "country", From: "e:country", Type: "string"},
		}}, nil),
	}
}

func joinSpec(kind, method string) *JoinSpec {
	return &JoinSpec{
		Left: JoinSide{Job: "views"}, Right: JoinSide{Job: "users"}, Formats: []string{Parquet, Arrow}, TargetFileBytes: 1,
		Spec: join.Spec{Kind: kind, Method: method, On: []join.On{{Left: "key", Right: "name", LeftPart: join.Part{Until: " "}}}, Columns: []join.Column{
			{Name: "user", From: "key.key"}, {Name: "key", From: "left.key"}, {Name: "page", From: "left.page"}, {Name: "country", From: "right.country"},
		}},
	}
}

func mustCompileJoin(t testing.TB, s *JoinSpec) *Join {
	t.Helper()
	all := joinJobs(t)
	j, err := CompileJoin("j", s, func(name string) *Job { return all[name] })
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// TestRunJoin joins two tables, and what was exported of them: the files hold the
// same rows, those that the definition asks for.
func TestRunJoin(t *testing.T) {
	t.Parallel()
	src := joinSource(18_000)
	exports := t.TempDir()
	all := joinJobs(t)
	for _, job := range all {
		if _, err := Run(t.Context(), &RunOptions{Job: job, Source: src, Out: exports}); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]int{join.Inner: 0, join.Left: 18_000}
	for i := range 18_000 {
		if i%97%2 == 0 {
			want[join.Inner]++
		}
	}
	want[join.Full] = 18_000 + 80 - 49
	if testing.Short() {
		delete(want, join.Inner)
		delete(want, join.Left)
	}
	for kind, rows := range want {
		for _, method := range []string{join.Merge, join.Hash} {
			live, published := joinSpec(kind, method), joinSpec(kind, method)
			published.Left, published.Right = JoinSide{Run: filepath.Join(exports, "views")}, JoinSide{Run: filepath.Join(exports, "users")}
			var content [2][][]string
			for i, spec := range []*JoinSpec{live, published} {
				j := mustCompileJoin(t, spec)
				if j.Live() != (i == 0) {
					t.Errorf("Got Live %t", j.Live())
				}
				out := t.TempDir()
				m, err := RunJoin(t.Context(), &JoinOptions{Join: j, Source: src, Out: out})
				if err != nil {
					t.Fatalf("%s %s: %v", method, kind, err)
				}
				r, err := Verify(t.Context(), filepath.Join(out, "j"))
				if err != nil || !r.OK() {
					t.Fatalf("%s %s: Verify: %v, %v", method, kind, err, r.Err())
				}
				if m.Totals[0].Rows != int64(rows) || m.Totals[0].Files < 2 {
					t.Errorf("%s %s: Got %+v, want %d rows in several files", method, kind, m.Totals, rows)
				}
				if m.Sequence != 42 || len(m.Offsets) != 1 || m.Offsets[0].Next != 12 {
					t.Errorf("Got sequence %d, offsets %+v", m.Sequence, m.Offsets)
				}
				content[i] = readFormat(t, r.Dir, m, Arrow)
				if d := jobstest.Diff(content[i], readFormat(t, r.Dir, m, Parquet)); d != "" {
					t.Errorf("%s %s: formats differ: %s", method, kind, d)
				}
				sorted := slices.IsSortedFunc(content[i], func(a, b []string) int { return strings.Compare(a[0], b[0]) })
				if method == join.Merge && (!sorted || kind != join.Full && !slices.Equal(m.SortedBy, []string{"user"})) {
					t.Errorf("%s: sorted %t by %v", kind, sorted, m.SortedBy)
				}
				runs, err := List(t.Context(), out)
				if err != nil || len(runs) != 1 || !runs[0].Latest || runs[0].Table != "views "+kind+" join users" {
					t.Errorf("Got %+v, %v", runs, err)
				}
			}
			if d := jobstest.Diff(content[0], content[1]); d != "" {
				t.Errorf("%s %s: tables and exports differ: %s", method, kind, d)
			}
		}
	}
}

// TestRunJoinSpills: a join that does not fit memory gives the same rows, and its
// directory holds nothing else.
func TestRunJoinSpills(t *testing.T) {
	t.Parallel()
	src := joinSource(3000)
	var content [2][][]string
	var names [2][]string
	for i, memory := range []int64{0, 1000} {
		spec := joinSpec(join.Full, join.Hash)
		spec.MemoryBytes = memory
		out := t.TempDir()
		m, err := RunJoin(t.Context(), &JoinOptions{Join: mustCompileJoin(t, spec), Source: src, Out: out, Now: clock()})
		if err != nil {
			t.Fatal(err)
		}
		r, err := Verify(t.Context(), filepath.Join(out, "j"))
		if err != nil || !r.OK() {
			t.Fatalf("Verify: %v, %v", err, r.Err())
		}
		content[i] = readFormat(t, r.Dir, m, Parquet)
		entries, err := os.ReadDir(out)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names[i] = append(names[i], e.Name())
		}
	}
	if cmp.Equal(content[0], content[1]) {
		t.Error("the rows have the order of the left side: nothing was written to disk")
	}
	for i := range content {
		slices.SortFunc(content[i], slices.Compare)
	}
	if d := jobstest.Diff(content[0], content[1]); d != "" {
		t.Error(d)
	}
	if d := jobstest.Diff(names[0], names[1]); d != "" {
		t.Errorf("something is left: %s", d)
	}
}

// TestSpillDirMissing: a job or join whose spill_dir is not there fails before it has read
// anything, also where all of it fits memory.
func TestSpillDirMissing(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	out := t.TempDir()
	js := joinSpec(join.Full, join.Hash)
	js.SpillDir = missing
	_, err := RunJoin(t.Context(), &JoinOptions{Join: mustCompileJoin(t, js), Source: joinSource(3), Out: out, Now: clock()})
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "spill_dir: ") {
		t.Errorf("Got %v of a join", err)
	}
	src, spec := sortable(rand.New(rand.NewPCG(4, 4)), 3)
	spec.Sort, spec.SpillDir = []SortColumn{{Column: "text"}}, missing
	_, err = Run(t.Context(), &RunOptions{Job: mustCompile(t, "j", spec, nil), Source: src, Out: out, Now: clock()})
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "spill_dir: ") {
		t.Errorf("Got %v of a sorted job", err)
	}
	if left, err := os.ReadDir(out); err != nil || len(left) > 0 {
		t.Errorf("Got %v, %v in the directory", left, err)
	}
	// But where it is out, which the join makes.
	if _, err := RunJoin(t.Context(), &JoinOptions{Join: mustCompileJoin(t, js), Source: joinSource(3), Out: missing, Now: clock()}); err != nil {
		t.Errorf("Got %v of a join that spills to its out", err)
	}
}

// decodesAsIs requires a manifest to be the same after it was encoded, and returns it so.
func decodesAsIs(t *testing.T, m *Manifest) []byte {
	t.Helper()
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := DecodeManifest(data)
	if err != nil {
		t.Fatal(err)
	}
	if d := jobstest.Diff(m, again); d != "" {
		t.Error(d)
	}
	return data
}

// TestRunJoinManifestOfPart: the manifest says of each side which rows and cells it had, of a
// table and of a published run.
func TestRunJoinManifestOfPart(t *testing.T) {
	t.Parallel()
	src := joinSource(10)
	all := joinJobs(t)
	views := all["views"].spec
	views.StartRow, views.StopRow, views.Families, views.TimeRange = "u000", "u005", []string{"e"}, TimeRange{TimeSpan: TimeSpan{To: "2026-01-01T00:00:00Z"}}
	views.Filter, views.Where = "PrefixFilter('u')", []columnar.Predicate{{Column: "page", Op: "!=", Value: "/3"}}
	all["views"] = mustCompile(t, "views", &views, nil)
	compile := func(s *JoinSpec) *Join {
		t.Helper()
		j, err := CompileJoin("j", s, func(name string) *Job { return all[name] })
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	exports := t.TempDir()
	for _, job := range all {
		if _, err := Run(t.Context(), &RunOptions{Job: job, Source: src, Out: exports}); err != nil {
			t.Fatal(err)
		}
	}
	live, published := joinSpec("", ""), joinSpec("", "")
	published.Left, published.Right = JoinSide{Run: filepath.Join(exports, "views")}, JoinSide{Run: filepath.Join(exports, "users")}
	for _, spec := range []*JoinSpec{live, published} {
		m, err := RunJoin(t.Context(), &JoinOptions{Join: compile(spec), Source: src, Out: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		left, right := m.Join.Left, m.Join.Right
		want := SideRows{
			StartRow: "u000", StopRow: "u005", Families: []string{"e"}, TimeRange: &ReadTimes{ReadSpan: ReadSpan{To: 1767225600000}},
			Filter: "PrefixFilter('u')", Where: []columnar.Predicate{{Column: "page", Op: "!=", Value: "/3"}},
		}
		if d := jobstest.Diff(want, left.SideRows); d != "" {
			t.Errorf("left (-want +got):\n%s", d)
		}
		if d := jobstest.Diff(SideRows{}, right.SideRows); d != "" {
			t.Errorf("right (-want +got):\n%s", d)
		}
		data := decodesAsIs(t, m)
		if n := strings.Count(string(data), `"stop_row": "u005"`) + strings.Count(string(data), `"where": [`); n != 2 {
			t.Errorf("Got %s", data)
		}
		broken := strings.Replace(string(data), `"to": 1767225600000`, `"from": 5, "to": 4`, 1)
		if _, err := DecodeManifest([]byte(broken)); !errors.Is(err, ErrManifest) {
			t.Errorf("Got %v of a range that ends before it begins", err)
		}
	}
}

// TestRunJoinManifest is what the manifest says of the sides.
func TestRunJoinManifest(t *testing.T) {
	t.Parallel()
	src := joinSource(10)
	exports, out := t.TempDir(), t.TempDir()
	ids := map[string]string{}
	for name, job := range joinJobs(t) {
		m, err := Run(t.Context(), &RunOptions{Job: job, Source: src, Out: exports})
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = m.RunID
		src.At++
	}
	spec := joinSpec(join.Left, "")
	spec.Left, spec.Right = JoinSide{Run: filepath.Join(exports, "views")}, JoinSide{Run: filepath.Join(exports, "users")}
	m, err := RunJoin(t.Context(), &JoinOptions{Join: mustCompileJoin(t, spec), Out: out, Version: "v", Engine: "e"})
	if err != nil {
		t.Fatal(err)
	}
	left, right := m.Join.Left, m.Join.Right
	if left.RunID != ids["views"] || right.RunID != ids["users"] || len(left.ManifestSHA256) != 64 || left.ManifestSHA256 == right.ManifestSHA256 {
		t.Errorf("Got sides %+v and %+v, want runs %v", left, right, ids)
	}
	if left.Sequence+right.Sequence != 42+43 || m.Sequence != 42 {
		t.Errorf("Got sequence %d of %d and %d, want the lesser", m.Sequence, left.Sequence, right.Sequence)
	}
	if d := jobstest.Diff([]JoinOn{{Left: "key", Right: "name", LeftUntil: " "}}, m.Join.On); d != "" {
		t.Error(d)
	}
	data := decodesAsIs(t, m)
	for _, bad := range []string{`"table": "t"`, `"min_row": "a"`} {
		key, _, _ := strings.Cut(bad, ":")
		broken := strings.Replace(string(data), key+`: ""`, bad, 1)
		if _, err := DecodeManifest([]byte(broken)); !errors.Is(err, ErrManifest) {
			t.Errorf("%s in the manifest of a join: got %v, want ErrManifest", bad, err)
		}
	}
	// A join of a join.
	spec = joinSpec(join.Semi, join.Hash)
	spec.Left, spec.Right = JoinSide{Run: filepath.Join(out, "j")}, JoinSide{Run: filepath.Join(exports, "users")}
	spec.On, spec.Columns = []join.On{{Left: "user", Right: "name"}}, nil
	if m, err = RunJoin(t.Context(), &JoinOptions{Join: mustCompileJoin(t, spec), Out: t.TempDir()}); err != nil || m.Totals[0].Rows != 5 {
		t.Errorf("Got %+v, %v, want 5 rows", m, err)
	}
}

// TestRunJoinRefused: a run is not joined that is not as its manifest says, and
// nothing of a join that fails stays.
func TestRunJoinRefused(t *testing.T) {
	t.Parallel()
	src := joinSource(3000)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		damage func(run string) error
		spec   func(s *JoinSpec)
		want   error
	}{
		"changed": {damage: func(run string) error {
			return os.WriteFile(filepath.Join(run, "part-000000-0000.arrow"), []byte("x"), 0o666)
		}, want: store.ErrCorrupt},
		"missing":    {damage: func(run string) error { return os.Remove(filepath.Join(run, "part-000001-0000.arrow")) }, want: target.ErrNotFound},
		"memory":     {spec: func(s *JoinSpec) { s.Method, s.MemoryBytes = join.Hash, 50 }, want: join.ErrMemory},
		"not sorted": {spec: func(s *JoinSpec) { s.On = []join.On{{Left: "page", Right: "name"}}; s.Columns = nil }, want: join.ErrNotSorted},
		"published":  {want: target.ErrExists},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exports, out := t.TempDir(), t.TempDir()
			for _, job := range joinJobs(t) {
				if _, err := Run(t.Context(), &RunOptions{Job: job, Source: src, Out: exports, LogicalTime: now}); err != nil {
					t.Fatal(err)
				}
			}
			spec := joinSpec(join.Left, "")
			spec.Left, spec.Right = JoinSide{Run: filepath.Join(exports, "views")}, JoinSide{Run: filepath.Join(exports, "users")}
			o := &JoinOptions{Join: mustCompileJoin(t, spec), Out: out, LogicalTime: now}
			if test.want == target.ErrExists {
				if _, err := RunJoin(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			if test.damage != nil {
				if err := test.damage(filepath.Join(exports, filepath.FromSlash(runDir("views", now)))); err != nil {
					t.Fatal(err)
				}
			}
			if test.spec != nil {
				test.spec(spec)
				o.Join = mustCompileJoin(t, spec)
			}
			before := contents(t, out)
			_, err := RunJoin(t.Context(), o)
			if !errors.Is(err, test.want) {
				t.Errorf("Got %v, want %v", err, test.want)
			}
			if file := filepath.Join(exports, filepath.FromSlash(runDir("views", now)), "part-000000-0000.arrow"); name == "changed" && !strings.Contains(err.Error(), file) {
				t.Errorf("Got %v, which does not name %s", err, file)
			}
			if d := jobstest.Diff(before, contents(t, out)); d != "" {
				t.Errorf("it left something: %s", d)
			}
		})
	}
}

// TestRunsOfNoYear: a run for a time that no manifest can say ends before it has read
// anything.
func TestRunsOfNoYear(t *testing.T) {
	t.Parallel()
	at := time.Date(0, 1, 1, 0, 0, 0, 0, time.FixedZone("", 3600))
	out := t.TempDir()
	src := joinSource(1)
	_, err := Run(t.Context(), &RunOptions{Job: joinJobs(t)["views"], Source: src, Out: out, LogicalTime: at})
	_, joinErr := RunJoin(t.Context(), &JoinOptions{Join: mustCompileJoin(t, joinSpec(join.Left, "")), Source: src, Out: out, LogicalTime: at})
	for _, err := range []error{err, joinErr} {
		if !errors.Is(err, store.ErrInvalidArgument) || !strings.Contains(err.Error(), "year -1") {
			t.Errorf("Got %v, want ErrInvalidArgument that names the year", err)
		}
	}
}

// TestRunJoinEmpty: a join without rows says its columns.
func TestRunJoinEmpty(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	m, err := RunJoin(t.Context(), &JoinOptions{Join: mustCompileJoin(t, joinSpec(join.Inner, "")), Source: joinSource(0), Out: out})
	if err != nil || len(m.Files) != 2 || m.Totals[0].Rows != 0 {
		t.Fatalf("Got %+v, %v, want a file of each format", m, err)
	}
	if r, err := Verify(t.Context(), filepath.Join(out, "j")); err != nil || !r.OK() {
		t.Errorf("Verify: %v, %v", err, r.Err())
	}
}

func TestCompileJoin(t *testing.T) {
	t.Parallel()
	all := joinJobs(t)
	for name, test := range map[string]struct {
		change func(s *JoinSpec)
		want   string
	}{
		"no side":      {func(s *JoinSpec) { s.Left = JoinSide{} }, "left: it is missing: a job of this file, or a published run"},
		"no such job":  {func(s *JoinSpec) { s.Right.Job = "user" }, `right.job: there is no job "user"`},
		"two of one":   {func(s *JoinSpec) { s.Right.Run = "x" }, "right: it is either a job or a run"},
		"two instants": {func(s *JoinSpec) { s.Right = JoinSide{Run: "x"} }, "right: one side is a job and one a published run, which are not of one instant; export the job first"},
		"format":       {func(s *JoinSpec) { s.Formats = []string{"csv"} }, `formats[0]: "csv" is no format; it is parquet or arrow`},
		"bytes":        {func(s *JoinSpec) { s.TargetFileBytes = -1 }, "target_file_bytes: -1 is negative"},
		"keep":         {func(s *JoinSpec) { s.Keep.Runs = -1 }, "keep.runs: -1 is negative"},
		"schedule":     {func(s *JoinSpec) { s.Out, s.Schedule.Cron, s.Schedule.Zone = "x", "@daily", "Berlin" }, `schedule.zone: "Berlin" is not the IANA name of a time zone, such as Europe/Berlin`},
		"no out":       {func(s *JoinSpec) { s.Schedule.Cron = "@daily" }, "out: a schedule needs a directory to write to"},
		"column":       {func(s *JoinSpec) { s.Columns[3].From = "right.land" }, `columns[3].from: the right side has no column "land"; it has name, country`},
	} {
		s := joinSpec(join.Inner, "")
		test.change(s)
		if _, err := CompileJoin("j", s, func(name string) *Job { return all[name] }); err == nil || err.Error() != test.want {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
	}
	if _, err := RunJoin(t.Context(), &JoinOptions{Join: mustCompileJoin(t, joinSpec(join.Inner, "")), Out: "x"}); err == nil {
		t.Error("Got no error without a Source")
	}
}

// TestJoinRunsInBucket: runs that lie in a bucket are joined as those of directories are,
// with partitions and without, into a bucket; a damaged file is named.
func TestJoinRunsInBucket(t *testing.T) {
	t.Parallel()
	fake := targettest.NewFakeS3(t)
	open := func(at string) (target.Target, error) {
		return target.NewS3(&target.S3Options{
			Endpoint: fake.URL(), Bucket: "bucket", Prefix: strings.TrimPrefix(at, "s3://bucket/"), AccessKey: "access", SecretKey: "secret", Backoff: time.Microsecond,
		})
	}
	exports, err := open("s3://bucket/exports")
	if err != nil {
		t.Fatal(err)
	}
	defer exports.Close()
	e := jobstest.OpenMemory(t, "row02")
	for i := range 6 {
		jobstest.Mutate(t, e, "t", fmt.Sprintf("row%02d", i), jobstest.PutOp("f", "q", 1, fmt.Sprint(i%2)), jobstest.PutOp("f", "x", 1, fmt.Sprint(i)))
	}
	s := jobstest.SnapshotOf(t, e)
	columns := []columnar.ColumnSpec{{Name: "key", From: "$row", Type: "string"}, {Name: "q", From: "f:q", Type: "string"}, {Name: "x", From: "f:x", Type: "int64"}}
	for name, partitions := range map[string][]string{"whole": nil, "parts": {"q"}} {
		job := mustCompile(t, name, &Spec{Table: "t", Columns: columns, PartitionBy: partitions}, nil)
		if _, err := Run(t.Context(), &RunOptions{Job: job, Source: s, Target: exports}); err != nil {
			t.Fatal(err)
		}
	}
	spec := &JoinSpec{Left: JoinSide{Run: "s3://bucket/exports/whole"}, Right: JoinSide{Run: "s3://bucket/exports/parts/"}, Spec: join.Spec{
		Kind: join.Inner, Method: join.Merge, On: []join.On{{Left: "key"}},
		Columns: []join.Column{{Name: "key", From: "key.key"}, {Name: "x", From: "left.x"}, {Name: "q", From: "right.q"}},
	}}
	j, err := CompileJoin("j", spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := RunJoin(t.Context(), &JoinOptions{Join: j, Out: t.TempDir()}); !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "s3://bucket/exports/whole") {
		t.Errorf("Got %v without a bucket", err)
	}
	out := t.TempDir()
	m, err := RunJoin(t.Context(), &JoinOptions{Join: j, Out: out, OpenBucket: open})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Verify(t.Context(), filepath.Join(out, "j"))
	if err != nil || !r.OK() {
		t.Fatalf("verify: %v, %v", err, r.Err())
	}
	var want [][]string
	for i := range 6 {
		want = append(want, []string{fmt.Sprintf("row%02d", i), fmt.Sprint(i), fmt.Sprint(i % 2)})
	}
	if d := jobstest.Diff(want, readFormat(t, r.Dir, m, Parquet)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if m.Join.Left.RunID == "" || m.Join.Right.RunID == "" {
		t.Errorf("Got %+v", m.Join)
	}
}
