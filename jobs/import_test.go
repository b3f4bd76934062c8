package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/jobs/tables"
	"sluice/serve/api"
	"sluice/store"
)

// exportedTable writes table t, exports it, and returns both.
func exportedTable(t testing.TB, spec *Spec, write func(e store.Engine)) (source store.Snapshot, out string) {
	t.Helper()
	e := jobstest.OpenMemory(t, "row04", "row08")
	write(e)
	s := jobstest.SnapshotOf(t, e)
	d, err := s.Table(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	spec.Table = "t"
	out = t.TempDir()
	if _, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, "t", spec, d), Source: s, Out: out, LogicalTime: time.UnixMilli(1234)}); err != nil {
		t.Fatal(err)
	}
	return s, filepath.Join(out, "t")
}

var (
	perCell = []columnar.ColumnSpec{
		{Name: "key", From: "$row", Type: "bytes"},
		{Name: "family", From: "$family", Type: "string"},
		{Name: "qualifier", From: "$qualifier", Type: "bytes"},
		{Name: "time", From: "$timestamp", Type: "timestamp"},
		{Name: "value", From: "$value", Type: "bytes"},
	}
	perRow = []columnar.ColumnSpec{
		{Name: "key", From: "$row", Type: "bytes"},
		{Name: "s", From: "f:s", Type: "string"},
		{Name: "i", From: "f:i", Type: "int64"},
		{Name: "be", From: "f:be", Type: "int64", Coding: "int64be"},
		{Name: "x", From: "f:x", Type: "float64"},
		{Name: "xbe", From: "f:xbe", Type: "float64", Coding: "float64be"},
		{Name: "b", From: "f:b", Type: "bool"},
		{Name: "raw", From: "f:raw", Type: "bool", Coding: "raw"},
		{Name: "at", From: "f:at", Type: "timestamp"},
		{Name: "atbe", From: "f:atbe", Type: "timestamp", Coding: "int64be"},
		{Name: "iso", From: "f:iso", Type: "timestamp", Coding: "rfc3339"},
		{Name: "bytes", From: "g:", Type: "bytes"},
		{Name: "doc", From: "f:doc", Type: "json"},
		{Name: "hits", From: "n:hits", Type: "int64"},
	}
)

// typed writes a cell for each column of perRow, or leaves some out.
func typed(t testing.TB) func(e store.Engine) {
	return func(e store.Engine) {
		for i := range 12 {
			row := fmt.Sprintf("row%02d", i)
			values := map[string]string{
				"f:s": "text é", "f:i": fmt.Sprint(i - 6), "f:be": "\xff\xff\xff\xff\xff\xff\xff" + string([]byte{byte(i)}), "f:x": "1.5e-09", "f:xbe": "\x7f\xf0\x00\x00\x00\x00\x00\x00",
				"f:b": "true", "f:raw": "\xff", "f:at": "-1", "f:atbe": "\x00\x00\x00\x00\x00\x00\x00\x07", "f:iso": "2026-01-02T03:04:05.678901Z", "g:": "\x00\xff",
				"f:doc": `{"a": [1.50]}`,
			}
			n := 0
			for name, value := range values {
				if n++; (n+i)%5 == 0 {
					continue
				}
				jobstest.Mutate(t, e, "t", row, jobstest.PutOp(name[:1], name[2:], 1234, value))
			}
			jobstest.Mutate(t, e, "t", row, cell.Op{Type: cell.OpIncrement, Family: "n", Qualifier: []byte("hits"), Time: 1234, Delta: int64(i) - 3})
		}
	}
}

// withPrice is perRow with decimals, of which priced writes cells in each row.
var withPrice = append(slices.Clone(perRow), columnar.ColumnSpec{Name: "price", From: "f:price", Type: "decimal(7,2)"}, columnar.ColumnSpec{Name: "wide", From: "f:wide", Type: "decimal(38,30)"})

func priced(t testing.TB) func(e store.Engine) {
	return func(e store.Engine) {
		typed(t)(e)
		for i := range 12 {
			jobstest.Mutate(t, e, "t", fmt.Sprintf("row%02d", i), jobstest.PutOp("f", "price", 1234, fmt.Sprintf("%d.%02d", (i-6)*1000, i)), jobstest.PutOp("f", "wide", 1234, fmt.Sprintf("%d.%030d", (i-6)*10_000_000, i)))
		}
	}
}

// withRest is some of perRow, and the other columns of its families as maps.
var withRest = []columnar.ColumnSpec{
	{Name: "key", From: "$row", Type: "bytes"},
	{Name: "s", From: "f:s", Type: "string"},
	{Name: "be", From: "f:be", Type: "int64", Coding: "int64be"},
	{Name: "f", From: "$unmatched.f", Type: "map"},
	{Name: "g", From: "$unmatched.g", Type: "map", Coding: "raw"},
	{Name: "n", From: "$unmatched.n", Type: "map(int64)"},
}

