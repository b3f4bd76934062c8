package jobs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/jobs/join"
	"sluice/rowkey"
	"sluice/store"
)

// orderKey is of a country, a time and a number.
var orderKey = columnar.KeySpec{Salt: 4, Fields: []columnar.KeyField{
	{Name: "country", Until: "|"}, {Name: "at", Width: 8}, {Name: "n"},
}}

var orderColumns = []columnar.ColumnSpec{
	{Name: "key", From: "$row", Type: "bytes"},
	{Name: "country", From: "$row.country", Type: "string"},
	{Name: "at", From: "$row.at", Type: "timestamp", Coding: "reverse_ts"},
	{Name: "n", From: "$row.n", Type: "int64"},
}

// orders are rows with such keys in table t, and their fields as text.
func orders(t testing.TB, n int) (write func(e store.Engine), fields map[string][]string) {
	salt, err := rowkey.NewSalt(4)
	if err != nil {
		t.Fatal(err)
	}
	fields = map[string][]string{}
	var keys []string
	for i := range n {
		country, at := []string{"de", "fr", "äü"}[i%3], 1431857103123+int64(i)
		key := rowkey.AppendReverseTime([]byte(country+"|"), cell.Timestamp(at))
		key = salt.Append(nil, fmt.Appendf(key, "%04d", i))
		keys = append(keys, string(key))
		fields[string(key)] = []string{string(key), country, fmt.Sprint(at * 1000), fmt.Sprint(i)}
	}
	return func(e store.Engine) {
		for i, key := range keys {
			jobstest.Mutate(t, e, "t", key, jobstest.PutOp("f", "q", 1234, fmt.Sprint("v", i)), jobstest.PutOp("g", "q", 1234, "w"))
		}
	}, fields
}

// TestKeyFields: in both modes and in partitions, the fields of a key are what it was
// made of, and a run of them makes the table again.
func TestKeyFields(t *testing.T) {
	t.Parallel()
	write, fields := orders(t, 100)
	cells := slices.Concat(orderColumns, perCell[1:])
	rows := slices.Concat(orderColumns, []columnar.ColumnSpec{{Name: "q", From: "f:q", Type: "string"}, {Name: "w", From: "g:q", Type: "string"}})
	for _, c := range []struct {
		name string
		spec Spec
		rows int // of the output for each of the table
	}{
		{"rows", Spec{Columns: rows}, 1},
		{"cells", Spec{Columns: cells, Rows: "cell"}, 2},
		{"rows by country", Spec{Columns: rows, PartitionBy: []string{"country"}}, 1},
		{"cells by country", Spec{Columns: cells, Rows: "cell", PartitionBy: []string{"country"}}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.spec.RowKey, c.spec.Formats = orderKey, []string{Parquet, Arrow}
			source, at := exportedTable(t, &c.spec, write)
			r, err := Verify(t.Context(), at)
			if err != nil || !r.OK() {
				t.Fatal(err, r.Err())
			}
			if d := jobstest.Diff(&orderKey, r.Manifest.RowKey); d != "" {
				t.Error(d)
			}
			for _, format := range c.spec.Formats {
				got := readFormat(t, r.Dir, r.Manifest, format)
				for _, row := range got {
					if d := jobstest.Diff(fields[row[0]], row[:4]); d != "" {
						t.Errorf("%s: %s", format, d)
					}
				}
				if len(got) != c.rows*len(fields) {
					t.Errorf("%s: %d rows, want %d of %d", format, len(got), c.rows, len(fields))
				}
			}
			to := jobstest.OpenMemory(t)
			if _, err := Import(t.Context(), &ImportOptions{From: mustLocal(t, at), To: to, Into: "t"}); err != nil {
				t.Fatal(err)
			}
			jobstest.EqualTables(t, source, to, false, "t", "t")
			to = jobstest.OpenMemory(t)
			if _, err := ImportFiles(t.Context(), &ImportFilesOptions{
				From: mustLocal(t, runOf(t, at)), Columns: c.spec.Columns, Rows: c.spec.Rows, RowKey: orderKey, Time: time.UnixMilli(1234), To: to, Into: "t", Format: Arrow,
			}); err != nil {
				t.Fatal(err)
			}
			jobstest.EqualTables(t, source, to, false, "t", "t")
		})
	}
}

