package jobs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/store"
)

// TestExportIsTable exports random tables with random regions, row ranges,
// families and file sizes, and compares what the files hold with the table,
// computed here cell by cell.
func TestExportIsTable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		mode := rapid.SampledFrom([]string{"row", "cell"}).Draw(rt, "rows")
		key := rapid.StringMatching(`[abc\x00\xff]{1,3}`)
		src := jobstest.NewMemory()
		var rows []cell.Row
		for _, k := range rapid.SliceOfDistinct(key, rapid.ID[string]).Draw(rt, "keys") {
			if row := drawRow(rt, k); len(row.Cells) > 0 {
				rows = append(rows, row)
			}
		}
		splits := rapid.SliceOfNDistinct(key, 0, 3, rapid.ID[string]).Draw(rt, "splits")
		slices.Sort(splits)
		src.Add("t", []store.FamilyDescriptor{store.NewFamily("f"), store.NewFamily("g")}, splits, rows)
		spec := &Spec{
			Table: "t", Rows: mode, Formats: []string{Parquet, Arrow},
			TargetFileBytes: rapid.SampledFrom([]int64{0, 1}).Draw(rt, "target bytes"),
			RowGroupBytes:   rapid.SampledFrom([]int64{0, 1}).Draw(rt, "row group bytes"),
			Compression:     rapid.SampledFrom([]string{"", "zstd", "lz4", "none"}).Draw(rt, "compression"),
			Columns:         propertyColumns(mode),
		}
		if rapid.Bool().Draw(rt, "one family") {
			spec.Families = []string{"f"}
		}
		if rapid.Bool().Draw(rt, "start") {
			spec.StartRow = columnar.EscapeKey([]byte(key.Draw(rt, "start row")))
		}
		if rapid.Bool().Draw(rt, "stop") {
			spec.StopRow = columnar.EscapeKey([]byte(key.Draw(rt, "stop row")))
		}
		job, err := Compile("t", spec, src.Tables["t"].Schema)
		if err != nil {
			return // a range without rows
		}
		out := filepath.Join(dir, strconv.Itoa(run))
		m, err := Run(t.Context(), &RunOptions{Job: job, Source: src, Out: out, Parallelism: 2})
		if err != nil {
			rt.Fatalf("Run: %v", err)
		}
		r, err := Verify(t.Context(), filepath.Join(out, "t"))
		if err != nil || !r.OK() {
			rt.Fatalf("Verify: %v, %v", err, r.Err())
		}
		want := expected(src.Tables["t"].Rows, job)
		for _, format := range job.Formats() {
			if d := jobstest.Diff(want, readFormat(t, r.Dir, m, format)); d != "" {
				rt.Fatalf("%s: %s", format, d)
			}
		}
		if err := os.RemoveAll(out); err != nil {
			rt.Fatal(err)
		}
	})
}

// drawRow returns a row of which each cell may be absent.
func drawRow(t *rapid.T, key string) cell.Row {
	row := jobstest.Row(key)
	for _, q := range []string{"f:", "f:int", "f:text", "g:be"} {
		if !rapid.Bool().Draw(t, "has "+q) {
			continue
		}
		var v string
		switch q {
		case "f:int":
			v = rapid.SampledFrom([]string{"1", "-9", "x", ""}).Draw(t, "int")
		case "g:be":
			v = string(binary.BigEndian.AppendUint64(nil, rapid.Uint64().Draw(t, "be")))
		default:
			v = rapid.String().Draw(t, "text")
		}
		row.Cells = append(row.Cells, jobstest.Put(q[:1], q[2:], cell.Timestamp(rapid.Int64Range(0, 1<<50).Draw(t, "time")), v))
	}
	return row
}

func propertyColumns(mode string) []columnar.ColumnSpec {
	if mode == "cell" {
		return []columnar.ColumnSpec{
			{Name: "value", From: "$value", Type: "bytes"},
			{Name: "key", From: "$row", Type: "bytes"},
			{Name: "family", From: "$family", Type: "string"},
			{Name: "qualifier", From: "$qualifier", Type: "string"},
			{Name: "time", From: "$timestamp", Type: "timestamp"},
		}
	}
	return []columnar.ColumnSpec{
		{Name: "text", From: "f:text", Type: "string"},
		{Name: "key", From: "$row", Type: "bytes"},
		{Name: "int", From: "f:int", Type: "int64", OnError: "null"},
		{Name: "empty", From: "f:", Type: "bytes"},
		{Name: "int again", From: "f:int", Type: "string"},
		{Name: "time", From: "$timestamp", Type: "int64"},
	}
}

// expected is what the export must hold, by the definition of the columns.
func expected(rows []cell.Row, j *Job) [][]string {
	var want [][]string
	for _, row := range rows {
		if bytes.Compare(row.Key, j.rows.Start) < 0 || (len(j.rows.Stop) > 0 && bytes.Compare(row.Key, j.rows.Stop) >= 0) {
			continue
		}
		newest := cell.Timestamp(-1)
		values := map[string]string{}
		for _, c := range row.Cells {
			if j.families != nil && !slices.Contains(j.families, c.Family) {
				continue
			}
			newest = max(newest, c.Time)
			values[c.Family+":"+string(c.Qualifier)] = string(c.Value)
			if j.schema.Mode() == columnar.PerCell {
				want = append(want, []string{string(c.Value), string(row.Key), c.Family, string(c.Qualifier), fmt.Sprint(int64(c.Time) * 1000)})
			}
		}
		if newest < 0 || j.schema.Mode() == columnar.PerCell {
			continue
		}
		get := func(name string) string {
			if v, ok := values[name]; ok {
				return v
			}
			return "-"
		}
		n := "-"
		if _, err := strconv.Atoi(get("f:int")); err == nil {
			n = get("f:int")
		}
		want = append(want, []string{get("f:text"), string(row.Key), n, get("f:"), get("f:int"), fmt.Sprint(int64(newest))})
	}
	return want
}
