package jobs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/cell"
	"sluice/internal/thinned"
	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/jobs/jobstest"
	"sluice/jobs/join"
	"sluice/jobs/tables"
	"sluice/jobs/target"
	"sluice/region"
	"sluice/store"
	"sluice/store/memstore"
)

// unfrozenStore is an engine with a table of four regions, "a" to "d", its job, and a
// clock.
type unfrozenStore struct {
	*jobstest.Thawed
	mem *memstore.Store
	t   *testing.T
	now cell.Timestamp
	job *Job
	out string
}

func newUnfrozen(t *testing.T, change func(*Spec)) *unfrozenStore {
	t.Helper()
	s := &unfrozenStore{t: t, now: 1_000_000, out: t.TempDir()}
	mem, err := memstore.New(&memstore.Options{Now: func() cell.Timestamp { return s.now }})
	if err != nil {
		t.Fatal(err)
	}
	s.mem, s.Thawed = mem, &jobstest.Thawed{Engine: mem}
	f, n := store.NewFamily("f"), store.NewFamily("n")
	f.Versions, n.Counter = 2, true
	d := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{f, n}}
	if err := mem.CreateTable(t.Context(), d, [][]byte{[]byte("b"), []byte("c"), []byte("d")}); err != nil {
		t.Fatal(err)
	}
	yes := true
	spec := &Spec{Table: "t", Out: s.out, Columns: []columnar.ColumnSpec{
		{Name: "key", From: "$row", Type: "string"},
		{Name: "q", From: "f:q", Type: "string", Nullable: &yes},
	}}
	if change != nil {
		change(spec)
	}
	if s.job, err = Compile("j", spec, d); err != nil {
		t.Fatal(err)
	}
	return s
}

// put writes f:q of a row at a time.
func (s *unfrozenStore) put(row, value string, at cell.Timestamp) {
	s.t.Helper()
	m := cell.Mutation{Table: "t", Row: []byte(row)}
	m.Put("f", []byte("q"), at, []byte(value))
	if _, err := s.mem.MutateRow(s.t.Context(), nil, &m); err != nil {
		s.t.Fatal(err)
	}
}

func (s *unfrozenStore) count(row string, n int64) {
	s.t.Helper()
	m := cell.Mutation{Table: "t", Row: []byte(row)}
	m.Increment("n", []byte("q"), n)
	if _, err := s.mem.MutateRow(s.t.Context(), nil, &m); err != nil {
		s.t.Fatal(err)
	}
}

// advance stores an offset.
func (s *unfrozenStore) advance(from, next int64) {
	s.t.Helper()
	var b store.Batch
	b.Advance(store.Source{Pipeline: "p", Topic: "t", ClusterID: "c"}, 0, from, store.Progress{First: 0, Next: next, Applied: next, LastOffset: -1, LeaderEpoch: -1})
	if err := s.mem.Apply(s.t.Context(), &b); err != nil {
		s.t.Fatal(err)
	}
}

func (s *unfrozenStore) open() *instant.Unfrozen {
	s.t.Helper()
	u, err := instant.OpenUnfrozen(s.t.Context(), s.Thawed, func() time.Time { return time.UnixMilli(int64(s.now)) })
	if err != nil {
		s.t.Fatal(err)
	}
	return u
}

// rows are the rows that a run has in a format.
func (s *unfrozenStore) rows(m *Manifest, format string) []string {
	s.t.Helper()
	r, err := Verify(s.t.Context(), filepath.Join(s.out, m.Job))
	if err != nil || !r.OK() {
		s.t.Fatalf("verify: %v, %v", err, r)
	}
	var rows []string
	for _, row := range readFormat(s.t, r.Dir, m, format) {
		rows = append(rows, strings.Join(row, "="))
	}
	return rows
}

