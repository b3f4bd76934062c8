package jobs

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/jobs/join"
	"sluice/jobs/tables"
	"sluice/store"
)

var historyColumns = []columnar.ColumnSpec{
	{Name: "key", From: "$row", Type: "bytes"},
	{Name: "op", From: "$op", Type: "string"},
	{Name: "family", From: "$family", Type: "string"},
	{Name: "qualifier", From: "$qualifier", Type: "bytes"},
	{Name: "time", From: "$timestamp", Type: "int64"},
	{Name: "value", From: "$value", Type: "bytes"},
}

// versionColumns are those without $op.
func versionColumns() []columnar.ColumnSpec {
	return slices.Delete(slices.Clone(historyColumns), 1, 2)
}

// written is a cell of a model: what one write leaves.
type written struct {
	row, family, qualifier string
	at                     cell.Timestamp
	op                     string
}

// opOrder are the kinds of cells in the order in which those of one column and time
// sort.
var opOrder = []string{columnar.OpDeleteFamily, columnar.OpDeleteColumn, columnar.OpDeleteFamilyVersion, columnar.OpDelete, columnar.OpPut}

func compareWritten(a, b written) int {
	return cmp.Or(strings.Compare(a.row, b.row), strings.Compare(a.family, b.family), strings.Compare(a.qualifier, b.qualifier),
		cmp.Compare(b.at, a.at), cmp.Compare(slices.Index(opOrder, a.op), slices.Index(opOrder, b.op)))
}

// versionModel is every cell that was written and the values of the puts; of two equal
// ones the later one counts.
type versionModel map[written]string

// draw writes a cell, into the model and the table.
func (m versionModel) draw(t *testing.T, rt *rapid.T, e store.Engine, table string) {
	w := written{
		row: rapid.StringMatching(`[abc\x00]{1,2}`).Draw(rt, "row"), family: rapid.SampledFrom([]string{"f", "g"}).Draw(rt, "family"),
		qualifier: rapid.SampledFrom([]string{"", "a", "a\x00"}).Draw(rt, "qualifier"), at: cell.Timestamp(rapid.IntRange(1, 4).Draw(rt, "time")),
		op: rapid.SampledFrom(append(slices.Repeat([]string{columnar.OpPut}, 8), opOrder...)).Draw(rt, "op"),
	}
	op := cell.Op{Family: w.family, Qualifier: []byte(w.qualifier), Time: w.at}
	value := ""
	switch w.op {
	case columnar.OpPut:
		value = rapid.StringMatching(`[a-z]{0,3}`).Draw(rt, "value")
		op.Type, op.Value = cell.OpPut, []byte(value)
	case columnar.OpDelete:
		op.Type = cell.OpDelete
	case columnar.OpDeleteColumn:
		op.Type = cell.OpDeleteColumn
	case columnar.OpDeleteFamily:
		op.Type, w.qualifier = cell.OpDeleteFamily, ""
	case columnar.OpDeleteFamilyVersion:
		op.Type, w.qualifier = cell.OpDeleteFamilyVersion, ""
	}
	jobstest.Mutate(t, e, table, w.row, op)
	m[w] = value
}

