package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/jobs/target"
	"sluice/jobs/work"
	"sluice/store"
	"sluice/store/memstore"
	"sluice/store/pebblestore"
)

// incrementalEngine is what these tests use of one.
type incrementalEngine interface {
	store.Engine
	store.Admin
	store.ChangeHolder
	store.Snapshotter
	MajorCompact(ctx context.Context, table string) error
	Flush(ctx context.Context) error
	DisableTable(ctx context.Context, name string) error
	TruncateTable(ctx context.Context, name string, keepSplits bool) error
}

// incrementalStore is a store with a table and the exports of an incremental job.
type incrementalStore struct {
	incrementalEngine
	t     *testing.T
	job   *Job
	out   string
	at    time.Time     // the next run's logical time, and the clock
	step  time.Duration // from one run to the next; 0 = an hour
	log   bytes.Buffer
	dirs  map[string]string // of runs, by run id
	whole [][]string        // the chain so far, put together, by row key
}

const incrementalFilter = "SingleColumnValueFilter('f', 'q', !=, 'binary:hidden', false, true)"

func newIncremental(t *testing.T, out string, every int) *incrementalStore {
	s := &incrementalStore{t: t, out: out, at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), dirs: map[string]string{}}
	m, err := memstore.New(&memstore.Options{Now: s.now})
	if err != nil {
		t.Fatal(err)
	}
	s.incrementalEngine = m
	n := store.NewFamily("n")
	n.Counter = true
	f := store.NewFamily("f")
	f.Versions = 2
	d := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{f, n}}
	if err := s.CreateTable(t.Context(), d, [][]byte{[]byte("c")}); err != nil {
		t.Fatal(err)
	}
	yes := true
	spec := &Spec{
		Table: "t", Out: out, Formats: []string{"parquet", "arrow"}, Filter: incrementalFilter, Incremental: Incremental{FullEvery: every},
		Columns: []columnar.ColumnSpec{
			{Name: "key", From: "$row", Type: "string"},
			{Name: "op", From: "$op", Type: "string"},
			{Name: "q", From: "f:q", Type: "string"},
			{Name: "n", From: "n:q", Type: "int64"},
			{Name: "time", From: "$timestamp", Type: "int64", Nullable: &yes},
		},
	}
	if s.job, err = Compile("j", spec, d); err != nil {
		t.Fatal(err)
	}
	return s
}

