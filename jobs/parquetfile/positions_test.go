package parquetfile

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
)

// TestEncodePositions: every row is named, in order, and the columns have the ids by which
// Iceberg knows them.
func TestEncodePositions(t *testing.T) {
	rows := make([]uint64, 1000)
	var want []position
	for i := range rows {
		rows[i] = 0x8000_0000_0000_0001 << (i % 3)
		for bit := range 64 {
			if rows[i]&(1<<bit) != 0 {
				want = append(want, position{"file:///x", int64(i*64 + bit)})
			}
		}
	}
	data, err := EncodePositions("file:///x", rows)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parquet.Read[position](bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	file, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int32{PositionsFile, PositionsRow} {
		if e := file.Metadata().Schema[1+i]; e.FieldID != want {
			t.Errorf("column %s has the id %v, want %d", e.Name, e.FieldID, want)
		}
	}
}
