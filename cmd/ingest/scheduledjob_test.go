package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"sluice/cell"
	"sluice/config"
)

// scheduledJob is a directory with the configuration of a daemon that runs job j of
// table t, in two regions.
type scheduledJob struct {
	t          *testing.T
	file, data string
	out        string // of the job
}

func newScheduledJob(t *testing.T) *scheduledJob {
	dir := t.TempDir()
	return &scheduledJob{t, filepath.Join(dir, "sluice.yaml"), filepath.Join(dir, "data"), filepath.Join(dir, "out")}
}

// load writes the file anew, with a schedule and the rows a second that are read, and
// reads it. Slow runs stop for a second after each row.
func (j *scheduledJob) load(schedule string, rowsPerSecond int) *config.Config {
	j.t.Helper()
	text := fmt.Sprintf(`
store: {dir: '%s', cache: 1MiB, mem_table: 1MiB, min_free: 0}
serve: {listen: "127.0.0.1:0"}
tables: {t: {families: {f: {}}, split: {keys: [b]}}}
jobs:
  j:
    table: t
    columns: [{name: key, from: $row, type: string}]
    out: '%s'
    schedule: {%s}
    rows_per_second: %d
`, j.data, j.out, schedule, rowsPerSecond)
	if err := os.WriteFile(j.file, []byte(text), 0o666); err != nil {
		j.t.Fatal(err)
	}
	c, err := config.Load(j.file, nil)
	if err != nil {
		j.t.Fatal(err)
	}
	return c
}

// put writes rows, and before them the table. No daemon runs.
func (j *scheduledJob) put(c *config.Config, rows ...string) {
	j.t.Helper()
	e, err := config.OpenEngine(j.t.Context(), c, nil)
	if err != nil {
		j.t.Fatal(err)
	}
	if _, err := c.EnsureTables(j.t.Context(), e); err != nil {
		j.t.Fatal(err)
	}
	for _, row := range rows {
		m := cell.Mutation{Table: "t", Row: []byte(row)}
		m.Put("f", []byte("q"), 1, []byte("v"))
		if _, err := e.MutateRow(j.t.Context(), nil, &m); err != nil {
			j.t.Fatal(err)
		}
	}
	if err := e.Close(); err != nil {
		j.t.Fatal(err)
	}
}

// manyRows are the names of a thousand rows of the second region, behind first.
func manyRows(first ...string) []string {
	for i := range 1000 {
		first = append(first, fmt.Sprintf("b%03d", i))
	}
	return first
}

// wrongAddresses returns an address whose listener accepts and says nothing, and one
// where nobody listens: it is the port of a client, so that nobody else gets it.
func wrongAddresses(t *testing.T) (silent, closed string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return l.Addr().String(), client.LocalAddr().String()
}
