package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/store"
)

// cellsOnly is a snapshot whose rows cannot be had as they are stored.
type cellsOnly struct{ store.Snapshot }

func (c cellsOnly) Scan(ctx context.Context, s *store.Scan) store.Scanner {
	return struct{ store.Scanner }{c.Snapshot.Scan(ctx, s)}
}

// TestPackedExport: an export that takes rows as they are stored makes the files, byte for
// byte, that cells make: of rows of one put among some that are more, of wide ones that
// fill a batch by their bytes, in files that end within a region.
func TestPackedExport(t *testing.T) {
	t.Parallel()
	db := jobstest.OpenPebble(t, t.TempDir())
	jobstest.CreateTable(t, db, "t", "row02000")
	wide := strings.Repeat("w", 20_000)
	for i := range 4000 {
		text := fmt.Sprint("text ", i%50)
		if i > 3000 {
			text = wide[:100+i]
		}
		if i%500 == 499 {
			text = wide + wide + wide + wide // more than is taken at once
		}
		row := fmt.Sprintf("row%05d", i)
		jobstest.Mutate(t, db, "t", row, jobstest.PutOp("f", "n", 1, fmt.Sprint(i)), jobstest.PutOp("f", "v", 1, text))
		switch {
		case i%7 == 0:
			jobstest.Mutate(t, db, "t", row, jobstest.PutOp("f", "v", 2, "again"))
		case i%11 == 0:
			jobstest.Mutate(t, db, "t", row, jobstest.PutOp("f", "other", 3, "more"))
		}
	}
	if err := db.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	src := jobstest.SnapshotOf(t, db)
	at := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	for name, change := range map[string]func(*Spec){
		"rows":  func(*Spec) {},
		"files": func(s *Spec) { s.TargetFileBytes = 1 << 20; s.RowGroupBytes = 1 << 20 },
		"key fields": func(s *Spec) {
			s.Columns = append(s.Columns, columnar.ColumnSpec{Name: "t", From: "$timestamp", Type: "timestamp"})
		},
		"conditions": func(s *Spec) { s.Where = []columnar.Predicate{{Column: "n", Op: ">", Value: "1000"}} },
		"partitions": func(s *Spec) {
			s.PartitionBy = []string{"other"}
			s.Columns = append(s.Columns, columnar.ColumnSpec{Name: "other", From: "f:other", Type: "string"})
		},
		"sorted": func(s *Spec) { s.Sort = []SortColumn{{Column: "n", Order: "descending"}} },
		"unmatched": func(s *Spec) {
			s.Columns = append(s.Columns, columnar.ColumnSpec{Name: "rest", From: "$unmatched.f", Type: "map"})
		},
		"cells": func(s *Spec) {
			s.Rows, s.Columns = "cell", []columnar.ColumnSpec{{Name: "v", From: "$value", Type: "string"}}
		},
	} {
		var files [2][]string
		for i, source := range []store.Snapshot{src, cellsOnly{src}} {
			spec := largeSpec()
			spec.Columns[2].Type = "string"
			change(spec)
			m, _ := published(t, source, spec, RunOptions{LogicalTime: at, Now: func() time.Time { return at }})
			for _, f := range m.Files {
				files[i] = append(files[i], fmt.Sprint(f.Path, " ", f.Rows, " ", f.SHA256, " ", f.MinRow, " ", f.MaxRow))
			}
			slices.Sort(files[i])
		}
		if d := cmp.Diff(files[1], files[0]); d != "" {
			t.Errorf("%s (-of cells +as stored):\n%s", name, d)
		}
	}
}

// damagedRows is a scan that gives rows as they are stored.
type damagedRows struct {
	store.Scanner
	keys, values []string
}

func (d *damagedRows) NextPacked(rows *cell.PackedRows, _, _ int) int {
	rows.Reset("f")
	for i, key := range d.keys {
		rows.Append([]byte(key), []byte(d.values[i]), 1)
	}
	d.keys = nil
	return rows.Len()
}

// damagedSource scans damagedRows.
type damagedSource struct {
	store.Snapshot
	rows damagedRows
}

func (d *damagedSource) Scan(ctx context.Context, s *store.Scan) store.Scanner {
	rows := d.rows
	rows.Scanner = d.Snapshot.Scan(ctx, s)
	return &rows
}

// TestPackedDamage: rows that are damaged as they are stored, or out of order, end the run
// with an error that names table and row.
func TestPackedDamage(t *testing.T) {
	t.Parallel()
	db := jobstest.OpenPebble(t, t.TempDir())
	jobstest.CreateTable(t, db, "t")
	src := jobstest.SnapshotOf(t, db)
	const whole = "\x00\x01n\x011\x01v\x011"
	for name, tt := range map[string]struct {
		rows   damagedRows
		change func(*Spec)
		want   string
	}{
		"cut off":        {rows: damagedRows{keys: []string{"a", "b"}, values: []string{whole, whole[:7]}}, want: `table t: store: corrupt data: row "b"`},
		"one by one":     {rows: damagedRows{keys: []string{"a", "b"}, values: []string{whole, whole[:7]}}, change: func(s *Spec) { s.Where = []columnar.Predicate{{Column: "n", Op: "==", Value: "1"}} }, want: `scan of table t: row "b"`},
		"not in order":   {rows: damagedRows{keys: []string{"b", "a"}, values: []string{whole, whole}}, want: `scan of table t returned row "a" after "b"`},
		"the same twice": {rows: damagedRows{keys: []string{"a", "a"}, values: []string{whole, whole}}, want: `scan of table t returned row "a" after "a"`},
	} {
		spec := largeSpec()
		if tt.change != nil {
			tt.change(spec)
		}
		job, err := Compile("j", spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Run(t.Context(), &RunOptions{Job: job, Source: &damagedSource{src, tt.rows}, Out: t.TempDir()})
		if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an ErrCorrupt with %q", name, err, tt.want)
		}
	}
}
