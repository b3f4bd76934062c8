package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sluice/jobs/columnar"
	"sluice/jobs/parquetfile"
)

// TestCopiedRows: the file that DuckDB's is compared with holds the rows of the export
// stage, six columns of each event and its time.
func TestCopiedRows(t *testing.T) {
	t.Parallel()
	o, err := parseCopies([]string{"-rows", "3000"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o.dir = t.TempDir()
	batches, schema, err := pageViewBatches(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(o.dir, "rows.parquet")
	size, err := writeParquet(name, batches, schema)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(name)
	if err != nil || int64(len(data)) != size {
		t.Fatalf("a file of %d bytes has %d (%v)", size, len(data), err)
	}
	r, err := parquetfile.NewReader(bytes.NewReader(data), size)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	want, got := columnar.NewChecksum(7), columnar.NewChecksum(7)
	for _, b := range batches {
		want.Add(b)
	}
	rows := 0
	for b, err := r.Next(); err != io.EOF; b, err = r.Next() {
		if err != nil {
			t.Fatal(err)
		}
		got.Add(b)
		rows += b.Rows()
	}
	if w, g := want.Sums(), got.Sums(); rows != o.rows || !slices.Equal(w, g) {
		t.Errorf("the file has %d rows with sums %v, want %d with %v", rows, g, o.rows, w)
	}
	for _, args := range [][]string{{"-rows", "10"}, {"-rounds", "0"}, {"more"}} {
		if _, err := parseCopies(args, io.Discard); err == nil {
			t.Errorf("%q: got no error", args)
		}
	}
}
