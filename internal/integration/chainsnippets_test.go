//go:build integration

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/jobs"
	"sluice/jobs/columnar"
	"sluice/store"
	"sluice/store/memstore"
)

// TestChainSnippets runs what `export sql` prints of increments: every reader gets the table
// as it is then, of rows that were changed several times, deleted, and put again, of an
// increment of nothing, and of a full run of nothing; with names of columns that the code
// could take for its own, with partitions, and of both formats.
func TestChainSnippets(t *testing.T) {
	python := python(t)
	for name, spec := range map[string]jobs.Spec{
		"Parquet":    {Formats: []string{jobs.Parquet}},
		"Arrow":      {Formats: []string{jobs.Arrow}},
		"partitions": {Formats: []string{jobs.Parquet}, PartitionBy: []string{"run"}},
		"cells":      {Formats: []string{jobs.Parquet}, Rows: string(columnar.PerCell)},
		"bytes":      {Formats: []string{jobs.Parquet}, Columns: []columnar.ColumnSpec{{Name: `k'e"y`, From: "$row", Type: "bytes"}}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChain(t, spec)
			c.run(0, false) // of an empty table
			c.change(map[string]int{"a": 1, "b": 1, "c": 2, "d": 1, "e": 1, "f": 2})
			c.run(0, true)
			c.change(map[string]int{"a": 2, "b": 0, "g": 3, "e": 7})
			c.run(1, false)
			c.run(2, false) // of nothing
			c.change(map[string]int{"a": 5, "b": 4, "c": 0, "g": 0})
			c.run(3, false)
			for reader := range maps.Keys(chainReaders) {
				c.read(python, reader)
			}
			c.run(0, true)
			c.change(map[string]int{"a": 0, "b": 0, "d": 0, "e": 0, "f": 0})
			c.run(1, false) // the table is empty again
			c.read(python, jobs.Polars)
			c.run(0, true) // no rows, and with partitions no files
			c.change(map[string]int{"z": 1})
			c.run(1, false)
			for reader := range maps.Keys(chainReaders) {
				c.read(python, reader)
			}
		})
	}
}

// chainReaders are the lines that get the rows from what the code of each reader makes.
var chainReaders = map[string]string{
	jobs.DuckDB: "d = c.execute('SELECT * FROM \"j\"')\ncolumns, rows = [x[0] for x in d.description], d.fetchall()",
	jobs.Pandas: "columns, rows = list(df.columns), df.values.tolist()",
	jobs.Polars: "d = lf.collect()\ncolumns, rows = d.columns, d.rows()",
	jobs.Spark:  "columns, rows = df.columns, [list(r) for r in df.collect()]",
}

// chain is a table and the runs of an incremental job.
type chain struct {
	t     *testing.T
	s     *memstore.Store
	job   *jobs.Job
	at    time.Time
	table map[string]int
}

func newChain(t *testing.T, spec jobs.Spec) *chain {
	t.Helper()
	c := &chain{t: t, at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), table: map[string]int{}}
	var err error
	if c.s, err = memstore.New(&memstore.Options{Now: func() cell.Timestamp { return cell.Timestamp(c.at.UnixMilli()) }}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.s.Close() })
	d := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}
	if err := c.s.CreateTable(t.Context(), d, [][]byte{[]byte("c")}); err != nil {
		t.Fatal(err)
	}
	if spec.Columns == nil {
		spec.Columns = []columnar.ColumnSpec{{Name: `k'e"y`, From: "$row", Type: "string"}}
	}
	spec.Table, spec.Out, spec.Incremental = "t", filepath.Join(t.TempDir(), "it's"), jobs.Incremental{FullEvery: 10}
	spec.Columns = append(spec.Columns, columnar.ColumnSpec{Name: "o'p `x`", From: "$op", Type: "string"})
	if spec.Rows == string(columnar.PerCell) {
		yes := true
		spec.Columns = append(spec.Columns,
			columnar.ColumnSpec{Name: "run", From: "$qualifier", Type: "string", Nullable: &yes},
			columnar.ColumnSpec{Name: "newest", From: "$value", Type: "string"})
	} else {
		spec.Columns = append(spec.Columns,
			columnar.ColumnSpec{Name: "run", From: "f:n", Type: "int64"},
			columnar.ColumnSpec{Name: "newest", From: "f:j", Type: "json"})
	}
	if len(spec.PartitionBy) > 0 { // readers take that of the directory run=… for it
		spec.PartitionBy = []string{"n"}
		spec.Columns[2].Name = "n"
	}
	if c.job, err = jobs.Compile("j", &spec, d); err != nil {
		t.Fatal(err)
	}
	return c
}