// rows are those of historyColumns.
func (m versionModel) rows(families []string) [][]string {
	var all []written
	for w := range m {
		if families == nil || slices.Contains(families, w.family) {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, compareWritten)
	var rows [][]string
	for _, w := range all {
		value := "-"
		if w.op == columnar.OpPut {
			value = m[w]
		}
		rows = append(rows, []string{w.row, w.op, w.family, w.qualifier, fmt.Sprint(int64(w.at)), value})
	}
	return rows
}

// deleted reports whether a marker masks a put.
func (m versionModel) deleted(w written) bool {
	for k := range m {
		if k.row != w.row || k.family != w.family || k.op == columnar.OpPut {
			continue
		}
		column := k.qualifier == w.qualifier
		switch {
		case k.op == columnar.OpDelete && column && k.at == w.at, k.op == columnar.OpDeleteFamilyVersion && k.at == w.at,
			k.op == columnar.OpDeleteColumn && column && k.at >= w.at, k.op == columnar.OpDeleteFamily && k.at >= w.at:
			return true
		}
	}
	return false
}

// versions are the rows of versionColumns: of each column at most n, of family g two.
func (m versionModel) versions(families []string, n int) [][]string {
	var rows [][]string
	count := map[written]int{}
	for _, row := range m.rows(families) {
		var at int64
		fmt.Sscan(row[4], &at)
		w := written{row: row[0], op: row[1], family: row[2], qualifier: row[3], at: cell.Timestamp(at)}
		if w.op != columnar.OpPut || m.deleted(w) {
			continue
		}
		most := n
		if w.family == "g" {
			most = min(n, 2)
		}
		w.at = 0
		if count[w]++; count[w] <= most {
			rows = append(rows, slices.Delete(slices.Clone(row), 1, 2))
		}
	}
	return rows
}

// versionsTable has families of which f keeps all versions and g two.
func versionsTable(name string) *store.TableDescriptor {
	f, g := store.NewFamily("f"), store.NewFamily("g")
	f.Versions, g.Versions = store.AllVersions, 2
	return &store.TableDescriptor{Name: name, Families: []store.FamilyDescriptor{f, g}}
}

// TestModesAreTheModel: over random histories, the modes export what was written, all
// versions and markers or as many as are wanted of what a read sees; and what was
// exported, imported into another engine, is the same table again.
func TestModesAreTheModel(t *testing.T) {
	t.Parallel()
	dir, db := t.TempDir(), jobstest.OpenPebble(t, t.TempDir())
	cases := 0
	rapid.Check(t, func(rt *rapid.T) {
		cases++
		d := versionsTable(fmt.Sprint("t", cases))
		key := rapid.StringMatching(`[abc\x00]{1,2}`)
		var splits [][]byte
		for _, s := range rapid.SliceOfNDistinct(key, 0, 2, rapid.ID[string]).Draw(rt, "splits") {
			splits = append(splits, []byte(s))
		}
		slices.SortFunc(splits, slices.Compare)
		if err := db.CreateTable(t.Context(), d, splits); err != nil {
			rt.Fatal(err)
		}
		model := versionModel{}
		for range rapid.IntRange(0, 60).Draw(rt, "writes") {
			model.draw(t, rt, db, d.Name)
		}
		spec := &Spec{
			Table: d.Name, Rows: "cell", Mode: rapid.SampledFrom([]string{ModeVersions, ModeHistory}).Draw(rt, "mode"), Columns: historyColumns,
			Formats: []string{Parquet, Arrow}, TargetFileBytes: rapid.SampledFrom([]int64{0, 1}).Draw(rt, "target bytes"),
			Families: rapid.SampledFrom([][]string{nil, {"f"}}).Draw(rt, "families"),
		}
		want := model.rows(spec.Families)
		if spec.Mode == ModeVersions {
			spec.Columns, spec.Versions = versionColumns(), rapid.SampledFrom([]int{1, 2, 3, math.MaxInt32}).Draw(rt, "versions")
			want = model.versions(spec.Families, spec.Versions)
		}
		if rapid.Bool().Draw(rt, "partitions") {
			spec.PartitionBy = []string{"family"}
		}
		snapshot, err := db.Snapshot(t.Context())
		if err != nil {
			rt.Fatal(err)
		}
		defer snapshot.Close()
		for range rapid.IntRange(0, 3).Draw(rt, "later") {
			versionModel{}.draw(t, rt, db, d.Name)
		}
		out := filepath.Join(dir, fmt.Sprint(cases))
		m, err := Run(t.Context(), &RunOptions{
			Job: mustCompile(t, "j", spec, d), Source: snapshot, Out: out, batchRows: rapid.SampledFrom([]int{0, 1}).Draw(rt, "batch rows"),
		})
		if err != nil {
			rt.Fatal(err)
		}
		if m.Mode != spec.Mode || m.Versions != spec.Versions {
			rt.Fatalf("the manifest says mode %q, %d versions", m.Mode, m.Versions)
		}
		at := filepath.Join(out, "j")
		r, err := Verify(t.Context(), at)
		if err != nil || !r.OK() {
			rt.Fatalf("verify: %v, %v", err, r.Err())
		}
		for _, format := range spec.Formats {
			got := readFormat(t, r.Dir, m, format)
			slices.SortStableFunc(got, func(a, b []string) int { return strings.Compare(a[0], b[0]) }) // of partitions
			if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				rt.Fatalf("%s (-model +export):\n%s", format, diff)
			}
		}
		to := jobstest.OpenMemory(t)
		if err := to.CreateTable(t.Context(), d, nil); err != nil {
			rt.Fatal(err)
		}
		if _, err := Import(t.Context(), &ImportOptions{From: mustLocal(t, at), To: to, Into: d.Name, chunkBytes: 100}); err != nil {
			rt.Fatal(err)
		}
		for _, raw := range []bool{false, true} {
			if spec.Mode == ModeVersions && (raw || spec.Versions < math.MaxInt32) {
				continue // what is masked, or too old, is not in the files
			}
			c, err := tables.Compare(t.Context(), &tables.CompareOptions{Left: snapshot, Right: jobstest.Sequenced{Engine: to}, LeftTable: d.Name, Families: spec.Families, Raw: raw})
			if err != nil {
				rt.Fatal(err)
			}
			for _, d := range c.Differences {
				rt.Fatalf("raw %t: %v", raw, &d)
			}
		}
		if err := errors.Join(os.RemoveAll(out), db.DisableTable(t.Context(), d.Name), db.DropTable(t.Context(), d.Name)); err != nil {
			rt.Fatal(err)
		}
	})
}

