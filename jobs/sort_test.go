package jobs

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/internal/thinned"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/jobs/join"
	"sluice/jobs/rowsort"
	"sluice/jobs/spill"
	"sluice/jobs/target"
	"sluice/jobs/work"
	"sluice/store"
)

// sortable is a table whose rows have a value of every type that has an order, or none,
// many of them equal, and a job that exports it.
func sortable(rng *rand.Rand, rows int) (*jobstest.Memory, *Spec) {
	src := jobstest.NewMemory()
	var all []cell.Row
	values := map[string][]string{
		"text": {"", "a", "a\x00", "ab", "b", "\u00fc", "\x00"}, "n": {"-9223372036854775808", "-1", "0", "7", "9223372036854775807"},
		"f": {"-Inf", "-1.5", "-0", "0", "2", "+Inf", "NaN"}, "b": {"true", "false"}, "t": {"-1", "0", "1700000000000"}, "d": {"-1.5", "0", "99.99"},
		"dw": {"-9999999999999999999999999999.5", "-18446744073.709551616", "-0.0000000001", "0", "18446744073.709551616", "9999999999999999999999999999.9999999999"},
	}
	for i := range rows {
		row := jobstest.Row(fmt.Sprintf("r%04d\x00%c", i, rng.IntN(256)))
		for _, q := range []string{"b", "d", "dw", "f", "n", "t", "text"} {
			if rng.IntN(5) > 0 {
				row.Cells = append(row.Cells, jobstest.Put("f", q, 7, values[q][rng.IntN(len(values[q]))]))
			}
		}
		row.Cells = append(row.Cells, jobstest.Put("f", "v", 7, strings.Repeat("v", rng.IntN(40))))
		all = append(all, row)
	}
	src.Add("t", []store.FamilyDescriptor{store.NewFamily("f")}, []string{"r0003", "r0040", "r0090"}, all)
	return src, &Spec{
		Table: "t", Formats: []string{Parquet, Arrow}, Columns: []columnar.ColumnSpec{
			{Name: "b", From: "f:b", Type: "bool"},
			{Name: "key", From: "$row", Type: "bytes"},
			{Name: "f", From: "f:f", Type: "float64"},
			{Name: "n", From: "f:n", Type: "int64"},
			{Name: "text", From: "f:text", Type: "string"},
			{Name: "t", From: "f:t", Type: "timestamp"},
			{Name: "d", From: "f:d", Type: "decimal(4,2)"},
			{Name: "v", From: "f:v", Type: "string"},
			{Name: "dw", From: "f:dw", Type: "decimal(38,10)"},
		},
	}
}

// compareTexts compares two values of a column by their texts, as the documentation says
// that they are ordered.
func compareTexts(typ string, by SortColumn, a, b string) int {
	if (a == "-") != (b == "-") {
		if (a == "-") == (by.Nulls == NullsFirst) {
			return -1
		}
		return 1
	}
	d := 0
	switch number := func(s string) float64 { x, _ := strconv.ParseFloat(s, 64); return x }; {
	case a == "-":
	case typ == "float64" && (a == "NaN" || b == "NaN"):
		d = cmp.Compare(map[bool]int{true: 1}[a == "NaN"], map[bool]int{true: 1}[b == "NaN"])
	case typ == "decimal(38,10)":
		x, okX := new(big.Rat).SetString(a)
		y, okY := new(big.Rat).SetString(b)
		if !okX || !okY {
			panic("no number: " + a + ", " + b)
		}
		d = x.Cmp(y)
	case typ == "float64" || typ == "decimal(4,2)":
		x, y := number(a), number(b)
		if x < y {
			d = -1
		} else if x > y {
			d = 1
		}
	case typ == "int64" || typ == "timestamp":
		x, _ := strconv.ParseInt(a, 10, 64)
		y, _ := strconv.ParseInt(b, 10, 64)
		d = cmp.Compare(x, y)
	default:
		d = cmp.Compare(a, b) // false before true, and text bytewise
	}
	if by.Order == Descending {
		return -d
	}
	return d
}

