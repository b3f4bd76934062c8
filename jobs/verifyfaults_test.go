package jobs

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/jobs/join"
	"sluice/store"
)

// content is what a file of a run is made of.
type content struct {
	layout   layout
	metadata map[string]string
	rows     *columnar.Batch // all of them
	order    []int           // in which they are written
}

// swap makes two rows change places.
func (c *content) swap(i, j int) { c.order[i], c.order[j] = c.order[j], c.order[i] }

// readContent reads a file of a run.
func readContent(t *testing.T, dir string, f *File) *content {
	t.Helper()
	format, _ := formatOf(f.Format)
	data := read(t, filepath.Join(dir, f.Path))
	rd, err := format.read(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	c := &content{metadata: rd.Metadata(), rows: columnar.NewBatch(rd.Columns())}
	c.layout = layout{columns: rd.Columns(), rowGroupBytes: DefaultRowGroupBytes}
	if p, ok := rd.(interface{ Order() []columnar.Order }); ok {
		c.layout.order = p.Order()
	}
	for {
		b, err := rd.Next()
		if err == io.EOF {
			return c
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Rows() {
			for k := range b.Columns() {
				if err := c.rows.Vector(k).AppendFrom(b.Vector(k), i); err != nil {
					t.Fatal(err)
				}
			}
			c.order = append(c.order, len(c.order))
		}
	}
}

// writeContent makes f hold c, and says its bytes and checksum in f, so that what c says
// is all that can be wrong with it.
func writeContent(t *testing.T, dir string, f *File, c *content) {
	t.Helper()
	format, _ := formatOf(f.Format)
	var out bytes.Buffer
	w, err := format.write(&out, &c.layout, c.metadata)
	if err != nil {
		t.Fatal(err)
	}
	b := columnar.NewBatch(c.layout.columns)
	for _, i := range c.order {
		for k := range c.layout.columns {
			if err := b.Vector(k).AppendFrom(c.rows.Vector(k), i); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	edit(t, filepath.Join(dir, f.Path), func([]byte) []byte { return out.Bytes() })
	sum := sha256.Sum256(out.Bytes())
	f.Bytes, f.SHA256 = int64(out.Len()), hex.EncodeToString(sum[:])
}

// refile makes a file of m, a run in dir, from what change leaves of its content.
func refile(t *testing.T, dir string, m *Manifest, name string, change func(c *content)) {
	t.Helper()
	f := fileOf(t, m, name)
	c := readContent(t, dir, f)
	change(c)
	writeContent(t, dir, f, c)
}

// fileOf returns the file of m with this path.
func fileOf(t *testing.T, m *Manifest, name string) *File {
	t.Helper()
	i := slices.IndexFunc(m.Files, func(f File) bool { return f.Path == name })
	if i < 0 {
		t.Fatalf("The run has no file %s", name)
	}
	return &m.Files[i]
}

// writeManifest makes m the manifest of the run in dir.
func writeManifest(t *testing.T, dir string, m *Manifest) {
	t.Helper()
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	edit(t, filepath.Join(dir, ManifestName), func([]byte) []byte { return data })
}

// cellJob exports a table whose rows have several families and qualifiers, as cells.
func cellJob() (*jobstest.Memory, *Spec) {
	src := jobstest.NewMemory()
	var rows []cell.Row
	for i := range 6 {
		rows = append(rows, jobstest.Row(fmt.Sprint("r", i), jobstest.Put("f", "a", 1, "x"), jobstest.Put("f", "b", 1, "y"), jobstest.Put("g", "a", 1, "z")))
	}
	src.Add("t", []store.FamilyDescriptor{store.NewFamily("f"), store.NewFamily("g")}, []string{"r3"}, rows)
	return src, &Spec{Table: "t", Rows: "cell", Formats: []string{Parquet, Arrow}, Columns: []columnar.ColumnSpec{
		{Name: "key", From: "$row", Type: "string"},
		{Name: "family", From: "$family", Type: "string"},
		{Name: "qualifier", From: "$qualifier", Type: "bytes"},
		{Name: "value", From: "$value", Type: "bytes"},
	}}
}

// joinedRun publishes a merge join in files of a few rows and returns where it is.
func joinedRun(t *testing.T) (*Manifest, string) {
	t.Helper()
	out := t.TempDir()
	m, err := RunJoin(t.Context(), &JoinOptions{Join: mustCompileJoin(t, joinSpec(join.Inner, join.Merge)), Source: joinSource(20_000), Out: out})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Verify(t.Context(), filepath.Join(out, "j"))
	if err != nil || !r.OK() {
		t.Fatal(err, r.Err())
	}
	return m, r.Dir
}

// copyRun returns a copy of the run in dir.
func copyRun(t *testing.T, m *Manifest, dir string) (*Manifest, string) {
	t.Helper()
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if m, err = DecodeManifest(data); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "run")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return m, to
}

// TestVerifyOrder makes rows of a run stand in another order than its manifest says, or
// a file declare another one; all else is as it should be.
func TestVerifyOrder(t *testing.T) {
	t.Parallel()
	const first, second = "part-000000-0000.", "part-000000-0001."
	joined, joinedAt := joinedRun(t)
	joins := func(t *testing.T) (*Manifest, string) { return copyRun(t, joined, joinedAt) }
	rows := func(t *testing.T) (*Manifest, string) {
		return published(t, accessLogSource(100), &Spec{Table: "access_log", Columns: accessLog().Columns, Formats: []string{Parquet, Arrow}}, RunOptions{})
	}
	cells := func(t *testing.T) (*Manifest, string) {
		src, spec := cellJob()
		return published(t, src, spec, RunOptions{})
	}
	history := func(t *testing.T) (*Manifest, string) {
		job, src := modeCase(t, ModeHistory, "")
		spec := job.spec
		spec.TargetFileBytes, spec.RowGroupBytes = 0, 0
		return published(t, src, &spec, RunOptions{})
	}
	sorted := func(t *testing.T) (*Manifest, string) {
		src, spec := sortable(rand.New(rand.NewPCG(2, 2)), 60)
		spec.Sort, spec.TargetFileBytes = []SortColumn{{Column: "v", Order: Descending}}, 1
		return published(t, src, spec, RunOptions{batchRows: 7})
	}
	divided := func(t *testing.T) (*Manifest, string) {
		src, spec := sortable(rand.New(rand.NewPCG(2, 2)), 60)
		spec.PartitionBy = []string{"b"}
		return published(t, src, spec, RunOptions{})
	}
	swap := func(i, j int) func(*content) { return func(c *content) { c.swap(i, j) } }
	for name, c := range map[string]struct {
		run    func(*testing.T) (*Manifest, string)
		file   string // without its format
		change func(*content)
		also   string // a file that gets the rows of file, which gets its
		want   string
		only   string // the format that says such a thing; empty = all
	}{
		"row keys":                  {run: rows, file: first, change: swap(0, 1), want: `row r000000\x00 comes after r000001\x00: not sorted`},
		"row keys of a partition":   {run: divided, file: "b=true/part-000001-0000.", change: swap(2, 3), want: ": not sorted"},
		"row keys of cells":         {run: cells, file: first, change: swap(0, 3), want: "row r0 comes after r1: not sorted"},
		"families":                  {run: cells, file: first, change: swap(1, 2), want: "row 3 is not behind the one before it: not sorted by key,family,qualifier"},
		"qualifiers":                {run: cells, file: first, change: swap(0, 1), want: "row 2 is not behind the one before it: not sorted by key,family,qualifier"},
		"qualifiers of a history":   {run: history, file: first, change: swap(5, 8), want: ": not sorted by key,family,qualifier"},
		"a join":                    {run: joins, file: first, change: swap(0, 8000), want: "is not behind the one before it: not sorted by user"},
		"a join, from file to file": {run: joins, file: first, also: second, want: "row 1 is not behind the last row of " + first},
		"a sort":                    {run: sorted, file: first, change: swap(0, 6), want: "is not behind the one before it: not sorted by v descending,key"},
		"a sort, from file to file": {run: sorted, file: first, also: second, want: "row 1 is not behind the last row of " + first},
		"what a file of rows says": {
			run: rows, file: first, change: func(c *content) { c.metadata[metaSorted] = "client" },
			want: `it says that it is sorted by "client", the manifest by "key"`,
		},
		"what a file of a join says": {
			run: joins, file: first, change: func(c *content) { c.metadata[metaSorted] = "" },
			want: `it says that it is sorted by "", the manifest by "user"`,
		},
		"no sorting columns": {
			run: rows, file: first, change: func(c *content) { c.layout.order = nil },
			want: `its sorting columns are "", the manifest says "key"`, only: Parquet,
		},
		"sorting columns that go down": {
			run: rows, file: first, change: func(c *content) { c.layout.order[0].Descending = true },
			want: `its sorting columns are "key descending", the manifest says "key"`, only: Parquet,
		},
		"sorting columns of a partition": {
			run: divided, file: "b=true/part-000001-0000.", change: func(c *content) { c.layout.order = columnar.Ascending("v") },
			want: `its sorting columns are "v", the manifest says "key"`, only: Parquet,
		},
		"sorting columns of cells": {
			run: cells, file: first, change: func(c *content) { c.layout.order = c.layout.order[:1] },
			want: `its sorting columns are "key", the manifest says "key,family,qualifier"`, only: Parquet,
		},
		"sorting columns of a join": {
			run: joins, file: first, change: func(c *content) { c.layout.order = columnar.Ascending("page") },
			want: `its sorting columns are "page", the manifest says "user"`, only: Parquet,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, format := range []string{Parquet, Arrow} {
				if c.only != "" && format != c.only {
					continue
				}
				m, dir := c.run(t)
				file := c.file + format
				if c.also != "" {
					a, b := fileOf(t, m, file), fileOf(t, m, c.also+format)
					one, other := readContent(t, dir, a), readContent(t, dir, b)
					writeContent(t, dir, a, other)
					writeContent(t, dir, b, one)
					a.Rows, b.Rows = b.Rows, a.Rows
					file = c.also + format
				} else {
					refile(t, dir, m, file, c.change)
				}
				m.sortFiles()
				writeManifest(t, dir, m)
				r, err := Verify(t.Context(), dir)
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Err(); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: Got %v, want %s", format, err, c.want)
				}
				for _, f := range r.Files {
					if (f.Path == file) != (len(f.Problems) > 0) && c.also == "" {
						t.Errorf("%s: Got %v of %s", format, f.Problems, f.Path)
					}
				}
				if len(r.Problems) > 0 {
					t.Errorf("%s: Got %v of the run", format, r.Problems)
				}
			}
		})
	}
}

// TestVerifyLaterRowGroup: sorting columns are those of all row groups.
func TestVerifyLaterRowGroup(t *testing.T) {
	t.Parallel()
	m, dir := published(t, accessLogSource(100), &Spec{Table: "access_log", Columns: accessLog().Columns, RowGroupBytes: 1}, RunOptions{batchRows: 10})
	name := m.Files[0].Path
	data := read(t, filepath.Join(dir, name))
	// In the footer each row group says {0, ascending, nulls last}: thrift's compact
	// list of one struct, whose fields are a zero, a false and a false.
	said := []byte{0x19, 0x1c, 0x15, 0x00, 0x12, 0x12, 0x00}
	if n := bytes.Count(data, said); n < 3 {
		t.Fatalf("Got %d row groups that say how they are sorted", n)
	}
	last := bytes.LastIndex(data, said)
	data[last+4] = 0x11 // descending
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	m.Files[0].SHA256 = hex.EncodeToString(sum[:])
	writeManifest(t, dir, m)
	r, err := Verify(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Err(); err == nil || err.Error() != name+`: its sorting columns are "", the manifest says "key"` {
		t.Errorf("Got %v", err)
	}
}

// TestVerifyCounts makes each count of a manifest wrong: those that a reader of the
// manifest alone can see make it invalid, the others are found in the files.
func TestVerifyCounts(t *testing.T) {
	t.Parallel()
	const name = "part-000000-0000.parquet"
	for what, c := range map[string]struct {
		formats []string
		change  func(t *testing.T, dir string, m *Manifest)
		want    []string // of the report
		invalid string   // of the error
	}{
		"rows of a file, one more": {
			change: func(_ *testing.T, _ string, m *Manifest) { m.Files[0].Rows++; m.sortFiles() },
			want:   []string{name + ": it has 50 rows, the manifest says 51"},
		},
		"rows of a file, one less": {
			change: func(_ *testing.T, _ string, m *Manifest) { m.Files[0].Rows--; m.sortFiles() },
			want:   []string{name + ": it has 50 rows, the manifest says 49"},
		},
		"rows of two files, of which the sum is right": {
			change: func(_ *testing.T, _ string, m *Manifest) { m.Files[0].Rows--; m.Files[1].Rows++ },
			want:   []string{name + ": it has 50 rows, the manifest says 49", "part-000001-0000.parquet: it has 50 rows, the manifest says 51"},
		},
		"rows of a file in both formats": {
			formats: []string{Parquet, Arrow},
			change: func(_ *testing.T, _ string, m *Manifest) {
				for i := range m.Files {
					if strings.HasPrefix(m.Files[i].Path, "part-000000-") {
						m.Files[i].Rows += 7
					}
				}
				m.sortFiles()
			},
			want: []string{"part-000000-0000.arrow: it has 50 rows, the manifest says 57", name + ": it has 50 rows, the manifest says 57"},
		},
		"a row that is missing": {
			change: func(t *testing.T, dir string, m *Manifest) {
				refile(t, dir, m, name, func(c *content) { c.order = slices.Delete(c.order, 20, 21) })
				m.sortFiles()
			},
			want: []string{name + ": it has 49 rows, the manifest says 50"},
		},
		"a row that is there twice": {
			change: func(t *testing.T, dir string, m *Manifest) {
				refile(t, dir, m, name, func(c *content) { c.order = slices.Insert(c.order, 20, 20) })
				m.Files[0].Rows++
				m.sortFiles()
			},
			want: []string{name + `: after 0 rows: row r000020\x00 comes after r000020\x00: not sorted`},
		},
		"the last row that is missing": {
			change: func(t *testing.T, dir string, m *Manifest) {
				refile(t, dir, m, name, func(c *content) { c.order = c.order[:49] })
				m.Files[0].Rows--
				m.sortFiles()
			},
			want: []string{name + `: its rows are r000000\x00 to r000048\x00, the manifest says r000000\x00 to r000049\x00`},
		},
		"bytes of a file": {
			change: func(_ *testing.T, _ string, m *Manifest) { m.Files[1].Bytes++; m.sortFiles() },
			want:   []string{"part-000001-0000.parquet: it has "},
		},
		"rows of a total":           {change: func(_ *testing.T, _ string, m *Manifest) { m.Totals[0].Rows++ }, invalid: "totals[0]: parquet has {Format:parquet Files:2 Rows:101 "},
		"files of a total":          {change: func(_ *testing.T, _ string, m *Manifest) { m.Totals[0].Files-- }, invalid: "totals[0]: parquet has {Format:parquet Files:1 "},
		"bytes of a total":          {change: func(_ *testing.T, _ string, m *Manifest) { m.Totals[0].Bytes++ }, invalid: "totals[0]: parquet has "},
		"rows without their total":  {change: func(_ *testing.T, _ string, m *Manifest) { m.Files[0].Rows++ }, invalid: "totals[0]: parquet has "},
		"bytes without their total": {change: func(_ *testing.T, _ string, m *Manifest) { m.Files[0].Bytes++ }, invalid: "totals[0]: parquet has "},
		"a total too many":          {change: func(_ *testing.T, _ string, m *Manifest) { m.Totals = append(m.Totals, m.Totals[0]) }, invalid: "2 totals for 1 formats"},
		"no total":                  {change: func(_ *testing.T, _ string, m *Manifest) { m.Totals = nil }, invalid: "0 totals for 1 formats"},
		"fewer than no rows":        {change: func(_ *testing.T, _ string, m *Manifest) { m.Files[0].Rows = -1; m.sortFiles() }, invalid: "-1 rows"},
		"rows of one format": {
			formats: []string{Parquet, Arrow},
			change:  func(_ *testing.T, _ string, m *Manifest) { m.Files[0].Rows++; m.sortFiles() },
			invalid: "totals[1]: parquet has 100 rows, arrow has 101",
		},
		"a file that is listed twice": {
			change:  func(_ *testing.T, _ string, m *Manifest) { m.Files = append(m.Files, m.Files[0]); m.sortFiles() },
			invalid: name + " is listed twice",
		},
		"a file whose rows come before": {
			change: func(_ *testing.T, _ string, m *Manifest) {
				a, b := &m.Files[0], &m.Files[1]
				a.Path, b.Path = b.Path, a.Path
				m.sortFiles()
			},
			invalid: `is not after r000099\x00, the last of ` + name,
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			formats := c.formats
			if formats == nil {
				formats = []string{Parquet}
			}
			m, dir := published(t, accessLogSource(100), &Spec{Table: "access_log", Columns: accessLog().Columns, Formats: formats}, RunOptions{})
			c.change(t, dir, m)
			writeManifest(t, dir, m)
			r, err := Verify(t.Context(), dir)
			if c.invalid != "" {
				if !errors.Is(err, ErrManifest) || !strings.Contains(err.Error(), c.invalid) {
					t.Errorf("Got %v, want %s", err, c.invalid)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Split(fmt.Sprint(r.Err()), "\n")
			if len(got) != len(c.want) {
				t.Fatalf("Got %q, want %q", got, c.want)
			}
			for i, want := range c.want {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("Got %s, want %s", got[i], want)
				}
			}
		})
	}
}

// TestVerifyCountsJoin: the files of a join have no key ranges that would tell, and
// their rows are counted too.
func TestVerifyCountsJoin(t *testing.T) {
	t.Parallel()
	m, dir := joinedRun(t)
	for i := range m.Files {
		if m.Files[i].Path == "part-000000-0000."+m.Files[i].Format {
			m.Files[i].Rows++
		}
	}
	m.sortFiles()
	writeManifest(t, dir, m)
	r, err := Verify(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Err(); err == nil || strings.Count(err.Error(), "rows, the manifest says ") != 2 {
		t.Errorf("Got %v", err)
	}
}

// TestManifestSortedBy: sorted_by names columns of the manifest that have an order, each
// once, whatever the run is of.
func TestManifestSortedBy(t *testing.T) {
	t.Parallel()
	joined, _ := joinedRun(t)
	src, spec := cellJob()
	cells, _ := published(t, src, spec, RunOptions{})
	for _, good := range []*Manifest{joined, cells} {
		for name, change := range map[string]func(*Manifest){
			"no column": func(m *Manifest) { m.SortedBy[0] = "nix" },
			"twice":     func(m *Manifest) { m.SortedBy = append(m.SortedBy, m.SortedBy[0]) },
			"without order": func(m *Manifest) {
				i := slices.IndexFunc(m.Columns, func(c Column) bool { return c.Name == m.SortedBy[0] })
				m.Columns[i].Type = "json"
			},
		} {
			if err := decodeChanged(t, good, change); !errors.Is(err, ErrManifest) || !strings.Contains(err.Error(), "sorted_by[") {
				t.Errorf("%s: Got %v", name, err)
			}
		}
	}
}
