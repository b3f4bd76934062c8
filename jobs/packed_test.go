package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/jobs/join"
	"sluice/store"
)

// cellsOnly is a snapshot whose rows cannot be had as they are stored.
type cellsOnly struct{ store.Snapshot }

func (c cellsOnly) Scan(ctx context.Context, s *store.Scan) store.Scanner {
	return struct{ store.Scanner }{c.Snapshot.Scan(ctx, s)}
}

// storedOnly is a snapshot that counts the rows that are had as they are stored.
type storedOnly struct {
	store.Snapshot
	rows *atomic.Int64
}

func (s storedOnly) Scan(ctx context.Context, scan *store.Scan) store.Scanner {
	return &storedScanner{s.Snapshot.Scan(ctx, scan).(store.PackedScanner), s.rows}
}

type storedScanner struct {
	store.PackedScanner
	rows *atomic.Int64
}

func (s *storedScanner) NextPacked(rows *cell.PackedRows, most, bytes int) int {
	n := s.PackedScanner.NextPacked(rows, most, bytes)
	s.rows.Add(int64(n))
	return n
}

// storedSpec is a job of storedSource's table.
func storedSpec() *Spec {
	s := largeSpec()
	s.Families = []string{"f"}
	return s
}

// storedSource has table t: rows of one put among some that are more, and wide ones that
// fill a batch by their bytes.
func storedSource(t *testing.T) store.Snapshot {
	t.Helper()
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
	return jobstest.SnapshotOf(t, db)
}

// TestPackedExport: an export that takes rows as they are stored makes the files, byte for
// byte, that cells make: of rows of one put among some that are more, of wide ones that
// fill a batch by their bytes, in files that end within a region.
func TestPackedExport(t *testing.T) {
	t.Parallel()
	src := storedSource(t)
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
		if testing.Short() && name != "files" && name != "sorted" && name != "cells" {
			continue
		}
		var files [2][]string
		var stored atomic.Int64
		for i, source := range []store.Snapshot{storedOnly{src, &stored}, cellsOnly{src}} {
			spec := storedSpec()
			spec.Columns[2].Type = "string"
			change(spec)
			m, _ := published(t, source, spec, RunOptions{LogicalTime: at, Now: func() time.Time { return at }})
			for _, f := range m.Files {
				files[i] = append(files[i], fmt.Sprint(f.Path, " ", f.Rows, " ", f.SHA256, " ", f.MinRow, " ", f.MaxRow))
			}
			slices.Sort(files[i])
		}
		if stored.Load() < 2000 && name != "cells" { // which come in parts
			t.Errorf("%s: Got %d rows as they are stored", name, stored.Load())
		}
		if d := jobstest.Diff(files[1], files[0]); d != "" {
			t.Errorf("%s (-of cells +as stored):\n%s", name, d)
		}
	}
}

// TestPackedJoin: a join of tables whose rows are taken as they are stored makes the files
// that cells make, whatever it merges, hashes or looks up.
func TestPackedJoin(t *testing.T) {
	t.Parallel()
	src := storedSource(t)
	at := time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
	for name, change := range map[string]func(*Spec){
		"rows":       func(*Spec) {},
		"conditions": func(s *Spec) { s.Where = []columnar.Predicate{{Column: "n", Op: ">", Value: "1000"}} },
		"unmatched": func(s *Spec) {
			s.Columns = append(s.Columns, columnar.ColumnSpec{Name: "rest", From: "$unmatched.f", Type: "map"})
		},
	} {
		if testing.Short() && name != "unmatched" {
			continue
		}
		spec, few := storedSpec(), storedSpec()
		change(spec)
		few.StartRow, few.StopRow = "row01000", "row03500"
		all := map[string]*Job{"all": mustCompile(t, "all", spec, nil), "few": mustCompile(t, "few", few, nil)}
		for _, method := range []string{join.Merge, join.Hash, join.Lookup} {
			columns := []join.Column{{Name: "key", From: "key.key"}, {Name: "left n", From: "left.n"}}
			for _, c := range spec.Columns[1:] {
				columns = append(columns, join.Column{Name: c.Name, From: "right." + c.Name})
			}
			j, err := CompileJoin("j", &JoinSpec{
				Left: JoinSide{Job: "few"}, Right: JoinSide{Job: "all"}, Formats: []string{Parquet},
				Spec: join.Spec{Kind: join.Left, Method: method, On: []join.On{{Left: "key", Right: "key"}}, Columns: columns},
			}, func(name string) *Job { return all[name] })
			if err != nil {
				t.Fatal(err)
			}
			var sums [2][]string
			var stored atomic.Int64
			for i, source := range []store.Snapshot{storedOnly{src, &stored}, cellsOnly{src}} {
				m, err := RunJoin(t.Context(), &JoinOptions{Join: j, Source: source, Out: t.TempDir(), LogicalTime: at, Now: func() time.Time { return at }})
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range m.Files {
					sums[i] = append(sums[i], fmt.Sprint(f.Path, " ", f.Rows, " ", f.SHA256))
				}
			}
			if stored.Load() < 2000 {
				t.Errorf("%s, %s: Got %d rows as they are stored", name, method, stored.Load())
			}
			if d := jobstest.Diff(sums[1], sums[0]); d != "" || len(sums[0]) == 0 {
				t.Errorf("%s, %s (-of cells +as stored):\n%s", name, method, d)
			}
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
		"cut off": {rows: damagedRows{keys: []string{"a", "b"}, values: []string{whole, whole[:7]}}, want: `table t: store: corrupt data: row "b"`},
		"one by one": {rows: damagedRows{keys: []string{"a", "b"}, values: []string{whole, whole[:7]}}, change: func(s *Spec) {
			s.Columns = append(s.Columns, columnar.ColumnSpec{Name: "rest", From: "$unmatched.f", Type: "map"})
		}, want: `scan of table t: row "b"`},
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