// A row whose key is made otherwise ends the run, which names it, or has nulls.
func TestKeyFieldsUnlike(t *testing.T) {
	t.Parallel()
	src := jobstest.NewMemory()
	src.Add("t", []store.FamilyDescriptor{store.NewFamily("f")}, nil, []cell.Row{jobstest.Row("de|1", jobstest.Put("f", "q", 1, "")), jobstest.Row("other", jobstest.Put("f", "q", 1, ""))})
	spec := &Spec{
		Table: "t", RowKey: columnar.KeySpec{Fields: []columnar.KeyField{{Name: "country", Until: "|"}, {Name: "n"}}},
		Columns: []columnar.ColumnSpec{{Name: "country", From: "$row.country", Type: "string"}, {Name: "n", From: "$row.n", Type: "int64"}},
	}
	_, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, "j", spec, nil), Source: src, Out: t.TempDir()})
	refused := (*columnar.ConvertError)(nil)
	if !errors.As(err, &refused) || string(refused.Row) != "other" || refused.Column != "country" || !strings.Contains(err.Error(), `"|" does not stand behind field country`) {
		t.Errorf("Got %v", err)
	}
	for i := range spec.Columns {
		spec.Columns[i].OnError = "null"
	}
	m, dir := published(t, src, spec, RunOptions{})
	if d := jobstest.Diff([][]string{{"de", "1"}, {"-", "-"}}, readFormat(t, dir, m, Parquet)); d != "" {
		t.Error(d)
	}
}

// TestKeyFieldsOfGoneRows: an increment says of a row that is gone what its key was
// made of, though these columns are not nullable.
func TestKeyFieldsOfGoneRows(t *testing.T) {
	t.Parallel()
	s := newIncremental(t, t.TempDir(), 5)
	d, err := s.Table(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	spec := s.job.spec
	spec.RowKey = columnar.KeySpec{Fields: []columnar.KeyField{{Name: "letter", Until: "-"}, {Name: "n"}}}
	spec.Columns = append(slices.Clone(spec.Columns[:3]),
		columnar.ColumnSpec{Name: "letter", From: "$row.letter", Type: "string"}, columnar.ColumnSpec{Name: "number", From: "$row.n", Type: "int64"})
	spec.PartitionBy = []string{"letter"}
	if s.job, err = Compile("j", &spec, d); err != nil {
		t.Fatal(err)
	}
	s.put("a-1", "x", 1)
	s.put("b-2", "y", 1)
	s.put("d-3", "z", 1)
	s.run(t, RunOptions{})
	gone := &cell.Mutation{Table: "t", Row: []byte("b-2")}
	gone.DeleteFamily("f", cell.Latest)
	s.mutate(gone)
	s.put("d-3", "zz", 2)
	m := s.run(t, RunOptions{})
	if !m.increment() {
		t.Fatal(s.log.String())
	}
	r, err := Verify(t.Context(), s.out+"/j")
	if err != nil {
		t.Fatal(err)
	}
	if d := jobstest.Diff([][]string{{"b-2", "delete", "-", "b", "2"}, {"d-3", "upsert", "zz", "d", "3"}}, readFormat(t, r.Dir, m, Parquet)); d != "" {
		t.Error(d)
	}
	s.same(t)
}

// TestJoinKeyField: a join by a field of the key is that by the part of the key.
func TestJoinKeyField(t *testing.T) {
	t.Parallel()
	src := joinSource(500)
	all := joinJobs(t)
	views := all["views"].spec
	views.RowKey = columnar.KeySpec{Fields: []columnar.KeyField{{Name: "user", Until: " "}, {Name: "n"}}}
	views.Columns = append(slices.Clone(views.Columns), columnar.ColumnSpec{Name: "who", From: "$row.user", Type: "string"})
	all["views"] = mustCompile(t, "views", &views, nil)
	var content [2][][]string
	for i, on := range []join.On{{Left: "key", Right: "name", LeftPart: join.Part{Until: " "}}, {Left: "who", Right: "name"}} {
		spec := joinSpec(join.Left, join.Hash)
		spec.On, spec.Columns = []join.On{on}, spec.Columns[1:]
		j, err := CompileJoin("j", spec, func(name string) *Job { return all[name] })
		if err != nil {
			t.Fatal(err)
		}
		out := t.TempDir()
		m, err := RunJoin(t.Context(), &JoinOptions{Join: j, Source: src, Out: out})
		if err != nil {
			t.Fatal(err)
		}
		content[i] = readFormat(t, out+"/"+runDir("j", m.LogicalTime), m, Parquet)
	}
	if d := jobstest.Diff(content[0], content[1]); d != "" || len(content[0]) != 500 {
		t.Errorf("%d rows: %s", len(content[0]), d)
	}
}
