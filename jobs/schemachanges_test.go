package jobs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/jobs/target"
)

// TestColumnChanges: what becomes of columns, and which of it readers of both runs get
// along with, in files and in an Iceberg table.
func TestColumnChanges(t *testing.T) {
	t.Parallel()
	parse := func(text string) (all []publishedColumn) {
		for _, c := range strings.Fields(text) {
			p := publishedColumn{Column: columnar.Column{Nullable: true}}
			c, p.partition = strings.CutSuffix(c, "/")
			c, not := strings.CutSuffix(c, "!")
			p.Nullable = !not
			name, of, _ := strings.Cut(c, ":")
			var ok bool
			p.Name = name
			if p.Type, ok = columnar.ParseType(of); !ok {
				t.Fatalf("%q is no type", of)
			}
			all = append(all, p)
		}
		return all
	}
	for name, tt := range map[string]struct {
		was, is, want string
		refused       string // by compatible: "", "all" (with Iceberg as well), or "iceberg"
	}{
		"the same":             {"a:string! b:int64", "a:string! b:int64", "", ""},
		"a new column":         {"a:string", "a:string b:int64", "column b is new, int64, nullable", ""},
		"one before it":        {"a:string", "b:int64 a:string", "column b is new, int64, nullable", ""},
		"one without nulls":    {"a:string", "a:string b:int64!", "column b is new, int64, not nullable (runs before have no values of it, so it must be nullable)", "all"},
		"one that divides":     {"a:string", "a:string b:int64/", "column b is new, int64, nullable, in the names of directories (it divides the files otherwise)", "all"},
		"one that is gone":     {"a:string b:int64", "a:string", "column b, which was int64, nullable, is gone (who reads it finds it no more; one of another name is another one)", "all"},
		"another name":         {"a:string", "b:string", "column a, which was string, nullable, is gone (who reads it finds it no more; one of another name is another one); column b is new, string, nullable", "all"},
		"another order":        {"a:string b:int64 c:bool", "c:bool a:string b:int64", "their order was a, b, c, and is c, a, b", ""},
		"another type":         {"a:int64", "a:float64", "column a was int64, nullable, and is float64, nullable (it is of another type)", "all"},
		"text of JSON":         {"a:json", "a:string", "column a was json, nullable, and is string, nullable (it is of another type)", "all"},
		"values of a map":      {"a:map(int64)", "a:map(float64)", "column a was map(int64), nullable, and is map(float64), nullable (it is of another type)", "all"},
		"a decimal of a count": {"a:int64", "a:decimal(38,0)", "column a was int64, nullable, and is decimal(38,0), nullable (it is of another type)", "all"},
		"more digits":          {"a:decimal(10,2)!", "a:decimal(20,2)!", "column a was decimal(10,2), not nullable, and is decimal(20,2), not nullable", "iceberg"},
		"fewer digits":         {"a:decimal(10,2)", "a:decimal(9,2)", "column a was decimal(10,2), nullable, and is decimal(9,2), nullable (it holds fewer digits)", "all"},
		"another scale":        {"a:decimal(10,2)", "a:decimal(12,4)", "column a was decimal(10,2), nullable, and is decimal(12,4), nullable (its scale is another one)", "all"},
		"nulls":                {"a:int64!", "a:int64", "column a was int64, not nullable, and is int64, nullable", ""},
		"no nulls":             {"a:int64", "a:int64!", "column a was int64, nullable, and is int64, not nullable (runs before have nulls)", "all"},
		"into directories":     {"a:string b:int64", "a:string b:int64/", "column b was int64, nullable, and is int64, nullable, in the names of directories (it moves between the files and the names of their directories)", "all"},
		"out of them":          {"b:int64/ a:string", "b:int64 a:string", "column b was int64, nullable, in the names of directories, and is int64, nullable (it moves between the files and the names of their directories)", "all"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, iceberg := range []bool{false, true} {
				changes := columnChanges(parse(tt.was), parse(tt.is), iceberg)
				var all []string
				refused := false
				for i := range changes {
					all = append(all, changes[i].String())
					refused = refused || changes[i].Why != ""
				}
				want := tt.want
				if iceberg && tt.refused == "iceberg" {
					want += " (in an Iceberg table a column of another type is another column)"
				}
				if got := strings.Join(all, "; "); got != want || refused != (tt.refused == "all" || iceberg && tt.refused == "iceberg") {
					t.Errorf("iceberg %t: Got %q, refused %t. Want %q, %s", iceberg, got, refused, want, tt.refused)
				}
			}
		})
	}
}

// changing is the access log's job with a rule and other columns.
func changing(t *testing.T, rule string, iceberg bool, change func(s *Spec)) *Job {
	t.Helper()
	s := accessLog()
	s.SchemaChanges, s.Iceberg = rule, iceberg
	if change != nil {
		change(s)
	}
	return mustCompile(t, "j", s, nil)
}