// cells makes the job one of so many versions of single cells.
func (s *incrementalStore) cells(t *testing.T, versions int) {
	t.Helper()
	d, err := s.Table(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	yes, spec := true, s.job.spec
	spec.Rows, spec.Filter = string(columnar.PerCell), ""
	if versions > 1 {
		spec.Mode, spec.Versions = ModeVersions, versions
	}
	spec.Columns = []columnar.ColumnSpec{
		{Name: "key", From: "$row", Type: "string"},
		{Name: "op", From: "$op", Type: "string"},
		{Name: "f", From: "$family", Type: "string", Nullable: &yes},
		{Name: "q", From: "$qualifier", Type: "string", Nullable: &yes},
		{Name: "time", From: "$timestamp", Type: "int64", Nullable: &yes},
		{Name: "value", From: "$value", Type: "bytes", Nullable: &yes},
	}
	s.job = mustCompile(t, "j", &spec, d)
}

func (s *incrementalStore) now() cell.Timestamp { return cell.Timestamp(s.at.UnixMilli()) }

// run makes the next run and puts what it published on top of those before.
func (s *incrementalStore) run(rt interface{ Fatalf(string, ...any) }, o RunOptions) *Manifest {
	ctx := s.t.Context()
	if s.step == 0 {
		s.step = time.Hour
	}
	s.at = s.at.Add(s.step)
	if err := HoldChanges(ctx, s.job, s, s.at); err != nil {
		rt.Fatalf("hold: %v", err)
	}
	snapshot, err := s.Snapshot(ctx)
	if err != nil {
		rt.Fatalf("snapshot: %v", err)
	}
	defer snapshot.Close()
	o.Job, o.Source, o.Holder, o.Now, o.LogicalTime = s.job, snapshot, s, func() time.Time { return s.at }, s.at
	if o.StoreID == "" {
		o.StoreID = "s"
	}
	o.Logger, o.batchRows = slog.New(slog.NewTextHandler(&s.log, nil)), 3
	m, err := Run(ctx, &o)
	if err != nil {
		rt.Fatalf("run: %v", err)
	}
	r, err := Verify(ctx, filepath.Join(s.out, "j"))
	if err != nil || !r.OK() {
		rt.Fatalf("verify: %v, %v", err, r.Err())
	}
	rows := readFormat(s.t, r.Dir, m, "parquet")
	if d := cmp.Diff(rows, readFormat(s.t, r.Dir, m, "arrow")); d != "" {
		rt.Fatalf("formats differ:\n%s", d)
	}
	if !m.increment() {
		s.whole = nil
	}
	// What docs/export.md tells readers to do.
	s.whole = slices.DeleteFunc(s.whole, func(old []string) bool {
		return slices.ContainsFunc(rows, func(row []string) bool { return row[0] == old[0] })
	})
	for _, row := range rows {
		if row[1] != columnar.OpDelete {
			s.whole = append(s.whole, row)
		}
	}
	slices.SortStableFunc(s.whole, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	if len(s.job.spec.Sort) > 0 {
		in, err := openRunInput(ctx, filepath.Join(s.out, "j"), nil)
		if m.increment() && errors.Is(err, store.ErrUnsupported) {
			return m
		}
		if err = errors.Join(err, in.Close()); err != nil || m.increment() {
			rt.Fatalf("Got %v of a run by other columns than the row key, increment %t", err, m.increment())
		}
		return m
	}
	if d := cmp.Diff(sorted(s.whole), sorted(s.chained(rt)), cmpopts.EquateEmpty()); d != "" {
		rt.Fatalf("read as a side of a join (-want +got):\n%s", d)
	}
	return m
}

// chained are the rows of the latest run with those that it goes on from, as joins read
// them: in the order of their keys.
func (s *incrementalStore) chained(rt interface{ Fatalf(string, ...any) }) (rows [][]string) {
	in, err := openRunInput(s.t.Context(), filepath.Join(s.out, "j"), nil)
	if err != nil {
		rt.Fatalf("open: %v", err)
	}
	defer in.Close()
	for {
		b, err := in.Next()
		if err == io.EOF {
			if done, _ := in.part(); in.rows > 0 && done != 1 {
				rt.Fatalf("Got %v of the rows read at the end", done)
			}
			return rows
		}
		if err != nil {
			rt.Fatalf("next: %v", err)
		}
		for i := range b.Rows() {
			var row []string
			for k := range b.Columns() {
				row = append(row, text(b.Vector(k), i))
			}
			if n := len(rows); n > 0 && (row[0] < rows[n-1][0] || row[0] == rows[n-1][0] && s.job.schema.Mode() == columnar.PerRow) {
				rt.Fatalf("Got %q behind %q", row, rows[n-1])
			}
			rows = append(rows, row)
		}
	}
}

// imported requires a table that the chain was imported into to be what the chain is.
func (s *incrementalStore) imported(rt interface{ Fatalf(string, ...any) }) {
	o := newIncremental(s.t, s.t.TempDir(), 2)
	defer o.Close()
	o.job, o.at = s.job, s.at
	from, err := target.OpenLocal(filepath.Join(s.out, "j"))
	if err != nil {
		rt.Fatalf("open: %v", err)
	}
	defer from.Close()
	if _, err := Import(s.t.Context(), &ImportOptions{From: from, To: o, Into: "t"}); err != nil {
		rt.Fatalf("import: %v", err)
	}
	o.run(rt, RunOptions{Full: true, Out: o.out})
	if d := cmp.Diff(sorted(s.whole), sorted(o.whole), cmpopts.EquateEmpty()); d != "" {
		rt.Fatalf("imported (-want +got):\n%s", d)
	}
}

// sorted returns rows by all of their values.
func sorted(rows [][]string) [][]string {
	rows = slices.Clone(rows)
	slices.SortFunc(rows, slices.Compare[[]string])
	return rows
}

// same requires the chain to be what a full run of the same job is.
func (s *incrementalStore) same(rt interface{ Fatalf(string, ...any) }) {
	got := s.whole
	s.run(rt, RunOptions{Full: true})
	if d := cmp.Diff(s.whole, got, cmpopts.EquateEmpty()); d != "" {
		rt.Fatalf("the chain (-full +chain):\n%s", d)
	}
}

func (s *incrementalStore) put(row, value string, at cell.Timestamp) {
	m := &cell.Mutation{Table: "t", Row: []byte(row)}
	m.Put("f", []byte("q"), at, []byte(value))
	s.mutate(m)
}

func (s *incrementalStore) mutate(m *cell.Mutation) {
	if _, err := s.MutateRow(s.t.Context(), nil, m); err != nil {
		s.t.Fatal(err)
	}
}

// TestFullAndIncrements puts a full run and the increments after it together, over
// random histories with deletes, late timestamps, counters, rows that a filter or a condition hides,
// splits, merges, writes while a run is at work, and changes of the table that make the next run full.
func TestFullAndIncrements(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	jobstest.Check(t, func(rt *rapid.T) {
		out, err := os.MkdirTemp(dir, "")
		if err != nil {
			rt.Fatal(err)
		}
		s := newIncremental(t, out, rapid.IntRange(2, 5).Draw(rt, "full every"))
		defer s.Close()
		cells := rapid.IntRange(0, 2).Draw(rt, "cells") == 0
		if cells {
			s.cells(t, rapid.IntRange(1, 2).Draw(rt, "versions"))
		}
		if rapid.Bool().Draw(rt, "partitions") {
			s.job.spec.PartitionBy = []string{"q"}
			d, err := s.Table(t.Context(), "t")
			if err != nil {
				rt.Fatal(err)
			}
			s.job = mustCompile(t, "j", &s.job.spec, d)
		}
		where := rapid.SampledFrom([][]columnar.Predicate{
			nil, {{Column: "n", Op: "<", Value: "2"}}, {{Column: "q", Op: "!=", Value: "w"}, {Column: "n", Op: columnar.OpAbsent}},
		}).Draw(rt, "where")
		if cells && where != nil {
			where = []columnar.Predicate{{Column: "value", Op: "!=", Value: "w"}}
		}
		if where != nil {
			s.job.spec.Where = where
			d, err := s.Table(t.Context(), "t")
			if err != nil {
				rt.Fatal(err)
			}
			s.job = mustCompile(t, "j", &s.job.spec, d)
		}
		for range rapid.IntRange(1, 6).Draw(rt, "runs") {
			for range rapid.IntRange(0, 8).Draw(rt, "mutations") {
				m := &cell.Mutation{Table: "t", Row: []byte(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(rt, "row"))}
				switch rapid.IntRange(0, 6).Draw(rt, "what") {
				case 0, 1, 2:
					at := rapid.SampledFrom([]cell.Timestamp{cell.Latest, 1, 1000}).Draw(rt, "time")
					m.Put("f", []byte("q"), at, []byte(rapid.SampledFrom([]string{"v", "w", "hidden"}).Draw(rt, "value")))
				case 3:
					m.Increment("n", []byte("q"), 1)
				case 4:
					m.DeleteColumn("n", []byte("q"), cell.Latest)
				case 5:
					m.DeleteColumn("f", []byte("q"), cell.Latest)
				case 6:
					m.DeleteRow(cell.Latest)
				}
				s.mutate(m)
			}
			switch rapid.IntRange(0, 7).Draw(rt, "disturb") {
			case 0:
				if err := errors.Join(s.Flush(t.Context()), s.MajorCompact(t.Context(), "t")); err != nil {
					rt.Fatal(err)
				}
			case 1:
				if rapid.Bool().Draw(rt, "truncate") {
					if err := errors.Join(s.DisableTable(t.Context(), "t"), s.TruncateTable(t.Context(), "t", true)); err != nil {
						rt.Fatal(err)
					}
				}
			case 2:
				at := rapid.SampledFrom([]string{"b", "d", "e"}).Draw(rt, "split")
				if err := s.SplitRegion(t.Context(), "t", []byte(at)); err != nil && !errors.Is(err, store.ErrInvalidArgument) { // one begins there
					rt.Fatal(err)
				}
			case 3:
				regions, err := s.Regions(t.Context(), "t")
				if err != nil {
					rt.Fatal(err)
				}
				if regions.Len() > 1 {
					if err := s.MergeRegions(t.Context(), "t", regions.At(0).Start, regions.At(1).Start); err != nil {
						rt.Fatal(err)
					}
				}
			}
			// What is written during a run is of the next one.
			late := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), 0, 3).Draw(rt, "during")
			s.run(rt, RunOptions{Parallelism: 2, Progress: func(work.Progress) {
				for _, row := range late {
					s.put(row, "late", cell.Latest)
				}
				late = nil
			}})
		}
		s.run(rt, RunOptions{})
		s.imported(rt)
		s.same(rt)
		for _, row := range s.whole {
			if cells {
				if where != nil && slices.Contains(row, "w") {
					rt.Fatalf("Got row %q, where %v", row, where)
				}
				continue
			}
			if q, n := row[2], row[3]; len(where) == 1 && n != "1" || len(where) == 2 && (q == "w" || n != "-") {
				rt.Fatalf("Got row %q, where %v", row, where)
			}
		}
	})
}