// TestSortedIsSort compares sorted exports of random tables with a sort in memory of what
// an export by row key holds: any columns, orders, partitions, memory and number of
// goroutines; and nothing is left of what was written meanwhile.
func TestSortedIsSort(t *testing.T) {
	t.Parallel()
	for seed := range uint64(thinned.Of(24, 8)) {
		rng := rand.New(rand.NewPCG(seed, 5))
		src, spec := sortable(rng, 1+rng.IntN(120))
		perCell := seed%4 == 3
		if perCell {
			spec.Rows, spec.Columns = "cell", []columnar.ColumnSpec{
				{Name: "key", From: "$row", Type: "bytes"},
				{Name: "family", From: "$family", Type: "string"},
				{Name: "qualifier", From: "$qualifier", Type: "string"},
				{Name: "value", From: "$value", Type: "bytes"},
			}
		}
		plain, dir := published(t, src, spec, RunOptions{})
		want := readFormat(t, dir, plain, Parquet)
		if partition := []string{"b", "n", "qualifier"}[seed%3]; rng.IntN(2) == 0 && (partition == "qualifier") == perCell {
			spec.PartitionBy = []string{partition}
		}
		for _, i := range rng.Perm(len(spec.Columns))[:1+rng.IntN(3)] {
			if c := spec.Columns[i].Name; !slices.Contains(spec.PartitionBy, c) {
				spec.Sort = append(spec.Sort, SortColumn{c, []string{"", Ascending, Descending}[rng.IntN(3)], []string{"", NullsFirst, NullsLast}[rng.IntN(3)]})
			}
		}
		if len(spec.Sort) == 0 {
			continue
		}
		spec.TargetFileBytes = []int64{0, 1, 900}[rng.IntN(3)]
		spec.MemoryBytes = []int64{0, 1, 5_000}[rng.IntN(3)]
		spec.SpillDir = t.TempDir()
		m, dir := published(t, src, spec, RunOptions{Parallelism: 1 + rng.IntN(3), batchRows: rng.IntN(20)})
		column := func(name string) int {
			return slices.IndexFunc(spec.Columns, func(c columnar.ColumnSpec) bool { return c.Name == name })
		}
		slices.SortStableFunc(want, func(a, b []string) int {
			for _, by := range spec.Sort {
				i := column(by.Column)
				if d := compareTexts(spec.Columns[i].Type, by, a[i], b[i]); d != 0 {
					return d
				}
			}
			return 0 // they come in the order of row keys
		})
		byPartition := func(rows [][]string) map[string][][]string {
			all := map[string][][]string{}
			for _, row := range rows {
				key := ""
				for _, name := range spec.PartitionBy {
					key += row[column(name)] + "/"
				}
				all[key] = append(all[key], row)
			}
			return all
		}
		for _, format := range spec.Formats {
			if d := gocmp.Diff(byPartition(want), byPartition(readFormat(t, dir, m, format))); d != "" {
				t.Fatalf("seed %d, %s by %+v: %s", seed, format, spec.Sort, d)
			}
		}
		if left, err := os.ReadDir(spec.SpillDir); err != nil || len(left) > 0 {
			t.Errorf("Got %v, %v in the directory", left, err)
		}
	}
}

