package jobs

import (
	"bytes"
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
	"sluice/store"
)

// runOf is the directory of the only run of an exported job.
func runOf(t *testing.T, at string) string {
	t.Helper()
	runs, err := filepath.Glob(filepath.Join(at, "run=*"))
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	return runs[0]
}

// TestImportFiles: the files of an export, taken as anybody's, make the same table, in
// both modes and formats, however often.
func TestImportFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		spec  Spec
		write func(testing.TB) func(store.Engine)
		key   []string
	}{
		{"rows", Spec{Columns: perRow}, typed, nil},
		{"rows from arrow", Spec{Columns: perRow, Formats: []string{Arrow}}, typed, nil},
		{"cells", Spec{Columns: perCell, Rows: "cell"}, typed, nil},
		{"maps", Spec{Columns: withRest}, typed, nil},
		{"maps from arrow", Spec{Columns: withRest, Formats: []string{Arrow}}, typed, nil},
		{"decimals", Spec{Columns: withPrice}, priced, nil},
		{"decimals from arrow", Spec{Columns: withPrice, Formats: []string{Arrow}}, priced, nil},
		{"a key column", Spec{Columns: perRow}, typed, []string{"key"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			source, at := exportedTable(t, &c.spec, c.write(t))
			to := jobstest.OpenPebble(t, t.TempDir())
			jobstest.CreateTable(t, to, "t")
			o := &ImportFilesOptions{
				From: mustLocal(t, runOf(t, at)), Columns: c.spec.Columns, Rows: c.spec.Rows, Key: c.key, Time: time.UnixMilli(1234), To: to, Into: "t", chunkBytes: 100,
			}
			if c.key != nil {
				o.Columns = slices.DeleteFunc(slices.Clone(o.Columns), func(s columnar.ColumnSpec) bool { return s.From == columnar.FromRow })
			}
			for range 2 {
				if done, err := ImportFiles(t.Context(), o); err != nil || done.Rows < 12 || done.Cells < 12*8 {
					t.Fatalf("Got %+v, %v", done, err)
				}
				jobstest.EqualTables(t, source, to, false, "t", "t")
			}
		})
	}
}

// TestImportFilesMapTwice: a map that has a key twice, of which one cell would be lost, is an
// error that names its row.
func TestImportFilesMapTwice(t *testing.T) {
	t.Parallel()
	spec := Spec{Formats: []string{Arrow}, Columns: []columnar.ColumnSpec{{Name: "key", From: "$row", Type: "string"}, {Name: "rest", From: "$unmatched.f", Type: "map(string)"}}}
	_, at := exportedTable(t, &spec, func(e store.Engine) {
		jobstest.Mutate(t, e, "t", "row001", jobstest.PutOp("f", "entry_a", 1, "1"))
		jobstest.Mutate(t, e, "t", "row002", jobstest.PutOp("f", "entry_a", 1, "1"), jobstest.PutOp("f", "entry_b", 1, "2"))
	})
	run := runOf(t, at)
	edit(t, filepath.Join(run, "part-000000-0000.arrow"), func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("entry_b"), []byte("entry_a")) })
	to := jobstest.OpenPebble(t, t.TempDir())
	jobstest.CreateTable(t, to, "t")
	_, err := ImportFiles(t.Context(), &ImportFilesOptions{From: mustLocal(t, run), Columns: spec.Columns, Time: time.UnixMilli(1234), To: to, Into: "t"})
	if row := (*RowError)(nil); !errors.As(err, &row) || row.Row != 2 || row.Column != "rest" || row.Err.Error() != `it has "entry_a" twice` {
		t.Errorf("Got %v", err)
	}
}

