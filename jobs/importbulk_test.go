package jobs

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sluice/cell"
	"sluice/internal/crashfs"
	"sluice/internal/thinned"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/jobs/tables"
	"sluice/jobs/work"
	"sluice/store"
	"sluice/store/pebblestore"
)

// bulkColumns make three key-values a row: of f, of g and a count.
var bulkColumns = []columnar.ColumnSpec{
	{Name: "key", From: "$row", Type: "bytes"},
	{Name: "s", From: "f:s", Type: "string"},
	{Name: "i", From: "f:i", Type: "int64"},
	{Name: "bytes", From: "g:", Type: "bytes"},
	{Name: "hits", From: "n:hits", Type: "int64"},
}

func bulkKey(i int) string { return fmt.Sprintf("row%02d%04d", i%12, i) }

// bulkRows writes rows of all bulkColumns at time 1234.
func bulkRows(t testing.TB, rows int) func(e store.Engine) {
	return func(e store.Engine) {
		b := &store.Batch{}
		for i := range rows {
			m := cell.Mutation{Table: "t", Row: []byte(bulkKey(i))}
			m.Put("f", []byte("s"), 1234, []byte(strings.Repeat("x", i%50)))
			m.Put("f", []byte("i"), 1234, fmt.Append(nil, i))
			m.Put("g", nil, 1234, fmt.Append(nil, i*7))
			m.Ops = append(m.Ops, cell.Op{Type: cell.OpIncrement, Family: "n", Qualifier: []byte("hits"), Time: 1234, Delta: int64(i + 1)})
			b.Add(int64(i), m)
		}
		if err := e.Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
}

// bulkExists writes what a table has before an import: rows of its own, and of the
// import's rows older and newer versions, delete markers before and after its time,
// and counts.
func bulkExists(t testing.TB, e store.Engine, rows int) {
	t.Helper()
	for i := 0; i < rows; i += 7 {
		op := []cell.Op{
			jobstest.PutOp("f", "s", 1000, "older"), jobstest.PutOp("f", "s", 2000, "newer"), jobstest.PutOp("f", "s", 1234, "the same time"),
			{Type: cell.OpDeleteColumn, Family: "f", Qualifier: []byte("i"), Time: 1500},
			{Type: cell.OpDeleteFamily, Family: "g", Time: 1000},
			{Type: cell.OpIncrement, Family: "n", Qualifier: []byte("hits"), Time: 1000, Delta: 5},
			{Type: cell.OpIncrement, Family: "n", Qualifier: []byte("own"), Time: 1000, Delta: 9},
		}
		jobstest.Mutate(t, e, "t", bulkKey(i), op[i%len(op)])
		jobstest.Mutate(t, e, "t", bulkKey(i)+"+", jobstest.PutOp("f", "s", 1234, "of its own"))
	}
}

// importModel is a model engine after an import row by row.
func importModel(t testing.TB, at string, rows int) store.Engine {
	t.Helper()
	model := jobstest.OpenMemory(t)
	bulkExists(t, model, rows)
	if _, err := Import(t.Context(), &ImportOptions{From: mustLocal(t, at), To: model, Into: "t", chunkBytes: 1}); err != nil {
		t.Fatal(err)
	}
	return model
}

// TestImportInBulk: the embedded store takes a large import as sorted tables, one
// commit a file here, and has afterwards what an import row by row makes, also in a
// table with cells, versions, delete markers and counts of the same columns; and as
// many rows and cells as the import says.
func TestImportInBulk(t *testing.T) {
	t.Parallel()
	const rows = 12_000
	_, at := exportedTable(t, &Spec{Columns: bulkColumns}, bulkRows(t, rows))
	for _, exists := range []bool{true, false}[:thinned.Of(2, 1)] {
		db := jobstest.OpenPebble(t, t.TempDir())
		jobstest.CreateTable(t, db, "t", "row03", "row06")
		model := store.Engine(nil)
		if exists {
			bulkExists(t, db, rows)
			model = importModel(t, at, rows)
		} else {
			m := jobstest.OpenMemory(t)
			bulkRows(t, rows)(m)
			model = m
		}
		before := db.Metrics()
		for range 2 { // the second time changes nothing
			done, err := Import(t.Context(), &ImportOptions{From: mustLocal(t, at), To: db, Into: "t"})
			if err != nil {
				t.Fatal(err)
			}
			if done.Rows != rows || done.Cells != 4*rows {
				t.Errorf("Got %d rows and %d cells, want %d of 4 cells", done.Rows, done.Cells, rows)
			}
			jobstest.EqualTables(t, model, db, false, "t", "t")
		}
		files := int64(len(mustGlob(t, filepath.Join(at, "run=*", "*.parquet"))))
		if now := db.Metrics(); files != 3 || now.BulkCommits-before.BulkCommits != 2*files || now.Commits-before.Commits != 2*files {
			t.Errorf("Got %d commits, %d of them as sorted tables, of two imports of %d files", now.Commits-before.Commits, now.BulkCommits-before.BulkCommits, files)
		}
		if exists {
			continue
		}
		n, err := tables.Count(t.Context(), &tables.CountOptions{Source: jobstest.SnapshotOf(t, db), Table: "t"})
		if err != nil || n.Rows != rows || n.Cells != 4*rows {
			t.Errorf("Got %d rows and %d cells counted (%v), want what was imported", n.Rows, n.Cells, err)
		}
	}
}

func mustGlob(t testing.TB, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// I1, I3: power fails at some writes of an import by sorted tables. What is left has
// every row that the import has reported, and each as it was or as it is imported;
// the next import, from the beginning, makes the table whole, each count once.
func TestImportInBulkPowerFails(t *testing.T) {
	t.Parallel()
	const rows = 400
	_, at := exportedTable(t, &Spec{Columns: bulkColumns}, bulkRows(t, rows))
	model := importModel(t, at, rows)
	untouched := jobstest.OpenMemory(t)
	bulkExists(t, untouched, rows)
	before, after := rowCells(t, untouched), rowCells(t, model)
	var order []string // in which rows are imported
	for _, f := range exportedKeys(t, at) {
		order = append(order, f...)
	}
	rng := rand.New(rand.NewPCG(3, 5))
	importAll := func(db *pebblestore.DB, progress func(work.Progress)) {
		t.Helper()
		if _, err := Import(t.Context(), &ImportOptions{From: mustLocal(t, at), To: db, Into: "t", chunkBytes: 4 << 10, Progress: progress}); err != nil {
			t.Fatal(err)
		}
	}
	crashes, partial := 0, 0
	for die, writes := 0, 1; die < writes; die += 1 + rng.IntN(max(1, writes/thinned.Of(25, 3))) {
		disk := crashfs.New()
		var mu sync.Mutex
		var left *crashfs.FS
		seen, armed, reported, kept := 0, false, int64(0), int64(0)
		o := jobstest.PebbleOptions()
		o.Sync, o.MinBulkKeys = pebblestore.SyncCommits, 20
		o.FS = disk.OnWrite(func() {
			mu.Lock()
			defer mu.Unlock()
			if !armed {
				return
			}
			if seen++; seen == die+1 {
				crashed := disk.Crash(rng.IntN(101), rng)
				left, kept = &crashed, reported
			}
		})
		db, err := pebblestore.Open("db", o)
		if err != nil {
			t.Fatal(err)
		}
		jobstest.CreateTable(t, db, "t", "row03")
		bulkExists(t, db, rows)
		mu.Lock()
		armed = true
		mu.Unlock()
		bulk := db.Metrics().BulkCommits
		importAll(db, func(p work.Progress) {
			mu.Lock()
			defer mu.Unlock()
			reported = p.Rows
		})
		if n := db.Metrics().BulkCommits - bulk; n < 5 {
			t.Fatalf("Got %d commits as sorted tables, want several", n)
		}
		mu.Lock()
		armed, writes = false, max(writes, seen)
		mu.Unlock()
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if left == nil {
			break // it had fewer writes this time
		}
		crashes++
		o.FS = *left
		if db, err = pebblestore.Open("db", o); err != nil {
			t.Fatalf("at write %d: %v", die, err)
		}
		got, imported := rowCells(t, db), 0
		for i, row := range order {
			switch got[row] {
			case after[row]:
				imported++
			case before[row]:
				if int64(i) < kept {
					t.Errorf("at write %d: row %q is lost, the %dth of %d that were reported", die, row, i+1, kept)
				}
			default:
				t.Errorf("at write %d: row %q is %s, neither %s nor %s", die, row, got[row], before[row], after[row])
			}
		}
		if imported > 0 && imported < rows {
			partial++
		}
		importAll(db, nil)
		jobstest.EqualTables(t, model, db, false, "t", "t")
		if left := mustList(t, *left); len(left) > 0 {
			t.Errorf("at write %d: %q are left", die, left)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			return
		}
	}
	if crashes < thinned.Of(10, 4) || partial < thinned.Of(5, 1) {
		t.Errorf("Got %d crashes, %d of them amid the rows: it shows little", crashes, partial)
	}
}

// mustList returns the tables of bulk commits that lie in a data directory.
func mustList(t testing.TB, disk crashfs.FS) (bulk []string) {
	t.Helper()
	all, err := disk.List("db")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if strings.HasPrefix(name, "bulk-") {
			bulk = append(bulk, name)
		}
	}
	return bulk
}

// rowCells returns what a read of table t can see of each row.
func rowCells(t testing.TB, e store.Reader) map[string]string {
	t.Helper()
	all := map[string]string{}
	sc := e.Scan(t.Context(), &store.Scan{Table: "t", Versions: store.AllVersions})
	defer sc.Close()
	for sc.Next() {
		row := sc.Row()
		for i := range row.Cells {
			c := &row.Cells[i]
			all[string(row.Key)] += fmt.Sprintf(" %s:%s/%d=%x", c.Family, c.Qualifier, c.Time, c.Value)
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// exportedKeys returns the row keys of each file of a run.
func exportedKeys(t *testing.T, at string) (keys [][]string) {
	t.Helper()
	m, dir, err := ReadRun(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.Files {
		var file []string
		for _, row := range readOf(t, m, dir, &m.Files[i]) {
			file = append(file, row[0])
		}
		keys = append(keys, file)
	}
	return keys
}