// TestSortedDeclared: the manifest, and the files, say what they are sorted by.
func TestSortedDeclared(t *testing.T) {
	t.Parallel()
	src, spec := sortable(rand.New(rand.NewPCG(1, 1)), 50)
	spec.Sort = []SortColumn{{Column: "text", Order: Descending, Nulls: NullsFirst}, {Column: "n"}}
	m, dir := published(t, src, spec, RunOptions{})
	if want := []SortColumn{{"text", Descending, NullsFirst}, {"n", Ascending, NullsLast}}; !slices.Equal(m.Sort, want) || !slices.Equal(m.SortedBy, []string{"text", "n", "key"}) {
		t.Errorf("Got %+v, %v", m.Sort, m.SortedBy)
	}
	for i := range m.Files {
		f := &m.Files[i]
		file := mustLocal(t, dir)
		in, err := file.Open(t.Context(), f.Path)
		if err != nil {
			t.Fatal(err)
		}
		rd, err := m.read(f, in, in.Size())
		if err != nil {
			t.Fatal(err)
		}
		if got := rd.Metadata()[metaSorted]; got != "text descending nulls first,n,key" {
			t.Errorf("%s: Got %q", f.Path, got)
		}
		if p, ok := rd.(interface{ Order() []columnar.Order }); ok {
			want := []columnar.Order{{Column: "text", Descending: true, NullsFirst: true}, {Column: "n"}, {Column: "key"}}
			if d := gocmp.Diff(want, p.Order()); d != "" {
				t.Error(d)
			}
		} else if f.Format == Parquet {
			t.Error("the reader of Parquet does not tell the order")
		}
		if err := errors.Join(rd.Close(), in.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestSortedVerify: verify finds rows that are in another order than the manifest says,
// within a file and from one to the next, and files that declare another one.
func TestSortedVerify(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Manifest)
		want   string
	}{
		"order":        {func(m *Manifest) { m.Sort[0].Order = Descending }, "not sorted by v descending,key"},
		"declared":     {func(m *Manifest) { m.SortedBy = m.SortedBy[:1] }, `it says that it is sorted by "v,key", the manifest by "v"`},
		"of the files": {func(m *Manifest) { m.Files[0], m.Files[1] = m.Files[1], m.Files[0] }, "row 1 is not behind the last row of part-000000-0001.arrow: not sorted by v,key"},
	} {
		src, spec := sortable(rand.New(rand.NewPCG(2, 2)), 60)
		spec.Sort, spec.TargetFileBytes = []SortColumn{{Column: "v"}}, 1
		m, dir := published(t, src, spec, RunOptions{batchRows: 7})
		c.change(m)
		data, err := m.Encode()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, ManifestName), data, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
		if r, err := Verify(t.Context(), dir); err != nil || r.Err() == nil || !strings.Contains(r.Err().Error(), c.want) {
			t.Errorf("%s: Got %v, %v", name, err, r.Err())
		}
	}
}

func TestSortSpec(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change func(*Spec)
		want   string
	}{
		{func(s *Spec) { s.Sort = []SortColumn{{Column: "nix"}} }, `sort[0].column: "nix" is no column of the job`},
		{func(s *Spec) { s.Sort = append(s.Sort, s.Sort[0]) }, "sort[1].column: n is given twice"},
		{func(s *Spec) { s.Sort[0].Order = "asc" }, `sort[0].order: "asc" is neither ascending nor descending`},
		{func(s *Spec) { s.Sort[0].Nulls = "none" }, `sort[0].nulls: "none" is neither last nor first`},
		{func(s *Spec) { s.PartitionBy = []string{"n"} }, "sort[0].column: n is in partition_by: all rows of a directory have the same"},
		{func(s *Spec) { s.Columns[7].Type, s.Sort[0].Column = "json", "v" }, "sort[0].column: v is of type json, which has no order"},
		{func(s *Spec) { s.MemoryBytes = -1 }, "memory_bytes: -1 is negative"},
		{func(s *Spec) { s.Sort, s.SpillBytes = nil, 1 }, "spill_bytes: there is no sort, which it is for"},
		{func(s *Spec) { s.Sort, s.SpillDir = nil, "x" }, "spill_dir: there is no sort, which it is for"},
	} {
		_, spec := sortable(rand.New(rand.NewPCG(1, 1)), 0)
		spec.Sort = []SortColumn{{Column: "n"}}
		c.change(spec)
		if _, err := Compile("j", spec, nil); err == nil || err.Error() != c.want {
			t.Errorf("Got %v, want %s", err, c.want)
		}
	}
}

// TestSortedManifest: a manifest whose order cannot be is none.
func TestSortedManifest(t *testing.T) {
	t.Parallel()
	src, spec := sortable(rand.New(rand.NewPCG(3, 3)), 20)
	spec.Sort = []SortColumn{{Column: "n"}}
	good, _ := published(t, src, spec, RunOptions{})
	for name, change := range map[string]func(*Manifest){
		"no column":       func(m *Manifest) { m.SortedBy[0], m.Sort[0].Column = "nix", "nix" },
		"another column":  func(m *Manifest) { m.Sort[0].Column = "text" },
		"no word":         func(m *Manifest) { m.Sort[0].Order = "up" },
		"no default":      func(m *Manifest) { m.Sort[0].Nulls = "" },
		"more":            func(m *Manifest) { m.SortedBy = nil },
		"twice":           func(m *Manifest) { m.SortedBy[1] = "n" },
		"a map":           func(m *Manifest) { m.Columns[3].Type = "map" },
		"row keys":        func(m *Manifest) { m.Files[0].MinRow, m.Files[0].MaxRow = "a", "b" },
		"no sort at all":  func(m *Manifest) { m.Sort = nil },
		"a partition, by": func(m *Manifest) { m.PartitionBy = []string{"n"} },
	} {
		if err := decodeChanged(t, good, change); !errors.Is(err, ErrManifest) {
			t.Errorf("%s: Got %v", name, err)
		}
	}
}