// change puts a number into each row, or deletes it where that is 0.
func (c *chain) change(rows map[string]int) {
	c.t.Helper()
	for row, n := range rows {
		m := &cell.Mutation{Table: "t", Row: []byte(row)}
		if n == 0 {
			m.DeleteFamily("f", cell.Latest)
			delete(c.table, row)
		} else {
			m.Put("f", []byte("n"), cell.Latest, fmt.Append(nil, n))
			m.Put("f", []byte("j"), cell.Latest, fmt.Appendf(nil, `{"n":%d}`, n))
			c.table[row] = n
		}
		if _, err := c.s.MutateRow(c.t.Context(), nil, m); err != nil {
			c.t.Fatal(err)
		}
	}
}

// run makes a run, which has that number of increments before it.
func (c *chain) run(number int, full bool) {
	c.t.Helper()
	c.at = c.at.Add(time.Hour)
	if err := jobs.HoldChanges(c.t.Context(), c.job, c.s, c.at); err != nil {
		c.t.Fatal(err)
	}
	snapshot, err := c.s.Snapshot(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	defer snapshot.Close()
	m, err := jobs.Run(c.t.Context(), &jobs.RunOptions{
		Job: c.job, Source: snapshot, Holder: c.s, StoreID: "s", Full: full, LogicalTime: c.at, Now: func() time.Time { return c.at },
	})
	if err != nil || m.Incremental.Number != number {
		c.t.Fatalf("Got %+v, %v, want %d", m, err, number)
	}
}

// read runs the code for the latest run, whose rows must be the table's.
func (c *chain) read(python, reader string) {
	t := c.t
	t.Helper()
	if reader == jobs.Spark {
		if !soaking { // it takes half a minute to start
			return
		}
		spark(t)
	}
	m, dir, err := jobs.ReadRun(t.Context(), filepath.Join(c.job.Out(), "j"))
	if err != nil {
		t.Fatal(err)
	}
	before, err := jobs.ReadChainBeside(t.Context(), m, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	code, err := jobs.Snippet(reader, m, dir, before...)
	if reader != jobs.Pandas && reader != jobs.Polars && m.Totals[0].Format == jobs.Arrow {
		return // refused; tested elsewhere
	}
	if err != nil {
		t.Errorf("%s: %v", reader, err)
		return
	}
	program := code
	if reader == jobs.DuckDB {
		program = fmt.Sprintf("import duckdb\nc = duckdb.connect()\nc.execute(%q)\n", code)
	}
	program += "\n" + chainReaders[reader] + "\nimport json\n" +
		"print('RESULT', json.dumps([columns, sorted([x.decode() if isinstance(x, (bytes, bytearray)) else x for x in r] for r in rows)]))\n"
	out, err := exec.CommandContext(t.Context(), python, "-c", program).CombinedOutput()
	at := bytes.LastIndex(out, []byte("RESULT "))
	if err != nil || at < 0 {
		t.Errorf("%s: %v\n%s\n%s", reader, err, code, out)
		return
	}
	var got []any
	if err := json.Unmarshal(out[at+len("RESULT "):], &got); err != nil {
		t.Fatalf("%s: %v\n%s", reader, err, out)
	}
	var columns []any
	for i := range m.Columns {
		columns = append(columns, m.Columns[i].Name)
	}
	want, rows := []any{columns}, []any{}
	for _, row := range c.rows(m.Rows) {
		rows = append(rows, row)
	}
	if d := cmp.Diff(append(want, rows), got); d != "" {
		t.Errorf("%s, number %d (-want +got):\n%s\n%s\n%s", reader, m.Incremental.Number, d, code, strings.TrimSpace(string(out)))
	}
}
