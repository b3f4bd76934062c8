//go:build integration

package integration

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/columnar"
	"sluice/jobs/parquetfile"
	"sluice/store"
)

const hbaseExports = `
store: STORE
tables:
  visits:
    families: {v: {VERSIONS: 3}, w: {}}
    split: {keys: [r2, r4, r6, r8]}
  owners:
    families: {o: {}}
    split: {keys: [r5]}
jobs:
  rows:
    table: visits
    formats: [parquet, arrow]
    columns: &columns
      - {name: key, from: $row, type: string}
      - {name: n, from: "v:n", type: int64}
      - {name: page, from: "w:page", type: string}
      - {name: time, from: $timestamp, type: timestamp}
    out: OUT
  slow: {table: visits, columns: *columns, rows_per_second: 300, out: OUT}
  owners:
    table: owners
    columns:
      - {name: key, from: $row, type: string}
      - {name: owner, from: "o:name", type: string}
      - {name: page, from: "o:page", type: string}
    out: OUT
  cells:
    table: visits
    formats: [parquet, arrow]
    rows: cell
    families: [v]
    columns:
      - {name: key, from: $row, type: string}
      - {name: family, from: $family, type: string}
      - {name: qualifier, from: $qualifier, type: string}
      - {name: time, from: $timestamp, type: timestamp}
      - {name: value, from: $value, type: bytes}
    out: OUT
joins:
  pairs:
    left: {job: rows}
    right: {job: rows}
    method: lookup
    on: [{left: key}]
    columns: [{name: key, from: key.key}, {name: page, from: right.page}]
    out: OUT
  merged:
    left: {job: rows}
    right: {job: owners}
    kind: full
    on: [{left: key}]
    columns: [{name: key, from: key.key}, {name: n, from: left.n}, {name: owner, from: right.owner}]
    formats: [parquet, arrow]
    out: OUT
  hashed:
    left: {job: rows}
    right: {job: owners}
    method: hash
    on: [{left: page}]
    columns: [{name: key, from: left.key}, {name: page, from: key.page}, {name: owner, from: right.owner}]
    formats: [parquet, arrow]
    out: OUT
`

// slowExport is the job "slow", which takes six seconds or so, on its way.
type slowExport struct {
	t    *testing.T
	c    *config.Config
	cmd  *exec.Cmd
	said bytes.Buffer
}

// startSlowExport starts it and waits until it has finished a file: the other regions are
// being read.
func startSlowExport(t *testing.T, file string, c *config.Config) *slowExport {
	t.Helper()
	e := &slowExport{t: t, c: c, cmd: exec.Command(filepath.Join(Binaries(t), "export"), "run", "-c", file, "-q", "slow")}
	e.cmd.Stdout, e.cmd.Stderr = &e.said, &e.said
	begun, err := filepath.Glob(e.files())
	if err != nil {
		t.Fatal(err)
	}
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.cmd.Process.Kill() }) // it has ended, or the test has failed
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); <-tick.C {
		if files, err := filepath.Glob(e.files()); err != nil || len(files) > len(begun) {
			return e
		}
	}
	t.Fatalf("no file after two minutes\n%s", &e.said)
	return nil
}

func (e *slowExport) files() string {
	return filepath.Join(e.c.Jobs["slow"].Out, "_tmp", "*", "files", "part-*")
}

// wait waits for its end and returns what it has exported.
func (e *slowExport) wait() []string {
	e.t.Helper()
	if err := e.cmd.Wait(); err != nil {
		e.t.Fatalf("export: %v\n%s", err, &e.said)
	}
	verified(e.t, filepath.Join(e.c.Jobs["slow"].Out, "slow"))
	return exportRows(e.t, e.c, "slow")
}

// loadHBaseExports writes hbaseExports for a store and reads it.
func loadHBaseExports(t *testing.T, at string) (file string, c *config.Config) {
	t.Helper()
	dir := t.TempDir()
	file = filepath.Join(dir, "sluice.yaml")
	text := strings.NewReplacer("STORE", at, "OUT", filepath.Join(dir, "out")).Replace(hbaseExports)
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return file, c
}

