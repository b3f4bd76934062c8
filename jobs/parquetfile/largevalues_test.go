package parquetfile

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"sluice/jobs/columnar"
)

// TestLargeValues: batches have few rows where values are large, also where a page has a
// value once that many rows have, whose texts would not fit one batch.
func TestLargeValues(t *testing.T) {
	t.Parallel()
	const rows = 3000
	large := strings.Repeat("v", 256<<10)
	type row struct {
		K string            `parquet:"k"`
		D *string           `parquet:"d,optional,dict"`
		F [30000]byte       `parquet:"f,dict"`
		M map[string]string `parquet:"m,optional" parquet-value:",dict"`
		N *int64            `parquet:"n,optional"`
		P string            `parquet:"p"`
	}
	var b bytes.Buffer
	w := parquet.NewGenericWriter[row](&b, parquet.Compression(&parquet.Zstd))
	d := func(i int) int { return len(large) >> (i / 100 % 20) }
	isNull := func(i int) bool { return i%7 == 3 }
	p := func(i int) int { return i % 50 * (i % 50) }
	for i := range rows {
		one := row{K: fmt.Sprint("k", i), P: large[:p(i)]}
		if !isNull(i) {
			text, n := large[:d(i)], int64(i)
			one.D, one.N = &text, &n
			one.M = map[string]string{"x": text, "y": ""}
		}
		if _, err := w.Write([]row{one}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, columns := range [][]string{{"k", "d", "n", "p"}, {"k", "f", "n"}, {"n", "m", "k"}, {"k", "d", "f", "m", "n", "p"}} {
		r, err := NewForeignReader(bytes.NewReader(b.Bytes()), int64(b.Len()), columns)
		if err != nil {
			t.Fatal(err)
		}
		got, batches := 0, 0
		for {
			batch, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%v, row %d: %v", columns, got+1, err)
			}
			batches++
			if n := batch.Bytes(); n > columnar.ReadBatchBytes+len(columns)*len(large) {
				t.Fatalf("%v: Got a batch of %d bytes", columns, n)
			}
			for i, c := range batch.Columns() {
				v := batch.Vector(i)
				if v.Len() != batch.Rows() {
					t.Fatalf("%v: Got %d values of %s in a batch of %d rows", columns, v.Len(), c.Name, batch.Rows())
				}
				for j := range v.Len() {
					at := got + j
					if null := isNull(at) && c.Nullable; v.IsNull(j) != null {
						t.Fatalf("%v: row %d, column %s: Got null %v, want %v", columns, at+1, c.Name, !null, null)
					} else if null {
						continue
					}
					ok := false
					switch c.Name {
					case "k":
						ok = string(v.Bytes(j)) == fmt.Sprint("k", at)
					case "d":
						ok = len(v.Bytes(j)) == d(at)
					case "f":
						ok = len(v.Bytes(j)) == 30000
					case "m":
						from, to := v.EntriesOf(j)
						ok = to-from == 2 && v.Size(j) == 2+d(at)
					case "n":
						ok = v.Int64s()[j] == int64(at)
					case "p":
						ok = len(v.Bytes(j)) == p(at)
					}
					if !ok {
						t.Fatalf("%v: row %d, column %s: Got another value", columns, at+1, c.Name)
					}
				}
			}
			got += batch.Rows()
		}
		if got != rows || batches > 300 {
			t.Errorf("%v: Got %d rows in %d batches, want %d", columns, got, batches, rows)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLargeRowGroup: so it is with files of our own, of large row groups.
func TestLargeRowGroup(t *testing.T) {
	t.Parallel()
	columns := []columnar.Column{{Name: "v", Type: columnar.String, Nullable: true}}
	batch := columnar.NewBatch(columns)
	value := bytes.Repeat([]byte("v"), 1<<20)
	for range 4 {
		if err := batch.Vector(0).AppendBytes(value); err != nil {
			t.Fatal(err)
		}
		batch.Vector(0).AppendNull()
	}
	var b bytes.Buffer
	w, err := NewWriter(&b, columns, &Options{RowGroupBytes: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	for range 40 {
		if err := w.Write(batch); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for {
		got, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := got.Bytes(); n > columnar.ReadBatchBytes+2*len(value) {
			t.Errorf("Got a batch of %d bytes", n)
		}
		rows += got.Rows()
	}
	if rows != 320 {
		t.Errorf("Got %d rows, want 320", rows)
	}
}