func withoutStatus(s *Spec) { s.Columns = append(s.Columns[:3:3], s.Columns[4]) }

func withAgent(s *Spec) {
	s.Columns = append(s.Columns, columnar.ColumnSpec{Name: "agent", From: "l:agent", Type: "string"})
}

// TestSchemaChanges: a run that its job's rule refuses reads nothing and publishes nothing; one
// by another rule is what those after it are compared with.
func TestSchemaChanges(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	day := 0
	var read atomic.Bool
	run := func(job *Job, rule string) (*Manifest, error) {
		day++
		read.Store(false)
		src := accessLogSource(10)
		src.Scanned = func([]byte) error { read.Store(true); return nil }
		return Run(t.Context(), &RunOptions{
			Job: job, Source: src, Out: out, LogicalTime: time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC), SchemaChanges: rule, Checkpoint: "c",
		})
	}
	good := func(job *Job, rule string) *Manifest {
		t.Helper()
		m, err := run(job, rule)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	refused := func(job *Job, rule, want string) {
		t.Helper()
		m, err := run(job, rule)
		changed := (*SchemaChangeError)(nil)
		if m != nil || !errors.As(err, &changed) || !strings.Contains(err.Error(), want) || errors.Is(err, ErrResumable) {
			t.Errorf("Got %+v, %v. Want an error with %q", m, err, want)
		}
		if read.Load() {
			t.Error("it has read rows")
		}
		if left, err := os.ReadDir(filepath.Join(out, "_tmp")); err == nil && len(left) > 0 {
			t.Errorf("it has left %v", left)
		}
	}
	first := good(changing(t, ChangesNone, false, nil), "")
	refused(changing(t, ChangesNone, false, withAgent), "", "export j: its columns are not those of run "+first.RunID+
		" for 2026-01-01T00:00:00Z, the latest (schema_changes: none): column agent is new, string, nullable. Change the columns back, or publish them once with export run --schema-changes any: the runs after that one are compared with it")
	good(changing(t, ChangesNone, false, nil), "")
	good(changing(t, ChangesCompatible, false, withAgent), "")
	refused(changing(t, ChangesCompatible, false, withoutStatus), "", "(schema_changes: compatible): column status, which was int64, nullable, is gone")
	good(changing(t, ChangesCompatible, false, withoutStatus), ChangesAny)
	good(changing(t, ChangesNone, false, withoutStatus), "")
	good(changing(t, "", false, withAgent), "")
	refused(changing(t, ChangesAny, false, nil), ChangesNone, "column agent, which was string, nullable, is gone")
	latest := filepath.Join(out, "j", "run=20260108T000000Z-"+runID("j", time.Date(2026, 1, 8, 0, 0, 0, 0, time.UTC)))
	if err := os.RemoveAll(latest); err != nil {
		t.Fatal(err)
	}
	if _, err := run(changing(t, ChangesNone, false, nil), ""); !errors.Is(err, target.ErrNotFound) || !strings.Contains(err.Error(), "with --schema-changes any a run by hand is compared with none") {
		t.Errorf("Got %v where the latest run is gone", err)
	}
	good(changing(t, ChangesNone, false, nil), ChangesAny)
}

// TestSchemaChangesOfTable: the columns of an Iceberg table are compared, too, where it is not
// the latest run.
func TestSchemaChangesOfTable(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	run := func(day int, job *Job) (*Manifest, error) {
		return Run(t.Context(), &RunOptions{Job: job, Source: accessLogSource(10), Out: out, LogicalTime: time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC)})
	}
	table, err := run(1, changing(t, ChangesNone, true, nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run(2, changing(t, "", false, withoutStatus)); err != nil {
		t.Fatal(err)
	}
	_, err = run(3, changing(t, ChangesCompatible, true, withoutStatus))
	want := "run " + table.RunID + " for 2026-01-01T00:00:00Z, which the Iceberg table is (schema_changes: compatible): column status"
	if changed := (*SchemaChangeError)(nil); !errors.As(err, &changed) || !changed.Iceberg || !strings.Contains(err.Error(), want) {
		t.Errorf("Got %v. Want %q", err, want)
	}
	if _, err := run(3, changing(t, ChangesCompatible, true, func(s *Spec) { withoutStatus(s); s.SchemaChanges = "" })); err != nil {
		t.Error(err)
	}
	if _, err := run(4, changing(t, ChangesNone, true, withoutStatus)); err != nil {
		t.Errorf("Got %v, and the table has these columns", err)
	}
	if err := os.RemoveAll(filepath.Join(out, "j", "run=20260104T000000Z-"+runID("j", time.Date(2026, 1, 4, 0, 0, 0, 0, time.UTC)))); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(out, "j", LatestName)); err != nil {
		t.Fatal(err)
	}
	if _, err := run(5, changing(t, ChangesNone, true, withoutStatus)); !errors.Is(err, target.ErrNotFound) || !strings.Contains(err.Error(), "which the Iceberg table is") {
		t.Errorf("Got %v where the run that the table is is gone", err)
	}
}