// TestIncrementsOfCells: an increment has all cells of a row that was changed, and one line
// of a row of which none is left, also of rows that come in parts of which conditions leave
// out some.
func TestIncrementsOfCells(t *testing.T) {
	t.Parallel()
	s := newIncremental(t, t.TempDir(), 10)
	s.cells(t, 1)
	s.job.spec.Where = []columnar.Predicate{{Column: "value", Op: "!=", Value: "w"}}
	d, err := s.Table(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	s.job = mustCompile(t, "j", &s.job.spec, d)
	const wide = 3 * cellsPerRow
	put := func(row string, value func(i int) string) {
		m := &cell.Mutation{Table: "t", Row: []byte(row)}
		for i := range wide {
			m.Put("f", fmt.Appendf(nil, "q%03d", i), cell.Latest, []byte(value(i)))
		}
		s.mutate(m)
	}
	rows := func(m *Manifest) int64 { return m.Totals[0].Rows }
	always := func(v string) func(int) string { return func(int) string { return v } }
	for _, row := range []string{"a", "b", "c", "d"} {
		put(row, always("v"))
	}
	if m := s.run(t, RunOptions{}); rows(m) != 4*wide {
		t.Fatalf("Got %d rows in the full run", rows(m))
	}
	s.put("a", "v", cell.Latest) // one cell more
	if m := s.run(t, RunOptions{}); rows(m) != wide+1 || m.Incremental.Number != 1 {
		t.Errorf("Got %d rows, want all cells of the row that was changed", rows(m))
	}
	put("a", func(i int) string { return map[bool]string{true: "w", false: "v"}[i < 2*cellsPerRow] })
	put("b", always("w"))
	gone := &cell.Mutation{Table: "t", Row: []byte("c")}
	gone.DeleteRow(cell.Latest)
	s.mutate(gone)
	if m := s.run(t, RunOptions{}); rows(m) != cellsPerRow+1+1+1 || m.Incremental.Number != 2 {
		t.Errorf("Got %d rows, want what the conditions leave of a, and that b and c are gone", rows(m))
	}
	if len(s.whole) != cellsPerRow+1+wide {
		t.Errorf("Got %d cells in all", len(s.whole))
	}
	s.same(t)
}

// TestIncrementReasons names each reason for a full run.
func TestIncrementReasons(t *testing.T) {
	t.Parallel()
	s := newIncremental(t, t.TempDir(), 3)
	s.put("a", "v", cell.Latest)
	number := func(what string, m *Manifest, want int, reason string) {
		t.Helper()
		if m.Incremental == nil || m.Incremental.Number != want || want == 0 && !strings.Contains(s.log.String(), reason) {
			t.Errorf("%s: got %+v, log %s. Want number %d, %s", what, m.Incremental, s.log.String(), want, reason)
		}
		s.log.Reset()
	}
	number("first", s.run(t, RunOptions{}), 0, "it is the first")
	number("unchanged", s.run(t, RunOptions{}), 1, "")
	s.put("b", "v", 1)
	m := s.run(t, RunOptions{})
	number("second", m, 2, "")
	if m.Totals[0].Rows != 1 {
		t.Errorf("Got %+v, want the one changed row", m.Totals)
	}
	number("due", s.run(t, RunOptions{}), 0, "it is due")
	number("asked for", s.run(t, RunOptions{Full: true}), 0, "asked for")
	number("another store", s.run(t, RunOptions{StoreID: "other"}), 0, "another store")
	number("back", s.run(t, RunOptions{}), 0, "another store")
	number("after it", s.run(t, RunOptions{}), 1, "")
	d, err := s.Table(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.AlterTable(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	number("altered", s.run(t, RunOptions{}), 0, "altered")
	number("after it", s.run(t, RunOptions{}), 1, "")
	s.at = s.at.Add(DefaultHold + time.Hour)
	number("late", s.run(t, RunOptions{}), 0, "not known that far back")

	// What has no holder is refused, never full in silence.
	snapshot, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	if _, err := Run(t.Context(), &RunOptions{Job: s.job, Source: snapshot}); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("Got %v without a holder, want ErrUnsupported", err)
	}
}

// TestIncrementChain breaks chains, which Verify tells and Collect does not do.
func TestIncrementChain(t *testing.T) {
	t.Parallel()
	s := newIncremental(t, t.TempDir(), 10)
	s.put("a", "v", cell.Latest)
	full := s.run(t, RunOptions{})
	s.put("b", "v", cell.Latest)
	s.run(t, RunOptions{})
	last := s.run(t, RunOptions{})
	tgt, err := target.OpenLocal(s.out)
	if err != nil {
		t.Fatal(err)
	}
	defer tgt.Close()
	if found, err := Collect(t.Context(), &CollectOptions{Target: tgt, Keep: map[string]Keep{"j": {Runs: 1}}}); err != nil || len(found) > 0 {
		t.Errorf("Got %+v, %v collected of a chain that is in use", found, err)
	}
	beside, err := target.OpenLocal(filepath.Join(s.out, "j"))
	if err != nil {
		t.Fatal(err)
	}
	defer beside.Close()
	before, err := ReadChain(t.Context(), beside, last)
	if err != nil || len(before) != 2 || before[0].RunID != full.RunID {
		t.Fatalf("Got %+v, %v", before, err)
	}
	dir := filepath.Join(s.out, runDir("j", last.LogicalTime))
	for _, reader := range Readers() { // internal/integration runs them
		got, err := Snippet(reader, last, dir, before...)
		for _, m := range append(before, last) {
			if part := path.Base(runDir("j", m.LogicalTime)); err != nil || !strings.Contains(got, part) {
				t.Errorf("%s: Got %v\n%s\nwant %s in it", reader, err, got, part)
			}
		}
	}
	bucket := &Bucket{Endpoint: "http://127.0.0.1:9000", Region: "r"}
	got, err := SnippetInBucket(DuckDB, last, "s3://b/p/j/"+filepath.Base(dir), bucket, before...)
	for _, want := range []string{"SCOPE 's3://b/p/j',", "'s3://b/p/j/" + path.Base(runDir("j", full.LogicalTime)) + "/part-", "'s3://b/p/j/" + filepath.Base(dir) + "/part-"} {
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("Got %v\n%s\nwant %s in it", err, got, want)
		}
	}
	for name, other := range map[string][]*Manifest{"none": nil, "not all": before[1:], "in another order": {before[1], before[0]}} {
		if got, err := Snippet(DuckDB, last, dir, other...); !errors.Is(err, store.ErrInvalidArgument) {
			t.Errorf("%s: Got %v\n%s", name, err, got)
		}
	}
	if err := os.RemoveAll(filepath.Join(s.out, runDir("j", full.LogicalTime))); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadChain(t.Context(), beside, last); err == nil || !strings.Contains(err.Error(), "which is missing") {
		t.Errorf("Got %v of a broken chain", err)
	}
	r, err := Verify(t.Context(), filepath.Join(s.out, "j"))
	if err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "which is missing") {
		t.Errorf("Got %v, %v of a broken chain", r.Problems, err)
	}
	// Nobody could read what goes on from it.
	if m := s.run(t, RunOptions{}); m.increment() || !strings.Contains(s.log.String(), "which is missing") {
		t.Errorf("Got %+v after a broken chain: %s", m.Incremental, s.log.String())
	}
	// A full run ends the need for those before it.
	found, err := Collect(t.Context(), &CollectOptions{Target: tgt, Keep: map[string]Keep{"j": {Runs: 1}}})
	if err != nil || len(found) != 2 {
		t.Errorf("Got %+v, %v. Want two runs collected", found, err)
	}
}

