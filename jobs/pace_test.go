package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/jobs/join"
	"sluice/store"
)

func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPace(1000)
		begun := time.Now()
		var workers sync.WaitGroup
		for range 4 {
			workers.Go(func() {
				for range 10 {
					if err := p.wait(t.Context(), 250); err != nil {
						t.Error(err)
					}
				}
			})
		}
		workers.Wait()
		if got := time.Since(begun); got != 10*time.Second {
			t.Errorf("Got %v for 10,000 rows at 1,000 a second, want 10 s", got)
		}
		// What was not used is not made up for.
		time.Sleep(time.Hour) // on the bubble's clock
		begun = time.Now()
		for range 2 {
			if err := p.wait(t.Context(), 500); err != nil {
				t.Error(err)
			}
		}
		if got := time.Since(begun); got != time.Second {
			t.Errorf("Got %v for 1,000 rows after a pause, want 1 s", got)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("no more")
		time.AfterFunc(time.Second, func() { cancel(cause) })
		if err := p.wait(ctx, 1_000_000); !errors.Is(err, cause) {
			t.Errorf("Got %v from a wait that was cancelled", err)
		}
	})
}

func TestNoPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if err := newPace(0).wait(t.Context(), 1<<40); err != nil || time.Since(begun) != 0 {
			t.Errorf("Got %v after %v without a bound", err, time.Since(begun))
		}
	})
}

// TestPaceOfRowsRead: what is bounded is rows that are read, also those that conditions
// leave out; with rows: cell, cells.
func TestPaceOfRowsRead(t *testing.T) {
	t.Parallel()
	src := jobstest.NewMemory()
	var rows []cell.Row
	for i := range 500 {
		rows = append(rows, jobstest.Row(fmt.Sprintf("r%03d", i), jobstest.Put("f", "n", 1, "1"), jobstest.Put("f", "v", 1, "v")))
	}
	src.Add("t", []store.FamilyDescriptor{store.NewFamily("f")}, []string{"r1", "r3"}, rows)
	columns := []columnar.ColumnSpec{{Name: "key", From: "$row", Type: "string"}, {Name: "n", From: "f:n", Type: "int64"}}
	cells := []columnar.ColumnSpec{{Name: "key", From: "$row", Type: "string"}, {Name: "value", From: "$value", Type: "string"}}
	for name, c := range map[string]struct {
		spec *Spec
		rows int64
		want time.Duration
	}{
		"all":     {&Spec{Columns: columns}, 500, 5 * time.Second},
		"none":    {&Spec{Columns: columns, Where: []columnar.Predicate{{Column: "n", Op: ">", Value: "1"}}}, 0, 5 * time.Second},
		"cells":   {&Spec{Columns: cells, Rows: "cell"}, 1000, 10 * time.Second},
		"sorted":  {&Spec{Columns: columns, Sort: []SortColumn{{Column: "n"}}}, 500, 5 * time.Second},
		"divided": {&Spec{Columns: columns, PartitionBy: []string{"n"}}, 500, 5 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			c.spec.Table, c.spec.RowsPerSecond, c.spec.Formats = "t", 100, []string{Arrow} // zstd's encoders are shared between bubbles
			begun := time.Now()
			m, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, "j", c.spec, nil), Source: src, Out: t.TempDir(), Parallelism: 2})
			if err != nil {
				t.Fatal(err)
			}
			if got := time.Since(begun).Round(10 * time.Millisecond); got != c.want || m.Totals[0].Rows != c.rows {
				t.Errorf("%s: Got %v for %d rows, want %v for %d", name, got, m.Totals[0].Rows, c.want, c.rows)
			}
		})
	}
}

// TestPaceOfJoin: a join reads each table at the pace of its job; a side that is looked
// up, only the rows that are asked for.
func TestPaceOfJoin(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]time.Duration{join.Merge: 9 * time.Second, join.Hash: 9 * time.Second, join.Lookup: 7*time.Second + 450*time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			all := map[string]*Job{}
			for name, job := range joinJobs(t) {
				spec := job.spec
				spec.RowsPerSecond = map[string]int{"views": 60, "users": 20}[name] // of 300 and 80 rows
				all[name] = mustCompile(t, name, &spec, nil)
			}
			spec := joinSpec(join.Inner, method)
			spec.TargetFileBytes, spec.Formats = 0, []string{Arrow}
			j, err := CompileJoin("j", spec, func(name string) *Job { return all[name] })
			if err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			if _, err := RunJoin(t.Context(), &JoinOptions{Join: j, Source: joinSource(300), Out: t.TempDir()}); err != nil {
				t.Fatal(err)
			}
			if got := time.Since(begun).Round(10 * time.Millisecond); got != want { // a lock may be waited for
				t.Errorf("%s: Got %v, want %v", method, got, want)
			}
		})
	}
}