func TestCompileMode(t *testing.T) {
	t.Parallel()
	schema := versionsTable("t")
	counter, nvb := store.NewFamily("n"), store.NewFamily("o")
	counter.Counter, nvb.NewVersionBehavior = true, true
	schema.Families = append(schema.Families, counter, nvb)
	op := columnar.ColumnSpec{Name: "op", From: "$op", Type: "string"}
	for _, c := range []struct {
		name string
		spec Spec
		want []string
	}{
		{"latest", Spec{Rows: "cell", Mode: "latest", Columns: versionColumns()}, nil},
		{"rows", Spec{Mode: "versions", Versions: 2, Columns: historyColumns[:1]}, []string{"mode: versions needs rows: cell; with rows: row a column holds the newest version"}},
		{"mode", Spec{Rows: "cell", Mode: "all", Columns: versionColumns()}, []string{`mode: "all" is no mode; it is latest, versions or history`}},
		{"how many", Spec{Rows: "cell", Mode: "versions", Columns: versionColumns()}, []string{"versions: 0 is not from 1 to 2147483647, how many versions of a column mode: versions exports"}},
		{"for nothing", Spec{Rows: "cell", Versions: 3, Columns: versionColumns()}, []string{"versions: it is for mode: versions"}},
		{"op of latest", Spec{Rows: "cell", Columns: historyColumns}, []string{"columns: a column comes from $op, which jobs with incremental and with mode: history have"}},
		{"no op", Spec{Rows: "cell", Mode: "history", Families: []string{"f"}, Columns: versionColumns()}, []string{
			"columns: a history says of each cell whether it is a value or deletes some: add {name: op, from: $op, type: string}",
		}},
		{"where", Spec{Rows: "cell", Mode: "history", Families: []string{"f"}, Columns: historyColumns, Where: []columnar.Predicate{{Column: historyColumns[0].Name, Op: columnar.OpPresent}}}, []string{
			"where: mode history exports what is stored, deletes and what they delete; filter the files",
		}},
		{"filter", Spec{Rows: "cell", Mode: "history", Families: []string{"f"}, Columns: historyColumns, Filter: "PrefixFilter('a')"}, []string{
			"filter: mode history exports what is stored, deletes and what they delete; filter the files",
		}},
		{"families", Spec{Rows: "cell", Mode: "history", Columns: historyColumns}, []string{
			"mode: history of family n: COUNTER and DISTINCT families keep what they are now and no versions; name the job's other families",
			"mode: history of family o: with NEW_VERSION_BEHAVIOR the order of writes decides what a marker deletes, and cells do not tell it; name the job's other families",
		}},
		{"incremental", Spec{Rows: "cell", Mode: "history", Families: []string{"f"}, Columns: historyColumns, Incremental: Incremental{FullEvery: 2}}, []string{
			"incremental: a history's delete markers say what they delete of what is in the same file; increments are of the modes latest and versions",
		}},
		{"value", Spec{Rows: "cell", Mode: "history", Families: []string{"f"}, Columns: []columnar.ColumnSpec{op, {Name: "v", From: "$value", Type: "string", Nullable: new(bool)}}}, []string{
			"columns[1].nullable: a delete marker has no value: with $op it is true",
		}},
		{"op's type", Spec{Rows: "cell", Mode: "history", Families: []string{"f"}, Columns: []columnar.ColumnSpec{{Name: "op", From: "$op", Type: "bytes"}}}, []string{"columns[0].type: $op is a string"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.spec.Table = "t"
			_, err := Compile("j", &c.spec, schema)
			var got []string
			if err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if d := gocmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestUnfrozenHistory: a history of an engine that cannot freeze an instant leaves out
// versions and markers of later times, and says what it may lack; counters, whose cells
// are several there, are refused before anything is written.
func TestUnfrozenHistory(t *testing.T) {
	t.Parallel()
	cells := func(s *Spec) {
		s.Rows, s.Mode, s.Columns, s.Families = "cell", ModeHistory, historyColumns, []string{"f"}
	}
	s := newUnfrozen(t, cells)
	s.put("a", "old", 10)
	s.put("a", "new", 20)
	jobstest.Mutate(t, s.mem, "t", "a", cell.Op{Type: cell.OpDelete, Family: "f", Qualifier: []byte("q"), Time: 20})
	u := s.open()
	s.put("a", "late", s.now)
	jobstest.Mutate(t, s.mem, "t", "a", cell.Op{Type: cell.OpDeleteFamily, Family: "f", Time: s.now})
	m, err := Run(t.Context(), &RunOptions{Job: s.job, Source: u})
	if err != nil {
		t.Fatal(err)
	}
	if d := gocmp.Diff([]string{"a=delete=f=q=20=-", "a=put=f=q=20=new", "a=put=f=q=10=old"}, s.rows(m, Parquet)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if !slices.ContainsFunc(m.Limits, func(l string) bool { return strings.Contains(l, "still had") }) {
		t.Errorf("Got limits %q", m.Limits)
	}

	spec := s.job.spec
	spec.Families = nil
	job := mustCompile(t, "all", &spec, nil)
	if _, err := Run(t.Context(), &RunOptions{Job: job, Source: u}); !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "table t, family n: COUNTER") {
		t.Errorf("history of a counter: %v", err)
	}
	if _, err := os.Stat(filepath.Join(s.out, "all")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was written: %v", err)
	}
}

// TestImportModes: what cannot be brought back is refused, and named.
func TestImportModes(t *testing.T) {
	t.Parallel()
	counters := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}
	counters.Families[0].Counter = true
	ordered := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}
	ordered.Families[0].NewVersionBehavior = true
	for _, c := range []struct {
		name string
		spec Spec
		into *store.TableDescriptor
		want string
	}{
		{"history into counters", Spec{Mode: ModeHistory, Columns: historyColumns}, counters, "0000.parquet:1: store: not supported: a history into family f: COUNTER and DISTINCT"},
		{"history into the order of writes", Spec{Mode: ModeHistory, Columns: historyColumns}, ordered, "0000.parquet:1: store: not supported: a history into family f: with NEW_VERSION"},
		{"history without families", Spec{Mode: ModeHistory, Columns: historyColumns[:2]}, ordered, "one row a cell, and not all of"},
		{"versions into counters", Spec{Mode: ModeVersions, Versions: 2, Columns: versionColumns()}, counters, "0000.parquet:2: f:q is a counter, and has several versions"},
		{"versions", Spec{Mode: ModeVersions, Versions: 1, Columns: versionColumns()}, counters, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.spec.Rows, c.spec.Families = "cell", []string{"f"}
			_, at := exportedTable(t, &c.spec, func(e store.Engine) {
				jobstest.Mutate(t, e, "t", "row", jobstest.PutOp("f", "q", 1, "\x00\x00\x00\x00\x00\x00\x00\x01"), jobstest.PutOp("f", "q", 2, "\x00\x00\x00\x00\x00\x00\x00\x02"))
			})
			to := jobstest.OpenMemory(t)
			if err := errors.Join(to.DisableTable(t.Context(), "t"), to.DropTable(t.Context(), "t"), to.CreateTable(t.Context(), c.into, nil)); err != nil {
				t.Fatal(err)
			}
			_, err := Import(t.Context(), &ImportOptions{From: mustLocal(t, at), To: to, Into: "t"})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("Got %v, want %q", err, c.want)
			}
		})
	}
}