// TestIncrementOfUnreadable: no increment goes on from a run somewhere before which a manifest
// cannot be read.
func TestIncrementOfUnreadable(t *testing.T) {
	t.Parallel()
	s := newIncremental(t, t.TempDir(), 10)
	s.put("a", "v", cell.Latest)
	full := s.run(t, RunOptions{})
	s.run(t, RunOptions{})
	manifest := filepath.Join(s.out, runDir("j", full.LogicalTime), ManifestName)
	if err := os.WriteFile(manifest, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	snapshot, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	_, err = Run(t.Context(), &RunOptions{Job: s.job, Source: snapshot, Holder: s, StoreID: "s", LogicalTime: s.at.Add(time.Hour)})
	if !errors.Is(err, ErrManifest) || !strings.Contains(err.Error(), "run --full") || !strings.Contains(err.Error(), filepath.Base(filepath.Dir(manifest))) {
		t.Errorf("Got %v", err)
	}
	if m := s.run(t, RunOptions{Full: true}); m.increment() {
		t.Errorf("Got %+v", m.Incremental)
	}
}

// TestIncrementBaseGoes: while an increment is made, a full run is published and what was the
// latest one before is collected. The increment, which would be the latest then and of use to
// nobody, is not published; the next one goes on from the full run. So it is where a run for
// the same time was published again.
func TestIncrementBaseGoes(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"gone": false, "another": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			incrementBaseGoes(t, again)
		})
	}
}

