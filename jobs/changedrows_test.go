package jobs

import (
	"context"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/store"
)

// recordedScans is a snapshot that notes which of its scans are of all times.
type recordedScans struct {
	store.Snapshot
	mu         sync.Mutex // guards below
	all, newer int
}

func (r *recordedScans) Scan(ctx context.Context, s *store.Scan) store.Scanner {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case s.Table != "t":
	case s.Time == nil:
		r.all++
	default:
		r.newer++
	}
	return r.Snapshot.Scan(ctx, s)
}

func (r *recordedScans) ChangedRows(ctx context.Context, table string, families []string, rows cell.Range, since uint64) iter.Seq2[store.ChangedRow, error] {
	return r.Snapshot.(store.ChangeReader).ChangedRows(ctx, table, families, rows, since)
}

// TestChangedRowsPutAnew: rows that were put with all columns are read without what was
// there before, those that want one are read again, and where there are many of them, or
// more than the columns decides, all are read whole. Whatever is read, the increment has
// the rows as they are.
func TestChangedRowsPutAnew(t *testing.T) {
	t.Parallel()
	const rows, changed = 3000, 2000 // which are two groups
	row := func(i int) string { return fmt.Sprintf("row%05d", i) }
	put := func(at cell.Timestamp, columns ...string) []cell.Op {
		var ops []cell.Op
		for _, q := range columns {
			ops = append(ops, jobstest.PutOp("f", q, at, fmt.Sprint(q, " at ", at)))
		}
		return ops
	}
	deleteOp := func(change func(m *cell.Mutation)) []cell.Op {
		var m cell.Mutation
		change(&m)
		return m.Ops
	}
	anew := func(int) [][]cell.Op { return [][]cell.Op{put(200, "a", "b", "c")} }
	// but has some of the rows changed in another way.
	but := func(every int, writes ...[]cell.Op) func(i int) [][]cell.Op {
		return func(i int) [][]cell.Op {
			if i%every == 1 {
				return writes
			}
			return anew(i)
		}
	}
	for name, tt := range map[string]struct {
		write      func(i int) [][]cell.Op // of row i
		spec       func(s *Spec)
		all, newer int // scans
		vain       int // more of later times that may have been begun ahead
	}{
		"put anew":         {write: anew, newer: 2},
		"late":             {write: func(int) [][]cell.Op { return [][]cell.Op{put(50, "a", "b", "c")} }, newer: 2},
		"one column":       {write: func(int) [][]cell.Op { return [][]cell.Op{put(200, "b")} }, all: 2},
		"some in part":     {write: but(100, put(200, "a", "c")), all: 20, newer: 2},
		"many in part":     {write: but(10, put(200, "a", "c")), all: 2},
		"in two parts":     {write: but(100, put(200, "a"), put(300, "b", "c")), newer: 2},
		"of other columns": {write: func(int) [][]cell.Op { return [][]cell.Op{put(200, "a", "x", "y")} }, all: 1024 + 1, newer: 1, vain: 1},
		"revealed": {
			write: but(100, put(200, "a", "b", "c"), deleteOp(func(m *cell.Mutation) { m.Delete("f", []byte("b"), 200) })),
			all:   20, newer: 2,
		},
		"deleted before": {write: but(100, deleteOp(func(m *cell.Mutation) { m.DeleteRow(150) }), put(200, "a", "b", "c")), newer: 2},
		"deleted":        {write: but(100, put(200, "a", "b", "c"), deleteOp(func(m *cell.Mutation) { m.DeleteRow(250) })), all: 20, newer: 2},
		"a column deleted": {
			write: but(100, put(200, "a", "b", "c"), deleteOp(func(m *cell.Mutation) { m.DeleteColumn("f", []byte("a"), 250) })),
			all:   20, newer: 2,
		},
		"a filter": {write: anew, all: 2, spec: func(s *Spec) { s.Filter = "PrefixFilter('row')" }},
		"conditions": {write: anew, all: 2, spec: func(s *Spec) {
			s.Where = []columnar.Predicate{{Column: "a", Op: "!=", Value: "nothing"}}
		}},
		"unmatched": {write: anew, all: 2, spec: func(s *Spec) {
			s.Columns = append(s.Columns, columnar.ColumnSpec{Name: "rest", From: "$unmatched.f", Type: "map"})
		}},
		"partitions": {write: but(100, put(200, "a", "c")), all: 20, newer: 2, spec: func(s *Spec) { s.PartitionBy = []string{"a"} }},
		"sorted":     {write: but(100, put(200, "a", "c")), all: 20, newer: 2, spec: func(s *Spec) { s.Sort = []SortColumn{{Column: "b"}} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := jobstest.OpenPebble(t, t.TempDir())
			f := store.NewFamily("f")
			f.Versions = 3
			d := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{f}}
			if err := db.CreateTable(t.Context(), d, nil); err != nil {
				t.Fatal(err)
			}
			yes := true
			spec := &Spec{
				Table: "t", Formats: []string{Parquet}, Incremental: Incremental{FullEvery: 5},
				Columns: []columnar.ColumnSpec{
					{Name: "key", From: "$row", Type: "string"},
					{Name: "a", From: "f:a", Type: "string", Nullable: &yes},
					{Name: "b", From: "f:b", Type: "string", Nullable: &yes},
					{Name: "c", From: "f:c", Type: "string", Nullable: &yes},
					{Name: "op", From: "$op", Type: "string"},
				},
			}
			if tt.spec != nil {
				tt.spec(spec)
			}
			job, out := mustCompile(t, "j", spec, d), t.TempDir()
			var b store.Batch
			write := func(first, n int, of func(i int) [][]cell.Op) {
				t.Helper()
				for part := range 2 { // as a batch may fold the writes of a row
					b.Reset()
					for i := first; i < first+n; i++ {
						if writes := of(i); part < len(writes) {
							b.Add(0, cell.Mutation{Table: "t", Row: []byte(row(i)), Ops: writes[part]})
						}
					}
					if err := db.Apply(t.Context(), &b); err != nil {
						t.Fatal(err)
					}
				}
			}
			at := time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
			run := func(full bool) (*recordedScans, [][]string) {
				t.Helper()
				at = at.Add(time.Hour)
				if err := HoldChanges(t.Context(), job, db, at); err != nil {
					t.Fatal(err)
				}
				s := &recordedScans{Snapshot: jobstest.SnapshotOf(t, db)}
				m, err := Run(t.Context(), &RunOptions{
					Job: job, Source: s, Out: out, Holder: db, StoreID: "s", LogicalTime: at, Parallelism: 2, Full: full, Now: func() time.Time { return at },
				})
				if err != nil {
					t.Fatal(err)
				}
				r, err := Verify(t.Context(), filepath.Join(out, "j"))
				if err != nil || !r.OK() {
					t.Fatal(err, r.Err())
				}
				got := readFormat(t, r.Dir, m, Parquet)
				slices.SortFunc(got, slices.Compare)
				return s, got
			}
			write(0, rows, func(int) [][]cell.Op { return [][]cell.Op{put(100, "a", "b", "c")} })
			_, full := run(false)
			if len(full) != rows {
				t.Fatalf("Got %d rows. Want %d", len(full), rows)
			}
			write(rows-changed, changed, tt.write)
			scans, got := run(false)
			if scans.all != tt.all || scans.newer < tt.newer || scans.newer > tt.newer+tt.vain {
				t.Errorf("Got %d scans of all times and %d of later ones. Want %d and %d", scans.all, scans.newer, tt.all, tt.newer)
			}
			_, want := run(true)
			want = slices.DeleteFunc(want, func(r []string) bool { return r[0] < row(rows-changed) })
			keys := map[string]bool{}
			for _, r := range got {
				keys[r[0]] = true
			}
			if len(got) != changed || len(keys) != changed {
				t.Errorf("Got %d rows of %d keys. Want %d", len(got), len(keys), changed)
			}
			got = slices.DeleteFunc(got, func(r []string) bool { return slices.Contains(r, columnar.OpDelete) })
			if d := jobstest.Diff(want, got); d != "" {
				t.Errorf("(-of a full run +of the increment):\n%.2000s", d)
			}
		})
	}
}