// sortedResumeJob is a job of many files and steps that does not fit memory.
func sortedResumeJob(t *testing.T, partition string) (*Job, *jobstest.Memory) {
	t.Helper()
	src, spec := sortable(rand.New(rand.NewPCG(4, 4)), 30)
	spec.Sort = []SortColumn{{Column: "text", Order: Descending}, {Column: "f"}}
	spec.TargetFileBytes, spec.RowGroupBytes, spec.MemoryBytes, spec.SpillDir = 700, 1<<10, 2_000, t.TempDir()
	if partition != "" {
		spec.PartitionBy = []string{partition}
	}
	return mustCompile(t, "j", spec, nil), src
}

// TestSortedResumeKilled is TestResumeKilled of jobs that are sorted.
func TestSortedResumeKilled(t *testing.T) {
	t.Parallel()
	for _, partition := range []string{"b", ""}[:thinned.Of(2, 1)] {
		job, src := sortedResumeJob(t, partition)
		resumeKilled(t, job, src, 1, 0)
		if left, err := os.ReadDir(job.spec.SpillDir); err != nil || len(left) > 0 {
			t.Errorf("Got %v, %v in the directory", left, err)
		}
	}
}

// TestSortedResumeOtherRows: where the rows are not those of the finished files, as when
// cells have expired, the run fails and leaves nothing; so do runs that cannot go
// better another time.
func TestSortedResumeOtherRows(t *testing.T) {
	t.Parallel()
	for _, partition := range []string{"", "b"} {
		job, src := sortedResumeJob(t, partition)
		all, _, err := runKilled(t, job, src, t.TempDir(), 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		first, _, err := runKilled(t, job, src, dir, len(all.steps)-8, 1)
		if !errors.Is(err, errKilled) || len(first.noted) < 3 {
			t.Fatalf("Got %v and notes %v", err, first.noted)
		}
		if unfinished, err := ListUnfinished(t.Context(), dir); err != nil || len(unfinished) != 1 || unfinished[0].Files < 2 {
			t.Fatalf("Got %+v, %v", unfinished, err)
		}
		table := src.Tables["t"]
		table.Rows = table.Rows[:0]
		if _, _, err := runKilled(t, job, src, dir, 0, 1); !errors.Is(err, errOtherRows) {
			t.Errorf("Got %v, want that the rows differ", err)
		}
		if left := contents(t, dir); len(left) > 0 {
			t.Errorf("Got %v after a run that failed for good", left)
		}
	}
	for want, change := range map[error]func(*Spec){
		rowsort.ErrMemory: func(s *Spec) { s.SpillDir = "" }, spill.ErrFull: func(s *Spec) { s.SpillBytes = 100 },
	} {
		job, src := sortedResumeJob(t, "")
		change(&job.spec)
		dir := t.TempDir()
		if _, _, err := runKilled(t, job, src, dir, 0, 1); !errors.Is(err, want) || !strings.Contains(err.Error(), "sort the rows of job j") {
			t.Errorf("Got %v, want %v", err, want)
		}
		if left := contents(t, dir); len(left) > 0 {
			t.Errorf("Got %v after %v", left, want)
		}
	}
}

// TestSortedCrash kills a sorted export without a checkpoint at every step: whatever lies
// in the directory, a run is visible whole or not at all.
func TestSortedCrash(t *testing.T) {
	t.Parallel()
	job, src := sortedResumeJob(t, "")
	hidden, published := 0, 0
	for steps := int64(0); ; steps++ {
		out := t.TempDir()
		c := &crashing{Target: mustLocal(t, out)}
		c.left.Store(steps)
		_, err := Run(t.Context(), &RunOptions{Job: job, Source: src, Target: c, Parallelism: 1})
		if err == nil {
			break
		}
		if !errors.Is(err, errCrash) {
			t.Fatalf("after %d steps: %v", steps, err)
		}
		runs, err := List(t.Context(), out)
		if err != nil || len(runs) > 1 {
			t.Fatalf("after %d steps: %v, %+v", steps, err, runs)
		}
		if len(runs) == 0 {
			hidden++
			continue
		}
		published++
		if r, err := Verify(t.Context(), filepath.Join(out, filepath.FromSlash(runs[0].Dir))); err != nil || !r.OK() {
			t.Errorf("after %d steps: %v, %v", steps, err, r.Err())
		}
	}
	if hidden < 15 || published < 2 {
		t.Errorf("Got %d crashes with nothing visible and %d with a run", hidden, published)
	}
}

// TestSortedOfNothing: a table without rows has one file of each format, also when the
// run that wrote it was cut off behind it.
func TestSortedOfNothing(t *testing.T) {
	t.Parallel()
	for _, partition := range []string{"", "b"} {
		src, spec := sortable(rand.New(rand.NewPCG(1, 1)), 0)
		spec.Sort = []SortColumn{{Column: "n"}}
		if partition != "" {
			spec.PartitionBy = []string{partition}
		}
		if m, _ := published(t, src, spec, RunOptions{}); len(m.Files) != 2 || m.Files[0].Rows != 0 {
			t.Errorf("Got %+v", m.Files)
		}
		job := mustCompile(t, "j", spec, nil)
		all, _, err := runKilled(t, job, src, t.TempDir(), 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		for die := range all.steps {
			dir := t.TempDir()
			if _, _, err := runKilled(t, job, src, dir, die+1, 1); !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			if _, _, err := runKilled(t, job, src, dir, 0, 1); err != nil && !errors.Is(err, target.ErrExists) {
				t.Errorf("killed at %s: %v", all.steps[die], err)
			}
		}
	}
}

// TestSortedPartitionsLimit: max_partitions is of all regions together.
func TestSortedPartitionsLimit(t *testing.T) {
	t.Parallel()
	src, spec := sortable(rand.New(rand.NewPCG(1, 1)), 100)
	spec.Sort, spec.PartitionBy, spec.MaxPartitions = []SortColumn{{Column: "v"}}, []string{"n"}, 5
	_, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, "j", spec, nil), Source: src, Out: t.TempDir()})
	if many := (*PartitionsError)(nil); !errors.As(err, &many) || !many.Sorted || !strings.Contains(err.Error(), "one more than 5 partitions") {
		t.Errorf("Got %v", err)
	}
	spec.MaxPartitions = 6
	published(t, src, spec, RunOptions{})
}