// TestImportIsExport: a table that was exported and imported is the same table, in
// both modes and formats, in chunks of any size, through both engines.
func TestImportIsExport(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		spec     Spec
		write    func(testing.TB) func(store.Engine)
		format   string
		chunk    int
		part     int
		embedded bool
	}{
		{name: "rows in parts", spec: Spec{Columns: perRow}, write: typed, part: 1, embedded: true},
		{name: "rows", spec: Spec{Columns: perRow}, write: typed, chunk: 1},
		{name: "rows from arrow", spec: Spec{Columns: perRow, Formats: []string{Parquet, Arrow}}, write: typed, format: Arrow, embedded: true},
		{name: "cells", spec: Spec{Columns: perCell, Rows: "cell"}, write: typed, chunk: 200, embedded: true},
		{name: "decimals", spec: Spec{Columns: withPrice}, write: priced, chunk: 100},
		{name: "maps", spec: Spec{Columns: withRest}, write: typed, chunk: 100, embedded: true},
		{name: "maps from arrow", spec: Spec{Columns: withRest, Formats: []string{Arrow}}, write: typed},
		{name: "decimals from arrow", spec: Spec{Columns: withPrice, Formats: []string{Arrow}}, write: priced, embedded: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			source, at := exportedTable(t, &c.spec, c.write(t))
			var to store.Engine = jobstest.OpenMemory(t)
			if c.embedded {
				db := jobstest.OpenPebble(t, t.TempDir())
				jobstest.CreateTable(t, db, "t")
				to = db
			}
			for range 2 { // the second time changes nothing
				done, err := Import(t.Context(), &ImportOptions{From: mustLocal(t, at), To: to, Into: "t", Format: c.format, chunkBytes: c.chunk, partBytes: c.part})
				if err != nil {
					t.Fatal(err)
				}
				if done.Rows < 12 || done.Cells < 12*8 {
					t.Errorf("Got %+v", done)
				}
				jobstest.EqualTables(t, source, to, false, "t", "t")
			}
		})
	}
}