// TestUnfrozen: a run of an engine that cannot freeze an instant leaves out what is
// written later with later times, says what it is, and has the offsets of before its
// first scan.
func TestUnfrozen(t *testing.T) {
	t.Parallel()
	s := newUnfrozen(t, nil)
	s.put("a1", "before", 10)
	s.put("c1", "old", 20)
	s.count("d1", 5)
	s.advance(store.Absent, 7)
	u := s.open()
	s.Thawed.Before = func(scan int) {
		if scan == 1 {
			s.put("b1", "late", s.now+1)        // a later time
			s.put("c1", "overwritten", s.now+1) // the version before is kept
			s.put("c2", "early time", s.now-1)  // meanwhile, and may be in it
			s.put("d2", "at the bound", s.now)  // exclusive
			s.advance(7, 9)                     // of what may be missing
		}
	}
	m, err := Run(t.Context(), &RunOptions{Job: s.job, Source: u, Parallelism: 1})
	if err != nil {
		t.Fatal(err)
	}
	if d := jobstest.Diff([]string{"a1=before", "c1=old", "c2=early time", "d1=-"}, s.rows(m, Parquet)); d != "" {
		t.Errorf("Rows (-want +got):\n%s", d)
	}
	if m.Consistency != ConsistencyRow || m.TimeBound != s.now || m.Sequence != uint64(s.now) || len(m.Limits) != 4 {
		t.Errorf("Got consistency %q, bound %d, sequence %d, limits %q", m.Consistency, m.TimeBound, m.Sequence, m.Limits)
	}
	if len(m.Offsets) != 1 || m.Offsets[0].Next != 7 {
		t.Errorf("Got offsets %+v, want those of before the first scan", m.Offsets)
	}
	// Copies, counts and comparisons read what is there.
	s.Thawed.Before = nil
	n, err := tables.Count(t.Context(), &tables.CountOptions{Source: u, Table: "t"})
	if err != nil || n.Rows != 6 || n.Sequence != 0 {
		t.Errorf("Got %+v and %v, want 6 rows", n, err)
	}
	p, err := Plan(t.Context(), &PlanOptions{Job: s.job, Source: u})
	if err != nil || p.Count != 4 || p.TimeBound != s.now {
		t.Errorf("Got %+v and %v, want 4 rows", p, err)
	}
}

// TestUnfrozenWithoutOffsets: a manifest says that it knows none.
func TestUnfrozenWithoutOffsets(t *testing.T) {
	t.Parallel()
	s := newUnfrozen(t, func(s *Spec) { s.Families = []string{"f"} })
	m, err := Run(t.Context(), &RunOptions{Job: s.job, Source: s.open()})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(m.Limits, func(l string) bool { return strings.Contains(l, "no offsets") }) || len(m.Offsets) != 0 {
		t.Errorf("Got offsets %v, limits %q", m.Offsets, m.Limits)
	}
}

// TestUnfrozenBound: ranges that a scan asks for are cut at the bound; counters have
// none.
func TestUnfrozenBound(t *testing.T) {
	t.Parallel()
	s := newUnfrozen(t, nil)
	var got *store.Scan
	recording := &recordingEngine{Engine: s.mem, scan: func(sc *store.Scan) { got = sc }}
	u, err := instant.OpenUnfrozen(t.Context(), recording, func() time.Time { return time.UnixMilli(int64(s.now)) })
	if err != nil {
		t.Fatal(err)
	}
	all := cell.TimeRange{Max: 1<<63 - 1}
	for _, tt := range []struct {
		scan   store.Scan
		time   *cell.TimeRange
		family map[string]cell.TimeRange
	}{
		{store.Scan{Table: "t"}, &cell.TimeRange{Max: s.now}, map[string]cell.TimeRange{"n": all}},
		{store.Scan{Table: "t", Time: &cell.TimeRange{Min: 5, Max: s.now + 5}}, &cell.TimeRange{Min: 5, Max: s.now}, map[string]cell.TimeRange{"n": {Min: 5, Max: s.now + 5}}},
		{store.Scan{Table: "t", Time: &cell.TimeRange{Min: s.now + 1, Max: s.now + 5}}, &cell.TimeRange{Min: s.now, Max: s.now}, map[string]cell.TimeRange{"n": {Min: s.now + 1, Max: s.now + 5}}},
		{
			store.Scan{Table: "t", FamilyTime: map[string]cell.TimeRange{"f": {Min: 1, Max: s.now + 2}, "n": {Min: 3, Max: s.now + 4}}},
			&cell.TimeRange{Max: s.now},
			map[string]cell.TimeRange{"f": {Min: 1, Max: s.now}, "n": {Min: 3, Max: s.now + 4}},
		},
		{store.Scan{Table: store.OffsetsTable}, nil, nil},
	} {
		asked := tt.scan
		if err := u.Scan(t.Context(), &asked).Close(); err != nil {
			t.Fatal(err)
		}
		if d := jobstest.Diff(tt.time, got.Time) + jobstest.Diff(tt.family, got.FamilyTime); d != "" {
			t.Errorf("%+v (-want +got):\n%s", tt.scan, d)
		}
		if d := jobstest.Diff(tt.scan, asked); d != "" {
			t.Errorf("The scan was changed:\n%s", d)
		}
	}
	if sc := u.Scan(t.Context(), &store.Scan{Table: "none"}); sc.Next() || !errors.Is(sc.Err(), store.ErrTableNotFound) {
		t.Errorf("Got %v, want ErrTableNotFound", sc.Err())
	}
}