// TestJoinSorted: a merge takes a run that is sorted by the key and refuses others, by
// name; a hash join takes all, and gives the same.
func TestJoinSorted(t *testing.T) {
	t.Parallel()
	src := joinSource(500)
	out := t.TempDir()
	export := func(job, name string, sort ...SortColumn) string {
		spec := joinJobs(t)[job].spec
		spec.Sort, spec.MemoryBytes, spec.SpillBytes = sort, 0, 0
		if _, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, name, &spec, nil), Source: src, Out: out}); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(out, name)
	}
	plain := export("views", "plain")
	users := export("users", "users")
	spec := func(left, method string) *JoinSpec {
		s := joinSpec(join.Inner, method)
		s.Left, s.Right = JoinSide{Run: left}, JoinSide{Run: users}
		s.TargetFileBytes = 0
		return s
	}
	joined := func(s *JoinSpec) [][]string {
		to := t.TempDir()
		m, err := RunJoin(t.Context(), &JoinOptions{Join: mustCompileJoin(t, s), Out: to})
		if err != nil {
			t.Fatal(err)
		}
		rows := readFormat(t, filepath.Join(to, runDir("j", m.LogicalTime)), m, Arrow)
		slices.SortFunc(rows, slices.Compare)
		return rows
	}
	want := joined(spec(plain, join.Merge))
	byKey := export("views", "by_key", SortColumn{Column: "key"}, SortColumn{Column: "page", Order: Descending})
	if d := gocmp.Diff(want, joined(spec(byKey, join.Merge))); d != "" || len(want) < 100 {
		t.Errorf("%d rows: %s", len(want), d)
	}
	for name, sort := range map[string][]SortColumn{
		"by_page": {{Column: "page"}, {Column: "key"}}, "backwards": {{Column: "key", Order: Descending}},
	} {
		at := export("views", name, sort...)
		_, err := RunJoin(t.Context(), &JoinOptions{Join: mustCompileJoin(t, spec(at, join.Merge)), Out: t.TempDir()})
		if !errors.Is(err, join.ErrNotSorted) || !strings.Contains(err.Error(), "left side: "+at) || !strings.Contains(err.Error(), "not by row key; use method hash") {
			t.Errorf("%s: Got %v", name, err)
		}
		if d := gocmp.Diff(want, joined(spec(at, join.Hash))); d != "" {
			t.Errorf("%s by hash: %s", name, d)
		}
	}
}