// TestImportKilled kills an import at every step; the next one, from the beginning,
// makes the table whole, each count once.
func TestImportKilled(t *testing.T) {
	t.Parallel()
	source, at := exportedTable(t, &Spec{Columns: perRow, TargetFileBytes: 1}, typed(t))
	from := mustLocal(t, at)
	for steps := int64(0); ; steps++ {
		to := jobstest.OpenMemory(t)
		k := &jobstest.Cut{Engine: to}
		k.Left.Store(steps)
		o := &ImportOptions{From: from, To: k, Into: "t", chunkBytes: 1}
		_, err := Import(t.Context(), o)
		if err == nil {
			if steps < 20 {
				t.Errorf("%d steps", steps)
			}
			return
		}
		if !errors.Is(err, jobstest.ErrCut) {
			t.Fatal(err)
		}
		k.Left.Store(1 << 40)
		if _, err := Import(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		jobstest.EqualTables(t, source, to, false, "t", "t")
	}
}

// TestImportRefuses what it could not do exactly, and names rows by their place.
func TestImportRefuses(t *testing.T) {
	t.Parallel()
	_, rows := exportedTable(t, &Spec{Columns: perRow}, typed(t))
	_, cells := exportedTable(t, &Spec{Columns: perCell, Rows: "cell"}, typed(t))
	_, keyless := exportedTable(t, &Spec{Columns: perRow[1:]}, typed(t))
	_, partly := exportedTable(t, &Spec{Columns: perCell[:4], Rows: "cell"}, typed(t))
	number := columnar.ColumnSpec{Name: "number", From: "$row", Type: "int64"}
	_, numbers := exportedTable(t, &Spec{Columns: append([]columnar.ColumnSpec{number}, perRow[1:]...)}, func(e store.Engine) {
		for _, row := range []string{"007", "7"} {
			jobstest.Mutate(t, e, "t", row, jobstest.PutOp("f", "s", 1, row))
		}
	})
	_, damaged := exportedTable(t, &Spec{Columns: perRow}, typed(t))
	files, err := filepath.Glob(filepath.Join(damaged, "run=*", "*.parquet"))
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	edit(t, files[1], func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
	e := jobstest.OpenMemory(t)
	create := func(name string, change func(d *store.TableDescriptor)) {
		t.Helper()
		d := &store.TableDescriptor{Name: name, Families: []store.FamilyDescriptor{store.NewFamily("f"), store.NewFamily("g"), store.NewFamily("n")}}
		change(d)
		if err := e.CreateTable(t.Context(), d, nil); err != nil {
			t.Fatal(err)
		}
	}
	create("fewer", func(d *store.TableDescriptor) { d.Families = d.Families[:1] })
	create("distinct", func(d *store.TableDescriptor) { d.Families[0].Distinct = true })
	create("counters", func(d *store.TableDescriptor) { d.Families[0].Counter = true })
	create("small", func(d *store.TableDescriptor) { d.MaxCellBytes = 20 + 5 + 1 + 3 + 8 })
	for _, c := range []struct {
		at, into, format string
		want             error
		text             string
	}{
		{rows, "none", "", store.ErrTableNotFound, "create it first, with its families; in the shell: create 'none', 'f', 'g', 'n'"},
		{cells, "none", "", store.ErrTableNotFound, "create it first, with the families that the rows name"},
		{damaged, "none", "", store.ErrTableNotFound, "create 'none'"}, // no file was read
		{rows, "fewer", "", store.ErrFamilyNotFound, "column bytes: store: no such column family: g in table fewer: add it first; in the shell: alter 'fewer', 'g'"},
		{rows, "distinct", "", store.ErrUnsupported, "column s"},
		{rows, "t", Arrow, store.ErrInvalidArgument, "no files of format arrow"},
		{cells, "fewer", "", store.ErrFamilyNotFound, ".parquet:"},
		{rows, "counters", "", nil, "part-000000-0000.parquet:1: f:"},
		{rows, "small", "", store.ErrCellTooLarge, "part-000000-0000.parquet:"},
		{keyless, "t", "", store.ErrUnsupported, "$row"},
		{partly, "t", "", store.ErrUnsupported, "$value"},
		{numbers, "t", "", store.ErrUnsupported, "its row keys are in column number alone, int64 as text, in which two keys may be one"},
		{damaged, "t", "", store.ErrCorrupt, filepath.Base(files[1])},
		{t.TempDir(), "t", "", os.ErrNotExist, ""},
	} {
		_, err := Import(t.Context(), &ImportOptions{From: mustLocal(t, c.at), To: e, Into: c.into, Format: c.format})
		if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: Got %v, want %v, %q", c.into, err, c.want, c.text)
		}
	}
	var bad *RowError
	if _, err := Import(t.Context(), &ImportOptions{From: mustLocal(t, rows), To: e, Into: "small"}); !errors.As(err, &bad) || bad.Row < 1 || bad.Row > 4 {
		t.Errorf("Got %v, want a row of the first file", err)
	}
	n, err := tables.Count(t.Context(), &tables.CountOptions{Source: jobstest.SnapshotOf(t, e), Table: "t"})
	if err != nil || n.Rows != 0 {
		t.Errorf("what was refused has written %+v, %v", n, err)
	}
}

// rowEngine is an engine whose batches are not atomic, and which takes none here.
type rowEngine struct{ store.Engine }

func (rowEngine) Traits() store.Traits { return store.Traits{Name: "rows", Atomic: store.AtomicRow} }

func (rowEngine) Apply(context.Context, *store.Batch) error { return errors.New("a batch was applied") }

// TestImportNoCounters: counts are not imported where they cannot be set.
func TestImportNoCounters(t *testing.T) {
	t.Parallel()
	_, rows := exportedTable(t, &Spec{Columns: perRow}, typed(t))
	_, cells := exportedTable(t, &Spec{Columns: perCell, Rows: "cell"}, typed(t))
	for at, text := range map[string]string{rows: "column hits: ", cells: ".parquet:"} {
		_, err := Import(t.Context(), &ImportOptions{From: mustLocal(t, at), To: rowEngine{jobstest.OpenMemory(t)}, Into: "t"})
		if !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), "engine rows cannot set counters") {
			t.Errorf("Got %v", err)
		}
	}
}

// fullEngine has room for so many batches.
type fullEngine struct {
	store.Engine
	left int
}

func (e *fullEngine) Apply(ctx context.Context, b *store.Batch) error {
	if e.left--; e.left < 0 {
		return store.ErrDiskFull
	}
	return e.Engine.Apply(ctx, b)
}

// TestImportFails: an error of the store says which rows were not taken, for it names none.
func TestImportFails(t *testing.T) {
	t.Parallel()
	spec := &Spec{Table: "t", Columns: bulkColumns}
	_, at := exportedTable(t, spec, bulkRows(t, 20))
	to := &fullEngine{jobstest.OpenMemory(t), 3}
	_, err := Import(t.Context(), &ImportOptions{From: mustLocal(t, at), To: to, Into: "t", chunkBytes: 1})
	if !errors.Is(err, store.ErrDiskFull) || !strings.Contains(err.Error(), ".parquet: rows 4 to 4: ") {
		t.Errorf("Got %v", err)
	}
}

// requestEngine knows how long the longest request would be that asks a daemon to apply a batch.
type requestEngine struct {
	store.Engine
	longest, batches int
}