// TestSchemaChangesOfJoin: a join is compared as a job is.
func TestSchemaChangesOfJoin(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	run := func(day int, s *JoinSpec, rule string) error {
		_, err := RunJoin(t.Context(), &JoinOptions{
			Join: mustCompileJoin(t, s), Source: joinSource(10), Out: out, SchemaChanges: rule, LogicalTime: time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC),
		})
		return err
	}
	spec := joinSpec("", "")
	spec.SchemaChanges = ChangesCompatible
	if err := run(1, spec, ""); err != nil {
		t.Fatal(err)
	}
	spec.Columns = spec.Columns[:3]
	err := run(2, spec, "")
	if changed := (*SchemaChangeError)(nil); !errors.As(err, &changed) || !strings.Contains(err.Error(), "column country, which was string, nullable, is gone") || !strings.Contains(err.Error(), "export join --schema-changes any") {
		t.Errorf("Got %v", err)
	}
	if err := run(2, spec, ChangesAny); err != nil {
		t.Error(err)
	}
	if err := run(3, spec, ""); err != nil {
		t.Error(err)
	}
}

// TestSchemaChangesRule: what is no rule is a mistake, and a rule does not change what files
// hold: increments and runs that were cut off go on.
func TestSchemaChangesRule(t *testing.T) {
	t.Parallel()
	s := accessLog()
	s.SchemaChanges = "some"
	if _, err := Compile("j", s, nil); err == nil || !strings.Contains(err.Error(), `schema_changes: "some" is not any, compatible or none`) {
		t.Errorf("Got %v", err)
	}
	js := joinSpec("", "")
	js.SchemaChanges = "some"
	all := joinJobs(t)
	if _, err := CompileJoin("j", js, func(name string) *Job { return all[name] }); err == nil || !strings.Contains(err.Error(), `schema_changes: "some"`) {
		t.Errorf("Got %v", err)
	}
	var jobs, joins []string
	for _, rule := range []string{"", ChangesNone} {
		d, err := changing(t, rule, false, nil).definition("v")
		js.SchemaChanges = rule
		e, joinErr := mustCompileJoin(t, js).definition("v")
		if err := errors.Join(err, joinErr); err != nil {
			t.Fatal(err)
		}
		jobs, joins = append(jobs, d), append(joins, e)
	}
	if jobs[0] != jobs[1] || joins[0] != joins[1] {
		t.Errorf("Got definitions %v and %v", jobs, joins)
	}
}

// TestSchemaChangesIncremental: of a chain the run before is the latest, an increment too.
func TestSchemaChangesIncremental(t *testing.T) {
	t.Parallel()
	db := jobstest.OpenPebble(t, t.TempDir())
	jobstest.CreateTable(t, db, "t")
	out, at := t.TempDir(), time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
	run := func(columns ...columnar.ColumnSpec) (*Manifest, error) {
		job := mustCompile(t, "j", &Spec{
			Table: "t", Formats: []string{Parquet}, Families: []string{"f"}, Incremental: Incremental{FullEvery: 5}, SchemaChanges: ChangesCompatible,
			Columns: append([]columnar.ColumnSpec{{Name: "key", From: "$row", Type: "string"}, {Name: "op", From: "$op", Type: "string"}}, columns...),
		}, nil)
		at = at.Add(time.Hour)
		jobstest.Mutate(t, db, "t", at.String(), jobstest.PutOp("f", "a", cell.Latest, "v"))
		if err := HoldChanges(t.Context(), job, db, at); err != nil {
			t.Fatal(err)
		}
		return Run(t.Context(), &RunOptions{
			Job: job, Source: jobstest.SnapshotOf(t, db), Out: out, Holder: db, StoreID: "s", LogicalTime: at, Now: func() time.Time { return at },
		})
	}
	a := columnar.ColumnSpec{Name: "a", From: "f:a", Type: "string"}
	for i, columns := range [][]columnar.ColumnSpec{{}, {}, {a}, {a}} {
		m, err := run(columns...)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := m.increment(), i%2 == 1; got != want { // a new column makes the next one full
			t.Errorf("run %d: Got an increment %t, want %t", i, got, want)
		}
	}
	if m, err := run(); !errors.As(err, new(*SchemaChangeError)) {
		t.Errorf("Got %+v, %v", m, err)
	}
}
