package main

import (
	"fmt"
	"testing"

	"github.com/apache/arrow/go/v15/arrow/array"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/store"
)

// TestArrowPeer: both sides of the comparison make the same record, where cells are
// absent and where others are between, too.
func TestArrowPeer(t *testing.T) {
	t.Parallel()
	specs := []columnar.ColumnSpec{
		{Name: "user", From: "e:user", Type: "string"},
		{Name: "time", From: "$timestamp", Type: "timestamp"},
		{Name: "ms", From: "e:duration_ms", Type: "int64", Coding: "text"},
	}
	desc := &store.TableDescriptor{Name: rowTable, Families: []store.FamilyDescriptor{store.NewFamily("e")}}
	schema, err := columnar.Compile(specs, columnar.PerRow, desc)
	if err != nil {
		t.Fatal(err)
	}
	peer, err := newArrowPeer(specs, schema)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.builder.Release()
	ours := columnar.NewBuilder(schema)
	for i := range 8 {
		row := &cell.Row{Key: []byte{byte('a' + i)}}
		for k, c := range [][2]string{{"duration_ms", fmt.Sprint(-7 * i)}, {"other", "x"}, {"user", "me"}} {
			if i>>k&1 == 0 || c[0] == "other" {
				row.Cells = append(row.Cells, cell.Cell{Family: "e", Qualifier: []byte(c[0]), Time: cell.Timestamp(1000*i + k), Value: []byte(c[1])})
			}
		}
		if err := ours.Append(row); err != nil {
			t.Fatal(err)
		}
		if err := peer.add(row); err != nil {
			t.Fatal(err)
		}
	}
	want := ours.Batch().Record(columnar.ArrowSchema(schema.Columns(), nil))
	defer want.Release()
	got := peer.builder.NewRecord()
	defer got.Release()
	if !array.RecordEqual(got, want) {
		t.Errorf("Got %v, want %v", got, want)
	}
	if err := peer.add(&cell.Row{Key: []byte("x"), Cells: []cell.Cell{{Family: "e", Qualifier: []byte("duration_ms"), Value: []byte("long")}}}); err == nil {
		t.Error("a duration that is no number: no error")
	}
	for _, spec := range []columnar.ColumnSpec{{Name: "b", From: "e:b", Type: "bool"}, {Name: "row", From: "$row", Type: "string"}} {
		schema, err := columnar.Compile([]columnar.ColumnSpec{spec}, columnar.PerRow, desc)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := newArrowPeer([]columnar.ColumnSpec{spec}, schema); err == nil {
			t.Errorf("column %s has a peer", spec.Name)
		}
	}
}