func incrementBaseGoes(t *testing.T, again bool) {
	s := newIncremental(t, t.TempDir(), 10)
	s.put("a", "v", cell.Latest)
	base := s.run(t, RunOptions{})
	snapshot, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	tgt, err := target.OpenLocal(s.out)
	if err != nil {
		t.Fatal(err)
	}
	defer tgt.Close()
	var full *Manifest
	_, err = Run(t.Context(), &RunOptions{
		Job: s.job, Source: snapshot, Holder: s, StoreID: "s", Now: func() time.Time { return s.at }, LogicalTime: s.at.Add(90 * time.Minute),
		Confirm: func(ctx context.Context) error {
			full = s.run(t, RunOptions{Full: true})
			_, err := Collect(ctx, &CollectOptions{Target: tgt, Keep: map[string]Keep{"j": {Runs: 1}}})
			if err != nil || !again {
				return err
			}
			s.put("b", "v", cell.Latest)
			later, err := s.Snapshot(ctx)
			if err != nil {
				return err
			}
			defer later.Close()
			_, err = Run(ctx, &RunOptions{Job: s.job, Source: later, Holder: s, StoreID: "s", LogicalTime: base.LogicalTime, Full: true})
			return err
		},
	})
	if err == nil || !strings.Contains(err.Error(), "was removed meanwhile; run it again") {
		t.Errorf("Got %v", err)
	}
	if m := s.run(t, RunOptions{}); m.Incremental.BaseRunID != full.RunID {
		t.Errorf("Got %+v, want an increment of %s", m.Incremental, full.RunID)
	}
}