type recordingEngine struct {
	store.Engine
	scan func(*store.Scan)
}

func (e *recordingEngine) Scan(ctx context.Context, s *store.Scan) store.Scanner {
	e.scan(s)
	return e.Engine.Scan(ctx, s)
}

// TestUnfrozenResume kills a run at every step while the table changes under it, its
// regions too. What goes on has the regions, the bound and the offsets of the run
// that was cut off, and every row once in both formats.
func TestUnfrozenResume(t *testing.T) {
	t.Parallel()
	for _, formats := range [][]string{{Parquet}, {Parquet, Arrow}} {
		for die := 1; ; die += 2 * thinned.Of(1, 3) { // what comes before a step is what comes after the one before
			s := newUnfrozen(t, func(s *Spec) { s.Formats, s.TargetFileBytes = formats, 1 })
			rows := []string{"a0", "a1", "a2", "a3", "b0", "d0"}
			for _, row := range rows {
				s.put(row, "v", 1)
			}
			s.advance(store.Absent, 7)
			u := s.open()
			run := func(u *instant.Unfrozen, die int) (*Manifest, *killing, error) {
				local, err := target.CreateLocal(s.out)
				if err != nil {
					t.Fatal(err)
				}
				defer local.Close()
				k := &killing{Local: local, die: die}
				m, err := Run(t.Context(), &RunOptions{
					Job: s.job, Source: u, Target: k, Parallelism: 1, Checkpoint: u.Name(), LogicalTime: time.Unix(1, 0), batchRows: 2,
				})
				return m, k, err
			}
			m, k, err := run(u, die)
			killed := k.dead
			if killed {
				again, nerr := instant.ReopenUnfrozen(s.Thawed, u.Name())
				if nerr != nil {
					t.Fatal(nerr)
				}
				s.put("a1", "later", s.now+1)
				s.advance(7, 9)
				if serr := s.mem.SplitRegion(t.Context(), "t", []byte("a2")); serr != nil {
					t.Fatal(serr)
				}
				m, _, err = run(again, 0)
				switch {
				case errors.Is(err, target.ErrExists): // it was published just before
					m, _, err = ReadRun(t.Context(), filepath.Join(s.out, "j"))
				case errors.Is(err, store.ErrUnsupported): // nothing was noted yet
					m, _, err = run(s.open(), 0)
					if err == nil && m.Offsets[0].Next != 9 {
						t.Errorf("died at %d: Got offsets %+v of a new run", die, m.Offsets)
					}
					m.Offsets[0].Next = 7
					m.TimeBound = s.now
				}
			}
			if err != nil {
				t.Fatalf("died at %d (%v): %v", die, k.steps, err)
			}
			if m.TimeBound != s.now || m.Offsets[0].Next != 7 {
				t.Errorf("died at %d: Got bound %d, offsets %+v", die, m.TimeBound, m.Offsets)
			}
			for _, format := range formats {
				if got := s.rows(m, format); len(got) != len(rows) {
					t.Errorf("died at %d: Got %q in %s, want rows %q", die, got, format, rows)
				}
			}
			if !killed {
				break
			}
		}
	}
}