// TestImportFilesHidden: files whose names begin with _ or . are not data, as other readers
// have it: what a writer has not finished, or a system has put beside them.
func TestImportFilesHidden(t *testing.T) {
	t.Parallel()
	spec := Spec{Columns: []columnar.ColumnSpec{{Name: "key", From: "$row", Type: "string"}, {Name: "a", From: "f:a", Type: "string"}, {Name: "_b", From: "f:b", Type: "string"}}}
	_, at := exportedTable(t, &spec, func(e store.Engine) { jobstest.Mutate(t, e, "t", "row", jobstest.PutOp("f", "a", 1, "1")) })
	data, err := os.ReadFile(filepath.Join(runOf(t, at), "part-000000-0000.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"_b=1/part.parquet", "_b=1/_part.parquet", "_b=1/._part.parquet", ".part.parquet", "_part.parquet", "_temporary/part.parquet"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	to := jobstest.OpenPebble(t, t.TempDir())
	jobstest.CreateTable(t, to, "t")
	o := &ImportFilesOptions{From: mustLocal(t, dir), Columns: spec.Columns, Time: time.UnixMilli(1234), To: to, Into: "t"}
	if done, err := ImportFiles(t.Context(), o); err != nil || done.Rows != 1 || done.Cells != 2 {
		t.Errorf("Got %+v, %v", done, err)
	}
	o.Files = []string{"_part.parquet"} // but where they are asked for
	o.Columns = o.Columns[:2]
	if done, err := ImportFiles(t.Context(), o); err != nil || done.Rows != 1 {
		t.Errorf("Got %+v, %v", done, err)
	}
	// Others that a directory has are not passed over.
	o.Files = nil
	if err := os.MkdirAll(filepath.Join(dir, "_b=1", "2026", "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "_b=1", "2026", "part.arrow"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ImportFiles(t.Context(), o); !errors.Is(err, store.ErrInvalidArgument) || !strings.Contains(err.Error(), "_b=1/2026/part.arrow is in directory _b=1/2026, ") {
		t.Errorf("Got %v of files in a directory that is no partition", err)
	}
	o.Format = Parquet // is not that of the file there
	if done, err := ImportFiles(t.Context(), o); err != nil || done.Rows != 1 {
		t.Errorf("Got %+v, %v", done, err)
	}
}

// named writes two columns of text and a number a row, and exports them.
func named(t *testing.T, rows ...[2]string) (run string) {
	t.Helper()
	columns := []columnar.ColumnSpec{
		{Name: "a", From: "f:a", Type: "string"}, {Name: "b", From: "f:b", Type: "string"}, {Name: "n", From: "f:n", Type: "int64"},
	}
	_, at := exportedTable(t, &Spec{Columns: columns}, func(e store.Engine) {
		for i, row := range rows {
			key := fmt.Sprintf("row%02d", i)
			jobstest.Mutate(t, e, "t", key, jobstest.PutOp("f", "n", 1, fmt.Sprint(i)))
			for j, name := range []string{"a", "b"} {
				if row[j] != "null" {
					jobstest.Mutate(t, e, "t", key, jobstest.PutOp("f", name, 1, row[j]))
				}
			}
		}
	})
	return runOf(t, at)
}

func TestImportFilesKey(t *testing.T) {
	t.Parallel()
	n := columnar.ColumnSpec{Name: "n", From: "f:n", Type: "int64", Coding: "int64be"}
	yes, no := true, false
	for _, c := range []struct {
		name    string
		rows    [][2]string
		key     []string
		between string
		columns []columnar.ColumnSpec
		want    []string
		err     string
		is      error
	}{
		{name: "parts", rows: [][2]string{{"x", "y|z"}, {"", ""}}, key: []string{"a", "n", "b"}, between: "|", want: []string{"x|0|y|z", "|1|"}},
		{name: "fixed width", rows: [][2]string{{"x", "y"}}, key: []string{"n:int64be", "a"}, want: []string{"\x00\x00\x00\x00\x00\x00\x00\x00x"}},
		{name: "ambiguous", rows: [][2]string{{"x", "y"}, {"x|", "y"}}, key: []string{"a", "b"}, between: "|", err: "part-000000-0000.parquet:2:a: ", is: nil},
		{name: "ambiguous end", rows: [][2]string{{"x|", "y"}}, key: []string{"a", "b"}, between: "||", err: ".parquet:1:a: "},
		{name: "null in the key", rows: [][2]string{{"null", "y"}}, key: []string{"a", "b"}, between: "|", err: ".parquet:1:a: it is null"},
		{name: "empty key", rows: [][2]string{{"", "y"}}, key: []string{"a"}, is: cell.ErrRowEmpty, err: ".parquet:1: "},
		{
			name: "null", rows: [][2]string{{"x", "y"}, {"y", "null"}}, key: []string{"a"}, err: ".parquet:2:b: it is null",
			columns: []columnar.ColumnSpec{{Name: "b", From: "f:b", Type: "string", Nullable: &no}},
		},
		{
			name: "null is no cell", rows: [][2]string{{"x", "y"}, {"y", "null"}}, key: []string{"a"}, want: []string{"x"},
			columns: []columnar.ColumnSpec{{Name: "b", From: "f:b", Type: "string", Nullable: &yes}},
		},
		{
			name: "type", rows: [][2]string{{"x", "y"}}, key: []string{"a"}, is: store.ErrInvalidArgument, err: "column n is of type int64, not string",
			columns: []columnar.ColumnSpec{{Name: "n", From: "f:n", Type: "string"}},
		},
		{name: "no column", rows: [][2]string{{"x", "y"}}, key: []string{"c"}, err: `it has no column c; it has "a", "b", "n"`},
		{name: "nothing between", rows: [][2]string{{"x", "y"}}, key: []string{"a", "b"}, is: store.ErrInvalidArgument, err: "nothing stands behind column a"},
		{name: "no key", rows: [][2]string{{"x", "y"}}, is: store.ErrInvalidArgument, err: "nothing says what the row key is"},
		{name: "coding", rows: [][2]string{{"x", "y"}}, key: []string{"a:int64be"}, is: store.ErrInvalidArgument, err: "has no coding int64be"},
		{name: "no coding", rows: [][2]string{{"x", "y"}}, key: []string{"a:b"}, is: store.ErrInvalidArgument, err: `has the coding "b"`},
		{
			name: "family", rows: [][2]string{{"x", "y"}}, key: []string{"a"}, err: "columns[0].from",
			columns: []columnar.ColumnSpec{{Name: "n", From: "z:n", Type: "int64"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			to := jobstest.OpenMemory(t)
			o := &ImportFilesOptions{From: mustLocal(t, named(t, c.rows...)), Columns: c.columns, Key: c.key, Between: c.between, Time: time.UnixMilli(7), To: to, Into: "t"}
			if o.Columns == nil {
				o.Columns = []columnar.ColumnSpec{n}
			}
			_, err := ImportFiles(t.Context(), o)
			if c.want == nil {
				if err == nil || !strings.Contains(err.Error(), c.err) || c.is != nil && !errors.Is(err, c.is) {
					t.Errorf("Got %v, want %q, %v", err, c.err, c.is)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			sc := to.Scan(t.Context(), &store.Scan{Table: "t"})
			defer sc.Close()
			for sc.Next() {
				got = append(got, string(sc.Row().Key))
				if at := sc.Row().Cells[0].Time; at != 7 {
					t.Errorf("Got the time %d", at)
				}
			}
			slices.Sort(c.want)
			if d := jobstest.Diff(c.want, got); d != "" || sc.Err() != nil {
				t.Errorf("%v (-want +got):\n%s", sc.Err(), d)
			}
		})
	}
}

// TestImportFilesClaims: a file that claims more than it holds is named with the place.
func TestImportFilesClaims(t *testing.T) {
	t.Parallel()
	run := named(t, [2]string{"x", "y"})
	name := filepath.Join(run, "part-000000-0000.parquet")
	file, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	// The first page begins behind the magic, and its header with type 2, a dictionary
	// (0x15, 0x04), and the size (0x15, a varint in zigzag).
	if !bytes.HasPrefix(file, []byte("PAR1\x15\x04\x15")) {
		t.Fatalf("the file begins with %q", file[:7])
	}
	copy(file[7:], []byte{0xfe, 0xff, 0x7f}) // more than there is, and wrong from there on
	if err := os.WriteFile(name, file, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = ImportFiles(t.Context(), &ImportFilesOptions{
		From: mustLocal(t, run), Columns: []columnar.ColumnSpec{{Name: "n", From: "f:n", Type: "int64"}}, Key: []string{"a"}, Time: time.UnixMilli(7), To: jobstest.OpenMemory(t), Into: "t",
	})
	if err == nil || !strings.Contains(err.Error(), "part-000000-0000.parquet: after 0 rows: read parquet file: row group 0, column a: page at byte 4: ") {
		t.Errorf("Got %v", err)
	}
}

// TestImportFilesTimes: a file's time is that of the cells, or refused; none is the time of
// the import.
func TestImportFilesTimes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		time string
		err  string
	}{
		{"5", ""},
		{"0", ""},
		{fmt.Sprint(int64(cell.Latest) - 1), ""},
		{fmt.Sprint(int64(cell.Latest)), "part-000000-0000.parquet:1:at: 9223372036854775807 ms is no time of a cell"},
		{"-1", "part-000000-0000.parquet:1"},
	} {
		columns := []columnar.ColumnSpec{{Name: "key", From: "$row", Type: "string"}, {Name: "at", From: "f:at", Type: "int64"}, {Name: "v", From: "f:v", Type: "string"}}
		_, at := exportedTable(t, &Spec{Columns: columns}, func(e store.Engine) {
			jobstest.Mutate(t, e, "t", "r", jobstest.PutOp("f", "at", 1, c.time), jobstest.PutOp("f", "v", 1, "x"))
		})
		columns[1].From, columns[1].Coding = columnar.FromTimestamp, ""
		to := jobstest.OpenPebble(t, t.TempDir())
		jobstest.CreateTable(t, to, "t")
		_, err := ImportFiles(t.Context(), &ImportFilesOptions{From: mustLocal(t, runOf(t, at)), Columns: columns, To: to, Into: "t"})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: Got %v, want %q", c.time, err, c.err)
			}
			continue
		}
		sc := to.Scan(t.Context(), &store.Scan{Table: "t"})
		if !sc.Next() || fmt.Sprint(sc.Row().Cells[0].Time) != c.time {
			t.Errorf("%s: Got another time, or no row: %v, %v", c.time, err, sc.Err())
		}
		if err := sc.Close(); err != nil {
			t.Error(err)
		}
	}
}
