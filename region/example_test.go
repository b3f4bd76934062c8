package region_test

import (
	"fmt"

	"sluice/cell"
	"sluice/region"
)

func Example() {
	points, err := region.SplitPoints(region.HexStringSplit, 4)
	if err != nil {
		panic(err)
	}
	m, err := region.Create("events", points, 1_700_000_000_000)
	if err != nil {
		panic(err)
	}
	m, err = m.Split([]byte("60"), 1_700_000_360_000)
	if err != nil {
		panic(err)
	}
	for _, o := range m.Overlapping(cell.Range{Start: []byte("5"), Stop: []byte("9")}) {
		fmt.Printf("region %d rows [%s, %s)\n", o.Index, o.Range.Start, o.Range.Stop)
	}
	// Output:
	// region 1 rows [5, 60)
	// region 2 rows [60, 80000000)
	// region 3 rows [80000000, 9)
}