// TestUnfrozenIncremental: increments are found by timestamps, and the manifest says
// what that cannot see.
func TestUnfrozenIncremental(t *testing.T) {
	t.Parallel()
	s := newUnfrozen(t, func(s *Spec) {
		s.Families, s.Incremental = []string{"f"}, Incremental{FullEvery: 10}
		s.Columns = append(s.Columns, columnar.ColumnSpec{Name: "op", From: "$op", Type: "string"})
	})
	s.put("a1", "old", 10)
	s.put("b1", "old", s.now-1)
	s.put("d1", "old", 10)
	run := func(hour int) (*Manifest, error) {
		return Run(t.Context(), &RunOptions{Job: s.job, Source: s.open(), StoreID: "cluster", LogicalTime: time.Unix(int64(hour), 0)})
	}
	first, err := run(1)
	if err != nil || first.increment() || first.Incremental == nil {
		t.Fatalf("Got %+v, %v", first, err)
	}
	bound := s.now
	s.put("b1", "new", s.now+1)
	s.put("c1", "new", s.now)
	s.put("c2", "late", s.now-1) // not seen
	gone := cell.Mutation{Table: "t", Row: []byte("d1")}
	gone.DeleteRow(cell.Latest) // not seen
	if _, err := s.mem.MutateRow(t.Context(), nil, &gone); err != nil {
		t.Fatal(err)
	}
	s.now += 100
	m, err := run(2)
	if err != nil {
		t.Fatal(err)
	}
	if d := jobstest.Diff([]string{"b1=new=upsert", "c1=new=upsert"}, s.rows(m, Parquet)); d != "" {
		t.Errorf("Rows (-want +got):\n%s", d)
	}
	if m.Incremental.Number != 1 || m.Incremental.Since != uint64(bound) || m.TimeBound != s.now {
		t.Errorf("Got %+v, bound %d", m.Incremental, m.TimeBound)
	}
	if !strings.Contains(m.Limits[len(m.Limits)-1], "deleted since") {
		t.Errorf("Got limits %q", m.Limits)
	}
	if _, err := Run(t.Context(), &RunOptions{Job: s.job, Source: s.open(), LogicalTime: time.Unix(3, 0)}); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("without the store's id: Got %v, want ErrUnsupported", err)
	}
	counters := newUnfrozen(t, func(s *Spec) {
		s.Incremental = Incremental{FullEvery: 10}
		s.Columns = append(s.Columns, columnar.ColumnSpec{Name: "op", From: "$op", Type: "string"})
	})
	_, err = Run(t.Context(), &RunOptions{Job: counters.job, Source: counters.open(), StoreID: "cluster"})
	if !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "family n") {
		t.Errorf("with counters: Got %v, want ErrUnsupported", err)
	}
}

// TestUnfrozenIncrementalScans: rows that have all columns since the run before are taken from
// the scan that finds them, others are read by themselves; all of them where the job wants
// more than their newest cells.
func TestUnfrozenIncrementalScans(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*Spec)
		scans  int // of the increment: one a region, and one a row that is read by itself
	}{
		"newest":     {func(*Spec) {}, 4 + 3},
		"conditions": {func(s *Spec) { s.Where = []columnar.Predicate{{Column: "q", Op: "!=", Value: "nothing"}} }, 4 + 6},
		"filter":     {func(s *Spec) { s.Filter = "PrefixFilter('')" }, 4 + 6},
	} {
		s := newUnfrozen(t, func(s *Spec) {
			yes := true
			s.Families, s.Incremental = []string{"f"}, Incremental{FullEvery: 10}
			s.Columns = append(s.Columns, columnar.ColumnSpec{Name: "r", From: "f:r", Type: "string", Nullable: &yes}, columnar.ColumnSpec{Name: "op", From: "$op", Type: "string"})
			tt.change(s)
		})
		write := func(row string, at cell.Timestamp, value string, columns ...string) {
			t.Helper()
			var ops []cell.Op
			for _, q := range columns {
				ops = append(ops, jobstest.PutOp("f", q, at, value))
			}
			jobstest.Mutate(t, s.mem, "t", row, ops...)
		}
		for _, row := range []string{"a1", "a2", "b1", "b2", "b3", "c1"} {
			write(row, 10, "old", "q", "r")
		}
		run := func(hour int, full bool) *Manifest {
			t.Helper()
			m, err := Run(t.Context(), &RunOptions{Job: s.job, Source: s.open(), StoreID: "cluster", LogicalTime: time.Unix(int64(hour), 0), Full: full, Parallelism: 1})
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		run(1, false)
		at := s.now + 1
		write("a1", at, "new", "q", "r")
		write("a2", at, "new", "q")
		write("b1", at, "new", "q", "r")
		jobstest.Mutate(t, s.mem, "t", "b1", cell.Op{Type: cell.OpDelete, Family: "f", Qualifier: []byte("r"), Time: at}) // the old one is seen again
		write("b3", at, "new", "q", "r")
		write("b3", at, "newer", "q")
		write("d1", at, "new", "q", "r")
		write("d2", at, "new", "r")
		s.now += 100
		scans := 0
		s.Before = func(int) { scans++ }
		got := s.rows(run(2, false), Parquet)
		s.Before = nil
		if scans != tt.scans {
			t.Errorf("%s: Got %d scans. Want %d", name, scans, tt.scans)
		}
		want := slices.DeleteFunc(s.rows(run(3, true), Parquet), func(row string) bool { return strings.HasPrefix(row, "b2") || strings.HasPrefix(row, "c1") })
		if len(got) != 6 {
			t.Errorf("%s: Got %q", name, got)
		}
		got = slices.DeleteFunc(got, func(row string) bool { return strings.HasSuffix(row, "=delete") }) // the conditions'
		if d := jobstest.Diff(want, got); d != "" {
			t.Errorf("%s: (-of a full run +of the increment):\n%s", name, d)
		}
	}
}

