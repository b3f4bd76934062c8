package jobs

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/jobs/jobstest"
	"sluice/jobs/join"
	"sluice/store"
)

// TestRebuildIsNotExported: what an unfinished rebuild has counted so far is in no export and
// no join of the table, whether it was begun before or, where nothing freezes, while the table
// is read.
func TestRebuildIsNotExported(t *testing.T) {
	t.Parallel()
	const rebuilt = "n~p~1"
	for name, begins := range map[string]int{"frozen": 0, "before": 0, "meanwhile": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := jobstest.OpenMemory(t, "m")
			count := func(family, row string, n int64) {
				jobstest.Mutate(t, e, "t", row, cell.Op{Type: cell.OpIncrement, Family: family, Qualifier: []byte("q"), Time: 1, Delta: n})
			}
			count("n", "a", 5)
			count("n", "z", 7)
			begin := func() {
				d, err := e.Table(t.Context(), "t")
				if err != nil {
					t.Fatal(err)
				}
				d = d.Clone()
				f := store.NewFamily(rebuilt)
				f.Counter = true
				d.Families = append(d.Families, f)
				if err := e.AlterTable(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				for _, row := range []string{"a", "y", "z"} {
					count(rebuilt, row, 1)
				}
			}
			if begins == 0 {
				begin()
			}
			open := func() instant.Source {
				if name == "frozen" {
					return jobstest.SnapshotOf(t, e)
				}
				thawed := &jobstest.Thawed{Engine: e, Before: func(scan int) {
					if scan == begins {
						begin()
					}
				}}
				u, err := instant.OpenUnfrozen(t.Context(), thawed, nil)
				if err != nil {
					t.Fatal(err)
				}
				return u
			}
			counts := mustCompile(t, "counts", &Spec{Table: "t", Rows: "cell", Columns: []columnar.ColumnSpec{
				{Name: "row", From: "$row", Type: "string"},
				{Name: "n", From: "$value", Type: "int64", Coding: "int64be"},
			}}, nil)
			keys := mustCompile(t, "keys", &Spec{Table: "t", Columns: []columnar.ColumnSpec{{Name: "row", From: "$row", Type: "string"}}}, nil)
			out := t.TempDir()
			m, err := Run(t.Context(), &RunOptions{Job: counts, Source: open(), Out: out, Parallelism: 1})
			if err != nil {
				t.Fatal(err)
			}
			want := [][]string{{"a", "5"}, {"z", "7"}}
			if d := cmp.Diff(want, readFormat(t, filepath.Join(out, runDir("counts", m.LogicalTime)), m, Parquet)); d != "" {
				t.Errorf("export (-want +got)\n%s", d)
			}
			if name == "meanwhile" {
				return
			}
			for i, method := range []string{join.Merge, join.Lookup} {
				j, err := CompileJoin("j", &JoinSpec{
					Left: JoinSide{Job: "keys"}, Right: JoinSide{Job: "counts"}, Spec: join.Spec{Method: method, On: []join.On{{Left: "row"}}},
				}, func(name string) *Job { return map[string]*Job{"keys": keys, "counts": counts}[name] })
				if err != nil {
					t.Fatal(err)
				}
				m, err := RunJoin(t.Context(), &JoinOptions{Join: j, Source: open(), Out: out, LogicalTime: time.Unix(int64(i), 0)})
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(want, readFormat(t, filepath.Join(out, runDir("j", m.LogicalTime)), m, Parquet)); d != "" {
					t.Errorf("%s join (-want +got)\n%s", method, d)
				}
			}
		})
	}
}
