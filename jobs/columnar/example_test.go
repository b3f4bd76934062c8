package columnar_test

import (
	"fmt"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/store"
)

// Cells become typed columns; what a column cannot take is said with its place.
func Example() {
	table := &store.TableDescriptor{Name: "users", Families: []store.FamilyDescriptor{store.NewFamily("u")}}
	schema, err := columnar.Compile([]columnar.ColumnSpec{
		{Name: "user", From: columnar.FromRow, Type: "string"},
		{Name: "age", From: "u:age", Type: "int64", Coding: "text"},
	}, columnar.PerRow, table)
	if err != nil {
		fmt.Println(err)
		return
	}
	b := columnar.NewBuilder(schema)
	row := func(key, age string) *cell.Row {
		return &cell.Row{Key: []byte(key), Cells: []cell.Cell{{Family: "u", Qualifier: []byte("age"), Time: 1, Kind: cell.KindPut, Value: []byte(age)}}}
	}
	for _, r := range []*cell.Row{row("ann", "41"), row("bob", "007")} {
		if err := b.Append(r); err != nil {
			fmt.Println(err)
			return
		}
	}
	batch := b.Batch()
	for i := range batch.Rows() {
		fmt.Printf("%s %d\n", batch.Vector(0).Bytes(i), batch.Vector(1).Int64s()[i])
	}
	fmt.Println(b.Append(row("zoe", "young")))
	// Output:
	// ann 41
	// bob 7
	// table users, row "zoe", column age (u:age): value "young" is not int64 in coding text: not a decimal number (on_error: null would export null)
}
