package tables

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/jobs/instant"
	"sluice/jobs/jobstest"
	"sluice/store"
	"sluice/store/memstore"
)

// TestFamilyAddedMeanwhile: a table of an engine that freezes nothing gets a family while it
// is read, as from a rebuild of counters on HBase. What is read is what it had before.
func TestFamilyAddedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(t *testing.T, e *memstore.Store, s instant.Source){
		"count": func(t *testing.T, _ *memstore.Store, s instant.Source) {
			got, err := Count(t.Context(), &CountOptions{Source: s, Table: "t", Parallelism: 1})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff([]FamilyCounts{{"f", Counts{2, 2, 48}}, {"g", Counts{}}, {"n", Counts{}}}, got.Families); d != "" || got.Rows != 2 {
				t.Errorf("%d rows (-want +got)\n%s", got.Rows, d)
			}
		},
		"copy": func(t *testing.T, e *memstore.Store, s instant.Source) {
			jobstest.CreateTable(t, e, "into")
			got, err := Copy(t.Context(), &CopyOptions{Source: s, Table: "t", To: e, Into: "into", Visible: true, Parallelism: 1})
			if err != nil || got.Cells != 2 {
				t.Errorf("Got %+v, %v. Want 2 cells", got, err)
			}
		},
		"compare": func(t *testing.T, e *memstore.Store, s instant.Source) {
			jobstest.CreateTable(t, e, "other", "m")
			for _, row := range []string{"a", "z"} {
				jobstest.Mutate(t, e, "other", row, jobstest.PutOp("f", "q", 1, "1"))
			}
			got, err := Compare(t.Context(), &CompareOptions{Left: s, Right: s, LeftTable: "t", RightTable: "other", Parallelism: 1})
			if err != nil || !got.Equal() || got.Same != 2 {
				t.Errorf("Got %+v, %v. Want two rows that are the same", got, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := jobstest.OpenMemory(t, "m")
			for _, row := range []string{"a", "z"} {
				jobstest.Mutate(t, e, "t", row, jobstest.PutOp("f", "q", 1, "1"))
			}
			d, err := e.Table(t.Context(), "t")
			if err != nil {
				t.Fatal(err)
			}
			d = d.Clone()
			d.Families = append(d.Families, store.NewFamily("fnew"))
			thawed := &jobstest.Thawed{Engine: e, Before: func(scan int) {
				if scan == 2 {
					if err := e.AlterTable(t.Context(), d); err != nil {
						t.Error(err)
					}
					jobstest.Mutate(t, e, "t", "z", jobstest.PutOp("fnew", "q", 1, "1"))
				}
			}}
			s, err := instant.OpenUnfrozen(t.Context(), thawed, nil)
			if err != nil {
				t.Fatal(err)
			}
			use(t, e, s)
		})
	}
}