func (e *requestEngine) Apply(_ context.Context, b *store.Batch) error {
	request, err := api.FromBatch(b)
	if err != nil {
		return err
	}
	for i := range request.Mutations {
		ops := request.Mutations[i].Ops
		for j := range ops {
			ops[j].Type = "delete_family_version" // the longest name
		}
	}
	data, err := json.Marshal(request)
	e.longest, e.batches = max(e.longest, len(data)), e.batches+1
	return err
}

// TestImportRequests: a commit is no more than a daemon takes in a request, however little
// the cells are.
func TestImportRequests(t *testing.T) {
	t.Parallel()
	const chunk = 16 << 10
	for _, columns := range [][]columnar.ColumnSpec{
		{{Name: "key", From: "$row", Type: "bytes"}, {Name: "hits", From: "n:hits", Type: "int64"}},
		{{Name: "key", From: "$row", Type: "bytes"}, {Name: "i", From: "f:i", Type: "int64"}},
		{{Name: "key", From: "$row", Type: "bytes"}, {Name: "bytes", From: "g:", Type: "bytes"}},
		bulkColumns,
	} {
		_, at := exportedTable(t, &Spec{Columns: columns}, bulkRows(t, 3000))
		to := &requestEngine{Engine: jobstest.OpenMemory(t)}
		if _, err := Import(t.Context(), &ImportOptions{From: mustLocal(t, at), To: to, Into: "t", chunkBytes: chunk}); err != nil {
			t.Fatal(err)
		}
		if to.longest > 4*chunk || to.batches < 10 {
			t.Errorf("%s: the longest of %d requests has %d bytes, want at most %d", columns[1].Name, to.batches, to.longest, 4*chunk)
		}
	}
}

// TestImportOneCell: of several columns that were read from one cell the one is written that
// has its bytes.
func TestImportOneCell(t *testing.T) {
	t.Parallel()
	text := columnar.ColumnSpec{Name: "text", From: "f:n", Type: "string", OnError: "null"}
	number := columnar.ColumnSpec{Name: "number", From: "f:n", Type: "int64", OnError: "null"}
	price := columnar.ColumnSpec{Name: "price", From: "f:n", Type: "decimal(9,2)", OnError: "null"}
	for _, columns := range [][]columnar.ColumnSpec{{text, number}, {number, text}, {price, number, text}, {text, text}} {
		if columns[0] == columns[1] {
			columns[1].Name = "again" // as in partition_by
		}
		columns = append(columns, columnar.ColumnSpec{Name: "key", From: "$row", Type: "string"})
		source, at := exportedTable(t, &Spec{Columns: columns}, func(e store.Engine) {
			for row, value := range map[string]string{"a": "007", "b": "+5", "c": "1.50", "d": "x"} {
				jobstest.Mutate(t, e, "t", row, jobstest.PutOp("f", "n", 1234, value))
			}
		})
		to := jobstest.OpenMemory(t)
		done, err := Import(t.Context(), &ImportOptions{From: mustLocal(t, at), To: to, Into: "t"})
		if err != nil || done.Cells != 4 {
			t.Fatalf("Got %+v, %v", done, err)
		}
		jobstest.EqualTables(t, source, to, false, "t", "t")
	}
}

// TestImportKeys: of several columns with the row key that one is taken which has its bytes.
func TestImportKeys(t *testing.T) {
	t.Parallel()
	number := columnar.ColumnSpec{Name: "number", From: "$row", Type: "int64", OnError: "null"}
	text := columnar.ColumnSpec{Name: "text", From: "$row", Type: "string"}
	maybe := columnar.ColumnSpec{Name: "maybe", From: "$row", Type: "string", OnError: "null"}
	raw := columnar.ColumnSpec{Name: "raw", From: "$row", Type: "bytes"}
	for _, c := range []struct {
		columns []columnar.ColumnSpec
		key     string // besides
	}{
		{[]columnar.ColumnSpec{number, text}, "x"},
		{[]columnar.ColumnSpec{text, number}, "x"},
		{[]columnar.ColumnSpec{maybe, raw}, "x\xff"}, // which is null as text
		{[]columnar.ColumnSpec{raw, maybe}, "x\xff"},
	} {
		columns := append(c.columns, columnar.ColumnSpec{Name: "s", From: "f:s", Type: "string"})
		source, at := exportedTable(t, &Spec{Columns: columns}, func(e store.Engine) {
			for _, row := range []string{"007", "7", c.key} {
				jobstest.Mutate(t, e, "t", row, jobstest.PutOp("f", "s", 1234, "v"))
			}
		})
		to := jobstest.OpenMemory(t)
		if done, err := Import(t.Context(), &ImportOptions{From: mustLocal(t, at), To: to, Into: "t"}); err != nil || done.Rows != 3 {
			t.Fatalf("Got %+v, %v", done, err)
		}
		jobstest.EqualTables(t, source, to, false, "t", "t")
	}
}
