//go:build integration

package integration

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/jobs"
	"sluice/jobs/columnar"
	"sluice/jobs/target"
)

// TestIcebergIncrements: increments of a job are snapshots, of which readers that are none of
// ours, one that goes by Iceberg's specification, DuckDB and, in make soak, Spark, get the table
// as it was at each run: of rows
// that were changed several times, deleted and put again, of an increment of nothing and of one
// in which all is gone; with partitions, sorted, and of cells.
func TestIcebergIncrements(t *testing.T) {
	python(t)
	for name, spec := range map[string]jobs.Spec{
		"rows":       {Formats: []string{jobs.Parquet, jobs.Arrow}},
		"partitions": {Formats: []string{jobs.Parquet}, PartitionBy: []string{"run"}},
		"sorted":     {Formats: []string{jobs.Parquet}, Sort: []jobs.SortColumn{{Column: "run"}}},
		"cells":      {Formats: []string{jobs.Parquet}, Rows: string(columnar.PerCell)},
		"bytes":      {Formats: []string{jobs.Parquet}, Columns: []columnar.ColumnSpec{{Name: `k'e"y`, From: "$row", Type: "bytes"}}},
	} {
		t.Run(name, func(t *testing.T) {
			spec.Iceberg, spec.Keep = true, jobs.Keep{Runs: 3}
			c := newChain(t, spec)
			var want []any // of each snapshot
			run := func(number int, full bool) {
				t.Helper()
				c.run(number, full)
				rows := []any{}
				for _, row := range c.rows(spec.Rows) {
					rows = append(rows, row)
				}
				want = append(want, rows)
			}
			run(0, false) // of an empty table
			c.change(map[string]int{"a": 1, "b": 1, "c": 2, "d": 1, "e": 1, "f": 2})
			run(0, true)
			c.change(map[string]int{"a": 2, "b": 0, "g": 3, "e": 7})
			run(1, false)
			run(2, false) // of nothing
			c.change(map[string]int{"a": 5, "b": 4, "c": 0, "g": 0})
			run(3, false)
			c.readIceberg(want)
			c.change(map[string]int{"a": 0, "b": 0, "c": 0, "d": 0, "e": 0, "f": 0})
			run(4, false) // all is gone
			c.change(map[string]int{"z": 1, "a": 1})
			run(5, false)
			run(0, true)
			c.change(map[string]int{"z": 2})
			run(1, false)
			c.readIceberg(want)
			tg, err := target.OpenLocal(c.job.Out())
			if err != nil {
				t.Fatal(err)
			}
			defer tg.Close()
			if _, err := jobs.Collect(t.Context(), &jobs.CollectOptions{Target: tg, Keep: map[string]jobs.Keep{"j": spec.Keep}}); err != nil {
				t.Fatal(err)
			}
			c.readIceberg(want[1:]) // the newest 3, and what they go on from
		})
	}
}

// TestIcebergRandomIncrements is TestIcebergIncrements of random changes.
func TestIcebergRandomIncrements(t *testing.T) {
	python(t)
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			spec := jobs.Spec{Formats: []string{jobs.Parquet}, Iceberg: true}
			if seed%2 == 1 {
				spec.PartitionBy = []string{"run"}
			}
			c := newChain(t, spec)
			number, want := 0, []any{}
			for i := range 24 {
				changed := map[string]int{}
				for range r.IntN(12) {
					changed[string(rune('a'+r.IntN(8)))] = max(0, r.IntN(9)-3)
				}
				c.change(changed)
				full := i == 0 || r.IntN(8) == 0
				if number++; full || number == 10 {
					number = 0
				}
				c.run(number, full)
				rows := []any{}
				for _, row := range c.rows("") {
					rows = append(rows, row)
				}
				want = append(want, rows)
			}
			c.readIceberg(want)
		})
	}
}

// rows are the rows of the table as a run of the job has them.
func (c *chain) rows(perRow string) (rows [][]any) {
	for _, row := range slices.Sorted(maps.Keys(c.table)) {
		n := c.table[row]
		if perRow == string(columnar.PerCell) {
			rows = append(rows, []any{row, "put", "j", fmt.Sprintf(`{"n":%d}`, n)}, []any{row, "put", "n", fmt.Sprint(n)})
			continue
		}
		rows = append(rows, []any{row, "upsert", float64(n), fmt.Sprintf(`{"n":%d}`, n)})
	}
	return rows
}

// readIceberg reads the snapshots of the job's table, whose rows must be those.
func (c *chain) readIceberg(want []any) {
	c.t.Helper()
	for name, script := range map[string][]string{
		"specification": {"icebergscan.py"}, "DuckDB": {"icebergduckdb.py"}, "Spark": {"icebergspark.py", "--snapshots"},
	} {
		c.t.Run(name, func(t *testing.T) {
			var got []any
			runReader(t, &got, append(script, c.job.Out(), "j")...)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