func TestIncrementalSpec(t *testing.T) {
	t.Parallel()
	row := columnar.ColumnSpec{Name: "key", From: "$row", Type: "string"}
	op := columnar.ColumnSpec{Name: "op", From: "$op", Type: "string"}
	when := columnar.ColumnSpec{Name: "time", From: "$timestamp", Type: "int64"}
	on := Incremental{FullEvery: 2}
	for _, c := range []struct {
		name    string
		spec    Incremental
		rows    string
		columns []columnar.ColumnSpec
		want    string
	}{
		{"good", on, "", []columnar.ColumnSpec{row, op}, ""},
		{"op alone", Incremental{}, "", []columnar.ColumnSpec{row, op}, "columns: a column comes from $op"},
		{"every", Incremental{FullEvery: 1}, "", []columnar.ColumnSpec{row, op}, "incremental.full_every: it is 1"},
		{"hold alone", Incremental{Hold: 1}, "", []columnar.ColumnSpec{row, op}, "incremental.full_every: it is 0"},
		{"hold", Incremental{FullEvery: 2, Hold: -1}, "", []columnar.ColumnSpec{row, op}, "incremental.hold: -1ns is negative"},
		{"no op", on, "", []columnar.ColumnSpec{row}, "columns: an increment says"},
		{"hex key", on, "", []columnar.ColumnSpec{{Name: "key", From: "$row", Type: "bytes", Coding: "hex"}, op}, "columns: increments are put together by the row key"},
		{"no key", on, "", []columnar.ColumnSpec{op}, "columns: increments are put together by the row key"},
		{"not null", on, "", []columnar.ColumnSpec{row, op, when}, "columns[2].nullable: a row that is gone"},
		{"cells", on, "cell", []columnar.ColumnSpec{row, op, {Name: "value", From: "$value", Type: "bytes"}}, ""},
		{"cells without op", on, "cell", []columnar.ColumnSpec{row}, "columns: an increment says"},
		{"family", on, "cell", []columnar.ColumnSpec{row, op, {Name: "f", From: "$family", Type: "string"}}, "columns[2].nullable: a row that is gone"},
		{"history", on, "cell", []columnar.ColumnSpec{row, op}, "incremental: a history's delete markers"},
	} {
		spec := &Spec{Table: "t", Columns: c.columns, Rows: c.rows, Incremental: c.spec}
		if c.name == "history" {
			spec.Mode = ModeHistory
		}
		_, err := Compile("j", spec, nil)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// TestIncrementOfAStorePutBack: the data directory of before a run takes the place of the
// store that the run was of, as a snapshot of a disk does, or a checkpoint that is opened. It
// has the store's id, and commits of the sequences that were exported, which are others. Where
// the job's hold was over by then, another reader's may keep known what was changed since.
func TestIncrementOfAStorePutBack(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]time.Duration{"at once": 0, "after the hold": DefaultHold} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := newIncremental(t, filepath.Join(dir, "out"), 10)
			d, err := s.Table(t.Context(), "t")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(s.out, 0o755); err != nil {
				t.Fatal(err)
			}
			o := jobstest.PebbleOptions()
			o.Now = s.now
			open := func(data string) *pebblestore.DB {
				db, err := pebblestore.Open(filepath.Join(dir, data), o)
				if err != nil {
					t.Fatal(err)
				}
				s.incrementalEngine = db
				return db
			}
			db := open("data")
			if err := db.CreateTable(t.Context(), d, nil); err != nil {
				t.Fatal(err)
			}
			id := db.ID()
			other := store.ChangeHold{Name: "other", Table: "t", Until: s.now() + cell.Timestamp(10*DefaultHold.Milliseconds())}
			if _, err := db.HoldChanges(t.Context(), other); err != nil {
				t.Fatal(err)
			}
			s.put("a", "1", cell.Latest)
			s.run(t, RunOptions{StoreID: id})
			if _, err := db.Checkpoint(t.Context(), filepath.Join(dir, "checkpoint")); err != nil {
				t.Fatal(err)
			}
			s.put("lost", "1", cell.Latest)
			if m := s.run(t, RunOptions{StoreID: id}); !m.increment() {
				t.Fatalf("the second run is full:\n%s", &s.log)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			s.at = s.at.Add(after)
			db = open("checkpoint")
			defer db.Close()
			if db.ID() != id {
				t.Fatalf("Got id %s of the checkpoint, want %s", db.ID(), id)
			}
			for _, row := range []string{"b", "c", "d", "e", "f", "g", "h", "i"} { // beyond the commits of the second run
				s.put(row, "1", cell.Latest)
			}
			if m := s.run(t, RunOptions{StoreID: id}); m.increment() {
				t.Errorf("Got an increment since %d, want a full run", m.Incremental.Since)
			}
			s.put("j", "1", cell.Latest)
			if m := s.run(t, RunOptions{StoreID: id}); !m.increment() {
				t.Errorf("the run after that is full:\n%s", &s.log)
			}
			s.same(t)
		})
	}
}