// TestImportFullRun: the full run of an incremental job is a table.
func TestImportFullRun(t *testing.T) {
	t.Parallel()
	source, job := jobstest.OpenPebble(t, t.TempDir()), (*Job)(nil)
	jobstest.CreateTable(t, source, "t")
	jobstest.Mutate(t, source, "t", "row", jobstest.PutOp("f", "q", 1, "v"))
	d, err := source.Table(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	job = mustCompile(t, "j", &Spec{Table: "t", Incremental: Incremental{FullEvery: 2}, Columns: []columnar.ColumnSpec{
		{Name: "key", From: "$row", Type: "string"},
		{Name: "op", From: "$op", Type: "string"},
		{Name: "at", From: "$timestamp", Type: "int64", Nullable: &yes},
		{Name: "q", From: "f:q", Type: "string"},
	}}, d)
	s, out, to := jobstest.SnapshotOf(t, source), t.TempDir(), jobstest.OpenMemory(t)
	if _, err := Run(t.Context(), &RunOptions{Job: job, Source: s, Out: out, Holder: source, StoreID: source.ID()}); err != nil {
		t.Fatal(err)
	}
	if _, err := Import(t.Context(), &ImportOptions{From: mustLocal(t, filepath.Join(out, "j")), To: to, Into: "t"}); err != nil {
		t.Fatal(err)
	}
	jobstest.EqualTables(t, s, to, false, "t", "t")
}

// TestJoinHistory: the versions and markers of one side meet the rows of the other, of
// tables and of published runs.
func TestJoinHistory(t *testing.T) {
	t.Parallel()
	e := jobstest.OpenMemory(t)
	jobstest.CreateTable(t, e, "users")
	jobstest.Mutate(t, e, "t", "a", jobstest.PutOp("f", "q", 1, "1"), jobstest.PutOp("f", "q", 2, "2"))
	jobstest.Mutate(t, e, "t", "a", cell.Op{Type: cell.OpDeleteColumn, Family: "f", Qualifier: []byte("q"), Time: 1})
	jobstest.Mutate(t, e, "t", "b", jobstest.PutOp("f", "q", 1, "3"))
	jobstest.Mutate(t, e, "users", "a", jobstest.PutOp("f", "name", 1, "ann"))
	s := jobstest.SnapshotOf(t, e)
	all := map[string]*Job{
		"cells": mustCompile(t, "cells", &Spec{Table: "t", Rows: "cell", Mode: ModeHistory, Families: []string{"f"}, Columns: historyColumns}, nil),
		"users": mustCompile(t, "users", &Spec{Table: "users", Columns: []columnar.ColumnSpec{{Name: "id", From: "$row", Type: "bytes"}, {Name: "name", From: "f:name", Type: "string"}}}, nil),
	}
	exports := t.TempDir()
	for _, job := range all {
		if _, err := Run(t.Context(), &RunOptions{Job: job, Source: s, Out: exports}); err != nil {
			t.Fatal(err)
		}
	}
	for _, method := range []string{join.Merge, join.Hash, join.Lookup, "runs"} {
		spec := &JoinSpec{Left: JoinSide{Job: "cells"}, Right: JoinSide{Job: "users"}, Spec: join.Spec{
			Kind: join.Inner, Method: method, On: []join.On{{Left: "key", Right: "id"}},
			Columns: []join.Column{{Name: "op", From: "left.op"}, {Name: "time", From: "left.time"}, {Name: "value", From: "left.value"}, {Name: "name", From: "right.name"}},
		}}
		if method == "runs" {
			spec.Method, spec.Left, spec.Right = join.Merge, JoinSide{Run: filepath.Join(exports, "cells")}, JoinSide{Run: filepath.Join(exports, "users")}
		}
		j, err := CompileJoin("j", spec, func(name string) *Job { return all[name] })
		if err != nil {
			t.Fatal(err)
		}
		out := t.TempDir()
		o := &JoinOptions{Join: j, Out: out}
		if j.Live() {
			o.Source = s
		}
		m, err := RunJoin(t.Context(), o)
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		r, err := Verify(t.Context(), filepath.Join(out, "j"))
		if err != nil || !r.OK() {
			t.Fatalf("%s: verify: %v, %v", method, err, r.Err())
		}
		want := [][]string{{"put", "2", "2", "ann"}, {"delete_column", "1", "-", "ann"}, {"put", "1", "1", "ann"}}
		if d := gocmp.Diff(want, readFormat(t, r.Dir, m, Parquet)); d != "" {
			t.Errorf("%s (-want +got)\n%s", method, d)
		}
	}
}

// TestUnmatched: what no column names is in the files of both formats, and is refused
// by an import, which would lose it.
func TestUnmatched(t *testing.T) {
	t.Parallel()
	columns := []columnar.ColumnSpec{
		{Name: "key", From: "$row", Type: "string"},
		{Name: "q", From: "f:q", Type: "string"},
		{Name: "rest", From: "$unmatched.f", Type: "json"},
		{Name: "counts", From: "$unmatched.n", Type: "string"},
		{Name: "map", From: "$unmatched.f", Type: "map(string)"},
	}
	spec := &Spec{Columns: columns, Families: []string{"f", "n"}, Formats: []string{Parquet, Arrow}}
	s, at := exportedTable(t, spec, func(e store.Engine) {
		jobstest.Mutate(t, e, "t", "a", jobstest.PutOp("f", "q", 1, "1"), jobstest.PutOp("f", "y", 1, "old"), jobstest.PutOp("f", "y", 2, "2"), jobstest.PutOp("f", "x", 1, "3"), jobstest.PutOp("g", "z", 1, "\xff"))
		jobstest.Mutate(t, e, "t", "a", cell.Op{Type: cell.OpIncrement, Family: "n", Qualifier: []byte("hits"), Time: 1, Delta: -5})
		jobstest.Mutate(t, e, "t", "b", jobstest.PutOp("f", "q", 1, "1"))
	})
	r, err := Verify(t.Context(), at)
	if err != nil || !r.OK() {
		t.Fatalf("verify: %v, %v", err, r.Err())
	}
	want := [][]string{{"a", "1", `{"x":"3","y":"2"}`, `{"hits":-5}`, "x=3,y=2"}, {"b", "1", "-", "-", "-"}}
	for _, format := range spec.Formats {
		if d := gocmp.Diff(want, readFormat(t, r.Dir, r.Manifest, format)); d != "" {
			t.Errorf("%s (-want +got)\n%s", format, d)
		}
	}
	_, err = Import(t.Context(), &ImportOptions{From: mustLocal(t, at), To: jobstest.OpenMemory(t), Into: "t"})
	if !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "column rest has columns of a family as a JSON object ($unmatched.f), not as a map") {
		t.Errorf("import: %v", err)
	}
	d, err := s.Table(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Compile("j", &Spec{Table: "t", Columns: columns, Families: []string{"f"}}, d); err == nil || err.Error() != `families: a column comes from family "n", which is not among them` {
		t.Errorf("a family that is not read: %v", err)
	}
}

// TestMapsOfRuns: maps go through partitions, and joins of tables and of published runs,
// as other values do; an import names a key that is a column of its own.
func TestMapsOfRuns(t *testing.T) {
	t.Parallel()
	columns := []columnar.ColumnSpec{
		{Name: "key", From: "$row", Type: "string"},
		{Name: "q", From: "f:q", Type: "string"},
		{Name: "rest", From: "$unmatched.f", Type: "map"},
	}
	s, at := exportedTable(t, &Spec{Columns: columns, PartitionBy: []string{"q"}}, func(e store.Engine) {
		for i := range 6 {
			ops := []cell.Op{jobstest.PutOp("f", "q", 1, fmt.Sprint(i%2))}
			for j := range i % 3 {
				ops = append(ops, jobstest.PutOp("f", fmt.Sprintf("x%d", j), 1, "\xff"+fmt.Sprint(i)))
			}
			jobstest.Mutate(t, e, "t", fmt.Sprintf("row%02d", i), ops...)
		}
	})
	all := map[string]*Job{"t": mustCompile(t, "t", &Spec{Table: "t", Columns: columns}, nil)}
	want := [][]string{
		{"row00", "-", "0"},
		{"row01", "x0=\xff1", "1"},
		{"row02", "x0=\xff2,x1=\xff2", "0"},
		{"row03", "-", "1"},
		{"row04", "x0=\xff4", "0"},
		{"row05", "x0=\xff5,x1=\xff5", "1"},
	}
	for _, method := range []string{join.Merge, join.Hash, join.Lookup, "runs"} {
		spec := &JoinSpec{Left: JoinSide{Job: "t"}, Right: JoinSide{Job: "t"}, Formats: []string{Parquet, Arrow}, Spec: join.Spec{
			Kind: join.Inner, Method: method, On: []join.On{{Left: "key"}},
			Columns: []join.Column{{Name: "key", From: "key.key"}, {Name: "rest", From: "right.rest"}, {Name: "q", From: "left.q"}},
		}}
		if method == "runs" {
			spec.Method, spec.Left, spec.Right = join.Merge, JoinSide{Run: at}, JoinSide{Run: at}
		}
		j, err := CompileJoin("j", spec, func(name string) *Job { return all[name] })
		if err != nil {
			t.Fatal(err)
		}
		o := &JoinOptions{Join: j, Out: t.TempDir()}
		if j.Live() {
			o.Source = s
		}
		m, err := RunJoin(t.Context(), o)
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		r, err := Verify(t.Context(), filepath.Join(o.Out, "j"))
		if err != nil || !r.OK() {
			t.Fatalf("%s: verify: %v, %v", method, err, r.Err())
		}
		for _, format := range spec.Formats {
			if d := gocmp.Diff(want, readFormat(t, r.Dir, m, format)); d != "" {
				t.Errorf("%s, %s (-want +got)\n%s", method, format, d)
			}
		}
	}
	_, err := ImportFiles(t.Context(), &ImportFilesOptions{
		From: mustLocal(t, runOf(t, at)), To: jobstest.OpenMemory(t), Into: "t", Time: time.UnixMilli(1),
		Columns: []columnar.ColumnSpec{columns[0], {Name: "q", From: "f:x1", Type: "string"}, columns[2]},
	})
	var row *RowError
	if !errors.As(err, &row) || row.Column != "rest" || row.Err.Error() != `it has "x1", which is a column of its own` {
		t.Errorf("Got %v", err)
	}
}
