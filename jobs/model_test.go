package jobs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/jobs/work"
	"sluice/store"
	"sluice/store/pebblestore"
)

// movingTable is a table of an embedded store, and what it holds by a model that
// knows neither regions nor files.
type movingTable struct {
	db    *pebblestore.DB
	name  string
	model map[string]map[string]string // values by row and column
	time  cell.Timestamp               // of the last mutation
	moved map[string]int               // what was done, by name
}

// step is one thing that happens to a table.
type step struct {
	what   string // put, count, delete, delete row, split, merge, rewrite, flush
	row    string
	column string // of family f
	value  string
}

func drawStep(rt *rapid.T) step {
	return step{
		what:   rapid.SampledFrom([]string{"put", "put", "put", "count", "delete", "delete row", "split", "split", "merge", "rewrite", "flush"}).Draw(rt, "what"),
		row:    rapid.StringMatching(`[a-d][0-3]`).Draw(rt, "row"),
		column: rapid.SampledFrom([]string{"p", "q"}).Draw(rt, "column"),
		value:  rapid.SampledFrom([]string{"1", "2", "a/b", "=", "%2F"}).Draw(rt, "value"),
	}
}

// take makes a step, in the table and in the model.
func (m *movingTable) take(t *testing.T, s *step) error {
	ctx := t.Context()
	m.moved[s.what]++
	m.time++
	mutation := &cell.Mutation{Table: m.name, Row: []byte(s.row)}
	row := m.model[s.row]
	if row == nil {
		row = map[string]string{}
		m.model[s.row] = row
	}
	switch s.what {
	case "put":
		mutation.Put("f", []byte(s.column), m.time, []byte(s.value))
		row[s.column] = s.value
	case "count":
		mutation.Increment("n", []byte("q"), 1)
		n, _ := strconv.Atoi(row["n"])
		row["n"] = strconv.Itoa(n + 1)
	case "delete":
		mutation.DeleteColumn("f", []byte(s.column), m.time)
		delete(row, s.column)
	case "delete row":
		mutation.DeleteFamily("f", m.time)
		mutation.DeleteColumn("n", []byte("q"), cell.Latest)
		delete(m.model, s.row)
	case "split":
		if err := m.db.SplitRegion(ctx, m.name, []byte(s.row)); !errors.Is(err, store.ErrInvalidArgument) { // a region begins there
			return err
		}
		return nil
	case "merge":
		regions, err := m.db.Regions(ctx, m.name)
		if err != nil || regions.Len() == 1 {
			return err
		}
		i := min(regions.Locate([]byte(s.row)), regions.Len()-2)
		return m.db.MergeRegions(ctx, m.name, regions.At(i).Start, regions.At(i+1).Start)
	case "rewrite":
		return m.db.MajorCompact(ctx, m.name)
	default:
		return m.db.Flush(ctx)
	}
	_, err := m.db.MutateRow(ctx, nil, mutation)
	return err
}

// rows are what an export of the table holds now.
func (m *movingTable) rows() [][]string {
	var rows [][]string
	for key, row := range m.model {
		if len(row) == 0 {
			continue
		}
		out := []string{key}
		for _, column := range []string{"p", "q", "n"} {
			v, ok := row[column]
			if !ok {
				v = "-"
			}
			out = append(out, v)
		}
		rows = append(rows, out)
	}
	slices.SortFunc(rows, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return rows
}

// newMovingTable makes a table t with the number n, with a family f and a COUNTER family n,
// and returns it with its schema and what takes steps with it.
func newMovingTable(t *testing.T, rt *rapid.T, db *pebblestore.DB, n int) (m *movingTable, d *store.TableDescriptor, take func([]step)) {
	counter := store.NewFamily("n")
	counter.Counter = true
	d = &store.TableDescriptor{Name: fmt.Sprint("t", n), Families: []store.FamilyDescriptor{store.NewFamily("f"), counter}}
	if err := db.CreateTable(t.Context(), d, nil); err != nil {
		rt.Fatal(err)
	}
	m = &movingTable{db: db, name: d.Name, model: map[string]map[string]string{}, time: 1000, moved: map[string]int{}}
	return m, d, func(steps []step) {
		for i := range steps {
			if err := m.take(t, &steps[i]); err != nil {
				rt.Fatalf("%+v: %v", steps[i], err)
			}
		}
	}
}

// I5: over random histories, an export is what the table held when its snapshot was
// taken, while the table is written, split, merged and rewritten under it.
func TestExportIsModelWhileTheTableMoves(t *testing.T) {
	t.Parallel()
	dir, db := t.TempDir(), jobstest.OpenPebble(t, t.TempDir())
	during := map[string]int{}
	cases := 0
	rapid.Check(t, func(rt *rapid.T) {
		cases++
		m, d, take := newMovingTable(t, rt, db, cases)
		steps := rapid.Custom(drawStep)
		for run := range rapid.IntRange(1, 2).Draw(rt, "runs") {
			take(rapid.SliceOfN(steps, 0, 40).Draw(rt, "before"))
			spec := &Spec{
				Table: d.Name, TargetFileBytes: rapid.SampledFrom([]int64{0, 1}).Draw(rt, "target bytes"),
				Columns: []columnar.ColumnSpec{
					{Name: "key", From: "$row", Type: "string"},
					{Name: "p", From: "f:p", Type: "string"},
					{Name: "q", From: "f:q", Type: "string"},
					{Name: "n", From: "n:q", Type: "int64"},
				},
			}
			if rapid.Bool().Draw(rt, "partitions") {
				spec.PartitionBy = []string{"p"}
			}
			job := mustCompile(t, "j", spec, d)
			snapshot, err := db.Snapshot(t.Context())
			if err != nil {
				rt.Fatal(err)
			}
			want := m.rows()
			rest := rapid.SliceOfN(steps, 0, 20).Draw(rt, "during")
			var failed error
			out := filepath.Join(dir, fmt.Sprint(cases, "-", run))
			published, err := Run(t.Context(), &RunOptions{
				Job: job, Source: snapshot, Out: out, Parallelism: rapid.IntRange(1, 3).Draw(rt, "parallelism"), batchRows: 1,
				Progress: func(work.Progress) { // by one goroutine at a time
					if len(rest) > 0 && failed == nil {
						during[rest[0].what]++
						failed = m.take(t, &rest[0])
						rest = rest[1:]
					}
				},
			})
			if err := errors.Join(err, failed, snapshot.Close()); err != nil {
				rt.Fatal(err)
			}
			take(rest) // for which the run was too short
			r, err := Verify(t.Context(), filepath.Join(out, "j"))
			if err != nil || !r.OK() {
				rt.Fatalf("verify: %v, %v", err, r.Err())
			}
			got := readFormat(t, r.Dir, published, Parquet)
			slices.SortStableFunc(got, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
			if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
				rt.Fatalf("(-model +export):\n%s", d)
			}
			if err := os.RemoveAll(out); err != nil {
				rt.Fatal(err)
			}
		}
		if err := errors.Join(db.DisableTable(t.Context(), d.Name), db.DropTable(t.Context(), d.Name)); err != nil {
			rt.Fatal(err)
		}
	})
	for _, what := range []string{"put", "count", "delete", "delete row", "split", "merge", "rewrite", "flush"} {
		if cases >= 100 && during[what] == 0 && !t.Failed() { // rapid.checks may ask for fewer
			t.Errorf("nothing was done during a run of: %s (%v)", what, during)
		}
	}
}
