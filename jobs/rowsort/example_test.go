package rowsort_test

import (
	"context"
	"fmt"

	"sluice/jobs/columnar"
	"sluice/jobs/rowsort"
	"sluice/jobs/spill"
)

// Pages come sorted by their views, the most viewed first.
func Example() {
	columns := []columnar.Column{{Name: "page", Type: columnar.String}, {Name: "views", Type: columnar.Int64}}
	b := columnar.NewBatch(columns)
	for i, page := range []string{"/", "/about", "/cart"} {
		if err := b.Vector(0).AppendBytes([]byte(page)); err != nil {
			fmt.Println(err)
			return
		}
		b.Vector(1).AppendInt64([]int64{20, 3, 41}[i])
	}

	s := rowsort.New(&rowsort.Options{Columns: columns, Disk: &spill.Disk{}})
	defer s.Close()
	byViews := columnar.Order{Column: "views", Descending: true}
	for i := range b.Rows() {
		if err := s.Collector(0).Add(byViews.AppendTo(nil, b.Vector(1), i), b, i); err != nil {
			fmt.Println(err)
			return
		}
	}
	rows, err := s.Sorted(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	sorted := columnar.NewBatch(columns)
	for {
		ok, err := rows.Next()
		if err != nil {
			fmt.Println(err)
			return
		}
		if !ok {
			break
		}
		if err := rows.AppendTo(sorted); err != nil {
			fmt.Println(err)
			return
		}
	}
	for i := range sorted.Rows() {
		fmt.Printf("%s %d\n", sorted.Vector(0).Bytes(i), sorted.Vector(1).Int64s()[i])
	}
	// Output:
	// /cart 41
	// / 20
	// /about 3
}