// TestImportSorted: a run in any order makes the table that it was read from.
func TestImportSorted(t *testing.T) {
	t.Parallel()
	spec := &Spec{Columns: perRow, Formats: []string{Parquet, Arrow}, Sort: []SortColumn{{Column: "i", Order: Descending}, {Column: "b"}}}
	source, at := exportedTable(t, spec, typed(t))
	to := jobstest.OpenMemory(t)
	if _, err := Import(t.Context(), &ImportOptions{From: mustLocal(t, at), To: to, Into: "t"}); err != nil {
		t.Fatal(err)
	}
	jobstest.EqualTables(t, source, to, false, "t", "t")
}

// TestSortedMemory: what a sort is told to hold is not part of what its files are.
func TestSortedMemory(t *testing.T) {
	t.Parallel()
	var sums []File
	for _, memory := range []int64{0, 1, 3_000} {
		src, spec := sortable(rand.New(rand.NewPCG(6, 6)), 100)
		spec.Sort, spec.MemoryBytes, spec.SpillDir = []SortColumn{{Column: "f"}}, memory, t.TempDir()
		var last work.Progress
		m, _ := published(t, src, spec, RunOptions{LogicalTime: time.UnixMilli(7), Parallelism: 2, Progress: func(p work.Progress) { last = p }})
		if sums == nil {
			sums = m.Files
		}
		if d := gocmp.Diff(sums, m.Files); d != "" {
			t.Errorf("%d bytes: %s", memory, d)
		}
		if math.Abs(last.Done-1) > 1e-9 || last.Rows != 100 {
			t.Errorf("Got progress %+v", last)
		}
	}
}

// TestSortedIncrements: an increment is sorted by itself, with the rows that are gone
// where nulls are, and a chain of them is the table.
func TestSortedIncrements(t *testing.T) {
	t.Parallel()
	s := newIncremental(t, t.TempDir(), 10)
	spec := s.job.spec
	spec.Sort = []SortColumn{{Column: "q", Order: Descending, Nulls: NullsFirst}}
	spec.MemoryBytes, spec.SpillBytes = 1, 0
	schema, err := s.Table(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	s.job = mustCompile(t, "j", &spec, schema)
	for i := range 8 {
		s.put(fmt.Sprint("r", i), fmt.Sprint("v", i%3), 1)
	}
	s.run(t, RunOptions{})
	s.same(t)
	s.put("r9", "v1", 2)
	s.put("r1", "v9", 2)
	gone := &cell.Mutation{Table: "t", Row: []byte("r2")}
	gone.DeleteFamily("f", cell.Latest)
	s.mutate(gone)
	m := s.run(t, RunOptions{})
	s.same(t)
	var got [][]string
	for _, row := range readFormat(t, filepath.Join(s.out, runDir("j", m.LogicalTime)), m, Parquet) {
		got = append(got, row[:3])
	}
	want := [][]string{{"r2", "delete", "-"}, {"r1", "upsert", "v9"}, {"r9", "upsert", "v1"}}
	if d := gocmp.Diff(want, got); d != "" || !m.increment() {
		t.Errorf("increment %t: %s", m.increment(), d)
	}
}