// exportRows are the rows of the Parquet files of a run, in their order, each as its
// columns.
func exportRows(t *testing.T, c *config.Config, job string) []string {
	t.Helper()
	m, dir, err := jobs.ReadRun(t.Context(), filepath.Join(c.Jobs["rows"].Out, job))
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for i := range m.Files {
		if m.Files[i].Format != jobs.Parquet {
			continue
		}
		f, err := os.Open(filepath.Join(dir, m.Files[i].Path))
		if err != nil {
			t.Fatal(err)
		}
		r, err := parquetfile.NewReader(f, m.Files[i].Bytes)
		if err != nil {
			t.Fatal(err)
		}
		for {
			b, err := r.Next()
			if err != nil {
				break // Rows is compared below
			}
			for row := range b.Rows() {
				rows = append(rows, rowText(b, row))
			}
		}
		if err := errors.Join(r.Close(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if int64(len(rows)) != m.Totals[0].Rows {
		t.Fatalf("%s: Got %d rows, the manifest says %d", job, len(rows), m.Totals[0].Rows)
	}
	return rows
}

func rowText(b *columnar.Batch, row int) string {
	var columns []string
	for i := range b.Columns() {
		v := b.Vector(i)
		switch {
		case v.IsNull(row):
			columns = append(columns, "-")
		case v.Type() == columnar.String || v.Type() == columnar.Bytes:
			columns = append(columns, string(v.Bytes(row)))
		default:
			columns = append(columns, fmt.Sprint(v.Int64s()[row]))
		}
	}
	return strings.Join(columns, " ")
}

// TestHBaseExport: what the binaries export and join of a real HBase is what they export
// and join of the embedded engine with the same cells, and what readers in other languages
// read of it.
func TestHBaseExport(t *testing.T) {
	address := hbaseAddress(t)
	s := openHBase(t, address, nil)
	emptyHBase(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	hbaseFile, hbase := loadHBaseExports(t, fmt.Sprintf("{engine: hbase, hbase: {gateways: [%q]}}", address))
	pebbleFile, pebble := loadHBaseExports(t, fmt.Sprintf("{dir: %q}", filepath.Join(t.TempDir(), "data")))
	for _, c := range []*config.Config{hbase, pebble} {
		fillVisits(t, c, 2000)
	}
	for _, job := range []string{"rows", "cells", "pairs", "merged", "hashed"} {
		verb := "run"
		if _, ok := hbase.Joins[job]; ok {
			verb = "join"
		}
		for _, file := range []string{hbaseFile, pebbleFile} {
			out, err := exec.Command(filepath.Join(Binaries(t), "export"), verb, "-c", file, "-q", job).CombinedOutput()
			if err != nil {
				t.Fatalf("export %s of %s: %v\n%s", job, file, err, out)
			}
		}
		want, got := exportRows(t, pebble, job), exportRows(t, hbase, job)
		if d := cmp.Diff(want, got); d != "" || len(want) < 500 {
			t.Errorf("%s, %d rows (-embedded +HBase):\n%.2000s", job, len(want), d)
		}
		r, err := jobs.Verify(t.Context(), filepath.Join(hbase.Jobs["rows"].Out, job))
		if err != nil || !r.OK() || r.Manifest.Consistency != jobs.ConsistencyRow || r.Manifest.TimeBound == 0 || len(r.Manifest.Limits) == 0 {
			t.Errorf("%s: Got %v, %+v", job, err, r)
		} else if os.Getenv("SLUICE_PYTHON") != "" && (job == "rows" || job == "hashed") {
			read(t, r) // Arrow files, too
		}
	}
	out, err := exec.Command(filepath.Join(Binaries(t), "export"), "backup", "-c", hbaseFile, t.TempDir()).CombinedOutput()
	if err == nil || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "snapshot") {
		t.Errorf("backup: Got %v, %s", err, out)
	}
}

// fillVisits makes the tables of the file and writes rows with versions, deletes and
// missing columns, the same each time: of every third visit, and of as many that are none,
// there is an owner where the configuration has a table for them.
func fillVisits(t *testing.T, c *config.Config, rows int) {
	t.Helper()
	e, err := config.OpenEngine(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := c.EnsureTables(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var b store.Batch
	_, owned := c.Tables["owners"]
	for i := range rows {
		m := cell.Mutation{Table: "visits", Row: fmt.Appendf(nil, "r%d-%05d", i%10, i)}
		for version := range 1 + rng.IntN(4) {
			m.Put("v", []byte("n"), cell.Timestamp(1000+version), fmt.Append(nil, rng.IntN(1000)))
		}
		if rng.IntN(2) == 0 {
			m.Put("w", []byte("page"), cell.Timestamp(1+rng.IntN(1<<40)), fmt.Appendf(nil, "/p\x00%d", rng.IntN(50)))
		}
		switch rng.IntN(6) {
		case 0:
			m.DeleteColumn("v", []byte("n"), 1001)
		case 1:
			m.DeleteFamily("w", 1<<39)
		}
		b.Add(-1, m)
		if owned && i%3 == 0 {
			for n, suffix := range []string{"", "-none"} {
				o := cell.Mutation{Table: "owners", Row: fmt.Appendf(bytes.Clone(m.Row), "%s", suffix)}
				o.Put("o", []byte("name"), 1, fmt.Appendf(nil, "owner %d", i%7))
				if n == 0 && i < 120 { // pages have none, one or several
					o.Put("o", []byte("page"), 1, fmt.Appendf(nil, "/p\x00%d", i/3))
				}
				b.Add(-1, o)
			}
		}
	}
	if err := e.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// TestHBaseCopy: a table that goes from the embedded engine into HBase and back is the
// same, cell for cell, versions and delete markers too.
func TestHBaseCopy(t *testing.T) {
	address := hbaseAddress(t)
	s := openHBase(t, address, nil)
	emptyHBase(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	gateways := "hbase://" + address
	hbaseFile, _ := loadHBaseExports(t, fmt.Sprintf("{engine: hbase, hbase: {gateways: [%q]}}", address))
	pebbleFile, pebble := loadHBaseExports(t, fmt.Sprintf("{dir: %q}", filepath.Join(t.TempDir(), "data")))
	fillVisits(t, pebble, 2000)
	back := filepath.Join(t.TempDir(), "back")
	for _, args := range [][]string{
		{"copy-table", "-c", pebbleFile, "-q", "--verify", "--in", gateways, "visits"},
		{"copy-table", "-c", hbaseFile, "-q", "--verify", "--in", back, "visits"},
		{"verify-table", "-c", pebbleFile, "-q", "--raw", "--in", back, "visits"},
		{"verify-table", "-c", pebbleFile, "-q", "--raw", "--in", gateways, "visits"},
	} {
		out, err := exec.Command(filepath.Join(Binaries(t), "export"), args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "2,000 rows are the same") {
			t.Fatalf("export %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestHBaseCopyCounted: a table with counters and distinct counts is copied into HBase, and
// verified there, also where the table that it goes into is there with a family beside.
func TestHBaseCopyCounted(t *testing.T) {
	address := hbaseAddress(t)
	s := openHBase(t, address, nil)
	emptyHBase(t, s)
	_, pebble := loadHBaseExports(t, fmt.Sprintf("{dir: %q}", filepath.Join(t.TempDir(), "data")))
	d := &store.TableDescriptor{Name: "counted", Families: []store.FamilyDescriptor{store.NewFamily("e"), store.NewFamily("n"), store.NewFamily("u")}}
	d.Families[1].Counter, d.Families[2].Distinct = true, true
	wide := d.Clone()
	wide.Name, wide.Families = "wide", append(wide.Families, store.NewFamily("own"))
	if err := s.CreateTable(t.Context(), wide, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	e, err := config.OpenEngine(t.Context(), pebble, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.CreateTable(t.Context(), d, nil); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		row := fmt.Appendf(nil, "r%02d", i%10)
		for _, m := range []func(m *cell.Mutation){
			func(m *cell.Mutation) { m.Put("e", []byte("q"), cell.Timestamp(i+1), []byte("v")) },
			func(m *cell.Mutation) { m.Increment("n", []byte("q"), int64(i)) },
			func(m *cell.Mutation) { m.Append("u", []byte("q"), fmt.Appendf(nil, "user-%d", i)) },
		} {
			mutation := cell.Mutation{Table: "counted", Row: row}
			m(&mutation)
			if _, err := e.MutateRow(t.Context(), nil, &mutation); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for _, into := range []string{"copy", "wide"} {
		out, err := exec.Command(filepath.Join(Binaries(t), "export"), "copy-table", "-c", pebble.File(), "-q", "--verify", "--in", "hbase://"+address, "counted", into).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "10 rows are the same") || !strings.Contains(string(out), "COUNTER and DISTINCT families together (n, u)") {
			t.Errorf("into %s: %v\n%s", into, err, out)
		}
	}
}