// TestUnfrozenJoin: a join of two tables says what it is, with every method.
func TestUnfrozenJoin(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"merge", "hash", "lookup"} {
		s := newUnfrozen(t, func(s *Spec) { s.Families = []string{"f"} })
		for _, row := range []string{"a1", "b1", "d1"} {
			s.put(row, "v", 1)
		}
		s.advance(store.Absent, 7)
		j, err := CompileJoin("pairs", &JoinSpec{
			Left: JoinSide{Job: "j"}, Right: JoinSide{Job: "j"}, Spec: join.Spec{On: []join.On{{Left: "key"}}, Columns: []join.Column{{Name: "key", From: "left.key"}}, Method: method}, Out: s.out,
		}, func(string) *Job { return s.job })
		if err != nil {
			t.Fatal(err)
		}
		u := s.open()
		s.put("c1", "late", s.now+1)
		m, err := RunJoin(t.Context(), &JoinOptions{Join: j, Source: u, Checkpoint: u.Name()})
		if err != nil {
			t.Fatal(err)
		}
		if m.Totals[0].Rows != 3 || m.Consistency != ConsistencyRow || m.TimeBound != s.now || len(m.Offsets) != 1 || len(m.Limits) < 3 {
			t.Errorf("%s: Got %+v", method, m)
		}
	}
}

// TestKeptRegions: what is noted of a region map makes it again.
func TestKeptRegions(t *testing.T) {
	t.Parallel()
	m, err := region.NewMap("t", []region.Info{{Table: "t", Stop: []byte("\x00\\")}, {Table: "t", Start: []byte("\x00\\")}})
	if err != nil {
		t.Fatal(err)
	}
	again, err := keptRegions("t", keepRegions(m))
	if err != nil || !slices.EqualFunc(m.Splits(), again.Splits(), slices.Equal[[]byte]) {
		t.Errorf("Got %v, %v", again, err)
	}
	for _, bad := range [][]string{{"b", "a"}, {""}, {`\x0`}} {
		if m, err := keptRegions("t", bad); !errors.Is(err, ErrManifest) {
			t.Errorf("%q: Got %v, %v", bad, m, err)
		}
	}
	for _, bad := range []string{"", "before-", "before-0", "before--1", "1", "live"} {
		if u, err := instant.ReopenUnfrozen(&jobstest.Thawed{Engine: jobstest.NewEngine(t)}, bad); !errors.Is(err, store.ErrInvalidArgument) {
			t.Errorf("%q: Got %v, %v", bad, u, err)
		}
	}
}

// TestUnfrozenIncrementOfCells: so are those of single cells, of which an increment has all
// of the rows that were changed.
func TestUnfrozenIncrementOfCells(t *testing.T) {
	t.Parallel()
	yes := true
	s := newUnfrozen(t, func(s *Spec) {
		s.Families, s.Incremental, s.Rows = []string{"f"}, Incremental{FullEvery: 10}, string(columnar.PerCell)
		s.Columns = []columnar.ColumnSpec{
			{Name: "key", From: "$row", Type: "string"},
			{Name: "op", From: "$op", Type: "string"},
			{Name: "q", From: "$qualifier", Type: "string", Nullable: &yes},
			{Name: "v", From: "$value", Type: "string"},
		}
	})
	const wide = 2*cellsPerRow + 1
	for _, row := range []string{"a1", "b1"} {
		m := cell.Mutation{Table: "t", Row: []byte(row)}
		for i := range wide {
			m.Put("f", fmt.Appendf(nil, "w%03d", i), 10, []byte("old"))
		}
		if _, err := s.mem.MutateRow(t.Context(), nil, &m); err != nil {
			t.Fatal(err)
		}
	}
	for hour, want := range []int64{2 * wide, wide + 1} {
		m, err := Run(t.Context(), &RunOptions{Job: s.job, Source: s.open(), StoreID: "cluster", LogicalTime: time.Unix(int64(hour), 0)})
		if err != nil || m.Totals[0].Rows != want || m.Incremental.Number != hour {
			t.Fatalf("Got %+v, %v, want %d rows", m, err, want)
		}
		s.put("b1", "new", s.now+1)
		s.now += 100
	}
}