// TestIncrementOfLaterManifest: a program that does not know what a later one has written of
// the run before says so, and how to go on.
func TestIncrementOfLaterManifest(t *testing.T) {
	t.Parallel()
	s := newIncremental(t, t.TempDir(), 9)
	jobstest.Mutate(t, s, "t", "a", jobstest.PutOp("f", "q", 1, "1"))
	s.run(t, RunOptions{Version: "1.2.3"})
	latest := filepath.Join(s.out, "j", LatestName)
	data, err := os.ReadFile(latest)
	if err != nil {
		t.Fatal(err)
	}
	l, err := DecodeLatest(data)
	if err != nil {
		t.Fatal(err)
	}
	edit(t, filepath.Join(s.out, "j", l.Manifest), func(b []byte) []byte {
		b = bytes.Replace(b, []byte("{"), []byte(`{"of_tomorrow": 1,`), 1)
		l.ManifestSHA256 = hexSHA256(b)
		return b
	})
	if data, err = l.Encode(); err != nil {
		t.Fatal(err)
	}
	edit(t, latest, func([]byte) []byte { return data })
	jobstest.Mutate(t, s, "t", "b", jobstest.PutOp("f", "q", 2, "1"))
	var failed fatal
	func() {
		defer func() { _ = recover() }()
		s.run(&failed, RunOptions{})
	}()
	for _, want := range []string{`unknown field "of_tomorrow": it was written by Sluice "1.2.3"`, "a full run (run --full) goes on from none"} {
		if !strings.Contains(string(failed), want) {
			t.Errorf("Got %q, want %q", failed, want)
		}
	}
	if m := s.run(t, RunOptions{Full: true}); m.increment() || len(s.whole) != 2 {
		t.Errorf("Got %+v with %d rows, want a full run of 2", m.Incremental, len(s.whole))
	}
}

// fatal is the message of a Fatalf, which it panics with.
type fatal string

// Fatalf takes the message.
func (f *fatal) Fatalf(format string, args ...any) {
	*f = fatal(fmt.Sprintf(format, args...))
	panic(*f)
}
